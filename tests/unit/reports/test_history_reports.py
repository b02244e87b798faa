"""Lists, sweeps, comparisons and trends as text and as JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace

from codeloupe.model.finding import Severity
from codeloupe.model.history import (
    Comparison,
    HistoryEntry,
    Listing,
    Removed,
    SeverityCounts,
    SweepOutline,
    TrendKey,
    TrendRow,
    Trends,
)
from codeloupe.reports.history import (
    comparison_json,
    cost_in_words,
    list_json,
    moment,
    outcome,
    removed_json,
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
    def test_a_review_is_one_line_with_what_matters(self) -> None:
        found = (named("a", severity=Severity.CRITICAL), named("b", severity=Severity.LOW))
        text = render_list(Listing((entry_of_review(record(1, *found)),)), **PLAIN)
        assert text.splitlines() == [
            "ID        WHEN              SCOPE               VERDICT  FINDINGS            COST",
            "00000001  2026-03-03 09:00  topic against main  FAIL     1 critical, 1 low  $0.25",
        ]

    def test_a_sweep_is_one_line_with_its_commits(self) -> None:
        entry = entry_of_sweep(sweep_record(9, commit_review(1, named("a")), commit_review(2)))
        text = render_list(Listing((entry,)), **PLAIN)
        assert "2 commits: since 24 hours ago  SWEEP    1 high    $1.50" in text

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

    def test_the_repository_is_shown_when_there_are_several(self) -> None:
        text = render_list(Listing((entry_of_review(record(1)),)), **PLAIN, with_repository=True)
        assert "REPOSITORY" in text
        assert " shop " in text

    def test_problems_stand_below_the_list(self) -> None:
        text = render_list(Listing((entry_of_review(record(1)),), ("the entry x cannot be read",)), **PLAIN)
        assert text.endswith("the entry x cannot be read\n")
        assert render_list(Listing((), (HOSTILE,)), **PLAIN).count("\n") == 1

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

    def test_json_has_ids_whole_and_times_in_utc(self) -> None:
        document = json.loads(list_json(Listing((entry_of_review(record(1, named("a"))),), ("one is gone",))))
        assert document["schema_version"] == 1
        assert document["problems"] == ["one is gone"]
        (entry,) = document["entries"]
        assert entry["id"] == identifier(1)
        assert entry["saved_at"] == "2026-03-03T09:00:00+00:00"
        assert entry["findings"] == {"critical": 0, "high": 1, "medium": 0, "low": 0}
        assert entry["scope"] == {"kind": "branch", "description": "topic against main"}


class TestSweep:
    def outline(self, **changes: Any) -> SweepOutline:
        commits = (
            commit_review(1, named("a")),
            commit_review(2, review=None, verdict=None, score=None, failure=f"timeout {HOSTILE}"),
        )
        made = sweep_record(9, *commits, **changes)
        entry = entry_of_review(made.record_of(commits[0].review))  # type: ignore[arg-type]  # the first has one
        return SweepOutline(made, (entry, None))

    def test_each_commit_has_its_line_and_none_looks_clean(self) -> None:
        lines = render_outline(self.outline(), **PLAIN).splitlines()
        assert lines[0] == f"Sweep {identifier(9)}, 2026-03-11 09:00: since 24 hours ago"
        assert lines[3].split() == ["0000000000", "000003e9", "FIX", "0.70", "1", "high", "fix:", "number", "1"]
        assert "INCOMPLETE" in lines[4]
        assert "timeout" in lines[4]
        assert "\x1b" not in "".join(lines)
        assert lines[-1] == "2 commits reviewed, score 0.70"

    def test_one_that_is_not_finished_says_so(self) -> None:
        last = render_outline(self.outline(finished=False), **PLAIN).splitlines()[-1]
        assert last.startswith("not finished: 2 commits")

    def test_one_without_commits_is_whole(self) -> None:
        text = render_outline(SweepOutline(sweep_record(9, problems=("one is gone",)), ()), **PLAIN)
        assert "0 commits reviewed" in text
        assert text.endswith("one is gone\n")


class TestComparison:
    def text(self, comparison: Comparison, **look: Any) -> str:
        return render_comparison(comparison, record(1), record(2), **{**PLAIN, **look})

    def test_findings_stand_by_what_became_of_them_the_worst_first(self) -> None:
        comparison = Comparison(
            new=(named("a", severity=Severity.LOW, title="small"), named("b", severity=Severity.HIGH, title="large")),
            fixed=(named("c", title="gone"),),
            unknown=(named("d", title="unseen"),),
        )
        text = self.text(comparison)
        assert text.index("large") < text.index("small") < text.index("gone") < text.index("unseen")
        assert "app/db.py:42" in text
        assert "not looked at again" in text
        assert text.endswith("2 new, 1 fixed, 1 unknown\n")
        assert text.startswith("from 00000001  2026-03-03 09:00 on topic  topic against main\nto   00000002")

    def test_nothing_to_compare_is_said(self) -> None:
        assert self.text(Comparison()).endswith("No open findings in either.\n")

    def test_of_very_many_the_first_are_shown_and_the_rest_counted(self) -> None:
        text = self.text(Comparison(new=tuple(named(str(number)) for number in range(1_000))))
        assert "and 800 more; --json has them all" in text
        assert len(text.splitlines()) < 420

    def test_hostile_words_are_shown_and_not_obeyed(self) -> None:
        text = self.text(Comparison(new=(named("a", title=HOSTILE, file=HOSTILE),)))
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert text.isprintable() or "\n" in text

    def test_json_has_every_group(self) -> None:
        comparison = Comparison(regressed=(named("a", file="a\udcff.py"),))
        document = json.loads(comparison_json(comparison, record(1), record(2, branch=None)))
        assert {"new", "still_open", "fixed", "regressed", "set_aside", "unknown"} <= document.keys()
        assert document["regressed"][0]["file"] == "a\udcff.py"
        assert (document["from"]["id"], document["to"]["branch"]) == (identifier(1), None)


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
    def test_a_table_and_bars(self) -> None:
        lines = render_trends([WEEKS], **PLAIN).splitlines()
        assert lines[:4] == [
            "WEEK OF     REVIEWS  FINDINGS  FIXED    COST       TIME",
            "2026-03-02        3        40    25%   $2.00  2 min 5 s",
            "2026-03-09        0         0      -   $0.00      0.0 s",
            "2026-03-16        1         1   100%  $0.50+      9.0 s",
        ]
        bars = lines[lines.index("findings (█ open, ░ fixed)") + 1 :]
        assert bars[0] == "2026-03-02  " + "█" * 45 + "░" * 15 + " 40"
        assert bars[1] == "2026-03-09  -"
        assert bars[2].startswith("2026-03-16  ")
        assert bars[2].endswith(" 1")
        assert "cost" in lines

    def test_without_unicode_there_is_none(self) -> None:
        text = render_trends([WEEKS, EXPERTS], width=60, color=False, ascii_only=True)
        assert text.isascii()
        assert "###" in text
        assert "..." in text

    def test_without_colour_there_is_no_escape(self) -> None:
        assert "\x1b" not in render_trends([WEEKS, EXPERTS], **PLAIN)
        assert "\x1b[36m█" in render_trends([WEEKS], **{**PLAIN, "color": True})

    def test_experts_share_their_reviews_so_no_cost_is_told(self) -> None:
        lines = render_trends([EXPERTS], **PLAIN).splitlines()
        assert lines[0].split() == ["EXPERT", "FINDINGS", "FIXED"]
        assert lines[1].endswith("3    33%")

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

    def test_json_tells_what_is_not_known(self) -> None:
        document = json.loads(trends_json([WEEKS, EXPERTS]))
        assert list(document["trends"]) == ["week", "expert"]
        assert document["trends"]["week"][0]["fixed_share"] == 0.25
        assert document["trends"]["week"][1]["fixed_share"] is None
        assert document["trends"]["expert"][0]["cost_usd"] is None


def test_what_was_removed_as_json() -> None:
    removed = Removed(reviews=2, sweeps=1, findings=7, size_bytes=900)
    document = json.loads(removed_json(removed, dry_run=True, freed_bytes=0))
    assert document == {
        "schema_version": 1,
        "dry_run": True,
        "reviews": 2,
        "sweeps": 1,
        "findings": 7,
        "size_bytes": 900,
        "freed_bytes": 0,
    }


def test_counts_are_asked_for_by_severity() -> None:
    assert [SeverityCounts(critical=1, high=2, medium=3, low=4).of(step) for step in Severity] == [1, 2, 3, 4]
