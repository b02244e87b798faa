"""Which known word is near to a misspelt one."""

import pytest

from codeloupe.system.spelling import count_slips, nearest


@pytest.mark.parametrize(
    ("word", "known", "found"),
    [
        ("mian", ["master", "main"], "main"),
        ("stagged", ["staged"], "staged"),
        ("uncomited", ["uncommitted"], "uncommitted"),
        ("Main", ["main"], "main"),
        ("since", ["include", "since-last"], None),
        ("github", ["gitlab"], None),
        ("", ["a"], None),
        ("x" * 1000, ["x" * 1001], None),
        ("v1", ["v2", "v1.0"], "v2"),
    ],
)
def test_a_near_word_has_one_slip_or_two_if_it_is_long(word: str, known: list[str], found: str | None) -> None:
    assert nearest(word, known) == found


def test_a_swap_of_neighbours_is_one_slip() -> None:
    assert count_slips("haed", "head") == 1
    assert count_slips("abc", "abc") == 0
    assert count_slips("", "abc") == 3
