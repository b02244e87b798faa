"""A model that is named for a chain of agents is the first one's, and nobody else's by mistake."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from codeloupe.agents.calls.caller import AgentCaller
from codeloupe.errors import NotInstalled
from codeloupe.model.agent import AgentRequest, AgentResult
from codeloupe.model.ports import Agent
from codeloupe.store.database import Database
from codeloupe.store.ledger import SqliteLedger
from codeloupe.testing.agent import ScriptedAgent
from tests.unit.agents.call_samples import request, result


def missing(name: str) -> ScriptedAgent:
    return ScriptedAgent([NotInstalled("not here", agent=name)], name=name)


def ask(first: str, second: str, asked: AgentRequest) -> tuple[AgentRequest, AgentResult]:
    """What reached the second agent of a chain whose first one is not here, and the answer."""
    agents = [missing(first), ScriptedAgent([result()], name=second)]
    answer = asyncio.run(AgentCaller().call(asked, agent=agents, emit=lambda _event: None))
    assert agents[0].requests[0].model == asked.model
    return agents[1].requests[0], answer


@pytest.mark.parametrize(("first", "second"), [("agent_sdk", "claude_cli"), ("claude_cli", "agent_sdk")])
def test_an_agent_of_the_same_vendor_is_asked_for_it_too(first: str, second: str) -> None:
    reached, answer = ask(first, second, request(model="opus", fallback_model="haiku"))
    assert (reached.model, reached.fallback_model) == ("opus", "haiku")
    assert answer.notes == (f"{first} was not used: not here",)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("agent_sdk", "codex"),
        ("claude_cli", "gemini"),
        ("codex", "claude_cli"),
        ("claude_cli", "api"),
        ("api", "codex"),
    ],
)
def test_one_of_another_vendor_is_asked_for_its_own_and_the_result_says_so(first: str, second: str) -> None:
    reached, answer = ask(first, second, request(model="opus", fallback_model="haiku"))
    assert (reached.model, reached.fallback_model) == (None, None)
    assert answer.notes == (
        f"{first} was not used: not here",
        f"{second} was asked for its own default model, not for opus or haiku, which was meant for {first}",
    )


def test_without_a_model_there_is_nothing_to_say() -> None:
    reached, answer = ask("agent_sdk", "codex", request())
    assert reached.model is None
    assert answer.notes == ("agent_sdk was not used: not here",)


def test_the_answer_is_kept_under_what_was_asked_and_without_the_note(tmp_path: Path) -> None:
    keys: list[tuple[str | None, str]] = []
    ledger = SqliteLedger(Database(tmp_path / "ledger"))

    def key_of(asked: AgentRequest, agent: Agent) -> str:
        keys.append((asked.model, agent.name))
        return f"{agent.name} {asked.model}"

    caller = AgentCaller(ledger=ledger, key_of=key_of)
    agents = [missing("agent_sdk"), ScriptedAgent([result()], name="codex")]
    asyncio.run(caller.call(request(model="opus"), agent=agents, emit=lambda _event: None))
    assert keys == [("opus", "agent_sdk"), (None, "codex")]
    kept = ledger.get("codex None")
    assert kept is not None
    assert kept.notes == ()
