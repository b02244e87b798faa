"""The estimate of the rest: the mean of the finished units times the units left, from the third finished unit on."""

import pytest

from codeloupe.cli.pace import Pace
from codeloupe.model.agent import AgentFinished
from tests.rows import each

pytestmark = pytest.mark.defect("E24")


def call(cost: float | None, *, from_ledger: bool = False) -> AgentFinished:
    return AgentFinished("codex", success=True, attempts=1, duration_ms=5, cost_usd=cost, from_ledger=from_ledger)


def pace(finished: int, *calls: AgentFinished) -> Pace:
    """A pace that began at 100 s."""
    made = Pace(10.0)
    made.begin(100.0)
    for one in calls:
        made.take_call(one)
    for _ in range(finished):
        made.take_unit()
    made.begin(500.0)
    return made


@each(
    ("finished", "costs", "units", "seconds", "words"),
    [
        (2, [0.1], 9, 30.0, ""),
        (3, [], 0, 30.0, ""),
        (3, [], -1, 30.0, ""),
        (3, [], 1, 0.0, "about 1 s left"),
        (3, [], 2, 30.0, "about 20 s left"),
        (3, [0.5, 0.5, 0.5], 2, 30.0, "about 20 s and $1.00 left"),
        (4, [0.5, None, 0.5, 0.5], 2, 30.0, "about 15 s left"),
        (3, [], 10, 33.0, "about 1 min 50 s left"),
        (3, [], 1_000, 33.0, "about 3 h 3 min left"),
    ],
)
def test_the_rest_is_the_mean_times_the_units_left(
    finished: int, costs: list[float | None], units: int, seconds: float, words: str
) -> None:
    assert pace(finished, *map(call, costs)).left(units, 100.0 + seconds) == words


def test_answers_from_the_ledger_cost_nothing() -> None:
    made = pace(3, call(0.6), call(0.0, from_ledger=True), call(None, from_ledger=True))
    assert (made.spent, made.left(1, 103.0)) == (0.6, "about 1 s and $0.20 left")
