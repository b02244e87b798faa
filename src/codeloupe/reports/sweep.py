"""A sweep as text, Markdown, JSON and XML: each commit with its verdict and findings, the plan, and the summary.

JSON and XML are of version 1: fields are added, never changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from textwrap import indent
from typing import Any

from msgspec.structs import replace

from codeloupe import __version__
from codeloupe.model.change import Commit
from codeloupe.model.finding import Finding
from codeloupe.model.sweep import CommitReview, CommitSweep, CommitVerdict
from codeloupe.reports import Layout, asset, wording
from codeloupe.reports.json_v1 import TOOL, document, fields_of, json_text
from codeloupe.reports.markdown import finding_block
from codeloupe.reports.markup import Markup, filled
from codeloupe.reports.page import BOLD, DIM, NARROWEST, Page, Part, Text, page_of
from codeloupe.reports.replacement import fix_of
from codeloupe.reports.text import code_lines, counts_by_severity, finding_in_short, finding_lines, opening_lines
from codeloupe.system import untrusted
from codeloupe.system.untrusted import code_span, markdown_code

_NOTHING = "There are no commits to review."
_INDENT = 2
_PHASE_CELLS = 10
_STYLES = {
    CommitVerdict.LEAVE: "bold green",
    CommitVerdict.FIX: "bold yellow",
    CommitVerdict.REVERT: "bold red",
    None: "bold yellow",
}
_PHASE_STYLES = {"fix": "bold yellow", "red": "bold red", "green": "bold green", "refactor": "bold cyan"}
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
    return f"{_lines(commit)} in {wording.counted(len(commit.files), 'file')}"


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


def _ending(sweep: CommitSweep) -> str:
    """What the exit code says, as a sentence; empty when all is well."""
    if sweep.exit_code == 1:
        return "There are findings of high or above, and --strict fails on them."
    if sweep.exit_code == 3:
        return "Not every commit could be reviewed."
    has_gaps = any(commit.verdict is None for commit in sweep.commits)
    return "Not every commit could be reviewed; accepted, because on_incomplete is pass." if has_gaps else ""


def render_sweep_text(sweep: CommitSweep, layout: Layout) -> str:
    """The report for a person, within the width of the layout; only `path:line` and the summary may be longer."""
    page = page_of(layout)
    lines = opening_lines(page, wording.reviewer_text(sweep.reviewer), "") if sweep.reviewer is not None else []
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
    # The commit of a finding is named above it.
    findings = [replace(finding, commit_sha=None) for finding in wording.worst_first(_findings(reviewed))]
    sections = [
        page.item(page.sign("✖"), "bold yellow", page.clean(reviewed.failure), hang=0) if reviewed.failure else [],
        *(finding_lines(page, finding) for finding in findings if finding.is_open),
        *(
            finding_in_short(page, finding, note=f"not counted: {wording.why_not_counted(finding)}")
            for finding in findings
            if not finding.is_open
        ),
        _plan(page, reviewed),
    ]
    return [line for section in sections if section for line in (Text(), *section)]


def _plan_heading(reviewed: CommitReview) -> str:
    """Return the heading of a plan; a plan of fixes alone needs no tests."""
    is_test_first = any(step.phase == "red" for step in reviewed.plan)
    return "Plan, test first" if is_test_first else "Plan"


def _plan(page: Page, reviewed: CommitReview) -> list[Text]:
    lines = [Text((f"{' ' * _INDENT}{_plan_heading(reviewed)}", BOLD))] if reviewed.plan else []
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
        "Spent": wording.spent_text(sweep.usage),
        "Time": wording.duration(sweep.usage.duration_seconds),
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
    facts = (wording.spent_text(sweep.usage), wording.duration(sweep.usage.duration_seconds))
    yield from ("# Commit review", "", f"**{_line(sweep.summary)}**", "")
    yield from (f"{score}{_ending(sweep)}".rstrip(), "", f"{_line(sweep.description)}  ")
    if sweep.reviewer is not None:
        yield f"{_line(wording.reviewer_text(sweep.reviewer))}  "
    yield from (_line(", ".join(filter(None, facts))), "")
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
    for finding in wording.worst_first(_findings(reviewed)):
        # The commit of a finding is named above it.
        yield from ("", finding_block(replace(finding, commit_sha=None)))
        if why := wording.why_not_counted(finding):
            yield from ("", f"not counted: {_line(why)}")
    if reviewed.plan:
        yield from ("", f"{_plan_heading(reviewed)}:", "")
        for number, step in enumerate(reviewed.plan, start=1):
            yield f"{number}. **{step.phase}**: {_line(step.text)}"
            if step.code:
                yield from ("", indent(markdown_code(step.code[:_LONGEST_TEXT]), "   "), "")


def render_sweep_json(sweep: CommitSweep) -> str:
    """The sweep as a JSON document, valid and encodable as UTF-8 whatever the commits and findings hold."""
    return json_text(_document(sweep))


def _document(sweep: CommitSweep) -> dict[str, Any]:
    commits = [_json_commit(commit) for commit in sweep.commits]
    return {
        "schema_version": 1,
        "tool": TOOL,
        **fields_of(sweep, "sweep_id description"),
        "reviewer": sweep.reviewer and fields_of(sweep.reviewer, "type model why"),
        **fields_of(sweep, "summary score exit_code strict"),
        "usage": document("review", "UsageV1", sweep.usage),
        "commits": commits,
        "findings": [finding for commit in commits for finding in commit["findings"]],
    }


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
        # Who found it, where that is no expert: such as an analyser.
        "expert": finding.expert or finding.reviewer,
        "severity": finding.severity.label,
        "category": finding.category,
        "description": "\n\n".join(filter(None, (finding.title.strip(), finding.body.strip()))),
        "evidence": wording.place_text(finding),
        "quote": finding.evidence,
        **{key: value for key, value in whole.items() if key not in ("commit_sha", "expert", "evidence")},
    }


def render_sweep_xml(sweep: CommitSweep) -> str:
    """The sweep as a well-formed document in UTF-8, whatever the commits and findings hold."""
    whole, usage = _document(sweep), sweep.usage
    values = {
        **whole,
        **whole["usage"],
        "version": __version__,
        "score": _xml_score(sweep.score),
        "reviewers": [whole["reviewer"]] if sweep.reviewer is not None else [],
        "cost": f"{usage.cost_usd:.6f}",
        "seconds": f"{usage.duration_seconds:.3f}",
        "count": len(sweep.commits),
        "commits": list(map(_xml_commit, sweep.commits, whole["commits"])),
    }
    # As in Markdown.
    return untrusted.without_log_commands(
        filled(asset("sweep.xml"), values, lambda text: untrusted.plain_line(text, longest=5_000))
    )


def _xml_commit(reviewed: CommitReview, whole: dict[str, Any]) -> dict[str, Any]:
    findings = [
        {
            **data,
            "counts": finding.can_block,
            "description": _xml_text(untrusted.plain_text(data["description"], longest=_LONGEST_XML_TEXT)),
            "evidence": _xml_text(untrusted.terminal(data["evidence"])),
            "quote": _xml_code(finding.evidence),
            "suggestion": _xml_code(finding.suggestion),
            "replacement": _xml_code(fix_of(finding).code),
            "claims": [{"claim": claim} for claim in wording.further_claims(finding)],
        }
        for finding, data in zip(_findings(reviewed), whole["findings"], strict=True)
    ]
    return {
        **whole,
        "score": _xml_score(reviewed.score),
        "experts": [{"name": expert} for expert in reviewed.experts],
        "files": [{"path": _xml_text(untrusted.terminal(path))} for path in reviewed.commit.files],
        "files_count": len(reviewed.commit.files),
        "findings": findings,
        "findings_count": len(findings),
        "plan": [{"phase": step.phase, "text": step.text, "code": _xml_code(step.code)} for step in reviewed.plan],
    }


def _xml_score(score: float | None) -> str:
    return "" if score is None else f"{score:.2f}"


def _xml_text(clean: str) -> Markup:
    return Markup(escape(clean))


def _xml_code(code: str | None) -> Markup:
    return _xml_text(untrusted.plain_code(code or "", longest=_LONGEST_XML_TEXT))
