"""Generated findings: what keeps a fingerprint, and what is joined, does not depend on order, and is never lost."""

import string
from dataclasses import dataclass
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from codeloupe.engine.anchor import Anchorer
from codeloupe.engine.code_text import fold
from codeloupe.engine.identity import with_fingerprints
from codeloupe.engine.merge import merge_findings
from codeloupe.engine.similarity import Profile, are_nearly_identical, likeness
from codeloupe.model.finding import Finding, Severity
from tests.unit.engine.anchor_material import ORIGIN, changed_file, claim
from tests.unit.engine.merge_material import labelled_pairs

_NAMES = st.text(string.ascii_lowercase, min_size=4, max_size=7)
_STATEMENTS = st.builds("{} = {}({}, 1)".format, _NAMES, _NAMES, _NAMES)
_COMMENTS = st.builds("# {} {}".format, _NAMES, _NAMES)
_TEXT = st.text(max_size=40)
_BEHAVIOUR = st.sampled_from(["correctness", "bug", "Logic", "reliability", "concurrency", "error handling", ""])


def function(name: str, statements: list[str]) -> list[str]:
    """A function with some statements, the last of them within a condition."""
    *first, last = statements
    return [f"def {name}(self):", *(f"    {line}" for line in first), "    if ready:", f"        {last}", ""]


_FUNCTION = st.builds(function, _NAMES, st.lists(_STATEMENTS, min_size=1, max_size=5))
_FUNCTIONS = st.lists(_FUNCTION, min_size=1, max_size=4, unique_by=lambda lines: lines[0])


@dataclass(frozen=True)
class Program:
    """The lines of a program, and the number of the statement that is reviewed."""

    lines: tuple[str, ...]
    number: int

    @property
    def quote(self) -> str:
        return self.lines[self.number - 1]

    @property
    def content(self) -> bytes:
        return "\n".join(self.lines).encode()


@st.composite
def programs(draw: st.DrawFn) -> Program:
    lines = tuple(line for part in draw(_FUNCTIONS) for line in part)
    statements = [at for at, line in enumerate(lines, start=1) if "(" in line and "=" in line]
    return Program(lines, draw(st.sampled_from(statements)))


def reviewed(program: Program, *, file: str = "a.py", category: str = "bug", title: str = "wrong") -> Finding:
    """The finding of the program's statement, placed by its quote."""
    change = changed_file(file, None, program.content)
    claimed = replace(claim(program.quote, file=file, line=program.number, title=title), category=category)
    found = Anchorer([change], {file: program.content}.get).place(claimed, ORIGIN)
    assert (found.anchored, found.line_start) == (True, program.number)
    return found


def fingerprint(program: Program, *others: Finding, file: str = "a.py", **words: str) -> str:
    """The fingerprint of the statement's finding in a review with some other findings."""
    found = reviewed(program, file=file, **words)
    named = with_fingerprints([*others, found], context={file: program.content}.get)
    return next(one.fingerprint for one in named if replace(one, fingerprint="", surroundings="") == found)


@given(program=programs(), data=st.data())
def test_lines_put_in_anywhere_keep_it(program: Program, data: st.DataObject) -> None:
    lines, number = list(program.lines), program.number
    for line in data.draw(st.lists(_STATEMENTS | _COMMENTS | st.just(""), max_size=5)):
        at = data.draw(st.integers(0, len(lines)))
        if fold(line) in {fold(known) for known in lines}:
            continue
        # An edit keeps the indentation of its place, as a program would not run otherwise.
        below = next((known for known in lines[at:] if known and not known.startswith("#")), "")
        indent = " " * (len(below) - len(below.lstrip())) if not line.startswith("#") else ""
        lines.insert(at, indent + line if line else "")
        number += at < number
    assert fingerprint(Program(tuple(lines), number)) == fingerprint(program)


@given(
    program=programs(),
    indent=st.sampled_from(["\t", "  ", "      "]),
    spaces=st.sampled_from(["", "  "]),
    end=st.sampled_from(["", " ", "\r"]),
    file=_NAMES.map("lib/{}.py".format),
)
def test_other_white_space_and_a_new_name_of_the_file_keep_it(
    program: Program, indent: str, spaces: str, end: str, file: str
) -> None:
    reformatted = (line.replace("    ", indent).replace(" = ", f"{spaces}={spaces}") + end for line in program.lines)
    assert fingerprint(Program(tuple(reformatted), program.number), file=file) == fingerprint(program)


@given(program=programs(), category=_BEHAVIOUR, title=st.sampled_from(["Division by zero", "May divide by zero here"]))
def test_other_words_for_the_same_keep_it(program: Program, category: str, title: str) -> None:
    same = fingerprint(program, title="A count of zero is a zero divisor")
    assert fingerprint(program, title=title, category=category) == same


@given(program=programs(), others=st.lists(st.tuples(programs(), st.sampled_from(["b.py", "Z.py"])), max_size=3))
def test_findings_elsewhere_keep_it(program: Program, others: list[tuple[Program, str]]) -> None:
    elsewhere = [reviewed(other, file=file) for other, file in others if fold(other.quote) != fold(program.quote)]
    assert fingerprint(program, *elsewhere) == fingerprint(program)


@given(program=programs(), titles=st.lists(_TEXT, min_size=2, max_size=4, unique=True))
def test_several_defects_on_one_line_keep_as_many(program: Program, titles: list[str]) -> None:
    findings = [reviewed(program, title=title) for title in titles]
    named = with_fingerprints(findings, context={"a.py": program.content}.get)
    assert len({one.fingerprint for one in named}) == len(titles)
    assert named == with_fingerprints(reversed(findings), context={"a.py": program.content}.get)


@given(program=programs(), rule=st.sampled_from([None, "S608"]), known=st.booleans())
def test_a_defect_that_is_pasted_twice_keeps_two(program: Program, rule: str | None, known: bool) -> None:
    lines = list(program.lines)
    lines.insert(program.number, program.quote)
    pasted = "\n".join(lines).encode()
    first = replace(reviewed(program), rule=rule)
    second = replace(first, line_start=program.number + 1, line_end=program.number + 1)
    context = {"a.py": pasted}.get if known else None
    named = with_fingerprints([second, first], context=context)
    assert named[0].fingerprint != named[1].fingerprint
    assert named[:1] == with_fingerprints([first], context=context)


_SEEN = st.sampled_from([seen for pair in labelled_pairs() for seen in (pair.one, pair.other)])
_CODES = st.sampled_from(["handle = open(path)", "user = find(name).mail\nsend(user)", "x = 1"])


@st.composite
def reviews(draw: st.DrawFn) -> list[Finding]:
    """Findings of different looks, crowded on few lines, so that much could be joined."""
    made = []
    for number, comment in enumerate(draw(st.lists(_SEEN, min_size=1, max_size=9))):
        line = draw(st.integers(1, 6))
        made.append(
            replace(
                comment,
                file=draw(st.sampled_from(["a.py", "a.py", "b.py"])),
                evidence=draw(_CODES),
                line_start=line,
                line_end=line + draw(st.integers(0, 2)),
                severity=draw(st.sampled_from(Severity)),
                anchored=draw(st.sampled_from([True, True, True, False])),
                seen_by=(f"look {number}",),
            )
        )
    return made


@given(review=reviews(), data=st.data())
def test_whatever_the_order_of_arrival_each_look_is_counted_in_exactly_one_finding(
    review: list[Finding], data: st.DataObject
) -> None:
    merged = merge_findings(review)
    assert merge_findings(data.draw(st.permutations(review))) == merged
    looks = [look for item in merged for look in item.seen_by]
    assert sorted(looks) == sorted(finding.seen_by[0] for finding in review)
    assert all(item.agreement == len(item.seen_by) for item in merged)


@given(review=reviews())
def test_all_that_is_joined_is_pairwise_the_same(review: list[Finding]) -> None:
    by_look = {finding.seen_by[0]: finding for finding in review}
    for item in merge_findings(review):
        members = [by_look[look] for look in item.seen_by]
        for one, other in combinations(members, 2):
            assert one.file == other.file
            told = (one.title, one.body, one.evidence, one.line_start, one.line_end)
            alike = likeness(Profile(one), Profile(other)) >= 0.5
            assert alike or told == (other.title, other.body, other.evidence, other.line_start, other.line_end)


@given(review=reviews())
def test_a_look_keeps_its_findings_apart(review: list[Finding]) -> None:
    same_look = [replace(finding, seen_by=("the only one",)) for finding in review]
    merged = merge_findings(same_look)
    assert all(item.agreement == 1 for item in merged)
    profiles = [Profile(finding) for finding in same_look]
    if not any(are_nearly_identical(one, other) for one, other in combinations(profiles, 2)):
        assert len(merged) == len(same_look)


_ANYTHING = st.builds(
    Finding,
    **dict.fromkeys(("category", "title", "body"), _TEXT),
    **dict.fromkeys(("rule", "suggestion"), st.none() | st.text(max_size=3)),
    file=st.sampled_from(["a.py", "b\udcff"]),
    line_start=st.integers(-3, 40),
    line_end=st.integers(-3, 10**12),
    severity=st.sampled_from(Severity),
    evidence=st.text(max_size=60) | st.just("\ud800"),
    reviewer=st.text(max_size=3),
    confidence=st.none() | st.floats(),
    anchored=st.booleans(),
    agreement=st.integers(1, 3),
    seen_by=st.lists(st.sampled_from("xyz"), max_size=2).map(tuple),
)


@given(findings=st.lists(_ANYTHING, max_size=8), content=st.none() | st.binary(max_size=200))
def test_whatever_is_found_gets_a_name_of_its_own_and_can_be_merged(
    findings: list[Finding], content: bytes | None
) -> None:
    named = with_fingerprints(findings, context=lambda _: content)
    assert len({one.fingerprint for one in named}) == len(findings)
    assert sorted(one.title for one in named) == sorted(one.title for one in findings)
    merged = merge_findings(findings)
    assert bool(merged) == bool(findings)
    assert {finding.file for finding in merged} == {finding.file for finding in findings}
