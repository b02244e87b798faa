"""`codeloupe commits` through the front door, with real git and the stand-in model."""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from codeloupe.testing import Json, RecordedRequest, Reply, StandInServer, Text
from tests.engine_standin import KEY
from tests.engine_standin import environment as claude_environment
from tests.program import Ended
from tests.proofs import asks_for_proofs, proofs
from tests.repository import GitRepository
from tests.sweep_history import Made, claim, make_commits, many_commits, numbered_commits
from tests.warm_program import codeloupe

CLEAN = Json({"findings": []})


def environment(server: StandInServer, agent: str = "api") -> dict[str, str]:
    api = {"CODELOUPE_API_MODEL": "anthropic:stand-in", "CODELOUPE_API_BASE_URL": server.url, "ANTHROPIC_API_KEY": KEY}
    return api if agent == "api" else claude_environment(server)


def commits(server: StandInServer, path: Path, *words: str, agent: str = "api", more: str = "") -> Ended:
    flags = ("commits", "--reviewer", agent, *words)
    variables = {**environment(server, agent), **({"COLUMNS": more} if more else {})}
    return codeloupe(*flags, cwd=path, environment=variables)


def by_number(replies: Mapping[int, Reply]) -> Callable[[RecordedRequest], Reply]:
    def reply(request: RecordedRequest) -> Reply:
        if asks_for_proofs(request):
            return proofs(request, "confirmed", "The sum is one too large.")
        return next((each for number, each in replies.items() if request.mentions(f"+def part_{number}(")), CLEAN)

    return reply


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Five commits of the last minutes."""
    make_commits(tmp_path / "project", numbered_commits(5), first_seconds=int(time.time()) - 600)
    return tmp_path / "project"


@pytest.mark.requirement("D1")
def test_the_commits_of_the_last_day_are_reviewed_and_shown(project: Path) -> None:
    with StandInServer(reply=by_number({1: Json({"findings": [claim(1)]}), 3: Text("no JSON at all")})) as server:
        ended = commits(server, project, more="80")
    assert ended.exit_code == 3, ended.stderr
    lines = ended.stdout.splitlines()
    assert lines[0].startswith("API model review")
    assert "commits of HEAD, since 24 hours ago" in lines
    assert "5 commits reviewed, 3 OK, 1 need fixes, 0 should be reverted, 1 could not be reviewed" in lines
    assert sum(line.startswith("LEAVE   1.00") for line in lines) == 3
    assert sum(line.startswith("INCOMPLETE") for line in lines) == 1
    told = ("a.py:7", "Wrong sum 1", "Plan, test first", "Ada Example", "bug_fix", "reliability", "+5 -0 in 1 file")
    assert [words for words in told if words not in ended.stdout] == []
    assert [line for line in lines if len(line) > 80 and "commits reviewed" not in line] == []
    for number in range(1, 6):
        assert f"commit {number}/5" in ended.stderr
    assert KEY not in ended.stdout + ended.stderr


@pytest.mark.requirement("D1")
def test_json_has_every_commit_and_nothing_else_is_on_standard_output(tmp_path: Path) -> None:
    names = make_commits(tmp_path / "many", many_commits(14))
    with StandInServer(reply=lambda _request: CLEAN) as server:
        ended = commits(server, tmp_path / "many", "main~13..main", "--format", "json", "-q")
        assert server.count(auxiliary=False) == 13
    document = ended.json()
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert [commit["sha"] for commit in document["commits"]] == names[:13]
    assert {commit["category"] for commit in document["commits"]} == {
        "bug_fix", "feature", "refactor", "test_change", "documentation", "chore", "other"
    }  # fmt: skip
    assert document["commits"][0]["author"] == 'Bob "x" \\ O\'Neil'
    assert document["usage"]["requests"] == 13


def test_an_empty_range_is_an_empty_document_and_no_failure(tmp_path: Path) -> None:
    make_commits(tmp_path / "old", numbered_commits(2))
    with StandInServer() as server:
        ended = commits(server, tmp_path / "old", "--format", "json", "--strict")
        assert server.requests == ()
    assert ended.exit_code == 0
    assert ended.json()["summary"].startswith("0 commits reviewed, 0 OK")
    assert ended.json()["commits"] == []
    assert "there are no commits to review: commits of HEAD, since 24 hours ago" in ended.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gone..main"], "the revision 'gone' is unknown"),
        (["--branch", "gone"], "the revision 'gone' is unknown"),
        (["--since", "yesterdya"], "is not a date"),
        (["main..main", "--branch", "main"], "exclude each other"),
        (["main"], "is not a range of commits"),
        (["--max", "0"], "--max is 0, and must be at least 1"),
        (["--format", "html"], "--format"),
        (["--timeout", "0"], "--timeout"),
    ],
)
def test_what_cannot_be_begun_exits_2_in_words_and_leaves_no_file(
    project: Path, tmp_path: Path, words: list[str], said: str
) -> None:
    with StandInServer() as server:
        ended = commits(server, project, "-o", str(tmp_path / "out"), *words)
        assert server.requests == ()
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert said in ended.stderr
    assert "hint:" in ended.stderr
    assert not (tmp_path / "out").exists()


def test_outside_of_a_repository_and_before_the_first_commit_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    GitRepository(tmp_path / "new")
    for folder, said in (("nothing", "not inside a git repository"), ("new", "no commits yet")):
        ended = codeloupe("commits", "--format", "json", cwd=tmp_path / folder)
        assert (ended.exit_code, ended.stdout) == (2, "")
        assert said in ended.stderr


@pytest.mark.requirement("D3")
def test_the_real_claude_program_reviews_commits_each_with_its_own_diff(tmp_path: Path) -> None:
    make_commits(tmp_path / "two", numbered_commits(2))
    with StandInServer(reply=by_number({1: Json({"findings": [claim(1, "medium")]})})) as server:
        ended = commits(server, tmp_path / "two", "--max", "2", "--format", "json", agent="claude_cli")
        asked = [request for request in server.requests if not request.auxiliary]
    document = ended.json()
    assert ended.exit_code == 0, ended.stderr
    assert [commit["verdict"] for commit in document["commits"]] == ["LEAVE", "LEAVE"]
    (finding,) = document["findings"]
    assert (finding["commit_sha"], finding["expert"]) == (document["commits"][0]["sha"], "reliability")
    assert (finding["evidence"], finding["severity"]) == ("a.py:7", "medium")
    assert len(asked) == 2
    for number in range(2):
        assert sum(request.mentions(f"+def part_{number}(") for request in asked) == 1


def test_without_any_agent_the_analysers_sweep(tmp_path: Path) -> None:
    made = [Made(message="add", files={"a.py": "import os\n\n\ndef f(x):\n    return eval(x)\n"})]
    make_commits(tmp_path / "one", made)
    document = codeloupe("commits", "--max", "1", "--format", "json", cwd=tmp_path / "one").json()
    assert document["reviewer"]["type"] == "offline"
    assert document["commits"][0]["experts"] == []
    assert any(finding["evidence"] == "a.py:5" and finding["expert"] == "ruff" for finding in document["findings"])


def test_an_unknown_expert_of_a_category_in_the_configuration_is_told_before_anything_is_bought(project: Path) -> None:
    Path(project, "codeloupe.yaml").write_text("commit_experts: {chore: [securty]}\n", encoding="utf-8")
    with StandInServer() as server:
        refused = commits(server, project, agent="claude_cli")
        assert server.requests == ()
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "unknown expert 'securty'" in refused.stderr
    assert "security" in refused.stderr


def test_help_comes_at_once_and_names_every_form(tmp_path: Path) -> None:
    ended = codeloupe("commits", "--help", cwd=tmp_path, environment={"COLUMNS": "100", "PATH": os.environ["PATH"]})
    assert ended.exit_code == 0
    for words in ("text, json, markdown, xml", "--strict", "24 hours ago", "first parent", "--merges"):
        assert words in ended.stdout
