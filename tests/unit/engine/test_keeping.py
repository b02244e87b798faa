"""Keeping reviews and sweeps: they are there afterwards, and a failure to keep one never costs the review."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

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
    repository.write("a.py", "x = 1\n")
    repository.commit()
    return repository


@pytest.fixture
def history() -> Iterator[SqliteHistory]:
    with opened_history() as opened:
        yield opened


def made(number: int = 1) -> Review:
    return review(named("f"), review_id=identifier(number))


def identity(history: SqliteHistory, path: Path) -> RepositoryIdentity:
    return asyncio.run(find_identity(path, history))


def test_a_review_is_kept_with_all_that_a_later_look_needs(shop: GitRepository, history: SqliteHistory) -> None:
    before = datetime.now(UTC)
    whole = replace(made(), hidden_findings=1, hidden=(named("h"),))
    kept = asyncio.run(
        keep(whole, repo=shop.path, raw_outputs={"a.py": "said"}, prompt_version="7", terms="t", seen=("a", "b"))
    )
    assert kept == whole
    found = history.get(identifier(1))
    assert found == ReviewRecord(
        review=kept,
        saved_at=found.saved_at if found else before,
        repository=identity(history, shop.path).names[0],
        repository_label="repository",
        branch="main",
        tool_version=__version__,
        prompt_version="7",
        terms="t",
        seen=("a", "b"),
        head=shop.git("rev-parse", "HEAD").decode().strip(),
        turn=1,
    )
    assert found is not None
    assert before <= found.saved_at <= before + timedelta(minutes=1)
    assert found.saved_at.utcoffset() == timedelta(0)
    assert history.raw_outputs(identifier(1)) == {"a.py": "said"}


def test_raw_output_is_kept_without_secrets(shop: GitRepository, history: SqliteHistory) -> None:
    secret = "sk-" + "ant-" + "x" * 40
    asyncio.run(keep(made(), repo=shop.path, raw_outputs={"a.py": f"the key is {secret}!"}))
    assert history.raw_outputs(identifier(1)) == {"a.py": "the key is [redacted]!"}
    assert secret.encode() not in database_path(os.environ).read_bytes()


@pytest.mark.program
def test_a_review_outside_of_a_repository_is_kept(tmp_path: Path, history: SqliteHistory) -> None:
    asyncio.run(keep(made(), repo=tmp_path))
    found = history.last(identity(history, tmp_path).names)
    assert found is not None
    assert (found.review.review_id, found.branch) == (identifier(1), None)


class TestWhenItCannotBeKept:
    def warned(self, repo: Path) -> str:
        """Keep a review and give back what was warned of; the review is as it was but for the error."""
        events: list[Event] = []
        kept = asyncio.run(keep(made(), repo=repo, emit=events.append))
        assert replace(kept, errors=()) == made()
        (error,) = kept.errors
        assert (error.kind, events) == ("history", [Warned(error.message)])
        assert error.message.startswith("the review is not in the history: ")
        return error.message

    def test_a_database_that_is_none_is_a_warning(self, shop: GitRepository) -> None:
        path = database_path(os.environ)
        path.parent.mkdir(parents=True)
        path.write_bytes(b"something else entirely" * 100)
        assert "is not a database" in self.warned(shop.path)
        assert path.read_bytes() == b"something else entirely" * 100

    def test_a_place_that_cannot_be_made_is_a_warning(
        self, shop: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "file").touch()
        monkeypatch.setenv("CODELOUPE_HOME", str(tmp_path / "file" / "below"))
        assert "cannot make the directory" in self.warned(shop.path)

    def test_a_repository_or_git_that_is_gone_is_a_warning(
        self, shop: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert "is not a directory" in self.warned(tmp_path / "gone")
        monkeypatch.setenv("PATH", str(shop.path))
        assert "git is not on the PATH" in self.warned(shop.path)

    def test_a_value_that_cannot_be_written_is_a_warning(self, shop: GitRepository) -> None:
        odd = replace(made(), exit_code=object())
        kept = asyncio.run(keep(odd, repo=shop.path))
        assert kept.findings == odd.findings
        assert "cannot be saved" in kept.errors[0].message

    def test_a_listener_that_fails_does_not_cost_the_review_either(self, tmp_path: Path) -> None:
        def listener(_event: Event) -> None:
            raise RuntimeError("the display is gone")

        kept = asyncio.run(keep(made(), repo=tmp_path / "gone", emit=listener))
        assert [error.kind for error in kept.errors] == ["history"]


class TestSweeps:
    def test_what_was_finished_is_there_before_the_end(self, shop: GitRepository, history: SqliteHistory) -> None:
        async def sweep() -> tuple[int, ...]:
            counts = []
            async with keeping_sweep(sweep_record(9).sweep, repo=shop.path, prompt_version="7") as keeper:
                for number in (1, 2):
                    await keeper.keep_commit(commit_review(number))
                    found = history.get_sweep(identifier(9))
                    assert found is not None
                    assert not found.finished
                    counts.append(len(found.sweep.commits))
                await keeper.finish(sweep_record(9, commit_review(2), commit_review(1)).sweep)
                assert keeper.problem == ""
            return tuple(counts)

        assert asyncio.run(sweep()) == (1, 2)
        found = history.get_sweep(identifier(9))
        assert found is not None
        assert found.finished
        assert found.sweep == sweep_record(9, commit_review(2), commit_review(1)).sweep
        assert (found.branch, found.prompt_version, found.tool_version) == ("main", "7", __version__)
        (entry,) = history.list(HistoryQuery(repositories=identity(history, shop.path).names)).entries
        assert (entry.entry_id, entry.commits) == (identifier(9), 2)

    def test_an_interruption_leaves_what_was_finished(self, shop: GitRepository, history: SqliteHistory) -> None:
        async def sweep() -> None:
            async with keeping_sweep(sweep_record(9).sweep, repo=shop.path) as keeper:
                await keeper.keep_commit(commit_review(1))
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            asyncio.run(sweep())
        found = history.get_sweep(identifier(9))
        assert found is not None
        assert (found.finished, len(found.sweep.commits)) == (False, 1)

    def test_a_sweep_that_cannot_be_kept_warns_once_and_goes_on(self, shop: GitRepository, tmp_path: Path) -> None:
        path = database_path(os.environ)
        path.parent.mkdir(parents=True)
        path.write_bytes(b"something else entirely" * 100)

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

        async def sweep() -> int:
            async with keeping_sweep(sweep_record(9).sweep, repo=shop.path) as keeper:
                other.execute("BEGIN IMMEDIATE")
                saving = asyncio.create_task(keeper.keep_commit(commit_review(1)))
                turns = 0
                while turns < 20:
                    await asyncio.sleep(0.005)
                    turns += 1
                assert not saving.done()
                other.execute("ROLLBACK")
                await saving
                assert keeper.problem == ""
            return turns

        try:
            assert asyncio.run(sweep()) == 20
        finally:
            other.close()
        found = history.get_sweep(identifier(9))
        assert found is not None
        assert len(found.sweep.commits) == 1


def test_answers_and_failures_are_kept_and_prompts_are_not() -> None:
    heard: list[tuple[str, str]] = []
    answers = Answers(lambda title, text: heard.append((title, text)))
    answers("prompt of a.py", "look at this")
    answers("answer of a.py", "not JSON")
    answers("answer of a.py", "{}")
    answers("failure of b.py", "timeout")
    assert dict(answers.texts) == {"answer of a.py": "not JSON\n\n{}", "failure of b.py": "timeout"}
    assert [title for title, _ in heard] == ["prompt of a.py", "answer of a.py", "answer of a.py", "failure of b.py"]


def test_endless_answers_do_not_fill_the_history() -> None:
    answers = Answers()
    for number in range(30):
        answers(f"answer of {number}", "x" * 5_000_000)
    assert {len(text) for text in answers.texts.values()} == {1_000_000}
    assert sum(len(text) for text in answers.texts.values()) == 20_000_000
