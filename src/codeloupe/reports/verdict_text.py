"""The end of a text report: the verdict, why, the counts, the coverage and the time."""

from __future__ import annotations

import shlex

from msgspec import Struct
from rich.text import Text

from codeloupe.model.finding import FindingStatus
from codeloupe.model.review import Coverage, Review
from codeloupe.reports.coverage_text import is_piece, skipped_in_words
from codeloupe.reports.finding_text import counts_by_severity
from codeloupe.reports.outcome import NOTHING, Tone, outcome_of
from codeloupe.reports.page import DIM, Page
from codeloupe.reports.standing import short_id, worst_first
from codeloupe.reports.wording import counted, duration, spent_in_words

_LABEL_CELLS = 10
_LANES_NAMED = 4


class Closing(Struct, frozen=True):
    """The word a person remembers, its colour, and the sentence behind it."""

    word: str
    style: str
    rule_style: str
    why: str


_STYLES = {
    Tone.GOOD: ("bold green reverse", "green"),
    Tone.CAUTION: ("bold yellow reverse", "yellow"),
    Tone.BAD: ("bold red reverse", "red"),
}


def closing(review: Review) -> Closing:
    """What every format tells, in the colours of a terminal."""
    outcome = outcome_of(review)
    style, rule_style = _STYLES[outcome.tone]
    return Closing(outcome.word, style, rule_style, outcome.why)


def closing_lines(page: Page, review: Review) -> list[Text]:
    """The verdict block, the last thing on the page."""
    end = closing(review)
    word = f"{end.word} {page.signs.passed}" if end.word == "PASS" else end.word
    rows = [
        ("Findings", _findings(review)),
        ("Coverage", Text(_coverage(page, review))),
        ("Spent", Text(spent_in_words(review.usage))),
        ("Time", Text(duration(review.usage.duration_seconds))),
    ]
    return [
        Text(page.signs.heavy_rule * page.measure, style=end.rule_style),
        *(
            page.wrap(Text.assemble((f"{NOTHING}: ", "bold"), end.why))
            if end.word == NOTHING
            else _headline(page, page.badge(word, end.style), end.why)
        ),
        *(line for label, value in rows if value.plain for line in _row(page, label, value)),
    ]


def next_lines(page: Page, review: Review, *, saved_in: str | None, untrusted: bool) -> list[Text]:
    """What to do about the worst open finding: the commands, each whole on its line. None for a review not saved."""
    opened = worst_first(finding for finding in review.findings if finding.is_open and finding.fingerprint)
    if saved_in is None or not opened:
        return []
    finding = next((one for one in opened if one.can_block), opened[0])
    repo = f" --repo {shlex.quote(saved_in)}" if saved_in else ""
    # For an untrusted change only the baseline of its base holds, which an entry made now is not in.
    accept = [("accept", f"codeloupe baseline add {short_id(finding)}{repo} --reason WHY")]
    commands = [
        ("dismiss", f"codeloupe history dismiss {short_id(finding)}{repo} --reason WHY"),
        *(() if untrusted else accept),
        ("see all", f"codeloupe history render last{repo} --format html -o review.html"),
    ]
    return [
        Text.assemble(
            (f"{'' if number else 'Next':<{_LABEL_CELLS}}", DIM), f"{label:<{_LABEL_CELLS}}", page.clean(command)
        )
        for number, (label, command) in enumerate(commands)
    ]


def _headline(page: Page, badge: Text, why: str) -> list[Text]:
    """The badge, with the reason wrapped beside it; below it on a page too narrow for both."""
    first = Text.assemble(badge, "  ")
    if first.cell_len > page.measure // 2:
        return [badge, *page.wrap(Text(why), indent=2)]
    return page.wrap(Text(why), indent=first.cell_len, first=first)


def _row(page: Page, label: str, value: Text) -> list[Text]:
    return page.wrap(value, indent=_LABEL_CELLS, first=Text(f"{label:<{_LABEL_CELLS}}", style=DIM))


def _findings(review: Review) -> Text:
    counts = counts_by_severity(finding for finding in review.findings if finding.can_block)
    unanchored = sum(finding.is_open and not finding.anchored for finding in review.findings)
    refuted = sum(finding.status is FindingStatus.REFUTED for finding in review.findings)
    closed = sum(not finding.is_open for finding in review.findings) - refuted
    notes = [
        f"{unanchored:,} without a place" if unanchored else "",
        f"{refuted:,} refuted" if refuted else "",
        f"{closed:,} set aside" if closed else "",
        f"{review.hidden_findings:,} hidden below min_severity={review.policy.min_severity.label}"
        if review.hidden_findings
        else "",
    ]
    told = [Text(note) for note in notes if note]
    return Text("; ").join([counts if counts.plain else Text("none"), *told])


def _coverage(page: Page, review: Review) -> str:
    coverage = review.coverage
    files = f"{coverage.files_reviewed:,} of {counted(coverage.files_total, 'file', 'files')} reviewed"
    too_much = skipped_in_words(skip for skip in coverage.skipped if skip.is_gap)
    gaps = ", ".join(part for part in (_failed_units(page, coverage), too_much) if part)
    return f"{files}; gaps: {gaps}" if gaps else files


def _failed_units(page: Page, coverage: Coverage) -> str:
    """Pieces of the change by their number, lanes by name."""
    pieces = sum(map(is_piece, coverage.units_failed))
    lanes = list(dict.fromkeys(failed.unit for failed in coverage.units_failed if not is_piece(failed)))
    named = len(lanes) <= _LANES_NAMED
    counted_units = pieces + (0 if named else len(lanes))
    total = max(coverage.units_total, counted_units)
    units = f"{counted_units:,} of {counted(total, 'unit', 'units')}" if counted_units else ""
    return ", ".join(part for part in (units, *map(page.clean, lanes if named else ())) if part)
