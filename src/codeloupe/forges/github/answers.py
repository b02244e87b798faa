"""What an answer of GitHub means: whether to wait and ask again, and the error that tells of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from codeloupe.errors import ForgeError, ForgeRefused
from codeloupe.forges.forge import AGAIN, GONE
from codeloupe.system.redaction import redact
from codeloupe.system.untrusted import terminal

# A person who has begun a review by hand, and not sent it, can post nothing beside it.
PENDING = "pending review"
_LIMIT_WORDS = (b"secondary rate limit", b"abuse detection", b"rate limit exceeded")


class Reply(Struct, frozen=True):
    """What came back for one request; names of headers are in small letters."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class BadAnswer(Exception):
    """An answer that is no success, in GitHub's own words, as far as it has any.

    `rights` is the hint on a missing right where the answer says more than the permission that we know of.
    """

    def __init__(self, status: int, words: str, *, rights: str = "") -> None:
        super().__init__(words)
        self.status = status
        self.words = terminal(redact(words[:400]))
        self.rights = rights


def bad_answer(reply: Reply) -> BadAnswer:
    """What an answer says went wrong."""
    document = _read(reply.body[:1_000_000])
    errors = document.get("errors") or ()
    details = [errors] if isinstance(errors, str) else errors[:5] if isinstance(errors, Sequence) else ()
    said = [each.get("message") or each.get("field") if isinstance(each, Mapping) else each for each in details]
    words = ": ".join(str(each) for each in (document.get("message"), *said) if each)
    named = reply.headers.get("x-accepted-github-permissions", "")[:200].split(";")
    rights = " or ".join(filter(None, (part.strip().replace("_", "-").replace("=", ": ") for part in named)))
    return BadAnswer(reply.status, words, rights="single sign-on" if "x-github-sso" in reply.headers else rights)


def _read(body: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, Mapping) else {}


def explained(answer: BadAnswer, what: str, permission: str) -> ForgeError:
    """Return the error for people: what failed, and what to do next."""
    status, said = answer.status, f" ({answer.words})" if answer.words else ""
    if status == 401:
        hint = "set GITHUB_TOKEN to a valid token"
        return ForgeRefused(f"GitHub rejected the token{said}", status=status, hint=hint)
    if status == 403:
        hint = (
            f"grant it {answer.rights or permission} (in GitHub Actions under `permissions:`); a pull request from a"
            " fork gets a read-only token, so publish from a workflow of the base, see docs/publish.md"
        )
        if "locked" in answer.words.lower():
            hint = "the conversation is locked; unlock it"
        elif answer.rights == "single sign-on":
            hint = "authorise the token for single sign-on, as the organisation requires"
        return ForgeRefused(f"the token is not allowed to {what}{said}", status=status, hint=hint)
    if status in GONE:
        hint = f"check the name, and that the token has access with {permission}"
        why = "it does not exist, or the token cannot see it"
        return ForgeRefused(f"could not {what}: {why}{said}", status=status, hint=hint)
    why, hint = f"GitHub answered {status}", ""
    if status == 200:  # of GraphQL
        why, said = answer.words, ""
    elif 300 <= status < 400:
        why, hint = (
            "GitHub redirected the request",
            "the repository may have been renamed; give its new name with --repo-name",
        )
    elif status >= 500:
        why, hint = f"GitHub failed with {status}", AGAIN
    elif PENDING in answer.words.lower():
        hint = "this account has a pending review on the pull request; submit or discard it, then retry"
    return ForgeError(f"could not {what}: {why}{said}", status=status, hint=hint)


@contextmanager
def doing(what: str, permission: str) -> Iterator[None]:
    """Turn what goes wrong inside into a ForgeError that says what was being done, a verb with its object."""
    try:
        yield
    except BadAnswer as answer:
        raise explained(answer, what, permission) from answer
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        what = f"could not {what}: unexpected response from GitHub ({type(error).__name__})"
        raise ForgeError(what, hint="check that GITHUB_API_URL is the URL of GitHub's API") from error


def query_failure(errors: Any) -> BadAnswer | None:
    """What GraphQL says beside, or in the place of, data; None when it says nothing. Half an answer is none."""
    if not errors:
        return None
    first = errors[0] if isinstance(errors, Sequence) and isinstance(errors[0], Mapping) else {}
    statuses = {"FORBIDDEN": 403, "INSUFFICIENT_SCOPES": 403, "NOT_FOUND": 404}
    return BadAnswer(statuses.get(str(first.get("type")), 200), str(first.get("message") or "no reason given"))


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
    kinds = [str(each.get("type")) for each in errors if isinstance(each, dict)] if isinstance(errors, list) else []
    return any(kind.startswith("RATE_LIMIT") for kind in kinds)


def limit_seconds(reply: Reply, *, times: int, now: float) -> float:
    """How long to wait after a limit was met for the so many-th time: as GitHub says, else a minute, doubling."""
    words = [reply.headers.get(name, "").strip() for name in ("retry-after", "x-ratelimit-reset")]
    asked, reset = (float(word) if word.isascii() and word.isdecimal() and len(word) <= 12 else None for word in words)
    if asked is not None:
        return asked
    if reset is not None and reply.headers.get("x-ratelimit-remaining") == "0":
        return max(reset - now, 0.0) + 1.0
    return 60.0 * (1 << (times - 1))
