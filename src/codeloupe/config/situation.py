"""What the surroundings say of a change before anybody sets anything: that of a fork in CI is not trusted.

A pull request from a fork is a stranger's. Where CI says that there is a pull request and not whose, it counts as one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from codeloupe.config.layers import Given, Layer
from codeloupe.config.provenance import Origin, OriginKind

FROM_FORK = "because this is a pull request from a fork"
_FROM_UNKNOWN = "because this is a pull request from an unknown place"
_MAX_EVENT_BYTES = 32_000_000
# Two variables that name the repository of a change and the one it goes to, where both are set.
_PAIRS = (
    ("CI_MERGE_REQUEST_SOURCE_PROJECT_ID", "CI_MERGE_REQUEST_PROJECT_ID"),
    ("CI_EXTERNAL_PULL_REQUEST_SOURCE_REPOSITORY", "CI_EXTERNAL_PULL_REQUEST_TARGET_REPOSITORY"),
)


def situation_layer(environment: Mapping[str, str]) -> Layer:
    """What these variables, and the file on the event that they may name, mean for the settings. Raises nothing."""
    reason = next(_reasons(environment), None)
    if reason is None:
        return Layer()
    return Layer({"untrusted": Given(True, Origin(OriginKind.SITUATION, reason), "true")})  # noqa: FBT003 - the value


def _reasons(environment: Mapping[str, str]) -> Iterator[str]:
    for source, target in _PAIRS:
        if environment.get(source) and environment.get(source) != environment.get(target):
            yield FROM_FORK
    if environment.get("SYSTEM_PULLREQUEST_ISFORK", "").lower() == "true" or environment.get("CIRCLE_PR_REPONAME"):
        yield FROM_FORK
    if environment.get("GITHUB_ACTIONS") == "true":
        yield from _of_github(environment)


def _of_github(environment: Mapping[str, str]) -> Iterator[str]:
    name = environment.get("GITHUB_EVENT_NAME", "")
    event = _event(environment.get("GITHUB_EVENT_PATH", ""))
    if event is None:
        if name.startswith(("pull_request", "workflow_run", "issue_comment")):
            yield _FROM_UNKNOWN
    elif (pull_request := _part(event, "pull_request")) is not None:
        yield from _of_two(_part(pull_request, "head", "repo"), _part(pull_request, "base", "repo"))
    elif (run := _part(event, "workflow_run")) is not None:
        yield from _of_two(_part(run, "head_repository"), _part(event, "repository"))
    elif name.startswith("pull_request") or _part(event, "issue", "pull_request") is not None:
        # A comment on a pull request does not tell whose that is.
        yield _FROM_UNKNOWN


def _of_two(source: Mapping[str, Any] | None, target: Mapping[str, Any] | None) -> Iterator[str]:
    """Of the repository a change is from, and the one it goes to; that of a deleted fork is not told."""
    names = [None if one is None else one.get("id") or one.get("full_name") for one in (source, target)]
    if names[1] is None:
        yield _FROM_UNKNOWN
    elif names[0] != names[1]:
        yield FROM_FORK


def _event(path: str) -> Mapping[str, Any] | None:
    try:
        with Path(path).open("rb") as file:
            event = json.loads(file.read(_MAX_EVENT_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


def _part(document: Mapping[str, Any], *keys: str) -> Mapping[str, Any] | None:
    found: Any = document
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else None
