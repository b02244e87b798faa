"""Pipelines by the installed program, with the real claude program before the stand-in server."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from codeloupe.model.pipeline import StageState
from codeloupe.pipelines import open_run_store
from codeloupe.testing import StandInServer, Text
from tests.agent_factories import assert_nothing_runs_in
from tests.engine_pipelines import Ran, files_in, write_pipeline
from tests.engine_standin import Running, Stage, Writes, critique, until
from tests.program import codeloupe

S = StageState


def only_run() -> Ran:
    """The one run that there is."""
    (record,), problems = open_run_store().list()
    assert problems == {}
    return Ran(record, open_run_store()._root.parent)


def test_research_writing_and_a_critic_with_the_real_program(tmp_path: Path) -> None:
    file = write_pipeline(
        tmp_path / "p",
        {"name": "research", "writes": False},
        {"name": "write", "needs": ["research"], "gate": "critic"},
    )
    stage = Stage(
        {
            "research": [Text("Water is wet.")],
            "write": [Writes("a.md", "dry\n"), Writes("a.md", "wet\n")],
            "critic of write": [critique("REWORK", 40, "it is wrong"), critique("PASS", 95)],
        }
    )
    with StandInServer(reply=stage.reply) as server, Running(server, tmp_path, "run", str(file)) as running:
        code, document = running.ended()
    assert (code, document["state"]) == (0, "completed"), running.told()
    ran = only_run()
    assert ran.result() == {"a.md": "wet\n", "research-output.md": "Water is wet.\n"}
    assert stage.asked == ["research", "write", "critic of write", "write", "critic of write"]
    assert [attempt.score for attempt in ran.record.stage("write").attempts] == [40, 95]
    assert ran.record.usage.cost_usd > 0
    assert_nothing_runs_in(ran.directory)


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
        assert_nothing_runs_in(ran.directory)
        assert [one.state for one in ran.record.stages] == [S.COMPLETED, S.INTERRUPTED]
        assert ran.record.state is S.INTERRUPTED
        with Running(server, tmp_path, "resume", ran.record.run_id) as running:
            code, document = running.ended()
    assert (code, document["state"]) == (0, "completed"), running.told()
    assert only_run().result() == {"a.md": "a\n", "b.md": "b\n"}
    assert stage.counts() == {"first": 1, "second": 2}


def test_an_approval_is_given_by_another_process_while_the_run_waits(tmp_path: Path) -> None:
    gates = [{"command": [sys.executable, "-c", "open('a.md')"]}, "approval"]
    file = write_pipeline(tmp_path / "p", {"name": "write", "gates": gates})
    stage = Stage({"write": [Writes("a.md", "a\n")]})
    with StandInServer(reply=stage.reply) as server, Running(server, tmp_path, "run", str(file)) as running:

        def waits() -> bool:
            runs, _ = open_run_store().list()
            return any(one.state is S.AWAITING_APPROVAL for run in runs for one in run.stages)

        until(waits)
        run_id = only_run().record.run_id
        assert files_in(only_run().directory / "stages" / "write" / "work") == {"a.md": "a\n"}
        said = codeloupe("pipeline", "approve", run_id, "write", "--note", "fine", cwd=tmp_path)
        assert said.exit_code == 0, said.stderr
        code, document = running.ended()
    assert (code, document["state"]) == (0, "completed"), running.told()
    assert only_run().events("approval_given")[0].message == "a person approved it: fine"


def test_a_run_that_stops_for_a_person_says_so_with_its_exit_code(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "write", "gate": {"kind": "critic", "max_attempts": 1}})
    stage = Stage({"write": [Writes("a.md", "a\n")], "critic of write": [critique("REWORK", 10, "no")]})
    with StandInServer(reply=stage.reply) as server, Running(server, tmp_path, "run", str(file)) as running:
        code, document = running.ended()
    assert (code, document["state"]) == (3, "awaiting_approval"), running.told()
