"""Findings that do not count: those that the baseline knows, and those that a comment in the code asks to ignore. Pure.

A suppressed finding stays in the review, says why it does not count, and is told. So is every suppression that does not
do what its author wanted: without a reason, expired, or about nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.engine.suppression_baseline import KnownFindings
from codeloupe.engine.suppression_marks import Mark, asks_to_ignore, is_comment_alone, marks_in, places_of
from codeloupe.model.baseline import BASELINE_NAME, Baseline, BaselineEntry
from codeloupe.model.change import FileChange
from codeloupe.model.finding import Finding, FindingStatus, Suppression, SuppressionKind
from codeloupe.model.review import ReviewError

UNEXPLAINED = "ignore_without_reason"
NOT_A_COMMENT = "ignore_outside_comment"
UNFIT = "ignore_unused"
NOT_FOLLOWED = "ignores_not_followed"
ADDED = "suppressions_added"
_MOST_NAMED = 10

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
