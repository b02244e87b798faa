"""What the parser refuses: every refusal names the line, says what is wrong and what to do."""

from __future__ import annotations

import re

import pytest

from codeloupe.errors import DiffSyntaxError
from codeloupe.git.diff import parse_diff
from tests.diff_checks import patch_of
from tests.repository import GitRepository
from tests.rows import each

_NAMES = b"--- a/x.py\n+++ b/x.py\n"
_FIRST = b"diff --git a/x.py b/x.py\n"
_INDEX = b"index 1234567..89abcde 100644\n"
_GIT = _FIRST + _INDEX + _NAMES
_HUNK = b"@@ -1,2 +1,3 @@\n one\n-two\n+2\n+3\n"
_NO_NEWLINE = b"\\ No newline at end of file\n"


def _refusal(data: bytes) -> DiffSyntaxError:
    with pytest.raises(DiffSyntaxError) as caught:
        parse_diff(data)
    assert re.match(r"line \d+: ", caught.value.message)
    assert caught.value.hint
    assert caught.value.exit_code == 2
    return caught.value


@each(
    "data",
    [
        b"hello\n",
        b"*** a/x.py\n--- b/x.py\n***************\n*** 1 ****\n! one\n--- 1 ----\n! two\n",
        b"1c1\n< one\n---\n> two\n",
        b"diff -q a b\n",
        b"\0\1\2",
        b"--- a/x.py\nno second name\n",
    ],
)
def test_a_text_that_is_no_diff_is_refused(data: bytes) -> None:
    assert "no diff" in _refusal(data).message


def test_a_coloured_diff_is_refused_with_the_option_that_helps() -> None:
    coloured = b"\x1b[1mdiff --git a/x b/x\x1b[m\n\x1b[1m--- a/x\x1b[m\n\x1b[1m+++ b/x\x1b[m\n"
    assert "--no-color" in _refusal(coloured).hint


def test_a_coloured_diff_is_refused_also_where_it_has_lines_without_colour(repository: GitRepository) -> None:
    repository.write("a.bin", b"\0")
    repository.write("x.py", "one\n")
    base = repository.commit()
    repository.write("a.bin", b"\0\0")
    repository.write("x.py", "two\n")
    coloured = repository.git("diff", "--color=always", base)
    assert b"\nBinary files a/a.bin and b/a.bin differ\n" in coloured
    assert "--no-color" in _refusal(coloured).hint


@each("coding", [b"quoted-printable", b"base64", b"Quoted-Printable"])
def test_a_mail_whose_lines_are_coded_is_refused(coding: bytes) -> None:
    mail = b"From: a\nContent-Transfer-Encoding: " + coding + b"\n\n" + _GIT + _HUNK
    assert "coded" in _refusal(mail).message
    assert len(parse_diff(mail.replace(coding, b"8bit"))) == 1


def test_a_note_that_does_not_say_which_file_is_binary_is_refused() -> None:
    note = b"Cannot display: file marked as a binary type.\n"
    for above in (b"", b"\n", b"Index: x\n", b"words\n======\n"):
        assert "which file" in _refusal(_NAMES + _HUNK + above + note).message


def test_a_line_that_only_looks_like_the_end_of_a_mail_is_refused() -> None:
    mail = b'Content-Type: multipart/mixed; boundary="----2.39"\n\n' + _GIT + _HUNK
    assert len(parse_diff(mail + b"\n------2.39--\n")) == 1
    assert "after the last one" in _refusal(mail + b"\n------2.40--\n").message
    assert "after the last one" in _refusal(_GIT + _HUNK + b"\n------2.39--\n").message


def test_a_diff_in_utf_16_is_refused_with_the_option_that_helps() -> None:
    error = _refusal((_GIT + _HUNK).decode().encode("utf-16"))
    assert "UTF-16" in error.message
    assert "--output" in error.hint


def test_a_combined_diff_of_a_real_merge_is_refused_in_clear_words(repository: GitRepository) -> None:
    repository.write("x", "one\n")
    repository.commit()
    repository.checkout("side", new=True)
    repository.write("x", "two\n")
    repository.commit()
    repository.checkout("main")
    repository.write("x", "three\n")
    repository.commit()
    repository.git("merge", "--no-commit", "side", may_fail=True)
    repository.write("x", "four\n")
    repository.commit("merge")
    for form in ("--cc", "-c"):
        error = _refusal(repository.git("show", form, "HEAD"))
        assert "combined diff of a merge" in error.message
        assert "first parent" in error.hint


def test_an_unmerged_path_is_refused(repository: GitRepository) -> None:
    repository.write("x", "one\n")
    repository.commit()
    repository.checkout("side", new=True)
    repository.write("x", "two\n")
    repository.commit()
    repository.checkout("main")
    repository.write("x", "three\n")
    repository.commit()
    repository.git("merge", "side", may_fail=True)
    assert "conflicts" in _refusal(repository.git("diff", "--cached")).message


@each(
    ("line", "data", "words"),
    [
        (5, _GIT, "expected a hunk header"),
        (5, _GIT + b"@@ -1,2 @@\n", "expected a hunk header"),
        (5, _GIT + b"@@ -1,99999999999 +1 @@\n", "expected a hunk header"),
        (5, _GIT + b"@@ -%b +1 @@\n" % (b"9" * 10_000), "expected a hunk header"),
        (5, _GIT + b"@@ -0,2 +0,3 @@\n one\n-two\n+2\n+3\n", "cannot exist"),
        (5, _GIT + b"@@ -1,0 +1,0 @@\n", "cannot exist"),
        (7, _GIT + b"@@ -1,2 +1,3 @@\n one\n", "cut off"),
        (9, _GIT + _HUNK[:-1], "middle of a line"),
        (9, _GIT + _HUNK[:-2], "middle of a line"),
        (9, _GIT + b"@@ -1,2 +1,4 @@\n one\n-two\n+2\n+3\n"[:-3], "cut off"),
        (7, _GIT + b"@@ -1,2 +1,3 @@\n one\nno prefix\n+2\n", "does not fit"),
        (8, _GIT + b"@@ -1,2 +1,1 @@\n one\n-two\n+2\n+3\n", "after the last one"),
        (9, _GIT + b"@@ -1,2 +1,2 @@\n one\n-two\n+2\n+3\n", "after the last one"),
        (10, _GIT + b"@@ -1,2 +1,2 @@\n one\n-two\n+2\n\n+3\n", "after the last one"),
        (9, _GIT + b"@@ -1,2 +1,2 @@\n one\n-two\n+2\n four\n", "after the last one"),
        (10, _GIT + _HUNK + b"-- \n", "after the last one"),
        (10, _GIT + _HUNK + b"--\n" + _GIT + _HUNK, "after the last one"),
        (8, _GIT + b"@@ -1,3 +1 @@\n one\n-two\n+2\n+3\n", "does not fit"),
        (10, _GIT + _HUNK + b"@@ -2,1 +4,1 @@\n-a\n+b\n", "overlaps"),
        (10, _GIT + _HUNK + b"@@ -5,1 +2,1 @@\n-a\n+b\n", "overlaps"),
        (11, _GIT + _HUNK + b"\n@@ -9 +10 @@\n-a\n+b\n", "does not follow"),
        (1, _HUNK, "does not follow"),
        (1, b"@@@ -1,1 -1,1 +1,2 @@@\n", "combined"),
    ],
)
def test_a_hunk_that_is_not_certain_is_refused(line: int, data: bytes, words: str) -> None:
    message = _refusal(data).message
    assert message.startswith(f"line {line}: ")
    assert words in message


@each(
    "body",
    [
        b"@@ -1,2 +1,2 @@\n" + _NO_NEWLINE + b" one\n-two\n+2\n",
        b"@@ -1,2 +1,2 @@\n one\n" + _NO_NEWLINE + b"-two\n+2\n",
        b"@@ -1,2 +1,2 @@\n-one\n" + _NO_NEWLINE + b"-two\n+2\n+3\n",
        b"@@ -1,2 +1,2 @@\n+one\n" + _NO_NEWLINE + b"-two\n-three\n+2\n",
        b"@@ -1,2 +1,2 @@\n-one\n" + _NO_NEWLINE + b"\n+2\n",
        b"@@ -1 +1 @@\n-one\n" + _NO_NEWLINE * 2 + b"+two\n",
        b"@@ -1 +1 @@\n one\n" + _NO_NEWLINE * 2,
    ],
)
def test_a_marker_in_a_place_where_no_file_can_end_is_refused(body: bytes) -> None:
    _refusal(_GIT + body)


@each(
    ("data", "words"),
    [
        (_FIRST, "ends before"),
        (_FIRST + _INDEX, "ends before"),
        (_FIRST[:-3], "middle of a line"),
        (_FIRST + _INDEX[:-3], "middle of a line"),
        (_FIRST + b"new file mode 100644\nindex 0000000..89abcde\n", "ends before"),
        (_FIRST + b"deleted file mode 100644\nindex 89abcde..0000000\n", "ends before"),
        (_FIRST + b"similarity index 90%\nrename from x.py\nrename to y.py\n", "ends before"),
        (_FIRST + b"similarity index 100%\nrename from x.py\n", "incomplete"),
        (_FIRST + b"old mode 100644\n", "incomplete"),
        (_FIRST + b"new file mode 100644\ndeleted file mode 100644\n", "contradicts"),
        (_FIRST + b"old mode 100644\nold mode 100644\n", "twice"),
        (_FIRST + b"old mode banana\n", "malformed"),
        (_FIRST + b"index 1234567-89abcde\n", "malformed"),
        (_FIRST + b"similarity index 99999999999999999999%\n", "malformed"),
        (_FIRST + b"new file mode 100644\n" + _NAMES + _HUNK, "contradicts"),
        (_FIRST + b"new file mode 100644\n--- /dev/null\n+++ b/x.py\n" + _HUNK, "contradicts"),
        (_FIRST + b"deleted file mode 100644\n--- a/x.py\n+++ /dev/null\n" + _HUNK, "contradicts"),
        (_FIRST + b"--- a/x.py\n", "`---` line and a `+++` line"),
        (_FIRST + _INDEX + b"a new kind of header\n" + _NAMES + _HUNK, "ends before"),
        (_FIRST + b"old mode 100644\nnew mode 100755\na new kind of header\n" + _NAMES + _HUNK, "header line that git"),
        (_FIRST + b"--- a/y.py\n+++ b/y.py\n" + _HUNK, "names"),
        (_FIRST + b"rename from x.py\nrename to y.py\n" + _NAMES + _HUNK, "names"),
        (b"diff --git before/x.py b/x.py\nold mode 100644\nnew mode 100755\n", "names"),
        (b"diff --git \nold mode 100644\nnew mode 100755\n", "names"),
        (b'diff --git "a/x\nold mode 100644\nnew mode 100755\n', "names"),
        (b'diff --git a/x "b/x\\9"\nold mode 100644\nnew mode 100755\n', "names"),
        (b'diff --git "a/x\\000" "b/x\\000"\nold mode 100644\nnew mode 100755\n', "name of a file"),
        (_FIRST + _INDEX + b"GIT binary patch\nliteral 9\nabc\n", "cut off"),
        (_FIRST + _INDEX + b"GIT binary patch\nliteral 9\nabc\n" + _GIT + _HUNK + b"\n\n", "cut off"),
        (_FIRST + _INDEX + b"Binary files a/x.py and b/x.py dif\n", "ends before"),
        (_FIRST + _INDEX + b"GIT binary patch\nrubbish\n", "`literal` or `delta`"),
        (_FIRST[:-1] + b"\r\n" + _INDEX + _NAMES + _HUNK, "CRLF"),
    ],
)
def test_a_git_section_that_is_cut_off_or_contradicts_itself_is_refused(data: bytes, words: str) -> None:
    assert words in _refusal(data).message


@each(
    ("data", "words"),
    [
        (_NAMES, "expected a hunk header"),
        (b"--- a/x\ty\tz\n+++ b/x\n" + _HUNK, "more than one tab"),
        (b'--- "a/x\\9"\n+++ b/x\n' + _HUNK, "malformed"),
        (b"--- /dev/null\n+++ /dev/null\n" + _HUNK, "no file"),
        (b"--- /dev/null\n+++ b/x\n" + _HUNK, "contradict"),
        (b"--- \n+++ \n" + _HUNK, "name of a file"),
        (b"--- ../x\n+++ ../x\n" + _HUNK, "leads out"),
        (b"--- a/../../x\n+++ b/../../x\n" + _HUNK, "leads out"),
        (b"--- /etc/x\n+++ /etc/x\n" + _HUNK, "leads out"),
        (b"--- /dev/null\n+++ b//etc/x\n@@ -0,0 +1 @@\n+1\n", "leads out"),
        (b"Only in new: x.py\n" + _NAMES + _HUNK, "does not show"),
        (b"Files old/y and new/y differ\n" + _NAMES + _HUNK, "does not show"),
        (b"File a/y is a directory while file b/y is a regular file\n" + _NAMES + _HUNK, "does not show"),
        (b"Binary files a and b and c and d differ\n" + _NAMES + _HUNK, "told apart"),
        (b"Binary files a and b and ccc differ\n" + _NAMES + _HUNK, "told apart"),
        (b'Binary files "a\\9" and b differ\n' + _NAMES + _HUNK, "told apart"),
    ],
)
def test_a_plain_diff_that_is_not_certain_is_refused(data: bytes, words: str) -> None:
    assert words in _refusal(data).message


def test_a_refusal_shows_the_line_escaped_and_shortened() -> None:
    message = _refusal(_GIT + b"@@ -1,2 +1,3 @@\n one\n\x1b]0;title\x07" + b"z" * 1000 + b"\n").message
    assert "\x1b" not in message
    assert len(message) < 250


def test_a_real_diff_cut_anywhere_inside_of_a_hunk_is_refused(repository: GitRepository) -> None:
    repository.write("x", "".join(f"line {number}\n" for number in range(30)))
    base = repository.commit()
    repository.write("x", "".join(f"line {number * (number % 9 != 4)}\n" for number in range(30)) + "end")
    patch = patch_of(repository, (base, repository.commit()))
    ends = {match.start() for match in re.finditer(rb"\n@@ |\n\\|\Z", patch)}
    complete = {end + 1 if end < len(patch) else end for end in ends}
    for cut in range(1, len(patch)):
        if cut not in complete:
            _refusal(patch[:cut])
