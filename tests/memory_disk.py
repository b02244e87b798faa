"""Temporary files of the tests in memory, as a pytest plugin, where the machine has room for that.

Tests make and remove a hundred thousand small files and many repositories; on a slow disk that is most of their time.
"""

import os
import shutil
from pathlib import Path

import pytest

_MEMORY = Path("/dev/shm")
_LEAST_FREE_BYTES = 4_000_000_000
_VARIABLE = "PYTEST_DEBUG_TEMPROOT"


def pytest_configure(config: pytest.Config) -> None:
    if _VARIABLE not in os.environ and _is_fit(_MEMORY):
        os.environ[_VARIABLE] = str(_MEMORY)


def _is_fit(place: Path) -> bool:
    """Whether files can be written there and run: tests write programs."""
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        return False
    return not os.statvfs(place).f_flag & os.ST_NOEXEC and shutil.disk_usage(place).free > _LEAST_FREE_BYTES
