"""The content key: equal exactly when everything that shapes the answer is equal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from msgspec.structs import fields, replace

from codeloupe.model.agent import AgentRequest, PermissionMode
from codeloupe.store.ledger import Asked, content_key, is_repeatable
from tests.rows import each
from tests.unit.store.samples import request, request_fields, requests

NOT_SHAPING: dict[str, Any] = {
    "working_dir": Path("elsewhere"),
    "timeout_seconds": 1.5,
    "idle_timeout_seconds": 2.5,
    "max_attempts": 2,
    "max_budget_usd": 0.25,
    "labels": {"unit": "3"},
    # A call that resumes has no key, and without a session there is nothing to fork.
    "fork_session": True,
}


def key(of: AgentRequest, **changes: Any) -> str:
    asked = {"agent": "scripted", "model": "m", "service": None, "trust": "trusted"}
    who = Asked(**{name: changes.pop(name, value) for name, value in asked.items()})
    return content_key(of, who, **changes)


def shape(of: AgentRequest) -> list[str]:
    """What must be equal for two keys to be equal; the order of names inside mappings counts."""
    return [repr(getattr(of, name)) for name in request_fields]


def test_every_field_of_a_request_is_decided_upon() -> None:
    assert {field.name for field in fields(AgentRequest)} == request_fields.keys() | NOT_SHAPING.keys()


@given(before=requests, other=requests)
def test_a_change_of_one_field_that_shapes_the_answer_changes_the_key(
    before: AgentRequest, other: AgentRequest
) -> None:
    for name in request_fields:
        after = replace(before, **{name: getattr(other, name)})
        assert (key(before) == key(after)) == (shape(before) == shape(after)), name


@given(before=requests)
def test_a_change_of_what_does_not_shape_the_answer_keeps_the_key(before: AgentRequest) -> None:
    for name, value in NOT_SHAPING.items():
        assert key(before) == key(replace(before, **{name: value})), name


@each(
    "change",
    [
        {"agent": "codex"},
        {"model": "n"},
        {"model": None},
        {"service": "http://127.0.0.1:1"},
        {"trust": "untrusted"},
        {"version": "2"},
        {"tree": "t"},
        {"extra": {"pass": "2"}},
    ],
)
def test_what_is_around_the_request_counts(change: Mapping[str, Any]) -> None:
    assert key(request()) != key(request(), **change)


def test_the_parts_around_the_request_do_not_run_into_each_other() -> None:
    variants: list[dict[str, Any]] = [
        {"agent": "ab", "model": "c"},
        {"agent": "a", "model": "bc"},
        {"agent": "a", "model": None},
        {"agent": "a", "model": "null"},
        {"extra": {"a": "b", "c": "d"}},
        {"extra": {"a": 'b"],["c","d'}},
        {"tree": "x"},
        {"extra": {"tree": "x"}},
        {"version": "x"},
    ]
    assert len({key(request(), **variant) for variant in variants}) == len(variants)


def test_the_order_of_a_schema_and_of_the_context_counts_since_the_model_sees_it() -> None:
    properties = {"why": {"type": "string"}, "verdict": {"type": "string"}}
    turned = dict(reversed(properties.items()))
    assert key(request(output_schema={"properties": properties})) != key(request(output_schema={"properties": turned}))
    assert key(request(context={"a": "1", "b": "2"})) != key(request(context={"b": "2", "a": "1"}))
    assert key(request(), extra={"a": "1", "b": "2"}) == key(request(), extra={"b": "2", "a": "1"})


def test_half_a_character_is_not_the_whole_one() -> None:
    texts = ["\ud83d", "\ude00", "\ud83d\ude00", "\N{GRINNING FACE}", "\\ud83d"]
    assert len({key(request(prompt=text)) for text in texts}) == len(texts)


def test_a_frozen_schema_has_the_key_of_a_plain_one_and_what_is_no_json_none() -> None:
    frozen = MappingProxyType({"properties": MappingProxyType({"a": MappingProxyType({"type": "string"})})})
    plain = {"properties": {"a": {"type": "string"}}}
    assert key(request(output_schema=frozen)) == key(request(output_schema=plain))
    with pytest.raises(TypeError, match="dictionary"):
        key(request(output_schema={"enum": {1, 2}}))


def test_the_key_is_the_same_in_every_run_of_every_version() -> None:
    """A change here means that nothing stored before is found again: then it is meant, and the format is raised."""
    asked = request(prompt="p\ud800", context={"t": "x"}, output_schema={"type": "object"}, tools=("Read",))
    assert key(asked, tree="t") == "40caea1d823bc2c5ce726d9a9a251ff4cc19e704c709f9276358a6b2680c3312"


@each(
    ("mode", "session", "expected"),
    [
        (PermissionMode.PLAN, None, True),
        (PermissionMode.DEFAULT, None, True),
        (PermissionMode.DONT_ASK, None, True),
        (PermissionMode.ACCEPT_EDITS, None, False),
        (PermissionMode.BYPASS, None, False),
        (PermissionMode.DONT_ASK, "session", False),
        (PermissionMode.DONT_ASK, "", False),
    ],
)
def test_only_a_call_that_changes_nothing_and_resumes_nothing_is_repeatable(
    mode: PermissionMode, session: str | None, expected: bool
) -> None:
    assert is_repeatable(request(permission_mode=mode, resume_session=session)) is expected
