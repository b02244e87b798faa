"""What the workspaces of one run hold, kept as trees of a bare repository that is the run's own.

Of a user's repository the objects are borrowed and nothing is ever written there. Nothing of a workspace is believed:
git never works inside of one that an agent has touched, so no hook, filter, attribute or configuration in it counts.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct

from codeloupe.errors import CodeloupeError, GitFailed, WorkspaceError
from codeloupe.git.command import git, try_git
from codeloupe.git.repository import Repository, borrow, comparison_settings, read_head
from codeloupe.git.workspace_ignores import ignores
from codeloupe.git.workspace_keeping import Keeping, stamps_of
from codeloupe.git.workspace_looks import Remembered, forget, recall, remember, workspace_key
from codeloupe.git.workspace_merge import changes_between, merged_changes
from codeloupe.git.workspace_objects import Objects, ObjectWriter, write_whole
from codeloupe.git.workspace_private import add_repository
from codeloupe.git.workspace_scan import Scan, ScanLimits, Scanner, reason_of
from codeloupe.git.workspace_tidying import tidy
from codeloupe.git.workspace_trees import Tree, read_tree
from codeloupe.model.ports import KeptTree

_NAME = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
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

    One process at a time works with a store. Whatever ended the one before, the next goes on.
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
        object_format = "sha1" if source is None else source.sources.object_format
        self._objects = Objects(directory.absolute(), object_format)
        self._source = source
        self._limits = ScanLimits(file_bytes=max_file_bytes, new_files=max_files, new_bytes=max_total_bytes)
        self._locks: dict[str, asyncio.Lock] = {}
        self._beginning: _Beginning | None = None
        self._ignore_settings: tuple[str, ...] | None = None

    async def beginning(self) -> str:
        """The tree with which the run begins; the same for as long as the store exists."""
        with _told("the workspaces of the run cannot be begun"):
            return (await self._ready()).tree

    async def put(self, tree: str, directory: Path) -> None:
        """Make a directory hold exactly a tree; whatever else was in it is gone. No link is followed."""
        with _told(f"the workspace {directory} cannot be filled"):
            self._refuse_precious(directory)
            beginning = await self._ready()
            async with self._locked(directory):
                await self._put(_checked(tree), directory, commit=beginning.commit)

    async def keep(self, directory: Path) -> KeptTree:
        """Keep what a directory holds now. It is only read."""
        with _told(f"the workspace {directory} cannot be kept"):
            beginning = await self._ready()
            async with self._locked(directory):
                return await self._keep(directory, beginning.tree)

    async def merged(self, base: str, trees: Sequence[str]) -> str:
        """One tree with what each of `trees` changed since `base`, whatever their order; texts are merged by lines."""
        with _told("the work of several stages cannot be put together"):
            await self._ready()
            different = [tree for tree in dict.fromkeys(map(_checked, trees)) if tree != base]
            if len(different) <= 1:
                return different[0] if different else _checked(base)
            content = await read_tree(self._objects, _checked(base))
            writer = ObjectWriter(self._objects, content.names)
            chosen = await merged_changes(self._objects, writer, base, different)
            merged = {path: kept for path, kept in {**content.entries, **chosen}.items() if kept is not None}
            tree = writer.add_tree(merged)
            await writer.flush()
            return tree

    async def changed(self, before: str, after: str) -> tuple[str, ...]:
        """The files that differ between two trees, sorted."""
        with _told("two workspaces cannot be compared"):
            await self._ready()
            changes = await changes_between(self._objects, _checked(before), _checked(after))
            return tuple(sorted(change.path for change in changes))

    async def diff(self, before: str, after: str, *, without: Sequence[str] = ()) -> str:
        """The difference of two trees as a patch for `git apply`, binary files included; empty without a difference.

        `without` names files that are no part of it.
        Bytes that are not UTF-8 are escaped by surrogates: encode the patch with `surrogateescape`, and keep its line
        ends as they are.
        """
        with _told("two workspaces cannot be compared"):
            await self._ready()
            trees = [await self.without(tree, without) for tree in (before, after)]
            patch = await git(self._objects.place(), "diff-tree", *_PATCH_FLAGS, *trees)
            return patch.decode("utf-8", "surrogateescape")

    async def without(self, tree: str, paths: Sequence[str]) -> str:
        """A tree that lacks some files."""
        with _told("files cannot be left out of a workspace"):
            if not paths:
                return _checked(tree)
            await self._ready()
            content = await read_tree(self._objects, _checked(tree))
            writer = ObjectWriter(self._objects, content.names)
            smaller = writer.add_tree({path: kept for path, kept in content.entries.items() if path not in paths})
            await writer.flush()
            return smaller

    async def _ready(self) -> _Beginning:
        if self._beginning is None:
            source = self._source
            self._objects.prepare(borrowed=None if source is None else source.sources.objects)
            if source is not None:
                borrow(source.common_dir / "info" / "exclude", self._objects.directory / "info" / "exclude")
                borrow(source.sources.shallow, self._objects.directory / "shallow")
            recorded = self._recorded_beginning()
            if recorded is not None:
                await self._refuse_lost(recorded)
            self._beginning = recorded or await self._begin()
        return self._beginning

    def _recorded_beginning(self) -> _Beginning | None:
        file = self._objects.directory / "beginning.json"
        if not file.is_file():
            return None
        recorded = json.loads(file.read_bytes())
        return _Beginning(recorded["commit"], _checked(recorded["tree"]))

    async def _refuse_lost(self, beginning: _Beginning) -> None:
        """What is borrowed may be gone: a repository forgets commits that nothing in it names any more."""
        if beginning.commit is None:
            return
        found = await try_git(self._objects.place(), "cat-file", "-e", beginning.tree)
        if found.exit_code != 0:
            raise WorkspaceError(
                f"the repository no longer holds the commit {beginning.commit}, with which the run began",
                hint="bring that commit back, with `git fetch` for example, or begin a new run",
            )

    async def _begin(self) -> _Beginning:
        commit = None if self._source is None else (await read_head(self._source)).sha
        tree = self._objects.empty_tree
        if commit is not None:
            named = await git(self._objects.place(), "rev-parse", "--verify", "--end-of-options", f"{commit}^{{tree}}")
            tree = named.decode("ascii").strip()
        text = json.dumps({"commit": commit, "tree": tree})
        write_whole(self._objects.directory / "beginning.json", text.encode("ascii"), durable=True)
        return _Beginning(commit, tree)

    def _refuse_precious(self, directory: Path) -> None:
        """Nothing that belongs to the user or to the store is ever emptied."""
        place = directory.parent.resolve() / directory.name
        precious = [self._objects.directory.resolve()]
        if self._source is not None:
            precious += [self._source.root.resolve(), self._source.common_dir.resolve()]
        inner = [folder for folder in precious if folder.is_relative_to(place)]
        if inner or place.is_relative_to(precious[0]):
            raise WorkspaceError(
                f"{directory} cannot be a workspace: it would be emptied, and with it {(inner or precious)[0]}",
                hint="name a separate directory",
            )

    def _locked(self, directory: Path) -> asyncio.Lock:
        return self._locks.setdefault(workspace_key(directory), asyncio.Lock())

    async def _put(self, tree: str, directory: Path, *, commit: str | None) -> None:
        objects = self._objects
        content = await read_tree(objects, tree)
        remembered = recall(objects, directory)
        forget(objects, directory)
        there = await tidy(directory, content.entries, remembered)
        index = objects.directory / "indexes" / workspace_key(directory)
        for left_behind in (index, index.with_name(f"{index.name}.lock")):
            left_behind.unlink(missing_ok=True)
        place = objects.place(work_tree=directory.absolute(), index=index)
        await git(place, "read-tree", tree)
        wanted = b"".join(os.fsencode(path) + b"\0" for path in content.entries if path not in there)
        await git(place, "checkout-index", "-z", "--stdin", "--force", "--quiet", "--index", stdin=wanted)
        stamps = await stamps_of(directory, content.entries)
        if self._source is not None:
            # So that the agent's git knows which files are as they were; if it fails, git finds out by itself.
            await try_git(place, "update-index", "-q", "--refresh")
            add_repository(directory, objects, commit=commit, index=index)
        index.unlink(missing_ok=True)
        remember(objects, directory, tree, content.entries, stamps)

    async def _keep(self, directory: Path, beginning: str) -> KeptTree:
        objects = self._objects
        remembered, tracked = await self._last_look(directory, beginning)
        scan = await self._scan(directory, tracked)
        keeping = Keeping(objects, tracked, remembered, most_bytes=self._limits.file_bytes)
        kept = await keeping.keep(directory, scan)
        remember(objects, directory, kept.tree, kept.entries, kept.stamps)
        return KeptTree(kept.tree, MappingProxyType(dict(sorted(scan.left_out.items()))))

    async def _last_look(self, directory: Path, beginning: str) -> tuple[Remembered, Tree]:
        remembered = recall(self._objects, directory)
        if remembered is not None:
            try:
                return remembered, await read_tree(self._objects, remembered.tree)
            except GitFailed:  # what is remembered outlived what it is about
                forget(self._objects, directory)
        return Remembered(beginning), await read_tree(self._objects, beginning)

    async def _scan(self, directory: Path, tracked: Tree) -> Scan:
        object_format = self._objects.object_format
        if self._source is None:
            plain = Scanner(directory, tracked.entries, object_format=object_format, limits=self._limits)
            return await plain.scan()
        if self._ignore_settings is None:
            settings = await comparison_settings(self._source)
            self._ignore_settings = tuple(word for word in settings if word.startswith("core.excludesfile="))
        with ignores(directory, self._objects, self._ignore_settings) as rules:
            scanner = Scanner(
                directory,
                tracked.entries,
                object_format=object_format,
                limits=self._limits,
                find_ignored=rules.find,
            )
            return await scanner.scan()


def _checked(tree: str) -> str:
    if not _NAME.fullmatch(tree):
        raise WorkspaceError(
            f"{tree[:80]!r} is not the name of a kept workspace", hint="the state of the run may be damaged"
        )
    return tree


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Turn whatever goes wrong into a WorkspaceError in words."""
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
