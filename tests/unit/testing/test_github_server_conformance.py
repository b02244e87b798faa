"""The GitHub server of the tests against GitHub's published description: its requests, its answers, its graph."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from graphql import parse, validate

from codeloupe.forges.github import client as github_client
from tests.github_server import GitHubServer, github_server
from tests.github_server_description import answer_problems, description
from tests.github_server_graph import schema
from tests.github_server_rest import HANDLERS
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


def opened(server: GitHubServer) -> PullRequest:
    return server.repository("octo/demo").pull_request({"a.py": PATCH, "image.png": None}, head=HEAD)


def test_a_wrong_request_is_found_and_does_nothing() -> None:
    wrong: list[tuple[tuple[str, str, Any], str]] = [
        (("GET", f"{REPO}/pull/1", None), "no such path"),
        (("GET", f"{PULL}/files?per_page=101", None), "is not from 1 to 100"),
        (("GET", f"{PULL}/files?limit=5", None), "no query parameter 'limit'"),
        (("POST", f"{PULL}/reviews", {"event": "BLOCK"}), "'BLOCK' is not one of"),
        (("POST", f"{PULL}/reviews", {"comments": [{"path": "a.py", "line": 2}]}), "'body' is a required"),
        (("POST", f"{PULL}/reviews", {"comments": [{"path": "a", "body": "x", "end_line": 2}]}), "'end_line'"),
        (("POST", f"{REPO}/issues/1/comments", None), "needs a body"),
        (("POST", f"{REPO}/issues/1/comments", {"body": 5}), "5 is not of type 'string'"),
        (("DELETE", f"{REPO}/issues/comments/1", {"reason": "x"}), "takes no body"),
        (("POST", f"{REPO}/statuses/{HEAD}", {"state": "neutral"}), "'neutral' is not one of"),
        (("POST", f"{REPO}/check-runs", {"name": "x"}), "'head_sha' is a required property"),
        (("POST", "/graphql", {"query": "{ viewer { made_up } }"}), "Cannot query field 'made_up'"),
    ]
    with github_server() as server:
        pull = opened(server)
        for (method, target, body), words in wrong:
            ask(server, method, target, body)
            assert words in server.problems[-1], (target, server.problems[-1])
        assert (pull.reviews, pull.issue_comments, pull.repository.statuses) == ([], [], [])
        server.problems.clear()


def test_a_wrong_request_fails_the_test_that_made_it() -> None:
    with pytest.raises(AssertionError, match="wrong requests"), github_server() as server:
        ask(server, "GET", "/nowhere")


def test_a_wrong_answer_of_ours_is_found_and_every_route_is_one_of_githubs() -> None:
    route = ("PATCH", "/repos/{owner}/{repo}/issues/comments/{comment_id}")
    assert list(answer_problems(*route, 200, {"id": 1, "body": "x"})) == []
    for wrong in ({"id": "1"}, {"made_up": 1}, {"user": 5}, {"author_association": "nobody"}, None):
        assert list(answer_problems(*route, 200, wrong)), wrong
    for method, template in HANDLERS:
        assert description()["paths"][template][method.lower()]["responses"]


def test_what_publishing_asks_of_graphql_is_valid() -> None:
    text = Path(github_client.__file__).with_name("queries.graphql").read_text(encoding="utf-8")
    assert validate(schema(), parse(text)) == []
