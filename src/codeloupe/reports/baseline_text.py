"""The baseline as a table, as JSON of version 1, and what was done to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Unpack

from codeloupe.model.baseline import BASELINE_NAME, BaselineEntry, EntryStanding, EntryState
from codeloupe.reports import Look
from codeloupe.reports.json_v1 import fields_of, json_text
from codeloupe.reports.page import Page
from codeloupe.reports.wording import counted

_COLUMNS = ("FINGERPRINT", "STATE", "EXPIRES", "OWNER", "FILE", "TITLE", "REASON")
_SHORT = 12
_WIDEST_TITLE = 40
_MOST_NAMED = 50
_STYLES = {"expired": "bold yellow", "unused": "bold yellow", "used": "bold green", "unseen": "dim"}


def render_list(standing: Sequence[EntryStanding], *, review: str | None, **look: Unpack[Look]) -> str:
    """The entries and their states; `review` is the one that tells what is used, None when there was none."""
    page = Page(**look)
    if not standing:
        return page.printed([f"{BASELINE_NAME} has no entries; `codeloupe baseline add` adds some."])
    rows = [
        (
            (each.entry.fingerprint[:_SHORT], "cyan"),
            (each.state.value, _STYLES[each.state.value]),
            "-" if each.entry.expires is None else each.entry.expires.isoformat(),
            page.cut(page.line(each.entry.owner), 20) or "-",
            page.line(each.entry.file) or "-",
            page.cut(page.line(each.entry.title), _WIDEST_TITLE) or "-",
            page.line(each.entry.reason),
        )
        for each in standing
    ]
    counts = Counter(each.state for each in standing)
    parts = ", ".join(f"{counts[state]:,} {state.value}" for state in EntryState if counts[state])
    by = f"by {page.line(review)}" if review is not None else "without a review that shows what is used"
    closing = [f"{_entries(len(standing))}: {parts}, {by}."]
    if goes := counts[EntryState.EXPIRED] + counts[EntryState.UNUSED]:
        closing.append(f"`codeloupe baseline prune` removes {_entries(goes)}.")
    return page.printed([*page.table(_COLUMNS, rows, shrinks="REASON", drops="OWNER"), "", *closing])


def _entries(count: int) -> str:
    return counted(count, "entry", "entries")


def render_added(added: Sequence[BaselineEntry], renewed: Sequence[BaselineEntry], *, ascii_only: bool) -> str:
    """What came into the baseline, and which entries were there before and say something new now."""
    done = [
        f"Added {_entries(len(added))}" if added else "",
        f"{'renewed' if added else 'Renewed'} {_entries(len(renewed))}" if renewed else "",
    ]
    first = f"{', '.join(filter(None, done))} in {BASELINE_NAME}:"
    if not added and not renewed:
        first = f"Nothing to add: every finding of that review that counts is already in {BASELINE_NAME}."
    return _done(first, [(entry, "") for entry in (*added, *renewed)], ascii_only=ascii_only)


def render_pruned(removed: Sequence[EntryStanding], *, dry_run: bool, ascii_only: bool) -> str:
    """What was removed, or would be, and why."""
    first = f"{'Would remove' if dry_run else 'Removed'} {_entries(len(removed))} from {BASELINE_NAME}:"
    if not removed:
        first = "Nothing to remove: no entry has expired or is known to be unused."
    return _done(first, [(each.entry, f"{each.state.value:<7}  ") for each in removed], ascii_only=ascii_only)


def _done(first: str, entries: Sequence[tuple[BaselineEntry, str]], *, ascii_only: bool) -> str:
    page = Page(ascii_only=ascii_only)
    lines = [
        f"  {entry.fingerprint[:_SHORT]}  {why}{page.line(entry.file) or '-'}"
        f"  {page.cut(page.line(entry.title), _WIDEST_TITLE)}"
        for entry, why in entries[:_MOST_NAMED]
    ]
    if len(entries) > _MOST_NAMED:
        lines.append(f"  and {len(entries) - _MOST_NAMED:,} more")
    return page.printed([first, *lines])


def list_json(standing: Sequence[EntryStanding], *, review: str | None) -> str:
    """The entries and their states, for programs."""
    entries = [_entry(each) for each in standing]
    return json_text({"schema_version": 1, "file": BASELINE_NAME, "review": review, "entries": entries})


def pruned_json(standing: Sequence[EntryStanding], *, dry_run: bool) -> str:
    """What was removed, or would be."""
    removed = [_entry(each) for each in standing]
    return json_text({"schema_version": 1, "file": BASELINE_NAME, "dry_run": dry_run, "removed": removed})


def _entry(standing: EntryStanding) -> dict[str, Any]:
    known = fields_of(standing.entry, "fingerprint file title evidence reason owner expires line")
    return {**known, "owner": standing.entry.owner or None, "state": standing.state.value}
