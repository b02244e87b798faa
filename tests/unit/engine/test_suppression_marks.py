from __future__ import annotations

import pytest
from msgspec.structs import replace

from codeloupe.engine.suppress import Mark, asks_to_ignore, is_comment_alone, marks_in, places_of
from codeloupe.model.finding import Finding
from tests.unit.engine.samples import finding


def of(category: str, *, rule: str | None = None, expert: str | None = None) -> Finding:
    return replace(finding(category=category), rule=rule, expert=expert)


def mark(*names: str) -> Mark:
    return Mark("a.py", 1, names or None, "why", alone=False)


@pytest.mark.parametrize(
    ("line", "names", "reason"),
    [
        ("x # codeloupe: ignore legacy code", None, "legacy code"),
        ("x # codeloupe: ignore[security] checked above", ("security",), "checked above"),
        ("x # codeloupe:ignore [ S608 , sql ]: a constant.", ("S608", "sql"), "a constant"),
        ("x # Codeloupe: Ignore[S608] — a constant", ("S608",), "a constant"),
        ("x # noqa: S608 codeloupe: ignore[S608] a constant", ("S608",), "a constant"),
        ("x # codeloupe: ignore", None, ""),
        ("x # codeloupe: ignore[S608]", ("S608",), ""),
        ("x # codeloupe: ignore[S608] ---", ("S608",), ""),
        ("x # codeloupe: ignore[] because", (), "because"),
        ("x # codeloupe: ignore[S608 because", (), ""),
        (f"x # codeloupe: ignore[{'a,' * 300}] because", (), f"{'a,' * 100}] because"),
    ],
)
def test_a_mark_says_what_and_why(line: str, names: tuple[str, ...] | None, reason: str) -> None:
    assert marks_in("a.py", 7, line) == [Mark("a.py", 7, names, reason, alone=False)]


def test_the_end_of_a_comment_is_no_part_of_the_reason() -> None:
    assert [found.reason for found in marks_in("a.js", 1, "/* codeloupe: ignore ours */ x()")] == ["ours"]
    assert [found.reason for found in marks_in("a.html", 1, "<!-- codeloupe: ignore ours -->")] == ["ours"]


def test_two_marks_on_a_line_are_two() -> None:
    line = "x # codeloupe: ignore[a] one; codeloupe: ignore[b] two"
    assert [(found.names, found.reason) for found in marks_in("a.py", 1, line)] == [(("a",), "one"), (("b",), "two")]


@pytest.mark.parametrize(
    "line",
    [
        "x # codeloupe: ignored by us",
        "x # codeloupe: ignore-file all of it",
        "x # codeloupe: ignores it",
        "x # codeloupe ignore it",
        'x = "codeloupe: ignore it"',
        'x = "# codeloupe: ignore it"',
        "codeloupe: ignore it",
        "x",
    ],
)
def test_other_words_are_no_mark(line: str) -> None:
    assert marks_in("a.py", 1, line) == []


def test_what_asks_outside_of_a_comment_is_still_noticed() -> None:
    assert asks_to_ignore('x = "codeloupe: ignore it"')
    assert not asks_to_ignore("# codeloupe: ignored")


def test_a_mark_needs_a_reason_and_something_in_its_brackets() -> None:
    assert mark("security").counts
    assert not Mark("a.py", 1, (), "why", alone=False).counts
    assert not Mark("a.py", 1, None, "", alone=False).counts


@pytest.mark.parametrize(
    ("name", "suited"),
    [
        ("security", of("security")),
        ("Security", of("SQL injection")),
        ("injection", of("sql-injection")),
        ("sql injection", of("SQL_Injection")),
        ("S608", of("security", rule="S608")),
        ("s608", of("security", rule="S608")),
        ("security", of("security", rule="S608")),
        ("payments", of("bug", expert="payments")),
        ("correctness", of("logic error")),
        ("bug", of("off by one")),
        ("behaviour", of("correctness")),
        ("upkeep", of("style")),
        ("performance", of("inefficient loop, slow")),
        ("error-handling", of("error handling")),
    ],
)
def test_a_name_fits_category_family_rule_and_expert(name: str, suited: Finding) -> None:
    assert mark(name).fits(suited)
    assert mark("nothing", name).fits(suited)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("security", of("correctness")),
        ("secruity", of("security")),
        ("secruity", of("correctness")),
        ("S60", of("security", rule="S608")),
        ("S608", of("security", rule="S105")),
        ("correctness", of("security")),
        ("unused-import", of("style")),
        ("tests", of("security", expert="security")),
    ],
)
def test_a_name_fits_nothing_else(name: str, other: Finding) -> None:
    assert not mark(name).fits(other)


def test_without_names_a_mark_fits_everything() -> None:
    assert mark().fits(of("anything at all"))


def places(start: int, end: int, *, lines: int = 100, above: frozenset[int] = frozenset()) -> list[int]:
    where = replace(finding(), line_start=start, line_end=end)
    return list(places_of(where, ["x"] * lines, above.__contains__))


def test_the_lines_of_a_finding_and_the_comments_right_above_are_looked_at() -> None:
    assert places(5, 7) == [5, 6, 7]
    assert places(5, 5, above=frozenset({4, 3, 1})) == [5, 4, 3]
    assert places(1, 1) == [1]


def test_of_a_long_finding_only_the_ends_are() -> None:
    assert places(5, 14) == list(range(5, 15))
    assert places(5, 15) == [5, 15]


def test_the_walk_upwards_has_an_end() -> None:
    assert places(50, 50, above=frozenset(range(100))) == list(range(50, 39, -1))


def test_a_finding_outside_of_the_file_has_no_lines() -> None:
    assert places(0, 0) == []
    assert places(101, 101) == []
    assert places(99, 300) == [99, 100]
    assert list(places_of(finding(anchored=False), ["x"], bool)) == []


def test_a_line_with_code_is_not_a_comment_alone() -> None:
    assert is_comment_alone("  # x", "a.py")
    assert not is_comment_alone("y  # x", "a.py")
    assert not is_comment_alone("", "a.py")
