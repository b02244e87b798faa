"""A change cut into units, each for one agent call. Pure, deterministic, and linear in the diff.

In each pass every hunk is in exactly one unit for each expert that applies to its file, and in at least one unit.
Related hunks are together: of a file, a function, a source and its tests, a folder. Units are well filled, since each
call pays for the instructions again. A hunk that fits is never cut; an enormous one comes in even pieces.
"""

from __future__ import annotations

import string
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import accumulate, groupby
from math import ceil
from typing import NamedTuple

from msgspec.structs import replace

from codeloupe.engine.globs import Globs
from codeloupe.engine.prompt import MAX_LINE_BYTES
from codeloupe.errors import ConfigError
from codeloupe.git.diff import _LONGEST_SECTION, _Rows
from codeloupe.model.change import Effort, Expert, FileChange, Hunk, Unit, UnitPart
from codeloupe.model.scope import check_pattern
from codeloupe.system.regex import regex

_LETTERS = string.ascii_letters.encode()
_ASCII = bytes(range(128))


def tokens_of(text: bytes | str) -> int:
    """About how many tokens a text is, without a tokenizer, which would have to be downloaded.

    The weights of bytes by their kind were fitted on source code and prose of a dozen languages, where they are mostly
    within a tenth. Random text (base64, hashes) costs up to twice of what is estimated.
    """
    return round(_weight(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text))


def _weight(data: bytes) -> float:
    others = data.translate(None, _LETTERS)
    spaces, newlines = others.count(b" "), others.count(b"\n")
    foreign = 0 if data.isascii() else len(others.translate(None, _ASCII))
    marks = len(others) - spaces - newlines - foreign - others.count(b"\t") - others.count(b"\r")
    # Of spaces only those between words count; those of an indentation come in pairs and go into one token.
    lone_spaces = spaces - 2 * data.count(b"  ")
    letters = len(data) - len(others)
    return 0.145 * letters + 0.66 * marks + 1.4 * newlines + 0.39 * lone_spaces + 0.45 * foreign


def hunk_tokens(hunk: Hunk) -> int:
    """About how many tokens a hunk is as a prompt shows it: with its header, and endless rows cut."""
    body = hunk.body
    if len(body) > MAX_LINE_BYTES:
        body = b"\n".join(row[:MAX_LINE_BYTES] for row in body.split(b"\n"))
    return 15 + tokens_of(hunk.section) + tokens_of(body)


def globs_of(expert: Expert) -> Globs:
    """Which files an expert is for, by their paths. Raises ConfigError."""
    include = tuple(pattern for pattern in expert.paths if not pattern.startswith("!"))
    exclude = tuple(pattern[1:] for pattern in expert.paths if pattern.startswith("!"))
    for problem in filter(None, map(check_pattern, (*include, *exclude))):
        what = f"expert {expert.name}: one of its paths is a pattern that makes no sense: {problem}"
        raise ConfigError(what, hint="correct `paths` of this expert")
    return Globs(include, exclude)


# Folders that say what kind of code is below them, and not what it is about.
_TEST_FOLDERS = frozenset(("test", "tests", "__tests__", "spec", "specs", "testing"))
_NEUTRAL_FOLDERS = _TEST_FOLDERS | {"src", "lib", "main", "source", "sources", "unit", "integration", "property", "e2e"}
_TEST_MARK = regex(r"^tests?_|^test-|(?:_tests?|_spec|-tests?|-spec|\.tests?|\.spec)$")
_TEST_WORD = regex(r"^(?:Test|test)(?=[A-Z])|(?<=[a-z0-9])(?:Tests?|Spec|IT)$")


def related_blocks(paths: Sequence[str], *, pass_number: int = 1) -> list[tuple[str, tuple[int, ...]]]:
    """The places of all paths in blocks, each with its folder: a source and its tests; in another order each pass."""

    def key(place: int) -> tuple[object, ...]:
        path = paths[place]
        return (_shuffle_key(path, pass_number) if pass_number > 1 else (path.rpartition("/")[0], path)), place

    owners = _owners(paths)
    tests: defaultdict[int, list[int]] = defaultdict(list)
    for test, owner in owners.items():
        tests[owner].append(test)
    blocks: list[tuple[str, tuple[int, ...]]] = []
    for place in sorted((place for place in range(len(paths)) if place not in owners), key=key):
        order = [place, *sorted(tests[place], key=lambda test: (paths[test], test))]
        blocks.append((paths[place].rpartition("/")[0], tuple(sorted(order, key=key) if pass_number > 1 else order)))
    return blocks


def _shuffle_key(text: str, pass_number: int) -> bytes:
    """A key to sort by: as good as random, different in each pass, and always the same."""
    return blake2b(f"{pass_number}\0{text}".encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _owners(paths: Sequence[str]) -> dict[int, int]:
    """Which test belongs to which source: the one with the same folders and stem, or the only one of that stem."""
    by_topic: dict[tuple[str, ...], int] = {}
    by_stem: defaultdict[str, list[int]] = defaultdict(list)
    tests: list[tuple[int, str, tuple[str, ...]]] = []
    for place, path in enumerate(paths):
        folder, _, name = path.rpartition("/")
        folders = folder.lower().split("/")
        base = name.rpartition(".")[0] or name
        stem = _TEST_MARK.sub("", base, count=1)
        stem = _TEST_WORD.sub("", base) if stem == base else stem
        about = tuple(part for part in folders if part not in _NEUTRAL_FOLDERS)
        if stem != base or not _TEST_FOLDERS.isdisjoint(folders):
            tests.append((place, stem.lower(), about))
        else:
            by_topic.setdefault((*about, stem.lower()), place)
            by_stem[stem.lower()].append(place)
    owners: dict[int, int] = {}
    for place, of_test, about in tests:
        stem = of_test
        while stem and place not in owners:
            same_stem = by_stem.get(stem, [])
            owner = by_topic.get((*about, stem), same_stem[0] if len(same_stem) == 1 else None)
            if owner is not None:
                owners[place] = owner
            # test_plan_names may be a test of plan as well.
            stem = stem.rpartition("_")[0]
    return owners


# A unit may be so much larger than asked for, rather than leave crumbs or tear things apart.
MOST_FILL = 1.3
# A little above what is asked for, since the places to end a unit are more often before than after it.
_BEST_FILL = 1.08
# What it costs to end a unit before a piece, in parts of a unit that is too small or too large, by what that piece
# shares with the one before it: nothing, the folder, the block, the file, the section.
BONDS = 0.0, 0.05, 0.2, 0.3, 0.6


def pack(weights: Sequence[tuple[int, int, float]], target_tokens: int) -> list[tuple[int, ...]]:
    """The places of the pieces of each unit, in order, each in exactly one; an earlier unit that has room gets more.

    A weight is a piece's tokens, those of its file's header, and what it costs to end a unit before it. A unit has at
    most MOST_FILL times `target_tokens`, unless it is a single piece.
    """
    units: list[tuple[list[int], int]] = []
    start = 0
    while start < len(weights):
        end, tokens = _end_of(weights, start, target_tokens)
        stretch = list(range(start, end))
        for place in range(len(units) - 1, max(-1, len(units) - 17), -1):
            others, size = units[place]
            has_crumb = min(tokens, size) < target_tokens * 0.5
            if tokens + size <= target_tokens * (MOST_FILL if has_crumb else _BEST_FILL):
                units[place] = (others + stretch, tokens + size)
                break
        else:
            units.append((stretch, tokens))
        start = end
    return [tuple(sorted(places)) for places, _ in units]


def _end_of(weights: Sequence[tuple[int, int, float]], start: int, target_tokens: int) -> tuple[int, int]:
    """After which piece the stretch that begins at `start` ends best, and its tokens."""
    tokens = sum(weights[start][:2])
    best, best_cost = (start + 1, tokens), float("inf")
    for place in range(start + 1, len(weights)):
        own, header, bond = weights[place]
        fill = tokens / target_tokens
        cost = bond + abs(fill - _BEST_FILL) if fill >= 0.6 else 2 - fill
        if cost <= best_cost:
            best, best_cost = (place, tokens), cost
        more = own + (header if bond < BONDS[3] else 0)
        if tokens + more > target_tokens * MOST_FILL:
            return best
        tokens += more
    return len(weights), tokens


_TOP_LEVEL = regex(rb"[-+ ][^\s})\]]")


class Piece(NamedTuple):
    """A hunk, or a part of one; `repeated_rows` of its body, at its beginning, are in the piece before too."""

    hunk: Hunk
    repeated_rows: int
    tokens: int


def cut_hunk(hunk: Hunk, *, target_tokens: int, most_tokens: int) -> tuple[Piece, ...]:
    """The hunk whole when it has at most `most_tokens`; else even pieces of about `target_tokens`, or of one row."""
    if len(hunk.section) > _LONGEST_SECTION:
        hunk = replace(hunk, section=hunk.section[:_LONGEST_SECTION])
    tokens = hunk_tokens(hunk)
    if tokens <= most_tokens:
        return (Piece(hunk, 0, tokens),)
    return tuple(_Cutter(hunk, target_tokens).pieces())


class _Cutter(_Rows):
    """Cuts one hunk. `weights` are the tokens before each row as a prompt shows it, and those of all."""

    def __init__(self, hunk: Hunk, target_tokens: int) -> None:
        super().__init__(hunk)
        self._section = hunk.section
        self._target = target_tokens
        shown = (row.removesuffix(b"\n")[:MAX_LINE_BYTES] + b"\n" for row in self.rows)
        self._weights = list(accumulate(map(_weight, shown), initial=0.0))

    def pieces(self) -> Iterator[Piece]:
        """The pieces in order, each with the last rows of the one before it where those are short."""
        section, previous = self._section, 0
        for start, end in self._ranges():
            begin = start
            for row in range(start - 1, max(previous, start - 5) - 1, -1):
                if self._weights[start] - self._weights[row] > self._target * 0.1:
                    break
                begin = row
            # The marker of a missing newline says nothing without its row.
            begin += begin < start and self.signs[begin] == b"\\"
            section = self.section_in(previous, begin) or section
            piece = self.part(begin, end, section)
            yield Piece(piece, start - begin, hunk_tokens(piece))
            previous = start

    def _ranges(self) -> Iterator[tuple[int, int]]:
        """The rows of even parts, each of which ends where one thing ends and another begins, if it can."""
        start, end = 0, len(self.rows)
        while start < end:
            left = self._weights[end] - self._weights[start]
            bound = end
            if left > self._target * 1.15 and start + 1 < end:
                share = left / ceil(left / self._target)
                first, ideal, last = (
                    min(max(bisect_right(self._weights, self._weights[start] + share * size) - 1, start + 1), end - 1)
                    for size in (0.8, 1.0, 1.1)
                )
                bound = min(range(first, last + 1), key=lambda row: (self._roughness(row), abs(row - ideal), row))
                bound += self.signs[bound] == b"\\"
            yield start, bound
            start = bound

    def _roughness(self, row: int) -> int:
        """How much a cut before a row tears apart."""
        before, after = self.signs[row - 1], self.signs[row]
        if after == b"\\":
            return 5
        if (before, after) == (b"-", b"+"):
            return 4
        blank = not self.rows[row - 1][1:].strip()
        if blank and _TOP_LEVEL.match(self.rows[row]):
            return 0
        if (before, after) in ((b"+", b" "), (b"-", b" "), (b"+", b"-")):
            return 1
        return 2 if blank else 3


def plan_units(
    files: Sequence[FileChange],
    *,
    effort: Effort,
    experts: Sequence[Expert],
    passes: int = 1,
    apart: bool = False,
    own_tokens: int = 0,
) -> tuple[Unit, ...]:
    """The units in the order in which they are to be asked, pass by pass.

    Joined (`apart` off), a unit has the experts whose paths match one of its files, or all of them when none does.
    Apart, each expert has units of its own, of the files that its paths match, and those that are `joined` have theirs
    together; files that no expert matches go to further units under all of them. `own_tokens` is what the agent adds
    to each call. Raises ConfigError for a path pattern that cannot be read.
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


class _Planner:
    """Plans one change."""

    def __init__(self, files: Sequence[FileChange], target: int, experts: Sequence[Expert]) -> None:
        self._files = tuple(file for file in files if not file.is_bare)
        self._target = target
        self._pieces: list[list[Piece]] = []
        for file in self._files:
            limits = {"target_tokens": target, "most_tokens": int(target * MOST_FILL)}
            self._pieces.append([piece for hunk in file.hunks if hunk.body for piece in cut_hunk(hunk, **limits)])
        # About how many tokens the line is that names a file above its hunks.
        self._headers = [6 + tokens_of(file.path) for file in self._files]
        # Of one name the first counts.
        self._experts = tuple({expert.name: expert for expert in reversed(experts)}.values())[::-1]
        globs = [globs_of(expert) for expert in self._experts]
        self._matching = [
            frozenset(number for number, one in enumerate(globs) if one.unwanted(file.path) is None)
            for file in self._files
        ]

    def units(self, *, passes: int, apart: bool) -> Iterator[Unit]:
        """The units of all passes; their names may not be unique."""
        everyone = frozenset(range(len(self._experts)))
        # Files that are packed together under some experts, both by their places, and a label for their units.
        groups = [(tuple(range(len(self._files))), everyone, "")]
        if apart and len(everyone) > 1:
            joined = frozenset(number for number in everyone if self._experts[number].joined)
            alone = [frozenset((number,)) for number in sorted(everyone - joined)]
            groups = []
            for numbers in sorted([joined, *alone], key=lambda group: min(group, default=0)):
                name = "default" if numbers == joined else self._experts[min(numbers)].name
                chosen = tuple(place for place, matching in enumerate(self._matching) if matching & numbers)
                groups.append((chosen, numbers, f" [{name}]"))
            left_over = tuple(place for place, matching in enumerate(self._matching) if not matching)
            groups.append((left_over, everyone, f" [{', '.join(expert.name for expert in self._experts)}]"))
        for pass_number in range(1, passes + 1):
            packed: dict[tuple[int, ...], list[list[tuple[int, Piece]]]] = {}
            for places, numbers, label in groups:
                if places not in packed:
                    packed[places] = self._packed(places, pass_number)
                units = [self._unit(placed, numbers, label, pass_number) for placed in packed[places]]
                if pass_number > 1:
                    units.sort(key=lambda unit: _shuffle_key(unit.name, unit.pass_number))
                yield from units

    def _packed(self, places: Sequence[int], pass_number: int) -> list[list[tuple[int, Piece]]]:
        """What goes into each unit, in order: pieces, each with the place of its file."""
        paths = [self._files[place].path for place in places]
        packed: list[tuple[int, Piece]] = []
        weights: list[tuple[int, int, float]] = []
        before: tuple[object, ...] = (None,)
        for block, (folder, members) in enumerate(related_blocks(paths, pass_number=pass_number)):
            for place in (places[member] for member in members):
                for piece in self._pieces[place]:
                    # No section is like no other.
                    now = folder, block, place, piece.hunk.section or len(packed)
                    shared = next((number for number, one in enumerate(now) if one != before[number]), len(now))
                    weights.append((piece.tokens, self._headers[place], BONDS[shared]))
                    packed.append((place, piece))
                    before = now
        return [[packed[index] for index in indices] for indices in pack(weights, self._target)]

    def _unit(self, placed: Sequence[tuple[int, Piece]], numbers: frozenset[int], label: str, pass_number: int) -> Unit:
        # One part a file; a piece that repeats rows of another begins a part of its own.
        runs: list[tuple[int, list[Piece]]] = []
        for place, piece in placed:
            if not runs or place != runs[-1][0] or piece.repeated_rows:
                runs.append((place, []))
            runs[-1][1].append(piece)
        parts = tuple(
            UnitPart(self._files[place], tuple(piece.hunk for piece in pieces), pieces[0].repeated_rows)
            for place, pieces in runs
        )
        name = parts[0].file.path
        hunks = parts[0].hunks
        # The lines are those of the new file, or of the old one where there is nothing but deleted lines.
        if len(hunks) < len(self._pieces[placed[0][0]]):
            first, last = hunks[0], hunks[-1]
            if any(hunk.new_lines for hunk in hunks):
                name += f":{first.new_start}-{last.new_start + max(last.new_lines - 1, 0)}"
            else:
                name += f":{first.old_start}-{last.old_start + last.old_lines - 1}"
        others = len({id(part.file) for part in parts}) - 1
        if others:
            name += f" and {others} more file{'s' if others > 1 else ''}"
        matching = frozenset().union(*(self._matching[place] for place, _ in placed)) & numbers
        headers = sum(self._headers[place] for place, _ in groupby(place for place, _ in placed))
        return Unit(
            name=f"{name}{label}" + (f" (pass {pass_number})" if pass_number > 1 else ""),
            parts=parts,
            experts=tuple(self._experts[number] for number in sorted(matching or numbers)),
            tokens=headers + sum(piece.tokens for _, piece in placed),
            pass_number=pass_number,
        )
