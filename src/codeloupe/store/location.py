"""Where codeloupe keeps what outlives a run."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from pathlib import Path

from codeloupe.errors import StoreError

DATABASE_NAME = "codeloupe.sqlite3"


def state_directory(environment: Mapping[str, str]) -> Path:
    """CODELOUPE_HOME, else below XDG_STATE_HOME, else below the home directory; always absolute, not made here.

    A relative XDG_STATE_HOME counts as unset, as its standard asks, and so does a relative HOME: they would lead into
    the reviewed tree. Raises StoreError when nothing names a place, and for a relative CODELOUPE_HOME: that was meant.
    """
    named = environment.get("CODELOUPE_HOME")
    if named and not Path(named).is_absolute():
        raise StoreError(
            f"CODELOUPE_HOME is {named!r}, which is another folder in every directory, and perhaps in a work tree",
            hint="set it to an absolute path",
        )
    if named:
        return Path(named)
    state = environment.get("XDG_STATE_HOME")
    if state and Path(state).is_absolute():
        return Path(state) / "codeloupe"
    return _home(environment) / ".local" / "state" / "codeloupe"


def database_path(environment: Mapping[str, str]) -> Path:
    """The one database file. Raises as `state_directory` does."""
    return state_directory(environment) / DATABASE_NAME


def _home(environment: Mapping[str, str]) -> Path:
    named = environment.get("HOME")
    if named and Path(named).is_absolute():
        return Path(named)
    try:
        home = Path("~").expanduser()
        # It is made of HOME where that is set, whatever it says.
        return home if home.is_absolute() else Path(pwd.getpwuid(os.getuid()).pw_dir)
    except (RuntimeError, KeyError) as error:
        raise StoreError(
            "there is no place to keep finished calls: this user has no home directory",
            hint="set CODELOUPE_HOME to a directory that may be written",
        ) from error
