"""Findings that do not count because a person said so: baseline, dismissals, and comments in the code.

A suppression records the highest severity claimed, and applies to the same statement while no claim is more severe. A
statement is the same if its tokens are; of several copies in a file, only the one in the same definition. A comment
records the severity when it is first seen; another reason makes it another comment. A suppressed finding stays in the
review and says why it does not count. Every suppression that does not do what its author wanted is reported.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date
from functools import cache, lru_cache

from msgspec.structs import replace

from codeloupe.findings.claims import worst
from codeloupe.findings.comments import Comments, LinesOf, Mark, lines_reader, listed, marks_in
from codeloupe.findings.same_defect import CERTAINLY_SIMILAR, is_analyser, likeness
from codeloupe.model.baseline import BASELINE_NAME, EXPIRED, UNUSED, Baseline, BaselineEntry, shown_path
from codeloupe.model.change import FileChange, FileStatus
from codeloupe.model.finding import Claim, Finding, Severity, Source, Suppression, SuppressionKind
from codeloupe.model.history import Dismissal
from codeloupe.model.ports import Plan
from codeloupe.model.review import Level, ReviewError
from codeloupe.source.code import tokens_of_code

StatementsOf = Callable[[Claim], Collection[str]]


class Suppressions:
    """All suppressions of one review. `unknown` are files that were not reviewed completely or not read.

    `statements_of` returns the names of the statements that a claim is about now. `open_findings` are the fingerprints
    of the open findings of the review, and `earlier` the findings of earlier rounds.
    """

    def __init__(  # noqa: PLR0913 - each is a fact of its own, by name
        self,
        plan: Plan,
        *,
        statements_of: StatementsOf,
        baseline: Baseline = Baseline(),  # noqa: B008 - frozen
        earlier: Iterable[Finding] = (),
        dismissals: Sequence[Dismissal] = (),
        today: date,
        unknown: frozenset[str] = frozenset(),
        open_findings: frozenset[str] = frozenset(),
    ) -> None:
        self._plan = plan
        self._lines_of = lines_reader(plan)
        self._comments = Comments(self._lines_of, trusted=plan.trusted)
        self._statements_of = statements_of
        files = _Files(plan.files)
        self._baseline = KnownEntries(
            baseline,
            files,
            statements_of=statements_of,
            today=today,
            unknown=unknown | plan.without_content,
            open_findings=open_findings,
        )
        dismissed = Baseline(entries=tuple(_entry_of(one) for one in dismissals))
        self._dismissals = KnownEntries(
            dismissed,
            files,
            statements_of=statements_of,
            today=today,
            unknown=frozenset(),
            open_findings=open_findings,
        )
        self._accepted_by_comments: dict[tuple[str, str], Severity] = {}
        for finding in earlier:
            if finding.comment is not None:
                self._note_comment(finding, finding.comment)

    def applied_to(self, finding: Finding) -> Finding:
        """Return a finding with what suppresses it, and with its comment in the code."""
        mark = self._comments.mark_for(finding)
        if mark is not None:
            finding = replace(finding, comment=self._comment(finding, mark))
        return replace(finding, suppression=self._suppression_of(finding, has_comment=mark is not None))

    def _suppression_of(self, finding: Finding, *, has_comment: bool) -> Suppression | None:
        entry = self._baseline.entry_for(finding)
        dismissal = self._dismissals.entry_for(finding)
        if dismissal is not None:
            return Suppression(
                kind=SuppressionKind.DISMISSAL,
                reason=dismissal.reason,
                owner=dismissal.owner,
                severity=dismissal.severity,
            )
        if entry is not None:
            return Suppression(
                kind=SuppressionKind.BASELINE,
                reason=entry.reason,
                owner=entry.owner,
                expires=entry.expires,
                entry=entry.fingerprint,
                severity=entry.severity,
            )
        comment = finding.comment
        if not has_comment or comment is None or _claims_more_than(comment.severity, finding):
            return None
        return comment

    def _comment(self, finding: Finding, mark: Mark) -> Suppression:
        """Return the comment as it was first seen, with the severity that was claimed then."""
        if finding.comment is not None and finding.comment.reason == mark.reason:
            return finding.comment
        names = [name for claim in finding.claims for name in self._statements_of(claim)]
        known = [self._accepted_by_comments.get((name, mark.reason)) for name in names]
        accepted = worst(severity for severity in known if severity is not None)
        claimed = worst(claim.severity for claim in finding.claims if claim.is_active)
        return Suppression(kind=SuppressionKind.INLINE, reason=mark.reason, severity=accepted or claimed)

    def _note_comment(self, finding: Finding, comment: Suppression) -> None:
        """Note what a comment accepted on the statements of an earlier finding."""
        for name in _statements(finding):
            known = self._accepted_by_comments.get((name, comment.reason))
            accepted = worst(severity for severity in (comment.severity, known) if severity is not None)
            if accepted is not None:
                self._accepted_by_comments[name, comment.reason] = accepted

    def errors(self) -> tuple[ReviewError, ...]:
        """Report what a person should know, once every finding was asked about."""
        added = added_suppressions(self._plan.change.files)
        return (*self._baseline.errors(self._lines_of), *self._comments.errors(), *added)


class _Files:
    """The reviewed files by the names that an entry may have for them: a moved file has two."""

    def __init__(self, files: Sequence[FileChange]) -> None:
        self._by_name: dict[str, FileChange] = {}
        for file in files:
            # A file that was copied is still where it was.
            if file.old_path and file.status is not FileStatus.COPIED:
                self._by_name[shown_path(file.old_path)] = file
        for file in files:
            if file.new_path:
                self._by_name[shown_path(file.new_path)] = file

    def named(self, name: str) -> FileChange | None:
        """Return the reviewed file that an entry means."""
        return self._by_name.get(name)

    def names_of(self, path: str) -> tuple[str, ...]:
        """Return the names that an entry may have for a path; an entry without a file applies to any."""
        shown = shown_path(path)
        file = self._by_name.get(shown)
        if file is None or not file.old_path or file.status is FileStatus.COPIED:
            return "", shown
        return "", shown, shown_path(file.old_path)


class KnownEntries:
    """The entries of a baseline, or the dismissals, and what becomes of them in one review.

    An entry whose own finding is open applies to that one alone: a copy of its statement is another statement.
    """

    def __init__(
        self,
        baseline: Baseline,
        files: _Files,
        *,
        statements_of: StatementsOf,
        today: date,
        unknown: frozenset[str],
        open_findings: frozenset[str] = frozenset(),
    ) -> None:
        self._statements_of = statements_of
        self._baseline = baseline
        self._files = files
        self._today = today
        self._unknown = unknown
        self._open_findings = open_findings
        self._by_fingerprint: defaultdict[str, list[BaselineEntry]] = defaultdict(list)
        self._by_file: defaultdict[str, list[BaselineEntry]] = defaultdict(list)
        for entry in (*baseline.entries, *baseline.also):
            self._by_fingerprint[entry.fingerprint].append(entry)
            self._by_file[entry.file].append(entry)
        self._used: set[BaselineEntry] = set()
        # Remarks about entries that are not used in the end, by their kind.
        self._remarks: dict[tuple[str, BaselineEntry], str] = {}

    def entry_for(self, finding: Finding) -> BaselineEntry | None:
        """Return the entry that applies to a finding, or None."""
        names = self._files.names_of(finding.file)
        of_fingerprint = self._by_fingerprint.get(finding.fingerprint, [])
        near = [
            entry
            for name in names
            for entry in self._by_file.get(name, ())
            if entry.fingerprint not in self._open_findings
        ]
        for entry in (*of_fingerprint, *near):
            if entry.file in names and _covers(entry, finding, self._statements_of):
                self._used.add(entry)
                return None if entry.is_expired(self._today) else entry
        for entry in of_fingerprint:
            self._remark(entry, finding, is_here=entry.file in names)
        return None

    def _remark(self, entry: BaselineEntry, finding: Finding, *, is_here: bool) -> None:
        place = finding.file
        if finding.line_start is not None:
            place = f"{finding.file}:{finding.line_start}"
        if is_here:
            what = f"a different finding than the one at {place}, which counts: it differs or is more severe"
            self._remarks["baseline_other_finding", entry] = what
        else:
            advice = "if the code has moved, change the file of the entry"
            what = f"{entry.file}; the same finding in {finding.file} counts; {advice}"
            self._remarks["baseline_elsewhere", entry] = what

    def errors(self, lines_of: LinesOf) -> Iterator[ReviewError]:
        """Report entries that expired, that nothing was found for, and that do not apply where they seem to."""
        name = self._baseline.name
        expired = [entry for entry in self._baseline.entries if entry.is_expired(self._today)]
        if expired:
            what = f"1 entry of {name} has expired and suppresses"
            if len(expired) > 1:
                what = f"{len(expired):,} entries of {name} have expired and suppress"
            shown = [f"{one.in_short()} on {one.expires}{f' for {one.file}' if one.file else ''}" for one in expired]
            yield ReviewError(EXPIRED, f"{what} nothing: {listed(shown)}", level=Level.NOTE)
        for file, entries in self._unused(lines_of).items():
            # All of them by name: `baseline prune` knows them by this.
            named = ", ".join(entry.in_short() for entry in entries)
            matches = f"1 entry of {name} matches"
            if len(entries) > 1:
                matches = f"{len(entries):,} entries of {name} match"
            advice = "`codeloupe baseline prune` removes unused entries"
            message = f"{matches} nothing in {file} any more: {named}; {advice}"
            yield ReviewError(UNUSED, message, level=Level.NOTE)
        silent = {*self._used, *self._baseline.also}
        for (kind, entry), what in sorted(self._remarks.items(), key=lambda remark: remark[0][0]):
            if entry not in silent:
                yield ReviewError(kind, f"the entry at {name}:{entry.line} is for {what}", level=Level.NOTE)

    def _unused(self, lines_of: LinesOf) -> Mapping[str, list[BaselineEntry]]:
        """Return the entries for reviewed files that fit no finding and whose code is gone, by file."""

        @cache
        def code_of(path: str | None, shown: str) -> str | None:
            lines: Sequence[str] | None = () if path is None else lines_of(path)
            return None if lines is None else _plain_code("\n".join(lines), shown)

        found: defaultdict[str, list[BaselineEntry]] = defaultdict(list)
        for entry in self._baseline.entries:
            file = self._files.named(entry.file)
            if file is None or file.path in self._unknown or entry in self._used or entry.is_expired(self._today):
                continue
            content = code_of(file.new_path, file.path)
            wanted = _plain_code(entry.evidence, file.path)
            is_gone = content is not None and wanted not in content
            if not wanted or is_gone:
                found[entry.file].append(entry)
        return found


def added_suppressions(files: Iterable[FileChange]) -> tuple[ReviewError, ...]:
    """Report the suppressions that a change adds: comments, and entries of the baseline."""
    marks: list[str] = []
    entries = 0
    for file in files:
        if file.new_path == BASELINE_NAME:
            lines = _added_lines(file, b"fingerprint")
            entries += sum(text.lstrip(" -\"'").startswith("fingerprint") for _, text in lines)
            continue
        for number, text in _added_lines(file, b"codeloupe"):
            if any(mark.is_valid for mark in marks_in(file.path, number, text)):
                marks.append(f"{file.path}:{number}")
    parts: list[str] = []
    if marks:
        counted = "1 comment" if len(marks) == 1 else f"{len(marks):,} comments"
        parts.append(f"{counted} to ignore findings ({listed(marks)})")
    if entries:
        counted = "1 entry" if entries == 1 else f"{entries:,} entries"
        parts.append(f"{counted} of {BASELINE_NAME}")
    if not parts:
        return ()
    message = f"the change itself adds {' and '.join(parts)}"
    return (ReviewError("suppressions_added", message, level=Level.NOTE),)


def _added_lines(file: FileChange, word: bytes) -> Iterator[tuple[int, str]]:
    """Yield the added lines of the hunks that contain a word, with their numbers."""
    for hunk in file.hunks:
        if not hunk.added or word not in hunk.body.lower():
            continue
        for line in hunk.lines():
            if line.kind == "added":
                yield line.new_number or 0, line.text.decode("utf-8", "replace")


def _entry_of(dismissal: Dismissal) -> BaselineEntry:
    """Return a dismissal as an entry: what it applies to is decided in the same way."""
    finding = dismissal.finding
    if finding is None:
        return BaselineEntry(fingerprint=dismissal.fingerprint, reason=dismissal.reason, owner=dismissal.who)
    claim = finding.main_claim
    return BaselineEntry(
        fingerprint=dismissal.fingerprint,
        reason=dismissal.reason,
        owner=dismissal.who,
        file=shown_path(claim.file),
        title=claim.title,
        body=claim.body,
        evidence=claim.evidence,
        statement=" ".join(sorted(_statements(finding))),
        rule=(claim.rule or "") if is_analyser(claim) else "",
        severity=finding.claimed_severity,
    )


def _covers(entry: BaselineEntry, finding: Finding, statements_of: StatementsOf) -> bool:
    """Tell whether an entry for a finding's file was written for this defect, and for no less severe one."""
    if _claims_more_than(entry.severity, finding):
        return False
    is_named = entry.fingerprint == finding.fingerprint
    statements = entry.statements
    if is_named and not statements:
        return True
    active = [claim for claim in finding.claims if claim.is_active]
    if any(statements.isdisjoint(statements_of(claim)) for claim in active):
        # One of its claims is about another statement.
        return False
    return is_named or any(_is_same_defect(entry, claim) for claim in active)


def _claims_more_than(accepted: Severity | None, finding: Finding) -> bool:
    """Tell whether an active claim of a finding is more severe than what was accepted."""
    if accepted is None:
        return False
    return any(claim.severity.is_worse_than(accepted) for claim in finding.claims if claim.is_active)


def _statements(finding: Finding) -> frozenset[str]:
    return frozenset(name for claim in finding.claims for name in claim.statements)


def _is_same_defect(entry: BaselineEntry, claim: Claim) -> bool:
    """Tell whether an entry names the analyser's rule of a claim, or has similar words."""
    if is_analyser(claim):
        return bool(entry.rule) and entry.rule == claim.rule
    if entry.rule:
        return False
    written = replace(claim, title=entry.title, body=entry.body, source=Source.AGENT)
    return likeness(written, replace(claim, source=Source.AGENT)) >= CERTAINLY_SIMILAR


@lru_cache(maxsize=20_000)
def _plain_code(code: str, path: str) -> str:
    """Return code without what reformatting and quoting change. A piece of it may be cut off anywhere."""
    return "".join(token.removeprefix('"').replace(" ", "") for token in tokens_of_code(code, path))
