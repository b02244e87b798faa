"""The two reviewers for orchestrators, with a review that is scripted: what becomes of each kind of ending."""

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import codeloupe
from codeloupe.config.schema import Settings
from codeloupe.errors import CodeloupeError, ConnectionFailed, RevisionError
from codeloupe.findings.verdict import conclude
from codeloupe.integrations import (
    CodeReviewer,
    ReviewIssue,
    ReviewResult,
    WorkdirReviewer,
    WorkdirReviewResult,
    make_reviewer,
    make_workdir_reviewer,
)
from codeloupe.model import review as model
from codeloupe.model.change import Scope, ScopeKind
from codeloupe.model.events import ReviewerChosen, UnitFinished, Warned
from codeloupe.model.finding import Finding, FindingStatus, Severity
from codeloupe.model.scope import CommitScope, RangeScope
from codeloupe.testing import Json, ScriptedAgent
from tests.findings_material import changed_finding, make_finding
from tests.repository import GitRepository
from tests.rows import each

SETTINGS = Settings(reviewer_type="offline")
INFO = model.ReviewerInfo(type="agent_sdk", why="as requested")
FINDING = make_finding(
    line_end=4,
    category="correctness",
    title="Division by zero",
    body="The list may be empty.",
    evidence="total / len(items)",
    reporter="agent_sdk",
    suggestion="Check the length first.",
)


def outcome(
    *findings: Finding, failed: tuple[str, ...] = (), units: int = 1, policy: model.Policy | None = None, **more: Any
) -> model.Review:
    units_failed = tuple(model.FailedUnit(f"unit {number}", ("a.py",), reason) for number, reason in enumerate(failed))
    coverage = model.Coverage(1, 1, more.pop("skipped", ()), units, units_failed)
    draft = model.Review(
        review_id="0123456789abcdef",
        scope=Scope(ScopeKind.RANGE, "a" * 40, "b" * 40, "a..b"),
        reviewer=INFO,
        verdict=model.Verdict.INCOMPLETE,
        complete=False,
        exit_code=0,
        summary="",
        policy=policy or model.Policy(verify=False),
        findings=findings,
        coverage=coverage,
    )
    return replace(conclude(draft), **more)


class Script:
    """A review function that gives one ending after the other, and keeps how it was called."""

    def __init__(self, *endings: model.Review | Exception | Callable[[], Any], warnings: tuple[str, ...] = ()) -> None:
        self._endings = list(endings)
        self._warnings = warnings
        self.calls: list[dict[str, Any]] = []

    async def __call__(self, scope: object, *, emit: Callable[[object], None], **options: Any) -> model.Review:
        self.calls.append({"scope": scope, **options})
        emit(ReviewerChosen(INFO))
        for message in self._warnings:
            emit(Warned(message))
        ending = self._endings.pop(0)
        if isinstance(ending, Exception):
            raise ending
        result = await ending() if callable(ending) else ending
        assert isinstance(result, model.Review)
        return result


def ask(script: Script, diff_range: str = "main..HEAD", **arguments: Any) -> tuple[ReviewResult, list[str]]:
    warnings: list[str] = []
    reviewer = CodeReviewer(settings=SETTINGS, on_review_warning=warnings.append, review=script)
    return asyncio.run(reviewer(diff_range, **arguments)), warnings


@pytest.mark.requirement("V1")
def test_a_clean_review_passes() -> None:
    script = Script(outcome())
    result, warnings = ask(script)
    assert result == ReviewResult(passed=True, issues=(), parse_error=None, fatal_error=False, review_log_path=None)
    assert script.calls == [{"scope": RangeScope("main..HEAD"), "repo": Path(), "settings": SETTINGS, "context": ""}]
    assert warnings == []


@pytest.mark.requirement("V6")
@pytest.mark.requirement("V7")
@each(
    ("severity", "verdict", "priority", "passed"),
    [
        (Severity.CRITICAL, model.Verdict.FAIL, 0, False),
        (Severity.HIGH, model.Verdict.FAIL, 1, False),
        (Severity.MEDIUM, model.Verdict.NEEDS_WORK, 2, True),
        (Severity.LOW, model.Verdict.NEEDS_WORK, 3, True),
    ],
)
def test_findings_become_issues_and_those_that_do_not_block_pass(
    severity: Severity, verdict: model.Verdict, priority: int, passed: bool
) -> None:
    review = outcome(changed_finding(FINDING, severity=severity))
    said: dict[str, Any] = {"title": f"[P{priority}] Division by zero", "body": "The list may be empty."}
    issue = ReviewIssue(file="a.py", line_start=3, line_end=4, priority=priority, reviewer="agent_sdk", **said)
    result, _ = ask(Script(review))
    assert (review.verdict, result.issues, result.passed, result.parse_error) == (verdict, (issue,), passed, None)


def test_what_counts_is_said_in_each_issue_and_only_open_findings_are_issues() -> None:
    for stated in ("[P0] x", "[p3]x", " [ P2 ]  x"):
        assert ask(Script(outcome(changed_finding(FINDING, title=stated))))[0].issues[0].title == "[P1] x"
    nit = changed_finding(FINDING, severity=Severity.LOW)
    assert not ask(Script(outcome(nit, policy=model.Policy(fail_on=Severity.LOW))))[0].passed
    refuted = changed_finding(FINDING, status=FindingStatus.REFUTED)
    unplaced = changed_finding(FINDING, title="Invented", anchored=False)
    result, _ = ask(Script(outcome(unplaced, refuted, FINDING)))
    assert [issue.title for issue in result.issues] == ["[P1] Division by zero", "[P1] Invented"]
    assert "not found in the reviewed files" in result.issues[1].body


GAPS = (model.SkippedFile("big.py", model.SkipReason.TOO_LARGE), model.SkippedFile("x.bin", model.SkipReason.BINARY))
MANY = ("timeout", "timeout", *(f"missing field: {number}" for number in range(8)))
SAID = "timeout; missing field: 0; missing field: 1; missing field: 2; missing field: 3; and 4 more"


@pytest.mark.requirement("V8")
@each(
    ("ending", "parse_error", "passed"),
    [
        *(
            (outcome(failed=(reason,)), reason, False)
            for reason in ("missing field: verdict", "invalid verdict: MAYBE", "invalid json: line 1", "empty output")
        ),
        (outcome(failed=MANY), SAID, False),
        (outcome(skipped=GAPS), "big.py: too large", False),
        (outcome(failed=("timeout",), policy=model.Policy(pass_when_incomplete=True)), "timeout", True),
    ],
)
def test_what_was_not_reviewed_does_not_pass_unless_the_policy_lets_it_and_is_always_said(
    ending: model.Review, parse_error: str, passed: bool
) -> None:
    result, warnings = ask(Script(ending))
    assert (result.passed, result.parse_error, result.fatal_error) == (passed, parse_error, False)
    assert warnings == [parse_error]


async def forever() -> model.Review:
    await asyncio.Event().wait()
    raise AssertionError


def cancelled(work: Coroutine[Any, Any, object]) -> None:
    """Start some work, and cancel it when it has begun."""

    async def go() -> None:
        task = asyncio.ensure_future(work)
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())


@pytest.mark.requirement("V9")
def test_a_review_that_takes_too_long_is_ended_and_a_cancellation_is_raised() -> None:
    ended: list[str] = []

    async def slow() -> model.Review:
        try:
            return await forever()
        finally:
            ended.append("gone")

    result, warnings = ask(Script(slow), timeout=0.05)
    assert result == ReviewResult(
        passed=False, verdict=model.Verdict.INCOMPLETE, parse_error="timeout", fatal_error=False
    )
    assert (ended, warnings) == (["gone"], ["timeout"])
    cancelled(CodeReviewer(settings=SETTINGS, review=Script(slow))("a..b"))
    assert ended == ["gone", "gone"]


def test_the_report_of_an_unfinished_review_lists_what_was_found_so_far(tmp_path: Path) -> None:
    async def review(_scope: object, *, emit: Callable[[object], None], **_options: object) -> model.Review:
        emit(UnitFinished("agent", "1 of 2", FINDING.claims, 0.1))
        return await forever()

    reviewer = CodeReviewer(settings=SETTINGS, log_directory=tmp_path, review=review)
    log = asyncio.run(reviewer("a..b", timeout=0.05)).review_log_path
    assert log is not None
    document = json.loads(log.read_text())
    assert (document["verdict"], document["passed"], document["complete"]) == ("INCOMPLETE", False, False)
    assert [(found["file"], found["severity"], found["title"]) for found in document["findings"]] == [
        ("a.py", "high", "Division by zero")
    ]


@pytest.mark.requirement("V9")
@each(
    ("ending", "parse_error", "is_fatal"),
    [
        (RuntimeError("the SDK fell over"), "RuntimeError: the SDK fell over", False),
        # A timeout of something else is not taken for ours.
        (TimeoutError("the lock of the index"), "TimeoutError: the lock of the index", False),
        (ConnectionFailed("cut", agent="agent_sdk", hint="try again"), "cut (try again)", False),
        # The call was wrong.
        (RevisionError("the revision 'x' is unknown"), "the revision 'x' is unknown", True),
        (RuntimeError(f"refused {'swordfish-' * 3}"), "RuntimeError: refused [redacted]", False),
        (outcome(failed=("no reviewers",), errors=(model.ReviewError("fatal", "none"),)), "no reviewers", True),
    ],
)
def test_a_failure_is_a_message_and_the_log_has_its_trace(
    ending: Any, parse_error: str, is_fatal: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "swordfish-" * 3)
    caplog.clear()
    caplog.set_level(logging.DEBUG, logger="codeloupe")
    result, warnings = ask(Script(ending))
    assert (result.passed, result.parse_error, result.fatal_error) == (False, parse_error, is_fatal)
    assert warnings == [parse_error]
    assert "swordfish" not in caplog.text
    traced = [record.levelno for record in caplog.records if "Traceback" in caplog.handler.format(record)]
    level = logging.DEBUG if isinstance(ending, CodeloupeError) else logging.ERROR
    assert traced == ([level] if isinstance(ending, Exception) else [])


def test_commits_are_reviewed_one_by_one_and_their_results_are_one_without_commits_the_range_is_reviewed() -> None:
    other = changed_finding(FINDING, file="b.py")
    script = Script(outcome(FINDING), outcome(), outcome(FINDING, other, failed=("timeout",)))
    result, _ = ask(script, "", commit_shas=["1" * 40, "2" * 40, "1" * 40, "3" * 40])
    assert [call["scope"] for call in script.calls] == [CommitScope(digit * 40) for digit in "123"]
    assert [issue.file for issue in result.issues] == ["a.py", "b.py"]
    assert (result.passed, result.parse_error) == (False, "timeout")
    # What was found before a failure is kept.
    result, _ = ask(Script(outcome(FINDING), RuntimeError("lost")), "", commit_shas=["1", "2"])
    assert ([issue.file for issue in result.issues], result.passed) == (["a.py"], False)
    assert result.parse_error == "RuntimeError: lost"
    script = Script(outcome())
    ask(script, "a..b", commit_shas=[])
    assert script.calls[0]["scope"] == RangeScope("a..b")
    wrong: list[tuple[str, dict[str, Any]]] = [("", {}), (" ", {"commit_shas": []}), ("", {"commit_shas": "abc"})]
    for diff_range, arguments in (*wrong, ("a..b", {"timeout": 0}), ("a..b", {"timeout": float("nan")})):
        with pytest.raises(ValueError, match="commit_shas must|timeout must be positive"):
            ask(Script(), diff_range, **arguments)


@pytest.mark.requirement("V5")
def test_the_context_and_the_session_are_handed_on(tmp_path: Path) -> None:
    context = tmp_path / "context.md"
    script = Script(outcome(), outcome())
    result, _ = ask(script, context_file=context)
    assert (result.passed, result.fatal_error, script.calls) == (False, True, [])
    assert "does not exist" in (result.parse_error or "")
    context.write_bytes(b"Adds a cache \xff.")
    ask(script, context_file=context, claude_session_id="session-1")
    (call,) = script.calls
    assert (call["context"], call["session_id"]) == ("Adds a cache \N{REPLACEMENT CHARACTER}.", "session-1")
    context.write_text("x" * 1_100_000)
    result, warnings = ask(script, context_file=str(context))
    assert (result.passed, len(script.calls[1]["context"])) == (True, 1024 * 1024)
    assert "the rest is ignored" in warnings[0]


@pytest.mark.requirement("V12")
def test_warnings_reach_the_sink_each_once_and_one_that_fails_takes_nothing_from_the_review(
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, warnings = ask(Script(outcome(failed=("timeout",)), warnings=("slow", "slow", "timeout")))
    assert warnings == ["slow", "timeout"]

    def broken(message: str) -> None:
        raise RuntimeError(message)

    script = Script(outcome(FINDING, failed=("timeout",)), warnings=("slow",))
    result = asyncio.run(CodeReviewer(on_review_warning=broken, review=script)("a..b"))
    assert (len(result.issues), result.parse_error) == (1, "timeout")
    assert "cannot pass on a warning: slow" in caplog.text


@pytest.mark.requirement("C4")
@pytest.mark.requirement("V3")
@pytest.mark.requirement("V11")
def test_the_log_names_the_reviewer_which_does_not_override_a_disabled_setting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    reviewer = make_reviewer(Settings(reviewer_type="cerberus"), review=Script(outcome()))
    asyncio.run(reviewer("main..HEAD"))
    make_workdir_reviewer(SETTINGS)
    assert [record.message for record in caplog.records] == [
        "Initializing code reviewer: cerberus",
        "Starting review for main..HEAD with agent_sdk",
        "Initializing code reviewer: offline",
    ]
    caplog.clear()
    make_reviewer(Settings(agents=("agent_sdk", "codex")))
    assert caplog.messages == ["Initializing code reviewer: the first usable agent of agent_sdk, codex"]
    assert CodeReviewer().overrides_disabled_setting() is False
    names = [WorkdirReviewer(settings=settings).name for settings in (Settings(reviewer_type="codex"), None)]
    assert names == ["codex", "auto"]


def test_the_report_is_written_where_it_is_asked_for_and_one_that_cannot_be_takes_nothing(tmp_path: Path) -> None:
    reviewer = CodeReviewer(log_directory=tmp_path / "logs", review=Script(outcome(FINDING), outcome(), outcome()))
    one = asyncio.run(reviewer("a..b")).review_log_path
    assert one is not None
    assert json.loads(one.read_text())["findings"][0]["title"] == "Division by zero"
    several = asyncio.run(reviewer("", commit_shas=["1", "2"])).review_log_path
    assert several is not None
    assert [document["schema_version"] for document in json.loads(several.read_text())] == [1, 1]
    assert [file.name for file in (tmp_path / "logs").iterdir()] == ["review-0123456789abcdef.json"]
    (tmp_path / "file").write_text("")
    warnings: list[str] = []
    lost = CodeReviewer(log_directory=tmp_path / "file", on_review_warning=warnings.append, review=Script(outcome()))
    result = asyncio.run(lost("a..b"))
    assert (result.passed, result.review_log_path) == (True, None)
    assert "cannot write the report of the review" in warnings[0]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> GitRepository:
    """Branch `work` with one commit over `main`. Each test has a copy."""
    repository = GitRepository(tmp_path_factory.mktemp("work") / "repository")
    repository.commit_files({"a.py": "x = 1\n"})
    repository.commit_files({"a.py": "x = 2\n"}, branch="work")
    return repository


@pytest.fixture
def branch(work: GitRepository, tmp_path: Path) -> GitRepository:
    return work.copied_to(tmp_path / "branch")


def look(
    script: Script, repository: GitRepository, base: str = "main", **options: Any
) -> tuple[WorkdirReviewResult, list[str]]:
    warnings: list[str] = []
    options = {"settings": SETTINGS, "on_review_warning": warnings.append, **options}
    reviewer = WorkdirReviewer(review=script, **options)
    return asyncio.run(reviewer.review(repository.path, base)), warnings


@pytest.mark.program
@pytest.mark.requirement("C1")
def test_a_work_directory_is_reviewed_from_its_merge_base_to_its_head(branch: GitRepository) -> None:
    script = Script(outcome())
    result, _ = look(script, branch)
    base = branch.git("rev-parse", "main").decode().strip()
    assert script.calls[0]["scope"] == RangeScope(f"{base}...HEAD")
    assert script.calls[0]["repo"] == branch.path
    assert result == WorkdirReviewResult(passed=True, summary="No findings; 1 of 1 file reviewed")
    # A base that only origin has is found too.
    branch.git("update-ref", "refs/remotes/origin/main", "main")
    branch.git("branch", "-D", "main")
    assert look(Script(outcome()), branch)[0].passed


@pytest.mark.program
@pytest.mark.requirement("C2")
def test_findings_become_issues_of_three_severities(branch: GitRepository) -> None:
    for severity, word in zip(Severity, ("error", "error", "warning", "suggestion"), strict=True):
        result, _ = look(Script(outcome(changed_finding(FINDING, severity=severity))), branch)
        (issue,) = result.issues
        assert (issue.file, issue.line, issue.severity, result.passed) == ("a.py", 3, word, word != "error")
        assert issue.message == "Division by zero: The list may be empty."
        assert issue.suggestion == "Check the length first."


@pytest.mark.program
@pytest.mark.requirement("C7")
@each("policy", ["pass", "fail"])
@each(
    ("reason", "summary"),
    [
        ("empty output", "No structured review output"),
        ("invalid json: no JSON found", "No structured review output"),
        ("missing field: passed", "Failed to parse review output"),
        ("invalid json: unexpected end", "Failed to parse review output"),
        ("invalid verdict: MAYBE", "Failed to parse review output"),
    ],
)
def test_an_answer_that_cannot_be_read_passes_or_fails_as_the_policy_says(
    branch: GitRepository, policy: Any, reason: str, summary: str
) -> None:
    review = outcome(failed=(reason,), errors=(model.ReviewError("invalid_answer", reason, "I think it is fine."),))
    result, warnings = look(Script(review), branch, on_parse_error=policy)
    assert result == WorkdirReviewResult(passed=policy == "pass", summary=summary, raw_output="I think it is fine.")
    assert warnings == [reason]


@pytest.mark.program
def test_that_policy_is_the_one_of_the_settings_unless_given_and_for_unreadable_answers_alone(
    branch: GitRepository,
) -> None:
    for given, passed in ((None, True), ("fail", False)):
        own: dict[str, Any] = {"settings": Settings(on_parse_error="pass"), "on_parse_error": given}
        assert look(Script(outcome(failed=("empty output",))), branch, **own)[0].passed is passed
    for reasons in (("timeout",), ("empty output", "timeout"), ("invalid request: no such model",)):
        result, _ = look(Script(outcome(failed=reasons, units=len(reasons))), branch, on_parse_error="pass")
        assert not result.passed
        assert result.summary.endswith(f"could not review everything: {'; '.join(reasons)}")
    result, _ = look(Script(outcome(FINDING, failed=("empty output",), units=2)), branch, on_parse_error="pass")
    assert not result.passed
    assert result.summary.startswith("1 finding (1 high); ")
    assert result.summary.endswith("; No structured review output")


@pytest.mark.program
def test_a_work_directory_that_cannot_be_reviewed_is_not_passed(
    tmp_path_factory: pytest.TempPathFactory, branch: GitRepository, repository: GitRepository
) -> None:
    nothing, warnings = look(Script(), branch, "no-such-branch")
    assert not nothing.passed
    assert nothing.summary.startswith("The review failed: the revision 'no-such-branch' is unknown")
    assert len(warnings) == 1
    outside = WorkdirReviewer(settings=SETTINGS, review=Script()).review(tmp_path_factory.mktemp("outside"), "main")
    assert "not inside a git repository" in asyncio.run(outside).summary
    result, _ = look(Script(), repository)
    assert (result.passed, "no commits yet" in result.summary) == (False, True)
    with pytest.raises(ValueError, match="base_branch must not be empty"):
        look(Script(), repository, " ")


@pytest.mark.program
@pytest.mark.requirement("C8")
def test_a_work_directory_has_a_time_limit_and_can_be_cancelled(branch: GitRepository) -> None:
    result, _ = look(Script(forever), branch, timeout_seconds=0.3)
    assert (result.passed, result.summary) == (False, "The review failed: timeout")
    cancelled(WorkdirReviewer(settings=SETTINGS, review=Script(forever)).review(branch.path, "main"))


class TestWithoutAnAgent:
    """An orchestrator that asked for an agent's review and cannot have one is told so, and nothing passes."""

    @pytest.fixture
    def project(self, repository: GitRepository, monkeypatch: pytest.MonkeyPatch) -> GitRepository:
        repository.commit_files({"a.py": "x = 1\n"}, "One")
        repository.commit_files({"a.py": "x = 2\n"}, "Two")
        monkeypatch.setenv("PATH", "/usr/bin:/bin")
        return repository

    # Of these no test machine has a login: there is no program of that name, and no key.
    NO_LOGIN = Settings(agents=("codex", "gemini"), keep_history=False)

    @pytest.mark.defect("T11")
    def test_nothing_passes_and_why_is_told(self, project: GitRepository) -> None:
        told: list[str] = []
        reviewer = make_reviewer(self.NO_LOGIN, repo=project.path, on_review_warning=told.append)
        result = asyncio.run(reviewer("HEAD~1..HEAD"))
        assert (result.passed, result.issues) == (False, ())
        for words in (result.parse_error or "", " ".join(told)):
            assert "codex cannot be used" in words
            assert "gemini cannot be used" in words

        workdir = make_workdir_reviewer(self.NO_LOGIN, on_parse_error="pass")
        looked = asyncio.run(workdir.review(project.path, "HEAD~1"))
        assert not looked.passed
        assert "codex cannot be used" in looked.summary

    @pytest.mark.defect("T11")
    def test_a_review_that_went_offline_by_itself_says_so(self, project: GitRepository) -> None:
        gone = asyncio.run(codeloupe.review(CommitScope("HEAD"), repo=project.path, settings=self.NO_LOGIN))
        assert (gone.reviewer.type, [error.kind for error in gone.errors]) == ("offline", ["no_agent"])
        assert "codex and gemini are not installed" in gone.reviewer.why
        assert "only the analysers reviewed" in gone.errors[0].message
        offline = replace(self.NO_LOGIN, reviewer_type="offline")
        assert not asyncio.run(codeloupe.review(CommitScope("HEAD"), repo=project.path, settings=offline)).errors
        assert asyncio.run(make_reviewer(offline, repo=project.path)("HEAD~1..HEAD")).passed
        assert asyncio.run(make_reviewer(self.NO_LOGIN, repo=project.path)("HEAD..HEAD")).passed, "there is no change"

    def test_a_runtime_s_limits_hold_for_all_reviews_of_a_reviewer(self, project: GitRepository) -> None:
        agent = ScriptedAgent([Json({"findings": []})])

        async def run() -> list[ReviewResult]:
            settings = Settings(max_requests=1, keep_history=False)
            async with codeloupe.Runtime(settings, agents=[agent]) as runtime:
                reviewer = CodeReviewer(project.path, runtime=runtime)
                return [await reviewer("HEAD~1..HEAD"), await reviewer("", commit_shas=["HEAD~1"])]

        first, second = asyncio.run(run())
        assert (first.passed, second.passed, len(agent.requests)) == (True, False, 1)
        assert "1 of 1 requests used" in (second.parse_error or "")
