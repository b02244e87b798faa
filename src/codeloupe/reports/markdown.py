"""The review as Markdown: verdict, coverage, a table of findings, then each finding with its code.

For a file, a job summary or a comment. Everything a reviewer or a repository wrote passes the sanitiser for Markdown,
and a page stays below what GitHub takes: a megabyte for a job summary, 65,536 characters for a comment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from codeloupe.model.finding import Finding
from codeloupe.model.review import Review
from codeloupe.reports.markdown_finding import finding_block, finding_row, short_item
from codeloupe.reports.markdown_room import Room, fitted
from codeloupe.reports.markdown_summary import not_reviewed, summary_block
from codeloupe.reports.standing import Standing, standing_so

_TABLE_HEAD = "| severity | finding | where |\n|---|---|---|\n"
_TABLE = Room(items=200, size_bytes=80_000)
_BLOCKS = Room(items=200, size_bytes=500_000)
_UNPLACED = Room(items=50, size_bytes=80_000)
_CLOSED = Room(items=100, size_bytes=40_000)
_LISTS = Room(items=50, size_bytes=30_000)


def render_markdown(review: Review) -> str:
    """The whole report. What is more than a page can hold is counted, and said to be left out."""
    opened = standing_so(review.findings, Standing.OPEN)
    unplaced = standing_so(review.findings, Standing.UNPLACED)
    note = "\n\nThese could not be placed in the code, so no line is known."
    parts = [
        summary_block(review),
        _table(opened, _TABLE),
        not_reviewed(review, _LISTS),
        _section("## Findings\n\n", opened, finding_block, room=_BLOCKS, between="\n\n"),
        _section(f"## Without a place{note}\n\n", unplaced, finding_block, room=_UNPLACED, between="\n\n"),
        _closed("Refuted", standing_so(review.findings, Standing.REFUTED)),
        _closed("Set aside", standing_so(review.findings, Standing.SET_ASIDE)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(findings: Sequence[Finding], room: Room) -> str:
    return _section(_TABLE_HEAD, findings, finding_row, room=room, between="\n")


def _closed(title: str, findings: Sequence[Finding]) -> str:
    return _section(f"## {title}\n\nThese do not count.\n\n", findings, short_item, room=_CLOSED, between="\n")


def _section(
    head: str, findings: Sequence[Finding], show: Callable[[Finding], str], *, room: Room, between: str
) -> str:
    """Findings under a head, as many as there is room for; nothing without any."""
    if not findings:
        return ""
    shown = fitted(map(show, findings), room)
    rest = len(findings) - len(shown)
    body = head + between.join(shown)
    return f"{body}\n\nand {rest:,} more; the JSON report has them all" if rest else body
