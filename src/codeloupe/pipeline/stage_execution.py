"""One execution of a stage: its agent is asked in a workspace, and what it left there is collected.

Whatever goes wrong is raised; to try again, resume or give up is the pipeline's decision, not this module's.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.errors import (
    AgentError,
    AgentExecutionError,
    ArtifactError,
    CodeloupeError,
    ConnectionFailed,
    InvalidRequest,
    NotInstalled,
    NotLoggedIn,
    OutputInvalid,
    Overloaded,
    PromptTooLong,
    RateLimited,
)
from codeloupe.model.agent import AgentRequest, AgentResult, PermissionMode, Usage, spent, usage_of
from codeloupe.model.pipeline import StageRequest, StageResult, StageStatus
from codeloupe.model.pipeline_definition import StageDefinition
from codeloupe.model.ports import AgentEventSink, AskAgent
from codeloupe.pipeline.artifact_scan import Look, identity_of, let_time_pass, look_at
from codeloupe.pipeline.artifact_schema import check_schemas
from codeloupe.pipeline.artifacts import Collected, answer_name, collect, listed, require, save_answer
from codeloupe.pipeline.stage_prompt import build_prompt, read_texts

# An agent whose time is over says so itself, with what it cost, if it gets a moment for that.
_LAST_WORDS_SECONDS = 1.0
# A call outside of a repository says so; here the workspace is looked at instead.
_KNOWN_HERE = "which files changed is not known"
# A service that gave no answer takes no money.
_FREE = (InvalidRequest, NotInstalled, NotLoggedIn, RateLimited, Overloaded, ConnectionFailed, PromptTooLong)


async def execute_stage(  # noqa: PLR0913 - what a call needs besides the stage itself, each by its name
    request: StageRequest,
    definition: StageDefinition,
    *,
    workspace: Path,
    ask: AskAgent,
    emit: AgentEventSink,
    resume_session: str | None = None,
    model: str | None = None,
    built_on: Sequence[str] = (),
    answers: Path | None = None,
) -> StageResult:
    """Ask a stage's agent in its workspace and collect the artifacts.

    `model` overrules the definition's. `built_on` names, by path in the workspace, what the stage itself made there in
    earlier attempts or calls: whatever of it is still there when this one ends, and fits the rule, is its artifact too.
    `answers` is a folder for an answer that is saved, in the place of a workspace that is not ours to write to.

    Raises AgentExecutionError from its cause when there is no answer in time, or a file of the stage cannot be read,
    and ArtifactError when what was left is not as asked. A cancellation is raised as it came, the agent being gone.
    """
    texts = read_texts(request)
    prompt = build_prompt(request, texts, workspace=workspace, writes=definition.writes, artifacts=definition.artifacts)
    before = await look_at(workspace, stage=definition.name)
    identity = identity_of(workspace, stage=definition.name)
    await let_time_pass(before)
    started = time.monotonic()
    asked = _agent_request(prompt, definition, workspace=workspace, resume_session=resume_session, model=model)
    result = await _answer(asked, definition, ask=ask, emit=emit)
    duration_seconds = max(time.monotonic() - started, 0.0)
    if identity_of(workspace, stage=definition.name) != identity:
        raise ArtifactError(
            f"the workspace {workspace} of the stage {definition.name} was replaced by something else while it ran",
            stage=definition.name,
            hint="use an agent that keeps to its workspace",
        )
    left = _Left(workspace, before, await look_at(workspace, stage=definition.name), tuple(built_on), answers)
    collected = _outcome(result, definition, left)
    return StageResult(
        status=StageStatus.COMPLETED,
        artifacts=tuple(sorted(left.place(path, collected.answer) / path for path in collected.artifacts)),
        session_id=result.session_id or "",
        duration_seconds=duration_seconds,
        usage=replace(usage_of(result), duration_seconds=0.0 if result.from_ledger else duration_seconds),
        output=_said(result),
        agent=result.agent,
        model=result.model,
        notes=(*_notes_of(result), *collected.notes),
        saved_answer=collected.answer,
    )


class _Left(Struct, frozen=True):
    """A workspace before and after a call, and the artifacts of the attempt on which it built."""

    workspace: Path
    before: Look
    after: Look
    built_on: tuple[str, ...]
    answers: Path | None

    def place(self, path: str, answer: str) -> Path:
        """In which folder an artifact is."""
        return (self.workspace if self.answers is None or path != answer else self.answers).absolute()


def _agent_request(
    prompt: str, definition: StageDefinition, *, workspace: Path, resume_session: str | None, model: str | None
) -> AgentRequest:
    return AgentRequest(
        prompt=prompt,
        working_dir=workspace,
        model=model or definition.model,
        permission_mode=PermissionMode.ACCEPT_EDITS if definition.writes else PermissionMode.DONT_ASK,
        tools=definition.tools,
        timeout_seconds=definition.timeout_seconds,
        max_attempts=None if definition.retries else 1,
        max_turns=definition.max_turns,
        max_budget_usd=definition.max_budget_usd,
        output_schema=definition.output_schema,
        resume_session=resume_session or None,
        fork_session=bool(resume_session),
        labels={"stage": definition.name},
    )


async def _answer(
    asked: AgentRequest, definition: StageDefinition, *, ask: AskAgent, emit: AgentEventSink
) -> AgentResult:
    """The answer of an agent within the stage's time, waits for a place and for quotas included."""
    name, seconds = definition.name, definition.timeout_seconds
    time_limit = asyncio.timeout(seconds + _LAST_WORDS_SECONDS)
    try:
        async with time_limit:
            result = await ask(asked, emit)
        _refuse_failure(result)
    except CodeloupeError as error:
        raise AgentExecutionError(
            f"the stage {name} got no answer: {error.message}", stage=name, hint=error.hint
        ) from error
    except TimeoutError as error:
        if not time_limit.expired():
            raise _unexpected(name, error) from error
        raise AgentExecutionError(
            f"the stage {name} got no answer within {seconds:g} s", stage=name, hint="allow it more time"
        ) from error
    except Exception as error:  # an agent may come from anywhere, and its failure is the stage's
        raise _unexpected(name, error) from error
    return result


def _refuse_failure(result: AgentResult) -> None:
    if result.success:
        return
    raise OutputInvalid(
        result.error or f"{result.agent} was not successful",
        agent=result.agent,
        raw_output=result.raw_output,
        output=result.output,
        session_id=result.session_id,
        cost_usd=result.total_cost_usd,
        usage=result.usage,
    )


def _unexpected(name: str, error: Exception) -> AgentExecutionError:
    return AgentExecutionError(
        f"the agent of the stage {name} failed unexpectedly: {type(error).__name__}: {error}",
        stage=name,
        hint="this is a defect of the agent, not of the stage; try another agent",
    )


def _outcome(result: AgentResult, definition: StageDefinition, left: _Left) -> Collected:
    """The artifacts, the answer among them where there is no other. Raises ArtifactError."""
    name, rule = definition.name, definition.artifacts
    collected = collect(left.workspace, rule, before=left.before, after=left.after, built_on=left.built_on)
    if not definition.writes and collected.changed:
        raise ArtifactError(
            f"the stage {name} may not write, but these changed while it ran: {listed(collected.changed)}",
            stage=name,
            hint="set `writes: true` for the stage, or use an agent that keeps to reading",
        )
    answer = _answer_file(result, definition, left, collected)
    if answer is not None:
        artifacts = tuple(sorted({*collected.artifacts, answer}))
        collected = replace(collected, artifacts=artifacts, answer=answer)
    require(collected, rule, stage=name)
    if answer is not None:
        _save(result, left.place(answer, answer), answer, stage=name)
    for artifact in collected.artifacts:
        check_schemas(left.place(artifact, answer or ""), (artifact,), rule, stage=name)
    return collected


def _answer_file(result: AgentResult, definition: StageDefinition, left: _Left, collected: Collected) -> str | None:
    """Under which name the answer becomes an artifact, or None when the stage has others. Raises ArtifactError."""
    structured = result.structured is not None
    ours = answer_name(definition.name, structured=structured, taken=())
    unchanged_own = {ours}.intersection(left.built_on).difference(collected.changed)
    if set(collected.artifacts) - unchanged_own:
        return None
    if not structured and not result.output.strip():
        if collected.changed:
            return None
        raise ArtifactError(
            f"the stage {definition.name} wrote no file, and its answer is empty",
            stage=definition.name,
            hint="say in the step file what the stage has to write or answer",
        )
    taken = left.after if left.answers is None else ()
    return answer_name(definition.name, structured=structured, taken=taken, own=unchanged_own)


def _save(result: AgentResult, workspace: Path, name: str, *, stage: str) -> None:
    structured = result.structured is not None
    answer: Any = result.structured if structured else result.output
    try:
        save_answer(workspace, name, answer, structured=structured)
    except (OSError, TypeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ArtifactError(
            f"the answer of the stage {stage} cannot be saved as {name}: {reason}",
            stage=stage,
            hint="check that the workspace can be written and has room",
        ) from error


def _said(result: AgentResult) -> str:
    if result.output.strip() or result.structured is None:
        return result.output
    return json.dumps(result.structured, indent=2, default=str)


def _notes_of(result: AgentResult) -> tuple[str, ...]:
    told = (note for note in result.notes if not note.startswith(_KNOWN_HERE))
    denied = (f"{result.agent} was not allowed to use {denial}" for denial in dict.fromkeys(result.permission_denials))
    return (*told, *denied)


def failure_usage(error: BaseException) -> Usage:
    """What a failed execution cost, as far as its cause tells."""
    cause = error if isinstance(error, AgentError) else error.__cause__
    if not isinstance(cause, AgentError) or not cause.attempts:
        return Usage()
    free = cause.cost_usd is None and isinstance(cause, _FREE)
    return spent(cause.attempts, 0.0 if free else cause.cost_usd, cause.usage)


def failure_session(error: BaseException) -> str:
    """The session in which an execution failed, empty where none is known."""
    cause = error if isinstance(error, AgentError) else error.__cause__
    return cause.session_id if isinstance(cause, AgentError) else ""
