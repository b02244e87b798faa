"""What a comment on a pull request says, and where. All that a reviewer or a repository wrote passes the sanitiser."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from codeloupe.errors import DiffSyntaxError
from codeloupe.forges.threads import Mark, Marker, MarkKind, key_of, word_of
from codeloupe.git.diff import parse_diff
from codeloupe.model import change
from codeloupe.model.finding import Finding
from codeloupe.model.publication import AnswerKind, DismissedFinding, Opinion, Plan, WithoutComment
from codeloupe.model.review import Review
from codeloupe.reports import markdown, wording
from codeloupe.reports.replacement import fenced, fix_of
from codeloupe.reports.wording import counted, outcome_of, place_text
from codeloupe.system.redaction import redact
from codeloupe.system.untrusted import code_span, markdown_line, markdown_prose, terminal

# What GitHub takes, in characters; no other forge takes less.
LONGEST_BODY = 65_536
_CUT = "\n\n… truncated: a comment has at most 65,536 characters. The saved review is complete."
_HOW_TO_DISMISS = "<sub>To dismiss it, reply <code>dismiss: why</code> or react with 👎.</sub>"
# Together with the head the sections stay below what a comment may hold.
_LISTS = (20, 4_000)
_ANSWERS = {
    AnswerKind.GONE: "No longer found",
    AnswerKind.BACK: "Found again",
    AnswerKind.ASIDE: "No longer counts",
}
_OPINIONS = {
    Opinion.COMMENT: "",
    Opinion.APPROVE: "nothing blocks this change",
    Opinion.REQUEST_CHANGES: "findings block this change",
}


class Place(Struct, frozen=True):
    """Lines `first` to `last` of a file.

    `takes_edit`: these are all lines of the finding, and no deleted line is between them, where an edit is shown and
    then cannot be applied.
    """

    path: str
    first: int
    last: int
    takes_edit: bool


class Hunk(Struct, frozen=True):
    """The lines of one hunk on the new side, and those of them right above which lines are deleted, in order."""

    first: int
    last: int
    below_deleted: tuple[int, ...]


class DiffPlaces:
    """The lines that the diff of a pull request shows on its new side."""

    def __init__(self, files: Mapping[str, str | None], *, forge: str) -> None:
        self._hunks = {path: None if patch is None else hunks_of(patch) for path, patch in files.items()}
        self._forge = forge

    def __contains__(self, path: object) -> bool:
        return path in self._hunks

    def find(self, finding: Finding) -> Place | str:
        """Where the comment can be, or why nowhere. Of a finding over a hunk's edge, the part within the hunk."""
        if not finding.anchored or finding.first_line < 1:
            return "it has no place in the code"
        if finding.file not in self._hunks:
            return "its file is not in the pull request's diff"
        hunks = self._hunks[finding.file]
        if hunks is None:
            return f"{self._forge} does not show the diff of its file"
        last_line = max(finding.last_line, finding.first_line)
        at = bisect_left(hunks, finding.first_line, key=lambda hunk: hunk.last)
        if at == len(hunks) or hunks[at].first > last_line:
            return "its lines are not in the pull request's diff"
        first, last = max(hunks[at].first, finding.first_line), min(hunks[at].last, last_line)
        is_whole = (first, last) == (finding.first_line, last_line)
        cuts = hunks[at].below_deleted
        is_cut = bisect_right(cuts, first) < bisect_right(cuts, last)
        return Place(finding.file, first, last, takes_edit=is_whole and not is_cut)


def hunks_of(patch: str) -> tuple[Hunk, ...]:
    """The hunks that have lines on the new side, in order; none of what is no whole patch."""
    try:
        [changed] = parse_diff(b"--- a\n+++ a\n" + patch.encode("utf-8", "surrogatepass") + b"\n")
    except DiffSyntaxError:
        return ()
    return tuple(
        Hunk(hunk.new_start, hunk.new_start + hunk.new_lines - 1, tuple(_below_deleted(hunk)))
        for hunk in changed.hunks
        if hunk.new_lines
    )


def _below_deleted(hunk: change.Hunk) -> Iterator[int]:
    for above, line in pairwise(hunk.lines()):
        if above.kind == "deleted" and line.new_number is not None:
            yield line.new_number


def _redacted(value: Any, longest: int = 50_000) -> Any:
    """A record without secrets, or more characters, in its texts; a fix that was masked or cut is then no edit."""
    if isinstance(value, Struct):
        return replace(value, **{name: _redacted(part, longest) for name, part in asdict(value).items()})
    if isinstance(value, tuple):
        return tuple(_redacted(part, longest) for part in value)
    return redact(value[:longest]) if type(value) is str else value


def _redacted_review(review: Review) -> Review:
    """The review without secrets in what it says beside its findings, which stay as they are."""
    clean: Review = _redacted(replace(review, findings=(), hidden=()), 1_000)
    return replace(clean, findings=review.findings, hidden=review.hidden)


def finding_body(found: Finding, place: Place, *, review: Review, marker: Marker) -> str:
    """A finding as a comment on its lines, without secrets, with its fix as an edit where it is one."""
    finding: Finding = _redacted(found)
    severity, sign = finding.severity, markdown.SEVERITY_SIGNS[finding.severity]
    fix = fix_of(finding)
    advice = markdown.fix_block(finding)
    if (edit := fix.edit) and place.takes_edit and (edit.line_start, edit.line_end) == (place.first, place.last):
        fence = "`" * max(3, 1 + max(map(len, re.findall(r"`+", edit.text)), default=0))
        words = markdown.labelled("Fix", fenced(fix.words))
        advice = "\n\n".join(filter(None, (words, f"{fence}suggestion\n{edit.text}\n{fence}")))
    parts = [
        marker.line(Mark(MarkKind.FINDING, key_of(found), word_of(review.reviewer.type))),
        f"{sign} **{severity.label} P{severity.priority}** · {markdown.title_line(finding)}",
        markdown_prose(finding.body, longest=6_000),
        advice,
        markdown.proof_block(finding),
        markdown.origin_line(finding),
        _HOW_TO_DISMISS,
    ]
    return fitted_body("\n\n".join(filter(None, parts)))


def answer_body(kind: AnswerKind, key: str, *, head: str, why: str, marker: Marker) -> str:
    """Return the reply for a thread of ours; `why` is plain text."""
    reason = f": {_note(redact(why))}" if why else "."
    return f"{marker.line(Mark(MarkKind(kind.value), key))}\n{_ANSWERS[kind]} at {code_span(head[:12])}{reason}"


def review_body(opinion: Opinion, comments: int, *, head: str, marker: Marker) -> str:
    """What is above the new comments of one run."""
    new = counted(comments, "new finding", "new findings") if comments else ""
    words = "; ".join(filter(None, (_OPINIONS[opinion], new))) or "reviewed"
    mark = marker.line(Mark(MarkKind.REVIEW, head))
    sentence = f"{words[:1].upper()}{words[1:]} at {code_span(head[:12])}. The summary comment has the details."
    return f"{mark}\n**codeloupe**: {sentence}"


def fitted_body(body: str) -> str:
    """Return the body, truncated to the length of a comment, with a note about it."""
    if len(body) <= LONGEST_BODY:
        return body
    kept = body[: LONGEST_BODY - len(_CUT) - 10]
    # An open block of code would swallow the words; whichever fence it has, this closes it.
    fences = re.findall(r"(?m)^ {0,3}(`{3,})", kept)
    closing = f"\n{fences[-1]}" if len(fences) % 2 and len(fences[-1]) < 8 else ""
    return f"{kept}{closing}{_CUT}"


def summary_body(plan: Plan, refused: Sequence[WithoutComment], *, marker: Marker) -> str:
    """The whole comment: verdict, coverage, cost, findings, what has no comment, what could not be reviewed."""
    review, head = _redacted_review(plan.review), plan.pull_request.head
    listed = partial(markdown.section, between="\n", whole="the saved review")
    opened = wording.worst_first(finding for finding in review.findings if finding.is_open)
    items = (*plan.without_comment, *refused)
    summary = f"<details><summary>{counted(len(items), 'finding', 'findings')}</summary>"
    own = f"## Without a comment of their own\n\n{summary}\n\n"
    without = listed(own, items, _without_comment, (50, 20_000), between="\n\n")
    parts = [
        markdown.summary_block(review),
        f"Commit: {code_span(head)}",
        listed(markdown.TABLE_HEAD, opened, lambda finding: markdown.finding_row(_redacted(finding)), (100, 16_000)),
        f"{without}\n\n</details>" if items else "",
        listed("## Dismissed on this pull request\n\n", plan.dismissed, _dismissed, (30, 5_000)),
        listed("## Notes\n\n", plan.notes, lambda note: f"- {_note(note)}", (15, 4_000)),
        markdown.not_reviewed(review, _LISTS),
    ]
    text = "\n\n".join(filter(None, parts))
    return fitted_body(f"{marker.line(Mark(MarkKind.SUMMARY, head))}\n{text}\n")


def _note(text: str) -> str:
    return markdown_line(text, longest=600)


def _without_comment(item: WithoutComment) -> str:
    return f"{markdown.finding_block(_redacted(item.finding))}\n\nNo comment: {_note(item.reason)}."


def _dismissed(item: DismissedFinding) -> str:
    place, reason = code_span(place_text(item.finding)[:300]), _note(redact(item.reason))
    by = f"by {code_span(item.who)}{f': {reason}' if reason else ''}"
    return f"- {markdown.title_line(_redacted(item.finding))} — {place} — {by}"


def verdict_line(review: Review, longest: int) -> str:
    """The verdict in one line of plain text, of so many characters at most."""
    outcome = outcome_of(review)
    shown = terminal(redact(f"{outcome.word}: {outcome.why}"))
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"


def check_summary(review: Review) -> str:
    """Verdict, coverage and cost, and what could not be reviewed, as Markdown."""
    clean = _redacted_review(review)
    return "\n\n".join(filter(None, (markdown.summary_block(clean), markdown.not_reviewed(clean, _LISTS))))[
        : LONGEST_BODY - 1
    ]
