"""One execution of a stage: the call of its agent in a workspace, and the artifacts that it left there.

Every failure is raised; `recovery` decides whether to retry, resume or give up. In the prompt, the step file and the
agent definition belong to the pipeline's author and are used as they are. Everything else may come from a model or a
hostile file name: it never begins a line, so it cannot look like a heading.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.agents.calls.schemas import no_answer
from codeloupe.config.yaml import escape
from codeloupe.errors import AgentExecutionError, ArtifactError, CodeloupeError
from codeloupe.model.agent import FILES_NOT_KNOWN, AgentRequest, AgentResult, PermissionMode
from codeloupe.model.pipeline import ArtifactRule, AttemptRecord, StageDefinition, StageRequest
from codeloupe.pipelines import artifacts as work
from codeloupe.pipelines.artifacts import Collected, Snapshot, answer_name, listed, snapshot
from codeloupe.system.regex import regex

Ask = Callable[[AgentRequest], Awaitable[AgentResult]]

# An agent that reaches its time limit reports it, with its cost, if it gets a moment for that.
_LAST_WORDS_SECONDS = 1.0
# Control characters except the tab, and halves of characters.
_UNFIT = regex(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\ud800-\udfff]")


class _Found(Struct, frozen=True):
    """The files of a workspace after a call, and the files of earlier calls of the stage."""

    workspace: Path
    collected: Collected
    after: Snapshot
    built_on: Sequence[str]


async def execute_stage(
    request: StageRequest,
    definition: StageDefinition,
    *,
    workspace: Path,
    ask: Ask,
    resume_session: str | None = None,
    built_on: Sequence[str] = (),
    answers: Path | None = None,
) -> tuple[AttemptRecord, str]:
    """Call a stage's agent in its workspace and collect the artifacts; return the attempt and the answer.

    `built_on` names files that the stage itself made there before, which are its artifacts while they exist. `answers`
    is a folder for a saved answer, instead of a workspace that belongs to the user. Raise AgentExecutionError from its
    cause, and ArtifactError if the files are not as requested.
    """
    name = definition.name
    prompt = build_prompt(request, writes=definition.writes, artifacts=definition.artifacts)
    before = await snapshot(workspace, stage=name)
    identity = work.identity_of(workspace)
    await work.let_time_pass(before)
    started = time.monotonic()
    result = await _answer(_agent_request(definition, prompt, workspace, resume_session), definition, ask)
    seconds = max(time.monotonic() - started, 0.0)
    if work.identity_of(workspace) not in (identity, ()):
        what = f"the workspace {workspace} of the stage {name} was replaced during the run"
        raise ArtifactError(what, stage=name, hint="use an agent that stays in its workspace")
    after = await snapshot(workspace, stage=name)
    collected = work.collect(workspace, definition.artifacts, before=before, after=after, built_on=built_on)
    found = _Found(workspace, collected, after, built_on)
    text = _text_of(result, name)
    artifacts, saved_answer = _saved(result, text, definition, found, answers)
    attempt = AttemptRecord(
        artifacts=artifacts,
        session_id=result.session_id or "",
        duration_seconds=seconds,
        agent=result.agent,
        model=result.model,
        notes=tuple(_notes(result, collected)),
        saved_answer=saved_answer,
    )
    return attempt, text


def _agent_request(
    definition: StageDefinition, prompt: str, workspace: Path, resume_session: str | None
) -> AgentRequest:
    return AgentRequest(
        prompt=prompt,
        working_dir=workspace,
        permission_mode=PermissionMode.ACCEPT_EDITS if definition.writes else PermissionMode.DONT_ASK,
        max_attempts=None if definition.retries else 1,
        resume_session=resume_session or None,
        fork_session=bool(resume_session),
        labels={"stage": definition.name},
        model=definition.model,
        tools=definition.tools,
        timeout_seconds=definition.timeout_seconds,
        max_turns=definition.max_turns,
        max_budget_usd=definition.max_budget_usd,
        output_schema=definition.output_schema,
    )


def _notes(result: AgentResult, collected: Collected) -> Iterator[str]:
    for note in result.notes:
        # Outside a repository the caller does not know which files changed; the workspace of the stage shows them.
        if not note.startswith(FILES_NOT_KNOWN):
            yield note
    for tool in dict.fromkeys(result.permission_denials):
        yield f"{result.agent} was not allowed to use {tool}"
    yield from collected.notes


def _text_of(result: AgentResult, stage: str) -> str:
    """Return the answer as text: the value as JSON, if there is one. Raise ArtifactError."""
    if result.structured is None:
        return result.output
    try:
        return json.dumps(result.structured, indent=2, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        what = f"the answer of the stage {stage} cannot be written as JSON: {error}"
        raise ArtifactError(what, stage=stage, hint="this is a bug in the agent, not in the stage") from error


async def _answer(asked: AgentRequest, definition: StageDefinition, ask: Ask) -> AgentResult:
    """Return the answer of an agent within the stage's time, which includes waiting for a slot and for quotas."""
    name = definition.name
    time_limit = asyncio.timeout(definition.timeout_seconds + _LAST_WORDS_SECONDS)
    try:
        async with time_limit:
            result = await ask(asked)
    except Exception as error:  # an agent may be the caller's, and any failure of it fails the call
        raise _execution_error(error, definition, is_late=time_limit.expired()) from error
    if not result.success:
        what = f"the stage {name} got no answer: {result.error or f'{result.agent} was not successful'}"
        raise AgentExecutionError(what, stage=name) from no_answer(result, "is a failure", "", output=result.output)
    return result


def _execution_error(error: Exception, definition: StageDefinition, *, is_late: bool) -> AgentExecutionError:
    name = definition.name
    if isinstance(error, CodeloupeError):
        return AgentExecutionError(f"the stage {name} got no answer: {error.message}", stage=name, hint=error.hint)
    if isinstance(error, TimeoutError) and is_late:
        what = f"the stage {name} got no answer within {definition.timeout_seconds:g} s"
        return AgentExecutionError(what, stage=name, hint="raise its timeout")
    what = f"the agent of the stage {name} failed unexpectedly: {type(error).__name__}: {error}"
    hint = "this is a bug in the agent, not in the stage; try another agent"
    return AgentExecutionError(what, stage=name, hint=hint)


def _saved(
    result: AgentResult, text: str, definition: StageDefinition, found: _Found, answers: Path | None
) -> tuple[tuple[str, ...], str]:
    """Return the checked artifacts, and the name of the answer if it was saved as one. Raise ArtifactError."""
    name = definition.name
    collected = found.collected
    if not definition.writes and collected.changed:
        what = f"the stage {name} is read-only, but these files changed while it ran: {listed(collected.changed)}"
        hint = "set `writes: true` for the stage, or use an agent that respects read-only mode"
        raise ArtifactError(what, stage=name, hint=hint)
    artifacts = set(collected.artifacts)
    answer = _name_for_answer(result, definition, found, answers)
    if answer:
        artifacts.add(answer)
    work.require(replace(collected, artifacts=tuple(sorted(artifacts))), definition.artifacts, stage=name)
    folder_of_answer = answers or found.workspace
    if answer:
        _save_answer(text, folder_of_answer, answer, name)
    in_workspace: list[str] = []
    for path in sorted(artifacts):
        folder = folder_of_answer if path == answer else found.workspace
        work.check_artifact(folder / path, path, definition.artifacts, stage=name)
        if folder is found.workspace:
            in_workspace.append(path)
    return tuple(in_workspace), answer


def _name_for_answer(result: AgentResult, definition: StageDefinition, found: _Found, answers: Path | None) -> str:
    """Return the name under which the answer is saved; empty if the stage left other artifacts."""
    name = definition.name
    is_value = result.structured is not None
    own = answer_name(name, structured=is_value, taken=())
    unchanged_own = {own}.intersection(found.built_on).difference(found.collected.changed)
    if set(found.collected.artifacts) - unchanged_own:
        return ""
    if is_value or result.output.strip():
        taken = () if answers else found.after
        return answer_name(name, structured=is_value, taken=taken, own=unchanged_own)
    if not found.collected.changed:
        what = f"the stage {name} wrote no file, and its answer is empty"
        raise ArtifactError(what, stage=name, hint="state in the step file what the stage must write or answer")
    return ""


def _save_answer(text: str, folder: Path, answer: str, stage: str) -> None:
    try:
        work.save_answer(folder, answer, text)
    except OSError as error:
        what = f"cannot save the answer of the stage {stage} as {answer}: {error.strerror or error}"
        hint = "check that the workspace is writable and its disk is not full"
        raise ArtifactError(what, stage=stage, hint=hint) from error


def build_prompt(request: StageRequest, *, writes: bool, artifacts: ArtifactRule) -> str:
    """Return the prompt of a stage, in sections. Raise AgentExecutionError if a file of the stage cannot be read.

    The prompt does not name the workspace, so that it is the same on every machine.
    """
    requirements = request.step_text or read_text(request.step_file, "step file", request.stage)
    sections = {"Stage Requirements": [requirements.strip()]}
    if request.agent_definition is not None:
        role = request.agent_definition_text or read_text(request.agent_definition, "agent definition", request.stage)
        sections["Agent Definition"] = [role.strip()]
    if request.prior_artifacts:
        lines = ["Earlier stages made these files. Read those that you need; do not change them."]
        lines += [f"- {escape(str(path))}" for path in request.prior_artifacts]
        sections["Prior Artifacts"] = lines
    if request.prior_answers:
        lines = ["Earlier stages answered this."]
        for name, answer in request.prior_answers.items():
            lines += _item(escape(name), answer)
        sections["Prior Answers"] = lines
    context: list[str] = []
    for key, value in request.elicitation_context.items():
        context += _item(escape(key), value)
    sections["Elicitation Context"] = context
    sections["Attempt History"] = list(_history(request.attempt_history))
    sections["Execution Environment"] = list(_environment(request.stage, artifacts, writes=writes))
    parts: list[str] = []
    for title, content in sections.items():
        if content:
            parts.append(f"## {title}\n\n" + "\n".join(content))
    return "\n\n".join(parts) + "\n"


def read_text(file: Path, what: str, stage: str) -> str:
    """Return the text of a file that a stage names. Raise AgentExecutionError from its cause."""
    try:
        return work.read_named(file, str(file))
    except work.SchemaRefused as error:
        words = f"the stage {stage} cannot continue: cannot use its {what}: {error}"
        hint = "check this file; `codeloupe pipeline validate` checks all files of the pipeline"
        raise AgentExecutionError(words, stage=stage, hint=hint) from error.__cause__ or error


def _item(label: str, value: str) -> Iterator[str]:
    """Yield `label: value`, or the lines of a value below its label, with control characters escaped."""
    lines = [_UNFIT.sub(lambda found: escape(found[0]), line) for line in value.splitlines()]
    if len(lines) <= 1:
        yield f"- {label}: {''.join(lines)}".rstrip()
        return
    yield f"- {label}:"
    for line in lines:
        # Deep enough that Markdown reads a line as text, even inside a list.
        yield f"      {line}".rstrip()


def _history(attempts: Sequence[AttemptRecord]) -> Iterator[str]:
    if attempts:
        yield "Earlier attempts at this stage were not accepted. Do better where they failed, and keep what was good."
    for attempt in attempts:
        yield f"\n### Attempt {attempt.number}\n"
        for critique in attempt.critiques:
            verdict = f"- verdict of the {critique.gate.value} gate: {critique.verdict.value}"
            if critique.score is not None:
                verdict += f", score {critique.score} of 100"
            if critique.confidence is not None:
                verdict += f", confidence {critique.confidence:g}"
            yield verdict
            parts = {"summary": (critique.summary,), "blocker": critique.blockers, "fix": critique.fixes}
            for label, texts in parts.items():
                for text in texts:
                    if text:
                        yield from _item(label, text)
        if not attempt.critiques:
            yield "- no reason is known"


def _environment(stage: str, rule: ArtifactRule, *, writes: bool) -> Iterator[str]:
    saved_as = f"{answer_name(stage, structured=False, taken=())}, or .json where a value is asked for"
    yield "- You work in the workspace of this stage, your working directory. All paths here are relative to it."
    if not writes:
        yield "- You may read files, and must not make, change or remove any: a change fails this stage."
        yield f"- Your answer is the result. It is saved for you as {saved_as}, so give it in full."
        return
    yield "- Write files here and in folders below only. Hidden files and links that lead elsewhere are no artifacts."
    if rule.required:
        yield f"- These files must be there when you are done: {', '.join(map(escape, rule.required))}"
    where = "in it and in its folders" if rule.recursive else "directly in it"
    yield f"- Files that count as your artifacts, {where}: {', '.join(map(escape, rule.patterns))}"
    for name in rule.schemas:
        yield f"- {escape(name)} is checked against a JSON Schema."
    yield f"- If you write no such file, your answer is saved as {saved_as}."
