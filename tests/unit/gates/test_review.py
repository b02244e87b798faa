from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from codeloupe.commits.scoring import score as commit_score
from codeloupe.errors import PipelineError
from codeloupe.gates.review import ReviewGate, score
from codeloupe.model.agent import Usage
from codeloupe.model.change import Scope, ScopeKind
from codeloupe.model.finding import Finding, FindingStatus
from codeloupe.model.pipeline import CriticVerdict, Critique
from codeloupe.model.pipeline_definition import GateDefinition, GateKind
from codeloupe.model.ports import GateTask
from codeloupe.model.review import Coverage, FailedUnit, Policy, Review, ReviewerInfo, Verdict
from codeloupe.model.severity import Severity

GATE = GateDefinition(kind=GateKind.REVIEW)


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

    async def give(_gate: GateDefinition, _task: GateTask) -> Review:
        return review

    return asyncio.run(ReviewGate(give)(GATE, asked))


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


def test_what_does_not_count_blocks_nothing() -> None:
    refuted = finding(Severity.CRITICAL, status=FindingStatus.REFUTED)
    unplaced = finding(Severity.CRITICAL, anchored=False)
    assert judged(outcome(refuted, unplaced)).verdict is CriticVerdict.PASS


def test_the_policy_of_the_review_says_what_blocks() -> None:
    strict = Policy(fail_on=Severity.LOW)
    assert judged(outcome(finding(Severity.LOW), policy=strict, exit_code=1)).verdict is CriticVerdict.REWORK


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
