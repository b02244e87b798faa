from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe.config.schema import Settings
from codeloupe.engine import calls
from codeloupe.errors import ConfigError
from codeloupe.model.agent import AgentRequest, PermissionMode
from codeloupe.model.pipeline import Approval, Decision, StageState
from codeloupe.pipelines.run import Pipeline, RunOptions, open_run_store, resume_run
from codeloupe.testing import ScriptedAgent, Text
from codeloupe.testing.agent import AgentStep
from tests.engine_pipelines import Cast, critique, options, run, write_pipeline, writing


def test_importing_the_package_does_not_load_the_engine() -> None:
    code = "import codeloupe, sys; print([name for name in sys.modules if 'pipeline' in name])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_agent_that_nobody_knows_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "write", "agent": "scripted"})
    cast = Cast({"write": [Text("a")]})
    with pytest.raises(ConfigError, match="there is no agent 'scripted'"):
        run(file, cast, tmp_path / "state", agents={}, agent=None)
    assert open_run_store(tmp_path / "state").list() == ((), {})


def test_an_expert_that_nobody_knows_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    gate = {"kind": "review", "experts": ["astrology"]}
    file = write_pipeline(tmp_path / "p", {"name": "write", "gate": gate})
    with pytest.raises(ConfigError, match="the review gate of the stage write cannot be used: .*astrology"):
        run(file, Cast({"write": [Text("a")]}), tmp_path / "state")
    assert open_run_store(tmp_path / "state").list() == ((), {})


@pytest.mark.program
def test_a_stage_and_a_critic_have_the_agents_and_models_that_they_name(tmp_path: Path) -> None:
    """An agent of the caller takes the place of the built-in one of that name."""
    passing = critique("PASS", 90)
    stages: list[dict[str, Any]] = [
        {"name": "own", "agent": "codex", "model": "m-stage", "gate": "critic"},
        {"name": "other", "agent": "codex", "gate": {"kind": "critic", "agent": "gemini", "model": "m-gate"}},
        {"name": "usual", "gate": "critic"},
    ]
    file = write_pipeline(tmp_path / "p", *stages)
    agents = {
        name: ScriptedAgent(
            [
                lambda request: (
                    passing if "gate" in request.labels else writing({f"{request.labels['stage']}.md": "a"})(request)
                )
            ],
            name=name,
        )
        for name in ("codex", "gemini", "claude_cli")
    }
    wishes = RunOptions(
        settings=Settings(), agents=agents, agent="claude_cli", model="m-run", state_directory=tmp_path / "state"
    )
    asyncio.run(Pipeline.load(file).run(options=wishes))

    def asked(name: str) -> list[tuple[str, str, str | None]]:
        return sorted(
            (request.labels["stage"], request.labels.get("gate", ""), request.model or "")
            for request in agents[name].requests
        )

    assert asked("codex") == [("other", "", "m-run"), ("own", "", "m-stage"), ("own", "critic", "m-stage")]
    assert asked("gemini") == [("other", "critic", "m-gate")]
    assert asked("claude_cli") == [("usual", "", "m-run"), ("usual", "critic", "m-run")]


def request(folder: Path, **more: object) -> AgentRequest:
    fields: dict[str, object] = {"prompt": "Look.", "working_dir": folder}
    return AgentRequest(**{**fields, **more})  # type: ignore[arg-type]  # each test names what it changes


def test_the_key_of_a_reading_call_covers_what_the_agent_can_read(tmp_path: Path) -> None:
    keys, agent = calls.StageKeys(trust="trusted"), ScriptedAgent()
    assert keys.key_of(request(tmp_path), agent) is None
    keys.tell(tmp_path, "tree-1", 0)
    first = keys.key_of(request(tmp_path), agent)
    assert first is not None
    assert first == keys.key_of(request(tmp_path), agent)
    keys.tell(tmp_path, "tree-2", 0)
    assert keys.key_of(request(tmp_path), agent) != first
    # A call that has failed is made anew, not answered by what failed.
    keys.tell(tmp_path, "tree-1", 1)
    assert keys.key_of(request(tmp_path), agent) != first


def test_a_call_that_writes_or_resumes_has_no_key(tmp_path: Path) -> None:
    keys, agent = calls.StageKeys(trust="trusted"), ScriptedAgent()
    keys.tell(tmp_path, "tree-1", 0)
    assert keys.key_of(request(tmp_path, permission_mode=PermissionMode.ACCEPT_EDITS), agent) is None
    assert keys.key_of(request(tmp_path, resume_session="s"), agent) is None


@pytest.mark.program
def test_a_critics_answer_on_the_same_work_is_bought_once_for_several_runs(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "write", "gate": "critic"})
    cast = Cast({"write": [writing({"a.md": "the same"})]}, {"write": [critique("PASS", 90)]})
    run(file, cast, tmp_path / "state")
    again = run(file, cast, tmp_path / "state")
    assert cast.calls == ["write", "critic of write", "write"]
    critique_ = again.record.stage("write").attempts[0].critiques[0]
    assert (critique_.usage.cached, critique_.usage.requests) == (1, 0)


@pytest.mark.program
def test_runs_lie_below_the_state_directory_for_their_user_alone(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "write"})
    cast = Cast({"write": [Text("a")]})
    record = asyncio.run(Pipeline.load(file).run(options=options(cast, tmp_path / "state"), run_id="my-run"))
    directory = tmp_path / "state" / "pipelines" / "my-run"
    assert record.run_id == "my-run"
    assert directory.is_dir()
    for place in (directory, directory / "stages", directory / "result", directory / "store.git"):
        assert place.stat().st_mode & 0o077 == 0, place
    for file in (directory / "run.json", directory / "result.patch"):
        assert file.stat().st_mode & 0o077 == 0, file


@pytest.mark.program
def test_a_resumed_run_keeps_the_agent_and_the_model_of_its_beginning(tmp_path: Path) -> None:
    asked: list[tuple[str, str | None]] = []

    def named(name: str) -> ScriptedAgent:
        def step(request: AgentRequest) -> AgentStep:
            asked.append((name, request.model))
            return Text("done")

        return ScriptedAgent([step], name=name)

    stages = ({"name": "a", "gate": "approval"}, {"name": "b", "needs": "a", "gate": "approval"}, {"name": "c"})
    file = write_pipeline(tmp_path / "p", *stages[:2], {**stages[2], "needs": "b"})
    wish = RunOptions(
        settings=Settings(),
        agents={"first": named("first"), "second": named("second")},
        wait_for_approval=False,
        state_directory=tmp_path / "state",
    )
    begun = asyncio.run(Pipeline.load(file).run(options=replace(wish, agent="first", model="m1")))
    store = open_run_store(tmp_path / "state")
    store.put_approval(begun.run_id, Approval(stage="a", decision=Decision.APPROVE))
    asyncio.run(resume_run(begun.run_id, options=wish))
    store.put_approval(begun.run_id, Approval(stage="b", decision=Decision.APPROVE))
    ended = asyncio.run(resume_run(begun.run_id, options=replace(wish, agent="second")))
    assert asked == [("first", "m1"), ("first", "m1"), ("second", None)]
    assert (ended.agent, ended.model, ended.state) == ("second", None, StageState.COMPLETED)


@pytest.mark.program
@pytest.mark.defect("P8")
def test_a_pipeline_file_can_name_any_agent_that_the_caller_brings(tmp_path: Path) -> None:
    """Two of them may have the same name of their own, and are still two."""
    stages: list[dict[str, Any]] = [
        {"name": "write", "agent": "Writer-2"},
        {"name": "read", "agent": "house.reader", "writes": False},
        {"name": "look", "agent": "other", "writes": False, "step": "read.md"},
        {"name": "judged", "gate": {"kind": "critic", "agent": "judge"}},
    ]
    file = write_pipeline(tmp_path / "p", *stages, defaults={"agent": "Writer-2"})
    agents = {
        "Writer-2": ScriptedAgent([writing({"a.md": "a"})], name="codex"),
        "house.reader": ScriptedAgent([Text("read")]),
        "other": ScriptedAgent([Text("looked")]),
        "judge": ScriptedAgent([critique("PASS", 90)]),
    }
    ran = run(file, Cast({}), tmp_path / "state", agents=agents, agent=None)
    assert ran.record.state is StageState.COMPLETED, ran.record.reason
    assert {name: len(agent.requests) for name, agent in agents.items()} == {
        "Writer-2": 2,
        "house.reader": 1,
        "other": 1,
        "judge": 1,
    }
    assert ran.result()["look-output.md"] == "looked\n"


@pytest.mark.defect("P8")
def test_an_agent_that_nobody_brings_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    cases: dict[str, dict[str, Any]] = {
        "stage": {"stages": [{"name": "write", "agent": "writr"}]},
        "gate": {"stages": [{"name": "write", "gate": {"kind": "critic", "agent": "writr"}}]},
        "gates": {"stages": [{"name": "write", "gates": [{"kind": "critic", "agent": "writr"}]}]},
        "defaults": {"stages": [{"name": "write"}], "defaults": {"agent": "writr"}},
    }
    for name, keys in cases.items():
        stages = keys.pop("stages")
        file = write_pipeline(tmp_path / name, *stages, **keys)
        with pytest.raises(ConfigError) as refused:
            run(file, Cast({}), tmp_path / "state", agents={"writer": ScriptedAgent([Text("a")])}, agent=None)
        assert (refused.value.message, refused.value.hint) == ("there is no agent 'writr'", "did you mean `writer`?")
        with pytest.raises(ConfigError, match=r"pipeline\.yaml:1: .*found 'writr'") as refused:
            Pipeline.load(file, agents=["writer"])
        assert "did you mean `writer`?" in refused.value.hint
