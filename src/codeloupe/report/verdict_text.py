"""The end of a text report: the verdict, why, the counts, the coverage and the time."""

from __future__ import annotations

from dataclasses import dataclass

from rich.text import Text

from codeloupe.model.review import Review, Verdict
from codeloupe.report.coverage_text import skipped_in_words
from codeloupe.report.finding_text import counts_by_severity
from codeloupe.report.page import DIM, Page
from codeloupe.report.wording import counted, duration

_LABEL_CELLS = 10
_UNITS_NAMED = 4


@dataclass(frozen=True, slots=True)
class Closing:
    """The word a person remembers, its colour, and the sentence behind it."""

    word: str
    style: str
    rule_style: str
    why: str


def closing(review: Review) -> Closing:
    """What to tell: a review with gaps is never a pass, and what does not block is not told as blocking."""
    blocking = sum(f.can_block and f.severity.at_least(review.policy.fail_on) for f in review.findings)
    threshold = f"at or above fail_on={review.policy.fail_on.label}"
    if blocking:
        why = f"{counted(blocking, 'finding', 'findings')} {threshold}"
        return _failed(review, why if review.complete else f"{why}; and not everything could be reviewed")
    if review.exit_code == 1:
        hidden = f"findings {threshold} are hidden by min_severity={review.policy.min_severity.label}"
        return _failed(review, hidden)
    if not review.complete:
        accepted = "; accepted, since on_incomplete is pass" if review.policy.pass_when_incomplete else ""
        why = f"could not review everything; nothing blocking found{accepted}"
        return Closing("INCOMPLETE", "bold yellow reverse", "yellow", why)
    return _not_blocked(review, threshold)


def _failed(review: Review, why: str) -> Closing:
    if review.verdict is Verdict.FAIL:
        return Closing("FAIL", "bold red reverse", "red", why)
    return Closing("NEEDS WORK", "bold red reverse", "red", why)


def _not_blocked(review: Review, threshold: str) -> Closing:
    if review.verdict is Verdict.PASS:
        return Closing("PASS", "bold green reverse", "green", _why_passed(review))
    word = "FAIL" if review.verdict is Verdict.FAIL else "NEEDS WORK"
    return Closing(
        word, "bold yellow reverse", "yellow", f"findings to look at, none {threshold}, so nothing is blocked"
    )


def _why_passed(review: Review) -> str:
    if not review.coverage.files_reviewed:
        return "no file of this change was reviewed"
    if review.findings:
        return "nothing found that counts against the change"
    return (
        f"nothing found at or above min_severity={review.policy.min_severity.label}"
        if review.hidden_findings
        else "nothing found"
    )


def closing_lines(page: Page, review: Review) -> list[Text]:
    """The verdict block, the last thing on the page."""
    end = closing(review)
    word = f"{end.word} {page.signs.passed}" if end.word == "PASS" else end.word
    rows = [("Findings", _findings(review)), ("Coverage", Text(_coverage(page, review))), ("Time", Text(_time(review)))]
    return [
        Text(page.signs.heavy_rule * page.measure, style=end.rule_style),
        *page.wrap(Text.assemble(page.badge(word, end.style), "  ", end.why), hang=2),
        *(line for label, value in rows for line in _row(page, label, value)),
    ]


def _row(page: Page, label: str, value: Text) -> list[Text]:
    return page.wrap(value, indent=_LABEL_CELLS, first=Text(f"{label:<{_LABEL_CELLS}}", style=DIM))


def _findings(review: Review) -> Text:
    counts = counts_by_severity(finding for finding in review.findings if finding.can_block)
    unanchored = sum(finding.is_open and not finding.anchored for finding in review.findings)
    closed = sum(not finding.is_open for finding in review.findings)
    notes = [
        f"{unanchored:,} without a place" if unanchored else "",
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
    units = list(dict.fromkeys(failed.unit for failed in coverage.units_failed))
    named = ", ".join(map(page.clean, units)) if len(units) <= _UNITS_NAMED else f"{len(units):,} units"
    too_much = skipped_in_words(skip for skip in coverage.skipped if skip.reason.is_gap)
    gaps = ", ".join(part for part in (named, too_much) if part)
    return f"{files}; gaps: {gaps}" if gaps else files


def _time(review: Review) -> str:
    usage = review.usage
    if not usage.requests:
        return duration(usage.duration_seconds)
    cached = f" ({usage.cached:,} from the ledger)" if usage.cached else ""
    tokens = f"{usage.input_tokens + usage.output_tokens:,} tokens"
    spent = f"{counted(usage.requests, 'request', 'requests')}{cached}, {tokens}, ${usage.cost_usd:.2f}"
    return f"{duration(usage.duration_seconds)}; {spent}"
