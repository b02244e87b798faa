"""What the path of a file says about it, and how a file of a snapshot is read."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

_TEST_DIRECTORIES = frozenset({"test", "tests", "testing", "testdata", "fixtures", "__tests__", "spec", "specs"})
_PROSE_DIRECTORIES = frozenset({"doc", "docs", "example", "examples", "samples", "i18n", "locale", "locales", "lang"})
_PROSE_SUFFIXES = (".md", ".rst", ".txt", ".adoc", ".example", ".sample", ".po")
_TEST_NAME = re.compile(r"(test_.*|conftest|.*[._-](test|spec))\.[a-z]+")


def is_test_file(path: str) -> bool:
    """Whether a file is part of a test suite, by its directories or its name."""
    *directories, name = path.lower().split("/")
    return not _TEST_DIRECTORIES.isdisjoint(directories) or _TEST_NAME.fullmatch(name) is not None


def is_prose_file(path: str) -> bool:
    """Whether a file is documentation, an example or a translation, by its directories or its suffix."""
    *directories, name = path.lower().split("/")
    return not _PROSE_DIRECTORIES.isdisjoint(directories) or name.endswith(_PROSE_SUFFIXES)


def read_regular_file(path: Path) -> bytes:
    """The content of a regular file. A link, a pipe or a directory in its place is refused, not followed.

    Raises OSError with a `strerror` in words.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(None, "it is not a regular file")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)
