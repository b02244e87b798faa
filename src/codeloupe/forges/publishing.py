"""Publishing put together: a saved review, the pull request, and the client of the forge.

Nothing here asks a model, or loads what could: whoever posts holds a token, and whoever reviews holds none.
"""

from __future__ import annotations

import json
import math
import os
import string
import sys
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct, convert, field
from msgspec.structs import replace

from codeloupe.errors import ForgeRefused, UsageError
from codeloupe.findings.verdict import conclude
from codeloupe.forges.forge import Patience, Sending, execute
from codeloupe.forges.github import address
from codeloupe.forges.github.address import Endpoints, Target
from codeloupe.forges.github.client import Login, connected
from codeloupe.forges.plan import make_plan
from codeloupe.forges.threads import Marker, SigningKey
from codeloupe.git.command import try_git
from codeloupe.git.identity import same_address
from codeloupe.git.repository import open_repository
from codeloupe.history import LAST, find_review, judged, locate, opened_history
from codeloupe.model.finding import Severity
from codeloupe.model.history import steps_back
from codeloupe.model.publication import Publication, PublishOptions, StatusKind
from codeloupe.model.review import FailedUnit, Review
from codeloupe.store.history import OpenedHistory
from codeloupe.store.report_findings import read_finding

_STANDARD_INPUT = "-"
# JSON that a stranger wrote may take thirty times as much in memory.
_MOST_JSON_BYTES = 32 * 1024**2
_HOW = "give a file that `codeloupe review --format json -o FILE` wrote"


class PublishRequest(Struct, frozen=True, kw_only=True):
    """What is asked for. `pull_request` and `repository` are as a person writes them, empty when not given.

    `review` is an id, the beginning of one, `last`, or the path of a JSON report; `status` None chooses by the token.
    """

    repo: Path
    pull_request: str = ""
    repository: str = ""
    review: str = LAST
    options: PublishOptions = field(default_factory=PublishOptions)
    status: StatusKind | None = None
    app_id: str = ""
    app_key_file: Path | None = None
    dry_run: bool = False


async def publish_github(
    request: PublishRequest,
    *,
    environment: Mapping[str, str] = os.environ,
    patience: Patience | None = None,
    opened: OpenedHistory = opened_history,
) -> Publication:
    """Post a saved review on a pull request of GitHub.

    Raises UsageError, StoreError, ForgeError and HeadMoved when nothing could be posted; what failed only in part is
    in the result.
    """
    waiting = patience or Patience()
    endpoints = address.endpoints_of(environment)
    target = await _target(request, endpoints, environment)
    login = _login(request, environment)
    secret = environment.get("CODELOUPE_PUBLISH_KEY", "").strip() or login.private_key
    key = SigningKey.from_secret(secret) if secret else SigningKey.public()
    review = _review(request, opened)
    # What a job of a fork leaves may claim anything: it must be about the commit that GitHub says it ran on.
    if target.head and review.scope.head != target.head:
        what = f"the review is for a commit other than {target.head[:12]}, on which the finished workflow ran"
        hint = "publish the report of that workflow, and review the head of the pull request in it"
        raise UsageError(what, hint=hint)
    status = request.status or (StatusKind.CHECK if login.is_installation else StatusKind.COMMIT)
    async with connected(endpoints, login, target=target, patience=waiting) as client:
        found = await client.read(key)
        marker = Marker(key, found.repository_id, found.name.number)
        plan = make_plan(review, found, marker=marker, options=replace(request.options, status=status))
        if request.dry_run:
            return Publication(plan=plan, dry_run=True)
        return await execute(plan, Sending(client, marker, waiting))


async def _target(request: PublishRequest, endpoints: Endpoints, environment: Mapping[str, str]) -> Target:
    """What was said counts first, then what GitHub Actions says, then the address of the clone."""
    target = address.parse_pull_request(request.pull_request, endpoints) if request.pull_request else Target()
    if request.repository:
        named = address.parse_repository(request.repository)
        if target.owner and not target.is_same_repository(named):
            raise UsageError("--pr and --repo-name name different repositories", hint="give one of them")
        target = replace(named, number=target.number)
    if path := environment.get("GITHUB_EVENT_PATH", ""):
        event = _content(Path(path), _MOST_JSON_BYTES, "the event file of GitHub Actions")
        target = target.completed(address.read_event(event.decode("utf-8", "replace")))
    if name := environment.get("GITHUB_REPOSITORY", ""):
        target = target.completed(address.parse_repository(name))
    if not target.owner:
        with suppress(UsageError):
            repository = await open_repository(request.repo)
            origin = await try_git(repository.place, "config", "--get", "remote.origin.url")
            found = same_address(os.fsdecode(origin.stdout).rstrip("\n")) if origin.exit_code == 0 else None
            target = target.completed(address.repository_at(found, endpoints)) if found else target
    target.check()
    return target


def _login(request: PublishRequest, environment: Mapping[str, str]) -> Login:
    app_id = request.app_id or environment.get("CODELOUPE_APP_ID", "").strip()
    named = environment.get("CODELOUPE_APP_KEY_FILE", "").strip()
    key_file = request.app_key_file or (Path(named) if named else None)
    if bool(app_id) != (key_file is not None):
        raise UsageError("a GitHub App needs both its id and its private key", hint="give --app-id and --app-key FILE")
    if key_file is not None:
        key = _content(key_file, 64 * 1024, "the App's private key").decode("utf-8", "replace")
        return Login(app_id=app_id, private_key=key)
    token = environment.get("GITHUB_TOKEN", "").strip() or environment.get("GH_TOKEN", "").strip()
    if not token:
        raise ForgeRefused(
            "no token for GitHub is set", hint="set GITHUB_TOKEN or GH_TOKEN, or give --app-id and --app-key FILE"
        )
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ForgeRefused("the token for GitHub contains invalid characters", hint="set GITHUB_TOKEN again")
    return Login(token=token)


def _review(request: PublishRequest, opened: OpenedHistory) -> Review:
    """Return the review to publish, from the history or a report file. Raise UsageError and StoreError."""
    word = request.review
    # A word that is not an id may name a file: an id has digits and the letters a to f.
    is_id = steps_back(word) is not None or set(word.lower()) <= set(string.hexdigits.lower())
    is_file = word == _STANDARD_INPUT or word.endswith(".json") or os.sep in word
    if is_file or (not is_id and os.path.isfile(word)):  # noqa: PTH113 - Path.is_file raises for an impossible name
        return read_review(_content(Path(word), _MOST_JSON_BYTES, "the report"), name=word)
    with opened() as history:
        record = find_review(history, word, here=locate(history, request.repo))
    return judged(record, record.review.policy)


def _content(path: Path, most_bytes: int, what: str) -> bytes:
    try:
        with nullcontext(sys.stdin.buffer) if str(path) == _STANDARD_INPUT else path.open("rb") as file:
            data = file.read(most_bytes + 1)
    except OSError as error:
        reason = (error.strerror or "unknown error").lower()
        raise UsageError(f"cannot read {what} {path}: {reason}", hint="give a readable file") from error
    if len(data) > most_bytes:
        raise UsageError(f"{what} {path} is larger than {most_bytes:,} bytes", hint="give the right file")
    return data


def read_review(text: bytes, *, name: str) -> Review:
    """Return the review in a report, which may come from an untrusted job.

    Raise UsageError for anything that is not a report of version 1. Fields that are not known are ignored.
    """
    try:
        document = json.loads(text, parse_int=_whole, parse_float=_finite, parse_constant=_finite)
        findings = {part: tuple(map(read_finding, document[part])) for part in ("findings", "omitted")}
        return _concluded(replace(convert(_in_our_words(document), Review), **findings))
    except KeyError as error:
        why = f"{error} is missing"
    except (TypeError, AttributeError):
        # What the interpreter says of a wrong kind is about its own affairs.
        why = "a value in it has the wrong type"
    except (ValueError, RecursionError) as error:
        why = str(error)[:200]
    raise UsageError(f"{name} is not a JSON report of version 1 ({why})", hint=_HOW)


def _concluded(review: Review) -> Review:
    """The review as its findings and its coverage show it; incomplete if it says something else of itself."""
    shown = conclude(review)
    if (shown.complete, shown.exit_code) == (review.complete, review.exit_code):
        return shown
    gap = FailedUnit("the report", (), "its outcome contradicts its findings and its coverage")
    coverage = replace(review.coverage, units_failed=(*review.coverage.units_failed, gap))
    return conclude(replace(review, coverage=coverage))


def _whole(digits: str) -> int | None:
    return int(digits) if len(digits) < 20 and -1 <= int(digits) <= 10**12 else None


def _finite(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else 0.0


def _in_our_words(document: dict[str, Any]) -> dict[str, Any]:
    """The document in the words of this version, without findings. What every review must say is read by `[...]`."""
    if document["schema_version"] != 1:
        raise ValueError("it has another version")
    usage = document["usage"]
    coverage = document["coverage"]
    policy = document["policy"]
    limits = {key: Severity.parse(policy[key]).value for key in ("fail_on", "min_severity")}
    units = [{**unit, "answered_by": unit["answered_by"] or ""} for unit in coverage["units"]]
    return {
        **document,
        "errors": document["errors"],
        "policy": {**policy, **limits},
        "usage": {**usage, "cost_usd": usage["cost_usd"] or 0.0, "duration_seconds": usage["duration_seconds"] or 0.0},
        **dict.fromkeys(("findings", "hidden", "omitted"), ()),
        "coverage": {**coverage, "units": units},
    }
