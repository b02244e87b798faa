"""Publishing put together: a saved review, the pull request, and the client of the forge.

Nothing here asks a model, or loads what could: whoever posts holds a token, and whoever reviews holds none.
"""

from __future__ import annotations

import os
import string
import sys
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from codeloupe.engine.history import LAST, OpenedHistory, find_review, judged, opened_history
from codeloupe.errors import ForgeRefused, UsageError
from codeloupe.forges.forge import Patience, Sending
from codeloupe.forges.github.address import (
    Endpoints,
    Target,
    endpoints_of,
    parse_pull_request,
    parse_repository,
    read_event,
    repository_at,
)
from codeloupe.forges.github.client import AppLogin, Login, TokenLogin, connected
from codeloupe.forges.marker import Marker, SigningKey
from codeloupe.forges.plan import make_plan
from codeloupe.forges.publish import execute
from codeloupe.forges.review_file import read_review
from codeloupe.git.command import try_git
from codeloupe.git.identity import find_identity, same_address
from codeloupe.git.repository import open_repository
from codeloupe.model.publication import Publication, PublishOptions, StatusKind
from codeloupe.model.review import Review

_STANDARD_INPUT = "-"
# JSON that a stranger wrote may take thirty times as much in memory.
_MOST_JSON_BYTES = 32 * 1024**2


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
    endpoints = endpoints_of(environment)
    target = await _target(request, endpoints, environment)
    login = _login(request, environment)
    secret = environment.get("CODELOUPE_PUBLISH_KEY", "").strip()
    if not secret and isinstance(login, AppLogin):
        secret = login.private_key
    key = SigningKey.from_secret(secret) if secret else SigningKey.public()
    review = await _review(request, opened)
    # What a job of a fork leaves may claim anything: it must be about the commit that GitHub says it ran on.
    if target.head and review.scope.head != target.head:
        raise UsageError(
            f"the review is for a commit other than {target.head[:12]}, on which the finished workflow ran",
            hint="publish the report of that workflow, and review the head of the pull request in it",
        )
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
    target = parse_pull_request(request.pull_request, endpoints) if request.pull_request else Target()
    if request.repository:
        named = parse_repository(request.repository)
        if target.owner and not target.is_same_repository(named):
            raise UsageError("--pr and --repo-name name two repositories", hint="give one of them")
        target = replace(named, number=target.number)
    if path := environment.get("GITHUB_EVENT_PATH", ""):
        event = _content(Path(path), _MOST_JSON_BYTES, "the event file of GitHub Actions")
        target = target.completed(read_event(event.decode("utf-8", "replace")))
    if name := environment.get("GITHUB_REPOSITORY", ""):
        target = target.completed(parse_repository(name))
    if not target.owner:
        with suppress(UsageError):
            repository = await open_repository(request.repo)
            origin = await try_git(repository.place, "config", "--get", "remote.origin.url")
            address = same_address(os.fsdecode(origin.stdout).rstrip("\n")) if origin.exit_code == 0 else None
            target = target.completed(repository_at(address, endpoints)) if address else target
    target.check()
    return target


def _login(request: PublishRequest, environment: Mapping[str, str]) -> Login:
    app_id = request.app_id or environment.get("CODELOUPE_APP_ID", "").strip()
    named = environment.get("CODELOUPE_APP_KEY_FILE", "").strip()
    key_file = request.app_key_file or (Path(named) if named else None)
    if bool(app_id) != (key_file is not None):
        raise UsageError("a GitHub App needs both its id and its private key", hint="give --app-id and --app-key FILE")
    if key_file is not None:
        return AppLogin(app_id, _content(key_file, 64 * 1024, "the App's private key").decode("utf-8", "replace"))
    token = environment.get("GITHUB_TOKEN", "").strip() or environment.get("GH_TOKEN", "").strip()
    if not token:
        raise ForgeRefused(
            "no token for GitHub is set", hint="set GITHUB_TOKEN or GH_TOKEN, or give --app-id and --app-key FILE"
        )
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ForgeRefused("the token for GitHub holds characters that no token has", hint="set GITHUB_TOKEN again")
    return TokenLogin(token)


async def _review(request: PublishRequest, opened: OpenedHistory) -> Review:
    word = request.review
    # A word that names no entry of the history may name a file: an id has digits and the letters a to f.
    is_id = word == LAST or set(word.lower()) <= set(string.hexdigits.lower())
    is_file = word == _STANDARD_INPUT or word.endswith(".json") or os.sep in word
    if is_file or (not is_id and os.path.isfile(word)):  # noqa: PTH113 - Path.is_file raises for an impossible name
        return read_review(_content(Path(word), _MOST_JSON_BYTES, "the report"), name=word)
    with opened() as history:
        identity = await find_identity(request.repo, history)
        record = find_review(history, word, here=lambda: identity)
    return judged(record, record.review.policy)


def _content(path: Path, most_bytes: int, what: str) -> bytes:
    try:
        with nullcontext(sys.stdin.buffer) if str(path) == _STANDARD_INPUT else path.open("rb") as file:
            data = file.read(most_bytes + 1)
    except OSError as error:
        reason = (error.strerror or "unknown error").lower()
        raise UsageError(f"cannot read {what} {path}: {reason}", hint="give a file that can be read") from error
    if len(data) > most_bytes:
        raise UsageError(f"{what} {path} is larger than {most_bytes:,} bytes", hint="give the right file")
    return data
