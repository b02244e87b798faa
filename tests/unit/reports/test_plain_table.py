"""Tables of plain text: within the width, aligned, safe."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from codeloupe.reports.plain_table import Cell, Column, Sheet, cells, finished
from tests.rows import each

COLUMNS = (Column("ID"), Column("TEXT", shrinks=True), Column("COST", right=True))


def lines(*rows: tuple[str, str, str], width: int = 40, **look: bool) -> list[str]:
    sheet = Sheet(width=width, **look)
    return sheet.table(COLUMNS, [[Cell(sheet.clean(text)) for text in row] for row in rows])


def test_columns_stand_below_each_other() -> None:
    assert lines(("a", "some text", "$1.00"), ("bcd", "x", "$12.00")) == [
        "ID   TEXT         COST",
        "a    some text   $1.00",
        "bcd  x          $12.00",
    ]


def test_a_table_that_is_too_wide_gives_way_in_one_column() -> None:
    shown = lines(("a", "word " * 30, "$1.00"), width=30)
    assert max(map(cells, shown)) <= 30
    assert shown[1].startswith("a   word word")
    assert "…" in shown[1]
    assert shown[1].endswith("$1.00")
    assert "..." in lines(("a", "word " * 30, "$1.00"), width=30, ascii_only=True)[1]


def test_a_table_wider_than_any_screen_still_has_its_columns() -> None:
    assert lines(("a" * 30, "word", "$1.00"), width=10)[1] == f"{'a' * 30}  word      $1.00"


def test_wide_and_combining_characters_take_their_cells() -> None:
    assert cells("漢字") == 4
    assert cells("e\u0301") == 1
    shown = lines(("漢字", "x", "1"), ("ab", "y", "22"))
    assert [cells(line) for line in shown] == [cells(shown[0])] * 3


def test_colour_is_there_only_when_asked_for() -> None:
    row = [[Cell("a", "red"), Cell("b"), Cell("c", "green")]]
    assert "\x1b" not in "".join(Sheet(width=40).table(COLUMNS, row))
    colored = Sheet(width=40, color=True).table(COLUMNS, row)
    assert "\x1b[1;31ma\x1b[0m" in colored[1]
    assert "\x1b[1;32mc\x1b[0m" in colored[1]


@given(text=st.text(st.characters(exclude_categories=()), max_size=60), width=st.integers(12, 60))
def test_any_text_is_one_safe_line_within_its_room(text: str, width: int) -> None:
    sheet = Sheet(width=width)
    clean = sheet.clean(text)
    assert "\n" not in clean
    assert "\x1b" not in clean
    assert cells(sheet.cut(clean, width)) <= width
    assert Sheet(width=width, ascii_only=True).clean(text).isascii()


@each("text", ["::error::x", "##[error]x"])
def test_a_command_to_a_ci_system_is_broken(text: str) -> None:
    assert text not in finished([text])


def test_a_table_that_is_still_too_wide_leaves_columns_out_in_their_order() -> None:
    columns = [Column("ONE"), Column("TWO", drops=True), Column("THREE", shrinks=True), Column("FOUR", drops=True)]
    rows = [[Cell("1" * 10), Cell("2" * 10), Cell("3" * 20), Cell("4" * 10)]]
    headings = {width: Sheet(width=width).table(columns, rows)[0].split() for width in (60, 44, 40, 25, 5)}
    assert headings[60] == headings[44] == ["ONE", "TWO", "THREE", "FOUR"]
    assert headings[40] == ["ONE", "THREE", "FOUR"]
    assert headings[25] == headings[5] == ["ONE", "THREE"]
