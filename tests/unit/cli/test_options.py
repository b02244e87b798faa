"""The options of `review` and `commits`: the settings, the commits and the context that they name."""

import argparse
import io
import sys
from pathlib import Path
from typing import Any

import pytest

from codeloupe.cli import commits, review
from codeloupe.cli.parser import Parser
from codeloupe.cli.review import context_of, flags_of
from codeloupe.config.schema import KEYS, Settings
from codeloupe.errors import UsageError
from codeloupe.model.change import Effort
from codeloupe.model.sweep import CommitQuery
from tests.rows import each
from tests.unit.config.inputs import load


def parsed(*words: str, verb: Any = review) -> argparse.Namespace:
    parser = Parser(prog=f"codeloupe {verb.__name__.rpartition('.')[2]}")
    verb.configure(parser)
    return parser.parse_args(words)


def changed(*words: str, verb: Any = review, file: str | None = None) -> dict[str, Any]:
    """The settings that are not the usual ones."""
    found = load(file, flags=flags_of(parsed(*words, verb=verb))).settings
    return {key: getattr(found, key) for key in KEYS if getattr(found, key) != getattr(Settings(), key)}


@each("verb", [review, commits])
@each(
    ("words", "expected"),
    [
        (["--reviewer", "codex"], {"reviewer_type": "codex"}),
        (["--reviewer", "agent_sdk,codex"], {"reviewers": ("agent_sdk", "codex")}),
        (["--reviewer", "agent_sdk", "--reviewer", "offline"], {"reviewers": ("agent_sdk", "offline")}),
        (["--model", "opus"], {"model": "opus"}),
        (["--effort", "high"], {"effort": Effort.HIGH}),
        (["--verify"], {}),
        (["--no-verify"], {"verify": False}),
        (["--timeout", "9"], {"timeout_seconds": 9.0, "review_timeout_seconds": 9.0, "agent_sdk_review_timeout": 9.0}),
        (["--max-budget-usd", "1.5", "--max-requests", "7"], {"max_budget_usd": 1.5, "max_requests": 7}),
        (["--concurrency", "2", "--max-tokens", "9"], {"concurrency": 2, "max_tokens": 9}),
        (["--wait-for-quota"], {"wait_for_quota": True}),
        (["--untrusted"], {"untrusted": True}),
        (["--on-incomplete", "pass"], {"on_incomplete": "pass"}),
    ],
)
def test_an_option_sets_its_settings_and_no_others(verb: Any, words: list[str], expected: dict[str, Any]) -> None:
    assert changed(*words, verb=verb) == expected


@each(
    ("words", "expected"),
    [
        (["--experts", "security, tests"], {"experts": ("security", "tests")}),
        (["--passes", "3"], {"passes": 3}),
        (["--lanes", "offline"], {"lanes": ("offline",)}),
        (["--include", "a", "--include", "b"], {"include": ("a", "b")}),
    ],
)
def test_some_are_options_of_a_review_alone(words: list[str], expected: dict[str, Any]) -> None:
    assert changed(*words) == expected
    with pytest.raises(SystemExit):
        parsed(*words, verb=commits)


def test_without_options_every_setting_is_left_alone_and_one_reviewer_replaces_several() -> None:
    flags = flags_of(parsed())
    assert set(flags) <= set(KEYS)
    assert set(flags.values()) == {None}
    assert changed("--reviewer", "gemini", file="reviewers: [codex, offline]") == {"reviewer_type": "gemini"}
    assert changed("--verify", file="reviewers: [codex]") == {"reviewers": ("codex",)}


@each(
    ("words", "message"),
    [
        (["--reviewer", ","], "--reviewer: expected auto, agent_sdk"),
        (["--reviewer", "auto,codex"], "--reviewer: expected a list of agent_sdk"),
        (["--passes", "0"], "--passes: expected a whole number from 1 to 10, found '0'"),
        (["--timeout", "-1"], "--timeout: expected a number of seconds above 0, found '-1.0'"),
        (["--max-budget-usd", "nan"], "--max-budget-usd: expected an amount in dollars above 0, found 'nan'"),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_option(words: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        changed(*words)
    assert caught.value.message.startswith(message)
    assert caught.value.hint


@pytest.mark.requirement("D1")
@each(
    ("words", "expected"),
    [
        ([], {"since": "24 hours ago"}),
        (["--since", "1 hour ago"], {"since": "1 hour ago"}),
        (["--until", "yesterday"], {"since": "24 hours ago", "until": "yesterday"}),
        (["--branch", "next"], {"revision": "next", "since": "24 hours ago"}),
        (["--author", "Ada"], {"author": "Ada", "since": "24 hours ago"}),
        (["--merges"], {"merges": True, "since": "24 hours ago"}),
        (["a..b"], {"revision": "a..b"}),
        (["a...b", "--since", "1 week ago"], {"revision": "a...b", "since": "1 week ago"}),
        (["--max", "7"], {"max_count": 7}),
        (["--branch", "next", "--max", "7"], {"revision": "next", "max_count": 7}),
    ],
)
def test_the_options_name_the_commits(words: list[str], expected: dict[str, Any]) -> None:
    assert commits.query_of(parsed(*words, verb=commits)) == CommitQuery(**expected)


@each(
    ("words", "said"),
    [
        (["a..b", "--branch", "next"], "exclude each other"),
        (["next"], "is not a range of commits"),
        (["--branch", "a..b"], "is a range, not a branch"),
        (["--max", "0"], "--max is 0, and must be at least 1"),
    ],
)
def test_commits_that_mean_nothing_are_refused_with_a_way_out(words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        commits.query_of(parsed(*words, verb=commits))
    assert caught.value.hint


def test_the_context_comes_from_a_file_or_from_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert context_of(parsed()) == ""
    path = tmp_path / "why"
    path.write_text("Größer\nist besser\n", encoding="utf-8")
    assert context_of(parsed("--context-file", str(path))) == "Größer\nist besser\n"
    path.write_bytes(b"x" * 200_000)
    assert len(context_of(parsed("--context-file", str(path)))) == 200_000
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"why")))
    assert context_of(parsed("--context-file", "-")) == "why"
    with pytest.raises(UsageError, match="standard input cannot be both the diff and the context"):
        context_of(parsed("--context-file", "-", "--diff-file", "-"))


@each(
    ("content", "message"),
    [
        (None, "no such file"),
        (b"a\xff", r"not UTF-8 text \(byte 1\)"),
        (b"x" * 200_001, "is larger than 200,000 bytes"),
    ],
)
def test_a_context_file_that_cannot_be_read_is_refused(content: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "why"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=message) as caught:
        context_of(parsed("--context-file", str(path)))
    assert caught.value.hint
    with pytest.raises(UsageError, match="is a directory"):
        context_of(parsed("--context-file", str(tmp_path)))
