"""Inputs that once broke a reader or a report, or reach a rare line of one: `kept_inputs/<what>/*.input`."""

import traceback
from collections.abc import Callable
from pathlib import Path

_FOLDER = Path(__file__).with_name("kept_inputs")


def broken_by_kept_inputs(what: str, check: Callable[[bytes], object]) -> dict[str, str]:
    """Run a check on each kept input. Return how it ended, for those it raised for."""
    files = sorted((_FOLDER / what).glob("*.input"))
    assert len(files) > 5
    broken = {}
    for file in files:
        try:
            check(file.read_bytes())
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what the test looks for
            place = traceback.extract_tb(error.__traceback__)[-1]
            broken[file.name] = f"{place.filename}:{place.lineno}: {error!r}"
    return broken
