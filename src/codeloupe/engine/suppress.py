"""Comments that ask to ignore a finding: `codeloupe: ignore[category] reason`, on its line or above it.

In the brackets stand categories, families of them, rules or experts, several with commas between; without brackets it
is about any finding. A reason is required. A comment that shares its line with code is about that line alone.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.engine.code_text import Syntax, comments_in, has_letters, syntax_of, tokens_of_code
from codeloupe.engine.lifecycle import SAME
from codeloupe.engine.reviewed_text import TextReader
from codeloupe.engine.similarity import Family, Profile, are_told_apart, family, likeness_of_meaning
from codeloupe.model.baseline import BASELINE_NAME, EXPIRED, UNUSED, Baseline, BaselineEntry, shown_path
from codeloupe.model.change import FileChange, FileStatus
from codeloupe.model.finding import Finding, FindingStatus
from codeloupe.model.ports import ReviewerOutcome, ReviewTask
from codeloupe.model.review import ReviewError
from codeloupe.model.suppression import Suppression, SuppressionKind

_WORD = "codeloupe:"
_MARK = re.compile(r"codeloupe:[ \t]{0,20}ignore(?![\w-])[ \t]{0,20}(?:\[([^\]]{0,400})(\]?))?", re.IGNORECASE)
_LONGEST_REASON = 500
# Of a longer finding a comment somewhere in the middle is more likely about something smaller.
_FEW_LINES = 10
_MOST_LINES_ABOVE = 10
_SEPARATORS = re.compile(r"[\s_-]+")
# What people call the family that has no words of its own.
_BEHAVIOUR_WORDS = frozenset({"behaviour", "behavior", "correctness", "bug", "bugs", "logic", "reliability"})


class Mark(Struct, frozen=True):
    """One such comment. `names` is None when it is about any finding; `reason` is empty when it gives none."""

    file: str
    line: int
    names: tuple[str, ...] | None
    reason: str
    alone: bool

    @property
    def counts(self) -> bool:
        """Whether it says all that it must."""
        return bool(self.reason) and self.names != ()

    def in_words(self) -> str:
        """How a message shows it."""
        return "codeloupe: ignore" if self.names is None else f"codeloupe: ignore[{', '.join(self.names)}]"

    def fits(self, finding: Finding) -> bool:
        """Whether a finding is of a kind that it names."""
        if self.names is None:
            return True
        words = {_plain(word) for word in (finding.category, finding.rule or "", finding.expert or "") if word}
        return any(_plain(name) in words or _is_its_family(name, finding) for name in self.names)


def marks_in(file: str, number: int, line: str) -> list[Mark]:
    """What the comments of one line ask for."""
    return list(_marks(file, number, line, syntax_of(file))) if _WORD in line.lower() else []


def _marks(file: str, number: int, line: str, syntax: Syntax) -> Iterator[Mark]:
    for comment in comments_in(line, syntax):
        found = list(_MARK.finditer(comment.text))
        ends = [*(mark.start() for mark in found[1:]), len(comment.text)]
        for mark, end in zip(found, ends, strict=False):
            reason = comment.text[mark.end() : end].strip(" \t\r:,;.-–—#/*")[:_LONGEST_REASON]
            yield Mark(file, number, _names(mark), reason if has_letters(reason) else "", comment.alone)


def _names(mark: re.Match[str]) -> tuple[str, ...] | None:
    """What stands in the brackets; of brackets that are not closed, nothing."""
    if mark[1] is None:
        return None
    return tuple(name for part in mark[1].split(",") if (name := part.strip())) if mark[2] else ()


def asks_to_ignore(line: str) -> bool:
    """Whether a line asks for it, be it in a comment or not."""
    return _MARK.search(line) is not None


def places_of(finding: Finding, lines: Sequence[str], is_alone: Callable[[int], bool]) -> Iterator[int]:
    """The numbers of the lines whose comments are about a finding: its own, and the comments right above it.

    `is_alone` tells whether a line is a comment and nothing else.
    """
    first, last = finding.first_line, min(finding.last_line, len(lines))
    if not finding.anchored or not 1 <= first <= last:
        return
    yield from range(first, last + 1) if last - first < _FEW_LINES else (first, last)
    for number in range(first - 1, max(first - 1 - _MOST_LINES_ABOVE, 0), -1):
        if not is_alone(number):
            return
        yield number


def is_comment_alone(line: str, file: str) -> bool:
    """Whether there is a comment and no code on a line."""
    found = list(comments_in(line, syntax_of(file)))
    return bool(found) and found[-1].alone


def _is_its_family(name: str, finding: Finding) -> bool:
    """Whether a name is one word for the family of a finding's category, as fingerprints have it too.

    A word that belongs to no family must not be taken for the one that holds all the rest.
    """
    word = _plain(name)
    if not word.isalpha():
        return False
    if word in _BEHAVIOUR_WORDS:
        return family(finding.category) is Family.BEHAVIOUR
    named = next((known for known in Family if known == word), family(word))
    return named is not Family.BEHAVIOUR and named is family(finding.category)


def _plain(name: str) -> str:
    return _SEPARATORS.sub("_", name.strip().casefold())


ELSEWHERE = "baseline_elsewhere"
OTHER = "baseline_other_finding"
_LONGEST_TITLE = 200
_MOST_NAMED = 10


class KnownFindings:
    """The entries of a baseline, and what becomes of them in one review.

    A fingerprint does not tell the file, so that it survives a move: an entry holds in its own file, and in the one to
    which the change moved it. A copy of the code in another file is another finding.
    """

    def __init__(
        self,
        baseline: Baseline,
        *,
        today: date,
        files: Sequence[FileChange],
        unknown: frozenset[str],
        first_names: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._baseline = baseline
        self._today = today
        self._unknown = unknown
        self._first_names = first_names
        self._by_name: defaultdict[str, list[BaselineEntry]] = defaultdict(list)
        self._by_file: defaultdict[str, list[BaselineEntry]] = defaultdict(list)
        for entry in (*baseline.entries, *baseline.also):
            self._by_name[entry.fingerprint].append(entry)
            self._by_file[entry.file].append(entry)
        # A file that was copied is still where it was.
        moved = {file.old_path: file for file in files if file.old_path and file.status is not FileStatus.COPIED}
        named = {**moved, **{file.new_path: file for file in files if file.new_path}}
        self._files = {shown_path(name): file for name, file in named.items()}
        self._old_names = {shown_path(file.new_path): name for name, file in self._files.items() if file.new_path}
        self._used: set[BaselineEntry] = set()
        self._elsewhere: dict[BaselineEntry, str] = {}
        self._other: dict[BaselineEntry, Finding] = {}

    def entry_of(self, finding: Finding) -> BaselineEntry | None:
        """The entry that holds for a finding, or None."""
        path = shown_path(finding.file)
        names = (finding.fingerprint, self._first_names.get(finding.fingerprint, ""))
        same = [entry for name in dict.fromkeys(names) for entry in self._by_name.get(name, ())]
        here = [entry for entry in same if path in self._places(entry, path)]
        self._elsewhere.update((other, finding.file) for other in same if other not in here)
        profile = Profile(finding)
        entry = next((one for one in here if _covers(one, profile, is_named=True)), None)
        if entry is None:
            self._other.update((other, finding) for other in here)
            entry = next((one for one in self._near(path, profile) if _covers(one, profile, is_named=False)), None)
        if entry is None:
            return None
        self._used.add(entry)
        return None if entry.is_expired(self._today) else entry

    def _near(self, path: str, profile: Profile) -> Iterator[BaselineEntry]:
        """The entries about the lines that a finding quotes, whatever they are called."""
        quoted = _suppression_baseline_plain(profile.finding.evidence, path)
        for entry in (*self._by_file.get(path, ()), *self._by_file.get(self._old_names.get(path, ""), ())):
            piece = _suppression_baseline_plain(entry.evidence, path)
            if piece and entry.title and piece in quoted:
                yield entry

    def errors(self, lines_of: Callable[[str], Sequence[str] | None]) -> Iterator[ReviewError]:
        """What a person should know about the baseline, once every finding was asked about."""
        expired = [entry for entry in self._baseline.entries if entry.is_expired(self._today)]
        if expired:
            yield ReviewError(EXPIRED, f"{self._baseline.name}: {_expired_in_words(expired)}")
        for file, entries in self._unused(lines_of).items():
            yield ReviewError(UNUSED, f"{self._baseline.name}: {_unused_in_words(file, entries)}")
        silent = {*self._used, *self._baseline.also}
        for entry, file in self._elsewhere.items():
            if entry not in silent:
                yield ReviewError(ELSEWHERE, self._elsewhere_in_words(entry, file))
        for entry, finding in self._other.items():
            if entry not in silent:
                yield ReviewError(OTHER, self._other_in_words(entry, finding))

    def _places(self, entry: BaselineEntry, path: str) -> tuple[str, ...]:
        """Where an entry holds: in its file, also under the name that the change gives it; without a file, anywhere."""
        if not entry.file:
            return (path,)
        file = self._files.get(entry.file)
        return (entry.file, shown_path(file.new_path)) if file is not None and file.new_path else (entry.file,)

    def _unused(self, lines_of: Callable[[str], Sequence[str] | None]) -> Mapping[str, list[BaselineEntry]]:
        """Entries for reviewed files that nothing was found for, where that can be told, by file.

        A review sees the changed part of a file. So an entry whose code still stands in the file may be about the other
        part, and is left alone; one without code has nothing that speaks for it.
        """
        texts: dict[str, str | None] = {}
        found: defaultdict[str, list[BaselineEntry]] = defaultdict(list)
        for entry in self._baseline.entries:
            file = self._files.get(entry.file)
            if file is None or file.path in self._unknown:
                continue
            if entry in self._used or entry.is_expired(self._today):
                continue
            if file.path not in texts:
                texts[file.path] = _content(file, lines_of)
            if not _is_there(entry.evidence, texts[file.path], file.path):
                found[entry.file].append(entry)
        return found

    def _other_in_words(self, entry: BaselineEntry, finding: Finding) -> str:
        line = "" if finding.line_start is None else f":{finding.line_start}"
        return (
            f"{self._baseline.name}:{entry.line}: this entry is for another finding than the one at"
            f" {finding.file}{line}, which says something else or is graver, and counts"
        )

    def _elsewhere_in_words(self, entry: BaselineEntry, file: str) -> str:
        return (
            f"{self._baseline.name}:{entry.line}: this entry is for {entry.file}; the same was found in {file},"
            " and counts there; if the code was moved, change the file of the entry"
        )


def _covers(entry: BaselineEntry, profile: Profile, *, is_named: bool) -> bool:
    """Whether an entry for the place of a finding was written for this defect. An old one may tell little."""
    finding = profile.finding
    if entry.severity is not None and not entry.severity.at_least(finding.severity):
        return False
    if entry.rule or (is_named and finding.rule):
        # A name that is the same is of the same rule.
        return not entry.rule or entry.rule == finding.rule
    if not entry.title or _plain_words(entry.title) == _plain_words(finding.title):
        return is_named or bool(entry.title)
    written = Profile(replace(finding, title=entry.title, body=entry.body, suggestion=None, rule=None))
    if is_named and entry.fingerprint == finding.fingerprint:
        # The name is made of what the finding says, so a person may have written another title.
        return not are_told_apart(written, profile)
    return likeness_of_meaning(written, profile) >= SAME


def _plain_words(title: str) -> str:
    # Long titles are cut in the file.
    return " ".join(title.split()).casefold()[:_LONGEST_TITLE]


def _content(file: FileChange, lines_of: Callable[[str], Sequence[str] | None]) -> str | None:
    """What is in a file after the change, as `_plain` makes it; None when that is not known."""
    if file.new_path is None:
        return ""
    lines = lines_of(file.new_path)
    return None if lines is None else _suppression_baseline_plain("\n".join(lines), file.path)


def _is_there(evidence: str, content: str | None, path: str) -> bool:
    """Whether a piece of code may be in a file."""
    wanted = _suppression_baseline_plain(evidence, path)
    return bool(wanted) and (content is None or wanted in content)


def _suppression_baseline_plain(code: str, path: str) -> str:
    """Code without what reformatting and quoting change. A piece of it may be cut off anywhere, in a string too."""
    return "".join(token.removeprefix('"').replace(" ", "") for token in tokens_of_code(code, path))


def _expired_in_words(entries: Sequence[BaselineEntry]) -> str:
    shown = [
        f"{entry.in_short()} on {entry.expires}{f' for {entry.file}' if entry.file else ''}"
        for entry in entries[:_MOST_NAMED]
    ]
    more = f" and {len(entries) - _MOST_NAMED:,} more" if len(entries) > _MOST_NAMED else ""
    what = (
        "1 entry has expired and suppresses"
        if len(entries) == 1
        else f"{len(entries):,} entries have expired and suppress"
    )
    return f"{what} nothing: {', '.join(shown)}{more}"


def _unused_in_words(file: str, entries: Sequence[BaselineEntry]) -> str:
    # All of them by name: `baseline prune` knows them by this.
    named = ", ".join(entry.in_short() for entry in entries)
    fits = "1 entry fits" if len(entries) == 1 else f"{len(entries):,} entries fit"
    return f"{fits} nothing in {file} any more: {named}; `codeloupe baseline prune` removes what is unused"


UNEXPLAINED = "ignore_without_reason"
NOT_A_COMMENT = "ignore_outside_comment"
UNFIT = "ignore_unused"
NOT_FOLLOWED = "ignores_not_followed"
ADDED = "suppressions_added"

LinesOf = Callable[[str], Sequence[str] | None]


class Suppressed(Struct, frozen=True):
    """The findings in their order, some of them suppressed, and what a person should know about it."""

    findings: tuple[Finding, ...]
    errors: tuple[ReviewError, ...] = ()


def apply_suppressions(  # noqa: PLR0913 - each is a fact of its own, by name
    findings: Iterable[Finding],
    *,
    baseline: Baseline,
    lines_of: LinesOf,
    today: date,
    inline: bool,
    files: Sequence[FileChange] = (),
    unknown: frozenset[str] = frozenset(),
    first_names: Mapping[str, str] = MappingProxyType({}),
) -> Suppressed:
    """Suppress what the baseline or a comment in the code says does not count. Statuses stay as they are.

    `lines_of` gives the lines of a reviewed file after the change, or None when they are not known. Without `inline`
    no comment is followed, and how many there are is told. `files` are the reviewed ones: of them can be told which
    entries of the baseline are unused, but for the `unknown` ones, which were not reviewed whole or not read.
    `first_names` are other fingerprints under which an entry may know a finding.
    """
    known = KnownFindings(baseline, today=today, files=files, unknown=unknown, first_names=first_names)
    comments = _Comments(lines_of)
    result: list[Finding] = []
    for given in findings:
        # What an earlier round suppressed may count by now.
        finding = replace(given, suppression=None)
        suppression = None
        if finding.status is not FindingStatus.FIXED:
            entry, mark = known.entry_of(finding), comments.mark_for(finding)
            suppression = _of_entry(entry) if entry else _of_mark(mark) if mark and inline else None
        result.append(replace(finding, suppression=suppression) if finding.is_open else finding)
    told = comments.errors() if inline else comments.not_followed()
    return Suppressed(tuple(result), (*known.errors(lines_of), *told))


def added_suppressions(files: Iterable[FileChange]) -> tuple[ReviewError, ...]:
    """What a change adds to the suppressions: comments that ask to ignore findings, and entries of the baseline."""
    marks: list[str] = []
    entries = 0
    for file in files:
        for number, line in _added_lines(file):
            if file.new_path == BASELINE_NAME:
                entries += line.lstrip(" -\"'").startswith("fingerprint")
            elif any(mark.counts for mark in marks_in(file.path, number, line)):
                marks.append(f"{file.path}:{number}")
    comments = "1 comment" if len(marks) == 1 else f"{len(marks):,} comments"
    parts = [
        f"{comments} to ignore findings ({_listed(marks)})" if marks else "",
        f"{'1 entry' if entries == 1 else f'{entries:,} entries'} of {BASELINE_NAME}" if entries else "",
    ]
    what = " and ".join(part for part in parts if part)
    return (ReviewError(ADDED, f"the change itself adds {what}"),) if what else ()


class _Comments:
    """The comments near findings that ask to ignore them, and what became of each."""

    def __init__(self, lines_of: LinesOf) -> None:
        self._lines_of = lines_of
        self._texts: dict[str, Sequence[str]] = {}
        self._near: defaultdict[tuple[str, int], list[Finding]] = defaultdict(list)
        self._effective: set[Mark] = set()
        # Many findings may stand on few lines.
        self._alone: dict[tuple[str, int], bool] = {}
        self._marked: dict[tuple[str, int], list[Mark]] = {}

    def mark_for(self, finding: Finding) -> Mark | None:
        """The comment that suppresses a finding, the nearest one first."""
        path = finding.file
        if path not in self._texts:
            self._texts[path] = self._lines_of(path) or ()
        lines = self._texts[path]
        fitting: list[Mark] = []
        for number in places_of(finding, lines, lambda number: self._is_alone(path, number)):
            if asks_to_ignore(lines[number - 1]):
                self._near[path, number].append(finding)
                fitting += [mark for mark in self._marks(path, number) if mark.counts and mark.fits(finding)]
        self._effective.update(fitting)
        return fitting[0] if fitting else None

    def errors(self) -> Iterator[ReviewError]:
        """The comments that suppress nothing, in order."""
        for (path, number), findings in sorted(self._near.items(), key=lambda item: item[0]):
            place = f"{path}:{number}"
            marks = self._marks(path, number)
            if not marks:
                yield ReviewError(
                    NOT_A_COMMENT, f"{place}: `codeloupe: ignore` is in no comment and suppresses nothing"
                )
            for mark in marks:
                if not mark.counts:
                    yield ReviewError(UNEXPLAINED, f"{place}: {_what_is_missing(mark)}")
                elif mark not in self._effective:
                    kinds = ", ".join(dict.fromkeys(map(_kind, findings)))
                    yield ReviewError(UNFIT, f"{place}: `{mark.in_words()}` fits none of the findings there ({kinds})")

    def not_followed(self) -> Iterator[ReviewError]:
        """How many would have suppressed a finding of a change that is not trusted."""
        count = len(self._effective)
        if count:
            were = (
                "1 comment that asks to ignore a finding was"
                if count == 1
                else f"{count:,} comments that ask to ignore findings were"
            )
            places = _listed([f"{mark.file}:{mark.line}" for mark in sorted(self._effective, key=_place)])
            yield ReviewError(NOT_FOLLOWED, f"{were} not followed, since the change is not trusted ({places})")

    def _is_alone(self, path: str, number: int) -> bool:
        place = path, number
        if place not in self._alone:
            self._alone[place] = is_comment_alone(self._texts[path][number - 1], path)
        return self._alone[place]

    def _marks(self, path: str, number: int) -> list[Mark]:
        place = path, number
        if place not in self._marked:
            self._marked[place] = marks_in(path, number, self._texts[path][number - 1])
        return self._marked[place]


def _place(mark: Mark) -> tuple[str, int]:
    return mark.file, mark.line


def _kind(finding: Finding) -> str:
    return f"{finding.category} {finding.rule}" if finding.rule else finding.category


def _what_is_missing(mark: Mark) -> str:
    missing = "names nothing between its brackets" if mark.names == () else "gives no reason"
    return f"`{mark.in_words()}` {missing}, so it suppresses nothing"


def _of_entry(entry: BaselineEntry) -> Suppression:
    return Suppression(
        kind=SuppressionKind.BASELINE,
        reason=entry.reason,
        owner=entry.owner,
        expires=entry.expires,
        entry=entry.fingerprint,
    )


def _of_mark(mark: Mark) -> Suppression:
    return Suppression(kind=SuppressionKind.INLINE, reason=mark.reason)


def _added_lines(file: FileChange) -> Iterator[tuple[int, str]]:
    """The lines that a change adds to a file and that could matter here, with their numbers."""
    word = b"fingerprint" if file.new_path == BASELINE_NAME else b"codeloupe"
    for hunk in file.hunks:
        # Most hunks hold neither, and to cut one into lines takes its time.
        if hunk.added and word in hunk.body.lower():
            for line in hunk.lines():
                if line.kind == "added" and line.new_number is not None:
                    yield line.new_number, line.text.decode("utf-8", "replace")


def _listed(places: Sequence[str]) -> str:
    more = f" and {len(places) - _MOST_NAMED:,} more" if len(places) > _MOST_NAMED else ""
    return f"{', '.join(places[:_MOST_NAMED])}{more}"


# Only a forged diff names a line beyond it.
_MOST_LINES = 1_000_000


def suppress(
    outcome: ReviewerOutcome,
    task: ReviewTask,
    *,
    baseline: Baseline,
    today: date,
    first_names: Mapping[str, str] = MappingProxyType({}),
) -> ReviewerOutcome:
    """The outcome with its findings suppressed where they should be, and with what is to be told about that.

    `first_names` are the fingerprints that version 0.1.0 gave to findings: a baseline may have been written by that.

    Of a change that is not trusted no comment is followed: whoever wrote it may have written them.
    """
    failed = {name for unit in outcome.units_failed for name in unit.files}
    suppressed = apply_suppressions(
        outcome.findings,
        baseline=baseline,
        lines_of=reviewed_lines(task),
        today=today,
        inline=task.trusted,
        files=task.files,
        unknown=task.without_content | outcome.unreviewed | failed,
        first_names=first_names,
    )
    errors = (*outcome.errors, *suppressed.errors, *added_suppressions(task.change.files))
    return replace(outcome, findings=suppressed.findings, errors=errors)


def reviewed_lines(task: ReviewTask) -> LinesOf:
    """What gives the lines of a reviewed file after the change; of one that is known by its diff alone, those there."""
    reader = TextReader(task)
    files = {file.new_path: file for file in task.files if file.new_path is not None}

    def lines_of(path: str) -> Sequence[str] | None:
        content = reader.read(path)
        if content is not None:
            return content.decode("utf-8", "replace").split("\n")
        return _lines_of_diff(files[path]) if path in files else None

    return lines_of


def _lines_of_diff(file: FileChange) -> list[str]:
    """The lines that the hunks of a file show, each at its place; the others are empty."""
    known = {
        line.new_number: line.text.decode("utf-8", "replace")
        for hunk in file.hunks
        for line in hunk.lines()
        if line.new_number is not None and line.new_number <= _MOST_LINES
    }
    return [known.get(number, "") for number in range(1, max(known, default=0) + 1)]
