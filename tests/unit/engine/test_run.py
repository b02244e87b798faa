from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from codeloupe.config.schema import Settings
from codeloupe.engine.run import ReviewPlan, review, run_review
from codeloupe.engine.select import SelectionRules, select_by_diff
from codeloupe.errors import ConfigError
from codeloupe.model.change import FileChange, FileStatus
from codeloupe.model.events import Event, ReviewerChosen, StageStarted, Warned
from codeloupe.model.finding import Finding, Severity
from codeloupe.model.ports import EventSink, ReviewerOutcome, ReviewTask
from codeloupe.model.review import FailedUnit, Policy, Review, ReviewerInfo, ReviewError, Verdict
from codeloupe.reports.wording import outcome_of
from codeloupe.testing import ScriptedAgent
from tests.repository import GitRepository
from tests.rounds_material import Finder, Rounds, code, seat
from tests.unit.engine.samples import change, changed, finding


class ScriptedReviewer:
    """Answers with what it was given, and counts how often it was asked."""

    def __init__(self, outcome: ReviewerOutcome) -> None:
        self.outcome = outcome
        self.calls = 0

    @property
    def info(self) -> ReviewerInfo:
        return ReviewerInfo("scripted", "for a test")

    async def review(self, _task: ReviewTask, _emit: EventSink) -> ReviewerOutcome:
        self.calls += 1
        return self.outcome


def run(
    outcome: ReviewerOutcome,
    *files: FileChange,
    policy: Policy | None = None,
    rules: SelectionRules | None = None,
    by: type[ScriptedReviewer] = ScriptedReviewer,
) -> tuple[Review, ScriptedReviewer, list[Event]]:
    whole = change(*files)
    selection = select_by_diff(whole, rules or SelectionRules())
    task = ReviewTask(whole, selection.files, Path(), trusted=True, timeout_seconds=1)
    reviewer = by(outcome)
    plan = ReviewPlan(task=task, selection=selection, reviewers=(reviewer,), policy=policy or Policy())
    events: list[Event] = []
    review = asyncio.run(run_review(plan, clock=lambda: 5.0, started=3.0, emit=events.append))
    return review, reviewer, events


def test_an_empty_change_passes_without_asking_the_reviewer() -> None:
    review, reviewer, _ = run(ReviewerOutcome())
    assert reviewer.calls == 0
    assert (review.verdict, review.complete, review.exit_code) == (Verdict.PASS, True, 0)
    assert review.summary == "No changes to review"


def test_findings_get_identity_and_decide_the_outcome() -> None:
    review, reviewer, events = run(ReviewerOutcome((finding(),), units_total=1), changed("a.py"))
    assert reviewer.calls == 1
    assert review.findings[0].fingerprint
    assert (review.verdict, review.exit_code, review.passed) == (Verdict.FAIL, 1, False)
    assert review.usage.duration_seconds == 2.0
    assert events[0] == StageStarted("analysing", "1 file")


def test_a_failed_unit_makes_a_review_without_findings_incomplete_and_not_passed() -> None:
    outcome = ReviewerOutcome(
        units_total=1,
        units_failed=(FailedUnit("ruff", ("a.py",), "crashed"),),
        errors=(ReviewError("analyser_failed", "ruff crashed"),),
    )
    review, _, _ = run(outcome, changed("a.py"))
    assert (review.complete, review.exit_code, review.passed) == (False, 3, False)
    assert "could not review everything" in review.summary


def test_a_file_over_the_limit_is_an_error_of_the_review() -> None:
    rules = SelectionRules(max_file_lines=3)
    review, reviewer, events = run(ReviewerOutcome(), changed("a.py", b"+x\n" * 9), rules=rules)
    assert reviewer.calls == 0
    assert events == [Warned(review.errors[0].message)]
    assert review.exit_code == 3
    assert review.errors[0].kind == "not_reviewed"


def test_min_severity_hides_and_counts_but_never_hides_what_blocks() -> None:
    outcome = ReviewerOutcome((finding(Severity.LOW), finding(Severity.HIGH, line=2)))
    review, _, _ = run(outcome, changed("a.py"), policy=Policy(min_severity=Severity.CRITICAL))
    assert [shown.severity for shown in review.findings] == [Severity.HIGH]
    assert review.hidden_findings == 1
    assert review.exit_code == 1


def test_a_file_without_changed_lines_is_not_told_as_reviewed() -> None:
    moved = replace(changed("b.py"), old_path="a.py", status=FileStatus.RENAMED, hunks=())
    mode = replace(
        changed("run.sh"), old_path="run.sh", status=FileStatus.MODIFIED, old_mode="100644", new_mode="100755", hunks=()
    )
    empty = replace(changed("new.py"), old_path=None, status=FileStatus.ADDED, hunks=())
    review, _, _ = run(ReviewerOutcome(), moved, mode, empty)
    assert review.coverage.files_reviewed == 0
    assert review.complete
    assert {skip.file: skip.in_words() for skip in review.coverage.skipped} == {
        "b.py": "nothing to read: renamed from a.py",
        "run.sh": "nothing to read: its mode is 100755 instead of 100644",
        "new.py": "nothing to read: added, an empty file",
    }
    assert review.summary == "No findings; 0 of 3 files reviewed"
    assert outcome_of(review).why == "no line of any file was changed, so there was nothing to read"


def test_the_same_warning_of_several_is_passed_on_once() -> None:
    class Repetitive(ScriptedReviewer):
        async def review(self, task: ReviewTask, emit: EventSink) -> ReviewerOutcome:
            for message in ("secrets were masked", "something else", "secrets were masked"):
                emit(Warned(message))
            return await super().review(task, emit)

    _, _, events = run(ReviewerOutcome(), changed("a.py"), by=Repetitive)
    assert [event.message for event in events if isinstance(event, Warned)] == ["secrets were masked", "something else"]


@pytest.fixture
def project(repository: GitRepository) -> GitRepository:
    repository.write("README.md", "work\n")
    repository.commit()
    repository.checkout("work", new=True)
    repository.write("a.py", code("a"))
    repository.commit()
    return repository


def test_an_unknown_expert_ends_the_review_before_anybody_is_asked(project: GitRepository) -> None:
    chair = seat(Finder())
    with pytest.raises(ConfigError, match="astrology"):
        asyncio.run(review(repo=project.path, settings=Settings(experts=("astrology",)), reviewers=(chair,)))
    [agent] = chair.agents
    assert isinstance(agent, ScriptedAgent)
    assert agent.requests == ()


def test_a_command_reviewer_without_a_command_ends_the_review_even_beside_an_agent(project: GitRepository) -> None:
    settings = Settings(reviewers=("api", "command"), api_model="anthropic:some")
    with pytest.raises(ConfigError, match="review_command"):
        asyncio.run(review(repo=project.path, settings=settings))


def test_the_first_events_tell_who_reviews_and_why(project: GitRepository) -> None:
    events: list[Event] = []
    settings = Settings(reviewer_type="offline", keep_history=False)
    asyncio.run(review(repo=project.path, settings=settings, emit=events.append))
    assert isinstance(events[0], ReviewerChosen)
    assert events[0].reviewer.why.endswith("as requested")


def test_what_the_baseline_holds_does_not_count_unless_the_change_brought_it_and_is_not_trusted(
    project: GitRepository,
) -> None:
    rounds = Rounds(project)
    [found] = rounds.review().findings
    project.write("codeloupe-baseline.yaml", _baseline(found))
    project.commit()
    known = rounds.review()
    assert known.exit_code == 0
    assert known.findings[0].suppression is not None
    strict = rounds.review(untrusted=True)
    assert strict.exit_code == 1
    assert strict.findings[0].suppression is None


def _baseline(finding: Finding) -> str:
    return (
        "version: 1\n"
        "entries:\n"
        f"  - fingerprint: {finding.fingerprint}\n"
        f"    file: {finding.file}\n"
        f"    title: {finding.title}\n"
        "    reason: known and harmless\n"
        "    owner: somebody\n"
    )
