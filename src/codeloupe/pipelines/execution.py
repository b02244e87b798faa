"""One execution of a stage: its agent is asked in a workspace, and what it left there is collected.

Whatever goes wrong is raised; to try again, resume or give up is decided in `recovery`. In the prompt the step file and
the agent definition are the pipeline author's, and are there as they are. Everything else may come from a model or a
hostile file name: it never begins a line, so it cannot pass for a heading.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from codeloupe.agents.calls.budget import UNPAID
from codeloupe.agents.calls.schemas import no_answer
from codeloupe.config.yaml import escape
from codeloupe.errors import AgentError, AgentExecutionError, ArtifactError, CodeloupeError
from codeloupe.model.agent import FILES_NOT_KNOWN, AgentRequest, AgentResult, PermissionMode, Usage, spent, usage_of
from codeloupe.model.pipeline import ArtifactRule, AttemptRecord, StageDefinition, StageRequest
from codeloupe.pipelines import artifacts as work
from codeloupe.pipelines.artifacts import Collected, Snapshot, answer_name, listed, snapshot
from codeloupe.system.regex import regex

Ask = Callable[[AgentRequest], Awaitable[AgentResult]]

# An agent whose time is over says so itself, with what it cost, if it gets a moment for that.
_LAST_WORDS_SECONDS = 1.0
_AS_DEFINED = ("model", "tools", "timeout_seconds", "max_turns", "max_budget_usd", "output_schema")
# Control characters but for the tab, and halves of characters.
_UNFIT = regex(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\ud800-\udfff]")


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
    """Ask a stage's agent in its workspace and collect the artifacts: the attempt as far as it is known, its answer.

    `built_on` names what the stage itself made there before, which is its artifact too while it is there. `answers` is
    a folder for an answer that is saved, instead of a workspace that is not ours to write to. Raises
    AgentExecutionError from its cause, and ArtifactError when what was left is not as asked.
    """
    name = definition.name
    prompt = build_prompt(request, workspace=workspace, writes=definition.writes, artifacts=definition.artifacts)
    before, identity = await snapshot(workspace, stage=name), work.identity_of(workspace)
    await work.let_time_pass(before)
    started = time.monotonic()
    asked = AgentRequest(
        prompt=prompt,
        working_dir=workspace,
        permission_mode=PermissionMode.ACCEPT_EDITS if definition.writes else PermissionMode.DONT_ASK,
        max_attempts=None if definition.retries else 1,
        resume_session=resume_session or None,
        fork_session=bool(resume_session),
        labels={"stage": name},
        **{key: getattr(definition, key) for key in _AS_DEFINED},
    )
    result = await _answer(asked, definition, ask)
    seconds = max(time.monotonic() - started, 0.0)
    if work.identity_of(workspace) not in (identity, ()):
        what = f"the workspace {workspace} of the stage {name} was replaced during the run"
        raise ArtifactError(what, stage=name, hint="use an agent that stays in its workspace")
    after = await snapshot(workspace, stage=name)
    collected = work.collect(workspace, definition.artifacts, before=before, after=after, built_on=built_on)
    artifacts, answer = _saved(result, definition, collected, after, built_on, workspace, answers)
    is_value = not result.output.strip() and result.structured is not None
    attempt = AttemptRecord(
        artifacts=artifacts,
        session_id=result.session_id or "",
        duration_seconds=seconds,
        usage=replace(usage_of(result), duration_seconds=0.0 if result.from_ledger else seconds),
        agent=result.agent,
        model=result.model,
        notes=(
            # Outside a repository the caller does not know which files changed; the workspace of the stage shows them.
            *(note for note in result.notes if not note.startswith(FILES_NOT_KNOWN)),
            *(f"{result.agent} was not allowed to use {one}" for one in dict.fromkeys(result.permission_denials)),
            *collected.notes,
        ),
        saved_answer=answer,
    )
    return attempt, json.dumps(result.structured, indent=2, default=str) if is_value else result.output


async def _answer(asked: AgentRequest, definition: StageDefinition, ask: Ask) -> AgentResult:
    """The answer of an agent within the stage's time, waits for a place and for quotas included."""
    name, seconds = definition.name, definition.timeout_seconds
    time_limit = asyncio.timeout(seconds + _LAST_WORDS_SECONDS)
    try:
        async with time_limit:
            result = await ask(asked)
    except Exception as error:  # an agent may come from anywhere, and its failure is the stage's
        if isinstance(error, CodeloupeError):
            what, hint = f"the stage {name} got no answer: {error.message}", error.hint
        elif isinstance(error, TimeoutError) and time_limit.expired():
            what, hint = f"the stage {name} got no answer within {seconds:g} s", "raise its timeout"
        else:
            what = f"the agent of the stage {name} failed unexpectedly: {type(error).__name__}: {error}"
            hint = "this is a bug in the agent, not in the stage; try another agent"
        raise AgentExecutionError(what, stage=name, hint=hint) from error
    if not result.success:
        what = f"the stage {name} got no answer: {result.error or f'{result.agent} was not successful'}"
        raise AgentExecutionError(what, stage=name) from no_answer(result, "is a failure", "", output=result.output)
    return result


def _saved(
    result: AgentResult,
    definition: StageDefinition,
    collected: Collected,
    after: Snapshot,
    built_on: Sequence[str],
    workspace: Path,
    answers: Path | None,
) -> tuple[tuple[str, ...], str]:
    """The artifacts, checked, and the name under which the answer was saved as one, if so. Raises ArtifactError."""
    name, rule, structured = definition.name, definition.artifacts, result.structured is not None
    if not definition.writes and collected.changed:
        what = f"the stage {name} is read-only, but these files changed while it ran: {listed(collected.changed)}"
        hint = "set `writes: true` for the stage, or use an agent that respects read-only mode"
        raise ArtifactError(what, stage=name, hint=hint)
    answer, artifacts = "", set(collected.artifacts)
    ours = answer_name(name, structured=structured, taken=())
    unchanged_own = {ours}.intersection(built_on).difference(collected.changed)
    if not artifacts - unchanged_own:
        if structured or result.output.strip():
            answer = answer_name(name, structured=structured, taken=() if answers else after, own=unchanged_own)
        elif not collected.changed:
            what = f"the stage {name} wrote no file, and its answer is empty"
            raise ArtifactError(what, stage=name, hint="state in the step file what the stage must write or answer")
    artifacts |= {answer} - {""}
    work.require(replace(collected, artifacts=tuple(sorted(artifacts))), rule, stage=name)
    homes = {path: answers if answers and path == answer else workspace for path in artifacts}
    if answer:
        try:
            text = json.dumps(result.structured, indent=2, ensure_ascii=False) if structured else result.output
            work.save_answer(homes[answer], answer, text)
        except (OSError, TypeError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            what = f"cannot save the answer of the stage {name} as {answer}: {reason}"
            hint = "check that the workspace is writable and its disk is not full"
            raise ArtifactError(what, stage=name, hint=hint) from error
    for path, home in homes.items():
        work.check_artifact(home / path, path, rule, stage=name)
    return tuple(sorted(path for path, home in homes.items() if home is workspace)), answer


def failure_usage(error: BaseException) -> Usage:
    """What a failed execution cost, as far as its cause tells."""
    cause = error if isinstance(error, AgentError) else error.__cause__
    if not isinstance(cause, AgentError) or not cause.attempts:
        return Usage()
    free = cause.cost_usd is None and isinstance(cause, UNPAID)
    return spent(cause.attempts, 0.0 if free else cause.cost_usd, cause.usage)


def build_prompt(request: StageRequest, *, workspace: Path, writes: bool, artifacts: ArtifactRule) -> str:
    """The prompt of a stage, in sections. Raises AgentExecutionError when a file of the stage cannot be read."""
    files = {"Stage Requirements": ("step file", request.step_file)}
    if request.agent_definition is not None:
        files["Agent Definition"] = ("agent definition", request.agent_definition)
    texts = {title: [read_text(file, what, request.stage).strip()] for title, (what, file) in files.items()}
    prior = [f"- {escape(str(path))}" for path in request.prior_artifacts]
    answers = [line for name, text in request.prior_answers.items() for line in _item(escape(name), text)]
    earlier = "Earlier stages made these files. Read those that you need; do not change them."
    sections = texts | {
        "Prior Artifacts": [earlier, *prior] if prior else [],
        "Prior Answers": ["Earlier stages answered this.", *answers] if answers else [],
        "Elicitation Context": [
            line for key, value in request.elicitation_context.items() for line in _item(escape(key), value)
        ],
        "Attempt History": list(_history(request.attempt_history)),
        "Execution Environment": list(_environment(request.stage, workspace, artifacts, writes=writes)),
    }
    return "\n\n".join(f"## {title}\n\n" + "\n".join(lines) for title, lines in sections.items() if lines) + "\n"


def read_text(file: Path, what: str, stage: str) -> str:
    """The text of a file that a stage names. Raises AgentExecutionError from its cause."""
    try:
        return work.read_named(file, str(file))
    except work.SchemaRefused as error:
        words = f"the stage {stage} cannot continue: cannot use its {what}: {error}"
        hint = "check this file; `codeloupe pipeline validate` checks all files of the pipeline"
        raise AgentExecutionError(words, stage=stage, hint=hint) from error.__cause__ or error


def _item(label: str, value: str) -> Iterator[str]:
    """`label: value`, or the lines of a value below its label; what no agent takes, or a terminal obeys, is escaped."""
    lines = [_UNFIT.sub(lambda found: escape(found[0]), line) for line in value.splitlines()]
    if len(lines) <= 1:
        yield f"- {label}: {''.join(lines)}".rstrip()
        return
    yield f"- {label}:"
    # Deep enough that Markdown takes a line for text, even inside of a list.
    yield from (f"      {line}".rstrip() for line in lines)


def _history(attempts: Sequence[AttemptRecord]) -> Iterator[str]:
    if attempts:
        yield "Earlier attempts at this stage were not accepted. Do better where they failed, and keep what was good."
    for attempt in attempts:
        yield f"\n### Attempt {attempt.number}\n"
        for critique in attempt.critiques:
            score = "" if critique.score is None else f", score {critique.score} of 100"
            confidence = "" if critique.confidence is None else f", confidence {critique.confidence:g}"
            yield f"- verdict of the {critique.gate.value} gate: {critique.verdict.value}{score}{confidence}"
            parts = {"summary": (critique.summary,), "blocker": critique.blockers, "fix": critique.fixes}
            for label, text in ((label, text) for label, texts in parts.items() for text in texts if text):
                yield from _item(label, text)
        if not attempt.critiques:
            yield "- no reason is known"


def _environment(stage: str, workspace: Path, rule: ArtifactRule, *, writes: bool) -> Iterator[str]:
    saved_as = f"{answer_name(stage, structured=False, taken=())}, or .json where a value is asked for"
    yield f"- Your working directory: {escape(str(workspace))}"
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
