"""Requests to GitHub through gidgethub and httpx: patient, bounded, to no other host. `client` loads it late."""

from __future__ import annotations

import asyncio
import functools
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import gidgethub.apps
import gidgethub.httpx
import httpx2 as httpx

from codeloupe import __version__
from codeloupe.errors import ForgeError, ForgeUncertain, UsageError
from codeloupe.forges.forge import Patience
from codeloupe.forges.github.address import Endpoints
from codeloupe.forges.github.answers import Reply, bad_answer, is_limited, limit_seconds

_MOST_ATTEMPTS = 4
# For a whole answer, however slowly it drips.
_MOST_SECONDS = 120.0
_MOST_BYTES = 64 * 1024**2
# Until one of these, nothing was sent.
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)


class GitHubTransport(gidgethub.httpx.GitHubAPI):
    """gidgethub with our patience. Every method raises BadAnswer, or a ForgeError when there was no answer."""

    def __init__(
        self, client: httpx.AsyncClient, endpoints: Endpoints, *, token: str | None, patience: Patience
    ) -> None:
        super().__init__(client, f"codeloupe/{__version__}", oauth_token=token, base_url=endpoints.api)
        self._endpoints = endpoints
        self._patience = patience

    async def _request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b""
    ) -> tuple[int, Mapping[str, str], bytes]:
        if not self._endpoints.knows(url):
            raise ForgeError("GitHub redirected to another host; the token was not sent there")
        failed = limited = 0
        while True:
            reply = await self._attempt(method, url, headers, body, attempt=failed + 1)
            if reply is None:
                failed += 1
                await self._patience.after_failure(failed)
            elif is_limited(reply):
                limited += 1
                seconds = limit_seconds(reply, times=limited, now=self._patience.clock())
                await self._patience.after_limit(seconds, times=limited, whose="GitHub", status=reply.status)
            elif reply.status in (200, 201, 202, 204):
                return reply.status, reply.headers, reply.body
            else:
                raise bad_answer(reply)

    async def _attempt(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, *, attempt: int
    ) -> Reply | None:
        """What came back, or None when it is to be sent again. Raises ForgeUncertain and ForgeError."""
        # To send it twice does the same as once, but for a POST that makes something. We ask GraphQL only to read,
        # and to set a thread to one of two states.
        may_repeat = method != "POST" or url == self._endpoints.graphql or url.endswith("/access_tokens")
        try:
            reply = await self._send(method, url, headers, body)
        except (httpx.HTTPError, TimeoutError) as error:
            may_repeat = may_repeat or isinstance(error, _NOT_SENT)
            if may_repeat and attempt < _MOST_ATTEMPTS:
                return None
            kind = type(error).__name__
            if not may_repeat:
                raise ForgeUncertain(f"the connection to GitHub was lost during a request ({kind})") from error
            hint = "check the network, GITHUB_API_URL and the proxy"
            raise ForgeError(f"cannot reach GitHub ({kind})", hint=hint) from error
        if reply.status < 500:
            return reply
        if not may_repeat:
            raise ForgeUncertain(f"GitHub failed with {reply.status} during a request", status=reply.status)
        return None if attempt < _MOST_ATTEMPTS else reply

    async def _send(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Reply:
        sent = {**headers, "x-github-api-version": "2022-11-28"}
        async with (
            asyncio.timeout(_MOST_SECONDS),
            self._client.stream(method, url, headers=sent, content=body) as response,
        ):
            pieces: list[bytes] = []
            size = 0
            async for piece in response.aiter_bytes():
                size += len(piece)
                if size > _MOST_BYTES:
                    raise ForgeError(f"a response from GitHub is larger than {_MOST_BYTES // 1024**2} MB")
                pieces.append(piece)
            names = {name.lower(): value for name, value in response.headers.items()}
            return Reply(response.status_code, names, b"".join(pieces))


@asynccontextmanager
async def opened(endpoints: Endpoints, token: str | None, *, patience: Patience) -> AsyncIterator[GitHubTransport]:
    """A transport with its connections, which are closed at the end."""
    trust = await asyncio.to_thread(_trust, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
    async with httpx.AsyncClient(
        timeout=httpx.Timeout(30.0, connect=10.0), follow_redirects=False, verify=trust
    ) as client:
        yield GitHubTransport(client, endpoints, token=token, patience=patience)


@functools.lru_cache(maxsize=1)
def _trust(_file: str | None, _directory: str | None) -> ssl.SSLContext:
    """Whose certificates are trusted: the list is long, and a client would read it anew, and again for each proxy."""
    return httpx.create_ssl_context()


def app_proof(app_id: str, private_key: str) -> str:
    """The short-lived proof that we are a GitHub App. Raises UsageError for an invalid key."""
    try:
        return gidgethub.apps.get_jwt(app_id=app_id, private_key=private_key)
    except Exception:  # noqa: BLE001 - the libraries below raise many kinds, and some quote what they could not read
        raise UsageError(
            "cannot read the private key of the GitHub App", hint="give the .pem file that GitHub created for the App"
        ) from None
