"""From a claim to a finding with a place: the quote decides where it is, and without one there is no place here."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from codeloupe.engine.claimed_path import ClaimedPaths, clean_path
from codeloupe.engine.quote_gaps import MASK
from codeloupe.engine.quote_search import Ground, Match, Quote, Rank, find_fragments, find_quote
from codeloupe.engine.replacement import replacement_of
from codeloupe.engine.reviewed_file import DiffRows, ReviewedFile, Side
from codeloupe.model.change import FileChange
from codeloupe.model.finding import ClaimedFinding, Finding, Source

_EVIDENCE_LINES = 40
_EVIDENCE_CHARACTERS = 4_000
_LONGEST_STATED_RANGE = 50
_LARGEST_LINE = 10_000_000
_LONGEST_PATH = 4_096
_LARGEST_WHOLE_FILE = 32 * 1024 * 1024
_CACHE_BYTES = 256 * 1024 * 1024
_NEAR_LINES = (40, 400)
_MOST_HUNKS = 300
_MOST_FILES_WITHOUT_PATH = 200
_CHANGED, _SHOWN, _ELSEWHERE = range(3)


class ReviewedText(Protocol):
    """Reads the reviewed tree. It must not follow links, and is asked only for paths that stay inside."""

    def __call__(self, path: str, /) -> bytes | None:
        """The new content of a file, or None when it is unknown or absent."""


class Origin(Struct, frozen=True, kw_only=True):
    """Who claims: the reviewer, the expert it was, and a label of this one look for `seen_by`."""

    reviewer: str
    expert: str | None = None
    look: str = ""
    source: Source = Source.AGENT


class _Place(Struct, frozen=True):
    """Where a quote stands, and the verbatim text there; without lines where it stands nowhere.

    `replacement` is new code for exactly these lines.
    """

    path: str
    line_start: int | None
    line_end: int | None
    evidence: str
    outside_change: bool
    replacement: str | None = None


class Anchorer:
    """Places the claims of one review. It keeps the files that it has read, within a limit of memory.

    `mask` takes secrets out of evidence. Nothing that a claim holds makes it raise or read outside of the tree.
    """

    def __init__(
        self, files: Sequence[FileChange], read: ReviewedText, *, mask: Callable[[str], str] | None = None
    ) -> None:
        self._changes = {file.path: file for file in reversed(files)}
        self._read = read
        self._mask = mask or str
        self._files: OrderedDict[str, ReviewedFile] = OrderedDict()
        self._kept_bytes = 0
        self._paths = ClaimedPaths(files, lambda path: self._content(path) is not None)

    def place(self, claim: ClaimedFinding, origin: Origin, *, unit_files: Sequence[str] = ()) -> Finding:
        """The finding of a claim, at the place of its quote; without one it is kept, and marked as not anchored.

        The claim's own reviewer is not believed: who saw a finding is told by `origin`.
        """
        claimed = (claim.file or "").strip()
        paths = self._paths.candidates(claimed, unit_files) if claimed else ()
        quote = Quote.of(claim.evidence)
        place = next((found for path in paths if (found := self._find(path, quote, claim)) is not None), None)
        if place is None and not claimed and quote.readings:
            place = self._only_place(quote, claim, unit_files)
        if place is None:
            place = self._unanchored(paths[0] if paths else None, claimed, claim)
            return _finding(claim, origin, place, anchored=False)
        return _finding(claim, origin, place, anchored=True)

    def _only_place(self, quote: Quote, claim: ClaimedFinding, unit_files: Sequence[str]) -> _Place | None:
        """The place of a quote that stands in exactly one changed file."""
        paths = [path for path in unit_files if path in self._changes] or list(self._changes)
        if len(paths) > _MOST_FILES_WITHOUT_PATH:
            return None
        found = [place for path in dict.fromkeys(paths) if (place := self._find(path, quote, claim)) is not None]
        return found[0] if len(found) == 1 else None

    def _find(self, path: str, quote: Quote, claim: ClaimedFinding) -> _Place | None:
        if not quote.readings:
            return None
        file = self._file(path)
        stated = _stated_line(claim.line_start) or quote.first_line
        if stated is not None and file.last_line is not None and stated > file.last_line:
            stated = None
        ground = _ground(file, file.new, stated)
        new = find_quote(quote, ground)
        if new is not None and (new.rank[0] != _ELSEWHERE or ground.is_stated(new.first_row, new.last_row)):
            return self._placed(file, file.new, new, claim)
        for side in file.sides_with_deletions():
            gone = find_quote(quote, _ground(file, side, stated), deleted=True)
            if gone is not None and (new is None or (gone.whole and _is_deletion(side, gone))):
                return self._placed(file, side, gone, claim)
        # What looks like a deleted line may be an item of a list.
        new = new or find_quote(quote, ground, deleted=True) or find_fragments(quote, ground)
        return None if new is None else self._placed(file, file.new, new, claim)

    def _placed(self, file: ReviewedFile, side: Side, match: Match, claim: ClaimedFinding) -> _Place:
        start = side.lines.number(match.first_row)
        end = max(start, side.lines.number(match.last_row))
        inside = _touches(file.shown, start, end) or _is_deletion(side, match)
        if side is file.new:
            end = max(end, _stated_end(file, claim, start, end))
        evidence = self._evidence(side, match)
        code = None
        if side is file.new and not match.gapped and evidence.count("\n") == end - start:
            code = replacement_of(claim.replacement, quote=claim.evidence, lines=evidence, path=file.path)
        return _Place(file.path, start, end, evidence, outside_change=not inside, replacement=code)

    def _evidence(self, side: Side, match: Match) -> str:
        last = min(match.last_row, match.first_row + _EVIDENCE_LINES - 1)
        lines = [side.lines.text(row).decode("utf-8", "replace") for row in range(match.first_row, last + 1)]
        verbatim = "\n".join(line.removesuffix("\r") for line in lines)
        shown = self._mask(verbatim)
        if match.gapped and MASK not in shown and any(MASK in line for line in match.form.lines):
            # What was masked for the reviewer must not come to light here.
            shown = "\n".join(match.form.lines)
        return shown[:_EVIDENCE_CHARACTERS]

    def _unanchored(self, path: str | None, claimed: str, claim: ClaimedFinding) -> _Place:
        evidence = self._mask(claim.evidence[:_EVIDENCE_CHARACTERS])
        outside = path is not None and path not in self._changes
        return _Place(path or clean_path(claimed[:_LONGEST_PATH]), None, None, evidence, outside_change=outside)

    def _file(self, path: str) -> ReviewedFile:
        file = self._files.get(path)
        if file is None:
            change = self._changes.get(path)
            is_gone = change is not None and change.new_path is None
            file = self._files[path] = ReviewedFile(path, change, None if is_gone else self._content(path))
            self._kept_bytes += file.weight
            while self._kept_bytes > _CACHE_BYTES and len(self._files) > 1:
                self._kept_bytes -= self._files.popitem(last=False)[1].weight
        self._files.move_to_end(path)
        return file

    def _content(self, path: str) -> bytes | None:
        try:
            content = self._read(path)
        except (OSError, ValueError):
            # A name that the file system does not take is a file that is not there.
            return None
        return content if content is None or len(content) <= _LARGEST_WHOLE_FILE else None


def _ground(file: ReviewedFile, side: Side, stated: int | None) -> Ground:
    lines = side.lines

    def rank(first_row: int, last_row: int) -> Rank:
        first, last = lines.number(first_row), lines.number(last_row)
        distances = (0, 0) if stated is None else (max(first - stated, stated - last, 0), abs(first - stated))
        deleted = isinstance(lines, DiffRows) and lines.has_deleted(first_row, last_row)
        if deleted or _touches(file.added, first, last):
            return _CHANGED, *distances
        return _SHOWN if _touches(file.shown, first, last) else _ELSEWHERE, *distances

    def is_stated(first_row: int, last_row: int) -> bool:
        return stated is not None and lines.number(first_row) <= stated <= lines.number(last_row)

    windows = [] if stated is None else [(stated - near, stated + near) for near in _NEAR_LINES]
    nearest = bisect_left(file.shown, (stated or 0, 0))
    windows += file.shown[max(0, nearest - _MOST_HUNKS // 2) :][:_MOST_HUNKS]
    return Ground(
        side.text,
        rank,
        is_stated,
        [(lines.row(first), lines.row(last)) for first, last in windows],
        stated=None if stated is None else lines.row(stated),
    )


def _touches(ranges: Sequence[tuple[int, int]], first: int, last: int) -> bool:
    """Whether some of the ordered ranges shares a line with those from first to last."""
    index = bisect_left(ranges, first, key=lambda pair: pair[1])
    return index < len(ranges) and ranges[index][0] <= last


def _is_deletion(side: Side, match: Match) -> bool:
    return isinstance(side.lines, DiffRows) and side.lines.has_deleted(match.first_row, match.last_row)


def _stated_line(number: int | None) -> int | None:
    return number if number is not None and 1 <= number <= _LARGEST_LINE else None


def _stated_end(file: ReviewedFile, claim: ClaimedFinding, start: int, end: int) -> int:
    """The end that the reviewer named, where it named the beginning rightly and the end is within reason."""
    stated = _stated_line(claim.line_end)
    if stated is None or claim.line_start != start or stated - start >= _LONGEST_STATED_RANGE:
        return end
    return stated if file.last_line is not None and stated <= file.last_line else end


def _finding(claim: ClaimedFinding, origin: Origin, place: _Place, *, anchored: bool) -> Finding:
    confidence = claim.confidence
    if confidence is not None:
        confidence = min(max(confidence, 0.0), 1.0) if math.isfinite(confidence) else None
    return Finding(
        file=place.path,
        line_start=place.line_start,
        line_end=place.line_end,
        severity=claim.severity,
        category=claim.category.strip() or origin.expert or "general",
        title=claim.plain_title,
        body=claim.body,
        evidence=place.evidence,
        reviewer=origin.reviewer,
        source=origin.source,
        rule=claim.rule,
        suggestion=claim.suggestion,
        replacement=place.replacement,
        confidence=confidence,
        expert=origin.expert,
        anchored=anchored,
        outside_change=place.outside_change,
        seen_by=(origin.look or origin.reviewer,),
    )
