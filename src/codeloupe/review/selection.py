"""Which files of a change are reviewed, and why the others are not. Pure: paths, diffs and first bytes in, reasons out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from codeloupe.model.change import Change, FileChange
from codeloupe.model.review import SkippedFile, SkipReason
from codeloupe.review.globs import Globs

HEAD_BYTES = 4096

_LOCK_FILES = frozenset(
    """package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml bun.lock bun.lockb deno.lock poetry.lock uv.lock
    pdm.lock pipfile.lock conda-lock.yml pixi.lock cargo.lock gemfile.lock composer.lock go.sum go.work.sum mix.lock
    pubspec.lock podfile.lock package.resolved flake.lock gradle.lockfile packages.lock.json""".split()
)
_VENDOR_FOLDERS = frozenset(
    "vendor vendored third_party third-party thirdparty node_modules bower_components site-packages".split()
)
_GENERATED_NAME = re.compile(
    r"(_pb2(_grpc)?\.pyi?|\.pb(\.gw)?\.go|_grpc\.pb\.go|\.pb\.(cc|h)|\.g\.dart|\.freezed\.dart|\.designer\.cs|\.g\.cs"
    r"|[._-]generated\.[a-z]+|\.snap|\.map)$",
    re.IGNORECASE,
)
_GENERATED_MARK = re.compile(
    rb"@generated\b|\bcode generated\b.{0,80}\bdo not edit\b|\bauto-?generated\b.{0,80}\bdo not (edit|modify)\b",
    re.IGNORECASE,
)
_MINIFIED_NAME = re.compile(r"[.-]min\.(m?js|css|cjs)$", re.IGNORECASE)
_MINIFIABLE = frozenset({".js", ".mjs", ".cjs", ".css"})
_MINIFIED_LINE_BYTES = 5_000
# Languages whose readers ignore or tolerate a NUL byte, behind which code could hide from a diff.
_SOURCE_SUFFIXES = frozenset(
    """.py .pyi .js .jsx .mjs .cjs .ts .tsx .go .java .kt .kts .scala .rs .c .h .cc .cpp .cxx .hpp .hh .rb .php .sh .bash
    .zsh .ps1 .pl .lua .swift .m .cs .fs .sql .html .htm .css .scss .xml .json .yaml .yml .toml .ini .cfg .md .rst .txt
    .tf .gradle .groovy .cmake .mk .vue .svelte .ex .exs .erl .hs .clj .dart .r .jl""".split()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionRules:
    """What to leave out. `believe_content` is off for untrusted changes: a comment must not hide a file."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    max_file_bytes: int = 1_000_000
    max_file_lines: int = 20_000
    skip_generated: bool = True
    skip_vendored: bool = True
    skip_lock_files: bool = True
    skip_minified: bool = True
    believe_content: bool = True


@dataclass(frozen=True, slots=True)
class FileContent:
    """The size and the first bytes of a file after the change."""

    size: int
    head: bytes


@dataclass(frozen=True, slots=True)
class Selection:
    """Files to review, and the rest with reasons."""

    files: tuple[FileChange, ...]
    skipped: tuple[SkippedFile, ...]

    @property
    def total(self) -> int:
        """How many files the change has in all."""
        return len(self.files) + len(self.skipped)


def select_by_diff(change: Change, rules: SelectionRules) -> Selection:
    """Decide by what the diff alone tells: names, kinds, numbers of lines."""
    globs = Globs(rules.include, rules.exclude)
    kept: list[FileChange] = []
    skipped = [SkippedFile(name, SkipReason.UNREADABLE, why) for name, why in change.unreadable]
    skipped += [SkippedFile(name, SkipReason.SUBMODULE, "a repository of its own") for name in change.nested_repositories]
    for file in change.files:
        reason = _reason_by_diff(file, rules, globs)
        if reason is None:
            kept.append(file)
        else:
            skipped.append(reason)
    return Selection(tuple(kept), tuple(skipped))


def select_by_content(selection: Selection, contents: dict[str, FileContent], rules: SelectionRules) -> Selection:
    """Narrow a selection by the new content of its files, where that is known."""
    kept: list[FileChange] = []
    skipped = list(selection.skipped)
    for file in selection.files:
        content = contents.get(file.path)
        reason = _reason_by_content(file, content, rules) if content else None
        if reason is None:
            kept.append(file)
        else:
            skipped.append(reason)
    return Selection(tuple(kept), tuple(skipped))


def _reason_by_diff(file: FileChange, rules: SelectionRules, globs: Globs) -> SkippedFile | None:
    path = PurePosixPath(file.path)
    if (unwanted := globs.unwanted(file.path)) is not None:
        return SkippedFile(file.path, SkipReason.EXCLUDED, unwanted)
    if file.is_submodule:
        return SkippedFile(file.path, SkipReason.SUBMODULE)
    if rules.skip_lock_files and path.name.lower() in _LOCK_FILES:
        return SkippedFile(file.path, SkipReason.LOCK_FILE)
    folder = next((part for part in path.parts[:-1] if part.lower() in _VENDOR_FOLDERS), None)
    if rules.skip_vendored and folder is not None:
        return SkippedFile(file.path, SkipReason.VENDORED, f"below {folder}/")
    if rules.skip_generated and _GENERATED_NAME.search(path.name):
        return SkippedFile(file.path, SkipReason.GENERATED, "by its name")
    if rules.skip_minified and _MINIFIED_NAME.search(path.name):
        return SkippedFile(file.path, SkipReason.MINIFIED, "by its name")
    if file.binary and not _may_hide_code(file):
        return SkippedFile(file.path, SkipReason.BINARY)
    changed = file.added + file.deleted
    if changed > rules.max_file_lines:
        detail = f"{changed:,} changed lines, the limit is {rules.max_file_lines:,} (max_file_lines)"
        return SkippedFile(file.path, SkipReason.TOO_LARGE, detail)
    return None


def _may_hide_code(file: FileChange) -> bool:
    """Whether a file that git calls binary, for a NUL byte in it, is by name or first line a program or a text."""
    if PurePosixPath(file.path).suffix.lower() in _SOURCE_SUFFIXES:
        return True
    return any(hunk.new_start <= 1 and hunk.body.startswith((b"+#!", b" #!")) for hunk in file.hunks)


def _reason_by_content(file: FileChange, content: FileContent, rules: SelectionRules) -> SkippedFile | None:
    if content.size > rules.max_file_bytes:
        detail = f"{content.size:,} bytes, the limit is {rules.max_file_bytes:,} (max_file_bytes)"
        return SkippedFile(file.path, SkipReason.TOO_LARGE, detail)
    if not rules.believe_content:
        return None
    if rules.skip_generated and _GENERATED_MARK.search(content.head[:1024]):
        return SkippedFile(file.path, SkipReason.GENERATED, "by a mark in its first lines")
    suffix = PurePosixPath(file.path).suffix.lower()
    if rules.skip_minified and suffix in _MINIFIABLE and _has_long_lines(content):
        return SkippedFile(file.path, SkipReason.MINIFIED, "by the length of its lines")
    return None


def _has_long_lines(content: FileContent) -> bool:
    return content.size > _MINIFIED_LINE_BYTES and len(content.head) == HEAD_BYTES and b"\n" not in content.head
