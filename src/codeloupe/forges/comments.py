"""What stands in a comment on a pull request. All that a reviewer or a repository wrote passes the sanitiser."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.forges.marker import Mark, Marker, MarkKind, key_of, word_of
from codeloupe.model.finding import Finding
from codeloupe.model.publication import AnswerKind, ChangedFile, DismissedFinding, Opinion, Plan, WithoutComment
from codeloupe.model.review import Coverage, FailedUnit, Review, ReviewError
from codeloupe.reports.markdown import (
    SEVERITY_SIGNS,
    TABLE_HEAD,
    Room,
    finding_block,
    finding_row,
    fix_block,
    labelled,
    not_reviewed,
    section,
    summary_block,
    title_line,
)
from codeloupe.reports.replacement import fenced, fix_of
from codeloupe.reports.wording import Standing, counted, origin_of, outcome_of, place_in_words, standing_so
from codeloupe.system.redaction import redact
from codeloupe.system.untrusted import code_span, markdown_line, markdown_prose, terminal

_HUNK = re.compile(r"@@ -[0-9]{1,9}(?:,([0-9]{1,9}))? \+([0-9]{1,9})(?:,([0-9]{1,9}))? @@")


class Place(Struct, frozen=True):
    """Lines `first` to `last` of a file.

    `takes_edit` tells that these are all lines of the finding, and that no deleted line stands between them: GitHub
    shows an edit there, and then refuses to apply it.
    """

    path: str
    first: int
    last: int
    takes_edit: bool


class Nowhere(Struct, frozen=True):
    """No place, and why."""

    reason: str


class Hunk(Struct, frozen=True):
    """The lines of one hunk on the new side, and those of them right above which lines are deleted, in order."""

    first: int
    last: int
    below_deleted: tuple[int, ...]


class DiffPlaces:
    """The lines that the diff of a pull request shows on its new side."""

    def __init__(self, files: Sequence[ChangedFile]) -> None:
        self._hunks: Mapping[str, tuple[Hunk, ...] | None] = {
            file.path: None if file.patch is None else hunks_of(file.patch) for file in files
        }

    def __contains__(self, path: object) -> bool:
        return path in self._hunks

    def find(self, finding: Finding) -> Place | Nowhere:
        """Where the comment can stand. Of a finding that reaches over a hunk's edge, the part within the hunk."""
        if not finding.anchored or finding.first_line < 1:
            return Nowhere("it has no place in the code")
        if finding.file not in self._hunks:
            return Nowhere("its file is not in the pull request's diff")
        hunks = self._hunks[finding.file]
        if hunks is None:
            return Nowhere("GitHub shows no diff of its file")
        last_line = max(finding.last_line, finding.first_line)
        at = bisect_left(hunks, finding.first_line, key=lambda hunk: hunk.last)
        if at == len(hunks) or hunks[at].first > last_line:
            return Nowhere("its lines are not in the pull request's diff")
        first, last = max(hunks[at].first, finding.first_line), min(hunks[at].last, last_line)
        is_whole = (first, last) == (finding.first_line, last_line)
        cuts = hunks[at].below_deleted
        is_cut = bisect_right(cuts, first) < bisect_right(cuts, last)
        return Place(finding.file, first, last, takes_edit=is_whole and not is_cut)


def hunks_of(patch: str) -> tuple[Hunk, ...]:
    """The hunks that have lines on the new side, in order. What is no hunk's first line is not looked at.

    Lines are counted by the header, so a line of code that looks like one does no harm.
    """
    hunks: list[Hunk] = []
    rows = iter(patch.split("\n"))
    for row in rows:
        header = _HUNK.match(row)
        if header is None:
            continue
        first, count = int(header[2]), int(header[3] or 1)
        cuts = _below_deleted(rows, old=int(header[1] or 1), new=count, first=first)
        if count:
            hunks.append(Hunk(first, first + count - 1, cuts))
    return tuple(hunks)


def _below_deleted(rows: Iterator[str], *, old: int, new: int, first: int) -> tuple[int, ...]:
    """Read the rows of one hunk, and tell which lines stand right below deleted ones."""
    cuts: list[int] = []
    line, after_deleted = first, False
    while old > 0 or new > 0:
        row = next(rows, None)
        if row is None:
            break
        sign = row[:1] or " "
        old -= sign in "- "
        if sign in "+ ":
            if after_deleted:
                cuts.append(line)
            new, line = new - 1, line + 1
        if sign in "-+ ":
            after_deleted = sign == "-"
    return tuple(cuts)


# More than any page shows of a text, and more than an edit may have.
_LONGEST_TEXT = 50_000
_LONGEST_LINE = 1_000


def redacted(finding: Finding) -> Finding:
    """The finding without secrets. What was masked in a fix, or cut off it, keeps it from being an edit."""
    suppression = finding.suppression
    return replace(
        finding,
        title=_text(finding.title),
        body=_text(finding.body),
        evidence=_text(finding.evidence),
        suggestion=None if finding.suggestion is None else _text(finding.suggestion),
        replacement=None if finding.replacement is None else _text(finding.replacement),
        verification=_text(finding.verification),
        suppression=None if suppression is None else replace(suppression, reason=_line(suppression.reason)),
    )


def redacted_review(review: Review) -> Review:
    """The review without secrets in what it says beside its findings, which stay as they are."""
    coverage = review.coverage
    return replace(
        review,
        scope=replace(review.scope, description=_line(review.scope.description)),
        reviewer=replace(review.reviewer, why=_line(review.reviewer.why)),
        summary=_line(review.summary),
        errors=tuple(ReviewError(error.kind, _line(error.message)) for error in review.errors),
        coverage=Coverage(
            files_total=coverage.files_total,
            files_reviewed=coverage.files_reviewed,
            skipped=tuple(replace(skip, detail=_line(skip.detail)) for skip in coverage.skipped),
            units_total=coverage.units_total,
            units_failed=tuple(
                FailedUnit(_line(failed.unit), failed.files, _line(failed.reason)) for failed in coverage.units_failed
            ),
        ),
    )


def _text(text: str) -> str:
    return redact(text[:_LONGEST_TEXT])


def _line(text: str) -> str:
    return redact(text[:_LONGEST_LINE])


# GitHub counts characters.
LONGEST_BODY = 65_536
_CUT = "\n\n… cut here: GitHub takes no more than 65,536 characters; the saved review has the rest."
_LONGEST_PROSE = 6_000
_LONGEST_NOTE = 600
_SHORT_COMMIT = 12
_HOW_TO_DISMISS = "<sub>To set it aside: reply <code>dismiss: why</code>, or react with 👎.</sub>"


def finding_body(found: Finding, place: Place, *, review: Review, marker: Marker) -> str:
    """A finding as a comment on its lines, without secrets, with its fix as an edit where it is one."""
    finding = redacted(found)
    severity = f"{SEVERITY_SIGNS[finding.severity]} **{finding.severity.label} P{finding.severity.priority}**"
    origin = " · ".join(markdown_line(part, longest=_LONGEST_NOTE) for part in origin_of(finding))
    parts = [
        marker.line(Mark(MarkKind.FINDING, key_of(found), word_of(review.reviewer.type))),
        f"{severity} · {title_line(finding)}",
        markdown_prose(finding.body, longest=_LONGEST_PROSE),
        _fix(finding, place),
        labelled("Verification", finding.verification.strip(": \n")),
        origin,
        _HOW_TO_DISMISS,
    ]
    return fitted_body("\n\n".join(part for part in parts if part))


def answer_body(kind: AnswerKind, key: str, *, head: str, why: str, marker: Marker) -> str:
    """What is said in a thread of ours; `why` is plain text."""
    words = {
        AnswerKind.GONE: "No longer found",
        AnswerKind.BACK: "Found again",
        AnswerKind.ASIDE: "No longer counts",
    }[kind]
    reason = f": {markdown_line(redact(why), longest=_LONGEST_NOTE)}" if why else "."
    return f"{marker.line(Mark(MarkKind(kind.value), key))}\n{words} at {code_span(head[:_SHORT_COMMIT])}{reason}"


def review_body(opinion: Opinion, comments: int, *, head: str, marker: Marker) -> str:
    """What stands above the new comments of one run."""
    new = counted(comments, "new finding", "new findings") if comments else ""
    said = {
        Opinion.COMMENT: "",
        Opinion.APPROVE: "nothing blocks this change",
        Opinion.REQUEST_CHANGES: "findings block this change",
    }[opinion]
    told = "; ".join(part for part in (said, new) if part) or "reviewed"
    words = f"{told[:1].upper()}{told[1:]} at {code_span(head[:_SHORT_COMMIT])}. The summary comment has the details."
    return f"{marker.line(Mark(MarkKind.REVIEW, head))}\n**codeloupe**: {words}"


def fitted_body(body: str) -> str:
    """The body, cut to what GitHub takes, with words about it."""
    if len(body) <= LONGEST_BODY:
        return body
    kept = body[: LONGEST_BODY - len(_CUT) - 10]
    # An open block of code would swallow the words; whichever fence it has, this closes it.
    fences = re.findall(r"(?m)^ {0,3}(`{3,})", kept)
    closing = f"\n{fences[-1]}" if len(fences) % 2 and len(fences[-1]) < 8 else ""
    return f"{kept}{closing}{_CUT}"


def _fix(finding: Finding, place: Place) -> str:
    fix = fix_of(finding)
    edit = fix.edit if place.takes_edit else None
    if edit is None or (edit.line_start, edit.line_end) != (place.first, place.last):
        return fix_block(finding)
    runs = re.findall(r"`+", edit.text)
    fence = "`" * max(3, max(map(len, runs), default=0) + 1)
    block = f"{fence}suggestion\n{edit.text}\n{fence}"
    return "\n\n".join(part for part in (labelled("Fix", fenced(fix.words)), block) if part)


# Together with the head they stay below what a comment may hold.
_TABLE = Room(items=100, size_bytes=16_000)
_BLOCKS = Room(items=50, size_bytes=20_000)
_DISMISSED = Room(items=30, size_bytes=5_000)
_NOTES = Room(items=15, size_bytes=4_000)
_LISTS = Room(items=20, size_bytes=4_000)
_LONGEST_PLACE = 300
# GitHub cuts a status at 140 characters, and refuses a longer one.
LONGEST_STATUS = 140
_LONGEST_CHECK_TITLE = 200
_SAVED = "the saved review"


def summary_body(plan: Plan, refused: Sequence[WithoutComment], *, marker: Marker) -> str:
    """The whole comment: verdict, coverage, cost, findings, what has no comment, what could not be reviewed."""
    review = redacted_review(plan.review)
    head = plan.pull_request.head
    opened = standing_so(review.findings, Standing.OPEN)
    parts = [
        summary_block(review),
        f"Commit: {code_span(head)}",
        section(TABLE_HEAD, opened, _row, room=_TABLE, whole=_SAVED),
        _without_comment((*plan.without_comment, *refused)),
        section("## Dismissed on this pull request\n\n", plan.dismissed, _dismissed, room=_DISMISSED, whole=_SAVED),
        section("## Notes\n\n", plan.notes, _note, room=_NOTES, whole=_SAVED),
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
    return section(head, items, _reasoned_block, room=_BLOCKS, between="\n\n", whole=_SAVED) + "\n\n</details>"


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
