"""The head of a Markdown report: the verdict, what it rests on, and what was not reviewed."""

from __future__ import annotations

from collections.abc import Sequence

from codeloupe.model.review import Review
from codeloupe.reports.gaps import errors_beside_gaps, gaps_of
from codeloupe.reports.markdown_room import Room, fitted
from codeloupe.reports.outcome import Tone, outcome_of
from codeloupe.reports.standing import counts_in_words
from codeloupe.reports.wording import counted, duration, reviewer_in_words, spent_in_words
from codeloupe.system.untrusted import code_span, markdown_line

_SIGNS = {Tone.GOOD: "✅", Tone.CAUTION: "⚠️", Tone.BAD: "❌"}
_LONGEST_LINE = 600
_LONGEST_PATH = 1_000


def summary_block(review: Review) -> str:
    """The verdict and why, then findings, coverage, reviewer, cost and time, each on its line."""
    outcome = outcome_of(review)
    coverage = review.coverage
    spent = spent_in_words(review.usage)
    rows = [
        ("Findings", counts_in_words(review)),
        ("Coverage", f"{coverage.files_reviewed:,} of {counted(coverage.files_total, 'file', 'files')} reviewed"),
        ("Reviewed", markdown_line(review.scope.description, longest=_LONGEST_LINE)),
        ("Reviewer", markdown_line(reviewer_in_words(review.reviewer), longest=_LONGEST_LINE)),
        ("Spent", spent),
        ("Time", duration(review.usage.duration_seconds)),
    ]
    listed = "\n".join(f"- {label}: {value}" for label, value in rows if value)
    return f"## {_SIGNS[outcome.tone]} codeloupe: {outcome.word}\n\n{_sentence(outcome.why)}\n\n{listed}"


def not_reviewed(review: Review, room: Room) -> str:
    """The gaps of an incomplete review, what else went wrong, and the files left out on purpose."""
    gaps = [markdown_line(gap.in_words(), longest=_LONGEST_LINE) for gap in gaps_of(review)]
    problems = [
        markdown_line(f"{error.kind}: {error.message}", longest=_LONGEST_LINE) for error in errors_beside_gaps(review)
    ]
    left_out = [
        f"{code_span(skip.file[:_LONGEST_PATH])}: {markdown_line(skip.in_words(), longest=_LONGEST_LINE)}"
        for skip in review.coverage.skipped
        if not skip.is_gap
    ]
    sections = [
        _listed("## Could not be reviewed", gaps, room),
        _listed("## Problems", problems, room),
        _listed("## Left out", left_out, room),
    ]
    return "\n\n".join(section for section in sections if section)


def _listed(title: str, items: Sequence[str], room: Room) -> str:
    if not items:
        return ""
    shown = [f"- {item}" for item in fitted(items, room)]
    rest = len(items) - len(shown)
    return "\n".join([title, "", *shown, *([f"- and {rest:,} more"] if rest else [])])


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."
