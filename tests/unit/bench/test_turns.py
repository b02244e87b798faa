"""Programs measured by turns."""

import sys
from pathlib import Path

import pytest

from bench.turns import Contender, least_costs


@pytest.mark.program
def test_contenders_alternate_and_each_has_its_own_cost(tmp_path: Path) -> None:
    def writing(name: str) -> Contender:
        code = f"print({name!r}, file=open('order', 'a'))"
        return Contender([[sys.executable, "-IS", "-c", code]], tmp_path)

    costs = least_costs([writing("one"), writing("two")], turns=2)
    assert (tmp_path / "order").read_text(encoding="utf-8").split() == ["one", "two", "one", "two"]
    assert all(cost.wall_seconds > 0 for cost in costs)
    assert all(cost.cpu_seconds > 0 for cost in costs)


@pytest.mark.program
def test_a_failure_of_a_contender_is_an_error_with_its_words(tmp_path: Path) -> None:
    failing = Contender([[sys.executable, "-IS", "-c", "raise SystemExit('no such rule')"]], tmp_path, expected=(0,))
    with pytest.raises(RuntimeError, match="ended with 1: no such rule"):
        least_costs([failing], turns=1)
