"""`codeloupe agent` through the front door, with the real claude and codex programs and the stand-in model."""

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from codeloupe.testing import Hang, Json, RecordedRequest, Reply, StandInServer, Status, Text
from tests.agent_factories import assert_nothing_runs_in
from tests.agent_programs import KEY, agents_at, find
from tests.endings import PATIENCE_SECONDS
from tests.program import PROGRAM, Ended
from tests.repository import GitRepository
from tests.warm_program import codeloupe

SCHEMA = {"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"]}


@pytest.fixture
def project(repository: GitRepository) -> GitRepository:
    repository.commit_files({"a.py": "x = 1\n"})
    return repository


def ask(
    server: StandInServer, project: GitRepository, *words: str, agent: str = "claude_cli", stdin: bytes = b""
) -> Ended:
    flags = ("--agent", agent, *words)
    return codeloupe("agent", "run", *flags, cwd=project.path, stdin=stdin, environment=agents_at(server, agent))


@pytest.fixture
def server() -> Iterator[StandInServer]:
    with StandInServer([Text("Hello there.")]) as server:
        yield server


@pytest.mark.requirement("R7")
def test_an_answer_is_printed_and_the_same_question_is_not_bought_twice(
    server: StandInServer, project: GitRepository
) -> None:
    first = ask(server, project, "-q", "Say hello.")
    assert (first.exit_code, first.stdout, first.stderr) == (0, "Hello there.\n", "")
    assert server.count(auxiliary=False) == 1
    again = ask(server, project, "--json", "Say hello.")
    document = again.json()
    assert server.count(auxiliary=False) == 1
    assert (document["success"], document["output"], document["from_ledger"]) == (True, "Hello there.", True)
    assert (document["agent"], document["num_turns"], document["error"]) == ("claude_cli", 1, None)
    assert document["session_id"]
    assert document["total_cost_usd"] is not None
    assert KEY not in again.stdout + again.stderr

    assert ask(server, project, "-q", "--fresh", "Say hello.").exit_code == 0
    assert server.count(auxiliary=False) == 2
    project.write("a.py", "x = 2\n")
    assert ask(server, project, "-q", "Say hello.").exit_code == 0
    assert server.count(auxiliary=False) == 3


@pytest.mark.requirement("R3")
def test_the_prompt_comes_from_an_argument_a_file_or_standard_input(
    server: StandInServer, project: GitRepository, tmp_path: Path
) -> None:
    (tmp_path / "prompt.txt").write_text("From a file.", encoding="utf-8")
    assert ask(server, project, "-q", "--prompt-file", str(tmp_path / "prompt.txt"), agent="codex").exit_code == 0
    assert ask(server, project, "-q", agent="codex", stdin=b"From a pipe.").exit_code == 0
    for words in ("From a file.", "From a pipe."):
        assert any(request.mentions(words) for request in server.requests)


def test_an_answer_that_must_fit_a_schema(project: GitRepository, tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA), encoding="utf-8")
    with StandInServer([Json({"answer": 42})]) as server:
        ended = ask(server, project, "--json", "-q", "--schema", str(tmp_path / "schema.json"), "How much?")
    assert ended.json()["structured"] == {"answer": 42}
    with StandInServer([Json({"answer": "much"}, as_text=True)]) as server:
        ended = ask(server, project, "--json", "--fresh", "--schema", str(tmp_path / "schema.json"), "How much?")
    document = ended.json()
    assert (ended.exit_code, document["error_kind"]) == (3, "OutputInvalid")
    assert all("much" in document[name] for name in ("raw_output", "output"))
    # It gave nothing that could be used, and was paid for.
    assert min(document["total_cost_usd"], document["usage"]["output_tokens"]) > 0


def test_a_failure_that_is_not_the_agents_is_told_in_json_too(
    server: StandInServer, project: GitRepository, tmp_path: Path
) -> None:
    (tmp_path / "state").write_text("no directory")
    words = ("agent", "run", "--agent", "claude_cli", "--tools", "none", "--json", "Hi")
    variables = {**agents_at(server, "claude_cli"), "CODELOUPE_HOME": str(tmp_path / "state")}
    ended = codeloupe(*words, cwd=project.path, environment=variables)
    assert ended.exit_code == 3
    assert (ended.json()["success"], ended.json()["error_kind"], ended.json()["attempts"]) == (False, "StoreError", 0)
    assert "CODELOUPE_HOME" in ended.json()["error"]
    assert server.count() == 0


@pytest.mark.requirement("R11")
def test_without_a_login_it_says_what_to_set(project: GitRepository) -> None:
    words, variables = ("--agent", "claude_cli", "Hi"), {"CODELOUPE_CLAUDE_PATH": str(find("claude"))}
    ended = codeloupe("agent", "run", *words, cwd=project.path, environment=variables)
    assert ended.exit_code == 2
    assert "ANTHROPIC_API_KEY" in ended.stderr


@pytest.mark.requirement("R13")
def test_a_passing_failure_is_tried_again_and_told(project: GitRepository) -> None:
    with StandInServer([Status(500, "broken"), Text("Better now.")]) as server:
        ended = ask(server, project, "Say hello.", agent="codex")
    assert (ended.exit_code, ended.stdout) == (0, "Better now.\n")
    assert "attempt 1 failed" in ended.stderr


def test_bad_input_is_refused_before_anything_starts(
    server: StandInServer, project: GitRepository, tmp_path: Path
) -> None:
    (tmp_path / "bad.json").write_text("{", encoding="utf-8")
    for words, said in (
        (["--schema", str(tmp_path / "bad.json"), "Hi"], "not JSON"),
        (["--label", "x", "Hi"], "not a label"),
        (["--max-turns", "0", "Hi"], "turn"),
        (["--working-dir", str(tmp_path / "nowhere"), "Hi"], "nowhere"),
        (["--permission-mode", "bypassPermissions", "Hi"], "bypass"),
        (["--prompt-file", str(tmp_path / "nothing"), "Hi"], "exclude each other"),
        ([], "prompt"),
    ):
        ended = ask(server, project, *words)
        assert ended.exit_code == 2, ended
        assert said in ended.stderr, ended.stderr
    assert server.requests == ()


def test_a_chain_goes_on_to_the_next_agent_and_says_so(
    server: StandInServer, project: GitRepository, tmp_path: Path
) -> None:
    variables = {**agents_at(server, "claude_cli"), "CODELOUPE_CODEX_PATH": str(tmp_path / "no-codex")}
    words = ("--agent", "codex", "--agent", "claude_cli", "--json", "Hi")
    ended = codeloupe("agent", "run", *words, cwd=project.path, environment=variables)
    assert ended.exit_code == 0, ended.stderr
    assert ended.json()["agent"] == "claude_cli"
    assert any("codex" in note for note in ended.json()["notes"])


def test_the_list_tells_what_is_here_and_how_to_get_the_rest(project: GitRepository) -> None:
    ended = codeloupe("agent", "list", cwd=project.path)
    assert ended.exit_code == 0
    for name in ("agent_sdk", "claude_cli", "codex", "gemini", "api"):
        assert name in ended.stdout
    document = codeloupe("agent", "list", "--json", cwd=project.path).json()
    assert {agent["name"] for agent in document["agents"]} >= {"codex", "api"}


FIVE_CALLS = """
import asyncio, sys
from pathlib import Path
import codeloupe
from codeloupe.config.schema import Settings

async def main():
    settings = Settings(agents=("claude_cli",), concurrency=5, claude_path=sys.argv[1])
    work = Path(sys.argv[2])
    calls = [
        codeloupe.run_agent(codeloupe.AgentRequest(prompt=f"Question {n}", working_dir=work), settings=settings)
        for n in range(5)
    ]
    for answer in asyncio.as_completed(calls):
        print((await answer).output, flush=True)

asyncio.run(main())
"""


@pytest.mark.requirement("R1")
def test_killed_in_the_middle_of_five_calls_it_leaves_no_orphan_and_no_file_and_buys_only_the_rest(
    project: GitRepository, tmp_path: Path
) -> None:
    killed = threading.Event()

    def reply(request: RecordedRequest) -> Reply:
        quick = any(request.mentions(f"Question {number}") for number in range(2))
        return Text("second") if killed.is_set() else Text("done") if quick else Hang()

    command = [sys.executable, "-c", FIVE_CALLS, str(find("claude")), str(project.path)]
    (temporary := tmp_path / "temporary").mkdir()
    with StandInServer(reply=reply) as server:
        variables = {**os.environ, **agents_at(server, "claude_cli"), "TMPDIR": str(temporary)}
        with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, cwd=project.path, text=True) as process:
            try:
                assert process.stdout
                assert [process.stdout.readline() for _ in range(2)] == ["done\n"] * 2
                assert server.wait_for(5, timeout_seconds=3 * PATIENCE_SECONDS)
            finally:
                process.kill()
        assert server.count(auxiliary=False) == 5
        assert_nothing_runs_in(project.path)
        # The same server again: what another address answered would not count.
        killed.set()
        again = subprocess.run(command, env=variables, cwd=project.path, capture_output=True, text=True, check=False)
        assert again.returncode == 0, again.stderr
        assert server.count(auxiliary=False) == 5 + 3
        assert sorted(again.stdout.split()) == ["done"] * 2 + ["second"] * 3
    assert list(temporary.iterdir()) == []


@pytest.mark.defect("U7")
def test_an_interrupted_call_says_what_is_kept_and_how_to_go_on(project: GitRepository) -> None:
    with StandInServer([Hang()]) as server:
        variables = {**os.environ, **agents_at(server, "claude_cli")}
        words = (str(PROGRAM), "agent", "run", "-q", "--agent", "claude_cli", "Say it's done.")
        with subprocess.Popen(words, cwd=project.path, env=variables, stdout=-1, stderr=-1) as running:
            try:
                assert server.wait_for(1, timeout_seconds=PATIENCE_SECONDS)
                running.send_signal(signal.SIGINT)
                _, told = running.communicate(timeout=PATIENCE_SECONDS)
            finally:
                running.kill()
    assert running.returncode == 130
    kept = "codeloupe: interrupted; the agent was stopped, and no answer was stored; "
    assert told.decode() == f"{kept}`codeloupe {shlex.join(words[1:])}` continues\n"
    assert_nothing_runs_in(project.path)
