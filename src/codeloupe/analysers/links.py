"""Symbolic links in a change that lead out of the repository."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator

from codeloupe.model.change import FileChange
from codeloupe.model.finding import Claim, Severity, Source

_MOST_EVIDENCE = 300


def links_outside(files: Iterable[FileChange], *, trusted: bool) -> Iterator[Claim]:
    """Yield a claim for each symbolic link that leads out of the repository or into git's folder; none is followed."""
    for file in files:
        if file.new_path is None or not file.is_symlink:
            continue
        target = _target_of(file)
        if not _leads_outside(file.path, target):
            continue
        yield Claim(
            file=file.path,
            line_start=1,
            line_end=1,
            severity=Severity.MEDIUM if trusted else Severity.HIGH,
            category="security",
            title="A symbolic link points outside the repository",
            body="A program that reads or writes this path, such as a build, accesses a file outside the repository.",
            evidence=target[:_MOST_EVIDENCE],
            reporter="links",
            source=Source.ANALYSER,
            rule="link-outside",
            suggestion="Link to a file in the repository with a relative path, or add a copy of the file.",
        )


def _target_of(link: FileChange) -> str:
    """Return the path that a link has after the change, which git stores as the link's content."""
    rows: list[bytes] = []
    for hunk in link.hunks:
        rows += [line.text for line in hunk.lines() if line.kind == "added"]
    return b"\n".join(rows).decode("utf-8", "replace")


def _leads_outside(path: str, target: str) -> bool:
    if not target:
        return False
    place = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    parts = place.split("/")
    is_in_git_folder = any(part.lower() == ".git" for part in parts)
    return target.startswith("/") or parts[0] == ".." or is_in_git_folder
