import json
import time
from typing import Any

import pytest

from codeloupe.system.json_values import (
    MAX_CHARACTERS,
    MAX_PARTS,
    FoundJson,
    exact_value,
    find_json,
    parsed,
    refuse_unsound,
)

VALUE = {"findings": [{"file": "a[1].py", "title": 'says "{" and \\'}], "summary": "two\nlines"}
TEXT = json.dumps(VALUE)
MILLION = 1_000_000


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


class TestParsed:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            (TEXT, VALUE),
            (" [1, -2.5e3, true, null]\n", [1, -2500.0, True, None]),
            ('"a"', "a"),
            (nested(100), parsed(nested(100))),
            ('{"a": "\\ud83d\\ude00"}', {"a": "😀"}),
            ('["\\ud83d", {"\\udc00": "\ud800x"}]', ["�", {"�": "�x"}]),
            ('"\\\\ud83d"', "\\ud83d"),
        ],
    )
    def test_strict_json_is_read_and_half_characters_are_replaced(self, text: str, value: object) -> None:
        found = parsed(text)
        assert found == value
        json.dumps(found, ensure_ascii=False).encode()

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("", "not JSON: Expecting value at character 0"),
            ("nothing", "not JSON: Expecting value at character 0"),
            ("[1,]", "not JSON: "),
            ("{'a': 1}", "not JSON: "),
            ('{"a": 1} {"a": 1}', "not JSON: Extra data at character 9"),
            ('["two\nlines"]', "not JSON: Invalid control character"),
            ('{"a": 1, "b": {"c": 1, "c": 2}}', "key given twice: c"),
            ('{"\\ud800": 1, "\\ud801": 2}', "key given twice: �"),
            ('{"a": NaN}', "NaN is not a JSON number"),
            ("[-Infinity]", "-Infinity is not a JSON number"),
            ("[1e999]", "a number is not finite"),
            (nested(101), "nested more than 100 levels deep"),
            (nested(100_000), "nested more than 100 levels deep"),
            ("9" * 5000, "digits"),
            (" " * (MAX_CHARACTERS + 1), "longer than 10,485,760 characters"),
        ],
        ids=lambda text: text[:20],
    )
    def test_everything_else_is_refused_with_a_reason(self, text: str, reason: str) -> None:
        with pytest.raises(ValueError, match=reason):
            parsed(text)

    def test_a_value_from_elsewhere_is_held_to_the_same_limits(self) -> None:
        refuse_unsound({"a": [1, "x", None, 1.5, {}]})
        for value, reason in ((float("nan"), "not finite"), (parsed(nested(100)), "levels deep")):
            with pytest.raises(ValueError, match=reason):
                refuse_unsound([value])


class TestExactValue:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            (TEXT, VALUE),
            (f"\n\t {TEXT} \r\n", VALUE),
            (f"\ufeff{TEXT}", VALUE),
            (f"```\n{TEXT}\n```", VALUE),
            (f"```json\n{json.dumps(VALUE, indent=2)}\n```\n", VALUE),
            (f"```json\r\n{TEXT}\r\n```\r\n", VALUE),
            (f"  ~~~ json5 \n\n{TEXT}\n\n  ~~~", VALUE),
            (f"````json\n{TEXT}\n````", VALUE),
            ('```\n{"a": "```\\n"}\n```', {"a": "```\n"}),
            ("[]", []),
            ("null", None),
            ('"yes"', "yes"),
        ],
    )
    def test_one_value_is_read_bare_or_in_one_fence(self, text: str, value: object) -> None:
        assert exact_value(text) == value

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("", "no JSON found"),
            ("No issues found.", "no JSON found"),
            ("```json\n```", "no JSON found"),
            ("{ x = 1 }", "not JSON: "),
            (f"Here it is: {TEXT}", "text around the JSON"),
            (f"{TEXT}\nDone.", "text around the JSON"),
            (f"{TEXT}{TEXT}", "text around the JSON"),
            (f"Here:\n```json\n{TEXT}\n```", "text around the JSON"),
            (f"```json\n{TEXT}\n```\n```json\n{TEXT}\n```", "text around the JSON"),
            (f"```json\n{TEXT}\n~~~", "text around the JSON"),
            (f"```json\n{TEXT}", "text around the JSON"),
            (f"````json\n{TEXT}\n```", "text around the JSON"),
            (f"```json and more\n{TEXT}\n```", "text around the JSON"),
            (f"```json\n{TEXT}\n```json", "text around the JSON"),
            (TEXT[:-5], "the JSON is cut off"),
            ('{"findings": [], "findings": [1]}', "key given twice: findings"),
            ('```\n{"a": NaN}\n```', "NaN is not a JSON number"),
            (nested(200), "nested more than 100 levels deep"),
        ],
    )
    def test_any_other_text_is_refused_with_a_reason(self, text: str, reason: str) -> None:
        with pytest.raises(ValueError, match=reason):
            exact_value(text)


def found(*values: Any, is_cut: bool = False) -> FoundJson:
    return FoundJson(values=values, is_cut=is_cut)


class TestFindJson:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("", found()),
            ("no json here", found()),
            (TEXT, found(VALUE)),
            ('So: {"a": [1, {"b": null}]} it is.', found({"a": [1, {"b": None}]})),
            ('[1] {"a": 2}\n```json\n[{}]\n```\n{"b": 3}', found([1], {"a": 2}, [{}], {"b": 3})),
            # A bracket begins a value only if JSON allows what follows it.
            ('a[ is bad, {x} and [y] too: {"a": 1}', found({"a": 1})),
            ('if (a[i] == b) { return; }\n{"a": 1}', found({"a": 1})),
            ("[nothing] [nullable] [true] [null]", found([True], [None])),
            # A bracket or quote mark in prose hides nothing that comes after it.
            ('The index is in [0, 10).\n{"a": 1}', found({"a": 1})),
            ('d["key is missing: {"a": 1}', found({"a": 1})),
            ('items[ -1 and [1, 2 and {"a": 1}', found({"a": 1})),
            ('A pipe of 6" is enough: {"a": 1}', found({"a": 1})),
            ("] } [1]", found([1])),
            # Brackets in strings do not count.
            ('{"a": "]}", "b": "\\"}"} {"c": 1}', found({"a": "]}", "b": '"}'}, {"c": 1})),
            # The parts of a value that does not parse are values of their own.
            ('[{"a": 1}, oops, {"b": 2}] {"c": 3}', found({"a": 1}, {"b": 2}, {"c": 3})),
            ('{"a": 1, "a": [2]} [3]', found([2], [3])),
            ('[{"a": NaN}, {"b": 1}]', found({"b": 1})),
            # So are the complete items before a truncation.
            ('[{"a": 1}, {"b": 2}, {"c', found({"a": 1}, {"b": 2}, is_cut=True)),
            ('{"findings": [{"a": [1, {}]}, {"b": "x [ , ', found({"a": [1, {}]}, is_cut=True)),
            ('{"findings": [{"a": 1}, {"b": 2}], "summary": "tw', found([{"a": 1}, {"b": 2}], is_cut=True)),
            ('Look: [1]\n{"findings": [{"a": 1}', found([1], {"a": 1}, is_cut=True)),
            ('{"findings": [', found(is_cut=True)),
            ("{", found(is_cut=True)),
        ],
    )
    def test_every_value_that_parses_is_found(self, text: str, expected: FoundJson) -> None:
        assert find_json(text) == expected

    def test_a_text_that_is_cut_anywhere_gives_only_items_that_were_whole(self) -> None:
        items = [{"a": 1, "b": "x]}"}, {"a": [2, {"c": "{"}]}, {"a": {}, "d": ["]"]}]
        text = json.dumps({"findings": items})
        counts = []
        for end in range(1, len(text)):
            part = find_json(text[:end])
            assert part.is_cut
            # Before its end, the list is a value of its own.
            whole = part.values[0] if part.values == (items,) else list(part.values)
            complete = [item for item in whole if item in items]
            assert complete == items[: len(complete)]
            counts.append(len(complete))
        assert counts == sorted(counts)
        assert counts[-1] == 3

    @pytest.mark.parametrize(
        "text",
        [
            *("[" * MILLION, " " * MILLION, '{"' * (MILLION // 2), '"' * MILLION, "`" * MILLION, "{}" * (MILLION // 2)),
            *('"\\' * (MILLION // 2), '{"' + '\\"' * (MILLION // 2), '{"\n' * (MILLION // 3), "[x" * (MILLION // 2)),
            *("[" + " " * MILLION, ("[" + " " * 1000 + "x") * 1000, "[-]" * (MILLION // 3), "```\n" * (MILLION // 4)),
            *(nested(MILLION // 2), "[" * (MILLION // 2) + "}" * (MILLION // 2), "[{}," + "]" * MILLION),
            *(
                "[{}," * (MILLION // 4),
                "[" + "{}," * (MILLION // 3),
                "{" + "[]" * (MILLION // 2),
                '[{"a": 1}, ' * (MILLION // 11),
            ),
            *('["' + "\ud800" * MILLION, "```" + " " * MILLION + "```"),
        ],
        ids=lambda text: repr(text[:6]),
    )
    def test_a_million_hostile_characters_take_linear_time(self, text: str) -> None:
        began = time.process_time()
        find_json(text)
        with pytest.raises(ValueError, match="."):
            exact_value(text)
        # Work that grows with the square of the size takes hours.
        assert time.process_time() - began < 10

    def test_reading_stops_at_each_limit_and_says_so(self) -> None:
        many = find_json("[1]" * (MAX_PARTS + 5))
        assert (len(many.values), many.is_cut) == (MAX_PARTS, True)
        assert find_json(f"[1] {nested(101)} [2]").values[0] == [1]
        assert find_json(f"[1] {nested(101)} [2]").values[-1] == [2]
        assert find_json("[1]" + " " * MAX_CHARACTERS) == found([1], is_cut=True)
