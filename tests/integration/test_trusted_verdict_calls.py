"""Who answered each unit, what was stored of the answers, and what no report may show of them."""

import json
import os
import re
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from codeloupe import AgentRequest, errors
from codeloupe.store.sqlite import SqliteDatabase, database_path
from codeloupe.testing import AgentStep, Hang, Json, RecordedRequest, Reply, StandInServer, Status, Text
from tests.agent_programs import agents_at
from tests.endings import PATIENCE_SECONDS, comes_to_pass
from tests.program import PROGRAM, PYTHON_HEADER
from tests.repository import GitRepository
from tests.review_factories import source
from tests.secret_material import vendor_tokens
from tests.trusted_verdict_material import ASKS_AGAIN, CODE, FILE, Model, Rounds, claim, outcome, said
from tests.warm_program import codeloupe

FIRST = "first/module.py"
SECOND = "second/module.py"
NOTHING_FOUND = Json({"findings": []})


@pytest.fixture
def two_units(repository: GitRepository, tmp_path: Path) -> Rounds:
    """Two files that are each a unit at high effort."""
    return Rounds(repository, tmp_path / "state", {name: source(name, lines=30) for name in (FIRST, SECOND)})


def is_about(name: str, prompt: str) -> bool:
    """Return whether a prompt shows lines of this file of the two."""
    return f"compute('{name}'" in prompt


UNANSWERED: dict[str, AgentStep] = {
    "refusal": errors.Refused("the model refused to answer", agent="one"),
    "status 400": errors.InvalidRequest("the service rejected the request", agent="one"),
    "status 529": errors.Overloaded("the service is overloaded", agent="one"),
    "timeout": errors.TimedOut("no answer within 600 s", agent="one"),
    "crash": errors.Crashed("the program ended with 1", agent="one"),
    "inexact answers": said('{"findings": []}\n\nI read the first half.'),
}


@pytest.mark.defect("A1")
@pytest.mark.parametrize("why", UNANSWERED)
def test_a_unit_that_one_agent_cannot_answer_goes_to_the_next(why: str, two_units: Rounds) -> None:
    def step(request: AgentRequest) -> AgentStep:
        return UNANSWERED[why] if is_about(SECOND, request.prompt) else NOTHING_FOUND

    one = Model(answers=[step], name="one")
    other = Model(answers=[NOTHING_FOUND], name="other")
    review = two_units.review(one, other, effort="high")
    assert outcome(review) == ("PASS", True, 0)
    assert [is_about(SECOND, asked.prompt) for asked in other.questions] == [True]
    assert [is_about(FIRST, asked.prompt) for asked in other.questions] == [False]
    units = {unit.files: unit for unit in review.coverage.units}
    assert {files: unit.answered_by for files, unit in units.items()} == {(FIRST,): "one", (SECOND,): "other"}
    assert units[FIRST,].unanswered == ()
    [unanswered] = units[SECOND,].unanswered
    assert unanswered.agent == "one"
    assert unanswered.reason


@pytest.mark.defect("A1")
def test_a_unit_that_no_agent_can_answer_makes_the_review_incomplete(two_units: Rounds) -> None:
    def step(request: AgentRequest) -> AgentStep:
        return UNANSWERED["refusal"] if is_about(SECOND, request.prompt) else NOTHING_FOUND

    one = Model(answers=[step], name="one")
    other = Model(answers=[step], name="other")
    review = two_units.review(one, other, effort="high")
    assert [is_about(SECOND, asked.prompt) for asked in other.questions] == [True]
    assert outcome(review) == ("INCOMPLETE", False, 3)
    assert [unit.files for unit in review.coverage.units_failed] == [(SECOND,)]
    [unit] = [unit for unit in review.coverage.units if unit.files == (SECOND,)]
    assert unit.answered_by == ""
    assert [one.agent for one in unit.unanswered] == ["one", "other"]


@pytest.mark.defect("A2")
def test_after_a_failover_each_unit_names_agent_and_model_that_answered(
    repository: GitRepository, tmp_path: Path
) -> None:
    def reply(request: RecordedRequest) -> Reply:
        return Status(401, "The key is not valid.") if "/messages" in request.path else NOTHING_FOUND

    Rounds(repository, tmp_path / "state", {FILE: CODE})
    with StandInServer(reply=reply) as server:
        variables = agents_at(server, "claude_cli", "codex") | {"CODELOUPE_AGENTS": "claude_cli,codex"}
        ended = codeloupe("review", "--format", "json", cwd=repository.path, environment=variables)
        models = {request.model for request in server.requests if "/responses" in request.path}
    document = ended.json()
    assert (document["verdict"], ended.exit_code) == ("PASS", 0), ended.stderr
    [unit] = document["coverage"].get("units", [document["reviewer"]])
    assert unit.get("answered_by") == "codex"
    assert {unit["model"]} == models
    [unanswered] = unit["unanswered"]
    assert unanswered["agent"] == "claude_cli"
    assert unanswered["reason"]


@pytest.mark.defect("A2")
def test_a_claim_names_the_agent_that_made_it_after_a_failover(repository: GitRepository, tmp_path: Path) -> None:
    rounds = Rounds(repository, tmp_path / "state", {FILE: CODE})
    one = Model(answers=[errors.NotLoggedIn("there is no key", agent="one")], name="one")
    other = Model(claim("medium"), name="other")
    [finding] = rounds.review(one, other).findings
    reporters = [made.reporter for made in getattr(finding, "claims", ())] or [finding.reviewer]
    assert reporters == ["other"]


def stored_answers() -> int:
    """Return how many answers the ledger holds."""
    with SqliteDatabase(database_path(os.environ)) as database, database.reading() as connection:
        return int(connection.execute("SELECT count(*) FROM results").fetchone()[0])


@pytest.mark.defect("M1")
def test_answers_that_are_said_to_be_kept_are_never_asked_for_again(two_units: Rounds, tmp_path: Path) -> None:
    def reply(request: RecordedRequest) -> Reply:
        if request.mentions(f"compute('{SECOND}'") and not released:
            return Hang()
        unasked = {} if request.mentions(ASKS_AGAIN) else {"summary": "It reads well."}
        return Json({"findings": [], **unasked})

    released: list[bool] = []
    words = ("review", "--reviewer", "api", "--effort", "high", "--format", "json")
    place = two_units.repository.path
    with StandInServer(reply=reply) as server:
        variables = agents_at(server, "api") | {"TMPDIR": str(tmp_path)}
        with subprocess.Popen(
            (str(PROGRAM), *words), cwd=place, env={**os.environ, **variables}, stdout=-1, stderr=-1
        ) as running:
            try:
                assert running.stderr is not None
                # It is counted when it is shown, a moment after it was stored.
                assert any(b" done in " in line and b"unit " in line for line in running.stderr)
                assert comes_to_pass(lambda: server.open_requests == 1)
                running.send_signal(signal.SIGINT)
                _, told = running.communicate(timeout=PATIENCE_SECONDS)
            finally:
                running.kill()
        assert running.returncode == 130
        kept = re.search(r"interrupted; (\d+)", told.decode())
        assert kept is not None, told.decode()
        assert int(kept[1]) == stored_answers() > 0
        released.append(True)
        server.clear()
        ended = codeloupe(*words, "--resume", cwd=place, environment=variables)
        again = Counter(request.mentions(f"compute('{FIRST}'") for request in server.requests if not request.auxiliary)
    assert again[True] == 0
    assert ended.json()["usage"]["cached"] == int(kept[1])


@pytest.mark.parametrize("agent", ["api", "codex"])
def test_a_review_that_inexact_answers_left_incomplete_is_completed_by_the_next(agent: str, two_units: Rounds) -> None:
    words = ("review", "--reviewer", agent, "--format", "json")
    place = two_units.repository.path
    with StandInServer([Text("LGTM")]) as server:
        first = codeloupe(*words, cwd=place, environment=agents_at(server, agent))
    with StandInServer([NOTHING_FOUND]) as server:
        second = codeloupe(*words, cwd=place, environment=agents_at(server, agent))
        asked = len([request for request in server.requests if not request.auxiliary])
        third = codeloupe(*words, cwd=place, environment=agents_at(server, agent))
        asked_at_last = len([request for request in server.requests if not request.auxiliary])
    assert (first.exit_code, second.exit_code, third.exit_code) == (3, 0, 0), (first.stderr, second.stderr)
    assert " yes" not in second.stderr
    # Each unit is asked about once, and not again.
    assert asked == asked_at_last == second.json()["coverage"]["units_total"]


FORMATS = (
    *("text", "concise", "json", "markdown", "html", "sarif", "junit"),
    *("gitlab-codequality", "rdjson", "github"),
)


def leaking(folder: Path, token: str) -> tuple[str, ...]:
    """Return the command of a reviewer whose finding holds a token in each of its texts."""
    words = {name: f"{name} {token}" for name in ("title", "body", "suggestion", "category")}
    finding = {"file": FILE, "line": 2, "severity": "high", **words}
    program = folder / "reviewer"
    text = json.dumps({"findings": [finding]})
    program.write_text(f"{PYTHON_HEADER}import sys\nsys.stdin.read()\nsys.stdout.write({text!r})\n", encoding="utf-8")
    program.chmod(0o755)
    return (str(program),)


def files_with(folder: Path, text: str) -> list[str]:
    """Return the files below a folder that hold a text."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [path.name for path in files if text.encode() in path.read_bytes()]


@pytest.mark.defect("A7")
def test_no_report_shows_a_secret_of_a_command_reviewer(repository: GitRepository, tmp_path: Path, home: Path) -> None:
    token = vendor_tokens()["AWS access key"]
    Rounds(repository, tmp_path / "state", {FILE: CODE})
    settings = home / ".config" / "codeloupe" / "config.yaml"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps({"reviewer_type": "command", "review_command": leaking(tmp_path, token)}))
    ended = codeloupe("review", cwd=repository.path)
    shown = {"review": ended.stdout + ended.stderr}
    for form in FORMATS:
        rendered = codeloupe("history", "render", "last", "--format", form, cwd=repository.path)
        assert rendered.exit_code == 1, rendered.stderr
        shown[form] = rendered.stdout + rendered.stderr
    assert [form for form, text in shown.items() if token in text] == []
    assert files_with(home / "codeloupe", token) == []


@pytest.mark.defect("A7")
def test_neither_event_nor_finding_holds_a_secret_of_a_command_reviewer(
    repository: GitRepository, tmp_path: Path
) -> None:
    token = vendor_tokens()["AWS access key"]
    rounds = Rounds(repository, tmp_path / "state", {FILE: CODE})
    review = rounds.review(reviewer_type="command", review_command=leaking(tmp_path, token))
    assert review.exit_code == 1
    assert token not in repr(review)
    assert token not in repr(rounds.events)
    assert files_with(rounds.state, token) == []
