"""What stands in a comment on a pull request. All that a reviewer or a repository wrote passes the sanitiser."""

from __future__ import annotations

import re

from codeloupe.forges.diff_places import Place
from codeloupe.forges.marker import Mark, Marker, MarkKind, key_of, word_of
from codeloupe.forges.redacting import redacted
from codeloupe.model.finding import Finding
from codeloupe.model.publication import AnswerKind, Opinion
from codeloupe.model.review import Review
from codeloupe.reports.markdown_finding import SEVERITY_SIGNS, fix_block, labelled, title_line
from codeloupe.reports.replacement import fenced, fix_of
from codeloupe.reports.standing import origin_of
from codeloupe.reports.wording import counted
from codeloupe.system.redaction import redact
from codeloupe.system.untrusted import code_span, markdown_line, markdown_prose

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
