from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codeloupe.system.json_text import MAX_DEPTH, MAX_TEXT_CHARACTERS, candidates, parsed, refuse_unsound
from tests.rows import each

VALUE = {"findings": [{"file": "a[1].py", "title": 'says "{" and \\'}], "summary": "two\nlines"}
TEXT = json.dumps(VALUE)


def found(text: str) -> list[object]:
    """What can be read, in the order in which it is tried."""
    values = []
    for candidate in candidates(text):
        try:
            values.append(parsed(candidate))
        except ValueError:
            continue
    return values


@each(
    "text",
    [
        TEXT,
        f"\n  {TEXT}\n",
        f"Here it is:\n{TEXT}\nI hope it helps.",
        f"```json\n{TEXT}\n```",
        f"```\n{json.dumps(VALUE, indent=2)}\n```",
        f"As [1] and {{this}} say:\n{TEXT}",
        f'He said "no {{" and then:\n{TEXT}',
        f"An open {{ here\n{TEXT}",
        f"An open [ and a wrong }} here\n{TEXT}",
        f"{TEXT}\nand an open [ after it",
        f"{'{] ' * 200}\n{TEXT}",
        f"It's 6\" long:\n{TEXT}",
    ],
)
def test_json_is_found_alone_in_prose_and_in_fences(text: str) -> None:
    assert VALUE in found(text)


def test_a_long_list_in_prose_is_found_whole() -> None:
    many = [{"line": number} for number in range(5000)]
    assert found(f"The lines: {json.dumps(many)}.")[0] == many


@each("text", ["", "no json here", "{", "}", "[}", '{"a": 1', '"unclosed', "{'a': 1}", "[1,]"])
def test_what_is_no_json_is_not_found(text: str) -> None:
    assert found(text) == []


def test_the_longest_part_is_tried_first_and_parts_do_not_overlap() -> None:
    text = f'[1] {{"a": [2, 3]}} [4, 5] {TEXT}'
    assert list(candidates(text)) == [text, TEXT, '{"a": [2, 3]}', "[4, 5]", "[1]"]


@each(
    ("text", "words"),
    [
        ('{"a": 1, "a": 2}', "'a' occurs more than once in one object"),
        ('{"a": NaN}', "NaN is not a JSON number"),
        ("[-Infinity]", "-Infinity is not a JSON number"),
        ("[1e999]", "not finite"),
        ("[" * 200 + "]" * 200, "more than 100 levels deep"),
        ("[" * 100_000 + "]" * 100_000, "more than 100 levels deep"),
        ("9" * 5000, "digits"),
        ("nothing", "no JSON that can be read"),
    ],
)
def test_json_is_read_strictly(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parsed(text)


def test_nesting_up_to_the_cap_is_read() -> None:
    deepest = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert parsed(deepest) is not None
    with pytest.raises(ValueError, match="levels deep"):
        parsed(f"[{deepest}]")


def test_a_value_from_elsewhere_is_held_to_the_same_rules() -> None:
    refuse_unsound({"a": [1, 2.5, None, "x"]})
    with pytest.raises(ValueError, match="not finite"):
        refuse_unsound({"a": [float("nan")]})


def test_a_text_beyond_the_cap_is_refused() -> None:
    with pytest.raises(ValueError, match="4,194,305 characters, more than 4,194,304"):
        list(candidates(" " * (MAX_TEXT_CHARACTERS + 1)))


@pytest.mark.no_cover
@each(
    ("piece", "count"),
    [
        (" ", 0),
        ('"', 0),
        ('\\"', 0),
        ('"\\', 0),
        ("{]", 0),
        ("```json\n", 0),
        ("[]", 1000),
        ("[1],", 1000),
        ("{}\n", 1000),
    ],
)
def test_of_very_many_values_a_thousand_are_read(piece: str, count: int) -> None:
    # Work that grows with the square of this size would not end within the time limit of a test.
    assert len(found(piece * (300_000 // len(piece)))) == count


@each("piece", ["[", '{"a":'])
def test_a_text_of_nothing_but_beginnings_is_too_deep(piece: str) -> None:
    with pytest.raises(ValueError, match="nested more than 100 levels deep"):
        found(piece * (300_000 // len(piece)))


@given(st.text(alphabet='{}[]",:\\ \n1a', max_size=200))
def test_no_text_breaks_the_search_and_every_part_is_a_part(text: str) -> None:
    for candidate in candidates(text):
        assert candidate in text


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.no_cover
@given(st.dictionaries(st.text(), JSON_VALUES, min_size=1), st.sampled_from(["", "So: ", "```json\n"]))
def test_every_object_is_found_behind_prose(value: dict[str, object], before: str) -> None:
    assert value in found(f"{before}{json.dumps(value)}\n")
