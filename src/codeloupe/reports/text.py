"""The text report: who reviewed, the findings by file, what was not reviewed, the verdict, and what to do next."""

from __future__ import annotations

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from codeloupe.model.finding import Finding, Proof, Severity
from codeloupe.model.review import Review, SkippedFile
from codeloupe.reports import Layout, asset, wording
from codeloupe.reports.page import BOLD, DIM, Page, Text, cell_len, console_for, page_of, print_lines, prose
from codeloupe.reports.replacement import blocks_of, fenced, fix_of
from codeloupe.system.regex import regex
from codeloupe.system.untrusted import terminal

_SEVERITY_STYLES = dict(zip(Severity, ("bold red", "bold red", "bold yellow", "bold bright_blue"), strict=True))
_TONE_STYLES = {wording.Tone.GOOD: "green", wording.Tone.CAUTION: "yellow", wording.Tone.BAD: "red"}
_INDENT = 2
_LABEL_CELLS = 5
_LONGEST_PROSE = 6_000
_MOST_LINES = 40
_BLANK = Text("")


def code_lines(page: Page, code: str, *, sign: str, style: str, indent: int) -> list[Text]:
    """Code line by line after a sign, its indentation kept but for what all lines share; cut to the page."""
    rows = code.strip("\n").rstrip().split("\n")
    room = max(page.width - indent - len(sign) - 1, 8)
    lines = [
        Text.assemble(" " * indent, (f"{sign} {page.cut(page.clean(row), room)}".rstrip(), style))
        for row in wording.dedented(rows[:_MOST_LINES])
    ]
    if len(rows) > _MOST_LINES:
        lines.append(Text(f"{' ' * indent}{page.sign('…')} {len(rows) - _MOST_LINES:,} more lines", style=DIM))
    return lines


def finding_lines(page: Page, finding: Finding) -> list[Text]:
    """One finding in full; every string of it is untrusted and cleaned here."""
    confirmed = finding.verification.startswith(Proof.CONFIRMED)
    sign, style = (page.sign("✔"), "bold green") if confirmed else ("?", "bold yellow")
    return [
        *_headline(page, finding, style=BOLD),
        *_place(page, finding, note=f" {page.sign('·')} ".join(wording.origin_of(finding, with_id=False))),
        *_quote(page, finding),
        *_labelled(page, "Why", finding.body, style=BOLD),
        *_fix(page, finding),
        *_labelled(page, sign, finding.verification.rstrip(": "), style=style),
    ]


def finding_in_short(page: Page, finding: Finding, *, note: str = "") -> list[Text]:
    """Only what it is and where; `note` says what became of it."""
    return [*_headline(page, finding, style=""), *_place(page, finding, note=note)]


def _headline(page: Page, finding: Finding, *, style: str) -> list[Text]:
    severity = finding.severity
    word = f"{severity.label.upper()} P{severity.priority}"
    urgent = severity is Severity.CRITICAL
    badge = page.badge(word, "bold red reverse") if urgent else Text(word, style=_SEVERITY_STYLES[severity])
    title = Text.assemble(badge, "  ", (page.clean(finding.title, longest=1_000), style))
    return page.wrap(title, indent=_INDENT, hang=2)


def _place(page: Page, finding: Finding, *, note: str) -> list[Text]:
    """`path:line`, never wrapped or cut, so that a terminal can open it; the note beside it, or below if too long."""
    path, more = page.clean(finding.file), ""
    if finding.last_line > finding.first_line > 0:
        more = f" to {finding.line_end}"
    named = f"{path}:{finding.line_start}" if finding.first_line > 0 else path
    place = Text.assemble(" " * _INDENT, (named, "cyan"), (more, DIM))
    identity = ""
    if finding.fingerprint:
        identity = f"fingerprint {finding.fingerprint[:12]}" if page.verbose else f"id {wording.short_id(finding)}"
    shown = Text(page.clean(f" {page.sign('·')} ".join(filter(None, (note, identity)))), style=DIM)
    if place.cell_len + 2 + shown.cell_len <= page.measure:
        return [Text.assemble(place, "  ", shown)]
    return [place, *page.wrap(shown, indent=_INDENT)]


def _quote(page: Page, finding: Finding) -> list[Text]:
    rows = finding.evidence.rstrip("\n").split("\n") if finding.evidence.strip() else []
    shown = rows[: _MOST_LINES if page.verbose else 6]
    first, style = finding.first_line, _SEVERITY_STYLES[finding.severity]
    numbers = [str(first + offset) if first > 0 else "?" for offset in range(len(shown))]
    digits = max(map(len, numbers), default=1)
    room = max(page.width - _INDENT - digits - 5, 8)
    lines = [
        Text.assemble(
            " " * _INDENT,
            (f"{' ' if at else page.sign('▸')} ", style),
            (f"{numbers[at]:>{digits}} ", DIM),
            (f"{page.sign('│')} ", style),
            page.cut(page.clean(row), room),
        )
        for at, row in enumerate(wording.dedented(shown))
    ]
    if rest := len(rows) - len(shown):
        more = f"{page.sign('…')} {wording.counted(rest, 'more line', 'more lines')}"
        lines.append(Text(" " * (_INDENT + digits + 3) + more, style=DIM))
    return lines


def _labelled(page: Page, label: str, text: str, *, style: str) -> list[Text]:
    """Prose beside a label, wrapped under itself; what is endless is cut, and the cut is said."""
    shown = page.clean(text[:_LONGEST_PROSE].strip(), keep_newlines=True, longest=_LONGEST_PROSE)
    if not shown:
        return []
    first = Text.assemble(" " * _INDENT, (f"{label:<{_LABEL_CELLS}}", style))
    lines = page.wrap(prose(shown), indent=_INDENT + _LABEL_CELLS, first=first)
    if len(text) > _LONGEST_PROSE or len(lines) > _MOST_LINES:
        return [*lines[:_MOST_LINES], *_cut_note(page)]
    return lines


def _cut_note(page: Page) -> list[Text]:
    note = Text(f"{page.sign('…')} cut here; the JSON report has it whole", style=DIM)
    return page.wrap(note, indent=_INDENT + _LABEL_CELLS)


def _fix(page: Page, finding: Finding) -> list[Text]:
    fix = fix_of(finding)
    lines: list[Text] = []
    for rows, is_code in blocks_of(fenced(fix.words[:_LONGEST_PROSE]).split("\n")):
        block = "\n".join(rows)
        if is_code and block.strip():
            lines += code_lines(page, block, sign=" ", style="", indent=_INDENT + _LABEL_CELLS)
        elif block.strip():
            lines += _labelled(page, "" if lines else "Fix", block, style="bold green")
    if len(fix.words) > _LONGEST_PROSE:
        lines += _cut_note(page)
    if fix.code.strip():
        lines += code_lines(page, fix.code, sign="+", style="green", indent=_INDENT + _LABEL_CELLS)
    if lines and not lines[0].plain.startswith(f"{' ' * _INDENT}Fix"):
        return [Text.assemble(" " * _INDENT, ("Fix", "bold green")), *lines]
    return lines


def render_text(review: Review, layout: Layout) -> str:
    """The report for a person, in lines of at most the layout's width (`path:line` and commands stay whole).

    With `saved_in` it ends with the next commands. Without `color` there is no escape sequence in it; with `ascii_only`
    no character outside ASCII.
    """
    page = page_of(layout)
    lines = _report(page, review)
    if layout.saved_in is not None:
        lines += _next_steps(page, review, saved_in=layout.saved_in, untrusted=layout.untrusted)
    return print_lines(page, lines)


def _report(page: Page, review: Review) -> list[Text]:
    opening = opening_lines(page, wording.reviewer_in_words(review.reviewer), review.scope.description)
    if review.nothing_to_review and not review.coverage.files_total and not review.errors:
        took = wording.duration(review.usage.duration_seconds)
        return [*opening, _BLANK, Text.assemble(("No changes to review", BOLD), (f" ({took})", DIM))]
    opened, nowhere, refuted, closed = (wording.standing_so(review.findings, standing) for standing in wording.Standing)
    unplaced = [one for one in nowhere if not one.is_unsettled(review.policy.fail_on)]
    sections = [
        # Claims that would block are the first: the review cannot pass before a person has looked at them.
        _section(page, "Needs a person", "not placed in the code, not refuted", review.unsettled),
        *(
            _section(page, page.clean(path), counts_by_severity(found), wording.worst_first(found))
            for path, found in wording.by_file(opened).items()
        ),
        _section(page, "Without a place", "could not be placed in the code; never block", unplaced),
        _in_short(page, "Refuted", refuted, note_of=wording.why_not_counted),
        _in_short(page, "Set aside", closed, note_of=wording.why_set_aside),
        *_not_reviewed(page, review),
        _verdict(page, review),
    ]
    return [*opening, *(line for section in sections if section for line in (_BLANK, *section))]


def opening_lines(page: Page, who: str, what: str) -> list[Text]:
    """The reviewer and why, then what was reviewed."""
    name, colon, rest = page.clean(who).partition(":")
    scope = Text(page.clean(what), style=DIM)
    return [*page.wrap(Text.assemble((name, BOLD), colon, rest)), *(page.wrap(scope) if scope.plain.strip() else [])]


def counts_by_severity(findings: Iterable[Finding]) -> Text:
    """`1 critical, 2 low`: the worst first, each in its colour, steps without findings left out."""
    counts = Counter(finding.severity for finding in findings)
    parts = [Text(f"{counts[step]:,} {step.label}", style=_SEVERITY_STYLES[step]) for step in Severity if counts[step]]
    return Text(", ").join(parts)


def _section(page: Page, title: str, note: Text | str, findings: Sequence[Finding]) -> list[Text]:
    if not findings:
        return []
    blocks = [(_BLANK, *finding_lines(page, finding)) for finding in findings]
    return [*_heading(page, title, note), *[line for block in blocks for line in block][1:]]


def _in_short(page: Page, title: str, findings: Sequence[Finding], *, note_of: Callable[[Finding], str]) -> list[Text]:
    lines = [line for one in findings for line in finding_in_short(page, one, note=note_of(one))]
    return [*_heading(page, title, "not counted"), *lines] if lines else []


def _heading(page: Page, title: str, note: Text | str) -> list[Text]:
    """The title with a rule that runs up to the note at the right; in two lines when they do not fit in one."""
    shown = Text(note, style=DIM) if isinstance(note, str) else note
    room = page.measure - cell_len(title) - shown.cell_len - 2
    if room < 2:
        return [*page.wrap(Text(title, style=BOLD)), *page.wrap(shown)]
    return [Text.assemble((title, BOLD), " ", (page.sign("─") * room, DIM), " ", shown)]


def _not_reviewed(page: Page, review: Review) -> Iterator[list[Text]]:
    coverage = review.coverage
    # One entry for all pieces of the change that failed for one reason, and one for each reviewer and reason.
    pieces: dict[str, list[str]] = defaultdict(list)
    others: dict[tuple[str, str], list[str]] = defaultdict(list)
    for failed in coverage.units_failed:
        if wording.is_piece(failed):
            pieces[failed.reason].append(failed.unit)
        else:
            others[failed.unit, failed.reason] += failed.files
    entries: list[tuple[str, str, Sequence[str]]] = [
        *((f"{len(each):,} units", why, each) if len(each) > 1 else (each[0], why, ()) for why, each in pieces.items()),
        *((name, why, files) for (name, why), files in others.items()),
        *((skip.file, skip.in_words(), ()) for skip in coverage.skipped if skip.is_gap),
    ]
    lines = [line for entry in entries for line in _gap(page, *entry)]
    lines += _left_out(page, [skip for skip in coverage.skipped if not skip.is_gap])
    yield [Text("Not reviewed", style=BOLD), *lines] if lines else []
    errors = wording.errors_beside_gaps(review)
    shown = errors if page.verbose else errors[:10]
    problems = [line for error in shown for line in _gap(page, error.kind, error.message)]
    if rest := len(errors) - len(shown):
        problems += page.wrap(Text(f"{page.sign('…')} {rest:,} more (-v shows them)", style=DIM), indent=_INDENT + 2)
    yield [Text("Problems", style=BOLD), *problems] if problems else []


def _gap(page: Page, name: str, reason: str, files: Sequence[str] = ()) -> list[Text]:
    shown = Text.assemble((page.clean(name), BOLD), "  ", page.clean(reason))
    if files:
        named = files if page.verbose else files[:3]
        more = f" and {len(files) - len(named):,} more" if len(files) > len(named) else ""
        shown = Text.assemble(shown, (f"  {', '.join(map(page.clean, named))}{more}", DIM))
    return page.item(page.sign("✖"), "bold yellow", shown)


def _left_out(page: Page, skipped: Sequence[SkippedFile]) -> list[Text]:
    if not skipped:
        return []
    hint = "" if page.verbose else f" (-v names {'it' if len(skipped) == 1 else 'them'})"
    words = wording.skipped_in_words(skipped)
    is_one_kind = len({skip.reason for skip in skipped}) == 1
    summary = Text.assemble(f"{words} skipped" if is_one_kind else f"{len(skipped):,} skipped: {words}", (hint, DIM))
    sign = Text(f"{' ' * _INDENT}{page.sign('·')} ", style=DIM)
    lines = page.wrap(summary, indent=_INDENT + 2, first=sign)
    for skip in sorted(skipped, key=lambda skip: (skip.reason.value, skip.file)) if page.verbose else ():
        named = Text.assemble(page.clean(skip.file), (f"  {page.clean(skip.in_words())}", DIM))
        lines += page.wrap(named, indent=_INDENT + 4, hang=2)
    return lines


def _verdict(page: Page, review: Review) -> list[Text]:
    outcome = wording.outcome_of(review)
    style, why = _TONE_STYLES[outcome.tone], Text(outcome.why)
    word = f"PASS {page.sign('✔')}" if outcome.word == "PASS" else outcome.word
    badge = page.badge(word, f"bold {style} reverse")
    first = Text.assemble(badge, "  ")
    if outcome.word == wording.NOTHING:
        headline = page.wrap(Text.assemble((f"{wording.NOTHING}: ", "bold"), outcome.why))
    elif first.cell_len > page.measure // 2:
        headline = [badge, *page.wrap(why, indent=2)]
    else:
        headline = page.wrap(why, indent=first.cell_len, first=first)
    rows = [
        ("Findings", _counts(review)),
        ("Coverage", Text(_coverage(page, review))),
        ("Spent", Text(wording.spent_in_words(review.usage))),
        ("Time", Text(wording.duration(review.usage.duration_seconds))),
    ]
    return [
        Text(page.sign("━") * page.measure, style=style),
        *headline,
        *(line for label, value in rows if value.plain for line in page.row(label, value)),
    ]


def _counts(review: Review) -> Text:
    standings = Counter(map(wording.standing_of, review.findings))
    counts = counts_by_severity(finding for finding in review.findings if finding.can_block)
    notes = {
        standing.value: standings[standing] for standing in wording.Standing if standing is not wording.Standing.OPEN
    }
    notes[f"hidden below min_severity={review.policy.min_severity.label}"] = review.hidden_findings
    shown = [Text(f"{count:,} {note}") for note, count in notes.items() if count]
    return Text("; ").join([counts if counts.plain else Text("none"), *shown])


def _coverage(page: Page, review: Review) -> str:
    """How many files, and the gaps: pieces of the change by their number, reviewers such as an analyser by name."""
    coverage = review.coverage
    failed = sum(map(wording.is_piece, coverage.units_failed))
    names = list(dict.fromkeys(failed.unit for failed in coverage.units_failed if not wording.is_piece(failed)))
    if len(names) > 4:
        failed, names = failed + len(names), []
    units = f"{failed:,} of {wording.counted(max(coverage.units_total, failed), 'unit', 'units')}" if failed else ""
    unread = wording.skipped_in_words(skip for skip in coverage.skipped if skip.is_gap)
    gaps = ", ".join(filter(None, (units, *map(page.clean, names), unread)))
    files = f"{coverage.files_reviewed:,} of {wording.counted(coverage.files_total, 'file', 'files')} reviewed"
    return f"{files}; gaps: {gaps}" if gaps else files


def _next_steps(page: Page, review: Review, *, saved_in: str, untrusted: bool) -> list[Text]:
    opened = wording.worst_first(finding for finding in review.findings if finding.is_open and finding.fingerprint)
    if not opened:
        return []
    finding = next((one for one in opened if one.can_block), opened[0])
    repo = f" --repo {shlex.quote(saved_in)}" if saved_in else ""
    commands = [
        ("dismiss", f"codeloupe history dismiss {wording.short_id(finding)}{repo} --reason WHY"),
        ("accept", f"codeloupe baseline add {wording.short_id(finding)}{repo} --reason WHY"),
        ("see all", f"codeloupe history render last{repo} --format html -o review.html"),
    ]
    if untrusted:
        # Only the baseline of its base holds for it, which an entry made now is not in.
        del commands[1]
    return [
        Text.assemble((f"{'' if number else 'Next':<10}", DIM), f"{label:<10}", page.clean(command))
        for number, (label, command) in enumerate(commands)
    ]


_ASPECT = 0.6
_TEXT_ELEMENT = regex(r'(?P<before><text [^<>]*?)textLength="[^"]*"(?P<after>[^<>]*>)(?P<content>[^<]*)</text>')
_COLORS = (0x30363D, 0xDA3633, 0x3FB950, 0xD29922, 0x58A6FF, 0xBC8CFF, 0x39C5CF, 0xF0F6FC)


def svg(review: Review, *, title: str, width: int = 100) -> str:
    """The report as a picture of a terminal `width` cells wide; the same review always gives the same bytes."""
    from rich.terminal_theme import TerminalTheme  # noqa: PLC0415 - for a picture alone

    page = Page(width=width, color=True)
    colors = [(color >> 16, color >> 8 & 255, color & 255) for color in _COLORS]
    console = console_for(page, record=True)
    # The blank line at the end keeps the last one off the frame.
    for line in [*_report(page, review), Text(" ")]:
        console.print(line.for_rich(), soft_wrap=True)
    picture = console.export_svg(
        title=terminal(title),
        theme=TerminalTheme((22, 27, 34), (230, 237, 243), colors),
        code_format=asset("terminal.svg"),
        unique_id="codeloupe",
        font_aspect_ratio=_ASPECT,
    )
    return _TEXT_ELEMENT.sub(_with_true_length, picture)


def _with_true_length(element: re.Match[str]) -> str:
    """rich draws line ends too, and states each character to be one cell long, which squeezes wide ones."""
    if element["content"] == "\n":
        return ""
    from html import unescape  # noqa: PLC0415 - for the picture alone

    pixels = cell_len(unescape(element["content"])) * 20 * _ASPECT
    return f'{element["before"]}textLength="{pixels:g}"{element["after"]}{element["content"]}</text>'
