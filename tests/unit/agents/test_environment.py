from __future__ import annotations

import os
from pathlib import Path

import pytest

from codeloupe.agents.calls.program import Places, agent_environment, throw_away_places, user_home
from codeloupe.agents.claude.cli import ClaudeSettings, claude_environment
from codeloupe.model.agent import full_prompt
from codeloupe.system.environment import NETWORK_NAMES
from tests.unit.agents.call_samples import request

PLACES = Places(Path("/away"), Path("/away/home"), Path("/away/tmp"))
KEY = {"ANTHROPIC_API_KEY": "made-up"}


def environment(source: dict[str, str], *names: str, **settings: str) -> dict[str, str]:
    return agent_environment(source, home=PLACES.home, temporary=PLACES.temporary, names=names, settings=settings)


@pytest.mark.requirement("R16")
def test_nothing_passes_that_is_not_named() -> None:
    found = environment({"DATABASE_PASSWORD": "x", "GITHUB_TOKEN": "y", "LD_PRELOAD": "z", "NAMED": "yes"}, "NAMED")
    assert found["NAMED"] == "yes"
    assert not {"DATABASE_PASSWORD", "GITHUB_TOKEN", "LD_PRELOAD"} & found.keys()
    assert found.keys() - {"NAMED"} <= {
        "PATH", "LC_ALL", "TZ", "HOME", "TMPDIR", "NO_COLOR", "DISABLE_TELEMETRY", "DO_NOT_TRACK",
        "DISABLE_AUTOUPDATER",
    }  # fmt: skip


def test_home_and_temporary_files_are_where_they_are_told_to_be() -> None:
    found = environment({"HOME": "/home/someone", "TMPDIR": "/elsewhere"}, "HOME", "TMPDIR")
    assert (found["HOME"], found["TMPDIR"]) == ("/away/home", "/away/tmp")


def test_the_way_to_the_network_passes_and_what_is_empty_does_not() -> None:
    source = dict.fromkeys(NETWORK_NAMES, "value") | {"ALL_PROXY": ""}
    found = environment(source)
    assert {name for name in NETWORK_NAMES if name in found} == set(NETWORK_NAMES) - {"ALL_PROXY"}


def test_a_setting_has_the_last_word() -> None:
    found = environment({"NO_PROXY": "a"}, NO_PROXY="b", HOME="/c")
    assert (found["NO_PROXY"], found["HOME"]) == ("b", "/c")


def test_the_search_path_has_no_relative_entry() -> None:
    assert environment({"PATH": f":.:bin{os.pathsep}/usr/bin{os.pathsep}/bin:"})["PATH"] == f"/usr/bin{os.pathsep}/bin"
    assert Path(environment({"PATH": "."})["PATH"].split(os.pathsep)[0]).is_absolute()


def test_places_are_private_empty_and_gone_afterwards() -> None:
    with throw_away_places() as places:
        assert places.root.stat().st_mode & 0o077 == 0
        assert list(places.home.iterdir()) == list(places.temporary.iterdir()) == []
        (places.home / "deep").mkdir()
        (places.home / "deep" / "file").touch(mode=0o400)
    assert not places.root.exists()


def test_the_home_of_the_user_is_the_one_they_set() -> None:
    assert user_home({"HOME": "/home/someone"}) == Path("/home/someone")
    assert user_home({}) == Path.home()


@pytest.mark.parametrize(
    ("source", "resume", "keep", "expected"),
    [
        (KEY, None, False, "/away/home"),
        ({"CLAUDE_CODE_OAUTH_TOKEN": "made-up"}, None, False, "/away/home"),
        ({}, None, False, "/away/home"),
        ({"ANTHROPIC_API_KEY": ""}, None, False, "/away/home"),
        (KEY, "a-session", False, "/away/home"),
        (KEY, None, True, "/away/home"),
        (KEY | {"CLAUDE_CODE_USE_BEDROCK": "1"}, None, False, "/home/someone"),
    ],
)
def test_claude_runs_in_the_users_home_only_where_it_must_and_never_writes_its_configuration_there(
    source: dict[str, str], resume: str | None, keep: bool, expected: str
) -> None:
    settings = ClaudeSettings(environment={"HOME": "/home/someone", **source}, keep_sessions=keep)
    made = claude_environment(request(resume_session=resume), settings, PLACES)
    assert (made["HOME"], made["CLAUDE_CONFIG_DIR"]) == (expected, "/away/home/.claude")


def test_a_login_is_read_from_the_users_configuration_directory_where_there_is_no_key() -> None:
    source = {"HOME": "/home/someone", "CLAUDE_CONFIG_DIR": "/home/someone/claude", "USER": "someone"}
    theirs = claude_environment(request(), ClaudeSettings(environment=source), PLACES)
    away = claude_environment(request(), ClaudeSettings(environment=source | KEY), PLACES)
    assert theirs["CLAUDE_SECURESTORAGE_CONFIG_DIR"] == "/home/someone/claude"
    assert not {"CLAUDE_SECURESTORAGE_CONFIG_DIR", "USER"} & away.keys()


def test_credentials_of_a_cloud_pass_only_when_that_cloud_is_used() -> None:
    source = {"AWS_SECRET_ACCESS_KEY": "made-up", "AWS_REGION": "r", "GOOGLE_APPLICATION_CREDENTIALS": "file"}
    without = claude_environment(request(), ClaudeSettings(environment=source | KEY), PLACES)
    assert not source.keys() & without.keys()
    bedrock = claude_environment(
        request(), ClaudeSettings(environment=source | {"CLAUDE_CODE_USE_BEDROCK": "1"}), PLACES
    )
    assert bedrock["AWS_SECRET_ACCESS_KEY"] == "made-up"
    assert "GOOGLE_APPLICATION_CREDENTIALS" not in bedrock


def test_claude_is_told_to_read_no_files_and_to_keep_its_retries_to_itself() -> None:
    source = {**KEY, "CLAUDECODE": "1", "ANTHROPIC_BASE_URL": "http://127.0.0.1:1"}
    found = claude_environment(request(), ClaudeSettings(environment=source, base_url="http://127.0.0.1:2"), PLACES)
    assert found["CLAUDE_CODE_DISABLE_FILE_MENTIONS"] == found["CLAUDE_CODE_DISABLE_CLAUDE_MDS"] == "1"
    assert found["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:2"
    assert found["CLAUDE_CODE_MAX_RETRIES"] == "1"
    assert "CLAUDECODE" not in found


@pytest.mark.requirement("R5")
def test_context_stands_behind_the_prompt_under_its_title() -> None:
    asked = request("Look.", context={"The diff": "+a", "Notes": "none"})
    assert full_prompt(asked) == "Look.\n\n## The diff\n\n+a\n\n## Notes\n\nnone"
    assert full_prompt(request("Look.")) == "Look."
