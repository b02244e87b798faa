from __future__ import annotations

import argparse
import io
import sys
from pathlib import Path
from typing import Any

import pytest

from codeloupe.cli.parser import Parser
from codeloupe.cli.review import configure, context_of, flags_of
from codeloupe.config.schema import KEYS, Settings
from codeloupe.errors import UsageError
from codeloupe.model.change import Effort
from tests.rows import each
from tests.unit.config.inputs import load


def parsed(*words: str) -> argparse.Namespace:
    parser = Parser(prog="codeloupe review", allow_abbrev=False)
    configure(parser)
    return parser.parse_args(words)


def settings(*words: str, file: str | None = None) -> Settings:
    return load(file, flags=flags_of(parsed(*words))).settings


def test_no_options_leave_every_setting_alone() -> None:
    flags = flags_of(parsed())
    assert set(flags) <= set(KEYS)
    assert set(flags.values()) == {None}


@each(
    ("words", "expected"),
    [
        (["--reviewer", "codex"], {"reviewer_type": "codex", "reviewers": ()}),
        (["--reviewer", "agent_sdk,codex"], {"reviewers": ("agent_sdk", "codex")}),
        (["--reviewer", "agent_sdk", "--reviewer", "offline"], {"reviewers": ("agent_sdk", "offline")}),
        (["--model", "opus"], {"model": "opus"}),
        (["--effort", "high"], {"effort": Effort.HIGH}),
        (["--experts", "security, tests"], {"experts": ("security", "tests")}),
        (["--passes", "3"], {"passes": 3}),
        (["--verify"], {"verify": True}),
        (["--no-verify"], {"verify": False}),
        (["--lanes", "agent,offline"], {"lanes": ("agent", "offline")}),
        (
            ["--timeout", "9"],
            {"timeout_seconds": 9.0, "review_timeout_seconds": 9.0, "agent_sdk_review_timeout": 9.0},
        ),
        (["--concurrency", "2"], {"concurrency": 2}),
        (["--max-budget-usd", "1.5"], {"max_budget_usd": 1.5}),
        (["--max-tokens", "1000"], {"max_tokens": 1000}),
        (["--max-requests", "7"], {"max_requests": 7}),
        (["--wait-for-quota"], {"wait_for_quota": True}),
        (["--untrusted"], {"untrusted": True}),
        (["--include", "a", "--include", "b"], {"include": ("a", "b")}),
    ],
)
def test_an_option_sets_its_settings_and_no_others(words: list[str], expected: dict[str, Any]) -> None:
    found = settings(*words)
    assert {key: getattr(found, key) for key in expected} == expected
    rest = [key for key in KEYS if key not in expected]
    assert [getattr(found, key) for key in rest] == [getattr(Settings(), key) for key in rest]


def test_one_reviewer_takes_the_place_of_the_several_of_a_file() -> None:
    found = settings("--reviewer", "gemini", file="reviewers: [codex, offline]")
    assert (found.reviewer_type, found.reviewers) == ("gemini", ())
    assert settings("--no-verify", file="reviewers: [codex]").reviewers == ("codex",)


@each(
    ("words", "message"),
    [
        (["--reviewer", "codx"], "--reviewer: expected auto, agent_sdk"),
        (["--reviewer", ","], "--reviewer: expected auto, agent_sdk"),
        (["--reviewer", "auto,codex"], "--reviewer: expected a list of agent_sdk"),
        (["--reviewer", "codex,codex"], "--reviewer: expected a list of agent_sdk"),
        (["--passes", "0"], "--passes: expected a whole number from 1 to 10, found '0'"),
        (["--lanes", "agnt"], "--lanes: expected a list of agent or offline"),
        (["--timeout", "-1"], "--timeout: expected a number of seconds above 0, found '-1.0'"),
        (["--max-budget-usd", "nan"], "--max-budget-usd: expected an amount of dollars above 0, found 'nan'"),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_option(words: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        settings(*words)
    assert caught.value.message.startswith(message)
    assert caught.value.hint


@pytest.mark.parametrize(
    "words", [["--fresh", "--resume"], ["-q", "--debug"], ["--effort", "huge"], ["--passes", "many"]]
)
def test_what_excludes_each_other_or_is_no_number_is_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        parsed(*words)
    assert caught.value.code == 2
    assert "hint: " in capsys.readouterr().err


def test_the_help_is_grouped_and_every_line_of_it_short(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit):
        parsed("--help")
    text = capsys.readouterr().out
    titles = ["what to review", "how to review:", "limits:", "judging:", "showing:"]
    assert sorted(titles, key=text.index) == titles
    assert max(map(len, text.splitlines())) <= 100


def test_without_a_context_file_there_is_no_context() -> None:
    assert context_of(parsed()) == ""


def test_a_context_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "why.md").write_text("Größer\nist besser\n", encoding="utf-8")
    assert context_of(parsed("--context-file", str(tmp_path / "why.md"))) == "Größer\nist besser\n"


def test_the_context_may_come_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"why")))
    assert context_of(parsed("--context-file", "-")) == "why"


def test_standard_input_cannot_be_the_diff_and_the_context() -> None:
    with pytest.raises(UsageError, match="standard input cannot be both the diff and the context"):
        context_of(parsed("--context-file", "-", "--diff-file", "-"))


def test_a_context_file_of_the_largest_size_is_read_and_one_byte_more_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "why"
    path.write_bytes(b"x" * 200_000)
    assert len(context_of(parsed("--context-file", str(path)))) == 200_000
    path.write_bytes(b"x" * (200_000 + 1))
    with pytest.raises(UsageError, match="is larger than 200,000 bytes") as caught:
        context_of(parsed("--context-file", str(path)))
    assert caught.value.hint


@each(
    ("content", "message"), [(None, "no such file"), ("", "is a directory"), (b"a\xff", r"not UTF-8 text \(byte 1\)")]
)
def test_a_context_file_that_cannot_be_read_is_refused_in_words(
    content: bytes | str | None, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "why"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        path.mkdir()
    with pytest.raises(UsageError, match=message) as caught:
        context_of(parsed("--context-file", str(path)))
    assert caught.value.hint
