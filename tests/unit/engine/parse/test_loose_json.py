from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import pytest

import codeloupe.engine.parse
from codeloupe.system import json_text
from codeloupe.system.json_text import MAX_CHARACTERS, CutList, CutText, JsonValue, flaw_of, scan_json
from tests.rows import each


def test_every_pattern_of_the_room_that_is_compiled_late_can_be_compiled() -> None:
    modules = [module.name for module in pkgutil.iter_modules(codeloupe.engine.parse.__path__)]
    rooms = [json_text, *(importlib.import_module(f"codeloupe.engine.parse.{name}") for name in modules)]
    values = [value for room in rooms for value in vars(room).values()]
    patterns = [each for value in values for each in (value.values() if isinstance(value, dict) else [value])]
    late = [pattern for pattern in patterns if isinstance(pattern, json_text.LatePattern)]
    assert len(late) > 30
    assert all(pattern.groups >= 0 for pattern in late)


def only_value(text: str) -> JsonValue:
    (found,) = scan_json(text).values
    return found


@each(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ("[]", []),
        ('So: {"a": [1, {"b": null}]} it is.', {"a": [1, {"b": None}]}),
        ('```json\n{"a": "```\\n"}\n```', {"a": "```\n"}),
        ('\ufeff{"a": "\\ud83d\\ude00"}', {"a": "😀"}),
        ('{"a": "\\ud83d"}', {"a": "\ud83d"}),
        ('{"a": "\\u0000"}', {"a": "\0"}),
    ],
)
def test_strict_json_is_read_as_it_is(text: str, value: object) -> None:
    found = only_value(text)
    assert (found.value, found.repaired, found.truncated) == (value, False, False)
    assert text[found.start] in "{["


@each(
    ("text", "value"),
    [
        ('{"a": [1, 2,], "b": 3,}', {"a": [1, 2], "b": 3}),
        ('{"a": 1,, "b": 2}', {"a": 1, "b": 2}),
        ('{"a": 1 "b": 2}', {"a": 1, "b": 2}),
        ('{"a": "x"\n "b": "y"}', {"a": "x", "b": "y"}),
        ('{// one\n"a": 1, /* two */ "b": 2, # three\n"c": 3}', {"a": 1, "b": 2, "c": 3}),
        ('{"a": "x", // it is "y", {\n"b": 2}', {"a": "x", "b": 2}),
        ("{'a': 'x', 'b': 'it\\'s'}", {"a": "x", "b": "it's"}),
        ("{'a': 'it's'}", {"a": "it's"}),
        ('{a: 1, b_c: "x", $d-e: 2}', {"a": 1, "b_c": "x", "$d-e": 2}),
        ("{'a': True, 'b': False, 'c': None, 'd': undefined}", {"a": True, "b": False, "c": None, "d": None}),
        ('{"a": NaN, "b": -Infinity, "c": 1e999}', {"a": None, "b": None, "c": None}),
        ('{"a": .5, "b": +3, "c": 1., "d": -2e3,}', {"a": 0.5, "b": 3, "c": 1.0, "d": -2000.0}),
        ('{"a": HIGH, "b": 12-15}', {"a": "HIGH", "b": "12-15"}),
        ('{"a": "one\ntwo\tthree"}', {"a": "one\ntwo\tthree"}),
        ('{"a": "C:\\dir \\d+ \\u12", "b": "\\n"}', {"a": "C:\\dir \\d+ \\u12", "b": "\n"}),
        ("{“a”: “x”, “b”: [“y”]}", {"a": "x", "b": ["y"]}),
        ('{"a": "say "x" twice", "b": 2}', {"a": 'say "x" twice', "b": 2}),
        ('{"a": "f("x") # }]", "b": 2}', {"a": 'f("x") # }]', "b": 2}),
        ('[{"a": 1} {"b": 2}, ...]', [{"a": 1}, {"b": 2}]),
        ('{"a": 1, "b" 2}', {"a": 1, "b": 2}),
        ('{"a": "\\ud83d\\ude00",}', {"a": "😀"}),
        ('{"a": 1\u00a0,}', {"a": 1}),
    ],
)
def test_broken_json_is_mended(text: str, value: object) -> None:
    found = only_value(text)
    assert (found.value, found.repaired, found.truncated) == (value, True, False)
    assert flaw_of(found.value) == ""


@each(
    ("text", "value", "flaw"),
    [
        ('{"a": 1, "a": 2}', {"a": 1}, "duplicate key: a"),
        ('{"a": 1, "a": 2,}', {"a": 1}, "duplicate key: a"),
        ('{"a": oops oops, "b": 2}', {"b": 2}, "unreadable from character 7 to 15"),
        ('{"a": 1, oops, "b": 2}', {"a": 1, "b": 2}, "unreadable from character 10 to 13"),
        ('{"a": 1, ...}', {"a": 1}, "unreadable from character 10 to 12"),
        ('{"a": "x, "b": "y"}', {"a": "x, "}, "unreadable from character 12 to 18"),
        ('{"a": "x" + y, "b": 1}', {"a": "x", "b": 1}, "unreadable from character 10 to 13"),
    ],
)
def test_what_cannot_be_read_leaves_a_flaw(text: str, value: object, flaw: str) -> None:
    found = only_value(text)
    assert (found.value, flaw_of(found.value), found.truncated) == (value, flaw, False)


def test_a_bad_item_costs_that_item() -> None:
    found = only_value('{"a": [{"x": 1}, {"x" 2}, {"x": 3, "x": 4}, and, {"x": 5}]}').value
    assert isinstance(found, dict)
    assert [(item, flaw_of(item)) for item in found["a"]] == [
        ({"x": 1}, ""),
        ({"x": 2}, ""),
        ({"x": 3}, "duplicate key: x"),
        ({}, "stray text at character 45"),
        ({"x": 5}, ""),
    ]


def test_a_text_that_ends_too_early_keeps_what_was_whole() -> None:
    found = only_value('{"a": [{"x": 1}, {"x": 2, "y": "cu')
    assert found.truncated
    assert found.value == {"a": [{"x": 1}, {"x": 2, "y": "cu"}]}
    assert isinstance(found.value, dict)
    cut = found.value["a"]
    assert isinstance(cut, CutList)
    assert isinstance(cut[1]["y"], CutText)
    assert [flaw_of(value) for value in (found.value, cut, cut[0], cut[1])] == [
        "truncated",
        "truncated",
        "",
        "truncated",
    ]


@each("text", ['{"a": 12', '{"a": tru', '{"a": -', '{"a": ', '{"a":'])
def test_a_number_or_a_word_at_the_very_end_may_be_cut_and_does_not_count(text: str) -> None:
    found = only_value(text)
    assert (found.value, found.truncated) == ({}, True)


def test_the_fence_around_a_value_ends_it() -> None:
    found, other = scan_json('```json\n{"a": [1, {"b": 2}\n```\nThen {"c": 3}.').values
    assert (found.value, found.truncated) == ({"a": [1, {"b": 2}]}, True)
    assert other.value == {"c": 3}


@each(
    ("text", "value"),
    [
        ('{"a": [{"x": 1}, {"x": 2}}', {"a": [{"x": 1}, {"x": 2}]}),
        ('{"a": [{"x": 1}, {"x": 2]}', {"a": [{"x": 1}, {"x": 2}]}),
    ],
)
def test_where_another_bracket_closes_something_is_missing(text: str, value: dict[str, Any]) -> None:
    found = only_value(text)
    assert found.value == value
    assert isinstance(found.value, dict)
    assert "truncated" in (flaw_of(found.value["a"]), flaw_of(found.value["a"][-1]))


@each(
    "text",
    [
        "",
        "no json here",
        "{",
        "}",
        "] [ }{",
        "{not json}",
        "a {b} [c] (d)",
        "{ return x; }",
        "[link](there)",
        "[x + 1, 2",
        "{# a comment #}",
        "{% block %}",
        '"{"',
        "{ 'a }",
        "f'{x!r}' ${y}",
    ],
)
def test_prose_and_code_hold_no_json(text: str) -> None:
    assert scan_json(text).values == ()


@each(
    "prose",
    [
        "An open { and an open [ here",
        "A wrong ] and } here",
        'He said "no {" and [ then',
        'x = c["a" + b] or {"a": "x" + y}',
        "code { y: 2; return\n",
        "if (x) {\n  default: go();\n```",
        "It's 6\" long, as [1] and {this} say",
    ],
)
def test_prose_before_an_answer_does_not_hide_it(prose: str) -> None:
    assert {"findings": [], "n": "x"} in [
        found.value for found in scan_json(f'{prose}\n{{"findings": [], "n": "x"}}').values
    ]


def test_strict_mended_and_cut_values_come_in_the_order_of_the_text() -> None:
    text = '[1] {a: 1} {"b": 22} {"c": [1, 2],} {"d": {"e": 1}, "f": "g'
    assert [(found.value, found.repaired, found.truncated) for found in scan_json(text).values] == [
        ([1], False, False),
        ({"a": 1}, True, False),
        ({"b": 22}, False, False),
        ({"c": [1, 2]}, True, False),
        ({"d": {"e": 1}, "f": "g"}, True, True),
    ]


def test_nesting_beyond_the_cap_ends_the_search_and_says_so() -> None:
    scan = scan_json('{"a": 1} ' + "[" * 101 + "]" * 101)
    assert [found.value for found in scan.values] == [{"a": 1}]
    assert scan.stopped == "nested more than 100 levels deep"
    assert scan_json("[" * 100 + "]" * 100).stopped == ""


def test_more_values_than_the_cap_end_the_search_and_say_so() -> None:
    scan = scan_json("[1] " * 10_002)
    assert scan.stopped == "more than 10,000 values"


@pytest.mark.no_cover
def test_more_objects_in_a_broken_value_than_the_cap_end_the_search_and_say_so() -> None:
    scan = scan_json('{"a": 1} [{,}, ' + "{}," * 200_001)
    assert [found.value for found in scan.values] == [{"a": 1}]
    assert scan.stopped == "more than 200,000 objects and lists"


@each("text", ['{"a": 1, /* "b": 2}', '{"a": 1, /* "b": /* 2}'])
def test_a_comment_without_an_end_is_none(text: str) -> None:
    found = only_value(text)
    assert isinstance(found.value, dict)
    assert found.value.get("a") == 1
    assert flaw_of(found.value)


def test_a_text_beyond_the_cap_is_read_up_to_it_and_says_so() -> None:
    scan = scan_json('{"a": 1}' + " " * MAX_CHARACTERS)
    assert [found.value for found in scan.values] == [{"a": 1}]
    assert scan.stopped == "longer than 10,485,760 characters"


def test_many_broken_values_do_not_make_sound_ones_broken() -> None:
    text = "{a: 1,} " * 60 + '{"b": 2}'
    assert scan_json(text).values[-1] == JsonValue({"b": 2}, len(text) - 8, len(text))


@each(("text", "dangling"), [("x {", "{"), ('x {"fin', '{"fin'), ('{"fin"\n', '{"fin"'), ("{} x", "")])
def test_the_beginning_of_an_object_at_the_end_of_a_text_is_told(text: str, dangling: str) -> None:
    assert scan_json(text).dangling == dangling
