"""Decide which files of a change are reviewed, and why the others are skipped. Pure: nothing is read from disk.

The content of a file decides what the file is; neither its name nor git's guess makes it binary. Each skipped file has
a class, and the settings decide whether a file of that class may stay unread.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path, PurePosixPath

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from codeloupe.config.schema import Settings
from codeloupe.model.change import Change, FileChange, FileStatus
from codeloupe.model.review import NEVER_READ, UNREAD_CLASSES, SkippedFile, SkipReason
from codeloupe.planning.contents import (
    Encoding,
    encoding_of,
    hides_text,
    in_utf8,
    with_compared_texts,
    with_decoded_lines,
)
from codeloupe.planning.formats import kind_of_content, looks_like_text
from codeloupe.planning.globs import Globs
from codeloupe.system.regex import regex

_GENERATED_NAME = regex(
    r"(_pb2(_grpc)?\.pyi?|\.pb(\.gw)?\.go|_grpc\.pb\.go|\.pb\.(cc|h)|\.g\.dart|\.freezed\.dart|\.designer\.cs|\.g\.cs"
    r"|[._-]generated\.[a-z]+|\.snap|\.map)$",
    re.IGNORECASE,
)
_GENERATED_MARK = regex(
    rb"@generated\b|\bcode generated\b.{0,80}\bdo not edit\b|\bauto-?generated\b.{0,80}\bdo not (edit|modify)\b",
    re.IGNORECASE,
)
_MINIFIED_NAME = regex(r"[.-]min\.(m?js|css|cjs)$", re.IGNORECASE)
HEAD_BYTES = 4096
# A generator writes its mark into the first lines.
_MARK_BYTES = 1024
_MINIFIED_SUFFIXES = (".js", ".mjs", ".cjs", ".css")
_SMALLEST_MINIFIED_BYTES = 5_000
# The names that git gives to an empty file, in SHA-1 and in SHA-256.
_EMPTY_BLOBS = (
    "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391",
    "473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813",
)
# The text that git stores for a file whose content Git LFS stores elsewhere, with the older names of Git LFS.
_LFS_POINTER = regex(
    rb"\s{0,999}version https?://(?:git-lfs\.github\.com/spec/v1|hawser\.github\.com/spec/v1|git-media\.io/v/2)\r?\n"
    rb"(?:ext-\d-\w{1,60} sha256:[0-9a-f]{64}\r?\n){0,9}oid sha256:[0-9a-f]{64}\r?\nsize \d{1,20}\s{0,999}"
)
# In any change: media and fonts hold no code, and the user asked not to review excluded files.
_ALWAYS_ACCEPTED = frozenset((SkipReason.MEDIA, SkipReason.FONT, SkipReason.EXCLUDED, SkipReason.NOTHING_TO_READ))
# Even in a trusted change, a source file of these classes is a gap: it has no generated mark and no vendored path.
_GAP_IF_SOURCE = frozenset((SkipReason.MINIFIED, SkipReason.NOT_SHOWN))
_UNKNOWN_FORMAT = "neither text nor of a known format"
# A word of this many ASCII characters does not occur by chance in text of another encoding.
_HIDDEN_WORD_LENGTH = 24
_HIDDEN_WORD_LENGTH_IF_UNTRUSTED = 4

# The reason for skipping a file, and a detail for the report.
_Reason = tuple[SkipReason, str]


@cache
def _names(kind: str) -> frozenset[str]:
    """Return the names, suffixes or folders of one kind, in lower case."""
    tables = msgspec.json.decode(Path(__file__).with_name("file_names.json").read_bytes())
    return frozenset(tables[kind])


def is_accepted(reason: SkipReason, settings: Settings) -> bool:
    """Return whether the settings name this class as one that may stay unread."""
    return any(UNREAD_CLASSES[name] is reason for name in settings.accept_unread)


def left_out(file: str, reason: SkipReason, detail: str, settings: Settings) -> SkippedFile:
    """Return a skipped file, marked as accepted if it may stay unread."""
    return SkippedFile(file, reason, detail, _may_stay_unread(file, reason, settings))


def _may_stay_unread(file: str, reason: SkipReason, settings: Settings) -> bool:
    if reason in _ALWAYS_ACCEPTED or is_accepted(reason, settings):
        return True
    if settings.untrusted or reason in NEVER_READ:
        return False
    if reason in _GAP_IF_SOURCE:
        return not _is_source_name(file)
    return True


def _is_source_name(file: str) -> bool:
    """Return whether a file may hold source code, by its name."""
    path = PurePosixPath(file)
    return path.suffix.lower() in _names("source_suffixes") or path.name.lower() in _names("source_names")


class FileContent(Struct, frozen=True):
    """The size and the first bytes of a file after the change, and the whole content if it was needed."""

    size: int
    head: bytes
    whole: bytes | None = None

    @property
    def known(self) -> bytes | None:
        """Return the whole content, or None if only its beginning is known."""
        if self.whole is None and self.size == len(self.head):
            return self.head
        return self.whole


class Selection(Struct, frozen=True):
    """The files to review, and the skipped files. An analyser reads `lock_files` instead of the reviewers."""

    files: tuple[FileChange, ...]
    skipped: tuple[SkippedFile, ...]
    lock_files: tuple[FileChange, ...] = ()

    @property
    def total(self) -> int:
        """Return the number of files in the change."""
        return len(self.files) + len(self.skipped) + len(self.lock_files)

    @property
    def present(self) -> tuple[FileChange, ...]:
        """Return all files whose content is read by a reviewer or an analyser."""
        return self.files + self.lock_files

    @property
    def existing(self) -> set[str]:
        """Return the paths of those files that exist after the change."""
        return {file.new_path for file in self.present if file.new_path is not None and not file.is_submodule}


def select_by_diff(change: Change, settings: Settings) -> Selection:
    """Select files by the diff alone: names, kinds, numbers of lines, and the content of added and deleted files."""
    globs = Globs(settings.include, settings.exclude)
    kept: list[FileChange] = []
    locks: list[FileChange] = []
    skipped = _skip_without_diff(change, globs, settings)
    for file in change.files:
        pattern = globs.unwanted(file.path)
        if pattern is not None:
            skipped.append(left_out(file.path, SkipReason.EXCLUDED, pattern, settings))
            continue
        reason = _reason_by_diff(file, settings)
        if reason is not None:
            skipped.append(left_out(file.path, *reason, settings))
        elif settings.skip_lock_files and _is_readable_lock_file(file):
            locks.append(file)
        else:
            kept.append(_with_deleted_text(file))
    return Selection(tuple(kept), tuple(skipped), tuple(locks))


def _is_readable_lock_file(file: FileChange) -> bool:
    return PurePosixPath(file.path).name.lower() in _names("readable_lock_files")


def _with_deleted_text(file: FileChange) -> FileChange:
    """Return a deleted file with its hunks in UTF-8, and any other file as it is: its new content is read later."""
    if file.status is not FileStatus.DELETED or not file.hunks:
        return file
    decoded = decoded_file(file, _whole_by_diff(file), None)
    if decoded is None:
        return file
    return decoded[0]


def _skip_without_diff(change: Change, globs: Globs, settings: Settings) -> list[SkippedFile]:
    """Skip the files and folders that git could not read, and nested repositories."""
    unread = [(name, SkipReason.UNREADABLE, why) for name, why in change.unreadable]
    unread += [(name, SkipReason.SUBMODULE, "a repository of its own") for name in change.nested_repositories]
    skipped: list[SkippedFile] = []
    for name, reason, detail in unread:
        pattern = globs.unwanted(name.rstrip("/"))
        if pattern is None and name.endswith("/"):
            # The files in this folder are not known, so a pattern such as `folder/**` is tried on any name in it.
            pattern = globs.unwanted(f"{name}-")
        if pattern is None:
            skipped.append(left_out(name, reason, detail, settings))
        else:
            skipped.append(left_out(name, SkipReason.EXCLUDED, pattern, settings))
    return skipped


def select_by_content(
    selection: Selection, contents: Mapping[str, FileContent], settings: Settings, whole: frozenset[str] = frozenset()
) -> Selection:
    """Skip further files by their new content, where it is known.

    The files in `whole` are reviewed in full, not only their changed lines, so they need a known content.
    """
    kept: list[FileChange] = []
    skipped = list(selection.skipped)
    for file in selection.files:
        content = contents.get(file.path)
        if file.path in whole:
            reason = _reason_by_whole_file(file, content, settings)
        elif content is not None and not file.is_bare:
            reason = _reason_by_content(file, content, settings)
        elif file.binary and not file.is_bare:
            reason = _reason_by_binary_hunks(file)
        else:
            reason = None
        if reason is None:
            kept.append(file)
        else:
            skipped.append(left_out(file.path, *reason, settings))
    return replace(selection, files=tuple(kept), skipped=tuple(skipped))


def _reason_by_whole_file(file: FileChange, content: FileContent | None, settings: Settings) -> _Reason | None:
    """Return why a file that has to be reviewed in full is skipped, or None."""
    if content is None:
        return SkipReason.NOT_SHOWN, "only its name or mode is known, and no content"
    reason = _reason_by_content(file, content, settings)
    if reason is not None:
        return reason
    known = content.known or b""
    return _too_long(known.count(b"\n"), settings)


def _reason_by_binary_hunks(file: FileChange) -> _Reason | None:
    """Return why a file is skipped that git calls binary and of which only the hunks are known, or None."""
    changed = b"".join(hunk.body for hunk in file.hunks)
    if looks_like_text(changed):
        return None
    return SkipReason.BINARY, _UNKNOWN_FORMAT


def with_and_without_lines(files: Sequence[FileChange]) -> tuple[tuple[FileChange, ...], tuple[SkippedFile, ...]]:
    """Return the files with changed lines, and those without: they were changed, but there is nothing to read."""
    read: list[FileChange] = []
    bare: list[SkippedFile] = []
    for file in files:
        if file.is_bare:
            bare.append(SkippedFile(file.path, SkipReason.NOTHING_TO_READ, _change_without_lines(file)))
        else:
            read.append(file)
    return tuple(read), tuple(bare)


def _change_without_lines(file: FileChange) -> str:
    if file.status in (FileStatus.ADDED, FileStatus.DELETED):
        return f"{file.status.value}, an empty file"
    parts: list[str] = []
    if file.old_path != file.new_path:
        parts.append(f"{file.status.value} from {file.old_path}")
    if file.old_mode and file.new_mode and file.old_mode != file.new_mode:
        parts.append(f"its mode is {file.new_mode} instead of {file.old_mode}")
    return ", ".join(parts) or "no line of it is changed"


def decoded_file(file: FileChange, old: bytes | None, new: bytes | None) -> tuple[FileChange, bytes] | None:
    """Return the file with its hunks in UTF-8, and its text: the new one, or the old one of a deleted file.

    Return None if the content needs no decoding or cannot be decoded. Without an `old` content every line is added.
    """
    content = new
    if content is None:
        content = old or b""
    encoding = encoding_of(content, file.path)
    if encoding is None:
        return None
    text = in_utf8(content, encoding)
    if text is None:
        return None
    if encoding.keeps_lines:
        return with_decoded_lines(file, encoding), text
    if new is None:
        return with_compared_texts(file, text, b""), text
    before = old or b""
    old_encoding = encoding_of(before, file.old_path or file.path)
    if old_encoding is not None:
        before = in_utf8(before, old_encoding) or before
    return with_compared_texts(file, before, text), text


def _reason_by_diff(file: FileChange, settings: Settings) -> _Reason | None:
    if file.is_submodule:
        return SkipReason.SUBMODULE, _submodule_detail(file)
    by_name = _reason_by_name(file, settings)
    if by_name is not None and _believes(by_name[0], settings):
        return by_name
    if _is_unshown(file):
        return SkipReason.NOT_SHOWN, "the diff says only that it differs (make the diff with --text)"
    has_whole_content = file.status in (FileStatus.ADDED, FileStatus.DELETED) and file.hunks
    if file.binary and has_whole_content:
        by_kind = _reason_by_kind(file, _whole_by_diff(file), settings)
        if by_kind is not None:
            return by_kind
    return _too_long(file.added + file.deleted, settings)


def _submodule_detail(file: FileChange) -> str:
    if not file.old_blob and not file.new_blob:
        return ""
    old = (file.old_blob or "nothing")[:12]
    new = (file.new_blob or "nothing")[:12]
    return f"from {old} to {new}"


def _reason_by_name(file: FileChange, settings: Settings) -> _Reason | None:
    if _is_readable_lock_file(file):
        return None
    path = PurePosixPath(file.path)
    name = path.name.lower()
    if settings.skip_lock_files and name in _names("other_lock_files"):
        return SkipReason.LOCK_FILE, ""
    if settings.skip_vendored:
        for folder in path.parts[:-1]:
            if folder.lower() in _names("vendor_folders"):
                return SkipReason.VENDORED, f"below {folder}/"
    if settings.skip_generated and _GENERATED_NAME.search(name):
        return SkipReason.GENERATED, "by its name"
    return None


def _believes(reason: SkipReason, settings: Settings) -> bool:
    """Return whether a name or a mark is enough to skip a file."""
    return not settings.untrusted or is_accepted(reason, settings)


def _too_long(changed: int, settings: Settings) -> _Reason | None:
    limit = settings.max_file_lines
    if changed <= limit:
        return None
    return SkipReason.TOO_LARGE, f"{changed:,} changed lines, the limit is {limit:,} (max_file_lines)"


def _is_unshown(file: FileChange) -> bool:
    """Return whether the content differs but the diff shows no line of it, as some diff files do."""
    for hunk in file.hunks:
        # A type change deletes one file and adds another. Only the added file exists now.
        if hunk.new_lines or file.status is not FileStatus.TYPE_CHANGED:
            return False
    if file.binary:
        return file.old_blob is None or file.old_blob != file.new_blob
    if file.old_blob == file.new_blob:
        return False
    return _has_content(file.old_blob) or _has_content(file.new_blob)


def _has_content(blob: str | None) -> bool:
    """Return whether git's name of a blob, which may be abbreviated, is one of a file that is not empty."""
    if not blob or not blob.strip("0"):
        return False
    return not any(empty.startswith(blob) for empty in _EMPTY_BLOBS)


def _whole_by_diff(file: FileChange) -> bytes:
    """Return the content that a diff adds or deletes in full."""
    kind = "added"
    if file.status is FileStatus.DELETED:
        kind = "deleted"
    parts: list[bytes] = []
    for hunk in file.hunks:
        for line in hunk.lines():
            if line.kind == kind:
                parts.append(line.text)
                if line.ends_with_newline:
                    parts.append(b"\n")
    return b"".join(parts)


def _reason_by_content(file: FileChange, content: FileContent, settings: Settings) -> _Reason | None:
    known = content.known
    if known is not None and (file.binary or content.whole is not None):
        by_kind = _reason_by_kind(file, known, settings)
        if by_kind is not None:
            return by_kind
    looks_for_mark = settings.skip_generated and _believes(SkipReason.GENERATED, settings)
    if looks_for_mark and _GENERATED_MARK.search(content.head[:_MARK_BYTES]):
        return SkipReason.GENERATED, "by a mark in its first lines"
    size = content.size
    if size > settings.max_file_bytes:
        return SkipReason.TOO_LARGE, f"{size:,} bytes, the limit is {settings.max_file_bytes:,} (max_file_bytes)"
    if size == len(content.head) and _LFS_POINTER.fullmatch(content.head):
        return SkipReason.LFS_POINTER, "Git LFS has its content, and here is only a pointer to it"
    if settings.skip_minified and _believes(SkipReason.MINIFIED, settings):
        return _reason_if_minified(file, content)
    return None


def _reason_if_minified(file: FileChange, content: FileContent) -> _Reason | None:
    path = PurePosixPath(file.path)
    if _MINIFIED_NAME.search(path.name):
        return SkipReason.MINIFIED, "by its name"
    is_long = content.size > _SMALLEST_MINIFIED_BYTES
    is_one_line = len(content.head) == HEAD_BYTES and b"\n" not in content.head
    if is_long and is_one_line and path.suffix.lower() in _MINIFIED_SUFFIXES:
        return SkipReason.MINIFIED, "by the length of its lines"
    return None


def _reason_by_kind(file: FileChange, content: bytes, settings: Settings) -> _Reason | None:
    """Return why a file is skipped by its whole content, or None for text that can be decoded."""
    if file.is_symlink:
        return None
    encoding = encoding_of(content, file.path)
    if encoding is not None:
        return _reason_by_encoding(content, encoding, settings)
    if not file.binary:
        return None
    kind = kind_of_content(content)
    if kind is None:
        return None
    # A picture or a sound can also be a valid script, so its name and mode must be those of a picture or a sound.
    has_media_name = PurePosixPath(file.path).suffix.lower() in _names("media_suffixes")
    is_executable = file.new_mode == "100755"
    if kind in (SkipReason.MEDIA, SkipReason.FONT) and (is_executable or not has_media_name):
        return SkipReason.BINARY, "by its content media or a font, but not by its name or mode"
    if kind is SkipReason.BINARY:
        return kind, _UNKNOWN_FORMAT
    return kind, ""


def _reason_by_encoding(content: bytes, encoding: Encoding, settings: Settings) -> _Reason | None:
    name = encoding.name.upper().removesuffix("-LE").removesuffix("-BE")
    if not encoding.keeps_lines and in_utf8(content, encoding) is None:
        return SkipReason.UNREADABLE, f"it is not the {name} that it says it is"
    shortest_word = _HIDDEN_WORD_LENGTH
    if settings.untrusted:
        shortest_word = _HIDDEN_WORD_LENGTH_IF_UNTRUSTED
    if hides_text(content, encoding, least=shortest_word):
        return SkipReason.UNREADABLE, f"it is one text as {name} and another one byte by byte"
    return None
