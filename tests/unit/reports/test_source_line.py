from __future__ import annotations

from codeloupe.reports.page import Page
from codeloupe.reports.text import finding_lines
from tests.unit.reports.examples import finding


def shown(
    evidence: str, *, first_line: int | None = 9, width: int = 60, verbose: bool = False, ascii_only: bool = False
) -> list[str]:
    page = Page(width=width, verbose=verbose, ascii_only=ascii_only)
    one = finding(file="a.py", title="t", body="", suggestion=None, evidence=evidence, line_start=first_line)
    return [line.plain for line in finding_lines(page, one)][2:]


def test_lines_are_numbered_from_the_first_and_share_no_indentation() -> None:
    assert shown("    if a:\n        b()\n") == ["  ▸  9 │ if a:", "    10 │     b()"]


def test_tabs_and_windows_line_ends_are_shown_as_columns() -> None:
    assert shown("\tif a {\r\n\t\tb()\r") == ["  ▸  9 │ if a {", "    10 │     b()"]


def test_an_empty_quote_gives_no_lines() -> None:
    assert shown("") == []
    assert shown(" \n ") == []


def test_a_long_line_is_cut_to_the_page_by_cells() -> None:
    assert shown("x" * 500, width=40) == ["  ▸ 9 │ " + "x" * 31 + "…"]
    assert shown("日" * 500, width=40) == ["  ▸ 9 │ " + "日" * 15 + "…"]
    assert shown("x" * 500, width=40, ascii_only=True) == ["  > 9 | " + "x" * 29 + "..."]


def test_a_line_that_just_fits_is_whole() -> None:
    assert shown("x" * 32, width=40) == ["  ▸ 9 │ " + "x" * 32]


def test_what_is_left_out_is_counted() -> None:
    assert shown("a\n" * 9, first_line=1)[-1] == "      … 3 more lines"
    assert shown("a\n" * 7, first_line=1)[-1] == "      … 1 more line"
    assert len(shown("a\n" * 9, first_line=1, verbose=True)) == 9


def test_a_quote_without_a_place_has_no_numbers() -> None:
    assert shown("a\nb", first_line=None) == ["  ▸ ? │ a", "    ? │ b"]


def test_combining_characters_without_end_are_cut() -> None:
    (line,) = shown("e" + "\u0301" * 100_000, width=40)
    assert len(line) < 400


def test_control_characters_in_code_are_shown() -> None:
    assert shown("a\x1b[0m\u202eb") == ["  ▸ 9 │ a\\x1b[0m\\u202eb"]
