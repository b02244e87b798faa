"""Generated changes: every hunk is covered exactly once, by true hunks, in units of bounded size."""

from hypothesis import given, settings
from hypothesis import strategies as st

from codeloupe.model.change import Effort, Expert, FileChange, FileStatus, Hunk
from codeloupe.planning.units import plan_units
from tests.unit.planning.plan_samples import check_plan, expert, hunk_of

_WORDS = (
    *(b"x", b"", b"    return value", b"def work(items):", b"\xff\xfe\0", "\u4e2d\u6587".encode(), b"}", b"a\rb\r"),
    b"-- ",
)
_PATHS = ("a.py", "test_a.py", "src/a.py", "src/b.ts", "src/b.test.ts", "docs/x.md", "deep/er/a_test.go", "y\udcff\n.c")
_EXPERTS = (expert("every"), expert("python", "*.py"), expert("prose", "*.md"), expert("no_tests", "!test_*"))

_rows = st.tuples(
    st.sampled_from((b"+", b"-", b" ")), st.sampled_from(_WORDS), st.sampled_from((1, 1, 1, 2, 40, 600))
).map(lambda row: row[0] + row[1] * row[2])
_sections = st.sampled_from(("", "def one():", "class Two:", "s" * 5_000))
_MARKER = b"\\ No newline at end of file"


@st.composite
def _bodies(draw: st.DrawFn) -> bytes:
    rows = draw(st.lists(_rows, min_size=1, max_size=8)) * draw(st.sampled_from((1, 1, 1, 30)))
    if draw(st.booleans()):
        rows.append(_MARKER)
    return b"\n".join(rows) + b"\n"


@st.composite
def _hunks(draw: st.DrawFn) -> tuple[Hunk, ...]:
    hunks: list[Hunk] = []
    old = new = draw(st.integers(1, 1_000))
    for body in draw(st.lists(_bodies(), max_size=3)):
        hunks.append(hunk_of(body, old_start=old, new_start=new, section=draw(_sections)))
        old, new = old + hunks[-1].old_lines + 5, new + hunks[-1].new_lines + 5
    return tuple(hunks)


_files = st.builds(
    lambda path, hunks: FileChange(path, path, FileStatus.MODIFIED, hunks=hunks), st.sampled_from(_PATHS), _hunks()
)
_changes = st.lists(_files, max_size=5)
_some_experts = st.lists(st.sampled_from(_EXPERTS), max_size=3)


@given(
    files=_changes, effort=st.sampled_from(Effort), experts=_some_experts, passes=st.integers(1, 3), apart=st.booleans()
)
def test_every_hunk_is_in_exactly_one_unit_for_each_expert_and_pass(
    files: list[FileChange], effort: Effort, experts: list[Expert], passes: int, apart: bool
) -> None:
    units = plan_units(files, effort=effort, experts=experts, passes=passes, apart=apart)
    check_plan(files, units, experts=experts, passes=passes, apart=apart, effort=effort)
    assert units == plan_units(files, effort=effort, experts=experts, passes=passes, apart=apart)


@given(files=st.lists(_files, max_size=5, unique_by=lambda file: file.path), passes=st.integers(1, 2), data=st.data())
@settings(max_examples=25)
def test_the_order_in_which_files_come_does_not_matter(
    files: list[FileChange], passes: int, data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(files))
    assert plan_units(files, effort=Effort.HIGH, experts=(), passes=passes) == plan_units(
        shuffled, effort=Effort.HIGH, experts=(), passes=passes
    )
