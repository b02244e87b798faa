"""What the event file of GitHub Actions says about the pull request. GitHub writes it, so it can be trusted."""

from __future__ import annotations

import json
from typing import Any

from codeloupe.errors import UsageError
from codeloupe.forges.github.address import Target, parse_repository


def read_event(text: str) -> Target:
    """The repository and number of the event's pull request, as far as it has them. Raises UsageError.

    A workflow that follows another one is told of no pull request from a fork; there the branch and the commit of
    the first one say which it is, whatever that one left behind.
    """
    try:
        event = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError("the event file of GitHub Actions is no JSON", hint="give --pr and --repo-name") from error
    if not isinstance(event, dict):
        return Target()
    name = _field(event, "repository", "full_name")
    target = parse_repository(name) if isinstance(name, str) else Target()
    branch, head = _branch(event)
    return Target(target.owner, target.repository, _number(event), branch, head)


def _branch(event: dict[str, Any]) -> tuple[str, str]:
    """`OWNER:BRANCH` and the commit of the finished workflow, when that was one of a pull request."""
    run = _field(event, "workflow_run")
    if not str(_field(event, "workflow_run", "event")).startswith("pull_request"):
        return "", ""
    owner, branch, head = _field(run, "head_repository", "owner", "login"), run.get("head_branch"), run.get("head_sha")
    if not all(isinstance(each, str) and each for each in (owner, branch, head)):
        return "", ""
    return f"{owner}:{branch}", str(head)


def _number(event: dict[str, Any]) -> int | None:
    candidates = [_field(event, "pull_request", "number")]
    if _field(event, "issue", "pull_request") is not None:
        candidates.append(_field(event, "issue", "number"))
    finished = _field(event, "workflow_run", "pull_requests")
    if isinstance(finished, list) and len(finished) == 1 and isinstance(finished[0], dict):
        candidates.append(finished[0].get("number"))
    return next((each for each in candidates if type(each) is int and each > 0), None)


def _field(event: dict[str, Any], *path: str) -> Any:
    value: Any = event
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value
