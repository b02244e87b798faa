"""Remote repositories, cached on this machine, so that a job does not clone what another one has fetched already.

A mirror is a bare repository of ours for one address, with all branches and tags of the remote, and single refs and
commits that jobs name. A fetch works in a directory of its own, which borrows what the mirror has, and is moved into
the mirror once it is complete: whoever is killed meanwhile leaves the mirror as it was. A mirror only gains objects.
One that is damaged, or has become too large or too scattered by many fetches, is not mended: a new one takes its place,
and the old one is removed when its last job has ended. A job gets a clone without files, which borrows the objects.

Two kinds of lock hold for all processes on this machine, and end with their holder. Whoever fetches from an address
holds its lock file. Whoever uses a mirror shares a lock on its directory; to remove it takes that lock exclusively.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from codeloupe.errors import GitFailed, RemoteTooLarge, RevisionError, UsageError
from codeloupe.git.command import Place, git
from codeloupe.git.pull_request import (
    FETCH,
    RemoteAddress,
    RemoteRepository,
    TokenSource,
    folder_of,
    origin_section,
    using_tokens,
)
from codeloupe.git.repository import OBJECT_NAME, lay_out
from codeloupe.system.directories import locked_folder, remove_abandoned, temporary_directory, try_lock
from codeloupe.system.regex import regex

_SECONDS_BETWEEN_TRIES = 0.05
# Each fetch adds a pack, and git looks into every one of them for each object.
_MOST_PACKS = 100
_HEADS, _TAGS = "refs/heads/", "refs/tags/"
_REFS, _DAMAGED = "remote-refs", "damaged"
# What git takes as the name of a ref; a remote may list others.
_REF = regex(r"(?![-/.])(?!.*(?:\.\.|@\{|//|/\.|\.lock(?:/|$)|[./]$))[^\x00-\x20\x7f~^:?*\[\\]{1,1000}")
# What git says about objects of ours that are broken or missing, and not about those of the remote.
_DAMAGE = regex(
    r"^(?!remote: |.*on the remote side).*(?:bad object|(?:unable to|could not) read (?:tree|sha1|[0-9a-f]{40})|corrupt"
    r"|inflate|does not match index|valid object|cannot be accessed|necessary objects|unresolved delta|too short"
    r"|unexpected line in)",
    re.MULTILINE | re.IGNORECASE,
)
_INSTEAD = "give the path of a clone on this machine"


class _Need(Struct, frozen=True):
    """What a job needs: commits by their full names, and refs; `fresh` if the remote has to be asked in any case."""

    commits: tuple[str, ...]
    names: tuple[str, ...]
    fresh: bool


class _Refs(Struct, frozen=True):
    """The refs of a remote; `head` is its default branch, or a commit, or empty where it has neither."""

    head: str
    by_name: Mapping[str, str]

    @property
    def object_format(self) -> str:
        """The format of the remote's objects."""
        return "sha256" if len(next(iter(self.tips), "")) == 64 else "sha1"

    @property
    def tips(self) -> list[str]:
        """Every object that a ref names."""
        return [*([self.head] if OBJECT_NAME.fullmatch(self.head) else []), *self.by_name.values()]

    def find(self, name: str) -> str | None:
        """The full name of a ref, which may be named as a branch or a tag; None where there is none."""
        return next((ref for ref in (name, f"{_HEADS}{name}", f"{_TAGS}{name}") if ref in self.by_name), None)


class _Mirror(NamedTuple):
    """A mirror, and the refs that it had: the next fetch may have other ones."""

    path: Path
    refs: _Refs


class _Fetches(NamedTuple):
    """Fetches are numbered: the last one that began, and the last one that was completed."""

    begun: int
    done: int


class MirrorCache:
    """Mirrors of repositories in a directory for this user alone, which many processes on one machine may share.

    After a fetch, if they are larger than `max_bytes` together, those that were not used for the longest time are
    removed, but none that is in use. `token_of` gives the token for a remote over https, or None, and then the user's
    own credential helper is asked. A commit that is here is given to whoever names it, and the remote is not asked.
    """

    def __init__(self, directory: Path, *, max_bytes: int, token_of: TokenSource | None = None) -> None:
        self._directory = directory.absolute()
        self._max_bytes = max_bytes
        self._token_of = token_of

    @asynccontextmanager
    async def opened(
        self, address: RemoteAddress, *, revisions: Sequence[str] = (), head: str | None = None, refresh: bool = False
    ) -> AsyncIterator[Path]:
        """A clone of the repository for this block alone; what was fetched stays in the cache.

        `revisions` are what has to be there: commits by their full names, branches, tags, or full names of other refs,
        such as refs/pull/7/head. The remote is not asked when all of them are commits that are here, unless `refresh`
        is set; without any it always is. A fetch that another process begins while this one waits is enough.

        All branches are there as origin's; the default branch and those in `revisions` are local ones too. HEAD is the
        default branch, or `head`, a branch or a commit. No file is checked out, so scopes of the working tree mean
        nothing here. Within the block, pull requests are fetched with the same tokens.

        Raises RevisionError for what the remote does not have, another UsageError for what the caller can mend (no such
        repository, a login that is refused, a cache that cannot be written), RemoteTooLarge for a repository that is
        larger than the whole cache, and ProcessError when the remote cannot be reached or is too slow.
        """
        wanted = [*revisions, *([] if head is None else [head])]
        need = _needed(wanted, refresh=refresh or not wanted)
        with using_tokens(self._token_of), ExitStack() as use:
            with self._reporting():
                mirror = await self._join_or_fetch(address, need, use)
                os.utime(mirror.path)
                root = use.enter_context(temporary_directory()) / folder_of(address)
                _lay_out_clone(root, mirror, address, names=need.names, head=head)
            try:
                yield root
            except GitFailed as error:
                if _DAMAGE.search(error.stderr):
                    with suppress(OSError):  # the next job that fails says so again
                        (mirror.path / _DAMAGED).touch()
                raise
            finally:
                with suppress(OSError):  # then it was used when the block began
                    os.utime(mirror.path)

    def check(self) -> None:
        """Raises UsageError when the directory cannot be used."""
        with self._reporting(), temporary_directory(self._directory):
            pass

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Whatever the disk refuses in the block is a UsageError."""
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            facts = self._directory.stat()
            if facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
                message = f"{self._directory} cannot be used as the repository cache: other users can access it"
                raise UsageError(message, hint="use another directory, or make it private (chmod 700)")
            yield
        except OSError as error:
            reason = f"{error.strerror or error} ({error.filename or self._directory})"
            message = f"cannot use the repository cache in {self._directory}: {reason}"
            hint = "check its permissions and free disk space; it must be on a local disk"
            # Another machine may have room.
            raise UsageError(message, hint=hint, retryable=True) from error

    async def _join_or_fetch(self, address: RemoteAddress, need: _Need, use: ExitStack) -> _Mirror:
        """A mirror that has what is needed, and that nobody removes until `use` is closed."""
        key = f"{folder_of(address)[:40]}-{hashlib.sha256(os.fsencode(address.url)).hexdigest()[:32]}"
        descriptor = os.open(self._directory / f"{key}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "r+b", buffering=0) as lock, ExitStack() as joined:
            asked = _read_fetches(lock)
            if not need.fresh:
                mirror, is_enough = await self._join(key, need, joined)
                if mirror is not None and is_enough:
                    use.push(joined.pop_all())
                    return mirror
                joined.close()
            while not try_lock(descriptor):  # noqa: ASYNC110 - the event is in another process
                await asyncio.sleep(_SECONDS_BETWEEN_TRIES)
            fetches = _read_fetches(lock)
            mirror, is_enough = await self._join(key, need, joined)
            if mirror is None or not is_enough or (need.fresh and fetches.done <= asked.begun):
                number = 1 + max([fetches.begun, *map(_number, self._mirrors(key))])
                _write_fetches(lock, fetches._replace(begun=number))
                target = self._directory / f"{key}.{number}"
                mirror = await self._fetch(address, need, mirror=mirror, target=target, held=joined)
                _write_fetches(lock, _Fetches(number, number))
                self._make_room()
            use.push(joined.pop_all())
            return mirror

    async def _join(self, key: str, need: _Need, held: ExitStack) -> tuple[_Mirror | None, bool]:
        """The newest mirror, if it is sound, which nobody removes until `held` is closed; and whether it is enough."""
        path = max(self._mirrors(key), key=_number, default=None)
        if path is None or not held.enter_context(locked_folder(path, shared=True)):
            return None, False
        with suppress(GitFailed, OSError, ValueError):  # damaged in a way that can be seen
            refs, packs = _read_refs(path)
            if _count_sound_packs(path) >= packs and not (path / _DAMAGED).exists():
                is_enough = all(map(refs.find, need.names)) and not await _missing(path, need.commits)
                return _Mirror(path, refs), is_enough
        held.close()
        return None, False

    def _mirrors(self, key: str = "*") -> list[Path]:
        return [path for path in self._directory.glob(f"{key}.*") if path.suffix[1:].isdigit()]

    async def _fetch(
        self, address: RemoteAddress, need: _Need, *, mirror: _Mirror | None, target: Path, held: ExitStack
    ) -> _Mirror:
        """Fetch into the mirror that `held` keeps, or else make a new one at `target`, which `held` keeps then."""
        remove_abandoned(self._directory)
        if mirror is not None and len(list(mirror.path.glob("objects/pack/*.idx"))) < _MOST_PACKS:
            try:
                return _Mirror(mirror.path, await self._fetch_into(mirror.path, address, need, known=mirror.refs))
            except GitFailed as error:
                # It may have grown by what no branch has any more.
                if not isinstance(error, RemoteTooLarge) and not _DAMAGE.search(error.stderr):
                    raise
        held.close()
        with temporary_directory(self._directory) as temporary:
            (made := temporary / "mirror").mkdir(mode=0o700)
            try:
                refs = await self._fetch_into(made, address, need, known=None)
            except RemoteTooLarge as error:
                message = f"{address.name} exceeds the limit of the repository cache, {self._max_bytes:,} bytes"
                hint = f"raise the limit (max_bytes), or {_INSTEAD}"
                raise RemoteTooLarge(message, program="git", status=-1, hint=hint) from error
            # A lock is on the directory itself, whatever its name, and two may share it.
            with locked_folder(made, shared=True):
                made.rename(target)
                held.enter_context(locked_folder(target, shared=True))
        return _Mirror(target, refs)

    async def _fetch_into(self, mirror: Path, address: RemoteAddress, need: _Need, *, known: _Refs | None) -> _Refs:
        """Complete a mirror with all that is new since the refs `known`, or an empty directory. Raises GitFailed."""
        limit_bytes = self._max_bytes - _bytes_of(mirror)
        with temporary_directory(self._directory) as stage:
            remote = RemoteRepository(address, stage, limit_bytes=limit_bytes, otherwise=_INSTEAD)
            lay_out(stage, "sha1", bare=True)
            refs = await _list_refs(remote, need.names)
            if known is None:
                lay_out(mirror, refs.object_format, bare=True)
            else:
                # By these the remote knows what it need not send.
                _write_packed_refs(stage, known.by_name)
            objects, config = mirror / "objects", origin_section(address)
            lay_out(stage, refs.object_format, bare=True, lenders=[objects], config=config)
            try:
                # A commit that comes with its branch need not be asked for, which not every server allows.
                for wanted in (refs.tips, need.commits):
                    if missing := await _missing(stage, wanted):
                        asked = "".join(f"{sha}\n" for sha in missing).encode("ascii")
                        await remote.call(*FETCH, "--update-shallow", "--stdin", "origin", stdin=asked)
            except RevisionError as error:
                lost = [sha[:12] for sha in await _missing(stage, need.commits)]
                message = f"{address.name} does not have {', '.join(lost) or 'a commit that it has just listed'}"
                hint = "a force-push may have removed it: give a commit of a branch or tag, or retry"
                raise RevisionError(message, hint=hint) from error
            if (stage / "shallow").exists():
                message = f"{address.name} is a shallow clone without the full history"
                raise UsageError(
                    message, hint="use the repository that it was cloned from, or run `git fetch --unshallow` in it"
                )
            # git sees a pack once its index is there.
            for file in sorted(stage.glob("objects/pack/pack-*.*"), key=lambda file: file.suffix == ".idx"):
                file.rename(objects / "pack" / file.name)
            _write_refs(mirror, refs, unfinished=stage / _REFS)
            return refs

    def _make_room(self) -> None:
        """Remove mirrors that were replaced, then those that were not used for the longest time until the rest fits."""
        found = sorted(self._mirrors(), key=_number)
        newest = {mirror.stem: mirror for mirror in found}
        mirrors: list[tuple[bool, float, int, Path]] = []
        for mirror in found:
            with suppress(OSError):  # removed meanwhile
                last_use = mirror.stat().st_mtime
                mirrors.append((newest[mirror.stem] == mirror, last_use, _bytes_of(mirror), mirror))
        total_bytes = sum(size for _, _, size, _ in mirrors)
        for is_newest, _, size, mirror in sorted(mirrors):
            if (not is_newest or total_bytes > self._max_bytes) and self._remove(mirror):
                total_bytes -= size

    def _remove(self, mirror: Path) -> bool:
        """Remove a mirror that nobody uses; whether it is gone."""
        with locked_folder(mirror) as is_free:
            if is_free:
                # Out of the way at once: whoever is killed here leaves no half of it.
                with temporary_directory(self._directory) as temporary:
                    mirror.rename(temporary / mirror.name)
            return is_free


def _needed(revisions: Sequence[str], *, refresh: bool) -> _Need:
    """What some revisions ask for. Raises RevisionError for what is neither a full name of a commit nor a ref."""
    for revision in revisions:
        if not _REF.fullmatch(revision):
            hint = "give a full commit hash, a branch, a tag, or a ref such as refs/pull/7/head; not a range"
            raise RevisionError(f"{revision!r} cannot be fetched: it is neither a commit nor a ref", hint=hint)
    commits = tuple(filter(OBJECT_NAME.fullmatch, revisions))
    names = tuple(revision for revision in revisions if revision not in (*commits, "HEAD"))
    return _Need(commits, names, refresh or len(commits) < len(revisions))


async def _list_refs(remote: RemoteRepository, names: Sequence[str]) -> _Refs:
    """The branches and tags of a remote, and what else is named. Raises RevisionError for a name that is not there."""
    others = [name for name in names if name.startswith("refs/")]
    patterns = ("HEAD", f"{_HEADS}*", f"{_TAGS}*", *others)
    output = await remote.call("ls-remote", "--symref", "--", remote.address.url, *patterns)
    rows = [line.split("\t") for line in os.fsdecode(output).split("\n") if line.count("\t") == 1]
    by_name = {
        name: sha
        for sha, name in rows
        if OBJECT_NAME.fullmatch(sha) and _REF.fullmatch(name) and (name.startswith((_HEADS, _TAGS)) or name in others)
    }
    heads = [what.removeprefix("ref: ") for what, name in rows if name == "HEAD"]
    is_branch = by_name.keys() & {what for what in heads if what.startswith(_HEADS)}
    head = next((what for what in heads if what in is_branch or OBJECT_NAME.fullmatch(what)), "")
    refs = _Refs(head, by_name)
    if lost := next((name for name in names if not refs.find(name)), None):
        hint = "give a branch or tag of the remote, a full ref or a full commit hash"
        raise RevisionError(f"{remote.address.name} has no branch, tag or ref {lost!r}", hint=hint)
    return refs


def _lay_out_clone(
    root: Path, mirror: _Mirror, address: RemoteAddress, *, names: Sequence[str], head: str | None
) -> None:
    """Make what a clone of the remote would be, before any file is checked out, with the objects of the mirror."""
    refs, git_dir = mirror.refs, root / ".git"
    checked_out = refs.head if head is None or head == "HEAD" else refs.find(head) or head
    if checked_out and not checked_out.startswith(_HEADS) and not OBJECT_NAME.fullmatch(checked_out):
        raise RevisionError(f"{head!r} cannot be checked out", hint="give a branch or a full commit hash")
    lay_out(git_dir, refs.object_format, lenders=[mirror.path / "objects"], config=origin_section(address))
    local = {name for name in (refs.head, *map(refs.find, names)) if name and name.startswith(_HEADS)}
    tracked = {_tracking(name): sha for name, sha in refs.by_name.items()}
    _write_packed_refs(git_dir, tracked | {name: refs.by_name[name] for name in local})
    if refs.head in local:
        (git_dir / "refs/remotes/origin").mkdir(parents=True)
        (git_dir / "refs/remotes/origin/HEAD").write_bytes(os.fsencode(f"ref: {_tracking(refs.head)}\n"))
    if checked_out:
        prefix = "ref: " if checked_out.startswith(_HEADS) else ""
        (git_dir / "HEAD").write_bytes(os.fsencode(f"{prefix}{checked_out}\n"))


def _tracking(name: str) -> str:
    """What a ref of the remote is called in a clone."""
    return f"refs/remotes/origin/{name.removeprefix(_HEADS)}" if name.startswith(_HEADS) else name


def _write_packed_refs(git_dir: Path, refs: Mapping[str, str]) -> None:
    lines = sorted((os.fsencode(name), sha.encode("ascii")) for name, sha in refs.items())
    text = b"".join(b"%s %s\n" % (sha, name) for name, sha in lines)
    (git_dir / "packed-refs").write_bytes(b"# pack-refs with: sorted \n" + text)


def _read_refs(mirror: Path) -> tuple[_Refs, int]:
    """The refs as the last fetch found them, and how many packs there were then."""
    packs, head, *lines = os.fsdecode((mirror / _REFS).read_bytes()).split("\n")
    return _Refs(head, {name: sha for sha, name in (line.split(" ", 1) for line in lines if line)}), int(packs)


def _write_refs(mirror: Path, refs: _Refs, *, unfinished: Path) -> None:
    """Write all of them at once, for jobs that read them meanwhile."""
    lines = (str(_count_sound_packs(mirror)), refs.head, *(f"{sha} {name}" for name, sha in refs.by_name.items()))
    with unfinished.open("wb") as sink:
        sink.write(os.fsencode("\n".join(lines)))
        sink.flush()
        os.fsync(sink.fileno())
    unfinished.rename(mirror / _REFS)


async def _missing(git_dir: Path, objects: Iterable[str]) -> list[str]:
    """Those of some objects that a repository does not have. What it has came with all that it leads to."""
    asked = "".join(f"{name}\n" for name in dict.fromkeys(objects)).encode("ascii")
    output = await git(Place(git_dir), "cat-file", "--batch-check=%(objectname)", stdin=asked) if asked else b""
    return [line.split(" ")[0] for line in output.decode("ascii").splitlines() if line.endswith(" missing")]


def _count_sound_packs(mirror: Path) -> int:
    """How many packs there are, or none if one does not end as its index says, since it was cut off for example."""
    count = 0
    for index in mirror.glob("objects/pack/*.idx"):
        pack_end, index_end = (_last_bytes(file, 64) for file in (index.with_suffix(".pack"), index))
        # The index ends with the checksum of the pack and its own; how long they are depends on the object format.
        if not any(pack_end[-size:] == index_end[-2 * size : -size] != b"" for size in (20, 32)):
            return 0
        count += 1
    return count


def _last_bytes(file: Path, count: int) -> bytes:
    with file.open("rb") as stream:
        stream.seek(max(0, stream.seek(0, os.SEEK_END) - count))
        return stream.read()


def _number(mirror: Path) -> int:
    return int(mirror.suffix[1:])


def _bytes_of(folder: Path) -> int:
    total = 0
    for file in folder.rglob("*"):
        with suppress(OSError):  # removed meanwhile
            total += file.lstat().st_size
    return total


def _read_fetches(lock: FileIO) -> _Fetches:
    numbers = re.fullmatch(rb"(\d{20}) (\d{20})", os.pread(lock.fileno(), 100, 0))
    return _Fetches(int(numbers[1]), int(numbers[2])) if numbers else _Fetches(0, 0)


def _write_fetches(lock: FileIO, fetches: _Fetches) -> None:
    # Always as long, and in one piece, for those who read it without the lock.
    os.pwrite(lock.fileno(), b"%020d %020d" % fetches, 0)
