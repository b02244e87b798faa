"""What an agent call may cost, how long it may take, and whose answer it gives: through the front door."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from codeloupe.testing import Json, StandInServer
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
