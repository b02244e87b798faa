"""The GitHub server for tests: its GraphQL endpoint, which has GitHub's own schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.github_server import GitHubServer, github_server
from tests.github_server_client import ask, query
from tests.github_server_records import Place, Remark
from tests.github_server_world import PullRequest

HEAD = "a" * 40
LINES = 120
PATCH = f"@@ -0,0 +1,{LINES} @@\n" + "\n".join(f"+line {number}" for number in range(1, LINES + 1))
THREADS = """
query($owner: String!, $name: String!, $number: Int!, $after: String, $size: Int = 100) {
  repository(owner: $owner, name: $name) {
    pullRequest(number: $number) {
      headRefOid
      reviewThreads(first: $size, after: $after) {
        totalCount
        pageInfo { hasNextPage endCursor }
        nodes {
          id path line startLine originalLine isResolved isOutdated diffSide subjectType
          viewerCanResolve viewerCanUnresolve viewerCanReply
          resolvedBy { login }
          comments(first: 50) {
            nodes {
              id databaseId fullDatabaseId body createdAt url isMinimized minimizedReason viewerDidAuthor outdated
              authorAssociation author { __typename login }
              replyTo { databaseId }
              pullRequestReview { databaseId state }
              reactions(first: 10, content: THUMBS_DOWN) { totalCount nodes { content user { login } } }
              reactionGroups { content reactors(first: 1) { totalCount } }
            }
          }
        }
      }
    }
  }
}
"""
RESOLVE = "mutation($id: ID!) { resolveReviewThread(input: {threadId: $id}) { thread { id isResolved } } }"
UNRESOLVE = "mutation($id: ID!) { unresolveReviewThread(input: {threadId: $id}) { thread { isResolved } } }"
MINIMIZE = (
    "mutation($id: ID!, $why: ReportedContentClassifiers!) { minimizeComment(input: {subjectId: $id, classifier: $why})"
    " { minimizedComment { isMinimized minimizedReason } } }"
)
REPLY = (
    "mutation($id: ID!, $body: String!) { addPullRequestReviewThreadReply(input: {pullRequestReviewThreadId: $id,"
    " body: $body}) { comment { databaseId body replyTo { databaseId } } } }"
)

WHO = """
query($id: ID!) {
  viewer { login }
  node(id: $id) { ... on IssueComment { author { __typename login } viewerDidAuthor } }
}
"""


@pytest.fixture
def server() -> Iterator[GitHubServer]:
    with github_server() as running:
        running.repository("octo/demo").pull_request({"a.py": PATCH}, head=HEAD)
        yield running


@pytest.fixture
def pull(server: GitHubServer) -> PullRequest:
    return server.repository("octo/demo").pulls[1]


def threads(server: GitHubServer, **variables: Any) -> Any:
    answer = query(server, THREADS, owner="octo", name="demo", number=1, **variables)
    return answer["data"]["repository"]["pullRequest"]["reviewThreads"]


def begin(pull: PullRequest, line: int = 1) -> Remark:
    return pull.comment_by("maria", f"on {line}", association="MEMBER", path="a.py", line=line)


class TestThreads:
    def test_they_come_in_pages(self, server: GitHubServer, pull: PullRequest) -> None:
        for line in range(1, LINES + 1):
            begin(pull, line)
        lines: list[int] = []
        sizes: list[int] = []
        after = None
        while True:
            page = threads(server, after=after, size=50)
            lines += [node["line"] for node in page["nodes"]]
            sizes.append(len(page["nodes"]))
            after = page["pageInfo"]["endCursor"]
            if not page["pageInfo"]["hasNextPage"]:
                break
        assert (sizes, page["totalCount"], lines) == ([50, 50, 20], LINES, list(range(1, LINES + 1)))

    def test_they_show_what_was_said(self, server: GitHubServer, pull: PullRequest) -> None:
        first = begin(pull)
        pull.comment_by("joe", "no", in_reply_to=first.id)
        pull.react_by("joe", first, "-1")
        (thread,) = threads(server)["nodes"]
        comments = thread["comments"]["nodes"]
        assert [each["databaseId"] for each in comments] == [first.id, pull.review_comments[1].id]
        assert comments[1]["replyTo"] == {"databaseId": first.id}
        assert comments[0]["author"] == {"__typename": "User", "login": "maria"}
        assert comments[0]["reactions"] == {
            "totalCount": 1,
            "nodes": [{"content": "THUMBS_DOWN", "user": {"login": "joe"}}],
        }
        counts = {each["content"]: each["reactors"]["totalCount"] for each in comments[0]["reactionGroups"]}
        assert (counts["THUMBS_DOWN"], counts["HEART"]) == (1, 0)

    def test_an_outdated_one_has_no_line(self, server: GitHubServer, pull: PullRequest) -> None:
        begin(pull, 7)
        pull.push("c" * 40, {})
        (thread,) = threads(server)["nodes"]
        assert (thread["isOutdated"], thread["line"], thread["originalLine"]) == (True, None, 7)

    def test_a_pending_one_is_its_authors_alone(self, server: GitHubServer, pull: PullRequest) -> None:
        for login in (server.login, "maria"):
            review = pull.add_review(server.world.user(login), association="NONE", body="", state="PENDING")
            pull.add_thread(review, Place(path="a.py", line=1), "draft")
        (thread,) = threads(server)["nodes"]
        assert thread["comments"]["nodes"][0]["viewerDidAuthor"]

    @pytest.mark.parametrize(
        ("size", "kind"),
        [(None, "MISSING_PAGINATION_BOUNDARIES"), (101, "EXCESSIVE_PAGINATION"), (-1, "INVALID_PAGINATION")],
    )
    def test_a_wrong_number_of_them_is_refused(self, server: GitHubServer, size: int | None, kind: str) -> None:
        answer = query(server, THREADS, owner="octo", name="demo", number=1, size=size)
        assert answer["data"]["repository"]["pullRequest"] is None
        assert [error["type"] for error in answer["errors"]] == [kind]

    def test_a_cursor_must_be_one(self, server: GitHubServer) -> None:
        answer = query(server, THREADS, owner="octo", name="demo", number=1, after="???")
        assert answer["errors"][0]["type"] == "INVALID_CURSOR_ARGUMENTS"

    @pytest.mark.parametrize(
        ("variables", "what"),
        [({"name": "nothing", "number": 1}, "Repository"), ({"name": "demo", "number": 9}, "PullRequest")],
    )
    def test_what_is_not_there_is_said_with_a_200(
        self, server: GitHubServer, variables: dict[str, Any], what: str
    ) -> None:
        answer = query(server, THREADS, owner="octo", **variables)
        (error,) = answer["errors"]
        assert (error["type"], f"Could not resolve to a {what}" in error["message"]) == ("NOT_FOUND", True)


class TestReviews:
    REVIEWS = (
        'query($states: [PullRequestReviewState!], $author: String) { repository(owner: "octo", name: "demo") {'
        " pullRequest(number: 1) { reviews(first: 100, states: $states, author: $author) {"
        " nodes { fullDatabaseId state viewerDidAuthor commit { oid } } } } } }"
    )

    def test_they_are_found_by_state_and_author(self, server: GitHubServer, pull: PullRequest) -> None:
        for login, state in (("maria", "APPROVED"), (server.login, "CHANGES_REQUESTED"), (server.login, "COMMENTED")):
            pull.add_review(server.world.user(login), association="NONE", body="", state=state)
        ids = [str(each.id) for each in pull.reviews]

        def found(**variables: Any) -> list[str]:
            answer = query(server, self.REVIEWS, **variables)
            return [each["fullDatabaseId"] for each in answer["data"]["repository"]["pullRequest"]["reviews"]["nodes"]]

        assert found() == ids
        assert found(states=["APPROVED", "CHANGES_REQUESTED"]) == ids[:2]
        assert found(states=["APPROVED", "CHANGES_REQUESTED"], author=server.login) == [ids[1]]


class TestResolving:
    def test_a_thread_is_resolved_and_opened_again(self, server: GitHubServer, pull: PullRequest) -> None:
        begin(pull)
        (thread,) = threads(server)["nodes"]
        assert (thread["viewerCanResolve"], thread["viewerCanUnresolve"]) == (True, False)
        answer = query(server, RESOLVE, id=thread["id"])
        assert answer == {"data": {"resolveReviewThread": {"thread": {"id": thread["id"], "isResolved": True}}}}
        assert pull.threads[0].resolved_by == server.world.user(server.login)
        (thread,) = threads(server)["nodes"]
        assert (thread["isResolved"], thread["resolvedBy"]) == (True, {"login": server.login})
        query(server, UNRESOLVE, id=thread["id"])
        assert not pull.threads[0].is_resolved

    def test_who_resolved_first_stays(self, server: GitHubServer, pull: PullRequest) -> None:
        begin(pull)
        pull.resolve_by("maria", pull.threads[0])
        query(server, RESOLVE, id=threads(server)["nodes"][0]["id"])
        assert pull.threads[0].resolved_by == server.world.user("maria")

    def test_an_unknown_thread_is_not_found(self, server: GitHubServer) -> None:
        answer = query(server, RESOLVE, id="PRRT_none")
        assert (answer["data"], answer["errors"][0]["type"]) == ({"resolveReviewThread": None}, "NOT_FOUND")

    def test_a_workflow_needs_to_write_contents(self) -> None:
        with github_server(identity="actions") as server:
            pull = server.repository("octo/demo").pull_request({"a.py": PATCH}, head=HEAD)
            begin(pull)
            (thread,) = threads(server)["nodes"]
            assert (thread["viewerCanResolve"], thread["viewerCanReply"]) == (False, True)
            (error,) = query(server, RESOLVE, id=thread["id"])["errors"]
            assert (error["type"], error["message"]) == ("FORBIDDEN", "Resource not accessible by integration")
            assert not pull.threads[0].is_resolved
            server.permissions["contents"] = "write"
            assert "errors" not in query(server, RESOLVE, id=thread["id"])

    def test_a_reader_may_not(self, server: GitHubServer, pull: PullRequest) -> None:
        begin(pull)
        pull.repository.collaborators[server.login] = "read"
        assert query(server, RESOLVE, id=threads(server)["nodes"][0]["id"])["errors"][0]["type"] == "FORBIDDEN"


class TestOtherMutations:
    def test_a_comment_is_hidden_and_shown(self, server: GitHubServer, pull: PullRequest) -> None:
        pull.comment_by("maria", "spam")
        begin(pull)
        remarks: list[Remark] = [pull.issue_comments[0], pull.review_comments[0]]
        paths = (
            f"/repos/octo/demo/issues/comments/{remarks[0].id}",
            f"/repos/octo/demo/pulls/comments/{remarks[1].id}",
        )
        for remark, path in zip(remarks, paths, strict=True):
            node = ask(server, "GET", path).document["node_id"]
            answer = query(server, MINIMIZE, id=node, why="OFF_TOPIC")
            assert answer["data"]["minimizeComment"]["minimizedComment"] == {
                "isMinimized": True,
                "minimizedReason": "off-topic",
            }
            assert remark.minimized == "off-topic"
            query(
                server,
                "mutation($id: ID!) { unminimizeComment(input: {subjectId: $id}) { clientMutationId } }",
                id=node,
            )
            assert remark.minimized is None

    def test_a_thread_is_answered(self, server: GitHubServer, pull: PullRequest) -> None:
        first = begin(pull)
        answer = query(server, REPLY, id=threads(server)["nodes"][0]["id"], body="fixed")
        comment = answer["data"]["addPullRequestReviewThreadReply"]["comment"]
        assert (comment["body"], comment["replyTo"]) == ("fixed", {"databaseId": first.id})
        assert query(server, REPLY, id="PRRT_none", body="x")["errors"][0]["type"] == "NOT_FOUND"
        assert (
            query(server, REPLY, id=threads(server)["nodes"][0]["id"], body=" ")["errors"][0]["type"] == "UNPROCESSABLE"
        )


class TestPeople:
    def test_a_bot_has_one_name_in_rest_and_another_in_graphql(self) -> None:
        with github_server(identity="actions") as server:
            server.repository("octo/demo").pull_request({"a.py": PATCH}, head=HEAD)
            made = ask(server, "POST", "/repos/octo/demo/issues/1/comments", {"body": "x"}).document
            data = query(server, WHO, id=made["node_id"])["data"]
        assert (made["user"]["login"], made["user"]["type"]) == ("github-actions[bot]", "Bot")
        assert data["viewer"] == {"login": "github-actions[bot]"}
        assert data["node"] == {"author": {"__typename": "Bot", "login": "github-actions"}, "viewerDidAuthor": True}

    def test_one_who_is_gone_is_no_author(self, server: GitHubServer, pull: PullRequest) -> None:
        first = begin(pull)
        pull.comment_by("ghost", "bye", in_reply_to=first.id)
        pull.react_by("ghost", first, "-1")
        comments = threads(server)["nodes"][0]["comments"]["nodes"]
        assert comments[1]["author"] is None
        assert comments[0]["reactions"]["nodes"] == [{"content": "THUMBS_DOWN", "user": None}]


class TestWhatIsWrong:
    @pytest.mark.parametrize(
        ("body", "words"),
        [
            ({"query": "{ viewer { loginn } }"}, "Cannot query field 'loginn'"),
            ({"query": "{ viewer { login }"}, "Syntax Error"),
            ({"query": "query($n: Int!) { viewer { login } }", "variables": {"n": 1}}, "never used"),
            ({"query": RESOLVE, "variables": {}}, "to be provided"),
            ({"query": RESOLVE, "variables": {"id": None}}, "not to be None"),
            ({"query": THREADS, "variables": {"owner": "o", "name": "n", "number": "1"}}, "Int cannot represent"),
            ({"query": RESOLVE.replace("threadId", "thread"), "variables": {"id": "x"}}, "threadId"),
            ({"query": MINIMIZE, "variables": {"id": "x", "why": "BORING"}}, "BORING"),
            ({"query": "query a { viewer { login } } query b { viewer { login } }"}, "operation name"),
            ({"query": "{ viewer { login } }", "variable": {}}, "'variable'"),
        ],
    )
    def test_a_document_that_does_not_fit_the_schema_is_found(self, body: dict[str, Any], words: str) -> None:
        with github_server(strict=False) as server:
            reply = ask(server, "POST", "/graphql", body)
        assert reply.status == 200
        assert any(words in problem for problem in server.problems), server.problems

    @pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"query": 1}'])
    def test_a_body_without_a_document_is_found(self, body: bytes) -> None:
        with github_server(strict=False) as server:
            assert ask(server, "POST", "/graphql", body).status == 400
        assert len(server.problems) == 1

    def test_it_is_asked_with_post(self) -> None:
        with github_server(strict=False) as server:
            assert ask(server, "GET", "/graphql").status == 404
        assert len(server.problems) == 1

    def test_a_field_that_the_server_does_not_know_fails_the_test(self) -> None:
        with pytest.raises(AssertionError, match=r"User\.bio is not known here"), github_server(strict=False) as server:
            assert query(server, "{ viewer { bio } }")["data"]["viewer"] is None
