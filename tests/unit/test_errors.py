"""The exception tree is what its drawing says, and every error carries what a person needs."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest

import codeloupe
from codeloupe import errors
from codeloupe.cli.main import main
from codeloupe.errors import (
    AnalyserFailed,
    CodeloupeError,
    ConfigError,
    GitFailed,
    InvalidRequest,
    ProcessError,
    ProcessFailed,
    ProcessTimedOut,
    ProgramNotFound,
    UsageError,
    hints_for_the_program,
)

ROW = re.compile(r"^ {4}(?P<branch>[│├└─ ]*)(?P<name>[A-Z]\w+) {2,}(?P<words>.+)$", re.MULTILINE)


def drawn_tree() -> dict[str, str]:
    """Each drawn error and the one it hangs from."""
    parents: dict[str, str] = {}
    above: dict[int, str] = {-1: "Exception"}
    for row in ROW.finditer(errors.__doc__ or ""):
        depth = len(row["branch"]) // 4
        parents[row["name"]] = above[depth - 1]
        above[depth] = row["name"]
    return parents


def real_tree() -> dict[str, str]:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    return {kind.__name__: kind.__bases__[0].__name__ for kind in kinds}


def test_the_drawing_in_the_docstring_is_the_tree() -> None:
    assert drawn_tree() == real_tree()
    assert len(drawn_tree()) > 10


def test_the_exit_codes_in_the_drawing_are_the_real_ones() -> None:
    drawn = {
        row["name"]: int(found[1])
        for row in ROW.finditer(errors.__doc__ or "")
        if (found := re.search(r"\(exit (\d)\)", row["words"]))
    }
    assert drawn
    assert drawn == {name: getattr(errors, name).exit_code for name in drawn}


def test_a_mistake_of_the_caller_ends_with_2_and_anything_unforeseen_with_4() -> None:
    assert ConfigError("x").exit_code == UsageError("x").exit_code == 2
    assert CodeloupeError("x").exit_code == 4


def test_an_error_says_what_happened_and_what_to_do_next() -> None:
    error = UsageError("the file is gone", hint="look elsewhere")
    assert (str(error), error.message, error.hint) == ("the file is gone", "the file is gone", "look elsewhere")


def test_a_hint_is_optional_and_a_retry_is_not_the_default() -> None:
    assert CodeloupeError("x").hint == ""
    assert not CodeloupeError("x").retryable
    assert ProcessTimedOut("x", program="git").retryable


def test_errors_of_programs_and_analysers_name_them() -> None:
    assert ProgramNotFound("x", program="git").program == "git"
    assert AnalyserFailed("x", analyser="ruff").analyser == "ruff"


@pytest.mark.requirement("R10")
def test_a_failed_program_keeps_its_exit_code_and_its_words() -> None:
    error = GitFailed("git failed", program="git", exit_code=128, stderr="fatal: no", hint="look")
    assert isinstance(error, ProcessFailed)
    assert isinstance(error, ProcessError)
    assert (error.status, error.stderr, error.hint) == (128, "fatal: no", "look")


def test_an_optional_part_is_added_by_what_installed_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert errors.install_command("api") == "pip install 'codeloupe[api]'"
    (tmp_path / "pipx_metadata.json").touch()
    assert errors.install_command("api") == "pipx inject codeloupe 'codeloupe[api]'"


@pytest.mark.program
@pytest.mark.defect("L4")
def test_a_hint_names_parameters_in_the_library_and_options_in_the_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CodeloupeError) as raised:
        asyncio.run(codeloupe.review(repo=tmp_path))
    assert (
        raised.value.hint == "run codeloupe in a checkout, give repo=DIR, or review a diff with DiffScope(NAME, DATA)"
    )
    assert main(["review", "--repo", str(tmp_path)]) == 2
    assert "give --repo DIR, or review a diff with --diff-file FILE" in capsys.readouterr().err
    assert (
        CodeloupeError("x", hint="git fetch --deepen=1; --fresh; --fresher").hint
        == "git fetch --deepen=1; fresh=True; --fresher"
    )


@pytest.mark.defect("L4")
def test_what_is_named_is_what_its_reader_can_give() -> None:
    for text, in_the_library, in_the_program in (
        ("raise max_tokens to go on", "raise max_tokens to go on", "raise --max-tokens to go on"),
        ("raise `max_tokens` in your settings", "raise `max_tokens` in your settings", None),
        ("give more time with timeout_seconds", None, "give more time with --timeout"),
        ("leave resume_session out, or keep sessions", None, "leave --resume out, or add --keep-session"),
        ("agent_timeout_seconds stays, leave tools out", None, "agent_timeout_seconds stays, leave --tools out"),
        ("give it without --commit: codeloupe review a..b", 'give it as RangeScope("a..b")', None),
        (
            "that commit alone: --commit v1; for everything since: --base v1, or v1..HEAD",
            'that commit alone: CommitScope("v1"); for everything since: BaseScope("v1"), or RangeScope("v1..HEAD")',
            None,
        ),
        ("give --base a branch, or --repo a directory", "give base a branch, or repo a directory", None),
        ("give --input topic=VALUE", 'give inputs={"topic": VALUE}', None),
        ("git diff --base-like --no-commit", None, None),
    ):
        error = CodeloupeError("x", hint=text)
        assert error.hint == (in_the_library or text)
        with hints_for_the_program():
            assert error.hint == (in_the_program or text)
            refused = InvalidRequest("max_turns is 0", agent="a")
        assert refused.message == "--max-turns is 0"
    assert InvalidRequest("max_turns is 0", agent="a").message == "max_turns is 0"
