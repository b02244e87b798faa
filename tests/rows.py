"""Tables in tests: one test for all rows, that names every row which fails."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import wraps
from itertools import count
from typing import Any

import pytest

from tests.repository import GitRepository

_copies = count()


def every_row(
    columns: str | Sequence[str], rows: Iterable[Any], *, ids: Sequence[str] | Callable[[Any], Any] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test once for each row, as `pytest.mark.parametrize` does, within one test.

    Each row gets a `tmp_path`, a `monkeypatch` and a copy of each repository of its own; other fixtures are shared.
    """
    names = [columns] if isinstance(columns, str) and "," not in columns else columns
    names = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    table = [row if len(names) > 1 else (row,) for row in rows]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)
        kept = [parameter for name, parameter in signature.parameters.items() if name not in names]

        @wraps(test)
        def whole(*self: Any, **fixtures: Any) -> None:
            failures: list[str] = []
            for number, row in enumerate(table):
                with ExitStack() as stack:
                    values = {**_own(fixtures, number, stack), **dict(zip(names, row, strict=True))}
                    try:
                        test(*self, **values)
                    except (Exception, pytest.fail.Exception):  # noqa: BLE001 - told below, with all others
                        name = row if ids is None or callable(ids) else ids[number]
                        failures.append(f"row {name!r}:\n{traceback.format_exc(limit=-4)}")
            # A row may hold what cannot be written to a log.
            assert not failures, "\n".join(failures).encode("ascii", "backslashreplace").decode("ascii")

        vars(whole)["__signature__"] = signature.replace(parameters=kept)
        del vars(whole)["__wrapped__"]
        return whole

    return decorate


def _own(fixtures: dict[str, Any], number: int, stack: ExitStack) -> dict[str, Any]:
    own = dict(fixtures)
    for name, value in fixtures.items():
        if isinstance(value, GitRepository):
            own[name] = value.copied_to(value.path.with_name(f"{value.path.name}-{next(_copies)}"))
        elif name == "tmp_path":
            own[name] = value / f"row-{number}"
            own[name].mkdir()
        elif name == "monkeypatch":
            own[name] = stack.enter_context(pytest.MonkeyPatch.context())
    return own
