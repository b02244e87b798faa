"""How codeloupe's own cost grows with the size of a change, up to a thousand files and a million lines.

What a review of almost nothing costs is taken off before the fit: a fixed part would hide how the rest grows.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.growth_plot import Curve, exponent, plot
from bench.lifelike import HUGE, LARGE, SMALL, ChangeSize, branch_diff, make_lifelike_change
from bench.own_review import OwnReview, measure_review
from bench.table import BenchRow

PICTURE = Path(__file__).with_name("growth.svg")
_MOST_EXPONENT = 1.1
# Files of the changes between the small and the huge one, with as many lines in each file as the huge one has.
_FILES = (10, 32, 100, 316)
_LINES_A_FILE = HUGE.changed_lines // HUGE.files
_TIMES = 3
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class _Measured:
    """A change of so many added and deleted lines, and what its review took."""

    lines: int
    diff_bytes: int
    review: OwnReview


_COSTS: tuple[tuple[str, Callable[[OwnReview], float]], ...] = (
    ("own CPU", lambda review: review.cpu_seconds),
    ("memory", lambda review: review.peak_bytes),
    ("agent calls", lambda review: review.calls),
    ("prompt tokens", lambda review: review.prompt_tokens),
)


def rows() -> Iterator[BenchRow]:
    """The small, the large and the huge change with an agent that answers at once, and how cost grows between."""
    smallest = _measure(SMALL, times=_TIMES)
    yield _row("small", SMALL, smallest)
    yield _row("large", LARGE, _measure(LARGE, times=_TIMES))
    series = [_measure(ChangeSize(files, files * _LINES_A_FILE), times=1) for files in _FILES]
    huge = _measure(HUGE, times=1)
    yield _row("huge", HUGE, huge)
    series.append(huge)
    PICTURE.write_text(_picture(series), encoding="utf-8")
    for name, cost in _COSTS:
        least = cost(smallest.review)
        points = [(float(one.lines), cost(one.review) - least) for one in series]
        detail = f"{series[0].lines:,} to {huge.lines:,} lines; the last step alone {exponent(points[-2:]):.2f}"
        yield BenchRow(
            f"growth of {name} with the lines of a change, as a power",
            detail,
            exponent(points),
            _MOST_EXPONENT,
            unit="",
        )


def _measure(size: ChangeSize, *, times: int) -> _Measured:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "repository"
        make_lifelike_change(root, size)
        diff = branch_diff(root)
        reviews = [measure_review(root) for _ in range(times)]
    # The small and the large change by the least disturbed of several runs; a minute long one evens itself out.
    best = min(reviews, key=lambda review: review.cpu_seconds)
    lines = sum(diff.count(b"\n" + mark) - diff.count(b"\n" + mark * 3 + b" ") for mark in (b"+", b"-"))
    return _Measured(lines, len(diff), best)


def _row(name: str, size: ChangeSize, measured: _Measured) -> BenchRow:
    review = measured.review
    shape = f"{size.files:,} files, {measured.lines:,} lines"
    each = review.cpu_seconds / review.calls
    detail = (
        f"{review.cpu_seconds:.2f} s of CPU, {review.wall_seconds:.2f} s of wall, {review.calls:,} calls, "
        f"{review.prompt_tokens:,} prompt tokens, {review.findings:,} findings, "
        f"{review.peak_bytes / _MILLION:.0f} MB for {measured.diff_bytes / _MILLION:.1f} MB of diff"
    )
    return BenchRow(f"own CPU of a unit of the {name} change ({shape})", detail, each * 1000, None, unit=" ms")


def _picture(series: list[_Measured]) -> str:
    last = series[-1].review
    names = (
        f"own CPU, {last.cpu_seconds:.0f} s",
        f"memory, {last.peak_bytes / _MILLION:.0f} MB",
        f"agent calls, {last.calls:,}",
        f"1,000 tokens, {last.prompt_tokens // 1000:,}",
    )
    units = (1, _MILLION, 1, 1000)
    curves = [
        Curve(name, tuple((float(one.lines), cost(one.review) / unit) for one in series))
        for name, unit, (_, cost) in zip(names, units, _COSTS, strict=True)
    ]
    return plot("What a review costs by the size of its change", "added and deleted lines", curves)
