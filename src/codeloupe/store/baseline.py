"""The file of known findings: read from any revision, and replaced whole. Every mistake is reported with its line."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.config import yaml
from codeloupe.config.files import decode_config, read_config_file, repository_root
from codeloupe.config.yaml import ListNode, MapNode, Node, Problem, ScalarNode, closest, escape, plain_or_quoted, quote
from codeloupe.errors import OutputError
from codeloupe.git.repository import Repository, open_repository, read_file_at
from codeloupe.model.baseline import BASELINE_NAME, Baseline, BaselineEntry
from codeloupe.model.change import Scope, ScopeKind
from codeloupe.model.finding import Severity
from codeloupe.store.records import replace_file

VERSION = "1"
MOST_ENTRIES = 50_000
MAX_FILE_BYTES = 16_000_000
LONGEST_TEXT = 4_096
_NEEDED = ("fingerprint", "reason")
_LIMITS = yaml.Limits(characters=MAX_FILE_BYTES, values=30 * MOST_ENTRIES, depth=8)
_TOO_LARGE = "fix some of the findings"


def parse_date(text: str) -> date:
    """A day as YYYY-MM-DD. Raises ValueError."""
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text.strip()):
        raise ValueError("not a date")
    return date.fromisoformat(text.strip())


def parse_reason(text: str) -> str:
    """A reason, which has at least one letter or digit. Raises ValueError."""
    if len(text) > LONGEST_TEXT or not any(character.isalnum() for character in text):
        raise ValueError("not a reason")
    return text.strip()


def _fingerprint(text: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{6,64}", text.strip().lower()):
        raise ValueError("not a fingerprint")
    return text.strip().lower()


_ANY = (str, "a text", "put it in quotes")
# Of each key how its text is read, which raises ValueError, what a message expects there, and what to do about it.
FIELDS: Mapping[str, tuple[Callable[[str], object], str, str]] = {
    "fingerprint": (_fingerprint, "the fingerprint of a finding", "`codeloupe baseline add` writes entries"),
    **dict.fromkeys(("file", "title", "body", "evidence", "rule"), _ANY),
    "severity": (Severity.parse, "critical, high, medium or low", "leave it out to cover any severity"),
    "reason": (parse_reason, "why this finding does not count", "say it in a few words"),
    "owner": _ANY,
    "expires": (parse_date, "a date such as 2030-12-31", "write it as YYYY-MM-DD"),
}


def parse_baseline(name: str, text: str) -> Baseline:
    """The entries of a baseline; an empty text has none. Raises ConfigError with every mistake and its line."""
    try:
        root = yaml.read_document(name, text, limits=_LIMITS)
    except yaml.Refused as refusal:
        raise yaml.config_error([refusal.problem]) from refusal
    reading = _Reading(name)
    entries = reading.entries(root)
    problems = sorted([*yaml.repetitions(name, root), *reading.problems], key=lambda problem: problem.line)
    if problems:
        raise yaml.config_error(problems, subject="the baseline", hint=f"correct each line of {BASELINE_NAME}")
    return Baseline(entries, name)


class _Reading:
    """Reads the entries of one tree; `problems` are the mistakes in it."""

    def __init__(self, name: str) -> None:
        self._name = escape(name)
        self.problems: list[Problem] = []

    def entries(self, root: MapNode) -> tuple[BaselineEntry, ...]:
        """The entries that can be read."""
        top = {key.text: value for key, value in root.entries}
        self._check_keys(root, ("version", "entries"))
        version, listed = top.get("version"), top.get("entries")
        if version is None and root.entries:
            self._problem(root.line, "`version: 1` is missing", "add it as the first line")
        elif version is not None and not (isinstance(version, ScalarNode) and version.text == VERSION):
            what = f"version: this codeloupe reads version 1, found {yaml.describe(version)}"
            self._problem(version.line, what, "update codeloupe")
        if listed is None or (isinstance(listed, ScalarNode) and listed.value is None):
            return ()
        if not isinstance(listed, ListNode):
            self._problem(listed.line, "entries: expected a list", "begin each entry with `- fingerprint: `")
            return ()
        if len(listed.items) > MOST_ENTRIES:
            self._problem(listed.items[MOST_ENTRIES].line, f"more than {MOST_ENTRIES:,} entries", _TOO_LARGE)
            return ()
        found = [entry for entry in map(self._entry, listed.items) if entry is not None]
        lines: dict[tuple[str, str], int] = {}
        for entry in found:
            line = lines.setdefault(entry.key, entry.line)
            if line != entry.line:
                self._problem(entry.line, f"the same fingerprint and file are on line {line}", "keep one of the two")
        return tuple(found)

    def _entry(self, node: Node) -> BaselineEntry | None:
        if not isinstance(node, MapNode):
            what = "expected an entry with fingerprint, file, title, reason, owner and expires"
            self._problem(node.line, what, "write `key: value`, indented with spaces")
            return None
        before, values = len(self.problems), dict[str, Any]()
        self._check_keys(node, tuple(FIELDS))
        given = {key.text: value for key, value in node.entries if key.text in FIELDS}
        for key, value in given.items():
            if not isinstance(value, ScalarNode):
                self._problem(value.line, "expected a plain text here", "write it on one line, in quotes")
                continue
            text = "" if value.value is None else value.text
            if text.strip() or key in _NEEDED:
                read, expected, hint = FIELDS[key]
                try:
                    values[key] = read(text)
                except ValueError:
                    found = quote(text) if text.strip() else "nothing"
                    self._problem(value.line, f"{key}: expected {expected}, found {found}", hint)
        for name in _NEEDED:
            if name not in given:
                self._problem(node.line, f"this entry has no {name}", f"add `{name}: `")
        return BaselineEntry(**values, line=node.line) if len(self.problems) == before else None

    def _check_keys(self, node: MapNode, known: tuple[str, ...]) -> None:
        for key, _ in node.entries:
            if key.text not in known:
                meant = closest(key.text, known)
                hint = f"did you mean `{meant}`?" if meant else f"the keys are {', '.join(known)}"
                self._problem(key.line, f"{plain_or_quoted(key.text)}: unknown key", hint)

    def _problem(self, line: int, what: str, hint: str) -> None:
        self.problems.append(Problem(f"{self._name}:{line}", what, hint, line))


class BaselineFile(Struct, frozen=True):
    """A baseline with the text it was read from; the text of one that is not there is empty."""

    baseline: Baseline = Baseline()
    text: str = ""


def read_working_file(root: Path) -> BaselineFile:
    """The baseline in a working tree, never through a symbolic link; empty without a file. Raises ConfigError."""
    path = root / BASELINE_NAME
    if not os.path.lexists(path):
        return BaselineFile()
    text = read_config_file(
        path, name=BASELINE_NAME, follow_symlinks=False, max_bytes=MAX_FILE_BYTES, too_large=_TOO_LARGE
    ).text
    return BaselineFile(parse_baseline(BASELINE_NAME, text), text)


def decode_baseline(name: str, data: bytes) -> BaselineFile:
    """The baseline in a file's bytes; `name` is for messages. Raises ConfigError."""
    text = decode_config(name, data, max_bytes=MAX_FILE_BYTES, too_large=_TOO_LARGE).text
    return BaselineFile(parse_baseline(name, text), text)


def write_working_file(root: Path, text: str) -> None:
    """Put a text in the place of the baseline's file, with the mode it had; no link is followed. Raises OutputError."""
    target = root / BASELINE_NAME
    try:
        is_kept = target.is_file() and not target.is_symlink()
        kept = stat.S_IMODE(target.stat().st_mode) & 0o777 if is_kept else None
        replace_file(target, text.encode("utf-8"), mode=0o666, exact_mode=kept)
    except OSError as error:
        reason = (error.strerror or "unknown error").lower()
        hint = "check the directory and its permissions"
        raise OutputError(f"{escape(str(target))}: cannot be written: {reason}", hint=hint) from error


async def read_baseline(scope: Scope, *, repo: Path, trusted: bool) -> Baseline:
    """The baseline that holds for a resolved scope; an empty one without a file. Raises ConfigError and GitFailed.

    Whoever wrote an untrusted change may have written its baseline too, so the base's holds; an untrusted diff has no
    base to take one from. Of a trusted change, what the user accepts in the working tree holds at once, also for a
    commit, a range and the index, which do not have the entry yet. There a symbolic link counts as no file.
    """
    if not trusted:
        return await _of_revision(await open_repository(repo), scope.base) if scope.base else Baseline()
    if scope.kind in (ScopeKind.UNCOMMITTED, ScopeKind.BRANCH, ScopeKind.DIFF_FILE):
        return read_working_file(repository_root(repo)).baseline
    known = Baseline()
    if scope.kind is ScopeKind.STAGED or scope.head:
        known = await _of_revision(await open_repository(repo), scope.head)
    working = read_working_file(repository_root(repo)).baseline
    same = {replace(entry, line=0) for entry in known.entries}
    also = tuple(entry for entry in working.entries if replace(entry, line=0) not in same)
    changed = {entry.key for entry in also}
    return replace(known, entries=tuple(entry for entry in known.entries if entry.key not in changed), also=also)


async def _of_revision(repository: Repository, revision: str | None) -> Baseline:
    """That of a revision, or of the index."""
    content = await read_file_at(repository, revision, BASELINE_NAME)
    name = f"{(revision or '')[:12]}:{BASELINE_NAME}"
    return Baseline() if content is None else decode_baseline(name, content).baseline
