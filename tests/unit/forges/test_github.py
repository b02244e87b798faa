"""Which pull request is meant, and what an answer of GitHub means."""

import asyncio
import json
from typing import Any

import pytest

from codeloupe.errors import ForgeError, ForgeRefused, HeadMoved, UsageError
from codeloupe.forges.forge import MOST_LIMITED, Patience
from codeloupe.forges.github.address import (
    Endpoints,
    Target,
    endpoints_of,
    parse_pull_request,
    parse_repository,
    read_event,
    repository_at,
)
from codeloupe.forges.github.answers import Reply, bad_answer, explained, is_limited, limit_seconds, query_failure
from codeloupe.history import Saved, store_review
from tests.publish_material import FILES, FIRST, SECOND, Desk, Sleeper, event_file, finding, review, write_report
from tests.rows import each

PUBLIC = endpoints_of({})


@each(
    ("given", "graphql", "api", "host"),
    [
        ("", "https://api.github.com/graphql", "https://api.github.com", "github.com"),
        ("https://git.example/api/v3/", "https://git.example/api/graphql", "https://git.example/api/v3", "git.example"),
        ("https://api.octo.ghe.com", "https://api.octo.ghe.com/graphql", "https://api.octo.ghe.com", "octo.ghe.com"),
        ("http://127.0.0.1:80", "http://127.0.0.1:80/graphql", "http://127.0.0.1:80", "127.0.0.1"),
        ("http://[::1]:8080", "http://[::1]:8080/graphql", "http://[::1]:8080", "::1"),
    ],
)
def test_where_github_answers(given: str, graphql: str, api: str, host: str) -> None:
    for named in ("", graphql):
        variables = {"GITHUB_API_URL": given, "GITHUB_GRAPHQL_URL": named}
        assert endpoints_of(variables) == Endpoints(api, graphql, host)


@each(
    "address",
    [
        *("http://api.github.com", "http://localhost.evil.example", "http://127.0.0.1.evil.example"),
        *("ftp://api.github.com", "api.github.com", "https://user:password@api.github.com", "https://"),
        *("https://api.github.com?x=1", "https://api.github.com:99999", "https://api.github.com:0", "https://[broken"),
    ],
)
@each("variable", ["GITHUB_API_URL", "GITHUB_GRAPHQL_URL"])
def test_an_address_that_is_not_safe_for_a_token_is_refused(variable: str, address: str) -> None:
    with pytest.raises(UsageError, match=variable):
        endpoints_of({variable: address})


def test_a_token_goes_to_this_github_alone() -> None:
    assert PUBLIC.knows("https://api.github.com/repositories/5/pulls?page=2")
    assert PUBLIC.knows("https://API.github.com:443/x")
    for other in (
        *("http://api.github.com/x", "https://api.github.com.evil.example/x", "https://api.github.com:444/x"),
        *("https://evil.example/https://api.github.com", "https://api.github.com@evil.example/"),
        "https://api.github.com:99999/x",
    ):
        assert not PUBLIC.knows(other)


@each(
    ("text", "target"),
    [
        ("12", Target(number=12)),
        (" #12 ", Target(number=12)),
        ("octo/demo#12", Target("octo", "demo", 12)),
        ("https://github.com/octo/demo/pull/12", Target("octo", "demo", 12)),
        ("https://github.com/octo/demo.py/pull/12/files?x=1#diff", Target("octo", "demo.py", 12)),
    ],
)
def test_a_pull_request_as_people_name_it(text: str, target: Target) -> None:
    assert parse_pull_request(text, PUBLIC) == target


@each(
    "text",
    [
        *("", "0", "-3", "twelve", "١٢", "octo/demo", "octo/demo#", "octo/demo12", "octo/..#12", "9" * 400),
        *("https://github.com/octo/../pull/12", "https://github.com/octo/./pull/12", "https://[broken/pull/1"),
        *("https://github.com/octo/demo/issues/12", "https://github.com/octo/demo/pull/"),
        *("https://evil.example/octo/demo/pull/12", "https://github.com.evil.example/octo/demo/pull/12"),
        "javascript://github.com/octo/demo/pull/1",
    ],
)
def test_anything_else_is_a_mistake(text: str) -> None:
    with pytest.raises(UsageError):
        parse_pull_request(text, PUBLIC)


@each("text", ["demo", "octo/", "/demo", "a/b/c", "octo/..", "octo/de mo", "octo/%2e"])
def test_a_name_that_no_repository_has_is_a_mistake_and_a_password_in_it_is_not_repeated(text: str) -> None:
    with pytest.raises(UsageError):
        parse_repository(text)
    for read in (lambda text: parse_pull_request(text, PUBLIC), parse_repository):
        with pytest.raises(UsageError) as raised:
            read("https://somebody:hunter2@github.com/octo/demo/issues/1")
        assert "hunter2" not in raised.value.message


def test_the_origin_of_a_clone_names_the_repository_of_this_github_alone() -> None:
    assert repository_at("github.com/octo/demo", PUBLIC) == Target("octo", "demo")
    assert (
        repository_at("evil.example/octo/demo", PUBLIC) == repository_at("github.com/octo/demo/x", PUBLIC) == Target()
    )


def test_what_was_said_first_counts_and_a_number_of_another_repository_is_not_taken() -> None:
    event = Target("octo", "demo", 7, "fork:branch", "a" * 40)
    assert Target().completed(event) == event
    assert Target(number=3).completed(event) == Target("octo", "demo", 3, "fork:branch", "a" * 40)
    assert Target("OCTO", "Demo").completed(event).number == 7
    assert Target("octo", "other").completed(event) == Target("octo", "other")


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
    with pytest.raises(UsageError, match="is not valid JSON"):
        read_event(text)


def reply(status: int, body: Any = None, **headers: str) -> Reply:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, named, body if isinstance(body, bytes) else json.dumps(body or {}).encode())


def error_of(status: int, body: Any = None, **headers: str) -> ForgeError:
    return explained(bad_answer(reply(status, body, **headers)), "post comments", "pull-requests: write")


@each(
    ("status", "kind", "code", "words"),
    [
        (401, ForgeRefused, 2, "rejected the token"),
        (403, ForgeRefused, 2, "the token is not allowed to post comments"),
        (404, ForgeRefused, 2, "does not exist, or the token cannot see it"),
        (410, ForgeRefused, 2, "it does not exist"),
        (301, ForgeError, 3, "redirected the request"),
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


def test_a_missing_right_is_named_by_us_or_by_github_and_a_lock_and_a_sign_on_have_hints_of_their_own() -> None:
    assert "pull-requests: write" in error_of(403, {"message": "Resource not accessible by integration"}).hint
    named = error_of(403, x_accepted_github_permissions="issues=write; pull_requests=write")
    assert "issues: write or pull-requests: write" in named.hint
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
def test_githubs_own_words_are_told_as_far_as_there_are_any_and_no_token_is_repeated(body: Any, words: str) -> None:
    assert words in error_of(422, body).message
    assert len(error_of(422, body).message) < 600
    token = "ghp_" + "A1b2" * 9
    assert token not in error_of(422, {"message": f"bad {token}"}).message


@each(
    ("errors", "status"),
    [
        ([{"type": "FORBIDDEN", "message": "no"}], 403),
        ([{"type": "INSUFFICIENT_SCOPES", "message": "no"}], 403),
        ([{"type": "NOT_FOUND", "message": "no"}], 404),
        ([{"message": "something"}], 200),
        ("nonsense", 200),
        ([5], 200),
        (5, 200),
        ([], None),
        (None, None),
    ],
)
def test_what_graphql_says_beside_data_is_a_failure(errors: Any, status: int | None) -> None:
    failure = query_failure(errors)
    assert (None if failure is None else failure.status) == status


NOW = 1_000_000.0
SECONDARY = reply(403, {"message": "You have exceeded a secondary rate limit. Please wait."})


@each(
    ("answer", "limited"),
    [
        (reply(429), True),
        (SECONDARY, True),
        (reply(403, {"message": "API rate limit exceeded for user"}), True),
        (reply(403, retry_after="5"), True),
        (reply(403, x_ratelimit_remaining="0"), True),
        (reply(403, {"message": "Resource not accessible by integration"}, x_ratelimit_remaining="12"), False),
        (reply(200, {"errors": [{"type": "RATE_LIMITED", "message": "wait"}]}), True),
        (reply(200, {"data": None, "errors": [{"type": "RATE_LIMIT"}]}), True),
        (reply(200, {"data": {"body": '"RATE_LIMITED" is what it says'}}), False),
        (Reply(200, {}, b'"RATE_LIMITED"'), False),
        (Reply(200, {}, b'{"RATE_LIMIT'), False),
        (reply(422, {"message": "Validation Failed", "errors": [{"message": "was submitted too quickly"}]}), True),
        (reply(422, {"message": "Validation Failed"}), False),
        (reply(401), False),
        (reply(502), False),
    ],
)
def test_a_limit_is_told_from_a_refusal(answer: Reply, *, limited: bool) -> None:
    assert is_limited(answer) is limited


@each(
    ("answer", "times", "seconds"),
    [
        (reply(429, retry_after="7"), 1, 7.0),
        (reply(403, retry_after="0"), 1, 0.0),
        (reply(429, retry_after="nonsense"), 1, 60.0),
        (reply(403, x_ratelimit_remaining="0", x_ratelimit_reset="1000030"), 1, 31.0),
        (reply(403, x_ratelimit_remaining="0", x_ratelimit_reset="5"), 1, 1.0),
        (reply(403, x_ratelimit_remaining="3", x_ratelimit_reset="1000030"), 1, 60.0),
        (SECONDARY, 1, 60.0),
        (SECONDARY, 3, 240.0),
    ],
)
def test_how_long_to_wait(answer: Reply, times: int, seconds: float) -> None:
    assert limit_seconds(answer, times=times, now=NOW) == seconds


def test_a_wait_that_is_too_long_or_a_limit_that_never_ends_is_given_up() -> None:
    sleeper = Sleeper()
    patience = Patience(most_seconds=100.0, sleep=sleeper, clock=lambda: NOW)
    asyncio.run(patience.after_limit(60.0, times=1, whose="GitHub", status=429))
    with pytest.raises(ForgeError, match="retry in 1 min 0 s") as raised:
        asyncio.run(patience.after_limit(60.0, times=2, whose="GitHub", status=429))
    assert (raised.value.exit_code, sleeper) == (3, [60.0])
    with pytest.raises(ForgeError, match="rate limit"):
        asyncio.run(patience.after_limit(0.0, times=MOST_LIMITED, whose="GitHub", status=429))


def test_pauses_after_failures_double() -> None:
    sleeper = Sleeper()
    for attempt in (1, 2, 3):
        asyncio.run(Patience(sleep=sleeper).after_failure(attempt))
    assert all(0.5 * base <= slept <= 1.5 * base for base, slept in zip((1, 2, 4), sleeper, strict=True))


FORK = {**RUN, "head_branch": "change-1", "head_sha": FIRST, "head_repository": {"owner": {"login": "author"}}}


def named_by(desk: Desk, *, environment: dict[str, str] | None = None, event: Any = None, **words: str) -> str:
    """The pull request that a review is posted on."""
    variables = dict(environment or {})
    if event is not None:
        whole = {**event, "repository": {"full_name": "octo/demo"}}
        variables["GITHUB_EVENT_PATH"] = str(event_file(desk.directory / "event", **whole))
    request: dict[str, Any] = {"pull_request": "", **words}
    return str(desk.publish(review(finding(4)), environment=variables, **request).plan.pull_request.name)


@pytest.mark.program
class TestWhich:
    def test_the_pull_request_is_named_by_words_variables_or_the_event(self, desk: Desk) -> None:
        demo, other = {"GITHUB_REPOSITORY": "octo/demo"}, {"GITHUB_REPOSITORY": "octo/other"}
        assert named_by(desk, event={"pull_request": {"number": 1}}) == "octo/demo#1"
        assert named_by(desk, pull_request="1", environment=demo) == "octo/demo#1"
        assert named_by(desk, pull_request="1", repository="octo/demo", environment=other) == "octo/demo#1"
        assert named_by(desk, pull_request="Octo/Demo#1", repository="octo/demo") == "octo/demo#1"
        nothing = {"GITHUB_EVENT_PATH": str(desk.directory / "nothing")}
        wrong: list[tuple[str, dict[str, Any]]] = [
            ("different repositories", {"pull_request": "octo/other#1", "repository": "octo/demo"}),
            ("event file", {"environment": nothing}),
        ]
        for words, request in wrong:
            with pytest.raises(UsageError, match=words):
                named_by(desk, **request)

    def test_a_workflow_that_follows_one_of_a_fork_finds_it_by_its_branch(self, desk: Desk) -> None:
        desk.repo.pull_request(FILES, head=FIRST, number=7, head_repository="author/demo")
        assert named_by(desk, event={"workflow_run": {**FORK, "head_branch": "change-7"}}) == "octo/demo#7"
        before = len(desk.server.requests)
        with pytest.raises(UsageError, match="a commit other than 222222222222"):
            named_by(desk, pull_request="1", event={"workflow_run": {**FORK, "head_sha": SECOND}})
        assert len(desk.server.requests) == before
        with pytest.raises(HeadMoved, match="no open pull request of author:change-1 is at 111111111111"):
            named_by(desk, event={"workflow_run": FORK})

    def test_the_review_is_the_last_one_one_by_its_id_or_one_in_a_file(self, desk: Desk) -> None:
        for review_id in ("aaaa1111", "bbbb2222"):
            asyncio.run(store_review(review(finding(4), review_id=review_id), Saved(repo=desk.directory)))
        report = write_report(desk.directory / "report", review(finding(4), review_id="from-a-file"))
        for word, review_id in {"last": "bbbb2222", "aaaa": "aaaa1111", str(report): "from-a-file"}.items():
            assert desk.publish(review(), review=word).plan.review.review_id == review_id
        before = len(desk.server.requests)
        for word in ("nothing.json", "dead", "no-such-thing"):
            with pytest.raises(UsageError):
                desk.publish(review(), review=word)
        assert len(desk.server.requests) == before
