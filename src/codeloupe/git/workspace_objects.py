"""The repository in which the workspaces of a run are kept: its layout, and objects written to it.

Objects are made here and not by git, which would have to enter the workspace for it and would meet what an agent left
there: attributes, nested repositories, pipes in the place of its own files. git gets them as a pack, checks and stores
them durably. Each file is complete before it gets its name, so that a process that is killed leaves nothing half done.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from codeloupe.git.command import Place, git
from codeloupe.git.repository import EXPORT_ATTRIBUTES, object_name
from codeloupe.git.workspace_removal import make_private

# No other process works in a run's store, and git's guards for other systems' names must not stop it.
_SETTINGS = (
    "core.autocrlf=false",
    "core.fileMode=true",
    "core.symlinks=true",
    "core.ignoreCase=false",
    "core.precomposeUnicode=false",
    "core.protectNTFS=false",
    "core.protectHFS=false",
)
_FOLDER_MODE = "40000"
_KINDS = {"tree": 2, "blob": 3}
_FASTEST = 1
_MOST_PENDING_BYTES = 16 * 1024**2
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Kept(Struct, frozen=True):
    """One file of a tree: its mode as git writes it, and the name of its content."""

    mode: str
    name: str


Entries = Mapping[str, Kept]
_Item = tuple[bytes, str, str]


class Objects(Struct, frozen=True):
    """A bare repository of our own. `object_format` is sha1 or sha256."""

    directory: Path
    object_format: str

    def place(self, *, work_tree: Path | None = None, index: Path | None = None, settings: Iterable[str] = ()) -> Place:
        """For commands that work in it."""
        return Place(self.directory, work_tree, index, (*_SETTINGS, *settings))

    def prepare(self, *, borrowed: Path | None) -> None:
        """Make it, or complete one that was begun. `borrowed` are the objects of the user's repository."""
        for folder in ("objects/info", "objects/pack", "refs", "info", "indexes", "looks"):
            make_private(self.directory / folder)
        self._put("config", repository_config(self.object_format, bare=True))
        self._put("info/attributes", EXPORT_ATTRIBUTES)
        if borrowed is not None:
            self._put("objects/info/alternates", alternates_line(borrowed))
        # git takes a directory for a repository when this is there, so it comes last.
        self._put("HEAD", "ref: refs/heads/none\n")

    def _put(self, name: str, text: str) -> None:
        file, content = self.directory / name, os.fsencode(text)
        if not file.is_file() or file.read_bytes() != content:
            write_whole(file, content, durable=True)

    @property
    def empty_tree(self) -> str:
        """The name of the tree without files, which git knows without having it."""
        return object_name("tree", b"", self.object_format)


class ObjectWriter:
    """Takes new objects and writes them together. Those among the `known` names are there already."""

    def __init__(self, objects: Objects, known: frozenset[str]) -> None:
        self._objects = objects
        self._written = {*known, objects.empty_tree}
        self._pending: list[bytes] = []
        self._pending_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether it holds so much that it should be flushed."""
        return self._pending_bytes > _MOST_PENDING_BYTES

    def add(self, kind: str, content: bytes) -> str:
        """Take an object; returns its name."""
        name = object_name(kind, content, self._objects.object_format)
        if name not in self._written:
            self._written.add(name)
            packed = _header(_KINDS[kind], len(content)) + zlib.compress(content, _FASTEST)
            self._pending.append(packed)
            self._pending_bytes += len(packed)
        return name

    def add_tree(self, entries: Entries) -> str:
        """Take the folders of a tree; returns the name of its top."""
        folders: dict[str, list[_Item]] = {"": []}
        for path, kept in entries.items():
            folder, _, name = path.rpartition("/")
            _items_of(folders, folder).append((os.fsencode(name), kept.mode, kept.name))
        deepest_first = sorted(filter(None, folders), key=lambda folder: folder.count("/"), reverse=True)
        for folder in deepest_first:
            parent, _, name = folder.rpartition("/")
            folders[parent].append((os.fsencode(name), _FOLDER_MODE, self._add_folder(folders[folder])))
        return self._add_folder(folders[""])

    def _add_folder(self, items: list[_Item]) -> str:
        items.sort(key=lambda item: item[0] + b"/" if item[1] == _FOLDER_MODE else item[0])
        rows = (mode.encode("ascii") + b" " + name + b"\0" + bytes.fromhex(target) for name, mode, target in items)
        return self.add("tree", b"".join(rows))

    async def flush(self) -> None:
        """Write what was taken, durably. Raises GitFailed."""
        if not self._pending:
            return
        pack = b"PACK" + (2).to_bytes(4, "big") + len(self._pending).to_bytes(4, "big") + b"".join(self._pending)
        self._pending, self._pending_bytes = [], 0
        digest = hashlib.new(self._objects.object_format, pack, usedforsecurity=False).digest()
        await git(self._objects.place(), "index-pack", "--stdin", "--threads=1", stdin=pack + digest)


def _header(kind: int, size: int) -> bytes:
    """The kind and size of an object as a pack has them: four bits of the size, then seven at a time."""
    head = bytearray([kind << 4 | size & 15])
    size >>= 4
    while size:
        head[-1] |= 0x80
        head.append(size & 0x7F)
        size >>= 7
    return bytes(head)


def _items_of(folders: dict[str, list[_Item]], folder: str) -> list[_Item]:
    missing = folder
    while missing not in folders:
        folders[missing] = []
        missing = missing.rpartition("/")[0]
    return folders[folder]


def alternates_line(objects: Path) -> str:
    """The line that lends a repository the objects of another."""
    path = os.fspath(objects.absolute())
    if "\n" not in path:
        return f"{path}\n"
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"\n'


def write_whole(file: Path, content: bytes, *, durable: bool) -> None:
    """Write a file under its name only when it is complete; a `durable` one outlives a failure of power too."""
    unfinished = file.with_name(f"tmp_{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(unfinished, _CREATE, 0o600), "wb") as sink:
            sink.write(content)
            sink.flush()
            if durable:
                os.fsync(sink.fileno())
        unfinished.replace(file)
    except BaseException:  # whatever it was, nothing is left behind
        unfinished.unlink(missing_ok=True)
        raise


def repository_config(object_format: str, *, bare: bool) -> str:
    """The configuration of a repository of ours."""
    lines = ["[core]", "\trepositoryformatversion = 1", f"\tbare = {str(bare).lower()}"]
    if object_format != "sha1":
        lines += ["[extensions]", f"\tobjectFormat = {object_format}"]
    return "\n".join(lines) + "\n"
