"""What only the claude agents can: sessions that go on, a model to fall back to, and large answers. All for real."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from codeloupe.agents.claude.cli import ClaudeCliAgent
from codeloupe.agents.claude.sdk import AgentSdkAgent
from codeloupe.errors import InvalidRequest
from codeloupe.model.agent import AgentRequest, AgentResult, PermissionMode
from codeloupe.testing import StandInServer, Status, Text, ToolUse
from tests import agent_programs
from tests.agent_factories import asked_for, by_name, environment
from tests.repository import GitRepository

Made = Callable[[StandInServer], ClaudeCliAgent | AgentSdkAgent]


@pytest.fixture(params=[ClaudeCliAgent, AgentSdkAgent], ids=lambda kind: kind.name)
def made(request: pytest.FixtureRequest) -> Made:
    source, program = environment(by_name(request.param.name)), str(agent_programs.find("claude"))
    return lambda server: request.param(program, source, base_url=server.url, keep_sessions=True)


def answer(agent: ClaudeCliAgent | AgentSdkAgent, asked: AgentRequest) -> AgentResult:
    return asyncio.run(agent.run(asked, lambda _event: None))


# The other tests of sessions and of hostile settings try the same through the program.
@pytest.mark.soak
def test_a_session_that_was_kept_goes_on_and_a_fork_of_it_leaves_it_as_it_is(made: Made, tmp_path: Path) -> None:
    with StandInServer([Text("I shall."), Text("It is blue."), Text("Blue, too.")]) as server:
        agent = made(server)
        first = answer(agent, asked_for(tmp_path, "Remember the colour blue."))
        (kept,) = Path(os.environ["HOME"]).rglob(f"{first.session_id}.jsonl")
        second = answer(agent, asked_for(tmp_path, "Which colour?", resume_session=first.session_id))
        assert (second.output, second.session_id) == ("It is blue.", first.session_id)
        assert server.requests[-1].mentions("Remember the colour blue.")
        # The program tells the totals of the session; what was paid for before is not paid for again.
        assert first.total_cost_usd
        assert second.total_cost_usd == pytest.approx(first.total_cost_usd)
        assert second.usage == first.usage
        before = kept.read_bytes()
        fork = answer(agent, asked_for(tmp_path, "Which?", resume_session=first.session_id, fork_session=True))
        assert fork.output == "Blue, too."
        assert fork.session_id not in ("", first.session_id)
        assert server.requests[-1].mentions("Remember the colour blue.")
        assert kept.read_bytes() == before


def test_a_session_that_is_not_there_is_told_as_such(made: Made, tmp_path: Path) -> None:
    unknown = "99999999-2222-4333-8444-555555555555"
    with StandInServer() as server, pytest.raises(InvalidRequest, match="does not know the session"):
        answer(made(server), asked_for(tmp_path, resume_session=unknown))


@pytest.mark.defect("X1")
def test_a_command_of_the_model_finds_the_git_that_is_hidden_from_the_program(
    made: Made, repository: GitRepository
) -> None:
    repository.commit_files({"a.py": "x = 1\n"}, "The only commit")
    command = {"command": "git log --oneline", "description": "look"}
    with StandInServer([ToolUse("Bash", command), Text("I see.")]) as server:
        asked = asked_for(repository.path, tools=("Bash(git log:*)",), permission_mode=PermissionMode.ACCEPT_EDITS)
        assert answer(made(server), asked).output == "I see."
        assert server.requests[-1].mentions("The only commit")


def test_an_overloaded_model_gives_way_to_the_one_to_fall_back_to(made: Made, tmp_path: Path) -> None:
    overloaded = [Status(529)] * 3
    with StandInServer([*overloaded, Text("Here I am.")]) as server:
        asked = asked_for(tmp_path, model="claude-opus-5-5", fallback_model="claude-haiku-4-5")
        result = answer(made(server), asked)
    assert (result.output, result.model) == ("Here I am.", "claude-haiku-4-5")
    assert "switched from the model claude-opus-5-5 to claude-haiku-4-5" in result.notes[0]


def test_an_answer_of_two_megabytes_comes_back_whole(made: Made, tmp_path: Path) -> None:
    long = "".join(f"{number:07} ünd weiter\n" for number in range(100_000))
    with StandInServer([Text(long)]) as server:
        assert answer(made(server), asked_for(tmp_path)).output.strip() == long.strip()
