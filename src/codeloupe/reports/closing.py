"""How a text report ends: what was not reviewed, the verdict with its reasons, and what to do next."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from msgspec import Struct
from rich.text import Text

from codeloupe.model.finding import Finding, FindingStatus, Severity
from codeloupe.model.review import (
    Coverage,
    Review,
    ReviewError,
    SkippedFile,
)
from codeloupe.reports.page import BOLD, DIM, Page
from codeloupe.reports.wording import (
    NOTHING,
    Tone,
    counted,
    duration,
    is_piece,
    outcome_of,
    short_id,
    skipped_in_words,
    spent_in_words,
    worst_first,
)

SEVERITY_STYLES = {
    Severity.CRITICAL: "bold red",
    Severity.HIGH: "bold red",
    Severity.MEDIUM: "bold yellow",
    Severity.LOW: "bold bright_blue",
}


def counts_by_severity(findings: Iterable[Finding]) -> Text:
    """`1 critical, 2 low`: the worst first, each in its colour, steps without findings left out."""
    counts = Counter(finding.severity for finding in findings)
    parts = [Text(f"{counts[step]:,} {step.label}", style=SEVERITY_STYLES[step]) for step in Severity if counts[step]]
    return Text(", ").join(parts)


_INDENT = 2


_GAP_STYLE = "bold yellow"


_FILES_NAMED = 3


_ERRORS_SHOWN = 10


def not_reviewed_lines(page: Page, review: Review) -> list[Text]:
    """Everything that stands between this review and a whole one; empty when there is nothing to say."""
    coverage = review.coverage
    gaps = [skip for skip in coverage.skipped if skip.is_gap]
    lines = [
        *_failed_units(page, coverage),
        *(line for skip in gaps for line in _gap(page, skip.file, skip.in_words())),
        *_policy_skips(page, [skip for skip in coverage.skipped if not skip.is_gap]),
    ]
    errors = _errors(page, review)
    titled = [Text("Not reviewed", style=BOLD), *lines] if lines else []
    return [*titled, *([Text("")] if titled and errors else []), *errors]


def _failed_units(page: Page, coverage: Coverage) -> list[Text]:
    """One entry for all pieces of the change that failed for one reason, and one for each lane and reason."""
    pieces: dict[str, list[str]] = defaultdict(list)
    lanes: dict[tuple[str, str], list[str]] = defaultdict(list)
    for failed in coverage.units_failed:
        if is_piece(failed):
            pieces[failed.reason].append(failed.unit)
        else:
            lanes[failed.unit, failed.reason] += failed.files
    alike = [
        line
        for reason, units in pieces.items()
        for line in _gap(
            page, f"{len(units):,} units" if len(units) > 1 else units[0], reason, files=units[1:] and units
        )
    ]
    return [
        *alike,
        *(line for (lane, reason), files in lanes.items() for line in _gap(page, lane, reason, files=files)),
    ]


def _gap(page: Page, name: str, reason: str, files: Sequence[str] = ()) -> list[Text]:
    shown = Text.assemble((page.clean(name), BOLD), "  ", page.clean(reason))
    if files:
        shown.append(f"  {_named(page, files)}", style=DIM)
    sign = Text.assemble(" " * _INDENT, (page.signs.gap, _GAP_STYLE), " ")
    return page.wrap(shown, indent=_INDENT + 2, hang=2, first=sign)


def _named(page: Page, files: Sequence[str]) -> str:
    named = files if page.verbose else files[:_FILES_NAMED]
    rest = len(files) - len(named)
    return ", ".join(map(page.clean, named)) + (f" and {rest:,} more" if rest else "")


def _policy_skips(page: Page, skipped: Sequence[SkippedFile]) -> list[Text]:
    if not skipped:
        return []
    hint = "" if page.verbose else f" (-v names {'it' if len(skipped) == 1 else 'them'})"
    words = skipped_in_words(skipped)
    is_one_kind = len({skip.reason for skip in skipped}) == 1
    summary = Text.assemble(f"{words} skipped" if is_one_kind else f"{len(skipped):,} skipped: {words}", (hint, DIM))
    sign = Text(f"{' ' * _INDENT}{page.signs.bullet} ", style=DIM)
    names = [
        line
        for skip in sorted(skipped, key=lambda skip: (skip.reason.value, skip.file))
        for line in page.wrap(
            Text.assemble(page.clean(skip.file), (f"  {page.clean(skip.in_words())}", DIM)), indent=_INDENT + 4, hang=2
        )
    ]
    return [*page.wrap(summary, indent=_INDENT + 2, first=sign), *(names if page.verbose else [])]


def _errors(page: Page, review: Review) -> list[Text]:
    """Errors that are not told already as a gap: such a one ends with the gap's reason."""
    coverage = review.coverage
    reasons = {failed.reason for failed in coverage.units_failed}
    reasons |= {f"{skip.file}: {skip.in_words()}" for skip in coverage.skipped if skip.is_gap}
    told = tuple(reason for reason in reasons if reason)
    errors = [error for error in review.errors if not error.message.endswith(told)]
    shown = errors if page.verbose else errors[:_ERRORS_SHOWN]
    lines = [line for error in shown for line in _error(page, error)]
    if len(errors) > len(shown):
        more = f"{page.signs.more} {len(errors) - len(shown):,} more (-v shows them)"
        lines += page.wrap(Text(more, style=DIM), indent=_INDENT + 2)
    return [Text("Problems", style=BOLD), *lines] if lines else []


def _error(page: Page, error: ReviewError) -> list[Text]:
    return page.wrap(
        Text.assemble((page.clean(error.kind), BOLD), "  ", page.clean(error.message)),
        indent=_INDENT + 2,
        hang=2,
        first=Text.assemble(" " * _INDENT, (page.signs.gap, _GAP_STYLE), " "),
    )


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
    gaps = ", ".join(part for part in (_verdict_text_failed_units(page, coverage), too_much) if part)
    return f"{files}; gaps: {gaps}" if gaps else files


def _verdict_text_failed_units(page: Page, coverage: Coverage) -> str:
    """Pieces of the change by their number, lanes by name."""
    pieces = sum(map(is_piece, coverage.units_failed))
    lanes = list(dict.fromkeys(failed.unit for failed in coverage.units_failed if not is_piece(failed)))
    named = len(lanes) <= _LANES_NAMED
    counted_units = pieces + (0 if named else len(lanes))
    total = max(coverage.units_total, counted_units)
    units = f"{counted_units:,} of {counted(total, 'unit', 'units')}" if counted_units else ""
    return ", ".join(part for part in (units, *map(page.clean, lanes if named else ())) if part)
