"""The contents of the workspaces of one run, stored as trees in a bare repository that belongs to the run.

The objects of a user's repository are borrowed, and nothing is ever written there. git never works inside a workspace
that an agent has touched, so no hook, filter, attribute or configuration in it counts: its files are found and read
here, without following a link, and git gets their contents and names. It works in a workspace only to fill it. The
repository is a cache: `pack` returns its new objects as files, and `restore` builds it again from them.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from hashlib import file_digest
from pathlib import Path

from msgspec import Struct

from codeloupe.errors import CodeloupeError, GitFailed, WorkspaceError
from codeloupe.git.command import DIFF_FLAGS, Place, failure, git, try_git
from codeloupe.git.repository import (
    EXPORT_ATTRIBUTES,
    OBJECT_NAME,
    Entry,
    Repository,
    borrow,
    comparison_settings,
    lay_out,
    list_entries,
    object_name,
    private_directory,
    read_head,
)
from codeloupe.git.tree_packs import add_pack, has_pack, pack_objects, pack_tree, sizes_of_objects, unfinished_pack
from codeloupe.git.workspace_scan import Limits, Scan, folders_of, is_too_long, mode_of, parts_of, why_of
from codeloupe.model.scope import RangeScope
from codeloupe.system.directories import opened_file, opened_folder, remove_tree
from codeloupe.system.process import uninterrupted

_SETTINGS = (
    *("core.autocrlf=false", "core.fileMode=true", "core.symlinks=true", "core.ignoreCase=false"),
    # git's guards for other systems' names must not stop a run.
    *("core.precomposeUnicode=false", "core.protectNTFS=false", "core.protectHFS=false"),
    # Objects that a run refers to must survive a power failure: one pack that is flushed, not many small files.
    *("fastimport.unpackLimit=1", "core.fsync=all"),
)
_IDENTITY = ("user.name=codeloupe", "user.email=codeloupe@example.invalid", "commit.gpgSign=false")
_PATCH_FLAGS = (
    *(*DIFF_FLAGS, "--ignore-submodules=none"),
    *("--patch", "--binary", "--full-index", "--src-prefix=a/", "--dst-prefix=b/"),
)
_MOST_PENDING_BYTES = 32 * 1024**2
_MOST_NAMED = 10


class Beginning(Struct, frozen=True):
    """The beginning of a run: a tree and, in a repository, its commit. `object_format` is that of the objects."""

    tree: str
    commit: str = ""
    object_format: str = "sha1"
    has_repository: bool = False


class KeptTree(Struct, frozen=True):
    """A stored workspace: its tree, and the files that were skipped, each with the reason."""

    tree: str
    left_out: Mapping[str, str]


class JoinConflict(WorkspaceError):
    """Two trees changed the same files in different ways; the message names the files."""


class GitWorkspaceStore:
    """Store the workspaces of one run in a bare repository at `directory`. Methods raise WorkspaceError.

    With a `source`, a new run begins with the tree of its HEAD, ignored files are not stored, and a workspace gets a
    small repository of its own for its agent. Artifacts are stored even if they are ignored. Without a source, a new
    run begins empty. `beginning` is that of a run that has begun; its source may be missing if its tree was restored.
    `max_files` and `max_total_bytes` limit the new files. A file that replaces a stored one and cannot be stored leaves
    the old one, and is in `left_out`. One process at a time works with a store. However that process ended, the next
    one continues.
    """

    def __init__(
        self,
        directory: Path,
        *,
        source: Repository | None,
        beginning: Beginning | None = None,
        max_file_bytes: int = 50 * 1024**2,
        max_files: int = 200_000,
        max_total_bytes: int = 1024**3,
    ) -> None:
        self._directory = directory.absolute()
        self._source = source
        self._beginning = beginning
        self._format = "sha1"
        if beginning is not None:
            self._format = beginning.object_format
        elif source is not None:
            self._format = source.object_format
        self._has_repository = source is not None or (beginning is not None and beginning.has_repository)
        self._limits = Limits(max_file_bytes, max_files, max_total_bytes)
        self._locks: dict[str, asyncio.Lock] = {}
        self._is_ready = False
        self._packing = asyncio.Lock()
        # The trees whose objects need no pack any more.
        self._packed: set[str] = set()

    async def beginning(self) -> Beginning:
        """Return what the run begins with: nothing, or the commit that is the HEAD of its repository."""
        async with self._working("cannot create the workspaces of the run") as beginning:
            return beginning

    async def restore(self, trees: Iterable[str], fetch: Callable[[str, Path], None]) -> None:
        """Add the packs of trees that the store lacks. `fetch` writes the pack of a tree to a file."""
        with _explained("cannot restore the workspaces of the run"):
            self._lay_out()
            for tree in trees:
                if not has_pack(self._directory, _checked(tree)):
                    fetch(tree, unfinished_pack(self._directory, tree))
                    await add_pack(self._place(), tree)
                self._packed.add(tree)

    async def pack_beginning(self, max_bytes: int) -> Path | None:
        """Return a pack of what the run begins with; None if there is nothing to pack, or more than `max_bytes`."""
        async with self._working("cannot store the initial files of the run") as beginning:
            self._packed.add(beginning.tree)
            if not beginning.commit:
                return None
            sizes = await sizes_of_objects(self._place(), beginning.tree)
            if sum(sizes.values()) > max_bytes:
                return None
            return await pack_objects(self._place(), beginning.tree, [beginning.commit, *sizes])

    async def pack(self, tree: str) -> Path | None:
        """Return a pack with the objects of a tree that no earlier pack has; None if there are none."""
        async with self._working("cannot store the work of a stage") as beginning, self._packing:
            if _checked(tree) in self._packed:
                return None
            packed = await pack_tree(self._place(), tree, without={beginning.tree, *self._packed})
            self._packed.add(tree)
            return packed

    async def put(self, tree: str, directory: Path) -> None:
        """Make a directory contain exactly a tree; all other files in it are removed. No link is followed."""
        async with self._working(f"cannot fill the workspace {directory}") as beginning:
            self._refuse_precious(directory)
            await self._read_tree(_checked(tree))
            async with self._locks.setdefault(_key(directory), asyncio.Lock()):
                self._memory(directory).unlink(missing_ok=True)
                if directory.is_symlink() or not directory.is_dir():
                    directory.unlink(missing_ok=True)
                # In a thread, so that other stages continue; and to its end, or the next call would find the rest.
                await uninterrupted(asyncio.to_thread(remove_tree, directory))
                directory.mkdir(mode=0o700, parents=True)
                with private_directory() as private:
                    place = self._place(work_tree=directory.absolute(), index=private / "index")
                    await git(place, "read-tree", tree)
                    await git(place, "checkout-index", "--all", "--force", "--quiet", "--index")
                    if self._has_repository:
                        # So that the agent's git knows which files are as they were, else it finds out by itself.
                        await try_git(place, "update-index", "-q", "--refresh")
                        self._add_repository(directory, beginning.commit, private / "index")
                self._memory(directory).write_text(tree, encoding="ascii")

    async def keep(self, directory: Path, *, artifacts: Collection[str] = ()) -> KeptTree:
        """Store the content of a directory, which is only read; links that leave it, for example, are skipped.

        `artifacts` are stored even if they are ignored, with the files that their links lead to. Those that cannot be
        stored are in `left_out`.
        """
        lock = self._locks.setdefault(_key(directory), asyncio.Lock())
        async with self._working(f"cannot store the workspace {directory}") as beginning, lock:
            return await self._keep(directory, beginning.tree, artifacts)

    async def changes(self, directory: Path, *, since: str) -> tuple[str, ...]:
        """Return the files of a directory that differ from a tree, sorted. New files that are ignored do not count."""
        async with self._working(f"cannot compare {directory} with an earlier state"):
            # The files of the tree count even if they are ignored.
            self._memory(directory).write_text(_checked(since), encoding="ascii")
        return await self.changed(since, (await self.keep(directory)).tree)

    async def joined(self, base: str, ours: str, theirs: str) -> str:
        """Return one tree with the changes of two trees since `base`, merged by lines. Raise JoinConflict."""
        async with self._working("cannot merge the work of several stages"):
            base, ours, theirs = map(_checked, (base, ours, theirs))
            if ours in (base, theirs) or theirs == base:
                return theirs if ours == base else ours
            place = self._place(*_IDENTITY, "merge.renames=false", "merge.directoryRenames=false")
            commits = [await _commit(place, base)]
            commits += [await _commit(place, tree, "-p", commits[0]) for tree in (ours, theirs)]
            words = ("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", *commits[1:])
            merged = await try_git(place, *words)
            if merged.exit_code == 129:  # git's answer to an option that it does not know
                hint = "install git 2.38 or newer, or let one of the stages need the other"
                raise WorkspaceError("this git cannot merge the work of parallel stages", hint=hint)
            if merged.exit_code not in (0, 1):
                raise failure("merge-tree", merged)
            tree, *found = merged.stdout.split(b"\0")
            if merged.exit_code == 0:
                return tree.decode("ascii").strip()
            # For a file where the other has a folder, git puts the commit into the name.
            named = (os.fsdecode(path) for path in found if path)
            paths = sorted({path.removesuffix(f"~{commits[1]}").removesuffix(f"~{commits[2]}") for path in named})
            more = f" and {len(paths) - _MOST_NAMED:,} more" if len(paths) > _MOST_NAMED else ""
            names = ", ".join(ascii(path)[1:-1] for path in paths[:_MOST_NAMED]) + more
            hint = "let one of the stages need the other, or have them write different files"
            raise JoinConflict(f"conflicting changes in {names}", hint=hint)

    async def changed(self, before: str, after: str) -> tuple[str, ...]:
        """Return the files that differ between two trees, sorted."""
        async with self._working("cannot compare two workspaces"):
            words = ("diff-tree", "-r", "-z", "--no-renames", "--name-only", "--ignore-submodules=none")
            listed = await git(self._place(), *words, _checked(before), _checked(after))
            return tuple(sorted(os.fsdecode(path) for path in listed.split(b"\0") if path))

    async def diff(self, before: str, after: str, *, without: Collection[tuple[str, str]] = ()) -> str:
        """Return the difference of two trees, `without` some files, as a patch with surrogate escapes."""
        async with self._working("cannot compare two workspaces"):
            trees = [await self.without(tree, without) for tree in (before, after)]
            patch = await git(self._place(), "diff-tree", *_PATCH_FLAGS, *trees)
            return patch.decode("utf-8", "surrogateescape")

    async def without(self, tree: str, files: Collection[tuple[str, str]]) -> str:
        """Return a tree without some files, each given by its path and its blob."""
        async with self._working("cannot exclude files from a workspace"):
            if not files:
                return _checked(tree)
            entries = await self._read_tree(_checked(tree))
            left = {path: entry for path, entry in entries.items() if (path, entry.blob) not in files}
            return await self._write_tree(left)

    @asynccontextmanager
    async def committed_change(self, root: Path, *, before: str, after: str) -> AsyncIterator[RangeScope]:
        """Yield two trees as two commits of a temporary repository at `root`. Raise GitFailed and OSError."""
        remove_tree(root)
        try:
            lay_out(root / ".git", self._format, lenders=[self._directory / "objects"])
            place = Place(root / ".git", work_tree=root, settings=_IDENTITY)
            base = await _commit(place, before)
            yield RangeScope(f"{base}..{await _commit(place, after, '-p', base)}")
        finally:
            with suppress(OSError):  # the next one tries again
                remove_tree(root)

    def _place(self, *settings: str, work_tree: Path | None = None, index: Path | None = None) -> Place:
        return Place(self._directory, work_tree, index, (*_SETTINGS, *settings))

    @asynccontextmanager
    async def _working(self, what: str) -> AsyncIterator[Beginning]:
        """Yield what the run begins with; raise every failure in the block as a WorkspaceError."""
        with _explained(what):
            yield await self._ready()

    async def _ready(self) -> Beginning:
        """Make the repository, or complete one that was begun, and return what the run begins with."""
        if self._is_ready and self._beginning is not None:
            return self._beginning
        self._lay_out()
        if self._beginning is None:
            self._beginning = await self._new_beginning()
        elif self._beginning.commit:
            await self._check_beginning(self._beginning)
        self._is_ready = True
        return self._beginning

    async def _new_beginning(self) -> Beginning:
        if self._source is None:
            return Beginning(object_name("tree", b"", self._format), object_format=self._format)
        commit = (await read_head(self._source)).sha or ""
        tree = object_name("tree", b"", self._format)
        if commit:
            named = await git(self._place(), "rev-parse", "--verify", "--end-of-options", f"{commit}^{{tree}}")
            tree = named.decode("ascii").strip()
        return Beginning(tree, commit, self._format, has_repository=True)

    async def _check_beginning(self, beginning: Beginning) -> None:
        """Raise WorkspaceError if the objects of the beginning are neither stored nor borrowed."""
        found = await try_git(self._place(), "cat-file", "-e", _checked(beginning.tree))
        if found.exit_code == 0:
            return
        if self._source is None:
            what = f"the run did not store the files of the commit {beginning.commit}, from which the run started"
            raise WorkspaceError(what, hint="give a clone that has it: --clone DIR")
        # A repository removes commits that nothing in it refers to.
        what = f"the repository no longer has the commit {beginning.commit}, from which the run started"
        hint = "restore that commit, for example with `git fetch`, or start a new run"
        raise WorkspaceError(what, hint=hint)

    def _lay_out(self) -> None:
        """Make the repository, with objects that are borrowed from a source as it is now, not from an earlier one."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        shallow = self._directory / "shallow"
        for borrowed in (self._directory / "objects" / "info" / "alternates", shallow):
            borrowed.unlink(missing_ok=True)
        lenders = [] if self._source is None else [self._source.objects]
        lay_out(self._directory, self._format, bare=True, lenders=lenders, attributes=EXPORT_ATTRIBUTES)
        (self._directory / "looks").mkdir(mode=0o700, exist_ok=True)
        if self._source is not None:
            borrow(self._source.common_dir / "info" / "exclude", self._directory / "info" / "exclude")
            borrow(self._source.shallow_file, shallow)
        elif self._beginning is not None and self._beginning.commit:
            # The commits before it are not stored.
            shallow.write_text(f"{self._beginning.commit}\n", encoding="ascii")

    def _refuse_precious(self, directory: Path) -> None:
        """Refuse to empty a directory of the user or of the store."""
        place = directory.parent.resolve() / directory.name
        precious = [self._directory.resolve()]
        if self._source is not None:
            precious += [self._source.root.resolve(), self._source.common_dir.resolve()]
        inner = [folder for folder in precious if folder.is_relative_to(place)]
        if inner or place.is_relative_to(precious[0]):
            message = f"cannot use {directory} as a workspace: that would delete {(inner or precious)[0]}"
            raise WorkspaceError(message, hint="use a separate directory")

    def _add_repository(self, directory: Path, commit: str, index: Path) -> None:
        """Add a repository to a workspace, so that the agent can see its changes with git. It is never read."""
        git_dir = directory / ".git"
        lenders = [self._directory / "objects", *([self._source.objects] if self._source else [])]
        lay_out(git_dir, self._format, lenders=lenders)
        borrow(self._directory / "info" / "exclude", git_dir / "info" / "exclude")
        borrow(self._directory / "shallow", git_dir / "shallow")
        borrow(index, git_dir / "index")
        (git_dir / "HEAD").write_text(f"{commit}\n" if commit else "ref: refs/heads/main\n", encoding="ascii")

    async def _keep(self, directory: Path, beginning: str, artifacts: Collection[str]) -> KeptTree:
        before = beginning
        with suppress(OSError, ValueError, WorkspaceError):  # lost, or not as we wrote it
            before = _checked(self._memory(directory).read_text(encoding="ascii"))
        try:
            tracked = await self._read_tree(before)
        except GitFailed:  # what is remembered outlived what it is about
            before = beginning
            tracked = await self._read_tree(before)
        with private_directory() as private, opened_folder(directory) as top:
            scan = Scan(directory, tracked, self._limits, self._format, has_repository=self._has_repository)
            parts = {path: parts_of(directory, path) for path in artifacts}
            needed = set[str]().union(*parts.values())
            never_ignored = folders_of(needed).union(needed)
            level = [""]
            while level:
                found: dict[str, os.stat_result] = {}
                for folder in level:
                    await asyncio.sleep(0)  # other stages continue, and a cancellation is noticed
                    found |= scan.listed(folder)
                ignored = await self._ignored(found, scan.known, private, top) - never_ignored
                level = [path for path, facts in found.items() if path not in ignored and scan.take(path, facts)]
            entries: dict[str, Entry] = {}
            written, pending, pending_bytes = {entry.blob for entry in tracked.values()}, list[bytes](), 0
            for number, (path, facts) in enumerate(scan.files.items()):
                if number % 50 == 0:
                    await asyncio.sleep(0)  # other stages continue, and a cancellation is noticed
                try:
                    name, data = self._content(top, path, facts, tracked.get(path))
                except (OSError, ValueError) as error:
                    unread = isinstance(error, OSError)
                    scan.left_out[path] = f"a file that cannot be read: {why_of(error)}" if unread else str(error)
                    continue
                if name not in written:
                    written.add(name)
                    pending.append(data)
                    pending_bytes += len(data)
                if pending_bytes > _MOST_PENDING_BYTES:
                    await self._write_blobs(pending)
                    pending, pending_bytes = [], 0
                entries[path] = Entry(mode_of(facts), name, path)
        await self._write_blobs(pending)
        missing = [path for path in artifacts if not parts[path].issubset(entries)]
        # Submodules, and where, or above where, there is now something that cannot be kept.
        entries |= {path: entry for path, entry in tracked.items() if path not in entries and scan.leaves_old(path)}
        tree = before if entries == tracked else await self._write_tree(entries)
        self._memory(directory).write_text(tree, encoding="ascii")
        for path in missing:
            scan.left_out.setdefault(path, "it was removed, or its folder or the file that it links to was skipped")
        return KeptTree(tree, dict(sorted(scan.left_out.items())))

    def _content(self, top: int, path: str, facts: os.stat_result, kept: Entry | None) -> tuple[str, bytes]:
        """Return the object name of a file's content, and the content. Raise OSError, or ValueError if it is large."""
        if stat.S_ISLNK(facts.st_mode):
            above, _, last = path.rpartition("/")
            with opened_folder(above, inside=top) as folder:
                data = os.fsencode(os.readlink(last, dir_fd=folder))
        else:
            with opened_file(top, path) as stream:
                data = stream.read(self._limits.file_bytes + 1)
                if len(data) > self._limits.file_bytes:
                    # Too large to be kept anew, and perhaps the one that is kept already.
                    stream.seek(0)
                    head = b"blob %d\0" % facts.st_size
                    digest = file_digest(stream, lambda: hashlib.new(self._format, head, usedforsecurity=False))
                    if kept != (mode_of(facts), digest.hexdigest(), path):
                        raise ValueError(self._limits.too_large(facts.st_size))
                    return kept.blob, b""
        return object_name("blob", data, self._format), data

    async def _ignored(
        self, found: Mapping[str, os.stat_result], known: set[str], private: Path, top: int
    ) -> frozenset[str]:
        """Return the new folders and files of a workspace that its repository ignores; without a repository none.

        git is asked about names only, in a private directory with copies of the ignore files. In the workspace itself,
        it would read files of the agent, and a pipe could make it wait forever.
        """
        if not self._has_repository:
            return frozenset()
        unknown = [path for path in found if path not in known and not is_too_long(path)]
        for path in unknown:
            if stat.S_ISDIR(found[path].st_mode):
                (private / path).mkdir(parents=True, exist_ok=True)
        for path in found:
            if path.rpartition("/")[2] == ".gitignore":
                with suppress(OSError, ValueError), opened_file(top, path) as stream:  # else not what git would read
                    (private / path).parent.mkdir(parents=True, exist_ok=True)
                    (private / path).write_bytes(stream.read(1024**2))
        if not unknown:
            return frozenset()
        compared = () if self._source is None else await comparison_settings(self._source)
        settings = [word for word in compared if word.startswith("core.excludesfile=")]
        # A name may begin with what is magic to this command, which knows no literal names.
        asked = b"".join(b"./" + os.fsencode(path) + b"\0" for path in unknown)
        words = ("--no-literal-pathspecs", "check-ignore", "--no-index", "-z", "--stdin")
        answer = await try_git(self._place(*settings, work_tree=private), *words, stdin=asked)
        if answer.exit_code not in (0, 1):
            raise failure("check-ignore", answer)
        return frozenset(os.fsdecode(path[2:]) for path in answer.stdout.split(b"\0"))

    async def _read_tree(self, tree: str) -> dict[str, Entry]:
        entries = {entry.path: entry for entry in await list_entries(self._place(), tree, None, submodules=True)}
        if both := sorted(folders_of(entries).intersection(entries)):
            hint = "run `git fsck` to check the repository"
            raise WorkspaceError(f"the tree {tree} has {both[0]!r} as a file and as a folder at once", hint=hint)
        return entries

    async def _write_blobs(self, contents: Sequence[bytes]) -> None:
        if contents:
            commands = b"".join(b"blob\ndata %d\n%b\n" % (len(content), content) for content in contents)
            await git(self._place(), "fast-import", "--quiet", "--done", stdin=commands + b"done\n")

    async def _write_tree(self, entries: Mapping[str, Entry]) -> str:
        records = (f"{mode} {blob}\t{path}\0" for mode, blob, path in entries.values())
        with private_directory() as private:
            place = self._place(index=private / "index")
            await git(place, "update-index", "-z", "--index-info", stdin=os.fsencode("".join(records)))
            return (await git(place, "write-tree")).decode("ascii").strip()

    def _memory(self, directory: Path) -> Path:
        """Return the file with the tree that a workspace had when it was last filled or stored."""
        return self._directory / "looks" / _key(directory)


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Raise every failure in the block as a WorkspaceError."""
    try:
        yield
    except WorkspaceError:
        raise
    except CodeloupeError as error:
        raise WorkspaceError(f"{what}: {error.message}", hint=error.hint) from error
    except OSError as error:
        hint = "check the free disk space, and that the directory is readable and writable"
        raise WorkspaceError(f"{what}: {why_of(error)}", hint=hint) from error


async def _commit(place: Place, tree: str, *parents: str) -> str:
    return (await git(place, "commit-tree", "-m", "tree", *parents, tree)).decode("ascii").strip()


def _key(directory: Path) -> str:
    return hashlib.sha256(os.fsencode(directory.absolute())).hexdigest()[:32]


def _checked(tree: str) -> str:
    if not OBJECT_NAME.fullmatch(tree):
        hint = "the state of the run may be damaged"
        raise WorkspaceError(f"{tree[:80]!r} is not the name of a stored workspace", hint=hint)
    return tree
