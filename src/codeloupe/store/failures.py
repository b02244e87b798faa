"""What SQLite and the system say about the database, as errors with a way on. Nothing is ever deleted for it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from codeloupe.errors import StoreError

_PRIMARY_CODE = 0xFF
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})
_START_ANEW = (
    "move it away, together with the files beside it that begin with its name; a new one will be created, without the"
    " saved reviews, the dismissals and the finished calls that it held"
)
_ELSEWHERE = "give write access to it, or set CODELOUPE_HOME to another directory"
_WORDS: dict[int, tuple[str, str]] = {
    sqlite3.SQLITE_CORRUPT: ("is damaged", _START_ANEW),
    sqlite3.SQLITE_NOTADB: ("is not a database", _START_ANEW),
    sqlite3.SQLITE_FULL: ("cannot grow: there is no room left", "make room on that disk and try again"),
    sqlite3.SQLITE_READONLY: ("cannot be written", _ELSEWHERE),
    sqlite3.SQLITE_PERM: ("cannot be used", _ELSEWHERE),
    sqlite3.SQLITE_CANTOPEN: ("cannot be opened, or the files beside it cannot", _ELSEWHERE),
    sqlite3.SQLITE_IOERR: (
        "could not be read or written",
        "look whether the disk is full or broken, or set CODELOUPE_HOME to a directory on another one",
    ),
    **dict.fromkeys(
        _BUSY, ("is held by another process and did not become free", "look for a codeloupe that hangs, and try again")
    ),
}
_UNEXPECTED = ("could not be used", f"if this comes again: {_START_ANEW}")


class Unreadable(ValueError):
    """Bytes that are nothing we stored; the message says why."""


def error_code(error: sqlite3.Error) -> int:
    """SQLite's primary result code, or 0 for what Python's own module raised."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & _PRIMARY_CODE


def is_busy(error: sqlite3.Error) -> bool:
    """Whether somebody else holds what is needed, so that it may work a moment later."""
    return error_code(error) in _BUSY


def database_failure(error: sqlite3.Error, path: Path) -> StoreError:
    """What SQLite reports, in words."""
    what, hint = _WORDS.get(error_code(error), _UNEXPECTED)
    return StoreError(f"the database {path} {what} ({error})", hint=hint)


def damaged(path: Path, what: str) -> StoreError:
    """The error for a file of which SQLite can read the beginning, but not all."""
    return StoreError(f"the database {path} is damaged ({' '.join(what.split())})", hint=_START_ANEW)


def file_failure(error: OSError, path: Path, *, doing: str) -> StoreError:
    """What the system reports about the database's file or directory, in words."""
    return StoreError(
        f"cannot {doing} {path}: {error.strerror or error}",
        hint="check that path and its permissions, or set CODELOUPE_HOME to another directory",
    )


def not_a_file(path: Path) -> StoreError:
    """The error for a directory, pipe or device where the database should be."""
    return StoreError(
        f"{path} is not a file, so it cannot be the database",
        hint="move it away, or set CODELOUPE_HOME to another directory",
    )


def too_short(path: Path) -> StoreError:
    """The error for a file that is neither empty nor long enough to be a database."""
    return StoreError(f"{path} is not a database (it is too short)", hint=_START_ANEW)


def not_ours(path: Path) -> StoreError:
    """The error for a database with tables that codeloupe did not make."""
    return StoreError(
        f"{path} is a database of another program", hint="move it away, or set CODELOUPE_HOME to another directory"
    )


def too_new(path: Path, *, found: int, known: int) -> StoreError:
    """The error for a database whose schema this version cannot know."""
    return StoreError(
        f"the database {path} was written by a newer codeloupe (schema {found}, this one knows up to {known})",
        hint="use the newer codeloupe, or set CODELOUPE_HOME to another directory; the file was left as it is",
    )
