"""Requests to GitHub through gidgethub and httpx: patient, bounded, to no other host. `connecting` loads it late."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import random
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from typing import Any

import gidgethub.apps
import gidgethub.httpx
import httpx2 as httpx
from msgspec import Struct

from codeloupe import __version__
from codeloupe.errors import ForgeError, ForgeRefused, ForgeUncertain, UsageError
from codeloupe.forges.github.address import Endpoints
from codeloupe.reports.wording import duration
from codeloupe.system.redaction import redact
from codeloupe.system.sanitise import terminal

_LONGEST_WORDS = 400
_LOCKED = "locked"
# A person who has begun a review by hand, and not sent it, can post nothing beside it.
PENDING = "pending review"
# The statuses of what is not there, or not for us to see.
GONE = (404, 410)
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
MOST_LIMITED = 6
_FIRST_PAUSE_SECONDS = 1.0
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


class Patience(Struct):
    """How long to wait in all, over every request of a run. `sleep` and `clock` (seconds since 1970) can be given."""

    most_seconds: float = 900.0
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    clock: Callable[[], float] = time.time
    waited_seconds: float = 0.0

    async def after_limit(self, reply: Reply, *, times: int) -> None:
        """Wait as GitHub asks. Raises ForgeError when that is too long, or too often."""
        seconds = limit_seconds(reply, times=times, now=self.clock())
        if times >= MOST_LIMITED or self.waited_seconds + seconds > self.most_seconds:
            raise ForgeError(
                f"GitHub's rate limit is reached; it asks to wait {duration(seconds)} more",
                status=reply.status,
                hint="run it again later; what was posted is known then and not posted twice",
            )
        await self._wait(seconds)

    async def after_failure(self, attempt: int) -> None:
        """Wait before the next attempt: a second, doubling, with some chance in it."""
        spread = 0.5 + random.random()  # noqa: S311 - to spread requests, not to keep a secret
        await self._wait(_FIRST_PAUSE_SECONDS * (1 << (attempt - 1)) * spread)

    async def pause(self, seconds: float) -> None:
        """Wait between two requests."""
        await self._wait(seconds)

    async def _wait(self, seconds: float) -> None:
        self.waited_seconds += seconds
        await self.sleep(seconds)


_REQUESTER = f"codeloupe/{__version__}"
_API_VERSION = "2022-11-28"
_TIMEOUT = httpx.Timeout(30.0, connect=10.0)
# For a whole answer, however slowly it drips.
_MOST_SECONDS = 120.0
_MOST_BYTES = 64 * 1024**2
_SUCCESS = (200, 201, 202, 204)
_TOKEN_PATH = "/access_tokens"  # noqa: S105 - a path
# Until one of these, nothing was sent.
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)


class GitHubTransport(gidgethub.httpx.GitHubAPI):
    """gidgethub with our patience. Every method raises BadAnswer, or a ForgeError when there was no answer."""

    def __init__(
        self, client: httpx.AsyncClient, endpoints: Endpoints, *, token: str | None, patience: Patience
    ) -> None:
        super().__init__(client, _REQUESTER, oauth_token=token, base_url=endpoints.api)
        self._endpoints = endpoints
        self._patience = patience

    async def _request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b""
    ) -> tuple[int, Mapping[str, str], bytes]:
        if not self._endpoints.knows(url):
            raise ForgeError("GitHub's answer leads to another host; the token is not sent there")
        failed = limited = 0
        while True:
            reply = await self._attempt(method, url, headers, body, attempt=failed + 1)
            if reply is None:
                failed += 1
                await self._patience.after_failure(failed)
            elif is_limited(reply):
                limited += 1
                await self._patience.after_limit(reply, times=limited)
            elif reply.status in _SUCCESS:
                return reply.status, reply.headers, reply.body
            else:
                raise bad_answer(reply)

    async def _attempt(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, *, attempt: int
    ) -> Reply | None:
        """What came back, or None when it is to be sent again. Raises ForgeUncertain and ForgeError."""
        may_repeat = self._is_repeatable(method, url)
        try:
            reply = await self._send(method, url, headers, body)
        except _NOT_SENT as error:
            if attempt < MOST_ATTEMPTS:
                return None
            raise _unreachable(error) from error
        except (httpx.HTTPError, TimeoutError) as error:
            if may_repeat and attempt < MOST_ATTEMPTS:
                return None
            raise (_unreachable if may_repeat else _cut_off)(error) from error
        if not is_failure(reply):
            return reply
        if not may_repeat:
            raise ForgeUncertain(f"GitHub failed with {reply.status} in the middle of a request", status=reply.status)
        return None if attempt < MOST_ATTEMPTS else reply

    def _is_repeatable(self, method: str, url: str) -> bool:
        """Whether to send it twice does the same as once: all that is sent but a POST that makes something.

        What we ask of GraphQL is to read, and to set a thread to one of two states.
        """
        return method != "POST" or url == self._endpoints.graphql or url.endswith(_TOKEN_PATH)

    async def _send(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Reply:
        sent = {**headers, "x-github-api-version": _API_VERSION}
        async with (
            asyncio.timeout(_MOST_SECONDS),
            self._client.stream(method, url, headers=sent, content=body) as response,
        ):
            pieces: list[bytes] = []
            size = 0
            async for piece in response.aiter_bytes():
                size += len(piece)
                if size > _MOST_BYTES:
                    raise ForgeError(f"an answer of GitHub is larger than {_MOST_BYTES // 1024**2} MB")
                pieces.append(piece)
            names = {name.lower(): value for name, value in response.headers.items()}
            return Reply(response.status_code, names, b"".join(pieces))


def _unreachable(error: Exception) -> ForgeError:
    return ForgeError(
        f"GitHub cannot be reached ({type(error).__name__})", hint="look at the network, GITHUB_API_URL and the proxy"
    )


def _cut_off(error: Exception) -> ForgeUncertain:
    return ForgeUncertain(f"the line to GitHub was cut in the middle of a request ({type(error).__name__})")


@asynccontextmanager
async def opened(endpoints: Endpoints, token: str | None, *, patience: Patience) -> AsyncIterator[GitHubTransport]:
    """A transport with its connections, which are closed at the end."""
    trust = await asyncio.to_thread(_trust, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
    async with httpx.AsyncClient(timeout=_TIMEOUT, follow_redirects=False, verify=trust) as client:
        yield GitHubTransport(client, endpoints, token=token, patience=patience)


@functools.lru_cache(maxsize=1)
def _trust(_file: str | None, _directory: str | None) -> ssl.SSLContext:
    """Whose certificates are trusted: the list is long, and a client would read it anew, and again for each proxy."""
    return httpx.create_ssl_context()


def app_proof(app_id: str, private_key: str) -> str:
    """The short-lived proof that we are a GitHub App. Raises UsageError for a key that is none."""
    try:
        return gidgethub.apps.get_jwt(app_id=app_id, private_key=private_key)
    except Exception:  # noqa: BLE001 - the libraries below raise many kinds, and some quote what they could not read
        raise UsageError(
            "the private key of the GitHub App cannot be read", hint="give the .pem file that GitHub made for the App"
        ) from None
