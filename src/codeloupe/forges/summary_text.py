"""The one summary comment of a pull request, and the few words of a status."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from codeloupe.forges.comment_text import LONGEST_BODY, fitted_body
from codeloupe.forges.marker import Mark, Marker, MarkKind
from codeloupe.forges.redacting import redacted, redacted_review
from codeloupe.model.finding import Finding
from codeloupe.model.publication import DismissedFinding, Plan, WithoutComment
from codeloupe.model.review import Review
from codeloupe.reports.markdown_finding import finding_block, finding_row, title_line
from codeloupe.reports.markdown_room import Room, fitted
from codeloupe.reports.markdown_summary import not_reviewed, summary_block
from codeloupe.reports.outcome import outcome_of
from codeloupe.reports.standing import Standing, standing_so
from codeloupe.reports.wording import counted, place_in_words
from codeloupe.system.redaction import redact
from codeloupe.system.untrusted import code_span, markdown_line, terminal

_Item = TypeVar("_Item")

_TABLE_HEAD = "| severity | finding | where |\n|---|---|---|\n"
# Together with the head they stay below what a comment may hold.
_TABLE = Room(items=100, size_bytes=16_000)
_BLOCKS = Room(items=50, size_bytes=20_000)
_DISMISSED = Room(items=30, size_bytes=5_000)
_NOTES = Room(items=15, size_bytes=4_000)
_LISTS = Room(items=20, size_bytes=4_000)
_LONGEST_NOTE = 600
_LONGEST_PLACE = 300
# GitHub cuts a status at 140 characters, and refuses a longer one.
LONGEST_STATUS = 140
_LONGEST_CHECK_TITLE = 200
_EVERYTHING = "the saved review has them all"


def summary_body(plan: Plan, refused: Sequence[WithoutComment], *, marker: Marker) -> str:
    """The whole comment: verdict, coverage, cost, findings, what has no comment, what could not be reviewed."""
    review = redacted_review(plan.review)
    head = plan.pull_request.head
    opened = standing_so(review.findings, Standing.OPEN)
    parts = [
        summary_block(review),
        f"Commit: {code_span(head)}",
        _section(_TABLE_HEAD, opened, _row, room=_TABLE, between="\n"),
        _without_comment((*plan.without_comment, *refused)),
        _section("## Dismissed on this pull request\n\n", plan.dismissed, _dismissed, room=_DISMISSED, between="\n"),
        _section("## Notes\n\n", plan.notes, _note, room=_NOTES, between="\n"),
        not_reviewed(review, _LISTS),
    ]
    text = "\n\n".join(part for part in parts if part)
    return fitted_body(f"{marker.line(Mark(MarkKind.SUMMARY, head))}\n{text}\n")


def check_title(review: Review) -> str:
    """The verdict in one line of plain text."""
    outcome = outcome_of(review)
    return _plain(f"{outcome.word}: {outcome.why}", _LONGEST_CHECK_TITLE)


def check_summary(review: Review) -> str:
    """Verdict, coverage and cost, and what could not be reviewed, as Markdown."""
    clean = redacted_review(review)
    parts = [summary_block(clean), not_reviewed(clean, _LISTS)]
    return "\n\n".join(part for part in parts if part)[: LONGEST_BODY - 1]


def status_description(review: Review) -> str:
    """The verdict in the few characters of a commit status."""
    outcome = outcome_of(review)
    return _plain(f"{outcome.word}: {outcome.why}", LONGEST_STATUS)


def _plain(text: str, longest: int) -> str:
    shown = terminal(redact(text))
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"


def _without_comment(items: Sequence[WithoutComment]) -> str:
    if not items:
        return ""
    head = f"## Without a comment of their own\n\n<details><summary>{_counted(len(items))}</summary>\n\n"
    return _section(head, items, _reasoned_block, room=_BLOCKS, between="\n\n") + "\n\n</details>"


def _counted(count: int) -> str:
    return counted(count, "finding", "findings")


def _row(finding: Finding) -> str:
    return finding_row(redacted(finding))


def _reasoned_block(item: WithoutComment) -> str:
    return (
        f"{finding_block(redacted(item.finding))}\n\nNo comment: {markdown_line(item.reason, longest=_LONGEST_NOTE)}."
    )


def _dismissed(item: DismissedFinding) -> str:
    place = code_span(place_in_words(item.finding)[:_LONGEST_PLACE])
    reason = markdown_line(redact(item.reason), longest=_LONGEST_NOTE)
    return (
        f"- {title_line(redacted(item.finding))} — {place} — by {code_span(item.who)}{f': {reason}' if reason else ''}"
    )


def _note(note: str) -> str:
    return f"- {markdown_line(note, longest=_LONGEST_NOTE)}"


def _section(head: str, items: Iterable[_Item], show: Callable[[_Item], str], *, room: Room, between: str) -> str:
    """Items under a head, as many as there is room for; nothing without any."""
    listed = tuple(items)
    if not listed:
        return ""
    shown = fitted(map(show, listed), room)
    rest = len(listed) - len(shown)
    body = head + between.join(shown)
    return f"{body}\n\nand {rest:,} more; {_EVERYTHING}" if rest else body
