"""Whatever a diff holds, its light form can be read back: each line once, in order, under its true number."""

import re

from hypothesis import given
from hypothesis import strategies as st

from codeloupe.model.change import FileChange, FileStatus, Hunk, UnitPart
from codeloupe.reviewers.diff_text import light_diff, shown_line
from codeloupe.system.untrusted import has_hidden

_TEXTS = st.binary(max_size=12).map(lambda raw: raw.replace(b"\n", b" ")) | st.sampled_from(
    [b"", b":120", b"=== a", b"@@ -1 +1 @@", b"\\ no newline at the end", b"x\r", "\u202e".encode(), b"\xff\0"]
)
_ROWS = st.lists(st.tuples(st.sampled_from("+- "), _TEXTS), max_size=40)


def _hunk(rows: list[tuple[str, bytes]], start: int) -> Hunk:
    old = sum(sign != "+" for sign, _ in rows)
    new = sum(sign != "-" for sign, _ in rows)
    return Hunk(start, old, start, new, b"".join(sign.encode() + text + b"\n" for sign, text in rows))


@given(hunks=st.lists(st.tuples(_ROWS, st.integers(1, 5_000)), min_size=1, max_size=3))
def test_each_line_can_be_read_back_under_its_number(hunks: list[tuple[list[tuple[str, bytes]], int]]) -> None:
    made = tuple(_hunk(rows, start) for rows, start in hunks)
    text, _ = light_diff([UnitPart(FileChange("a", "a", FileStatus.MODIFIED, hunks=made), made)])
    lines = [text for rows, _ in hunks for _, text in rows]
    is_crlf = bool(lines) and all(text.endswith(b"\r") for text in lines)
    expected = [
        (sign, shown_line(text[:-1] if is_crlf else text), number)
        for hunk in hunks
        for sign, text, number in _numbered(*hunk)
    ]
    assert _read_back(text) == expected
    assert not has_hidden(text)
    text.encode("utf-8")


def _numbered(rows: list[tuple[str, bytes]], start: int) -> list[tuple[str, bytes, int]]:
    """Each line with the number that it, or the next line, has in the new file."""
    numbers = [start + sum(sign != "-" for sign, _ in rows[:place]) for place in range(len(rows))]
    return [(sign, text, number) for (sign, text), number in zip(rows, numbers, strict=True)]


def _read_back(text: str) -> list[tuple[str, str, int]]:
    found: list[tuple[str, str, int]] = []
    number = 0
    for row in text.split("\n")[1:]:
        if header := re.match(r"@@ -\d+,\d+ \+(\d+),\d+ @@", row):
            number = int(header[1])
        elif row.startswith(":"):
            assert int(row[1:]) == number
            assert number % 10 == 0
        else:
            assert row[0] in "+- "
            found.append((row[0], row[1:], number))
            number += row[0] != "-"
    return found
