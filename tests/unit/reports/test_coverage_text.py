from __future__ import annotations

from codeloupe.model.review import Coverage, FailedUnit, ReviewError, SkippedFile, SkipReason
from codeloupe.reports.text import render_text
from codeloupe.reports.wording import skipped_in_words
from tests.unit.reports.examples import review

SKIPPED = (
    SkippedFile("b/poetry.lock", SkipReason.LOCK_FILE),
    SkippedFile("a/package-lock.json", SkipReason.LOCK_FILE),
    SkippedFile("logo.png", SkipReason.BINARY),
)
HUGE = SkippedFile("huge.json", SkipReason.TOO_LARGE, "3 MB, the limit is 1 MB")


def section(coverage: Coverage, *, verbose: bool = False, errors: tuple[ReviewError, ...] = ()) -> list[str]:
    one = review(coverage=coverage, complete=coverage.complete, exit_code=0, errors=errors)
    return render_text(one, width=90, color=False, verbose=verbose).split("\n")


def test_what_the_policy_skips_is_summed_up_and_named_only_when_asked() -> None:
    brief = section(Coverage(5, 2, SKIPPED))
    assert "  · 3 skipped: 2 lock files, 1 unknown binary file (-v names them)" in brief
    assert not [line for line in brief if "logo.png" in line]
    full = section(Coverage(5, 2, SKIPPED), verbose=True)
    names = ["      logo.png  binary", "      a/package-lock.json  lock file", "      b/poetry.lock  lock file"]
    start = full.index("  · 3 skipped: 2 lock files, 1 unknown binary file")
    assert full[start + 1 : start + 4] == names


def test_one_kind_of_skipped_files_is_not_counted_twice() -> None:
    assert "  · 1 unknown binary file skipped (-v names it)" in section(Coverage(3, 2, SKIPPED[-1:]))
    assert "  · 2 lock files skipped (-v names them)" in section(Coverage(4, 2, SKIPPED[:2]))


def test_gaps_come_before_what_the_policy_skips() -> None:
    failed = FailedUnit("ruff", ("a.py", "b.py", "c.py", "d.py", "e.py"), "timed out after 60 s")
    lines = section(Coverage(9, 5, (*SKIPPED, HUGE), 3, (failed,)))
    start = lines.index("Not reviewed")
    assert lines[start + 1 : start + 4] == [
        "  ✖ ruff  timed out after 60 s  a.py, b.py, c.py and 2 more",
        "  ✖ huge.json  too large: 3 MB, the limit is 1 MB",
        "  · 3 skipped: 2 lock files, 1 unknown binary file (-v names them)",
    ]


def test_every_file_of_a_failed_unit_is_named_when_asked() -> None:
    failed = FailedUnit("ruff", ("a.py", "b.py", "c.py", "d.py"), "crashed")
    assert "  ✖ ruff  crashed  a.py, b.py, c.py, d.py" in section(Coverage(4, 4, (), 1, (failed,)), verbose=True)


def test_files_that_failed_alike_are_one_entry() -> None:
    alike = tuple(FailedUnit("ruff", (f"{name}.py",), "only a diff is known") for name in "abcde")
    other = FailedUnit("ast-grep", ("a.py",), "only a diff is known")
    lines = section(Coverage(5, 5, (), 2, (*alike, other)))
    start = lines.index("Not reviewed")
    assert lines[start + 1 : start + 4] == [
        "  ✖ ruff  only a diff is known  a.py, b.py, c.py and 2 more",
        "  ✖ ast-grep  only a diff is known  a.py",
        "",
    ]


def test_pieces_of_the_change_that_failed_for_one_reason_are_one_entry() -> None:
    alike = tuple(FailedUnit(f"{name}.py:1-9", (f"{name}.py",), "timeout") for name in "abcde")
    other = FailedUnit("f.py and 2 more files", ("f.py", "g.py", "h.py"), "invalid answer: empty output")
    lines = section(Coverage(8, 2, (), 9, (*alike, other)))
    start = lines.index("Not reviewed")
    assert lines[start + 1 : start + 4] == [
        "  ✖ 5 units  timeout  a.py:1-9, b.py:1-9, c.py:1-9 and 2 more",
        "  ✖ f.py and 2 more files  invalid answer: empty output",
        "",
    ]
    full = section(Coverage(8, 2, (), 9, (*alike, other)), verbose=True)
    assert "  ✖ 5 units  timeout  a.py:1-9, b.py:1-9, c.py:1-9, d.py:1-9, e.py:1-9" in full


def test_many_problems_are_cut_and_shown_whole_when_asked() -> None:
    errors = tuple(ReviewError("not_verified", f"number {number}") for number in range(25))
    brief = section(Coverage(1, 1), errors=errors)
    assert "    … 15 more (-v shows them)" in brief
    assert sum("not_verified" in line for line in brief) == 10
    assert sum("not_verified" in line for line in section(Coverage(1, 1), errors=errors, verbose=True)) == 25


def test_errors_are_told_once() -> None:
    failed = FailedUnit("ruff", ("a.py",), "timed out")
    errors = (
        ReviewError("analyser_failed", "timed out"),
        ReviewError("analyser_failed", "ruff could not review: timed out"),
        ReviewError("not_reviewed", "huge.json: too large: 3 MB, the limit is 1 MB"),
        ReviewError("finding_dropped", "a finding had no severity"),
    )
    lines = section(Coverage(2, 1, (HUGE,), 3, (failed,)), errors=errors)
    start = lines.index("Problems")
    assert lines[start + 1 : start + 3] == ["  ✖ finding_dropped  a finding had no severity", ""]


def test_a_whole_review_has_no_such_section() -> None:
    lines = section(Coverage(2, 2))
    assert "Not reviewed" not in lines
    assert "Problems" not in lines


def test_each_reason_has_its_words() -> None:
    for reason in SkipReason:
        one, two = SkippedFile("a", reason), SkippedFile("b", reason)
        assert skipped_in_words([one]).startswith("1 ")
        assert skipped_in_words([one, two]).startswith("2 ")
        assert skipped_in_words([one])[2:] != skipped_in_words([one, two])[2:]
