"""Which model each reviewer of a run is asked for."""

from __future__ import annotations

import asyncio
from typing import Any

from codeloupe.config.schema import Settings
from codeloupe.engine.reviewers import choose_reviewers
from tests.rows import each


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
