from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from codeloupe.config.schema import Settings
from codeloupe.engine.calls import AgentCalls
from codeloupe.engine.choose import ChosenReviewer, Reviewers, choose_reviewers, experts_of
from codeloupe.engine.reviewer import AgentReviewer, AgentReviewOptions
from codeloupe.engine.verify import AbsentVerifier, AgentVerifier
from codeloupe.errors import ConfigError
from codeloupe.model.agent import AgentLimits
from codeloupe.model.ports import Reviewer
from codeloupe.model.review import ReviewerInfo
from codeloupe.testing import ScriptedAgent
from tests.rows import each

READS = AgentLimits(schema=True, tools=True)
READS_NOTHING = AgentLimits(schema=True)


def chosen(**settings: Any) -> tuple[ChosenReviewer, ...]:
    return asyncio.run(choose_reviewers(Settings(**settings)))


def types(seats: Sequence[ChosenReviewer]) -> list[str]:
    return [seat.info.type for seat in seats]


def scripted(name: str, limits: AgentLimits = READS) -> ChosenReviewer:
    return ChosenReviewer(ReviewerInfo(name, "for a test"), (ScriptedAgent(name=name, limits=limits),))


def options_of(reviewer: Reviewer) -> AgentReviewOptions:
    agent = getattr(reviewer, "reviewer", reviewer)  # it may have the secrets analyser beside it
    assert isinstance(agent, AgentReviewer)
    return agent.options


@pytest.fixture
def logged_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "made-up-" + "for-tests")


def test_auto_takes_the_first_agent_that_can_be_used_and_says_who_was_passed_over(logged_in: None) -> None:
    [seat] = chosen(agents=("codex", "api", "gemini"), codex_path="/nowhere/codex", api_model="anthropic:some")
    assert seat.info.type == "api"
    assert seat.info.model == "anthropic:some"
    assert "codex is not installed" in seat.info.why
    assert [agent.name for agent in seat.agents] == ["api", "gemini"]


def test_without_any_agent_it_is_offline_and_says_why_for_each() -> None:
    [seat] = chosen(agents=("codex", "gemini"), codex_path="/nowhere/codex", gemini_path="/nowhere/gemini")
    assert (seat.info.type, seat.agents, seat.reads_tree) == ("offline", (), False)
    assert "codex and gemini are not installed" in seat.info.why


def test_an_api_without_a_model_is_passed_over_unless_a_model_is_named(logged_in: None) -> None:
    [seat] = chosen(agents=("codex", "api"), codex_path="/nowhere/codex")
    assert seat.info.type == "offline"
    assert "codex is not installed, api is without a model" in seat.info.why
    [named] = chosen(agents=("api",), model="anthropic:some")
    assert (named.info.type, named.info.model) == ("api", "anthropic:some")
    [unknown] = chosen(agents=("api",), model="sonnet")
    assert unknown.info.type == "offline"


def test_several_reviewers_sit_in_their_order() -> None:
    assert types(chosen(reviewers=("codex", "offline", "api"))) == ["codex", "offline", "api"]


def test_reviewers_take_the_place_of_the_reviewer_type() -> None:
    assert types(chosen(reviewer_type="gemini", reviewers=("codex",))) == ["codex"]


@each(
    ("settings", "expected"),
    [
        ({"lanes": ("offline",)}, ["offline"]),
        ({"lanes": ("offline", "agent"), "reviewer_type": "codex"}, ["codex", "offline"]),
        ({"lanes": ("offline", "agent"), "reviewer_type": "offline"}, ["offline"]),
        ({"lanes": ("agent",), "reviewer_type": "codex"}, ["codex"]),
        ({"lanes": ("offline", "agent"), "agents": ("codex",), "codex_path": "/nowhere/codex"}, ["offline"]),
    ],
)
def test_lanes_put_the_analysers_beside_the_agents_and_never_twice(
    settings: dict[str, Any], expected: list[str]
) -> None:
    assert types(chosen(**settings)) == expected


@pytest.mark.requirement("V4")
def test_the_sdk_has_a_model_and_a_time_limit_of_its_own(tmp_path: Path) -> None:
    settings = Settings(
        reviewers=("agent_sdk", "codex"),
        agent_sdk_reviewer_model="special",
        agent_sdk_review_timeout=77,
        review_timeout_seconds=88,
    )
    seats = asyncio.run(choose_reviewers(settings))
    assert [seat.info.model for seat in seats] == ["special", None]
    team = Reviewers(seats, settings, AgentCalls(), repo=tmp_path)
    options = [options_of(reviewer) for reviewer in team.make()]
    assert [(one.calls.model, one.calls.timeout_seconds) for one in options] == [("special", 77), (None, 88)]


def test_the_settings_reach_the_reviewer(tmp_path: Path) -> None:
    settings = Settings(experts=("security", "tests"), passes=3, concurrency=100)
    team = Reviewers([scripted("one")], settings, AgentCalls(), repo=tmp_path)
    [reviewer] = team.make()
    options = options_of(reviewer)
    assert [expert.name for expert in options.experts] == ["security", "tests"]
    assert (options.apart, options.passes, options.units_at_once) == (True, 3, 100)


@each(
    ("seats", "settings", "expected"),
    [
        ([scripted("one", READS_NOTHING)], {}, False),
        ([scripted("one")], {"verify": False}, False),
        ([scripted("one")], {}, True),
        ([scripted("one", READS_NOTHING), scripted("two")], {}, True),
        ([ChosenReviewer(ReviewerInfo("offline", ""))], {}, False),
    ],
)
def test_only_an_agent_that_can_read_the_code_verifies(
    tmp_path: Path, seats: list[ChosenReviewer], settings: dict[str, Any], expected: bool
) -> None:
    team = Reviewers(seats, Settings(**settings), AgentCalls(), repo=tmp_path)
    assert isinstance(team.verifier(), AgentVerifier) is expected


def test_a_command_reviewer_without_a_command_is_a_mistake_in_the_settings(tmp_path: Path) -> None:
    settings = Settings(reviewer_type="command")
    seats = asyncio.run(choose_reviewers(settings))
    team = Reviewers(seats, settings, AgentCalls(), repo=tmp_path)
    with pytest.raises(ConfigError, match="review_command"):
        team.make()


def test_an_unknown_expert_is_a_mistake_in_the_settings() -> None:
    with pytest.raises(ConfigError, match="astrology"):
        experts_of(Settings(experts=("astrology",)))


def test_a_model_is_asked_for_from_the_first_agent_and_who_it_is_not_meant_for_says_so() -> None:
    seats = chosen(reviewers=("codex", "gemini"), model="some-model")
    assert [seat.info.model for seat in seats] == ["some-model", None]
    assert "some-model is meant for codex" in seats[1].info.why


def test_agents_that_cannot_read_the_code_leave_a_word_in_the_place_of_a_verifier(tmp_path: Path) -> None:
    team = Reviewers([scripted("one", READS_NOTHING)], Settings(), AgentCalls(), repo=tmp_path)
    assert isinstance(team.verifier(), AbsentVerifier)


def models(**settings: Any) -> dict[str, tuple[str | None, str]]:
    """The model of each reviewer, and why it sits there."""
    seats = asyncio.run(choose_reviewers(Settings(**settings)))
    return {seat.info.type: (seat.info.model, seat.info.why) for seat in seats}


def test_a_named_model_goes_to_the_first_reviewer_and_to_those_of_its_vendor() -> None:
    found = models(reviewers=("claude_cli", "agent_sdk", "codex", "gemini"), model="opus")
    assert found["claude_cli"] == ("opus", "as requested")
    assert found["agent_sdk"] == ("opus", "as requested")
    told = "as requested; uses its own default model, since opus is meant for claude_cli"
    assert found["codex"] == found["gemini"] == (None, told)


def test_a_reviewer_that_asks_no_model_is_not_the_one_that_a_model_is_meant_for() -> None:
    found = models(reviewers=("offline", "codex"), model="gpt-5")
    assert found["codex"] == ("gpt-5", "as requested")
    assert found["offline"][0] is None


@each(("named", "why"), [(None, "as requested"), ("gpt-5", "since gpt-5 is meant for codex")])
def test_a_reviewer_keeps_the_model_that_the_settings_have_for_it_alone(named: str | None, why: str) -> None:
    own = {"api_model": "openai:small", "agent_sdk_reviewer_model": "haiku"}
    found = models(reviewers=("codex", "api", "agent_sdk"), model=named, **own)
    assert (found["api"][0], found["agent_sdk"][0]) == ("openai:small", "haiku")
    assert why in found["api"][1]


def test_without_a_named_model_nothing_is_told_of_models() -> None:
    assert set(models(reviewers=("agent_sdk", "codex")).values()) == {(None, "as requested")}
