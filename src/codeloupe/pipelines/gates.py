"""The gates that decide on the result of a stage: a program, a review, a critic, a person. One that cannot, raises."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.errors import OutputInvalid, PipelineError, ProgramNotFound
from codeloupe.model.agent import AgentRequest, AgentResult, PermissionMode, Usage
from codeloupe.model.pipeline import Approval, CriticVerdict, Critique, GateDefinition, GateKind
from codeloupe.model.review import Review
from codeloupe.reports.wording import gaps_of
from codeloupe.reviewers.answers import read_critique
from codeloupe.reviewers.prompt import cut, fenced, new_fence
from codeloupe.system.process import Command, StreamTimedOut, find_program, program_environment, stream
from codeloupe.system.redaction import redact
from codeloupe.system.regex import regex
from codeloupe.system.untrusted import terminal

AskCritic = Callable[[AgentRequest], Awaitable[AgentResult]]

# Changes with every change of the texts in `prompts/`, of the schemas and of the prompt around them.
CRITIC_VERSION = "2"
_MOST_CHARACTERS = 1_500
# Colours and cursor movements; each part is bounded, so that it takes linear time.
_ESCAPE_SEQUENCE = regex(r"\x1b(?:\[[0-9;?]{0,40}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,400}(?:\x07|\x1b\\)|[@-Z\\-_])")
_MOST_OUTPUT_LINES = 60
_MOST_OUTPUT_CHARACTERS = 6_000
_MOST_LINE_CHARACTERS = 500
_MOST_TEXTS = 50
_MOST_NAMES = 2_000
_MOST_DIFF_BYTES = 400_000
_MOST_ANSWER_BYTES = 100_000
_TEXTS = {"type": "array", "items": {"type": "string"}}
CRITIQUE_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "summary": {"type": "string"},
        "verdict": {"type": "string", "enum": ["PASS", "REWORK", "FAIL"]},
        "score": {"type": "integer", "minimum": 0, "maximum": 100},
        "blockers": _TEXTS,
        "fixes": _TEXTS,
    },
    "required": ["summary", "verdict", "score", "blockers", "fixes"],
    "additionalProperties": False,
}


class GateTask(Struct, frozen=True, kw_only=True):
    """The work that a gate judges: the changes from `start_tree` to `tree`, without answers that we saved.

    If the answer is the work, `saved_answer` is its file, which is in the workspace if it is one of the `artifacts`.
    """

    stage: str
    attempt: int
    workspace: Path
    requirements: str
    artifacts: tuple[str, ...]
    files_changed: tuple[str, ...]
    diff: str
    output: str
    saved_answer: str = ""
    earlier: tuple[Critique, ...] = ()
    start_tree: str = ""
    tree: str = ""


async def answer_of_a_person(
    take: Callable[[], Approval | None],
    ask: Callable[[], Awaitable[Approval | None]] | None,
    *,
    timeout_seconds: float,
    poll_seconds: float = 0.5,
) -> Approval | None:
    """Return the decision of a person, stored or typed on a terminal; None if there is none in time, or for later."""
    found = take()
    if found is not None:
        return found

    async def stored() -> Approval:
        # It comes from another process, so there is no event to wait for.
        while True:
            answer = take()
            if answer is not None:
                return answer
            await asyncio.sleep(poll_seconds)

    waits: list[asyncio.Future[Approval | None]] = [asyncio.ensure_future(stored())]
    limit: float | None = timeout_seconds
    if ask is not None:
        waits.insert(0, asyncio.ensure_future(ask()))
        # A person who reads the question has as much time as they need.
        limit = None
    try:
        done, _ = await asyncio.wait(waits, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            answer = wait.result() if wait in done else None
            if answer is not None:
                return answer
        return take()
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


async def command_gate(gate: GateDefinition, task: GateTask) -> Critique:
    """Return PASS for exit code 0, otherwise REWORK with the last output of the program, also after its timeout.

    No shell reads the command. The program runs in the workspace, in its own session; every process that it starts is
    ended with it. It gets the search path, the home and the proxy settings, and no credentials. Raise ProgramNotFound
    or another ProcessError if it cannot be started, which decides nothing.
    """
    # On the PATH, at an absolute path, or at a path below the workspace.
    name = gate.command[0] if gate.command else ""
    found = find_program(name if "/" not in name else str(task.workspace / name))
    if found is None:
        what = f"cannot run the command gate of {task.stage}: program {name} not found"
        hint = "install it, or give an absolute path or a path in the workspace"
        raise ProgramNotFound(what, program=Path(name).name, hint=hint)
    command = Command(
        argv=(found, *gate.command[1:]),
        cwd=task.workspace,
        environment=program_environment(settings={"CI": "1"}),
        timeout_seconds=gate.timeout_seconds,
        max_output_bytes=1024 * 1024,
    )
    shown = " ".join(gate.command)[:200]
    try:
        completed = await stream(command)
    except StreamTimedOut as error:
        how = f"did not finish within {gate.timeout_seconds:g} s"
        return _command_failed(shown, how, (error.stdout, error.stderr), gate.timeout_seconds)
    output = (completed.stdout, completed.stderr)
    if completed.exit_code > 0:
        return _command_failed(shown, f"ended with exit code {completed.exit_code}", output, completed.seconds)
    if completed.exit_code < 0:
        return _command_failed(shown, f"was ended by signal {-completed.exit_code}", output, completed.seconds)
    return Critique(
        verdict=CriticVerdict.PASS,
        gate=GateKind.COMMAND,
        summary=last_output(f"{shown} passed"),
        usage=Usage(duration_seconds=completed.seconds),
    )


def _command_failed(shown: str, how: str, output: tuple[bytes, str], seconds: float) -> Critique:
    summary = last_output(f"{shown} {how}")
    blockers: list[str] = []
    for data in output:
        words = last_output(data)
        if words:
            blockers.append(f"{summary}; its last words:\n{words}")
    if not blockers:
        blockers.append(f"{summary}, without a word")
    return Critique(
        verdict=CriticVerdict.REWORK,
        gate=GateKind.COMMAND,
        summary=summary,
        blockers=tuple(blockers),
        fixes=(f"Change what was made so that this passes: {shown}",),
        usage=Usage(duration_seconds=seconds),
    )


def last_output(data: bytes | str) -> str:
    """Return the last lines of a program, without terminal commands, and with secrets masked before any cut."""
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    text = _ESCAPE_SEQUENCE.sub("", redact(text))
    lines: list[str] = []
    for row in text.split("\n"):
        # If a program overwrote a line again and again, the last state counts.
        last = row.rstrip("\r").rpartition("\r")[2]
        if len(last) > _MOST_LINE_CHARACTERS:
            last = f"{last[:_MOST_LINE_CHARACTERS]} ..."
        if last.strip():
            lines.append(last)
    words = "\n".join(terminal(line) for line in lines[-_MOST_OUTPUT_LINES:])
    if len(words) > _MOST_OUTPUT_CHARACTERS:
        return f"... {words[-_MOST_OUTPUT_CHARACTERS:]}"
    return words


async def review_gate(task: GateTask, review_of: Callable[[], Awaitable[Review]]) -> Critique:
    """Return PASS, or REWORK with the findings that block. A review has no score: nothing can outvote it.

    Raise PipelineError if not everything could be reviewed.
    """
    if not task.files_changed:
        return Critique(
            verdict=CriticVerdict.REWORK,
            gate=GateKind.REVIEW,
            summary="there is nothing to review",
            blockers=("the stage changed no file",),
        )
    review = await review_of()
    blocking = [each for each in review.findings if each.can_block and each.severity.at_least(review.policy.fail_on)]
    if not blocking and (not review.complete or review.exit_code != 0):
        why = "; ".join(gap.describe() for gap in gaps_of(review)[:5]) or review.summary
        what = f"the review of {task.stage} is incomplete, so the gate did not pass: {why[:_MOST_CHARACTERS]}"
        hint = "fix it, then retry the stage; finished reviews come from the ledger"
        raise PipelineError(what, stage=task.stage, hint=hint)
    blockers: list[str] = []
    fixes: list[str] = []
    for finding in blocking:
        place = finding.file
        if finding.line_start is not None:
            place = f"{finding.file}:{finding.line_start}"
        blockers.append(f"[{finding.severity.label}] {place}: {finding.title}\n{finding.body}".rstrip())
        if finding.suggestion:
            fixes.append(f"{place}: {finding.suggestion}")
    return Critique(
        verdict=CriticVerdict.REWORK if blocking else CriticVerdict.PASS,
        gate=GateKind.REVIEW,
        summary=review.summary,
        blockers=_some(blockers),
        fixes=_some(fixes),
    )


def _some(texts: Iterable[str]) -> tuple[str, ...]:
    shown = [text[:_MOST_CHARACTERS] for text in texts]
    if len(shown) > _MOST_TEXTS:
        shown[_MOST_TEXTS:] = [f"and {len(shown) - _MOST_TEXTS:,} more"]
    return tuple(shown)


async def critic_gate(gate: GateDefinition, task: GateTask, *, ask: AskCritic, can_read: bool) -> Critique:
    """Return the critique of an agent that reads the result of a stage and answers PASS, REWORK or FAIL.

    `can_read` is True for an agent with tools. An answer that is not exact is asked for once more; a second one is an
    error, never a PASS. Raise an AgentError, or PipelineError if the critic would judge only a part of the work.
    """
    _require_whole(task, "diff", task.diff, _MOST_DIFF_BYTES, is_readable=can_read)
    if task.saved_answer:
        is_readable = can_read and task.saved_answer in task.artifacts
        _require_whole(task, "answer", task.output, _MOST_ANSWER_BYTES, is_readable=is_readable)
    fence = new_fence()
    system, prompt = critic_prompt(gate, task, fence=fence, can_read=can_read)
    question = AgentRequest(
        system_prompt=system,
        prompt=prompt,
        working_dir=task.workspace,
        model=gate.model,
        permission_mode=PermissionMode.DONT_ASK,
        tools=None if can_read else (),
        timeout_seconds=gate.timeout_seconds,
        output_schema=CRITIQUE_SCHEMA,
        # The ledger stores an answer that is not exact, too, so that a repeated run does not pay for it again.
        accept_any_output=True,
        labels={"stage": task.stage, "gate": "critic", "fence": fence, "prompt_version": f"critic {CRITIC_VERSION}"},
    )
    answer, critique = await _asked(ask, question)
    if isinstance(critique, str):
        again = replace(question, prompt=f"{prompt}\n\nReply with the JSON value only.")
        answer, critique = await _asked(ask, again)
    if isinstance(critique, str):
        raise OutputInvalid(
            f"the critic's answer on attempt {task.attempt} of {task.stage} is not exact: {critique}",
            agent="critic",
            hint="retry, or use another agent or model for the critic",
            output=answer,
        )
    if critique.verdict is CriticVerdict.PASS and critique.score is not None and critique.score < gate.min_score:
        why = f"it was said to pass, with a score of {critique.score}, which is below {gate.min_score}"
        return replace(critique, verdict=CriticVerdict.REWORK, blockers=(why,))
    return critique


def _require_whole(task: GateTask, what: str, work: str, max_bytes: int, *, is_readable: bool) -> None:
    """Raise PipelineError if a critic would judge only a part of the work."""
    if is_readable or cut(work, max_bytes) == work:
        return
    message = f"the {what} of attempt {task.attempt} is too large for the critic of {task.stage}, which cannot read it"
    hint = "use an agent with tools for the critic, have the stage write files, or divide the stage"
    raise PipelineError(f"{message} in a file", stage=task.stage, hint=hint)


async def _asked(ask: AskCritic, request: AgentRequest) -> tuple[str, Critique | str]:
    """Return a critic's answer, and the critique in it or why there is none. An empty answer is not exact."""
    try:
        result = await ask(request)
    except OutputInvalid as error:
        return error.output or error.raw_output, error.message
    return result.output, read_critique(result.output, result.structured, inexact=result.inexact)


def critic_prompt(gate: GateDefinition, task: GateTask, *, fence: str, can_read: bool) -> tuple[str, str]:
    """Return the instructions and the material for a critique of one attempt."""
    judging = gate.step_text.strip() or resource("critic")
    reading = resource("reading_tree" if can_read else "reading_diff")
    answer = resource("critic_answer").replace("{reading}", reading)
    instructions = [part for part in (judging, gate.prompt.strip(), answer) if part]
    material = [resource("critic_data").replace("{fence}", fence), *_material(task, fence)]
    return "\n\n".join(instructions), "\n\n".join(material)


def _material(task: GateTask, fence: str) -> Iterator[str]:
    yield fenced(fence, "requirements", cut(task.requirements, 200_000))
    if task.artifacts:
        yield fenced(fence, "artifacts", _names(task.artifacts))
    if task.files_changed:
        yield fenced(fence, "files changed", _names(task.files_changed))
    if task.output.strip():
        yield fenced(fence, "what the agent answered", cut(task.output, _MOST_ANSWER_BYTES))
    if task.earlier:
        critiques = [_critique_text(number, critique) for number, critique in enumerate(task.earlier, start=1)]
        yield fenced(fence, "earlier critiques", cut("\n\n".join(critiques), 50_000))
    diff = "(no file was changed)"
    if task.diff.strip():
        diff = cut(task.diff, _MOST_DIFF_BYTES)
    yield fenced(fence, "diff", diff)


def _critique_text(number: int, critique: Critique) -> str:
    verdict = critique.verdict.value
    if critique.score is not None:
        verdict = f"{verdict}, score {critique.score}"
    lines = [f"{number}. {verdict}: {critique.summary}"]
    lines += [f"- blocker: {text}" for text in critique.blockers]
    lines += [f"- fix: {text}" for text in critique.fixes]
    return "\n".join(lines)


def _names(names: Sequence[str]) -> str:
    # A line end in a name would make two names of it.
    lines = [name.replace("\n", "<U+000A>") for name in names[:_MOST_NAMES]]
    if len(names) > _MOST_NAMES:
        lines.append(f"[and {len(names) - _MOST_NAMES:,} more]")
    return "\n".join(lines)


@cache
def resource(name: str) -> str:
    """Return one of the texts in `prompts/`."""
    return (Path(__file__).with_name("prompts") / f"{name}.md").read_text(encoding="utf-8").strip()
