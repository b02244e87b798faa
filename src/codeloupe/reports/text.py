"""The text report: who reviewed, the findings by file, what was not reviewed, and the verdict."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from html import unescape

from rich.cells import cell_len
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from codeloupe.model.finding import Finding, FindingStatus, Proof, Severity, SuppressionKind
from codeloupe.model.review import Review
from codeloupe.reports.closing import SEVERITY_STYLES, closing_lines, counts_by_severity, next_lines, not_reviewed_lines
from codeloupe.reports.page import BOLD, DIM, NARROWEST, Page, console_for, print_lines, prose
from codeloupe.reports.replacement import fenced, fix_of
from codeloupe.reports.wording import duration, reviewer_in_words, short_id, worst_first
from codeloupe.system.untrusted import terminal

_TAB_CELLS = 4
_LINES_SHOWN = 6
_LINES_SHOWN_VERBOSE = 40
_LONGEST_LINE = 4_000


def source_lines(page: Page, evidence: str, *, first_line: int | None, style: str, indent: int) -> list[Text]:
    """The quote line by line: common indentation removed, cut to the page, a marker at the first line.

    `style` colours the marker and the gutter. `first_line` is None for a quote that has no place in the file.

    An empty quote gives no lines; what is left out is counted in a last line.
    """
    rows = evidence.rstrip("\n").split("\n") if evidence.strip() else []
    shown = rows[: _LINES_SHOWN_VERBOSE if page.verbose else _LINES_SHOWN]
    numbers = ["?" if first_line is None else str(first_line + offset) for offset in range(len(shown))]
    digits = max(map(len, numbers), default=1)
    room = max(page.width - indent - digits - 5, 8)
    lines: list[Text] = []
    for number, row in zip(numbers, _dedented([_expanded(row) for row in shown]), strict=True):
        sign = " " if lines else page.signs.marker
        line = Text(" " * indent)
        line.append(f"{sign} ", style=style)
        line.append(f"{number:>{digits}} ", style=DIM)
        line.append(f"{page.signs.gutter} ", style=style)
        line.append(page.cut(page.clean(row), room))
        lines.append(line)
    if len(rows) > len(shown):
        rest = len(rows) - len(shown)
        what = f"{page.signs.more} {rest:,} more {'line' if rest == 1 else 'lines'}"
        lines.append(Text(" " * (indent + digits + 3) + what, style=DIM))
    return lines


def code_lines(page: Page, code: str, *, sign: str, style: str, indent: int) -> list[Text]:
    """Code line by line behind a sign, its indentation kept but for what all lines share; cut to the page."""
    rows = code.strip("\n").rstrip().split("\n")
    shown = rows[:_LINES_SHOWN_VERBOSE]
    room = max(page.width - indent - len(sign) - 1, 8)
    lines = [
        Text.assemble(" " * indent, (f"{sign} {page.cut(page.clean(row), room)}".rstrip(), style))
        for row in _dedented([_expanded(row) for row in shown])
    ]
    if len(rows) > len(shown):
        lines.append(Text(f"{' ' * indent}{page.signs.more} {len(rows) - len(shown):,} more lines", style=DIM))
    return lines


def _expanded(row: str) -> str:
    """The row without its line end, tabs as spaces; of an endless row, only what a page could ever show."""
    return row[:_LONGEST_LINE].rstrip("\r").expandtabs(_TAB_CELLS)


def _dedented(rows: list[str]) -> list[str]:
    indents = [len(row) - len(row.lstrip(" ")) for row in rows if row.strip(" ")]
    common = min(indents, default=0)
    return [row[common:] for row in rows]


_CRITICAL_BADGE = "bold red reverse"
_INDENT = 2
_LABEL_CELLS = 5
_LONGEST_TITLE = 1_000
_LONGEST_PROSE = 6_000
_PROSE_LINES = 40
_LOOKS_NAMED = 4
_SHORTEST_FENCE = 3
# So much of a fingerprint tells findings apart; the verbs that take one take its beginning.
_DIGITS = 12
_HISTORY = {"open": "still open from an earlier review", "regressed": "back after it was fixed"}


def finding_lines(page: Page, finding: Finding) -> list[Text]:
    """One finding in full; every string of it is untrusted and cleaned here."""
    return [
        *_headline(page, finding, style=BOLD),
        *_place(page, finding, note=_origin(page, finding)),
        *source_lines(
            page,
            finding.evidence,
            first_line=finding.line_start if finding.first_line > 0 else None,
            style=SEVERITY_STYLES[finding.severity],
            indent=_INDENT,
        ),
        *_labelled(page, "Why", finding.body, style=BOLD),
        *_fix(page, finding),
        *_verification(page, finding),
    ]


def finding_in_short(page: Page, finding: Finding, *, note: str = "") -> list[Text]:
    """Only what it is and where; `note` says what became of it."""
    return [*_headline(page, finding, style=""), *_place(page, finding, note=note)]


def _headline(page: Page, finding: Finding, *, style: str) -> list[Text]:
    severity = finding.severity
    word = f"{severity.label.upper()} P{severity.priority}"
    urgent = severity is Severity.CRITICAL
    badge = page.badge(word, _CRITICAL_BADGE) if urgent else Text(word, style=SEVERITY_STYLES[severity])
    title = page.clean(finding.title, longest=_LONGEST_TITLE)
    return page.wrap(Text.assemble(badge, "  ", (title, style)), indent=_INDENT, hang=2)


def _place(page: Page, finding: Finding, *, note: str) -> list[Text]:
    """`path:line`, never wrapped or cut, so that a terminal can open it; the note beside it, or below if too long."""
    place = Text(" " * _INDENT)
    path = page.clean(finding.file)
    place.append(f"{path}:{finding.line_start}" if finding.first_line > 0 else path, style="cyan")
    if finding.last_line > finding.first_line > 0:
        place.append(f" to {finding.line_end}", style=DIM)
    identity = f"id {short_id(finding)}" if finding.fingerprint else ""
    parts = [note, f"fingerprint {finding.fingerprint[:_DIGITS]}" if page.verbose and identity else identity]
    shown = Text(page.clean(f" {page.signs.bullet} ".join(part for part in parts if part)), style=DIM)
    if place.cell_len + 2 + shown.cell_len <= page.measure:
        return [Text.assemble(place, "  ", shown)]
    return [place, *page.wrap(shown, indent=_INDENT)]


def _labelled(page: Page, label: str, text: str, *, style: str) -> list[Text]:
    """Prose beside a label, wrapped under itself; what is endless is cut, and the cut is said."""
    shown = page.clean(text[:_LONGEST_PROSE].strip(), keep_newlines=True, longest=_LONGEST_PROSE)
    if not shown:
        return []
    first = Text(" " * _INDENT)
    first.append(f"{label:<{_LABEL_CELLS}}", style=style)
    lines = page.wrap(prose(shown), indent=_INDENT + _LABEL_CELLS, first=first)
    if len(text) > _LONGEST_PROSE or len(lines) > _PROSE_LINES:
        note = Text(f"{page.signs.more} cut here; the JSON report has it whole", style=DIM)
        lines = [*lines[:_PROSE_LINES], *page.wrap(note, indent=_INDENT + _LABEL_CELLS)]
    return lines


def _fix(page: Page, finding: Finding) -> list[Text]:
    """Advice behind the label, its code as code; then the new code for the quoted lines, each line behind a `+`."""
    fix = fix_of(finding)
    lines: list[Text] = []
    for block, is_code in _blocks(fenced(fix.words[:_LONGEST_PROSE])):
        if is_code:
            lines += code_lines(page, block, sign=" ", style="", indent=_INDENT + _LABEL_CELLS)
        else:
            lines += _labelled(page, "" if lines else "Fix", block, style="bold green")
    if len(fix.words) > _LONGEST_PROSE:
        note = Text(f"{page.signs.more} cut here; the JSON report has it whole", style=DIM)
        lines += page.wrap(note, indent=_INDENT + _LABEL_CELLS)
    if fix.code.strip():
        lines += code_lines(page, fix.code, sign="+", style="green", indent=_INDENT + _LABEL_CELLS)
    if lines and not lines[0].plain.startswith(f"{' ' * _INDENT}Fix"):
        return [Text.assemble(" " * _INDENT, ("Fix", "bold green")), *lines]
    return lines


def _blocks(words: str) -> list[tuple[str, bool]]:
    """The text in pieces, each with whether it is code."""
    blocks: list[tuple[str, bool]] = []
    rows: list[str] = []
    fence = ""
    for row in words.split("\n"):
        mark = row.strip()
        opening = mark[: len(mark) - len(mark.lstrip(mark[0]))] if mark[:1] in ("`", "~") else ""
        if (fence and mark == fence) or (not fence and len(opening) >= _SHORTEST_FENCE):
            blocks.append(("\n".join(rows), bool(fence)))
            rows, fence = [], "" if fence else opening
        else:
            rows.append(row)
    blocks.append(("\n".join(rows), bool(fence)))
    return [block for block in blocks if block[0].strip()]


def _verification(page: Page, finding: Finding) -> list[Text]:
    """What the attempt to refute it showed."""
    confirmed = finding.verification.startswith(Proof.CONFIRMED)
    sign, style = (page.signs.passed, "bold green") if confirmed else ("?", "bold yellow")
    return _labelled(page, sign, finding.verification.rstrip(": "), style=style)


def _origin(page: Page, finding: Finding) -> str:
    seen = _agreement(finding)
    # Who saw it names the reviewer too.
    reviewer = "" if seen and finding.seen_by else finding.reviewer
    parts = [finding.category, finding.rule or "", reviewer, finding.expert or "", seen]
    if finding.outside_change:
        parts.append("outside the change")
    parts.append(_HISTORY.get(finding.status.value, ""))
    if finding.confidence is not None:
        parts.append(f"confidence {finding.confidence:.0%}")
    if finding.commit_sha:
        parts.append(f"commit {finding.commit_sha[:10]}")
    return f" {page.signs.bullet} ".join(dict.fromkeys(part for part in parts if part))


def _agreement(finding: Finding) -> str:
    if finding.agreement <= 1:
        return ""
    if not finding.seen_by:
        return f"seen {finding.agreement} times"
    named = ", ".join(finding.seen_by[:_LOOKS_NAMED])
    rest = len(finding.seen_by) - _LOOKS_NAMED
    return f"seen by {named}{f' and {rest:,} more' if rest > 0 else ''}"


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


_UNIQUE_ID = "codeloupe"
_ASPECT = 0.6
_CELL_PIXELS = 20 * _ASPECT
_TEXT_ELEMENT = re.compile(r'(?P<before><text [^<>]*?)textLength="[^"]*"(?P<after>[^<>]*>)(?P<content>[^<]*)</text>')
_FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_PICTURE = (
    '<svg class="codeloupe-report" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">\n'
    "<style>\n"
    f".{{unique_id}}-matrix {{{{ font-family: {_FONTS};"
    " font-size: {char_height}px; line-height: {line_height}px; white-space: pre; }}\n"
    f".{{unique_id}}-title {{{{ font-family: {_FONTS}; font-size: 16px; }}}}\n"
    "{styles}\n"
    "</style>\n"
    "<defs>\n"
    '<clipPath id="{unique_id}-clip-terminal">'
    '<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>\n'
    "{lines}\n"
    "</defs>\n"
    "{chrome}\n"
    '<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">\n'
    "{backgrounds}\n"
    '<g class="{unique_id}-matrix">{matrix}</g>\n'
    "</g>\n"
    "</svg>\n"
)
_DARK = TerminalTheme(
    (22, 27, 34),
    (230, 237, 243),
    [
        (48, 54, 61),
        (218, 54, 51),
        (63, 185, 80),
        (210, 153, 34),
        (88, 166, 255),
        (188, 140, 255),
        (57, 197, 207),
        (240, 246, 252),
    ],
)


def svg(review: Review, *, title: str, width: int = 100) -> str:
    """The report as a picture of a terminal `width` cells wide; the same review always gives the same bytes."""
    page = Page(width=width, color=True)
    console = console_for(page, record=True)
    # The blank line at the end keeps the last one off the frame.
    for line in [*report_lines(page, review), Text(" ")]:
        console.print(line, soft_wrap=True)
    picture = console.export_svg(
        title=terminal(title), theme=_DARK, code_format=_PICTURE, unique_id=_UNIQUE_ID, font_aspect_ratio=_ASPECT
    )
    return _TEXT_ELEMENT.sub(_with_true_length, picture)


def _with_true_length(element: re.Match[str]) -> str:
    """rich draws line ends too, and states each character to be one cell long, which squeezes wide ones."""
    if element["content"] == "\n":
        return ""
    cells = cell_len(unescape(element["content"]))
    return f'{element["before"]}textLength="{cells * _CELL_PIXELS:g}"{element["after"]}{element["content"]}</text>'
