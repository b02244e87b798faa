from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from typing import Any

import jsonschema
import pytest
import yaml

from codeloupe.config.json_schema import json_schema
from codeloupe.config.kinds import Kind
from codeloupe.config.schema import KEYS, USER_KEYS, Settings, description_of, kind_of
from codeloupe.config.template import initial_text
from codeloupe.config.values import default_text, plain_values, value_text
from codeloupe.errors import ConfigError
from codeloupe.model.change import Effort, PathInstruction
from codeloupe.model.severity import Severity
from tests.unit.config.inputs import load

SCHEMA = json_schema()


def test_the_defaults_are_the_documented_ones() -> None:
    assert plain_values(Settings()) == {
        "base_branch": None,
        "include": [],
        "exclude": [],
        "fail_on": "high",
        "min_severity": "low",
        "on_incomplete": "fail",
        "on_parse_error": "fail",
        "reviewer_type": "auto",
        "reviewers": [],
        "lanes": ["agent"],
        "effort": "medium",
        "experts": [],
        "own_experts": {},
        "experts_folder": None,
        "commit_experts": {},
        "instructions": [],
        "guidance": True,
        "keep_history": True,
        "passes": 1,
        "verify": True,
        "max_file_bytes": 1_000_000,
        "max_file_lines": 20_000,
        "timeout_seconds": 300.0,
        "review_timeout_seconds": 600.0,
        "skip_generated": True,
        "skip_vendored": True,
        "skip_lock_files": True,
        "skip_minified": True,
        "accept_unread": [],
        "untrusted": False,
        "agents": ["agent_sdk", "claude_cli", "codex", "gemini"],
        "model": None,
        "agent_timeout_seconds": 1800.0,
        "agent_sdk_review_timeout": 600.0,
        "agent_sdk_reviewer_model": None,
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
        "review_command": [],
        "review_gate_path": None,
        "review_gate_arguments": [],
        "api_model": None,
        "api_base_url": None,
        "allow_bypass": False,
    }


def test_the_class_and_what_is_said_of_it_name_the_same_keys_in_the_same_order() -> None:
    assert tuple(field.name for field in dataclasses.fields(Settings)) == KEYS
    assert set(KEYS) >= USER_KEYS


def test_settings_are_frozen_and_have_a_hash() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().untrusted = True  # type: ignore[misc]  # that it is refused is the test
    assert hash(Settings(include=("a",))) == hash(Settings(include=("a",)))


def test_settings_made_by_hand_refuse_unknown_keys() -> None:
    with pytest.raises(TypeError, match="colour"):
        Settings(colour="blue")  # type: ignore[call-arg]  # that it is refused is the test


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"fail_on": "worst"}, "fail_on: expected critical, high, medium or low (or P0 to P3), found ''worst''"),
        ({"passes": True}, "passes: expected a whole number from 1 to 10, found 'True'"),
        ({"include": ["a", 5]}, "include: entry 2: expected a pattern as text, found '['a', 5]'"),
        ({"review_command": ["a\0b"]}, "review_command: entry 1: expected a text"),
        ({"model": "a\udcffb"}, "model: expected a text"),
        ({"own_experts": {"x": {}}}, "own_experts.x: `focus` is missing"),
    ],
)
def test_settings_made_by_hand_refuse_wrong_values_in_words(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Settings(**values)
    assert caught.value.message.startswith(message)
    assert caught.value.hint


def test_settings_made_by_hand_take_lists_and_every_spelling_of_a_severity() -> None:
    given: dict[str, Any] = {"include": ["a"], "fail_on": " [p0] ", "effort": "low", "timeout_seconds": 5}
    settings = Settings(**given)
    assert (settings.include, settings.fail_on) == (("a",), Severity.CRITICAL)
    assert settings.effort is Effort.LOW
    rule = PathInstruction(("a",), "x")
    assert Settings(instructions=[rule]).instructions == (rule,)  # type: ignore[arg-type]  # a list, as people write it
    assert isinstance(settings.timeout_seconds, float)


FULL = Settings(
    own_experts={
        "payments": {
            "description": "Money.",
            "focus": ["rounding"],
            "paths": ["pay/**"],
            "severity_guide": {"high": "money is lost"},
        }
    },
    commit_experts={"bug_fix": ("reliability", "tests")},
    instructions=(PathInstruction(("api/**",), "Check every input."),),
    reviewers=("codex", "offline"),
    effort=Effort.HIGH,
    fail_on=Severity.LOW,
    max_budget_usd=1.5,
)


def test_settings_survive_the_way_through_plain_values_and_a_change_of_one_value() -> None:
    assert Settings(**plain_values(FULL)) == FULL
    assert dataclasses.replace(dataclasses.replace(FULL, passes=3), passes=1) == FULL


def test_plain_values_are_what_a_file_would_hold() -> None:
    values = plain_values(FULL)
    assert values["own_experts"]["payments"] == {
        "description": "Money.",
        "focus": ["rounding"],
        "paths": ["pay/**"],
        "severity_guide": {"high": "money is lost"},
    }
    assert values["instructions"] == [{"paths": ["api/**"], "text": "Check every input."}]
    assert values["commit_experts"] == {"bug_fix": ["reliability", "tests"]}
    assert values["effort"] == "high"
    assert type(values["effort"]) is str


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
    assert entry["default"] == plain_values(Settings())[key]


def test_the_json_schema_has_types_words_and_bounds() -> None:
    properties = SCHEMA["properties"]
    assert properties["fail_on"]["enum"] == ["critical", "high", "medium", "low"]
    assert properties["on_incomplete"]["enum"] == ["fail", "pass"]
    assert properties["include"]["type"] == "array"
    assert properties["include"]["items"]["type"] == "string"
    assert properties["max_file_bytes"]["minimum"] == 1
    assert properties["timeout_seconds"]["exclusiveMinimum"] == 0
    assert [option["type"] for option in properties["base_branch"]["anyOf"]] == ["string", "null"]
    assert properties["passes"]["maximum"] == 10
    assert properties["reviewers"]["uniqueItems"] is True
    assert properties["own_experts"]["additionalProperties"]["required"] == ["focus"]


@pytest.mark.parametrize("settings", [Settings(), FULL])
def test_the_json_schema_takes_what_the_settings_take(settings: Settings) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(plain_values(settings), SCHEMA)


@pytest.mark.parametrize(
    "wrong",
    [
        {"passes": 11},
        {"effort": "huge"},
        {"lanes": []},
        {"reviewers": ["codex", "codex"]},
        {"own_experts": {"Bad Name": {"focus": ["x"]}}},
        {"own_experts": {"payments": {"focsu": ["x"]}}},
        {"commit_experts": {"bugfix": ["x"]}},
        {"commit_experts": {"bug_fix": []}},
        {"instructions": [{"text": "x"}]},
        {"colour": "blue"},
    ],
)
def test_the_json_schema_refuses_what_the_settings_refuse(wrong: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, SCHEMA)
    with pytest.raises((ConfigError, TypeError)):
        Settings(**wrong)


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
    joined = re.sub(r"\n# +", " ", text)
    assert all(f"Value: {kind_of(key).expected}." in joined for key in KEYS if key not in USER_KEYS)


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


def test_the_settings_load_without_heavy_packages() -> None:
    program = (
        "import sys\n"
        "from codeloupe.config.loading import load_settings\n"
        "load_settings(repository_file=None, user_file=None, environment={}, flags={})\n"
        "print({'pydantic', 'yaml', 'jsonschema', 'rich'} & sys.modules.keys())\n"
    )
    ended = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "set()\n"
