"""Texts made to be slow or to break a parser: each ends in a moment, with files or with a refusal.

A parser that looks at each line once for every other would take minutes on these; the time limit of a test is the
judge.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from codeloupe.errors import DiffSyntaxError
from codeloupe.git.diff import parse_diff
from tests.rows import each

pytestmark = pytest.mark.no_cover  # to count the lines would take several times as long

_GREAT = 400_000
_GIT = b"diff --git a/x b/x\nindex 1234567..89abcde 100644\n--- a/x\n+++ b/x\n"
_MODE = b"old mode 100644\nnew mode 100755\n"


def _repeated(piece: bytes) -> bytes:
    return piece * (_GREAT // len(piece))


_REFUSED: dict[str, Callable[[], bytes]] = {
    "hunk headers alone": lambda: _GIT + _repeated(b"@@ -1 +1 @@\n"),
    "first lines of sections alone": lambda: _repeated(b"diff --git a/x b/x\n"),
    "a hunk that claims to be endless": lambda: _GIT + b"@@ -1,9999999999 +1,9999999999 @@\n" + _repeated(b" x\n"),
    "a hunk of empty lines that claims to be endless": lambda: (
        _GIT + b"@@ -1,999999999 +1,999999999 @@\n" + _repeated(b"\n")
    ),
    "numbers with millions of digits": lambda: _GIT + b"@@ -" + _repeated(b"1") + b" +1 @@\n",
    "markers alone": lambda: _GIT + b"@@ -1 +1 @@\n-a\n+b\n" + _repeated(b"\\ No newline at end of file\n"),
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
    "empty lines before a hunk": lambda: _GIT + b"@@ -1 +1 @@\n-a\n+b\n" + _repeated(b"\n") + b"+c\n",
    "noise": lambda: bytes(range(256)) * 2000,
}


@each("name", _REFUSED)
def test_a_hostile_text_is_refused_in_a_moment(name: str) -> None:
    with pytest.raises(DiffSyntaxError):
        parse_diff(_REFUSED[name]())


def test_very_many_files_of_one_hunk_are_read_in_a_moment() -> None:
    files = parse_diff(_repeated(_GIT + b"@@ -1 +1 @@\n-a\n+b\n"))
    assert len(files) > 4_000


def test_very_many_hunks_of_one_file_are_read_in_a_moment() -> None:
    hunks = b"".join(b"@@ -%d +%d @@\n-a\n+b\n" % (number, number) for number in range(1, 20_001))
    assert len(parse_diff(_GIT + hunks)[0].hunks) == 20_000


def test_very_many_files_that_changed_only_their_mode_are_read_in_a_moment() -> None:
    assert len(parse_diff(_repeated(b"diff --git a/x b/x\n" + _MODE))) > 7_000


def test_very_many_plain_files_before_one_of_git_are_read_in_a_moment() -> None:
    plain = _repeated(b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n")
    assert len(parse_diff(plain + _GIT + b"@@ -1 +1 @@\n-a\n+b\n")) > 10_000


def test_very_many_hunks_whose_lines_must_be_walked_are_read_in_a_moment() -> None:
    hunks = b"".join(b"@@ -%d,3 +%d,3 @@\n\n-a\n+b\n\n" % (number, number) for number in range(1, 40_000, 4))
    assert len(parse_diff(_GIT + hunks)[0].hunks) == 10_000


def test_a_long_text_before_the_diff_is_read_over_in_a_moment() -> None:
    text = _repeated(b"--- not a name\nFile x\nSubmodule y\nBinary files\n\n")
    assert len(parse_diff(text + _GIT + b"@@ -1 +1 @@\n-a\n+b\n")) == 1


def test_a_name_without_end_is_read_in_a_moment() -> None:
    quoted = b"\\303\\244" * (_GREAT // 8)
    (file,) = parse_diff(b'diff --git "a/' + quoted + b'" "b/' + quoted + b'"\n' + _MODE)
    assert file.path == "\u00e4" * (_GREAT // 8)
