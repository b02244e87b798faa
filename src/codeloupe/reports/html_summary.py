"""The head of the HTML report: the verdict, the numbers behind it, and what was not reviewed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from codeloupe.model.review import Review
from codeloupe.model.severity import Severity
from codeloupe.reports.gaps import Gap, errors_beside_gaps, gaps_of
from codeloupe.reports.html_markup import Html, element, joined
from codeloupe.reports.outcome import outcome_of
from codeloupe.reports.standing import Standing, counts_in_words, standing_of
from codeloupe.reports.wording import counted, duration, reviewer_in_words, spent_in_words

_GAPS_OPEN = 8
_MOST_FILES = 12
_MOST_ITEMS = 2_000
_SHORT_SHA = 10
_SHORTEST_SHA = 7


def verdict_panel(review: Review) -> Html:
    """The word, why, what was reviewed and by whom."""
    outcome = outcome_of(review)
    scope = review.scope
    shas = [sha for sha in (scope.base, scope.head) if sha]
    # Many descriptions name them already.
    known = all(sha[:_SHORTEST_SHA] in scope.description for sha in shas)
    ends = "" if known else " → ".join(sha[:_SHORT_SHA] for sha in shas)
    return element(
        "section",
        element("h1", outcome.word, class_="word"),
        element("p", f"{outcome.why[:1].upper()}{outcome.why[1:]}.", class_="why"),
        element(
            "p",
            element("span", scope.description),
            element("code", ends) if ends else None,
            class_="scope",
        ),
        element("p", reviewer_in_words(review.reviewer), class_="reviewer"),
        class_=f"verdict {outcome.tone.value}",
        aria_label="Verdict",
    )


def numbers(review: Review) -> Html:
    """Findings by severity, coverage, cost and time."""
    counts = Counter(f.severity for f in review.findings if standing_of(f) is Standing.OPEN)
    steps = [
        element(
            "div",
            element("dt", step.label),
            element("dd", _value(f"{counts[step]:,}")),
            class_=f"number {step.label}{'' if counts[step] else ' none'}",
        )
        for step in Severity
    ]
    return element("dl", joined(steps), _coverage(review), _spent(review), class_="numbers")


def _value(words: str) -> Html:
    return element("span", words, class_="value")


def _coverage(review: Review) -> Html:
    coverage = review.coverage
    total = max(coverage.files_total, 1)
    done = coverage.files_reviewed if coverage.files_total else total
    words = f"{coverage.files_reviewed:,} of {counted(coverage.files_total, 'file', 'files')}"
    failed = f"{counted(len(coverage.units_failed), 'unit', 'units')} failed" if coverage.units_failed else ""
    return element(
        "div",
        element("dt", "reviewed"),
        element(
            "dd",
            _value(words),
            element("progress", value=done, max=total, aria_label=f"{words} reviewed"),
            element("p", failed, class_="note bad") if failed else None,
        ),
        class_=f"number wide{'' if review.complete else ' gap'}",
    )


def _spent(review: Review) -> Html:
    spent = spent_in_words(review.usage)
    took = duration(review.usage.duration_seconds)
    return element(
        "div",
        element("dt", "took"),
        element("dd", _value(took), element("p", spent, class_="note") if spent else None),
        class_="number wide",
    )


def gaps_panel(review: Review) -> Html | None:
    """What an incomplete review could not look at; before everything else, since no finding says as much."""
    gaps = gaps_of(review)
    if not gaps:
        return None
    first = element("ul", joined(map(_gap, gaps[:_GAPS_OPEN])))
    rest = gaps[_GAPS_OPEN:]
    return element(
        "section",
        element("h2", "Could not be reviewed"),
        element("p", "This review is incomplete: what is listed here may hold anything.", class_="note"),
        first,
        _folded(f"{counted(len(rest), 'more', 'more')}", [_gap(gap) for gap in rest]),
        class_="gaps",
        aria_label="Not reviewed",
    )


def _gap(gap: Gap) -> Html:
    others = [file for file in gap.files if file != gap.name and not gap.name.startswith(file)]
    more = len(others) - _MOST_FILES
    named = ", ".join(others[:_MOST_FILES]) + (f" and {more:,} more" if more > 0 else "")
    return element(
        "li",
        element("code", gap.name or "?"),
        element("span", gap.reason or "not reviewed"),
        element("span", named, class_="note") if named else None,
    )


def remarks(review: Review) -> Html | None:
    """What else went wrong, what was left out on purpose, and how many findings are not shown."""
    problems = [
        element("li", element("code", error.kind), element("span", error.message))
        for error in errors_beside_gaps(review)
    ]
    left_out = [
        element("li", element("code", skip.file), element("span", skip.in_words()))
        for skip in review.coverage.skipped
        if not skip.is_gap
    ]
    parts = [
        _folded(counted(len(problems), "problem", "problems"), problems, is_open=True),
        _folded(f"{counted(len(left_out), 'file', 'files')} left out on purpose", left_out),
    ]
    shown = [part for part in parts if part is not None]
    return element("section", joined(shown), class_="remarks", aria_label="Remarks") if shown else None


def all_counts(review: Review) -> Html:
    """Everything found, in one sentence."""
    return element("p", f"Findings: {counts_in_words(review)}.", class_="note counts")


def _folded(title: str, items: Sequence[Html], *, is_open: bool = False) -> Html | None:
    if not items:
        return None
    rest = len(items) - _MOST_ITEMS
    more = element("li", f"and {rest:,} more; the JSON report has them all") if rest > 0 else None
    listed = element("ul", joined([*items[:_MOST_ITEMS], more]))
    return element("details", element("summary", title), listed, open=is_open)
