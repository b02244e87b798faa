"""A branch under review again and again: what is sent, and what becomes of the findings, through the front door."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from codeloupe.testing import Json, RecordedRequest, Reply, StandInServer
from tests.agent_programs import agents_at
from tests.program import Ended
from tests.repository import GitRepository
from tests.warm_program import codeloupe

FIRST = "def average(prices):\n    return sum(prices) / len(prices)\n"
SECOND = "def first(prices):\n    return prices[0]\n"
FINDINGS = {
    "len(prices)": {"quote": "    return sum(prices) / len(prices)", "title": "Division by zero for no prices"},
    "prices[0]": {"quote": "    return prices[0]", "title": "Index error for no prices"},
}


PLACES = {"len(prices)": "shop/average.py", "prices[0]": "shop/first.py"}
REST = {"line": 1, "body": "It fails for an empty list.", "category": "correctness", "severity": "medium"}


def answer(request: RecordedRequest) -> Reply:
    """Finds what is on added lines of the diff that it is shown, as a model would."""
    added = [line for text in request.strings() for line in text.split("\n") if line.startswith("+")]
    shown = [code for code in FINDINGS if any(code in line for line in added)]
    return Json({"findings": [{"file": PLACES[code], **REST, **FINDINGS[code]} for code in shown]})


@pytest.fixture
def server() -> Iterator[StandInServer]:
    with StandInServer(reply=answer) as server:
        yield server


def review(server: StandInServer, project: GitRepository, *words: str) -> Ended:
    flags = ("review", "--reviewer", "api", "--format", "json", *words)
    return codeloupe(*flags, cwd=project.path, environment=agents_at(server, "api"))


def states(document: Mapping[str, Any]) -> dict[str, str]:
    return {finding["title"]: finding["status"] for finding in document["findings"]}


@pytest.fixture
def project(repository: GitRepository) -> GitRepository:
    repository.commit_files({"README.md": "a shop\n"})
    repository.git("checkout", "--quiet", "-b", "prices")
    repository.commit_files({"shop/average.py": FIRST})
    return repository


def test_a_finding_is_new_then_open_then_fixed_then_back(server: StandInServer, project: GitRepository) -> None:
    title, other = (FINDINGS[code]["title"] for code in ("len(prices)", "prices[0]"))
    first = review(server, project).json()
    assert states(first) == {title: "new"}
    assert "converged" not in first["summary"]

    project.commit_files({"shop/average.py": "# Prices.\n\n" + FIRST, "shop/first.py": SECOND})
    second = review(server, project).json()
    assert states(second) == {title: "open", other: "new"}
    assert [finding["line_start"] for finding in second["findings"] if finding["title"] == title] == [4]
    assert second["findings"][0]["fingerprint"] == first["findings"][0]["fingerprint"]

    project.commit_files({"shop/average.py": FIRST.replace("len(prices)", "max(1, count)")})
    third = review(server, project).json()
    assert states(third) == {title: "fixed", other: "open"}
    assert "converged" in third["summary"]
    assert states(review(server, project).json()) == {other: "open"}

    project.commit_files({"shop/average.py": FIRST})
    assert states(review(server, project).json()) == {title: "regressed", other: "open"}


def test_an_unchanged_an_amended_and_a_rebased_branch_is_not_asked_about_again(
    server: StandInServer, project: GitRepository
) -> None:
    first = review(server, project).json()
    asked = server.count(auxiliary=False)
    again = review(server, project).json()
    assert server.count(auxiliary=False) == asked
    assert states(again) == dict.fromkeys(states(first), "open")
    assert again["complete"] is True
    project.git("commit", "--quiet", "--amend", "--message=another message")
    project.git("checkout", "--quiet", "main")
    project.commit_files({"other.md": "more\n"})
    project.git("checkout", "--quiet", "prices")
    project.git("rebase", "--quiet", "main")
    again = review(server, project).json()
    assert server.count(auxiliary=False) == asked
    assert [one["fingerprint"] for one in again["findings"]] == [one["fingerprint"] for one in first["findings"]]


def test_since_last_shows_only_what_is_new_to_it_or_says_that_all_is_reviewed(
    server: StandInServer, project: GitRepository
) -> None:
    ended = review(server, project, "--since-last")
    assert "no earlier review of this branch" in ended.stderr
    assert len(ended.json()["findings"]) == 1
    project.commit_files({"shop/first.py": SECOND})
    document = review(server, project, "--since-last").json()
    assert states(document) == {FINDINGS["prices[0]"]["title"]: "new"}


def test_the_raw_answers_are_kept_with_the_review(server: StandInServer, project: GitRepository) -> None:
    review(server, project)
    shown = codeloupe("history", "show", "last", "--raw", cwd=project.path)
    assert shown.exit_code == 0, shown.stderr
    assert "answer of shop/average.py" in shown.stdout
    assert "Division by zero for no prices" in shown.stdout
