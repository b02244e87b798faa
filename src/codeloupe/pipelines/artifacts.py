"""The artifacts of a stage: files in its workspace that its agent made or changed, and that fit its rule and schemas.

An agent wrote the workspace, so nothing in it is trusted: hidden files, links that leave it, pipes, sockets, devices
and very large files are skipped, each with a note. No file is opened and no link is followed to find them.
"""

from __future__ import annotations

import asyncio
import os
import re
import stat
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path, PurePath
from typing import Any

from msgspec import Struct

from codeloupe.agents.calls.schemas import SchemaError, UnknownReference, validator_for, violation
from codeloupe.config.files import MAX_FILE_BYTES, read_config_file
from codeloupe.config.yaml import Refused, escape, plain, read_document, repetitions
from codeloupe.errors import ArtifactError, ConfigError
from codeloupe.model.pipeline import ArtifactRule
from codeloupe.store.records import replace_file
from codeloupe.system.json_values import parsed
from codeloupe.system.regex import regex

MOST_ENTRIES = 500_000
MOST_ARTIFACT_BYTES = 50 * 1024**2
# An agent that asks for the status of a repository changes these, and nothing in them is ever an artifact.
_VERSION_CONTROL = frozenset({".git", ".hg", ".svn", ".bzr", ".jj"})
# Two changes within one tick of the system's clock have the same time; no system has a tick this long.
_TICK_SECONDS = 0.02
_MOST_NAMED = 20
_MOST_NOTES = 50
MOST_CHECKED_BYTES = 4 * 1024**2
# The first part of a path that begins with a dot hides everything below it.
_HIDDEN_PART = regex(r"((?:^|/)\.[^/]*)/.*", re.DOTALL)
_NOT_IN_A_NAME = regex(r"[^\w.-]+")
_HIDDEN = "hidden"
_FILE, _LINK, _FOLDER = "a file", "a link", "a folder"
_KINDS = {
    stat.S_IFREG: _FILE,
    stat.S_IFLNK: _LINK,
    stat.S_IFDIR: _FOLDER,
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}


class Entry(Struct, frozen=True):
    """One entry of a workspace: its kind, and a `stamp` that changes with the entry; a folder has none."""

    kind: str
    size_bytes: int = 0
    stamp: tuple[int, ...] = ()


Snapshot = Mapping[str, Entry]


class Collected(Struct, frozen=True, kw_only=True):
    """The files that a stage left, by path in the workspace, sorted. `notes` list files that look like artifacts."""

    artifacts: tuple[str, ...]
    changed: tuple[str, ...]
    notes: tuple[str, ...] = ()


def matches(path: str, pattern: str, *, recursive: bool) -> bool:
    """Return whether a glob matches a path. Without a slash it matches names, at the top only unless `recursive`."""
    pattern = pattern.removeprefix("./")
    if path == pattern:
        return True
    if "/" not in pattern.rstrip("/"):
        folder, _, name = path.rpartition("/")
        return (recursive or not folder) and fnmatchcase(name, pattern)
    # One pass over the pattern, with all the places that the path may have reached: no star is tried again.
    parts, reached = path.split("/"), {0}
    for each in pattern.removeprefix("/").split("/"):
        if each == "**":
            reached = set(range(min(reached), len(parts) + 1)) if reached else reached
        else:
            reached = {place + 1 for place in reached if place < len(parts) and fnmatchcase(parts[place], each)}
    return len(parts) in reached


def identity_of(workspace: Path) -> tuple[int, ...]:
    """Return the identity of a directory, which changes if it is replaced, even by a link to it; empty if missing."""
    with suppress(OSError):
        facts = workspace.lstat()
        # A file that is created right after a removal may get the same number.
        return facts.st_dev, facts.st_ino, stat.S_IFMT(facts.st_mode)
    return ()


async def snapshot(workspace: Path, *, stage: str) -> Snapshot:
    """Return all entries below a directory by path. Raise ArtifactError if it cannot be read or is too large."""
    found: dict[str, Entry] = {}
    left = deque([""])
    while left:
        folder = left.popleft()
        try:
            if folder.count("/") >= 200:
                raise OSError("too deep")  # noqa: TRY301 - as what the system itself refuses
            with os.scandir(workspace / folder) as entries:
                within = list(islice(entries, MOST_ENTRIES + 1))
        except OSError as error:
            if not folder:
                reason = (error.strerror or str(error)).lower()
                what = f"cannot read the workspace {workspace} of the stage {stage}: {reason}"
                hint = "check that it is a directory that this user can read"
                raise ArtifactError(what, stage=stage, hint=hint) from error
            found[folder] = Entry("a folder that cannot be read")
            continue
        for each in within:
            if each.name in _VERSION_CONTROL:
                continue
            path = f"{folder}/{each.name}" if folder else each.name
            # In a checkout a person may remove a file between the listing and the look.
            with suppress(FileNotFoundError):
                facts = each.stat(follow_symlinks=False)
                kind = _KINDS.get(stat.S_IFMT(facts.st_mode), "a device")
                if kind is _FOLDER:
                    found[path] = Entry(kind)
                    left.append(path)
                else:
                    stamp = (facts.st_mode, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
                    found[path] = Entry(kind, facts.st_size, stamp)
            if len(found) % 500 == 0:
                await asyncio.sleep(0)  # other stages continue, and a cancellation is noticed
        if len(found) > MOST_ENTRIES:
            what = f"the workspace of the stage {stage} contains more than {MOST_ENTRIES:,} files"
            hint = "have the agent remove files that it does not need, such as installed packages"
            raise ArtifactError(what, stage=stage, hint=hint)
    return found


async def let_time_pass(before: Snapshot) -> None:
    """Wait until a change has a later time than every entry of a snapshot."""
    newest = max((entry.stamp[-1] for entry in before.values() if entry.stamp), default=0)
    await asyncio.sleep(min(max(newest / 1e9 + _TICK_SECONDS - time.time(), 0.0), _TICK_SECONDS))


def collect(
    workspace: Path, rule: ArtifactRule, *, before: Snapshot, after: Snapshot, built_on: Iterable[str] = ()
) -> Collected:
    """Return the artifacts: changed files, files of `built_on` that still exist, and existing required files."""
    changed = tuple(sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path)))
    root = Path(os.path.realpath(workspace))
    earlier = set(built_on)
    artifacts, notes = set(), dict[str, str]()
    for path, entry in after.items():
        is_new = before.get(path) != entry
        wanted, required = (
            any(matches(path, pattern, recursive=rule.recursive) for pattern in patterns)
            for patterns in (rule.patterns, rule.required)
        )
        if not (is_new or required or path in earlier):
            continue
        reason = why_not(root, path, entry)
        if reason is None and (wanted or required):
            artifacts.add(path)
        elif reason and is_new and (wanted or reason != _HIDDEN):
            # A hidden folder is named once, whatever it holds.
            notes[_HIDDEN_PART.sub(r"\1", path, count=1) if reason == _HIDDEN else path] = reason
    shown = [f"{escape(path)} was skipped: it is {reason}" for path, reason in sorted(notes.items())[:_MOST_NOTES]]
    if len(notes) > _MOST_NOTES:
        shown.append(f"{len(notes) - _MOST_NOTES:,} more files were skipped for similar reasons")
    return Collected(artifacts=tuple(sorted(artifacts)), changed=changed, notes=tuple(shown))


def why_not(root: Path, path: str, entry: Entry) -> str | None:
    """Return why an entry of a workspace (`root` is its real path) is not an artifact; "" for a folder."""
    size, is_hidden = entry.size_bytes, path.startswith(".") or "/." in path
    if entry.kind == _LINK:
        target = Path(os.path.realpath(root / path))
        if not target.is_relative_to(root):
            return "a link that points outside the workspace"
        try:
            facts = target.stat()
        except OSError:  # not there, or a circle of links
            return "a broken link"
        if stat.S_ISDIR(facts.st_mode):
            return ""
        if not stat.S_ISREG(facts.st_mode):
            return "a link to something other than a regular file"
        if any(part.startswith(".") for part in target.relative_to(root).parts):
            return "a link to a hidden file"
        size = facts.st_size
    elif entry.kind != _FILE:
        return "" if entry.kind == _FOLDER else entry.kind
    if size > MOST_ARTIFACT_BYTES:
        return f"a file of {size:,} bytes, more than the limit of {MOST_ARTIFACT_BYTES:,}"
    return _HIDDEN if is_hidden else None


def require(collected: Collected, rule: ArtifactRule, *, stage: str) -> None:
    """Raise ArtifactError, which lists the files that were written instead, if a required artifact is missing."""
    missing = [
        pattern
        for pattern in rule.required
        if not any(matches(path, pattern, recursive=rule.recursive) for path in collected.artifacts)
    ]
    if missing:
        there = listed(collected.artifacts or collected.changed)
        left_out = "".join(f"; {note}" for note in collected.notes[:_MOST_NAMED])
        what = f"the stage {stage} did not write {listed(missing)}; it wrote {there or 'no file'}{left_out}"
        raise ArtifactError(what, stage=stage, hint="state in the step file which files to write, and where")


def listed(names: Sequence[str]) -> str:
    """Return names for a message, in one line and not too many."""
    more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(map(escape, names[:_MOST_NAMED])) + more


def answer_name(stage: str, *, structured: bool, taken: Iterable[str], own: Iterable[str] = ()) -> str:
    """Return the name under which a stage's answer is saved; it replaces only a file that was saved this way."""
    stem = f"{_NOT_IN_A_NAME.sub('-', stage).lstrip('.-') or 'stage'}-output"
    ending = ".json" if structured else ".md"
    others = set(taken).difference(own)
    number = 1
    while (name := f"{stem}{'' if number == 1 else f'-{number}'}{ending}") in others:
        number += 1
    return name


def saved_content(text: str) -> bytes:
    """Return the content of the file in which an answer is saved."""
    # Half of a character, which no encoding has, is written as its escape.
    return (text.rstrip("\n") + "\n").encode("utf-8", "backslashreplace")


def save_answer(workspace: Path, name: str, text: str) -> None:
    """Write an answer to the workspace. A file of that name is replaced, never written into. Raises OSError."""
    replace_file(workspace / name, saved_content(text))


class SchemaRefused(ValueError):
    """A file, a schema or a value to check cannot be used; the message says why."""


def read_named(file: Path, name: str, *, max_bytes: int = MAX_FILE_BYTES) -> str:
    """Return the UTF-8 text of a file that a pipeline names. Raise SchemaRefused, from an OSError if there is one."""
    if file.is_dir():
        raise SchemaRefused(f"{escape(name)}: expected a file, found a folder")
    try:
        text = read_config_file(file, name=name, follow_symlinks=True, max_bytes=max_bytes).text.removeprefix("\ufeff")
    except ConfigError as error:
        raise SchemaRefused(error.message) from error.__cause__
    if not text.strip():
        raise SchemaRefused(f"{escape(name)}: the file is empty")
    if "\0" in text:
        raise SchemaRefused(f"{escape(name)}: not a text file: it contains a NUL byte")
    return text


def parse_value(name: str, text: str) -> Any:
    """Return the value in a file's text, JSON or YAML by the file's name. Raise SchemaRefused."""
    if PurePath(name).suffix.lower() not in (".yaml", ".yml"):
        try:
            return parsed(text)
        except ValueError as error:
            raise SchemaRefused(str(error)) from error
    try:
        root = read_document(name, text, deepest_level=100)
    except Refused as refusal:
        raise SchemaRefused(f"line {refusal.problem.line}: {refusal.problem.what}") from refusal
    for problem in repetitions(name, root):
        raise SchemaRefused(f"line {problem.line}: {problem.what}")
    return plain(root)


def check_schema(schema: object) -> None:
    """Raises SchemaRefused unless it is a valid JSON Schema that needs nothing from outside itself."""
    if not isinstance(schema, Mapping):
        raise SchemaRefused("expected a JSON object")
    try:
        validator_for(schema)
    except SchemaError as error:
        kind = "" if isinstance(error, UnknownReference) else "not a JSON Schema: "
        raise SchemaRefused(f"{kind}{escape(str(error))}") from error


def check_artifact(file: Path, path: str, rule: ArtifactRule, *, stage: str) -> None:
    """Raise ArtifactError, which names the file and the problem, for an artifact that does not match its schema."""
    for pattern, schema in rule.schemas.items():
        if not matches(path, pattern, recursive=rule.recursive):
            continue
        try:
            value = parse_value(path, read_named(file, path, max_bytes=MOST_CHECKED_BYTES))
            wrong = escape(violation(value, validator_for(schema)))
        except SchemaError as error:
            wrong = f"the schema cannot be used: {escape(str(error))}"
        except SchemaRefused as refused:
            wrong = str(refused)
        if wrong:
            what = f"{escape(path)} of the stage {stage} does not match its schema: {wrong}"
            hint = "state in the step file what the file must contain, or fix the schema in the pipeline file"
            raise ArtifactError(what, stage=stage, hint=hint)
