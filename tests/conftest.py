"""Shared fixtures, and the settings of hypothesis."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
from hypothesis import settings

from tests.repository import GitRepository

pytest_plugins = ("tests.guards", "tests.memory_disk", "tests.tested_package")

# The same examples every time, so that a red run is the change's fault; with NEW_EXAMPLES always new ones. A failure
# prints what reproduces it, so no database is kept. Slow machines are the time limit's business.
settings.register_profile(
    "codeloupe",
    database=None,
    deadline=None,
    derandomize="NEW_EXAMPLES" not in os.environ,
    max_examples=60,
    print_blob=True,
)
settings.load_profile("codeloupe")


# Real programs start in these, several a test, on a machine that may be busy with other things.
_OF_PROGRAMS = ("contract", "integration")
_PROGRAM_SECONDS = 180
# Tests of whole programs and of properties run without counting lines: that takes up to several times as long, and
# the examples in the tests of the rooms show the same.
_UNCOUNTED = (*_OF_PROGRAMS, "property")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tests = Path(__file__).parent
    for item in items:
        room = item.path.relative_to(tests).parts[0] if item.path.is_relative_to(tests) else ""
        if room in _UNCOUNTED or getattr(getattr(item, "function", None), "is_hypothesis_test", False):
            item.add_marker(pytest.mark.no_cover)
        if room in _OF_PROGRAMS and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_PROGRAM_SECONDS))


def pytest_collection_finish() -> None:
    # Thousands of tests and their modules stay to the end: no collection of garbage needs to look at them again.
    gc.collect()
    gc.freeze()


@pytest.fixture
def repository(tmp_path: Path) -> GitRepository:
    """An empty repository on branch `main`; see `tests/repository.py`."""
    return GitRepository(tmp_path / "repository")
