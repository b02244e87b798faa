"""Words and cells that the reports about history share."""

from __future__ import annotations

from datetime import datetime

from codeloupe.model.history import EntryKind, HistoryEntry, SeverityCounts
from codeloupe.model.severity import Severity
from codeloupe.reports.plain_table import Cell, Sheet
from codeloupe.reports.wording import dollars

SEVERITY_STYLES = {Severity.CRITICAL: "red", Severity.HIGH: "red", Severity.MEDIUM: "yellow", Severity.LOW: "blue"}
SHORT_ID = 8
_BLOCKED = 1
_STYLES = {"PASS": "green", "LEAVE": "green", "NEEDS WORK": "yellow", "INCOMPLETE": "yellow", "FIX": "yellow"}


def moment(at: datetime) -> str:
    """A moment in the reader's own time zone: `2026-03-14 09:12`."""
    try:
        local = at.astimezone()
    except OverflowError:  # the first and the last day of the calendar have no other time zone
        local = at
    return local.replace(tzinfo=None).isoformat(" ", "minutes")


def short_ids(ids: list[str]) -> dict[str, str]:
    """Each id cut to as many characters as tell them all apart, at least eight."""
    length = SHORT_ID
    while length < max(map(len, ids), default=0) and len({name[:length] for name in ids}) < len(set(ids)):
        length += 4
    return {name: name[:length] for name in ids}


def counts_in_words(counts: SeverityCounts) -> str:
    """`1 critical, 2 low`; `none` when there is nothing."""
    parts = [f"{counts.of(step):,} {step.label}" for step in Severity if counts.of(step)]
    return ", ".join(parts) or "none"


def cost_in_words(cost_usd: float, unknown_costs: int) -> str:
    """`$0.31`; with a plus when calls did not tell theirs, and `?` when none did."""
    if not unknown_costs:
        return dollars(cost_usd)
    return f"{dollars(cost_usd)}+" if cost_usd else "?"


def outcome(entry: HistoryEntry) -> str:
    """The word for an entry. What was not wholly reviewed is never a pass."""
    if entry.kind is EntryKind.SWEEP:
        return "SWEEP" if entry.complete else "INCOMPLETE"
    if not entry.complete:
        return "INCOMPLETE" if entry.exit_code != _BLOCKED else f"{_word(entry.verdict)}, incomplete"
    return _word(entry.verdict)


def outcome_cell(sheet: Sheet, entry: HistoryEntry) -> Cell:
    """The word in its colour."""
    word = outcome(entry)
    return Cell(sheet.clean(word), "" if word == "SWEEP" else _STYLES.get(word, "red"))


def verdict_style(word: str) -> str:
    """The colour of a verdict."""
    return _STYLES.get(word, "red")


def _word(verdict: str | None) -> str:
    return (verdict or "?").replace("_", " ")
