"""Pipelines by the installed program, with the real claude program before the stand-in server."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from codeloupe.model.pipeline import StageState
from codeloupe.pipelines.run import open_run_store
from codeloupe.testing import StandInServer
from tests.agent_factories import assert_nothing_runs_in
from tests.engine_pipelines import Ran, write_pipeline
from tests.engine_standin import Running, Stage, Writes, critique, until

S = StageState


def only_run() -> Ran:
    """The one run that there is."""
    (record,), problems = open_run_store().list()
    assert problems == {}
    return Ran(record, open_run_store()._root.parent)


def test_a_gate_that_fails_the_run_is_exit_code_1(tmp_path: Path) -> None:
    file = write_pipeline(
        tmp_path / "p",
        {"name": "left"},
        {"name": "right", "gate": "critic"},
        {"name": "join", "needs": ["left", "right"]},
    )
    stage = Stage(
        {
            "left": [Writes("left.md", "left\n")],
            "right": [Writes("right.md", "right\n")],
            "critic of right": [critique("FAIL", 5, "it cannot be")],
        }
    )
    with StandInServer(reply=stage.reply) as server, Running(server, tmp_path, "run", str(file)) as running:
        code, document = running.ended()
    assert (code, document["state"]) == (1, "failed"), running.told()
    states = {one.name: one.state for one in only_run().record.stages}
    assert states == {"left": S.COMPLETED, "right": S.FAILED, "join": S.CANCELLED}
    assert only_run().result() == {"left.md": "left\n"}


@pytest.mark.defect("U7")
def test_an_interrupt_leaves_no_agent_and_a_run_that_goes_on(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "first"}, {"name": "second", "needs": ["first"]})
    stage = Stage({"first": [Writes("a.md", "a\n")], "second": [Writes("b.md", "b\n")]}, held={"second 1"})
    with StandInServer(reply=stage.reply) as server:
        with Running(server, tmp_path, "run", str(file)) as running:
            until(lambda: "second" in stage.asked and server.open_requests == 1)
            running.child.send_signal(signal.SIGINT)
            code, _ = running.ended()
        assert code == 130, running.told()
        ran = only_run()
        kept = "interrupted; 1 of 2 stages are finished and kept; "
        assert f"{kept}`codeloupe pipeline resume {ran.record.run_id}` continues\n" in running.told()
        assert_nothing_runs_in(ran.directory)
        assert [one.state for one in ran.record.stages] == [S.COMPLETED, S.INTERRUPTED]
        assert ran.record.state is S.INTERRUPTED
        with Running(server, tmp_path, "resume", ran.record.run_id) as running:
            code, document = running.ended()
    assert (code, document["state"]) == (0, "completed"), running.told()
    assert only_run().result() == {"a.md": "a\n", "b.md": "b\n"}
    assert stage.counts() == {"first": 1, "second": 2}
