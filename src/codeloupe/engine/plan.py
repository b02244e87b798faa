"""A change cut into units, each for one agent call. Pure, deterministic, and linear in the diff.

Every reviewable hunk is, in each pass, in exactly one unit for each expert that applies to its file, and in at least
one unit. Related hunks are together: those of a file, of a function, of a source and its tests, of a folder. Units
are about as large as the effort says and well filled, since each call pays for the instructions again. A hunk that
fits is never cut; an enormous one comes in pieces (see `cutting`). Files without hunks give no unit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from msgspec.structs import replace

from codeloupe.engine.cutting import Piece, cut_hunk
from codeloupe.engine.plan_experts import ExpertChoice
from codeloupe.engine.plan_names import UniqueNames, describe
from codeloupe.engine.plan_order import Block, related_blocks, shuffle_key
from codeloupe.engine.plan_packing import MOST_FILL, Bond, Weight, pack
from codeloupe.engine.tokens import header_tokens
from codeloupe.model.change import Effort, FileChange, Unit, UnitPart
from codeloupe.model.expert import Expert

# What the units of the joined experts are called beside those of others.
_JOINED = "default"


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
    together; files that no expert matches go to further units under all of them. Of experts with the same name the
    first one counts. `own_tokens` is what the agent adds to each call. Raises ConfigError for a path pattern that
    cannot be read, and ValueError when `passes` is less than 1.
    """
    if passes < 1:
        raise ValueError("a plan has at least one pass")
    return tuple(_Planner(files, effort.unit_tokens_beside(own_tokens), experts).units(passes=passes, apart=apart))


def most_unit_tokens(effort: Effort, own_tokens: int = 0) -> int:
    """What a unit has at most, unless it holds a single hunk, or a single row of one."""
    return int(effort.unit_tokens_beside(own_tokens) * MOST_FILL)


class _Placed(NamedTuple):
    """A piece of a hunk, and the place of its file in the change."""

    place: int
    piece: Piece


class _Group(NamedTuple):
    """Files, by their places, that are packed into units together under some experts, by their places.

    Each unit has those of them whose paths match one of its files, or all when none does.
    """

    places: tuple[int, ...]
    experts: frozenset[int]
    label: str = ""


class _Planner:
    """Plans one change."""

    def __init__(self, files: Sequence[FileChange], target: int, experts: Sequence[Expert]) -> None:
        self._files = tuple(file for file in files if not file.is_bare)
        self._target = target
        most = int(target * MOST_FILL)
        self._pieces = [
            [
                piece
                for hunk in file.hunks
                if hunk.body
                for piece in cut_hunk(hunk, target_tokens=self._target, most_tokens=most)
            ]
            for file in self._files
        ]
        self._headers = [header_tokens(file) for file in self._files]
        self._choice = ExpertChoice(experts)
        self._matching = [self._choice.matching(file.path) for file in self._files]

    def units(self, *, passes: int, apart: bool) -> Iterator[Unit]:
        """The units of all passes."""
        names = UniqueNames()
        groups = (
            list(self._groups_apart())
            if apart and len(self._choice.experts) > 1
            else [_Group(tuple(range(len(self._files))), frozenset(range(len(self._choice.experts))))]
        )
        for pass_number in range(1, passes + 1):
            packed: dict[tuple[int, ...], list[list[_Placed]]] = {}
            for group in groups:
                if group.places not in packed:
                    packed[group.places] = self._packed(group.places, pass_number)
                yield from (
                    replace(unit, name=names.unique(unit.name))
                    for unit in self._in_order(packed[group.places], group, pass_number)
                )

    def _groups_apart(self) -> Iterator[_Group]:
        experts = self._choice.experts
        joined = frozenset(number for number, expert in enumerate(experts) if expert.joined)
        alone = [frozenset((number,)) for number in range(len(experts)) if number not in joined]
        for numbers in sorted([joined, *alone], key=lambda group: min(group, default=0)):
            chosen = tuple(place for place, matching in enumerate(self._matching) if matching & numbers)
            name = _JOINED if numbers == joined else experts[min(numbers)].name
            yield _Group(chosen, numbers, f" [{name}]")
        left_over = tuple(place for place, matching in enumerate(self._matching) if not matching)
        yield _Group(left_over, frozenset(range(len(experts))), f" [{', '.join(expert.name for expert in experts)}]")

    def _packed(self, places: Sequence[int], pass_number: int) -> list[list[_Placed]]:
        """What goes into each unit, in order."""
        blocks = related_blocks([self._files[place].path for place in places], pass_number=pass_number)
        placed = [
            (block, _Placed(places[member], piece))
            for block in blocks
            for member in block.members
            for piece in self._pieces[places[member]]
        ]
        weights = [self._weight(before, after) for before, after in pairwise([None, *placed]) if after]
        return [[placed[index][1] for index in indices] for indices in pack(weights, self._target)]

    def _weight(self, before: tuple[Block, _Placed] | None, after: tuple[Block, _Placed]) -> Weight:
        piece = after[1].piece
        return Weight(piece.tokens, self._headers[after[1].place], _bond(before, after) if before else Bond.STRANGER)

    def _in_order(self, contents: Sequence[Sequence[_Placed]], group: _Group, pass_number: int) -> list[Unit]:
        units = [self._unit(placed, group, pass_number) for placed in contents]
        if pass_number > 1:
            units.sort(key=lambda unit: shuffle_key(unit.name, pass_number))
        return units

    def _unit(self, placed: Sequence[_Placed], group: _Group, pass_number: int) -> Unit:
        parts = tuple(self._parts(placed))
        first = placed[0].place
        whole = len(parts[0].hunks) == len(self._pieces[first])
        name = describe(parts, first_is_whole=whole) + group.label
        matching = frozenset().union(*(self._matching[one.place] for one in placed))
        headers = sum(self._headers[place] for place, _ in groupby(one.place for one in placed))
        return Unit(
            name=name if pass_number == 1 else f"{name} (pass {pass_number})",
            parts=parts,
            experts=self._choice.at(matching & group.experts or group.experts),
            tokens=headers + sum(one.piece.tokens for one in placed),
            pass_number=pass_number,
        )

    def _parts(self, placed: Sequence[_Placed]) -> Iterator[UnitPart]:
        """One part a file; a piece that repeats rows of another begins a part of its own."""
        start = 0
        for index in range(1, len(placed) + 1):
            behind = placed[index] if index < len(placed) else None
            if behind and behind.place == placed[start].place and not behind.piece.repeated_rows:
                continue
            run = placed[start:index]
            hunks = tuple(one.piece.hunk for one in run)
            yield UnitPart(self._files[run[0].place], hunks, run[0].piece.repeated_rows)
            start = index


def _bond(before: tuple[Block, _Placed], after: tuple[Block, _Placed]) -> Bond:
    (block_before, one), (block_after, other) = before, after
    if one.place == other.place:
        section = one.piece.hunk.section
        return Bond.SECTION if section and section == other.piece.hunk.section else Bond.FILE
    if block_before is block_after:
        return Bond.BLOCK
    return Bond.FOLDER if block_before.folder == block_after.folder else Bond.STRANGER
