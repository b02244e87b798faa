from __future__ import annotations

import json
from typing import Any

from codeloupe.errors import ForgeError, ForgeRefused
from codeloupe.forges.github.answers import PULL_REQUESTS, Doing, Reply, bad_answer, explained, query_failure
from tests.rows import each

DOING = Doing("post comments", PULL_REQUESTS)


def error_of(status: int, body: Any = None, **headers: str) -> ForgeError:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    text = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
    return explained(bad_answer(Reply(status, named, text)), DOING)


@each(
    ("status", "kind", "code", "words"),
    [
        (401, ForgeRefused, 2, "does not accept the token"),
        (403, ForgeRefused, 2, "the token may not post comments"),
        (404, ForgeRefused, 2, "not there, or the token may not see it"),
        (410, ForgeRefused, 2, "not there"),
        (301, ForgeError, 3, "leads elsewhere"),
        (422, ForgeError, 3, "answered 422"),
        (400, ForgeError, 3, "answered 400"),
        (502, ForgeError, 3, "failed with 502"),
    ],
)
def test_each_status_has_its_words_and_exit_code(status: int, kind: type[ForgeError], code: int, words: str) -> None:
    error = error_of(status)
    assert type(error) is kind
    assert error.exit_code == code
    assert words in error.message
    assert error.status == status


def test_a_missing_right_is_named_by_us_or_by_github() -> None:
    assert "pull-requests: write" in error_of(403, {"message": "Resource not accessible by integration"}).hint
    named = error_of(403, x_accepted_github_permissions="issues=write; pull_requests=write")
    assert "issues: write or pull-requests: write" in named.hint


def test_a_lock_and_a_sign_on_have_hints_of_their_own() -> None:
    assert "unlock" in error_of(403, {"message": "Issue is locked"}).hint
    assert "single sign-on" in error_of(403, x_github_sso="required; url=x").hint


@each(
    ("body", "words"),
    [
        ({"message": "Validation Failed", "errors": [{"field": "line"}]}, "Validation Failed: line"),
        ({"message": "Unprocessable", "errors": ["a line is not in the diff"]}, "Unprocessable: a line is not"),
        ({"message": "Unprocessable", "errors": "text"}, "Unprocessable: text"),
        ({"message": "x" * 5_000}, "x" * 300),
        ({"message": "\x1b[31mred"}, "\\x1b[31mred"),
        (b"<html>", ""),
        (b"[" * 50_000, ""),
        ([1], ""),
        ({"errors": 5}, ""),
    ],
)
def test_githubs_own_words_are_told_as_far_as_there_are_any(body: Any, words: str) -> None:
    assert words in error_of(422, body).message
    assert len(error_of(422, body).message) < 600


def test_no_token_is_told() -> None:
    token = "ghp_" + "A1b2" * 9
    assert token not in error_of(422, {"message": f"bad {token}"}).message


@each(
    ("errors", "kind"),
    [
        ([{"type": "FORBIDDEN", "message": "no"}], ForgeRefused),
        ([{"type": "INSUFFICIENT_SCOPES", "message": "no"}], ForgeRefused),
        ([{"type": "NOT_FOUND", "message": "no"}], ForgeRefused),
        ([{"message": "something"}], ForgeError),
        ([], ForgeError),
        ("nonsense", ForgeError),
        ([5], ForgeError),
    ],
)
def test_errors_of_a_query_are_told(errors: Any, kind: type[ForgeError]) -> None:
    assert type(query_failure(errors, DOING)) is kind
