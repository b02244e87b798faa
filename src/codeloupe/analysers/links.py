"""Symbolic links that a change adds or turns: where they lead. No program is needed, and none is followed."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator

from codeloupe.model.change import FileChange
from codeloupe.model.finding import Finding, Severity, Source

NAME = "links"
_MAX_SHOWN = 300


def links_outside(files: Iterable[FileChange], *, trusted: bool) -> Iterator[Finding]:
    """A finding for each link that leads out of the repository, or into git's own folder."""
    for file in files:
        target = "" if file.new_path is None or not file.is_symlink else _target(file)
        if not target or not _leaves(file.path, target):
            continue
        yield Finding(
            file=file.path,
            line_start=1,
            line_end=1,
            severity=Severity.MEDIUM if trusted else Severity.HIGH,
            category="security",
            title="A symbolic link leads out of the repository",
            body="Whatever reads or writes this path, such as a build, gets at a file of the machine that it runs on.",
            evidence=target[:_MAX_SHOWN],
            reviewer=NAME,
            source=Source.ANALYSER,
            rule="link-outside",
            suggestion="Link to a file of the repository by a relative path, or keep a copy here.",
        )


def _target(file: FileChange) -> str:
    added = (line.text for hunk in file.hunks for line in hunk.lines() if line.kind == "added")
    return b"\n".join(added).decode("utf-8", "replace")


def _leaves(path: str, target: str) -> bool:
    parts = posixpath.normpath(posixpath.join(posixpath.dirname(path), target)).split("/")
    return target.startswith("/") or parts[0] == ".." or any(part.lower() == ".git" for part in parts)
