"""One execution of a stage: its agent is asked in a workspace, and what it left there is collected.

Whatever goes wrong is raised; to try again, resume or give up is decided in `recovery`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
from codeloupe.model.pipeline import StageDefinition, StageRequest, StageResult
from codeloupe.model.ports import AgentEventSink, AskAgent
from codeloupe.pipelines.artifacts import (
    Collected,
    answer_name,
    collect,
    identity_of,
    let_time_pass,
    listed,
    require,
    save_answer,
    snapshot,
)
from codeloupe.pipelines.prompt import build_prompt
from codeloupe.pipelines.schemas import check_artifact

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
    built_on: Sequence[str] = (),
    answers: Path | None = None,
) -> StageResult:
    """Ask a stage's agent in its workspace and collect the artifacts.

    `built_on` names, by path in the workspace, what the stage itself made there in earlier attempts or calls: whatever
    of it is still there when this one ends, and fits the rule, is its artifact too. `answers` is a folder for an answer
    that is saved, in the place of a workspace that is not ours to write to.

    Raises AgentExecutionError from its cause when there is no answer in time, or a file of the stage cannot be read,
    and ArtifactError when what was left is not as asked. A cancellation is raised as it came, the agent being gone.
    """
    name, rule = definition.name, definition.artifacts
    prompt = build_prompt(request, workspace=workspace, writes=definition.writes, artifacts=rule)
    before = await snapshot(workspace, stage=name)
    identity = identity_of(workspace, stage=name)
    await let_time_pass(before)
    started = time.monotonic()
    asked = AgentRequest(
        prompt=prompt,
        working_dir=workspace,
        model=definition.model,
        permission_mode=PermissionMode.ACCEPT_EDITS if definition.writes else PermissionMode.DONT_ASK,
        tools=definition.tools,
        timeout_seconds=definition.timeout_seconds,
        max_attempts=None if definition.retries else 1,
        max_turns=definition.max_turns,
        max_budget_usd=definition.max_budget_usd,
        output_schema=definition.output_schema,
        resume_session=resume_session or None,
        fork_session=bool(resume_session),
        labels={"stage": name},
    )
    result = await _answer(asked, definition, ask=ask, emit=emit)
    duration_seconds = max(time.monotonic() - started, 0.0)
    if identity_of(workspace, stage=name) != identity:
        raise ArtifactError(
            f"the workspace {workspace} of the stage {name} was replaced by something else while it ran",
            stage=name,
            hint="use an agent that keeps to its workspace",
        )
    after = await snapshot(workspace, stage=name)
    collected = collect(workspace, rule, before=before, after=after, built_on=built_on)
    if not definition.writes and collected.changed:
        raise ArtifactError(
            f"the stage {name} may not write, but these changed while it ran: {listed(collected.changed)}",
            stage=name,
            hint="set `writes: true` for the stage, or use an agent that keeps to reading",
        )
    taken = after if answers is None else ()
    if answer := _answer_file(result, definition, collected, taken=tuple(taken), built_on=built_on):
        collected = replace(collected, artifacts=tuple(sorted({*collected.artifacts, answer})), answer=answer)
    require(collected, rule, stage=name)
    homes = {path: answers if answers and path == answer else workspace for path in collected.artifacts}
    if answer:
        _save(result, homes[answer], answer, stage=name)
    for path, home in homes.items():
        check_artifact(home / path, path, rule, stage=name)
    said = result.output
    if not said.strip() and result.structured is not None:
        said = json.dumps(result.structured, indent=2, default=str)
    denied = dict.fromkeys(result.permission_denials)
    return StageResult(
        artifacts=tuple(sorted(home.absolute() / path for path, home in homes.items())),
        session_id=result.session_id or "",
        duration_seconds=duration_seconds,
        usage=replace(usage_of(result), duration_seconds=0.0 if result.from_ledger else duration_seconds),
        output=said,
        agent=result.agent,
        model=result.model,
        notes=(
            *(note for note in result.notes if not note.startswith(_KNOWN_HERE)),
            *(f"{result.agent} was not allowed to use {denial}" for denial in denied),
            *collected.notes,
        ),
        saved_answer=answer,
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
    except Exception as error:  # an agent may come from anywhere, and its failure is the stage's
        if isinstance(error, TimeoutError) and time_limit.expired():
            raise AgentExecutionError(
                f"the stage {name} got no answer within {seconds:g} s", stage=name, hint="allow it more time"
            ) from error
        raise AgentExecutionError(
            f"the agent of the stage {name} failed unexpectedly: {type(error).__name__}: {error}",
            stage=name,
            hint="this is a defect of the agent, not of the stage; try another agent",
        ) from error
    return result


def _refuse_failure(result: AgentResult) -> None:
    if not result.success:
        raise OutputInvalid(
            result.error or f"{result.agent} was not successful",
            agent=result.agent,
            raw_output=result.raw_output,
            output=result.output,
            session_id=result.session_id,
            cost_usd=result.total_cost_usd,
            usage=result.usage,
        )


def _answer_file(
    result: AgentResult,
    definition: StageDefinition,
    collected: Collected,
    *,
    taken: Sequence[str],
    built_on: Sequence[str],
) -> str:
    """Under which name the answer becomes an artifact, empty when the stage has others. Raises ArtifactError."""
    structured = result.structured is not None
    ours = answer_name(definition.name, structured=structured, taken=())
    unchanged_own = {ours}.intersection(built_on).difference(collected.changed)
    if set(collected.artifacts) - unchanged_own:
        return ""
    if not structured and not result.output.strip():
        if collected.changed:
            return ""
        raise ArtifactError(
            f"the stage {definition.name} wrote no file, and its answer is empty",
            stage=definition.name,
            hint="say in the step file what the stage has to write or answer",
        )
    return answer_name(definition.name, structured=structured, taken=taken, own=unchanged_own)


def _save(result: AgentResult, folder: Path, name: str, *, stage: str) -> None:
    structured = result.structured is not None
    answer: Any = result.structured if structured else result.output
    try:
        save_answer(folder, name, answer, structured=structured)
    except (OSError, TypeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ArtifactError(
            f"the answer of the stage {stage} cannot be saved as {name}: {reason}",
            stage=stage,
            hint="check that the workspace can be written and has room",
        ) from error


def failure_usage(error: BaseException) -> Usage:
    """What a failed execution cost, as far as its cause tells."""
    cause = error if isinstance(error, AgentError) else error.__cause__
    if not isinstance(cause, AgentError) or not cause.attempts:
        return Usage()
    free = cause.cost_usd is None and isinstance(cause, _FREE)
    return spent(cause.attempts, 0.0 if free else cause.cost_usd, cause.usage)
