import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from codeloupe.config.schema import Settings
from codeloupe.engine.ask import AgentReviewer
from codeloupe.engine.calls import AgentCalls
from codeloupe.engine.choose import ANALYSERS, ChosenReviewer, Reviewers, choose_reviewers, default_analysers
from codeloupe.engine.verify import AbsentVerifier, AgentVerifier
from codeloupe.model.agent import AgentLimits
from codeloupe.model.ports import Reviewer
from codeloupe.model.review import ReviewerInfo
from codeloupe.testing import ScriptedAgent
from tests.rows import each

READS = AgentLimits(schema=True, tools=True)
READS_NOTHING = AgentLimits(schema=True)


def chosen(**settings: Any) -> tuple[ChosenReviewer, ...]:
    return asyncio.run(choose_reviewers(Settings(**settings)))


def team(seats: Sequence[ChosenReviewer], root: Path, **settings: Any) -> Reviewers:
    return Reviewers(seats, Settings(**settings), AgentCalls(), repo=root)


def scripted(name: str, limits: AgentLimits = READS) -> ChosenReviewer:
    return ChosenReviewer(ReviewerInfo(name, "for a test"), (ScriptedAgent(name=name, limits=limits),))


def options_of(reviewer: Reviewer) -> AgentReviewer:
    agent = getattr(reviewer, "reviewer", reviewer)  # it may have the secrets analyser beside it
    assert isinstance(agent, AgentReviewer)
    return agent


@pytest.fixture
def logged_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "made-up-" + "for-tests")


def test_auto_takes_the_first_agent_that_can_be_used_and_says_who_was_passed_over(logged_in: None) -> None:
    [one] = chosen(agents=("codex", "api", "gemini"), codex_path="/nowhere/codex", api_model="anthropic:some")
    assert (one.info.type, one.info.model) == ("api", "anthropic:some")
    assert "codex is not installed" in one.info.why
    assert [agent.name for agent in one.agents] == ["api", "gemini"]
    [one] = chosen(agents=("codex", "gemini", "api"), codex_path="/nowhere/codex", gemini_path="/nowhere/gemini")
    assert (one.info.type, one.agents, one.reads_tree) == ("offline", (), False)
    assert "codex and gemini are not installed, api is without a model" in one.info.why


def test_the_names_of_the_analysers_are_those_that_run() -> None:
    assert tuple(analyser.name for analyser in default_analysers()) == ANALYSERS


@each(
    ("settings", "expected"),
    [
        ({"reviewers": ("codex", "offline", "api")}, ["codex", "offline", "api"]),
        ({"reviewer_type": "gemini", "reviewers": ("codex",)}, ["codex"]),
        ({"lanes": ("offline",)}, ["offline"]),
        ({"lanes": ("offline", "agent"), "reviewer_type": "codex"}, ["codex", "offline"]),
        ({"lanes": ("offline", "agent"), "reviewer_type": "offline"}, ["offline"]),
        ({"lanes": ("agent",), "reviewer_type": "codex"}, ["codex"]),
        ({"lanes": ("offline", "agent"), "agents": ("codex",), "codex_path": "/nowhere/codex"}, ["offline"]),
    ],
)
def test_reviewers_come_in_their_order_with_the_analysers_beside_them_and_never_twice(
    settings: dict[str, Any], expected: list[str]
) -> None:
    assert [one.info.type for one in chosen(**settings)] == expected


@pytest.mark.requirement("V4")
def test_the_settings_reach_the_reviewer_and_the_sdk_has_a_model_and_a_time_limit_of_its_own(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "reviewers": ("agent_sdk", "codex"),
        "agent_sdk_reviewer_model": "special",
        "agent_sdk_review_timeout": 77,
        "review_timeout_seconds": 88,
        "experts": ("security", "tests"),
        "passes": 3,
        "concurrency": 100,
    }
    options = [options_of(reviewer) for reviewer in team(chosen(**settings), tmp_path, **settings).make()]
    assert [(one.calls.model, one.calls.timeout_seconds) for one in options] == [("special", 77), (None, 88)]
    assert [expert.name for expert in options[0].experts] == ["security", "tests"]
    assert (options[0].apart, options[0].passes, options[0].units_at_once) == (True, 3, 100)


@each(
    ("seats", "settings", "expected"),
    [
        ([scripted("one", READS_NOTHING)], {}, AbsentVerifier),
        ([scripted("one")], {"verify": False}, type(None)),
        ([scripted("one")], {}, AgentVerifier),
        ([scripted("one", READS_NOTHING), scripted("two")], {}, AgentVerifier),
        ([ChosenReviewer(ReviewerInfo("offline", ""))], {}, type(None)),
    ],
)
def test_only_an_agent_that_can_read_the_code_verifies(
    tmp_path: Path, seats: list[ChosenReviewer], settings: dict[str, Any], expected: type
) -> None:
    assert type(team(seats, tmp_path, **settings).verifier()) is expected


def models(**settings: Any) -> dict[str, tuple[str | None, str]]:
    """The model of each reviewer, and why it was chosen."""
    return {one.info.type: (one.info.model, one.info.why) for one in chosen(**settings)}


def test_a_named_model_goes_to_the_first_reviewer_with_an_agent_and_to_those_of_its_vendor() -> None:
    found = models(reviewers=("claude_cli", "agent_sdk", "codex", "gemini"), model="opus")
    assert found["claude_cli"] == found["agent_sdk"] == ("opus", "as requested")
    other = "as requested; uses its own default model, since opus is meant for claude_cli"
    assert found["codex"] == found["gemini"] == (None, other)
    # The first that asks a model, and not the first reviewer.
    assert models(reviewers=("offline", "codex"), model="gpt-5")["codex"] == ("gpt-5", "as requested")


@each(("named", "why"), [(None, "as requested"), ("gpt-5", "since gpt-5 is meant for codex")])
def test_a_reviewer_keeps_the_model_that_the_settings_have_for_it_alone(named: str | None, why: str) -> None:
    own = {"api_model": "openai:small", "agent_sdk_reviewer_model": "haiku"}
    found = models(reviewers=("codex", "api", "agent_sdk"), model=named, **own)
    assert (found["api"][0], found["agent_sdk"][0]) == ("openai:small", "haiku")
    assert why in found["api"][1]
