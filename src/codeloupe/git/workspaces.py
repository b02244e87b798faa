"""What the workspaces of one run hold, kept as trees of a bare repository that is the run's own.

Of a user's repository the objects are borrowed and nothing is ever written there. git never works inside a workspace
that an agent has touched, so no hook, filter, attribute or configuration in it counts: new objects are made here, and
git gets them as a pack, checks and stores them durably. Each file is complete before it gets its name, so that a
process that is killed leaves nothing half done.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import secrets
import time
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from codeloupe.errors import CodeloupeError, GitFailed, WorkspaceError
from codeloupe.git.command import Place, failure, git, try_git
from codeloupe.git.repository import (
    EXPORT_ATTRIBUTES,
    Repository,
    blob_sizes,
    borrow,
    comparison_settings,
    object_name,
    private_directory,
    read_head,
)
from codeloupe.git.workspace_files import (
    LINK_MODE,
    Entries,
    Found,
    Kept,
    Scan,
    ScanLimits,
    Scanner,
    Stamp,
    blob_name,
    make_private,
    mode_of,
    opened,
    read_file,
    read_link,
    reason_of,
    remove_all_but,
    stamp_of,
)
from codeloupe.model.change import SUBMODULE_MODE
from codeloupe.model.scope import RangeScope
from codeloupe.system.directories import remove_tree

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
_IDENTITY = ("user.name=codeloupe", "user.email=codeloupe@example.invalid", "commit.gpgSign=false")
_PATCH_FLAGS = (
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--submodule=short",
    "--ignore-submodules=none",
    "--diff-algorithm=histogram",
    "--find-renames",
    "--no-relative",
    "--patch",
    "--binary",
    "--full-index",
    "--src-prefix=a/",
    "--dst-prefix=b/",
)
_NAME = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_FOLDER_MODE = "40000"
_PACKED_KINDS = {"tree": 2, "blob": 3}
_MOST_PENDING_BYTES = 16 * 1024**2
_MOST_IGNORE_BYTES = 1024**2
_MOST_NAMED = 10
_FILES_BETWEEN_BREATHS = 50
# Two changes within one tick of the system's clock have the same time, so a file that is as young is read again.
_TICK_NANOSECONDS = 100_000_000
_FACTS_IN_A_STAMP = 5
_USAGE_EXIT_CODE = 129
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class KeptTree(Struct, frozen=True):
    """What a workspace held, by name in its store, and the files that are not in it, each with the reason."""

    tree: str
    left_out: Mapping[str, str]


class JoinConflict(WorkspaceError):
    """Two trees changed the same files in different ways; the message names the files."""


class _Tree(Struct, frozen=True):
    """The files, links and submodules of a tree by path, and the names of all objects in it."""

    entries: Entries
    names: frozenset[str]


class _Remembered(Struct, frozen=True):
    """The tree that a workspace held, and the stamps of its files with the names of their contents.

    A file whose stamp did not change need not be read again. When this is lost, everything is read anew.
    """

    tree: str
    contents: Mapping[str, tuple[Stamp, str]] = field(default_factory=dict)

    def content(self, path: str, stamp: Stamp) -> str | None:
        known = self.contents.get(path)
        return known[1] if known is not None and known[0] == stamp else None


class _Beginning(Struct, frozen=True):
    """With what a run began: the commit of the user's repository, None where there is none, and its tree."""

    commit: str | None
    tree: str


class GitWorkspaceStore:
    """Keeps the workspaces of one run in a bare repository at `directory`, which is made when it is needed.

    With a `source` the run begins with the tree of its HEAD, as it is when the run first asks; ignored files are not
    kept, and a workspace gets a small repository of its own for its agent. Without one it begins empty. `max_files` and
    `max_total_bytes` bound what a workspace may hold beside what it was filled with; beyond them `keep` raises.

    Folders without files are not kept, and of a file's permissions only whether it is a program. A file that takes the
    place of a kept one and cannot be kept itself leaves the old one in the tree, and is named in `left_out`.

    One process at a time works with a store. Whatever ended the one before, the next goes on. Methods raise
    WorkspaceError.
    """

    def __init__(
        self,
        directory: Path,
        *,
        source: Repository | None,
        max_file_bytes: int = 50 * 1024**2,
        max_files: int = 200_000,
        max_total_bytes: int = 1024**3,
    ) -> None:
        self._directory = directory.absolute()
        self._format = "sha1" if source is None else source.sources.object_format
        self._source = source
        self._limits = ScanLimits(file_bytes=max_file_bytes, new_files=max_files, new_bytes=max_total_bytes)
        self._locks: dict[str, asyncio.Lock] = {}
        self._beginning: _Beginning | None = None
        self._ignore_settings: tuple[str, ...] | None = None

    async def beginning(self) -> str:
        """The tree with which the run begins: empty, or the repository's; the same for as long as the store exists."""
        with _failures("the workspaces of the run cannot be begun"):
            return (await self._ready()).tree

    async def put(self, tree: str, directory: Path) -> None:
        """Make a directory hold exactly a tree; whatever else was in it is gone. No link is followed."""
        with _failures(f"the workspace {directory} cannot be filled"):
            self._refuse_precious(directory)
            beginning = await self._ready()
            async with self._locks.setdefault(_key(directory), asyncio.Lock()):
                await self._put(_checked(tree), directory, commit=beginning.commit)

    async def keep(self, directory: Path) -> KeptTree:
        """Keep what a directory holds now, which is only read; links that leave it, for example, are left out."""
        with _failures(f"the workspace {directory} cannot be kept"):
            beginning = await self._ready()
            async with self._locks.setdefault(_key(directory), asyncio.Lock()):
                return await self._keep(directory, beginning.tree)

    async def joined(self, base: str, ours: str, theirs: str) -> str:
        """One tree with what each of two changed since `base`, files merged by lines. Raises JoinConflict."""
        with _failures("the work of several stages cannot be put together"):
            await self._ready()
            base, ours, theirs = map(_checked, (base, ours, theirs))
            if ours in (base, theirs) or theirs == base:
                return theirs if ours == base else ours
            place = self._place(settings=(*_IDENTITY, "merge.renames=false", "merge.directoryRenames=false"))
            commits = [await _commit(place, base)]
            commits += [await _commit(place, tree, "-p", commits[0]) for tree in (ours, theirs)]
            words = ("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", *commits[1:])
            merged = await try_git(place, *words)
            if merged.exit_code == _USAGE_EXIT_CODE:
                raise WorkspaceError(
                    "this git cannot join the work of parallel stages",
                    hint="install git 2.38 or newer, or let the stages need each other",
                )
            if merged.exit_code not in (0, 1):
                raise failure("merge-tree", merged)
            tree, *found = merged.stdout.split(b"\0")
            if merged.exit_code == 0:
                return tree.decode("ascii").strip()
            # Of a file where the other has a folder, git tells the commit in the name.
            told = (os.fsdecode(path) for path in found if path)
            paths = sorted({path.removesuffix(f"~{commits[1]}").removesuffix(f"~{commits[2]}") for path in told})
            more = f" and {len(paths) - _MOST_NAMED:,} more" if len(paths) > _MOST_NAMED else ""
            raise JoinConflict(
                "the same files were changed in different ways: "
                f"{', '.join(ascii(path)[1:-1] for path in paths[:_MOST_NAMED])}{more}",
                hint="let one of the stages need the other, or have them write different files",
            )

    async def changed(self, before: str, after: str) -> tuple[str, ...]:
        """The files that differ between two trees, sorted."""
        with _failures("two workspaces cannot be compared"):
            await self._ready()
            words = ("diff-tree", "-r", "-z", "--no-renames", "--name-only", "--ignore-submodules=none")
            listed = await git(self._place(), *words, _checked(before), _checked(after))
            return tuple(sorted(os.fsdecode(path) for path in listed.split(b"\0") if path))

    async def diff(self, before: str, after: str, *, without: Sequence[str] = ()) -> str:
        """The difference of two trees as a patch for `git apply`, binary files included, `without` some files.

        Bytes that are not UTF-8 are escaped by surrogates: encode the patch with `surrogateescape`.
        """
        with _failures("two workspaces cannot be compared"):
            await self._ready()
            trees = [await self.without(tree, without) for tree in (before, after)]
            patch = await git(self._place(), "diff-tree", *_PATCH_FLAGS, *trees)
            return patch.decode("utf-8", "surrogateescape")

    async def without(self, tree: str, paths: Sequence[str]) -> str:
        """A tree that lacks some files."""
        with _failures("files cannot be left out of a workspace"):
            if not paths:
                return _checked(tree)
            await self._ready()
            content = await self._read_tree(_checked(tree))
            writer = _ObjectWriter(self._place(), self._format, content.names)
            smaller = writer.add_tree({path: kept for path, kept in content.entries.items() if path not in paths})
            await writer.flush()
            return smaller

    @asynccontextmanager
    async def committed_change(self, root: Path, *, before: str, after: str) -> AsyncIterator[RangeScope]:
        """Two trees as two commits of a repository at `root`, for as long as the block lasts.

        What a process that died left there is removed first. Raises GitFailed and OSError.
        """
        remove_tree(root)
        root.mkdir(mode=0o700, parents=True)
        try:
            place = Place(root / ".git", work_tree=root, settings=_IDENTITY)
            await git(place, "init", "--quiet", "--template=", f"--object-format={self._format}")
            (root / ".git" / "objects" / "info").mkdir(exist_ok=True)
            lent = os.fsencode(_alternates_line(self._directory / "objects"))
            (root / ".git" / "objects" / "info" / "alternates").write_bytes(lent)
            base = await _commit(place, before)
            yield RangeScope(f"{base}..{await _commit(place, after, '-p', base)}")
        finally:
            with suppress(OSError):  # the next one tries again
                remove_tree(root)

    def _place(
        self, *, work_tree: Path | None = None, index: Path | None = None, settings: Iterable[str] = ()
    ) -> Place:
        return Place(self._directory, work_tree, index, (*_SETTINGS, *settings))

    async def _ready(self) -> _Beginning:
        """Make the repository, or complete one that was begun, and find with what the run begins."""
        if self._beginning is not None:
            return self._beginning
        for folder in ("objects/info", "objects/pack", "refs", "info", "indexes", "looks"):
            make_private(self._directory / folder)
        files = {"config": _repository_config(self._format, bare=True), "info/attributes": EXPORT_ATTRIBUTES}
        if self._source is not None:
            files["objects/info/alternates"] = _alternates_line(self._source.sources.objects)
        # git takes a directory for a repository when HEAD is there, so it comes last.
        for name, text in {**files, "HEAD": "ref: refs/heads/none\n"}.items():
            file, content = self._directory / name, os.fsencode(text)
            if not file.is_file() or file.read_bytes() != content:
                _write_whole(file, content, durable=True)
        if self._source is not None:
            borrow(self._source.common_dir / "info" / "exclude", self._directory / "info" / "exclude")
            borrow(self._source.sources.shallow, self._directory / "shallow")
        file = self._directory / "beginning.json"
        if file.is_file():
            recorded = json.loads(file.read_bytes())
            self._beginning = _Beginning(recorded["commit"], _checked(recorded["tree"]))
            # What is borrowed may be gone: a repository forgets commits that nothing in it names any more.
            known = recorded["commit"] and await try_git(self._place(), "cat-file", "-e", recorded["tree"])
            if known and known.exit_code != 0:
                self._beginning = None
                raise WorkspaceError(
                    f"the repository no longer holds the commit {recorded['commit']}, with which the run began",
                    hint="bring that commit back, with `git fetch` for example, or begin a new run",
                )
            return self._beginning
        commit = None if self._source is None else (await read_head(self._source)).sha
        tree = object_name("tree", b"", self._format)
        if commit is not None:
            named = await git(self._place(), "rev-parse", "--verify", "--end-of-options", f"{commit}^{{tree}}")
            tree = named.decode("ascii").strip()
        _write_whole(file, json.dumps({"commit": commit, "tree": tree}).encode("ascii"), durable=True)
        self._beginning = _Beginning(commit, tree)
        return self._beginning

    def _refuse_precious(self, directory: Path) -> None:
        """Nothing that belongs to the user or to the store is ever emptied."""
        place = directory.parent.resolve() / directory.name
        precious = [self._directory.resolve()]
        if self._source is not None:
            precious += [self._source.root.resolve(), self._source.common_dir.resolve()]
        inner = [folder for folder in precious if folder.is_relative_to(place)]
        if inner or place.is_relative_to(precious[0]):
            raise WorkspaceError(
                f"{directory} cannot be a workspace: it would be emptied, and with it {(inner or precious)[0]}",
                hint="name a separate directory",
            )

    async def _put(self, tree: str, directory: Path, *, commit: str | None) -> None:
        content = await self._read_tree(tree)
        remembered = self._recall(directory)
        self._memory(directory).unlink(missing_ok=True)
        known = {} if remembered is None else remembered.contents
        there = await remove_all_but(
            directory,
            {
                path: known[path][0]
                for path, kept in content.entries.items()
                if path in known and known[path][1] == kept.name and mode_of(known[path][0][0]) == kept.mode
            },
        )
        index = self._directory / "indexes" / _key(directory)
        for left_behind in (index, index.with_name(f"{index.name}.lock")):
            left_behind.unlink(missing_ok=True)
        place = self._place(work_tree=directory.absolute(), index=index)
        await git(place, "read-tree", tree)
        wanted = b"".join(os.fsencode(path) + b"\0" for path in content.entries if path not in there)
        await git(place, "checkout-index", "-z", "--stdin", "--force", "--quiet", "--index", stdin=wanted)
        stamps = {}
        for number, (path, kept) in enumerate(content.entries.items()):
            if number % _FILES_BETWEEN_BREATHS == 0:
                await asyncio.sleep(0)  # so that other stages go on, and a cancellation is noticed
            if kept.mode != SUBMODULE_MODE:
                stamps[path] = stamp_of(os.lstat(directory / path))
        if self._source is not None:
            # So that the agent's git knows which files are as they were; if it fails, git finds out by itself.
            await try_git(place, "update-index", "-q", "--refresh")
            self._add_repository(directory, commit=commit, index=index)
        index.unlink(missing_ok=True)
        self._remember(directory, tree, content.entries, stamps)

    def _add_repository(self, directory: Path, *, commit: str | None, index: Path) -> None:
        """Give a workspace a small repository of its own, so that git tells its agent what it changed.

        It borrows the objects of the store and is at the commit with which the run began. Nothing in it is ever read.
        """
        git_dir = directory / ".git"
        for folder in ("objects/info", "objects/pack", "refs/heads", "info"):
            make_private(git_dir / folder)
        (git_dir / "config").write_text(_repository_config(self._format, bare=False), encoding="ascii")
        lent = os.fsencode(_alternates_line(self._directory / "objects"))
        (git_dir / "objects" / "info" / "alternates").write_bytes(lent)
        borrow(self._directory / "info" / "exclude", git_dir / "info" / "exclude")
        borrow(self._directory / "shallow", git_dir / "shallow")
        index.replace(git_dir / "index")
        (git_dir / "HEAD").write_text(f"{commit}\n" if commit else "ref: refs/heads/main\n", encoding="ascii")

    async def _keep(self, directory: Path, beginning: str) -> KeptTree:
        remembered = self._recall(directory) or _Remembered(beginning)
        try:
            tracked = await self._read_tree(remembered.tree)
        except GitFailed:  # what is remembered outlived what it is about
            remembered = _Remembered(beginning)
            tracked = await self._read_tree(beginning)
        scan = await self._scan(directory, tracked.entries)
        writer = _ObjectWriter(self._place(), self._format, tracked.names)
        entries: dict[str, Kept] = {}
        stamps: dict[str, Stamp] = {}
        with opened(directory) as top:
            for number, (path, found) in enumerate(scan.files.items()):
                if number % _FILES_BETWEEN_BREATHS == 0:
                    await asyncio.sleep(0)
                try:
                    if found.mode == SUBMODULE_MODE:
                        entries[path] = tracked.entries[path]
                    else:
                        entries[path], stamps[path] = self._content(top, path, found, remembered, writer)
                except ValueError as error:
                    scan.left_out[path] = str(error)
                if writer.is_full:
                    await writer.flush()
            for path, found in scan.oversized.items():
                if await self._is_as_it_was(top, path, found, tracked.entries[path], remembered):
                    entries[path], stamps[path] = tracked.entries[path], found.stamp
                    del scan.left_out[path]
        # Where, or above where, there is now something that cannot be kept.
        blocked = (path for path in tracked.entries if path not in entries and scan.is_blocked(path))
        entries |= {path: tracked.entries[path] for path in blocked}
        tree = writer.add_tree(entries)
        await writer.flush()
        self._remember(directory, tree, entries, stamps)
        return KeptTree(tree, dict(sorted(scan.left_out.items())))

    def _content(
        self, top: int, path: str, found: Found, remembered: _Remembered, writer: _ObjectWriter
    ) -> tuple[Kept, Stamp]:
        """A file, read if it is not known, and its stamp from before that. Raises ValueError."""
        if name := remembered.content(path, found.stamp):
            return Kept(found.mode, name), found.stamp
        is_link, most = found.mode == LINK_MODE, self._limits.file_bytes
        try:
            data, stamp = read_link(top, path) if is_link else read_file(top, path, most_bytes=most)
        except OSError as error:
            raise ValueError(f"a file that cannot be read: {reason_of(error)}") from error
        return Kept(found.mode, writer.add("blob", data)), stamp

    async def _is_as_it_was(self, top: int, path: str, found: Found, kept: Kept, remembered: _Remembered) -> bool:
        """Whether a file that is too large to be kept anew is the one that is kept already."""
        if kept.mode != found.mode:
            return False
        if remembered.content(path, found.stamp) == kept.name:
            return True
        sizes = await blob_sizes(self._place(), [kept.name])
        return sizes.get(kept.name) == found.stamp[2] and blob_name(top, path, self._format) == kept.name

    async def _scan(self, directory: Path, tracked: Entries) -> Scan:
        options: dict[str, Any] = {"object_format": self._format, "limits": self._limits}
        if self._source is None:
            return await Scanner(directory, tracked, **options).scan()
        if self._ignore_settings is None:
            settings = await comparison_settings(self._source)
            self._ignore_settings = tuple(word for word in settings if word.startswith("core.excludesfile="))
        with private_directory() as private, opened(directory) as top:
            mirror = private / "names"
            mirror.mkdir()
            ignores = _Ignores(top, mirror, self._place(work_tree=mirror, settings=self._ignore_settings))
            return await Scanner(directory, tracked, **options, find_ignored=ignores.find).scan()

    async def _read_tree(self, tree: str) -> _Tree:
        """What a tree holds. Raises GitFailed when it is not there."""
        listed = await git(self._place(), "ls-tree", "-r", "-t", "-z", "--full-tree", tree)
        entries: dict[str, Kept] = {}
        names, folders = {tree}, set()
        for record in filter(None, listed.split(b"\0")):
            facts, path = record.split(b"\t", 1)
            mode, kind, name = facts.decode("ascii").split(" ")
            names.add(name)
            if kind == "tree":
                folders.add(os.fsdecode(path))
            else:
                entries[os.fsdecode(path)] = Kept(mode, name)
        if both := sorted(folders.intersection(entries)):
            raise WorkspaceError(
                f"the tree {tree} has {both[0]!r} as a file and as a folder at once",
                hint="`git fsck` says more about the repository",
            )
        return _Tree(entries, frozenset(names))

    def _memory(self, directory: Path) -> Path:
        return self._directory / "looks" / f"{_key(directory)}.json"

    def _recall(self, directory: Path) -> _Remembered | None:
        try:
            value: Any = json.loads(self._memory(directory).read_bytes())
            contents = {path: (tuple(stamp), str(name)) for path, (stamp, name) in value["contents"].items()}
            return _Remembered(str(value["tree"]), contents)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):  # not there, or not as we wrote it
            return None

    def _remember(self, directory: Path, tree: str, entries: Entries, stamps: Mapping[str, Stamp]) -> None:
        oldest_trusted = time.time_ns() - _TICK_NANOSECONDS
        contents = {
            path: (stamp, entries[path].name)
            for path, stamp in stamps.items()
            if len(stamp) == _FACTS_IN_A_STAMP and max(stamp[3:]) < oldest_trusted and path in entries
        }
        text = json.dumps({"tree": tree, "contents": contents})
        _write_whole(self._memory(directory), text.encode("ascii"), durable=False)


class _Ignores:
    """Which new files of a workspace its repository ignores, for one scan, level by level from the top down.

    git is asked about names only, in a directory of our own that holds copies of the ignore files: in the workspace
    itself it would read what an agent left there, and could be made to wait for ever by a pipe.
    """

    def __init__(self, top: int, mirror: Path, place: Place) -> None:
        self._top = top
        self._mirror = mirror
        self._place = place
        self._copied: set[str] = set()

    async def find(self, folders: Sequence[str], files: Sequence[str]) -> frozenset[str]:
        """Those of some folders and files that are ignored. Raises GitFailed."""
        for path in (*folders, *files):
            self._copy_rules_above(path)
        for folder in folders:
            (self._mirror / folder).mkdir(parents=True, exist_ok=True)
        ignored_folders = await self._listed("--directory") if folders else set()
        for file in files:
            (self._mirror / file).parent.mkdir(parents=True, exist_ok=True)
            (self._mirror / file).touch()
        ignored_files = await self._listed() if files else set()
        for file in files:
            if file.rpartition("/")[2] != ".gitignore":
                (self._mirror / file).unlink()
        found = {path for path in folders if f"{path}/" in ignored_folders}
        return frozenset(found.union(path for path in files if path in ignored_files))

    async def _listed(self, *flags: str) -> set[str]:
        words = ("ls-files", "--others", "--ignored", "--exclude-standard", "-z", *flags)
        return {os.fsdecode(path) for path in (await git(self._place, *words)).split(b"\0")}

    def _copy_rules_above(self, path: str) -> None:
        """Copy the ignore files of the folders above, those that are regular files."""
        folder: str | None = path.rpartition("/")[0]
        while folder is not None and folder not in self._copied:
            self._copied.add(folder)
            name = f"{folder}/.gitignore" if folder else ".gitignore"
            with suppress(OSError, ValueError):  # not there, or not what git would read
                data, _ = read_file(self._top, name, most_bytes=_MOST_IGNORE_BYTES)
                (self._mirror / name).parent.mkdir(parents=True, exist_ok=True)
                (self._mirror / name).write_bytes(data)
            folder = folder.rpartition("/")[0] if folder else None


class _ObjectWriter:
    """Takes new objects and writes them together, as a pack. Those among the `known` names are there already."""

    def __init__(self, place: Place, object_format: str, known: frozenset[str]) -> None:
        self._place = place
        self._format = object_format
        # The tree without files is one that git knows without having it.
        self._written = {*known, object_name("tree", b"", object_format)}
        self._pending: list[bytes] = []
        self._pending_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether it holds so much that it should be flushed."""
        return self._pending_bytes > _MOST_PENDING_BYTES

    def add(self, kind: str, content: bytes) -> str:
        """Take an object; returns its name."""
        name = object_name(kind, content, self._format)
        if name not in self._written:
            self._written.add(name)
            # The kind and size as a pack has them: four bits of the size, then seven at a time.
            size = len(content)
            head = bytearray([_PACKED_KINDS[kind] << 4 | size & 15])
            size >>= 4
            while size:
                head[-1] |= 0x80
                head.append(size & 0x7F)
                size >>= 7
            self._pending.append(bytes(head) + zlib.compress(content, 1))
            self._pending_bytes += len(self._pending[-1])
        return name

    def add_tree(self, entries: Entries) -> str:
        """Take the folders of a tree; returns the name of its top."""
        folders: dict[str, list[tuple[bytes, str, str]]] = {"": []}
        for path, kept in entries.items():
            folder, _, name = path.rpartition("/")
            missing = folder
            while missing not in folders:
                folders[missing] = []
                missing = missing.rpartition("/")[0]
            folders[folder].append((os.fsencode(name), kept.mode, kept.name))
        deepest_first = sorted(filter(None, folders), key=lambda folder: folder.count("/"), reverse=True)
        for folder in deepest_first:
            parent, _, name = folder.rpartition("/")
            folders[parent].append((os.fsencode(name), _FOLDER_MODE, self._add_folder(folders[folder])))
        return self._add_folder(folders[""])

    def _add_folder(self, items: list[tuple[bytes, str, str]]) -> str:
        items.sort(key=lambda item: item[0] + b"/" if item[1] == _FOLDER_MODE else item[0])
        rows = (mode.encode("ascii") + b" " + name + b"\0" + bytes.fromhex(target) for name, mode, target in items)
        return self.add("tree", b"".join(rows))

    async def flush(self) -> None:
        """Write what was taken, durably. Raises GitFailed."""
        if self._pending:
            pack = b"PACK" + (2).to_bytes(4, "big") + len(self._pending).to_bytes(4, "big") + b"".join(self._pending)
            self._pending, self._pending_bytes = [], 0
            digest = hashlib.new(self._format, pack, usedforsecurity=False).digest()
            await git(self._place, "index-pack", "--stdin", "--threads=1", stdin=pack + digest)


async def _commit(place: Place, tree: str, *parents: str) -> str:
    return (await git(place, "commit-tree", "-m", "tree", *parents, tree)).decode("ascii").strip()


def _key(directory: Path) -> str:
    """A name for a workspace, for files that belong to it."""
    return hashlib.sha256(os.fsencode(directory.absolute())).hexdigest()[:32]


def _alternates_line(objects: Path) -> str:
    """The line that lends a repository the objects of another."""
    path = os.fspath(objects.absolute())
    if "\n" not in path:
        return f"{path}\n"
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"\n'


def _repository_config(object_format: str, *, bare: bool) -> str:
    extension = "" if object_format == "sha1" else f"[extensions]\n\tobjectFormat = {object_format}\n"
    return f"[core]\n\trepositoryformatversion = 1\n\tbare = {str(bare).lower()}\n{extension}"


def _write_whole(file: Path, content: bytes, *, durable: bool) -> None:
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


def _checked(tree: str) -> str:
    if not _NAME.fullmatch(tree):
        raise WorkspaceError(
            f"{tree[:80]!r} is not the name of a kept workspace", hint="the state of the run may be damaged"
        )
    return tree


@contextmanager
def _failures(what: str) -> Iterator[None]:
    """Turn whatever goes wrong into a WorkspaceError."""
    try:
        yield
    except WorkspaceError:
        raise
    except CodeloupeError as error:
        raise WorkspaceError(f"{what}: {error.message}", hint=error.hint) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else f"its record is damaged ({error})"
        raise WorkspaceError(
            f"{what}: {reason}", hint="check that the disk has room and that the directory can be read and written"
        ) from error
