"""From a claim to a finding with a place: the quote decides where it is, and without one there is no place here.

What is on the line that the reviewer named counts before everything else. A quote that is not there is not found:
nothing is matched by likeness. Every way to look for it takes time linear in the text.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.engine.code_text import fold, has_letters
from codeloupe.engine.quotes import MASK, Reading, pieces_of, places_with_gaps, readings_of, replacement_of
from codeloupe.engine.reviewed_file import ReviewedFile, Side, is_inside
from codeloupe.model.change import FileChange, FileStatus
from codeloupe.model.finding import ClaimedFinding, Finding, Source
from codeloupe.system.regex import regex
from codeloupe.system.untrusted import one_line

_EVIDENCE_CHARACTERS = 4_000
_CACHE_BYTES = 256 * 1024 * 1024
_CHANGED, _SHOWN, _ELSEWHERE = range(3)
# Long patterns make the library's search slow on hostile text, so the rest is compared where the beginning is.
_LONGEST_PATTERN = 1000
_MOST_PLACES = 3_000
_WITHIN_WORD = regex(r"(?<=\w)(?=\w)")
# A line that is shorter is everywhere, and counts only where the reviewer names it, as does a shorter part of a line.
_SHORTEST_LINE, _SHORTEST_PART = 3, 7
# From here on a quote may begin or end within a word.
_SHORTEST_LOOSE_PART = 20

_Places = Iterable[tuple[int, int]]


class _Ground:
    """A side of a file to find quotes in, and the line that was named there."""

    def __init__(self, file: ReviewedFile, side: Side, stated: int | None) -> None:
        self.file, self.side, self.stated = file, side, stated
        # Where to look first: on the named line, near it, and in the hunks that are nearest.
        near = [] if stated is None else [(stated, stated), (stated - 400, stated + 400)]
        nearest = max(0, bisect_left(file.shown, (stated or 0, 0)) - 150)
        self._windows = [(side.row(one), side.row(last)) for one, last in (*near, *file.shown[nearest:][:300])]

    def rank(self, first_row: int, last_row: int) -> tuple[int, int, int]:
        """How good a place is: lower for a better one."""
        first, last = self.side.numbers[first_row], self.side.numbers[last_row]
        distances = (0, 0)
        if self.stated is not None:
            distances = max(first - self.stated, self.stated - last, 0), abs(first - self.stated)
        if self.side.has_deleted(first_row, last_row) or _touches(self.file.added, first, last):
            return _CHANGED, *distances
        return _SHOWN if _touches(self.file.shown, first, last) else _ELSEWHERE, *distances

    def is_stated(self, first_row: int, last_row: int) -> bool:
        numbers = self.side.numbers
        return self.stated is not None and numbers[first_row] <= self.stated <= numbers[last_row]

    def stated_ones(self, places: _Places) -> _Places:
        return (place for place in places if self.is_stated(*self.side.rows(*place)))

    def literal(self, pattern: str) -> Iterator[tuple[int, int]]:
        """Where a pattern is: in the windows first, then anywhere, and not endlessly."""
        text, head, rest = self.side.text, pattern[:_LONGEST_PATTERN], pattern[_LONGEST_PATTERN:]
        newlines, left = pattern.count("\n"), _MOST_PLACES
        near = (self.side.stretch(first - newlines, last + newlines) for first, last in self._windows)
        for low, high in (*near, (0, len(text))) if head in text else ():
            start = text.find(head, low, high)
            while start >= 0 and left > 0:
                if text.startswith(rest, start + len(head)):
                    yield start, start + len(pattern)
                left -= 1
                start = text.find(head, start + 1, high)


def _whole_lines(pattern: str, ground: _Ground) -> _Places:
    places = ((start + 1, end - 1) for start, end in ground.literal(f"\n{pattern}\n"))
    return places if len(pattern) >= _SHORTEST_LINE and has_letters(pattern) else ground.stated_ones(places)


def _parts_of_lines(pattern: str, ground: _Ground) -> _Places:
    """Where a quote is in a part of a line; a short one neither begins nor ends within a word."""
    if len(pattern) < 3 or not has_letters(pattern):
        return ()
    places: _Places = ground.literal(pattern)
    if len(pattern) < _SHORTEST_LOOSE_PART:
        text = ground.side.text
        places = (place for place in places if not any(_WITHIN_WORD.match(text, offset) for offset in place))
    return places if len(pattern) >= _SHORTEST_PART else ground.stated_ones(places)


def _run_together(pattern: str, ground: _Ground) -> _Places:
    joined = fold(pattern.replace("\n", " "))
    if not _SHORTEST_LOOSE_PART <= len(joined) <= _LONGEST_PATTERN or not has_letters(joined):
        return ()
    return ground.side.places_run_together(joined, _MOST_PLACES)


def _with_gaps(pattern: str, ground: _Ground) -> _Places:
    return places_with_gaps(pattern.split("\n"), ground.side, ground.literal)


def _cut_anywhere(pattern: str, ground: _Ground) -> _Places:
    return ground.literal(pattern) if len(pattern) >= 4 and has_letters(pattern) else ()


def _cut_at_end(pattern: str, ground: _Ground) -> _Places:
    """Where a quote is that begins with a word and is cut within one."""
    if len(pattern) < _SHORTEST_PART or not has_letters(pattern):
        return ()
    return (place for place in ground.literal(pattern) if not _WITHIN_WORD.match(ground.side.text, place[0]))


def _lines_apart(pattern: str, ground: _Ground) -> _Places:
    """The place of one line of a quote whose lines are there, but not together: the named line, or else the first."""
    lines = pattern.split("\n")
    telling = [line for line in lines if len(line) >= _SHORTEST_LINE and has_letters(line)]
    # Each is looked for by itself, in so much text altogether.
    if not 1 < len(telling) <= 40 or len(ground.side.text) * len(telling) > 50_000_000 or pieces_of(lines):
        return ()
    places = [list(_whole_lines(line, ground)) or list(_cut_at_end(line, ground)) for line in telling]
    if not all(places):
        return ()
    return list(ground.stated_ones(place for found in places for place in found)) or places[0]


_Way = Callable[[str, _Ground], _Places]
# How a quote is looked for, the strictest way first: on the line that was named, and then anywhere.
_AS_QUOTED: tuple[tuple[_Way, ...], ...] = (
    (_whole_lines, _parts_of_lines),
    (_whole_lines, _parts_of_lines, _run_together, _with_gaps),
)
# The same for a quote that is cut within a word, or whose lines are not together.
_IN_FRAGMENTS: tuple[tuple[_Way, ...], ...] = ((_cut_anywhere,), (_cut_at_end, _lines_apart))


# The rows of a quote, the first and the last, the reading that led there, and by which way.
_Match = tuple[tuple[int, int], Reading, _Way]


def _found(
    readings: Sequence[Reading], ground: _Ground, ways: Sequence[Sequence[_Way]], *, deleted: bool = False
) -> _Match | None:
    """The best place of a quote; with `deleted`, readings that show deleted lines count as well."""
    for number, group in enumerate(ways):
        if number == 0 and ground.stated is None:
            continue
        for way in group:
            for reading in (one for one in readings if deleted or not one.of_deletion):
                places = way("\n".join(reading.folded), ground)
                rows = (ground.side.rows(*one) for one in (places if number else ground.stated_ones(places)))
                if found := min(((ground.rank(*pair), pair) for pair in rows), default=None):
                    return found[1], reading, way
    return None


class Origin(Struct, frozen=True, kw_only=True):
    """Who claims: the reviewer, the expert it was, and a label for `seen_by` that tells its passes apart."""

    reviewer: str
    expert: str | None = None
    label: str = ""
    source: Source = Source.AGENT


class Anchorer:
    """Places the claims of one review. It keeps the files that it has read, within a limit of memory.

    `read` gives the new content of a file, or None; it must not raise, follow links or lead out of the tree. `mask`
    takes secrets out of evidence. Where a claim quotes nothing, the line that it names is believed if the diff shows it
    (`shown`: a model may know the number of a line that it saw, and guesses any other), or in `any` known place.
    Nothing that a claim holds makes it raise.
    """

    def __init__(
        self,
        files: Sequence[FileChange],
        read: Callable[[str], bytes | None],
        *,
        mask: Callable[[str], str] = str,
        believes: Literal["none", "shown", "any"] = "none",
    ) -> None:
        self._changes = {file.path: file for file in reversed(files)}
        self._read, self._mask, self._believes = read, mask, believes
        self._files: dict[str, ReviewedFile] = {}
        self._kept_bytes = 0
        # The changed files by all names that a reviewer may know them by.
        self._known_as = {path: path for path in self._changes}
        for file in files:
            self._known_as.setdefault(one_line(file.path), file.path)
            if file.status is FileStatus.RENAMED and file.old_path:
                self._known_as.setdefault(file.old_path, file.path)

    def place(self, claim: ClaimedFinding, origin: Origin, *, unit_files: Sequence[str] = ()) -> Finding:
        """The finding of a claim, at the place of its quote; without one it is kept, and marked as not anchored.

        The claim's own reviewer is not believed: `origin` says who saw a finding.
        """
        claimed = (claim.file or "").strip()[:4096]
        spellings = list(_path_spellings(claimed))
        paths = self._candidates(spellings, unit_files) if claimed else ()
        path = paths[0] if paths else spellings[-1]
        confidence = claim.confidence if claim.confidence is not None and math.isfinite(claim.confidence) else None
        unplaced = Finding(
            file=path,
            line_start=None,
            line_end=None,
            severity=claim.severity,
            category=claim.category.strip() or origin.expert or "general",
            title=claim.plain_title,
            body=claim.body,
            evidence=self._mask(claim.evidence[:_EVIDENCE_CHARACTERS]),
            reviewer=origin.reviewer,
            source=origin.source,
            rule=claim.rule,
            suggestion=claim.suggestion,
            confidence=None if confidence is None else min(max(confidence, 0.0), 1.0),
            expert=origin.expert,
            anchored=False,
            outside_change=bool(paths) and path not in self._changes,
            seen_by=(origin.label or origin.reviewer,),
        )
        if not claim.evidence.strip():
            return unplaced if self._believes == "none" else self._believed(claim, unplaced)
        readings = readings_of(claim.evidence)
        # A quote that is in exactly one changed file needs no path.
        changed = [path for path in unit_files if path in self._changes] or list(self._changes)
        tried = paths if claimed else changed if len(changed) <= 200 else ()
        places = (one for path in dict.fromkeys(tried) if (one := self._find(path, readings, claim, unplaced)))
        found = list(islice(places, 1 if claimed else 2))
        return found[0] if len(found) == 1 else unplaced

    def _candidates(self, spellings: Sequence[str], unit_files: Sequence[str]) -> tuple[str, ...]:
        """The files that a path may mean, the likeliest first; none when none is meant, or too many could be."""
        if changed := next((self._known_as[one] for one in spellings if one in self._known_as), None):
            return (changed,)

        def is_readable(path: str) -> bool:
            return is_inside(path) and self._file(path).is_known

        path = spellings[-1]
        parts = path.split("/")
        if not is_inside(path.lstrip("/")) or len(parts) > 64:
            return ()
        ends = ("/".join(parts[index:]) for index in range(1, len(parts)))
        if path.startswith("/") or path[1:3] == ":/":
            # The longest end of it that names a file, as nobody knows where the tree was for the reviewer.
            found = (self._known_as.get(end, end) for end in ends if end in self._known_as or is_readable(end))
            return tuple(islice(found, 1))
        exact = filter(is_readable, spellings)
        longer = [known for known in self._changes if known.endswith(f"/{path}")]
        if len(longer) > 1 and len(longer := [known for known in longer if known in unit_files]) != 1:
            return ()
        shorter = (self._known_as[end] for end in ends if end in self._known_as)
        return tuple(dict.fromkeys((*longer, *islice(exact, 1), *islice(shorter, 1))))

    def _believed(self, claim: ClaimedFinding, finding: Finding) -> Finding:
        file, start = self._file(finding.file), claim.line_start or 0
        if start < 1 or file.new.line(start) is None:
            return finding
        end, stated = start, min(claim.line_end or start, start + 1_000)
        while end < stated and file.new.line(end + 1) is not None:
            end += 1
        is_shown = _touches(file.shown, start, end)
        if self._believes == "shown" and not is_shown:
            return finding
        lines = (file.new.line(number) or b"" for number in range(start, min(end, start + 9) + 1))
        return _at(finding, start, end, self._mask(_verbatim(lines)), outside_change=not is_shown)

    def _find(self, path: str, readings: Sequence[Reading], claim: ClaimedFinding, finding: Finding) -> Finding | None:
        file = self._file(path)
        in_margin = next((reading.first_line for reading in readings if reading.first_line), None)
        stated = _stated_line(claim.line_start) or in_margin
        if stated is not None and file.last_line is not None and stated > file.last_line:
            stated = None
        ground = _Ground(file, file.new, stated)
        new = _found(readings, ground, _AS_QUOTED)
        if new is not None and (ground.rank(*new[0])[0] != _ELSEWHERE or ground.is_stated(*new[0])):
            return self._placed(ground, new, claim, finding)
        for side in file.sides_with_deletions:
            old = _Ground(file, side, stated)
            gone = _found(readings, old, _AS_QUOTED, deleted=True)
            if gone and (new is None or (gone[2] is _whole_lines and side.has_deleted(*gone[0]))):
                return self._placed(old, gone, claim, finding)
        # What looks like a deleted line may be an item of a list.
        new = new or _found(readings, ground, _AS_QUOTED, deleted=True) or _found(readings, ground, _IN_FRAGMENTS)
        return None if new is None else self._placed(ground, new, claim, finding)

    def _placed(self, ground: _Ground, match: _Match, claim: ClaimedFinding, finding: Finding) -> Finding:
        file, side = ground.file, ground.side
        (first, last), reading, way = match
        start = side.numbers[first]
        end = max(start, side.numbers[last])
        inside = _touches(file.shown, start, end) or side.has_deleted(first, last)
        evidence = self._mask(_verbatim(side.lines[first : min(last, first + 39) + 1]))
        is_gapped = way is _with_gaps
        if is_gapped and MASK not in evidence and any(MASK in line for line in reading.lines):
            # What was masked for the reviewer must not come to light here.
            evidence = "\n".join(reading.lines)
        code = None
        if side is file.new:
            # The end that the reviewer named, where it named the beginning rightly and the end is within reason.
            stated = _stated_line(claim.line_end) or 0
            is_known = file.last_line is not None and stated <= file.last_line
            if claim.line_start == start and stated - start < 50 and is_known:
                end = max(end, stated)
            quoted = evidence[:_EVIDENCE_CHARACTERS]
            if not is_gapped and quoted.count("\n") == end - start:
                code = replacement_of(claim.replacement, quote=claim.evidence, lines=quoted, path=file.path)
        return replace(_at(finding, start, end, evidence, outside_change=not inside), file=file.path, replacement=code)

    def _file(self, path: str) -> ReviewedFile:
        if path not in self._files:
            change = self._changes.get(path)
            is_gone = change is not None and change.new_path is None
            file = ReviewedFile(path, change, None if is_gone else self._read(path))
            self._kept_bytes += file.weight
            if self._kept_bytes > _CACHE_BYTES:
                self._files.clear()
                self._kept_bytes = file.weight
            self._files[path] = file
        return self._files[path]


_LOCATION = regex(r"(?::\d{1,9}(?:[-:]\d{1,9}){0,2}|#L\d{1,9}(?:-L?\d{1,9})?|\s{0,9}\((?:lines?|L)\s?\d[^()]{0,40}\))$")
_MANY_SLASHES = regex(r"/(?:\.?/){1,999}")
_WRAPPING = " \t\r\n`'\"<>*,;"


def _path_spellings(claimed: str) -> Iterator[str]:
    """The path without more and more of what is around it: quotes, line numbers, prefixes of a diff, extra slashes."""
    yield claimed
    path = claimed.strip(_WRAPPING)
    yield path
    path = _LOCATION.sub("", path).strip(_WRAPPING)
    yield path
    path = path.removeprefix("file://").replace("\\", "/")
    yield path
    path = _MANY_SLASHES.sub("/", path)
    while path.startswith("./"):
        path = path[2:]
    yield path
    if path.startswith(("a/", "b/")):
        yield path[2:]


def _at(finding: Finding, start: int, end: int, quote: str, *, outside_change: bool) -> Finding:
    place = {"line_start": start, "line_end": end, "evidence": quote[:_EVIDENCE_CHARACTERS]}
    return replace(finding, anchored=True, outside_change=outside_change, **place)


def _verbatim(lines: Iterable[bytes]) -> str:
    return "\n".join(line.decode("utf-8", "replace").removesuffix("\r") for line in lines)


def _touches(ranges: Sequence[tuple[int, int]], first: int, last: int) -> bool:
    """Whether some of the ordered ranges shares a line with those from first to last."""
    index = bisect_left(ranges, first, key=lambda pair: pair[1])
    return index < len(ranges) and ranges[index][0] <= last


def _stated_line(number: int | None) -> int | None:
    return number if number is not None and 1 <= number <= 10_000_000 else None
