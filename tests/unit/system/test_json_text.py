import json
from contextlib import suppress
from typing import Any

import pytest

from codeloupe.system.json_text import (
    MAX_CHARACTERS,
    MAX_TEXT_CHARACTERS,
    CutList,
    CutText,
    JsonValue,
    candidates,
    flaw_of,
    parsed,
    refuse_unsound,
    scan_json,
)
from tests.rows import each

VALUE = {"findings": [{"file": "a[1].py", "title": 'says "{" and \\'}], "summary": "two\nlines"}
TEXT = json.dumps(VALUE)


class TestStrictJson:
    @staticmethod
    def found(text: str) -> list[object]:
        """What can be read, in the order in which it is tried."""
        values = []
        for candidate in candidates(text):
            with suppress(ValueError):
                values.append(parsed(candidate))
        return values

    @each("text", [TEXT, f"\n  {TEXT}\n", f"```\n{json.dumps(VALUE, indent=2)}\n```", f"{'{] ' * 200}{TEXT} and a ["])
    def test_json_is_found_alone_in_prose_and_in_fences(self, text: str) -> None:
        assert VALUE in self.found(text)

    @each("text", ["", "no json here", "{", "}", "[}", '{"a": 1', '{"a": [], "b', '"unclosed', "{'a': 1}", "[1,]"])
    def test_what_is_no_json_is_not_found_and_a_part_of_it_neither(self, text: str) -> None:
        assert self.found(text) == []

    def test_the_longest_part_is_tried_first_and_a_text_beyond_a_cap_is_refused(self) -> None:
        text = f'[1] {{"a": [2, 3]}} [4, 5] {TEXT}'
        assert list(candidates(text)) == [text, TEXT, '{"a": [2, 3]}', "[4, 5]", "[1]"]
        # Work that grows with the square of this size would not end within the time limit of a test.
        assert len(self.found("[1]," * 75_000)) == 1000
        with pytest.raises(ValueError, match="4,194,305 characters, more than 4,194,304"):
            list(candidates(" " * (MAX_TEXT_CHARACTERS + 1)))
        for value, words in ((float("nan"), "not finite"), (parsed("[" * 100 + "]" * 100), "levels deep")):
            with pytest.raises(ValueError, match=words):
                refuse_unsound([value])

    @each(
        ("text", "words"),
        [
            ('{"a": 1, "a": 2}', "'a' occurs more than once in one object"),
            ('{"a": NaN}', "NaN is not a JSON number"),
            ("[1e999]", "not finite"),
            ("[" * 200 + "]" * 200, "more than 100 levels deep"),
            ("[" * 100_000 + "]" * 100_000, "more than 100 levels deep"),
            ("9" * 5000, "digits"),
            ("nothing", "no JSON that can be read"),
        ],
    )
    def test_json_is_read_strictly(self, text: str, words: str) -> None:
        with pytest.raises(ValueError, match=words):
            parsed(text)


def only_value(text: str) -> JsonValue:
    (found,) = scan_json(text).values
    return found


@each(
    ("text", "value", "repaired"),
    [
        ('{"a": 1}', {"a": 1}, False),
        ("[]", [], False),
        ('So: {"a": [1, {"b": null}]} it is.', {"a": [1, {"b": None}]}, False),
        ('```json\n{"a": "```\\n"}\n```', {"a": "```\n"}, False),
        ('\ufeff{"a": "\\ud83d\\ude00"}', {"a": "😀"}, False),
        ('{"a": "\\ud83d\\u0000"}', {"a": "\ud83d\0"}, False),
        ('{"a": [1, 2,], "b": 3,}', {"a": [1, 2], "b": 3}, True),
        ('{"a": 1,, "b": 2}', {"a": 1, "b": 2}, True),
        ('{"a": 1 "b": 2}', {"a": 1, "b": 2}, True),
        ('{"a": "x"\n "b": "y"}', {"a": "x", "b": "y"}, True),
        ('{// one\n"a": 1, /* two */ "b": 2, # three\n"c": 3}', {"a": 1, "b": 2, "c": 3}, True),
        ('{"a": "x", // it is "y", {\n"b": 2}', {"a": "x", "b": 2}, True),
        ("{'a': 'x', 'b': 'it\\'s'}", {"a": "x", "b": "it's"}, True),
        ("{'a': 'it's'}", {"a": "it's"}, True),
        ('{a: 1, b_c: "x", $d-e: 2}', {"a": 1, "b_c": "x", "$d-e": 2}, True),
        ("{'a': True, 'b': False, 'c': None, 'd': undefined}", {"a": True, "b": False, "c": None, "d": None}, True),
        ('{"a": NaN, "b": -Infinity, "c": 1e999}', {"a": None, "b": None, "c": None}, True),
        ('{"a": .5, "b": +3, "c": 1., "d": -2e3,}', {"a": 0.5, "b": 3, "c": 1.0, "d": -2000.0}, True),
        ('{"a": HIGH, "b": 12-15}', {"a": "HIGH", "b": "12-15"}, True),
        ('{"a": "one\ntwo\tthree"}', {"a": "one\ntwo\tthree"}, True),
        ('{"a": "C:\\dir \\d+ \\u12", "b": "\\n"}', {"a": "C:\\dir \\d+ \\u12", "b": "\n"}, True),
        ("{“a”: “x”, “b”: [“y”]}", {"a": "x", "b": ["y"]}, True),
        ('{"a": "say "x" twice", "b": 2}', {"a": 'say "x" twice', "b": 2}, True),
        ('{"a": "f("x") # }]", "b": 2}', {"a": 'f("x") # }]', "b": 2}, True),
        ('[{"a": 1} {"b": 2}, ...]', [{"a": 1}, {"b": 2}], True),
        ('{"a": 1, "b" 2}', {"a": 1, "b": 2}, True),
        ('{"a": "\\ud83d\\ude00",}', {"a": "😀"}, True),
        ('{"a": 1\u00a0,}', {"a": 1}, True),
    ],
)
def test_strict_json_is_read_as_it_is_and_broken_json_is_mended(text: str, value: object, repaired: bool) -> None:
    found = only_value(text)
    assert (found.value, found.repaired, found.truncated, flaw_of(found.value)) == (value, repaired, False, "")
    assert text[found.start] in "{["


@each(
    ("text", "value", "flaw"),
    [
        ('{"a": 1, "a": 2}', {"a": 1}, "duplicate key: a"),
        ('{"a": 1, "a": 2,}', {"a": 1}, "duplicate key: a"),
        ('{"a": oops oops, "b": 2}', {"b": 2}, "unreadable from character 7 to 15"),
        ('{"a": 1, oops, "b": 2}', {"a": 1, "b": 2}, "unreadable from character 10 to 13"),
        ('{"a": "x, "b": "y"}', {"a": "x, "}, "unreadable from character 12 to 18"),
        ('{"a": "x" + y, "b": 1}', {"a": "x", "b": 1}, "unreadable from character 10 to 13"),
        # A comment without an end is none.
        ('{"a": 1, /* "b": 2}', {"a": 1}, "unreadable from character 10 to 18"),
    ],
)
def test_what_cannot_be_read_leaves_a_flaw(text: str, value: object, flaw: str) -> None:
    found = only_value(text)
    assert (found.value, flaw_of(found.value), found.truncated) == (value, flaw, False)


def test_a_bad_item_costs_that_item() -> None:
    found = only_value('{"a": [{"x": 1}, {"x" 2}, {"x": 3, "x": 4}, and, {"x": 5}]}').value
    assert isinstance(found, dict)
    assert [(item, flaw_of(item)) for item in found["a"]] == [
        *[({"x": 1}, ""), ({"x": 2}, ""), ({"x": 3}, "duplicate key: x")],
        *[({}, "stray text at character 45"), ({"x": 5}, "")],
    ]


def test_a_text_that_ends_too_early_keeps_what_was_whole() -> None:
    found = only_value('{"a": [{"x": 1}, {"x": 2, "y": "cu')
    assert found.truncated
    assert found.value == {"a": [{"x": 1}, {"x": 2, "y": "cu"}]}
    assert isinstance(found.value, dict)
    cut = found.value["a"]
    assert (type(cut), type(cut[1]["y"])) == (CutList, CutText)
    flaws = [flaw_of(value) for value in (found.value, cut, cut[0], cut[1])]
    assert flaws == ["truncated", "truncated", "", "truncated"]


@each("text", ['{"a": 12', '{"a": tru', '{"a": -', '{"a": ', '{"a":'])
def test_a_number_or_a_word_at_the_very_end_may_be_cut_and_does_not_count(text: str) -> None:
    found = only_value(text)
    assert (found.value, found.truncated) == ({}, True)


@each("text", ['{"a": [{"x": 1}, {"x": 2}}', '{"a": [{"x": 1}, {"x": 2]}'])
def test_where_another_bracket_closes_something_is_missing(text: str) -> None:
    value: Any = only_value(text).value
    assert value == {"a": [{"x": 1}, {"x": 2}]}
    assert "truncated" in (flaw_of(value["a"]), flaw_of(value["a"][-1]))


@each(
    "text",
    [
        *("", "no json here", "{", "}", "] [ }{", "{not json}", "a {b} [c] (d)", "{ return x; }", "[link](there)"),
        *("[x + 1, 2", "{# a comment #}", "{% block %}", '"{"', "{ 'a }", "f'{x!r}' ${y}"),
    ],
)
def test_prose_and_code_hold_no_json(text: str) -> None:
    assert scan_json(text).values == ()


@each(
    "prose",
    [
        *("An open { and an open [ here", "A wrong ] and } here", 'He said "no {" and [ then'),
        *('x = c["a" + b] or {"a": "x" + y}', "code { y: 2; return\n", "if (x) {\n  default: go();\n```"),
        "It's 6\" long, as [1] and {this} say",
    ],
)
def test_prose_before_an_answer_does_not_hide_it(prose: str) -> None:
    found = scan_json(f'{prose}\n{{"findings": [], "n": "x"}}').values
    assert {"findings": [], "n": "x"} in [each.value for each in found]


@each(
    ("more", "stopped"),
    [
        ("[" * 101 + "]" * 101, "nested more than 100 levels deep"),
        ("[" * 100 + "]" * 100, ""),
        ("[1] " * 10_002, "more than 10,000 values"),
        (" " * MAX_CHARACTERS, "longer than 10,485,760 characters"),
        ("[{,}, " + "{}," * 200_001, "more than 200,000 objects and lists"),
    ],
)
def test_what_is_beyond_a_cap_ends_the_search_and_that_is_said(more: str, stopped: str) -> None:
    scan = scan_json('{"a": 1} ' + more)
    assert (scan.values[0].value, scan.stopped) == ({"a": 1}, stopped)


def test_many_broken_values_do_not_make_sound_ones_broken() -> None:
    text = "{a: 1,} " * 60 + '{"b": 2}'
    assert scan_json(text).values[-1] == JsonValue({"b": 2}, len(text) - 8, len(text))


@each(("text", "dangling"), [("x {", "{"), ('x {"fin', '{"fin'), ('{"fin"\n', '{"fin"'), ("{} x", "")])
def test_the_beginning_of_an_object_at_the_end_of_a_text_is_told(text: str, dangling: str) -> None:
    assert scan_json(text).dangling == dangling
