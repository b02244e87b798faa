"""The runs of pipelines as directories, one each: state, journal, lock and what people said. See `ports.RunStore`.

The state is written whole and put in place by a rename; the journal is only added to. What is stored has been redacted
by the caller.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from codeloupe.errors import RunNotFound, StoreError
from codeloupe.model.pipeline import Approval, PipelineEvent, RunRecord
from codeloupe.store import run_approvals, run_journal
from codeloupe.store.failures import Unreadable
from codeloupe.store.review_text import FromNewerVersion
from codeloupe.store.run_files import (
    UnfitFile,
    flush,
    make_private,
    opened_directory,
    read_file,
    remove_leftovers,
    replace_file,
)
from codeloupe.store.run_json import run_from_json, run_to_json
from codeloupe.store.run_lock import Holder, holder_of, locked
from codeloupe.store.run_removal import NEW_PREFIX, REMOVED_PREFIX, clear_leftovers, size_below
from codeloupe.system.directories import remove_tree

# Below the state directory.
RUNS_DIRECTORY = "pipelines"
STATE_FILE = "run.json"
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_LARGEST_STATE_BYTES = 64 * 1024 * 1024
_HIDDEN = "."
_LIST = "`codeloupe pipeline list` shows what there is"
_GONE = "`codeloupe pipeline remove` removes a run whose state is lost"


class DirectoryRunStore:
    """The runs below one directory, which is made with the first of them. Raises StoreError throughout.

    An unknown run, or a name that no run can have, is RunNotFound.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()

    def create(self, run: RunRecord) -> Path:
        """Make a new run's directory, which is returned, with its first state: all of it or nothing."""
        directory = self._path(run.run_id)
        data = _written(run)
        with self._failures(run.run_id, doing="make"):
            make_private(self._root)
            if os.path.lexists(directory):
                raise _is_there(run.run_id, directory)
            clear_leftovers(self._root)
            made = self._root / f"{NEW_PREFIX}{run.run_id}-{secrets.token_hex(8)}"
            made.mkdir(mode=0o700)
            try:
                with opened_directory(made) as inside:
                    replace_file(STATE_FILE, data, inside=inside)
                made.rename(directory)
            except OSError as error:
                remove_tree(made)
                if os.path.lexists(directory):
                    raise _is_there(run.run_id, directory) from error
                raise
            with opened_directory(self._root) as root:
                flush(root)
        return directory

    def directory(self, run_id: str) -> Path:
        """Where a run keeps its files. Raises RunNotFound."""
        with self._opened(run_id, doing="find"):
            return self._path(run_id)

    def save(self, run: RunRecord, *events: PipelineEvent) -> None:
        """Write the state atomically and durably, then append to the journal; whoever calls holds the lock."""
        data = _written(run)
        with self._opened(run.run_id, doing="write") as inside:
            replace_file(STATE_FILE, data, inside=inside)
            if events:
                run_journal.append(events, inside=inside)

    def load(self, run_id: str) -> RunRecord:
        """A run's last state. Raises StoreError when it cannot be read, or was written by a newer codeloupe."""
        with self._opened(run_id, doing="read") as inside:
            return self._loaded(run_id, inside)

    def journal(self, run_id: str) -> tuple[PipelineEvent, ...]:
        """What happened, the oldest first; a torn last line is left out, another that is unreadable is a note."""
        with self._opened(run_id, doing="read the journal of") as inside:
            return run_journal.read(inside=inside)

    def list(self) -> tuple[tuple[RunRecord, ...], Mapping[str, str]]:
        """All runs, the newest first, and what else lies there or cannot be read, each with the reason."""
        runs: list[RunRecord] = []
        problems: dict[str, str] = {}
        for name in self._names():
            try:
                runs.append(self.load(name))
            except RunNotFound as error:
                if os.path.lexists(self._root / name):  # or it was removed meanwhile
                    problems[name] = error.message
            except StoreError as error:
                problems[name] = error.message
        return tuple(sorted(runs, key=lambda run: (run.started_at, run.run_id), reverse=True)), problems

    def matching(self, prefix: str) -> tuple[str, ...]:
        """The ids of runs that begin so, sorted, readable or not. No state is read."""
        return tuple(name for name in self._names() if _RUN_ID.fullmatch(name) and name.startswith(prefix))

    def put_approval(self, run_id: str, approval: Approval) -> None:
        """Leave a person's word for a run, also while another process holds the lock."""
        with self._opened(run_id, doing="leave a word for") as inside:
            run_approvals.put(approval, inside=inside)

    def take_approval(self, run_id: str, stage: str) -> Approval | None:
        """The word that was left on a stage, which is then gone; None when there is none."""
        with self._opened(run_id, doing="read what was said about") as inside:
            return run_approvals.take(stage, inside=inside)

    @contextmanager
    def lock(self, run_id: str) -> Iterator[None]:
        """Keep other processes off a run; freed when this process dies. Raises RunBusy, which names the other."""
        with contextlib.ExitStack() as held:
            with self._failures(run_id, doing="lock"):
                inside = held.enter_context(self._directory(run_id))
                held.enter_context(locked(run_id, directory=inside))
                remove_leftovers(STATE_FILE, inside=inside)
            yield

    def holder(self, run_id: str) -> Holder | None:
        """The process that works on a run just now, or None when none does."""
        with self._opened(run_id, doing="look at the lock of") as inside:
            return holder_of(inside)

    def remove(self, run_id: str) -> int:
        """Remove a run with all its files; how many bytes they had. Raises RunBusy while a process works on it."""
        directory = self._path(run_id)
        size = size_below(directory)
        with self.lock(run_id), self._failures(run_id, doing="remove"):
            # Out of the way at once, so that a removal that is cut short leaves no half of a run.
            aside = self._root / f"{REMOVED_PREFIX}{run_id}-{secrets.token_hex(8)}"
            directory.rename(aside)
            remove_tree(aside)
            clear_leftovers(self._root)
        return size

    def _names(self) -> tuple[str, ...]:
        try:
            with os.scandir(self._root) as entries:
                return tuple(sorted(entry.name for entry in entries if not entry.name.startswith(_HIDDEN)))
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise StoreError(
                f"cannot list the runs in {self._root}: {error.strerror or error}",
                hint="check that path and its permissions, or set CODELOUPE_HOME to another directory",
            ) from error

    def _path(self, run_id: str) -> Path:
        if not _RUN_ID.fullmatch(run_id):
            raise RunNotFound(
                f"{run_id!r} is not a valid run name: it has letters, digits, '-', '_' and '.', and begins with none of"
                " the last three",
                hint=_LIST,
            )
        return self._root / run_id

    @contextmanager
    def _opened(self, run_id: str, *, doing: str) -> Iterator[int]:
        """The directory of a run; whatever fails in the block is told in words."""
        with self._failures(run_id, doing=doing), self._directory(run_id) as inside:
            yield inside

    @contextmanager
    def _directory(self, run_id: str) -> Iterator[int]:
        path = self._path(run_id)
        with contextlib.ExitStack() as opened:
            try:
                root = opened.enter_context(opened_directory(self._root))
                inside = opened.enter_context(opened_directory(path.name, inside=root))
            except FileNotFoundError as error:
                raise RunNotFound(f"there is no run {run_id}", hint=_LIST) from error
            yield inside

    def _loaded(self, run_id: str, inside: int) -> RunRecord:
        path = self._path(run_id) / STATE_FILE
        try:
            run = run_from_json(read_file(STATE_FILE, inside=inside, limit_bytes=_LARGEST_STATE_BYTES))
        except FileNotFoundError as error:
            raise StoreError(f"the run {run_id} has no state: there is no {path}", hint=_GONE) from error
        except FromNewerVersion as error:
            raise StoreError(
                f"the state of the run {run_id} cannot be read: {error} ({path})", hint="use the newer codeloupe"
            ) from error
        except Unreadable as error:
            raise StoreError(f"the state of the run {run_id} is damaged: {error} ({path})", hint=_GONE) from error
        if run.run_id != run_id:
            raise StoreError(
                f"the directory of the run {run_id} holds the state of another, {run.run_id!r} ({path})",
                hint="give the directory its old name again",
            )
        return run

    @contextmanager
    def _failures(self, run_id: str, *, doing: str) -> Iterator[None]:
        """What the system and the files say, in words."""
        path = self._root / run_id
        try:
            yield
        except UnfitFile as error:
            raise StoreError(
                f"cannot {doing} the run {run_id}: {error} ({path})", hint="look what was put there, and move it away"
            ) from error
        except OSError as error:
            raise StoreError(
                f"cannot {doing} the run {run_id}: {error.strerror or error} ({path})",
                hint="look at that path, its permissions and the room on its disk",
            ) from error
        except ValueError as error:
            raise StoreError(
                f"cannot {doing} the run {run_id}: {error} ({path})", hint="this is a bug; please report it"
            ) from error


def _written(run: RunRecord) -> bytes:
    try:
        data = run_to_json(run)
    except ValueError as error:
        raise StoreError(
            f"the state of the run {run.run_id} cannot be written: {error}", hint="this is a bug; please report it"
        ) from error
    if len(data) > _LARGEST_STATE_BYTES:
        raise StoreError(
            f"the state of the run {run.run_id} has {len(data):,} bytes, more than {_LARGEST_STATE_BYTES:,}",
            hint="begin a new run",
        )
    return data


def _is_there(run_id: str, directory: Path) -> StoreError:
    return StoreError(f"there is a run {run_id} already ({directory})", hint="give another name, or `remove` that one")
