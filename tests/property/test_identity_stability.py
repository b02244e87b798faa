"""Generated programs: a finding keeps its fingerprint when code around it changes, moves or is reformatted."""

import string
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codeloupe.model.finding import Finding, FindingStatus
from codeloupe.source.code import fold
from tests.histories import Said, Step, World, agent, ruff

WORDS = "A count of zero is used as the divisor"
REWORDED = "The divisor is a count that may be zero, and is used unchecked"
_NAMES = st.text(string.ascii_lowercase, min_size=4, max_size=7)
_STATEMENTS = st.builds("{} = {}({}, 1)".format, _NAMES, _NAMES, _NAMES)
_COMMENTS = st.builds("# {} {}".format, _NAMES, _NAMES)


def function(name: str, statements: list[str]) -> list[str]:
    """Return a function with some statements, the last of them within a condition."""
    *first, last = statements
    return [f"def {name}(self):", *(f"    {line}" for line in first), "    if ready:", f"        {last}", ""]


_FUNCTION = st.builds(function, _NAMES, st.lists(_STATEMENTS, min_size=1, max_size=5))
_FUNCTIONS = st.lists(_FUNCTION, min_size=1, max_size=4, unique_by=lambda lines: lines[0])


@dataclass(frozen=True)
class Program:
    """The lines of a program, and the number of the statement that is reported."""

    lines: tuple[str, ...]
    number: int

    @property
    def quote(self) -> str:
        return self.lines[self.number - 1].strip()

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def occurrence(self) -> int:
        """Tell the how manieth of its equals the statement is."""
        return sum(line.strip() == self.quote for line in self.lines[: self.number])


@st.composite
def programs(draw: st.DrawFn) -> Program:
    lines = tuple(line for part in draw(_FUNCTIONS) for line in part)
    statements = [at for at, line in enumerate(lines, start=1) if "(" in line and "=" in line]
    return Program(lines, draw(st.sampled_from(statements)))


def reported(program: Program, words: str = WORDS, *, file: str = "a.py") -> Said:
    return agent(program.quote, words, "medium", file=file, number=program.occurrence)


def reviewed(rounds: Sequence[tuple[Program, str, tuple[Said, ...]]]) -> list[tuple[Finding, ...]]:
    """Return the findings of rounds, each with a program, the name of its file, and what is said."""
    found: list[tuple[Finding, ...]] = []
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), {})
        present: set[str] = set()
        for program, file, says in rounds:
            gone = dict.fromkeys(present - {file})
            found.append(world.review(Step(says=says, files={**gone, file: program.text})).findings)
            present = {file}
    return found


def fingerprint(program: Program, *, file: str = "a.py", words: str = WORDS) -> str:
    """Return the fingerprint in a review without earlier rounds."""
    [[found]] = reviewed([(program, file, (reported(program, words, file=file),))])
    assert found.anchored
    return found.fingerprint


def with_lines_inserted(program: Program, data: st.DataObject) -> Program:
    """Return the program with statements, comments and blank lines in other places."""
    lines = list(program.lines)
    number = program.number
    for line in data.draw(st.lists(_STATEMENTS | _COMMENTS | st.just(""), max_size=5)):
        at = data.draw(st.integers(0, len(lines)))
        if fold(line) in {fold(known) for known in lines}:
            continue
        # An edit keeps the indentation of its place, as a program would not run otherwise.
        below = next((known for known in lines[at:] if known and not known.startswith("#")), "")
        indent = ""
        if line and not line.startswith("#"):
            indent = " " * (len(below) - len(below.lstrip()))
        lines.insert(at, indent + line)
        number += at < number
    return Program(tuple(lines), number)


@given(program=programs(), data=st.data())
def test_inserted_lines_keep_the_fingerprint(program: Program, data: st.DataObject) -> None:
    edited = with_lines_inserted(program, data)
    assert fingerprint(edited) == fingerprint(program)


@given(
    program=programs(),
    indent=st.sampled_from(["\t", "  ", "      "]),
    spaces=st.sampled_from(["", "  "]),
    end=st.sampled_from(["", " ", "  # why"]),
    file=_NAMES.map("lib/{}.py".format),
)
def test_reformatting_and_a_new_name_of_the_file_keep_the_fingerprint(
    program: Program, indent: str, spaces: str, end: str, file: str
) -> None:
    lines = [line.replace("    ", indent).replace(" = ", f"{spaces}={spaces}") + end for line in program.lines]
    assert fingerprint(Program(tuple(lines), program.number), file=file) == fingerprint(program)


@given(program=programs(), words=st.sampled_from([WORDS, REWORDED]), data=st.data())
def test_in_a_later_round_other_words_and_inserted_lines_keep_the_finding(
    program: Program, words: str, data: st.DataObject
) -> None:
    edited = with_lines_inserted(program, data)
    [[first], [second]] = reviewed(
        [(program, "a.py", (reported(program),)), (edited, "a.py", (reported(edited, words),))]
    )
    assert (second.fingerprint, second.status) == (first.fingerprint, FindingStatus.OPEN)


@given(program=programs(), file=_NAMES.map("lib/{}.py".format))
def test_in_a_later_round_a_renamed_new_file_keeps_the_finding(program: Program, file: str) -> None:
    [[first], [second]] = reviewed(
        [(program, "a.py", (reported(program),)), (program, file, (reported(program, file=file),))]
    )
    assert (second.fingerprint, second.status, second.file) == (first.fingerprint, FindingStatus.OPEN, file)


@given(program=programs(), chance=st.randoms(use_true_random=False))
def test_in_a_later_round_moved_functions_keep_the_finding(program: Program, chance: object) -> None:
    starts = [index for index, line in enumerate(program.lines) if line.startswith("def ")]
    ends = [*starts[1:], len(program.lines)]
    parts = [range(start, end) for start, end in zip(starts, ends, strict=True)]
    chance.shuffle(parts)  # type: ignore[attr-defined]  # a random.Random that hypothesis controls
    order = [index for part in parts for index in part]
    moved = Program(tuple(program.lines[index] for index in order), order.index(program.number - 1) + 1)
    [[first], [second]] = reviewed([(program, "a.py", (reported(program),)), (moved, "a.py", (reported(moved),))])
    assert (second.fingerprint, second.status) == (first.fingerprint, FindingStatus.OPEN)


@given(program=programs(), rules=st.lists(st.sampled_from("abcdef"), min_size=2, max_size=4, unique=True))
def test_several_defects_on_one_line_have_as_many_fingerprints(program: Program, rules: list[str]) -> None:
    says = [ruff(program.quote, rule, file="a.py", number=program.occurrence) for rule in rules]
    [first] = reviewed([(program, "a.py", tuple(says))])
    [again] = reviewed([(program, "a.py", tuple(reversed(says)))])
    assert len({one.fingerprint for one in first}) == len(rules)
    assert first == again


@pytest.mark.parametrize("by_rule", [True, False])
@given(program=programs())
def test_a_pasted_defect_has_a_fingerprint_of_its_own(program: Program, by_rule: bool) -> None:
    lines = list(program.lines)
    lines.insert(program.number, lines[program.number - 1])
    pasted = Program(tuple(lines), program.number)
    says: list[Said] = []
    for number in (pasted.occurrence, pasted.occurrence + 1):
        if by_rule:
            says.append(ruff(pasted.quote, "S1", file="a.py", number=number))
        else:
            says.append(agent(pasted.quote, WORDS, "medium", file="a.py", number=number))
    [first, second] = reviewed([(pasted, "a.py", tuple(says)), (pasted, "a.py", tuple(says))])
    names = {one.fingerprint for one in first}
    assert len(names) == 2
    assert {one.fingerprint for one in second} == names
