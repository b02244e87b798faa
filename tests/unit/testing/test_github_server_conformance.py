"""The GitHub server of the tests against GitHub's published description: its requests, its answers, its graph."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from graphql import parse, validate

from codeloupe.forges.github import client as github_client
from tests.github_server import GitHubServer, github_server
from tests.github_server_description import operation
from tests.github_server_graph import schema
from tests.github_server_rest import HANDLERS, find
from tests.github_server_world import PullRequest

pytestmark = pytest.mark.program

HEAD = "a" * 40
PATCH = "@@ -1,2 +1,3 @@\n one\n+two\n three"
REPO = "/repos/octo/demo"
PULL = f"{REPO}/pulls/1"


def ask(server: GitHubServer, method: str, target: str, body: Any = None, *, token: str = "") -> Any:
    """The document of an answer; an error of GitHub's is one too."""
    headers = {
        "Accept": "application/vnd.github+json",
        "User-Agent": "test",
        "Authorization": f"Bearer {token or server.token}",
        "Content-Type": "application/json",
    }
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server.url + target, data, headers, method=method)
    try:
        with urllib.request.urlopen(request) as answer:
            return json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        with error:
            return json.loads(error.read())


def right_requests(pull: PullRequest) -> Iterator[tuple[str, str, Any]]:
    """A good request for every route but those of the App, in an order in which each of them finds something."""
    entry = {"path": "a.py", "line": 2, "body": "x", "side": "RIGHT"}
    yield "GET", f"{REPO}/pulls?state=open&head=octo:change-1&per_page=100", None
    yield "GET", PULL, None
    yield "GET", f"{PULL}/files?per_page=100", None
    yield "GET", f"{REPO}/collaborators/maria/permission", None
    yield "POST", f"{REPO}/issues/1/comments", {"body": "x"}
    yield "PATCH", f"{REPO}/issues/comments/{pull.issue_comments[-1].id}", {"body": "y"}
    yield "DELETE", f"{REPO}/issues/comments/{pull.issue_comments[-1].id}", None
    yield "POST", f"{PULL}/reviews", {"commit_id": HEAD, "event": "REQUEST_CHANGES", "body": "x", "comments": [entry]}
    yield "PUT", f"{PULL}/reviews/{pull.reviews[-1].id}/dismissals", {"message": "old", "event": "DISMISS"}
    yield "POST", f"{PULL}/comments/{pull.review_comments[0].id}/replies", {"body": "x"}
    yield "DELETE", f"{REPO}/pulls/comments/{pull.review_comments[-1].id}", None
    yield "POST", f"{REPO}/check-runs", {"name": "x", "head_sha": HEAD, "output": {"title": "t", "summary": "s"}}
    yield "PATCH", f"{REPO}/check-runs/{pull.repository.check_runs[-1].id}", {"conclusion": "success"}
    yield "GET", f"{REPO}/commits/{HEAD}/check-runs?check_name=x&per_page=100", None
    yield "POST", f"{REPO}/statuses/{HEAD}", {"state": "success", "context": "x"}
    yield "GET", f"{REPO}/commits/{HEAD}/statuses?per_page=100", None


def opened(server: GitHubServer) -> PullRequest:
    repo = server.repository("octo/demo")
    repo.collaborator("maria", "maintain")
    return repo.pull_request({"a.py": PATCH, "image.png": None}, head=HEAD)


def test_every_route_answers_as_the_description_says() -> None:
    reached = {("GET", "/repos/{owner}/{repo}/installation")}
    reached.add(("POST", "/app/installations/{installation_id}/access_tokens"))
    # What it answers is compared with the description as it goes; the end of the block raises.
    with github_server(identity="actions", check_answers=True) as server:
        for method, target, body in right_requests(opened(server)):
            assert "message" not in (ask(server, method, target, body) or {}), target
            route = find(method, target.partition("?")[0])
            assert route is not None
            reached.add((method, route[0]))
    assert reached == HANDLERS.keys()
    for method, template in HANDLERS:
        assert operation(method, template).spec["responses"]


def test_every_document_of_graphql_that_publishing_sends_is_valid() -> None:
    modules = (github_client,)
    texts = {text for module in modules for text in vars(module).values() if isinstance(text, str) and "($" in text}
    texts = {text for text in texts if "%s" not in text}  # one that others are made from is not sent itself
    assert len(texts) >= 6
    for text in texts:
        assert validate(schema(), parse(text)) == [], text
