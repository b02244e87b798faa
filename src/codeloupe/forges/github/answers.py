"""What an answer of GitHub means: whether to wait and ask again, and the error that tells of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any

from msgspec import Struct

from codeloupe.errors import ForgeError, ForgeRefused
from codeloupe.forges.forge import GONE
from codeloupe.system.redaction import redact
from codeloupe.system.untrusted import terminal

# A person who has begun a review by hand, and not sent it, can post nothing beside it.
PENDING = "pending review"
PULL_REQUESTS = "pull-requests: write"
CONTENTS = "contents: write"
CHECKS = "checks: write"
STATUSES = "statuses: write"
READING = "pull-requests: read"
MOST_ATTEMPTS = 4
_LIMIT_WORDS = (b"secondary rate limit", b"abuse detection", b"rate limit exceeded")


class Reply(Struct, frozen=True):
    """What came back for one request; names of headers are in small letters."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class BadAnswer(Exception):
    """An answer that is no success. `words` are GitHub's own; `accepted` names the rights that it wants to see."""

    def __init__(self, status: int, words: str, *, accepted: str = "", sign_on: bool = False) -> None:
        super().__init__(words)
        self.status = status
        self.words = words
        self.accepted = accepted
        self.sign_on = sign_on


class Doing(Struct, frozen=True):
    """What a request was to do, as a verb with its object, and the permission that it takes."""

    what: str
    permission: str


def bad_answer(reply: Reply) -> BadAnswer:
    """The answer in GitHub's own words, as far as it has any."""
    document = _read(reply.body[:1_000_000])
    errors = document.get("errors") or ()
    details = [errors] if isinstance(errors, str) else errors[:5] if isinstance(errors, Sequence) else ()
    said = [each.get("message") or each.get("field") if isinstance(each, Mapping) else each for each in details]
    return BadAnswer(
        reply.status,
        _clean(": ".join(str(each) for each in (document.get("message"), *said) if each)),
        accepted=reply.headers.get("x-accepted-github-permissions", "")[:200],
        sign_on="x-github-sso" in reply.headers,
    )


def _read(body: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, Mapping) else {}


def _clean(text: str) -> str:
    """GitHub's words without secrets and control characters, of a long text the beginning."""
    return terminal(redact(text[:400]))


def explained(answer: BadAnswer, doing: Doing) -> ForgeError:
    """The error for people: what could not be done, and what to do next."""
    status, said = answer.status, f" ({answer.words})" if answer.words else ""
    if status == 401:
        hint = "set GITHUB_TOKEN to one that is valid"
        return ForgeRefused(f"GitHub does not accept the token{said}", status=status, hint=hint)
    if status == 403:
        return ForgeRefused(f"the token may not {doing.what}{said}", status=status, hint=_rights(answer, doing))
    if status in GONE:
        hint = f"look whether the name is right, and the token has access to it with {doing.permission}"
        why = "it is not there, or the token may not see it"
        return ForgeRefused(f"could not {doing.what}: {why}{said}", status=status, hint=hint)
    why, hint = f"GitHub answered {status}", ""
    if 300 <= status < 400:
        why, hint = "GitHub leads elsewhere", "the repository may have another name now; give it with --repo-name"
    elif status >= 500:
        why, hint = f"GitHub failed with {status}", "run it again; what was posted is known then and not posted twice"
    elif PENDING in answer.words.lower():
        hint = "this account has begun a review there by hand; submit or discard it, and run this again"
    return ForgeError(f"could not {doing.what}: {why}{said}", status=status, hint=hint)


def _rights(answer: BadAnswer, doing: Doing) -> str:
    if "locked" in answer.words.lower():
        return "the conversation is locked; unlock it, or leave it"
    if answer.sign_on:
        return "the organisation wants the token to be authorised for single sign-on"
    named = [part.strip().replace("_", "-").replace("=", ": ") for part in answer.accepted.split(";")]
    wanted = " or ".join(filter(None, named)) or doing.permission
    return (
        f"give it {wanted} (in GitHub Actions below `permissions:`); a pull request from a fork gets no token that may"
        " write, so post from a workflow of the base, as docs/publish.md shows"
    )


def query_failure(errors: Any, doing: Doing) -> ForgeError:
    """The error for what GraphQL answers beside, or in the place of, data."""
    first = errors[0] if isinstance(errors, Sequence) and errors and isinstance(errors[0], Mapping) else {}
    words = _clean(str(first.get("message") or "no reason given"))
    statuses = {"FORBIDDEN": 403, "INSUFFICIENT_SCOPES": 403, "NOT_FOUND": 404}
    if status := statuses.get(str(first.get("type"))):
        return explained(BadAnswer(status, words), doing)
    return ForgeError(f"could not {doing.what}: {words}", status=200)


def is_limited(reply: Reply) -> bool:
    """Whether GitHub did nothing, since too much was asked: of the hour, of a moment, or of GraphQL."""
    text = reply.body[:4_000].lower()
    # GitHub's words for too many comments at once, in an answer that looks as if something were wrong with them.
    if reply.status == 429 or (reply.status == 422 and b"submitted too quickly" in text):
        return True
    if reply.status == 403:
        named = "retry-after" in reply.headers or reply.headers.get("x-ratelimit-remaining") == "0"
        return named or any(words in text for words in _LIMIT_WORDS)
    if reply.status != 200 or b'"RATE_LIMIT' not in reply.body:
        return False
    # It counts when GraphQL says so itself, and not a comment that it cites.
    errors = _read(reply.body).get("errors")
    kinds = [each.get("type") for each in errors if isinstance(each, dict)] if isinstance(errors, list) else []
    return any(isinstance(kind, str) and kind.startswith("RATE_LIMIT") for kind in kinds)


def is_failure(reply: Reply) -> bool:
    """Whether GitHub failed on its side, so that nobody knows what it did."""
    return reply.status >= 500


def limit_seconds(reply: Reply, *, times: int, now: float) -> float:
    """How long to wait after a limit was met for the so many-th time: as GitHub says, else a minute, doubling."""
    asked = reply.headers.get("retry-after", "")
    if (seconds := _number(asked)) is not None:
        return seconds
    try:
        return max(parsedate_to_datetime(asked).timestamp() - now, 0.0)
    except (ValueError, TypeError, IndexError, OverflowError):
        reset = _number(reply.headers.get("x-ratelimit-reset", ""))
    if reset is not None and reply.headers.get("x-ratelimit-remaining") == "0":
        return max(reset - now, 0.0) + 1.0
    return 60.0 * (1 << (times - 1))


def _number(text: str) -> float | None:
    word = text.strip()
    return float(word) if word.isascii() and word.isdecimal() and len(word) <= 12 else None
