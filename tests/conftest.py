"""Shared fixtures, and the settings of hypothesis."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

from tests.repository import GitRepository

pytest_plugins = ("tests.guards", "tests.memory_disk", "tests.tested_package")

# In CI the same examples every time, so that a red run is the change's fault; elsewhere always new ones. A
# failure prints what reproduces it, so no database is kept. Slow machines are the time limit's business.
settings.register_profile(
    "codeloupe", database=None, deadline=None, derandomize="CI" in os.environ, max_examples=60, print_blob=True
)
settings.load_profile("codeloupe")


# Tests of whole programs and of properties run without counting lines: that takes up to several times as long, and
# the tests of the rooms show the same.
_UNCOUNTED = tuple(Path(__file__).parent / room for room in ("contract", "integration", "property"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(room in item.path.parents for room in _UNCOUNTED):
            item.add_marker(pytest.mark.no_cover)


@pytest.fixture
def repository(tmp_path: Path) -> GitRepository:
    """An empty repository on branch `main`; see `tests/repository.py`."""
    return GitRepository(tmp_path / "repository")
