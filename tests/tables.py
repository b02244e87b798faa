"""A table of cases as one test: every row is tried, and each that fails is reported by its values."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

Check = Callable[..., None]


def for_each_row(
    names: str | Sequence[str], rows: Iterable[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """As `pytest.mark.parametrize`, in one item. Each row has a `tmp_path` of its own.

    Other fixtures are shared by all rows, so a row must leave them as they are; where it cannot, parametrise.
    """
    wanted = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    table = [row if len(wanted) > 1 else (row,) for row in rows]

    def decorate(check: Check) -> Check:
        signature = inspect.signature(check)
        others = [parameter for name, parameter in signature.parameters.items() if name not in wanted]
        needs_subtests = "subtests" not in signature.parameters

        @functools.wraps(check)
        def test(*arguments: Any, **fixtures: Any) -> None:
            subtests = fixtures.pop("subtests") if needs_subtests else fixtures["subtests"]
            top = fixtures.get("tmp_path")
            for number, row in enumerate(table):
                if top is not None:
                    fixtures["tmp_path"] = top / str(number)
                    fixtures["tmp_path"].mkdir()
                case = dict(zip(wanted, row, strict=True))
                with subtests.test(**{name: repr(value)[:200] for name, value in case.items()}):
                    check(*arguments, **case, **fixtures)

        more = [inspect.Parameter("subtests", inspect.Parameter.POSITIONAL_OR_KEYWORD)] if needs_subtests else []
        test.__signature__ = signature.replace(parameters=[*others, *more])  # type: ignore[attr-defined]
        return test

    return decorate
