"""The GitHub server for tests: who may ask, what a request must have, pages, faults, and its end."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator

import pytest

from tests.endings import FAR_TOO_LONG_SECONDS, ends_soon
from tests.github_server import GitHubServer, github_server
from tests.github_server_client import ask

HEAD, NEXT = "a" * 40, "c" * 40
PATCH = "@@ -1,3 +1,4 @@\n one\n-two\n+2\n+two and a half\n three"
REPO = "/repos/octo/demo"
COMMENTS = f"{REPO}/issues/1/comments"


@pytest.fixture
def server() -> Iterator[GitHubServer]:
    with github_server() as running:
        running.repository("octo/demo").pull_request({"a.py": PATCH}, head=HEAD)
        yield running


@pytest.fixture
def lenient() -> Iterator[GitHubServer]:
    """One that a test may ask wrongly."""
    with github_server(strict=False) as running:
        running.repository("octo/demo").pull_request({"a.py": PATCH}, head=HEAD)
        yield running


class TestWhoAsks:
    @pytest.mark.parametrize("scheme", ["token", "Bearer", "bearer"])
    def test_a_good_token_is_known(self, server: GitHubServer, scheme: str) -> None:
        reply = ask(server, "GET", "/user", headers={"Authorization": f"{scheme} {server.token}"})
        assert (reply.status, reply.document["login"]) == (200, server.login)

    @pytest.mark.parametrize(
        ("value", "message"),
        [
            (None, "Requires authentication"),
            ("Bearer", "Requires authentication"),
            ("Bearer wrong", "Bad credentials"),
            ("Basic abc", "Bad credentials"),
        ],
    )
    def test_a_wrong_or_missing_token_is_401(self, server: GitHubServer, value: str | None, message: str) -> None:
        for method, path in (("GET", REPO), ("POST", "/graphql")):
            reply = ask(server, method, path, headers={"Authorization": value})
            assert (reply.status, reply.message) == (401, message)

    def test_a_token_is_another_one_each_time_and_is_no_constant(self, server: GitHubServer) -> None:
        with github_server() as other:
            assert other.token != server.token
            assert ask(other, "GET", "/user", headers={"Authorization": f"token {server.token}"}).status == 401

    def test_the_token_of_a_workflow_may_not_ask_who_it_is(self) -> None:
        with github_server(identity="actions") as actions:
            reply = ask(actions, "GET", "/user")
        assert (reply.status, reply.message) == (403, "Resource not accessible by integration")
        assert actions.login == "github-actions[bot]"


class TestHeaders:
    def test_without_a_user_agent_everything_is_refused(self, lenient: GitHubServer) -> None:
        reply = ask(lenient, "GET", REPO, headers={"User-Agent": None})
        assert (reply.status, "User-Agent" in reply.text) == (403, True)
        assert lenient.problems == (f"GET {REPO}: no User-Agent",)

    @pytest.mark.parametrize("accept", [None, "*/*"])
    def test_a_missing_accept_is_answered_and_found(self, lenient: GitHubServer, accept: str | None) -> None:
        assert ask(lenient, "GET", REPO, headers={"Accept": accept}).status == 200
        assert len(lenient.problems) == 1
        assert "Accept" in lenient.problems[0]

    def test_a_wrong_accept_is_refused(self, lenient: GitHubServer) -> None:
        assert ask(lenient, "GET", REPO, headers={"Accept": "text/html"}).status == 415
        assert (
            ask(lenient, "GET", f"{REPO}/pulls/1/files", headers={"Accept": "application/vnd.github.diff"}).status
            == 415
        )
        assert len(lenient.problems) == 2

    @pytest.mark.parametrize(
        "accept", ["application/vnd.github.v3+json", "application/json", "text/x, application/json"]
    )
    def test_other_media_types_of_github_are_good(self, server: GitHubServer, accept: str) -> None:
        assert ask(server, "GET", REPO, headers={"Accept": accept}).status == 200

    @pytest.mark.parametrize("version", [None, "2022-11-28", "2026-03-10"])
    def test_a_known_version_or_none_is_good(self, server: GitHubServer, version: str | None) -> None:
        assert ask(server, "GET", REPO, headers={"X-GitHub-Api-Version": version}).status == 200

    def test_an_unknown_version_is_refused(self, lenient: GitHubServer) -> None:
        assert ask(lenient, "GET", REPO, headers={"X-GitHub-Api-Version": "2021-01-01"}).status == 400
        assert "'2021-01-01' is no known X-GitHub-Api-Version" in lenient.problems[0]


class TestProblems:
    def test_they_fail_a_test_at_its_end(self) -> None:
        with (
            pytest.raises(AssertionError, match=r"GET /nonsense: GitHub's description has no such path"),
            github_server() as it,
        ):
            assert ask(it, "GET", "/nonsense").status == 404

    def test_they_are_told_beside_a_failure_that_came_first(self) -> None:
        with pytest.raises(ZeroDivisionError) as caught:
            _ask_nonsense_and_fail()
        assert caught.value.__notes__ == [
            "the GitHub server: GET /nonsense: GitHub's description has no such path or method"
        ]

    def test_what_github_has_and_the_server_has_not_is_said_so(self, lenient: GitHubServer) -> None:
        assert ask(lenient, "GET", "/emojis").status == 501
        assert "add a handler" in lenient.problems[0]

    def test_a_refusal_is_no_problem(self, server: GitHubServer) -> None:
        assert ask(server, "GET", "/repos/octo/nothing").status == 404
        assert ask(server, "GET", f"{REPO}/pulls/99").status == 404
        assert server.problems == ()


class TestRecords:
    def test_every_request_is_kept(self, server: GitHubServer) -> None:
        ask(server, "POST", COMMENTS, {"body": "words"})
        ask(server, "GET", f"{COMMENTS}?per_page=5")
        first, second = server.requests
        assert (first.method, first.path, first.body, first.status) == ("POST", COMMENTS, {"body": "words"}, 201)
        assert (second.query, second.body, second.status) == ({"per_page": "5"}, None, 200)
        assert first.headers["user-agent"] == "test"
        assert first.at_seconds <= second.at_seconds
        assert server.count("POST", "/repos/**/comments") == 1
        assert server.count("*", "/repos/*/*/issues/*/comments") == 2
        assert server.count("*", "/repos/*/comments") == 0


class TestPages:
    def test_a_list_comes_in_pages_of_thirty_with_links(self, server: GitHubServer) -> None:
        pull = server.repository("octo/demo").pulls[1]
        made = [pull.comment_by("someone", f"number {index}").id for index in range(65)]
        seen, target, links = [], COMMENTS, []
        while target:
            reply = ask(server, "GET", target)
            seen.append([each["id"] for each in reply.document])
            links.append(set(reply.links))
            target = reply.links.get("next", "")
        assert [len(page) for page in seen] == [30, 30, 5]
        assert [each for page in seen for each in page] == made
        assert links == [{"next", "last"}, {"prev", "first", "next", "last"}, {"prev", "first"}]

    def test_a_link_names_the_repository_by_its_number_and_keeps_the_query(self, server: GitHubServer) -> None:
        repo = server.repository("octo/demo")
        for index in range(3):
            repo.pulls[1].comment_by("someone", f"number {index}")
        reply = ask(server, "GET", f"{COMMENTS}?per_page=2")
        assert reply.links["next"] == f"{server.url}/repositories/{repo.id}/issues/1/comments?per_page=2&page=2"

    def test_a_page_beyond_the_last_is_empty(self, server: GitHubServer) -> None:
        reply = ask(server, "GET", f"{COMMENTS}?page=9")
        assert (reply.status, reply.document) == (200, [])

    def test_a_short_list_has_no_links(self, server: GitHubServer) -> None:
        assert "link" not in ask(server, "GET", COMMENTS).headers

    @pytest.mark.parametrize("size", ["101", "0", "many", "-1"])
    def test_a_wrong_size_is_found(self, lenient: GitHubServer, size: str) -> None:
        assert ask(lenient, "GET", f"{COMMENTS}?per_page={size}").status == 200
        assert "per_page" in lenient.problems[0]


class TestFaults:
    def test_one_answer_is_replaced_and_nothing_is_done(self, server: GitHubServer) -> None:
        server.fail(
            "POST", "/repos/*/*/issues/*/comments", status=500, headers={"X-Extra": "1"}, body={"message": "no"}
        )
        reply = ask(server, "POST", COMMENTS, {"body": "words"})
        assert (reply.status, reply.message, reply.headers["x-extra"]) == (500, "no", "1")
        assert server.repository("octo/demo").pulls[1].issue_comments == []
        assert ask(server, "POST", COMMENTS, {"body": "words"}).status == 201

    def test_after_the_work_is_done_the_answer_is_lost(self, server: GitHubServer) -> None:
        server.bad_gateway("POST", COMMENTS, after=True)
        reply = ask(server, "POST", COMMENTS, {"body": "words"})
        assert (reply.status, reply.headers["content-type"].partition(";")[0]) == (502, "text/html")
        assert [each.body for each in server.repository("octo/demo").pulls[1].issue_comments] == ["words"]

    @pytest.mark.parametrize(("after", "made"), [(False, 0), (True, 1)])
    def test_a_cut_line_has_no_answer(self, server: GitHubServer, after: bool, made: int) -> None:
        server.cut_connection("POST", COMMENTS, after=after)
        with pytest.raises(http.client.RemoteDisconnected):
            ask(server, "POST", COMMENTS, {"body": "words"})
        assert len(server.repository("octo/demo").pulls[1].issue_comments) == made
        assert server.requests[-1].status is None

    @pytest.mark.parametrize("status", [403, 429])
    @pytest.mark.parametrize("retry_after", [None, 3])
    def test_a_secondary_limit_has_githubs_words(
        self, server: GitHubServer, status: int, retry_after: int | None
    ) -> None:
        server.secondary_rate_limit("GET", REPO, status=status, retry_after=retry_after, times=2)
        for _ in range(2):
            reply = ask(server, "GET", REPO)
            assert reply.status == status
            assert reply.message.startswith("You have exceeded a secondary rate limit")
            assert reply.headers.get("retry-after") == (None if retry_after is None else "3")
            assert reply.headers["x-ratelimit-remaining"] != "0"
        assert ask(server, "GET", REPO).status == 200

    def test_the_primary_limit_says_when_it_ends(self, server: GitHubServer) -> None:
        before = time.time()
        server.primary_rate_limit("GET", REPO, reset_in_seconds=30)
        reply = ask(server, "GET", REPO)
        assert (reply.status, reply.headers["x-ratelimit-remaining"]) == (403, "0")
        assert before + 29 <= int(reply.headers["x-ratelimit-reset"]) <= time.time() + 31
        assert "retry-after" not in reply.headers

    def test_the_limit_of_graphql_comes_with_a_200(self, server: GitHubServer) -> None:
        server.graphql_rate_limit(contains="viewer")
        body = {"query": "{ viewer { login } }"}
        reply = ask(server, "POST", "/graphql", body)
        assert (reply.status, reply.document["errors"][0]["type"]) == (200, "RATE_LIMIT")
        assert ask(server, "POST", "/graphql", body).document == {"data": {"viewer": {"login": server.login}}}

    @pytest.mark.parametrize("after", [False, True])
    def test_a_slow_answer_is_right_and_late(self, server: GitHubServer, after: bool) -> None:
        server.fail("GET", REPO, delay_seconds=0.2, after=after)
        began = time.monotonic()
        assert ask(server, "GET", REPO).status == 200
        assert time.monotonic() - began >= 0.2

    def test_only_what_fits_fails(self, server: GitHubServer) -> None:
        server.fail("POST", "/graphql", status=502, contains="resolveReviewThread")
        server.fail("GET", "/user", status=502)
        assert ask(server, "POST", "/graphql", {"query": "{ viewer { login } }"}).status == 200
        assert ask(server, "GET", REPO).status == 200
        assert ask(server, "GET", "/user").status == 502
        assert [fault.contains for fault in server.unmet_faults] == ["resolveReviewThread"]

    def test_it_can_be_healed(self, server: GitHubServer) -> None:
        server.fail("GET", "/**", status=502, times=99)
        server.before("GET", "/user", lambda: 1 // 0)
        assert ask(server, "GET", REPO).status == 502
        server.heal()
        assert (ask(server, "GET", REPO).status, ask(server, "GET", "/user").status) == (200, 200)

    def test_a_fault_on_the_way_does_not_hold_up_others(self) -> None:
        with github_server() as it:
            it.repository("octo/demo")
            it.slow_answer("GET", REPO, FAR_TOO_LONG_SECONDS)
            slow = threading.Thread(target=_ask_in_vain, args=(it,))
            slow.start()
            while not it.requests:
                time.sleep(0.005)
            with ends_soon():
                assert ask(it, "GET", "/user").status == 200
            assert it.max_concurrent == 2
        slow.join()

    def test_an_action_of_the_test_runs_once_before_a_request(self, server: GitHubServer) -> None:
        pull = server.repository("octo/demo").pulls[1]
        server.before("GET", f"{REPO}/pulls/1", lambda: pull.push(NEXT, {"a.py": PATCH}))
        assert ask(server, "GET", COMMENTS).status == 200
        assert pull.head == HEAD
        heads = [ask(server, "GET", f"{REPO}/pulls/1").document["head"]["sha"] for _ in range(2)]
        assert heads == [NEXT, NEXT]


class TestItsEnd:
    def test_it_ends_while_an_answer_hangs(self) -> None:
        with ends_soon(), github_server() as it:
            it.repository("octo/demo")
            it.slow_answer("GET", REPO, FAR_TOO_LONG_SECONDS)
            asking = threading.Thread(target=_ask_in_vain, args=(it,))
            asking.start()
            while not it.requests:
                time.sleep(0.005)
        asking.join()
        with pytest.raises(ConnectionRefusedError):
            ask(it, "GET", REPO)

    def test_what_an_action_raises_is_raised_at_the_end(self) -> None:
        with pytest.raises(ZeroDivisionError):
            _fail_in_an_action()


def _ask_nonsense_and_fail() -> None:
    with github_server() as it:
        ask(it, "GET", "/nonsense")
        raise ZeroDivisionError


def _fail_in_an_action() -> None:
    with github_server() as it:
        it.before("GET", "/user", lambda: 1 // 0)
        with pytest.raises(http.client.RemoteDisconnected):
            ask(it, "GET", "/user")


def _ask_in_vain(server: GitHubServer) -> None:
    with pytest.raises((ConnectionError, http.client.RemoteDisconnected)):
        ask(server, "GET", REPO)
