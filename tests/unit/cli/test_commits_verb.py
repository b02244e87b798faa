"""The verb `commits` in this process, with a scripted agent on the only seat."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from codeloupe.cli.commits import configure, run
from codeloupe.cli.parser import Parser
from codeloupe.errors import NotLoggedIn
from codeloupe.history import opened_history
from codeloupe.model.agent import AgentRequest
from codeloupe.model.history import HistoryQuery
from codeloupe.model.review import ReviewerInfo
from codeloupe.reviewers.choose import ChosenReviewer
from codeloupe.reviewers.prompt import PROMPT_VERSION
from codeloupe.testing import AgentStep, Json, ScriptedAgent
from tests.rows import each
from tests.sweep_history import Made, claim, make_commits, numbered_commits

pytestmark = pytest.mark.program

CLEAN = Json({"findings": []})
FORMS = ("text", "json", "markdown", "xml")
Scripted = Callable[..., ScriptedAgent]


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    """Who reviews is chosen among the programs of the machine; here it is a scripted agent."""

    def sit(*steps: AgentStep) -> ScriptedAgent:
        agent = ScriptedAgent(steps)

        async def only_seat(*_: object) -> tuple[ChosenReviewer, ...]:
            return (ChosenReviewer(ReviewerInfo("scripted", "for a test"), (agent,)),)

        monkeypatch.setattr("codeloupe.commits.sweep.choose_reviewers", only_seat)
        return agent

    return sit


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_commits(tmp_path / "project", numbered_commits(5))
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def commits(*words: str) -> int:
    parser = Parser(prog="codeloupe commits")
    configure(parser)
    return run(parser.parse_args(words))


def about(number: int, step: AgentStep) -> Callable[[AgentRequest], AgentStep]:
    """A step about the commit of that number; nothing is found in the others."""
    return lambda request: step if f"+def part_{number}(" in request.prompt else CLEAN


@pytest.mark.usefixtures("project")
@each(("words", "exit_code"), [(["--strict"], 1), ([], 0)])
def test_strict_is_1_on_a_high_finding(
    scripted: Scripted, capsys: pytest.CaptureFixture[str], words: list[str], exit_code: int
) -> None:
    scripted(about(4, Json({"findings": [claim(4)]})))
    assert commits("--since", "20 years ago", "--author", "ada@example", "--no-verify", "-q", *words) == exit_code
    assert commits("--since", "20 years ago", "--until", "19 years ago", "--format", "json", *words) == 0
    assert '"commits": []' in capsys.readouterr().out


@pytest.mark.usefixtures("project")
@pytest.mark.requirement("D7")
def test_when_every_commit_fails_the_documents_are_valid_and_say_so(
    scripted: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    scripted(NotLoggedIn("no key", agent="scripted", hint="Set one."))
    shown = {}
    for form in FORMS:
        assert commits("--max", "5", "--format", form) == 3
        shown[form] = capsys.readouterr().out
        assert "0 OK, 0 need fixes, 0 should be reverted, 5 could not be reviewed" in shown[form]
        assert shown[form].count("not logged in: no key") >= 5
    assert [commit["verdict"] for commit in json.loads(shown["json"])["commits"]] == ["INCOMPLETE"] * 5
    assert len(ET.fromstring(shown["xml"]).findall("commits/commit/failure")) == 5
    assert commits("--max", "5", "--on-incomplete", "pass", "-q") == 0
    assert "on_incomplete lets it pass" in capsys.readouterr().err


def test_text_that_would_act_is_shown_and_does_nothing(
    scripted: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = "fix: \x1b]0;owned\x07 ::error::x <script>alert(1)</script> ![x](http://example.invalid) @everyone | \u202e"
    made = [Made(message=f"{evil}\n\n##[error]x", files={"a.py": "x = 1\n"}, author=b"E|vil script <e@x|y>")]
    make_commits(tmp_path / "evil", made)
    monkeypatch.chdir(tmp_path / "evil")
    lines = {"quote": "x = 1\n::error::z", "title": evil, "body": f"{evil}\n\n# heading\n::error::y"}
    scripted(Json({"findings": [{**claim(1, "low"), **lines}]}))
    shown = {}
    for form in FORMS:
        assert commits("--max", "1", "--format", form) == 0
        told = capsys.readouterr()
        shown[form] = told.out
        for stream in told:
            assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", stream)
            assert not re.search(r"(?m)^\s*::error", stream)
    assert json.loads(shown["json"])["commits"][0]["subject"] == evil
    assert ET.fromstring(shown["xml"]).findtext("commits/commit/author") == "E|vil script"
    assert "<script" not in shown["markdown"]


@pytest.mark.usefixtures("project")
def test_what_agents_answered_and_the_version_of_their_prompts_are_kept_with_each_commit(scripted: Scripted) -> None:
    scripted(about(4, Json({"findings": [claim(4)]})))
    assert commits("--max", "2", "--no-verify", "--quiet") == 0
    with opened_history() as history:
        (entry,) = history.list(HistoryQuery()).entries
        sweep = history.get_sweep(entry.entry_id)
        assert sweep is not None
        assert (sweep.prompt_version, sweep.finished) == (PROMPT_VERSION, True)
        said = {}
        for commit in sweep.sweep.commits:
            assert commit.review is not None
            review_id = commit.review.review_id
            record = history.get(review_id)
            assert record is not None
            assert record.prompt_version == PROMPT_VERSION
            said[commit.commit.subject] = "".join(history.raw_outputs(review_id).values())
    assert "Wrong sum 4" in said["fix: number 4"]
    assert "Wrong sum" not in said["fix: number 3"]
    assert "findings" in said["fix: number 3"]
