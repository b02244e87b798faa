"""Which files of a change are reviewed, and why the others are not. Pure: diffs and contents in, reasons out.

What a file is, its content decides: neither its name nor git's guess makes it binary. Each file that is left out has a
class, and the settings in force say whether that class may stay unread.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path, PurePosixPath

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from codeloupe.config.schema import Settings
from codeloupe.engine.contents import (
    encoding_of,
    hides_text,
    in_utf8,
    kind_of_content,
    looks_like_text,
    with_compared_texts,
    with_decoded_lines,
)
from codeloupe.engine.globs import Globs
from codeloupe.model.change import Change, FileChange, FileStatus
from codeloupe.model.review import NEVER_READ, UNREAD_CLASSES, SkippedFile, SkipReason
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
# In SHA-1 and in SHA-256.
_EMPTY_BLOBS = (
    "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391",
    "473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813",
)
# What git keeps of a file whose content lies elsewhere, as Git LFS reads it, under its older names too.
_LFS_POINTER = regex(
    rb"\s{0,999}version https?://(?:git-lfs\.github\.com/spec/v1|hawser\.github\.com/spec/v1|git-media\.io/v/2)\r?\n"
    rb"(?:ext-\d-\w{1,60} sha256:[0-9a-f]{64}\r?\n){0,9}oid sha256:[0-9a-f]{64}\r?\nsize \d{1,20}\s{0,999}"
)
# Whoever wrote the change: pictures, sounds and fonts hold no code, and what a user leaves out is not asked for.
_ALWAYS_ACCEPTED = frozenset((SkipReason.MEDIA, SkipReason.FONT, SkipReason.EXCLUDED, SkipReason.NOTHING_TO_READ))
_UNKNOWN_FORMAT = "neither text nor of a known format"


# Why a file is left out, and what more there is to say of it.
_Why = tuple[SkipReason, str]


@cache
def _names(kind: str) -> frozenset[str]:
    """Names and their endings, in lower case, that say what a file is, or of a source that code could hide in it."""
    tables = msgspec.json.decode(Path(__file__).with_name("file_names.json").read_bytes())
    return frozenset(tables[kind])


def is_accepted(reason: SkipReason, settings: Settings) -> bool:
    """Whether the settings accept a class of files unread by its name."""
    return any(UNREAD_CLASSES[name] is reason for name in settings.accept_unread)


def left_out(file: str, reason: SkipReason, detail: str, settings: Settings) -> SkippedFile:
    """A file that is left out, and whether a file of its class may stay unread."""
    may_stay = reason in _ALWAYS_ACCEPTED or is_accepted(reason, settings)
    return SkippedFile(file, reason, detail, may_stay or (not settings.untrusted and reason not in NEVER_READ))


class FileContent(Struct, frozen=True):
    """The size and the first bytes of a file after the change, and all of them where they were needed."""

    size: int
    head: bytes
    whole: bytes | None = None

    @property
    def known(self) -> bytes | None:
        """The whole content, if it is here."""
        return self.head if self.whole is None and self.size == len(self.head) else self.whole


class Selection(Struct, frozen=True):
    """Files to review, and the rest with reasons. `lock_files` are read by an analyser instead of the reviewers."""

    files: tuple[FileChange, ...]
    skipped: tuple[SkippedFile, ...]
    lock_files: tuple[FileChange, ...] = ()

    @property
    def total(self) -> int:
        """How many files the change has in all."""
        return len(self.files) + len(self.skipped) + len(self.lock_files)

    @property
    def present(self) -> tuple[FileChange, ...]:
        """All files whose content somebody reads."""
        return self.files + self.lock_files


def select_by_diff(change: Change, settings: Settings) -> Selection:
    """Decide by what the diff alone says: names, kinds, numbers of lines, the content of what is added whole."""
    globs = Globs(settings.include, settings.exclude)
    kept: list[FileChange] = []
    locks: list[FileChange] = []
    skipped: list[SkippedFile] = []
    unread = [(name, SkipReason.UNREADABLE, why) for name, why in change.unreadable]
    unread += [(name, SkipReason.SUBMODULE, "a repository of its own") for name in change.nested_repositories]
    for name, reason, why in unread:
        # Of a folder whose content is not known: whatever is below it, so that `folder/**` covers it as well.
        unwanted = globs.unwanted(name.rstrip("/")) or (globs.unwanted(f"{name}-") if name.endswith("/") else None)
        skipped.append(left_out(name, SkipReason.EXCLUDED if unwanted else reason, unwanted or why, settings))
    for file in change.files:
        unwanted = globs.unwanted(file.path)
        found = _reason_by_diff(file, settings) if unwanted is None else (SkipReason.EXCLUDED, unwanted)
        if found is not None:
            skip = left_out(file.path, *found, settings)
            # Of a trusted change a name is enough to say that what a diff does not show is no code.
            path = PurePosixPath(file.path)
            may_hide_code = path.suffix.lower() in _names("source_suffixes") or path.name.lower() in _names(
                "source_names"
            )
            is_gap = skip.reason is SkipReason.NOT_SHOWN and may_hide_code and not is_accepted(skip.reason, settings)
            skipped.append(replace(skip, accepted=False) if is_gap else skip)
        elif settings.skip_lock_files and PurePosixPath(file.path).name.lower() in _names("readable_lock_files"):
            locks.append(file)
        else:
            # The content of a deleted file is nowhere but in the diff.
            is_gone = file.status is FileStatus.DELETED and file.hunks
            decoded = decoded_file(file, _whole_by_diff(file), None) if is_gone else None
            kept.append(file if decoded is None else decoded[0])
    return Selection(tuple(kept), tuple(skipped), tuple(locks))


def select_by_content(
    selection: Selection, contents: Mapping[str, FileContent], settings: Settings, whole: frozenset[str] = frozenset()
) -> Selection:
    """Narrow a selection by the new content of its files, where that is known; of those in `whole` nothing else is."""
    kept: list[FileChange] = []
    skipped = list(selection.skipped)
    for file in selection.files:
        content, is_whole = contents.get(file.path), file.path in whole
        found: _Why | None = None
        if content is None and is_whole:
            found = SkipReason.NOT_SHOWN, "only its name or mode is known, and no content"
        elif content and (is_whole or not file.is_bare):
            found = _reason_by_content(file, content, settings)
        elif file.binary and not file.is_bare and not looks_like_text(b"".join(hunk.body for hunk in file.hunks)):
            found = SkipReason.BINARY, _UNKNOWN_FORMAT
        if found is None and content is not None and is_whole:
            found = _too_long((content.known or b"").count(b"\n"), settings)
        if found is None:
            kept.append(file)
        else:
            skipped.append(left_out(file.path, *found, settings))
    return replace(selection, files=tuple(kept), skipped=tuple(skipped))


def decoded_file(file: FileChange, old: bytes | None, new: bytes | None) -> tuple[FileChange, bytes] | None:
    """The file with its hunks and new content in UTF-8, or the old one where that is gone; None where there is no need.

    Without an `old` content all of it is added.
    """
    content = new if new is not None else old or b""
    encoding = encoding_of(content, file.path)
    text = None if encoding is None else in_utf8(content, encoding)
    if encoding is None or text is None:
        return None
    if encoding.keeps_lines:
        return with_decoded_lines(file, encoding), text
    before, after = (text, b"") if new is None else (old or b"", text)
    if new is not None and (of_old := encoding_of(before, file.old_path or file.path)) is not None:
        before = in_utf8(before, of_old) or before
    return with_compared_texts(file, before, after), text


def _reason_by_diff(file: FileChange, settings: Settings) -> _Why | None:
    if file.is_submodule:
        old, new = ((blob or "nothing")[:12] for blob in (file.old_blob, file.new_blob))
        return SkipReason.SUBMODULE, f"from {old} to {new}" if file.old_blob or file.new_blob else ""
    path = PurePosixPath(file.path)
    name = path.name.lower()
    folder = next((part for part in path.parts[:-1] if part.lower() in _names("vendor_folders")), None)
    by_name = (
        (settings.skip_lock_files and name in _names("other_lock_files"), SkipReason.LOCK_FILE, ""),
        (settings.skip_vendored and folder, SkipReason.VENDORED, f"below {folder}/"),
        (settings.skip_generated and _GENERATED_NAME.search(name), SkipReason.GENERATED, "by its name"),
        (settings.skip_minified and _MINIFIED_NAME.search(name), SkipReason.MINIFIED, "by its name"),
    )
    fitting = (
        (reason, detail) for fits, reason, detail in by_name if fits and name not in _names("readable_lock_files")
    )
    if (found := next(fitting, None)) and _believes(found[0], settings):
        return found
    if _is_unshown(file):
        return SkipReason.NOT_SHOWN, "the diff says only that it differs (make the diff with --text)"
    is_there = file.binary and file.status in (FileStatus.ADDED, FileStatus.DELETED) and file.hunks
    kind = _reason_by_whole(file, _whole_by_diff(file), settings) if is_there else None
    return kind or _too_long(file.added + file.deleted, settings)


def _believes(reason: SkipReason, settings: Settings) -> bool:
    """Whether a name or a mark is enough to leave a file out."""
    return not settings.untrusted or is_accepted(reason, settings)


def _too_long(changed: int, settings: Settings) -> _Why | None:
    limit = settings.max_file_lines
    detail = f"{changed:,} changed lines, the limit is {limit:,} (max_file_lines)"
    return (SkipReason.TOO_LARGE, detail) if changed > limit else None


def _is_unshown(file: FileChange) -> bool:
    """Whether it has other content of which no line is known: a diff from elsewhere may only say that it differs."""
    # A type change deletes the one file and adds the other: only the latter is there now.
    if any(hunk.new_lines or file.status is not FileStatus.TYPE_CHANGED for hunk in file.hunks):
        return False
    if file.binary:
        return file.old_blob is None or file.old_blob != file.new_blob
    blobs = [blob for blob in (file.old_blob, file.new_blob) if blob]
    # Git's name for no content, or for no object; it may be cut short.
    contents = [blob for blob in blobs if blob.strip("0") and not any(one.startswith(blob) for one in _EMPTY_BLOBS)]
    return file.old_blob != file.new_blob and bool(contents)


def _whole_by_diff(file: FileChange) -> bytes:
    """The content that a diff adds or deletes whole."""
    kind = "deleted" if file.status is FileStatus.DELETED else "added"
    lines = (line for hunk in file.hunks for line in hunk.lines() if line.kind == kind)
    return b"".join(line.text + b"\n" * line.ends_with_newline for line in lines)


def _reason_by_content(file: FileChange, content: FileContent, settings: Settings) -> _Why | None:
    whole, size, head = content.known, content.size, content.head
    if whole is not None and (file.binary or content.whole is not None):
        by_kind = _reason_by_whole(file, whole, settings)
        if by_kind is not None:
            return by_kind
    if size > settings.max_file_bytes:
        return SkipReason.TOO_LARGE, f"{size:,} bytes, the limit is {settings.max_file_bytes:,} (max_file_bytes)"
    if size == len(head) and _LFS_POINTER.fullmatch(head):
        return SkipReason.LFS_POINTER, "Git LFS has its content, and here is only a pointer to it"
    if settings.skip_generated and _believes(SkipReason.GENERATED, settings) and _GENERATED_MARK.search(head[:1024]):
        return SkipReason.GENERATED, "by a mark in its first lines"
    may_be_minified = PurePosixPath(file.path).suffix.lower() in (".js", ".mjs", ".cjs", ".css")
    has_long_lines = size > 5_000 and len(head) == HEAD_BYTES and b"\n" not in head
    if settings.skip_minified and may_be_minified and has_long_lines and _believes(SkipReason.MINIFIED, settings):
        return SkipReason.MINIFIED, "by the length of its lines"
    return None


def _reason_by_whole(file: FileChange, content: bytes, settings: Settings) -> _Why | None:
    """What the whole content is, unless it is text in an encoding that is known."""
    if file.is_symlink:
        return None
    encoding = encoding_of(content, file.path)
    if encoding is not None:
        name = encoding.name.upper().removesuffix("-LE").removesuffix("-BE")
        if not encoding.keeps_lines and in_utf8(content, encoding) is None:
            return SkipReason.UNREADABLE, f"it is not the {name} that it says it is"
        # So long a word does not come about by chance in text of any language.
        if hides_text(content, encoding, least=4 if settings.untrusted else 24):
            return SkipReason.UNREADABLE, f"it is one text as {name} and another one byte by byte"
        return None
    kind = kind_of_content(content) if file.binary else None
    # A picture or a sound can be a valid script at the same time: one that nobody would run is kept as such.
    is_kept_so = PurePosixPath(file.path).suffix.lower() in _names("media_suffixes") and file.new_mode != "100755"
    if kind in (SkipReason.MEDIA, SkipReason.FONT) and not is_kept_so:
        return SkipReason.BINARY, "by its content media or a font, but not by its name or mode"
    return None if kind is None else (kind, _UNKNOWN_FORMAT if kind is SkipReason.BINARY else "")
