"""The parser against git itself: the forms a diff comes in, git's own lists, and what is refused."""

import os
import re
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from codeloupe.errors import DiffSyntaxError, RepositoryBusy
from codeloupe.git.changes import parse_list, reconcile
from codeloupe.git.diff import parse_diff
from codeloupe.git.repository import object_name
from codeloupe.model.change import DiffLine, FileChange, FileStatus
from tests.diff_checks import (
    PATCH_OPTIONS,
    Style,
    check_change,
    check_file,
    lists_of,
    many_lists_of,
    patch_of,
    patches_of,
)
from tests.git_edge_cases import EDGE_CASES, TYPE_CHANGE_WITH_SHARED_LINES, EdgeCase, commit_cases
from tests.repository import GitRepository
from tests.rows import each

_OLD = b"".join(b"line %d\n" % number for number in range(1, 21))
_NEW = _OLD.replace(b"line 4\n", b"line four\n").replace(b"line 15\n", b"")
_HUNK = b"@@ -1,2 +1,3 @@ class Loupe:\n one\n-two\n+2\n+3\n"
_NAMES = b"--- a/x.py\n+++ b/x.py\n"
_FIRST = b"diff --git a/x.py b/x.py\n"
_INDEX = b"index 1234567..89abcde 100644\n"
_MODE = b"old mode 100644\nnew mode 100755\n"
_GIT = _FIRST + _INDEX + _NAMES
_NO_NEWLINE = b"\\ No newline at end of file\n"
_STYLES = (
    Style(),
    Style(context=0, patch=("--no-prefix",)),
    Style(context=1, patch=("--src-prefix=old/", "--dst-prefix=new/"), shared=("--no-renames",)),
    Style(patch=("--src-prefix=i/", "--dst-prefix=w/", "--function-context"), shared=("--find-copies-harder",)),
    Style(context=1_000_000, patch=("--no-full-index", "--abbrev=7"), shared=("--diff-algorithm=patience",)),
)
_BLOBS = {
    object_name("blob", entry.content, "sha1"): entry.content
    for case in EDGE_CASES
    for tree in (case.base, case.head)
    for entry in tree.values()
}


def _one(data: bytes) -> FileChange:
    (file,) = parse_diff(data)
    return file


def _refusal(data: bytes) -> DiffSyntaxError:
    with pytest.raises(DiffSyntaxError) as caught:
        parse_diff(data)
    assert re.match(r"line \d+: ", caught.value.message)
    assert caught.value.hint
    assert caught.value.exit_code == 2
    return caught.value


def _two_commits(repository: GitRepository) -> tuple[str, str]:
    base = repository.commit_files({"x.py": _OLD}, "first\n\n--- a/no.py\n+ no diff")
    return base, repository.commit_files({"x.py": _NEW, "z.py": "z\n"}, "second\n\n- a point\n+ another\n    indented")


def _conflict(repository: GitRepository) -> None:
    """A merge of two branches that changed the same line, with the conflict in the tree."""
    repository.commit_files({"x": "one\n"})
    repository.commit_files({"x": "two\n"}, branch="side")
    repository.checkout("main")
    repository.commit_files({"x": "three\n"})
    repository.git("merge", "--no-commit", "side", may_fail=True)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[bytes, bytes]]]:
    """Patch and list that git writes of each case, by its name, in every style."""
    repository = GitRepository(tmp_path_factory.mktemp("edge-cases") / "repository")
    commits = commit_cases(repository, EDGE_CASES)
    styles = [
        zip(patches_of(repository, commits, style), many_lists_of(repository, commits, style), strict=True)
        for style in _STYLES
    ]
    return {case.name: list(of_case) for case, of_case in zip(EDGE_CASES, zip(*styles, strict=True), strict=True)}


@pytest.mark.program
@each("case", EDGE_CASES)
def test_every_line_of_every_edge_case_is_where_git_has_it(
    case: EdgeCase, written: dict[str, list[tuple[bytes, bytes]]]
) -> None:
    for patch, lists in written[case.name]:
        files = check_change(patch, lists, _BLOBS)
        if case is TYPE_CHANGE_WITH_SHARED_LINES:
            # numstat compares the two contents; the patch deletes the one and creates the other.
            assert [(file.added, file.deleted) for file in (*files, *parse_diff(patch))] == [(0, 1), (1, 2)]


class TestForms:
    def test_a_hunk_keeps_its_numbers_its_heading_and_its_lines(self) -> None:
        file = _one(_GIT + _HUNK)
        assert (file.old_blob, file.new_blob, file.old_mode, file.new_mode) == (
            *("1234567", "89abcde"),
            *("100644", "100644"),
        )
        (hunk,) = file.hunks
        assert (hunk.old_start, hunk.old_lines, hunk.new_start, hunk.new_lines) == (1, 2, 1, 3)
        assert (hunk.section, hunk.added, hunk.deleted) == ("class Loupe:", 2, 1)
        assert list(hunk.lines()) == [
            DiffLine("context", 1, 1, b"one"),
            DiffLine("deleted", 2, None, b"two"),
            DiffLine("added", None, 2, b"2"),
            DiffLine("added", None, 3, b"3"),
        ]
        for heading, shown in ((b"heading", "heading"), (b"  x", " x"), (b" ", "")):
            # A mark before the diff does not hide its first file.
            (hunk,) = _one(b"\xef\xbb\xbf" + _GIT + b"@@ -7 +9 @@%b\n-old\n+new\n" % heading).hunks
            assert (hunk.old_lines, hunk.new_lines, hunk.section) == (1, 1, shown)
        (hunk,) = _one(_GIT + b"@@ -1 +1 @@\n-a\n" + _NO_NEWLINE + b"+b\n\\ Kein Zeilenumbruch\n").hunks
        assert [(line.text, line.ends_with_newline) for line in hunk.lines()] == [(b"a", False), (b"b", False)]

    def test_a_removed_line_that_looks_like_a_header_stays_a_line(self) -> None:
        nasty = b"@@ -1,3 +1,2 @@\n one\n--- a/y.py\n-++ b/y.py\n+++ b/y.py\n"
        first, second = parse_diff(_NAMES + nasty + b"--- a/z.py\n+++ b/z.py\n@@ -1 +1 @@\n-a\n+b\n")
        assert [line.text for line in first.hunks[0].lines()] == [b"one", b"-- a/y.py", b"++ b/y.py", b"++ b/y.py"]
        assert second.path == "z.py"

    @each(
        "names",
        [
            _NAMES,
            b"--- x.py\n+++ x.py\n",
            b"--- ./x.py\n+++ ./x.py\n",
            b"diff -ru old/x.py new-tree/x.py\n--- old/x.py\n+++ new-tree/x.py\n",
            b"--- a/x.py\t2024-01-02 03:04:05.000000000 +0100\n+++ b/x.py\t2024-01-02 03:04:06.000000000 +0100\n",
            b"--- a/x.py 2024-01-02 03:04:05.000000000 +0100\n+++ b/x.py 2024-01-02 03:04:06.000000000 +0100\n",
            b'--- "a/\\170.py"\n+++ "b/x.py"\n',
        ],
    )
    def test_a_plain_diff_names_its_file_in_many_ways_and_ends_where_its_counts_say(self, names: bytes) -> None:
        files = parse_diff((names + _HUNK + b"@@ -9 +10 @@\n-x\n+y\n") * 3)
        assert [(file.old_path, file.new_path, file.status.value, len(file.hunks)) for file in files] == [
            ("x.py", "x.py", "modified", 2)
        ] * 3

    @each(
        ("old", "new", "hunk", "paths"),
        [
            (b"/dev/null", b"b/x.py\t2024-01-02 03:04:06", b"@@ -0,0 +1 @@\n+one\n", (None, "x.py")),
            (b"a/x.py\t1970-01-01 01:00:00.000000000 +0100", b"b/x.py", b"@@ -0,0 +1 @@\n+one\n", (None, "x.py")),
            (b"a/x.py", b"/dev/null", b"@@ -1 +0,0 @@\n-one\n", ("x.py", None)),
            (b"a/x.py", b"b/x.py\t1969-12-31 19:00:00.000000000 -0500", b"@@ -1 +0,0 @@\n-one\n", ("x.py", None)),
            (b"a/x.py\t1970-99-01 00:00:00 +0000", b"b/x.py", b"@@ -0,0 +1 @@\n+one\n", ("x.py", "x.py")),
            (b"x.py.orig", b"x.py", _HUNK, ("x.py.orig", "x.py")),
        ],
    )
    def test_a_plain_diff_tells_what_became_of_a_file(
        self, old: bytes, new: bytes, hunk: bytes, paths: tuple[str | None, str | None]
    ) -> None:
        file = _one(b"--- " + old + b"\n+++ " + new + b"\n" + hunk)
        assert (file.old_path, file.new_path) == paths
        same = FileStatus.MODIFIED if paths[0] == paths[1] else FileStatus.RENAMED
        assert file.status is (FileStatus.ADDED if not paths[0] else FileStatus.DELETED if not paths[1] else same)

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
    def test_a_git_section_without_name_lines_is_named_by_its_first_line(self, names: bytes, path: str) -> None:
        file = _one(b"diff --git " + names + b"\n" + _MODE)
        assert (file.path, file.status, file.old_mode, file.new_mode) == (path, FileStatus.MODIFIED, "100644", "100755")

    def test_prefixes_of_two_lengths_are_told_apart_by_the_name_lines(self) -> None:
        first = b"diff --git before/x.py after/x.py\n"
        added = b"new file mode 100644\n--- /dev/null\n+++ after/x.py\n@@ -0,0 +1 @@\n+1\n"
        deleted = b"deleted file mode 100644\n--- before/x.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n"
        modified = b"--- before/x.py\n+++ after/x.py\n" + _HUNK
        assert [_one(first + rest).path for rest in (added, deleted, modified)] == ["x.py"] * 3

    def test_two_files_compared_outside_of_a_repository_are_a_rename(self, repository: GitRepository) -> None:
        for old, new in (("old one.py", "new.py"), ("t\tab.py", "new.py"), ("left/x.py", "right/x.py")):
            repository.write(old, _OLD)
            repository.write(new, _NEW)
            file = _one(repository.git("diff", "--no-index", old, new, may_fail=True))
            assert (file.old_path, file.new_path, file.status) == (old, new, FileStatus.RENAMED)
            check_file(file, _OLD, _NEW)

    def test_real_binary_patches_of_git_are_read_over(self, repository: GitRepository) -> None:
        base = repository.commit_files({"a.bin": bytes(range(256)) * 50, "b.txt": "one\n"})
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

    def test_logs_and_mails_with_patches_are_read_commit_by_commit(self, repository: GitRepository) -> None:
        commits = _two_commits(repository)
        logs = [repository.git("log", "-p", "--stat", f"--format={form}") for form in ("medium", "oneline", "email")]
        mails = repository.git("format-patch", "--stdout", "--root", "HEAD")
        assert b"\n-- \n" in mails
        for text, order in ((mails, (1, 2, 0)), *((log, (0, 1, 2)) for log in logs)):
            read = parse_diff(text)
            modified, other, added = (read[place] for place in order)
            check_file(modified, _OLD, _NEW)
            check_file(other, b"", b"z\n")
            check_file(added, b"", _OLD)
        patch = patch_of(repository, commits)
        assert parse_diff(patch.replace(b"\n", b"\r\n")) == parse_diff(patch)

    def test_empty_context_lines_may_have_lost_their_space(self, repository: GitRepository) -> None:
        old, new = b"a\n\n\nb\n\n\nc\n", b"a\n\n\nB\n\n\nc\n\n"
        base = repository.commit_files({"x": old})
        repository.write("x", new)
        patch = repository.git("-c", "diff.suppressBlankEmpty=true", "diff", base)
        assert b"\n\n" in patch
        check_file(_one(patch), old, new)


_MAIL = b"From: a\nContent-Transfer-Encoding: "
_BINARY = _FIRST + _INDEX + b"GIT binary patch\n"


class TestRefusals:
    @each(
        ("data", "words"),
        [
            (b"hello\n", "not a diff"),
            (b"*** a/x.py\n--- b/x.py\n***************\n*** 1 ****\n! one\n--- 1 ----\n! two\n", "not a diff"),
            (b"1c1\n< one\n---\n> two\n", "not a diff"),
            (b"\0\1\2", "not a diff"),
            (b"--- a/x.py\nno second name\n", "not a diff"),
            (b"\x1b[1mdiff --git a/x b/x\x1b[m\n\x1b[1m--- a/x\x1b[m\n\x1b[1m+++ b/x\x1b[m\n", "colour"),
            (_MAIL + b"quoted-printable\n\n" + _GIT + _HUNK, "coded"),
            (_MAIL + b"Base64\n\n" + _GIT + _HUNK, "coded"),
            ((_GIT + _HUNK).decode().encode("utf-16"), "UTF-16"),
            (b"@@@ -1,1 -1,1 +1,2 @@@\n", "combined"),
            (b"Submodule lib 1111111..2222222:\n  > words\n", "submodule"),
            (_NAMES, "expected a hunk header"),
            (b"--- a/x\ty\tz\n+++ b/x\n" + _HUNK, "more than one tab"),
            (b'--- "a/x\\9"\n+++ b/x\n' + _HUNK, "malformed"),
            (b"--- /dev/null\n+++ /dev/null\n" + _HUNK, "no file"),
            (b"--- /dev/null\n+++ b/x\n" + _HUNK, "contradict"),
            (b"--- \n+++ \n" + _HUNK, "name of a file"),
            (b"--- ../x\n+++ ../x\n" + _HUNK, "points outside the repository"),
            (b"--- a/../../x\n+++ b/../../x\n" + _HUNK, "points outside the repository"),
            (b"--- /dev/null\n+++ b//etc/x\n@@ -0,0 +1 @@\n+1\n", "points outside the repository"),
            (b"Only in new: x.py\n" + _NAMES + _HUNK, "does not show"),
            (b"Files old/y and new/y differ\n" + _NAMES + _HUNK, "does not show"),
            (b"File a/y is a directory while file b/y is a regular file\n" + _NAMES + _HUNK, "does not show"),
            (b"Binary file two words.bin has changed\n" + _NAMES + _HUNK, "does not show"),
            (b"Cannot display: file marked as a binary type.\n" + _NAMES + _HUNK, "does not show"),
            (b"Binary files old/y and new/y differ\n" + _NAMES + _HUNK, "does not show"),
        ],
    )
    def test_a_text_or_a_plain_diff_that_is_not_certain_is_refused(self, data: bytes, words: str) -> None:
        error = _refusal(data)
        assert words in error.message or words in error.hint

    def test_a_real_combined_coloured_or_unmerged_diff_is_refused_with_what_helps(
        self, repository: GitRepository
    ) -> None:
        _conflict(repository)
        assert "conflicts" in _refusal(repository.git("diff", "--cached")).message
        repository.commit_files({"x": "four\n", "a.bin": b"\0"}, "merge")
        for form in ("--cc", "-c"):
            error = _refusal(repository.git("show", form, "HEAD"))
            assert "combined diff of a merge" in error.message
            assert "first parent" in error.hint
        repository.write("a.bin", b"\0\0")
        repository.write("x", "five\n")
        coloured = repository.git("diff", "--color=always")
        assert b"\nBinary files a/a.bin and b/a.bin differ\n" in coloured
        assert "--no-color" in _refusal(coloured).hint

    @each(
        ("line", "data", "words"),
        [
            (5, _GIT, "expected a hunk header"),
            (5, _GIT + b"@@ -1,2 @@\n", "expected a hunk header"),
            (5, _GIT + b"@@ -1,99999999999 +1 @@\n", "expected a hunk header"),
            (5, _GIT + b"@@ -0,2 +0,3 @@\n one\n-two\n+2\n+3\n", "cannot exist"),
            (5, _GIT + b"@@ -1,0 +1,0 @@\n", "cannot exist"),
            (7, _GIT + b"@@ -1,2 +1,3 @@\n one\n", "truncated"),
            (9, _GIT + _HUNK[:-1], "middle of a line"),
            (9, _GIT + b"@@ -1,2 +1,4 @@\n one\n-two\n+2\n+3\n"[:-3], "truncated"),
            (7, _GIT + b"@@ -1,2 +1,3 @@\n one\nno prefix\n+2\n", "unexpected line"),
            (8, _GIT + b"@@ -1,2 +1,1 @@\n one\n-two\n+2\n+3\n", "exceeds the line counts"),
            (10, _GIT + b"@@ -1,2 +1,2 @@\n one\n-two\n+2\n\n+3\n", "exceeds the line counts"),
            (9, _GIT + b"@@ -1,2 +1,2 @@\n one\n-two\n+2\n four\n", "exceeds the line counts"),
            (10, _GIT + _HUNK + b"-- \n", "exceeds the line counts"),
            (10, _GIT + _HUNK + b"--\n" + _GIT + _HUNK, "exceeds the line counts"),
            (8, _GIT + b"@@ -1,3 +1 @@\n one\n-two\n+2\n+3\n", "unexpected line"),
            (10, _GIT + _HUNK + b"@@ -2,1 +4,1 @@\n-a\n+b\n", "out of order"),
            (10, _GIT + _HUNK + b"@@ -5,1 +2,1 @@\n-a\n+b\n", "out of order"),
            (11, _GIT + _HUNK + b"\n@@ -9 +10 @@\n-a\n+b\n", "does not follow"),
            (1, _HUNK, "does not follow"),
            (6, _GIT + b"@@ -1,2 +1,2 @@\n" + _NO_NEWLINE + b" one\n-two\n+2\n", "marker"),
            (8, _GIT + b"@@ -1,2 +1,2 @@\n one\n" + _NO_NEWLINE + b"-two\n+2\n", "marker"),
            (8, _GIT + b"@@ -1,2 +1,2 @@\n-one\n" + _NO_NEWLINE + b"-two\n+2\n+3\n", "marker"),
            (10, _GIT + b"@@ -1,2 +1,2 @@\n+one\n" + _NO_NEWLINE + b"-two\n-three\n+2\n", "marker"),
            (8, _GIT + b"@@ -1,2 +1,2 @@\n-one\n" + _NO_NEWLINE + b"\n+2\n", "marker"),
            (8, _GIT + b"@@ -1 +1 @@\n-one\n" + _NO_NEWLINE * 2 + b"+two\n", "marker"),
            (8, _GIT + b"@@ -1 +1 @@\n one\n" + _NO_NEWLINE * 2, "marker"),
        ],
    )
    def test_a_hunk_that_is_not_certain_is_refused(self, line: int, data: bytes, words: str) -> None:
        message = _refusal(data).message
        assert message.startswith(f"line {line}: ")
        assert words in message

    @each(
        ("data", "words"),
        [
            (_FIRST, "ends before"),
            (_FIRST + _INDEX, "ends before"),
            (_FIRST[:-3], "middle of a line"),
            (_FIRST + _INDEX[:-3], "middle of a line"),
            (_FIRST + b"new file mode 100644\nindex 0000000..89abcde\n", "ends before"),
            (_FIRST + b"similarity index 90%\nrename from x.py\nrename to y.py\n", "ends before"),
            (_FIRST + b"similarity index 100%\nrename from x.py\n", "incomplete"),
            (_FIRST + b"old mode 100644\n", "incomplete"),
            (_FIRST + b"new file mode 100644\ndeleted file mode 100644\n", "contradicts"),
            (_FIRST + b"old mode 100644\nold mode 100644\n", "duplicate header line"),
            (_FIRST + b"old mode banana\n", "ends before"),
            (_FIRST + b"index 1234567-89abcde\n" + _NAMES + _HUNK, "ends before"),
            (_FIRST + b"similarity index 99999999999999999999%\n", "ends before"),
            (_FIRST + b"new file mode 100644\n" + _NAMES + _HUNK, "contradicts"),
            (_FIRST + b"new file mode 100644\n--- /dev/null\n+++ b/x.py\n" + _HUNK, "contradicts"),
            (_FIRST + b"deleted file mode 100644\n--- a/x.py\n+++ /dev/null\n" + _HUNK, "contradicts"),
            (_FIRST + b"--- a/x.py\n", "`---` line and a `+++` line"),
            (_FIRST + _INDEX + b"a new kind of header\n" + _NAMES + _HUNK, "ends before"),
            (_FIRST + b"--- a/y.py\n+++ b/y.py\n" + _HUNK, "names"),
            (_FIRST + b"rename from x.py\nrename to y.py\n" + _NAMES + _HUNK, "names"),
            (b"diff --git before/x.py b/x.py\n" + _MODE, "names"),
            (b"diff --git \n" + _MODE, "names"),
            (b'diff --git "a/x\n' + _MODE, "names"),
            (b'diff --git a/x "b/x\\9"\n' + _MODE, "names"),
            (b'diff --git "a/x\\000" "b/x\\000"\n' + _MODE, "name of a file"),
            (_BINARY + b"literal 9\nabc\n", "truncated"),
            (_BINARY + b"literal 9\nabc\n" + _GIT + _HUNK + b"\n\n", "truncated"),
            (_BINARY + b"rubbish\n", "`literal` or `delta`"),
            (_FIRST + _INDEX + b"Binary files a/x.py and b/x.py dif\n", "ends before"),
            (_FIRST[:-1] + b"\r\n" + _INDEX + _NAMES + _HUNK, "names"),
        ],
    )
    def test_a_git_section_that_is_cut_off_or_contradicts_itself_is_refused(self, data: bytes, words: str) -> None:
        assert words in _refusal(data).message

    def test_a_refusal_shows_the_line_escaped_and_shortened(self) -> None:
        message = _refusal(_GIT + b"@@ -1,2 +1,3 @@\n one\n\x1b]0;title\x07" + b"z" * 1000 + b"\n").message
        assert "\x1b" not in message
        assert len(message) < 250

    def test_a_real_diff_cut_anywhere_inside_of_a_hunk_is_refused(self, repository: GitRepository) -> None:
        base = repository.commit_files({"x": "".join(f"line {number}\n" for number in range(30))})
        repository.write("x", "".join(f"line {number * (number % 9 != 4)}\n" for number in range(30)) + "end")
        patch = patch_of(repository, (base, repository.commit()))
        ends = {match.start() for match in re.finditer(rb"\n@@ |\n\\|\Z", patch)}
        complete = {end + 1 if end < len(patch) else end for end in ends}
        for cut in range(1, len(patch)):
            if cut not in complete:
                _refusal(patch[:cut])


_RAW = b":100644 100644 " + b"1" * 40 + b" " + b"2" * 40 + b" M\0"


class TestLists:
    @pytest.fixture
    def changed(self, repository: GitRepository) -> tuple[tuple[FileChange, ...], tuple[FileChange, ...]]:
        """The patch and the list of a change, as they are read."""
        repository.write("edited.py", _OLD)
        repository.write("old name.py", _OLD.upper())
        repository.write("data.bin", b"\0one\n")
        repository.write("gone", "gone\n")
        base = repository.commit()
        repository.write("edited.py", _NEW)
        repository.git("mv", "old name.py", "new name.py")
        repository.write("data.bin", b"\0two\n")
        repository.remove("gone")
        repository.write("tab\tname\udcff", "new\n", executable=True)
        commits = base, repository.commit()
        return parse_diff(patch_of(repository, commits)), parse_list(lists_of(repository, commits))[0]

    def test_the_lists_of_a_real_change_are_read(
        self, changed: tuple[tuple[FileChange, ...], tuple[FileChange, ...]]
    ) -> None:
        entries = changed[1]
        assert [(entry.status.value, entry.old_path, entry.new_path, entry.counts) for entry in entries] == [
            ("modified", "data.bin", "data.bin", None),
            ("modified", "edited.py", "edited.py", (1, 2)),
            ("deleted", "gone", None, (0, 1)),
            ("renamed", "old name.py", "new name.py", (0, 0)),
            ("added", None, "tab\tname\udcff", (1, 0)),
        ]
        assert [entry.binary for entry in entries] == [True, False, False, False, False]
        assert [entry.similarity for entry in entries] == [None, None, None, 100, None]
        assert (entries[4].old_mode, entries[4].new_mode, entries[4].old_blob) == (None, "100755", None)

    def test_list_and_patch_have_to_agree_and_a_binary_file_keeps_its_hunks(
        self, changed: tuple[tuple[FileChange, ...], tuple[FileChange, ...]]
    ) -> None:
        files, entries = changed
        reconciled = reconcile(files, entries)
        assert (reconciled[0].path, reconciled[0].binary, len(reconciled[0].hunks)) == ("data.bin", True, 1)

        def refused(name: str, files: tuple[FileChange, ...], entries: tuple[FileChange, ...]) -> None:
            with pytest.raises(DiffSyntaxError, match=re.escape(f"disagree on {name!r}")) as caught:
                reconcile(files, entries)
            assert "retry" in caught.value.hint

        def second(of: tuple[FileChange, ...], **changes: object) -> tuple[FileChange, ...]:
            return (of[0], replace(of[1], **changes), *of[2:])

        refused("edited.py", files, entries[:1])
        for missing in range(5):
            refused(entries[missing].path, files[:missing] + files[missing + 1 :], entries)
        for counts in ((2, 2), (1, 3), (0, 0)):
            refused("edited.py", files, second(entries, counts=counts))
        refused("edited.py", files, second(entries, new_blob="f" * 40))
        refused("edited.py", second(files, binary=True), entries)

    def test_a_file_that_was_only_touched_is_listed_without_hunks_and_an_unmerged_one_refused(
        self, repository: GitRepository
    ) -> None:
        _conflict(repository)
        words = ("-c", "diff.autoRefreshIndex=false", "diff")
        with pytest.raises(RepositoryBusy, match="'x' has unresolved conflicts"):
            parse_list(repository.git(*words, "--raw", "--numstat", "-z", "--no-abbrev"))
        touched = repository.write("x", "one\n")
        repository.commit_files({"y": "one\n"})
        os.utime(touched, (1, 1))
        repository.write("y", "two\n")
        entries = parse_list(repository.git(*words, "--raw", "--numstat", "-z", "--no-abbrev"))[0]
        files = reconcile(parse_diff(repository.git(*words, *PATCH_OPTIONS)), entries)
        assert [(file.path, file.status.value, len(file.hunks)) for file in files] == [
            ("x", "modified", 0),
            ("y", "modified", 1),
        ]

    @each(
        ("data", "words"),
        [
            (b"x", "truncated"),
            (_RAW, "truncated|no path"),
            (_RAW + b"x", "truncated"),
            (_RAW + b"x\0:1 2\0", "a record is malformed"),
            (_RAW + b"x\0" + b"1\t1\ty\0", "is missing at this position"),
            (_RAW + b"x\0" + b"1\t1\tx\0" + _RAW + b"y\0", "a record is malformed"),
            (_RAW + b"x\0" + b"%b\t1\tx\0" % (b"9" * 5000), "a record is malformed"),
            (_RAW + b"x\0" + b"1\t1\t\0x\0", "truncated|no path"),
            (_RAW.replace(b" M", b" R100") + b"x\0", "truncated|no path"),
            (_RAW.replace(b" M", b" X") + b"x\0", "status 'X'"),
        ],
    )
    def test_a_list_that_git_would_not_print_is_refused(self, data: bytes, words: str) -> None:
        with pytest.raises(DiffSyntaxError, match=words):
            parse_list(data)


_GREAT = 400_000


def _repeated(piece: bytes) -> bytes:
    return piece * (_GREAT // len(piece))


_HOSTILE: dict[str, Callable[[], bytes]] = {
    "hunk headers alone": lambda: _GIT + _repeated(b"@@ -1 +1 @@\n"),
    "first lines of sections alone": lambda: _repeated(_FIRST),
    "a hunk that claims to be endless": lambda: _GIT + b"@@ -1,9999999999 +1,9999999999 @@\n" + _repeated(b" x\n"),
    "endless empty lines": lambda: _GIT + b"@@ -1,999999999 +1,999999999 @@\n" + _repeated(b"\n"),
    "numbers with millions of digits": lambda: _GIT + b"@@ -" + _repeated(b"1") + b" +1 @@\n",
    "markers alone": lambda: _GIT + b"@@ -1 +1 @@\n-a\n+b\n" + _repeated(_NO_NEWLINE),
    "pairs of name lines": lambda: _repeated(_NAMES),
    "one line of dashes": lambda: _repeated(b"-") + b"\n",
    "binary notes that end nowhere": lambda: b"Binary files " + _repeated(b"a and ") + b"\n",
    "a note on files that ends nowhere": lambda: b"File " + _repeated(b"x is a y while file") + b"\n",
    "a note on a submodule that ends nowhere": lambda: b"Submodule " + _repeated(b"abcd..abcd (") + b"\n",
    "binary patches without an end": lambda: _repeated(_FIRST + b"index 1234..5678\nGIT binary patch\n"),
    "an open quote": lambda: b'diff --git "a/' + _repeated(b"\\\\") + b"\n" + _MODE,
    "a name that walks in place": lambda: b"diff --git " + _repeated(b"./") + b" " + _repeated(b"./") + b"\n" + _MODE,
    "names with many spaces": lambda: b"--- " + _repeated(b" ") + b"\n+++ " + _repeated(b" ") + b"\n" + _HUNK,
    "empty lines before a hunk": lambda: _GIT + b"@@ -1 +1 @@\n-a\n+b\n" + _repeated(b"\n") + b"+c\n",
    "noise": lambda: bytes(range(256)) * 2000,
}


@pytest.mark.no_cover  # to count the lines would take several times as long
@each("name", _HOSTILE)
def test_a_hostile_text_is_read_or_refused_in_a_moment(name: str) -> None:
    try:
        parse_diff(_HOSTILE[name]())
    except DiffSyntaxError:
        return
    assert name == "names with many spaces"


@pytest.mark.no_cover
def test_very_much_of_anything_is_read_in_a_moment() -> None:
    hunk = b"@@ -1 +1 @@\n-a\n+b\n"
    assert len(parse_diff(_repeated(_GIT + hunk))) > 4_000
    assert len(parse_diff(_repeated(_NAMES + hunk) + _GIT + hunk)) > 9_000
    text = _repeated(b"--- not a name\nFile x\nSubmodule y\nBinary files\n\n")
    assert len(parse_diff(text + _GIT + hunk)) == 1
    for form, step in ((b"@@ -%d +%d @@\n-a\n+b\n", 1), (b"@@ -%d,3 +%d,3 @@\n\n-a\n+b\n\n", 4)):
        hunks = b"".join(form % (number, number) for number in range(1, 10_000 * step, step))
        assert len(parse_diff(_GIT + hunks)[0].hunks) >= 9_999
    quoted = b"\\303\\244" * (_GREAT // 8)
    (file,) = parse_diff(b'diff --git "a/' + quoted + b'" "b/' + quoted + b'"\n' + _MODE)
    assert file.path == "\u00e4" * (_GREAT // 8)
    names = [b"file%d" % number for number in range(20_000)]
    raw = b"".join(_RAW + name + b"\0" for name in names)
    entries = parse_list(raw + b"".join(b"1\t2\t" + name + b"\0" for name in names))[0]
    assert (len(entries), entries[-1].added, entries[-1].deleted) == (20_000, 1, 2)
