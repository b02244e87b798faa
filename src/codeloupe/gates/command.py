"""The gate `command`: a program, such as tests or a linter, in the workspace of an attempt. Its exit code decides.

No shell reads the words. The program runs in a session of its own, with everything it starts, and all of that is gone
at its end or its deadline. It sees the search path, the home and the way to the network, and none of our credentials.
"""

from __future__ import annotations

from pathlib import Path

from codeloupe.errors import ProcessError, ProgramNotFound
from codeloupe.gates.program_output import last_words
from codeloupe.model.agent import Usage
from codeloupe.model.pipeline import CriticVerdict, Critique
from codeloupe.model.pipeline_definition import GateDefinition, GateKind
from codeloupe.model.ports import GateTask
from codeloupe.system.command import Command, Completed, find_program
from codeloupe.system.environment import program_environment
from codeloupe.system.streaming import StreamTimedOut, stream

_MAX_OUTPUT_BYTES = 1024 * 1024


async def command_gate(gate: GateDefinition, task: GateTask) -> Critique:
    """PASS for exit code 0; else REWORK with the last words of the program, also when its time is over.

    Raises ProgramNotFound or another ProcessError when it cannot be started, which decides nothing.
    """
    command = Command(
        argv=(_program(gate, task), *gate.command[1:]),
        cwd=task.workspace,
        environment=program_environment(settings={"CI": "1"}),
        timeout_seconds=gate.timeout_seconds,
        max_output_bytes=_MAX_OUTPUT_BYTES,
    )
    try:
        completed = await stream(command)
    except StreamTimedOut as error:
        how = f"did not finish within {gate.timeout_seconds:g} s"
        return _refused(gate, how, stdout=error.stdout, stderr=error.stderr, seconds=gate.timeout_seconds)
    if completed.exit_code == 0:
        usage = Usage(duration_seconds=completed.seconds)
        return Critique(verdict=CriticVerdict.PASS, gate=GateKind.COMMAND, summary=_named(gate, "passed"), usage=usage)
    return _refused(
        gate,
        _ending(completed),
        stdout=completed.stdout,
        stderr=completed.stderr,
        seconds=completed.seconds,
    )


def _program(gate: GateDefinition, task: GateTask) -> str:
    """Where the program is: on the PATH, at an absolute path, or at a path below the workspace."""
    if not gate.command or not gate.command[0]:
        raise ProcessError(
            f"the command gate of {task.stage} names no program", program="", hint="give its command as a list of words"
        )
    name = gate.command[0]
    place = name if "/" not in name else str(task.workspace / name)
    found = find_program(place)
    if found is None:
        raise ProgramNotFound(
            f"the command gate of {task.stage} cannot be run: there is no program {name}",
            program=Path(name).name,
            hint="install it, or name it by an absolute path or one below the workspace",
        )
    return found


def _ending(completed: Completed) -> str:
    code = completed.exit_code
    return f"ended with exit code {code}" if code > 0 else f"was ended by signal {-code}"


def _named(gate: GateDefinition, how: str) -> str:
    return last_words(f"{' '.join(gate.command)[:200]} {how}")


def _refused(gate: GateDefinition, how: str, *, stdout: bytes, stderr: str, seconds: float) -> Critique:
    summary = _named(gate, how)
    told = [words for words in (last_words(stdout), last_words(stderr)) if words]
    return Critique(
        verdict=CriticVerdict.REWORK,
        gate=GateKind.COMMAND,
        summary=summary,
        blockers=tuple(f"{summary}; its last words:\n{words}" for words in told) or (f"{summary}, without a word",),
        fixes=(f"Change what was made so that this passes: {' '.join(gate.command)[:200]}",),
        usage=Usage(duration_seconds=seconds),
    )
