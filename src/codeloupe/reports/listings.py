"""Formats that list findings for another tool: lines as linters print them, annotations, Code Quality, reviewdog.

They leave out findings that do not count (refuted, unproven, suppressed, dismissed, fixed, silenced, gone), or only
count them. Each part of the change that could not be reviewed is an entry of its own. A finding that needs a person
says so, and one whose code was not found has no line.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from codeloupe.model.finding import Finding, Severity
from codeloupe.model.review import Review
from codeloupe.reports import Layout, wording
from codeloupe.reports.json_v1 import json_text
from codeloupe.reports.replacement import fenced, fix_of
from codeloupe.system.untrusted import (
    command,
    encodable,
    is_inside,
    markdown_code,
    markdown_line,
    markdown_prose,
    plain_line,
    terminal,
    without_log_commands,
)

_GITLAB_SEVERITIES = dict(zip(Severity, ("blocker", "critical", "major", "minor"), strict=True))
_REVIEWDOG_SEVERITIES = dict(zip(Severity, ("ERROR", "ERROR", "WARNING", "INFO"), strict=True))
_SOURCE = {"name": "codeloupe"}
_LONGEST = 8_000
_MOST_ANNOTATIONS = 10
# The closing notice is one of the ten.
_ROOM = {"error": _MOST_ANNOTATIONS, "warning": _MOST_ANNOTATIONS, "notice": _MOST_ANNOTATIONS - 1}


def _concise(review: Review, layout: Layout) -> str:
    """One line a finding, as compilers and linters print them; the last one is the verdict."""

    def line(text: str) -> str:
        return plain_line(text, longest=500)

    lines = []
    for finding in wording.worst_first(one for one in review.findings if one.is_open):
        name = wording.check_name(finding)
        identity = f" ({wording.short_id(finding)})" if finding.fingerprint else ""
        person = wording.why_pending(finding)
        needs = f" (needs a person: {person})" if person else ""
        what = f"{finding.severity.label}: {line(finding.title) or name} [{name}]{identity}{needs}"
        lines.append(f"{terminal(wording.place_text(finding))}: {what}")
    lines += [
        f"{terminal(gap.name) or '?'}: not reviewed: {line(gap.reason)}".removesuffix(": ")
        for gap in wording.gaps_without_claims(review)
    ]
    outcome = wording.outcome_of(review)
    lines += [line(f"codeloupe: problem: {problem}") for problem in wording.problems_of(review)]
    lines += [line(f"codeloupe: note: {note}") for note in wording.notes_of(review)]
    lines.append(line(f"{outcome.word}: {outcome.why}"))
    text = without_log_commands("".join(f"{line}\n" for line in lines))
    return encodable(text) if layout.ascii_only and not text.isascii() else text


def _github(review: Review, _layout: Layout) -> str:
    """Workflow annotations: what blocks is an error, what does not is a warning or a notice.

    GitHub shows ten of each level for a step and drops the rest, so the worst come first, and the last notice says the
    verdict and what was left out.
    """
    lines: list[str] = []
    counts: Counter[str] = Counter()
    for level, line in _annotations(review):
        counts[level] += 1
        if counts[level] <= _ROOM[level]:
            lines.append(line)
    outcome = wording.outcome_of(review)
    words = f"{outcome.why}. Findings: {wording.counts_text(review)}."
    rest = [f"{counts[level] - room:,} more of level {level}" for level, room in _ROOM.items() if counts[level] > room]
    if rest:
        shown = f" GitHub shows {_MOST_ANNOTATIONS} of a level; not shown: {', '.join(rest)}."
        words += f"{shown} Another format has them all."
    return "".join(f"{line}\n" for line in [*lines, _annotation("notice", f"codeloupe: {outcome.word}", words)])


def _annotations(review: Review) -> Iterator[tuple[str, str]]:
    """The level and the line of each, the worst first: gaps, findings that block, other findings, problems."""
    if gaps := wording.gaps_of(review):
        # All in one, so that they cannot push findings out.
        reasons = [gap.describe() for gap in gaps[:20]]
        more = [f"and {len(gaps) - 20:,} more"] if len(gaps) > 20 else []
        level = "warning" if review.passed else "error"
        yield level, _annotation(level, "codeloupe could not review everything", "\n".join([*reasons, *more]))
    opened = wording.worst_first(finding for finding in review.findings if finding.is_open)
    for finding in sorted(opened, key=lambda finding: not review.policy.blocks(finding)):
        if review.policy.blocks(finding):
            level = "error"
        elif finding.severity is Severity.LOW and not finding.is_pending:
            level = "notice"
        else:
            level = "warning"
        yield level, _annotated(finding, level)
    for problem in wording.problems_of(review):
        yield "warning", _annotation("warning", "codeloupe: problem", problem)
    for note in wording.notes_of(review):
        yield "notice", _annotation("notice", "codeloupe: note", note)


def _annotated(finding: Finding, level: str) -> str:
    fix = fix_of(finding)
    parts = [part for part in (fix.words.strip("\n"), fix.code) if part.strip()]
    advice = "\n".join(["", f"Fix: {parts[0]}", *parts[1:]]) if fix.words.strip() else "\n".join(["", "Fix:", *parts])
    title = " ".join(finding.title.split()) or wording.check_name(finding)
    place = {"file": finding.file if is_inside(finding.file) else ""}
    if finding.first_line > 0:
        place |= {"line": str(finding.first_line), "endLine": str(max(finding.first_line, finding.last_line))}
    message = "\n".join([finding.body or title, *_notes(finding)]) + (advice if parts else "")
    return _annotation(level, f"{finding.severity.label} P{finding.severity.priority}: {title}"[:200], message, **place)


def _notes(finding: Finding) -> list[str]:
    """Return a line each for a missing place, a missing proof, the status and further claims."""
    notes: list[str] = []
    if not finding.anchored:
        notes.append("The code of this finding was not found.")
    person = wording.why_pending(finding)
    if person:
        notes.append(f"Needs a person: {person}.")
    status = wording.status_text(finding)
    if status:
        notes.append(f"Status: {status}.")
    notes += [f"Also: {claim}" for claim in wording.further_claims(finding)]
    return notes


def _annotation(level: str, title: str, message: str, **place: str) -> str:
    properties = {name: value for name, value in {**place, "title": title}.items() if value}
    return command(level, properties, message, longest=4_000)


def _gitlab(review: Review, _layout: Layout) -> str:
    """GitLab's Code Quality report, in the few fields that GitLab reads; it tells two issues apart by fingerprints."""

    def issue(words: str, check: str, fingerprint: str, severity: str, file: str, line: int) -> dict[str, Any]:
        # GitLab wants a path and a line for each issue; the dot is the repository as a whole.
        place = {"path": terminal(file) if is_inside(file) else ".", "lines": {"begin": max(line, 1)}}
        facts = {"description": words, "check_name": check, "fingerprint": fingerprint, "severity": severity}
        return {**facts, "location": place}

    issues = []
    for gap in wording.gaps_without_claims(review):
        words, kind = plain_line(f"Not reviewed: {gap.describe()}", longest=2_000), gap.kind
        issues += [
            issue(words, f"codeloupe/{kind}", _hash(kind, gap.name, file), "critical", file, 1)
            for file in gap.files[:20] or (".",)
        ]
    for finding in review.findings:
        if not finding.is_open:
            continue
        words = title = plain_line(finding.title, longest=2_000) or wording.check_name(finding)
        severity, file = _GITLAB_SEVERITIES[finding.severity], finding.file
        if not finding.anchored:
            # GitLab would show it at a line of the file that it is not about.
            named = f" in {terminal(file[:2_000])}" if file else ""
            words, file = f"{title} (its code was not found{named})", "."
        person = wording.why_pending(finding)
        if person:
            words = f"{words} (needs a person: {person})"
        fingerprint = plain_line(finding.fingerprint, longest=200) or _hash(finding.file, finding.category, title)
        issues.append(issue(words, wording.check_name(finding), fingerprint, severity, file, finding.first_line))
    # GitLab shows only one of several issues that share a fingerprint.
    seen: Counter[str] = Counter()
    for each in issues:
        seen[each["fingerprint"]] += 1
        if (count := seen[each["fingerprint"]]) > 1:
            each["fingerprint"] = _hash(each["fingerprint"], str(count))
    return json_text(issues)


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _rdjson(review: Review, _layout: Layout) -> str:
    diagnostics = _diagnostics(review)
    severities = [diagnostic["severity"] for diagnostic in diagnostics]
    worst = next((word for word in ("ERROR", "WARNING", "INFO") if word in severities), "INFO")
    return json_text({"source": _SOURCE, "severity": worst, "diagnostics": diagnostics})


def _rdjsonl(review: Review, _layout: Layout) -> str:
    return "".join(json_text({**each, "source": _SOURCE}, indent=None) for each in _diagnostics(review))


def _diagnostics(review: Review) -> list[dict[str, Any]]:
    """Gaps, then findings; reviewdog posts their messages as Markdown."""
    gaps = [
        {
            "message": f"Not reviewed: {markdown_prose(gap.describe(), longest=_LONGEST)}",
            "location": {"path": terminal(file)},
            # What the policy lets pass is no error, and still said.
            "severity": "WARNING" if review.policy.pass_when_incomplete else "ERROR",
            "code": {"value": f"codeloupe/{gap.kind}"},
        }
        for gap in wording.gaps_without_claims(review)
        for file in gap.files[:20] or ("",)
    ]
    return [
        *gaps,
        *(_diagnostic(finding) for finding in wording.worst_first(review.findings) if finding.is_open),
    ]


def _diagnostic(finding: Finding) -> dict[str, Any]:
    fix = fix_of(finding)
    title = markdown_line(finding.title, longest=500) or wording.check_name(finding)
    words = markdown_prose(fenced(fix.words), longest=_LONGEST)
    # An edit is a suggestion of its own.
    code = markdown_code(fix.code[:_LONGEST]) if fix.code.strip() and fix.edit is None else ""
    advice = "\n\n".join(filter(None, (words, code)))
    parts = [
        f"{title} ({finding.severity.label})",
        markdown_prose(finding.body, longest=_LONGEST),
        f"Fix:\n{advice}" if advice else "",
        *(markdown_line(note, longest=_LONGEST) for note in _notes(finding)),
    ]
    location: dict[str, Any] = {"path": terminal(finding.file) if is_inside(finding.file) else ""}
    if finding.first_line > 0:
        location["range"] = _range(finding.first_line, finding.last_line)
    diagnostic: dict[str, Any] = {
        "message": "\n\n".join(filter(None, parts)),
        "location": location,
        "severity": _REVIEWDOG_SEVERITIES[finding.severity],
        "code": {"value": wording.check_name(finding)},
    }
    if fix.edit is not None:
        lines = _range(fix.edit.line_start, fix.edit.line_end)
        diagnostic["suggestions"] = [{"range": lines, "text": fix.edit.text}]
    return diagnostic


def _range(start: int, end: int) -> dict[str, Any]:
    """Whole lines, the last one included: that is what a range without columns means."""
    largest = 2**31 - 1
    return {"start": {"line": min(start, largest)}, "end": {"line": min(max(start, end), largest)}}


LISTINGS: dict[str, Callable[[Review, Layout], str]] = {
    "concise": _concise,
    "github": _github,
    "gitlab-codequality": _gitlab,
    "rdjson": _rdjson,
    "rdjsonl": _rdjsonl,
}
