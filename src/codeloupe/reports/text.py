"""The text report: who reviewed, the findings by file, what was not reviewed, and the verdict."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from rich.cells import cell_len
from rich.text import Text

from codeloupe.model.baseline import SuppressionKind
from codeloupe.model.finding import Finding, FindingStatus
from codeloupe.model.review import Review
from codeloupe.reports.coverage_text import not_reviewed_lines
from codeloupe.reports.finding_text import counts_by_severity, finding_in_short, finding_lines
from codeloupe.reports.page import BOLD, DIM, NARROWEST, Page, print_lines
from codeloupe.reports.standing import worst_first
from codeloupe.reports.verdict_text import closing_lines, next_lines
from codeloupe.reports.wording import duration, reviewer_in_words

_BLANK = Text("")
_SUPPRESSED_BY = {SuppressionKind.BASELINE: "the baseline", SuppressionKind.INLINE: "a comment in the code"}


def render_text(
    review: Review,
    *,
    width: int,
    color: bool,
    verbose: bool = False,
    ascii_only: bool = False,
    saved_in: str | None = None,
    untrusted: bool = False,
) -> str:
    """The report for a person, in lines of at most `width` cells (`path:line` and commands stay whole).

    With `saved_in`, the repository in whose history it is, it ends with the next commands. Without `color` there is no
    escape sequence in it; with `ascii_only` no character outside ASCII.
    """
    page = Page(width=max(width, NARROWEST), color=color, verbose=verbose, ascii_only=ascii_only)
    following = next_lines(page, review, saved_in=saved_in, untrusted=untrusted)
    return print_lines(page, [*report_lines(page, review), *following])


def report_lines(page: Page, review: Review) -> list[Text]:
    """The whole report as fitted lines."""
    opening = opening_lines(page, review)
    if review.nothing_to_review and not review.coverage.files_total and not review.errors:
        return [*opening, *_nothing_changed(review)]
    sections = [
        _unsettled(page, review.unsettled),
        *_files(page, [finding for finding in review.findings if finding.can_block]),
        _without_place(page, [finding for finding in review.findings if _is_merely_unplaced(finding, review)]),
        _refuted(page, [finding for finding in review.findings if finding.status is FindingStatus.REFUTED]),
        _set_aside(page, [finding for finding in review.findings if _is_set_aside(finding)]),
        not_reviewed_lines(page, review),
        closing_lines(page, review),
    ]
    return [*opening, *(line for section in sections if section for line in (_BLANK, *section))]


def opening_lines(page: Page, review: Review) -> list[Text]:
    """The reviewer and why, then what was reviewed."""
    sentence = page.clean(reviewer_in_words(review.reviewer))
    name, colon, rest = sentence.partition(":")
    scope = Text(page.clean(review.scope.description), style=DIM)
    return [*page.wrap(Text.assemble((name, BOLD), colon, rest)), *(page.wrap(scope) if scope.plain.strip() else [])]


def _nothing_changed(review: Review) -> list[Text]:
    took = duration(review.usage.duration_seconds)
    return [_BLANK, Text.assemble(("No changes to review", BOLD), (f" ({took})", DIM))]


def _files(page: Page, findings: Sequence[Finding]) -> list[list[Text]]:
    by_file: dict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        by_file[finding.file].append(finding)
    ranked = sorted(by_file.items(), key=lambda item: (min(f.severity.priority for f in item[1]), item[0]))
    return [_file(page, path, found) for path, found in ranked]


def _file(page: Page, path: str, findings: list[Finding]) -> list[Text]:
    blocks = [finding_lines(page, finding) for finding in worst_first(findings)]
    return [*_heading(page, page.clean(path), counts_by_severity(findings)), *_spaced(blocks)]


def _heading(page: Page, title: str, note: Text) -> list[Text]:
    """The title with a rule that runs up to the note at the right; in two lines when they do not fit in one."""
    room = page.measure - cell_len(title) - note.cell_len - 2
    if room < 2:
        return [*page.wrap(Text(title, style=BOLD)), *page.wrap(note)]
    return [Text.assemble((title, BOLD), " ", (page.signs.rule * room, DIM), " ", note)]


def _unsettled(page: Page, claims: Sequence[Finding]) -> list[Text]:
    """Claims that would block: first of all, since the review cannot pass before a person has looked at them."""
    return _unplaced(page, "Needs a person", "not placed in the code, not refuted", claims)


def _is_merely_unplaced(finding: Finding, review: Review) -> bool:
    return finding.is_open and not finding.anchored and not finding.is_unsettled(review.policy.fail_on)


def _without_place(page: Page, findings: Sequence[Finding]) -> list[Text]:
    """Lesser findings whose quote is not in the file: listed apart, since they never block."""
    return _unplaced(page, "Without a place", "could not be placed in the code; never block", worst_first(findings))


def _unplaced(page: Page, title: str, note: str, findings: Sequence[Finding]) -> list[Text]:
    if not findings:
        return []
    blocks = [finding_lines(page, finding) for finding in findings]
    return [*_heading(page, title, Text(note, style=DIM)), *_spaced(blocks)]


def _refuted(page: Page, findings: Sequence[Finding]) -> list[Text]:
    return _in_short(page, "Refuted", findings, note_of=lambda finding: finding.verification or "refuted")


def _is_set_aside(finding: Finding) -> bool:
    return not finding.is_open and finding.status is not FindingStatus.REFUTED


def _set_aside(page: Page, findings: Sequence[Finding]) -> list[Text]:
    return _in_short(page, "Set aside", findings, note_of=_why_set_aside)


def _why_set_aside(finding: Finding) -> str:
    if finding.suppression is None:
        return finding.status.value
    by = _SUPPRESSED_BY[finding.suppression.kind]
    return f"suppressed by {by}: {finding.suppression.reason}".rstrip(": ")


def _in_short(page: Page, title: str, findings: Sequence[Finding], *, note_of: Callable[[Finding], str]) -> list[Text]:
    """Findings that count for nothing: what, where, and why they do not."""
    if not findings:
        return []
    blocks = [finding_in_short(page, finding, note=note_of(finding)) for finding in worst_first(findings)]
    return [*_heading(page, title, Text("not counted", style=DIM)), *(line for block in blocks for line in block)]


def _spaced(blocks: Sequence[list[Text]]) -> list[Text]:
    return [line for number, block in enumerate(blocks) for line in ([_BLANK, *block] if number else block)]
