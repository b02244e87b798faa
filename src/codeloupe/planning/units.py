"""Divide a change into units, each for one agent call. Pure, deterministic, and linear in the diff.

In each pass every hunk is in exactly one unit for each expert that applies to its file, and in at least one unit.
Hunks fill the units in the order of folders and files, each source before its tests, because each call pays for the
instructions again. A unit ends before the first hunk that does not fit. A function, a file, or a source with its tests
is divided only if it does not fit into one unit. A hunk that fits is never cut. A larger one becomes even pieces, each
cut after the last blank row or between two changes in the second half of its share, otherwise at the share.
"""

from __future__ import annotations

import string
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby
from math import ceil
from typing import NamedTuple

from msgspec.structs import replace

from codeloupe.errors import ConfigError
from codeloupe.git.hunks import LONGEST_SECTION, HunkRows
from codeloupe.model.change import Effort, Expert, FileChange, Hunk, Unit, UnitPart
from codeloupe.model.scope import check_pattern
from codeloupe.planning.globs import Globs
from codeloupe.planning.related import related_blocks, shuffle_key

# A prompt cuts longer lines. It is less than a unit of medium effort, so only a line longer than a unit is cut.
MAX_LINE_BYTES = 8_000
_LETTERS = string.ascii_letters.encode()
_ASCII = bytes(range(128))
_HUNK_HEADER_TOKENS = 15
# The tokens around the path in the line that names a file above its hunks.
_FILE_HEADER_TOKENS = 6


def tokens_of(text: bytes | str) -> int:
    """Estimate the tokens of a text without a tokenizer, which would have to be downloaded.

    The weights of the kinds of bytes were fitted on source code and prose in a dozen languages. There the estimate is
    mostly within a tenth. Random text (base64, hashes) costs up to twice the estimate.
    """
    if isinstance(text, str):
        text = text.encode("utf-8", "surrogatepass")
    return round(_weight(text))


def _weight(data: bytes) -> float:
    others = data.translate(None, _LETTERS)
    letters = len(data) - len(others)
    spaces = others.count(b" ")
    newlines = others.count(b"\n")
    foreign = 0
    if not data.isascii():
        foreign = len(others.translate(None, _ASCII))
    marks = len(others) - spaces - newlines - foreign - others.count(b"\t") - others.count(b"\r")
    # Only spaces between words count. Those of an indentation come in pairs and become one token.
    lone_spaces = spaces - 2 * data.count(b"  ")
    return 0.145 * letters + 0.66 * marks + 1.4 * newlines + 0.39 * lone_spaces + 0.45 * foreign


def hunk_tokens(hunk: Hunk) -> int:
    """Estimate the tokens of a hunk as a prompt shows it: with its header, and with very long rows cut."""
    body = hunk.body
    if len(body) > MAX_LINE_BYTES:
        body = b"\n".join(row[:MAX_LINE_BYTES] for row in body.split(b"\n"))
    return _HUNK_HEADER_TOKENS + tokens_of(hunk.section) + tokens_of(body)


def globs_of(expert: Expert) -> Globs:
    """Return the patterns for the files that an expert reviews. Raise ConfigError for an invalid pattern."""
    include = tuple(pattern for pattern in expert.paths if not pattern.startswith("!"))
    exclude = tuple(pattern.removeprefix("!") for pattern in expert.paths if pattern.startswith("!"))
    for pattern in (*include, *exclude):
        problem = check_pattern(pattern)
        if problem is not None:
            what = f"expert {expert.name}: invalid pattern in `paths`: {problem}"
            raise ConfigError(what, hint="correct the `paths` of this expert")
    return Globs(include, exclude)


class Piece(NamedTuple):
    """A hunk or a part of one. The first `repeated_rows` of its body are in the piece before it too."""

    hunk: Hunk
    repeated_rows: int
    tokens: int


# A unit may have this many times the target. It ends before this limit, so the mean is near the target.
MOST_FILL = 1.3


class PlacedPiece(NamedTuple):
    """A piece, the index of its file, the tokens of the line that names the file, and the groups that it belongs to.

    The groups go from large to small: a source with its tests, a file, a function, and the piece alone.
    """

    piece: Piece
    file: int
    header_tokens: int
    groups: tuple[object, ...]


def pack(pieces: Sequence[PlacedPiece], most_tokens: int) -> list[list[PlacedPiece]]:
    """Fill units in order, each with at most `most_tokens` unless it is a single piece.

    A source with its tests, a file or a function is divided only if it does not fit into one unit.
    """
    if not pieces:
        return []
    units: list[list[PlacedPiece]] = [[]]
    tokens_in_unit = 0
    for group in _groups_that_fit(pieces, most_tokens):
        tokens = _tokens_with_headers(group)
        if units[-1] and tokens_in_unit + tokens > most_tokens:
            units.append([])
            tokens_in_unit = 0
        units[-1] += group
        tokens_in_unit += tokens
    return units


def _groups_that_fit(
    pieces: Sequence[PlacedPiece], most_tokens: int, *, level: int = 0
) -> Iterator[Sequence[PlacedPiece]]:
    """Yield the pieces in order, in the largest groups that fit into one unit. A piece that does not fit is alone."""
    if len(pieces) == 1 or _tokens_with_headers(pieces) <= most_tokens:
        yield pieces
        return
    for _, group in groupby(pieces, key=lambda placed: placed.groups[level]):
        yield from _groups_that_fit(tuple(group), most_tokens, level=level + 1)


def _tokens_with_headers(pieces: Sequence[PlacedPiece]) -> int:
    """Return the tokens of pieces. A line names the file above the first of its pieces."""
    tokens = 0
    file: int | None = None
    for placed in pieces:
        if placed.file != file:
            tokens += placed.header_tokens
        tokens += placed.piece.tokens
        file = placed.file
    return tokens


# A piece repeats the last rows of the one before it, unless they are more than this share of the target.
_REPEATED_ROWS = 5
_MOST_REPEATED_SHARE = 0.1
# The sign of the row that says that the row before it has no newline.
_NO_NEWLINE = b"\\"


def cut_hunk(hunk: Hunk, *, target_tokens: int, most_tokens: int) -> tuple[Piece, ...]:
    """Return the whole hunk if it has at most `most_tokens`, or else even pieces of about `target_tokens`."""
    if len(hunk.section) > LONGEST_SECTION:
        hunk = replace(hunk, section=hunk.section[:LONGEST_SECTION])
    tokens = hunk_tokens(hunk)
    if tokens <= most_tokens:
        return (Piece(hunk, 0, tokens),)
    return tuple(_Cutter(hunk, target_tokens).pieces())


class _Cutter:
    """Cut one hunk. `_weights` are the tokens before each row as a prompt shows it, and those of all rows."""

    def __init__(self, hunk: Hunk, target_tokens: int) -> None:
        self._hunk_rows = HunkRows(hunk)
        self._rows = self._hunk_rows.rows
        self._signs = self._hunk_rows.signs
        self._section = hunk.section
        self._target = target_tokens
        shown = (row.removesuffix(b"\n")[:MAX_LINE_BYTES] + b"\n" for row in self._rows)
        self._weights = list(accumulate(map(_weight, shown), initial=0.0))

    def pieces(self) -> Iterator[Piece]:
        """Yield the pieces in order. Each repeats the last rows of the piece before it if those are short."""
        section = self._section
        previous = 0
        start = 0
        while start < len(self._rows):
            end = self._end_of_piece(start)
            begin = self._begin_with_repeated_rows(start, previous)
            section = self._hunk_rows.section_in(previous, begin) or section
            piece = self._hunk_rows.part(begin, end, section)
            yield Piece(piece, start - begin, hunk_tokens(piece))
            previous = start
            start = end

    def _begin_with_repeated_rows(self, start: int, previous: int) -> int:
        """Return where a piece begins that repeats rows before `start`, but none before `previous`."""
        begin = max(previous, start - _REPEATED_ROWS)
        repeated = self._weights[start] - self._weights[begin]
        if repeated > self._target * _MOST_REPEATED_SHARE or self._signs[begin] == _NO_NEWLINE:
            return start
        return begin

    def _end_of_piece(self, start: int) -> int:
        """Return the end of the piece that begins at `start`: the last good place in the second half of its share.

        The share is an even part of the remaining rows. Without a good place the piece ends with its share.
        """
        left = self._weights[-1] - self._weights[start]
        if left <= self._target or start + 1 == len(self._rows):
            return len(self._rows)
        share = left / ceil(left / self._target)
        end = self._row_at(start, share)
        for row in range(end, self._row_at(start, share / 2) - 1, -1):
            if self._is_good_place(row):
                return row
        if self._signs[end] == _NO_NEWLINE:
            return end + 1
        return end

    def _row_at(self, start: int, tokens: float) -> int:
        """Return the row before which the rows from `start` have this many tokens, at least the second one."""
        row = bisect_right(self._weights, self._weights[start] + tokens) - 1
        return max(row, start + 1)

    def _is_good_place(self, row: int) -> bool:
        """Return whether a cut before a row is after a blank row or between two changes."""
        before = self._signs[row - 1]
        after = self._signs[row]
        # Deleted rows belong to the added rows that replace them.
        if after == _NO_NEWLINE or (before, after) == (b"-", b"+"):
            return False
        follows_blank = not self._rows[row - 1][1:].strip()
        return follows_blank or before != after


def plan_units(
    files: Sequence[FileChange],
    *,
    effort: Effort,
    experts: Sequence[Expert],
    passes: int = 1,
    apart: bool = False,
    own_tokens: int = 0,
) -> tuple[Unit, ...]:
    """Return the units in the order in which agents are asked, pass by pass.

    With `apart` off, a unit has the experts whose paths match one of its files, or all experts if none matches. With
    `apart` on, each expert has units of its own, with the files that its paths match, and the experts that are `joined`
    have theirs together. Files that no expert matches go to further units under all experts. `own_tokens` is what the
    agent adds to each call. Raise ConfigError for a path pattern that makes no sense.
    """
    planner = _Planner(files, effort.unit_tokens(own_tokens), experts)
    given: Counter[str] = Counter()
    units: list[Unit] = []
    for unit in planner.units(passes=passes, apart=apart):
        name = unit.name
        while given[name]:
            given[unit.name] += 1
            name = f"{unit.name} ({given[unit.name]})"
        given[name] += 1
        units.append(replace(unit, name=name))
    return tuple(units)


class _Group(NamedTuple):
    """Files that are packed together for some experts, all by index, and a label for the names of their units."""

    files: tuple[int, ...]
    experts: frozenset[int]
    label: str


class _Planner:
    """Plan one change. Files and experts are known by their index."""

    def __init__(self, files: Sequence[FileChange], target: int, experts: Sequence[Expert]) -> None:
        self._files = tuple(file for file in files if not file.is_bare)
        self._target = target
        self._most_tokens = int(target * MOST_FILL)
        self._pieces = [self._pieces_of(file) for file in self._files]
        self._headers = [_FILE_HEADER_TOKENS + tokens_of(file.path) for file in self._files]
        self._experts = _first_of_each_name(experts)
        self._everyone = frozenset(range(len(self._experts)))
        globs = [globs_of(expert) for expert in self._experts]
        self._matching: list[frozenset[int]] = []
        for file in self._files:
            matching = [index for index, patterns in enumerate(globs) if patterns.unwanted(file.path) is None]
            self._matching.append(frozenset(matching))

    def _pieces_of(self, file: FileChange) -> list[Piece]:
        pieces: list[Piece] = []
        for hunk in file.hunks:
            if hunk.body:
                pieces += cut_hunk(hunk, target_tokens=self._target, most_tokens=self._most_tokens)
        return pieces

    def units(self, *, passes: int, apart: bool) -> Iterator[Unit]:
        """Yield the units of all passes. Their names may not be unique."""
        if apart and len(self._experts) > 1:
            groups = self._groups_apart()
        else:
            groups = [_Group(tuple(range(len(self._files))), self._everyone, "")]
        for pass_number in range(1, passes + 1):
            packed: dict[tuple[int, ...], list[list[PlacedPiece]]] = {}
            for group in groups:
                if group.files not in packed:
                    packed[group.files] = self._packed(group.files, pass_number)
                units = [self._unit(placed, group, pass_number) for placed in packed[group.files]]
                if pass_number > 1:
                    units.sort(key=lambda unit: shuffle_key(unit.name, unit.pass_number))
                yield from units

    def _groups_apart(self) -> list[_Group]:
        """Return a group for each expert, one for the joined experts, and one for files that no expert matches."""
        together: defaultdict[str, list[int]] = defaultdict(list)
        for index, expert in enumerate(self._experts):
            if expert.joined:
                together["default"].append(index)
            else:
                together[expert.name].append(index)
        groups: list[_Group] = []
        for name, indices in together.items():
            experts = frozenset(indices)
            chosen = tuple(file for file, matching in enumerate(self._matching) if matching & experts)
            groups.append(_Group(chosen, experts, f" [{name}]"))
        unmatched = tuple(file for file, matching in enumerate(self._matching) if not matching)
        all_names = ", ".join(expert.name for expert in self._experts)
        groups.append(_Group(unmatched, self._everyone, f" [{all_names}]"))
        return groups

    def _packed(self, files: Sequence[int], pass_number: int) -> list[list[PlacedPiece]]:
        """Return the pieces of each unit, in order."""
        paths = [self._files[file].path for file in files]
        pieces: list[PlacedPiece] = []
        for block, members in enumerate(related_blocks(paths, pass_number=pass_number)):
            for member in members:
                file = files[member]
                for piece in self._pieces[file]:
                    groups = (block, file, piece.hunk.section, len(pieces))
                    pieces.append(PlacedPiece(piece, file, self._headers[file], groups))
        return pack(pieces, self._most_tokens)

    def _unit(self, placed: Sequence[PlacedPiece], group: _Group, pass_number: int) -> Unit:
        parts = self._parts(placed)
        name = self._name(parts, pieces_in_file=len(self._pieces[placed[0].file]))
        name += group.label
        if pass_number > 1:
            name += f" (pass {pass_number})"
        matching: set[int] = set()
        for one in placed:
            matching |= self._matching[one.file] & group.experts
        return Unit(
            name=name,
            parts=parts,
            experts=tuple(self._experts[index] for index in sorted(matching or group.experts)),
            tokens=_tokens_with_headers(placed),
            pass_number=pass_number,
        )

    def _parts(self, placed: Sequence[PlacedPiece]) -> tuple[UnitPart, ...]:
        """Return one part for each file. A piece that repeats rows of another one begins a part of its own."""
        runs: list[tuple[int, list[Piece]]] = []
        for one in placed:
            if not runs or one.file != runs[-1][0] or one.piece.repeated_rows:
                runs.append((one.file, []))
            runs[-1][1].append(one.piece)
        parts: list[UnitPart] = []
        for file, pieces in runs:
            hunks = tuple(piece.hunk for piece in pieces)
            parts.append(UnitPart(self._files[file], hunks, pieces[0].repeated_rows))
        return tuple(parts)

    def _name(self, parts: Sequence[UnitPart], *, pieces_in_file: int) -> str:
        """Return the path of the first file, its lines if not all of its pieces are there, and the number of others."""
        name = parts[0].file.path
        hunks = parts[0].hunks
        if len(hunks) < pieces_in_file:
            name += f":{_line_range(hunks)}"
        others = len({id(part.file) for part in parts}) - 1
        if others == 1:
            name += " and 1 more file"
        elif others:
            name += f" and {others} more files"
        return name


def _first_of_each_name(experts: Sequence[Expert]) -> tuple[Expert, ...]:
    """Return the experts without those whose name an earlier expert has."""
    by_name: dict[str, Expert] = {}
    for expert in experts:
        by_name.setdefault(expert.name, expert)
    return tuple(by_name.values())


def _line_range(hunks: Sequence[Hunk]) -> str:
    """Return the lines of the new file, or of the old file if all changed lines are deleted."""
    first = hunks[0]
    last = hunks[-1]
    if any(hunk.new_lines for hunk in hunks):
        return f"{first.new_start}-{last.new_start + max(last.new_lines - 1, 0)}"
    return f"{first.old_start}-{last.old_start + last.old_lines - 1}"
