from __future__ import annotations

import time
import tomllib
from datetime import UTC, datetime
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codeloupe.model.commit import Commit
from codeloupe.model.sweep import CommitCategory
from codeloupe.sweep.categories import categorise
from tests.unit.sweep.commit_messages import MESSAGES, Message


def commit(text: str, files: tuple[str, ...] = ()) -> Commit:
    subject, _, body = text.partition("\n\n")
    return Commit(
        sha="a" * 40,
        author="Ada Example",
        email="ada@example.invalid",
        time=datetime(2024, 5, 31, tzinfo=UTC),
        subject=subject,
        body=body,
        files=files,
        insertions=1,
        deletions=1,
        parents=(),
    )


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: ascii(message.text[:40]))
def test_each_message_of_the_table_has_its_category(message: Message) -> None:
    assert categorise(commit(message.text, message.files)) is message.category


def test_the_table_is_long_and_has_every_category() -> None:
    assert len(MESSAGES) >= 120
    assert {message.category for message in MESSAGES} == set(CommitCategory)


def test_a_message_of_a_megabyte_takes_no_longer_than_a_short_one() -> None:
    longest = [message for message in MESSAGES if len(message.text) > 100_000]
    assert len(longest) >= 7
    commits = [commit(message.text, message.files) for message in longest]
    started = time.process_time()
    for one in commits:
        categorise(one)
    assert time.process_time() - started < 0.05 * len(commits)


def test_many_files_take_linear_time() -> None:
    many = tuple(f"tests/{'deep/' * 50}test_{number}.py" for number in range(5_000))
    started = time.process_time()
    assert categorise(commit("asdf", many)) is CommitCategory.TEST_CHANGE
    assert time.process_time() - started < 2


def test_no_rule_stands_for_two_categories() -> None:
    text = files("codeloupe.sweep").joinpath("categories.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(text)
    del tables["skipped"]
    for name, table in tables.items():
        words = [word for entries in table.values() for word in entries]
        assert sorted(words) == sorted(set(words)), name
        assert all(CommitCategory(category) for category in table)


@given(st.text(max_size=200), st.lists(st.text(min_size=1, max_size=40), max_size=5))
def test_any_message_has_a_category(text: str, names: list[str]) -> None:
    assert categorise(commit(text, tuple(names))) in CommitCategory


@given(st.sampled_from(["fix", "feat", "docs", "test", "refactor", "chore"]), st.text(max_size=80))
def test_a_conventional_type_decides_whatever_follows(word: str, rest: str) -> None:
    alone = categorise(commit(f"{word}: x"))
    assert categorise(commit(f"{word}: {rest}")) is alone
    assert categorise(commit(f"{word.upper()}(scope)!: {rest}")) is alone
