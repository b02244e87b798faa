"""From what a person types to an entry."""

from __future__ import annotations

import pytest

from codeloupe.engine.history import find_entry, find_review
from codeloupe.errors import CodeloupeError, StoreError, UsageError
from codeloupe.model.history import HistoryQuery, Listing, RepositoryIdentity
from codeloupe.store.memory_history import MemoryHistory
from tests.rows import each
from tests.unit.store.history_samples import REPOSITORY, commit_review, identifier, record, sweep_record

IDENTITY = RepositoryIdentity((REPOSITORY, "path:x"), "shop")


def here() -> RepositoryIdentity:
    return IDENTITY


def nowhere() -> RepositoryIdentity:
    raise AssertionError("an id needs no repository")


@pytest.fixture
def history() -> MemoryHistory:
    made = MemoryHistory()
    made.save(record(0xABCD0001))
    made.save(record(0xABCD0002))
    made.save(record(0xAAAA0001, repository="root:other"))
    return made


def complaint(history: MemoryHistory, word: str) -> CodeloupeError:
    with pytest.raises(CodeloupeError) as caught:
        find_entry(history, word, here=here)
    assert caught.value.hint
    return caught.value


def test_an_id_and_any_beginning_of_it_that_is_its_own_are_found_without_a_repository(history: MemoryHistory) -> None:
    whole = identifier(0xABCD0001)
    for word in (whole, whole[:8], whole[:12].upper(), f" {whole} "):
        assert find_entry(history, word, here=nowhere).entry_id == whole
        assert find_review(history, word, here=nowhere).review.review_id == whole
    assert find_entry(history, "aaaa", here=nowhere).entry_id == identifier(0xAAAA0001)


def test_last_is_the_newest_of_this_repository(history: MemoryHistory) -> None:
    assert find_entry(history, "last", here=here).entry_id == identifier(0xABCD0002)
    assert find_review(history, "last", here=here).review.review_id == identifier(0xABCD0002)
    history.save_sweep(sweep_record(0xABCD0003, commit_review(1)))
    assert find_entry(history, "last", here=here).entry_id == identifier(0xABCD0003)
    assert find_review(history, "last", here=here).review.review_id == identifier(0xABCD0002)


def test_a_beginning_of_several_ids_lists_them(history: MemoryHistory) -> None:
    error = complaint(history, "abcd")
    assert isinstance(error, UsageError)
    assert "'abcd' is the beginning of several ids" in error.message
    assert identifier(0xABCD0001)[:12] in error.message
    assert identifier(0xABCD0002)[:12] in error.message


def test_an_id_that_is_the_beginning_of_another_is_found(history: MemoryHistory) -> None:
    short = record(1, review_id="abcd")
    history.save(short)
    assert find_entry(history, "abcd", here=here).entry_id == "abcd"


def test_of_many_that_begin_alike_some_are_listed() -> None:
    history = MemoryHistory()
    for number in range(30):
        history.save(record(0xABCD0000 + number))
    message = complaint(history, "abcd").message
    assert message.count("\n") == 9
    assert message.endswith("and more")


def test_an_unknown_id_lists_the_newest_of_this_repository(history: MemoryHistory) -> None:
    message = complaint(history, "ffff").message
    assert "no entry of the history begins with 'ffff'" in message
    assert identifier(0xABCD0001)[:12] in message
    assert identifier(0xAAAA0001)[:12] not in message


def test_an_empty_history_says_how_to_make_the_first_entry() -> None:
    for word in ("last", "ffff"):
        assert "codeloupe review" in complaint(MemoryHistory(), word).hint


@each("word", ["", "-", "LAST", "xyzw", "ab cd", "%%%%", "abcd*", "a" * 65, "\x1b[31m", "äöüß"])
def test_a_word_that_is_no_id_is_told_so(history: MemoryHistory, word: str) -> None:
    assert "is no id of the history" in complaint(history, word).message


@each("word", ["a", "abc"])
def test_a_beginning_that_is_too_short_is_told_so(history: MemoryHistory, word: str) -> None:
    assert "at least 4 characters" in complaint(history, word).message


def test_a_sweep_is_not_one_review(history: MemoryHistory) -> None:
    history.save_sweep(sweep_record(0xBBBB0001, commit_review(1)))
    with pytest.raises(UsageError, match="is a sweep of 1 commits, not one review"):
        find_review(history, "bbbb", here=here)
    assert find_review(history, identifier(1001), here=here).sweep_id == identifier(0xBBBB0001)


def test_an_entry_that_cannot_be_read_is_an_error_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    history = MemoryHistory()
    monkeypatch.setattr(history, "matching", lambda *_, **_more: Listing((), ("the entry abcd cannot be read",)))
    error = complaint(history, "abcd")
    assert isinstance(error, StoreError)
    assert error.message == "the entry abcd cannot be read"


def test_the_last_that_can_be_read_is_the_last(history: MemoryHistory, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = history.list(HistoryQuery()).entries
    monkeypatch.setattr(history, "list", lambda _query: Listing(entries[1:], ("the entry ffff cannot be read",)))
    assert find_entry(history, "last", here=here) == entries[1]
    monkeypatch.setattr(history, "list", lambda _query: Listing((), ("the entry ffff cannot be read",)))
    assert isinstance(complaint(history, "last"), StoreError)


def test_a_description_that_spans_lines_stays_on_its_own(history: MemoryHistory) -> None:
    scope = record(1).review.scope
    hostile = record(0xABCD0009, scope=type(scope)(scope.kind, None, None, "one\ntwo\r\nthree" + "x" * 500))
    history.save(hostile)
    assert "one two three" in complaint(history, "abcd").message
    assert max(map(len, complaint(history, "abcd").message.split("\n"))) < 130
