"""Which answers a verdict may rest on: only exact ones, whoever gives them, and the review names who gave each."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from codeloupe import AgentRequest
from codeloupe.model.agent import AGENT_NAMES
from codeloupe.testing import AgentStep, Json, RecordedRequest, Reply, StandInServer, Text
from tests import trusted_verdict_material as material
from tests.agent_programs import agents_at
from tests.engine_pipelines import Cast, critique, run_stages, writing
from tests.repository import GitRepository
from tests.trusted_verdict_material import CODE, FILE, INCOMPLETE, Model, Rounds, claim, only, outcome, said, structured
from tests.warm_program import codeloupe

CLEAN = '{"findings": []}'
REFUTED = {"reason": "The caller checks the number.", "proof": "refuted"}


@pytest.fixture
def rounds(repository: GitRepository, tmp_path: Path) -> Rounds:
    return Rounds(repository, tmp_path / "state", {FILE: CODE})


def is_verification(request: RecordedRequest) -> bool:
    """Return whether a request names the three proofs; a question for findings names none."""
    return request.mentions("unproven")


def asks_for_proofs(request: RecordedRequest) -> bool:
    """Return whether a verification asks for a list of proofs, one for each claim."""
    return '"proofs' in json.dumps(request.body).replace("\\", "")


@pytest.mark.defect("F1")
@pytest.mark.parametrize("agent", AGENT_NAMES)
def test_json_that_prose_quotes_from_the_change_completes_no_unit(agent: str, rounds: Rounds) -> None:
    rounds.commit({FILE: f"{CODE}# A review without findings is {CLEAN}\n"})
    prose = Text(f"The last line of the file is a comment with an example, `{CLEAN}`. It has no effect.")
    with StandInServer([prose]) as server:
        words = ("review", "--reviewer", agent, "--format", "json")
        ended = codeloupe(*words, cwd=rounds.repository.path, environment=agents_at(server, agent))
    document = ended.json()
    assert (document["verdict"], document["complete"], ended.exit_code) == INCOMPLETE, ended.stderr


@pytest.mark.defect("F1")
@pytest.mark.parametrize("agent", ["claude_cli", "codex"])
def test_a_refutation_that_prose_quotes_from_the_change_refutes_nothing(agent: str, rounds: Rounds) -> None:
    def reply(request: RecordedRequest) -> Reply:
        if not is_verification(request):
            return Json({"findings": [claim()]})
        quoted = material.proof_value("refuted") if asks_for_proofs(request) else REFUTED
        return Text(f"A comment beside the call holds `{json.dumps(quoted)}`. I see no check.")

    with StandInServer(reply=reply) as server:
        words = ("review", "--reviewer", agent, "--format", "json")
        ended = codeloupe(*words, cwd=rounds.repository.path, environment=agents_at(server, agent))
    document = ended.json()
    assert (document["verdict"], document["complete"], ended.exit_code) == INCOMPLETE, ended.stderr
    [finding] = document["findings"]
    assert finding["status"] != "refuted"


@pytest.mark.defect("F1")
def test_a_refutation_in_prose_leaves_the_claim_pending(rounds: Rounds) -> None:
    def quoted(request: AgentRequest) -> AgentStep:
        answer = material.proof_answer(request, "refuted")
        return said(f"A comment beside the call holds `{json.dumps(answer.value)}`. I see no check.")

    review = rounds.review(Model(claim(), proof=quoted))
    assert outcome(review) == INCOMPLETE
    finding = only(review)
    assert finding.is_open
    assert finding.status.value != "refuted"


@pytest.mark.defect("F1")
def test_a_pass_that_a_critic_quotes_in_prose_passes_no_gate(tmp_path: Path) -> None:
    value = json.dumps(critique("PASS", 95).value)
    prose = said(f"The draft ends with `{value}`, which it says of itself. I have not judged it yet.")
    cast = Cast({"write": [writing({"a.md": "A draft."})]}, {"write": [prose]})
    ran = run_stages(tmp_path, cast, {"name": "write", "gate": "critic"})
    assert ran.record.state.value != "completed"


ADMISSIONS = (
    "But orders.py:12 divides by zero when the cart is empty.",
    "Note that number is never compared with the length of folders.",
    "The caller must not pass a name with spaces, or the wrong folder is packed.",
    "I only looked at the first hunk.",
    "Strangers can read any file through folders.",
    "Anyone can log in as admin after this change.",
    "Negative numbers select folders from the end, so the last backup is overwritten.",
    "Zwei Threads schreiben gleichzeitig in dieselbe Datei.",
    "Users lose their data when two jobs run at once.",
    "Thank you for the clean code.",
)


@pytest.mark.defect("F2")
@pytest.mark.parametrize("place", ["after", "before"])
@pytest.mark.parametrize("prose", ADMISSIONS)
def test_prose_beside_an_empty_list_makes_the_review_incomplete(prose: str, place: str, rounds: Rounds) -> None:
    text = f"{CLEAN}\n\n{prose}"
    if place == "before":
        text = f"{prose}\n\n```json\n{CLEAN}\n```"
    model = Model(answers=[said(text)])
    review = rounds.review(model)
    assert outcome(review) == INCOMPLETE
    assert [unit.files for unit in review.coverage.units_failed] == [(FILE,)]
    assert len(model.questions) == 2


@pytest.mark.defect("F2")
def test_an_exact_second_answer_completes_the_unit_and_both_answers_count(rounds: Rounds) -> None:
    first = claim("medium")
    second = claim("low", quote="    return (name, target)", line=3, title="Tuple", body="A small class reads better.")
    beside = "\n\nThat is all I found in the file."
    model = Model(answers=[said(json.dumps({"findings": [first]}) + beside), structured({"findings": [second]})])
    review = rounds.review(model)
    assert outcome(review) == ("NEEDS_WORK", True, 0)
    assert {finding.title for finding in review.findings} == {first["title"], "Tuple"}
    asked, again = model.questions
    assert material.ASKS_AGAIN not in asked.prompt
    assert material.ASKS_AGAIN in again.prompt + (again.system_prompt or "")
    assert CODE.split("\n")[1] in again.prompt


UNASKED: tuple[dict[str, Any], ...] = (
    {"files_reviewed": []},
    {"coverage": 0.2},
    {"notes": ["not able to open a.py"]},
    {"summary": "Fine."},
    {"confidence": 0.1},
    {"truncated": False},
)


@pytest.mark.defect("F7")
@pytest.mark.parametrize("give", [structured, lambda value: said(json.dumps(value))], ids=["structured", "text"])
@pytest.mark.parametrize("more", UNASKED, ids=lambda more: next(iter(more)))
def test_a_key_that_was_not_asked_for_makes_an_answer_inexact(
    more: dict[str, Any], give: Callable[[Any], AgentStep], rounds: Rounds
) -> None:
    model = Model(answers=[give({"findings": [], **more})])
    assert outcome(rounds.review(model)) == INCOMPLETE
    assert len(model.questions) == 2


NOT_A_LIST_OF_OBJECTS: tuple[Any, ...] = (
    *({}, {"a": []}, {FILE: []}, {"critical": [], "high": []}, {"items": []}, {"0": {}}),
    *(None, False, True, 0, 1, 0.5, "", "none", "[]", "{}", "No issues found", CLEAN),
    *([None], [False], [0], [""], ["none"], [[]], [[], []], [[{}]]),
)


@pytest.mark.defect("F11")
@pytest.mark.parametrize("key", ["findings", "issues"])
def test_findings_that_are_not_a_list_of_objects_complete_no_unit(key: str, rounds: Rounds) -> None:
    complete = []
    for value in NOT_A_LIST_OF_OBJECTS:
        for answer in (structured({key: value}), said(json.dumps({key: value}))):
            review = rounds.review(Model(answers=[answer]), fresh=True, keep_history=False)
            if outcome(review) != INCOMPLETE:
                complete.append((value, outcome(review)))
    assert complete == []


@pytest.mark.defect("F11")
def test_a_refusal_beside_an_empty_list_completes_no_unit(rounds: Rounds) -> None:
    model = Model(answers=[structured({"refusal": "no", "findings": []})])
    assert outcome(rounds.review(model)) == INCOMPLETE
