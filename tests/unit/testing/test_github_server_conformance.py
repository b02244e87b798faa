"""The GitHub server for tests does not lie: wrong requests are found, and its own answers are GitHub's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.github_server import GitHubServer, github_server
from tests.github_server_client import ask
from tests.github_server_description import NULL_IN_TRUTH, description, find
from tests.github_server_world import PullRequest

BASE, HEAD = "b" * 40, "a" * 40
PATCH = "@@ -1,3 +1,4 @@\n one\n-two\n+2\n+two and a half\n three"
REPO = "/repos/octo/demo"
PULL = f"{REPO}/pulls/1"


@pytest.fixture
def lenient() -> Iterator[GitHubServer]:
    with github_server(identity="actions", strict=False) as running:
        running.repository("octo/demo").pull_request({"a.py": PATCH}, head=HEAD, base=BASE)
        yield running


def reviewing(**fields: Any) -> tuple[str, str, Any]:
    return "POST", f"{PULL}/reviews", {"commit_id": HEAD, "event": "COMMENT", "body": "x", **fields}


def entry(**fields: Any) -> dict[str, Any]:
    return {"path": "a.py", "line": 2, "body": "look", **fields}


def without(body: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key != name}


def annotated(count: int) -> dict[str, Any]:
    each = {"path": "a.py", "start_line": 2, "end_line": 2, "annotation_level": "warning", "message": "m"}
    return {"title": "t", "summary": "s", "annotations": [each] * count}


WRONG: list[tuple[tuple[str, str, Any], str]] = [
    (("GET", "/repos/octo/demo/pull/1", None), "no such path"),
    (("GET", f"{PULL}/", None), "no such path"),
    (("GET", f"/api/v3{PULL}", None), "no such path"),
    (("GET", f"{REPO}//pulls/1", None), "no such path"),
    (("PUT", f"{REPO}/issues/1/comments", {"body": "x"}), "no such path or method"),
    (("POST", f"{PULL}/reviews/1/comments", {"body": "x"}), "no such path or method"),
    (("GET", f"{REPO}/issues/1/comments?perpage=100", None), "no query parameter 'perpage'"),
    (("GET", f"{PULL}/files?per_page=1000", None), "per_page: 1000 is not from 1 to 100"),
    (("GET", f"{PULL}/files?page=next", None), "page"),
    (("GET", f"{PULL}/comments?sort=newest", None), "'newest' is not one of"),
    (("GET", f"{PULL}?per_page=10", None), "no query parameter 'per_page'"),
    (("POST", f"{PULL}/reviews?event=COMMENT", {"event": "COMMENT", "body": "x"}), "no query parameter 'event'"),
    (reviewing(event="APPROVED"), "'APPROVED' is not one of"),
    (reviewing(event="comment"), "'comment' is not one of"),
    (reviewing(event=None), "None is not of type 'string'"),
    (reviewing(commit=HEAD), "a field 'commit'"),
    (reviewing(comments={}), "is not of type 'array'"),
    (reviewing(comments=[without(entry(), "body")]), "'body' is a required property"),
    (reviewing(comments=[without(entry(), "path")]), "'path' is a required property"),
    (reviewing(comments=[entry(line="2")]), "'2' is not of type 'integer'"),
    (reviewing(comments=[entry(line=2.5)]), "2.5 is not of type 'integer'"),
    (reviewing(comments=[entry(line=None)]), "None is not of type 'integer'"),
    (reviewing(comments=[entry(end_line=3)]), "$.comments[0] has a field 'end_line'"),
    (reviewing(comments=[entry(startLine=1)]), "$.comments[0] has a field 'startLine'"),
    (reviewing(comments=[entry(subject_type="file")]), "$.comments[0] has a field 'subject_type'"),
    (("POST", f"{PULL}/comments", {"body": "x", "path": "a.py", "line": 2}), "'commit_id' is a required property"),
    (("POST", f"{PULL}/comments", {**entry(), "commit_id": HEAD, "side": "right"}), "'right' is not one of"),
    (("POST", f"{PULL}/comments", None), "needs a body"),
    (("POST", f"{PULL}/comments/1/replies", {"text": "x"}), "'body' is a required property"),
    (("POST", f"{REPO}/issues/1/comments", {"body": 5}), "5 is not of type 'string'"),
    (("POST", f"{REPO}/issues/1/comments", {"body": "x", "in_reply_to": 5}), "a field 'in_reply_to'"),
    (("POST", f"{REPO}/issues/1/comments", "words"), "'words' is not of type 'object'"),
    (("POST", f"{REPO}/issues/1/comments", ["words"]), "is not of type 'object'"),
    (("POST", f"{REPO}/issues/1/comments", b"{"), "the body is no JSON"),
    (("POST", f"{REPO}/issues/1/comments", b'{"body": "\xff"}'), "the body is no JSON"),
    (("POST", f"{REPO}/issues/1/comments", b'{"body": "\\ud800"}'), "the body is no JSON"),
    (("DELETE", f"{REPO}/issues/comments/1", {"reason": "x"}), "takes no body"),
    (("POST", f"{REPO}/issues/comments/1/reactions", {"content": "thumbs_down"}), "'thumbs_down' is not one of"),
    (("POST", f"{REPO}/statuses/{HEAD}", {"state": "neutral"}), "'neutral' is not one of"),
    (("POST", f"{REPO}/statuses/{HEAD}", {"context": "x"}), "'state' is a required property"),
    (("POST", f"{REPO}/check-runs", {"name": "x"}), "'head_sha' is a required property"),
    (("POST", f"{REPO}/check-runs", {"name": "x", "head_sha": HEAD, "status": "done"}), "'done' is not one of"),
    (("POST", f"{REPO}/check-runs", {"name": "x", "head_sha": HEAD, "output": annotated(51)}), "is too long"),
    (("PATCH", f"{REPO}/check-runs/1", {"output": annotated(51)}), "is too long"),
    (("POST", f"{REPO}/check-runs", {"name": "x", "head_sha": HEAD, "conclusion": "passed"}), "'passed' is not one of"),
    (("POST", f"{REPO}/check-runs", {"name": "x", "head_sha": HEAD, "output": {"summary": "s"}}), "'title'"),
    (
        (
            "POST",
            f"{REPO}/check-runs",
            {"name": "x", "head_sha": HEAD, "output": {"title": "t", "summary": "s" * 65536}},
        ),
        "is too long",
    ),
    (
        ("POST", f"{REPO}/check-runs", {"name": "x", "head_sha": HEAD, "completed_at": "now"}),
        "'now' is not a 'date-time'",
    ),
    (("POST", f"{REPO}/check-runs", {"name": "x", "head_sha": HEAD, "sha": HEAD}), "a field 'sha'"),
    (("PUT", f"{PULL}/reviews/1/dismissals", {"event": "DISMISS"}), "'message' is a required property"),
]


class TestWrongRequests:
    @pytest.mark.parametrize(("request_", "words"), WRONG, ids=[f"{each[0][1]} {each[1]}" for each in WRONG])
    def test_it_is_found(self, lenient: GitHubServer, request_: tuple[str, str, Any], words: str) -> None:
        method, target, body = request_
        reply = ask(lenient, method, target, body)
        assert any(words in problem for problem in lenient.problems), (reply, lenient.problems)
        assert all(problem.startswith(f"{method} /") for problem in lenient.problems)

    def test_nothing_is_done_when_a_body_breaks_the_schema(self, lenient: GitHubServer) -> None:
        for (method, target, body), _ in WRONG:
            ask(lenient, method, target, body)
        repo = lenient.repository("octo/demo")
        pull = repo.pulls[1]
        # A field too many is passed over, as GitHub does; it is a problem all the same.
        bodies = [each.body for each in (*pull.issue_comments, *pull.review_comments)]
        assert (repo.statuses, pull.reviews and {each.state for each in pull.reviews}) == ([], {"COMMENTED"})
        assert set(bodies) == {"x", "look"}

    def test_a_body_without_its_type_is_found(self, lenient: GitHubServer) -> None:
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        ask(lenient, "POST", f"{REPO}/issues/1/comments", {"body": "x"}, headers=headers)
        assert "Content-Type" in lenient.problems[0]


def right_requests(pull: PullRequest) -> Iterator[tuple[str, str, Any]]:
    """One good request for every route of the server, in an order in which each of them finds something."""
    for path in ("", "/pulls", "/pulls/1", "/pulls/1/files", "/pulls/1/commits", f"/commits/{HEAD}"):
        yield "GET", REPO + path, None
    yield "GET", f"{REPO}/commits/{HEAD}/pulls", None
    yield "GET", f"{REPO}/compare/{BASE}...{HEAD}", None
    yield "GET", f"{REPO}/compare/main...{pull.head_ref}", None
    yield "GET", f"{REPO}/collaborators/maria/permission", None
    yield from _on_the_whole(pull)
    yield from _on_lines(pull)
    yield from _reported(pull)
    yield "GET", "/user", None
    yield "GET", "/app", None
    yield "GET", f"{REPO}/installation", None
    yield "POST", "/app/installations/777/access_tokens", None


def _on_the_whole(pull: PullRequest) -> Iterator[tuple[str, str, Any]]:
    yield "POST", f"{REPO}/issues/1/comments", {"body": "x"}
    yield "GET", f"{REPO}/issues/1/comments?since=2020-01-01T00:00:00Z&per_page=100", None
    own = f"{REPO}/issues/comments/{pull.issue_comments[-1].id}"
    yield from _with_reactions(own, pull, "issue_comments")
    yield "PATCH", own, {"body": "y"}
    yield "GET", own, None
    yield "DELETE", own, None


def _with_reactions(own: str, pull: PullRequest, where: str) -> Iterator[tuple[str, str, Any]]:
    yield "POST", f"{own}/reactions", {"content": "+1"}
    yield "GET", f"{own}/reactions?content=%2B1", None
    (reaction,) = getattr(pull, where)[-1].reactions
    yield "DELETE", f"{own}/reactions/{reaction.id}", None


def _on_lines(pull: PullRequest) -> Iterator[tuple[str, str, Any]]:
    yield "POST", f"{PULL}/reviews", {"comments": [entry()]}
    pending = f"{PULL}/reviews/{pull.reviews[-1].id}"
    yield "GET", pending, None
    yield "DELETE", pending, None
    yield "POST", f"{PULL}/reviews", {"commit_id": HEAD, "comments": [entry(start_line=1, side="RIGHT")]}
    own = f"{PULL}/reviews/{pull.reviews[-1].id}"
    yield "POST", f"{own}/events", {"event": "REQUEST_CHANGES", "body": "x"}
    yield "PUT", own, {"body": "y"}
    yield "GET", f"{own}/comments", None
    yield "PUT", f"{own}/dismissals", {"message": "old", "event": "DISMISS"}
    yield "GET", f"{PULL}/reviews", None
    yield "POST", f"{PULL}/comments", {**entry(), "commit_id": HEAD}
    first = pull.review_comments[-1].id
    yield "POST", f"{PULL}/comments/{first}/replies", {"body": "x"}
    yield "GET", f"{PULL}/comments?sort=created&direction=desc&since=2020-01-01T00:00:00Z", None
    comment = f"{REPO}/pulls/comments/{pull.review_comments[-1].id}"
    yield from _with_reactions(comment, pull, "review_comments")
    yield "PATCH", comment, {"body": "y"}
    yield "GET", comment, None
    yield "DELETE", comment, None


def _reported(pull: PullRequest) -> Iterator[tuple[str, str, Any]]:
    yield "POST", f"{REPO}/check-runs", {"name": "x", "head_sha": HEAD, "output": {"title": "t", "summary": "s"}}
    runs = pull.repository.check_runs
    own = f"{REPO}/check-runs/{runs[-1].id if runs else 0}"
    yield "PATCH", own, {"conclusion": "success"}
    yield "GET", own, None
    yield "GET", f"{REPO}/commits/{HEAD}/check-runs?check_name=x&filter=latest", None
    yield "POST", f"{REPO}/statuses/{HEAD}", {"state": "success", "context": "x"}
    yield "GET", f"{REPO}/commits/{HEAD}/statuses", None
    yield "GET", f"{REPO}/commits/{HEAD}/status", None


class TestRightAnswers:
    @pytest.mark.parametrize("identity", ["user", "actions"])
    def test_every_route_answers_as_the_description_says(self, identity: Any) -> None:
        reached: set[tuple[str, str]] = set()
        with github_server(identity=identity) as server:
            repo = server.repository("octo/demo")
            repo.collaborator("maria", "maintain")
            pull = repo.pull_request({"a.py": PATCH, "image.png": None}, head=HEAD, base=BASE)
            for method, target, body in right_requests(pull):
                reply = ask(server, method, target, body)
                assert reply.status < 405, (method, target, reply)
                match = find(method, target.partition("?")[0])
                assert match is not None
                reached.add((method, match.operation.template))
            # What it answered was compared with the description as it went; the end of the block raises.
            assert reached == set(server.desk.handlers)

    def test_every_route_is_in_the_description(self) -> None:
        with github_server() as server:
            for method, template in server.desk.handlers:
                assert method.lower() in description()["paths"][template]


def operation(method: str, path: str) -> Any:
    match = find(method, path)
    assert match is not None
    return match.operation


class TestLies:
    COMMENT = f"{REPO}/issues/comments/1"

    def answer(self) -> dict[str, Any]:
        with github_server() as server:
            pull = server.repository("octo/demo").pull_request({"a.py": PATCH}, head=HEAD)
            made = pull.comment_by("maria", "x")
            return dict(ask(server, "GET", f"{REPO}/issues/comments/{made.id}").document)

    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({"id": "1"}, "'1' is not of type 'integer'"),
            ({"user": {"login": "x"}}, "is not valid under any of the given schemas"),
            ({"created_at": "yesterday"}, "'yesterday' is not a 'date-time'"),
            ({"html_url": "nowhere"}, "'nowhere' is not a 'uri'"),
            ({"author_association": "FRIEND"}, "'FRIEND' is not one of"),
            ({"made_up": 1}, "a field 'made_up'"),
        ],
    )
    def test_a_wrong_document_of_ours_is_found(self, fields: dict[str, Any], words: str) -> None:
        read = operation("GET", self.COMMENT)
        document = self.answer()
        assert list(read.answer_problems(200, document, "application/json")) == []
        found = list(read.answer_problems(200, {**document, **fields}, "application/json"))
        assert any(words in problem for problem in found), found

    def test_a_missing_field_is_found(self) -> None:
        document = self.answer()
        del document["node_id"]
        found = list(operation("GET", self.COMMENT).answer_problems(200, document, "application/json"))
        assert found == ["answer 200: $: 'node_id' is a required property"]

    def test_a_status_that_github_never_gives_is_found(self) -> None:
        assert list(operation("GET", self.COMMENT).answer_problems(201, {}, "application/json"))
        assert list(operation("DELETE", self.COMMENT).answer_problems(204, {"message": "x"}, "application/json"))
        assert list(operation("GET", self.COMMENT).answer_problems(200, None, "application/json"))
        assert not list(operation("DELETE", self.COMMENT).answer_problems(204, None, "application/json"))

    def test_an_error_has_githubs_shape(self) -> None:
        read = operation("GET", self.COMMENT)
        assert not list(read.answer_problems(404, {"message": "Not Found"}, "application/json"))
        assert list(read.answer_problems(404, {"message": 5}, "application/json"))

    def test_what_is_null_in_truth_is_still_a_number_in_the_description(self) -> None:
        schemas = description()["components"]["schemas"]
        for name, paths in NULL_IN_TRUTH.items():
            for path in paths:
                schema = schemas[name]
                for part in path.split("."):
                    schema = schema["properties"][part]
                assert not schema.get("nullable"), f"{name}.{path} needs no exception any more"


class TestWhatIsNotHeeded:
    """A parameter that GitHub knows and the server would pass over fails the test, so that nobody relies on it."""

    @pytest.mark.parametrize(
        ("method", "target", "body", "name"),
        [
            ("GET", f"{REPO}/pulls?base=main", None, "'base'"),
            ("GET", f"{REPO}/commits/{HEAD}?page=2", None, "'page'"),
            ("GET", f"{REPO}/commits/{HEAD}/check-runs?app_id=5", None, "'app_id'"),
            ("POST", f"{REPO}/check-runs", {"name": "x", "head_sha": HEAD, "actions": []}, "'actions'"),
        ],
    )
    def test_it_fails(self, method: str, target: str, body: Any, name: str) -> None:
        with (
            pytest.raises(AssertionError, match=f"{name} is not heeded here"),
            github_server(identity="actions") as server,
        ):
            ask_in(server, method, target, body)

    def test_an_argument_of_graphql_too(self) -> None:
        document = (
            'query { repository(owner: "octo", name: "demo") { pullRequest(number: 1) {'
            " comments(first: 1, orderBy: {field: UPDATED_AT, direction: ASC}) { totalCount } } } }"
        )
        with pytest.raises(AssertionError, match=r"PullRequest\.comments\(orderBy\)"), github_server() as server:
            ask_in(server, "POST", "/graphql", {"query": document})


def ask_in(server: GitHubServer, method: str, target: str, body: Any) -> None:
    server.repository("octo/demo").pull_request({"a.py": PATCH}, head=HEAD)
    assert ask(server, method, target, body).status in (200, 201)


class TestPaths:
    @pytest.mark.parametrize(
        ("path", "template"),
        [
            (f"{REPO}/pulls/comments/5", "/repos/{owner}/{repo}/pulls/comments/{comment_id}"),
            (f"{REPO}/pulls/5/comments", "/repos/{owner}/{repo}/pulls/{pull_number}/comments"),
            (f"{REPO}/compare/main...feature/x", "/repos/{owner}/{repo}/compare/{basehead}"),
            (f"{REPO}/contents/src/a.py", "/repos/{owner}/{repo}/contents/{path}"),
            (f"{REPO}/commits/feature%2Fx", "/repos/{owner}/{repo}/commits/{ref}"),
            (f"{REPO}/commits/x/status", "/repos/{owner}/{repo}/commits/{ref}/status"),
        ],
    )
    def test_each_finds_its_template(self, path: str, template: str) -> None:
        match = find("GET", path)
        assert match is not None
        assert match.operation.template == template
        assert all(re.search(r"%[0-9A-F]{2}", value) is None for value in match.parameters.values())

    def test_there_is_one_for_nothing(self) -> None:
        assert find("GET", "/repos/octo") is None
        assert find("GET", f"{REPO}/commits/") is None
