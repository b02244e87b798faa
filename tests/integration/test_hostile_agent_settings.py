"""A repository that tries to take over whatever agent works in it: nothing of it runs, leads away, or is told."""

import subprocess
from pathlib import Path

import pytest

from codeloupe.model.agent import ToolUsed
from codeloupe.testing import Reply, StandInServer, Text
from tests import agent_programs
from tests.agent_factories import AGENTS, AgentFactory, Stage, asked_for, environment
from tests.hostile_agent_files import CANARY, hostile
from tests.rows import each

# As a diff does by chance, it names files, skills and agents in the ways in which programs are told to load them.
PROMPT = "Look at a.py, $hello, $hello-too, /hello, @AGENTS.md, @GEMINI.md, @.gemini and @reviewer."


# The other tests of sessions and of hostile settings try the same through the program.
@pytest.mark.soak
@each("factory", AGENTS)
def test_a_hostile_repository_neither_runs_nor_leads_nor_speaks(factory: AgentFactory, tmp_path: Path) -> None:
    replies: list[Reply] = [Text("Done.")]
    with hostile(tmp_path / "outer") as trap:
        if factory.read is not None:
            # Some programs look for instructions beside a file when it is read.
            replies = [factory.read(trap.path / "a.py"), *replies]
        with StandInServer(replies) as server:
            stage = Stage(factory.make(server.url, environment(factory)), server)
            assert stage.answer(asked_for(trap.path, PROMPT)).output == "Done."
            assert trap.sprung() == []
            assert not stage.sent(CANARY)
            assert stage.calls == len(replies)
        assert len([event for event in stage.events if isinstance(event, ToolUsed)]) == len(replies) - 1
        assert trap.repository.git("status", "--porcelain") == b""


TRAPPED = {factory.plain_command[0]: factory for factory in AGENTS if factory.plain_command}


@pytest.mark.parametrize(
    "factory",
    [pytest.param(each, id=name, marks=pytest.mark.soak if name == "gemini" else ()) for name, each in TRAPPED.items()],
)
def test_the_same_repository_takes_over_a_program_that_is_started_without_care(
    factory: AgentFactory, tmp_path: Path
) -> None:
    program, *arguments = factory.plain_command
    with hostile(tmp_path / "outer") as trap, StandInServer([Text("Done.")]) as server:
        own = {**environment(factory), "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
        address = {factory.address_variable: server.url} if factory.address_variable else {}
        subprocess.run(
            (agent_programs.find(program), *(argument.replace("URL", server.url) for argument in arguments)),
            cwd=trap.path,
            env={**own, **address, **factory.plain_environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=50,
            check=False,
        )
        sprung = trap.sprung()
        heard = [request for request in (*trap.foreign.requests, *server.requests) if request.mentions(CANARY)]
    assert sprung, "the trap does not spring, so it proves nothing"
    assert heard, "the canary does not sing, so it proves nothing"
