"""The baseline as a table, as JSON of version 1, and what was done to it in words."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from codeloupe.model.baseline import BASELINE_NAME, BaselineEntry, EntryStanding, EntryState
from codeloupe.reports.plain_table import Cell, Column, Sheet, finished
from codeloupe.reports.wording import counted
from codeloupe.system.untrusted import json_document

_COLUMNS = (
    Column("FINGERPRINT"),
    Column("STATE"),
    Column("EXPIRES"),
    Column("OWNER", drops=True),
    Column("FILE"),
    Column("TITLE"),
    Column("REASON", shrinks=True),
)
_SHORT = 12
_WIDEST_TITLE = 40
_WIDEST_OWNER = 20
_MOST_NAMED = 50
_STYLES = {
    EntryState.EXPIRED: "yellow",
    EntryState.UNUSED: "yellow",
    EntryState.USED: "green",
    EntryState.UNSEEN: "dim",
}


def render_list(
    standing: Sequence[EntryStanding], *, review: str | None, width: int, color: bool, ascii_only: bool
) -> str:
    """The entries and how they stand; `review` is the one that tells what is used, None when there was none."""
    sheet = Sheet(width=width, color=color, ascii_only=ascii_only)
    if not standing:
        return finished([f"{BASELINE_NAME} has no entries; `codeloupe baseline add` makes them."])
    table = sheet.table(_COLUMNS, [_row(sheet, each) for each in standing])
    return finished([*table, "", *_closing(sheet, standing, review)])


def _row(sheet: Sheet, standing: EntryStanding) -> list[Cell]:
    entry = standing.entry
    return [
        Cell(entry.fingerprint[:_SHORT], "cyan"),
        Cell(standing.state.value, _STYLES[standing.state]),
        Cell("-" if entry.expires is None else entry.expires.isoformat()),
        Cell(sheet.cut(sheet.clean(entry.owner), _WIDEST_OWNER) or "-"),
        Cell(sheet.clean(entry.file) or "-"),
        Cell(sheet.cut(sheet.clean(entry.title), _WIDEST_TITLE) or "-"),
        Cell(sheet.clean(entry.reason)),
    ]


def _closing(sheet: Sheet, standing: Sequence[EntryStanding], review: str | None) -> list[str]:
    counts = Counter(each.state for each in standing)
    parts = [f"{counts[state]:,} {state.value}" for state in EntryState if counts[state]]
    by = f"by {sheet.clean(review)}" if review is not None else "without a review that shows what is used"
    goes = counts[EntryState.EXPIRED] + counts[EntryState.UNUSED]
    advice = [f"`codeloupe baseline prune` removes {counted(goes, 'entry', 'entries')}."] if goes else []
    return [f"{counted(len(standing), 'entry', 'entries')}: {', '.join(parts)}, {by}.", *advice]


def render_added(added: Sequence[BaselineEntry], renewed: Sequence[BaselineEntry], *, ascii_only: bool) -> str:
    """What came into the baseline, and which entries were there before and say something new now."""
    if not added and not renewed:
        return finished([f"Nothing to add: no finding of that review counts that is not in {BASELINE_NAME}."])
    done = [
        f"Added {counted(len(added), 'entry', 'entries')}" if added else "",
        f"{'renewed' if added else 'Renewed'} {counted(len(renewed), 'entry', 'entries')}" if renewed else "",
    ]
    first = f"{', '.join(part for part in done if part)} in {BASELINE_NAME}:"
    return finished([first, *_named([(entry, "") for entry in (*added, *renewed)], ascii_only=ascii_only)])


def render_pruned(removed: Sequence[EntryStanding], *, dry_run: bool, ascii_only: bool) -> str:
    """What was removed, or would be, and why."""
    if not removed:
        return finished(["Nothing to remove: no entry has expired or is known to be unused."])
    what = counted(len(removed), "entry", "entries")
    first = f"Would remove {what} from {BASELINE_NAME}:" if dry_run else f"Removed {what} from {BASELINE_NAME}:"
    named = [(each.entry, f"{each.state.value:<7}  ") for each in removed]
    return finished([first, *_named(named, ascii_only=ascii_only)])


def _named(entries: Sequence[tuple[BaselineEntry, str]], *, ascii_only: bool) -> list[str]:
    sheet = Sheet(width=_WIDEST_TITLE, ascii_only=ascii_only)
    lines = [
        f"  {entry.fingerprint[:_SHORT]}  {why}{sheet.clean(entry.file) or '-'}"
        f"  {sheet.cut(sheet.clean(entry.title), _WIDEST_TITLE)}"
        for entry, why in entries[:_MOST_NAMED]
    ]
    more = len(entries) - _MOST_NAMED
    return [*lines, f"  and {more:,} more"] if more > 0 else lines


def list_json(standing: Sequence[EntryStanding], *, review: str | None) -> str:
    """The entries and how they stand, for programs."""
    return _document({"file": BASELINE_NAME, "review": review, "entries": [_entry(each) for each in standing]})


def pruned_json(standing: Sequence[EntryStanding], *, dry_run: bool) -> str:
    """What was removed, or would be."""
    return _document({"file": BASELINE_NAME, "dry_run": dry_run, "removed": [_entry(each) for each in standing]})


def _entry(standing: EntryStanding) -> dict[str, Any]:
    entry = standing.entry
    return {
        "fingerprint": entry.fingerprint,
        "file": entry.file,
        "title": entry.title,
        "evidence": entry.evidence,
        "reason": entry.reason,
        "owner": entry.owner or None,
        "expires": None if entry.expires is None else entry.expires.isoformat(),
        "line": entry.line,
        "state": standing.state.value,
    }


def _document(content: dict[str, Any]) -> str:
    text = json.dumps({"schema_version": 1, **content}, indent=2, ensure_ascii=False)
    return json_document(text) + "\n"
