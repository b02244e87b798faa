"""Every error carries what a person needs, in the words of its reader."""

import asyncio
import sys
from pathlib import Path

import pytest

import codeloupe
from codeloupe import errors
from codeloupe.cli.main import main
from codeloupe.errors import CodeloupeError, GitFailed, InvalidRequest, ProcessError, hints_for_the_program


@pytest.mark.requirement("R10")
def test_a_failed_program_keeps_its_exit_code_and_its_words() -> None:
    error = GitFailed("git failed", program="git", status=128, stderr="fatal: no", hint="look")
    assert isinstance(error, ProcessError)
    assert (error.program, error.status, error.stderr, error.hint) == ("git", 128, "fatal: no", "look")


def test_an_error_of_an_agent_has_the_details_that_its_kind_knows_and_no_others() -> None:
    error = errors.RateLimited("slow", agent="a", retry_after_seconds=3.0, attempts=2)
    assert (error.retry_after_seconds, error.attempts, error.session_id, error.retryable) == (3.0, 2, "", True)
    assert (errors.NotInstalled("x", agent="a").attempts, CodeloupeError("x").exit_code) == (0, 4)
    with pytest.raises(TypeError, match="TimedOut has no retry_after_seconds"):
        errors.TimedOut("slow", agent="a", retry_after_seconds=3.0)


def test_an_optional_part_is_added_by_what_installed_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert errors.install_command("api") == "pip install '.[api]' in a checkout of codeloupe"
    (tmp_path / "pipx_metadata.json").touch()
    assert errors.install_command("api") == "pipx install --force '.[api]' in a checkout of codeloupe"


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
        ("raise max_tokens and run again", "raise max_tokens and run again", "raise --max-tokens and run again"),
        ("raise `max_tokens` in your settings", "raise `max_tokens` in your settings", None),
        ("raise timeout_seconds", None, "raise --timeout"),
        ("remove resume_session, or keep sessions", None, "remove --resume, or add --keep-session"),
        ("agent_timeout_seconds stays, remove tools", None, "agent_timeout_seconds stays, remove --tools"),
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
        assert CodeloupeError("x", hint=text).hint == (in_the_library or text)
        with hints_for_the_program():
            assert CodeloupeError("x", hint=text).hint == (in_the_program or text)
            refused = InvalidRequest("max_turns is 0", agent="a")
        assert refused.message == "--max-turns is 0"
    assert InvalidRequest("max_turns is 0", agent="a").message == "max_turns is 0"
