import random
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from codeloupe.errors import ConfigError
from codeloupe.model.change import Effort, Expert, FileChange, FileStatus, Hunk, Unit
from codeloupe.planning.related import related_blocks
from codeloupe.planning.units import (
    MAX_LINE_BYTES,
    MOST_FILL,
    Piece,
    PlacedPiece,
    cut_hunk,
    pack,
    plan_units,
    tokens_of,
)
from tests.rows import each
from tests.unit.planning.plan_samples import LINE, added_file, check_plan, expert, hunk_of, modified_file, own_body

EVERY = expert("every")
PYTHON = expert("python", "*.py")
PROSE = expert("prose", "*.md", "docs/")
NOT_TESTS = expert("not_tests", "!test_*")


def plan(*files: FileChange, effort: Effort = Effort.MEDIUM) -> tuple[Unit, ...]:
    units = plan_units(files, effort=effort, experts=())
    check_plan(files, units, effort=effort)
    return units


def asked(
    *files: FileChange, by: Sequence[Expert], apart: bool = False, effort: Effort = Effort.LOW
) -> list[tuple[str, tuple[Expert, ...]]]:
    """What some experts are asked about: the names of the units, and the experts of each."""
    units = plan_units(files, effort=effort, experts=by, apart=apart)
    check_plan(files, units, experts=by, apart=apart, effort=effort)
    return [(unit.name, unit.experts) for unit in units]


def names(units: Sequence[Unit]) -> list[str]:
    return [unit.name for unit in units]


def unit_of(path: str, units: Sequence[Unit]) -> Unit:
    (found,) = [unit for unit in units if path in unit.files]
    return found


def large_change(tokens: int, seed: int) -> list[FileChange]:
    """60 files, new ones and changed ones, of very different sizes."""
    random_ = random.Random(seed)
    sizes = [random_.lognormvariate(0, 1) for _ in range(60)]
    files: list[FileChange] = []
    for number, size in enumerate(sizes):
        lines = max(1, round(size / sum(sizes) * tokens / 12))
        path = f"part{number % 7}/module{number}.py"
        hunks = [min(40, lines - begin) for begin in range(0, lines, 40)]
        files.append(added_file(path, lines) if number % 3 else modified_file(path, *hunks))
    return files


def test_what_is_covered() -> None:
    # An empty change has no units.
    assert plan() == ()
    # Files without hunks give no unit.
    renamed = FileChange("a.py", "b.py", FileStatus.RENAMED, similarity=100)
    executable = FileChange("x", "x", FileStatus.MODIFIED, old_mode="100644", new_mode="100755")
    assert plan(renamed, executable) == ()
    assert names(plan(renamed, added_file("c.py"), executable)) == ["c.py"]
    # A deleted file is covered under its old name.
    deleted = FileChange("old.py", None, FileStatus.DELETED, hunks=modified_file("x", 3).hunks)
    assert names(plan(deleted)) == ["old.py"]
    # A path that is twice in a diff is covered twice.
    files = [added_file("a.py", 200), added_file("a.py", 210)]
    assert len(set(names(plan(*files, effort=Effort.HIGH)))) > 2
    # Tiny files are packed together.
    units = plan(*(modified_file(f"src/m{number}.py", 3, 2) for number in range(6)))
    assert names(units) == ["src/m0.py and 5 more files"]


@pytest.mark.requirement("C11")
@each("effort", Effort)
def test_a_large_change_is_cut_into_well_filled_units_and_every_hunk_is_there(effort: Effort) -> None:
    units = plan(*large_change(83_000, seed=1), effort=effort)
    assert len(units) > 3
    assert 0.85 < sum(unit.tokens for unit in units) / len(units) / effort.unit_tokens() < 1.2


@pytest.mark.defect("V9")
def test_units_are_larger_where_an_agent_adds_much_of_its_own_to_each_call() -> None:
    files = large_change(83_000, seed=2)
    for effort, times in ((Effort.LOW, 1.1), (Effort.MEDIUM, 2), (Effort.HIGH, 2)):
        few, many = (len(plan_units(files, effort=effort, experts=(), own_tokens=own)) for own in (2_300, 0))
        assert many > few * times, effort
    sizes = [Effort.MEDIUM.unit_tokens(own) for own in (0, 500, 2_300, 5_000, 1_000_000)]
    assert sizes == [5_000, 5_000, 11_500, 15_000, 15_000]


def test_sizes() -> None:
    # A hunk that fits is never cut.
    files = [added_file(f"m{number}.py", 20 + number) for number in range(80)]
    units = plan(*files, effort=Effort.HIGH)
    assert {hunk.added for unit in units for part in unit.parts for hunk in part.hunks} == set(range(20, 100))
    # A hunk a little too large stays whole and alone.
    large = unit_of("large.py", plan(added_file("a.py", 60), added_file("large.py", 95), effort=Effort.HIGH))
    assert large.name == "large.py"
    assert Effort.HIGH.unit_tokens() < large.tokens < Effort.HIGH.unit_tokens() * MOST_FILL
    # An enormous hunk comes in pieces that say what they repeat.
    units = plan(added_file("large.py", 3_000))
    assert len(units) > 5
    assert [unit.parts[0].repeated_rows for unit in units] == [0] + [5] * (len(units) - 1)
    first, second = units[0].parts[0].hunks[0], units[1].parts[0].hunks[0]
    assert second.new_start + 5 == first.new_start + first.new_lines
    # A piece in the same unit as the piece before it stays a part of its own.
    body = (b"+" + LINE) * 48 + b"+\n+def second():\n" + (b"+" + LINE) * 50 + b"+\n+def third():\n" + (b"+" + LINE) * 72
    three_pieces = FileChange("a.py", "a.py", FileStatus.MODIFIED, hunks=(hunk_of(body, old_start=200, new_start=200),))
    (joined, _) = plan(three_pieces, effort=Effort.HIGH)
    assert [(part.file.path, part.repeated_rows) for part in joined.parts] == [("a.py", 0), ("a.py", 5)]
    assert joined.files == ("a.py",)


def test_names() -> None:
    # A part of a file is named by its lines.
    units = plan(modified_file("src/a.py", 70, 70, 70), effort=Effort.HIGH)
    assert names(units) == ["src/a.py:10-81", "src/a.py:130-201", "src/a.py:250-321"]
    # One more file is one.
    assert names(plan(added_file("a.py"), added_file("b.py"))) == ["a.py and 1 more file"]
    # Pieces of deleted lines are named by the old ones.
    body = added_file("x", 200).hunks[0].body.replace(b"+", b"-")
    gone = FileChange("a.py", None, FileStatus.DELETED, hunks=(hunk_of(body),))
    assert names(plan(gone, effort=Effort.HIGH)) == ["a.py:1-66", "a.py:62-132", "a.py:128-200"]
    # A name that is taken gets a number.
    same = added_file("a.py", 80)
    assert names(plan(same, replace(same), replace(same), effort=Effort.HIGH)) == ["a.py", "a.py (2)", "a.py (3)"]
    # Expert and pass are named where there are several.
    units = plan_units([added_file("a.py")], effort=Effort.LOW, experts=[EVERY, PYTHON], passes=2, apart=True)
    assert names(units) == ["a.py [every]", "a.py [python]", "a.py [every] (pass 2)", "a.py [python] (pass 2)"]
    assert names(plan_units([added_file("a.py")], effort=Effort.LOW, experts=[EVERY], apart=True)) == ["a.py"]


A, B, C = added_file("a.py"), added_file("b.c"), added_file("c.go")


@pytest.mark.defect("V11")
def test_joined_experts_are_one_unit_beside_those_of_each_other_expert_and_leave_the_rest_to_them() -> None:
    every, python, prose = (replace(one, joined=True) for one in (EVERY, PYTHON, PROSE))
    money, c = expert("money"), expert("c", "*.c")
    units = plan_units([A], effort=Effort.LOW, experts=[every, python, prose, money], apart=True)
    by_name = {unit.name: unit.experts for unit in units}
    assert by_name == {"a.py [default]": (every, python), "a.py [money]": (money,)}
    units = plan_units([A, B, C], effort=Effort.MEDIUM, experts=[python, prose, c], apart=True)
    assert [(unit.files, len(unit.experts)) for unit in units] == [(("a.py",), 1), (("b.c",), 1), (("c.go",), 3)]


def test_a_unit_has_the_experts_that_match_one_of_its_files() -> None:
    (unit,) = asked(A, added_file("README.md"), by=[EVERY, PYTHON, PROSE, expert("go", "*.go")])
    assert unit[1] == (EVERY, PYTHON, PROSE)
    files = added_file("src/a.py", 400), added_file("docs/a.md", 400)
    assert asked(*files, by=[PYTHON, PROSE], effort=Effort.MEDIUM) == [("docs/a.md", (PROSE,)), ("src/a.py", (PYTHON,))]
    # A pattern with an exclamation mark leaves files out.
    files = added_file("a.py", 400), added_file("test_b.py", 400)
    both = asked(*files, by=[EVERY, NOT_TESTS], effort=Effort.MEDIUM)
    assert both == [("a.py", (EVERY, NOT_TESTS)), ("test_b.py", (EVERY,))]
    # Where no expert matches all of them look, without experts the checklist is empty, of one name the first counts.
    assert asked(B, by=[PYTHON, PROSE]) == [("b.c", (PYTHON, PROSE))]
    assert asked(B, by=(), apart=True) == [("b.c", ())]
    assert asked(A, by=[PYTHON, expert("python")]) == [("a.py", (PYTHON,))]
    with pytest.raises(ConfigError, match="expert odd"):
        asked(A, by=[expert("odd", "[z-a]")])


def test_apart_each_expert_has_units_of_the_files_that_its_paths_match() -> None:
    files = A, added_file("b.py"), added_file("c.md")
    assert asked(*files, by=[EVERY, PYTHON, PROSE], apart=True) == [
        ("a.py and 2 more files [every]", (EVERY,)),
        ("a.py and 1 more file [python]", (PYTHON,)),
        ("c.md [prose]", (PROSE,)),
    ]
    # What no expert matches goes to all of them together, and a single expert covers everything.
    both = [("a.py [python]", (PYTHON,)), ("b.c [python, prose]", (PYTHON, PROSE))]
    assert asked(A, B, by=[PYTHON, PROSE], apart=True) == both
    assert asked(A, B, by=[PYTHON], apart=True) == [("a.py and 1 more file", (PYTHON,))]


def test_passes() -> None:
    all_files = tuple(added_file(f"src/m{number}.py", 60 + number % 5) for number in range(30))
    # Further passes group and order the files anew.
    units = plan_units(all_files, effort=Effort.MEDIUM, experts=[EVERY], passes=3)
    check_plan(all_files, units, experts=[EVERY], passes=3)
    groups = [{frozenset(unit.files) for unit in units if unit.pass_number == pass_number} for pass_number in (1, 2, 3)]
    assert len(groups[0] & groups[1]) < len(groups[0]) / 2
    assert len(groups[1] & groups[2]) < len(groups[0]) / 2
    # The first pass is the same however many follow.
    one = plan_units(all_files, effort=Effort.MEDIUM, experts=[EVERY])
    assert plan_units(all_files, effort=Effort.MEDIUM, experts=[EVERY], passes=3)[: len(one)] == one


FUNCTION = b"+def work():\n" + b"+    value = compute(value)\n" * 18 + b"+\n"


def cut(hunk: Hunk, *, target: int = 200) -> tuple[Piece, ...]:
    return cut_hunk(hunk, target_tokens=target, most_tokens=round(target * 1.3))


def own_bodies(pieces: Sequence[Piece]) -> list[bytes]:
    return [own_body(piece.hunk, piece.repeated_rows) for piece in pieces]


def test_a_cut_tears_little_apart() -> None:
    # A piece begins with a few rows of the one before as they are.
    body = b"".join(b"%c    value_%d = compute()\n" % (b"+ -"[number % 3], number) for number in range(300))
    pieces = cut(hunk_of(body, old_start=7, new_start=9), target=1_000)
    assert len(pieces) > 2
    assert [piece.repeated_rows for piece in pieces] == [0] + [5] * (len(pieces) - 1)
    assert b"".join(own_bodies(pieces)) == body
    # A cut is made after a blank line if there is one in the second half of the share.
    own = own_bodies(cut(hunk_of(FUNCTION * 9), target=300))
    assert len(own) > 3
    assert all(body.startswith(b"+def work") for body in own)
    # A cut does not part old lines from those that replace them.
    for context in (b"", b" same()\n" * 3):
        change = context + (b"-" + LINE) * 3 + (b"+" + LINE) * 2
        own = own_bodies(cut(hunk_of(change * 31), target=350))
        assert len(own) > 3
        assert all(body.startswith((change, change.removeprefix(context))) for body in own)
    # Otherwise the pieces are even.
    own = own_bodies(cut(hunk_of((b"+" + LINE) * 40), target=200))
    assert [body.count(b"\n") for body in own] == [13, 13, 14]
    # The marker of a missing newline stays with its line.
    for lines in range(8, 24):
        body = (b"-" + LINE) * lines + b"\\ No newline at end of file\n" + (b"+" + LINE) * 20
        pieces = cut(hunk_of(body))
        assert b"".join(own_bodies(pieces)) == body
        assert not any(piece.hunk.body.startswith(b"\\") for piece in pieces)


def test_odd_hunks_are_cut_too() -> None:
    # A later piece names the definition that it continues.
    body = b"+class Large:\n" + b"+    value = compute(first, second)\n" * 60
    pieces = cut(hunk_of(body, section="def earlier():"))
    assert [piece.hunk.section for piece in pieces[:3]] == ["def earlier():", "class Large:", "class Large:"]
    # An endless row is never cut and weighs what is shown of it.
    body = (b"+" + LINE) * 30 + b"+" + b"var a;" * 500_000 + b"\n" + (b"+" + LINE) * 30
    pieces = cut(hunk_of(body), target=1_000)
    assert b"".join(own_bodies(pieces)) == body
    (endless,) = [piece for piece in pieces if len(piece.hunk.body) > MAX_LINE_BYTES]
    assert endless.tokens < MAX_LINE_BYTES
    # An endless section is shortened.
    (piece,) = cut(hunk_of(b"+x\n", section="f" * 1_000_000))
    assert (len(piece.hunk.section), piece.hunk.body, piece.tokens < 60) == (80, b"+x\n", True)


def blocks(*paths: str) -> list[tuple[str, ...]]:
    return [tuple(paths[place] for place in places) for places in related_blocks(paths)]


def test_related_files_are_near() -> None:
    # A test follows its source.
    pairs = """
        src/pkg/a.py tests/unit/pkg/test_a.py; a.py a_test.py; src/a.ts src/a.test.ts; src/a.tsx src/__tests__/a.tsx;
        lib/a.rb spec/a_spec.rb; pkg/a.go pkg/a_test.go; src/Order.php tests/OrderTest.php;
        src/main/java/x/Order.java src/test/java/x/OrderTest.java; src/plan.py tests/test_plan_names.py;
        src/y\udcff.py tests/test_y\udcff.py
    """
    for source, test in map(str.split, pairs.split(";")):
        assert (source, test) in blocks(test, "src/between.py", source)
    # Of several sources a test follows the one of its folder.
    assert ("b/index.ts", "b/index.test.ts") in blocks("a/index.ts", "b/index.test.ts", "b/index.ts")
    # A test of which nobody knows the source stands alone.
    assert blocks("a/x.py", "b/x.py", "tests/test_x.py") == [("a/x.py",), ("b/x.py",), ("tests/test_x.py",)]
    assert blocks("contest.py", "latest.py") == [("contest.py",), ("latest.py",)]
    # The files of a folder come before those below it.
    assert blocks("a/b/c.py", "a/z.py", "a/b.py", "top.py") == [("top.py",), ("a/b.py",), ("a/z.py",), ("a/b/c.py",)]
    # A path that stands twice is kept twice.
    assert blocks("a.py", "a.py", "test_a.py") == [("a.py", "test_a.py"), ("a.py",)]


def packed(*pieces: tuple[int, str] | int, header: int = 0) -> list[tuple[int, ...]]:
    """The tokens of the pieces of each unit of at most 1,000, by the block, file and function of each piece.

    They are the letters of a word: `abc` is function `c` of file `b` of block `a`. A number alone is another block.
    """
    placed: list[PlacedPiece] = []
    for number, given in enumerate(pieces):
        tokens, groups = given if isinstance(given, tuple) else (given, chr(number) * 3)
        piece = Piece(hunk_of(b"+x\n"), 0, tokens)
        placed.append(PlacedPiece(piece, ord(groups[1]), header, (*groups, number)))
    return [tuple(one.piece.tokens for one in unit) for unit in pack(placed, 1_000)]


def test_units_are_filled_in_order() -> None:
    # Nothing is packed into nothing.
    assert packed() == []
    # Pieces fill a unit in order.
    assert packed(400, 300, 300, 500, 400) == [(400, 300, 300), (500, 400)]
    # A piece larger than a unit is alone.
    assert packed(900, 5_000, 900) == [(900,), (5_000,), (900,)]
    # A unit ends before the first piece that does not fit, even if a later one would.
    assert packed(600, 500, 400) == [(600,), (500, 400)]
    # The header of a file counts once for consecutive pieces.
    assert packed((600, "abc"), (200, "abc"), header=200) == [(600, 200)]
    assert packed((600, "abc"), (200, "axc"), header=200) == [(600,), (200,)]


@each(
    ("kind", "whole"),
    {"source with tests": ("abc", "ade"), "file": ("abc", "abd"), "function": ("abc", "abc")}.items(),
)
def test_a_group_that_fits_into_one_unit_is_not_divided(kind: str, whole: tuple[str, str]) -> None:
    first, second = whole
    assert packed((600, "xyz"), (300, first), (300, second)) == [(600,), (300, 300)], kind
    # One that does not fit into any unit also fills the unit before it.
    assert packed((600, "xyz"), (300, first), (800, second)) == [(600, 300), (800,)], kind


def test_only_the_group_that_does_not_fit_is_divided() -> None:
    function = (300, "abf"), (300, "abf")
    assert packed((600, "abc"), *function, (300, "abd")) == [(600,), (300, 300, 300)]
    file = (300, "abc"), (300, "abd")
    assert packed((600, "axc"), *file, (300, "ayc")) == [(600,), (300, 300, 300)]


def test_tokens_are_estimated_near_what_a_tokenizer_counts() -> None:
    assert tokens_of("") == tokens_of(b"") == 0
    # Counted by hand as the vendors' tokenizers cut: words with the space before them, marks, runs of digits.
    for text, tokens in (
        ("The review of a change is complete when every file was read.", 13),
        ("    if total is None:\n        return compute(first, second)\n", 15),
        ('{"name": "a", "line": 12, "severity": "high"}\n', 19),
    ):
        assert abs(tokens_of(text) - tokens) <= 3
    # Indentation is nearly free.
    assert tokens_of("\n" + " " * 40 + "x") == tokens_of("\nx")
    # Text and its bytes weigh the same whatever is in them.
    assert tokens_of("中文 é\udcff") == tokens_of("中文 é\udcff".encode("utf-8", "surrogatepass")) > 3
