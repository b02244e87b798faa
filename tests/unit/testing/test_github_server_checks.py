"""The GitHub server for tests: check runs, statuses, the tokens of integrations and the App."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import gidgethub.apps
import gidgethub.httpx
import httpx2 as httpx
import jwt
import pytest

from tests.github_server import GitHubServer, github_server
from tests.github_server_client import ask

HEAD = "a" * 40
PATCH = "@@ -1,2 +1,3 @@\n one\n+more\n two"
REPO = "/repos/octo/demo"
RUNS = f"{REPO}/check-runs"


@pytest.fixture
def server() -> Iterator[GitHubServer]:
    with github_server() as running:
        running.repository("octo/demo").pull_request({"a.py": PATCH}, head=HEAD)
        yield running


@pytest.fixture
def actions() -> Iterator[GitHubServer]:
    with github_server(identity="actions") as running:
        running.repository("octo/demo").pull_request({"a.py": PATCH}, head=HEAD)
        yield running


class TestCheckRuns:
    def test_a_person_makes_none(self, server: GitHubServer) -> None:
        reply = ask(server, "POST", RUNS, {"name": "review", "head_sha": HEAD})
        assert (reply.status, reply.message) == (403, "You must authenticate via a GitHub App.")
        assert server.repository("octo/demo").check_runs == []

    def test_a_workflow_makes_changes_and_finds_them(self, actions: GitHubServer) -> None:
        made = ask(actions, "POST", RUNS, {"name": "review", "head_sha": HEAD, "status": "in_progress"}).document
        assert (made["status"], made["conclusion"], made["pull_requests"][0]["number"]) == ("in_progress", None, 1)
        output = {"title": "t", "summary": "s", "annotations": [annotation()]}
        body = {"conclusion": "neutral", "output": output}
        changed = ask(actions, "PATCH", f"{RUNS}/{made['id']}", body).document
        assert (changed["status"], changed["conclusion"], changed["output"]["summary"]) == ("completed", "neutral", "s")
        ask(actions, "PATCH", f"{RUNS}/{made['id']}", {"output": output})
        (run,) = actions.repository("octo/demo").check_runs
        assert (run.conclusion, len(run.annotations)) == ("neutral", 2)
        listed = ask(actions, "GET", f"{REPO}/commits/{HEAD}/check-runs?check_name=review").document
        assert (listed["total_count"], listed["check_runs"][0]["id"]) == (1, made["id"])
        assert ask(actions, "GET", f"{REPO}/commits/{HEAD}/check-runs?check_name=other").document["total_count"] == 0
        assert ask(actions, "GET", f"{RUNS}/{made['id']}").document["name"] == "review"
        assert ask(actions, "GET", f"{RUNS}/99").status == 404

    def test_of_one_name_the_latest_is_listed(self, actions: GitHubServer) -> None:
        ids = [ask(actions, "POST", RUNS, {"name": "review", "head_sha": HEAD}).document["id"] for _ in range(2)]
        address = f"{REPO}/commits/{HEAD}/check-runs"
        assert [each["id"] for each in ask(actions, "GET", address).document["check_runs"]] == ids[1:]
        assert ask(actions, "GET", f"{address}?filter=all").document["total_count"] == 2

    def test_an_unknown_commit_is_refused(self, actions: GitHubServer) -> None:
        reply = ask(actions, "POST", RUNS, {"name": "review", "head_sha": "d" * 40})
        assert (reply.status, reply.message) == (422, f"No commit found for SHA: {'d' * 40}")

    def test_a_completed_one_has_a_conclusion(self, actions: GitHubServer) -> None:
        reply = ask(actions, "POST", RUNS, {"name": "review", "head_sha": HEAD, "status": "completed"})
        (error,) = reply.document["errors"]
        assert (reply.status, error["field"], error["code"]) == (422, "conclusion", "missing_field")
        assert actions.repository("octo/demo").check_runs == []

    def test_the_run_of_another_app_is_not_ours(self, actions: GitHubServer) -> None:
        made = ask(actions, "POST", RUNS, {"name": "review", "head_sha": HEAD}).document["id"]
        headers = {"Authorization": f"token {actions.identities.install()}"}
        assert ask(actions, "PATCH", f"{RUNS}/{made}", {"status": "in_progress"}, headers=headers).status == 403


class TestStatuses:
    def test_the_latest_of_each_context_counts(self, server: GitHubServer) -> None:
        address = f"{REPO}/statuses/{HEAD}"
        for state, context in (("failure", "review"), ("success", "other"), ("success", "review")):
            body = {"state": state, "context": context, "description": "d", "target_url": "https://example.com/x"}
            assert ask(server, "POST", address, body).status == 201
        combined = ask(server, "GET", f"{REPO}/commits/{HEAD}/status").document
        assert (combined["state"], combined["total_count"]) == ("success", 2)
        assert [each["state"] for each in ask(server, "GET", f"{REPO}/commits/{HEAD}/statuses").document] == [
            "success",
            "success",
            "failure",
        ]
        ask(server, "POST", address, {"state": "error"})
        assert ask(server, "GET", f"{REPO}/commits/change-1/status").document["state"] == "failure"
        assert [each.state for each in server.repository("octo/demo").statuses][-1] == "error"

    def test_an_unknown_commit_and_a_long_description_are_refused(self, server: GitHubServer) -> None:
        assert ask(server, "POST", f"{REPO}/statuses/{'d' * 40}", {"state": "success"}).status == 422
        reply = ask(server, "POST", f"{REPO}/statuses/{HEAD}", {"state": "success", "description": "x" * 141})
        assert "maximum is 140 characters" in reply.document["errors"][0]["message"]
        assert ask(server, "GET", f"{REPO}/commits/nothing/status").status == 422


WRITES: list[tuple[str, str, str, Any]] = [
    ("pull_requests", "POST", f"{REPO}/pulls/1/reviews", {"event": "COMMENT", "body": "x"}),
    ("pull_requests", "POST", f"{REPO}/pulls/1/comments", {"commit_id": HEAD, "path": "a.py", "line": 2, "body": "x"}),
    ("statuses", "POST", f"{REPO}/statuses/{HEAD}", {"state": "success"}),
    ("checks", "POST", RUNS, {"name": "review", "head_sha": HEAD}),
]


class TestPeopleWhoMayNot:
    def test_who_may_not_push_sets_no_status(self, server: GitHubServer) -> None:
        server.repository("octo/demo").collaborators[server.login] = "read"
        assert ask(server, "POST", f"{REPO}/statuses/{HEAD}", {"state": "success"}).status == 404

    def test_who_is_no_collaborator_sees_nothing_that_is_private(self, server: GitHubServer) -> None:
        repo = server.repository("octo/demo")
        repo.private = True
        assert ask(server, "GET", REPO).status == 200
        repo.collaborators.clear()
        assert ask(server, "GET", REPO).status == 404


class TestPermissions:
    @pytest.mark.parametrize(("permission", "method", "path", "body"), WRITES)
    def test_what_a_token_may_not_write_is_refused_and_named(
        self, actions: GitHubServer, permission: str, method: str, path: str, body: Any
    ) -> None:
        actions.permissions[permission] = "read"
        reply = ask(actions, method, path, body)
        assert (reply.status, reply.message) == (403, "Resource not accessible by integration")
        assert reply.headers["x-accepted-github-permissions"] == f"{permission}=write"
        actions.permissions[permission] = "write"
        assert ask(actions, method, path, body).status in (200, 201)

    def test_either_of_two_is_enough_for_a_comment_on_the_whole(self, actions: GitHubServer) -> None:
        actions.permissions["issues"] = "read"
        assert ask(actions, "POST", f"{REPO}/issues/1/comments", {"body": "x"}).status == 201
        actions.permissions["pull_requests"] = "read"
        reply = ask(actions, "POST", f"{REPO}/issues/1/comments", {"body": "x"})
        assert reply.status == 403
        assert reply.headers["x-accepted-github-permissions"] == "issues=write; pull_requests=write"


def proof(server: GitHubServer, **claims: Any) -> dict[str, str | None]:
    now = int(time.time())
    payload = {"iat": now - 30, "exp": now + 300, "iss": str(server.app_id), **claims}
    payload = {name: value for name, value in payload.items() if value is not None}
    return {"Authorization": f"Bearer {jwt.encode(payload, server.app_private_key, algorithm='RS256')}"}


TOKENS = "/app/installations/{}/access_tokens"


class TestTheApp:
    def test_it_gets_a_token_that_works_until_it_ends(self, server: GitHubServer) -> None:
        assert ask(server, "GET", "/app", headers=proof(server)).document["id"] == server.app_id
        installation = ask(server, "GET", f"{REPO}/installation", headers=proof(server)).document["id"]
        reply = ask(server, "POST", TOKENS.format(installation), headers=proof(server))
        assert reply.status == 201
        headers = {"Authorization": f"token {reply.document['token']}"}
        made = ask(server, "POST", f"{REPO}/issues/1/comments", {"body": "x"}, headers=headers).document
        assert made["user"]["login"] == "loupe-app[bot]"
        assert ask(server, "POST", RUNS, {"name": "x", "head_sha": HEAD}, headers=headers).status == 201
        assert ask(server, "GET", "/user", headers=headers).status == 403
        server.expire_installation_tokens()
        assert ask(server, "GET", REPO, headers=headers).status == 401

    @pytest.mark.parametrize(
        ("claims", "words"),
        [
            ({"iss": "1"}, "could not be decoded"),
            ({"exp": 1}, "must be a numeric value representing the future"),
            ({"exp": int(time.time()) + 4000}, "too far in the future"),
            ({"exp": None}, "'exp'"),
            ({"iat": None}, "'iat'"),
            ({"iat": int(time.time()) + 4000}, "could not be decoded"),
        ],
    )
    def test_a_wrong_proof_is_refused(self, server: GitHubServer, claims: dict[str, Any], words: str) -> None:
        reply = ask(server, "POST", TOKENS.format(server.installation_id), headers=proof(server, **claims))
        assert reply.status == 401
        assert words in reply.message

    def test_a_proof_without_a_good_signature_is_refused(self, server: GitHubServer) -> None:
        signed = proof(server)["Authorization"] or ""
        forged = jwt.encode({"iss": str(server.app_id)}, "x" * 32, algorithm="HS256")
        for value in (f"{signed[:-8]}AAAAAAAA", f"Bearer {forged}", "Bearer a.b.c"):
            reply = ask(server, "GET", "/app", headers={"Authorization": value})
            assert (reply.status, reply.message) == (401, "A JSON web token could not be decoded")

    def test_a_proof_is_for_the_app_alone_and_a_token_is_not(self, server: GitHubServer) -> None:
        assert ask(server, "GET", REPO, headers=proof(server)).status == 403
        assert ask(server, "POST", "/graphql", {"query": "{ viewer { login } }"}, headers=proof(server)).status == 403
        assert ask(server, "GET", "/app").status == 401
        assert ask(server, "POST", TOKENS.format(server.installation_id)).status == 401
        assert ask(server, "POST", TOKENS.format(9), headers=proof(server)).status == 404

    def test_a_token_may_be_for_one_repository_and_for_less(self, server: GitHubServer) -> None:
        other = server.repository("octo/other")
        body = {"repositories": ["demo"], "permissions": {"issues": "write"}}
        reply = ask(server, "POST", TOKENS.format(server.installation_id), body, headers=proof(server))
        assert [each["full_name"] for each in reply.document["repositories"]] == ["octo/demo"]
        headers = {"Authorization": f"token {reply.document['token']}"}
        assert ask(server, "GET", REPO, headers=headers).status == 200
        assert ask(server, "POST", f"{REPO}/issues/1/comments", {"body": "x"}, headers=headers).status == 201
        assert ask(server, "POST", RUNS, {"name": "x", "head_sha": HEAD}, headers=headers).status == 403
        assert ask(server, "GET", "/repos/octo/other", headers=headers).status == 404
        question = {"query": '{ repository(owner: "octo", name: "other") { name } }'}
        assert ask(server, "POST", "/graphql", question, headers=headers).document["errors"][0]["type"] == "NOT_FOUND"
        other.has_app = False
        for wrong in ({"repositories": ["other"]}, {"repository_ids": [5]}, {"permissions": {"contents": "write"}}):
            assert (
                ask(server, "POST", TOKENS.format(server.installation_id), wrong, headers=proof(server)).status == 422
            )
        assert ask(server, "GET", "/repos/octo/other/installation", headers=proof(server)).status == 404

    def test_it_is_a_bot_in_graphql(self, server: GitHubServer) -> None:
        headers = {"Authorization": f"token {server.identities.install()}"}
        reply = ask(server, "POST", "/graphql", {"query": "{ viewer { login } }"}, headers=headers)
        assert reply.document == {"data": {"viewer": {"login": "loupe-app[bot]"}}}


class TestARealClient:
    def test_gidgethub_pages_posts_and_gets_a_token(self, server: GitHubServer) -> None:
        pull = server.repository("octo/demo").pulls[1]
        for number in range(45):
            pull.comment_by("maria", f"number {number}")
        seen, comment, token = asyncio.run(_with_gidgethub(server))
        assert seen == [f"number {number}" for number in range(45)]
        assert comment["body"] == "from gidgethub"
        assert ask(server, "GET", REPO, headers={"Authorization": f"token {token}"}).status == 200


async def _with_gidgethub(server: GitHubServer) -> tuple[list[str], Any, str]:
    async with httpx.AsyncClient() as client:
        github = gidgethub.httpx.GitHubAPI(client, "test", oauth_token=server.token, base_url=server.url)
        seen = [each["body"] async for each in github.getiter(f"{REPO}/issues/1/comments")]
        comment = await github.post(f"{REPO}/issues/1/comments", data={"body": "from gidgethub"})
        installed = await gidgethub.apps.get_installation_access_token(
            github,
            installation_id=str(server.installation_id),
            app_id=str(server.app_id),
            private_key=server.app_private_key,
        )
    return seen, comment, installed["token"]


def annotation() -> dict[str, Any]:
    return {"path": "a.py", "start_line": 2, "end_line": 2, "annotation_level": "warning", "message": "m"}
