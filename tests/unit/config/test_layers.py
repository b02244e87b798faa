from __future__ import annotations

import pytest

from codeloupe.config.schema import USER_KEYS, Settings
from tests.rows import rows
from tests.unit.config.inputs import load, refusal


@rows(
    ("key", "meant"),
    [("failOn", "fail_on"), ("fail-on", "fail_on"), ("fial_on", "fail_on"), ("timeout", "timeout_seconds")],
)
def test_an_unknown_key_is_refused_with_the_one_that_was_meant(key: str, meant: str) -> None:
    error = refusal(f"\n\n{key}: high\n")
    assert error.message == f"codeloupe.yaml:3: {key}: unknown key"
    assert error.hint == f"did you mean `{meant}`?"


def test_an_unknown_key_like_no_other_is_refused_with_the_way_to_the_list() -> None:
    error = refusal("colour: blue")
    assert error.message == "codeloupe.yaml:1: colour: unknown key"
    assert error.hint == "`codeloupe config show` lists every key"


def test_a_key_with_control_characters_is_shown_escaped() -> None:
    assert refusal(r'"\e[31mred\u202e\n": 1').message == r"codeloupe.yaml:1: '\x1b[31mred\u202e\n': unknown key"


def test_a_name_with_control_characters_is_shown_escaped() -> None:
    name = "CODELOUPE_FAIL_ON\x1b"
    assert refusal(environment={name: "high"}).message == r"CODELOUPE_FAIL_ON\x1b: unknown variable"


def test_a_key_that_stands_twice_is_refused_with_both_lines() -> None:
    error = refusal("fail_on: low\nuntrusted: true\nfail_on: low\n")
    assert error.message == "codeloupe.yaml:3: fail_on: already given on line 1"


def test_merge_keys_are_no_way_to_set_anything() -> None:
    assert refusal("<<: {fail_on: low}").message == "codeloupe.yaml:1: '<<': unknown key"


@rows(
    ("name", "meant"),
    [
        ("CODELOUPE_FAILON", "CODELOUPE_FAIL_ON"),
        ("CODELOUPE_fail_on", "CODELOUPE_FAIL_ON"),
        ("CODELOUPE_SKIP_VENDORD", "CODELOUPE_SKIP_VENDORED"),
        ("CODELOUPE_TIMEOUT", "CODELOUPE_TIMEOUT_SECONDS"),
    ],
)
def test_a_misspelt_variable_is_refused_with_the_one_that_was_meant(name: str, meant: str) -> None:
    error = refusal(environment={name: "high"})
    assert error.message == f"{name}: unknown variable"
    assert error.hint == f"did you mean `{meant}`?"


@rows(
    "name",
    ["CODELOUPE_SPEED", "CODELOUPE_COLOUR", "CODELOUPE_", "MY_CODELOUPE_FAIL_ON", "FAIL_ON"],
)
def test_a_variable_that_is_no_setting_is_left_alone(name: str) -> None:
    assert load(environment={name: "low"}).settings == Settings()


@rows("text", ["", "  "])
def test_an_empty_variable_counts_as_not_set(text: str) -> None:
    assert load(environment={"CODELOUPE_INCLUDE": text, "CODELOUPE_FAIL_ON": text}) == load()


@rows("value", ["high", 1])
def test_a_flag_for_no_known_key_is_a_mistake_of_the_caller(value: object) -> None:
    with pytest.raises(KeyError):
        load(flags={"colour": value})


@rows("key", sorted(USER_KEYS))
def test_a_repository_cannot_choose_what_runs_here_or_where_keys_go(key: str) -> None:
    error = refusal(f"fail_on: low\n{key}: true\n")
    assert error.message.startswith(f"codeloupe.yaml:2: {key}: a repository cannot set this")
    assert f"CODELOUPE_{key.upper()}" in error.hint
