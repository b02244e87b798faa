"""A plain client for the tests of the GitHub server: every header is as a test says."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tests.endings import PATIENCE_SECONDS
from tests.github_server import GitHubServer

ACCEPT = "application/vnd.github+json"


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer; names of headers are in small letters."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def document(self) -> Any:
        """Its JSON. Raises ValueError."""
        return json.loads(self.text)

    @property
    def message(self) -> str:
        """What an error says."""
        return str(self.document["message"])

    @property
    def links(self) -> dict[str, str]:
        """The addresses in its Link header, by relation."""
        parts = (part.split(";") for part in self.headers.get("link", "").split(", ") if part)
        return {relation.partition('"')[2].rstrip('"'): address.strip("<>") for address, relation in parts}


def ask(
    server: GitHubServer,
    method: str,
    target: str,
    body: Any = None,
    *,
    headers: Mapping[str, str | None] | None = None,
    timeout_seconds: float = PATIENCE_SECONDS,
) -> Reply:
    """One request with good headers; `headers` replaces some, and None leaves one out.

    `target` is a path or a whole address. A body of bytes is sent as it is. Raises what the connection raises.
    """
    address = urlsplit(target if target.startswith("http") else server.url + target)
    payload = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    sent: dict[str, str | None] = {
        "Accept": ACCEPT,
        "User-Agent": "test",
        "Authorization": f"Bearer {server.token}",
        "X-GitHub-Api-Version": "2022-11-28",
        "Content-Type": None if payload is None else "application/json",
        **(headers or {}),
    }
    connection = http.client.HTTPConnection(address.netloc, timeout=timeout_seconds)
    try:
        path = f"{address.path}?{address.query}" if address.query else address.path
        connection.request(method, path, payload, {name: value for name, value in sent.items() if value is not None})
        response = connection.getresponse()
        names = {name.lower(): value for name, value in response.getheaders()}
        return Reply(response.status, names, response.read().decode("utf-8"))
    finally:
        connection.close()


def query(server: GitHubServer, document: str, **variables: Any) -> Any:
    """The answer to a GraphQL document."""
    return ask(server, "POST", "/graphql", {"query": document, "variables": variables}).document
