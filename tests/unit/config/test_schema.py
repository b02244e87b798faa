import re
import subprocess
import sys
from typing import Any

import jsonschema
import pytest
import yaml
from msgspec.structs import replace

from codeloupe.config.schema import (
    ABOUT,
    KEYS,
    USER_KEYS,
    Settings,
    default_text,
    initial_text,
    json_schema,
    plain_values,
    value_text,
)
from codeloupe.errors import ConfigError
from codeloupe.model.change import Effort, PathInstruction
from codeloupe.model.finding import Severity
from tests.rows import each
from tests.unit.config.inputs import load

SCHEMA = json_schema()


@each(
    ("values", "message"),
    [
        ({"fail_on": "worst"}, "fail_on: expected critical, high, medium or low (or P0 to P3), found 'worst'"),
        ({"passes": True}, "passes: expected a whole number from 1 to 10, found True"),
        ({"include": ["a", 5]}, "include: entry 2: expected a pattern, found 5"),
        ({"review_command": ["a\0b"]}, "review_command: entry 1: expected a string"),
        ({"model": "a\udcffb"}, "model: expected a string"),
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


EXPERT = {
    "description": "Money.",
    "focus": ["rounding"],
    "paths": ["pay/**"],
    "severity_guide": {"high": "money is lost"},
}
FULL = Settings(
    own_experts={"payments": EXPERT},
    commit_experts={"bug_fix": ("reliability", "tests")},
    instructions=(PathInstruction(("api/**",), "Check every input."),),
    reviewers=("codex", "offline"),
    effort=Effort.HIGH,
    fail_on=Severity.LOW,
    max_budget_usd=1.5,
)


@each(
    "wrong",
    [
        *({"passes": 11}, {"effort": "huge"}, {"lanes": []}, {"reviewers": ["codex", "codex"]}, {"colour": "blue"}),
        *({"own_experts": {"Bad Name": {"focus": ["x"]}}}, {"own_experts": {"payments": {"focsu": ["x"]}}}),
        *({"commit_experts": {"bugfix": ["x"]}}, {"commit_experts": {"chore": []}}, {"instructions": [{"text": "x"}]}),
    ],
)
def test_the_json_schema_refuses_what_the_settings_refuse(wrong: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, SCHEMA)
    with pytest.raises(ConfigError):
        Settings(**wrong)


def test_the_settings_load_without_heavy_packages() -> None:
    program = (
        "import sys\n"
        "from codeloupe.config.loading import load_settings\n"
        "load_settings(repository_file=None, user_file=None, environment={}, flags={})\n"
        "print({'pydantic', 'yaml', 'jsonschema', 'rich'} & sys.modules.keys())\n"
    )
    ended = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "set()\n"


def test_settings_survive_the_way_through_plain_values_which_are_what_a_file_would_hold() -> None:
    values = plain_values(FULL)
    assert Settings(**values) == replace(replace(FULL, passes=3), passes=1) == FULL
    assert values["own_experts"] == {"payments": EXPERT}
    assert values["instructions"] == [{"paths": ["api/**"], "text": "Check every input."}]
    assert values["commit_experts"] == {"bug_fix": ["reliability", "tests"]}
    assert (values["effort"], type(values["effort"]), values["fail_on"]) == ("high", str, "low")


def test_the_json_schema_describes_exactly_the_keys_and_takes_what_the_settings_take() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert (SCHEMA["type"], SCHEMA["title"]) == ("object", "codeloupe configuration")
    assert (SCHEMA["additionalProperties"], tuple(SCHEMA["properties"])) == (False, KEYS)
    defaults = plain_values(Settings())
    assert {key: entry["default"] for key, entry in SCHEMA["properties"].items()} == defaults
    assert [key for key in KEYS if not re.fullmatch(r"[A-Z].*\.", SCHEMA["properties"][key]["description"])] == []
    for settings in (Settings(), FULL):
        jsonschema.validate(plain_values(settings), SCHEMA)


def test_the_initial_file_sets_nothing_and_has_every_key_with_its_default_in_comments() -> None:
    text = initial_text()
    assert {str(origin) for origin in load(text).origins.values()} == {"default"}
    uncommented = re.sub(r"^#(?=\w)", "", text, flags=re.MULTILINE)
    loaded = load(uncommented)
    assert loaded.settings == Settings()
    assert {key for key, origin in loaded.origins.items() if origin.line} == set(KEYS) - USER_KEYS
    written = yaml.safe_load(uncommented)
    assert written == {key: SCHEMA["properties"][key]["default"] for key in KEYS if key not in USER_KEYS}
    assert max(len(line) for line in text.splitlines()) <= 120
    joined = re.sub(r"\n# +", " ", text)
    assert all(f"Value: {ABOUT[key].kind.expected}." in joined for key in KEYS if key not in USER_KEYS)
    assert (default_text("timeout_seconds"), default_text("fail_on")) == ("300", "high")
    shown: dict[str, Any] = {"null": None, "0.25": 0.25, r'["a", "b\"c"]': ["a", 'b"c'], r'["\u202e"]': ["\u202e"]}
    shown["é\\x1b\\u202e"] = "é\x1b\u202e"
    assert [value_text(value) for value in shown.values()] == list(shown)
