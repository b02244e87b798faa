from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from codeloupe.commits.scoring import score as commit_score
from codeloupe.errors import PipelineError
from codeloupe.model.agent import Usage
from codeloupe.model.change import Scope, ScopeKind
from codeloupe.model.finding import Finding, Severity
from codeloupe.model.pipeline import Approval, CriticVerdict, Critique, Decision
from codeloupe.model.review import Coverage, FailedUnit, Policy, Review, ReviewerInfo, Verdict
from codeloupe.pipelines.gates import GateTask, answer_of_a_person, review_gate, score
from tests.endings import ends_soon


def finding(severity: Severity, **more: Any) -> Finding:
    return Finding(
        **{
            "file": "a.py",
            "line_start": 3,
            "line_end": 3,
            "severity": severity,
            "category": "c",
            "title": f"a {severity.label} defect",
            "body": "it breaks",
            "evidence": "x",
            "reviewer": "r",
            **more,
        }
    )


def outcome(*findings: Finding, **more: Any) -> Review:
    fields: dict[str, Any] = {
        "review_id": "1",
        "scope": Scope(ScopeKind.RANGE, "a", "b", "a..b"),
        "reviewer": ReviewerInfo("offline", "as requested"),
        "verdict": Verdict.PASS,
        "complete": True,
        "exit_code": 0,
        "summary": "No findings",
        "policy": Policy(),
        "findings": findings,
        "usage": Usage(requests=3, cost_usd=0.5),
    }
    return Review(**{**fields, **more})


def judged(review: Review, *, changed: tuple[str, ...] = ("a.py",)) -> Critique:
    asked = GateTask(
        stage="s",
        attempt=1,
        workspace=Path("/w"),
        requirements="",
        artifacts=(),
        files_changed=changed,
        diff="",
        output="",
    )

    async def give() -> Review:
        return review

    return asyncio.run(review_gate(asked, give))


def test_a_review_without_blocking_findings_passes_with_its_score_and_cost() -> None:
    critique = judged(outcome(finding(Severity.LOW), finding(Severity.MEDIUM)))
    assert (critique.verdict, critique.score) == (CriticVerdict.PASS, 80)
    assert critique.usage == Usage(requests=3, cost_usd=0.5)
    assert critique.blockers == ()


def test_blocking_findings_are_rework_with_their_places_and_fixes() -> None:
    high = finding(Severity.HIGH, suggestion="close it")
    critique = judged(outcome(high, finding(Severity.LOW), exit_code=1))
    assert (critique.verdict, critique.score) == (CriticVerdict.REWORK, 65)
    assert critique.blockers == ("[high] a.py:3: a high defect\nit breaks",)
    assert critique.fixes == ("a.py:3: close it",)


def test_an_incomplete_review_is_never_a_pass() -> None:
    coverage = Coverage(units_failed=(FailedUnit("u", ("a.py",), "timeout"),))
    with pytest.raises(PipelineError, match="could not look at everything, which is no PASS: u: timeout"):
        judged(outcome(complete=False, exit_code=3, coverage=coverage))
    # Whatever the settings make of it.
    with pytest.raises(PipelineError):
        judged(outcome(complete=False, exit_code=0))


def test_an_incomplete_review_that_found_something_is_rework() -> None:
    critique = judged(outcome(finding(Severity.CRITICAL), complete=False, exit_code=1))
    assert critique.verdict is CriticVerdict.REWORK


def test_a_bad_exit_code_without_a_finding_is_no_pass() -> None:
    with pytest.raises(PipelineError, match="names no reason"):
        judged(outcome(exit_code=1))


def test_a_stage_that_changed_nothing_does_not_pass_for_a_clean_one() -> None:
    critique = judged(outcome(), changed=())
    assert (critique.verdict, critique.score) == (CriticVerdict.REWORK, None)
    assert critique.blockers == ("the stage changed no file",)


def test_the_score_is_that_of_a_commit() -> None:
    for severities in ([], [Severity.LOW], [Severity.MEDIUM, Severity.HIGH], [Severity.CRITICAL] * 3):
        found = [finding(severity) for severity in severities]
        assert score(found) == round(100 * commit_score(found))


def test_many_findings_are_told_in_part_and_say_so() -> None:
    critique = judged(outcome(*[finding(Severity.HIGH, line_start=n) for n in range(70)], exit_code=1))
    assert len(critique.blockers) == 51
    assert critique.blockers[-1] == "and 20 more"


YES = Approval(stage="s", decision=Decision.APPROVE)
NO = Approval(stage="s", decision=Decision.REJECT)


def test_a_word_that_was_left_is_taken_at_once_and_nobody_is_asked() -> None:
    async def ask() -> Approval | None:
        raise AssertionError("nobody is to be asked")

    assert asyncio.run(answer_of_a_person(lambda: YES, ask, timeout_seconds=0)) == YES


def test_whoever_answers_first_counts() -> None:
    async def ask() -> Approval | None:
        return YES

    assert asyncio.run(answer_of_a_person(lambda: None, ask, timeout_seconds=0)) == YES


def test_no_clock_runs_out_on_a_person_at_the_terminal() -> None:
    async def ask() -> Approval | None:
        await asyncio.sleep(0.2)
        return NO

    assert asyncio.run(answer_of_a_person(lambda: None, ask, timeout_seconds=0, poll_seconds=0.01)) == NO


def test_a_person_who_decides_later_is_not_waited_for() -> None:
    async def ask() -> Approval | None:
        return None

    with ends_soon():
        assert asyncio.run(answer_of_a_person(lambda: None, ask, timeout_seconds=600, poll_seconds=0.01)) is None


def test_a_word_from_elsewhere_counts_though_the_person_at_the_terminal_decides_later() -> None:
    said: list[Approval] = []

    async def ask() -> Approval | None:
        said.append(YES)
        return None

    assert asyncio.run(answer_of_a_person(lambda: said[0] if said else None, ask, timeout_seconds=600)) == YES


def test_the_question_is_taken_back_when_the_word_came_from_elsewhere() -> None:
    looks = iter([None, None, YES])
    ended: list[str] = []

    async def ask() -> Approval | None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("taken back")
        return None

    assert asyncio.run(answer_of_a_person(lambda: next(looks), ask, timeout_seconds=0, poll_seconds=0.01)) == YES
    assert ended == ["taken back"]
