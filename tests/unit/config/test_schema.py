from __future__ import annotations

import re

import pytest
import yaml
from pydantic import ValidationError

from codeloupe.config.kinds import Kind
from codeloupe.config.schema import KEYS, USER_KEYS, Settings, description_of, json_schema, kind_of
from codeloupe.config.template import initial_text
from codeloupe.config.values import default_text, value_text
from codeloupe.model.severity import Severity
from tests.unit.config.inputs import load

SCHEMA = json_schema()


def test_the_defaults_are_the_documented_ones() -> None:
    assert Settings().model_dump(mode="json") == {
        "base_branch": None,
        "include": [],
        "exclude": [],
        "fail_on": "high",
        "min_severity": "low",
        "on_incomplete": "fail",
        "reviewer_type": "auto",
        "max_file_bytes": 1_000_000,
        "max_file_lines": 20_000,
        "timeout_seconds": 300.0,
        "skip_generated": True,
        "skip_vendored": True,
        "skip_lock_files": True,
        "skip_minified": True,
        "untrusted": False,
        "agents": ["agent_sdk", "claude_cli", "codex", "gemini"],
        "model": None,
        "agent_timeout_seconds": 1800.0,
        "concurrency": 5,
        "calls_per_minute": None,
        "max_budget_usd": None,
        "max_tokens": None,
        "max_requests": None,
        "wait_for_quota": False,
        "keep_sessions": False,
        "mask_prompts": True,
        "claude_path": None,
        "codex_path": None,
        "gemini_path": None,
        "api_model": None,
        "api_base_url": None,
        "allow_bypass": False,
    }


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        Settings().untrusted = True


def test_settings_made_by_hand_refuse_unknown_keys() -> None:
    with pytest.raises(ValidationError):
        Settings.model_validate({"colour": "blue"})


def test_settings_made_by_hand_take_lists_and_every_spelling_of_a_severity() -> None:
    settings = Settings.model_validate({"include": ["a"], "fail_on": " [p0] "})
    assert (settings.include, settings.fail_on) == (("a",), Severity.CRITICAL)


@pytest.mark.parametrize("key", KEYS)
def test_every_key_has_a_kind_and_a_description_that_is_a_sentence(key: str) -> None:
    assert isinstance(kind_of(key), Kind)
    assert re.fullmatch(r"[A-Z].*\.", description_of(key))


def test_the_json_schema_describes_exactly_the_keys() -> None:
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert "$id" not in SCHEMA
    assert (SCHEMA["type"], SCHEMA["title"]) == ("object", "codeloupe configuration")
    assert SCHEMA["additionalProperties"] is False
    assert "required" not in SCHEMA
    assert tuple(SCHEMA["properties"]) == KEYS


@pytest.mark.parametrize("key", KEYS)
def test_the_json_schema_has_description_and_default_of_every_key(key: str) -> None:
    entry = SCHEMA["properties"][key]
    assert entry["description"] == description_of(key)
    assert entry["default"] == Settings().model_dump(mode="json")[key]
    assert "title" not in entry


def test_the_json_schema_has_types_words_and_bounds() -> None:
    properties = SCHEMA["properties"]
    assert properties["fail_on"]["enum"] == ["critical", "high", "medium", "low"]
    assert properties["on_incomplete"]["enum"] == ["fail", "pass"]
    assert properties["include"]["type"] == "array"
    assert properties["include"]["items"]["type"] == "string"
    assert properties["max_file_bytes"]["minimum"] == 1
    assert properties["timeout_seconds"]["exclusiveMinimum"] == 0
    assert [option["type"] for option in properties["base_branch"]["anyOf"]] == ["string", "null"]


def uncommented() -> str:
    return re.sub(r"^#(?=\w)", "", initial_text(), flags=re.MULTILINE)


def test_the_initial_file_sets_nothing() -> None:
    loaded = load(initial_text())
    assert loaded.settings == Settings()
    assert {str(origin) for origin in loaded.origins.values()} == {"default"}


def test_the_initial_file_without_its_comment_signs_sets_every_key_to_its_default() -> None:
    loaded = load(uncommented())
    assert loaded.settings == Settings()
    assert {key for key, origin in loaded.origins.items() if origin.line} == set(KEYS) - USER_KEYS


def test_the_initial_file_holds_what_the_json_schema_describes() -> None:
    written = yaml.safe_load(uncommented())
    properties = {key: entry for key, entry in SCHEMA["properties"].items() if key not in USER_KEYS}
    assert written == {key: entry["default"] for key, entry in properties.items()}
    assert all(written[key] in entry["enum"] for key, entry in properties.items() if "enum" in entry)


def test_the_initial_file_fits_on_a_screen_and_says_what_each_key_takes() -> None:
    text = initial_text()
    assert max(len(line) for line in text.splitlines()) <= 120
    assert all(f"# Value: {kind_of(key).expected}." in text for key in KEYS)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (300.0, "300"),
        (0.25, "0.25"),
        (7, "7"),
        ([], "[]"),
        (["a", 'b"c'], r'["a", "b\"c"]'),
        ("main", "main"),
        ("é\x1b\u202e", "é\\x1b\\u202e"),
        (["\u202e"], r'["\u202e"]'),
    ],
)
def test_a_value_is_shown_on_one_line_without_control_characters(value: object, text: str) -> None:
    assert value_text(value) == text


def test_a_default_is_shown_as_it_would_be_written() -> None:
    assert (default_text("timeout_seconds"), default_text("fail_on")) == ("300", "high")
