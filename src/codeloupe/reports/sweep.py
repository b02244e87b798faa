"""A sweep as text, Markdown, JSON and XML: each commit with its verdict and findings, the plan, and the summary.

JSON and XML are of version 1: fields are added, never changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import indent
from typing import Any
from xml.etree import ElementTree as ET

from msgspec.structs import replace

from codeloupe import __version__
from codeloupe.model.change import Commit
from codeloupe.model.finding import Finding
from codeloupe.model.sweep import CommitReview, CommitSweep, CommitVerdict
from codeloupe.reports import Layout
from codeloupe.reports.json_v1 import TOOL, document, fields_of, json_text
from codeloupe.reports.page import BOLD, DIM, NARROWEST, Page, Part, Text, page_of
from codeloupe.reports.replacement import fenced, fix_of
from codeloupe.reports.text import code_lines, counts_by_severity, finding_in_short, finding_lines, opening_lines
from codeloupe.reports.wording import counted, duration, place_in_words, reviewer_in_words, spent_in_words, worst_first
from codeloupe.system import untrusted
from codeloupe.system.untrusted import code_span, markdown_code, markdown_prose

_NOTHING = "There are no commits to review."
_INDENT = 2
_PHASE_CELLS = 10
_STYLES = {
    CommitVerdict.LEAVE: "bold green",
    CommitVerdict.FIX: "bold yellow",
    CommitVerdict.REVERT: "bold red",
    None: "bold yellow",
}
_PHASE_STYLES = {"red": "bold red", "green": "bold green", "refactor": "bold cyan"}
_COLUMNS = ("Commit", "Verdict", "Score", "Category", "Experts", "Lines", "Files", "Author", "Time", "Subject")
_LONGEST_LINE = 1_000
_LONGEST_TEXT = 6_000
_LONGEST_XML_TEXT = 50_000


def _verdict(commit: CommitReview) -> str:
    return "INCOMPLETE" if commit.verdict is None else commit.verdict.value


def _score(score: float | None) -> str:
    return "-" if score is None else f"{score:.2f}"


def _lines(commit: Commit) -> str:
    return f"+{commit.insertions:,} -{commit.deletions:,}"


def _size(commit: Commit) -> str:
    return f"{_lines(commit)} in {counted(len(commit.files), 'file', 'files')}"


def _time(commit: Commit) -> str:
    return f"{commit.time:%Y-%m-%d %H:%M} UTC"


def _note_on_coverage(reviewed: CommitReview) -> str:
    """That nothing was looked at, since there was nothing to look at; empty for any other commit."""
    if reviewed.review is None or reviewed.failure or reviewed.review.coverage.files_reviewed:
        return ""
    return "none reviewed" if reviewed.review.coverage.files_total else "no changes"


def _findings(commit: CommitReview) -> tuple[Finding, ...]:
    """What was found, also by a review that is not complete."""
    return commit.review.findings if commit.review is not None else ()


def _description(finding: Finding) -> str:
    return "\n\n".join(filter(None, (finding.title.strip(), finding.body.strip())))


def _expert(finding: Finding) -> str:
    """Who found it: the expert, or the reviewer that has none, such as an analyser."""
    return finding.expert or finding.reviewer


def _why_not_counted(finding: Finding) -> str:
    """Why a finding costs its commit nothing; empty for one that counts."""
    if finding.can_block:
        return ""
    if finding.is_open:
        return "could not be placed in the code"
    if finding.suppression is not None:
        return f"suppressed: {finding.suppression.reason}"
    return finding.verification or finding.status.value


def _ending(sweep: CommitSweep) -> str:
    """What the exit code says, as a sentence; empty when all is well."""
    if sweep.exit_code == 1:
        return "There are findings of high or above, and --strict fails on them."
    if sweep.exit_code == 3:
        return "Not every commit could be reviewed."
    has_gaps = any(commit.verdict is None for commit in sweep.commits)
    return "Not every commit could be reviewed; accepted, since on_incomplete is pass." if has_gaps else ""


def render_sweep_text(sweep: CommitSweep, layout: Layout) -> str:
    """The report for a person, within the width of the layout; only `path:line` and the summary may be longer."""
    page = page_of(layout)
    lines = opening_lines(page, reviewer_in_words(sweep.reviewer), "") if sweep.reviewer is not None else []
    lines += page.wrap((page.clean(sweep.description), DIM))
    room = max((len(_standing(commit)) for commit in sweep.commits), default=0)
    # Commits without findings close together, the others with room around them.
    is_roomy = True
    for commit in sweep.commits:
        details = _details(page, commit)
        if is_roomy or details:
            lines.append(Text())
        lines += [*_headline(page, commit, room), *details]
        is_roomy = bool(details)
    return page.printed([*lines, *_closing(page, sweep)])


def _standing(reviewed: CommitReview) -> str:
    if reviewed.verdict is None:
        return _verdict(reviewed)
    return f"{reviewed.verdict.value:<{max(map(len, CommitVerdict))}}  {_score(reviewed.score)}"


def _headline(page: Page, reviewed: CommitReview, room: int) -> list[Text]:
    commit = reviewed.commit
    standing = (f"{_standing(reviewed):<{room}}", _STYLES[reviewed.verdict])
    line = Text(standing, "  ", (commit.sha[:10], "cyan"), "  ", (page.clean(commit.subject, longest=500), BOLD))
    facts = (commit.author, _time(commit), reviewed.category.value, ", ".join(reviewed.experts), _size(commit))
    about = f" {page.sign('·')} ".join(page.clean(fact) for fact in (*facts, _note_on_coverage(reviewed)) if fact)
    return [*page.wrap(line, hang=_INDENT), *page.wrap((about, DIM), indent=_INDENT)]


def _details(page: Page, reviewed: CommitReview) -> list[Text]:
    """Why it could not be reviewed, what was found, and what to do about it; nothing for a clean commit."""
    ordered = sorted(_findings(reviewed), key=lambda one: (one.severity.priority, one.file, one.first_line))
    # The commit of a finding is named above it.
    findings = [replace(finding, commit_sha=None) for finding in ordered]
    sections = [
        page.item(page.sign("✖"), "bold yellow", page.clean(reviewed.failure), hang=0) if reviewed.failure else [],
        *(finding_lines(page, finding) for finding in findings if finding.can_block),
        *(
            finding_in_short(page, finding, note=f"not counted: {_why_not_counted(finding)}")
            for finding in findings
            if not finding.can_block
        ),
        _plan(page, reviewed),
    ]
    return [line for section in sections if section for line in (Text(), *section)]


def _plan(page: Page, reviewed: CommitReview) -> list[Text]:
    lines = [Text((f"{' ' * _INDENT}Plan, test first", BOLD))] if reviewed.plan else []
    for step in reviewed.plan:
        first = Text(" " * _INDENT, (f"{step.phase:<{_PHASE_CELLS}}", _PHASE_STYLES.get(step.phase, BOLD)))
        if page.measure >= 2 * NARROWEST:
            lines += page.wrap(page.clean(step.text), indent=_INDENT + _PHASE_CELLS, first=first)
        else:
            lines += [first, *page.wrap(page.clean(step.text), indent=_INDENT)]
        if step.code:
            lines += code_lines(page, step.code, sign="+", style="green", indent=_INDENT + _PHASE_CELLS)
    return lines


def _closing(page: Page, sweep: CommitSweep) -> list[Text]:
    ending = _ending(sweep)
    style = "red" if sweep.exit_code == 1 else "yellow" if sweep.exit_code or ending else "green"
    rows: dict[str, Part] = {
        "Score": _score(sweep.score),
        "Findings": counts_by_severity(one for commit in sweep.commits for one in _findings(commit) if one.can_block),
        "Spent": spent_in_words(sweep.usage),
        "Time": duration(sweep.usage.duration_seconds),
    }
    return [
        Text(),
        *([] if sweep.commits else [*page.wrap(_NOTHING), Text()]),
        Text((page.sign("━") * page.measure, style)),
        # In one piece, whatever the width: it is what one looks for in a log.
        Text((page.clean(sweep.summary), BOLD)),
        *(page.wrap((page.clean(ending), style)) if ending else []),
        *page.rows(rows),
    ]


def render_sweep_markdown(sweep: CommitSweep) -> str:
    """The sweep as Markdown of the kind that forges show."""
    # It may be printed to the log of a CI system, which obeys lines of certain forms wherever they are.
    return untrusted.without_log_commands("\n".join(_markdown(sweep)) + "\n")


def _markdown(sweep: CommitSweep) -> Iterator[str]:
    score = "" if sweep.score is None else f"Score {sweep.score:.2f}. "
    spent = ", ".join(filter(None, (spent_in_words(sweep.usage), duration(sweep.usage.duration_seconds))))
    yield from ("# Commit review", "", f"**{_line(sweep.summary)}**", "")
    yield from (f"{score}{_ending(sweep)}".rstrip(), "", f"{_line(sweep.description)}  ")
    if sweep.reviewer is not None:
        yield f"{_line(reviewer_in_words(sweep.reviewer))}  "
    yield from (_line(spent), "")
    if not sweep.commits:
        yield _NOTHING
        return
    yield from (f"| {' | '.join(_COLUMNS)} |", f"|{'---|' * len(_COLUMNS)}")
    for reviewed in sweep.commits:
        commit = reviewed.commit
        cells = (
            code_span(commit.sha[:10]),
            f"**{_verdict(reviewed)}**",
            _score(reviewed.score),
            reviewed.category.value.replace("_", "\\_"),
            _cell(", ".join(reviewed.experts)),
            _lines(commit),
            ", ".join(filter(None, (f"{len(commit.files):,}", _note_on_coverage(reviewed)))),
            _cell(commit.author),
            _time(commit),
            _cell(commit.subject),
        )
        yield f"| {' | '.join(cell or ' ' for cell in cells)} |"
    for reviewed in sweep.commits:
        if reviewed.failure or _findings(reviewed):
            yield from _markdown_commit(reviewed)


def _line(text: str) -> str:
    return untrusted.markdown_line(text, longest=_LONGEST_LINE)


def _cell(text: str) -> str:
    return untrusted.markdown_cell(text, longest=200)


def _markdown_commit(reviewed: CommitReview) -> Iterator[str]:
    commit = reviewed.commit
    score = "" if reviewed.score is None else f" {reviewed.score:.2f}"
    yield from ("", f"## {_verdict(reviewed)}{score} {code_span(commit.sha[:10])}", "", f"{_line(commit.subject)}  ")
    yield _line(f"{commit.author}, {_time(commit)}, {reviewed.category.value}, {_size(commit)}")
    if reviewed.failure:
        yield from ("", f"Could not be reviewed: {_line(reviewed.failure)}")
    for finding in worst_first(_findings(reviewed)):
        yield from _markdown_finding(finding)
    if reviewed.plan:
        yield from ("", "Plan, test first:", "")
        for number, step in enumerate(reviewed.plan, start=1):
            yield f"{number}. **{step.phase}**: {_line(step.text)}"
            if step.code:
                yield from ("", indent(markdown_code(step.code[:_LONGEST_TEXT]), "   "), "")


def _markdown_finding(finding: Finding) -> Iterator[str]:
    severity, why = finding.severity, _why_not_counted(finding)
    note = f"not counted: {_cell(why)}" if why else ""
    about = (code_span(place_in_words(finding)), _cell(finding.category), _cell(_expert(finding)), note)
    yield from ("", f"### {severity.label.upper()} P{severity.priority}: {_line(finding.title)}", "")
    yield " · ".join(filter(None, about))
    if finding.evidence.strip():
        rows = finding.evidence.rstrip("\n")[:_LONGEST_TEXT].split("\n")
        yield from ("", markdown_code("\n".join([*rows[:12], *(["…"] if len(rows) > 12 else [])])))
    if finding.body.strip():
        yield from ("", markdown_prose(finding.body, longest=_LONGEST_TEXT))
    fix = fix_of(finding)
    code = markdown_code(fix.code[:_LONGEST_TEXT]) if fix.code.strip() else ""
    parts = list(filter(None, (markdown_prose(fenced(fix.words), longest=_LONGEST_TEXT), code)))
    for part in ["**Fix**", *parts] if parts else []:
        yield from ("", part)
    if finding.verification:
        yield from ("", f"**Verified**: {_line(finding.verification)}")


def render_sweep_json(sweep: CommitSweep) -> str:
    """The sweep as a JSON document, valid and encodable as UTF-8 whatever the commits and findings hold."""
    commits = [_json_commit(commit) for commit in sweep.commits]
    return json_text(
        {
            "schema_version": 1,
            "tool": TOOL,
            **fields_of(sweep, "sweep_id description"),
            "reviewer": sweep.reviewer and fields_of(sweep.reviewer, "type model why"),
            **fields_of(sweep, "summary score exit_code strict"),
            "usage": document("review", "UsageV1", sweep.usage),
            "commits": commits,
            "findings": [finding for commit in commits for finding in commit["findings"]],
        }
    )


def _json_commit(reviewed: CommitReview) -> dict[str, Any]:
    commit, review = reviewed.commit, reviewed.review
    # As `review --format json` has it, so that both have the same fields.
    whole = {} if review is None else document("review", "ReviewV1", review, schema_version=1, tool=None)
    kept = ("review_id", "complete", "summary", "coverage", "usage", "errors", "hidden_findings")
    return {
        **fields_of(commit, "sha author email time subject"),
        **fields_of(reviewed, "category experts"),
        **fields_of(commit, "files insertions deletions"),
        "verdict": _verdict(reviewed),
        "score": reviewed.score,
        "reviewed": reviewed.reviewed,
        "failure": reviewed.failure or None,
        "findings": [
            _json_finding(finding, data)
            for finding, data in zip(_findings(reviewed), whole.get("findings", ()), strict=True)
        ],
        "plan": [{**fields_of(step, "phase text"), "code": step.code or None} for step in reviewed.plan],
        "review": review
        and {"base": review.scope.base, "head": review.scope.head, **{key: whole[key] for key in kept}},
    }


def _json_finding(finding: Finding, whole: dict[str, Any]) -> dict[str, Any]:
    """In a sweep the evidence is a place, `file:line`; the lines themselves are the quote."""
    return {
        "commit_sha": finding.commit_sha,
        "expert": _expert(finding),
        "severity": finding.severity.label,
        "category": finding.category,
        "description": _description(finding),
        "evidence": place_in_words(finding),
        "quote": finding.evidence,
        **{key: value for key, value in whole.items() if key not in ("commit_sha", "expert", "evidence")},
    }


def render_sweep_xml(sweep: CommitSweep) -> str:
    """The sweep as a well-formed document in UTF-8, whatever the commits and findings hold."""
    usage, by = sweep.usage, sweep.reviewer
    root = ET.Element("sweep")
    _set(root, schema_version=1, tool="codeloupe", version=__version__, id=sweep.sweep_id)
    _set(root, score=_xml_score(sweep.score), exit_code=sweep.exit_code, strict=sweep.strict)
    _add(root, "description", sweep.description)
    _add(root, "summary", sweep.summary)
    if by is not None:
        _add(root, "reviewer", by.why, type=by.type, model=by.model or None)
    spent = _add(root, "usage", requests=usage.requests, cached=usage.cached)
    _set(spent, input_tokens=usage.input_tokens, output_tokens=usage.output_tokens)
    _set(spent, cost_usd=f"{usage.cost_usd:.6f}", duration_seconds=f"{usage.duration_seconds:.3f}")
    commits = _add(root, "commits", count=len(sweep.commits))
    for commit in sweep.commits:
        _xml_commit(_add(commits, "commit"), commit)
    ET.indent(root)
    # As in Markdown.
    text = ET.tostring(root, encoding="unicode")
    return untrusted.without_log_commands(f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n')


def _xml_commit(element: ET.Element, reviewed: CommitReview) -> None:
    commit = reviewed.commit
    _set(element, sha=commit.sha, time=commit.time.isoformat(), category=reviewed.category.value)
    _set(element, verdict=_verdict(reviewed), score=_xml_score(reviewed.score), reviewed=reviewed.reviewed)
    _set(element, insertions=commit.insertions, deletions=commit.deletions)
    _add(element, "author", commit.author, email=commit.email)
    _add(element, "subject", commit.subject)
    if reviewed.failure:
        _add(element, "failure", reviewed.failure)
    experts = _add(element, "experts")
    for expert in reviewed.experts:
        _add(experts, "expert", expert)
    files = _add(element, "files", count=len(commit.files))
    for path in commit.files:
        _add(files, "file").text = untrusted.plain_path(path)
    findings = _add(element, "findings", count=len(_findings(reviewed)))
    for finding in _findings(reviewed):
        _xml_finding(_add(findings, "finding"), finding)
    plan = _add(element, "plan")
    for step in reviewed.plan:
        written = _add(plan, "step", step.text, phase=step.phase)
        if step.code:
            _add(written, "code").text = untrusted.plain_code(step.code, longest=_LONGEST_XML_TEXT)


def _xml_finding(element: ET.Element, finding: Finding) -> None:
    severity, code, longest = finding.severity, fix_of(finding).code, _LONGEST_XML_TEXT
    _set(element, commit_sha=finding.commit_sha or "", severity=severity.label, priority=severity.priority)
    _set(element, category=finding.category, expert=_expert(finding), reviewer=finding.reviewer)
    _set(element, fingerprint=finding.fingerprint, status=finding.status.value)
    _set(element, anchored=finding.anchored, counts=finding.can_block)
    for name, text in (
        ("description", untrusted.plain_text(_description(finding), longest=longest)),
        ("evidence", untrusted.plain_path(place_in_words(finding))),
        ("quote", untrusted.plain_code(finding.evidence, longest=longest)),
        ("suggestion", untrusted.plain_code(finding.suggestion, longest=longest) if finding.suggestion else None),
        ("replacement", untrusted.plain_code(code, longest=longest) if code else None),
        ("verification", untrusted.plain_line(finding.verification, longest=5_000) if finding.verification else None),
    ):
        if text is not None:
            _add(element, name).text = text


def _add(parent: ET.Element, name: str, text: str | None = None, **attributes: str | int | None) -> ET.Element:
    element = ET.SubElement(parent, name)
    element.text = None if text is None else untrusted.plain_line(text, longest=5_000)
    return _set(element, **attributes)


def _set(element: ET.Element, **attributes: str | int | None) -> ET.Element:
    """Set attributes, `_` in a name as `-`; None is left out."""
    for name, value in attributes.items():
        if value is not None:
            word = str(value).lower() if isinstance(value, bool) else str(value)
            element.set(name.replace("_", "-"), untrusted.plain_line(word, longest=5_000))
    return element


def _xml_score(score: float | None) -> str | None:
    return None if score is None else f"{score:.2f}"
