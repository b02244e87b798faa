from __future__ import annotations

from collections.abc import Callable

import pytest

from codeloupe.errors import UsageError
from codeloupe.forges.github.address import (
    Endpoints,
    Target,
    endpoints_of,
    parse_pull_request,
    parse_repository,
    repository_at,
)
from tests.rows import each

PUBLIC = endpoints_of({})


@pytest.mark.parametrize(
    ("environment", "endpoints"),
    [
        ({}, Endpoints("https://api.github.com", "https://api.github.com/graphql", "github.com")),
        (
            {"GITHUB_API_URL": "https://git.example/api/v3/"},
            Endpoints("https://git.example/api/v3", "https://git.example/api/graphql", "git.example"),
        ),
        (
            {"GITHUB_API_URL": "https://api.octo.ghe.com", "GITHUB_GRAPHQL_URL": "https://api.octo.ghe.com/graphql"},
            Endpoints("https://api.octo.ghe.com", "https://api.octo.ghe.com/graphql", "octo.ghe.com"),
        ),
        (
            {"GITHUB_API_URL": "http://127.0.0.1:8080"},
            Endpoints("http://127.0.0.1:8080", "http://127.0.0.1:8080/graphql", "127.0.0.1"),
        ),
        (
            {"GITHUB_API_URL": "http://[::1]:8080"},
            Endpoints("http://[::1]:8080", "http://[::1]:8080/graphql", "::1"),
        ),
    ],
)
def test_where_github_answers(environment: dict[str, str], endpoints: Endpoints) -> None:
    assert endpoints_of(environment) == endpoints


@pytest.mark.parametrize(
    "address",
    [
        "http://api.github.com",
        "http://localhost.evil.example",
        "http://127.0.0.1.evil.example",
        "ftp://api.github.com",
        "api.github.com",
        "https://user:password@api.github.com",
        "https://api.github.com?x=1",
        "https://api.github.com:99999",
        "https://[broken",
        "https://",
    ],
)
@pytest.mark.parametrize("variable", ["GITHUB_API_URL", "GITHUB_GRAPHQL_URL"])
def test_an_address_that_is_not_safe_for_a_token_is_refused(variable: str, address: str) -> None:
    with pytest.raises(UsageError, match=variable):
        endpoints_of({variable: address})


def test_a_token_goes_to_this_github_alone() -> None:
    assert PUBLIC.knows("https://api.github.com/repositories/5/pulls?page=2")
    assert PUBLIC.knows("https://API.github.com:443/x")
    for other in (
        "http://api.github.com/x",
        "https://api.github.com.evil.example/x",
        "https://evil.example/https://api.github.com",
        "https://api.github.com@evil.example/",
        "https://api.github.com:444/x",
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


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "-3",
        "twelve",
        "١٢",
        "octo/demo",
        "octo/demo#",
        "octo/..#12",
        "https://github.com/octo/../pull/12",
        "https://github.com/octo/./pull/12",
        "https://github.com/octo/demo/issues/12",
        "https://github.com/octo/demo/pull/",
        "https://evil.example/octo/demo/pull/12",
        "https://github.com.evil.example/octo/demo/pull/12",
        "javascript://github.com/octo/demo/pull/1",
        "https://[broken/pull/1",
        "9" * 400,
    ],
)
def test_anything_else_is_a_mistake_in_words(text: str) -> None:
    with pytest.raises(UsageError):
        parse_pull_request(text, PUBLIC)


@each("read", [lambda text: parse_pull_request(text, PUBLIC), parse_repository])
def test_a_password_in_a_mistaken_address_is_not_repeated(read: Callable[[str], Target]) -> None:
    with pytest.raises(UsageError) as raised:
        read("https://somebody:hunter2@github.com/octo/demo/issues/1")
    assert "hunter2" not in raised.value.message
    assert "github.com/octo/demo/issues/1" in raised.value.message


@each("text", ["demo", "octo/", "/demo", "a/b/c", "octo/..", "octo/de mo", "octo/%2e"])
def test_a_name_that_no_repository_has_is_a_mistake(text: str) -> None:
    with pytest.raises(UsageError):
        parse_repository(text)


def test_the_origin_of_a_clone_names_the_repository_of_this_github_alone() -> None:
    assert repository_at("github.com/octo/demo", PUBLIC) == Target("octo", "demo")
    assert repository_at("evil.example/octo/demo", PUBLIC) == Target()
    assert repository_at("github.com/octo/demo/more", PUBLIC) == Target()


def test_what_was_said_first_counts_and_a_number_of_another_repository_is_not_taken() -> None:
    event = Target("octo", "demo", 7, "fork:branch", "a" * 40)
    assert Target().completed(event) == event
    assert Target(number=3).completed(event) == Target("octo", "demo", 3, "fork:branch", "a" * 40)
    assert Target("OCTO", "Demo").completed(event).number == 7
    assert Target("octo", "other").completed(event) == Target("octo", "other")


@each("target", [Target(), Target("octo", "demo"), Target(number=3)])
def test_what_is_not_known_is_asked_for(target: Target) -> None:
    with pytest.raises(UsageError, match="is not known"):
        target.check()
