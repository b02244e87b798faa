"""Weeks of trends: Mondays in UTC, without gaps, within reason."""

from __future__ import annotations

from codeloupe.model.history import TrendKey, TrendRow
from codeloupe.store.history import ReviewFact, trend_rows, week_of
from tests.rows import each
from tests.unit.store.history_samples import at


def fact(number: int, **elapsed: float) -> ReviewFact:
    return ReviewFact(number, at(**elapsed).timestamp(), "root:a", "offline", 0.5, 0, 2.0)


@each(
    ("elapsed", "week"),
    [
        ({}, "2026-03-02"),
        ({"days": 6, "hours": 14.99}, "2026-03-02"),
        ({"days": 6, "hours": 15}, "2026-03-09"),
        ({"hours": -9.01}, "2026-02-23"),
    ],
)
def test_a_week_begins_on_monday(elapsed: dict[str, float], week: str) -> None:
    assert week_of(at(**elapsed).timestamp()) == week


def weeks(*reviews: ReviewFact) -> tuple[TrendRow, ...]:
    (told,) = trend_rows([TrendKey.WEEK], reviews, ())
    return told.rows


def test_weeks_without_a_review_are_there() -> None:
    assert [row.reviews for row in weeks(fact(1), fact(2, weeks=3))] == [1, 0, 0, 1]


def test_a_clock_that_was_wrong_by_decades_does_not_fill_the_screen() -> None:
    assert [row.reviews for row in weeks(fact(1, weeks=-2_500), fact(2))] == [1, 1]


def test_a_finding_that_came_back_is_not_fixed() -> None:
    sightings = [
        (1, "f", "tests", False, True),
        (2, "f", "tests", True, False),
        (3, "f", "tests", False, True),
    ]
    reviews = [fact(number, days=number) for number in (1, 2, 3)]
    fixed = [trend_rows([TrendKey.EXPERT], reviews, sightings[:count])[0].rows[0].fixed for count in (1, 2, 3)]
    assert fixed == [0, 1, 0]


def test_what_was_first_told_as_fixed_or_refuted_was_never_found() -> None:
    gone = (1, "f", None, True, False)
    assert trend_rows([TrendKey.EXPERT], [fact(1)], [gone])[0].rows == ()
