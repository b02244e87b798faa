"""An agent's result as bytes and back."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest
from hypothesis import example, given, settings

from codeloupe.model.agent import AgentResult, TokenUsage
from codeloupe.store.result_text import Unreadable, decode_result, encode_result
from tests.unit.store.samples import result, results


def stored(**fields: Any) -> bytes:
    return b"j" + json.dumps(fields).encode()


def same(one: AgentResult, other: AgentResult) -> bool:
    # 1 == 1.0 == True in Python, so equality alone would not see a value change its type.
    return one == other and repr(one) == repr(other)


@settings(max_examples=25)
@given(before=results)
@example(before=result("\ud83d\ude00", structured={"\udcff": ["\ud800", -0.0, 10**40, 1e308, None]}))
@example(before=result("x" * 5000 + "\udcff"))
@example(before=result(total_cost_usd=float("inf")))
def test_a_result_comes_back_exactly(before: AgentResult) -> None:
    assert same(decode_result(encode_result(before)), before)


def test_a_small_result_can_be_read_by_people_and_a_large_one_is_compressed() -> None:
    small, large = encode_result(result("é")), encode_result(result("é" * 100_000))
    assert small.startswith(b"j{")
    assert "é".encode() in small
    assert large.startswith(b"z")
    assert len(large) < 2_000


def test_fields_of_a_newer_version_are_ignored_and_those_an_older_one_lacked_get_their_default() -> None:
    usage = {"input_tokens": 3, "reasoning_tokens": 4}
    read = decode_result(stored(success=True, output="x", agent="a", usage=usage, mood="fine"))
    assert read == AgentResult(success=True, output="x", agent="a", usage=TokenUsage(input_tokens=3))


def test_bytes_that_are_no_result_are_refused_with_the_reason() -> None:
    whole = {"success": True, "output": "x", "agent": "a"}
    broken = {
        "it has another form": [b"x{}", b"j[]", b"jnull"],
        "missing": [stored(), stored(success=True, output="x")],
        "output has a value of type int": [stored(**{**whole, "output": 1})],
        "attempts has a value of type bool": [stored(**whole, attempts=True)],
        "success has a value of type int": [stored(**{**whole, "success": 1})],
        "usage is no object": [stored(**whole, usage=[])],
        "no count": [stored(**whole, usage={"input_tokens": "3"}), stored(**whole, usage={"input_tokens": True})],
        "notes is no list of texts": [stored(**whole, notes="ab"), stored(**whole, notes=[1])],
        "decompress": [b"zgarbage", encode_result(result("x" * 5000))[:-20]],
        ".": [b"", b"j", b"j{", b"j\xff\xfe", b"z" + zlib.compress(b"\xff"), b"j" + b"[" * 200_000],
    }
    for reason, cases in broken.items():
        for data in cases:
            with pytest.raises(Unreadable, match=reason):
                decode_result(data)


def test_a_value_that_is_no_json_is_refused_and_not_changed_into_something_else() -> None:
    circle: list[Any] = []
    circle.append(circle)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value in ({1, 2}, object(), b"bytes", TokenUsage(), circle, deep):
        with pytest.raises(ValueError, match="a value in it is no JSON"):
            encode_result(result(structured=value))
