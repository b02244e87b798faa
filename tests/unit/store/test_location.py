"""Where the database is."""

from __future__ import annotations

from pathlib import Path

import pytest

from codeloupe.errors import StoreError
from codeloupe.store.database import database_path, state_directory
from tests.rows import rows


@rows(
    ("environment", "expected"),
    [
        ({"CODELOUPE_HOME": "/a", "XDG_STATE_HOME": "/b", "HOME": "/c"}, "/a"),
        ({"CODELOUPE_HOME": "", "XDG_STATE_HOME": "/b", "HOME": "/c"}, "/b/codeloupe"),
        ({"XDG_STATE_HOME": "", "HOME": "/c"}, "/c/.local/state/codeloupe"),
        ({"XDG_STATE_HOME": "in/the/tree", "HOME": "/c"}, "/c/.local/state/codeloupe"),
    ],
)
def test_the_state_directory_is_the_first_that_is_named(environment: dict[str, str], expected: str) -> None:
    assert state_directory(environment) == Path(expected)


def test_a_relative_home_of_ours_is_refused() -> None:
    with pytest.raises(StoreError, match="CODELOUPE_HOME is 'state'") as caught:
        state_directory({"CODELOUPE_HOME": "state"})
    assert "absolute path" in caught.value.hint


def test_without_a_home_in_the_environment_the_users_entry_decides() -> None:
    assert state_directory({}) == Path.home() / ".local" / "state" / "codeloupe"


def test_the_database_is_one_file_in_it() -> None:
    assert database_path({"CODELOUPE_HOME": "/a"}) == Path("/a/codeloupe.sqlite3")


def test_no_home_at_all_is_an_error_with_a_way_on(monkeypatch: pytest.MonkeyPatch) -> None:
    # A user number without an entry cannot be had in a test; an empty HOME is as good as none to the library.
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", _no_entry)
    with pytest.raises(StoreError, match="no home directory") as caught:
        state_directory({})
    assert "CODELOUPE_HOME" in caught.value.hint


def _no_entry(number: int) -> object:
    raise KeyError(number)
