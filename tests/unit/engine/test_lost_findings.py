"""A finding that cannot be read may be the gravest: beside lesser ones it is asked for again, and never passed over."""

from __future__ import annotations

import asyncio
from pathlib import Path

from codeloupe.engine.prompt import REPAIR_SCHEMA
from codeloupe.model.ports import ReviewerOutcome
from codeloupe.testing import Json, ScriptedAgent
from tests.review_factories import answer, claim, make_reviewer, make_task, named

SMALL = claim("a.py", 9, severity="low", title="small")
GRAVE = claim("a.py", 3, title="grave")
UNREAD = {**GRAVE, "severity": "schwerwiegend"}


def review(agent: ScriptedAgent, root: Path) -> ReviewerOutcome:
    return asyncio.run(make_reviewer(agent).review(make_task(root, named(["a.py"])), lambda _event: None))


def test_an_answer_with_a_finding_that_cannot_be_read_is_asked_for_again(tmp_path: Path) -> None:
    said_again = Json({"readable": True, "findings": [SMALL, GRAVE]})
    agent = ScriptedAgent([answer(SMALL, UNREAD), said_again])
    outcome = review(agent, tmp_path)
    assert [request.output_schema is REPAIR_SCHEMA for request in agent.requests] == [False, True]
    assert {found.title for found in outcome.findings} == {"small", "grave"}
    assert (outcome.units_failed, outcome.errors) == ((), ())


def test_one_that_still_cannot_be_read_leaves_the_unit_unreviewed_and_the_others_stay(tmp_path: Path) -> None:
    outcome = review(ScriptedAgent([answer(SMALL, UNREAD)]), tmp_path)
    assert [found.title for found in outcome.findings] == ["small"]
    assert outcome.unreviewed == {"a.py"}
    [failed] = outcome.units_failed
    assert "schwerwiegend" in failed.reason


def test_beside_a_grave_finding_it_is_a_gap_too_since_that_one_may_be_refuted(tmp_path: Path) -> None:
    agent = ScriptedAgent([answer(GRAVE, {**SMALL, "severity": "schwerwiegend"})])
    outcome = review(agent, tmp_path)
    assert len(agent.requests) == 2
    assert [found.title for found in outcome.findings] == ["grave"]
    assert outcome.unreviewed == {"a.py"}
    assert "dropped_finding" in {error.kind for error in outcome.errors}
