"""What of a workspace is a stage's result: the files that its agent made or changed, and are as its rule asks.

A workspace is what an agent left, so nothing in it is believed: hidden files, links that leave it, pipes, sockets,
devices and very large files are left out, each with a note. Nothing is opened to find that out.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import Struct

from codeloupe.config.yaml import escape
from codeloupe.errors import ArtifactError
from codeloupe.model.pipeline_definition import ArtifactRule
from codeloupe.pipeline.artifact_patterns import matches, matches_any
from codeloupe.pipeline.artifact_scan import Entry, Kind, Look, differing

MOST_ARTIFACT_BYTES = 50 * 1024**2
_MOST_NAMED = 20
_MOST_NOTES = 50
_NOT_IN_A_NAME = re.compile(r"[^\w.-]+")
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_HIDDEN = "hidden"


class Collected(Struct, frozen=True, kw_only=True):
    """What a stage left: its artifacts and all that changed, by path in the workspace, both sorted.

    `notes` say what is no artifact though it might be taken for one, and why. `answer` is the artifact that holds the
    answer because there was no other, or empty.
    """

    artifacts: tuple[str, ...]
    changed: tuple[str, ...]
    notes: tuple[str, ...] = ()
    answer: str = ""


def collect(
    workspace: Path, rule: ArtifactRule, *, before: Look, after: Look, built_on: Iterable[str] = ()
) -> Collected:
    """The artifacts among what changed between two looks at a workspace.

    Those of `built_on`, what the stage itself had made before in this workspace, that are still there count too, and so
    does every required file that is there: who mends one file of several has made all of them.
    """
    changed = differing(before, after)
    root = Path(os.path.realpath(workspace))
    earlier = set(built_on)
    artifacts, notes = set(), dict[str, str]()
    for path in after:
        is_new = before.get(path) != after[path]
        wanted = matches_any(path, rule.patterns, recursive=rule.recursive)
        required = matches_any(path, rule.required, recursive=rule.recursive)
        if not (is_new or required or path in earlier):
            continue
        reason = why_not(root, path, after[path])
        if reason is None and (wanted or required):
            artifacts.add(path)
        elif reason and is_new and (reason != _HIDDEN or wanted):
            notes[_noted_place(path, reason)] = reason
    return Collected(artifacts=tuple(sorted(artifacts)), changed=changed, notes=tuple(_worded(notes)))


def why_not(root: Path, path: str, entry: Entry) -> str | None:
    """Why something in a workspace, whose real path is given, is no artifact; "" for what nobody takes for one."""
    if entry.kind is Kind.FOLDER:
        return ""
    if entry.kind not in (Kind.FILE, Kind.LINK):
        return str(entry.kind)
    if entry.kind is Kind.LINK:
        if (reason := _why_not_follow(root, path)) is not None:
            return reason
    elif entry.size_bytes > MOST_ARTIFACT_BYTES:
        return _too_large(entry.size_bytes)
    return _HIDDEN if _is_hidden(path) else None


def _why_not_follow(root: Path, path: str) -> str | None:
    target = Path(os.path.realpath(root / path))
    if not target.is_relative_to(root):
        return "a link that leaves the workspace"
    try:
        facts = target.stat()
    except OSError:  # not there, or a circle of links
        return "a link that leads nowhere"
    if stat.S_ISDIR(facts.st_mode):
        return ""
    if not stat.S_ISREG(facts.st_mode):
        return "a link to what is not a regular file"
    if _is_hidden(target.relative_to(root).as_posix()):
        return "a link to a hidden file"
    return _too_large(facts.st_size) if facts.st_size > MOST_ARTIFACT_BYTES else None


def _too_large(size_bytes: int) -> str:
    return f"a file of {size_bytes:,} bytes, where {MOST_ARTIFACT_BYTES:,} is the most"


def _is_hidden(path: str) -> bool:
    return path.startswith(".") or "/." in path


def _noted_place(path: str, reason: str) -> str:
    """A hidden folder is named once, whatever it holds."""
    if reason != _HIDDEN:
        return path
    parts = PurePosixPath(path).parts
    first = next(number for number, part in enumerate(parts) if part.startswith("."))
    return "/".join(parts[: first + 1])


def _worded(notes: dict[str, str]) -> Iterator[str]:
    for path, reason in sorted(notes.items())[:_MOST_NOTES]:
        yield f"{escape(path)} was left out: it is {reason}"
    if len(notes) > _MOST_NOTES:
        yield f"{len(notes) - _MOST_NOTES:,} more were left out for such reasons"


def require(collected: Collected, rule: ArtifactRule, *, stage: str) -> None:
    """Raises ArtifactError, which says what was there instead, unless each required artifact is there."""
    missing = [
        pattern
        for pattern in rule.required
        if not any(matches(path, pattern, recursive=rule.recursive) for path in collected.artifacts)
    ]
    if not missing:
        return
    there = listed(collected.artifacts or collected.changed)
    left_out = "".join(f"; {note}" for note in collected.notes[:_MOST_NAMED])
    raise ArtifactError(
        f"the stage {stage} left no {listed(missing)}; it left {there or 'no file'}{left_out}",
        stage=stage,
        hint="say in the step file which files are to be written, and where",
    )


def listed(names: Sequence[str]) -> str:
    """Names for a message: in one line, not too many."""
    more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(map(escape, names[:_MOST_NAMED])) + more


def answer_name(stage: str, *, structured: bool, taken: Iterable[str], own: Iterable[str] = ()) -> str:
    """The name under which a stage's answer is saved: never one that is taken, but for a file of our own."""
    stem = f"{_NOT_IN_A_NAME.sub('-', stage).lstrip('.-') or 'stage'}-output"
    ending = ".json" if structured else ".md"
    others = set(taken).difference(own)
    number = 1
    while (name := f"{stem}{'' if number == 1 else f'-{number}'}{ending}") in others:
        number += 1
    return name


def save_answer(workspace: Path, name: str, answer: str | Any, *, structured: bool) -> None:
    """Write an answer to the workspace. A file of that name is replaced, never written into. Raises OSError."""
    text = json.dumps(answer, indent=2, ensure_ascii=False) if structured else answer.rstrip("\n")
    file = workspace / name
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, _CREATE, 0o600), "wb") as sink:
        # Half of a character, which no encoding has, stands as its escape.
        sink.write(f"{text}\n".encode("utf-8", "backslashreplace"))
