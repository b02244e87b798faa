"""A table of cases as one test: `@each("text", [...])` where pytest's `parametrize` would make an item of every row."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest


def each(names: str | Sequence[str], rows: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test for every row; it fails with all rows that fail.

    A row has its own `tmp_path` and `monkeypatch`; the other fixtures are shared by all rows.
    """
    named = tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else tuple(names)
    table = [tuple(row) if len(named) > 1 else (row,) for row in rows]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)
        left = [parameter for name, parameter in signature.parameters.items() if name not in named]

        def looped(*instance: object, **fixtures: Any) -> None:
            assert table, "there is no row"
            failures: list[Exception] = []
            for number, row in enumerate(table):
                with pytest.MonkeyPatch.context() as patch:
                    own = {**fixtures, "monkeypatch": patch} if "monkeypatch" in fixtures else dict(fixtures)
                    if isinstance(folder := own.get("tmp_path"), Path):
                        own["tmp_path"] = folder / f"row{number}"
                        own["tmp_path"].mkdir()
                    try:
                        test(*instance, **dict(zip(named, row, strict=True)), **own)
                    except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - told with those of other rows
                        error.add_note(f"in the row {ascii(row)[:400]}")
                        failures.append(error if isinstance(error, Exception) else AssertionError(str(error)))
            if failures:
                raise ExceptionGroup(f"{len(failures)} of {len(table)} rows", failures)

        for name in ("__name__", "__qualname__", "__module__", "__doc__"):
            setattr(looped, name, getattr(test, name))
        looped.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]  # pytest reads it
        looped.pytestmark = list(getattr(test, "pytestmark", ()))  # type: ignore[attr-defined]  # as above
        return looped

    return decorate
