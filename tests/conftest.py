"""Shared fixtures, and the settings of hypothesis."""

import gc
import os
import re
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from tests.repository import GitRepository

pytest_plugins = (
    "tests.fresh_install",
    "tests.guards",
    "tests.memory_disk",
    "tests.postgres",
    "tests.tested_package",
    "tests.warm_program",
)

# The same examples every time, so that a red run is the change's fault; with NEW_EXAMPLES always new ones. A failure
# prints what reproduces it, so no database is kept. Slow machines are the time limit's business.
# `make soak` tries thousands.
settings.register_profile(
    "codeloupe", database=None, deadline=None, derandomize="NEW_EXAMPLES" not in os.environ, max_examples=20
)
settings.register_profile("soak", settings.get_profile("codeloupe"), derandomize=False, max_examples=3_000)
settings.load_profile("codeloupe")
# Else examples would be made of constants in our own modules too, of those that happen to be loaded in this worker.
setattr(providers, "is_local_module_file", lambda _path: False)  # noqa: B010 - not a public name


# The tests of `unit/` are the unit tier: they start no program, open no socket and have no home to write to. Those of
# the other folders may do all that, and so may one that is marked `program`, as whoever asks for a repository is.
_OF_PROGRAMS = re.compile(r"::test_\w*(loads?_(no|none|only|the|without)_)")
# Several programs start in one such test, on a machine that may be busy with other things.
_PROGRAM_SECONDS = 180


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=["unit", "test", "soak"], default="test", help="which tests to run")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tests = Path(__file__).parent
    tier = config.getoption("--tier")
    chosen: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        folder = item.path.relative_to(tests).parts[0] if item.path.is_relative_to(tests) else ""
        if folder != "unit" or "repository" in item.fixturenames or _OF_PROGRAMS.search(item.nodeid):  # type: ignore[attr-defined]
            item.add_marker(pytest.mark.program)
        is_program = item.get_closest_marker("program") is not None
        if is_program:
            item.fixturenames.insert(0, "home")  # type: ignore[attr-defined]  # a marker would come too late for it
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(_PROGRAM_SECONDS))
        if folder in ("contract", "integration", "property"):
            item.add_marker(pytest.mark.no_cover)  # counting lines takes these several times as long
        is_soak = item.get_closest_marker("soak") is not None
        wanted = {
            "unit": not is_program and not is_soak,
            "test": not is_soak,
            "soak": is_soak or folder == "property",
        }
        (chosen if wanted[tier] else left).append(item)
    items[:] = chosen
    if left:
        config.hook.pytest_deselected(items=left)


def pytest_collection_finish() -> None:
    # Thousands of tests and their modules stay to the end: no collection of garbage needs to look at them again.
    gc.collect()
    gc.freeze()


@pytest.fixture
def repository(tmp_path: Path) -> GitRepository:
    """An empty repository on branch `main`; see `tests/repository.py`."""
    return GitRepository(tmp_path / "repository")
