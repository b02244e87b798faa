from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from codeloupe.errors import NotLoggedIn
from codeloupe.model.agent import AgentRequest, AgentResult
from codeloupe.model.pipeline import PipelineEvent, RunRecord, StageState
from codeloupe.model.ports import AgentEventSink
from codeloupe.testing import Text
from codeloupe.testing.agent import AgentStep
from tests.engine_pipelines import Cast, HeldAgent, critique, failing, files_in, run, write_pipeline, writing

pytestmark = pytest.mark.program

S = StageState


def test_a_stage_sees_the_work_of_all_that_it_builds_on(tmp_path: Path) -> None:
    file = write_pipeline(
        tmp_path / "p",
        {"name": "third", "needs": ["second"]},
        {"name": "second", "needs": ["first"]},
        {"name": "first"},
    )
    seen: dict[str, list[str]] = {}

    def looking(name: str) -> AgentStep:
        def step(request: AgentRequest) -> AgentStep:
            seen[name] = sorted(files_in(request.working_dir))
            return writing({f"{name}.md": name})(request)

        return step

    cast = Cast({name: [looking(name)] for name in ("first", "second", "third")})
    ran = run(file, cast, tmp_path / "state")
    assert cast.calls == ["first", "second", "third"]
    assert seen == {"first": [], "second": ["first.md"], "third": ["first.md", "second.md"]}
    assert ran.record.state is S.COMPLETED
    assert ran.result() == {"first.md": "first", "second.md": "second", "third.md": "third"}
    prompt = cast.agent.requests[2].prompt
    work = ran.directory / "stages" / "third" / "work"
    assert str(work / "first.md") in prompt
    assert str(work / "second.md") in prompt


def test_of_the_scores_50_70_and_60_the_second_attempt_goes_on(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "write", "gate": "critic"}, {"name": "use", "needs": ["write"]})
    words = [critique("REWORK", score, f"blocker {score}") for score in (50, 70, 60)]
    cast = Cast(
        {"write": [writing({"a.md": f"attempt {number}"}) for number in (1, 2, 3)], "use": [Text("used")]},
        {"write": words},
    )
    ran = run(file, cast, tmp_path / "state")
    stage = ran.record.stage("write")
    assert (ran.record.state, stage.state, stage.chosen) == (S.COMPLETED, S.COMPLETED, 2)
    assert [attempt.score for attempt in stage.attempts] == [50, 70, 60]
    assert "attempt 2 was taken without a PASS" in stage.reason
    assert ran.result()["a.md"] == "attempt 2"
    assert files_in(ran.directory / "stages" / "write" / "work") == {"a.md": "attempt 2"}
    assert "+attempt 2" in (ran.directory / "result.patch").read_text()
    assert (ran.directory / "stages" / "use" / "work" / "a.md").read_text() == "attempt 2"


def test_another_attempt_mends_the_work_of_the_last_and_knows_what_was_wrong(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "write", "gate": "critic"})
    found: list[dict[str, str]] = []

    def second(request: AgentRequest) -> AgentStep:
        found.append(files_in(request.working_dir))
        return writing({"b.md": "more"})(request)

    cast = Cast(
        {"write": [writing({"a.md": "one"}), second]},
        {"write": [critique("REWORK", 50, "b.md is missing"), critique("PASS", 90)]},
    )
    ran = run(file, cast, tmp_path / "state")
    assert found == [{"a.md": "one"}]
    assert "b.md is missing" in cast.agent.requests[2].prompt
    assert ran.record.stage("write").attempts[1].artifacts == ("a.md", "b.md")
    assert ran.result() == {"a.md": "one", "b.md": "more"}
    assert ran.states("write") == ["running", "gating", "reworking", "running", "gating", "completed"]
    # The critic of the second attempt is told what was said of the first.
    assert "b.md is missing" in cast.agent.requests[3].prompt


class Meeting:
    """An agent whose calls go on only when all of them are there."""

    def __init__(self, cast: Cast, parties: int) -> None:
        self._agent = cast.agent
        self._parties = parties
        self._barrier: asyncio.Barrier | None = None
        self.name, self.limits, self.check = "scripted", cast.limits, cast.agent.check

    async def run(self, request: AgentRequest, emit: AgentEventSink) -> AgentResult:
        self._barrier = self._barrier or asyncio.Barrier(self._parties)
        await self._barrier.wait()
        return await self._agent.run(request, emit)


def test_independent_stages_work_at_the_same_time(tmp_path: Path) -> None:
    names = ("one", "two", "three")
    file = write_pipeline(tmp_path / "p", *({"name": name} for name in names), {"name": "join", "needs": list(names)})
    cast = Cast({name: [writing({f"{name}.md": name})] for name in (*names, "join")})
    join = write_pipeline(tmp_path / "q", *({"name": name} for name in names))
    ran = run(join, cast, tmp_path / "state", agents={"scripted": Meeting(cast, 3)})
    assert ran.record.state is S.COMPLETED
    ran = run(file, cast, tmp_path / "state")
    assert ran.result() == {f"{name}.md": name for name in (*names, "join")}


def test_no_more_stages_work_at_a_time_than_the_pipeline_allows(tmp_path: Path) -> None:
    names = ("one", "two", "three")
    file = write_pipeline(tmp_path / "p", *({"name": name} for name in names), max_parallel=1)
    cast = Cast({name: [writing({f"{name}.md": name})] for name in names})
    ran = run(file, cast, tmp_path / "state")
    assert (ran.record.state, cast.agent.max_seen) == (S.COMPLETED, 1)


def test_two_stages_that_changed_one_file_differently_are_named_where_they_meet(tmp_path: Path) -> None:
    file = write_pipeline(
        tmp_path / "p", {"name": "one"}, {"name": "two"}, {"name": "join", "needs": ["one", "two"]}, {"name": "other"}
    )
    cast = Cast(
        {
            "one": [writing({"a.md": "one", "b.md": "b"})],
            "two": [writing({"a.md": "two"})],
            "join": [Text("joined")],
            "other": [Text("other")],
        }
    )
    ran = run(file, cast, tmp_path / "state")
    join = ran.record.stage("join")
    assert (ran.record.state, join.state) == (S.AWAITING_APPROVAL, S.AWAITING_APPROVAL)
    assert "a.md" in join.reason
    assert "b.md" not in join.reason
    assert "join" not in cast.calls
    assert ran.record.stage("other").state is S.COMPLETED


def test_a_conflict_without_a_stage_that_joins_leaves_no_result_and_says_so(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "one"}, {"name": "two"})
    cast = Cast({"one": [writing({"a.md": "one"})], "two": [writing({"a.md": "two"})]})
    ran = run(file, cast, tmp_path / "state")
    assert ran.record.state is S.FAILED
    assert "there is no result: the work of one and of two cannot be joined" in ran.record.reason
    assert "a.md" in ran.record.reason
    assert f"`codeloupe pipeline resume {ran.record.run_id} --accept-changes --retry two`" in ran.record.reason


def test_what_only_one_of_two_branches_changed_further_is_no_conflict(tmp_path: Path) -> None:
    file = write_pipeline(
        tmp_path / "p",
        {"name": "base"},
        {"name": "left", "needs": ["base"]},
        {"name": "right", "needs": ["base"]},
        {"name": "join", "needs": ["left", "right", "base"]},
    )
    cast = Cast(
        {
            "base": [writing({"a.md": "base", "b.md": "base"})],
            "left": [writing({"a.md": "left"})],
            "right": [writing({"b.md": "right"})],
            "join": [Text("joined")],
        }
    )
    ran = run(file, cast, tmp_path / "state")
    assert ran.record.state is S.COMPLETED, ran.record.reason
    assert ran.result() == {"a.md": "left", "b.md": "right", "join-output.md": "joined\n"}


def test_a_failure_that_fails_the_run_lets_what_is_under_way_finish(tmp_path: Path) -> None:
    file = write_pipeline(
        tmp_path / "p",
        {"name": "bad", "on_failure": "fail"},
        {"name": "under-way"},
        {"name": "later", "needs": ["under-way"]},
    )
    cast = Cast({"bad": [failing(NotLoggedIn)], "under-way": [writing({"a.md": "a"})], "later": [Text("x")]})
    has_failed = asyncio.Event()
    agent = HeldAgent(cast)
    agent.hold("bad", until=agent.begun["under-way"])
    agent.hold("under-way", until=has_failed)

    def watch(record: RunRecord, _event: PipelineEvent) -> None:
        if record.stage("bad").state is S.FAILED:
            has_failed.set()

    ran = run(file, cast, tmp_path / "state", agents={"scripted": agent}, watch=watch)
    states = [stage.state for stage in ran.record.stages]
    assert (ran.record.state, states) == (S.FAILED, [S.FAILED, S.COMPLETED, S.CANCELLED])
    assert ran.record.reason.startswith("bad failed: ")


def test_a_gate_judges_exactly_what_would_go_on(tmp_path: Path) -> None:
    """A program may change the workspace; neither the next gate nor the result sees anything of that."""
    spoil = "import pathlib; pathlib.Path('a.md').write_text('spoilt'); pathlib.Path('new.md').touch()"
    look = "import os, sys; sys.exit(open('a.md').read() != 'fine' or os.path.exists('new.md'))"
    gates = [{"command": [sys.executable, "-c", code]} for code in (spoil, look)]
    file = write_pipeline(tmp_path / "p", {"name": "write", "gates": gates})
    ran = run(file, Cast({"write": [writing({"a.md": "fine"})]}), tmp_path / "state")
    assert ran.record.state is S.COMPLETED, ran.record.reason
    assert ran.result() == {"a.md": "fine"}
    assert files_in(ran.directory / "stages" / "write" / "work") == {"a.md": "fine"}


def test_a_stage_is_told_the_inputs_that_it_names(tmp_path: Path) -> None:
    file = write_pipeline(
        tmp_path / "p",
        {"name": "all"},
        {"name": "some", "inputs": ["topic"]},
        inputs={"topic": {}, "secret-word": {"default": "xyzzy"}},
    )
    cast = Cast({"all": [Text("a")], "some": [Text("b")]})
    ran = run(file, cast, tmp_path / "state", {"topic": "rivers"})
    prompts = {request.labels["stage"]: request.prompt for request in cast.agent.requests}
    assert "rivers" in prompts["all"]
    assert "xyzzy" in prompts["all"]
    assert "rivers" in prompts["some"]
    assert "xyzzy" not in prompts["some"]
    assert dict(ran.record.inputs) == {"topic": "rivers", "secret-word": "xyzzy"}


def test_the_budget_of_a_stage_covers_its_gates_and_all_its_attempts(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "write", "gate": "critic", "budget": 1.0})
    cast = Cast({"write": [writing({"a.md": "a"})]}, {"write": [critique("REWORK", 10)]}, cost_usd=0.4)
    ran = run(file, cast, tmp_path / "state")
    limits = [round(request.max_budget_usd or 0.0, 3) for request in cast.agent.requests]
    assert limits == [1.0, 0.6, 0.2]
    stage = ran.record.stage("write")
    assert stage.state is S.AWAITING_APPROVAL
    assert stage.failures[-1].kind == "budget_exhausted"
    assert len(stage.attempts) == 1


def test_every_step_is_shown_to_whoever_watches_and_a_broken_display_breaks_nothing(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "write"})
    seen: list[tuple[str, StageState]] = []

    def watch(record: RunRecord, event: PipelineEvent) -> None:
        seen.append((event.kind, record.state))
        raise RuntimeError("the display is gone")

    ran = run(file, Cast({"write": [Text("a")]}), tmp_path / "state", watch=watch)
    assert [kind for kind, _ in seen] == [event.kind for event in ran.journal]
    assert seen[0] == ("run_started", S.RUNNING)
    assert seen[-1] == ("run_ended", S.COMPLETED)


def test_what_was_asked_and_answered_is_kept_for_each_attempt(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "write"})
    ran = run(file, Cast({"write": [writing({"a.md": "a\n"}, "I wrote it.")]}), tmp_path / "state")
    attempt = ran.record.stage("write").attempts[0]
    folder = ran.directory / "stages" / "write" / "attempt-1"
    assert "Do the work of write." in (folder / "prompt.md").read_text()
    assert (ran.directory / attempt.output_file).read_text() == "I wrote it."
    assert "+a" in (ran.directory / attempt.diff_file).read_text()
    for file in folder.iterdir():
        assert file.stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
