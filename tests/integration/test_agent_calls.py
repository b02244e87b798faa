"""What an agent call may cost, how long it may take, and whose answer it gives: through the front door."""

import asyncio
import json
import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import codeloupe as codeloupe_library
from codeloupe.testing import Hang, Json, StandInServer, Status, Text, ToolUse
from tests.agent_programs import KEY, agents_at
from tests.program import Ended
from tests.repository import GitRepository
from tests.warm_program import codeloupe

REVIEW = ("review", "main...HEAD", "--reviewer", "api", "--format", "json", "--no-verify")


@pytest.fixture
def project(repository: GitRepository) -> GitRepository:
    repository.commit_files({"README.md": "a shop\n"})
    text = "def average(prices):\n    return sum(prices) / len(prices)\n"
    repository.commit_files({"average.py": text}, branch="change")
    return repository


def run(server: StandInServer, project: Path, *words: str, more: Mapping[str, str] | None = None) -> Ended:
    """The program, with the api agent and the stand-in as its service."""
    variables = agents_at(server, "api") | {"CODELOUPE_KEEP_HISTORY": "false"} | dict(more or {})
    return codeloupe(*words, cwd=project, environment=variables)


def programs(server: StandInServer) -> dict[str, str]:
    """What the agents that are programs need beside that."""
    return agents_at(server, "claude_cli", "codex", "gemini") | {"CODELOUPE_ALLOW_BYPASS": "true"}


@pytest.mark.defect("L2")
def test_the_library_asks_the_model_of_the_settings(tmp_path: Path) -> None:
    with StandInServer([Text("Hello.")]) as server:
        settings = codeloupe_library.Settings(
            agents=("api",), api_model="stand-in", api_base_url=f"{server.url}/v1", model="another"
        )
        request = codeloupe_library.AgentRequest(prompt="Say hello.", working_dir=tmp_path)
        asyncio.run(codeloupe_library.run_agent(request, settings=settings))
    assert [sent.body["model"] for sent in server.requests] == ["another"]


@pytest.mark.defect("T16")
def test_an_answer_about_an_untrusted_change_is_not_taken_for_a_trusted_one_nor_the_other_way_round(
    project: GitRepository,
) -> None:
    for order in (("--untrusted", ""), ("", "--untrusted")):
        with StandInServer([Json({"findings": []})]) as server:
            calls = []
            # The third is the first one again, which costs nothing.
            for trust in (*order, order[0]):
                assert run(server, project.path, *REVIEW, *filter(None, (trust,))).exit_code == 0
                calls.append(server.count(auxiliary=False))
        assert calls == [1, 2, 2], order


@pytest.mark.defect("V8")
def test_an_answer_of_one_service_is_not_taken_for_that_of_another(project: GitRepository) -> None:
    for words in (REVIEW, ("agent", "run", "--agent", "api", "-q", "Say hello.")):
        with StandInServer([Json({"findings": []})]) as first, StandInServer([Json({"findings": []})]) as second:
            for server in (first, second, first, second):
                assert run(server, project.path, *words).exit_code == 0
            assert (first.count(auxiliary=False), second.count(auxiliary=False)) == (1, 1), words


@pytest.mark.defect("L5")
def test_a_quota_that_opens_after_the_time_limit_ends_the_call_at_once_and_tells_when(project: GitRepository) -> None:
    asking = ("agent", "run", "--agent", "api", "Say hello.")
    reviewing = ("review", "main...HEAD", "--reviewer", "api", "--no-verify")
    # The time limit, and the wait that the service asks for. One that was begun would not end in the time of this test.
    for words, limit, retry_after in ((asking, "600", 3600), (asking, "1000", 1010), (reviewing, "600", 3600)):
        with StandInServer([Status(429, retry_after=retry_after)]) as server:
            ended = run(server, project.path, *words, "--wait-for-quota", "--timeout", limit)
            assert server.count(auxiliary=False) == 1, (words, limit)
        assert ended.exit_code == 3, ended.stderr
        assert "429" in ended.stdout + ended.stderr
        assert "opens again at" in " ".join((ended.stdout + ended.stderr).split())


@pytest.mark.defect("L7")
def test_an_answer_from_the_ledger_costs_nothing_and_tells_what_it_cost_once(project: GitRepository) -> None:
    words = ("agent", "run", "--agent", "api", "--json", "Say hello.")
    model = {"CODELOUPE_API_MODEL": "anthropic:claude-haiku-4-5"}
    with StandInServer([Text("Hello.")]) as server:
        bought, again = (run(server, project.path, *words, more=model).json() for _ in range(2))
        assert server.count(auxiliary=False) == 1
    assert bought["total_cost_usd"] > 0
    assert (bought["from_ledger"], bought["original_cost_usd"]) == (False, None)
    assert (again["from_ledger"], again["total_cost_usd"]) == (True, 0.0)
    assert again["original_cost_usd"] == bought["total_cost_usd"]


@pytest.mark.defect("L7")
def test_the_client_of_google_says_nothing_about_two_keys(project: GitRepository) -> None:
    program = (
        "import asyncio, codeloupe; from pathlib import Path\n"
        "settings = codeloupe.Settings(agents=('api',), api_model='google:gemini-stand-in')\n"
        "request = codeloupe.AgentRequest(prompt='Say hello.', working_dir=Path())\n"
        "print(asyncio.run(codeloupe.run_agent(request, settings=settings)).output)\n"
    )
    with StandInServer([Text("Hello.")]) as server:
        variables = {"GEMINI_API_KEY": KEY, "GOOGLE_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": server.url}
        command, own = (sys.executable, "-c", program), {**os.environ, **variables}
        ended = subprocess.run(command, cwd=project.path, env=own, capture_output=True, text=True, check=True)
    assert (ended.stdout, ended.stderr) == ("Hello.\n", "")


@pytest.mark.defect("V3")
def test_answers_that_cannot_be_read_end_a_review_after_three_of_them_in_a_row(repository: GitRepository) -> None:
    repository.commit_files({"README.md": "a shop\n"})
    # Each is as large as a unit may be.
    texts = ["".join(f"value_{line} = {line} + {number}\n" for line in range(3000)) for number in range(15)]
    repository.commit_files({f"module_{number}.py": text for number, text in enumerate(texts)}, branch="change")
    # Each unit costs two calls: the three that fail, and those that run beside the third.
    for concurrency, most in ((1, 6), (5, 14)):
        with StandInServer([Text("Lorem ipsum dolor sit amet.")]) as server:
            settings = {"CODELOUPE_CONCURRENCY": str(concurrency)}
            ended = run(server, repository.path, *REVIEW, more=settings)
            calls = server.count(auxiliary=False)
        document = ended.json()
        assert (ended.exit_code, document["passed"]) == (3, False), ended.stderr
        assert document["coverage"]["units_total"] >= 15
        assert calls <= most, concurrency
        assert ended.stderr.count("3 calls in a row failed") == 1
        assert sum("in a row failed" in error["message"] for error in document["errors"]) == 1


@pytest.mark.defect("V8")
def test_the_log_has_the_stack_trace_of_a_failed_call_and_the_report_tells_what_is_known_at_a_timeout(
    project: GitRepository, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    caplog.set_level(logging.INFO, logger="codeloupe")
    by_api = codeloupe_library.Settings(reviewer_type="api", api_model="anthropic:claude-stand-in")
    by_sdk = codeloupe_library.Settings(reviewer_type="agent_sdk")
    reviewer = codeloupe_library.make_reviewer(by_api, repo=project.path, log_directory=tmp_path / "logs")
    through_sdk = codeloupe_library.make_reviewer(by_sdk, repo=project.path, log_directory=tmp_path / "logs")
    for kind, reply in ((through_sdk, Status(400)), (reviewer, Status(400)), (reviewer, Status(401))):
        caplog.clear()
        with StandInServer([reply]) as server:
            monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
            result = asyncio.run(kind("main..HEAD", timeout=120))
        assert (result.passed, result.fatal_error) == (False, False)
        assert str(reply.code) in (result.parse_error or ""), kind
        traced = [record.levelno for record in caplog.records if record.exc_info]
        assert traced == [logging.ERROR], (kind, reply)
    with StandInServer([Hang()]) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        result = asyncio.run(reviewer("main..HEAD", timeout=3))
    assert (result.passed, result.parse_error) == (False, "timeout")
    assert result.review_log_path is not None
    document = json.loads(result.review_log_path.read_text(encoding="utf-8"))
    assert (document["passed"], document["verdict"]) == (False, "INCOMPLETE")
    assert document["errors"][0]["message"] == "timeout"


@pytest.mark.defect("V8")
@pytest.mark.parametrize(
    "answers",
    [
        {"claude_cli": "claude", "codex": "gpt", "api": "claude"},
        pytest.param({"agent_sdk": "claude", "gemini": "gemini"}, marks=pytest.mark.soak),
    ],
)
def test_the_report_names_the_model_that_answered_and_no_priority_twice(
    project: GitRepository, answers: dict[str, str]
) -> None:
    place = {"file": "average.py", "line": 2, "quote": "    return sum(prices) / len(prices)", "category": "x"}
    said = {"title": "[P2] [P2] Division by zero", "body": "It fails for an empty list.", "severity": "medium"}
    for agent, family in answers.items():
        with StandInServer([Json({"findings": [{**place, **said}]})]) as server:
            words = ("review", "main...HEAD", "--reviewer", agent, "--format", "json", "--no-verify")
            ended = run(server, project.path, *words, more=programs(server))
        document = ended.json()
        assert ended.exit_code == 0, ended.stderr
        assert family in (document["reviewer"]["model"] or ""), agent
        assert [finding["title"] for finding in document["findings"]] == ["Division by zero"], agent


@pytest.mark.defect("P4")
@pytest.mark.parametrize(
    "agents", [("claude_cli", "codex"), pytest.param(("agent_sdk", "gemini"), marks=pytest.mark.soak)]
)
def test_a_session_goes_on_or_forks_with_every_agent_that_has_sessions(
    project: GitRepository, agents: tuple[str, ...]
) -> None:
    for agent in agents:
        with StandInServer([Text("The word is kumquat.")]) as server:

            def ask(*words: str, agent: str = agent, server: StandInServer = server) -> dict[str, Any]:
                server.clear()
                asking = ("agent", "run", "--agent", agent, "--json", *words)
                ended = run(server, project.path, *asking, more=programs(server))
                assert ended.exit_code == 0, (agent, ended.stderr)
                document: dict[str, Any] = ended.json()
                return document

            first = ask("--keep-session", "Name the word of the day.")["session_id"]
            for words in (("--resume", first), ("--resume", first, "--fork")):
                again = ask(*words, "Say it again.")
                heard = [request for request in server.requests if not request.auxiliary]
                assert any(request.mentions("Name the word of the day.") for request in heard), (agent, words)
                assert (again["session_id"] == first) is ("--fork" not in words), (agent, words)
            unknown = "9f1b1c1e-1111-4111-8111-111111111111"
            server.clear()
            asking = ("agent", "run", "--agent", agent, "--resume", unknown, "Say it again.")
            assert run(server, project.path, *asking, more=programs(server)).exit_code == 2, agent
            assert server.count(auxiliary=False) == 0


@pytest.mark.defect("P4")
def test_what_an_agent_cannot_do_is_an_error_before_anything_is_sent(project: GitRepository) -> None:
    wishes = {
        "api": (
            *("--max-turns 2", "--max-budget-usd 1", "--resume x", "--resume x --fork", "--tools Read"),
            *("--permission-mode acceptEdits", "--permission-mode bypassPermissions", "--fallback-model other"),
        ),
        "codex": ("--max-turns 2", "--max-budget-usd 1", "--resume last", "--tools Read", "--fallback-model other"),
        "gemini": (
            *("--max-budget-usd 1", "--resume latest", "--tools Read", "--tools write_file", "--fork"),
            "--fallback-model other",
        ),
        "claude_cli": ("--fork",),
    }
    with StandInServer([Text("Never.")]) as server:
        for agent, refused in wishes.items():
            for wish in refused:
                asking = ("agent", "run", "--agent", agent, *wish.split(), "Say hello.")
                ended = run(server, project.path, *asking, more=programs(server))
                assert (ended.exit_code, ended.stdout) == (2, ""), (agent, wish, ended.stderr)
        assert server.requests == ()


@pytest.mark.defect("L6")
def test_gemini_that_bypasses_permissions_runs_commands_or_tells_which_it_denied(project: GitRepository) -> None:
    commands = ("echo written > new.txt", "git log --oneline", "rm -rf README.md", "echo $(date)", 'echo "never closed')
    replies = [ToolUse("run_shell_command", {"command": command, "description": "x"}) for command in commands]
    with StandInServer([*replies, Text("Done.")]) as server:
        asking = ("agent", "run", "--agent", "gemini", "--permission-mode", "bypassPermissions", "--json", "Work.")
        document = run(server, project.path, *asking, more=programs(server)).json()
    assert (project.path / "new.txt").exists()
    assert (project.path / "new.txt").read_text() == "written\n"
    assert not (project.path / "README.md").exists()
    assert document["permission_denials"] == [f"run_shell_command {command}" for command in commands[3:]]
