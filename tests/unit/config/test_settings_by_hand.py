"""Settings that a program makes refuse mistakes in the words of the command line, with the nearest valid value."""

from pathlib import Path
from typing import Any

import pytest

from codeloupe import Settings
from codeloupe.config.schema import ABOUT, KEYS
from codeloupe.errors import ConfigError
from tests.rows import each

pytestmark = pytest.mark.defect("E19")
WITH_CHOICES = [key for key in KEYS if ABOUT[key].kind.choices]
# A value of no kind: each setting refuses it.
NOTHING_KNOWN = object()


def refused(**values: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        Settings(**values)
    return caught.value


def misspelt(word: str) -> str:
    """Return a word with two letters swapped that is not a word of its own."""
    return word[0] + word[2] + word[1] + word[3:]


@each("key", WITH_CHOICES)
def test_a_misspelt_choice_of_any_setting_is_named_with_the_right_one(key: str) -> None:
    kind = ABOUT[key].kind
    choice = next(choice for choice in kind.choices if misspelt(choice) not in kind.choices)
    is_list = kind.schema["type"] == "array"
    error = refused(**{key: [misspelt(choice)] if is_list else misspelt(choice)})
    place = f"{key}: entry 1" if is_list else key
    assert error.message.startswith(f"{place}: expected ")
    assert error.message.endswith(f", found '{misspelt(choice)}'")
    assert error.hint == f"did you mean `{choice}`?"


def test_settings_with_choices_are_known() -> None:
    assert {"fail_on", "effort", "reviewer_type", "agents", "lanes", "accept_unread"} <= set(WITH_CHOICES)


@each("key", KEYS)
def test_every_setting_refuses_a_value_of_no_kind_once_and_without_doubled_quotes(key: str) -> None:
    for value in (NOTHING_KNOWN, b"bytes", 1j):
        error = refused(**{key: value})
        assert error.message.startswith(f"{key}: "), error.message
        assert "''" not in error.message
        assert error.hint


@each("key", KEYS)
def test_every_misspelt_setting_is_named_with_the_right_one(key: str) -> None:
    error = refused(**{f"{key}x": None})
    assert (error.message, error.hint) == (f"{key}x: unknown setting", f"did you mean `{key}`?")


@each(
    ("values", "hint"),
    [
        ({"concurrency": "5"}, "did you mean 5?"),
        ({"verify": "yes"}, "did you mean True?"),
        ({"verify": "perhaps"}, "the default is True"),
        ({"include": "src/**, *.py"}, "did you mean ['src/**', '*.py']?"),
        ({"agents": "codex"}, "did you mean ['codex']?"),
        ({"model": 5}, "did you mean '5'?"),
        ({"claude_path": Path("/opt/claude")}, "did you mean '/opt/claude'?"),
        ({"own_experts": {"payments": {"focsu": ["x"], "focus": ["x"]}}}, "did you mean `focus`?"),
        ({"commit_experts": {"bugfix": ["tests"]}}, "did you mean `bug_fix`?"),
        ({"threshold": "high"}, "did you mean `fail_on`?"),
    ],
)
def test_a_wrong_value_comes_with_what_was_probably_meant(values: dict[str, Any], hint: str) -> None:
    assert refused(**values).hint == hint


def test_all_mistakes_are_listed_together() -> None:
    lines = refused(fail_on="hgih", effort="hihg", include=[5]).message.splitlines()
    assert lines[0] == "Settings(...) has 3 mistakes:"
    assert [line.split(":")[0].strip() for line in lines[1:]] == ["include", "fail_on", "effort"]


def test_a_refused_address_of_a_database_is_not_shown() -> None:
    assert "hunter2" not in refused(database="mysql://me:hunter2@host/name").message
