"""What an agent call may cost, how long it may take, and whose answer it gives: through the front door."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from codeloupe.testing import Json, StandInServer, Status, Text
from tests.program import Ended
from tests.repository import GitRepository
from tests.warm_program import codeloupe

KEY = "made-up-" + "for-tests"
FINDING = {
    "file": "average.py",
    "line": 2,
    "quote": "    return sum(prices) / len(prices)",
    "title": "Division by zero",
    "body": "It fails for an empty list.",
    "severity": "high",
}


@pytest.fixture
def project(repository: GitRepository) -> GitRepository:
    repository.write("README.md", "a shop\n")
    repository.commit()
    repository.checkout("change", new=True)
    repository.write("average.py", "def average(prices):\n    return sum(prices) / len(prices)\n")
    repository.commit()
    return repository


def run(server: StandInServer, project: Path, *words: str, more: Mapping[str, str] | None = None) -> Ended:
    """The program, with the api agent and the stand-in as its service."""
    variables = {
        "ANTHROPIC_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": server.url,
        "CODELOUPE_API_MODEL": "anthropic:claude-stand-in",
        "CODELOUPE_KEEP_HISTORY": "false",
    }
    return codeloupe(*words, cwd=project, environment={**variables, **(more or {})})


@pytest.mark.defect("T16")
def test_an_answer_about_an_untrusted_change_is_not_taken_for_a_trusted_one_nor_the_other_way_round(
    project: GitRepository,
) -> None:
    words = ("review", "main...HEAD", "--reviewer", "api", "--format", "json", "--no-verify")
    for order in (("--untrusted", ""), ("", "--untrusted")):
        with StandInServer([Json({"findings": []})]) as server:
            calls = []
            # The third is the first one again, which costs nothing.
            for trust in (*order, order[0]):
                assert run(server, project.path, *words, *filter(None, (trust,))).exit_code == 0
                calls.append(server.count(auxiliary=False))
        assert calls == [1, 2, 2], order


@pytest.mark.defect("V8")
def test_an_answer_of_one_service_is_not_taken_for_that_of_another(project: GitRepository) -> None:
    review = ("review", "main...HEAD", "--reviewer", "api", "--format", "json", "--no-verify")
    for words in (review, ("agent", "run", "--agent", "api", "-q", "Say hello.")):
        with StandInServer([Json({"findings": []})]) as first, StandInServer([Json({"findings": []})]) as second:
            for server in (first, second, first, second):
                assert run(server, project.path, *words).exit_code == 0
            assert (first.count(auxiliary=False), second.count(auxiliary=False)) == (1, 1), words


@pytest.mark.defect("L5")
def test_a_quota_that_opens_after_the_time_limit_ends_the_call_at_once_and_tells_when(project: GitRepository) -> None:
    asking = ("agent", "run", "--agent", "api", "Say hello.")
    reviewing = ("review", "main...HEAD", "--reviewer", "api", "--no-verify")
    # The time limit, and the wait that the service asks for. One that was begun would not end in the time of this test.
    for words, limit, retry_after in (
        (asking, "600", 3600.0),
        (asking, "1000", 1010.0),
        (asking, "20", None),
        (reviewing, "600", 3600.0),
        (reviewing, "20", None),
    ):
        with StandInServer([Status(429, retry_after=retry_after)]) as server:
            ended = run(server, project.path, *words, "--wait-for-quota", "--timeout", limit)
            assert server.count(auxiliary=False) == 1, (words, limit)
        assert ended.exit_code == 3, ended.stderr
        assert "429" in ended.stdout + ended.stderr
        assert retry_after is None or "opens again at" in " ".join((ended.stdout + ended.stderr).split())


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
        ended = subprocess.run(
            (sys.executable, "-c", program),
            cwd=project.path,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=True,
        )
    assert (ended.stdout, ended.stderr) == ("Hello.\n", "")
