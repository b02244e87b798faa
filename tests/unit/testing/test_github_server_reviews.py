"""The GitHub server for tests: reviews and comments are refused where GitHub refuses them, in its words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.github_server import GitHubServer, github_server
from tests.github_server_client import Reply, ask
from tests.github_server_world import PullRequest

BASE, HEAD, NEXT = "b" * 40, "a" * 40, "c" * 40
PATCH = (
    "@@ -1,4 +1,5 @@\n one\n-two\n+2\n+two and a half\n three\n four\n"
    "@@ -20,3 +21,4 @@ def later():\n twenty\n+more\n twentyone\n twentytwo"
)
REPO = "/repos/octo/demo"
REVIEWS, COMMENTS = f"{REPO}/pulls/1/reviews", f"{REPO}/pulls/1/comments"
LINE = "line must be part of the diff"
NO_HUNK = "Pull request review thread diff hunk can't be blank"


@pytest.fixture
def server() -> Iterator[GitHubServer]:
    with github_server() as running:
        files = {"a.py": PATCH, "image.png": None}
        running.repository("octo/demo").pull_request(files, head=HEAD, base=BASE)
        yield running


@pytest.fixture
def pull(server: GitHubServer) -> PullRequest:
    return server.repository("octo/demo").pulls[1]


def entry(**fields: Any) -> dict[str, Any]:
    return {"path": "a.py", "line": 3, "side": "RIGHT", "body": "look", **fields}


def review(server: GitHubServer, *comments: dict[str, Any], **fields: Any) -> Reply:
    body = {"commit_id": HEAD, "event": "COMMENT", "body": "words", "comments": list(comments), **fields}
    return ask(server, "POST", REVIEWS, {name: value for name, value in body.items() if value is not None})


def comment(server: GitHubServer, **fields: Any) -> Reply:
    return ask(server, "POST", COMMENTS, {**entry(), "commit_id": HEAD, **fields})


MISPLACED: list[tuple[dict[str, Any], list[tuple[str, str]]]] = [
    ({"line": 6}, [("line", "must be part of the diff"), ("diff_hunk", "")]),
    ({"line": 2, "side": "LEFT", "path": "b.py"}, [("path", "is invalid"), ("diff_hunk", "")]),
    (
        {"line": 3, "side": "LEFT", "start_line": 2, "start_side": "RIGHT", "path": "image.png"},
        [("line", LINE[5:]), ("diff_hunk", "")],
    ),
    ({"line": 22, "start_line": 3}, [("start_line", "must be part of the same hunk as the line.")]),
    ({"line": 3, "start_line": 3}, [("start_line", "must precede the end line.")]),
    ({"line": 3, "start_line": 4}, [("start_line", "must precede the end line.")]),
    ({"line": 5, "start_line": 19}, [("start_line", "must be part of the same hunk as the line.")]),
    (
        {"line": 90, "start_line": 80},
        [("line", LINE[5:]), ("start_line", "must be part of the same hunk as the line."), ("diff_hunk", "")],
    ),
]


class TestAReview:
    def test_it_is_kept_with_its_comments(self, server: GitHubServer, pull: PullRequest) -> None:
        reply = review(server, entry(), entry(line=4, start_line=2, start_side="RIGHT"), entry(line=2, side="LEFT"))
        assert (reply.status, reply.document["state"], reply.document["commit_id"]) == (200, "COMMENTED", HEAD)
        (made,) = pull.reviews
        assert [each.body for each in made.comments] == ["look"] * 3
        listed = ask(server, "GET", COMMENTS).document
        assert [(each["start_line"], each["line"], each["side"]) for each in listed] == [
            (None, 3, "RIGHT"),
            (2, 4, "RIGHT"),
            (None, 2, "LEFT"),
        ]
        assert [each["position"] for each in listed] == [4, 5, 2]
        assert listed[0]["diff_hunk"] == "@@ -1,4 +1,5 @@\n one\n-two\n+2\n+two and a half"
        assert {each["pull_request_review_id"] for each in listed} == {made.id}

    def test_lines_for_context_take_comments_on_both_sides(self, server: GitHubServer, pull: PullRequest) -> None:
        assert review(server, entry(line=1), entry(line=1, side="LEFT"), entry(line=24)).status == 200
        assert len(pull.threads) == 3

    def test_a_position_means_the_lines_below_the_first_header(self, server: GitHubServer, pull: PullRequest) -> None:
        at = [{"path": "a.py", "position": position, "body": "x"} for position in (3, 2, 8)]
        assert review(server, *at).status == 200
        places = [thread.original for thread in pull.threads]
        assert [(place.line, place.side) for place in places] == [(2, "RIGHT"), (2, "LEFT"), (21, "RIGHT")]

    @pytest.mark.parametrize("position", [0, 7, 99])
    def test_a_position_without_a_line_is_refused(self, server: GitHubServer, position: int) -> None:
        reply = review(server, {"path": "a.py", "position": position, "body": "x"})
        assert reply.document["errors"] == [f"Pull request review thread position is invalid and {NO_HUNK}"]

    @pytest.mark.parametrize(("fields", "found"), MISPLACED)
    def test_a_place_outside_the_diff_is_refused_in_a_sentence(
        self, server: GitHubServer, pull: PullRequest, fields: dict[str, Any], found: list[tuple[str, str]]
    ) -> None:
        reply = review(server, entry(), entry(**fields))
        assert (reply.status, reply.message) == (422, "Unprocessable Entity")
        (sentence,) = reply.document["errors"]
        for field, words in found:
            assert f"Pull request review thread {field.replace('_', ' ')} {words}" in sentence
        assert sentence.count("Pull request review thread") == len(found)
        assert (pull.reviews, pull.threads) == ([], []), "a review is made whole or not at all"

    def test_the_newer_words_are_shorter(self, server: GitHubServer) -> None:
        server.world.short_words = True
        assert review(server, entry(line=6)).document["errors"] == ["Line could not be resolved"]
        assert review(server, entry(path="b.py")).document["errors"] == ["Path could not be resolved"]
        assert comment(server, line=6).document["errors"][0]["message"] == "could not be resolved"

    def test_a_side_that_is_none_is_refused(self, server: GitHubServer) -> None:
        assert "is not included in the list" in review(server, entry(side="right")).document["errors"][0]

    def test_an_unknown_commit_is_refused(self, server: GitHubServer) -> None:
        reply = review(server, entry(), commit_id="d" * 40)
        assert (reply.status, reply.document["errors"]) == (422, ["The commitOID is not part of the pull request"])

    def test_a_commit_that_was_pushed_away_is_refused(self, server: GitHubServer, pull: PullRequest) -> None:
        pull.push(NEXT, {"a.py": PATCH}, force=True)
        assert review(server, entry()).status == 422
        assert review(server, entry(), commit_id=None).status == 200

    def test_an_older_commit_is_taken_and_its_comments_may_be_outdated(
        self, server: GitHubServer, pull: PullRequest
    ) -> None:
        pull.push(NEXT, {"a.py": PATCH.replace("+2\n", "+zwei\n")})
        assert review(server, entry(line=2), entry(line=22)).status == 200
        assert [thread.is_outdated for thread in pull.threads] == [True, False]
        assert [thread.commit for thread in pull.threads] == [HEAD, NEXT]

    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({"event": "REQUEST_CHANGES", "body": ""}, "You need to leave a comment indicating the requested changes."),
            (
                {"event": "REQUEST_CHANGES", "body": None},
                "You need to leave a comment indicating the requested changes.",
            ),
            ({"event": "COMMENT", "body": " "}, "Body can't be blank"),
            ({"body": "x" * 65537}, "Body is too long (maximum is 65536 characters)"),
        ],
    )
    def test_a_body_must_be_there_and_not_too_long(
        self, server: GitHubServer, fields: dict[str, Any], words: str
    ) -> None:
        reply = review(server, **fields)
        assert (reply.status, reply.document["errors"]) == (422, [words])

    def test_comments_are_enough_for_a_comment_without_words(self, server: GitHubServer) -> None:
        assert review(server, entry(), body=None).status == 200

    @pytest.mark.parametrize(("body", "words"), [(" \n", "can't be blank"), ("x" * 65537, "too long")])
    def test_a_comment_needs_words(self, server: GitHubServer, body: str, words: str) -> None:
        assert words in review(server, entry(body=body)).document["errors"][0]
        assert words in comment(server, body=body).document["errors"][0]["message"]


class TestAPendingReview:
    def test_only_one_at_a_time(self, server: GitHubServer) -> None:
        assert review(server, entry(), event=None).document["state"] == "PENDING"
        words = "can only have one pending review per pull request"
        assert review(server).document["errors"] == [f"User {words}"]
        assert comment(server).document["errors"][0]["message"] == f"user_id {words}"

    def test_it_is_seen_by_its_author_alone_and_its_comments_are_not_listed(
        self, server: GitHubServer, pull: PullRequest
    ) -> None:
        made = review(server, entry(), event=None).document
        assert "submitted_at" not in made
        pull.add_review(server.world.user("other"), association="NONE", body="", state="PENDING")
        assert [each["id"] for each in ask(server, "GET", REVIEWS).document] == [made["id"]]
        assert ask(server, "GET", COMMENTS).document == []
        assert len(ask(server, "GET", f"{REVIEWS}/{made['id']}/comments").document) == 1

    def test_it_can_be_submitted_or_deleted(self, server: GitHubServer, pull: PullRequest) -> None:
        first = review(server, entry(), event=None).document["id"]
        assert ask(server, "DELETE", f"{REVIEWS}/{first}").status == 200
        assert (pull.reviews, pull.threads) == ([], [])
        second = review(server, entry(), event=None).document["id"]
        reply = ask(server, "POST", f"{REVIEWS}/{second}/events", {"event": "COMMENT"})
        assert (reply.status, reply.document["state"]) == (200, "COMMENTED")
        assert len(ask(server, "GET", COMMENTS).document) == 1
        assert ask(server, "DELETE", f"{REVIEWS}/{second}").status == 422
        assert ask(server, "POST", f"{REVIEWS}/{second}/events", {"event": "COMMENT"}).status == 422


class TestApproving:
    @pytest.mark.parametrize(("event", "what"), [("APPROVE", "approve"), ("REQUEST_CHANGES", "request changes on")])
    def test_not_ones_own(self, server: GitHubServer, event: str, what: str) -> None:
        server.repository("octo/demo").pull_request({"a.py": PATCH}, head=HEAD, author=server.login)
        reply = ask(server, "POST", f"{REPO}/pulls/2/reviews", {"event": event, "body": "x"})
        assert reply.document["errors"] == [f"Can not {what} your own pull request"]

    def test_not_by_a_workflow_unless_the_repository_allows_it(self) -> None:
        with github_server(identity="actions") as server:
            repo = server.repository("octo/demo")
            repo.pull_request({"a.py": PATCH}, head=HEAD)
            refused = review(server, event="APPROVE").document["errors"]
            assert refused == ["GitHub Actions is not permitted to approve pull requests."]
            repo.actions_may_approve = True
            assert review(server, event="APPROVE").document["state"] == "APPROVED"

    def test_a_verdict_can_be_dismissed_and_a_comment_cannot(self, server: GitHubServer) -> None:
        approved, commented = (review(server, event=event).document["id"] for event in ("APPROVE", "COMMENT"))
        body = {"message": "old"}
        assert ask(server, "PUT", f"{REVIEWS}/{approved}/dismissals", body).document["state"] == "DISMISSED"
        assert ask(server, "PUT", f"{REVIEWS}/{commented}/dismissals", body).status == 422


class TestASingleComment:
    def test_it_is_a_review_of_its_own(self, server: GitHubServer, pull: PullRequest) -> None:
        assert comment(server).status == 201
        assert [(each.state, each.body) for each in pull.reviews] == [("COMMENTED", "")]

    @pytest.mark.parametrize(("fields", "found"), MISPLACED)
    def test_a_place_outside_the_diff_is_refused_by_field(
        self, server: GitHubServer, pull: PullRequest, fields: dict[str, Any], found: list[tuple[str, str]]
    ) -> None:
        reply = comment(server, **fields)
        assert (reply.status, reply.message) == (422, "Validation Failed")
        errors = reply.document["errors"]
        assert [error["field"] for error in errors] == [f"pull_request_review_thread.{field}" for field, _ in found]
        told = [error.get("message", error["field"] + " ") for error in errors]
        assert told == [f"pull_request_review_thread.{field} {words}" for field, words in found]
        assert pull.threads == []

    def test_an_unknown_commit_is_refused(self, server: GitHubServer) -> None:
        (error,) = comment(server, commit_id="d" * 40).document["errors"]
        assert error["message"] == "commit_id is not part of the pull request"

    def test_a_whole_file_can_be_meant(self, server: GitHubServer) -> None:
        body = {"commit_id": HEAD, "path": "image.png", "body": "x", "subject_type": "file"}
        reply = ask(server, "POST", COMMENTS, body)
        assert (reply.status, reply.document["line"], reply.document["subject_type"]) == (201, None, "file")

    def test_it_can_be_edited_and_deleted(self, server: GitHubServer, pull: PullRequest) -> None:
        address = f"{REPO}/pulls/comments/{comment(server).document['id']}"
        assert ask(server, "PATCH", address, {"body": "new"}).document["body"] == "new"
        assert ask(server, "PATCH", address, {"body": ""}).status == 422
        assert ask(server, "DELETE", address).status == 204
        assert (ask(server, "GET", address).status, pull.threads) == (404, [])


class TestReplies:
    def test_a_reply_stands_in_the_thread(self, server: GitHubServer, pull: PullRequest) -> None:
        first = comment(server).document["id"]
        reply = ask(server, "POST", f"{COMMENTS}/{first}/replies", {"body": "fixed"})
        assert (reply.status, reply.document["in_reply_to_id"], reply.document["line"]) == (201, first, 3)
        other = comment(server, in_reply_to=first, body="again").document
        assert other["in_reply_to_id"] == first
        (thread,) = pull.threads
        assert [each.body for each in thread.comments] == ["look", "fixed", "again"]
        assert [each["id"] for each in ask(server, "GET", COMMENTS).document][1:] == [reply.document["id"], other["id"]]

    def test_there_are_no_replies_to_replies(self, server: GitHubServer) -> None:
        first = comment(server).document["id"]
        second = ask(server, "POST", f"{COMMENTS}/{first}/replies", {"body": "x"}).document["id"]
        assert ask(server, "POST", f"{COMMENTS}/{second}/replies", {"body": "x"}).status == 422
        assert ask(server, "POST", f"{COMMENTS}/99/replies", {"body": "x"}).status == 404

    def test_others_reply_and_react(self, server: GitHubServer, pull: PullRequest) -> None:
        made = pull.comment(comment(server).document["id"])
        said = pull.comment_by("maria", "dismiss: intended", association="MEMBER", in_reply_to=made)
        pull.react_by("maria", made, "-1")
        pull.react_by("maria", made, "-1")
        listed = ask(server, "GET", COMMENTS).document
        assert [(each["user"]["login"], each["author_association"]) for each in listed] == [
            (server.login, "COLLABORATOR"),
            ("maria", "MEMBER"),
        ]
        assert (listed[0]["reactions"]["-1"], listed[0]["reactions"]["total_count"]) == (1, 1)
        assert listed[1]["id"] == said.id
        reactions = f"{REPO}/pulls/comments/{made.id}/reactions"
        (reaction,) = ask(server, "GET", f"{reactions}?content=-1").document
        assert (reaction["user"]["login"], reaction["content"]) == ("maria", "-1")
        assert ask(server, "GET", f"{reactions}?content=heart").document == []


class TestReactions:
    def test_the_same_one_counts_once_and_can_be_taken_back(self, server: GitHubServer, pull: PullRequest) -> None:
        made = pull.comment_by("maria", "hello")
        address = f"{REPO}/issues/comments/{made.id}/reactions"
        statuses = [ask(server, "POST", address, {"content": "eyes"}).status for _ in range(2)]
        assert (statuses, len(made.reactions)) == ([201, 200], 1)
        other = pull.react_by("maria", made, "heart")
        assert ask(server, "DELETE", f"{address}/{other.id}").status == 404
        assert ask(server, "DELETE", f"{address}/{made.reactions[0].id}").status == 204
        assert made.reactions == [other]


class TestCommentsOnTheWhole:
    def test_they_are_made_found_edited_and_deleted(self, server: GitHubServer, pull: PullRequest) -> None:
        address = f"{REPO}/issues/1/comments"
        made = ask(server, "POST", address, {"body": "one"}).document
        own = f"{REPO}/issues/comments/{made['id']}"
        edited = ask(server, "PATCH", own, {"body": "two"}).document
        assert edited["updated_at"] > made["updated_at"] == edited["created_at"]
        assert [each["body"] for each in ask(server, "GET", address).document] == ["two"]
        assert ask(server, "GET", f"{address}?since={edited['updated_at']}").document
        assert not ask(server, "GET", f"{address}?since=2030-01-01T00:00:00Z").document
        assert ask(server, "DELETE", own).status == 204
        assert (pull.issue_comments, ask(server, "GET", own).status) == ([], 404)

    @pytest.mark.parametrize(("body", "words"), [("", "can't be blank"), ("x" * 65537, "maximum is 65536")])
    def test_they_need_words_and_have_a_limit(self, server: GitHubServer, body: str, words: str) -> None:
        reply = ask(server, "POST", f"{REPO}/issues/1/comments", {"body": body})
        assert reply.status == 422
        assert words in reply.document["errors"][0]["message"]

    def test_a_locked_conversation_takes_none_from_outsiders(self, server: GitHubServer, pull: PullRequest) -> None:
        pull.locked = True
        assert ask(server, "POST", f"{REPO}/issues/1/comments", {"body": "x"}).status == 201
        pull.repository.collaborators.clear()
        for reply in (ask(server, "POST", f"{REPO}/issues/1/comments", {"body": "x"}), review(server), comment(server)):
            assert (reply.status, reply.message) == (403, "Unable to create comment because issue is locked.")

    def test_who_may_not_write_edits_no_comment_of_others(self, server: GitHubServer, pull: PullRequest) -> None:
        made = pull.comment_by("maria", "hello")
        pull.repository.collaborators[server.login] = "read"
        address = f"{REPO}/issues/comments/{made.id}"
        assert ask(server, "PATCH", address, {"body": "x"}).status == 403
        assert ask(server, "DELETE", address).status == 403
        assert pull.issue_comments == [made]
