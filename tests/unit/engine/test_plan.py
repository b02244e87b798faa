from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from codeloupe.engine.plan import most_unit_tokens, plan_units
from codeloupe.errors import ConfigError
from codeloupe.model.change import FileChange, FileStatus
from codeloupe.model.unit import Effort, Unit
from tests.unit.engine.plan_samples import (
    LINE,
    added_file,
    check_plan,
    estimate_tokens,
    expert,
    hunk_of,
    modified_file,
)
from tests.unit.engine.samples import each_row

EVERY = expert("every")
PYTHON = expert("python", "*.py")
PROSE = expert("prose", "*.md", "docs/")
NOT_TESTS = expert("not_tests", "!test_*")


def plan(*files: FileChange, effort: Effort = Effort.MEDIUM) -> tuple[Unit, ...]:
    units = plan_units(files, effort=effort, experts=())
    check_plan(files, units, effort=effort)
    return units


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


class TestWhatIsCovered:
    def test_an_empty_change_has_no_units(self) -> None:
        assert plan() == ()

    def test_files_without_hunks_give_no_unit(self) -> None:
        renamed = FileChange("a.py", "b.py", FileStatus.RENAMED, similarity=100)
        executable = FileChange("x", "x", FileStatus.MODIFIED, old_mode="100644", new_mode="100755")
        assert plan(renamed, executable) == ()
        assert names(plan(renamed, added_file("c.py"), executable)) == ["c.py"]

    def test_a_deleted_file_is_covered_under_its_old_name(self) -> None:
        deleted = FileChange("old.py", None, FileStatus.DELETED, hunks=modified_file("x", 3).hunks)
        assert names(plan(deleted)) == ["old.py"]

    @pytest.mark.requirement("C11")
    def test_a_large_change_is_cut_and_every_hunk_is_there(self) -> None:
        def check(effort: Effort) -> None:
            files = large_change(83_000, seed=1)
            assert len(plan(*files, effort=effort)) > 3

        each_row(Effort, check)

    def test_a_path_that_stands_twice_in_a_diff_is_covered_twice(self) -> None:
        files = [added_file("a.py", 200), added_file("a.py", 210)]
        assert len(set(names(plan(*files, effort=Effort.HIGH)))) > 2


class TestSizes:
    def test_tiny_files_are_packed_together(self) -> None:
        units = plan(*(modified_file(f"src/m{number}.py", 3, 2) for number in range(6)))
        assert names(units) == ["src/m0.py and 5 more files"]

    @pytest.mark.no_cover
    def test_a_large_change_at_medium_effort_takes_few_calls(self) -> None:
        def check(seed: int) -> None:
            files = large_change(83_000, seed=seed)
            tokens = estimate_tokens(files)
            units = plan(*files)
            # Each call pays about 900 tokens of instructions again.
            assert len(units) * 900 <= 0.33 * tokens

        each_row(range(5), check)

    @pytest.mark.no_cover
    def test_units_are_well_filled(self) -> None:
        def check(effort: Effort) -> None:
            units = plan(*large_change(200_000, seed=3), effort=effort)
            fills = [unit.tokens / effort.unit_tokens for unit in units]
            assert 0.85 < sum(fills) / len(fills) < 1.2

        each_row(Effort, check)

    @pytest.mark.defect("V9")
    def test_units_are_larger_where_an_agent_adds_much_of_its_own_to_each_call(self) -> None:
        files = large_change(83_000, seed=2)
        for effort, times in ((Effort.LOW, 1.1), (Effort.MEDIUM, 2), (Effort.HIGH, 2)):
            few, many = (len(plan_units(files, effort=effort, experts=(), own_tokens=own)) for own in (2_300, 0))
            assert many > few * times, effort
        sizes = [Effort.MEDIUM.unit_tokens_beside(own) for own in (0, 500, 2_300, 5_000, 1_000_000)]
        assert sizes == [5_000, 5_000, 11_500, 15_000, 15_000]

    @pytest.mark.no_cover  # as above
    def test_more_effort_means_smaller_units(self) -> None:
        files = large_change(83_000, seed=2)
        counts = [len(plan(*files, effort=effort)) for effort in (Effort.LOW, Effort.MEDIUM, Effort.HIGH)]
        assert counts[0] * 2 < counts[1] < counts[2] / 2

    def test_a_hunk_that_fits_is_never_cut(self) -> None:
        files = [added_file(f"m{number}.py", 20 + number) for number in range(80)]
        units = plan(*files, effort=Effort.HIGH)
        assert {hunk.added for unit in units for part in unit.parts for hunk in part.hunks} == set(range(20, 100))

    def test_a_hunk_a_little_too_large_stays_whole_and_alone(self) -> None:
        large = added_file("large.py", 95)
        assert Effort.HIGH.unit_tokens < estimate_tokens([large]) < most_unit_tokens(Effort.HIGH)
        assert unit_of("large.py", plan(added_file("a.py", 60), large, effort=Effort.HIGH)).name == "large.py"

    def test_an_enormous_hunk_comes_in_pieces_that_say_what_they_repeat(self) -> None:
        units = plan(added_file("large.py", 3_000))
        assert len(units) > 5
        assert [unit.parts[0].repeated_rows for unit in units] == [0] + [5] * (len(units) - 1)
        first, second = units[0].parts[0].hunks[0], units[1].parts[0].hunks[0]
        assert second.new_start + 5 == first.new_start + first.new_lines

    def test_a_piece_that_joins_another_hunk_of_its_file_stays_a_part_of_its_own(self) -> None:
        (small,) = modified_file("a.py", 34).hunks
        body = (b"+" + LINE) * 74 + b"+\n+def second():\n" + (b"+" + LINE) * 61
        large = hunk_of(body, old_start=200, new_start=200)
        (joined, _) = plan(FileChange("a.py", "a.py", FileStatus.MODIFIED, hunks=(small, large)), effort=Effort.HIGH)
        assert [(part.file.path, part.repeated_rows) for part in joined.parts] == [("a.py", 0), ("a.py", 5)]
        assert joined.files == ("a.py",)

    def test_a_minified_file_is_one_piece_that_does_not_weigh_what_is_not_shown(self) -> None:
        units = plan(added_file("app.js", 1, b"var a;" * 100_000 + b"\n"), added_file("other.js", 3))
        assert unit_of("app.js", units).tokens < 4_000

    def test_crumbs_join_other_units(self) -> None:
        files = [added_file(f"f{number}/m.py", 230 if number % 2 else 20) for number in range(20)]
        fills = [unit.tokens / Effort.MEDIUM.unit_tokens for unit in plan(*files)]
        assert min(fills) > 0.5


class TestRelatedHunks:
    def test_a_source_and_its_test_share_a_unit(self) -> None:
        files = [added_file(f"src/m{number}.py", 40) for number in range(12)]
        files += [added_file(f"tests/test_m{number}.py", 40) for number in range(12)]
        units = plan(*files, effort=Effort.HIGH)
        for number in range(12):
            assert unit_of(f"src/m{number}.py", units) is unit_of(f"tests/test_m{number}.py", units)

    def test_a_cut_within_a_file_falls_between_functions(self) -> None:
        sections = [f"def function_{number // 3}():" for number in range(30)]
        units = plan(modified_file("a.py", *[20] * 30, sections=sections), effort=Effort.HIGH)
        assert len(units) > 5
        seen = [{hunk.section for part in unit.parts for hunk in part.hunks} for unit in units]
        assert sum(map(len, seen)) == len(set().union(*seen))

    def test_a_unit_ends_between_folders_rather_than_in_one(self) -> None:
        files = [added_file(f"folder{number}/m{part}.py", 26) for number in range(8) for part in range(3)]
        units = plan(*files, effort=Effort.HIGH)
        assert [len({path.split("/")[0] for path in unit.files}) for unit in units] == [1] * 8


class TestNames:
    def test_a_part_of_a_file_is_named_by_its_lines(self) -> None:
        units = plan(modified_file("src/a.py", 70, 70, 70), effort=Effort.HIGH)
        assert names(units) == ["src/a.py:10-81", "src/a.py:130-201", "src/a.py:250-321"]

    def test_one_more_file_is_one(self) -> None:
        assert names(plan(added_file("a.py"), added_file("b.py"))) == ["a.py and 1 more file"]

    def test_pieces_of_deleted_lines_are_named_by_the_old_ones(self) -> None:
        body = added_file("x", 200).hunks[0].body.replace(b"+", b"-")
        gone = FileChange("a.py", None, FileStatus.DELETED, hunks=(hunk_of(body),))
        assert names(plan(gone, effort=Effort.HIGH)) == ["a.py:1-67", "a.py:63-134", "a.py:130-200"]

    def test_a_name_that_is_taken_gets_a_number(self) -> None:
        same = added_file("a.py", 80)
        assert names(plan(same, replace(same), replace(same), effort=Effort.HIGH)) == ["a.py", "a.py (2)", "a.py (3)"]

    def test_expert_and_pass_are_named_where_there_are_several(self) -> None:
        units = plan_units([added_file("a.py")], effort=Effort.LOW, experts=[EVERY, PYTHON], passes=2, apart=True)
        assert names(units) == ["a.py [every]", "a.py [python]", "a.py [every] (pass 2)", "a.py [python] (pass 2)"]
        assert names(plan_units([added_file("a.py")], effort=Effort.LOW, experts=[EVERY], apart=True)) == ["a.py"]


class TestDefaultBesideOthers:
    @pytest.mark.defect("V11")
    def test_joined_experts_are_one_unit_beside_those_of_each_other_expert(self) -> None:
        joined = [replace(EVERY, joined=True), replace(PYTHON, joined=True), replace(PROSE, joined=True)]
        money = expert("money")
        units = plan_units([added_file("a.py")], effort=Effort.MEDIUM, experts=[*joined, money], apart=True)
        assert [(unit.name, [one.name for one in unit.experts]) for unit in units] == [
            ("a.py [default]", ["every", "python"]),
            ("a.py [money]", ["money"]),
        ]

    @pytest.mark.defect("V11")
    def test_a_file_that_no_joined_expert_matches_is_left_to_the_others(self) -> None:
        files = [added_file("a.py"), added_file("b.c"), added_file("c.go")]
        experts = [replace(PYTHON, joined=True), replace(PROSE, joined=True), expert("c", "*.c")]
        units = plan_units(files, effort=Effort.MEDIUM, experts=experts, apart=True)
        assert [(unit.files, len(unit.experts)) for unit in units] == [(("a.py",), 1), (("b.c",), 1), (("c.go",), 3)]


class TestJoinedChecklist:
    def test_a_unit_has_the_experts_that_match_one_of_its_files(self) -> None:
        files = [added_file("a.py"), added_file("README.md")]
        (unit,) = plan_units(files, effort=Effort.LOW, experts=[EVERY, PYTHON, PROSE, expert("go", "*.go")])
        assert unit.experts == (EVERY, PYTHON, PROSE)

    def test_units_of_other_files_have_other_experts(self) -> None:
        files = [added_file("src/a.py", 400), added_file("docs/a.md", 400)]
        units = plan_units(files, effort=Effort.MEDIUM, experts=[PYTHON, PROSE])
        assert [(unit.name, unit.experts) for unit in units] == [("docs/a.md", (PROSE,)), ("src/a.py", (PYTHON,))]

    def test_a_pattern_with_an_exclamation_mark_leaves_files_out(self) -> None:
        files = [added_file("a.py", 400), added_file("test_b.py", 400)]
        units = plan_units(files, effort=Effort.MEDIUM, experts=[EVERY, NOT_TESTS])
        assert [unit.experts for unit in units] == [(EVERY, NOT_TESTS), (EVERY,)]

    def test_where_no_expert_matches_all_of_them_look(self) -> None:
        (unit,) = plan_units([added_file("a.c")], effort=Effort.LOW, experts=[PYTHON, PROSE])
        assert unit.experts == (PYTHON, PROSE)

    def test_without_experts_the_checklist_is_empty(self) -> None:
        (unit,) = plan_units([added_file("a.c")], effort=Effort.LOW, experts=(), apart=True)
        assert unit.experts == ()

    def test_of_two_experts_with_one_name_the_first_counts(self) -> None:
        (unit,) = plan_units([added_file("a.py")], effort=Effort.LOW, experts=[PYTHON, expert("python")])
        assert unit.experts == (PYTHON,)

    def test_a_pattern_that_cannot_be_read_names_its_expert(self) -> None:
        with pytest.raises(ConfigError, match="expert odd"):
            plan_units([added_file("a.py")], effort=Effort.LOW, experts=[expert("odd", "[z-a]")])


class TestExpertsApart:
    def test_each_expert_has_units_of_the_files_that_its_paths_match(self) -> None:
        files = [added_file("a.py"), added_file("b.py"), added_file("c.md")]
        units = plan_units(files, effort=Effort.LOW, experts=[EVERY, PYTHON, PROSE], apart=True)
        check_plan(files, units, experts=[EVERY, PYTHON, PROSE], apart=True, effort=Effort.LOW)
        assert [(unit.experts, unit.files) for unit in units] == [
            ((EVERY,), ("a.py", "b.py", "c.md")),
            ((PYTHON,), ("a.py", "b.py")),
            ((PROSE,), ("c.md",)),
        ]

    def test_what_no_expert_matches_goes_to_all_of_them_together(self) -> None:
        files = [added_file("a.py"), added_file("b.c")]
        units = plan_units(files, effort=Effort.LOW, experts=[PYTHON, PROSE], apart=True)
        check_plan(files, units, experts=[PYTHON, PROSE], apart=True, effort=Effort.LOW)
        assert [(unit.name, unit.experts) for unit in units] == [
            ("a.py [python]", (PYTHON,)),
            ("b.c [python, prose]", (PYTHON, PROSE)),
        ]

    def test_a_single_expert_covers_everything(self) -> None:
        files = [added_file("a.py"), added_file("b.c")]
        (unit,) = plan_units(files, effort=Effort.LOW, experts=[PYTHON], apart=True)
        assert (unit.files, unit.experts) == (("a.py", "b.c"), (PYTHON,))


class TestPasses:
    FILES = tuple(added_file(f"src/m{number}.py", 60 + number % 5) for number in range(30))

    def test_further_passes_group_and_order_the_files_anew(self) -> None:
        units = plan_units(self.FILES, effort=Effort.MEDIUM, experts=[EVERY], passes=3)
        check_plan(self.FILES, units, experts=[EVERY], passes=3)
        groups = [
            {frozenset(unit.files) for unit in units if unit.pass_number == pass_number} for pass_number in (1, 2, 3)
        ]
        assert len(groups[0] & groups[1]) < len(groups[0]) / 2
        assert len(groups[1] & groups[2]) < len(groups[0]) / 2

    def test_files_inside_a_unit_change_their_order_too(self) -> None:
        few = self.FILES[:5]
        orders = {unit.files for unit in plan_units(few, effort=Effort.LOW, experts=(), passes=5)}
        assert len(orders) > 3

    def test_units_of_one_file_change_their_order(self) -> None:
        large = (added_file("a.py", 2_000),)
        units = plan_units(large, effort=Effort.HIGH, experts=(), passes=2)
        check_plan(large, units, passes=2, effort=Effort.HIGH)
        first, second = ([u.parts[0].hunks[0].new_start for u in units if u.pass_number == n] for n in (1, 2))
        assert first == sorted(second) != second

    def test_the_first_pass_is_the_same_however_many_follow(self) -> None:
        one = plan_units(self.FILES, effort=Effort.MEDIUM, experts=[EVERY])
        assert plan_units(self.FILES, effort=Effort.MEDIUM, experts=[EVERY], passes=3)[: len(one)] == one

    def test_a_plan_without_a_pass_is_refused(self) -> None:
        with pytest.raises(ValueError, match="at least one pass"):
            plan_units(self.FILES, effort=Effort.LOW, experts=(), passes=0)


# To go through all of it once for each part would not end within the time limit of a test.
GREAT: dict[str, Callable[[], list[FileChange]]] = {
    "one enormous hunk": lambda: [added_file("a.py", 60_000)],
    "empty rows": lambda: [added_file("a.txt", 60_000, b"\n")],
    "long paths": lambda: [added_file(f"{'d/' * 1_000}{number}.py") for number in range(500)],
}


@pytest.mark.no_cover
def test_a_great_change_is_planned_whole() -> None:
    def check(kind: str) -> None:
        files = GREAT[kind]()
        assert len(plan(*files, effort=Effort.HIGH)) > 100

    each_row(GREAT, check)
