"""git's lists, read from real git, and the patch checked against them."""

from __future__ import annotations

import os

import pytest
from msgspec.structs import replace

from codeloupe.errors import DiffSyntaxError, RepositoryBusy
from codeloupe.git.changes import parse_list, reconcile
from codeloupe.git.diff import parse_diff
from codeloupe.model.change import FileChange, FileStatus
from tests.diff_checks import PATCH_OPTIONS, lists_of, patch_of
from tests.repository import GitRepository
from tests.rows import each

_TEXT = "".join(f"line {number}\n" for number in range(20))
_RAW = b":100644 100644 " + b"1" * 40 + b" " + b"2" * 40 + b" M\0"


def _changed(repository: GitRepository) -> tuple[str, str]:
    repository.write("edited.py", _TEXT)
    repository.write("old name.py", _TEXT.upper())
    repository.write("data.bin", b"\0one\n")
    repository.write("gone", "gone\n")
    base = repository.commit()
    repository.write("edited.py", _TEXT.replace("line 7\n", "line seven\nand more\n"))
    repository.git("mv", "old name.py", "new name.py")
    repository.write("data.bin", b"\0two\n")
    repository.remove("gone")
    repository.write("tab\tname\udcff", "new\n", executable=True)
    return base, repository.commit()


def _read(repository: GitRepository, commits: tuple[str, str]) -> tuple[tuple[FileChange, ...], ...]:
    return parse_diff(patch_of(repository, commits)), parse_list(lists_of(repository, commits))[0]


def test_the_lists_of_a_real_change_are_read(repository: GitRepository) -> None:
    entries = parse_list(lists_of(repository, _changed(repository)))[0]
    assert [(entry.status, entry.old_path, entry.new_path, entry.counts) for entry in entries] == [
        (FileStatus.MODIFIED, "data.bin", "data.bin", None),
        (FileStatus.MODIFIED, "edited.py", "edited.py", (2, 1)),
        (FileStatus.DELETED, "gone", None, (0, 1)),
        (FileStatus.RENAMED, "old name.py", "new name.py", (0, 0)),
        (FileStatus.ADDED, None, "tab\tname\udcff", (1, 0)),
    ]
    assert [entry.binary for entry in entries] == [True, False, False, False, False]
    assert [entry.similarity for entry in entries] == [None, None, None, 100, None]
    assert (entries[4].old_mode, entries[4].new_mode, entries[4].old_blob) == (None, "100755", None)


def test_a_file_that_was_touched_and_did_not_change_is_listed_without_hunks(repository: GitRepository) -> None:
    touched = repository.write("x", "one\n")
    repository.write("y", "one\n")
    repository.commit()
    os.utime(touched, (1, 1))
    repository.write("y", "two\n")
    unrefreshed = ("-c", "diff.autoRefreshIndex=false", "diff")
    entries = parse_list(repository.git(*unrefreshed, "--raw", "--numstat", "-z", "--no-abbrev"))[0]
    files = reconcile(parse_diff(repository.git(*unrefreshed, *PATCH_OPTIONS)), entries)
    assert [(file.path, file.status, file.added, len(file.hunks)) for file in files] == [
        ("x", FileStatus.MODIFIED, 0, 0),
        ("y", FileStatus.MODIFIED, 1, 1),
    ]


@each(
    ("data", "words"),
    [
        (b"x", "cut off"),
        (_RAW, "cut off|no path"),
        (_RAW + b"x", "cut off"),
        (_RAW + b"x\0:1 2\0", "a record is malformed"),
        (_RAW + b"x\0" + b"1\t1\ty\0", "not in its place"),
        (_RAW + b"x\0" + b"1\t1\n\0", "a record is malformed"),
        (_RAW + b"x\0" + b"1\t1\tx\0" + _RAW + b"y\0", "a record is malformed"),
        (_RAW + b"x\0" + b"%b\t1\tx\0" % (b"9" * 5000), "a record is malformed"),
        (_RAW + b"x\0" + b"1\t1\t\0x\0", "cut off|no path"),
        (_RAW.replace(b" M", b" R100") + b"x\0", "cut off|no path"),
        (_RAW.replace(b" M", b" X") + b"x\0", "status 'X'"),
    ],
)
def test_a_list_that_git_would_not_print_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(DiffSyntaxError, match=words):
        parse_list(data)


def test_long_lists_are_read_in_a_moment() -> None:
    names = [b"file%d" % number for number in range(20_000)]
    raw = b"".join(_RAW + name + b"\0" for name in names)
    entries = parse_list(raw + b"".join(b"1\t2\t" + name + b"\0" for name in names))[0]
    assert (len(entries), entries[-1].added, entries[-1].deleted) == (20_000, 1, 2)


def test_list_and_patch_have_to_agree_and_a_binary_file_keeps_its_hunks(repository: GitRepository) -> None:
    files, entries = _read(repository, _changed(repository))
    reconciled = reconcile(files, entries)
    assert (reconciled[0].path, len(reconciled[0].hunks)) == ("data.bin", 1)
    assert [file.binary for file in reconciled] == [True, False, False, False, False]

    def refused(words: str, files: tuple[FileChange, ...], entries: tuple[FileChange, ...]) -> None:
        with pytest.raises(DiffSyntaxError, match=words) as caught:
            reconcile(files, entries)
        assert "run it again" in caught.value.hint

    def second(of: tuple[FileChange, ...], **changes: object) -> tuple[FileChange, ...]:
        return (of[0], replace(of[1], **changes), *of[2:])

    refused("'edited.py' is in the patch and not in its place in the list", files, entries[:1])
    for missing in range(5):
        refused("in the list and not in its place in the patch", files[:missing] + files[missing + 1 :], entries)
    for counts in ((3, 1), (2, 2), (0, 0)):
        refused("changed lines of 'edited.py'", files, second(entries, counts=counts))
    refused("content of 'edited.py'", files, second(entries, new_blob="f" * 40))
    refused("changed lines of 'edited.py'", second(files, binary=True), entries)


def test_an_unmerged_file_is_refused(repository: GitRepository) -> None:
    repository.write("x", "one\n")
    repository.commit()
    for branch, content in (("side", "two\n"), ("main", "three\n")):
        repository.checkout(branch, new=branch == "side")
        repository.write("x", content)
        repository.commit()
    repository.git("merge", "side", may_fail=True)
    with pytest.raises(RepositoryBusy, match="'x' has unresolved conflicts"):
        parse_list(repository.git("diff", "--raw", "--numstat", "-z", "--no-abbrev"))
