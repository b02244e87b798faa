"""From the issues of all analysers to claims: one claim for each defect of a line, with one piece of advice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.analysers.interface import AnalyserReport, Issue
from codeloupe.analysers.secret_values import mask_secrets
from codeloupe.config.files import read_regular_file
from codeloupe.model.finding import Claim, Source
from codeloupe.system.redaction import redact

# The values on each line that no report may show in full.
Sensitive = Mapping[int, Iterable[str]]
# The lines of a file by their numbers.
Lines = Mapping[int, bytes]
# The reports of the analysers, each with the name of its analyser.
Reports = Sequence[tuple[str, AnalyserReport]]
# The file, the line and the defect that the issues of one claim have in common.
_Key = tuple[str, int, str]

# The analysers, the one that examines a defect most closely first.
_CLOSEST_FIRST = ("detect-secrets", "dataflow", "ast-grep", "ruff")
_MOST_QUOTED_LINES = 5
_MOST_EVIDENCE = 1000


class _Reported(Struct, frozen=True):
    """One anchored issue and the analyser that reports it."""

    analyser: str
    issue: Issue

    @property
    def key(self) -> _Key:
        return self.issue.file, self.issue.anchor, self.issue.defect or self.issue.rule

    @property
    def rank(self) -> tuple[int, int]:
        """Return the place among the issues of one defect: the closest look comes first, then the most severe issue."""
        closeness = len(_CLOSEST_FIRST)
        if self.analyser in _CLOSEST_FIRST:
            closeness = _CLOSEST_FIRST.index(self.analyser)
        return closeness, self.issue.severity.priority


def claims_of(reports: Reports, snapshot: Path, diffs: Mapping[str, Lines]) -> Iterator[Claim]:
    """Yield one claim for each defect of a line.

    The claim has the words of the analyser that examines the defect most closely, and names all analysers that report
    it. A comment silences the reports of the analyser that it is written for; a defect is silenced if all its reports
    are.
    """
    groups: dict[_Key, list[_Reported]] = defaultdict(list)
    for analyser, report in reports:
        for issue in report.issues:
            reported = _Reported(analyser, issue)
            if not _is_quiet(reported, reports):
                groups[reported.key].append(reported)
    contents = dict(diffs)
    for (file, _, _), group in groups.items():
        if file not in contents:
            contents[file] = _lines_of(snapshot / file)
        loud = [one for one in group if not one.issue.silenced_by]
        shown = loud or group
        closest = min(shown, key=lambda one: one.rank)
        sensitive = [report.sensitive.get(file, {}) for _, report in reports]
        claim = claim_of(closest.issue, closest.analyser, contents[file], sensitive)
        analysers = {one.analyser for one in shown}
        yield replace(claim, seen_by=tuple(sorted(analysers)))


def _is_quiet(reported: _Reported, reports: Reports) -> bool:
    """Return whether another analyser has examined the defect more closely on the line of the issue."""
    issue = reported.issue
    for analyser, report in reports:
        names = report.quiet.get(issue.file, {}).get(issue.anchor, frozenset())
        is_named = issue.rule in names or issue.defect in names
        if is_named and analyser != reported.analyser:
            return True
    return False


def _lines_of(path: Path) -> Lines:
    """Return the lines of a file. A file that vanished has none: its claims stay, without a quote."""
    try:
        content = read_regular_file(path)
    except OSError:
        return {}
    return dict(enumerate(content.split(b"\n"), start=1))


def claim_of(issue: Issue, analyser: str, content: Lines, sensitive: Iterable[Sensitive]) -> Claim:
    """Return the claim of an issue in a file with these lines; no text of it shows a sensitive value in full."""
    first = issue.anchor or issue.line_start
    last = min(issue.line_end, first + _MOST_QUOTED_LINES - 1)
    numbers = [number for number in range(first, last + 1) if number in content]
    quoted = "\n".join(content[number].decode("utf-8", "replace").rstrip("\r") for number in numbers)
    hidden: set[str] = set()
    for values in sensitive:
        for number in numbers:
            hidden.update(values.get(number, ()))
    suggestion = mask_secrets(issue.suggestion or "", hidden)
    return Claim(
        reporter=analyser,
        source=Source.ANALYSER,
        severity=issue.severity,
        category=issue.category,
        title=mask_secrets(issue.title, hidden),
        body=mask_secrets(issue.body, hidden),
        file=issue.file,
        line_start=first,
        line_end=issue.line_end,
        # A quoted line may be older than the change, and contain a secret that no analyser was asked about.
        evidence=redact(mask_secrets(quoted, hidden))[:_MOST_EVIDENCE],
        rule=issue.rule,
        rule_title=issue.rule_title,
        suggestion=suggestion or None,
        silenced_by=issue.silenced_by,
    )


def in_order(claims: Iterable[Claim]) -> tuple[Claim, ...]:
    """Return claims by file, line and severity."""
    return tuple(sorted(claims, key=lambda one: (one.file, one.first_line, one.severity.value, one.rule or "")))
