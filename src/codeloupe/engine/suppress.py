"""Findings that do not count: those that the baseline knows, and those that a comment in the code asks to ignore.

A suppressed finding stays in the review and says why it does not count. Every suppression that does not do what its
author wanted is reported: without a reason, expired, or about nothing.

A comment reads `codeloupe: ignore[category] reason`, on the finding's line or above it. In the brackets are categories,
families of them, rules or experts, several with commas between; without brackets it is about any finding. A reason is
required. A comment that shares its line with code is about that line alone.

An entry of the baseline covers the defect it was written for: at the same place, saying the same, and not more severe.
Another defect on its line is another finding.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

from msgspec.structs import replace

from codeloupe.engine.code_text import comments_in, has_letters, syntax_of, tokens_of_code
from codeloupe.engine.reviewed_file import TextReader
from codeloupe.engine.similarity import BEHAVIOUR, SAME, Profile, are_different, family, is_family, likeness_of_meaning
from codeloupe.model.baseline import BASELINE_NAME, EXPIRED, UNUSED, Baseline, BaselineEntry, shown_path
from codeloupe.model.change import FileChange, FileStatus
from codeloupe.model.finding import Finding, FindingStatus, Suppression, SuppressionKind
from codeloupe.model.ports import ReviewerOutcome, ReviewTask
from codeloupe.model.review import ReviewError
from codeloupe.system.regex import regex

_MARK = regex(r"codeloupe:[ \t]{0,20}ignore(?![\w-])[ \t]{0,20}(?:\[([^\]]{0,400})(\]?))?", re.IGNORECASE)
# What people call the family that has no words of its own.
_BEHAVIOUR_WORDS = frozenset({"behaviour", "behavior", "correctness", "bug", "bugs", "logic", "reliability"})
_NO_NAMES: Mapping[str, str] = MappingProxyType({})

LinesOf = Callable[[str], Sequence[str] | None]


class Mark(NamedTuple):
    """A comment that asks to ignore findings: any when `names` is None; `reason` is empty when it gives none."""

    file: str
    line: int
    names: tuple[str, ...] | None
    reason: str

    @property
    def counts(self) -> bool:
        """Whether it says all that it must."""
        return bool(self.reason) and self.names != ()

    def fits(self, finding: Finding) -> bool:
        """Whether a finding is of a kind that it names: its category, rule or expert, or the family of its category."""
        if self.names is None:
            return True
        words = {_plain(word) for word in (finding.category, finding.rule or "", finding.expert or "") if word}
        its_family = family(finding.category)
        for name in map(_plain, self.names):
            # A word that belongs to no family must not be taken for the one that holds all the rest.
            named = name if is_family(name) else family(name) if name.isalpha() else BEHAVIOUR
            is_its_family = named == its_family and (named != BEHAVIOUR or name in _BEHAVIOUR_WORDS)
            if name in words or is_its_family:
                return True
        return False


def marks_in(file: str, number: int, line: str) -> list[Mark]:
    """What the comments of one line ask for."""
    marks: list[Mark] = []
    for comment, _ in comments_in(line, syntax_of(file)) if "codeloupe:" in line.lower() else ():
        found = list(_MARK.finditer(comment))
        ends = [*(mark.start() for mark in found[1:]), len(comment)]
        for mark, end in zip(found, ends, strict=False):
            reason = comment[mark.end() : end].strip(" \t\r:,;.-–—#/*")[:500]
            # Brackets that are not closed name nothing.
            names = tuple(name for part in (mark[1] or "").split(",") if (name := part.strip())) if mark[2] else ()
            reason = reason if has_letters(reason) else ""
            marks.append(Mark(file, number, None if mark[1] is None else names, reason))
    return marks


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", "_", name.strip().casefold())


def suppress(
    outcome: ReviewerOutcome,
    task: ReviewTask,
    *,
    baseline: Baseline,
    today: date,
    first_names: Mapping[str, str] = _NO_NAMES,
) -> ReviewerOutcome:
    """The outcome with its findings suppressed where they should be, and with what is to be reported about that.

    `first_names` are the fingerprints that version 0.1.0 gave to findings: a baseline may have been written by that.
    Of a change that is not trusted no comment is followed: whoever wrote it may have written them.
    """
    lines_of = reviewed_lines(task)
    failed = {name for unit in outcome.units_failed for name in unit.files}
    unknown = task.without_content | outcome.unreviewed | failed
    known = KnownFindings(baseline, today=today, files=task.files, unknown=unknown, first_names=first_names)
    comments = _Comments(lines_of)
    result: list[Finding] = []
    for given in outcome.findings:
        # What an earlier round suppressed may count by now.
        finding = replace(given, suppression=None)
        if finding.status is not FindingStatus.FIXED:
            entry, mark = known.entry_of(finding), comments.mark_for(finding)
            why = None
            if entry:
                why = Suppression(kind=SuppressionKind.BASELINE, reason=entry.reason, entry=entry.fingerprint)
                why = replace(why, owner=entry.owner, expires=entry.expires)
            elif mark and task.trusted:
                why = Suppression(kind=SuppressionKind.INLINE, reason=mark.reason)
            finding = replace(finding, suppression=why) if finding.is_open else finding
        result.append(finding)
    of_comments = comments.errors() if task.trusted else comments.not_followed()
    errors = (*outcome.errors, *known.errors(lines_of), *of_comments, *added_suppressions(task.change.files))
    return replace(outcome, findings=tuple(result), errors=errors)


def reviewed_lines(task: ReviewTask) -> LinesOf:
    """Gives the lines of a reviewed file after the change; of one known by its diff alone the others are empty."""
    reader = TextReader(task)
    files = {file.new_path: file for file in task.files if file.new_path is not None}

    @cache
    def lines_of(path: str) -> Sequence[str] | None:
        content = reader.read(path)
        if content is None and path in files:
            shown = (line for hunk in files[path].hunks for line in hunk.lines())
            # Only a forged diff names a line beyond a million.
            known = {line.new_number or 0: line.text for line in shown if (line.new_number or 0) <= 1_000_000}
            content = b"\n".join(known.get(number, b"") for number in range(1, max(known, default=0) + 1))
        return None if content is None else content.decode("utf-8", "replace").split("\n")

    return lines_of


def added_suppressions(files: Iterable[FileChange]) -> tuple[ReviewError, ...]:
    """What a change adds to the suppressions: comments that ask to ignore findings, and entries of the baseline."""
    marks: list[str] = []
    entries = 0
    for file in files:
        is_baseline = file.new_path == BASELINE_NAME
        word = b"fingerprint" if is_baseline else b"codeloupe"
        # Most hunks hold neither, and to cut one into lines takes its time.
        hunks = [hunk for hunk in file.hunks if hunk.added and word in hunk.body.lower()]
        for line in (line for hunk in hunks for line in hunk.lines() if line.kind == "added"):
            text, number = line.text.decode("utf-8", "replace"), line.new_number or 0
            if is_baseline:
                entries += text.lstrip(" -\"'").startswith("fingerprint")
            elif any(mark.counts for mark in marks_in(file.path, number, text)):
                marks.append(f"{file.path}:{number}")
    parts = [f"{_counted(len(marks), 'comment', 'comments')} to ignore findings ({_listed(marks)})"] if marks else []
    parts += [f"{_counted(entries, 'entry', 'entries')} of {BASELINE_NAME}"] if entries else []
    return (ReviewError("suppressions_added", f"the change itself adds {' and '.join(parts)}"),) if parts else ()


def _counted(count: int, one: str, many: str) -> str:
    return f"1 {one}" if count == 1 else f"{count:,} {many}"


def _listed(places: Sequence[str]) -> str:
    more = f" and {len(places) - 10:,} more" if len(places) > 10 else ""
    return f"{', '.join(places[:10])}{more}"


class _Comments:
    """The comments near findings that ask to ignore them, and what became of each."""

    def __init__(self, lines_of: LinesOf) -> None:
        self._lines_of = lines_of
        self._near: defaultdict[tuple[str, int, str], list[Finding]] = defaultdict(list)
        self._effective: set[Mark] = set()

    def mark_for(self, finding: Finding) -> Mark | None:
        """The comment that suppresses a finding, the nearest one first."""
        fitting: list[Mark] = []
        for number, line in self._places(finding):
            if _MARK.search(line):
                self._near[finding.file, number, line].append(finding)
                marks = marks_in(finding.file, number, line)
                fitting += [mark for mark in marks if mark.counts and mark.fits(finding)]
        self._effective.update(fitting)
        return fitting[0] if fitting else None

    def _places(self, finding: Finding) -> Iterator[tuple[int, str]]:
        """The lines whose comments are about a finding: its own, and the comments right above it."""
        lines = self._lines_of(finding.file) or ()
        first, last = finding.first_line, min(finding.last_line, len(lines))
        if not finding.anchored or not 1 <= first <= last:
            return
        # Of a longer finding a comment somewhere in the middle is more likely about something smaller.
        for number in range(first, last + 1) if last - first < 10 else (first, last):
            yield number, lines[number - 1]
        for number in range(first - 1, max(first - 11, 0), -1):
            comments = list(comments_in(lines[number - 1], syntax_of(finding.file)))
            if not comments or not comments[-1][1]:
                return
            yield number, lines[number - 1]

    def errors(self) -> Iterator[ReviewError]:
        for (path, number, line), findings in sorted(self._near.items(), key=lambda item: item[0]):
            marks = marks_in(path, number, line)
            if not marks:
                message = f"{path}:{number}: `codeloupe: ignore` is in no comment and suppresses nothing"
                yield ReviewError("ignore_outside_comment", message)
            for mark in marks:
                shown = "" if mark.names is None else f"[{', '.join(mark.names)}]"
                place = f"{path}:{number}: `codeloupe: ignore{shown}`"
                if not mark.counts:
                    missing = "names nothing between its brackets" if mark.names == () else "gives no reason"
                    yield ReviewError("ignore_without_reason", f"{place} {missing}, so it suppresses nothing")
                elif mark not in self._effective:
                    kinds = (f"{one.category} {one.rule}" if one.rule else one.category for one in findings)
                    message = f"{place} fits none of the findings there ({', '.join(dict.fromkeys(kinds))})"
                    yield ReviewError("ignore_unused", message)

    def not_followed(self) -> Iterator[ReviewError]:
        if self._effective:
            one, many = "comment that asks to ignore a finding was", "comments that ask to ignore findings were"
            places = [f"{file}:{line}" for file, line in sorted((mark.file, mark.line) for mark in self._effective)]
            message = f"not followed, since the change is not trusted ({_listed(places)})"
            yield ReviewError("ignores_not_followed", f"{_counted(len(places), one, many)} {message}")


class KnownFindings:
    """The entries of a baseline, and what becomes of them in one review.

    A fingerprint does not say the file, so that it survives a move: an entry holds in its own file, and in the one to
    which the change moved it. A copy of the code in another file is another finding. Only of the reviewed `files` is
    known which entries are unused, but for the `unknown` ones, which were not reviewed whole or not read.
    """

    def __init__(
        self,
        baseline: Baseline,
        *,
        today: date,
        files: Sequence[FileChange],
        unknown: frozenset[str],
        first_names: Mapping[str, str] = _NO_NAMES,
    ) -> None:
        self._baseline, self._today, self._unknown, self._first_names = baseline, today, unknown, first_names
        self._entries: defaultdict[tuple[str, str], list[BaselineEntry]] = defaultdict(list)
        for entry in (*baseline.entries, *baseline.also):
            self._entries["name", entry.fingerprint].append(entry)
            self._entries["file", entry.file].append(entry)
        # A file that was copied is still where it was.
        moved = {file.old_path: file for file in files if file.old_path and file.status is not FileStatus.COPIED}
        named = {**moved, **{file.new_path: file for file in files if file.new_path}}
        self._files = {shown_path(name): file for name, file in named.items()}
        self._used: set[BaselineEntry] = set()
        # What to say of an entry that is not used after all, by its kind.
        self._remarks: dict[tuple[str, BaselineEntry], str] = {}

    def entry_of(self, finding: Finding) -> BaselineEntry | None:
        """The entry that holds for a finding, or None."""
        path = shown_path(finding.file)
        names = dict.fromkeys((finding.fingerprint, self._first_names.get(finding.fingerprint, "")))
        same = [entry for name in names for entry in self._entries.get(("name", name), ())]
        file = self._files.get(path)
        moved_from = shown_path(file.old_path or "") if file and file.status is not FileStatus.COPIED else ""
        # Without a file it holds in any.
        here = [entry for entry in same if entry.file in ("", path, moved_from)]
        advice = "if the code was moved, change the file of the entry"
        for other in (one for one in same if one not in here):
            what = f"{other.file}; the same was found in {finding.file}, and counts there; {advice}"
            self._remarks["baseline_elsewhere", other] = what
        profile = Profile(finding)
        entry = next((one for one in here if _covers(one, profile, is_named=True)), None)
        if entry is None:
            place = finding.file if finding.line_start is None else f"{finding.file}:{finding.line_start}"
            what = f"another finding than the one at {place}, which says something else or is more severe, and counts"
            self._remarks.update((("baseline_other_finding", other), what) for other in here)
            # The entries about the lines that it quotes, whatever they are called.
            quoted = _plain_code(finding.evidence, path)
            files = (path,) if file else (path, "")
            near = (entry for one in files for entry in self._entries.get(("file", one), ()))
            pieces = ((one, _plain_code(one.evidence, path)) for one in near if one.title)
            about = (one for one, piece in pieces if piece and piece in quoted)
            entry = next((one for one in about if _covers(one, profile, is_named=False)), None)
        if entry is None:
            return None
        self._used.add(entry)
        return None if entry.is_expired(self._today) else entry

    def errors(self, lines_of: LinesOf) -> Iterator[ReviewError]:
        """What a person should know about the baseline, once every finding was asked about."""
        name = self._baseline.name
        expired = [entry for entry in self._baseline.entries if entry.is_expired(self._today)]
        if expired:
            what = _counted(len(expired), "entry has expired and suppresses", "entries have expired and suppress")
            shown = [f"{one.in_short()} on {one.expires}{f' for {one.file}' if one.file else ''}" for one in expired]
            yield ReviewError(EXPIRED, f"{name}: {what} nothing: {_listed(shown)}")
        for file, entries in self._unused(lines_of).items():
            # All of them by name: `baseline prune` knows them by this.
            named = ", ".join(entry.in_short() for entry in entries)
            fits = _counted(len(entries), "entry fits", "entries fit")
            message = f"{fits} nothing in {file} any more: {named}; `codeloupe baseline prune` removes what is unused"
            yield ReviewError(UNUSED, f"{name}: {message}")
        silent = {*self._used, *self._baseline.also}
        for (kind, entry), what in sorted(self._remarks.items(), key=lambda remark: remark[0][0]):
            if entry not in silent:
                yield ReviewError(kind, f"{name}:{entry.line}: this entry is for {what}")

    def _unused(self, lines_of: LinesOf) -> Mapping[str, list[BaselineEntry]]:
        """Entries for reviewed files that nothing was found for and whose code, if they have any, is gone; by file."""

        @cache
        def code_of(path: str | None, shown: str) -> str | None:
            lines = () if path is None else lines_of(path)
            return None if lines is None else _plain_code("\n".join(lines), shown)

        found: defaultdict[str, list[BaselineEntry]] = defaultdict(list)
        for entry in self._baseline.entries:
            file = self._files.get(entry.file)
            if file is None or file.path in self._unknown or entry in self._used or entry.is_expired(self._today):
                continue
            content, wanted = code_of(file.new_path, file.path), _plain_code(entry.evidence, file.path)
            if not wanted or (content is not None and wanted not in content):
                found[entry.file].append(entry)
        return found


def _covers(entry: BaselineEntry, profile: Profile, *, is_named: bool) -> bool:
    """Whether an entry for the place of a finding was written for this defect. An old one may say little."""
    finding = profile.finding
    if entry.severity is not None and not entry.severity.at_least(finding.severity):
        return False
    if entry.rule or (is_named and finding.rule):
        # A name that is the same is of the same rule.
        return not entry.rule or entry.rule == finding.rule
    # Long titles are cut in the file.
    titles = {" ".join(title.split()).casefold()[:200] for title in (entry.title, finding.title)}
    if not entry.title or len(titles) == 1:
        return is_named or bool(entry.title)
    written = Profile(replace(finding, title=entry.title, body=entry.body, suggestion=None, rule=None))
    if is_named and entry.fingerprint == finding.fingerprint:
        # The name is made of what the finding says, so a person may have written another title.
        return not are_different(written, profile)
    return likeness_of_meaning(written, profile) >= SAME


def _plain_code(code: str, path: str) -> str:
    """Code without what reformatting and quoting change. A piece of it may be cut off anywhere, in a string too."""
    return "".join(token.removeprefix('"').replace(" ", "") for token in tokens_of_code(code, path))
