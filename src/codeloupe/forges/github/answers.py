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

_LONGEST_WORDS = 400


_LOCKED = "locked"


# A person who has begun a review by hand, and not sent it, can post nothing beside it.
PENDING = "pending review"


PULL_REQUESTS = "pull-requests: write"


CONTENTS = "contents: write"


CHECKS = "checks: write"


STATUSES = "statuses: write"


READING = "pull-requests: read"


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
    return BadAnswer(
        reply.status,
        _words(reply),
        accepted=reply.headers.get("x-accepted-github-permissions", "")[:200],
        sign_on="x-github-sso" in reply.headers,
    )


def _words(reply: Reply) -> str:
    try:
        document = json.loads(reply.body[:1_000_000])
    except (ValueError, RecursionError):
        return ""
    if not isinstance(document, Mapping):
        return ""
    found = [document.get("message"), *_details(document.get("errors"))]
    return clean(": ".join(str(each) for each in found if each))


def _details(errors: Any) -> list[str]:
    if isinstance(errors, str):
        return [errors]
    if not isinstance(errors, Sequence):
        return []
    told = (each.get("message") or each.get("field") if isinstance(each, Mapping) else each for each in errors[:5])
    return [str(each) for each in told if each]


def clean(text: str) -> str:
    """GitHub's words without secrets and control characters, of a long text the beginning."""
    return terminal(redact(text[:_LONGEST_WORDS]))


def explained(answer: BadAnswer, doing: Doing) -> ForgeError:
    """The error for people: what could not be done, and what to do next."""
    said = f" ({answer.words})" if answer.words else ""
    match answer.status:
        case 401:
            return ForgeRefused(
                f"GitHub does not accept the token{said}", status=401, hint="set GITHUB_TOKEN to one that is valid"
            )
        case 403:
            return ForgeRefused(f"the token may not {doing.what}{said}", status=403, hint=_rights(answer, doing))
        case status if status in GONE:
            return ForgeRefused(
                f"could not {doing.what}: it is not there, or the token may not see it{said}",
                status=answer.status,
                hint=f"look whether the name is right, and the token has access to it with {doing.permission}",
            )
        case status if 300 <= status < 400:
            hint = "the repository may have another name now; give it with --repo-name"
            return ForgeError(f"could not {doing.what}: GitHub leads elsewhere{said}", status=status, hint=hint)
        case status if status >= 500:
            hint = "run it again; what was posted is known then and not posted twice"
            return ForgeError(f"could not {doing.what}: GitHub failed with {status}{said}", status=status, hint=hint)
        case status:
            pending = "this account has begun a review there by hand; submit or discard it, and run this again"
            hint = pending if PENDING in answer.words.lower() else ""
            return ForgeError(f"could not {doing.what}: GitHub answered {status}{said}", status=status, hint=hint)


def _rights(answer: BadAnswer, doing: Doing) -> str:
    if _LOCKED in answer.words.lower():
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
    words = clean(str(first.get("message") or "no reason given"))
    match first.get("type"):
        case "FORBIDDEN" | "INSUFFICIENT_SCOPES":
            return explained(BadAnswer(403, words), doing)
        case "NOT_FOUND":
            return explained(BadAnswer(404, words), doing)
        case _:
            return ForgeError(f"could not {doing.what}: {words}", status=200)


MOST_ATTEMPTS = 4


# What GitHub asks for when it names no time itself.
_UNNAMED_LIMIT_SECONDS = 60.0


_LIMIT_WORDS = (b"secondary rate limit", b"abuse detection", b"rate limit exceeded")


# GitHub's words for too many comments at once, in an answer that looks as if something were wrong with them.
_TOO_QUICK = b"submitted too quickly"


_LOOKED_AT_BYTES = 4_000


_LIMITED_QUERY = b'"RATE_LIMIT'


_FAILED_FROM = 500


class Reply(Struct, frozen=True):
    """What came back for one request; names of headers are in small letters."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def is_limited(reply: Reply) -> bool:
    """Whether GitHub did nothing, since too much was asked: of the hour, of a moment, or of GraphQL."""
    text = reply.body[:_LOOKED_AT_BYTES].lower()
    if reply.status == 429 or (reply.status == 422 and _TOO_QUICK in text):
        return True
    if reply.status == 403:
        named = "retry-after" in reply.headers or reply.headers.get("x-ratelimit-remaining") == "0"
        return named or any(words in text for words in _LIMIT_WORDS)
    return reply.status == 200 and _LIMITED_QUERY in reply.body and _is_limited_query(reply.body)


def _is_limited_query(body: bytes) -> bool:
    """Whether GraphQL says so itself, and not a comment that it cites."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return False
    errors = document.get("errors") if isinstance(document, dict) else None
    kinds = [each.get("type") for each in errors if isinstance(each, dict)] if isinstance(errors, list) else []
    return any(isinstance(kind, str) and kind.startswith("RATE_LIMIT") for kind in kinds)


def is_failure(reply: Reply) -> bool:
    """Whether GitHub failed on its side, so that nobody knows what it did."""
    return reply.status >= _FAILED_FROM


def limit_seconds(reply: Reply, *, times: int, now: float) -> float:
    """How long to wait after a limit was met for the so many-th time: as GitHub says, else a minute, doubling."""
    asked = _retry_after(reply.headers.get("retry-after", ""), now)
    if asked is not None:
        return asked
    reset = _number(reply.headers.get("x-ratelimit-reset", ""))
    if reset is not None and reply.headers.get("x-ratelimit-remaining") == "0":
        return max(reset - now, 0.0) + 1.0
    return _UNNAMED_LIMIT_SECONDS * (1 << (times - 1))


def _retry_after(text: str, now: float) -> float | None:
    seconds = _number(text)
    if seconds is not None:
        return seconds
    try:
        return max(parsedate_to_datetime(text).timestamp() - now, 0.0)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _number(text: str) -> float | None:
    word = text.strip()
    return float(word) if word.isascii() and word.isdecimal() and len(word) <= 12 else None
