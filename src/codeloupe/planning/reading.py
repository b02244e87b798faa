"""Read the selected files: decode them to UTF-8, skip what their content rules out, and review lock files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.config.schema import Settings
from codeloupe.git.objects import ObjectReader, read_blobs
from codeloupe.git.repository import Repository
from codeloupe.git.snapshot import Snapshot, place_of
from codeloupe.model.change import FileChange
from codeloupe.model.finding import Claim
from codeloupe.model.review import SkippedFile, SkipReason
from codeloupe.planning.contents import encoding_of, shown_whole
from codeloupe.planning.select import (
    HEAD_BYTES,
    FileContent,
    Selection,
    decoded_file,
    left_out,
    select_by_content,
)

# A larger file is not read.
_MOST_CONTENT_BYTES = 64 * 1024**2


class ReadFiles(Struct, frozen=True, kw_only=True):
    """The selection after its files were read, the claims about lock files, and the lock files that were not read."""

    selection: Selection
    claims: tuple[Claim, ...]
    unread_locks: frozenset[str]


class Objects(Struct, frozen=True):
    """The objects of a repository, if there is one; `reader` is shared by all commits of a sweep."""

    repository: Repository | None
    reader: ObjectReader | None = None

    async def read(self, names: Iterable[str | None]) -> dict[str, bytes]:
        """Return the content of the named objects that the repository has."""
        wanted = [name for name in dict.fromkeys(names) if name]
        if self.repository is None or not wanted:
            return {}
        return await read_blobs(self.repository, wanted, max_bytes=2 * _MOST_CONTENT_BYTES, objects=self.reader)


async def read_selected(selection: Selection, snapshot: Snapshot, settings: Settings, objects: Objects) -> ReadFiles:
    """Read the selected files from the snapshot. Texts become UTF-8, in their hunks and in the snapshot."""
    whole = _files_to_read_whole(selection.files, settings)
    selection = _without_missing(selection, snapshot, settings)
    # Nothing is known yet about the files to read whole, as about a file that git calls binary.
    files = tuple(replace(file, binary=True) if file.path in whole else file for file in selection.files)
    contents: dict[str, FileContent] = {}
    for file in files:
        content = _content(snapshot.root, file)
        if content is not None:
            contents[file.path] = content
    selection = select_by_content(replace(selection, files=files), contents, settings, whole)
    texts = {path: content.whole for path, content in contents.items() if content.whole is not None}
    old_names = [file.old_blob for file in selection.files if file.path in texts and file.old_path]
    blobs = await objects.read(old_names)
    decoded: list[FileChange] = []
    for file in selection.files:
        text = texts.get(file.path)
        in_utf8 = file
        if text is not None and not file.is_symlink:
            found = decoded_file(file, blobs.get(file.old_blob or ""), text)
            if found is not None:
                in_utf8, text = found
                _write(snapshot.root, file.path, text)
        if file.path in whole:
            in_utf8 = shown_whole(in_utf8, text or b"")
        decoded.append(in_utf8)
    return await _with_lock_files(replace(selection, files=tuple(decoded)), settings, snapshot.root, objects)


def _without_missing(selection: Selection, snapshot: Snapshot, settings: Settings) -> Selection:
    """Skip the files that could not be written to the snapshot."""
    missing = snapshot.missing
    gone = [left_out(name, SkipReason.UNREADABLE, why, settings) for name, why in missing.items()]
    return Selection(
        files=tuple(file for file in selection.files if file.path not in missing),
        skipped=(*selection.skipped, *gone),
        lock_files=tuple(file for file in selection.lock_files if file.path not in missing),
    )


def _files_to_read_whole(files: Sequence[FileChange], settings: Settings) -> frozenset[str]:
    """Return the moved, copied and newly executable files of an untrusted change: a new name can make text code."""
    if not settings.untrusted:
        return frozenset()
    found: set[str] = set()
    for file in files:
        if not file.old_path or not file.new_path or file.is_submodule:
            continue
        is_moved = file.old_path != file.new_path
        is_executable_now = file.new_mode != file.old_mode and file.new_mode in (None, "100755")
        if is_moved or is_executable_now:
            found.add(file.path)
    return frozenset(found)


def _content(root: Path, file: FileChange) -> FileContent | None:
    """Return the beginning of a file, and all of it if it may be binary or has to be decoded."""
    path = place_of(root, file.path)
    if file.new_path is None or path is None or not path.is_file():
        return None
    size = path.stat().st_size
    with path.open("rb") as stream:
        head = stream.read(HEAD_BYTES)
        whole: bytes | None = None
        is_needed = file.binary or encoding_of(head, file.path) is not None
        if is_needed and size <= _MOST_CONTENT_BYTES:
            whole = head + stream.read(_MOST_CONTENT_BYTES)
    return FileContent(size, head, whole)


def _write(root: Path, path: str, content: bytes) -> None:
    place = place_of(root, path)
    if place is not None:
        place.write_bytes(content)


async def _with_lock_files(selection: Selection, settings: Settings, root: Path, objects: Objects) -> ReadFiles:
    """Review the lock files. One that cannot be read is skipped with the reason."""
    files = (*selection.lock_files, *(file for file in selection.files if _has_pinned_hashes(file)))
    if not files:
        return ReadFiles(selection=selection, claims=(), unread_locks=frozenset())
    from codeloupe.analysers.lock_files import review_lock_files  # noqa: PLC0415 - few changes have one to read

    blobs = await objects.read(file.old_blob for file in files)
    contents = {file.path: _new_content(root, file) for file in files}
    claims, unread = review_lock_files(files, blobs, contents)
    locks: list[FileChange] = []
    skipped: list[SkippedFile] = []
    # Reviewers see the lines of pinned requirements, so those are not skipped.
    for file in selection.lock_files:
        if file.path in unread:
            skipped.append(left_out(file.path, SkipReason.LOCK_FILE, unread[file.path], settings))
        else:
            locks.append(file)
    selection = replace(selection, lock_files=tuple(locks), skipped=(*selection.skipped, *skipped))
    return ReadFiles(selection=selection, claims=claims, unread_locks=frozenset(unread))


def _has_pinned_hashes(file: FileChange) -> bool:
    return file.path.endswith(".txt") and any(b"--hash=" in hunk.body for hunk in file.hunks)


def _new_content(root: Path, file: FileChange) -> bytes | None:
    place = place_of(root, file.path)
    if file.new_path is None or place is None or not place.is_file():
        return None
    return place.read_bytes()
