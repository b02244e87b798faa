"""The text report: who reviewed, the findings by file, what was not reviewed, the verdict, and what to do next."""

from __future__ import annotations

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from codeloupe.model.change import Scope, ScopeKind
from codeloupe.model.finding import Finding, Proof, Severity
from codeloupe.model.review import Review
from codeloupe.reports import Layout, asset, wording
from codeloupe.reports.page import BOLD, DIM, Page, Part, Text, cells, page_of, prose
from codeloupe.reports.replacement import blocks_of, fenced, fix_of
from codeloupe.reports.wording import SEVERITY_STYLES, Standing
from codeloupe.system.regex import regex
from codeloupe.system.untrusted import terminal

_TONE_STYLES = {wording.Tone.GOOD: "green", wording.Tone.CAUTION: "yellow", wording.Tone.BAD: "red"}
_INDENT = 2
_LABEL_CELLS = 5
_LONGEST_PROSE = 6_000
_MOST_LINES = 40


def code_lines(page: Page, code: str, *, sign: str, style: str, indent: int) -> list[Text]:
    """Code line by line after a sign, its indentation kept but for what all lines share; cut to the page."""
    rows = code.strip("\n").rstrip().split("\n")
    room = max(page.width - indent - len(sign) - 1, 8)
    lines = [
        Text(" " * indent, (f"{sign} {page.cut(page.clean(row), room)}".rstrip(), style))
        for row in wording.dedented(rows[:_MOST_LINES])
    ]
    if len(rows) > _MOST_LINES:
        lines.append(Text((f"{' ' * indent}{page.sign('…')} {len(rows) - _MOST_LINES:,} more lines", DIM)))
    return lines


def finding_lines(page: Page, finding: Finding) -> list[Text]:
    """One finding in full; every string of it is untrusted and cleaned here."""
    note = f" {page.sign('·')} ".join(wording.origin_of(finding, with_id=False))
    lines = [
        *finding_in_short(page, finding, note=note, style=BOLD),
        *_quote(page, finding),
        *_labelled(page, "Why", finding.body, style=BOLD),
        *_fix(page, finding),
    ]
    if finding.main_claim.proof is Proof.CONFIRMED:
        lines += _labelled(page, page.sign("✔"), wording.proof_text(finding), style="bold green")
    else:
        lines += _labelled(page, "?", wording.proof_text(finding), style="bold yellow")
    for claim in wording.further_claims(finding):
        lines += _labelled(page, "Also", claim, style=BOLD)
    lines += _labelled(page, "!", wording.why_pending(finding), style="bold yellow")
    return lines


def finding_in_short(page: Page, finding: Finding, *, note: str = "", style: str = "") -> list[Text]:
    """Only what it is and where; `note` says what became of it.

    `path:line` is never wrapped or cut, so that a terminal can open it; the note is beside it, or below if too long.
    """
    severity = finding.severity
    word = f"{severity.label.upper()} P{severity.priority}"
    urgent = severity is Severity.CRITICAL
    badge = page.badge(word, "bold reverse red") if urgent else Text((word, SEVERITY_STYLES[severity]))
    title = Text(badge, "  ", (page.clean(finding.title, longest=1_000), style))
    path = page.clean(finding.file)
    named = f"{path}:{finding.line_start}" if finding.first_line > 0 else path
    more = f" to {finding.line_end}" if finding.last_line > finding.first_line > 0 else ""
    place = Text(" " * _INDENT, (named, "cyan"), (more, DIM))
    identity = ""
    if finding.fingerprint:
        identity = f"fingerprint {finding.fingerprint[:12]}" if page.verbose else f"id {wording.short_id(finding)}"
    shown = page.clean(f" {page.sign('·')} ".join(filter(None, (note, identity))))
    fits = cells(place.plain) + 2 + cells(shown) <= page.measure
    below = [Text(place, "  ", (shown, DIM))] if fits else [place, *page.wrap((shown, DIM), indent=_INDENT)]
    return [*page.wrap(title, indent=_INDENT, hang=2), *below]


def _quote(page: Page, finding: Finding) -> list[Text]:
    rows = finding.evidence.rstrip("\n").split("\n") if finding.evidence.strip() else []
    shown = rows[: _MOST_LINES if page.verbose else 6]
    first, style = finding.first_line, SEVERITY_STYLES[finding.severity]
    numbers = [str(first + offset) if first > 0 else "?" for offset in range(len(shown))]
    digits = max(map(len, numbers), default=1)
    room = max(page.width - _INDENT - digits - 5, 8)
    lines = [
        Text(
            " " * _INDENT,
            (f"{' ' if at else page.sign('▸')} ", style),
            (f"{numbers[at]:>{digits}} ", DIM),
            (f"{page.sign('│')} ", style),
            page.cut(page.clean(row), room),
        )
        for at, row in enumerate(wording.dedented(shown))
    ]
    if rest := len(rows) - len(shown):
        more = f"{page.sign('…')} {wording.counted(rest, 'more line')}"
        lines.append(Text((" " * (_INDENT + digits + 3) + more, DIM)))
    return lines


def _labelled(page: Page, label: str, text: str, *, style: str) -> list[Text]:
    """Prose beside a label, wrapped under itself; what is endless is cut, and the cut is said."""
    shown = page.clean(text[:_LONGEST_PROSE].strip(), keep_newlines=True, longest=_LONGEST_PROSE)
    if not shown:
        return []
    first = Text(" " * _INDENT, (f"{label:<{_LABEL_CELLS}}", style))
    lines = page.wrap(prose(shown), indent=_INDENT + _LABEL_CELLS, first=first)
    is_cut = len(text) > _LONGEST_PROSE or len(lines) > _MOST_LINES
    return [*lines[:_MOST_LINES], *_cut_note(page)] if is_cut else lines


def _cut_note(page: Page) -> list[Text]:
    return page.wrap((f"{page.sign('…')} cut here; the JSON report has it whole", DIM), indent=_INDENT + _LABEL_CELLS)


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
        return [Text(" " * _INDENT, ("Fix", "bold green")), *lines]
    return lines


def render_text(review: Review, layout: Layout) -> str:
    """The report for a person, in lines of at most the layout's width (`path:line` and commands stay whole).

    With `saved_in` it ends with the next commands. Without `color` there is no escape sequence in it; with `ascii_only`
    no character outside ASCII.
    """
    page = page_of(layout)
    return page.printed([*_report(page, review), *_next_steps(page, review)])


def _report(page: Page, review: Review) -> list[Text]:
    opening = opening_lines(page, wording.reviewer_text(review.reviewer), review.scope.description)
    if review.is_empty and not review.errors:
        took = wording.duration(review.usage.duration_seconds)
        return [*opening, Text(), Text(("No changes to review", BOLD), (f" ({took})", DIM))]
    groups = wording.by_standing(review.findings)
    # The review cannot pass before a person has looked at the pending findings, so they come first.
    sections = [_section(page, "Needs a person", ("could not be settled", DIM), groups[Standing.PENDING])]
    for path, found in wording.by_file(groups[Standing.OPEN]).items():
        sections.append(_section(page, page.clean(path), counts_by_severity(found), wording.worst_first(found)))
    sections += [
        _in_short(page, "Unproven", groups[Standing.UNPROVEN], note_of=wording.why_not_counted),
        _in_short(page, "Refuted", groups[Standing.REFUTED], note_of=wording.why_not_counted),
        _in_short(page, "Set aside", groups[Standing.SET_ASIDE], note_of=wording.why_set_aside),
        *_not_reviewed(page, review),
        _failovers(page, review),
        _verdict(page, review),
    ]
    return [*opening, *(line for section in sections if section for line in (Text(), *section))]


def opening_lines(page: Page, who: str, what: str) -> list[Text]:
    """The reviewer and why, then what was reviewed."""
    name, colon, rest = page.clean(who).partition(":")
    scope = page.clean(what)
    return [*page.wrap(Text((name, BOLD), colon, rest)), *(page.wrap((scope, DIM)) if scope.strip() else [])]


def counts_by_severity(findings: Iterable[Finding]) -> Text:
    """`1 critical, 2 low`: the worst first, each in its colour, steps without findings left out; or `none`."""
    counts = Counter(finding.severity for finding in findings)
    parts = [Text((f"{counts[step]:,} {step.label}", SEVERITY_STYLES[step])) for step in Severity if counts[step]]
    return Text(", ").join(parts or [Text("none")])


def _section(page: Page, title: str, note: Part, findings: Sequence[Finding]) -> list[Text]:
    blocks = [(Text(), *finding_lines(page, finding)) for finding in findings]
    return [*_heading(page, title, note), *[line for block in blocks for line in block][1:]] if blocks else []


def _in_short(page: Page, title: str, findings: Sequence[Finding], *, note_of: Callable[[Finding], str]) -> list[Text]:
    lines = [line for one in findings for line in finding_in_short(page, one, note=note_of(one))]
    return [*_heading(page, title, ("not counted", DIM)), *lines] if lines else []


def _heading(page: Page, title: str, note: Part) -> list[Text]:
    """The title with a rule that runs up to the note at the right; in two lines when they do not fit in one."""
    room = page.measure - cells(title) - cells(Text(note).plain) - 2
    if room < 2:
        return [*page.wrap((title, BOLD)), *page.wrap(note)]
    return [Text((title, BOLD), " ", (page.sign("─") * room, DIM), " ", note)]


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
        *((skip.file, skip.describe(), ()) for skip in coverage.skipped if skip.is_gap),
    ]
    lines = [line for entry in entries for line in _gap(page, *entry)]
    lines += _left_out(page, review)
    yield [Text(("Not reviewed", BOLD)), *lines] if lines else []
    yield _sentences(page, "Problems", wording.problems_of(review), ("✖", "bold yellow"))
    yield _sentences(page, "Notes", wording.notes_of(review), ("·", DIM))


def _sentences(page: Page, title: str, sentences: Sequence[str], sign: tuple[str, str]) -> list[Text]:
    """Return a section with an item for each sentence; nothing without any."""
    if not sentences:
        return []
    shown = sentences if page.verbose else sentences[:10]
    lines = [Text((title, BOLD))]
    for words in shown:
        lines += page.item(page.sign(sign[0]), sign[1], Text(page.clean(words)))
    rest = len(sentences) - len(shown)
    if rest:
        lines += page.wrap((f"{page.sign('…')} {rest:,} more (-v shows them)", DIM), indent=_INDENT + 2)
    return lines


def _failovers(page: Page, review: Review) -> list[Text]:
    """List the units that another agent answered, and why."""
    lines: list[Text] = []
    for failover in wording.failovers_of(review):
        units = f"  {page.clean(failover.listed)}" if failover.listed else ""
        words = Text((page.clean(failover.name), BOLD), "  ", page.clean(failover.why), (units, DIM))
        lines += page.item(page.sign("·"), DIM, words)
    return [Text(("Failover", BOLD)), *lines] if lines else []


def _gap(page: Page, name: str, reason: str, files: Sequence[str] = ()) -> list[Text]:
    named = files if page.verbose else files[:3]
    more = f" and {len(files) - len(named):,} more" if len(files) > len(named) else ""
    about = f"  {', '.join(map(page.clean, named))}{more}" if files else ""
    return page.item(
        page.sign("✖"), "bold yellow", Text((page.clean(name), BOLD), "  ", page.clean(reason), (about, DIM))
    )


def _left_out(page: Page, review: Review) -> list[Text]:
    skipped = review.left_out
    if not skipped:
        return []
    hint = "" if page.verbose else f" (-v names {'it' if len(skipped) == 1 else 'them'})"
    words = wording.skipped_text(skipped)
    is_one_kind = len({skip.reason for skip in skipped}) == 1
    summary = Text(f"{words} skipped" if is_one_kind else f"{len(skipped):,} skipped: {words}", (hint, DIM))
    lines = page.wrap(summary, indent=_INDENT + 2, first=Text((f"  {page.sign('·')} ", DIM)))
    for skip in sorted(skipped, key=lambda skip: (skip.reason.value, skip.file)) if page.verbose else ():
        named = Text(page.clean(skip.file), (f"  {page.clean(skip.describe())}", DIM))
        lines += page.wrap(named, indent=_INDENT + 4, hang=2)
    return lines


def _verdict(page: Page, review: Review) -> list[Text]:
    outcome = wording.outcome_of(review)
    style = _TONE_STYLES[outcome.tone]
    badge = page.badge(f"PASS {page.sign('✔')}" if outcome.word == "PASS" else outcome.word, f"bold reverse {style}")
    used = cells(badge.plain) + 2
    if outcome.word == wording.NOTHING:
        headline = page.wrap(Text((f"{wording.NOTHING}: ", BOLD), outcome.why))
    elif used > page.measure // 2:
        headline = [badge, *page.wrap(outcome.why, indent=2)]
    else:
        headline = page.wrap(outcome.why, indent=used, first=Text(badge, "  "))
    counts = counts_by_severity(finding for finding in review.findings if finding.can_block)
    _, more, others = wording.counts_text(review).partition("; ")
    rows: dict[str, Part] = {
        "Findings": Text(counts, more, others),
        "Coverage": _coverage(page, review),
        "Spent": wording.spent_text(review.usage),
        "Time": wording.duration(review.usage.duration_seconds),
    }
    return [Text((page.sign("━") * page.measure, style)), *headline, *page.rows(rows)]


def _coverage(page: Page, review: Review) -> str:
    """How many files, and the gaps: pieces of the change by their number, reviewers such as an analyser by name."""
    coverage = review.coverage
    failed = sum(map(wording.is_piece, coverage.units_failed))
    names = list(dict.fromkeys(failed.unit for failed in coverage.units_failed if not wording.is_piece(failed)))
    if len(names) > 4:
        failed, names = failed + len(names), []
    units = f"{failed:,} of {wording.counted(max(coverage.units_total, failed), 'unit')}" if failed else ""
    unread = wording.skipped_text(skip for skip in coverage.skipped if skip.is_gap)
    gaps = ", ".join(filter(None, (units, *map(page.clean, names), unread)))
    return f"{wording.files_reviewed(review)}; gaps: {gaps}" if gaps else wording.files_reviewed(review)


def other_scopes(page: Page, scope: Scope) -> list[Text]:
    """Return commands that review something if this scope has no change."""
    repo = f" --repo {shlex.quote(page.saved_in)}" if page.saved_in else ""
    commands = {what: f"codeloupe review{repo} {options}" for what, options in scope.others.items()}
    if not commands:
        return []
    commands["each commit of the last day"] = f"codeloupe commits{repo}"
    return [Text(), Text(("To review something else:", DIM)), *_listed(page, commands)]


def _listed(page: Page, commands: Mapping[str, str]) -> list[Text]:
    width = max(map(len, commands))
    return [Text(f"  {what:<{width}}  ", page.clean(command)) for what, command in commands.items()]


def _next_steps(page: Page, review: Review) -> list[Text]:
    if review.is_empty:
        return other_scopes(page, review.scope)
    opened = wording.worst_first(finding for finding in review.findings if finding.is_open and finding.fingerprint)
    if not opened or page.saved_in is None:
        return []
    identity = wording.short_id(next((one for one in opened if one.can_block), opened[0]))
    repo = f" --repo {shlex.quote(page.saved_in)}" if page.saved_in else ""
    commands = {
        "dismiss": f"codeloupe history dismiss {identity}{repo} --reason WHY",
        "accept": f"codeloupe baseline add {identity}{repo} --reason WHY",
        "see all": f"codeloupe history render last{repo} --format html -o review.html",
    }
    if page.untrusted:
        # Only the baseline of its base holds for it, which an entry made now is not in.
        del commands["accept"]
    steps = [
        Text((f"{'' if number else 'Next':<10}", DIM), f"{label:<10}", page.clean(command))
        for number, (label, command) in enumerate(commands.items())
    ]
    if _is_first(review) and not page.untrusted:
        steps += page.rows({"All new": _ALL_NEW})
        steps.append(Text(" " * 10, page.clean(f"codeloupe baseline add --all{repo} --reason WHY")))
    return steps


def _is_first(review: Review) -> bool:
    """Return whether findings block a change that has no earlier commit to compare with, as in a first push."""
    scope = review.scope
    return scope.base is None and scope.kind is not ScopeKind.DIFF_FILE and review.exit_code == 1


_ALL_NEW = (
    "There is no earlier commit to compare with, so old code counts as new. Fix what must not be published, such as "
    "secrets. Then accept the rest once, so that later reviews report only new findings, and commit "
    "codeloupe-baseline.yaml:"
)
_ASPECT = 0.6
_TEXT_ELEMENT = regex(r'(?P<before><text [^<>]*?)textLength="[^"]*"(?P<after>[^<>]*>)(?P<content>[^<]*)</text>')
_COLORS = (0x30363D, 0xDA3633, 0x3FB950, 0xD29922, 0x58A6FF, 0xBC8CFF, 0x39C5CF, 0xF0F6FC)


def svg(review: Review, *, title: str, width: int = 100) -> str:
    """Return the report as a picture of a terminal `width` cells wide, with its first finding alone.

    The same review always gives the same bytes.
    """
    from io import StringIO  # noqa: PLC0415 - for a picture alone, as what follows

    from rich.console import Console  # noqa: PLC0415
    from rich.terminal_theme import TerminalTheme  # noqa: PLC0415
    from rich.text import Text as RichText  # noqa: PLC0415

    page = Page(width=width, color=True)
    colors = [(color >> 16, color >> 8 & 255, color & 255) for color in _COLORS]
    # What would else be asked of the environment.
    known: dict[str, Any] = {"color_system": "standard", "force_terminal": True, "no_color": False}
    known |= {"force_jupyter": False, "legacy_windows": False}
    console = Console(file=StringIO(), width=width, record=True, **known)
    # The blank line at the end keeps the last one off the frame.
    for line in [*_shortened(page, review), Text(" ")]:
        console.print(RichText.assemble(*line.pieces), soft_wrap=True)
    picture = console.export_svg(
        title=terminal(title),
        theme=TerminalTheme((22, 27, 34), (230, 237, 243), colors),
        code_format=asset("terminal.svg"),
        unique_id="codeloupe",
        font_aspect_ratio=_ASPECT,
    )
    return _TEXT_ELEMENT.sub(_with_true_length, picture)


def _shortened(page: Page, review: Review) -> list[Text]:
    """Return the lines of the report up to its first finding, the number of the others, and the verdict.

    A report with gaps or without open findings is not shortened.
    """
    files = wording.by_file(wording.by_standing(review.findings)[Standing.OPEN])
    if not files or not review.complete:
        return _report(page, review)
    path, found = next(iter(files.items()))
    lines = opening_lines(page, wording.reviewer_text(review.reviewer), review.scope.description)
    lines += [Text(), *_heading(page, page.clean(path), counts_by_severity(found))]
    lines += finding_lines(page, wording.worst_first(found)[0])
    others = len(review.findings) - 1
    if others > 0:
        more = f"{page.sign('…')} and {wording.counted(others, 'more finding')}"
        lines += [Text(), *page.wrap((more, DIM), indent=_INDENT)]
    return [*lines, Text(), *_verdict(page, review)]


def _with_true_length(element: re.Match[str]) -> str:
    """rich draws line ends too, and states each character to be one cell long, which squeezes wide ones."""
    if element["content"] == "\n":
        return ""
    from html import unescape  # noqa: PLC0415 - for the picture alone

    pixels = cells(unescape(element["content"])) * 20 * _ASPECT
    return f'{element["before"]}textLength="{pixels:g}"{element["after"]}{element["content"]}</text>'
