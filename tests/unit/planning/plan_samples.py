"""Changes and experts for the tests of the plan, and what must hold for every plan."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from codeloupe.model.change import DiffLine, Effort, Expert, FileChange, FileStatus, Hunk, Unit, UnitPart
from codeloupe.planning.units import MOST_FILL, globs_of

LINE = b"    total = compute(first_value, second_value)\n"


def own_body(hunk: Hunk, repeated_rows: int) -> bytes:
    """The body of a piece without the rows that are in the piece before too."""
    return hunk.body.split(b"\n", repeated_rows)[-1]


def hunk_of(body: bytes, *, old_start: int = 1, new_start: int = 1, section: str = "") -> Hunk:
    """A hunk with the counts of its body; its starts are those of its first lines, as if both sides had some."""
    rows = body.split(b"\n")[:-1] if body.endswith(b"\n") else body.split(b"\n")
    added = sum(row[:1] == b"+" for row in rows)
    deleted = sum(row[:1] == b"-" for row in rows)
    context = sum(row[:1] in {b" ", b""} for row in rows)
    old_lines, new_lines = context + deleted, context + added
    old_start, new_start = old_start - (not old_lines), new_start - (not new_lines)
    return Hunk(old_start, old_lines, new_start, new_lines, body, section, added, deleted)


def added_file(path: str, lines: int = 1, line: bytes = LINE) -> FileChange:
    return FileChange(None, path, FileStatus.ADDED, hunks=(hunk_of((b"+" + line) * lines),))


def modified_file(path: str, *line_counts: int, sections: Sequence[str] = ()) -> FileChange:
    """A file with a hunk for each count, of so many changed lines between two of context."""
    hunks: list[Hunk] = []
    old = new = 10
    for number, count in enumerate(line_counts):
        body = b" before\n" + (b"-" + LINE) + (b"+" + LINE) * count + b" after\n"
        section = sections[number] if sections else ""
        hunks.append(hunk_of(body, old_start=old, new_start=new, section=section))
        old, new = old + 50, new + 50 + count
    return FileChange(path, path, FileStatus.MODIFIED, hunks=tuple(hunks))


def expert(name: str, *paths: str) -> Expert:
    return Expert(name=name, description=name, focus=(f"look for {name}",), paths=paths)


class Choice:
    """Which experts apply to which files, by their places; of one name the first counts."""

    def __init__(self, experts: Sequence[Expert]) -> None:
        by_name: dict[str, Expert] = {}
        for one in experts:
            by_name.setdefault(one.name, one)
        self.experts = tuple(by_name.values())

    def matching(self, path: str) -> frozenset[int]:
        return frozenset(place for place, one in enumerate(self.experts) if globs_of(one).unwanted(path) is None)

    def applying(self, path: str) -> frozenset[int]:
        return self.matching(path) or frozenset(range(len(self.experts)))


def check_plan(
    files: Sequence[FileChange],
    units: Sequence[Unit],
    *,
    experts: Sequence[Expert] = (),
    passes: int = 1,
    apart: bool = False,
    effort: Effort = Effort.MEDIUM,
) -> None:
    """Every rule of a plan: exact cover, true hunks, sizes, unique names, checklists that fit."""
    assert len({unit.name for unit in units}) == len(units)
    choice = Choice(experts)
    for pass_number in range(1, passes + 1):
        of_pass = [unit for unit in units if unit.pass_number == pass_number]
        for expert_number, one in enumerate(choice.experts) if apart and experts else [(-1, None)]:
            chosen = [unit for unit in of_pass if one is None or one in unit.experts]
            wanted = [file for file in files if one is None or expert_number in choice.applying(file.path)]
            assert _covered(chosen) == _wanted(wanted)
    assert {unit.pass_number for unit in units} <= set(range(1, passes + 1))
    lines = {id(file): {line for hunk in file.hunks for line in hunk.lines()} for file in files}
    for unit in units:
        _check_unit(unit, choice, effort, apart=apart)
        for part in unit.parts:
            _check_hunks(part, lines[id(part.file)])


def _wanted(files: Iterable[FileChange]) -> dict[int, bytes]:
    bodies = {id(file): [hunk.body for hunk in file.hunks if hunk.body] for file in files}
    return {key: b"|".join(found) for key, found in bodies.items() if found}


def _covered(units: Iterable[Unit]) -> dict[int, bytes]:
    """Of each file the bodies of its hunks, put together again from what each unit has of its own."""
    pieces: defaultdict[int, list[tuple[int, bytes, bool]]] = defaultdict(list)
    for unit in units:
        for part in unit.parts:
            for number, hunk in enumerate(part.hunks):
                body = own_body(hunk, 0 if number else part.repeated_rows)
                repeated = hunk_of(hunk.body[: len(hunk.body) - len(body)]) if len(body) < len(hunk.body) else None
                position = _position(hunk) + (repeated.old_lines + repeated.new_lines if repeated else 0)
                pieces[id(part.file)].append((position, body, position in map(_position, part.file.hunks)))
    covered = {}
    for key, found in pieces.items():
        found.sort(key=lambda piece: piece[0])
        covered[key] = b"".join(
            (b"|" if begins and place else b"") + body for place, (_, body, begins) in enumerate(found)
        )
    return covered


def _position(hunk: Hunk) -> int:
    return hunk.old_start + (not hunk.old_lines) + hunk.new_start + (not hunk.new_lines)


def _check_unit(unit: Unit, choice: Choice, effort: Effort, *, apart: bool) -> None:
    assert unit.parts
    assert all(part.hunks for part in unit.parts)
    own_rows = sum(
        own_body(hunk, 0 if number else part.repeated_rows).removesuffix(b"\n").count(b"\n") + 1
        for part in unit.parts
        for number, hunk in enumerate(part.hunks)
    )
    alone = len(unit.parts) == 1 and len(unit.parts[0].hunks) == 1
    header = 6 + 5 * len(unit.parts[0].file.path)
    most = int(effort.unit_tokens() * MOST_FILL)
    assert unit.tokens <= most or (alone and (own_rows <= 2 or unit.tokens <= most + header))
    if not apart:
        matching = frozenset().union(*(choice.matching(path) for path in unit.files))
        assert unit.experts == (tuple(choice.experts[place] for place in sorted(matching)) or choice.experts)
    assert bool(unit.experts) == bool(choice.experts)


def _check_hunks(part: UnitPart, of_file: set[DiffLine]) -> None:
    """Each hunk has the lines that its numbers say, and each line is one of the file, at its place."""
    for hunk in part.hunks:
        lines = list(hunk.lines())
        assert set(lines) <= of_file
        kinds = [line.kind for line in lines]
        assert (kinds.count("added"), kinds.count("deleted")) == (hunk.added, hunk.deleted)
        assert len(kinds) - hunk.added == hunk.old_lines
        assert len(kinds) - hunk.deleted == hunk.new_lines
