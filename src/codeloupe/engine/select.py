"""Which files of a change are reviewed, and why the others are not. Pure: diffs and contents in, reasons out.

What a file is, its content decides: neither its name nor git's guess makes it binary. Each file that is left out has a
class, and the settings in force say whether that class may stay unread.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from msgspec import Struct
from msgspec.structs import replace

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
from codeloupe.model.review import NEVER_READ, SkippedFile, SkipReason
from codeloupe.system.regex import regex

# fmt: off
_OTHER_LOCK_FILES = frozenset((
    "bun.lock", "bun.lockb", "deno.lock", "conda-lock.yml", "pixi.lock", "mix.lock", "pubspec.lock",
    "podfile.lock", "package.resolved", "flake.lock", "gradle.lockfile", "packages.lock.json",
))
# Those that the lock-file analyser reads.
_READABLE_LOCK_FILES = frozenset((
    "package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "poetry.lock", "uv.lock", "pdm.lock",
    "pipfile.lock", "cargo.lock", "gemfile.lock", "composer.lock", "go.sum", "go.work.sum",
))
_VENDOR_FOLDERS = frozenset((
    "vendor", "vendored", "third_party", "third-party", "thirdparty", "node_modules", "bower_components",
    "site-packages",
))
# Languages whose readers ignore or tolerate a NUL byte, after which code could hide from a diff.
_SOURCE_SUFFIXES = frozenset((
    ".py", ".pyi", ".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".go", ".java", ".kt", ".kts", ".scala", ".rs",
    ".c", ".h", ".cc", ".cpp", ".cxx", ".hpp", ".hh", ".rb", ".php", ".sh", ".bash", ".zsh", ".ps1", ".pl", ".lua",
    ".swift", ".m", ".cs", ".fs", ".sql", ".html", ".htm", ".css", ".scss", ".xml", ".json", ".yaml", ".yml",
    ".toml", ".ini", ".cfg", ".md", ".rst", ".txt", ".tf", ".gradle", ".groovy", ".cmake", ".mk", ".vue", ".svelte",
    ".ex", ".exs", ".erl", ".hs", ".clj", ".dart", ".r", ".jl", ".bat", ".cmd", ".psm1", ".ksh", ".fish", ".awk",
    ".pm", ".tcl", ".vb", ".mm", ".cu", ".zig", ".nim", ".ml", ".mli", ".sol", ".proto", ".graphql", ".hcl", ".nix",
    ".bzl", ".ipynb", ".less", ".sass", ".erb", ".jsp", ".aspx", ".cshtml", ".conf", ".properties", ".env",
))
_SOURCE_NAMES = frozenset((
    "makefile", "gnumakefile", "dockerfile", "containerfile", "jenkinsfile", "vagrantfile", "procfile", "gemfile",
    "rakefile", "build", "workspace", ".env", ".bashrc", ".profile", ".zshrc", ".npmrc", ".gitattributes",
    ".gitmodules", ".htaccess",
))
_MEDIA_SUFFIXES = frozenset((
    ".aac", ".aif", ".aiff", ".avi", ".avif", ".bmp", ".cur", ".eot", ".flac", ".gif", ".heic", ".heif", ".icns",
    ".ico", ".jpeg", ".jpg", ".m4a", ".m4v", ".mid", ".mkv", ".mov", ".mp3", ".mp4", ".mpeg", ".mpg", ".oga",
    ".ogg", ".ogv", ".opus", ".otf", ".png", ".tif", ".tiff", ".ttc", ".ttf", ".wav", ".webm", ".webp", ".woff",
    ".woff2",
))
# fmt: on
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


class SelectionRules(Struct, frozen=True, kw_only=True):
    """What to leave out, and which classes to accept unread; untrusted content and names are not believed."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    max_file_bytes: int = 1_000_000
    max_file_lines: int = 20_000
    skip_generated: bool = True
    skip_vendored: bool = True
    skip_lock_files: bool = True
    skip_minified: bool = True
    believe_content: bool = True
    accept: frozenset[SkipReason] = frozenset()

    def skipped(self, file: str, reason: SkipReason, detail: str = "") -> SkippedFile:
        """A file that is left out, and whether a file of its class may stay unread."""
        is_accepted = reason in self.accept or reason in _ALWAYS_ACCEPTED
        return SkippedFile(file, reason, detail, is_accepted or (self.believe_content and reason not in NEVER_READ))

    def believes(self, reason: SkipReason) -> bool:
        """Whether a name or a mark is enough to leave a file out."""
        return self.believe_content or reason in self.accept


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


def select_by_diff(change: Change, rules: SelectionRules) -> Selection:
    """Decide by what the diff alone says: names, kinds, numbers of lines, the content of what is added whole."""
    globs = Globs(rules.include, rules.exclude)
    kept: list[FileChange] = []
    locks: list[FileChange] = []
    skipped: list[SkippedFile] = []
    unread = [(name, SkipReason.UNREADABLE, why) for name, why in change.unreadable]
    unread += [(name, SkipReason.SUBMODULE, "a repository of its own") for name in change.nested_repositories]
    for name, reason, why in unread:
        # Of a folder whose content is not known: whatever is below it, so that `folder/**` covers it as well.
        unwanted = globs.unwanted(name.rstrip("/")) or (globs.unwanted(f"{name}-") if name.endswith("/") else None)
        skipped.append(rules.skipped(name, SkipReason.EXCLUDED if unwanted else reason, unwanted or why))
    for file in change.files:
        if (unwanted := globs.unwanted(file.path)) is not None:
            skipped.append(rules.skipped(file.path, SkipReason.EXCLUDED, unwanted))
        elif (skip := _reason_by_diff(file, rules)) is not None:
            skipped.append(skip)
        elif rules.skip_lock_files and PurePosixPath(file.path).name.lower() in _READABLE_LOCK_FILES:
            locks.append(file)
        else:
            # The content of a deleted file is nowhere but in the diff.
            is_gone = file.status is FileStatus.DELETED and file.hunks
            decoded = decoded_file(file, _whole_by_diff(file), None) if is_gone else None
            kept.append(file if decoded is None else decoded[0])
    return Selection(tuple(kept), tuple(skipped), tuple(locks))


def wanted_only(change: Change, rules: SelectionRules) -> Change:
    """The change without the files that the user leaves out."""
    globs = Globs(rules.include, rules.exclude)
    return replace(change, files=tuple(file for file in change.files if globs.unwanted(file.path) is None))


def select_by_content(
    selection: Selection,
    contents: Mapping[str, FileContent],
    rules: SelectionRules,
    whole: frozenset[str] = frozenset(),
) -> Selection:
    """Narrow a selection by the new content of its files, where that is known; of those in `whole` nothing else is."""
    kept: list[FileChange] = []
    skipped = list(selection.skipped)
    for file in selection.files:
        content = contents.get(file.path)
        skip = None
        if content is None and file.path in whole:
            skip = rules.skipped(file.path, SkipReason.NOT_SHOWN, "only its name or mode is known, and no content")
        elif content and (not file.is_bare or file.path in whole):
            skip = _reason_by_content(file, content, rules)
        elif file.binary and not file.is_bare and not looks_like_text(b"".join(hunk.body for hunk in file.hunks)):
            skip = rules.skipped(file.path, SkipReason.BINARY, _UNKNOWN_FORMAT)
        if skip is None and content is not None and file.path in whole:
            skip = _too_long((content.known or b"").count(b"\n"), file, rules)
        if skip is None:
            kept.append(file)
        else:
            skipped.append(skip)
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
    return replace(with_compared_texts(file, before, after), binary=False), text


def _reason_by_diff(file: FileChange, rules: SelectionRules) -> SkippedFile | None:
    if file.is_submodule:
        old, new = ((blob or "nothing")[:12] for blob in (file.old_blob, file.new_blob))
        commits = f"from {old} to {new}" if file.old_blob or file.new_blob else ""
        return rules.skipped(file.path, SkipReason.SUBMODULE, commits)
    by_name = _reason_by_name(file.path, rules)
    if by_name is not None and rules.believes(by_name.reason):
        return by_name
    if _is_unshown(file):
        detail = "the diff says only that it differs (make the diff with --text)"
        skip = rules.skipped(file.path, SkipReason.NOT_SHOWN, detail)
        # Of a trusted change a name is enough to say that it is no code.
        path = PurePosixPath(file.path)
        may_hide_code = path.suffix.lower() in _SOURCE_SUFFIXES or path.name.lower() in _SOURCE_NAMES
        is_gap = may_hide_code and SkipReason.NOT_SHOWN not in rules.accept
        return replace(skip, accepted=False) if is_gap else skip
    if file.binary and file.status in (FileStatus.ADDED, FileStatus.DELETED) and file.hunks:
        kind = _reason_by_whole(file, _whole_by_diff(file), rules)
        if kind is not None:
            return kind
    return _too_long(file.added + file.deleted, file, rules)


def _too_long(changed: int, file: FileChange, rules: SelectionRules) -> SkippedFile | None:
    detail = f"{changed:,} changed lines, the limit is {rules.max_file_lines:,} (max_file_lines)"
    return rules.skipped(file.path, SkipReason.TOO_LARGE, detail) if changed > rules.max_file_lines else None


def _reason_by_name(name: str, rules: SelectionRules) -> SkippedFile | None:
    path = PurePosixPath(name)
    lower = path.name.lower()
    if rules.skip_lock_files and lower in _OTHER_LOCK_FILES:
        return rules.skipped(name, SkipReason.LOCK_FILE)
    if lower in _READABLE_LOCK_FILES:
        return None
    folder = next((part for part in path.parts[:-1] if part.lower() in _VENDOR_FOLDERS), None)
    if rules.skip_vendored and folder is not None:
        return rules.skipped(name, SkipReason.VENDORED, f"below {folder}/")
    if rules.skip_generated and _GENERATED_NAME.search(path.name):
        return rules.skipped(name, SkipReason.GENERATED, "by its name")
    if rules.skip_minified and _MINIFIED_NAME.search(path.name):
        return rules.skipped(name, SkipReason.MINIFIED, "by its name")
    return None


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


def _reason_by_content(file: FileChange, content: FileContent, rules: SelectionRules) -> SkippedFile | None:
    whole = content.known
    if whole is not None and (file.binary or content.whole is not None):
        by_kind = _reason_by_whole(file, whole, rules)
        if by_kind is not None:
            return by_kind
    if content.size > rules.max_file_bytes:
        detail = f"{content.size:,} bytes, the limit is {rules.max_file_bytes:,} (max_file_bytes)"
        return rules.skipped(file.path, SkipReason.TOO_LARGE, detail)
    if content.size == len(content.head) and _LFS_POINTER.fullmatch(content.head):
        detail = "Git LFS has its content, and here is only a pointer to it"
        return rules.skipped(file.path, SkipReason.LFS_POINTER, detail)
    if rules.skip_generated and rules.believes(SkipReason.GENERATED) and _GENERATED_MARK.search(content.head[:1024]):
        return rules.skipped(file.path, SkipReason.GENERATED, "by a mark in its first lines")
    may_be_minified = PurePosixPath(file.path).suffix.lower() in (".js", ".mjs", ".cjs", ".css")
    has_long_lines = content.size > 5_000 and len(content.head) == HEAD_BYTES and b"\n" not in content.head
    if rules.skip_minified and rules.believes(SkipReason.MINIFIED) and may_be_minified and has_long_lines:
        return rules.skipped(file.path, SkipReason.MINIFIED, "by the length of its lines")
    return None


def _reason_by_whole(file: FileChange, content: bytes, rules: SelectionRules) -> SkippedFile | None:
    """What the whole content is, unless it is text in an encoding that is known."""
    if file.is_symlink:
        return None
    encoding = encoding_of(content, file.path)
    if encoding is not None:
        detail, name = "", encoding.name.upper().removesuffix("-LE").removesuffix("-BE")
        if not encoding.keeps_lines and in_utf8(content, encoding) is None:
            detail = f"it is not the {name} that it says it is"
        # So long a word does not come about by chance in text of any language.
        elif hides_text(content, encoding, least=24 if rules.believe_content else 4):
            detail = f"it is one text as {name} and another one byte by byte"
        return rules.skipped(file.path, SkipReason.UNREADABLE, detail) if detail else None
    kind = kind_of_content(content) if file.binary else None
    if kind is None:
        return None
    # A picture or a sound can be a valid script at the same time: one that nobody would run is kept as such.
    is_kept_so = PurePosixPath(file.path).suffix.lower() in _MEDIA_SUFFIXES and file.new_mode != "100755"
    if kind in (SkipReason.MEDIA, SkipReason.FONT) and not is_kept_so:
        detail = "by its content media or a font, but not by its name or mode"
        return rules.skipped(file.path, SkipReason.BINARY, detail)
    return rules.skipped(file.path, kind, _UNKNOWN_FORMAT if kind is SkipReason.BINARY else "")
