"""Pipelines for tests of the engine: a file with its steps, and an agent that does for each stage what is scripted."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from codeloupe.config.schema import Settings
from codeloupe.errors import AgentError
from codeloupe.model.agent import AgentLimits, AgentRequest, AgentResult
from codeloupe.model.pipeline import Approval, Decision, PipelineEvent, RunRecord, StageRecord
from codeloupe.model.ports import AgentEventSink
from codeloupe.pipelines.run import AskPerson, Pipeline, RunOptions, open_run_store, resume_run
from codeloupe.testing import Json, ScriptedAgent, Text
from codeloupe.testing.agent import AgentStep

Steps = Sequence[AgentStep]
ALL = AgentLimits(schema=True, turns=True, budget=True, resume=True, fork=True, tools=True, writes=True)


def write_pipeline(folder: Path, *stages: Mapping[str, Any], **keys: Any) -> Path:
    """A pipeline's file; each stage without a `step` gets one that says its name."""
    folder.mkdir(parents=True, exist_ok=True)
    listed = []
    for stage in stages:
        if "step" not in stage:
            (folder / f"{stage['name']}.md").write_text(f"Do the work of {stage['name']}.\n", encoding="utf-8")
        listed.append({"step": f"{stage['name']}.md", **stage})
    file = folder / "pipeline.yaml"
    file.write_text(json.dumps({"name": "tested", "stages": listed, **keys}), encoding="utf-8")
    return file


def writing(files: Mapping[str, str], say: str = "done") -> Callable[[AgentRequest], AgentStep]:
    """A step that writes files below the working directory and answers."""

    def step(request: AgentRequest) -> AgentStep:
        for name, text in files.items():
            target = request.working_dir / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        return Text(say)

    return step


def critique(verdict: str, score: int, *blockers: str, **more: Any) -> Json:
    """A critic's answer."""
    return Json({"summary": "so", "verdict": verdict, "score": score, "blockers": list(blockers), "fixes": [], **more})


@dataclass
class Cast:
    """What each stage's agent does, call by call, and what each stage's critic says. The last step repeats."""

    stages: dict[str, Steps]
    critics: dict[str, Steps] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    cost_usd: float | None = 0.0
    limits: AgentLimits = ALL

    def __post_init__(self) -> None:
        self.agent = ScriptedAgent([self._step], cost_usd=self.cost_usd, limits=self.limits)

    def _step(self, request: AgentRequest) -> AgentStep:
        stage, is_critic = request.labels["stage"], "gate" in request.labels
        name = f"critic of {stage}" if is_critic else stage
        steps = (self.critics if is_critic else self.stages)[stage]
        step = steps[min(self.calls.count(name), len(steps) - 1)]
        self.calls.append(name)
        return step


class HeldAgent:
    """The agent of a cast, whose calls for some stages wait for something. `begun` tells that a stage's call came."""

    def __init__(self, cast: Cast) -> None:
        self._agent = cast.agent
        self._until: dict[str, asyncio.Event] = {}
        self.begun: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.name, self.limits, self.check = "scripted", cast.limits, cast.agent.check

    def hold(self, stage: str, *, until: asyncio.Event) -> None:
        """Let the calls for a stage wait for an event."""
        self._until[stage] = until

    async def run(self, request: AgentRequest, emit: AgentEventSink) -> AgentResult:
        stage = request.labels["stage"]
        self.begun[stage].set()
        if stage in self._until:
            await self._until[stage].wait()
        return await self._agent.run(request, emit)


def options(cast: Cast, state: Path, **more: Any) -> RunOptions:
    """Options with the cast's agent for every stage, and no waiting for people."""
    return RunOptions(
        **{
            "settings": Settings(),
            "agents": {"scripted": cast.agent},
            "agent": "scripted",
            "wait_for_approval": False,
            "state_directory": state,
            "repo": state.parent,
            **more,
        }
    )


@dataclass
class Ran:
    """A run that was made, and where its files are."""

    record: RunRecord
    state: Path

    @property
    def directory(self) -> Path:
        return open_run_store(self.state).directory(self.record.run_id)

    @property
    def journal(self) -> tuple[PipelineEvent, ...]:
        return open_run_store(self.state).journal(self.record.run_id)

    def events(self, kind: str, stage: str = "") -> list[PipelineEvent]:
        return [event for event in self.journal if event.kind == kind and stage in ("", event.stage)]

    def states(self, stage: str) -> list[str]:
        return [str(event.facts["state"]) for event in self.events("stage_state", stage)]

    def say(self, stage: str, decision: Decision, note: str = "") -> None:
        """Store a person's answer to the last question of a stage."""
        store = open_run_store(self.state)
        question = store.load(self.record.run_id).stage(stage).questions
        answer = Approval(stage=stage, decision=decision, note=note, question=question)
        store.put_approval(self.record.run_id, answer)

    def result(self) -> dict[str, str]:
        """The text of each file of the result, by name."""
        return files_in(self.directory / "result")


def files_in(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): file.read_text(encoding="utf-8")
        for file in sorted(folder.rglob("*"))
        if file.is_file() and ".git" not in file.relative_to(folder).parts
    }


def run(file: Path, cast: Cast, state: Path, inputs: Mapping[str, str] | None = None, **more: Any) -> Ran:
    """Run a pipeline to its end or to where a person is needed."""
    return Ran(asyncio.run(Pipeline.load(file).run(inputs or {}, options=options(cast, state, **more))), state)


def run_stages(
    folder: Path, cast: Cast, *stages: Mapping[str, Any], keys: Mapping[str, Any] | None = None, **more: Any
) -> Ran:
    """Run a new pipeline below a folder; `keys` are those of its file beside the stages."""
    return run(write_pipeline(folder / "p", *stages, **(keys or {})), cast, folder / "state", **more)


def resume(ran: Ran, cast: Cast, **more: Any) -> Ran:
    """Go on with a run."""
    return Ran(asyncio.run(resume_run(ran.record.run_id, options=options(cast, ran.state, **more))), ran.state)


def person(*decisions: Decision | None, note: str = "", asked: list[str] | None = None) -> AskPerson:
    """Somebody at a terminal who decides so, time after time; the last decision repeats."""
    left = list(decisions)

    async def ask(stage: StageRecord, question: str) -> Approval | None:
        if asked is not None:
            asked.append(question)
        decision = left.pop(0) if len(left) > 1 else left[0]
        return None if decision is None else Approval(stage=stage.name, decision=decision, note=note)

    return ask


def failing(kind: type[AgentError], words: str = "it failed", **more: Any) -> AgentError:
    """An agent's failure."""
    return kind(words, agent="scripted", **more)
