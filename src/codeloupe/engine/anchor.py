"""From a claim to a finding with a place: the quote decides where it is, and without one there is no place here.

The file is the one that the claimed path means. A line that a claim names without quoting anything is believed where
the diff shows it. New code for the quoted lines is kept where it fits them exactly.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.engine.prompt_material import has_hidden, one_line
from codeloupe.engine.quotes import MASK, Ground, Match, Quote, Rank, find_fragments, find_quote
from codeloupe.engine.reviewed_file import DiffRows, ReviewedFile, Side, TextReader, WholeLines
from codeloupe.model.change import FileChange, FileStatus
from codeloupe.model.finding import ClaimedFinding, Finding, Source
from codeloupe.model.ports import ReviewTask

_EVIDENCE_LINES = 40
_EVIDENCE_LINES_WITHOUT_QUOTE = 10
_EVIDENCE_CHARACTERS = 4_000
_LONGEST_STATED_RANGE = 50
_LONGEST_RANGE_WITHOUT_QUOTE = 1_000
_LARGEST_LINE = 10_000_000
_LARGEST_WHOLE_FILE = 32 * 1024 * 1024
_CACHE_BYTES = 256 * 1024 * 1024
_NEAR_LINES = (40, 400)
_MOST_HUNKS = 300
_MOST_FILES_WITHOUT_PATH = 200
_CHANGED, _SHOWN, _ELSEWHERE = range(3)
_LONGEST_PATH = 4096
_MOST_PARTS = 64
_LOCATION = re.compile(
    r"(?::\d{1,9}(?:[-:]\d{1,9}){0,2}|#L\d{1,9}(?:-L?\d{1,9})?|\s{0,9}\((?:lines?|L)\s?\d[^()]{0,40}\))$"
)
_DRIVE = re.compile(r"[A-Za-z]:/")
_MANY_SLASHES = re.compile(r"/(?:\.?/){1,999}")
_WRAPPING = " \t\r\n`'\"<>*,;"


class ClaimedPaths:
    """Finds the file of a claimed path among the changed files first, then in the rest of the tree.

    `is_readable` tells whether the reviewed tree has a file; it is asked only for clean relative paths.
    """

    def __init__(self, files: Sequence[FileChange], is_readable: Callable[[str], bool]) -> None:
        self._is_readable = is_readable
        self._changed: dict[str, str] = {}
        self._by_name: defaultdict[str, list[str]] = defaultdict(list)
        for file in files:
            if file.path not in self._changed:
                self._by_name[file.path.rpartition("/")[2]].append(file.path)
                self._changed[file.path] = file.path
        for file in files:
            self._changed.setdefault(one_line(file.path), file.path)
            if file.status is FileStatus.RENAMED and file.old_path:
                self._changed.setdefault(file.old_path, file.path)
        self._found = lru_cache(maxsize=4096)(self._find)

    def candidates(self, claimed: str, unit_files: Sequence[str]) -> tuple[str, ...]:
        """The files that may be meant, the likeliest first; none when none is, or when too many could be."""
        if claimed in self._changed:
            return (self._changed[claimed],)
        return self._found(claimed[: _LONGEST_PATH + 1], tuple(unit_files))

    def _find(self, claimed: str, unit_files: tuple[str, ...]) -> tuple[str, ...]:
        spellings = list(_spellings(claimed))
        for path in spellings:
            if path in self._changed:
                return (self._changed[path],)
        path = spellings[-1]
        parts = path.split("/")
        if not _is_inside(path.lstrip("/")) or len(parts) > _MOST_PARTS:
            return ()
        ends = ("/".join(parts[index:]) for index in range(1, len(parts)))
        if path.startswith("/") or _DRIVE.match(path):
            # The longest end of it that names a file, as nobody knows where the tree was for the reviewer.
            found = next((end for end in ends if end in self._changed or self._is_readable(end)), None)
            return () if found is None else (self._changed.get(found, found),)
        exact = [spelling for spelling in spellings if _is_inside(spelling) and self._is_readable(spelling)]
        longer = [known for known in self._by_name.get(parts[-1], ()) if known.endswith(f"/{path}")]
        if len(longer) > 1:
            longer = [known for known in longer if known in unit_files]
            if len(longer) != 1:
                return ()
        shorter = next(((self._changed[end],) for end in ends if end in self._changed), ())
        return tuple(dict.fromkeys((*longer, *exact[:1], *shorter)))


def _spellings(claimed: str) -> Iterator[str]:
    """The path without more and more of what is around it: quotes, line numbers, prefixes of a diff, extra slashes."""
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


def _is_inside(path: str) -> bool:
    """Whether a relative path stays in the tree, is not the repository's own storage, and can name a file at all."""
    ordinary = not any(part in {"", ".", ".."} or part.lower() == ".git" for part in path.split("/"))
    return ordinary and 0 < len(path) <= _LONGEST_PATH and "\0" not in path


_LONGEST_REPLACEMENT = 20_000
_FENCE = re.compile(r"[ \t]{0,99}(`{3,9}|~{3,9})[^`\n]{0,80}$")
# How advice begins. No line of code begins with such a word in this spelling and goes on in words.
_ADVICE = re.compile(
    r"(?:Use|Replace|Add|Remove|Change|Consider|Instead|Make|Move|Wrap|Escape|Validate|Ensure|Rename|Avoid|Delete|"
    r"Pass|Set|Keep|Handle|Guard|Close|Do not|Don't|The|This|You|It|N/A|None needed|No change)[ ,][`'\"\w]"
)
_PROSE_SUFFIXES = (".md", ".markdown", ".txt", ".rst", ".adoc", ".tex", ".html", ".htm")


def replacement_of(offered: str | None, *, quote: str, lines: str, path: str) -> str | None:
    """The code that takes the place of `lines`, the whole lines that were found for `quote`; None for anything else.

    Fences and the marks of a diff are taken off, and indentation that was left out is put back. It is none when it
    changes nothing, is advice in words, holds what was masked or cannot be seen, or when the quote is only a part of
    the lines: then nobody knows what it stands for.
    """
    if offered is None or not lines.strip() or len(offered) > _LONGEST_REPLACEMENT or MASK in lines:
        return None
    code, bare = _without_fence(offered), _without_fence(quote)
    if code is None or bare is None:
        return None
    rows = code.strip("\n").split("\n")
    if all(row.startswith("+") for row in rows if row.strip()):
        code = "\n".join(row[1:] for row in rows)
    if not code.strip() or MASK in code or has_hidden(code):
        return None
    # The quote is these lines, whole, but for indentation, the marks of a diff and a fence.
    wanted = [row.strip() for row in lines.split("\n") if row.strip()]
    quoted = [row.strip() for row in bare.split("\n") if row.strip()]
    if wanted not in (quoted, [row.removeprefix("+").strip() for row in quoted]):
        return None
    if not path.lower().endswith(_PROSE_SUFFIXES) and _ADVICE.match(code.lstrip()):
        return None
    fitted = _indented(code.strip("\n").rstrip(), lines)
    return None if fitted == lines.rstrip() else fitted


def _without_fence(text: str) -> str | None:
    """What is in a block that is the whole text; the text when it has none; None for words around a block."""
    text = text.replace("\r\n", "\n")
    rows = text.strip().split("\n")
    fences = [number for number, row in enumerate(rows) if _FENCE.match(row)]
    if not fences:
        return text
    return "\n".join(rows[1:-1]) if fences == [0, len(rows) - 1] else None


def _indented(code: str, lines: str) -> str:
    """The code, indented as the lines are where its first line has lost its indentation."""
    first = next((row for row in lines.split("\n") if row.strip()), "")
    indent = first[: len(first) - len(first.lstrip(" \t"))]
    rows = code.split("\n")
    if not indent or rows[0][:1].isspace():
        return code
    others = [row for row in rows[1:] if row.strip()]
    only_first = bool(others) and all(row.startswith(indent) for row in others)
    return "\n".join(
        f"{indent}{row}" if row.strip() and (number == 0 or not only_first) else row for number, row in enumerate(rows)
    )


class ReviewedText(Protocol):
    """Reads the reviewed tree. It must not follow links, and is asked only for paths that stay inside."""

    def __call__(self, path: str, /) -> bytes | None:
        """The new content of a file, or None when it is unknown or absent."""


class Origin(Struct, frozen=True, kw_only=True):
    """Who claims: the reviewer, the expert it was, and a label for `seen_by` that tells its passes apart."""

    reviewer: str
    expert: str | None = None
    label: str = ""
    source: Source = Source.AGENT


class _Place(Struct, frozen=True):
    """Where a quote is, and the verbatim text there; without lines where it is nowhere.

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

        The claim's own reviewer is not believed: `origin` says who saw a finding.
        """
        claimed = (claim.file or "").strip()
        paths = self._paths.candidates(claimed, unit_files) if claimed else ()
        quote = Quote.of(claim.evidence)
        place = next((found for path in paths if (found := self._find(path, quote, claim)) is not None), None)
        if place is None and not claimed and quote.readings:
            # A quote that is in exactly one changed file needs no path.
            changed = [path for path in unit_files if path in self._changes] or list(self._changes)
            if len(changed) <= _MOST_FILES_WITHOUT_PATH:
                there = [self._find(path, quote, claim) for path in dict.fromkeys(changed)]
                places = [one for one in there if one is not None]
                place = places[0] if len(places) == 1 else None
        if place is not None:
            return _finding(claim, origin, place, anchored=True)
        path = paths[0] if paths else list(_spellings(claimed[:_LONGEST_PATH]))[-1]
        evidence = self._mask(claim.evidence[:_EVIDENCE_CHARACTERS])
        nowhere = _Place(path, None, None, evidence, outside_change=bool(paths) and path not in self._changes)
        return _finding(claim, origin, nowhere, anchored=False)

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
        evidence = self._evidence(side, match)
        code = None
        if side is file.new:
            # The end that the reviewer named, where it named the beginning rightly and the end is within reason.
            stated = _stated_line(claim.line_end) or 0
            is_known = file.last_line is not None and stated <= file.last_line
            if claim.line_start == start and stated - start < _LONGEST_STATED_RANGE and is_known:
                end = max(end, stated)
            if not match.gapped and evidence.count("\n") == end - start:
                code = replacement_of(claim.replacement, quote=claim.evidence, lines=evidence, path=file.path)
        return _Place(file.path, start, end, evidence, outside_change=not inside, replacement=code)

    def _evidence(self, side: Side, match: Match) -> str:
        last = min(match.last_row, match.first_row + _EVIDENCE_LINES - 1)
        shown = self._mask(_verbatim(side.lines.text(row) for row in range(match.first_row, last + 1)))
        if match.gapped and MASK not in shown and any(MASK in line for line in match.form.lines):
            # What was masked for the reviewer must not come to light here.
            shown = "\n".join(match.form.lines)
        return shown[:_EVIDENCE_CHARACTERS]

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


def _verbatim(lines: Iterable[bytes]) -> str:
    return "\n".join(line.decode("utf-8", "replace").removesuffix("\r") for line in lines)


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
        seen_by=(origin.label or origin.reviewer,),
    )


class StatedLines:
    """The lines of the reviewed files by their numbers, as far as they are known.

    `mask` takes secrets out of evidence. With `only_shown` a line counts where the diff shows it and nowhere else: a
    model that quotes nothing may know the number of a line that it saw, and guesses any other.
    """

    def __init__(self, task: ReviewTask, text: TextReader, *, mask: Callable[[str], str], only_shown: bool) -> None:
        self._changes = {file.path: file for file in task.files}
        self._text = text
        self._mask = mask
        self._only_shown = only_shown
        # Few are kept, since a claim can name any file of the tree, and one may be large.
        self._of = lru_cache(maxsize=4)(self._read)

    def believe(self, claim: ClaimedFinding, finding: Finding) -> Finding:
        """The finding on the line that the claim names, when nothing but a quote is missing for that."""
        if finding.anchored or claim.evidence.strip() or claim.line_start is None:
            return finding
        line, start = self._of(finding.file), claim.line_start
        if line(start) is None:
            return finding
        end, stated = start, min(claim.line_end or start, start + _LONGEST_RANGE_WITHOUT_QUOTE)
        while end < stated and line(end + 1) is not None:
            end += 1
        change = self._changes.get(finding.file)
        hunks = change.hunks if change is not None else ()
        is_shown = any(hunk.new_start <= end and start < hunk.new_start + hunk.new_lines for hunk in hunks)
        if self._only_shown and not is_shown:
            return finding
        quoted = range(start, min(end, start + _EVIDENCE_LINES_WITHOUT_QUOTE - 1) + 1)
        quote = _verbatim(line(number) or b"" for number in quoted)
        return replace(
            finding,
            line_start=start,
            line_end=end,
            evidence=self._mask(quote)[:_EVIDENCE_CHARACTERS],
            anchored=True,
            outside_change=not is_shown,
        )

    def _read(self, path: str) -> Callable[[int], bytes | None]:
        """What gives a line of a file by its number, or None where there is none."""
        content = self._text.read(path)
        if content is not None:
            lines = WholeLines(content)
            return lambda number: lines.text(number - 1) if 1 <= number <= lines.count else None
        change = self._changes.get(path)
        hunks = change.hunks if change is not None and change.new_path is not None else ()
        shown = (line for hunk in hunks for line in hunk.lines())
        return {line.new_number: line.text for line in shown if line.new_number is not None}.get
