"""Publishing on a GitHub server of ours, which keeps state and checks each request against GitHub's descriptions."""

import sys
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe.errors import ForgeError, ForgeRefused, HeadMoved, UsageError
from codeloupe.model.finding import Severity
from codeloupe.model.publication import Conclusion, Opinion, Publication, StatusKind, SummaryChange
from codeloupe.model.review import Policy, Review
from tests.endings import PATIENCE_SECONDS
from tests.github_server_graph import Graph
from tests.github_server_world import changed_file
from tests.publish_material import FILES, FIRST, ROWS, SECOND, THIRD, Desk, Sleeper, finding, patch, review
from tests.unit.cli.test_start import loaded_by

pytestmark = pytest.mark.program

PULL = "/repos/octo/demo/pulls/1"
REVIEWS = f"{PULL}/reviews"
FILES_PATH = f"{PULL}/files"
REPLIES = f"{PULL}/comments/*/replies"
COMMENTS = "/repos/octo/demo/issues/1/comments"
STATUSES = f"/repos/octo/demo/statuses/{FIRST}"
CHECKS = "/repos/octo/demo/check-runs"
WRONG_FORMS: list[Any] = ["no JSON", [], {}, "null", {"base": 5}, {"head": {"sha": 5}}]
TWO = review(finding(4), finding(9))
SECONDARY = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
WHEN = pytest.mark.parametrize("after", [False, True], ids=["before it was done", "after it was done"])


def written(desk: Desk) -> int:
    """How many requests there were that change something."""
    return sum(method != "GET" and path != "/graphql" for method, path in desk.server.requests)


def push(desk: Desk, head: str, *changed: int) -> None:
    """New commits, in which some lines are others."""
    rows = [f"{row}  # mended" if number in changed else row for number, row in enumerate(ROWS, 1)]
    desk.pull.push(head, {**FILES, "app.py": patch(rows)})


def assert_whole(done: Publication) -> None:
    assert (done.problems, done.exit_code) == ((), 0)


def assert_all_is_there_once(desk: Desk) -> None:
    assert len(desk.pull.issue_comments) == 1
    assert [(thread.line, len(thread.comments)) for thread in desk.pull.threads] == [(4, 1), (9, 1)]
    assert [status.state for status in desk.repo.statuses] == ["failure"]


class TestPushes:
    @pytest.mark.requirement("C11")
    def test_three_pushes_end_with_one_summary_no_comment_twice_and_fixed_threads_resolved(self, desk: Desk) -> None:
        desk.publish(review(finding(4), finding(9, line_end=11), finding(20)))
        (posted,) = desk.pull.reviews
        assert (posted.commit, posted.state) == (FIRST, "COMMENTED")
        assert [(thread.start_line, thread.line) for thread in desk.pull.threads] == [(None, 4), (9, 11), (None, 20)]
        push(desk, SECOND, 4)
        desk.publish(review(finding(9, line_end=11), finding(20), finding(30), head=SECOND))
        push(desk, THIRD, 4, 20, 30)
        desk.publish(review(finding(9, line_end=11), head=THIRD))
        assert [comment.user.login for comment in desk.pull.issue_comments] == ["reviewer"]
        assert THIRD in desk.pull.issue_comments[0].body
        threads = [(thread.line, thread.is_resolved, len(thread.comments)) for thread in desk.pull.threads]
        assert threads == [(4, True, 2), (11, False, 1), (20, True, 2), (30, True, 2)]
        assert {one.state for one in desk.pull.reviews} == {"COMMENTED"}
        assert [(one.sha, one.state) for one in desk.repo.statuses] == [
            (head, "failure") for head in (FIRST, SECOND, THIRD)
        ]
        # One that comes back is opened again.
        desk.publish(review(finding(9, line_end=11), finding(20), head=THIRD))
        back = desk.pull.threads[2]
        assert (back.is_resolved, len(back.comments)) == (False, 3)
        assert "Found again" in back.comments[-1].body

    def test_the_same_again_changes_nothing_and_a_second_summary_of_ours_goes(self, desk: Desk) -> None:
        desk.publish(review(finding(4)))
        before = written(desk)
        done = desk.publish(review(finding(4)))
        assert (written(desk), done.summary, len(done.plan.known)) == (before, SummaryChange.UNCHANGED, 1)
        desk.pull.comment_by("reviewer", desk.pull.issue_comments[0].body)
        desk.publish(review(finding(4)))
        (first,) = desk.pull.issue_comments
        assert "codeloupe: FAIL" in first.body
        assert written(desk) == before + 1

    def test_what_others_wrote_stays_as_it_is(self, desk: Desk) -> None:
        desk.publish(review(finding(4)))
        copied = desk.pull.issue_comments[0].body
        desk.pull.comment_by("stranger", copied)
        desk.pull.comment_by("stranger", desk.first.body, at=("app.py", 9))
        said = (*desk.pull.issue_comments, *desk.pull.review_comments)
        before = [(one.id, one.body) for one in said if one.user.login == "stranger"]
        push(desk, SECOND, 4)
        desk.publish(review(finding(9), head=SECOND))
        said = (*desk.pull.issue_comments, *desk.pull.review_comments)
        assert [(one.id, one.body) for one in said if one.user.login == "stranger"] == before
        assert [thread.is_resolved for thread in desk.pull.threads] == [True, False, False]
        assert desk.pull.issue_comments[0].body != copied

    def test_long_lists_are_read_to_their_end(self, desk: Desk) -> None:
        desk.publish(review(finding(4)))
        first = desk.first
        for number in range(130):
            desk.pull.comment_by("somebody", f"{number}")
            desk.pull.comment_by("somebody", f"{number}", to=first)
        desk.pull.comment_by("boss", "dismiss: enough of it", to=first, association="OWNER")
        desk.repo.collaborators["boss"] = "admin"
        for number in range(60):
            desk.pull.comment_by("somebody", f"{number}", at=("other.py", 3))
        files = {f"f{number:03}.py": patch() for number in range(150)}
        desk.pull.push(SECOND, {**files, "app.py": patch()})
        whole = replace(review().coverage, files_total=151)
        done = desk.publish(review(finding(4), finding(7, file="f149.py"), head=SECOND, coverage=whole))
        assert_whole(done)
        assert [one.reason for one in done.plan.dismissed] == ["enough of it"]
        assert [one.path for one in done.posted] == ["f149.py"]
        assert sum(one.user.login == "reviewer" for one in desk.pull.issue_comments) == 1

    @pytest.mark.parametrize("is_read", [False, True], ids=["before", "while it is read"])
    def test_a_head_that_moved_leaves_everything_as_it_was(self, desk: Desk, *, is_read: bool) -> None:
        if is_read:
            desk.server.before("POST", "/graphql", lambda: desk.pull.push(SECOND, FILES))
        else:
            desk.pull.push(SECOND, FILES)
        with pytest.raises(HeadMoved, match="nothing was posted") as raised:
            desk.publish(TWO)
        assert raised.value.exit_code == 3
        assert (desk.pull.issue_comments, desk.pull.reviews) == ([], [])

    @pytest.mark.defect("V16")
    def test_a_head_that_moves_after_the_comments_gets_no_stale_summary(self, desk: Desk) -> None:
        desk.server.before("POST", REVIEWS, lambda: desk.pull.push(SECOND, FILES))
        done = desk.publish(TWO)
        [told] = done.problems
        words = "posted 2 comments for 111111111111, but no summary and no status, because new commits arrived"
        assert (done.exit_code, told.message, done.status) == (3, words, StatusKind.NONE)
        assert desk.server.count("POST", STATUSES) + desk.server.count("POST", CHECKS) == 0
        assert desk.pull.issue_comments == []
        assert {thread.commit for thread in desk.pull.threads} == {FIRST}

    @pytest.mark.defect("V16")
    def test_what_somebody_deletes_meanwhile_is_no_failure(self, desk: Desk) -> None:
        assert_whole(desk.publish(review(finding(4), finding(9), finding(12))))
        desk.pull.push(SECOND, FILES)
        # The summary, and one of two threads that are to be answered and resolved.
        desk.server.before("POST", REVIEWS, desk.pull.issue_comments.clear)
        desk.server.before("POST", REVIEWS, lambda: desk.pull.threads.pop(0))
        done = desk.publish(review(finding(12), finding(20), head=SECOND))
        assert_whole(done)
        assert done.summary is SummaryChange.CREATED
        assert ["codeloupe: FAIL" in comment.body for comment in desk.pull.issue_comments] == [True]
        threads = [(thread.line, thread.is_resolved) for thread in desk.pull.threads]
        assert threads == [(9, True), (12, False), (20, False)]


class TestDismissing:
    def test_a_maintainer_dismisses_by_a_reply_and_it_opens_the_gate(self, desk: Desk) -> None:
        desk.publish(review(finding(4)))
        desk.repo.collaborators["ann"] = "write"
        desk.pull.comment_by("ann", "/codeloupe dismiss it is on purpose", to=desk.first, association="MEMBER")
        done = desk.publish(review(finding(4)))
        assert done.plan.conclusion is Conclusion.SUCCESS
        (thread,) = desk.pull.threads
        assert (thread.is_resolved, len(thread.comments)) == (True, 2)
        assert "by `ann`: it is on purpose" in desk.pull.issue_comments[0].body
        assert desk.repo.statuses[-1].state == "success"
        push(desk, SECOND, 9)
        again = desk.publish(review(finding(4), head=SECOND))
        assert (again.posted, again.plan.conclusion) == ((), Conclusion.SUCCESS)

    def test_only_a_person_who_may_write_dismisses_by_a_reply_or_a_thumb_down(self, desk: Desk) -> None:
        desk.publish(review(finding(4)))
        desk.repo.collaborators |= {"bob": "read", "tom": "triage", "helper": "write"}
        # A bot is not the person of its name.
        for login in ("bob", "tom", "helper[bot]"):
            desk.pull.comment_by(login, "dismiss", to=desk.first, association="COLLABORATOR")
            desk.pull.react_by(login, desk.first, "-1")
        desk.pull.comment_by("author", "dismiss", to=desk.first, association="CONTRIBUTOR")
        assert desk.publish(review(finding(4))).plan.dismissed == ()
        desk.repo.collaborators["ann"] = "maintain"
        desk.pull.react_by("ann", desk.first, "-1")
        assert [one.who for one in desk.publish(review(finding(4))).plan.dismissed] == ["ann"]
        desk.pull.comment_by("reviewer", "dismiss", to=desk.first, association="COLLABORATOR")
        # Rights that cannot be asked for are not believed; the person whose token it is can dismiss too.
        rights = "/repos/octo/demo/collaborators/**"
        desk.server.fail("GET", rights, status=403, body={"message": "Must have push access"}, times=9)
        assert desk.publish(review(finding(4))).plan.dismissed == ()
        desk.server.faults.clear()
        assert [one.who for one in desk.publish(review(finding(4))).plan.dismissed] == ["reviewer"]


class TestOutcomes:
    @pytest.mark.parametrize(
        ("changes", "state"),
        [
            ({}, "success"),
            ({"complete": False, "exit_code": 3}, "error"),
            ({"complete": False, "policy": Policy(pass_when_incomplete=True)}, "success"),
        ],
    )
    def test_a_commit_status_has_an_error_for_what_could_not_be_reviewed(
        self, desk: Desk, changes: dict[str, Any], state: str
    ) -> None:
        desk.publish(replace(review(), **changes))
        (status,) = desk.repo.statuses
        assert (status.state, status.context) == (state, "codeloupe")
        assert ("INCOMPLETE" in status.description) is bool(changes)

    def test_a_check_run_has_three_outcomes_is_changed_and_not_made_again_and_anothers_is_left(
        self, actions: Desk
    ) -> None:
        incomplete = review(complete=False, exit_code=3)
        outcomes = {"success": review(), "failure": review(finding(4)), "neutral": incomplete}
        for conclusion, reviewed in outcomes.items():
            done = actions.publish(reviewed, resolve=False)
            assert done.status is StatusKind.CHECK
            (run,) = actions.repo.check_runs
            assert (run.name, run.status, run.conclusion, run.head_sha) == ("codeloupe", "completed", conclusion, FIRST)
            assert run.output["title"]
            assert run.output["summary"]
        actions.repo.check_runs[0].external_id = "another workflow"
        actions.publish(review(finding(4)))
        assert [run.conclusion for run in actions.repo.check_runs] == ["neutral", "failure"]

    def test_it_approves_when_asked_to_and_takes_it_back_when_that_does_not_hold(self, desk: Desk) -> None:
        for _ in range(2):
            desk.publish(review(), approve=True)
        assert [one.state for one in desk.pull.reviews] == ["APPROVED"]
        push(desk, SECOND, 1)
        done = desk.publish(review(finding(4), head=SECOND), approve=True)
        assert [one.state for one in desk.pull.reviews] == ["DISMISSED", "COMMENTED"]
        assert len(done.withdrawn) == 1

    def test_it_requests_changes_when_asked_to_and_takes_that_back(self, desk: Desk) -> None:
        desk.publish(review(finding(4)), request_changes=True)
        assert [one.state for one in desk.pull.reviews] == ["CHANGES_REQUESTED"]
        push(desk, SECOND, 4)
        desk.publish(review(head=SECOND), request_changes=True)
        assert {"CHANGES_REQUESTED", "APPROVED"}.isdisjoint({one.state for one in desk.pull.reviews})

    def test_an_approval_that_github_does_not_take_is_told_and_the_comments_are_posted(self, actions: Desk) -> None:
        done = actions.publish(review(finding(4, severity=Severity.LOW)), approve=True)
        assert done.exit_code == 3
        assert "not permitted to approve" in done.problems[0].message
        assert [one.state for one in actions.pull.reviews] == ["COMMENTED"]
        assert len(actions.pull.review_comments) == 1
        assert (done.opinion, done.summary) == (Opinion.COMMENT, SummaryChange.CREATED)


class TestRights:
    def test_who_may_not_resolve_still_answers_once_and_is_told_how(self, actions: Desk) -> None:
        actions.publish(TWO)
        for _ in range(2):
            done = actions.publish(review())
            assert done.exit_code == 0
            (problem,) = done.problems
            assert (
                problem.message
                == "the token is not allowed to resolve a thread (Resource not accessible by integration)"
            )
            assert "contents: write" in problem.hint
            assert "--no-resolve" in problem.hint
        assert [len(thread.comments) for thread in actions.pull.threads] == [2, 2]
        assert_whole(actions.publish(review(), resolve=False))
        actions.server.permissions["contents"] = "write"
        assert_whole(actions.publish(review()))
        assert all(thread.is_resolved for thread in actions.pull.threads)

    def test_without_a_status_none_is_set_and_a_check_run_by_a_person_is_refused_with_the_way_out(
        self, desk: Desk
    ) -> None:
        desk.publish(review(), status=StatusKind.NONE)
        assert (desk.repo.statuses, desk.server.count("GET", "/repos/octo/demo/commits/**")) == ([], 0)
        done = desk.publish(TWO, status=StatusKind.CHECK)
        assert (done.exit_code, done.summary) == (2, SummaryChange.UPDATED)
        assert "--status commit" in done.problems[0].hint

    def test_a_token_that_is_not_accepted_is_told_and_ends_the_run(self, desk: Desk) -> None:
        wrong = "ghp_" + "0" * 36
        with pytest.raises(ForgeRefused, match="rejected the token") as raised:
            desk.publish(TWO, environment={"GITHUB_TOKEN": wrong})
        assert raised.value.exit_code == 2
        assert wrong not in str(raised.value)
        desk.server.fail("POST", COMMENTS, status=401, body={"message": "Bad credentials"})
        done = desk.publish(TWO)
        assert (done.exit_code, len(done.problems), desk.repo.statuses) == (2, 1, [])

    @pytest.mark.parametrize("token", ["", "   ", "two words", "gh\x00p"])
    def test_without_a_token_nothing_is_asked(self, desk: Desk, token: str) -> None:
        with pytest.raises(ForgeRefused, match="token"):
            desk.publish(review(), environment={"GITHUB_TOKEN": token})
        assert not desk.server.requests

    def test_a_github_app_logs_in_by_its_key_where_it_is_installed(self, desk: Desk) -> None:
        key = desk.directory / "app.pem"
        key.write_text(desk.server.app_private_key)
        app: dict[str, Any] = {"app_id": str(desk.server.app_id), "app_key_file": key}
        for _ in range(2):
            assert_whole(desk.publish(review(finding(4)), **app, environment={"GITHUB_TOKEN": ""}))
        assert [one.user.login for one in desk.pull.issue_comments] == ["loupe-app[bot]"]
        assert len(desk.pull.review_comments) == 1
        assert [run.conclusion for run in desk.repo.check_runs] == ["failure"]
        desk.server.fail("GET", "/repos/octo/demo/installation", status=404, body={"message": "Not Found"})
        with pytest.raises(ForgeRefused, match="log in as the GitHub App on octo/demo"):
            desk.publish(review(), **app)

    @pytest.mark.parametrize("text", ["", "no key at all", "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END"])
    def test_a_key_that_is_none_is_told_and_not_shown(self, desk: Desk, text: str) -> None:
        key = desk.directory / "app.pem"
        key.write_text(text)
        with pytest.raises(UsageError) as raised:
            desk.publish(review(), app_id="1", app_key_file=key)
        assert text[:20] not in raised.value.message or not text

    def test_with_a_secret_key_a_mark_that_others_can_make_hides_nothing(self, desk: Desk) -> None:
        desk.publish(review(finding(4)))
        secret = {"CODELOUPE_PUBLISH_KEY": "a long and random secret"}
        assert len(desk.publish(review(finding(4)), environment=secret).posted) == 1
        assert "signed with another key" in desk.pull.issue_comments[1].body
        assert desk.publish(review(finding(4)), environment=secret).posted == ()

    def test_our_account_is_known_by_its_name_too(self, actions: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Graph, "_is_own", lambda _graph, _user: False)
        for _ in range(2):
            actions.publish(review(finding(4)))
        assert len(actions.pull.review_comments) == len(actions.pull.issue_comments) == 1

    def test_what_is_not_there_and_a_locked_conversation_are_told(self, actions: Desk) -> None:
        for name in ("octo/demo#99", "octo/nothing#1"):
            with pytest.raises(ForgeRefused, match="does not exist, or the token cannot see it"):
                actions.publish(TWO, pull_request=name)
        actions.pull.locked = True
        assert any("unlock it" in problem.hint for problem in actions.publish(TWO).problems)


class TestFaults:
    """What GitHub may do in the middle: each time all is there once at the end, or it is said what is not."""

    @pytest.mark.parametrize(
        ("path", "fault", "waits"),
        [
            *(
                (path, {"status": status, "headers": {"retry-after": "17"}, "body": {"message": SECONDARY}}, [17.0])
                for path, status in [(PULL, 403), (FILES_PATH, 429), ("/graphql", 403), (REVIEWS, 429), (STATUSES, 429)]
            ),
            # Without a time it is a minute, and then longer.
            (REVIEWS, {"status": 403, "body": {"message": SECONDARY}, "times": 2}, [60.0, 120.0]),
            (
                "/graphql",
                {"status": 200, "headers": {"retry-after": "3"}, "body": {"errors": [{"type": "RATE_LIMITED"}]}},
                [3.0],
            ),
            # Comments that come too quickly for GitHub are posted later.
            (REVIEWS, {"status": 422, "body": {"errors": [{"message": "was submitted too quickly"}]}}, [60.0]),
        ],
    )
    def test_a_limit_is_waited_for_as_asked(
        self, desk: Desk, path: str, fault: dict[str, Any], waits: list[float]
    ) -> None:
        sleeper = Sleeper()
        desk.server.fail("*", path, **fault)
        assert_whole(desk.publish(TWO, sleeper=sleeper))
        assert sleeper == waits
        assert_all_is_there_once(desk)

    def test_the_limit_of_the_hour_is_waited_for_unless_that_takes_too_long(self, desk: Desk) -> None:
        desk.server.primary_rate_limit("POST", COMMENTS, reset_in_seconds=3_000)
        done = desk.publish(TWO)
        assert (done.exit_code, len(done.posted), done.summary) == (3, 2, SummaryChange.NOT_WRITTEN)
        assert "rate limit" in done.problems[0].message
        sleeper = Sleeper()
        desk.server.primary_rate_limit("POST", COMMENTS, reset_in_seconds=600)
        assert_whole(desk.publish(TWO, sleeper=sleeper))
        (waited,) = sleeper
        assert 600 - PATIENCE_SECONDS < waited <= 602
        assert_all_is_there_once(desk)

    def test_limits_do_not_use_up_the_attempts_for_failures(self, desk: Desk) -> None:
        desk.server.secondary_rate_limit("GET", PULL, retry_after=1, times=4)
        desk.server.bad_gateway("GET", PULL, times=3)
        assert_whole(desk.publish(TWO))
        assert_all_is_there_once(desk)

    @WHEN
    @pytest.mark.parametrize("cut", [False, True], ids=["502", "cut"])
    @pytest.mark.parametrize("path", [REVIEWS, COMMENTS, STATUSES, "/graphql"])
    def test_a_request_that_fails_in_the_middle_is_done_once(
        self, desk: Desk, path: str, *, cut: bool, after: bool
    ) -> None:
        (desk.server.cut_connection if cut else desk.server.bad_gateway)("POST", path, after=after)
        assert_whole(desk.publish(TWO))
        assert_all_is_there_once(desk)

    @WHEN
    def test_an_answer_and_an_approval_are_given_once(self, desk: Desk, *, after: bool) -> None:
        desk.publish(TWO)
        desk.server.bad_gateway("POST", REPLIES, after=after)
        desk.server.bad_gateway("POST", "/graphql", after=after)
        assert_whole(desk.publish(review(finding(9))))
        threads = [(thread.is_resolved, len(thread.comments)) for thread in desk.pull.threads]
        assert threads == [(True, 2), (False, 1)]
        desk.server.bad_gateway("POST", REVIEWS, after=after)
        assert_whole(desk.publish(review(), approve=True))
        assert [one.state for one in desk.pull.reviews].count("APPROVED") == 1

    @WHEN
    def test_a_check_run_is_made_once(self, actions: Desk, *, after: bool) -> None:
        actions.server.bad_gateway("POST", CHECKS, after=after)
        assert_whole(actions.publish(TWO))
        assert len(actions.repo.check_runs) == 1

    def test_reading_is_tried_again_and_then_given_up(self, desk: Desk) -> None:
        desk.server.bad_gateway("GET", PULL, times=2)
        desk.server.cut_connection("GET", FILES_PATH, times=2)
        assert_whole(desk.publish(TWO))
        desk.server.bad_gateway("GET", PULL, times=50)
        with pytest.raises(ForgeError, match="GitHub failed with 502") as raised:
            desk.publish(TWO)
        assert raised.value.exit_code == 3

    @pytest.mark.parametrize("paths", [(REVIEWS,), (COMMENTS, STATUSES)])
    def test_a_run_that_does_not_get_through_is_taken_up_by_the_next(self, desk: Desk, paths: tuple[str, ...]) -> None:
        for path in paths:
            desk.server.cut_connection("POST", path, times=50)
        done = desk.publish(TWO)
        assert done.exit_code == 3
        assert (done.posted, desk.repo.statuses).count(()) + (desk.repo.statuses == []) == 1
        desk.server.faults.clear()
        assert_whole(desk.publish(TWO))
        assert len(desk.repo.statuses) == 1
        assert [(thread.line, len(thread.comments)) for thread in desk.pull.threads] == [(4, 1), (9, 1)]

    def test_a_line_that_github_does_not_take_goes_to_the_summary_and_the_others_are_posted(self, desk: Desk) -> None:
        def shrink() -> None:
            desk.pull.diffs[FIRST] = (changed_file("app.py", patch(ROWS[:20])), *desk.pull.diffs[FIRST][1:])

        desk.server.before("POST", REVIEWS, shrink)
        done = desk.publish(review(*(finding(line) for line in (2, 4, 6, 9, 30))))
        assert_whole(done)
        assert [thread.line for thread in desk.pull.threads] == [2, 4, 6, 9]
        why = "GitHub rejected a comment on its lines"
        assert [(one.finding.line_start, one.reason) for one in done.refused] == [(30, why)]
        assert f"No comment: {why}." in desk.pull.issue_comments[0].body

    @pytest.mark.parametrize("reviewed", [TWO, review()], ids=["with comments", "with an approval alone"])
    def test_a_review_that_a_person_has_begun_by_hand_is_told(self, desk: Desk, reviewed: Review) -> None:
        person = desk.server.world.user("reviewer")
        desk.pull.add_review(person, "MEMBER", body="", state="PENDING", commit=FIRST)
        done = desk.publish(reviewed, approve=True)
        assert (done.exit_code, done.refused) == (3, ())
        assert "pending review" in done.problems[0].message
        assert "submit or discard it" in done.problems[0].hint
        assert desk.server.count("POST", REVIEWS) == 1
        assert len(desk.pull.issue_comments) == 1

    def test_a_pending_review_that_keeps_an_answer_from_being_given_is_told(self, desk: Desk) -> None:
        desk.publish(TWO)
        said = {"message": "Validation Failed", "errors": ["user_id can only have one pending review per pull request"]}
        desk.server.fail("POST", REPLIES, status=422, body=said, times=2)
        done = desk.publish(review())
        assert done.exit_code == 3
        assert "submit or discard it" in done.problems[0].hint

    def test_many_answers_are_given_one_after_the_other(self, desk: Desk) -> None:
        desk.publish(review(*(finding(line) for line in range(1, 13))))
        sleeper = Sleeper()
        assert_whole(desk.publish(review(), sleeper=sleeper))
        assert all(thread.is_resolved for thread in desk.pull.threads)
        assert set(sleeper) == {1.0}
        assert desk.server.max_concurrent == 1

    def test_a_github_that_cannot_be_reached_is_told(self, desk: Desk) -> None:
        sleeper = Sleeper()
        with pytest.raises(ForgeError, match="cannot reach GitHub") as raised:
            desk.publish(TWO, sleeper=sleeper, environment={"GITHUB_API_URL": "http://127.0.0.1:9"})
        assert (raised.value.exit_code, len(sleeper)) == (3, 3)

    def test_an_answer_without_an_end_is_given_up(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        for limit, value, words in (
            ("transport._MOST_BYTES", 50, "larger than"),
            ("transport._MOST_SECONDS", 0.05, r"cannot reach GitHub \(TimeoutError\)"),
            ("client._MOST_PAGES", 1, "there are too many"),
        ):
            if limit == "transport._MOST_SECONDS":
                desk.server.slow_answer("GET", PULL, 30, times=4)
            for number in range(101 if limit == "client._MOST_PAGES" else 0):
                desk.pull.comment_by("somebody", f"{number}")
            with monkeypatch.context() as patched:
                patched.setattr(f"codeloupe.forges.github.{limit}", value)
                with pytest.raises(ForgeError, match=words):
                    desk.publish(TWO)

    @pytest.mark.parametrize(
        ("method", "path", "answer", "words"),
        [
            ("GET", PULL, {"status": 301, "headers": {"location": "/"}}, "redirected the request"),
            ("GET", FILES_PATH, {"body": [], "headers": {"link": '<http://127.0.0.2:9/>; rel="next"'}}, "another host"),
            *(("GET", PULL, {"body": body}, "unexpected response") for body in WRONG_FORMS),
            *(
                ("POST", "/graphql", {"body": {"data": data}}, "unexpected response")
                for data in (None, {}, {"repository": None}, {"repository": {"pullRequest": {"reviewThreads": 5}}})
            ),
            (
                "POST",
                "/graphql",
                {"body": {"errors": [{"message": "it broke"}]}},
                "read the comments on octo/demo#1: it broke",
            ),
        ],
    )
    def test_an_answer_that_github_does_not_give_is_told(
        self, desk: Desk, method: str, path: str, answer: dict[str, Any], words: str
    ) -> None:
        desk.server.fail(method, path, **{"status": 200, **answer})
        with pytest.raises(ForgeError, match=words) as raised:
            desk.publish(TWO)
        assert words != "unexpected response" or "GITHUB_API_URL" in raised.value.hint


def test_without_the_extra_the_command_that_installs_it_is_named(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "codeloupe.forges.github.transport", raising=False)
    monkeypatch.setitem(sys.modules, "gidgethub", None)
    with pytest.raises(UsageError, match="publishing needs the package gidgethub") as raised:
        desk.publish(review())
    assert (raised.value.hint, raised.value.exit_code) == ("pip install '.[github]' in a checkout of codeloupe", 2)


def test_whoever_posts_loads_nothing_that_could_ask_a_model_and_the_verb_not_the_extra() -> None:
    loaded = loaded_by("import codeloupe.cli.publish, codeloupe.forges.github.transport")
    assert "codeloupe.forges.publishing" in loaded
    rooms = ("codeloupe.agents", "codeloupe.reviewers.choose", "codeloupe.calls", "codeloupe.runtime")
    assert not {name for name in loaded if name.startswith(rooms)}
    assert loaded.isdisjoint({"codeloupe.reviewers.prompt", "anthropic", "openai", "claude_agent_sdk"})
    assert loaded_by("import codeloupe.cli.publish").isdisjoint({"gidgethub", "httpx2", "jwt"})
