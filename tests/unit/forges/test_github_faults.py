"""What GitHub may do in the middle of publishing: each time all is there once at the end, or it is told what is not."""

from __future__ import annotations

from typing import Any

import pytest

from codeloupe.errors import ForgeError, ForgeRefused, HeadMoved
from codeloupe.model.publication import Publication, StatusKind, SummaryChange
from codeloupe.model.review import Review
from tests.endings import PATIENCE_SECONDS
from tests.github_server_world import changed_file
from tests.publish_material import FILES, FIRST, ROWS, SECOND, Desk, Sleeper, finding, patch, review
from tests.rows import each

pytestmark = pytest.mark.program

REVIEWS = "/repos/octo/demo/pulls/1/reviews"
COMMENTS = "/repos/octo/demo/issues/1/comments"
PULL = "/repos/octo/demo/pulls/1"
FILES_PATH = f"{PULL}/files"
STATUSES = f"/repos/octo/demo/statuses/{FIRST}"
CHECKS = "/repos/octo/demo/check-runs"
SECONDARY = "You have exceeded a secondary rate limit."
RATE_LIMITED = {"errors": [{"type": "RATE_LIMITED", "message": "API rate limit exceeded"}]}
TOO_QUICKLY = {"message": "Validation Failed", "errors": [{"message": "was submitted too quickly"}]}
WRONG_FORMS: list[Any] = ["no JSON", [], {}, "null", {"base": 5}, {"head": {"sha": 5}}]
TWO = review(finding(4), finding(9))


def assert_all_is_there_once(desk: Desk) -> None:
    assert len(desk.pull.issue_comments) == 1
    assert [thread.original.line for thread in desk.pull.threads] == [4, 9]
    assert len(desk.pull.review_comments) == 2
    assert [status.state for status in desk.repo.statuses] == ["failure"]


def assert_whole(done: Publication) -> None:
    assert done.problems == ()
    assert done.exit_code == 0


@pytest.mark.parametrize(
    ("path", "status"),
    [(PULL, 403), (FILES_PATH, 429), ("/graphql", 403), (REVIEWS, 429), (COMMENTS, 403), (STATUSES, 429)],
)
def test_a_secondary_limit_is_waited_for_as_asked(desk: Desk, path: str, status: int) -> None:
    sleeper = Sleeper()
    desk.server.secondary_rate_limit("*", path, status=status, retry_after=17)
    assert_whole(desk.publish(TWO, sleeper=sleeper))
    assert sleeper.seconds == [17.0]
    assert_all_is_there_once(desk)


def test_the_limit_of_the_hour_is_waited_for_until_its_reset(desk: Desk) -> None:
    sleeper = Sleeper()
    desk.server.primary_rate_limit("POST", COMMENTS, reset_in_seconds=600)
    assert_whole(desk.publish(TWO, sleeper=sleeper))
    (waited,) = sleeper.seconds
    assert 600 - PATIENCE_SECONDS < waited <= 602
    assert_all_is_there_once(desk)


def test_a_limit_that_takes_too_long_is_told_and_the_next_run_does_the_rest(desk: Desk) -> None:
    desk.server.primary_rate_limit("POST", COMMENTS, reset_in_seconds=3_000)
    done = desk.publish(TWO)
    assert done.exit_code == 3
    assert "rate limit" in done.problems[0].message
    assert len(done.posted) == 2
    assert done.summary is SummaryChange.NOT_WRITTEN
    assert_whole(desk.publish(TWO))
    assert_all_is_there_once(desk)


@pytest.mark.parametrize("after", [False, True], ids=["before it was done", "after it was done"])
@pytest.mark.parametrize("cut", [False, True], ids=["502", "cut"])
@pytest.mark.parametrize("path", [REVIEWS, COMMENTS, STATUSES, "/graphql"])
def test_a_request_that_fails_in_the_middle_is_done_once(desk: Desk, path: str, *, cut: bool, after: bool) -> None:
    (desk.server.cut_connection if cut else desk.server.bad_gateway)("POST", path, after=after)
    assert_whole(desk.publish(TWO))
    assert_all_is_there_once(desk)


@pytest.mark.parametrize("after", [False, True], ids=["before it was done", "after it was done"])
def test_an_answer_in_a_thread_is_given_once(desk: Desk, *, after: bool) -> None:
    desk.publish(TWO)
    desk.server.bad_gateway("POST", f"{PULL}/comments/*/replies", after=after)
    desk.server.bad_gateway("POST", "/graphql", after=after)
    done = desk.publish(review(finding(9)))
    assert_whole(done)
    fixed = desk.pull.threads[0]
    assert len(fixed.comments) == 2
    assert fixed.is_resolved
    assert not desk.pull.threads[1].is_resolved


def test_reading_is_tried_again_and_given_up_in_words(desk: Desk) -> None:
    desk.server.bad_gateway("GET", PULL, times=2)
    desk.server.cut_connection("GET", FILES_PATH, times=2)
    assert_whole(desk.publish(TWO))
    desk.server.bad_gateway("GET", PULL, times=50)
    with pytest.raises(ForgeError, match="GitHub failed with 502") as raised:
        desk.publish(TWO)
    assert raised.value.exit_code == 3


def test_a_line_that_is_cut_each_time_is_given_up_and_the_next_run_does_the_rest(desk: Desk) -> None:
    desk.server.cut_connection("POST", REVIEWS, times=3)
    done = desk.publish(TWO)
    assert done.exit_code == 3
    assert done.posted == ()
    assert_whole(desk.publish(TWO))
    assert_all_is_there_once(desk)


def test_a_run_that_ends_in_the_middle_is_taken_up_by_the_next(desk: Desk) -> None:
    desk.server.cut_connection("POST", COMMENTS, times=50)
    desk.server.cut_connection("POST", STATUSES, times=50)
    assert desk.publish(TWO).exit_code == 3
    assert desk.repo.statuses == []
    desk.server._faults.clear()
    assert_whole(desk.publish(TWO))
    assert_all_is_there_once(desk)


def test_a_line_that_github_does_not_take_goes_to_the_summary_and_the_others_are_posted(desk: Desk) -> None:
    many = review(*(finding(line) for line in (2, 4, 6, 9, 30)))

    def shrink() -> None:
        desk.pull.diffs[FIRST] = (changed_file("app.py", patch(ROWS[:20])), *desk.pull.diffs[FIRST][1:])

    desk.server.before("POST", REVIEWS, shrink)
    done = desk.publish(many)
    assert_whole(done)
    assert [thread.original.line for thread in desk.pull.threads] == [2, 4, 6, 9]
    assert [(one.finding.line_start, one.reason) for one in done.refused] == [
        (30, "GitHub took no comment on its lines")
    ]
    assert "No comment: GitHub took no comment on its lines." in desk.pull.issue_comments[0].body


def test_a_missing_right_is_named(actions: Desk) -> None:
    actions.server.permissions.update(pull_requests="read", issues="read", checks="read")
    done = actions.publish(TWO)
    assert done.exit_code == 2
    hints = " ".join(problem.hint for problem in done.problems)
    assert "pull-requests: write" in hints
    assert "checks: write" in hints
    assert len(done.problems) == 3


def test_a_check_run_with_the_token_of_a_person_is_refused_with_the_way_out(desk: Desk) -> None:
    done = desk.publish(TWO, status=StatusKind.CHECK)
    assert done.exit_code == 2
    assert "--status commit" in done.problems[0].hint
    assert done.summary is SummaryChange.CREATED


def test_a_token_that_is_not_accepted_is_told(desk: Desk) -> None:
    wrong = "ghp_" + "0" * 36
    with pytest.raises(ForgeRefused, match="does not accept the token") as raised:
        desk.publish(TWO, environment={"GITHUB_TOKEN": wrong})
    assert raised.value.exit_code == 2
    assert wrong not in str(raised.value)


def test_a_token_that_ends_in_the_middle_ends_the_run(desk: Desk) -> None:
    desk.server.fail("POST", COMMENTS, status=401, body={"message": "Bad credentials"})
    done = desk.publish(TWO)
    assert done.exit_code == 2
    assert len(done.problems) == 1
    assert desk.repo.statuses == []


@pytest.mark.parametrize("name", ["octo/demo#99", "octo/nothing#1"])
def test_what_is_not_there_is_told(desk: Desk, name: str) -> None:
    with pytest.raises(ForgeRefused, match="not there, or the token may not see it"):
        desk.publish(TWO, pull_request=name)


def test_a_locked_conversation_is_told(actions: Desk) -> None:
    actions.pull.locked = True
    done = actions.publish(TWO)
    assert any("unlock it" in problem.hint for problem in done.problems)


@pytest.mark.defect("V16")
def test_a_head_that_moves_after_the_comments_gets_no_stale_summary(desk: Desk) -> None:
    desk.server.before("POST", REVIEWS, lambda: desk.pull.push(SECOND, FILES))
    done = desk.publish(TWO)
    assert done.exit_code == 3
    [told] = done.problems
    words = "posted 2 comments for 111111111111, but neither summary nor status, since new commits arrived"
    assert told.message == words
    assert done.status is StatusKind.NONE
    assert desk.server.count("POST", "/statuses/") + desk.server.count("POST", "/check-runs") == 0
    assert desk.pull.issue_comments == []
    assert {thread.original_commit for thread in desk.pull.threads} == {FIRST}


@pytest.mark.defect("V16")
def test_what_somebody_deletes_meanwhile_is_no_failure(desk: Desk) -> None:
    assert_whole(desk.publish(review(finding(4), finding(9), finding(12))))
    desk.pull.push(SECOND, FILES)
    # The summary, and one of two threads that are to be answered and resolved.
    desk.server.before("POST", REVIEWS, desk.pull.issue_comments.clear)
    desk.server.before("POST", REVIEWS, lambda: desk.pull.threads.pop(0))
    done = desk.publish(review(finding(12), finding(20), head=SECOND))
    assert_whole(done)
    assert done.summary is SummaryChange.CREATED
    assert ["codeloupe: FAIL" in comment.body for comment in desk.pull.issue_comments] == [True]
    assert [(thread.original.line, thread.is_resolved) for thread in desk.pull.threads] == [
        (9, True),
        (12, False),
        (20, False),
    ]


def test_limits_do_not_use_up_the_attempts_for_failures(desk: Desk) -> None:
    desk.server.secondary_rate_limit("GET", PULL, retry_after=1, times=4)
    desk.server.bad_gateway("GET", PULL, times=3)
    assert_whole(desk.publish(TWO))
    assert_all_is_there_once(desk)


@pytest.mark.parametrize("reviewed", [TWO, review()], ids=["with comments", "with an approval alone"])
def test_a_review_that_a_person_has_begun_by_hand_is_told(desk: Desk, reviewed: Review) -> None:
    begun_by_hand(desk)
    done = desk.publish(reviewed, approve=True)
    assert done.exit_code == 3
    assert "pending review" in done.problems[0].message
    assert "submit or discard it" in done.problems[0].hint
    assert done.refused == ()
    assert desk.server.count("POST", REVIEWS) == 1
    assert len(desk.pull.issue_comments) == 1


def begun_by_hand(desk: Desk) -> None:
    """A review of the token's own person that was not sent yet."""
    person = desk.server.world.user("reviewer")
    desk.pull.add_review(person, association="MEMBER", body="", state="PENDING", commit=FIRST)


def test_a_pending_review_that_stands_in_the_way_of_an_answer_is_told(desk: Desk) -> None:
    desk.publish(TWO)
    words = {"message": "Validation Failed", "errors": ["user_id can only have one pending review per pull request"]}
    desk.server.fail("POST", f"{PULL}/comments/*/replies", status=422, body=words, times=2)
    done = desk.publish(review())
    assert done.exit_code == 3
    assert "submit or discard it" in done.problems[0].hint


def test_a_github_that_cannot_be_reached_is_told(desk: Desk) -> None:
    sleeper = Sleeper()
    with pytest.raises(ForgeError, match="cannot be reached") as raised:
        desk.publish(TWO, sleeper=sleeper, environment={"GITHUB_API_URL": "http://127.0.0.1:9"})
    assert raised.value.exit_code == 3
    assert len(sleeper.seconds) == 3


@pytest.mark.parametrize("after", [False, True], ids=["before it was done", "after it was done"])
def test_an_approval_is_given_once(desk: Desk, *, after: bool) -> None:
    desk.server.bad_gateway("POST", REVIEWS, after=after)
    assert_whole(desk.publish(review(), approve=True))
    assert [one.state for one in desk.pull.reviews] == ["APPROVED"]


@each("after", [False, True])
def test_a_check_run_is_made_once(actions: Desk, *, after: bool) -> None:
    actions.server.bad_gateway("POST", CHECKS, after=after)
    assert_whole(actions.publish(TWO))
    assert len(actions.repo.check_runs) == 1


def test_many_answers_are_given_one_after_the_other(desk: Desk) -> None:
    desk.publish(review(*(finding(line) for line in range(1, 13))))
    sleeper = Sleeper()
    assert_whole(desk.publish(review(), sleeper=sleeper))
    assert all(thread.is_resolved for thread in desk.pull.threads)
    assert set(sleeper.seconds) == {1.0}
    assert desk.server.max_concurrent == 1


def test_an_endless_answer_is_not_read_to_its_end(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.publish(TWO)
    monkeypatch.setattr("codeloupe.forges.github.transport._MOST_BYTES", 5_000)
    with pytest.raises(ForgeError, match="larger than"):
        desk.publish(TWO)


def test_an_answer_that_drips_is_not_waited_for(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codeloupe.forges.github.transport._MOST_SECONDS", 0.05)
    desk.server.slow_answer("GET", PULL, 30, times=4)
    with pytest.raises(ForgeError, match=r"cannot be reached \(TimeoutError\)"):
        desk.publish(TWO)


def test_lists_without_an_end_are_given_up(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(101):
        desk.pull.comment_by("somebody", f"{number}")
    monkeypatch.setattr("codeloupe.forges.github.client._MOST_PAGES", 1)
    with pytest.raises(ForgeError, match="there is too much of it"):
        desk.publish(TWO)


@pytest.mark.parametrize(
    ("fault", "waits"),
    [
        # Without a time it is a minute, and then longer.
        ({"method": "POST", "path": REVIEWS, "status": 403, "body": {"message": SECONDARY}, "times": 2}, [60.0, 120.0]),
        (
            {
                "method": "POST",
                "path": "/graphql",
                "status": 200,
                "headers": {"retry-after": "3"},
                "body": RATE_LIMITED,
            },
            [3.0],
        ),
        # Comments that come too quickly for GitHub are posted later.
        ({"method": "POST", "path": REVIEWS, "status": 422, "body": TOO_QUICKLY}, [60.0]),
    ],
)
def test_other_limits_are_waited_for(desk: Desk, fault: dict[str, Any], waits: list[float]) -> None:
    sleeper = Sleeper()
    desk.server.fail(**fault)
    assert_whole(desk.publish(TWO, sleeper=sleeper))
    assert sleeper.seconds == waits
    assert_all_is_there_once(desk)


@pytest.mark.parametrize(
    ("method", "path", "answer", "words"),
    [
        ("GET", PULL, {"status": 301, "body": {"message": "Moved"}, "headers": {"location": "/"}}, "leads elsewhere"),
        ("GET", FILES_PATH, {"body": [], "headers": {"link": '<http://127.0.0.2:9/>; rel="next"'}}, "another host"),
        *(("GET", PULL, {"body": body}, "another form") for body in WRONG_FORMS),
        *(
            ("POST", "/graphql", {"body": {"data": data}}, "another form")
            for data in (None, {}, {"repository": None}, {"repository": {"pullRequest": {"reviewThreads": 5}}})
        ),
    ],
)
def test_an_answer_that_github_does_not_give_is_told(
    desk: Desk, method: str, path: str, answer: dict[str, Any], words: str
) -> None:
    desk.server.fail(method, path, **{"status": 200, **answer})
    with pytest.raises(ForgeError, match=words) as raised:
        desk.publish(TWO)
    assert words != "another form" or "GITHUB_API_URL" in raised.value.hint


@pytest.mark.parametrize("is_read", [False, True], ids=["before", "while it is read"])
def test_a_head_that_moved_leaves_everything_as_it_was(desk: Desk, *, is_read: bool) -> None:
    if is_read:
        desk.server.before("POST", "/graphql", lambda: desk.pull.push(SECOND, FILES))
    else:
        desk.pull.push(SECOND, FILES)
    with pytest.raises(HeadMoved, match="nothing was posted") as raised:
        desk.publish(TWO)
    assert raised.value.exit_code == 3
    assert (desk.pull.issue_comments, desk.pull.reviews) == ([], [])
