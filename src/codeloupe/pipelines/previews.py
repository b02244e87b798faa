"""The preview of a run: everything that a run reads and checks before its first call, without that call.

No agent is asked, no gate runs, and nothing is written.
"""

from __future__ import annotations

from graphlib import TopologicalSorter
from pathlib import Path

from codeloupe.model.pipeline import (
    GateDefinition,
    GateKind,
    PipelineDefinition,
    RunRecord,
    StageDefinition,
    StageRequest,
    WorkspaceKind,
)
from codeloupe.model.pipeline_preview import CallRange, GatePreview, PipelinePreview, StagePreview
from codeloupe.pipelines.agents import RunAgents
from codeloupe.pipelines.artifacts import answer_name
from codeloupe.pipelines.changes import new_stage_record
from codeloupe.pipelines.execution import build_prompt
from codeloupe.pipelines.readiness import Readiness, check_agents, describe_unusable
from codeloupe.planning.units import tokens_of
from codeloupe.reviewers.choose import named_reviewers
from codeloupe.system.process import find_program
from codeloupe.system.redaction import redact


async def preview_run(definition: PipelineDefinition, record: RunRecord, agents: RunAgents) -> PipelinePreview:
    """Return the preview of a run that has not started. Its `record` has no secrets."""
    checks = await check_agents(agents, definition, record, {})
    unusable = describe_unusable(checks)
    previewer = _Previewer(definition, record, agents, checks)
    stages = tuple(previewer.stage(stage) for stage in definition.stages)
    return PipelinePreview(
        definition=definition,
        stages=stages,
        inputs=record.inputs,
        given=record.given or (),
        repository=record.repository,
        can_start=not unusable,
        problems=(*unusable, *_missing_programs(definition)),
    )


def _missing_programs(definition: PipelineDefinition) -> list[str]:
    """Return a problem for each program of a command gate that is not on the PATH, which a run would find out late."""
    problems: list[str] = []
    for stage in definition.stages:
        for gate in stage.gates:
            # A path may lead into the workspace, where an agent may have to write the program first.
            is_name = bool(gate.command) and "/" not in gate.command[0]
            if is_name and find_program(gate.command[0]) is None:
                problems.append(f"there is no program {gate.command[0]}, for the command gate of {stage.name}")
    return problems


class _Previewer:
    """Previews the stages of one run."""

    def __init__(
        self, definition: PipelineDefinition, record: RunRecord, agents: RunAgents, checks: list[Readiness]
    ) -> None:
        self._definition, self._record, self._agents = definition, record, agents
        self._usable = {(check.need.stage, check.need.gate): check.usable for check in checks}
        self._is_checkout = definition.workspace is WorkspaceKind.CHECKOUT
        self._steps: dict[str, int] = {}
        self._builds_on: dict[str, list[str]] = {}
        by_name = {stage.name: stage for stage in definition.stages}
        needs = {name: stage.needs for name, stage in by_name.items()}
        for name in TopologicalSorter(needs).static_order():
            self._steps[name] = 1 + max((self._steps[needed] for needed in needs[name]), default=0)
            files: list[str] = []
            for needed in needs[name]:
                files += [*self._builds_on[needed], *sorted(_leaves(by_name[needed]))]
            self._builds_on[name] = list(dict.fromkeys(files))

    def stage(self, stage: StageDefinition) -> StagePreview:
        prompt = self._prompt(stage)
        most = new_stage_record(stage).max_attempts
        critics = sum(gate.kind is GateKind.CRITIC for gate in stage.gates)
        reviews = sum(gate.kind is GateKind.REVIEW for gate in stage.gates)
        gates = (self._gate(stage, number, gate) for number, gate in enumerate(stage.gates))
        return StagePreview(
            definition=stage,
            step=self._steps[stage.name],
            agent=self._usable.get((stage.name, None), ""),
            agents=self._agents.names(stage.agent),
            model=stage.model or self._agents.model,
            prompt=prompt,
            prompt_tokens=tokens_of(prompt),
            builds_on=tuple(self._builds_on[stage.name]),
            leaves=_leaves(stage),
            gates=tuple(gates),
            max_attempts=most,
            calls=CallRange(1 + critics, most * (1 + critics)),
            reviews=CallRange(reviews, most * reviews),
        )

    def _gate(self, stage: StageDefinition, number: int, gate: GateDefinition) -> GatePreview:
        if gate.kind is GateKind.REVIEW:
            settings = self._agents.settings
            return GatePreview(
                definition=gate,
                agent=self._usable.get(("", None), ""),
                reviewers=named_reviewers(settings),
                model=settings.model,
            )
        if gate.kind is not GateKind.CRITIC:
            return GatePreview(definition=gate)
        model = gate.model
        if model is None and gate.agent in (None, stage.agent):
            model = stage.model
        agent = self._usable.get((stage.name, number), "")
        return GatePreview(definition=gate, agent=agent, model=model or self._agents.model)

    def _prompt(self, stage: StageDefinition) -> str:
        earlier = self._builds_on[stage.name]
        prior_artifacts = tuple(map(Path, earlier))
        prior_answers: dict[str, str] = {}
        if self._is_checkout:
            # There answers are not files: they are in the prompt, and only a run knows them.
            prior_artifacts = ()
            prior_answers = dict.fromkeys(earlier, "(known when the earlier stage is done)")
        request = StageRequest(
            stage=stage.name,
            step_file=stage.step,
            step_text=stage.step_text,
            agent_definition=stage.agent_definition,
            agent_definition_text=stage.agent_definition_text,
            prior_artifacts=prior_artifacts,
            elicitation_context=stage.given(self._record.inputs),
            prior_answers=prior_answers,
        )
        prompt = build_prompt(request, writes=stage.writes, artifacts=stage.artifacts)
        return redact(prompt)


def _leaves(stage: StageDefinition) -> tuple[str, ...]:
    """Return the files that a stage must leave: its answer if it only reads, otherwise those that are required."""
    if not stage.writes:
        return (answer_name(stage.name, structured=stage.output_schema is not None, taken=()),)
    return stage.artifacts.required
