"""From saved reviews and findings to trends. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple, assert_never

from msgspec import Struct
from msgspec.structs import asdict

from codeloupe.model.history import TrendKey, TrendRow, Trends
from codeloupe.store.records import text_of

NO_EXPERT = "(no expert)"
# A clock that was wrong once must not fill the screen with empty weeks.
_MOST_WEEKS = 520


class ReviewFact(NamedTuple):
    """What trends need of a review; `number` names it."""

    number: int
    saved_at: float
    repository: str
    reviewer: str
    cost_usd: float
    unknown_costs: int
    duration_seconds: float


# Of a finding the number of its review, its fingerprint, its expert, whether it is fixed, and whether it is open, as
# the database gives them: a hundred thousand of them are not copied.
FindingRow = tuple[int, str | bytes, str | bytes | None, bool, bool]


class _Sum(Struct):
    findings: int = 0
    fixed: int = 0
    reviews: int = 0
    cost_usd: float = 0.0
    unknown_costs: int = 0
    duration_seconds: float = 0.0


def trend_rows(
    by: Sequence[TrendKey], reviews: Sequence[ReviewFact], findings: Iterable[FindingRow]
) -> tuple[Trends, ...]:
    """For each key its rows. `reviews` come with the oldest first; the order of the findings does not matter.

    A finding counts once in each repository, where it was first open, and as fixed when the last word on it is that.
    """
    seen: dict[int, list[FindingRow]] = {review.number: [] for review in reviews}
    # One that is not known was saved since the reviews were read.
    unknown: list[FindingRow] = []
    for finding in findings:
        seen.get(finding[0], unknown).append(finding)
    first: dict[tuple[str, str | bytes], tuple[str | bytes | None, ReviewFact]] = {}
    last: dict[tuple[str, str | bytes], bool] = {}
    for review in reviews:
        for _, fingerprint, expert, is_fixed, is_open in seen[review.number]:
            key = (review.repository, fingerprint)
            if key in first:
                last[key] = is_fixed
            elif is_open:
                first[key] = expert, review
    lives = [(expert, review, last.get(key, False)) for key, (expert, review) in first.items()]
    return tuple(Trends(key, _rows(key, reviews, lives)) for key in by)


def _rows(
    by: TrendKey, reviews: Sequence[ReviewFact], lives: Iterable[tuple[str | bytes | None, ReviewFact, bool]]
) -> tuple[TrendRow, ...]:
    sums: dict[str, _Sum] = {}
    # Experts share a review, so that its cost and time are nobody's.
    for review in () if by is TrendKey.EXPERT else reviews:
        its = sums.setdefault(_key(by, review, None), _Sum())
        its.reviews += 1
        its.cost_usd += review.cost_usd
        its.unknown_costs += review.unknown_costs
        its.duration_seconds += review.duration_seconds
    for expert, review, is_fixed in lives:
        found = sums.setdefault(_key(by, review, expert), _Sum())
        found.findings += 1
        found.fixed += is_fixed
    ordered = _weeks(sums) if by is TrendKey.WEEK else sorted(sums, key=lambda key: (-sums[key].findings, key))
    if by is TrendKey.EXPERT:
        return tuple(TrendRow(key=key, findings=sums[key].findings, fixed=sums[key].fixed) for key in ordered)
    return tuple(TrendRow(key=key, **asdict(sums.get(key, _Sum()))) for key in ordered)


def _weeks(sums: dict[str, _Sum]) -> list[str]:
    """Weeks in time, those without a review too."""
    if not sums:
        return []
    first, last = (datetime.fromisoformat(key) for key in (min(sums), max(sums)))
    count = (last - first).days // 7 + 1
    if count > _MOST_WEEKS:
        return sorted(sums)
    return [(first + timedelta(weeks=number)).date().isoformat() for number in range(count)]


@lru_cache(maxsize=10_000)
def week_of(moment: float) -> str:
    """The Monday of a moment's week, in UTC: `2026-03-09`."""
    day = datetime.fromtimestamp(moment, UTC).date()
    return (day - timedelta(days=day.weekday())).isoformat()


def _key(by: TrendKey, review: ReviewFact, expert: str | bytes | None) -> str:
    match by:
        case TrendKey.WEEK:
            return week_of(review.saved_at)
        case TrendKey.EXPERT:
            return text_of(expert) if expert else NO_EXPERT
        case TrendKey.REVIEWER:
            return review.reviewer
        case _:
            assert_never(by)
