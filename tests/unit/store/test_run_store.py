"""Runs on disk: private, whole, listed one by one, and never led astray by what lies in their directories."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from codeloupe.errors import RunBusy, RunNotFound, StoreError
from codeloupe.model.pipeline import Approval, Decision, StageState
from codeloupe.store import run_store
from codeloupe.store.run_store import DirectoryRunStore
from tests.unit.store.run_samples import START, attempt, event, run, stage

NAME = "00000001"
WORD = Approval(stage="write", decision=Decision.APPROVE)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "state" / "pipelines"


@pytest.fixture
def store(root: Path) -> DirectoryRunStore:
    return DirectoryRunStore(root)


@pytest.fixture
def made(store: DirectoryRunStore) -> Path:
    return store.create(run(1))


class TestFiles:
    def test_everything_is_for_this_user_alone(self, store: DirectoryRunStore, made: Path, root: Path) -> None:
        store.save(run(1), event("x"))
        store.put_approval(NAME, WORD)
        with store.lock(NAME):
            pass
        assert {path.name for path in made.iterdir()} == {"run.json", "journal.jsonl", "approvals", "lock"}
        for path in (root.parent, root, *root.rglob("*")):
            expected = 0o700 if path.is_dir() else 0o600
            assert stat.S_IMODE(path.lstat().st_mode) == expected, path

    def test_no_temporary_file_is_left(self, store: DirectoryRunStore, made: Path, root: Path) -> None:
        for _ in range(3):
            store.save(run(1))
        store.put_approval(NAME, WORD)
        store.take_approval(NAME, "write")
        assert [path.name for path in root.iterdir()] == [NAME]
        assert {path.name for path in made.rglob("*")} == {"run.json", "approvals"}

    @pytest.mark.parametrize("next_step", ["create", "remove"])
    def test_what_a_crash_left_of_a_run_that_was_made_or_removed_is_gone_with_the_next_one(
        self, store: DirectoryRunStore, made: Path, root: Path, next_step: str
    ) -> None:
        for name in (".removed-x-1", ".new-x-1", ".new-x-2"):
            (root / name / "stages").mkdir(parents=True)
            (root / name / "stages" / "large").write_text("…")
        os.utime(root / ".new-x-1", (0, 0))
        (root / ".removed-link").symlink_to(made)
        if next_step == "create":
            store.create(run(2))
        else:
            store.remove(NAME)
        left = {path.name for path in root.iterdir() if path.name.startswith(".")}
        assert left == {".new-x-2", ".removed-link"}, "one that is being made just now, and what is none of ours"

    def test_what_a_crash_left_is_gone_after_the_next_lock(self, store: DirectoryRunStore, made: Path) -> None:
        (made / ".run.json.0123456789abcdef").write_text('{"version"')
        assert store.load(NAME) == run(1)
        with store.lock(NAME):
            assert [path.name for path in made.iterdir() if path.name.startswith(".")] == []

    def test_a_store_is_found_by_a_relative_path_wherever_one_goes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        store = DirectoryRunStore(Path("runs"))
        assert store.create(run(1)).is_absolute()
        monkeypatch.chdir("/")
        assert store.load(NAME) == run(1)

    def test_a_creation_that_failed_leaves_nothing(
        self, store: DirectoryRunStore, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        # A full disk cannot be had in a test.
        monkeypatch.setattr(run_store, "replace_file", full)
        with pytest.raises(StoreError, match=f"cannot make the run {NAME}: No space left on device") as raised:
            store.create(run(1))
        assert "room on its disk" in raised.value.hint
        assert list(root.iterdir()) == []

    def test_a_save_that_failed_leaves_the_state_before(
        self, store: DirectoryRunStore, made: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> int:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            with pytest.raises(StoreError, match="No space left"):
                store.save(run(1, state=StageState.FAILED))
        assert store.load(NAME) == run(1)
        assert [path.name for path in made.iterdir()] == ["run.json"]

    def test_a_write_that_is_cut_short_by_the_system_goes_on(
        self, store: DirectoryRunStore, made: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write = os.write
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", lambda descriptor, data: write(descriptor, bytes(data)[:100]))
            store.save(run(1, reason="r" * 1000), event("e" * 1000))
        assert store.load(NAME).reason == "r" * 1000
        assert store.journal(NAME) == (event("e" * 1000),)

    def test_what_cannot_be_written_is_told_and_nothing_is(self, store: DirectoryRunStore, made: Path) -> None:
        with pytest.raises(StoreError, match="state of the run 00000001 cannot be written: the moment .* no time zone"):
            store.save(run(1, updated_at=START.replace(tzinfo=None)))
        with pytest.raises(StoreError, match="cannot write the run 00000001: list is no data"):
            store.save(run(1), event(facts={"a": []}))
        assert store.load(NAME) == run(1)

    def test_more_than_could_be_read_again_is_not_written(
        self, store: DirectoryRunStore, made: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(run_store, "_LARGEST_STATE_BYTES", 5_000)
        with pytest.raises(StoreError, match=r"has [56],\d+ bytes, more than 5,000"):
            store.save(run(1, reason="x" * 5_000))
        assert store.load(NAME) == run(1)


class TestJournal:
    def test_a_torn_last_line_is_left_out_and_gone_after_the_next_event(
        self, store: DirectoryRunStore, made: Path
    ) -> None:
        store.save(run(1), event("first"))
        with (made / "journal.jsonl").open("ab") as journal:
            journal.write(b'{"at":"2026-03-14T09:12:00+00:00","ki')
        assert store.journal(NAME) == (event("first"),)
        store.save(run(1), event("second"))
        assert store.journal(NAME) == (event("first"), event("second"))
        assert (made / "journal.jsonl").read_bytes().count(b"\n") == 2

    @pytest.mark.parametrize("torn", [b"x", b"\0" * 200_000, b'{"at"' * 50_000])
    def test_a_journal_that_is_only_a_torn_line_begins_anew(
        self, store: DirectoryRunStore, made: Path, torn: bytes
    ) -> None:
        (made / "journal.jsonl").write_bytes(torn)
        assert store.journal(NAME) == ()
        store.save(run(1), event("first"))
        assert store.journal(NAME) == (event("first"),)

    def test_a_damaged_line_in_the_middle_is_a_note_and_hides_no_other(
        self, store: DirectoryRunStore, made: Path
    ) -> None:
        store.save(run(1), event("first"))
        with (made / "journal.jsonl").open("ab") as journal:
            journal.write(b"\xff\xfe\n\n")
        store.save(run(1), event("last"))
        first, second, third, last = store.journal(NAME)
        assert (first.message, last.message) == ("first", "last")
        assert second.kind == third.kind == "note"
        assert second.message.startswith("line 2 of the journal cannot be read: ")
        assert (second.at, third.message[:6]) == (START, "line 3")


class TestHostileDirectories:
    @pytest.mark.parametrize("name", ["run.json", "journal.jsonl", "lock"])
    @pytest.mark.parametrize("kind", ["link", "dangling link", "directory", "pipe"])
    def test_what_is_no_file_is_refused_in_words(
        self, store: DirectoryRunStore, made: Path, tmp_path: Path, name: str, kind: str
    ) -> None:
        target = tmp_path / "elsewhere"
        if kind == "link":
            target.write_bytes((made / "run.json").read_bytes())
        (made / name).unlink(missing_ok=True)
        place(made / name, kind, target)
        uses: dict[str, Callable[[], object]] = {
            "run.json": lambda: store.load(NAME),
            "journal.jsonl": lambda: store.save(run(1), event("x")),
            "lock": lambda: store.lock(NAME).__enter__(),
        }
        with pytest.raises(StoreError, match=f"{name} is not a regular file") as raised:
            uses[name]()
        assert not isinstance(raised.value, RunNotFound)
        assert raised.value.hint
        assert target.exists() == (kind == "link")

    def test_a_link_in_the_place_of_the_state_is_replaced_and_not_followed(
        self, store: DirectoryRunStore, made: Path, tmp_path: Path
    ) -> None:
        outside = tmp_path / "precious"
        outside.write_text("precious")
        (made / "run.json").unlink()
        (made / "run.json").symlink_to(outside)
        store.save(run(1))
        assert outside.read_text() == "precious"
        assert store.load(NAME) == run(1)

    @pytest.mark.parametrize("kind", ["link", "file", "pipe"])
    def test_a_run_that_is_no_directory_is_refused(
        self, store: DirectoryRunStore, made: Path, root: Path, tmp_path: Path, kind: str
    ) -> None:
        place(root / "other", kind, made)
        for use in (
            lambda: store.load("other"),
            lambda: store.directory("other"),
            lambda: store.save(run(1, run_id="other")),
            lambda: store.remove("other"),
            lambda: store.put_approval("other", WORD),
        ):
            with pytest.raises(StoreError, match="the run other: it is not a directory"):
                use()
        assert store.load(NAME) == run(1)

    def test_approvals_that_lead_elsewhere_are_refused(
        self, store: DirectoryRunStore, made: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "outside").mkdir()
        (made / "approvals").symlink_to(tmp_path / "outside")
        with pytest.raises(StoreError, match="it is not a directory"):
            store.put_approval(NAME, WORD)
        with pytest.raises(StoreError, match="it is not a directory"):
            store.take_approval(NAME, "write")
        assert list((tmp_path / "outside").iterdir()) == []

    @pytest.mark.parametrize("kind", ["link", "directory", "pipe", "garbage", "of another stage"])
    def test_a_word_that_cannot_be_read_is_told_once_and_is_never_a_yes(
        self, store: DirectoryRunStore, made: Path, tmp_path: Path, kind: str
    ) -> None:
        store.put_approval(NAME, WORD)
        [word] = (made / "approvals").iterdir()
        whole = word.read_text()
        word.unlink()
        (tmp_path / "yes").write_text(whole)
        if kind == "garbage":
            word.write_text(whole[:10])
        elif kind == "of another stage":
            word.write_text(whole.replace("write", "other"))
        else:
            place(word, kind, tmp_path / "yes")
        with pytest.raises(StoreError, match="the word on 'write'"):
            store.take_approval(NAME, "write")
        assert store.take_approval(NAME, "write") is None
        assert (tmp_path / "yes").read_text() == whole

    @pytest.mark.parametrize("name", ["run.json", "journal.jsonl"])
    def test_an_endless_file_is_refused_without_being_read(
        self, store: DirectoryRunStore, made: Path, name: str
    ) -> None:
        with (made / name).open("wb") as file:
            file.truncate(1024**4)  # a hole, which takes no room
        use: Callable[[str], object] = store.load if name == "run.json" else store.journal
        with pytest.raises(StoreError, match=r"has 1,099,511,627,776 bytes, more than the [\d,]+ that are read"):
            use(NAME)


def place(path: Path, kind: str, target: Path) -> None:
    """Put something there that is no file of ours."""
    if kind.endswith("link"):
        path.symlink_to(target)
    elif kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.write_text("a file")


class TestList:
    @pytest.mark.requirement("S9")
    def test_one_bad_run_hides_no_other(self, store: DirectoryRunStore, root: Path, tmp_path: Path) -> None:
        for number in range(1, 10):
            store.create(run(number))
        state = [root / f"{number:08x}" / "run.json" for number in range(10)]
        state[1].write_bytes(state[1].read_bytes()[:200])
        state[2].write_bytes(b"")
        state[3].write_text(json.dumps({**json.loads(state[3].read_text()), "version": 2}))
        state[4].unlink()
        state[5].write_bytes(state[6].read_bytes())
        state[7].unlink()
        state[7].symlink_to(state[8])
        (root / "a file").write_text("x")
        (root / "empty").mkdir()
        (root / ".hidden").mkdir()
        (root / "link").symlink_to(state[8].parent)
        runs, problems = store.list()
        assert [each.run_id for each in runs] == ["00000009", "00000008", "00000006"]
        words = {
            "00000001": "is damaged: it is not whole, or no JSON",
            "00000002": "is damaged",
            "00000003": "written by a newer codeloupe",
            "00000004": "has no state",
            "00000005": "holds the state of another, '00000006'",
            "00000007": "run.json is not a regular file",
            "a file": "is not a valid run name",
            "empty": "the run empty has no state",
            "link": "it is not a directory",
        }
        assert problems.keys() == words.keys()
        for name, part in words.items():
            assert part in problems[name]

    def test_a_root_that_cannot_be_listed_is_told(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("x")
        with pytest.raises(StoreError, match="cannot list the runs in .*: Not a directory"):
            DirectoryRunStore(tmp_path / "file").list()

    def test_a_state_that_is_damaged_says_what_to_do(self, store: DirectoryRunStore, made: Path) -> None:
        (made / "run.json").write_text("{")
        with pytest.raises(StoreError, match="state of the run 00000001 is damaged") as raised:
            store.load(NAME)
        assert "pipeline remove" in raised.value.hint
        assert store.remove(NAME) == 1
        with pytest.raises(RunNotFound):
            store.load(NAME)

    def test_runs_are_found_by_the_beginning_of_their_names(self, store: DirectoryRunStore, root: Path) -> None:
        for name in ("article-1", "article-2", "build-1"):
            store.create(run(1, run_id=name))
        (root / "article-3").mkdir()
        (root / "article 4").mkdir()
        assert store.matching("article") == ("article-1", "article-2", "article-3")
        assert store.matching("b") == ("build-1",)
        assert store.matching("../") == store.matching("x") == ()
        assert DirectoryRunStore(root / "nowhere").matching("a") == ()


class TestRemoval:
    def test_a_run_is_gone_with_all_its_files_and_says_how_much_that_was(
        self, store: DirectoryRunStore, root: Path, tmp_path: Path
    ) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "precious").write_text("precious")
        made = store.create(run(1, stage("a", StageState.RUNNING, attempt(1))))
        state_bytes = (made / "run.json").stat().st_size
        work = made / "stages" / "a" / "work"
        work.mkdir(parents=True)
        (work / "big").write_bytes(b"x" * 5_000)
        (work / "link").symlink_to(outside)
        os.mkfifo(work / "pipe")
        freed = store.remove(NAME)
        assert 0 <= freed - 5_000 - state_bytes < 300  # a link has the bytes of its target's name
        assert list(root.iterdir()) == []
        assert (outside / "precious").read_text() == "precious"

    def test_directories_that_may_not_be_changed_go_too(self, store: DirectoryRunStore, made: Path, root: Path) -> None:
        locked = made / "stages" / "cache" / "locked"
        locked.mkdir(parents=True)
        (locked / "file").write_text("x")
        (locked / "file").chmod(0o400)
        locked.chmod(0o500)
        locked.parent.chmod(0o000)
        store.remove(NAME)
        assert list(root.iterdir()) == []

    def test_a_run_that_is_worked_on_stays(self, store: DirectoryRunStore, made: Path, root: Path) -> None:
        with store.lock(NAME), pytest.raises(RunBusy):
            DirectoryRunStore(root).remove(NAME)
        assert store.load(NAME) == run(1)

    def test_an_unknown_run_cannot_be_removed(self, store: DirectoryRunStore) -> None:
        with pytest.raises(RunNotFound):
            store.remove(NAME)
        with pytest.raises(RunNotFound):
            store.remove("..")

    def test_what_is_removed_can_be_made_again(self, store: DirectoryRunStore, made: Path) -> None:
        store.remove(NAME)
        store.create(replace(run(1), reason="again"))
        assert store.load(NAME).reason == "again"
