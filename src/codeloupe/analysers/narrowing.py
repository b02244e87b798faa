"""From issues to findings: only what touches an added line, one finding a defect, evidence without secrets."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.analysers.interface import Issue
from codeloupe.analysers.secret_values import mask_secrets
from codeloupe.model.finding import Finding, Source
from codeloupe.system.redaction import redact

_MAX_EVIDENCE_LINES = 5
_MAX_EVIDENCE_CHARACTERS = 1000
_HARD_CODED_SECRET = "hard-coded secret"  # noqa: S105 - the name of a defect
# Rules that see one defect from two sides: where they meet on a line, one finding is enough.
_SAME_DEFECT = {
    "S105": _HARD_CODED_SECRET,
    "S106": _HARD_CODED_SECRET,
    "S107": _HARD_CODED_SECRET,
    "E722": "swallowed error",
    "S110": "swallowed error",
    "S112": "swallowed error",
    "B012": "jump in finally",
    "SIM107": "jump in finally",
    "F509": "format character",
    "PLE1300": "format character",
    "B005": "strip of a text",
    "PLE1310": "strip of a text",
}


class Report(Struct, frozen=True):
    """An issue, who reported it, and whether it is about a value that must not be shown."""

    analyser: str
    issue: Issue
    is_secret: bool = False

    @property
    def defect(self) -> str:
        """What two reports must share, beside their place, to be one finding."""
        if self.is_secret or "hardcoded" in self.issue.rule:
            return _HARD_CODED_SECRET
        return _SAME_DEFECT.get(self.issue.rule, self.issue.rule)


class AddedLines:
    """The added lines of each file, ready to be asked for ranges."""

    def __init__(self, lines: Mapping[str, frozenset[int]]) -> None:
        self._sorted = {file: sorted(numbers) for file, numbers in lines.items()}

    def anchor(self, issue: Issue) -> Issue | None:
        """The issue at the first added line that it covers, or None when it covers none."""
        numbers = self._sorted.get(issue.file, [])
        index = bisect_left(numbers, issue.line_start)
        if index == len(numbers) or numbers[index] > issue.line_end:
            return None
        return replace(issue, line_start=numbers[index])


def merge(reports: Iterable[Report]) -> list[tuple[Report, int]]:
    """One report for each defect of a line, the most severe, with the number of analysers that agree on it."""
    groups: dict[tuple[str, int, str], list[Report]] = defaultdict(list)
    for report in reports:
        groups[report.issue.file, report.issue.line_start, report.defect].append(report)
    return [
        (min(group, key=lambda report: report.issue.severity.priority), len({report.analyser for report in group}))
        for group in groups.values()
    ]


def finding(report: Report, *, agreement: int, lines: Mapping[int, str], secrets: Iterable[str]) -> Finding:
    """The finding of a report; `lines` are the quoted ones, and no text of it shows a secret in full."""
    issue = report.issue
    hidden = sorted(set(secrets))
    return Finding(
        file=issue.file,
        line_start=issue.line_start,
        line_end=issue.line_end,
        severity=issue.severity,
        category=issue.category,
        title=mask_secrets(issue.title, hidden),
        body=mask_secrets(issue.body, hidden),
        suggestion=None if issue.suggestion is None else _sentence(mask_secrets(issue.suggestion, hidden)),
        # A quoted line may be older than the change, and hold a secret that no analyser was asked about.
        evidence=redact(mask_secrets("\n".join(lines.values()), hidden))[:_MAX_EVIDENCE_CHARACTERS],
        reviewer=report.analyser,
        source=Source.ANALYSER,
        rule=issue.rule,
        agreement=agreement,
    )


def _sentence(text: str) -> str:
    """The text with a capital at its start, as the analysers' own words do not agree on that."""
    return text[:1].upper() + text[1:]


def quoted_lines(issue: Issue, content: Mapping[int, bytes]) -> dict[int, str]:
    """The first lines of an issue, by number; a byte that is not UTF-8 is replaced."""
    last = min(issue.line_end, issue.line_start + _MAX_EVIDENCE_LINES - 1)
    return {
        number: content[number].decode("utf-8", "replace").rstrip("\r")
        for number in range(issue.line_start, last + 1)
        if number in content
    }


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings by file, line and severity."""
    return tuple(
        sorted(findings, key=lambda item: (item.file, item.line_start, item.severity.priority, item.rule or ""))
    )
