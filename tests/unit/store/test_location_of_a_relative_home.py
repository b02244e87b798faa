"""A HOME that is a relative path names no home."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from codeloupe.errors import StoreError
from codeloupe.store.database import state_directory


def test_a_relative_home_leads_to_the_users_entry_and_not_into_the_reviewed_tree(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", "in/the/tree")
    entry = Path(pwd.getpwuid(os.getuid()).pw_dir)
    assert state_directory({"HOME": "in/the/tree"}) == entry / ".local" / "state" / "codeloupe"


def test_a_relative_home_of_a_user_without_an_entry_is_an_error_with_a_way_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_entry(number: int) -> object:
        raise KeyError(number)

    monkeypatch.setenv("HOME", "in/the/tree")
    monkeypatch.setattr("pwd.getpwuid", no_entry)
    with pytest.raises(StoreError, match="no home directory") as caught:
        state_directory({"HOME": "in/the/tree"})
    assert "CODELOUPE_HOME" in caught.value.hint
