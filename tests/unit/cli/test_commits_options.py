from __future__ import annotations

import argparse
from typing import Any

import pytest

from codeloupe.cli.commits import configure, query_of
from codeloupe.cli.parser import Parser
from codeloupe.cli.review import flags_of
from codeloupe.config.loading import load_settings
from codeloupe.config.schema import KEYS, Settings
from codeloupe.errors import UsageError
from codeloupe.model.sweep import CommitQuery
from tests.rows import each


def parsed(*words: str) -> argparse.Namespace:
    parser = Parser(prog="codeloupe commits")
    configure(parser)
    return parser.parse_args(words)


def settings(*words: str) -> Settings:
    flags = flags_of(parsed(*words))
    return load_settings(repository_file=None, user_file=None, environment={}, flags=flags).settings


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
    assert query_of(parsed(*words)) == CommitQuery(**expected)


@each(
    ("words", "said"),
    [
        (["a..b", "--branch", "next"], "exclude each other"),
        (["next"], "is no range"),
        (["--branch", "a..b"], "is no branch"),
        (["--max", "0"], "leaves no commit"),
        (["--max", "-3"], "leaves no commit"),
    ],
)
def test_what_means_nothing_is_refused_with_a_way_out(words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        query_of(parsed(*words))
    assert caught.value.hint


@each("words", [["--max", "many"], ["--output", "html"], ["--on-incomplete", "maybe"], ["-q", "-v"]])
def test_wrong_words_are_refused_by_the_parser(words: list[str]) -> None:
    with pytest.raises(SystemExit):
        parsed(*words)


@each(
    ("words", "expected"),
    [
        (["--reviewer", "codex"], {"reviewer_type": "codex"}),
        (["--reviewer", "codex,api"], {"reviewers": ("codex", "api")}),
        (["--model", "big"], {"model": "big"}),
        (["--effort", "high"], {"effort": "high"}),
        (["--no-verify"], {"verify": False}),
        (["--untrusted"], {"untrusted": True}),
        (["--concurrency", "20"], {"concurrency": 20}),
        (["--max-budget-usd", "1.5"], {"max_budget_usd": 1.5}),
        (["--max-tokens", "1000"], {"max_tokens": 1000}),
        (["--max-requests", "10"], {"max_requests": 10}),
        (["--wait-for-quota"], {"wait_for_quota": True}),
        (["--on-incomplete", "pass"], {"on_incomplete": "pass"}),
        (
            ["--timeout", "20"],
            {"timeout_seconds": 20.0, "review_timeout_seconds": 20.0, "agent_sdk_review_timeout": 20.0},
        ),
        ([], {}),
    ],
)
def test_an_option_that_is_a_setting_becomes_one(words: list[str], expected: dict[str, Any]) -> None:
    chosen, default = settings(*words), Settings()
    changed = {key: getattr(chosen, key) for key in KEYS if getattr(chosen, key) != getattr(default, key)}
    assert changed == expected


def test_the_result_goes_to_the_terminal_as_text_unless_told_otherwise() -> None:
    plain = parsed()
    assert (plain.output, plain.save, plain.strict, plain.color, plain.fresh) == ("text", None, False, "auto", False)
    told = parsed("--output", "xml", "--save", "out.xml", "--strict", "--fresh", "--color", "never")
    assert (told.output, str(told.save), told.strict, told.fresh, told.color) == ("xml", "out.xml", True, True, "never")
