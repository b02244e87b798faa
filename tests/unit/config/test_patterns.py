from __future__ import annotations

import pytest

from codeloupe.config.files import ConfigText
from codeloupe.config.loading import load_settings
from codeloupe.errors import ConfigError
from tests.rows import rows


def load(text: str = "", **flags: object) -> tuple[str, ...]:
    source = ConfigText("codeloupe.yaml", text)
    return load_settings(repository_file=source, user_file=None, environment={}, flags=flags).settings.exclude


def test_patterns_are_taken_as_they_are() -> None:
    assert load('exclude: ["*.py", "[a-z]*/**", "[unclosed"]') == ("*.py", "[a-z]*/**", "[unclosed")


@rows(
    ("pattern", "problem"),
    [
        ("[z-a].py", "its range from 'z' to 'a' runs backwards"),
        ("./src", "it has `.` where a path has the name of a folder or file"),
        ("/", "it names no file"),
    ],
)
def test_a_pattern_that_makes_no_sense_is_told_with_its_line(pattern: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(f'fail_on: high\nexclude:\n  - "*.py"\n  - "{pattern}"\n')
    expected = f"codeloupe.yaml:4: exclude: entry 2: expected a pattern that makes sense: {problem}"
    assert caught.value.message == expected
    with pytest.raises(ConfigError, match="^--exclude: expected a pattern that makes sense: "):
        load(exclude=[pattern])


def test_the_patterns_of_instructions_are_checked_too() -> None:
    with pytest.raises(ConfigError, match=r"paths: entry 1: expected a pattern that makes sense"):
        load('instructions: [{paths: ["[9-0]"], text: Look.}]')
