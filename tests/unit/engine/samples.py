"""Findings and changes for the tests of this room."""

from codeloupe.model.change import Change, FileChange, FileStatus, Hunk, Scope, ScopeKind
from codeloupe.model.finding import Finding, FindingStatus, Severity

SCOPE = Scope(ScopeKind.RANGE, "a" * 40, "b" * 40, "a..b")


def finding(
    severity: Severity = Severity.HIGH,
    *,
    file: str = "a.py",
    line: int = 1,
    evidence: str = "x = 1",
    category: str = "correctness",
    title: str = "wrong",
    anchored: bool = True,
    status: FindingStatus = FindingStatus.NEW,
) -> Finding:
    return Finding(
        file=file,
        line_start=line,
        line_end=line,
        severity=severity,
        category=category,
        title=title,
        body="why",
        evidence=evidence,
        reviewer="test",
        anchored=anchored,
        status=status,
    )


def changed(path: str, body: bytes = b"+x\n", *, binary: bool = False, new_mode: str = "100644") -> FileChange:
    added = sum(line.startswith(b"+") for line in body.split(b"\n"))
    hunk = Hunk(0, 0, 1, added, body, added=added)
    return FileChange(None, path, FileStatus.ADDED, new_mode=new_mode, binary=binary, hunks=(hunk,))


def change(*files: FileChange, unreadable: tuple[tuple[str, str], ...] = ()) -> Change:
    return Change(SCOPE, files, unreadable)
