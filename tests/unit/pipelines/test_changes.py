"""A run that goes on though its pipeline's files have changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from codeloupe.errors import UsageError
from codeloupe.model.pipeline import StageState as S
from codeloupe.testing import Text
from tests.engine_pipelines import Cast, Ran, critique, resume, run, write_pipeline
from tests.rows import each

pytestmark = pytest.mark.program

PERSON = {"kind": "approval", "timeout": "1s"}


def cast() -> Cast:
    return Cast({"write": [Text("a")]}, {"write": [critique("PASS", 80)]}, cost_usd=0.25)


def waiting(folder: Path, agents: Cast, *gates: Any, **keys: Any) -> Ran:
    """A run whose only stage waits for a person, behind these gates."""
    ran = run(write_pipeline(folder / "p", {"name": "write", "gates": [*gates, PERSON]}, **keys), agents, folder / "s")
    assert ran.record.state is S.AWAITING_APPROVAL
    return ran


def test_a_gate_that_was_put_before_those_that_have_passed_is_faced(tmp_path: Path) -> None:
    agents = cast()
    ran = waiting(tmp_path, agents, {"kind": "critic"})
    refusing = {"command": ["sh", "-c", "echo no; exit 1"], "max_attempts": 1}
    gates = [refusing, {"kind": "critic"}, PERSON]
    write_pipeline(tmp_path / "p", {"name": "write", "gates": gates, "on_failure": "fail"})
    again = resume(ran, agents, accept_changes=True).record
    assert again.state is S.FAILED
    assert [word.gate.value for word in again.stage("write").attempts[0].critiques] == ["command"]
    assert "judge it again" in again.stage("write").attempts[0].notes[-1]


def test_what_the_gates_cost_before_stays_counted_and_is_not_bought_again(tmp_path: Path) -> None:
    agents = cast()
    ran = waiting(tmp_path, agents, {"kind": "critic"})
    cost = ran.record.usage.cost_usd
    write_pipeline(tmp_path / "p", {"name": "write", "gates": [{"kind": "critic"}, PERSON]}, description="Changed.")
    again = resume(ran, agents, accept_changes=True).record
    assert again.state is S.AWAITING_APPROVAL
    assert [word.gate.value for word in again.stage("write").attempts[0].critiques] == ["critic"]
    assert agents.calls == ["write", "critic of write"]
    assert again.usage.cost_usd == pytest.approx(cost)


@each(
    ("keys", "words"),
    [
        ({"workspace": "worktree"}, "its workspace was a directory and is a worktree"),
        ({"inputs": {"topic": {}}}, "its input topic is new and has no default"),
    ],
)
def test_what_cannot_be_accepted_is_named_with_a_way_that_is_open(
    tmp_path: Path, keys: dict[str, Any], words: str
) -> None:
    agents = cast()
    ran = waiting(tmp_path, agents)
    write_pipeline(tmp_path / "p", {"name": "write", "gates": [PERSON]}, **keys)
    with pytest.raises(UsageError, match=words) as refused:
        resume(ran, agents, accept_changes=True)
    assert refused.value.hint == "put the files back as they were, or start a new run"
