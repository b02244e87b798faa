"""Publishing on a GitHub server of ours, which keeps state and checks each request against GitHub's descriptions."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe.engine.keeping import keep
from codeloupe.errors import ForgeRefused, HeadMoved, UsageError
from codeloupe.forges.publishing import PublishRequest, publish_github
from codeloupe.model.finding import Severity
from codeloupe.model.publication import Conclusion, Opinion, StatusKind, SummaryChange
from codeloupe.model.review import Policy
from tests.github_server import GitHubServer, github_server
from tests.github_server_graph import Graph
from tests.github_server_world import PullRequest, ReviewComment
from tests.publish_material import (
    FILES,
    FIRST,
    ROWS,
    SECOND,
    THIRD,
    Desk,
    event_file,
    finding,
    patch,
    publish,
    review,
    write_report,
)
from tests.rows import each
from tests.unit.cli.test_start import loaded_by

pytestmark = pytest.mark.program

WRITES = ("POST", "PATCH", "PUT", "DELETE")


def written(desk: Desk) -> int:
    return sum(one.method in WRITES and one.path != "/graphql" for one in desk.server.requests)


def push(pull: PullRequest, head: str, *changed: int) -> None:
    """New commits, in which some lines are others."""
    rows = [f"{row}  # mended" if number in changed else row for number, row in enumerate(ROWS, 1)]
    pull.push(head, {**FILES, "app.py": patch(rows)})


class TestPushes:
    @pytest.mark.requirement("C11")
    def test_three_pushes_end_with_one_summary_no_comment_twice_and_fixed_threads_resolved(self, desk: Desk) -> None:
        desk.publish(review(finding(4), finding(9, line_end=11), finding(20)))
        push(desk.pull, SECOND, 4)
        desk.publish(review(finding(9, line_end=11), finding(20), finding(30), head=SECOND))
        push(desk.pull, THIRD, 4, 20, 30)
        desk.publish(review(finding(9, line_end=11), head=THIRD))
        assert [comment.user.login for comment in desk.pull.issue_comments] == ["reviewer"]
        assert THIRD in desk.pull.issue_comments[0].body
        standing = {thread.original.line: thread.is_resolved for thread in desk.pull.threads}
        assert standing == {4: True, 11: False, 20: True, 30: True}
        assert [len(thread.comments) for thread in desk.pull.threads] == [2, 1, 2, 2]
        assert {one.state for one in desk.pull.reviews} == {"COMMENTED"}
        assert [(one.sha, one.state) for one in desk.repo.statuses] == [
            (FIRST, "failure"),
            (SECOND, "failure"),
            (THIRD, "failure"),
        ]

    def test_the_comments_of_one_run_are_one_review_on_the_head(self, desk: Desk) -> None:
        desk.publish(review(finding(4), finding(9, line_end=11)))
        (posted,) = desk.pull.reviews
        assert posted.commit == FIRST
        assert posted.state == "COMMENTED"
        places = [(one.thread.original.start_line, one.thread.original.line) for one in posted.comments]
        assert places == [(None, 4), (9, 11)]

    def test_the_same_again_changes_nothing(self, desk: Desk) -> None:
        desk.publish(review(finding(4)))
        before = written(desk)
        done = desk.publish(review(finding(4)))
        assert written(desk) == before
        assert done.summary is SummaryChange.UNCHANGED
        assert len(done.plan.known) == 1

    def test_what_others_wrote_stays_as_it_is(self, desk: Desk) -> None:
        desk.publish(review(finding(4)))
        copied = desk.pull.issue_comments[0].body
        desk.pull.comment_by("stranger", copied)
        desk.pull.comment_by("stranger", desk.pull.review_comments[0].body, path="app.py", line=9)
        theirs = [
            one for one in (*desk.pull.issue_comments, *desk.pull.review_comments) if one.user.login == "stranger"
        ]
        before = [(one.id, one.body, one.updated_at) for one in theirs]
        push(desk.pull, SECOND, 4)
        desk.publish(review(finding(9), head=SECOND))
        assert [(one.id, one.body, one.updated_at) for one in theirs] == before
        assert [thread.is_resolved for thread in desk.pull.threads] == [True, False, False]
        assert desk.pull.issue_comments[0].body != copied

    def test_one_that_comes_back_is_opened_again(self, desk: Desk) -> None:
        desk.publish(review(finding(4)))
        push(desk.pull, SECOND, 4)
        desk.publish(review(head=SECOND))
        assert desk.pull.threads[0].is_resolved
        push(desk.pull, THIRD)
        desk.publish(review(finding(4), head=THIRD))
        (thread,) = desk.pull.threads
        assert not thread.is_resolved
        assert "Found again" in thread.comments[-1].body
        assert len(thread.comments) == 3

    def test_a_second_summary_of_ours_goes(self, desk: Desk) -> None:
        desk.publish(review(finding(4)))
        desk.pull.comment_by("reviewer", desk.pull.issue_comments[0].body)
        desk.publish(review(finding(4)))
        (first,) = desk.pull.issue_comments
        assert "codeloupe: FAIL" in first.body
        before = written(desk)
        desk.publish(review(finding(4)))
        assert written(desk) == before

    def test_long_lists_are_read_to_their_end(self, desk: Desk) -> None:
        desk.publish(review(finding(4)))
        first = desk.pull.review_comments[0]
        for number in range(130):
            desk.pull.comment_by("somebody", f"{number}")
            desk.pull.comment_by("somebody", f"{number}", in_reply_to=first)
        desk.pull.comment_by("boss", "dismiss: enough of it", in_reply_to=first, association="OWNER")
        desk.repo.collaborator("boss", "admin")
        for number in range(60):
            desk.pull.comment_by("somebody", f"{number}", path="other.py", line=3)
        files = {f"f{number:03}.py": patch() for number in range(150)}
        desk.pull.push(SECOND, {**files, "app.py": patch()})
        whole = replace(review().coverage, files_total=151)
        done = desk.publish(review(finding(4), finding(7, file="f149.py"), head=SECOND, coverage=whole))
        assert done.problems == ()
        assert [one.reason for one in done.plan.dismissed] == ["enough of it"]
        assert [one.path for one in done.posted] == ["f149.py"]
        assert sum(one.user.login == "reviewer" for one in desk.pull.issue_comments) == 1


class TestDismissing:
    def first(self, pull: PullRequest) -> ReviewComment:
        return pull.review_comments[0]

    def test_a_maintainer_dismisses_by_a_reply_and_it_opens_the_gate(self, desk: Desk) -> None:
        desk.publish(review(finding(4)))
        desk.repo.collaborator("ann", "write")
        desk.pull.comment_by(
            "ann", "/codeloupe dismiss it is on purpose", in_reply_to=self.first(desk.pull), association="MEMBER"
        )
        done = desk.publish(review(finding(4)))
        assert done.plan.conclusion is Conclusion.SUCCESS
        assert desk.pull.threads[0].is_resolved
        assert len(desk.pull.threads[0].comments) == 2
        assert "by `ann`: it is on purpose" in desk.pull.issue_comments[0].body
        assert desk.repo.statuses[-1].state == "success"
        push(desk.pull, SECOND, 9)
        again = desk.publish(review(finding(4), head=SECOND))
        assert again.posted == ()
        assert again.plan.conclusion is Conclusion.SUCCESS

    def test_a_maintainer_dismisses_by_a_thumb_down(self, desk: Desk) -> None:
        desk.publish(review(finding(4)))
        desk.repo.collaborator("ann", "maintain")
        desk.pull.react_by("ann", self.first(desk.pull), "-1")
        desk.pull.react_by("stranger", self.first(desk.pull), "-1")
        assert [one.who for one in desk.publish(review(finding(4))).plan.dismissed] == ["ann"]

    @pytest.mark.parametrize("permission", ["read", "triage"])
    def test_who_may_not_write_dismisses_nothing_whatever_the_label_says(self, desk: Desk, permission: str) -> None:
        desk.publish(review(finding(4)))
        desk.repo.collaborators["bob"] = "read" if permission == "read" else "triage"
        desk.pull.comment_by("bob", "dismiss", in_reply_to=self.first(desk.pull), association="COLLABORATOR")
        desk.pull.react_by("bob", self.first(desk.pull), "-1")
        desk.pull.comment_by("author", "dismiss", in_reply_to=self.first(desk.pull), association="CONTRIBUTOR")
        assert desk.publish(review(finding(4))).plan.dismissed == ()

    def test_a_bot_is_not_taken_for_a_person_of_its_name(self, desk: Desk) -> None:
        desk.publish(review(finding(4)))
        desk.repo.collaborator("helper", "write")
        desk.pull.comment_by("helper[bot]", "dismiss", in_reply_to=self.first(desk.pull), association="COLLABORATOR")
        assert desk.publish(review(finding(4))).plan.dismissed == ()

    def test_the_person_whose_token_it_is_can_dismiss_too(self, desk: Desk) -> None:
        desk.publish(review(finding(4)))
        desk.pull.comment_by("reviewer", "dismiss", in_reply_to=self.first(desk.pull), association="COLLABORATOR")
        assert len(desk.publish(review(finding(4))).plan.dismissed) == 1

    def test_rights_that_cannot_be_asked_for_are_not_believed(self, desk: Desk) -> None:
        desk.publish(review(finding(4)))
        desk.pull.comment_by("ann", "dismiss", in_reply_to=self.first(desk.pull), association="OWNER")
        desk.server.fail(
            "GET", "/repos/octo/demo/collaborators/**", status=403, body={"message": "Must have push access"}
        )
        assert desk.publish(review(finding(4))).plan.dismissed == ()


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
        assert status.description is not None
        assert ("INCOMPLETE" in status.description) is bool(changes)

    @each(
        ("changes", "conclusion"),
        [({}, "success"), ({"findings": (finding(4),)}, "failure"), ({"complete": False, "exit_code": 3}, "neutral")],
    )
    def test_a_check_run_has_three_outcomes_and_is_changed_and_not_made_again(
        self, actions: Desk, changes: dict[str, Any], conclusion: str
    ) -> None:
        actions.publish(review(finding(4), finding(9)))
        done = actions.publish(replace(review(), **changes), resolve=False)
        assert done.status is StatusKind.CHECK
        (run,) = actions.repo.check_runs
        assert (run.name, run.status, run.conclusion, run.head_sha) == ("codeloupe", "completed", conclusion, FIRST)
        assert run.title
        assert run.summary

    def test_a_check_run_of_somebody_else_with_our_name_is_left(self, actions: Desk) -> None:
        actions.publish(review())
        actions.repo.check_runs[0].external_id = "another workflow"
        actions.publish(review(finding(4)))
        assert [run.conclusion for run in actions.repo.check_runs] == ["success", "failure"]

    def test_without_a_status_none_is_set(self, desk: Desk) -> None:
        desk.publish(review(), status=StatusKind.NONE)
        assert desk.repo.statuses == []
        assert desk.server.count("GET", "/repos/octo/demo/commits/**") == 0


class TestOpinions:
    def test_it_approves_when_asked_to_and_takes_it_back_when_that_does_not_hold(self, desk: Desk) -> None:
        desk.publish(review(), approve=True)
        desk.publish(review(), approve=True)
        assert [one.state for one in desk.pull.reviews] == ["APPROVED"]
        push(desk.pull, SECOND, 1)
        done = desk.publish(review(finding(4), head=SECOND), approve=True)
        assert [one.state for one in desk.pull.reviews] == ["DISMISSED", "COMMENTED"]
        assert len(done.withdrawn) == 1

    def test_it_requests_changes_when_asked_to_and_takes_that_back(self, desk: Desk) -> None:
        desk.publish(review(finding(4)), request_changes=True)
        assert [one.state for one in desk.pull.reviews] == ["CHANGES_REQUESTED"]
        push(desk.pull, SECOND, 4)
        desk.publish(review(head=SECOND), request_changes=True)
        assert "CHANGES_REQUESTED" not in {one.state for one in desk.pull.reviews}
        assert "APPROVED" not in {one.state for one in desk.pull.reviews}

    def test_an_approval_that_github_does_not_take_is_told_and_the_comments_are_posted(self, actions: Desk) -> None:
        harmless = finding(4, severity=Severity.LOW)
        done = actions.publish(review(harmless), approve=True)
        assert done.exit_code == 3
        assert "not permitted to approve" in done.problems[0].message
        assert [one.state for one in actions.pull.reviews] == ["COMMENTED"]
        assert len(actions.pull.review_comments) == 1
        assert done.opinion is Opinion.COMMENT
        assert done.summary is SummaryChange.CREATED


class TestRights:
    def test_who_may_not_resolve_still_answers_once_and_is_told_how(self, actions: Desk) -> None:
        actions.publish(review(finding(4), finding(9)))
        for _ in range(2):
            done = actions.publish(review())
            assert done.exit_code == 0
            assert [problem.message for problem in done.problems] == [
                "the token may not resolve a thread (Resource not accessible by integration)"
            ]
            assert "contents: write" in done.problems[0].hint
            assert "--no-resolve" in done.problems[0].hint
        assert [len(thread.comments) for thread in actions.pull.threads] == [2, 2]
        assert actions.publish(review(), resolve=False).problems == ()
        actions.server.permissions["contents"] = "write"
        assert actions.publish(review()).problems == ()
        assert all(thread.is_resolved for thread in actions.pull.threads)

    def test_a_github_app_logs_in_by_its_key(self, tmp_path: Path) -> None:
        with github_server() as server:
            repo = server.repository("octo/demo")
            pull = repo.pull_request(FILES, head=FIRST)
            key = tmp_path / "app.pem"
            key.write_text(server.app_private_key)
            login: dict[str, Any] = {
                "app_id": str(server.app_id),
                "app_key_file": key,
                "environment": {"GITHUB_TOKEN": ""},
            }
            for _ in range(2):
                assert publish(server, review(finding(4)), tmp_path, **login).problems == ()
            assert [one.user.login for one in pull.issue_comments] == ["loupe-app[bot]"]
            assert len(pull.review_comments) == 1
            assert [run.conclusion for run in repo.check_runs] == ["failure"]

    @pytest.mark.parametrize("text", ["", "no key at all", "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END"])
    def test_a_key_that_is_none_is_told_and_not_shown(self, desk: Desk, text: str) -> None:
        key = desk.directory / "app.pem"
        key.write_text(text)
        with pytest.raises(UsageError) as raised:
            desk.publish(review(), app_id="1", app_key_file=key)
        assert text[:20] not in raised.value.message or not text

    def test_an_app_that_is_not_installed_is_told(self, desk: Desk) -> None:
        key = desk.directory / "app.pem"
        key.write_text(desk.server.app_private_key)
        desk.server.fail("GET", "/repos/octo/demo/installation", status=404, body={"message": "Not Found"})
        with pytest.raises(ForgeRefused, match="log in as the GitHub App on octo/demo"):
            desk.publish(review(), app_id=str(desk.server.app_id), app_key_file=key)

    @pytest.mark.parametrize("token", ["", "   ", "two words", "gh\x00p"])
    def test_without_a_token_nothing_is_asked(self, desk: Desk, token: str) -> None:
        with pytest.raises(ForgeRefused, match="token"):
            desk.publish(review(), environment={"GITHUB_TOKEN": token})
        assert not desk.server.requests

    def test_with_a_secret_key_a_mark_that_others_can_make_hides_nothing(self, desk: Desk) -> None:
        desk.publish(review(finding(4)))
        secret = {"CODELOUPE_PUBLISH_KEY": "a long and random secret"}
        done = desk.publish(review(finding(4)), environment=secret)
        assert len(done.posted) == 1
        assert "signed with another key" in desk.pull.issue_comments[1].body
        assert desk.publish(review(finding(4)), environment=secret).posted == ()

    def test_our_account_is_known_by_its_name_too(self, actions: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Graph, "_is_own", lambda _graph, _user: False)
        for _ in range(2):
            actions.publish(review(finding(4)))
        assert len(actions.pull.review_comments) == len(actions.pull.issue_comments) == 1


class TestWhichPullRequest:
    def request(self, tmp_path: Path, **changes: Any) -> PublishRequest:
        report = write_report(tmp_path / "review.json", review(finding(4)))
        return replace(PublishRequest(repo=tmp_path, review=str(report)), **changes)

    def run(self, server: GitHubServer, request: PublishRequest, **environment: str) -> str:
        variables = {"GH_TOKEN": server.token, "GITHUB_API_URL": server.url, **environment}
        return str(asyncio.run(publish_github(request, environment=variables)).plan.pull_request.name)

    def test_in_github_actions_the_event_says_it(self, desk: Desk) -> None:
        event = event_file(desk.directory / "event", pull_request={"number": 1}, repository={"full_name": "octo/demo"})
        assert self.run(desk.server, self.request(desk.directory), GITHUB_EVENT_PATH=str(event)) == "octo/demo#1"

    def test_a_number_and_the_repository_of_actions_are_enough(self, desk: Desk) -> None:
        request = self.request(desk.directory, pull_request="1")
        assert self.run(desk.server, request, GITHUB_REPOSITORY="octo/demo") == "octo/demo#1"

    def test_a_repository_can_be_named(self, desk: Desk) -> None:
        request = self.request(desk.directory, pull_request="1", repository="octo/demo")
        assert self.run(desk.server, request, GITHUB_REPOSITORY="octo/other") == "octo/demo#1"
        both = self.request(desk.directory, pull_request="octo/other#1", repository="octo/demo")
        with pytest.raises(UsageError, match="two repositories"):
            self.run(desk.server, both)
        in_other_letters = self.request(desk.directory, pull_request="Octo/Demo#1", repository="octo/demo")
        assert self.run(desk.server, in_other_letters) == "octo/demo#1"

    def workflow_run(self, head: str) -> dict[str, Any]:
        return {
            "repository": {"full_name": "octo/demo"},
            "workflow_run": {
                "event": "pull_request",
                "head_branch": "change-1",
                "head_sha": head,
                "head_repository": {"owner": {"login": "author"}},
                "pull_requests": [],
            },
        }

    def test_a_workflow_that_follows_one_of_a_fork_finds_it_by_its_branch(self, desk: Desk) -> None:
        desk.repo.pull_request(FILES, head=FIRST, number=7, head_repository="author/demo")
        run = self.workflow_run(FIRST)
        run["workflow_run"]["head_branch"] = "change-7"
        event = event_file(desk.directory / "event", **run)
        assert self.run(desk.server, self.request(desk.directory), GITHUB_EVENT_PATH=str(event)) == "octo/demo#7"

    def test_a_report_of_another_commit_than_the_finished_workflow_is_refused(self, desk: Desk) -> None:
        event = event_file(desk.directory / "event", **self.workflow_run(SECOND))
        with pytest.raises(UsageError, match="a commit other than 222222222222"):
            self.run(desk.server, self.request(desk.directory, pull_request="1"), GITHUB_EVENT_PATH=str(event))
        assert not desk.server.requests

    def test_a_branch_that_moved_on_is_told(self, desk: Desk) -> None:
        event = event_file(desk.directory / "event", **self.workflow_run(FIRST))
        push(desk.pull, SECOND, 1)
        with pytest.raises(HeadMoved, match="no open pull request of author:change-1 is at 111111111111"):
            self.run(desk.server, self.request(desk.directory), GITHUB_EVENT_PATH=str(event))

    def test_without_any_word_it_is_asked_for(self, desk: Desk) -> None:
        with pytest.raises(UsageError, match="which pull request"):
            self.run(desk.server, self.request(desk.directory))
        with pytest.raises(UsageError, match="which repository"):
            self.run(desk.server, self.request(desk.directory, pull_request="1"))
        with pytest.raises(UsageError, match="event file"):
            self.run(desk.server, self.request(desk.directory), GITHUB_EVENT_PATH=str(desk.directory / "nothing"))


class TestWhichReview:
    def run(self, server: GitHubServer, directory: Path, word: str) -> str:
        request = PublishRequest(repo=directory, pull_request="octo/demo#1", review=word)
        variables = {"GITHUB_TOKEN": server.token, "GITHUB_API_URL": server.url}
        return asyncio.run(publish_github(request, environment=variables)).plan.review.review_id

    def save(self, review_id: str, directory: Path) -> None:
        asyncio.run(keep(review(finding(4), review_id=review_id), repo=directory))

    def test_the_last_saved_one_of_the_repository_or_one_by_its_id(self, desk: Desk) -> None:
        self.save("aaaa1111", desk.directory)
        self.save("bbbb2222", desk.directory)
        assert self.run(desk.server, desk.directory, "last") == "bbbb2222"
        assert self.run(desk.server, desk.directory, "aaaa") == "aaaa1111"

    def test_one_in_a_file_whatever_its_name(self, desk: Desk) -> None:
        report = write_report(desk.directory / "report", review(finding(4), review_id="from-a-file"))
        assert self.run(desk.server, desk.directory, str(report)) == "from-a-file"

    @pytest.mark.parametrize("word", ["nothing.json", "dead", "no-such-thing"])
    def test_what_is_not_there_is_a_mistake_in_words(self, desk: Desk, word: str) -> None:
        with pytest.raises(UsageError):
            self.run(desk.server, desk.directory, word)
        assert not desk.server.requests


def test_a_dry_run_writes_nothing(desk: Desk) -> None:
    done = desk.publish(review(finding(4)), dry_run=True)
    assert len(done.plan.comments) == 1
    assert done.posted == ()
    assert written(desk) == 0
    assert desk.pull.issue_comments == []


def test_without_the_extra_the_command_that_installs_it_is_named(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "codeloupe.forges.github.transport", raising=False)
    monkeypatch.setitem(sys.modules, "gidgethub", None)
    with pytest.raises(UsageError, match="the package gidgethub is needed") as raised:
        desk.publish(review())
    assert raised.value.hint == "pip install 'codeloupe[github]'"
    assert raised.value.exit_code == 2


def test_whoever_posts_loads_nothing_that_could_ask_a_model() -> None:
    loaded = loaded_by("import codeloupe.cli.publish, codeloupe.forges.github.transport")
    assert "codeloupe.forges.publishing" in loaded
    rooms = {
        name
        for name in loaded
        if name.startswith(("codeloupe.agents", "codeloupe.engine.choose", "codeloupe.engine.calls"))
    }
    assert not rooms
    assert loaded.isdisjoint(
        {"codeloupe.runtime", "codeloupe.engine.prompt", "anthropic", "openai", "claude_agent_sdk"}
    )


def test_to_load_the_verb_does_not_load_the_extra() -> None:
    loaded = loaded_by("import codeloupe.cli.publish")
    assert loaded.isdisjoint({"gidgethub", "httpx2", "jwt"})
