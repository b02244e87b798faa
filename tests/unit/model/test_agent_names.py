"""The table of agents is the list of names that settings take."""

from __future__ import annotations

from typing import get_args

from codeloupe.model.agent import AGENT_NAMES, REVIEWER_NAMES, AgentName, ReviewerName


def test_the_table_has_every_name_that_a_type_checker_knows() -> None:
    assert get_args(AgentName) == AGENT_NAMES
    assert set(REVIEWER_NAMES) == {name for part in get_args(ReviewerName) for name in (get_args(part) or (part,))}
