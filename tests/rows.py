"""Tables in tests: one test runs every row, and a failure names each row that failed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def rows(names: str | tuple[str, ...], table: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run the test for each row of a table, as `pytest.mark.parametrize` would, but as one item.

    Each row gets a `tmp_path` of its own; other fixtures are shared by all of them.
    """
    keys = (names,) if isinstance(names, str) else names
    cases = list(table)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        def run(*instance: Any, **fixtures: Any) -> None:
            failures = []
            for number, row in enumerate(cases):
                given = dict(zip(keys, (row,) if isinstance(names, str) else row, strict=True))
                if "tmp_path" in fixtures:
                    given["tmp_path"] = fixtures["tmp_path"] / f"row-{number}"
                    given["tmp_path"].mkdir()
                try:
                    test(*instance, **{**fixtures, **given})
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - whatever it is, it is told
                    failures.append(f"row {number} {row!r:.300}: {type(error).__name__}: {error}")
            assert failures == [], "\n".join(failures)

        taken = inspect.signature(test)
        run.__signature__ = taken.replace(  # type: ignore[attr-defined]  # pytest asks it which fixtures are wanted
            parameters=[each for name, each in taken.parameters.items() if name not in keys]
        )
        for name in ("__name__", "__qualname__", "__module__", "__doc__"):
            setattr(run, name, getattr(test, name))
        run.pytestmark = getattr(test, "pytestmark", [])  # type: ignore[attr-defined]  # the marks of the test
        return run

    return decorate
