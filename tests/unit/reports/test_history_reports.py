"""Lists, sweeps, comparisons and trends as text and as JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace

from codeloupe.model.history import (
    Comparison,
    HistoryEntry,
    Listing,
    SweepOutline,
    TrendKey,
    TrendRow,
    Trends,
)
from codeloupe.reports.history import (
    cost_in_words,
    list_json,
    moment,
    outcome,
    render_comparison,
    render_list,
    render_outline,
    render_trends,
    short_ids,
    trends_json,
)
from codeloupe.reports.plain_table import cells
from codeloupe.store.history_writing import entry_of_review, entry_of_sweep
from tests.rows import each
from tests.unit.store.history_samples import any_of, commit_review, identifier, named, record, sweep_record

PLAIN: dict[str, Any] = {"width": 100, "color": False, "ascii_only": False}
HOSTILE = "\x1b[31m\u202e::error::\n\udcff"


class TestList:
    @each(
        ("changes", "word"),
        [
            ({"verdict": "PASS"}, "PASS"),
            ({"verdict": "NEEDS_WORK"}, "NEEDS WORK"),
            ({"verdict": "FAIL", "exit_code": 1}, "FAIL"),
            ({"verdict": "PASS", "complete": False, "exit_code": 3}, "INCOMPLETE"),
            ({"verdict": "PASS", "complete": False, "exit_code": 0}, "INCOMPLETE"),
            ({"verdict": "FAIL", "complete": False, "exit_code": 1}, "FAIL, incomplete"),
        ],
    )
    def test_what_was_not_wholly_reviewed_is_never_a_pass(self, changes: dict[str, Any], word: str) -> None:
        assert outcome(replace(entry_of_review(record(1)), **changes)) == word

    def test_a_sweep_with_a_commit_that_could_not_be_reviewed_is_incomplete(self) -> None:
        failed = commit_review(1, review=None, verdict=None, failure="timeout")
        assert outcome(entry_of_sweep(sweep_record(9, failed))) == "INCOMPLETE"
        assert outcome(entry_of_sweep(sweep_record(9, commit_review(1), finished=False))) == "INCOMPLETE"

    def test_ids_are_as_long_as_tells_them_apart(self) -> None:
        assert short_ids([identifier(1), identifier(2)]) == {identifier(1): "00000001", identifier(2): "00000002"}
        alike = ["0" * 31 + "a", "0" * 31 + "b"]
        assert short_ids(alike) == {name: name for name in alike}
        assert short_ids([]) == {}

    @settings(suppress_health_check=[HealthCheck.too_slow], max_examples=25)
    @given(entry=any_of(HistoryEntry))
    def test_any_entry_is_one_safe_line_and_valid_json(self, entry: HistoryEntry) -> None:
        text = render_list(Listing((entry,)), **PLAIN)
        assert text.count("\n") == 2
        assert "\x1b" not in text
        (row,) = json.loads(list_json(Listing((entry,))))["entries"]
        assert row["id"] == entry.entry_id

    def test_a_damaged_word_is_shown_and_not_obeyed(self) -> None:
        entry = replace(entry_of_review(record(1)), verdict=HOSTILE, entry_id=HOSTILE, repository_label=HOSTILE)
        text = render_list(Listing((entry,)), **PLAIN, with_repository=True)
        assert text.count("\n") == 2
        assert "\x1b" not in text

    def test_costs_that_are_not_known_are_told(self) -> None:
        assert cost_in_words(0.5, 0) == "$0.50"
        assert cost_in_words(0.5, 2) == "$0.50+"
        assert cost_in_words(0.0, 2) == "?"
        assert cost_in_words(0.0, 0) == "$0.00"

    def test_the_first_day_of_the_calendar_is_a_moment_too(self) -> None:
        assert moment(datetime.min.replace(tzinfo=UTC)).startswith("0001-01-01")


def test_hostile_words_are_shown_and_not_obeyed() -> None:
    hostile = named("a", title=HOSTILE, file=HOSTILE)
    text = render_comparison(Comparison(new=(hostile,)), record(1), record(2, problems=(HOSTILE,)), **PLAIN)
    failed = commit_review(2, review=None, verdict=None, score=None, failure=HOSTILE)
    text += render_outline(SweepOutline(sweep_record(9, failed), (None,)), **PLAIN)
    text += render_list(Listing((), (HOSTILE,)), **PLAIN)
    assert "INCOMPLETE" in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert not [line for line in text.split("\n") if line.startswith("::")]


WEEKS = Trends(
    TrendKey.WEEK,
    (
        TrendRow(key="2026-03-02", findings=40, fixed=10, reviews=3, cost_usd=2.0, duration_seconds=125.0),
        TrendRow(key="2026-03-09", findings=0, fixed=0, reviews=0, cost_usd=0.0, duration_seconds=0.0),
        TrendRow(key="2026-03-16", findings=1, fixed=1, reviews=1, cost_usd=0.5, unknown_costs=2, duration_seconds=9.0),
    ),
)
EXPERTS = Trends(TrendKey.EXPERT, (TrendRow(key=f"security{HOSTILE}", findings=3, fixed=1),))


class TestTrends:
    @each("width", [20, 40, 80, 300])
    def test_bars_fit_their_page(self, width: int) -> None:
        text = render_trends([WEEKS], width=width, color=False, ascii_only=False)
        assert max(cells(line) for line in text.splitlines() if "█" in line) <= max(width, 30)

    @each(("findings", "fixed"), [(1, 0), (1, 1), (1, 1000), (1000, 1), (3, 2), (10**9, 5)])
    def test_what_is_more_than_nothing_has_a_bar(self, findings: int, fixed: int) -> None:
        row = TrendRow(key="x", findings=findings, fixed=min(fixed, findings))
        large = TrendRow(key="y", findings=10**9, fixed=0)
        for ascii_only in (False, True):
            text = render_trends([Trends(TrendKey.EXPERT, (row, large))], width=80, color=False, ascii_only=ascii_only)
            _, bar = [line for line in text.splitlines() if line.startswith("x  ")]
            assert bar.split()[1][0] in "█▏▎▍▌▋▊▉░#."
            assert bar.endswith(f" {findings:,}")

    def test_a_cost_without_end_does_not_end_the_plot(self) -> None:
        rows = (replace(WEEKS.rows[0], cost_usd=float("inf")), replace(WEEKS.rows[0], cost_usd=1.0))
        assert "cost" in render_trends([Trends(TrendKey.WEEK, rows)], **PLAIN).splitlines()
        (first, _) = json.loads(trends_json([Trends(TrendKey.WEEK, rows)]))["trends"]["week"]
        assert first["cost_usd"] is None
