from __future__ import annotations

import json
from typing import Any

import pytest

from codeloupe.errors import UsageError
from codeloupe.forges.github.address import Target, read_event
from tests.rows import each

REPOSITORY = {"full_name": "octo/demo"}
RUN = {
    "event": "pull_request",
    "head_branch": "topic",
    "head_sha": "a" * 40,
    "head_repository": {"owner": {"login": "fork"}},
    "pull_requests": [],
}


@each(
    ("event", "target"),
    [
        ({"pull_request": {"number": 7}, "repository": REPOSITORY}, Target("octo", "demo", 7)),
        ({"issue": {"number": 7, "pull_request": {}}, "repository": REPOSITORY}, Target("octo", "demo", 7)),
        ({"issue": {"number": 7}, "repository": REPOSITORY}, Target("octo", "demo")),
        (
            {"workflow_run": {**RUN, "pull_requests": [{"number": 9}]}, "repository": REPOSITORY},
            Target("octo", "demo", 9, "fork:topic", "a" * 40),
        ),
        ({"workflow_run": RUN, "repository": REPOSITORY}, Target("octo", "demo", None, "fork:topic", "a" * 40)),
        ({"workflow_run": {**RUN, "event": "push"}, "repository": REPOSITORY}, Target("octo", "demo")),
        ({"workflow_run": {**RUN, "head_repository": None}, "repository": REPOSITORY}, Target("octo", "demo")),
        ({"push": True}, Target()),
        ({"pull_request": {"number": True}}, Target()),
        ({"pull_request": {"number": "7"}}, Target()),
        ({"pull_request": [7]}, Target()),
        ([], Target()),
    ],
)
def test_what_an_event_says_of_its_pull_request(event: Any, target: Target) -> None:
    assert read_event(json.dumps(event)) == target


@each("text", ["", "{", "[" * 100_000])
def test_a_file_that_is_no_event_is_a_mistake_in_words(text: str) -> None:
    with pytest.raises(UsageError, match="no JSON"):
        read_event(text)
