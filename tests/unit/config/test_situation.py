from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from codeloupe.config.files import ConfigText
from codeloupe.config.loading import LoadedSettings, Origin, OriginKind, load_settings
from tests.rows import rows

FORK = "because this is a pull request from a fork"
UNKNOWN = "because this is a pull request from an unknown place"
OURS, THEIRS = {"id": 1, "full_name": "owner/shop"}, {"id": 2, "full_name": "ada/shop", "fork": True}


def loaded(environment: dict[str, str], *, file: str = "", **flags: object) -> LoadedSettings:
    repository_file = ConfigText("codeloupe.yaml", file) if file else None
    return load_settings(repository_file=repository_file, user_file=None, environment=environment, flags=flags)


def why(settings: LoadedSettings) -> str | None:
    """Why a change is not trusted; None when it is."""
    assert settings.settings.untrusted == (settings.origins["untrusted"].kind is not OriginKind.DEFAULT)
    return settings.origins["untrusted"].where if settings.settings.untrusted else None


def on_github(folder: Path, event: Any, *, name: str = "pull_request") -> dict[str, str]:
    path = folder / "event.json"
    path.write_text(event if isinstance(event, str) else json.dumps(event))
    return {"GITHUB_ACTIONS": "true", "GITHUB_EVENT_NAME": name, "GITHUB_EVENT_PATH": str(path)}


def pull_request(head: Any, base: Any = OURS) -> dict[str, Any]:
    return {"pull_request": {"head": {"repo": head}, "base": {"repo": base}}, "repository": OURS}


@rows(
    ("event", "reason"),
    [
        (pull_request(THEIRS), FORK),
        (pull_request(None), FORK),
        ({"pull_request": {"head": {}, "base": {"repo": OURS}}}, FORK),
        ({"pull_request": {"head": {"repo": OURS}, "base": {}}}, UNKNOWN),
        (pull_request(OURS), None),
        # A project that is itself a fork of another has branches of its own.
        (pull_request({**OURS, "fork": True}), None),
        (pull_request({"full_name": "ada/shop"}, {"full_name": "owner/shop"}), FORK),
        ([], UNKNOWN),
        ("{broken", UNKNOWN),
        ("[" * 100_000, UNKNOWN),
        ({"pull_request": "odd", "repository": OURS}, UNKNOWN),
        ({}, UNKNOWN),
    ],
)
def test_on_github_the_event_tells_whose_pull_request_it_is(tmp_path: Path, event: Any, reason: str | None) -> None:
    assert why(loaded(on_github(tmp_path, event))) == reason


@rows(
    ("name", "event", "reason"),
    [
        ("workflow_run", {"workflow_run": {"head_repository": THEIRS}, "repository": OURS}, FORK),
        ("workflow_run", {"workflow_run": {"head_repository": OURS}, "repository": OURS}, None),
        ("issue_comment", {"issue": {"pull_request": {"url": "x"}}, "repository": OURS}, UNKNOWN),
        ("issue_comment", {"issue": {"number": 3}, "repository": OURS}, None),
        ("pull_request_target", pull_request(THEIRS), FORK),
        ("push", {"ref": "refs/heads/main", "repository": OURS}, None),
    ],
)
def test_other_events_of_github_tell_it_too(tmp_path: Path, name: str, event: Any, reason: str | None) -> None:
    assert why(loaded(on_github(tmp_path, event, name=name))) == reason


def test_a_pull_request_without_a_readable_event_counts_as_a_strangers(tmp_path: Path) -> None:
    variables = on_github(tmp_path, {})
    for path in (str(tmp_path / "gone"), str(tmp_path), "", "\0"):
        for name in ("pull_request", "pull_request_target", "workflow_run"):
            assert why(loaded({**variables, "GITHUB_EVENT_PATH": path, "GITHUB_EVENT_NAME": name})) == UNKNOWN
        assert why(loaded({**variables, "GITHUB_EVENT_PATH": path, "GITHUB_EVENT_NAME": "push"})) is None


def test_outside_of_github_its_variables_mean_nothing(tmp_path: Path) -> None:
    assert why(loaded({**on_github(tmp_path, pull_request(THEIRS)), "GITHUB_ACTIONS": ""})) is None


@rows(
    ("variables", "reason"),
    [
        ({"CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "2", "CI_MERGE_REQUEST_PROJECT_ID": "1"}, FORK),
        ({"CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "2"}, FORK),
        ({"CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "1", "CI_MERGE_REQUEST_PROJECT_ID": "1"}, None),
        ({"CI_MERGE_REQUEST_PROJECT_ID": "1"}, None),
        ({"SYSTEM_PULLREQUEST_ISFORK": "True"}, FORK),
        ({"SYSTEM_PULLREQUEST_ISFORK": "False"}, None),
        ({"CIRCLE_PR_REPONAME": "shop"}, FORK),
        ({"CI": "true"}, None),
    ],
)
def test_other_ci_tells_by_variables(variables: dict[str, str], reason: str | None) -> None:
    assert why(loaded(variables)) == reason


def test_the_repositorys_file_cannot_take_it_back_but_the_jobs_owner_can(tmp_path: Path) -> None:
    variables = on_github(tmp_path, pull_request(THEIRS))
    assert why(loaded(variables, file="untrusted: false\n")) == FORK
    told = loaded({**variables, "CODELOUPE_UNTRUSTED": "false"})
    assert not told.settings.untrusted
    assert told.origins["untrusted"] == Origin(OriginKind.ENVIRONMENT, "CODELOUPE_UNTRUSTED")
    assert why(loaded(variables, untrusted=True)) == "--untrusted"
