"""What the parser reads: the forms a diff comes in, beside the plain output of git."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from codeloupe.errors import DiffSyntaxError
from codeloupe.git.diff import parse_diff
from codeloupe.model.change import DiffLine, FileChange, FileStatus
from tests.diff_checks import Style, check_file, patch_of
from tests.repository import GitRepository
from tests.rows import each

_OLD = b"".join(b"line %d\n" % number for number in range(1, 21))
_NEW = _OLD.replace(b"line 4\n", b"line four\n").replace(b"line 15\n", b"")
_HUNK = b"@@ -1,2 +1,3 @@ class Loupe:\n one\n-two\n+2\n+3\n"
_NAMES = b"--- a/x.py\n+++ b/x.py\n"
_GIT = b"diff --git a/x.py b/x.py\nindex 1234567..89abcde 100644\n" + _NAMES


def _one(data: bytes) -> FileChange:
    (file,) = parse_diff(data)
    return file


def _two_commits(repository: GitRepository) -> tuple[str, str]:
    repository.write("x.py", _OLD)
    base = repository.commit("first\n\n--- a/no.py\n+ no diff")
    repository.write("x.py", _NEW)
    repository.write("z.py", "z\n")
    return base, repository.commit("second\n\n- a point\n+ another\n    indented")


def test_a_hunk_keeps_its_numbers_its_heading_and_its_lines() -> None:
    file = _one(_GIT + _HUNK)
    assert (file.old_blob, file.new_blob, file.old_mode, file.new_mode) == ("1234567", "89abcde", "100644", "100644")
    (hunk,) = file.hunks
    assert (hunk.old_start, hunk.old_lines, hunk.new_start, hunk.new_lines) == (1, 2, 1, 3)
    assert (hunk.section, hunk.added, hunk.deleted) == ("class Loupe:", 2, 1)
    assert list(hunk.lines()) == [
        DiffLine("context", 1, 1, b"one"),
        DiffLine("deleted", 2, None, b"two"),
        DiffLine("added", None, 2, b"2"),
        DiffLine("added", None, 3, b"3"),
    ]


def test_counts_may_be_left_out_and_a_heading_loses_at_most_the_space_before_it() -> None:
    for written, shown in ((b"heading", "heading"), (b"  x", " x"), (b"", ""), (b" ", "")):
        # A mark before the diff does not hide its first file.
        (hunk,) = _one(b"\xef\xbb\xbf" + _GIT + b"@@ -7 +9 @@%b\n-old\n+new\n" % written).hunks
        assert (hunk.old_start, hunk.old_lines, hunk.new_start, hunk.new_lines) == (7, 1, 9, 1)
        assert hunk.section == shown


def test_a_removed_line_that_looks_like_a_header_stays_a_line() -> None:
    nasty = b"@@ -1,3 +1,2 @@\n one\n--- a/y.py\n-++ b/y.py\n+++ b/y.py\n"
    first, second = parse_diff(_NAMES + nasty + b"--- a/z.py\n+++ b/z.py\n@@ -1 +1 @@\n-a\n+b\n")
    assert [line.text for line in first.hunks[0].lines()] == [b"one", b"-- a/y.py", b"++ b/y.py", b"++ b/y.py"]
    assert second.path == "z.py"


@each(
    "names",
    [
        b"--- a/x.py\n+++ b/x.py\n",
        b"--- x.py\n+++ x.py\n",
        b"--- ./x.py\n+++ ./x.py\n",
        b"--- old/x.py\n+++ new-tree/x.py\n",
        b"--- a/x.py\t2024-01-02 03:04:05.000000000 +0100\n+++ b/x.py\t2024-01-02 03:04:06.000000000 +0100\n",
        b"--- a/x.py 2024-01-02 03:04:05.000000000 +0100\n+++ b/x.py 2024-01-02 03:04:06.000000000 +0100\n",
        b"--- x.py\t(revision 4)\n+++ x.py\t(working copy)\n",
        b'--- "a/\\170.py"\n+++ "b/x.py"\n',
    ],
)
def test_a_plain_diff_names_its_file_in_many_ways(names: bytes) -> None:
    file = _one(names + _HUNK)
    assert (file.old_path, file.new_path, file.status) == ("x.py", "x.py", FileStatus.MODIFIED)


def test_plain_diffs_in_a_row_end_where_their_counts_say() -> None:
    section = b"diff -ru old/%b new/%b\n--- old/%b\n+++ new/%b\n"
    data = b"".join(section % ((name,) * 4) + _HUNK + b"@@ -9 +10 @@\n-x\n+y\n" for name in (b"one", b"two", b"three"))
    assert [(file.path, len(file.hunks)) for file in parse_diff(data)] == [("one", 2), ("two", 2), ("three", 2)]


_DAY = b"\t2024-01-02 03:04:06.000000000 +0100"
_CAME, _WENT = b"@@ -0,0 +1 @@\n+one\n", b"@@ -1 +0,0 @@\n-one\n"


@each(
    ("old", "new", "hunk", "paths"),
    [
        (b"/dev/null", b"b/x.py" + _DAY, _CAME, (None, "x.py")),
        (b"a/x.py\t1970-01-01 01:00:00.000000000 +0100", b"b/x.py" + _DAY, _CAME, (None, "x.py")),
        (b"x.py\t(nonexistent)", b"x.py\t(working copy)", _CAME, (None, "x.py")),
        (b"a/x.py" + _DAY, b"/dev/null", _WENT, ("x.py", None)),
        (b"a/x.py" + _DAY, b"b/x.py\t1969-12-31 19:00:00.000000000 -0500", _WENT, ("x.py", None)),
        (b"x.py\t(revision 3)", b"x.py\t(nonexistent)", _WENT, ("x.py", None)),
        (b"a/x.py" + _DAY, b"b/x.py" + _DAY, _CAME, ("x.py", "x.py")),
        (b"a/x.py\t1970-01-01 05:00:00 +0000", b"b/x.py" + _DAY, _CAME, ("x.py", "x.py")),
        (b"a/x.py\t1970-99-01 00:00:00 +0000", b"b/x.py" + _DAY, _CAME, ("x.py", "x.py")),
        (b"x.py.orig", b"x.py", _HUNK, ("x.py.orig", "x.py")),
    ],
)
def test_a_plain_diff_tells_what_became_of_a_file(
    old: bytes, new: bytes, hunk: bytes, paths: tuple[str | None, str | None]
) -> None:
    file = _one(b"--- " + old + b"\n+++ " + new + b"\n" + hunk)
    assert (file.old_path, file.new_path) == paths
    same = FileStatus.MODIFIED if paths[0] == paths[1] else FileStatus.RENAMED
    assert file.status is (FileStatus.ADDED if not paths[0] else FileStatus.DELETED if not paths[1] else same)


def test_a_recursive_diff_names_binary_files() -> None:
    data = b"Binary files old/salt and pepper and new/salt and pepper differ\nBinary files /dev/null and b/y differ\n"
    first, second = parse_diff(data + _NAMES + _HUNK)[:2]
    assert (first.path, first.status, first.binary) == ("salt and pepper", FileStatus.MODIFIED, True)
    assert (second.path, second.status, second.binary) == ("y", FileStatus.ADDED, True)


_SUBVERSION = b"Index: %b\n" + b"=" * 67 + b"\n"


@each(
    "note",
    [
        b"diff -r 0123456789ab two words.bin\nBinary file two words.bin has changed\n",
        b"diff --git a/two words.bin b/two words.bin\nBinary file two words.bin has changed\n",
        _SUBVERSION % b"two words.bin" + b"Cannot display: file marked as a binary type.\nsvn:mime-type = a/b\n",
        (
            b"=== modified file 'two words.bin'\nBinary files two words.bin\t2009-01-01 00:00:00 +0000 and "
            b"two words.bin\t2009-01-02 00:00:00 +0000 differ\n"
        ),
    ],
)
def test_a_binary_file_is_named_in_the_words_of_other_programs(note: bytes) -> None:
    for data in (note, _NAMES + _HUNK + note, note + (_GIT if b"--git" in note else _NAMES) + _HUNK):
        (binary,) = [file for file in parse_diff(data) if file.binary]
        assert (binary.path, binary.status) == ("two words.bin", FileStatus.MODIFIED)
        assert len(parse_diff(data)) == (1 if data == note else 2)


@each(
    ("names", "path"),
    [
        (b"i/x.py w/x.py", "x.py"),
        (b"x.py x.py", "x.py"),
        (b"a/x b/x b/x b/x", "x b/x"),
        (b'"a/t\\tab" "b/t\\tab"', "t\tab"),
        (b'"a/\\377\\303\\244" "b/\\377\\303\\244"', "\udcff\u00e4"),
    ],
)
def test_a_git_section_without_name_lines_is_named_by_its_first_line(names: bytes, path: str) -> None:
    file = _one(b"diff --git " + names + b"\nold mode 100644\nnew mode 100755\n")
    assert (file.path, file.status, file.old_mode, file.new_mode) == (path, FileStatus.MODIFIED, "100644", "100755")


def test_prefixes_of_two_lengths_are_told_apart_by_the_name_lines() -> None:
    first = b"diff --git before/x.py after/x.py\n"
    added = b"new file mode 100644\n--- /dev/null\n+++ after/x.py\n@@ -0,0 +1 @@\n+1\n"
    deleted = b"deleted file mode 100644\n--- before/x.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n"
    modified = b"--- before/x.py\n+++ after/x.py\n" + _HUNK
    assert [_one(first + rest).path for rest in (added, deleted, modified)] == ["x.py"] * 3


@pytest.mark.parametrize("names", [("old one.py", "new.py"), ("t\tab.py", "new.py"), ("left/x.py", "right/x.py")])
def test_two_files_compared_outside_of_a_repository_are_a_rename(
    repository: GitRepository, names: tuple[str, str]
) -> None:
    old, new = names
    repository.write(old, _OLD)
    repository.write(new, _NEW)
    file = _one(repository.git("diff", "--no-index", old, new, may_fail=True))
    assert (file.old_path, file.new_path, file.status) == (old, new, FileStatus.RENAMED)
    check_file(file, _OLD, _NEW)


def test_real_binary_patches_of_git_are_read_over(repository: GitRepository) -> None:
    repository.write("a.bin", bytes(range(256)) * 50)
    repository.write("b.txt", "one\n")
    base = repository.commit()
    repository.write("a.bin", bytes(range(255, -1, -1)) * 50 + b"end")
    repository.write("b.txt", "two\n")
    repository.write("c.bin", b"\0\1\2")
    commits = base, repository.commit()
    for style in (Style(patch=("--no-text", "--binary")), Style(patch=("--no-text",))):
        files = parse_diff(patch_of(repository, commits, style))
        assert [(file.path, file.binary, file.added) for file in files] == [
            ("a.bin", True, 0),
            ("b.txt", False, 1),
            ("c.bin", True, 0),
        ]


def test_a_log_with_patches_is_read_commit_by_commit(repository: GitRepository) -> None:
    _two_commits(repository)
    for form in ("medium", "oneline", "fuller", "email"):
        files = parse_diff(repository.git("log", "-p", "--stat", f"--format={form}"))
        assert [(file.path, file.status.value) for file in files] == [
            ("x.py", "modified"),
            ("z.py", "added"),
            ("x.py", "added"),
        ]
        check_file(files[0], _OLD, _NEW)
        check_file(files[2], b"", _OLD)


def test_mails_with_patches_are_read_also_as_parts_of_their_own(repository: GitRepository) -> None:
    commits = _two_commits(repository)
    for way, sign in (((), b"\n-- \n"), (("--attach",), b"boundary="), (("--inline",), b"boundary=")):
        mails = repository.git("format-patch", "--stdout", "--root", *way, "HEAD")
        assert sign in mails
        added, modified, other = parse_diff(mails)
        check_file(added, b"", _OLD)
        check_file(modified, _OLD, _NEW)
        check_file(other, b"", b"z\n")
    patch = patch_of(repository, commits)
    assert parse_diff(patch.replace(b"\n", b"\r\n")) == parse_diff(patch)


def test_a_deletion_and_an_addition_in_two_commits_are_no_type_change(repository: GitRepository) -> None:
    (repository.path / "x").symlink_to("target")
    repository.commit("link")
    repository.remove("x")
    repository.commit("gone")
    statuses = [file.status for file in parse_diff(repository.git("log", "-p", "--format=oneline"))]
    assert statuses == [FileStatus.DELETED, FileStatus.ADDED]
    repository.write("x", "file\n")
    repository.commit("file")
    (change,) = parse_diff(repository.git("diff", "HEAD~2", "HEAD"))
    assert (change.status, change.old_mode, change.new_mode) == (FileStatus.TYPE_CHANGED, "120000", "100644")
    assert [(hunk.deleted, hunk.added) for hunk in change.hunks] == [(1, 0), (0, 1)]


def test_empty_context_lines_may_have_lost_their_space(repository: GitRepository) -> None:
    old, new = b"a\n\n\nb\n\n\nc\n", b"a\n\n\nB\n\n\nc\n\n"
    repository.write("x", old)
    base = repository.commit()
    repository.write("x", new)
    repository.commit()
    patch = repository.git("-c", "diff.suppressBlankEmpty=true", "diff", base, "HEAD")
    assert b"\n\n" in patch
    check_file(_one(patch), old, new)


def test_submodules_in_the_short_words_of_the_log_format_are_listed(repository: GitRepository) -> None:
    for name in ("1" * 40, "2" * 40):
        repository.git("update-index", "--add", "--cacheinfo", f"160000,{name},a module")
        repository.commit_staged()
    moved = _one(repository.git("diff", "--submodule=log", "HEAD~1", "HEAD"))
    assert (moved.path, moved.status, moved.is_submodule) == ("a module", FileStatus.MODIFIED, True)
    repository.git("rm", "--quiet", "--cached", "a module")
    repository.commit_staged()
    assert _one(repository.git("diff", "--submodule=log", "HEAD~1", "HEAD")).status is FileStatus.DELETED
    assert _one(repository.git("diff", "--submodule=log", "HEAD", "HEAD~1")).status is FileStatus.ADDED


def test_markers_for_a_missing_newline_belong_to_the_line_before_them() -> None:
    (hunk,) = _one(_GIT + b"@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\\ Kein Zeilenumbruch\n").hunks
    assert [(line.text, line.ends_with_newline) for line in hunk.lines()] == [(b"a", False), (b"b", False)]


# To count the lines would take several times as long.
_uncounted = pytest.mark.no_cover
_GREAT = 400_000
_HEADER = b"diff --git a/x b/x\nindex 1234567..89abcde 100644\n--- a/x\n+++ b/x\n"
_MODE = b"old mode 100644\nnew mode 100755\n"


def _repeated(piece: bytes) -> bytes:
    return piece * (_GREAT // len(piece))


_REFUSED: dict[str, Callable[[], bytes]] = {
    "hunk headers alone": lambda: _HEADER + _repeated(b"@@ -1 +1 @@\n"),
    "first lines of sections alone": lambda: _repeated(b"diff --git a/x b/x\n"),
    "a hunk that claims to be endless": lambda: _HEADER + b"@@ -1,9999999999 +1,9999999999 @@\n" + _repeated(b" x\n"),
    "a hunk of empty lines that claims to be endless": lambda: (
        _HEADER + b"@@ -1,999999999 +1,999999999 @@\n" + _repeated(b"\n")
    ),
    "numbers with millions of digits": lambda: _HEADER + b"@@ -" + _repeated(b"1") + b" +1 @@\n",
    "markers alone": lambda: _HEADER + b"@@ -1 +1 @@\n-a\n+b\n" + _repeated(b"\\ No newline at end of file\n"),
    "pairs of name lines": lambda: _repeated(b"--- a/x\n+++ b/x\n"),
    "old name lines": lambda: _repeated(b"--- a/x\n"),
    "one line of dashes": lambda: _repeated(b"-") + b"\n",
    "binary notes that end nowhere": lambda: b"Binary files " + _repeated(b"a and ") + b"\n",
    "a note on files that ends nowhere": lambda: b"File " + _repeated(b"x is a y while file") + b"\n",
    "a note on a submodule that ends nowhere": lambda: b"Submodule " + _repeated(b"abcd..abcd (") + b"\n",
    "binary patches without an end": lambda: _repeated(b"diff --git a/x b/x\nindex 1234..5678\nGIT binary patch\n"),
    "an open quote": lambda: b'diff --git "a/' + _repeated(b"\\\\") + b"\n" + _MODE,
    "a name that only walks in place": lambda: (
        b"diff --git " + _repeated(b"./") + b" " + _repeated(b"./") + b"\n" + _MODE
    ),
    "empty lines before a hunk": lambda: _HEADER + b"@@ -1 +1 @@\n-a\n+b\n" + _repeated(b"\n") + b"+c\n",
    "noise": lambda: bytes(range(256)) * 2000,
}


@_uncounted
@each("name", _REFUSED)
def test_a_hostile_text_is_refused_in_a_moment(name: str) -> None:
    with pytest.raises(DiffSyntaxError):
        parse_diff(_REFUSED[name]())


@_uncounted
def test_very_much_of_anything_is_read_in_a_moment() -> None:
    hunk = b"@@ -1 +1 @@\n-a\n+b\n"
    assert len(parse_diff(_repeated(_HEADER + hunk))) > 4_000
    assert len(parse_diff(_repeated(b"diff --git a/x b/x\n" + _MODE))) > 7_000
    assert len(parse_diff(_repeated(b"--- a/x\n+++ b/x\n" + hunk) + _HEADER + hunk)) > 10_000
    text = _repeated(b"--- not a name\nFile x\nSubmodule y\nBinary files\n\n")
    assert len(parse_diff(text + _HEADER + hunk)) == 1
    for form, step in ((b"@@ -%d +%d @@\n-a\n+b\n", 1), (b"@@ -%d,3 +%d,3 @@\n\n-a\n+b\n\n", 4)):
        hunks = b"".join(form % (number, number) for number in range(1, 10_000 * step, step))
        assert len(parse_diff(_HEADER + hunks)[0].hunks) >= 9_999
    quoted = b"\\303\\244" * (_GREAT // 8)
    (file,) = parse_diff(b'diff --git "a/' + quoted + b'" "b/' + quoted + b'"\n' + _MODE)
    assert file.path == "\u00e4" * (_GREAT // 8)
