"""A pointer of Git LFS is not the file: nobody who read it has reviewed what it points to."""

from __future__ import annotations

from codeloupe.engine.select import FileContent, SelectionRules, select_by_content, select_by_diff
from codeloupe.model.review import SkippedFile, SkipReason
from tests.unit.engine.samples import change, changed, each_row

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 50000\n" % (b"5d" * 32)


def skip_of(path: str, content: bytes = POINTER, *, trusted: bool = True) -> SkippedFile | None:
    rules = SelectionRules(believe_content=trusted)
    selection = select_by_diff(change(changed(path)), rules)
    narrowed = select_by_content(selection, {path: FileContent(len(content), content)}, rules)
    return narrowed.skipped[0] if narrowed.skipped else None


def test_a_pointer_is_left_out_and_a_gap_when_the_change_is_not_trusted() -> None:
    def check(path: str) -> None:
        for trusted in (True, False):
            skip = skip_of(path, trusted=trusted)
            assert skip is not None
            assert (skip.reason, skip.is_gap) == (SkipReason.LFS_POINTER, not trusted)

    each_row(["model.dat", "data.json", "payload.py"], check)


def test_what_git_lfs_takes_for_a_pointer_is_one() -> None:
    older = POINTER.replace(b"git-lfs", b"hawser")
    for content in (POINTER[:-1], POINTER + b"\n\n", POINTER.replace(b"\n", b"\r\n"), older):
        skip = skip_of("run.sh", content)
        assert skip is not None
        assert skip.reason is SkipReason.LFS_POINTER


def test_what_only_begins_like_a_pointer_is_reviewed() -> None:
    def check(content: bytes) -> None:
        assert skip_of("run.sh", content) is None

    each_row([POINTER + b"rm -rf /\n", POINTER.replace(b"oid", b"steal\noid")], check)
