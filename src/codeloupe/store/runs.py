"""The runs of pipelines, each a directory for this user alone: state, journal, lock and what people answered.

The state is put in place whole by a rename, the journal is only added to, and the system frees the lock of the dead.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

import msgspec

from codeloupe.errors import RunBusy, RunNotFound, StoreError
from codeloupe.model.pipeline import Approval, Moment, PipelineEvent, RunRecord
from codeloupe.store.records import (
    FromNewerVersion,
    Unreadable,
    flush_directory,
    from_json,
    read_json,
    replace_file,
    to_json,
)
from codeloupe.system.directories import remove_tree
from codeloupe.system.regex import regex

# Below the state directory.
RUNS_DIRECTORY = "pipelines"
STATE, JOURNAL, LOCK, APPROVALS = "run.json", "journal.jsonl", "lock", "approvals"
# Raised when what is written can no longer be read by an older version, not when a field is added.
VERSION = 1
_RUN_ID = regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
# How the directories are called of runs that are being made, and of those that are being removed.
_NEW_PREFIX, _REMOVED_PREFIX = ".new-", ".removed-"
_LARGEST_FILE_BYTES = 256 * 1024**2
_LIST = "`codeloupe pipeline list` lists the runs"
_GONE = "`codeloupe pipeline remove` removes a run whose state is lost"
_BUG = "this is a bug; please report it"
_NOTHING: Mapping[str, bytes] = MappingProxyType({})


class Holder(msgspec.Struct, frozen=True, rename={"process_id": "pid"}):
    """The process that works on a run. All is empty when it did not say, or not yet; `host` is for shared runs."""

    process_id: int | None = None
    since: Moment | None = None
    host: str = ""

    @property
    def name(self) -> str:
        """The process, and its machine where that may be another one."""
        process = "another process" if self.process_id is None else f"process {self.process_id}"
        return f"{process} on {self.host}" if self.host else process

    def __str__(self) -> str:
        return self.name if self.since is None else f"{self.name} (since {self.since.isoformat(' ', 'seconds')})"


class DirectoryRunStore:
    """The runs below one directory, which is made with the first of them; so that every run is whole or not there."""

    is_shared = False
    home = ""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()

    @property
    def name(self) -> str:
        """The directory."""
        return str(self._root)

    def create(self, run: RunRecord, files: Mapping[str, bytes] = _NOTHING) -> Path:
        """Store a new run, all of it or nothing; its directory. Raises StoreError if there is one of that name."""
        data = state_of(run)

        def fill(made: Path) -> None:
            write_files(made, files)
            replace_file(made / STATE, data)

        return self.place(run.run_id, fill)

    def place(self, run_id: str, fill: Callable[[Path], None], *, instead: bool = False) -> Path:
        """Store what `fill` puts into a new directory as a run, all of it or nothing; its directory.

        With `instead` it takes the place of the run of that name, which is there; else that is a StoreError.
        """
        taken = name_taken(run_id, str(self._path(run_id)))
        with self._run(run_id, doing="create", is_new=True) as directory:
            self._root.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._root.mkdir(mode=0o700, exist_ok=True)
            self._clear_leftovers()
            made = self._root / f"{_NEW_PREFIX}{run_id}-{secrets.token_hex(8)}"
            made.mkdir(mode=0o700)
            try:
                fill(made)
                if instead:
                    self.remove(run_id)
                made.rename(directory)
            except BaseException as error:  # also when it is interrupted, no half of a run is left
                remove_tree(made)
                if isinstance(error, OSError) and not instead and os.path.lexists(directory):
                    raise taken from error
                raise
            flush_directory(self._root)
        return directory

    def directory(self, run_id: str) -> Path:
        """Where the files of a run are on this machine."""
        with self._run(run_id, doing="find") as directory:
            return directory

    fetched = directory

    def save(self, run: RunRecord, *events: PipelineEvent) -> None:
        """Store the state atomically and durably, then add to the journal; the caller holds the lock."""
        data = state_of(run)
        with self._run(run.run_id, doing="write") as directory:
            replace_file(directory / STATE, data)
            if events:
                _append(directory / JOURNAL, b"".join(line_of(event) for event in events))

    def load(self, run_id: str) -> RunRecord:
        """The last state of a run. Raises StoreError when a newer codeloupe wrote it."""
        path = self._path(run_id) / STATE
        with self._run(run_id, doing="read"):
            try:
                run = run_of(read_file(path))
            except FileNotFoundError as error:
                raise StoreError(f"the run {run_id} has no state: {path} does not exist", hint=_GONE) from error
            except Unreadable as error:
                raise unreadable_state(run_id, error, str(path)) from error
        if run.run_id != run_id:
            message = f"the directory of the run {run_id} contains the state of another run, {run.run_id!r} ({path})"
            raise StoreError(message, hint="rename the directory back")
        return run

    def journal(self, run_id: str) -> tuple[PipelineEvent, ...]:
        """What happened, the oldest first, with a note for what cannot be read; a torn last line was never written."""
        with self._run(run_id, doing="read the journal of") as directory:
            try:
                data = read_file(directory / JOURNAL)
            except FileNotFoundError:
                return ()
        return events_of(data.split(b"\n")[:-1])

    def list(self) -> tuple[tuple[RunRecord, ...], Mapping[str, str]]:
        """All runs, the newest first, and those that cannot be read, each with the reason."""
        runs: list[RunRecord] = []
        problems: dict[str, str] = {}
        for name in self._names():
            try:
                runs.append(self.load(name))
            except (RunNotFound, StoreError) as error:
                # A run that was removed meanwhile is no problem.
                if not isinstance(error, RunNotFound) or os.path.lexists(self._root / name):
                    problems[name] = error.message
        return tuple(sorted(runs, key=lambda run: (run.started_at, run.run_id), reverse=True)), problems

    def matching(self, prefix: str) -> tuple[str, ...]:
        """The ids of runs that begin so, sorted, readable or not."""
        return tuple(name for name in self._names() if _RUN_ID.fullmatch(name) and name.startswith(prefix))

    def put_approval(self, run_id: str, approval: Approval) -> None:
        """Leave a person's answer for a run, also while another process holds the lock."""
        with self._run(run_id, doing="store an answer for") as directory:
            data = line_of(approval)
            with suppress(FileExistsError):
                (directory / APPROVALS).mkdir(0o700)
            replace_file(approval_file(directory, approval.stage), data)

    def left_approval(self, run_id: str, stage: str) -> Approval | None:
        """Return the answer that was left on a stage, without taking it; None when there is none."""
        with self._run(run_id, doing="read the answer for") as directory:
            try:
                return from_json(Approval, read_json(read_file(approval_file(directory, stage))))
            except FileNotFoundError:
                return None
            except Unreadable as error:
                raise Unreadable(f"cannot read the answer on {stage!r} ({error})") from error

    def take_approval(self, run_id: str, stage: str) -> Approval | None:
        """The answer that was left on a stage, which is then gone, readable or not; None when there is none."""
        with self._run(run_id, doing="read the answer for") as directory:
            try:
                file = approval_file(directory, stage)
                # Renamed before it is read: a newer answer that comes meanwhile is not lost with this one.
                ours = file.rename(file.with_name(f".taken.{secrets.token_hex(8)}"))
            except FileNotFoundError:
                return None
            try:
                approval = from_json(Approval, read_json(read_file(ours)))
            except Unreadable as error:
                raise Unreadable(f"cannot read the answer on {stage!r} ({error})") from error
            finally:
                with suppress(OSError):  # whatever cannot be removed has lost its name
                    ours.unlink()
            if approval.stage != stage:
                raise Unreadable(f"the answer on {stage!r} is about {approval.stage!r}")
            return approval

    @contextmanager
    def lock(self, run_id: str) -> Iterator[None]:
        """Keep other processes off a run; freed when this process dies. Raises RunBusy, which names the other."""
        with ExitStack() as held:
            with self._run(run_id, doing="lock") as directory:
                descriptor = open_file(directory / LOCK, os.O_RDWR | os.O_CREAT)
                held.callback(os.close, descriptor)
                _wait_for_lock(run_id, descriptor)
                # The file may have been removed, with the run or alone, before its lock was ours.
                if not os.fstat(descriptor).st_nlink or not (directory / LOCK).exists():
                    raise RunNotFound(f"the run {run_id} was just removed", hint=_LIST)
                os.ftruncate(descriptor, 0)
                os.write(descriptor, msgspec.json.encode(Holder(os.getpid(), datetime.now(UTC))))
                # While the lock is held: whoever gets it next writes its own name.
                held.callback(os.ftruncate, descriptor, 0)
                for left in directory.glob(f".{STATE}.*"):  # by a crash on the way to a state
                    with suppress(OSError):
                        left.unlink()
            yield

    def holder(self, run_id: str) -> Holder | None:
        """The process that works on a run just now, or None when none does."""
        with self._run(run_id, doing="check the lock of") as directory:
            try:
                descriptor = open_file(directory / LOCK, os.O_RDONLY)
            except FileNotFoundError:
                return None
            try:
                return None if try_lock(descriptor, fcntl.LOCK_SH) else _read_holder(descriptor)
            finally:
                os.close(descriptor)

    def remove(self, run_id: str) -> int:
        """Remove a run with all its files; how many bytes they had. Raises RunBusy while a process works on it."""
        directory = self._path(run_id)
        files = (Path(folder, name) for folder, _, names in os.walk(directory) for name in names)
        size = sum(file.lstat().st_size for file in files if os.path.lexists(file))
        with self.lock(run_id), self._run(run_id, doing="remove"):
            # Out of the way at once, so that a removal that is cut short leaves no half of a run.
            remove_tree(directory.rename(self._root / f"{_REMOVED_PREFIX}{run_id}-{secrets.token_hex(8)}"))
            self._clear_leftovers()
        return size

    def _clear_leftovers(self) -> None:
        """Remove what processes that died left of runs that they made or removed. Raises nothing: it is tried again."""
        with suppress(OSError), os.scandir(self._root) as entries:
            for entry in entries:
                with suppress(OSError):
                    # To make a run takes a moment.
                    is_old = entry.stat(follow_symlinks=False).st_mtime < time.time() - 3_600
                    is_left = entry.name.startswith(_REMOVED_PREFIX) or (is_old and entry.name.startswith(_NEW_PREFIX))
                    if is_left and entry.is_dir(follow_symlinks=False):
                        remove_tree(Path(entry.path))

    def _names(self) -> tuple[str, ...]:
        try:
            return tuple(sorted(path.name for path in self._root.iterdir() if not path.name.startswith(".")))
        except FileNotFoundError:
            return ()
        except OSError as error:
            hint = "check that path and its permissions, or set CODELOUPE_HOME to another directory"
            raise StoreError(f"cannot list the runs in {self._root}: {error.strerror or error}", hint=hint) from error

    def _path(self, run_id: str) -> Path:
        return self._root / checked_name(run_id)

    @contextmanager
    def _run(self, run_id: str, *, doing: str, is_new: bool = False) -> Iterator[Path]:
        """The directory of a run; whatever fails in the block becomes a StoreError."""
        path = self._path(run_id)
        try:
            if not is_new and not os.path.lexists(path):
                raise not_found(run_id)
            yield path if is_new else _checked_directory(path)
        except (OSError, ValueError) as error:
            reason, hint = str(error), _BUG
            if isinstance(error, Unreadable):
                hint = "check what it is, and move it away"
            elif isinstance(error, OSError):
                reason = error.strerror or reason
                hint = "check that path, its permissions and the free disk space"
            raise StoreError(f"cannot {doing} the run {run_id}: {reason} ({path})", hint=hint) from error


def checked_name(run_id: str) -> str:
    """The name of a run. Raises RunNotFound for what can be none, such as one that leads to another directory."""
    if not _RUN_ID.fullmatch(run_id):
        message = f"{run_id!r} is not a valid run name: a letter or digit, then letters, digits, '-', '_' and '.'"
        raise RunNotFound(message, hint=_LIST)
    return run_id


def not_found(run_id: str) -> RunNotFound:
    """Return the error for a run that does not exist."""
    return RunNotFound(f"there is no run {run_id}", hint=_LIST)


def name_taken(run_id: str, place: str) -> StoreError:
    """Return the error for a new run whose name is taken."""
    return StoreError(f"the run {run_id} already exists ({place})", hint="use another name, or `remove` that run")


def busy(run_id: str, holder: Holder, *, is_ours: bool) -> RunBusy:
    """Return the error for a run that another process, or another part of this one, is working on."""
    if is_ours:
        return RunBusy(f"this process is already working on the run {run_id}", hint="wait until it ends")
    hint = f"`codeloupe pipeline status {run_id} --follow` shows its progress; wait, or stop that process"
    return RunBusy(f"the run {run_id} is busy: {holder} is working on it", hint=hint)


def unreadable_state(run_id: str, error: Unreadable, place: str) -> StoreError:
    """Return the error for a state that is damaged or from a newer version."""
    is_newer = isinstance(error, FromNewerVersion)
    what, hint = ("cannot be read", "use the newer codeloupe") if is_newer else ("is damaged", _GONE)
    return StoreError(f"the state of the run {run_id} {what}: {error} ({place})", hint=hint)


def events_of(lines: Iterable[bytes | str]) -> tuple[PipelineEvent, ...]:
    """A journal, with a note for each line that cannot be read."""
    events: list[PipelineEvent] = []
    for number, line in enumerate(lines, start=1):
        try:
            event = from_json(PipelineEvent, read_json(line))
        except Unreadable as error:
            last = events[-1].at if events else datetime.fromtimestamp(0, UTC)
            message = f"line {number} of the journal cannot be read: {error}"
            event = PipelineEvent(at=last, kind="note", message=message)
        events.append(event)
    return tuple(events)


def write_files(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write files of a run, by their names below its directory. Raises OSError."""
    for name, data in files.items():
        file = directory / name
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(file, data)


def line_of(value: object) -> bytes:
    """A record as a line of a file. Raises ValueError."""
    return to_json(value).encode("utf-8", "surrogatepass") + b"\n"


def run_of(data: bytes | str) -> RunRecord:
    """Return the run of a state. Raise Unreadable."""
    document = read_json(data)
    version = document.get("version")
    if type(version) is not int or version < 1:
        raise Unreadable("it has no version, so it is not the state of a run")
    if version > VERSION:
        raise FromNewerVersion(f"a newer codeloupe wrote it (version {version}, this version reads {VERSION})")
    return from_json(RunRecord, document)


def state_of(run: RunRecord) -> bytes:
    """Return a state in the format of its file. Raise StoreError."""
    try:
        return line_of(run)
    except ValueError as error:
        raise StoreError(f"cannot write the state of the run {run.run_id}: {error}", hint=_BUG) from error


def _checked_directory(path: Path) -> Path:
    if not stat.S_ISDIR(path.lstat().st_mode):
        raise Unreadable("it is not a directory")
    return path


def approval_file(directory: Path, stage: str) -> Path:
    """Where the answer on a stage is, in a folder that is there. Raises OSError."""
    # A stage may have any name, a file may not.
    name = hashlib.sha256(stage.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return _checked_directory(directory / APPROVALS) / f"{name}.json"


def _wait_for_lock(run_id: str, descriptor: int) -> None:
    # Who works on a run says so in the lock file at once. Somebody who only looks whether it is free says nothing, and
    # has the lock for an instant, which is longer on a busy machine.
    tries = 0
    while not try_lock(descriptor):
        tries += 1
        if tries > (10 if os.fstat(descriptor).st_size else 150):
            holder = _read_holder(descriptor)
            raise busy(run_id, holder, is_ours=holder.process_id == os.getpid())
        time.sleep(0.03)


def try_lock(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Lock an open file at once, or not at all; whether it is locked."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_holder(descriptor: int) -> Holder:
    try:
        return msgspec.json.decode(os.pread(descriptor, 1_000, 0), type=Holder)
    except (OSError, msgspec.DecodeError):
        return Holder()


def open_file(file: Path, flags: int) -> int:
    """The descriptor of a regular file, made for this user alone when the flags say so. Raises Unreadable."""
    if os.path.lexists(file) and not stat.S_ISREG(file.lstat().st_mode):
        raise Unreadable(f"{file.name} is not a regular file")
    return os.open(file, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode=0o600)


def read_file(file: Path) -> bytes:
    """A file that this store has written. Raises OSError, or Unreadable for what it has not."""
    with os.fdopen(open_file(file, os.O_RDONLY), "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        if size > _LARGEST_FILE_BYTES:
            raise Unreadable(f"{file.name} has {size:,} bytes, more than the limit of {_LARGEST_FILE_BYTES:,}")
        return stream.read()


def _append(file: Path, lines: bytes) -> None:
    """Add lines to the journal durably, after the last whole one: what a crash cut off is removed."""
    with os.fdopen(open_file(file, os.O_RDWR | os.O_CREAT), "r+b") as stream:
        size = stream.seek(0, os.SEEK_END)
        if size and os.pread(stream.fileno(), 1, size - 1) != b"\n":
            stream.seek(0)
            stream.truncate(stream.read(_LARGEST_FILE_BYTES).rfind(b"\n") + 1)
            stream.seek(0, os.SEEK_END)
        stream.write(lines)
        stream.flush()
        os.fsync(stream.fileno())
    if not size:
        flush_directory(file.parent)
