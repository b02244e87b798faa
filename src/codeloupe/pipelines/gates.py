"""What decides on a stage's result: a program, our own review, a critic, a person. A gate that cannot decide raises."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.engine.parse.claims import read_critique
from codeloupe.engine.parse.items import TRUNCATED_JSON
from codeloupe.engine.prompt import cut, fenced, new_fence
from codeloupe.engine.verdict import score
from codeloupe.errors import AgentError, OutputInvalid, PipelineError, ProgramNotFound
from codeloupe.model.agent import AgentRequest, AgentResult, PermissionMode, TokenUsage, Usage, spent, usage_of
from codeloupe.model.pipeline import Approval, CriticVerdict, Critique, GateDefinition, GateKind
from codeloupe.model.review import Review
from codeloupe.pipelines.execution import read_text
from codeloupe.reports.wording import gaps_of
from codeloupe.system.process import Command, StreamTimedOut, find_program, program_environment, stream
from codeloupe.system.redaction import redact
from codeloupe.system.regex import regex
from codeloupe.system.untrusted import terminal

AskCritic = Callable[[AgentRequest], Awaitable[AgentResult]]

# Raised with every change of the texts in `prompts/`, of the schemas and of what is put around them.
CRITIC_VERSION = "1"
# What each finding costs of 100 points, as in the score of a commit.
_MOST_CHARACTERS = 1_500
# Colours and cursor movements; each part is bounded, so that it takes linear time.
_ESCAPE_SEQUENCE = regex(r"\x1b(?:\[[0-9;?]{0,40}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,400}(?:\x07|\x1b\\)|[@-Z\\-_])")
_MOST_OUTPUT_LINES, _MOST_OUTPUT_CHARACTERS, _MOST_LINE_CHARACTERS = 60, 6_000, 500
_TEXTS = {"type": "array", "items": {"type": "string"}}
CRITIQUE_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "summary": {"type": "string"},
        "verdict": {"type": "string", "enum": ["PASS", "REWORK", "FAIL"]},
        "score": {"type": "integer", "minimum": 0, "maximum": 100},
        "blockers": _TEXTS,
        "fixes": _TEXTS,
        "confidence": {"type": "number"},
    },
    "required": ["summary", "verdict", "score", "blockers", "fixes"],
    "additionalProperties": False,
}


class GateTask(Struct, frozen=True, kw_only=True):
    """What a gate judges: what an attempt changed between `start_tree` and `tree`, without answers that we saved."""

    stage: str
    attempt: int
    workspace: Path
    requirements: str
    artifacts: tuple[str, ...]
    files_changed: tuple[str, ...]
    diff: str
    output: str
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
    """What a person decided, by an answer that was left or on a terminal; None when nobody did in time, or wants to."""
    if (found := take()) is not None:
        return found

    async def left() -> Approval:
        while (answer := take()) is None:  # noqa: ASYNC110 - it comes from another process
            await asyncio.sleep(poll_seconds)
        return answer

    waits: list[asyncio.Future[Approval | None]] = [asyncio.ensure_future(each()) for each in (ask, left) if each]
    try:
        # While a person sits before the question, no clock runs out on them.
        limit = timeout_seconds if ask is None else None
        done, _ = await asyncio.wait(waits, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        return next((answer for each in waits if each in done and (answer := each.result())), None) or take()
    finally:
        for each in waits:
            each.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


async def command_gate(gate: GateDefinition, task: GateTask) -> Critique:
    """PASS for exit code 0; else REWORK with the last output of the program, also when its time is over.

    No shell reads the command. The program runs in the workspace, in a session of its own; all that it starts is gone
    at its end or its deadline. It sees the search path, the home and the way to the network, and no credentials.
    Raises ProgramNotFound or another ProcessError when it cannot be started, which decides nothing.
    """
    # On the PATH, at an absolute path, or at a path below the workspace.
    name = gate.command[0] if gate.command else ""
    found = find_program(name if "/" not in name else str(task.workspace / name))
    if found is None:
        what = f"the command gate of {task.stage} cannot be run: there is no program {name}"
        hint = "install it, or name it by an absolute path or one below the workspace"
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
        stdout, stderr, seconds = error.stdout, error.stderr, gate.timeout_seconds
    else:
        stdout, stderr, seconds, code = completed.stdout, completed.stderr, completed.seconds, completed.exit_code
        how = "passed" if code == 0 else f"ended with exit code {code}" if code > 0 else f"was ended by signal {-code}"
    summary = last_output(f"{shown} {how}")
    critique = Critique(
        verdict=CriticVerdict.PASS, gate=GateKind.COMMAND, summary=summary, usage=Usage(duration_seconds=seconds)
    )
    if how == "passed":
        return critique
    output = [words for words in (last_output(stdout), last_output(stderr)) if words]
    return replace(
        critique,
        verdict=CriticVerdict.REWORK,
        blockers=tuple(f"{summary}; its last words:\n{words}" for words in output) or (f"{summary}, without a word",),
        fixes=(f"Change what was made so that this passes: {shown}",),
    )


def last_output(data: bytes | str) -> str:
    """The last lines of a program, without what a terminal would obey, and with secrets masked before any cut."""
    text = _ESCAPE_SEQUENCE.sub("", redact(data if isinstance(data, str) else data.decode("utf-8", "replace")))
    # Of a line that a program wrote over and over the last state counts.
    rows = (row.rstrip("\r").rpartition("\r")[2] for row in text.split("\n"))
    cut = (f"{row[:_MOST_LINE_CHARACTERS]} ..." if len(row) > _MOST_LINE_CHARACTERS else row for row in rows)
    words = "\n".join([terminal(row) for row in cut if row.strip()][-_MOST_OUTPUT_LINES:])
    return words if len(words) <= _MOST_OUTPUT_CHARACTERS else f"... {words[-_MOST_OUTPUT_CHARACTERS:]}"


async def review_gate(task: GateTask, review_of: Callable[[], Awaitable[Review]]) -> Critique:
    """PASS, or REWORK with the findings that block. Raises PipelineError when not everything could be reviewed."""
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
        what = f"the review of {task.stage} could not look at everything, which is no PASS: {why[:_MOST_CHARACTERS]}"
        hint = "mend that, then have the stage tried again; what was reviewed is not bought again"
        raise PipelineError(what, stage=task.stage, hint=hint)
    placed = [(f"{each.file}:{each.line_start}", each) for each in blocking]
    heads = [(f"[{each.severity.label}] {place}: {each.title}", each.body) for place, each in placed]
    return Critique(
        verdict=CriticVerdict.REWORK if blocking else CriticVerdict.PASS,
        gate=GateKind.REVIEW,
        score=score(review.findings),
        summary=review.summary,
        blockers=_some(f"{head}\n{body}" if body else head for head, body in heads),
        fixes=_some(f"{place}: {each.suggestion}" for place, each in placed if each.suggestion),
        usage=review.usage,
    )


def _some(texts: Iterable[str]) -> tuple[str, ...]:
    shown = [text[:_MOST_CHARACTERS] for text in texts]
    return (*shown[:50], f"and {len(shown) - 50:,} more") if len(shown) > 50 else tuple(shown)


async def critic_gate(gate: GateDefinition, task: GateTask, *, ask: AskCritic, can_read: bool) -> Critique:
    """The critique of an agent that reads what a stage made and answers PASS, REWORK or FAIL.

    `can_read` tells whether it has tools. An answer that cannot be understood is asked for once more; after that it is
    an error, never a PASS. Raises an AgentError, with the cost of all calls, or PipelineError for a bad step file.
    """
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
        labels={"stage": task.stage, "gate": "critic", "fence": fence, "prompt_version": f"critic {CRITIC_VERSION}"},
    )
    read, text, usage = await _heard(ask, question, Usage())
    if isinstance(read, str):
        # Other words, so that the ledger does not return the same answer again.
        again = f"{fenced(fence, 'problem', read)}\n\nAn earlier answer had this problem. Answer again, in short."
        read, text, usage = await _heard(ask, replace(question, prompt=f"{prompt}\n\n{again}"), usage)
    if isinstance(read, str):
        unclear = OutputInvalid(
            f"the critic's answer on attempt {task.attempt} of {task.stage} cannot be understood: {read}",
            agent="critic",
            hint="try again, or take another agent or model for the critic",
            output=text,
            attempts=0,
        )
        _add_cost(unclear, usage)
        raise unclear
    if read.verdict is CriticVerdict.PASS and read.score is not None and read.score < gate.min_score:
        why = f"it was said to pass, with a score of {read.score}, which is below {gate.min_score}"
        return replace(read, verdict=CriticVerdict.REWORK, blockers=(why,), usage=usage)
    return replace(read, usage=usage)


async def _heard(ask: AskCritic, request: AgentRequest, earlier: Usage) -> tuple[Critique | str, str, Usage]:
    """An answer as it was understood, its text, and what it cost with what was spent earlier."""
    try:
        result = await ask(request)
    except OutputInvalid as error:
        text, usage = error.output or error.raw_output, spent(error.attempts, error.cost_usd, error.usage)
        read = read_critique(text)
        is_cut = error.cut_off and isinstance(read, Critique)
        return TRUNCATED_JSON if is_cut else read, text, earlier.plus(usage)
    except AgentError as error:
        _add_cost(error, earlier)
        raise
    return read_critique(result.output, result.structured), result.output, earlier.plus(usage_of(result))


def _add_cost(error: AgentError, earlier: Usage) -> None:
    """Let an error tell of what was spent before it, too."""
    if not earlier.requests:
        return
    own = error.usage if isinstance(error.usage, TokenUsage) else TokenUsage()
    error.usage = TokenUsage(
        input_tokens=own.input_tokens + earlier.input_tokens,
        cached_tokens=own.cached_tokens,
        output_tokens=own.output_tokens + earlier.output_tokens,
    )
    error.attempts += earlier.requests
    if not earlier.unknown_costs:
        error.cost_usd = (error.cost_usd or 0.0) + earlier.cost_usd


def critic_prompt(gate: GateDefinition, task: GateTask, *, fence: str, can_read: bool) -> tuple[str, str]:
    """The instructions and the material for a critique of one attempt. Raises PipelineError for a bad step file."""
    step = gate.step
    judging = resource("critic") if step is None else read_text(step, "critic's step file", task.stage).strip()
    answer = resource("critic_answer").replace("{reading}", resource("reading_tree" if can_read else "reading_diff"))
    text = "\n\n".join((resource("critic_data").replace("{fence}", fence), *_material(task, fence)))
    return "\n\n".join(part for part in (judging, gate.prompt.strip(), answer) if part), text


def _material(task: GateTask, fence: str) -> Iterator[str]:
    yield fenced(fence, "requirements", cut(task.requirements, 200_000))
    if task.artifacts:
        yield fenced(fence, "artifacts", _names(task.artifacts))
    if task.files_changed:
        yield fenced(fence, "files changed", _names(task.files_changed))
    if task.output.strip():
        yield fenced(fence, "what the agent answered", cut(task.output, 100_000))
    earlier = []
    for number, critique in enumerate(task.earlier, start=1):
        points = "" if critique.score is None else f", score {critique.score}"
        lines = [f"{number}. {critique.verdict.value}{points}: {critique.summary}"]
        lines += [f"- blocker: {text}" for text in critique.blockers] + [f"- fix: {text}" for text in critique.fixes]
        earlier.append("\n".join(lines))
    if earlier:
        yield fenced(fence, "earlier critiques", cut("\n\n".join(earlier), 50_000))
    yield fenced(fence, "diff", cut(task.diff, 400_000) if task.diff.strip() else "(no file was changed)")


def _names(names: Sequence[str]) -> str:
    # A name may hold a line end, which would make two of it.
    lines = [name.replace("\n", "<U+000A>") for name in names[:2_000]]
    return "\n".join([*lines, f"[and {len(names) - 2_000:,} more]"] if len(names) > 2_000 else lines)


@cache
def resource(name: str) -> str:
    """One of our texts, as it was shipped."""
    return (Path(__file__).with_name("prompts") / f"{name}.md").read_text(encoding="utf-8").strip()
