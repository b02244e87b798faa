"""A table of cases as one test: `@each("text", [...])` where pytest's `parametrize` would make an item of every row."""

import inspect
import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.guards import set_home

_numbers = itertools.count()


def each(names: str | Sequence[str], rows: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test for every row; it fails with all rows that fail.

    A row has its own `tmp_path`, `monkeypatch` and home; the other fixtures are shared by all rows.
    """
    named = tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else tuple(names)
    table = [tuple(row) if len(named) > 1 else (row,) for row in rows]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)
        left = [parameter for name, parameter in signature.parameters.items() if name not in named]

        def looped(*instance: object, **fixtures: Any) -> None:
            assert table, "there is no row"
            given = [dict(zip(named, row, strict=True)) for row in table]
            failures = [failure for row in given if (failure := _failure(test, instance, row, fixtures))]
            if failures:
                raise ExceptionGroup(f"{len(failures)} of {len(table)} rows", failures)

        looped.__name__, looped.__qualname__, looped.__doc__ = test.__name__, test.__qualname__, test.__doc__
        looped.__module__ = test.__module__
        looped.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]  # pytest reads it
        looped.pytestmark = list(getattr(test, "pytestmark", ()))  # type: ignore[attr-defined]  # as above
        return looped

    return decorate


def _failure(
    test: Callable[..., None], instance: tuple[object, ...], row: dict[str, Any], fixtures: dict[str, Any]
) -> Exception | None:
    with pytest.MonkeyPatch.context() as patch:
        own = {**fixtures, "monkeypatch": patch} if "monkeypatch" in fixtures else dict(fixtures)
        if (home := Path(os.environ["HOME"])).is_dir():
            set_home(patch, home / f"row{next(_numbers)}")
        if isinstance(folder := own.get("tmp_path"), Path):
            own["tmp_path"] = folder / f"row{next(_numbers)}"
            own["tmp_path"].mkdir()
        try:
            test(*instance, **row, **own)
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - told with those of the other rows
            error.add_note(f"in the row {ascii(row)[:400]}")
            return error if isinstance(error, Exception) else AssertionError(str(error))
    return None
