"""Changed files from two texts, and claims about them, for the tests of anchoring and identity."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping

from codeloupe.engine.anchor import Anchorer, Origin
from codeloupe.model.change import FileChange, FileStatus, Hunk
from codeloupe.model.finding import ClaimedFinding, Finding, Severity

ORIGIN = Origin(reviewer="scripted", label="scripted/all#1")


def changed_file(path: str, old: bytes | None, new: bytes | None, *, context: int = 3) -> FileChange:
    """The change from one content to another; None is a file that does not exist."""
    status = FileStatus.ADDED if old is None else FileStatus.DELETED if new is None else FileStatus.MODIFIED
    hunks = tuple(_hunks(_lines(old or b""), _lines(new or b""), context))
    return FileChange(path if old is not None else None, path if new is not None else None, status, hunks=hunks)


def _lines(content: bytes) -> list[bytes]:
    lines = content.split(b"\n")
    return lines[:-1] if lines[-1] == b"" else lines


def _hunks(old: list[bytes], new: list[bytes], context: int) -> Iterator[Hunk]:
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for group in matcher.get_grouped_opcodes(context):
        rows: list[bytes] = []
        for tag, old_from, old_to, new_from, new_to in group:
            if tag == "equal":
                rows += [b" " + line for line in old[old_from:old_to]]
            else:
                rows += [b"-" + line for line in old[old_from:old_to]]
                rows += [b"+" + line for line in new[new_from:new_to]]
        old_start, old_lines = group[0][1], group[-1][2] - group[0][1]
        new_start, new_lines = group[0][3], group[-1][4] - group[0][3]
        yield Hunk(
            old_start + (old_lines > 0),
            old_lines,
            new_start + (new_lines > 0),
            new_lines,
            b"".join(row + b"\n" for row in rows),
            added=sum(row[:1] == b"+" for row in rows),
            deleted=sum(row[:1] == b"-" for row in rows),
        )


def claim(
    quote: str, *, file: str | None = "a.py", line: int | None = None, end: int | None = None, title: str = "wrong"
) -> ClaimedFinding:
    return ClaimedFinding(
        severity=Severity.HIGH, title=title, body="why", file=file, line_start=line, line_end=end, evidence=quote
    )


def place(
    quote: str,
    new: str | bytes,
    *,
    old: str | bytes | None = None,
    line: int | None = None,
    end: int | None = None,
    known: bool = True,
) -> Finding:
    """The finding of a quote in the one changed file `a.py`; with `known` its whole content can be read."""
    after = new.encode() if isinstance(new, str) else new
    before = old.encode() if isinstance(old, str) else old
    tree = {"a.py": after} if known else {}
    anchorer = Anchorer([changed_file("a.py", before, after)], tree.get)
    return anchorer.place(claim(quote, line=line, end=end), ORIGIN)


def anchorer_of(changes: Mapping[str, tuple[bytes | None, bytes | None]], **others: bytes) -> Anchorer:
    """An anchorer of a change, by path and content before and after, in a tree with other files `name_py`."""
    files = [changed_file(path, old, new) for path, (old, new) in changes.items()]
    tree = {path: new for path, (_, new) in changes.items() if new is not None}
    tree |= {name.replace("__", "/").replace("_py", ".py"): content for name, content in others.items()}
    return Anchorer(files, tree.get)


def where(finding: Finding) -> tuple[str, int | None, int | None] | None:
    """Its place, or None when it is not anchored."""
    return (finding.file, finding.line_start, finding.line_end) if finding.anchored else None
