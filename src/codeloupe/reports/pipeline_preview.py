"""The preview of a pipeline's run, as text for a person and as a JSON document for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Unpack

from codeloupe.model.pipeline import GateKind, OnFailure, WorkspaceKind
from codeloupe.model.pipeline_preview import CallRange, GatePreview, PipelinePreview, StagePreview
from codeloupe.reports import Look
from codeloupe.reports.json_v1 import TOOL, json_text, schema_of
from codeloupe.reports.page import DIM, Page, Text
from codeloupe.reports.wording import counted, dollars, duration

_NOTHING_DONE = "dry run: no agent was asked, no command ran, nothing was stored"
_WORKSPACES = {
    WorkspaceKind.DIRECTORY: "an empty directory of the run",
    WorkspaceKind.WORKTREE: "a copy of the last commit of {}",
    WorkspaceKind.CHECKOUT: "your own working tree, {}",
}
_FAILURES = {
    OnFailure.ESCALATE: "",
    OnFailure.FAIL: "the run fails, and no person is asked",
    OnFailure.CONTINUE: "the run continues without this stage and the stages that need it",
}
_LONGEST_VALUE = 300
_STAGE_INDENT = 3


def render_preview(preview: PipelinePreview, *, verbose: bool = False, **look: Unpack[Look]) -> str:
    """Return the preview as text. A `verbose` one has the first prompt of every stage."""
    page = Page(**look, verbose=verbose)
    definition = preview.definition
    rows = [Text((page.line(definition.name), "bold"), "  ", (_NOTHING_DONE, "cyan"))]
    if definition.description:
        rows += page.wrap(page.line(definition.description))
    rows.append(Text())
    rows += page.rows(_about(preview, page))
    for stage in preview.stages:
        rows += [Text(), *_stage_rows(stage, preview, page)]
    rows.append(Text())
    rows += _closing(preview, page)
    if verbose:
        for stage in preview.stages:
            rows += [Text(), Text((f"Prompt of {page.line(stage.definition.name)}", "bold"))]
            shown = page.clean(stage.prompt, keep_newlines=True, longest=len(stage.prompt))
            rows += [Text(line) for line in shown.splitlines()]
    return page.printed(rows)


def _about(preview: PipelinePreview, page: Page) -> dict[str, str]:
    definition = preview.definition
    inputs = []
    for name, value in preview.inputs.items():
        origin = "" if name in preview.given else " (default)"
        inputs.append(f"{page.line(name)} = {page.cut(page.line(value), _LONGEST_VALUE)}{origin}")
    limits = [] if definition.max_budget_usd is None else [f"{dollars(definition.max_budget_usd)} for the run"]
    if any(len(names) > 1 for names in preview.steps):
        limits.append(f"{counted(preview.max_parallel, 'stage')} at a time")
    between = " and " if preview.max_parallel > 1 else ", "
    steps = [between.join(map(page.line, names)) for names in preview.steps]
    return {
        "File": page.line(str(definition.file)),
        "Inputs": "\n".join(inputs),
        "Works in": page.line(_WORKSPACES[definition.workspace].format(preview.repository)),
        "Limits": ", ".join(limits),
        "Order": f" {page.sign('→')} ".join(steps),
        "Calls": _calls_text(preview),
    }


def _calls_text(preview: PipelinePreview) -> str:
    text = f"{_range_text(preview.calls, 'agent call')}, not counting retries"
    if preview.reviews.most:
        text += f"; {_range_text(preview.reviews, 'review')}, each with the calls that its change needs"
    return text


def _range_text(calls: CallRange, what: str) -> str:
    if calls.least == calls.most:
        return counted(calls.most, what)
    return f"{calls.least:,} to {counted(calls.most, what)}"


def _stage_rows(stage: StagePreview, preview: PipelinePreview, page: Page) -> Iterator[Text]:
    definition = stage.definition
    name = page.line(definition.name)
    others = [page.line(other) for other in preview.steps[stage.step - 1] if other != definition.name]
    relations = []
    if definition.needs:
        relations.append(f"after {', '.join(map(page.line, definition.needs))}")
    if others and preview.max_parallel > 1:
        relations.append(f"at the same time as {', '.join(others)}")
    yield from page.wrap(Text((f"{stage.step}. {name}", "bold"), "  ", (", ".join(relations), DIM)))
    facts = {
        "agent": _agent_text(stage),
        "prompt": _prompt_text(stage),
        "reads": ", ".join(stage.builds_on),
        "leaves": _leaves_text(stage),
        "limits": _limits_text(stage),
        "failure": _FAILURES[definition.on_failure],
    }
    facts |= {f"gate {number}": _gate_text(gate) for number, gate in enumerate(stage.gates, start=1)}
    indent = _STAGE_INDENT + 9
    for label, text in facts.items():
        if text:
            first = Text(" " * _STAGE_INDENT, (f"{label:<9}", DIM))
            yield from page.wrap(page.line(text), indent=indent, first=first)


def _agent_text(stage: StagePreview) -> str:
    definition = stage.definition
    who = stage.agent or f"none that can be used here ({', '.join(stage.agents)})"
    if stage.model:
        who = f"{who} ({stage.model})"
    rights = "may read and write files" if definition.writes else "may only read files"
    if definition.tools is None:
        return f"{who}, {rights}"
    return f"{who}, {rights}, with the tools {', '.join(definition.tools) or 'none'}"


def _prompt_text(stage: StagePreview) -> str:
    definition = stage.definition
    text = f"about {counted(stage.prompt_tokens, 'token')}"
    if definition.inputs is not None:
        text += f", with the inputs {', '.join(definition.inputs) or 'none'}"
    if stage.max_attempts > 1:
        text += "; later attempts also get the critiques"
    return text


def _leaves_text(stage: StagePreview) -> str:
    definition = stage.definition
    if not definition.writes:
        schema = ", which must fit a schema" if definition.output_schema is not None else ""
        return f"its answer as {', '.join(stage.leaves)}{schema}"
    rule = definition.artifacts
    patterns = f"files that match {', '.join(rule.patterns)}"
    if rule.recursive:
        patterns += " in any folder"
    if not rule.required:
        return f"{patterns}, or else its answer"
    checked = f"; {', '.join(rule.schemas)} must fit a schema" if rule.schemas else ""
    return f"{', '.join(rule.required)} (required), {patterns}{checked}"


def _limits_text(stage: StagePreview) -> str:
    definition = stage.definition
    parts = [f"{_time(definition.timeout_seconds)} per call", counted(definition.retries, "retry", "retries")]
    if definition.max_turns is not None:
        parts.append(counted(definition.max_turns, "turn"))
    if definition.max_budget_usd is not None:
        parts.append(f"{dollars(definition.max_budget_usd)} in all")
    parts.append(counted(stage.max_attempts, "attempt"))
    return ", ".join(parts)


def _gate_text(gate: GatePreview) -> str:
    definition = gate.definition
    who = gate.agent or "an agent, none of which can be used here"
    if gate.model:
        who = f"{who} ({gate.model})"
    limit = f"at most {counted(definition.max_attempts, 'attempt')}, {_time(definition.timeout_seconds)}"
    match definition.kind:
        case GateKind.COMMAND:
            return f"command {' '.join(definition.command)}: {limit}"
        case GateKind.CRITIC:
            score = f"a score of {definition.min_score} or more"
            return f"critic by {who}: {limit}; accepted with {score} after the last attempt"
        case GateKind.REVIEW:
            blocks = f" that fails on {definition.fail_on}" if definition.fail_on else ""
            return f"review by {gate.agent or ' and '.join(gate.reviewers)}{blocks}: {limit}"
        case _:
            question = f": {definition.prompt}" if definition.prompt else ""
            return f"approval by a person, waits {_time(definition.timeout_seconds)}{question}"


def _time(seconds: float) -> str:
    return duration(seconds).removesuffix(" 0 s")


def _closing(preview: PipelinePreview, page: Page) -> Iterator[Text]:
    for problem in preview.problems:
        yield from page.wrap(page.line(problem), indent=10, first=Text((f"{'Problem':<10}", "bold yellow")))
    if preview.can_start:
        yield Text(("The run can start: remove --dry-run.", "green"))
    else:
        words = "The run cannot start yet: `codeloupe doctor` shows which agents can be used."
        yield from page.wrap(Text((words, "bold yellow")))


def preview_schema() -> dict[str, Any]:
    """Return the JSON Schema of a preview."""
    return schema_of("pipeline-preview")


def preview_json(preview: PipelinePreview) -> str:
    """Return the preview as a JSON document."""
    definition = preview.definition
    inputs = []
    for name, value in preview.inputs.items():
        inputs.append({"name": name, "value": value, "given": name in preview.given})
    return json_text(
        {
            "schema_version": 1,
            "tool": TOOL,
            "dry_run": True,
            "pipeline": definition.name,
            "description": definition.description,
            "file": str(definition.file),
            "workspace": definition.workspace.value,
            "repository": None if preview.repository is None else str(preview.repository),
            "max_parallel": preview.max_parallel,
            "max_budget_usd": definition.max_budget_usd,
            "can_start": preview.can_start,
            "problems": list(preview.problems),
            "inputs": inputs,
            "steps": [list(names) for names in preview.steps],
            "calls": _range_json(preview.calls),
            "reviews": _range_json(preview.reviews),
            "stages": [_stage_json(stage) for stage in preview.stages],
        }
    )


def _range_json(calls: CallRange) -> dict[str, int]:
    return {"least": calls.least, "most": calls.most}


def _stage_json(stage: StagePreview) -> dict[str, Any]:
    definition = stage.definition
    rule = definition.artifacts
    return {
        "name": definition.name,
        "step": stage.step,
        "needs": list(definition.needs),
        "agent": stage.agent or None,
        "agents": list(stage.agents),
        "model": stage.model,
        "writes": definition.writes,
        "tools": None if definition.tools is None else list(definition.tools),
        "inputs": None if definition.inputs is None else list(definition.inputs),
        "builds_on": list(stage.builds_on),
        "leaves": list(stage.leaves),
        "artifacts": {"patterns": list(rule.patterns), "recursive": rule.recursive, "required": list(rule.required)},
        "has_output_schema": definition.output_schema is not None,
        "prompt_tokens": stage.prompt_tokens,
        "prompt": stage.prompt,
        "timeout_seconds": definition.timeout_seconds,
        "max_turns": definition.max_turns,
        "retries": definition.retries,
        "max_budget_usd": definition.max_budget_usd,
        "max_attempts": stage.max_attempts,
        "on_failure": definition.on_failure.value,
        "calls": _range_json(stage.calls),
        "reviews": _range_json(stage.reviews),
        "gates": [_gate_json(gate) for gate in stage.gates],
    }


def _gate_json(gate: GatePreview) -> dict[str, Any]:
    definition = gate.definition
    is_critic = definition.kind is GateKind.CRITIC
    is_approval = definition.kind is GateKind.APPROVAL
    return {
        "kind": definition.kind.value,
        "agent": gate.agent or None,
        "model": gate.model,
        "command": list(definition.command),
        "prompt": definition.prompt,
        "fail_on": definition.fail_on,
        "experts": list(definition.experts),
        "timeout_seconds": definition.timeout_seconds,
        "max_attempts": None if is_approval else definition.max_attempts,
        "min_score": definition.min_score if is_critic else None,
    }
