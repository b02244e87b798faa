"""Changes for the tests of planning."""

from codeloupe.model.change import Change, FileChange, FileStatus, Hunk, Scope, ScopeKind

SCOPE = Scope(ScopeKind.RANGE, "a" * 40, "b" * 40, "a..b")


def changed(path: str, body: bytes = b"+x\n", *, binary: bool = False, new_mode: str = "100644") -> FileChange:
    added = sum(line.startswith(b"+") for line in body.split(b"\n"))
    hunk = Hunk(0, 0, 1, added, body, added=added)
    return FileChange(None, path, FileStatus.ADDED, new_mode=new_mode, binary=binary, hunks=(hunk,))


def change(*files: FileChange, unreadable: tuple[tuple[str, str], ...] = ()) -> Change:
    return Change(SCOPE, files, unreadable)
