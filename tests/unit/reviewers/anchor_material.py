"""Changed files from two texts, and claims about them, for the tests of anchoring."""

import difflib
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from codeloupe.model.change import FileChange, FileStatus, Hunk
from codeloupe.model.finding import Claim, Severity
from codeloupe.reviewers.anchor import Anchorer, Origin
from codeloupe.reviewers.answers import RawClaim

ORIGIN = Origin(reporter="scripted", label="scripted/all#1")


def changed_file(path: str, old: bytes | None, new: bytes | None) -> FileChange:
    """Return the change from one content to another; None is a file that does not exist."""
    status = FileStatus.ADDED if old is None else FileStatus.DELETED if new is None else FileStatus.MODIFIED
    before, after = ((text or b"").removesuffix(b"\n").split(b"\n") if text else [] for text in (old, new))
    hunks = tuple(_hunks(before, after))
    return FileChange(path if old is not None else None, path if new is not None else None, status, hunks=hunks)


def _hunks(old: list[bytes], new: list[bytes]) -> Iterator[Hunk]:
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for group in matcher.get_grouped_opcodes(3):
        rows: list[bytes] = []
        for tag, old_from, old_to, new_from, new_to in group:
            rows += [(b" " if tag == "equal" else b"-") + line for line in old[old_from:old_to]]
            rows += [b"+" + line for line in new[new_from:new_to] if tag != "equal"]
        old_start, old_lines = group[0][1], group[-1][2] - group[0][1]
        new_start, new_lines = group[0][3], group[-1][4] - group[0][3]
        added, deleted = (sum(row[:1] == sign for row in rows) for sign in (b"+", b"-"))
        body = b"".join(row + b"\n" for row in rows)
        starts = old_start + (old_lines > 0), old_lines, new_start + (new_lines > 0), new_lines
        yield Hunk(*starts, body, added=added, deleted=deleted)


def raw_claim(quote: str, *, file: str = "a.py", line: int | None = None, end: int | None = None) -> RawClaim:
    """Return an item of an answer that quotes some code."""
    return RawClaim(
        severity=Severity.HIGH, title="wrong", body="why", file=file, line_start=line, line_end=end, quote=quote
    )


def place(
    quote: str,
    new: str | bytes,
    *,
    old: str | bytes | None = None,
    line: int | None = None,
    end: int | None = None,
    known: bool = True,
) -> Claim:
    """Return the claim of a quote in the one changed file `a.py`; if it is `known`, its content can be read."""
    after = new.encode() if isinstance(new, str) else new
    before = old.encode() if isinstance(old, str) else old
    tree = {"a.py": after} if known else {}
    anchorer = Anchorer([changed_file("a.py", before, after)], tree.get)
    return anchorer.place(raw_claim(quote, line=line, end=end), ORIGIN)


def anchorer_of(
    changes: Mapping[str, tuple[bytes | None, bytes | None]], others: Mapping[str, bytes] = MappingProxyType({})
) -> Anchorer:
    """Return an anchorer of a change, given by path and content before and after, in a tree with other files."""
    files = [changed_file(path, old, new) for path, (old, new) in changes.items()]
    tree = {path: new for path, (_, new) in changes.items() if new is not None}
    return Anchorer(files, {**tree, **others}.get)


def where(claim: Claim) -> tuple[str, int | None, int | None] | None:
    """Return its place, or None if it is not anchored."""
    return (claim.file, claim.line_start, claim.line_end) if claim.anchored else None
