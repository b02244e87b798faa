from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import pytest
from msgspec.structs import replace

from codeloupe.engine.suppress import Suppressed, added_suppressions, apply_suppressions
from codeloupe.model.baseline import Baseline, BaselineEntry
from codeloupe.model.change import FileChange, FileStatus, Hunk
from codeloupe.model.finding import Finding, FindingStatus
from codeloupe.model.suppression import Suppression, SuppressionKind
from tests.unit.engine.samples import changed, finding

TODAY = date(2030, 6, 15)
NAME = "f" * 32


def applied(
    *findings: Finding, files: dict[str, str] | None = None, entries: Sequence[BaselineEntry] = (), inline: bool = True
) -> Suppressed:
    texts = files or {}
    return apply_suppressions(
        findings,
        baseline=Baseline(tuple(entries)),
        lines_of=lambda path: texts[path].split("\n") if path in texts else None,
        today=TODAY,
        inline=inline,
    )


def in_code(text: str, *findings: Finding, inline: bool = True) -> Suppressed:
    return applied(*findings, files={"a.py": text}, inline=inline)


def kinds(result: Suppressed) -> list[str]:
    return [error.kind for error in result.errors]


def test_nothing_to_suppress_changes_nothing() -> None:
    given = finding(), finding(line=2)
    assert in_code("x\ny\n", *given) == Suppressed(given)
    assert applied(*given) == Suppressed(given)


@pytest.mark.parametrize(
    "text",
    [
        "x = 1  # codeloupe: ignore[correctness] checked by hand",
        "x = 1  # codeloupe: ignore checked by hand",
        "# codeloupe: ignore checked by hand\nx = 1",
        "# codeloupe: ignore checked by hand\n# and more words\nx = 1",
    ],
)
def test_a_comment_on_the_line_or_above_it_suppresses(text: str) -> None:
    result = in_code(text, finding(line=text.count("\n") + 1))
    assert result.errors == ()
    assert result.findings[0].suppression == Suppression(kind=SuppressionKind.INLINE, reason="checked by hand")
    assert result.findings[0].status is FindingStatus.NEW
    assert not result.findings[0].is_open


def test_a_comment_behind_code_is_not_about_the_next_line() -> None:
    result = in_code("y = 2  # codeloupe: ignore legacy\nx = 1", finding(line=2))
    assert result.findings[0].is_open


def test_an_empty_line_or_code_between_parts_comment_and_finding() -> None:
    assert in_code("# codeloupe: ignore legacy\n\nx = 1", finding(line=3)).findings[0].is_open
    assert in_code("# codeloupe: ignore legacy\ny\nx = 1", finding(line=3)).findings[0].is_open


def test_comments_for_two_categories_may_stand_above_one_another() -> None:
    text = "# codeloupe: ignore[S608] a constant\n# codeloupe: ignore[correctness] by hand\nx = 1"
    result = in_code(text, finding(line=3), replace(finding(line=3, category="security"), rule="S608"))
    assert [each.suppression and each.suppression.reason for each in result.findings] == ["by hand", "a constant"]
    assert result.errors == ()


def test_a_comment_on_any_line_of_a_short_finding_suppresses_it() -> None:
    text = "f(\n  a,\n  b,  # codeloupe: ignore legacy\n)"
    assert not in_code(text, replace(finding(), line_end=4)).findings[0].is_open


def test_without_a_reason_it_suppresses_nothing_and_is_told() -> None:
    result = in_code("x = 1  # codeloupe: ignore[correctness]", finding())
    assert result.findings[0].is_open
    assert [(error.kind, error.message) for error in result.errors] == [
        (
            "ignore_without_reason",
            "a.py:1: `codeloupe: ignore[correctness]` gives no reason, so it suppresses nothing",
        )
    ]


def test_brackets_with_nothing_in_them_suppress_nothing_and_are_told() -> None:
    result = in_code("x = 1  # codeloupe: ignore[] legacy", finding())
    assert result.findings[0].is_open
    assert "names nothing between its brackets" in result.errors[0].message


def test_another_category_is_not_suppressed_and_that_is_told() -> None:
    result = in_code("x = 1  # codeloupe: ignore[secruity] legacy", finding(category="security"), finding())
    assert all(each.is_open for each in result.findings)
    assert [(error.kind, error.message) for error in result.errors] == [
        (
            "ignore_unused",
            "a.py:1: `codeloupe: ignore[secruity]` fits none of the findings there (security, correctness)",
        )
    ]


def test_in_a_string_it_suppresses_nothing_and_is_told() -> None:
    result = in_code('x = "# codeloupe: ignore legacy"', finding())
    assert result.findings[0].is_open
    assert kinds(result) == ["ignore_outside_comment"]


def test_in_an_untrusted_change_no_comment_is_followed_and_their_number_is_told() -> None:
    text = "x = 1  # codeloupe: ignore legacy\ny = 2  # codeloupe: ignore\nz = 3 # codeloupe: ignore ours"
    result = in_code(text, finding(), finding(line=2), finding(line=3), inline=False)
    assert all(each.is_open for each in result.findings)
    assert kinds(result) == ["ignores_not_followed"]
    assert result.errors[0].message == (
        "2 comments that ask to ignore findings were not followed, since the change is not trusted (a.py:1, a.py:3)"
    )


def test_a_finding_without_a_place_or_a_file_that_can_be_read_is_left_alone() -> None:
    text = "x = 1  # codeloupe: ignore legacy"
    assert in_code(text, finding(anchored=False)).findings[0].suppression is None
    assert applied(finding(file="gone.py"), files={"a.py": text}).findings[0].suppression is None


def test_what_was_set_aside_otherwise_stays_so() -> None:
    text = "x = 1  # codeloupe: ignore legacy"
    for status in (FindingStatus.REFUTED, FindingStatus.DISMISSED, FindingStatus.FIXED):
        assert in_code(text, finding(status=status)).findings[0].suppression is None


def test_what_an_earlier_round_suppressed_counts_again_without_its_reason() -> None:
    before = replace(finding(), suppression=Suppression(kind=SuppressionKind.BASELINE, reason="legacy"))
    assert applied(before).findings == (finding(),)


def test_the_baseline_suppresses_with_its_reason_owner_and_day() -> None:
    entry = BaselineEntry(fingerprint=NAME, file="a.py", reason="legacy", owner="me", expires=TODAY)
    result = applied(replace(finding(), fingerprint=NAME), entries=[entry])
    assert result.findings[0].suppression == Suppression(
        kind=SuppressionKind.BASELINE, reason="legacy", owner="me", expires=TODAY, entry=NAME
    )
    assert result.errors == ()


def test_the_baseline_holds_also_where_comments_are_not_followed() -> None:
    entry = BaselineEntry(fingerprint=NAME, file="a.py", reason="legacy")
    result = applied(replace(finding(), fingerprint=NAME), entries=[entry], inline=False)
    assert not result.findings[0].is_open


def added(path: str, *lines: str) -> FileChange:
    return changed(path, b"".join(b"+" + line.encode() + b"\n" for line in lines))


def test_what_the_change_itself_adds_is_told() -> None:
    files = (
        added("a.py", "x", "y # codeloupe: ignore legacy", "z # codeloupe: ignore"),
        added("codeloupe-baseline.yaml", "version: 1", "entries:", '  - fingerprint: "aa"', "    reason: fingerprint"),
    )
    (error,) = added_suppressions(files)
    assert error.kind == "suppressions_added"
    assert error.message == (
        "the change itself adds 1 comment to ignore findings (a.py:2) and 1 entry of codeloupe-baseline.yaml"
    )


def test_only_added_lines_are_told_and_a_long_list_is_cut() -> None:
    old = Hunk(1, 1, 1, 2, b" x # codeloupe: ignore legacy\n+y\n", added=1)
    file = FileChange("a.py", "a.py", FileStatus.MODIFIED, hunks=(old,))
    assert added_suppressions([file, added("b.py", "z")]) == ()
    (error,) = added_suppressions([added("b.py", *["z # codeloupe: ignore legacy"] * 12)])
    assert "12 comments" in error.message
    assert error.message.endswith("b.py:10 and 2 more)")
