from __future__ import annotations

import pytest

from codeloupe.engine.plan import related_blocks
from tests.unit.engine.samples import each_row


def blocks(*paths: str, pass_number: int = 1) -> list[tuple[str, ...]]:
    return [tuple(paths[place] for place in block.members) for block in related_blocks(paths, pass_number=pass_number)]


def test_a_test_stands_behind_its_source() -> None:
    def check(source: str, test: str) -> None:
        assert (source, test) in blocks(test, "src/between.py", source)

    each_row(
        [
            ("src/pkg/a.py", "tests/unit/pkg/test_a.py"),
            ("a.py", "a_test.py"),
            ("src/a.ts", "src/a.test.ts"),
            ("src/a.tsx", "src/__tests__/a.tsx"),
            ("lib/a.rb", "spec/a_spec.rb"),
            ("pkg/a.go", "pkg/a_test.go"),
            ("src/main/java/x/Order.java", "src/test/java/x/OrderTest.java"),
            ("src/Order.php", "tests/OrderTest.php"),
            ("src/plan.py", "tests/test_plan_names.py"),
            ("src/y\udcff.py", "tests/test_y\udcff.py"),
        ],
        check,
    )


def test_of_several_sources_a_test_follows_the_one_of_its_folder() -> None:
    assert ("b/index.ts", "b/index.test.ts") in blocks("a/index.ts", "b/index.test.ts", "b/index.ts")


def test_a_test_of_which_nobody_knows_the_source_stands_alone() -> None:
    assert blocks("a/x.py", "b/x.py", "tests/test_x.py") == [("a/x.py",), ("b/x.py",), ("tests/test_x.py",)]
    assert blocks("contest.py", "latest.py") == [("contest.py",), ("latest.py",)]


def test_the_files_of_a_folder_come_before_those_below_it() -> None:
    assert blocks("a/b/c.py", "a/z.py", "a/b.py", "top.py") == [("top.py",), ("a/b.py",), ("a/z.py",), ("a/b/c.py",)]


def test_a_path_that_stands_twice_is_kept_twice() -> None:
    assert blocks("a.py", "a.py", "test_a.py") == [("a.py", "test_a.py"), ("a.py",)]


def test_each_further_pass_has_another_order_and_always_the_same() -> None:
    paths = [f"folder/file{number}.py" for number in range(20)]
    orders = [blocks(*paths, pass_number=number) for number in (1, 2, 3)]
    assert orders[1] != orders[0] != orders[2] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1]) == sorted(orders[2])
    assert orders[1] == blocks(*paths, pass_number=2)


def test_a_file_more_leaves_the_others_in_the_order_of_a_pass() -> None:
    paths = [f"folder/file{number}.py" for number in range(20)]
    with_another = blocks(*paths, "folder/other.py", pass_number=2)
    with_another.remove(("folder/other.py",))
    assert with_another == blocks(*paths, pass_number=2)


def test_a_source_and_its_test_stay_together_in_every_pass() -> None:
    paths = [name for number in range(9) for name in (f"m{number}.py", f"test_m{number}.py")]
    for pass_number in (1, 2, 3):
        assert {frozenset(block) for block in blocks(*paths, pass_number=pass_number)} == {
            frozenset((f"m{number}.py", f"test_m{number}.py")) for number in range(9)
        }


def test_inside_a_block_the_order_changes_too() -> None:
    orders = {blocks("a.py", "test_a.py", pass_number=number)[0] for number in range(1, 9)}
    assert orders == {("a.py", "test_a.py"), ("test_a.py", "a.py")}


@pytest.mark.no_cover  # counting lines would take several times as long as running them
def test_very_many_files_of_one_name_are_put_in_order() -> None:
    # To look for the partner of each among all would not end within the time limit of a test.
    paths = [f"{number}/{kind}index.ts" for number in range(30_000) for kind in ("", "test_")]
    assert len(blocks(*paths)) == 30_000
