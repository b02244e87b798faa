"""The files of a run that any machine can go on with: content by digest in the database, and a copy on this machine.

Content is stored once, in chunks, so that neither end ever holds a large file in memory. Before a state is saved, what
is new in the copy goes to the database. Whoever takes the lock of a run makes its copy what the database says.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import Struct

from codeloupe.errors import StoreError, StoreUnavailable
from codeloupe.store.interface import Connection, Database
from codeloupe.store.runs import LOCK
from codeloupe.system.directories import remove_tree
from codeloupe.system.regex import regex

CHUNK_BYTES = 1024**2
_MOST_BATCH_BYTES = 8 * CHUNK_BYTES
# Which save the copy is of; beside what other programs of this machine work with, it stays here.
MARK = ".copy"
# Workspaces are filled from trees. What git borrows is where it is on this machine, and `looks` has its paths.
_STAYS_HERE = regex(
    rf"{LOCK}|{re.escape(MARK)}|stages/[^/]+/(?:work|review)"
    r"|store\.git/(?:looks|shallow|beginning\.new|objects/info/alternates|fast_import_crash_\d+)"
    r"|store\.git/(?:.*/)?(?:tmp_[^/]*|[^/]*\.(?:lock|keep|tmp))"
    r"|(?:.*/)?\.[^/]+\.[0-9a-f]{16}",
    re.DOTALL,
)
_NEW_BLOB = "INSERT INTO run_blobs (digest, size_bytes) VALUES (?, ?) ON CONFLICT DO NOTHING"
_NEW_CHUNK = "INSERT INTO run_chunks (digest, position, data) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"


class StoredFile(Struct, frozen=True):
    """A file of a run: content, size and mode; `stamp` differs when it was changed on this machine."""

    digest: bytes
    size_bytes: int
    mode: int
    stamp: tuple[int, ...] = ()


class Changes(Struct, frozen=True):
    """What of a copy the database does not have yet, and what it has and is no longer there."""

    new: Mapping[str, StoredFile]
    gone: frozenset[str]


class RunCopy:
    """The files of one run on this machine, and which of them the database has. Methods raise OSError too."""

    def __init__(self, database: Database, run_id: str, directory: Path) -> None:
        self._database, self._run_id, self.directory = database, run_id, directory
        self._known: dict[str, StoredFile] = {}

    def clear(self) -> None:
        """Remove all that is there but the lock."""
        for left in self.directory.iterdir():
            if left.is_dir() and not left.is_symlink():
                remove_tree(left)
            elif left.name != LOCK:
                left.unlink()

    def changes(self) -> Changes:
        """What changed since the database got these files; only what is new is read."""
        found = dict(scan(self.directory))
        new: dict[str, StoredFile] = {}
        for path, facts in found.items():
            known = self._known.get(path)
            if known is None or known.stamp != _stamp(facts):
                with suppress(FileNotFoundError):  # of a program that is still at work, such as git
                    new[path] = read_file(self.directory / path, facts)
        return Changes(new, frozenset(self._known.keys() - found.keys()))

    def upload(self, changes: Changes) -> None:
        """Bring new content to the database, where it counts for nothing until a run names it."""
        wanted = {file.digest: (path, file) for path, file in changes.new.items()}
        if not wanted:
            return
        rows = self._database.select("SELECT digest FROM run_blobs WHERE digest = ANY(?)", (list(wanted),))
        for (digest,) in rows:
            del wanted[digest]
        for batch in _batches(wanted.values()):
            with self._database.writing() as connection:
                if len(batch) == 1:
                    self._put_large(connection, *batch[0])
                else:
                    self._put_small(connection, batch)

    def write(self, connection: Connection, changes: Changes) -> None:
        """Let the run name its files, in the transaction of its state. Raises StoreUnavailable if content is gone."""
        if changes.gone:
            paths = [os.fsencode(path) for path in changes.gone]
            connection.execute("DELETE FROM run_files WHERE run_id = ? AND path = ANY(?)", (self._run_id, paths))
        if not changes.new:
            return
        digests = list({file.digest for file in changes.new.values()})
        # Held, so that whoever removes another run with the same content waits, and then finds it in use.
        held = "SELECT digest FROM run_blobs WHERE digest = ANY(?) FOR KEY SHARE"
        if len(connection.execute(held, (digests,)).fetchall()) < len(digests):
            raise StoreUnavailable(f"files of the run {self._run_id} were just removed together with another run")
        connection.executemany(
            "INSERT INTO run_files (run_id, path, digest, mode) VALUES (?, ?, ?, ?) ON CONFLICT (run_id, path)"
            " DO UPDATE SET digest = excluded.digest, mode = excluded.mode",
            [(self._run_id, os.fsencode(path), file.digest, file.mode) for path, file in changes.new.items()],
        )

    def saved(self, changes: Changes, save: str) -> None:
        """Remember what the database has now."""
        for path in changes.gone:
            del self._known[path]
        self._known |= changes.new
        (self.directory / MARK).write_text(save, encoding="ascii")

    def is_of(self, save: str) -> bool:
        """Whether the copy was made of, or last changed by, that save."""
        with suppress(OSError, ValueError):
            return (self.directory / MARK).read_text(encoding="ascii") == save
        return False

    def bring(self, save: str) -> None:
        """Make the copy what the database says as of a save. Raises StoreError for content that is damaged."""
        wanted = self.listed(self._database.select)
        self._known = {}
        missing: dict[str, StoredFile] = dict(wanted)
        for path, facts in list(scan(self.directory)):
            known = wanted.get(path)
            if known is None:
                (self.directory / path).unlink()
            elif facts.st_size == known.size_bytes and read_file(self.directory / path, facts).digest == known.digest:
                self._known[path] = self._settled(path, missing.pop(path))
        self.fetch(missing)
        if not self.is_of(save):
            # Another machine has worked on it since: what is in workspaces here is of no attempt that counts.
            for folder in self.directory.glob("stages/*/work"):
                remove_tree(folder)
        (self.directory / MARK).write_text(save, encoding="ascii")

    def fetch(self, files: Mapping[str, StoredFile]) -> None:
        """Write files of the database to the copy. Raises StoreError for content that is damaged."""
        for batch in _batches(files.items()):
            self._download(batch)

    def listed(self, select: Callable[[str, Sequence[object]], Iterable[Any]]) -> dict[str, StoredFile]:
        """The files of the run as the database has them. Raises StoreError for a path that no file of a run has."""
        rows = select(
            "SELECT path, digest, size_bytes, mode FROM run_files JOIN run_blobs USING (digest) WHERE run_id = ?",
            (self._run_id,),
        )
        listed = {os.fsdecode(path): StoredFile(digest, size, mode) for path, digest, size, mode in rows}
        for path in listed:
            if path.startswith("/") or ".." in PurePosixPath(path).parts or _STAYS_HERE.fullmatch(path):
                raise self._damaged(path, "its path is not valid in a run")
        return listed

    def _settled(self, path: str, file: StoredFile) -> StoredFile:
        """A file that is in place, with its mode and its stamp of now."""
        place = self.directory / path
        place.chmod(file.mode & 0o777)
        return StoredFile(file.digest, file.size_bytes, file.mode, _stamp(place.lstat()))

    def _put_small(self, connection: Connection, files: Iterable[tuple[str, StoredFile]]) -> None:
        read = [(file, (self.directory / path).read_bytes()) for path, file in files]
        for file, data in read:
            self._check(file, hashlib.sha256(data).digest())
        connection.executemany(_NEW_BLOB, [(file.digest, len(data)) for file, data in read])
        chunks = [(file.digest, 0, data) for file, data in read if data]
        connection.executemany(_NEW_CHUNK, chunks)

    def _put_large(self, connection: Connection, path: str, file: StoredFile) -> None:
        if not connection.execute(_NEW_BLOB, (file.digest, file.size_bytes)).rowcount:
            return  # another process was first
        digest = hashlib.sha256()
        with (self.directory / path).open("rb") as stream:
            for position, data in enumerate(iter(lambda: stream.read(CHUNK_BYTES), b"")):
                digest.update(data)
                connection.execute(_NEW_CHUNK, (file.digest, position, data))
        self._check(file, digest.digest())

    @staticmethod
    def _check(file: StoredFile, digest: bytes) -> None:
        if digest != file.digest:
            raise StoreError("a file of the run changed while it was stored", hint="resume the run")

    def _download(self, batch: list[tuple[str, StoredFile]]) -> None:
        """Write files of the database to the copy, each verified and whole."""
        contents: dict[bytes, bytes] = {}
        if len(batch) > 1:
            digests = list({file.digest for _, file in batch})
            found = "SELECT digest, data FROM run_chunks WHERE digest = ANY(?) AND position = 0"
            contents = dict(self._database.select(found, (digests,)))
        for path, file in batch:
            place, digest = self.directory / path, hashlib.sha256()
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            temporary = place.with_name(f".codeloupe.{secrets.token_hex(8)}")
            try:
                with temporary.open("xb") as stream:
                    small = [contents.get(file.digest, b"")]
                    for data in small if contents else self._chunks(file):
                        digest.update(data)
                        stream.write(data)
                if digest.digest() != file.digest:
                    raise self._damaged(path, "its content does not match its checksum")
                temporary.replace(place)
            finally:
                temporary.unlink(missing_ok=True)
            self._known[path] = self._settled(path, file)

    def _chunks(self, file: StoredFile) -> Iterator[bytes]:
        statement = "SELECT data FROM run_chunks WHERE digest = ? AND position = ?"
        for position in range(-(-file.size_bytes // CHUNK_BYTES)):
            for (data,) in self._database.select(statement, (file.digest, position)):
                yield data

    def _damaged(self, path: str, why: str) -> StoreError:
        what = f"the file {path!r} of the run {self._run_id} is damaged in the database {self._database.name}: {why}"
        return StoreError(what, hint="restore the database from a backup, or start a new run")


def scan(directory: Path) -> Iterator[tuple[str, os.stat_result]]:
    """The regular files of a run that go along with it to another machine."""
    folders = [""]
    # A repository's files, which its tree has: the patch is enough.
    is_repository = (directory / "result" / ".git").exists()
    while folders:
        folder = folders.pop()
        with suppress(FileNotFoundError), os.scandir(directory / folder) as entries:
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if _STAYS_HERE.fullmatch(path) or (is_repository and path == "result"):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(path)
                elif entry.is_file(follow_symlinks=False):
                    with suppress(FileNotFoundError):
                        yield path, entry.stat(follow_symlinks=False)


def read_file(file: Path, facts: os.stat_result) -> StoredFile:
    """What a file holds. Raises OSError."""
    with file.open("rb") as stream:
        size_bytes = os.fstat(stream.fileno()).st_size
        digest = hashlib.file_digest(stream, "sha256").digest()
    return StoredFile(digest, size_bytes, facts.st_mode & 0o777, _stamp(facts))


def remove_unused(connection: Connection, digests: list[bytes]) -> int:
    """Remove content that no run names any more, and what was left a day ago by processes that died; its size."""
    # Locked first: the second statement sees what those have written who were waited for.
    locked = connection.execute(
        "SELECT digest FROM run_blobs WHERE (digest = ANY(?) OR created_at < clock_seconds() - 86400)"
        " AND NOT EXISTS (SELECT 1 FROM run_files WHERE run_files.digest = run_blobs.digest) FOR UPDATE",
        (digests,),
    ).fetchall()
    removed = connection.execute(
        "DELETE FROM run_blobs WHERE digest = ANY(?) AND NOT EXISTS"
        " (SELECT 1 FROM run_files WHERE run_files.digest = run_blobs.digest) RETURNING size_bytes",
        ([row[0] for row in locked],),
    )
    return sum(row[0] for row in removed.fetchall())


def _stamp(facts: os.stat_result) -> tuple[int, ...]:
    return facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns


def _batches(files: Iterable[tuple[str, StoredFile]]) -> Iterator[list[tuple[str, StoredFile]]]:
    """Files to be sent or fetched together: some small ones, or one that has more than a chunk."""
    batch: list[tuple[str, StoredFile]] = []
    size = 0
    for path, file in files:
        if file.size_bytes > CHUNK_BYTES:
            yield [(path, file)]
            continue
        if size + file.size_bytes > _MOST_BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append((path, file))
        size += file.size_bytes
    if batch:
        yield batch
