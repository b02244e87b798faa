"""Keeping reviews and sweeps: they are there afterwards, and a failure to keep one never costs the review."""

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe import __version__
from codeloupe.engine.history import opened_history
from codeloupe.engine.keeping import Answers, keep, keeping_sweep
from codeloupe.git.identity import find_identity
from codeloupe.model.events import Event, Warned
from codeloupe.model.history import HistoryQuery, RepositoryIdentity, ReviewRecord
from codeloupe.model.review import Review
from codeloupe.store.database import database_path
from codeloupe.store.history import SqliteHistory
from tests.repository import GitRepository
from tests.unit.reports.examples import review
from tests.unit.store.history_samples import commit_review, identifier, named, sweep_record


@pytest.fixture
def shop(repository: GitRepository) -> GitRepository:
    repository.commit_files({"a.py": "x = 1\n"})
    return repository


@pytest.fixture
def history() -> Iterator[SqliteHistory]:
    with opened_history() as opened:
        yield opened


def made() -> Review:
    return review(named("f"), review_id=identifier(1))


def identity(history: SqliteHistory, path: Path) -> RepositoryIdentity:
    return asyncio.run(find_identity(path, history))


def test_a_review_is_kept_with_all_that_a_later_look_needs_and_without_secrets(
    shop: GitRepository, history: SqliteHistory, tmp_path: Path
) -> None:
    before = datetime.now(UTC)
    secret = "sk-" + "ant-" + "x" * 40
    whole = replace(made(), hidden_findings=1, hidden=(named("h"),))
    record: dict[str, Any] = {"prompt_version": "7", "terms": "t", "seen": ("a", "b")}
    raw = {"a.py": f"the key is {secret}!"}
    assert asyncio.run(keep(whole, repo=shop.path, raw_outputs=raw, **record)) == whole
    found = history.get(identifier(1))
    assert found is not None
    assert found == ReviewRecord(
        review=whole,
        saved_at=found.saved_at,
        repository=identity(history, shop.path).names[0],
        repository_label="repository",
        branch="main",
        tool_version=__version__,
        head=shop.git("rev-parse", "HEAD").decode().strip(),
        turn=1,
        **record,
    )
    assert before <= found.saved_at <= before + timedelta(minutes=1)
    assert history.raw_outputs(identifier(1)) == {"a.py": "the key is [redacted]!"}
    assert secret.encode() not in database_path(os.environ).read_bytes()
    # Also outside of a repository.
    asyncio.run(keep(made(), repo=tmp_path))
    elsewhere = history.last(identity(history, tmp_path).names)
    assert elsewhere is not None
    assert (elsewhere.review.review_id, elsewhere.branch) == (identifier(1), None)


def broken_database() -> Path:
    path = database_path(os.environ)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"something else entirely" * 100)
    return path


class TestWhenItCannotBeKept:
    def warned(self, repo: Path, whole: Review | None = None) -> str:
        """Keep a review and give back what was warned of; the review is as it was but for the error."""
        events: list[Event] = []
        kept = asyncio.run(keep(whole or made(), repo=repo, emit=events.append))
        assert replace(kept, errors=()) == (whole or made())
        (error,) = kept.errors
        assert (error.kind, events) == ("history", [Warned(error.message)])
        assert error.message.startswith("the review is not in the history: ")
        return error.message

    def test_a_database_that_is_none_is_a_warning(self, shop: GitRepository) -> None:
        path = broken_database()
        assert "is not a database" in self.warned(shop.path)
        assert path.read_bytes() == b"something else entirely" * 100

    def test_a_place_that_cannot_be_made_and_what_is_gone_are_warnings(
        self, shop: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert "cannot be saved" in self.warned(shop.path, replace(made(), exit_code=object()))
        assert "is not a directory" in self.warned(tmp_path / "gone")
        with monkeypatch.context() as patched:
            patched.setenv("PATH", str(shop.path))
            assert "git is not on the PATH" in self.warned(shop.path)
        (tmp_path / "file").touch()
        monkeypatch.setenv("CODELOUPE_HOME", str(tmp_path / "file" / "below"))
        assert "cannot make the directory" in self.warned(shop.path)

    def test_a_listener_that_fails_does_not_cost_the_review_either(self, tmp_path: Path) -> None:
        def listener(_event: Event) -> None:
            raise RuntimeError("the display is gone")

        kept = asyncio.run(keep(made(), repo=tmp_path / "gone", emit=listener))
        assert [error.kind for error in kept.errors] == ["history"]


class TestSweeps:
    def known(self, history: SqliteHistory) -> tuple[bool, int]:
        found = history.get_sweep(identifier(9))
        assert found is not None
        return found.finished, len(found.sweep.commits)

    def test_what_was_finished_is_there_before_the_end(self, shop: GitRepository, history: SqliteHistory) -> None:
        whole = sweep_record(9, commit_review(2), commit_review(1)).sweep

        async def sweep() -> None:
            async with keeping_sweep(sweep_record(9).sweep, repo=shop.path, prompt_version="7") as keeper:
                for number in (1, 2):
                    await keeper.keep_commit(commit_review(number))
                    assert self.known(history) == (False, number)
                await keeper.finish(whole)
                assert keeper.problem == ""

        asyncio.run(sweep())
        found = history.get_sweep(identifier(9))
        assert found is not None
        assert (found.finished, found.sweep) == (True, whole)
        assert (found.branch, found.prompt_version, found.tool_version) == ("main", "7", __version__)
        (entry,) = history.list(HistoryQuery(repositories=identity(history, shop.path).names)).entries
        assert (entry.entry_id, entry.commits) == (identifier(9), 2)

    def test_a_sweep_that_cannot_be_kept_warns_once_and_goes_on(self, shop: GitRepository, tmp_path: Path) -> None:
        broken_database()

        async def sweep(repo: Path, emit: Callable[[Event], None]) -> str:
            async with keeping_sweep(sweep_record(9).sweep, repo=repo, emit=emit) as keeper:
                for number in range(5):
                    await keeper.keep_commit(commit_review(number))
                await keeper.finish(sweep_record(9).sweep)
                return keeper.problem

        for repo in (shop.path, tmp_path / "gone"):
            events: list[Event] = []
            problem = asyncio.run(sweep(repo, events.append))
            assert events == [Warned(problem)]
            assert problem.startswith("the sweep is not in the history: ")

    def test_a_database_that_another_holds_does_not_hold_up_the_event_loop(
        self, shop: GitRepository, history: SqliteHistory
    ) -> None:
        history.list(HistoryQuery())
        other = sqlite3.connect(database_path(os.environ), isolation_level=None)

        async def sweep() -> None:
            async with keeping_sweep(sweep_record(9).sweep, repo=shop.path) as keeper:
                other.execute("BEGIN IMMEDIATE")
                saving = asyncio.create_task(keeper.keep_commit(commit_review(1)))
                for _ in range(20):
                    await asyncio.sleep(0.005)
                assert not saving.done()
                other.execute("ROLLBACK")
                await saving
                assert keeper.problem == ""

        with contextlib.closing(other):
            asyncio.run(sweep())
        assert self.known(history) == (False, 1)


def test_answers_and_failures_are_kept_and_prompts_are_not() -> None:
    heard: list[tuple[str, str]] = []
    answers = Answers(lambda title, text: heard.append((title, text)))
    said = [
        ("prompt of a", "look at this"),
        ("answer of a", "not JSON"),
        ("answer of a", "{}"),
        ("failure of b", "timeout"),
    ]
    for title, text in said:
        answers(title, text)
    assert (answers.texts, heard) == ({"answer of a": "not JSON\n\n{}", "failure of b": "timeout"}, said)
    # Endless ones do not fill the history.
    answers = Answers()
    for number in range(30):
        answers(f"answer of {number}", "x" * 5_000_000)
    assert [len(text) for text in answers.texts.values()] == [1_000_000] * 20
