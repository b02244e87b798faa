"""A branch under review again and again: what is sent, and what becomes of the findings, through the front door."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from bench.lifelike import LARGE, make_lifelike_change
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


def found(code: str, file: str) -> dict[str, Any]:
    return {
        "file": file,
        "line": 1,
        "body": "It fails for an empty list.",
        "category": "correctness",
        "severity": "medium",
        **FINDINGS[code],
    }


class Model:
    """Finds what stands on added lines of the diff that it is shown, as a model would."""

    def __call__(self, request: RecordedRequest) -> Reply:
        text = "\n".join(request.strings())
        files = {"len(prices)": "shop/average.py", "prices[0]": "shop/first.py"}
        shown = [code for code in FINDINGS if any(line.startswith("+") and code in line for line in text.split("\n"))]
        return Json({"findings": [found(code, files[code]) for code in shown]})


@pytest.fixture
def server() -> Iterator[StandInServer]:
    with StandInServer(reply=Model()) as server:
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


def test_a_review_of_an_unchanged_branch_asks_nobody(server: StandInServer, project: GitRepository) -> None:
    first = review(server, project).json()
    asked = server.count(auxiliary=False)
    again = review(server, project).json()
    assert server.count(auxiliary=False) == asked
    assert states(again) == dict.fromkeys(states(first), "open")
    assert again["complete"] is True


def test_an_amended_and_rebased_branch_is_not_asked_about_again(server: StandInServer, project: GitRepository) -> None:
    first = review(server, project).json()
    asked = server.count(auxiliary=False)
    project.git("commit", "--quiet", "--amend", "--message=another message")
    project.git("checkout", "--quiet", "main")
    project.commit_files({"other.md": "more\n"})
    project.git("checkout", "--quiet", "prices")
    project.git("rebase", "--quiet", "main")
    again = review(server, project).json()
    assert server.count(auxiliary=False) == asked
    assert [finding["fingerprint"] for finding in again["findings"]] == [
        finding["fingerprint"] for finding in first["findings"]
    ]


def test_since_last_shows_only_what_is_new_to_it(server: StandInServer, project: GitRepository) -> None:
    review(server, project)
    project.commit_files({"shop/first.py": SECOND})
    document = review(server, project, "--since-last").json()
    assert states(document) == {FINDINGS["prices[0]"]["title"]: "new"}


def test_since_last_without_an_earlier_review_says_that_all_is_reviewed(
    server: StandInServer, project: GitRepository
) -> None:
    ended = review(server, project, "--since-last")
    assert "no earlier review of this branch" in ended.stderr
    assert len(ended.json()["findings"]) == 1


def test_the_raw_answers_are_kept_with_the_review(server: StandInServer, project: GitRepository) -> None:
    review(server, project)
    shown = codeloupe("history", "show", "last", "--raw", cwd=project.path)
    assert shown.exit_code == 0, shown.stderr
    assert "answer of shop/average.py" in shown.stdout
    assert "Division by zero for no prices" in shown.stdout


def test_other_terms_ask_again(server: StandInServer, project: GitRepository) -> None:
    review(server, project)
    asked = server.count(auxiliary=False)
    review(server, project, "--experts", "security")
    assert server.count(auxiliary=False) == asked + 1


def sent_bytes(server: StandInServer) -> int:
    return sum(len(json.dumps(request.body)) for request in server.requests if not request.auxiliary)


def test_a_one_line_commit_in_a_large_branch_sends_a_twentieth_of_the_first_review(tmp_path: Path) -> None:
    make_lifelike_change(tmp_path / "large", LARGE)
    project = GitRepository(tmp_path / "large")
    with StandInServer([Json({"findings": []})]) as server:
        first = review(server, project).json()
        all_of_it = sent_bytes(server)
        assert first["complete"] is True
        touched = project.git("diff", "--name-only", "--diff-filter=M", "main").decode().split()
        name = next(name for name in touched if name.endswith(".py"))
        path = project.path / name
        path.write_text(path.read_text() + "LAST_LINE = 1\n")
        project.commit()
        server.clear()
        again = review(server, project).json()
        assert again["complete"] is True
        assert any(request.mentions("LAST_LINE") for request in server.requests)
        assert 0 < sent_bytes(server) <= 0.05 * all_of_it
