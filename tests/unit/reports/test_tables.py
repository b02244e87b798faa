"""Tables and lists: within the width, aligned, safe. Their wording is kept in `golden/reports`."""

import json
import os
from datetime import UTC, datetime
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from codeloupe.model.baseline import BaselineEntry, EntryStanding, EntryState
from codeloupe.model.change import FileChange, FileStatus
from codeloupe.model.history import Comparison, HistoryEntry, Listing, SweepOutline, TrendKey, TrendRow, Trends
from codeloupe.model.review import Preview, PreviewFile
from codeloupe.reports import Layout, baseline_text, history, render_preview
from codeloupe.reports.page import Page, cells
from codeloupe.store.summaries import entry_of_review, entry_of_sweep
from tests.rows import each
from tests.unit.reports.examples import review
from tests.unit.store.history_samples import any_of, commit_review, identifier, named, record, sweep_record

PLAIN: dict[str, Any] = {"width": 100, "color": False, "ascii_only": False}
HOSTILE = "\x1b[31m\u202e::error::\n##[group]\udcff"


def lines(*rows: tuple[str, str, str], width: int = 40, **look: Any) -> list[str]:
    page = Page(width=width, **look)
    table = page.table(
        ["ID", "TEXT", "COST"], [[page.line(text) for text in row] for row in rows], right="COST", shrinks="TEXT"
    )
    return [line.plain.rstrip() for line in table]


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


@given(text=st.text(st.characters(exclude_categories=()), max_size=60), width=st.integers(12, 60))
def test_any_text_is_one_safe_line_within_its_room(text: str, width: int) -> None:
    page = Page(width=width)
    clean = page.line(text)
    assert "\n" not in clean
    assert "\x1b" not in clean
    assert cells(page.cut(clean, width)) <= width
    assert Page(width=width, ascii_only=True).line(text).isascii()


def test_a_table_that_is_still_too_wide_leaves_columns_out_in_their_order() -> None:
    columns = ["ONE", "TWO", "THREE", "FOUR"]
    rows = [["1" * 10, "2" * 10, "3" * 20, "4" * 10]]
    tables = {
        width: Page(width=width).table(columns, rows, shrinks="THREE", drops="TWO FOUR")
        for width in (60, 44, 40, 25, 5)
    }
    headings = {width: table[0].plain.split() for width, table in tables.items()}
    assert headings[60] == headings[44] == ["ONE", "TWO", "THREE", "FOUR"]
    assert headings[40] == ["ONE", "THREE", "FOUR"]
    assert headings[25] == headings[5] == ["ONE", "THREE"]


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
        assert history.outcome(replace(entry_of_review(record(1)), **changes)) == word

    def test_a_sweep_with_a_commit_that_could_not_be_reviewed_is_incomplete(self) -> None:
        failed = commit_review(1, review=None, verdict=None, failure="timeout")
        assert history.outcome(entry_of_sweep(sweep_record(9, failed))) == "INCOMPLETE"
        assert history.outcome(entry_of_sweep(sweep_record(9, commit_review(1), finished=False))) == "INCOMPLETE"

    def test_ids_are_as_long_as_tells_them_apart(self) -> None:
        assert history.short_ids([identifier(1), identifier(2)]) == {
            identifier(1): "00000001",
            identifier(2): "00000002",
        }
        alike = ["0" * 31 + "a", "0" * 31 + "b"]
        assert history.short_ids(alike) == {name: name for name in alike}
        assert history.short_ids([]) == {}

    @settings(suppress_health_check=[HealthCheck.too_slow], max_examples=25)
    @given(entry=any_of(HistoryEntry))
    def test_any_entry_is_one_safe_line_and_valid_json(self, entry: HistoryEntry) -> None:
        text = history.render_list(Listing((entry,)), **PLAIN)
        assert text.count("\n") == 2
        assert "\x1b" not in text
        (row,) = json.loads(history.list_json(Listing((entry,))))["entries"]
        assert row["id"] == entry.entry_id

    def test_costs_that_are_not_known_are_told(self) -> None:
        assert history.cost_text(0.5, 0) == "$0.50"
        assert history.cost_text(0.5, 2) == "$0.50+"
        assert history.cost_text(0.0, 2) == "?"
        assert history.cost_text(0.0, 0) == "$0.00"

    def test_the_first_day_of_the_calendar_is_a_moment_too(self) -> None:
        assert history.moment(datetime.min.replace(tzinfo=UTC)).startswith("0001-01-01")


def test_hostile_words_are_shown_and_not_obeyed() -> None:
    entry = replace(entry_of_review(record(1)), verdict=HOSTILE, entry_id=HOSTILE, repository_label=HOSTILE)
    listed = history.render_list(Listing((entry,), (HOSTILE,)), **PLAIN, with_repository=True)
    assert listed.count("\n") == 3
    hostile = named("a", title=HOSTILE, file=HOSTILE)
    compared = history.render_comparison(Comparison(new=(hostile,)), record(1), record(2, problems=(HOSTILE,)), **PLAIN)
    failed = commit_review(2, review=None, verdict=None, score=None, failure=HOSTILE)
    swept = history.render_outline(SweepOutline(sweep_record(9, failed), (None,)), **PLAIN)
    accepted = BaselineEntry(fingerprint="ab" * 16, file=HOSTILE, title=HOSTILE, reason=HOSTILE, owner=HOSTILE)
    standing = [EntryStanding(accepted, EntryState.USED)]
    baseline = baseline_text.render_list(standing, review=HOSTILE, **PLAIN)
    pruned = baseline_text.render_pruned(standing, dry_run=False, ascii_only=False)
    file = PreviewFile(FileChange(HOSTILE, HOSTILE, FileStatus.MODIFIED))
    preview = render_preview(Preview(scope=review().scope, files=(file,), units=1), "text", Layout(width=40))
    assert "--effort" not in preview
    text = Page().printed(["::error::x", "##[error]x"]) + listed + compared + swept + baseline + pruned + preview
    assert not {"\x1b", "\u202e", "\udcff"} & set(text)
    assert "##[" not in text
    assert not [line for line in text.split("\n") if line.lstrip().startswith("::")]
    assert json.loads(baseline_text.list_json(standing, review=None))["entries"][0]["title"] == HOSTILE
    odd = Preview(
        scope=review().scope, files=(PreviewFile(FileChange(None, os.fsdecode(b"\xff.py"), FileStatus.ADDED)),)
    )
    (shown,) = json.loads(render_preview(odd, "json", Layout()).encode())["files"]
    assert os.fsencode(shown["new_path"]) == b"\xff.py"


def test_a_preview_of_no_change_names_other_scopes() -> None:
    text = render_preview(Preview(scope=review().scope, files=()), "text", Layout())
    assert text.startswith("Preview: topic against main\n\nNo changes to review. Nothing was run or spent.\n")
    assert "codeloupe review --commit HEAD\n" in text


WEEK = TrendRow(key="2026-03-02", findings=40, fixed=10, reviews=3, cost_usd=2.0, duration_seconds=125.0)


class TestTrends:
    @each("width", [20, 40, 80, 300])
    def test_bars_fit_their_page(self, width: int) -> None:
        text = history.render_trends([Trends(TrendKey.WEEK, (WEEK,))], width=width, color=False, ascii_only=False)
        assert max(cells(line) for line in text.splitlines() if "█" in line) <= max(width, 30)

    @each(("findings", "fixed"), [(1, 0), (1, 1), (1, 1000), (1000, 1), (3, 2), (10**9, 5)])
    def test_what_is_more_than_nothing_has_a_bar(self, findings: int, fixed: int) -> None:
        row = TrendRow(key="x", findings=findings, fixed=min(fixed, findings))
        large = TrendRow(key="y", findings=10**9, fixed=0)
        for ascii_only in (False, True):
            text = history.render_trends(
                [Trends(TrendKey.EXPERT, (row, large))], width=80, color=False, ascii_only=ascii_only
            )
            _, bar = [line for line in text.splitlines() if line.startswith("x  ")]
            assert bar.split()[1][0] in "█▏▎▍▌▋▊▉░#."
            assert bar.endswith(f" {findings:,}")

    def test_a_cost_without_end_does_not_end_the_plot(self) -> None:
        rows = (replace(WEEK, cost_usd=float("inf")), replace(WEEK, cost_usd=1.0))
        assert "cost" in history.render_trends([Trends(TrendKey.WEEK, rows)], **PLAIN).splitlines()
        (first, _) = json.loads(history.trends_json([Trends(TrendKey.WEEK, rows)]))["trends"]["week"]
        assert first["cost_usd"] is None
