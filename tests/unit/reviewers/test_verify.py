import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe.agents.calls.budget import RunBudget
from codeloupe.agents.calls.caller import AgentCaller
from codeloupe.agents.calls.limiter import Timing
from codeloupe.errors import NotLoggedIn, TimedOut
from codeloupe.model.agent import AgentLimits, AgentResult
from codeloupe.model.change import FileChange, FileStatus, Hunk
from codeloupe.model.events import Event, FindingVerified, StageStarted, Warned
from codeloupe.model.finding import Finding, Proof, Severity
from codeloupe.model.ports import AskAgent, ClaimProof, Plan, Verification, VerifierResult
from codeloupe.reviewers.prompt import PROOFS_SCHEMA
from codeloupe.reviewers.verify import AgentVerifier
from codeloupe.testing import AgentStep, Json, ScriptedAgent, Text
from tests.endings import PATIENCE_SECONDS
from tests.findings_material import make_claim, make_finding
from tests.review_factories import direct, make_plan, named, through
from tests.rows import each

FILES = named(["a.py"])
QUOTE = "value_3 = compute('a.py', 3, 'some text to fill it')"
HIGH = make_finding(line_start=4, line_end=4, evidence=QUOTE)
ONCE_MORE = "Reply with the JSON value only."


def verify(
    findings: Sequence[Finding], plan: Plan, *agents: ScriptedAgent, ask: AskAgent = direct
) -> tuple[VerifierResult, list[Event]]:
    events: list[Event] = []
    verifier = AgentVerifier(ask=ask, agents=agents)
    return asyncio.run(asyncio.wait_for(verifier.verify(findings, plan, events.append), PATIENCE_SECONDS)), events


def proof(word: str, reason: str = "line 2 rules it out", claim: int = 1, **fix: str) -> dict[str, Any]:
    return {"claim": claim, "reason": reason, "proof": word, **fix}


def said(*proofs: dict[str, Any]) -> Json:
    return Json({"proofs": list(proofs)})


def became(root: Path, *steps: AgentStep, found: Finding = HIGH) -> tuple[Verification, VerifierResult, list[Event]]:
    result, events = verify([found], make_plan(root, FILES), ScriptedAgent(list(steps)))
    (one,) = result.verifications
    return one, result, events


@each("word", ["confirmed", "unproven", "refuted"])
def test_a_proof_is_returned_with_its_reason(tmp_path: Path, word: str) -> None:
    one, result, events = became(tmp_path, said(proof(word)))
    assert one == Verification(proofs=(ClaimProof(proof=Proof(word), reason="line 2 rules it out"),))
    assert (result.errors, result.usage.requests) == ((), 1)
    assert StageStarted("verifying", "1 finding") in events
    assert FindingVerified(HIGH, word) in events


def test_all_claims_of_a_finding_are_verified_with_one_question(tmp_path: Path) -> None:
    further = make_claim(title="Also wrong", severity=Severity.CRITICAL, line_start=4, line_end=4, evidence=QUOTE)
    found = make_finding(further, line_start=4, line_end=4, evidence=QUOTE)
    agent = ScriptedAgent([said(proof("refuted", claim=2), proof("confirmed", "zero reaches it"))])
    result, events = verify([found], make_plan(tmp_path, FILES), agent)
    assert len(agent.requests) == 1
    assert [part in agent.requests[0].prompt for part in ("claim 1 ", "claim 2 ", "Also wrong")] == [True] * 3
    [one] = result.verifications
    assert [shown.proof for shown in one.proofs] == [Proof.CONFIRMED, Proof.REFUTED]
    assert FindingVerified(found, "confirmed") in events
    # A proof for each claim is part of an exact answer.
    result, _ = verify([found], make_plan(tmp_path, FILES), ScriptedAgent([said(proof("refuted"))]))
    assert result.verifications[0].problem == "missing field: proof (claim 2)"


def test_a_confirmed_claim_may_come_with_a_fix_for_exactly_the_quoted_lines(tmp_path: Path) -> None:
    new_code = QUOTE.replace("3, 'some", "4, 'some")
    fix: dict[str, Any] = {"suggestion": "Pass four.", "replacement": new_code}
    one, _, _ = became(tmp_path, said(proof("confirmed", **fix)))
    assert (one.proofs[0].suggestion, one.proofs[0].replacement) == ("Pass four.", new_code)
    elsewhere = make_finding(line_start=9, line_end=9, evidence=QUOTE)
    one, _, _ = became(tmp_path, said(proof("confirmed", **fix)), found=elsewhere)
    assert (one.proofs[0].suggestion, one.proofs[0].replacement) == ("Pass four.", None)


def test_secrets_in_a_proof_are_masked(tmp_path: Path) -> None:
    secret = "sk-" + "ant-" + "x" * 40
    one, _, _ = became(tmp_path, said(proof("confirmed", f"the key {secret}", suggestion=f"remove {secret}")))
    assert secret not in f"{one.proofs[0].reason} {one.proofs[0].suggestion}"


def test_only_an_exact_answer_proves_anything(tmp_path: Path) -> None:
    value = json.dumps({"proofs": [proof("refuted")]})
    for exact in (value, f"```json\n{value}\n```"):
        assert became(tmp_path, Text(exact))[0].proofs[0].proof is Proof.REFUTED
    for text in (f"Somebody wrote {value} into the notes.", f"{value}\nThat is my answer.", "It is refuted."):
        one, result, _ = became(tmp_path, Text(text))
        assert (one.proofs, bool(one.problem)) == ((), True)
        assert [error.kind for error in result.errors] == ["not_verified"]
        # The second answer decides.
        one, result, _ = became(tmp_path, Text(text), said(proof("confirmed")))
        assert (one.proofs[0].proof, result.errors) == (Proof.CONFIRMED, ())


@pytest.mark.requirement("V12")
@each(
    ("step", "reason", "questions"),
    [
        (TimedOut("too long", agent="scripted"), "timeout", 1),
        (Text("hm"), "invalid json", 2),
        (said(proof("perhaps")), "invalid proof: perhaps", 2),
        (said(proof("refuted", "  ")), "missing field: reason", 2),
        (Json({"reason": "x", "proof": "refuted"}), "unknown field: reason", 2),
        (
            AgentResult(success=True, output='{"proofs": []}', agent="scripted", inexact="it was cut off"),
            "it was cut off",
            2,
        ),
    ],
)
def test_a_verification_that_could_not_run_says_why(
    tmp_path: Path, step: AgentStep, reason: str, questions: int
) -> None:
    agent = ScriptedAgent([step])
    result, events = verify([HIGH], make_plan(tmp_path, FILES), agent)
    assert [request.prompt.endswith(ONCE_MORE) for request in agent.requests] == [False, True][:questions]
    [one] = result.verifications
    assert (one.proofs, one.problem.startswith(reason)) == ((), True)
    [error] = result.errors
    assert (error.kind, error.message) == ("not_verified", f"a.py:4 could not be verified: {one.problem}")
    assert Warned(error.message) in events
    assert FindingVerified(HIGH, "not_verified") in events


def test_the_next_agent_verifies_if_the_first_does_not_answer(tmp_path: Path) -> None:
    first = ScriptedAgent([Text("hm")], name="codex")
    second = ScriptedAgent([said(proof("refuted"))], name="gemini")
    result, _ = verify([HIGH], make_plan(tmp_path, FILES), first, second)
    assert (len(first.requests), len(second.requests)) == (2, 1)
    assert (result.verifications[0].proofs[0].proof, result.errors) == (Proof.REFUTED, ())


def test_verifications_come_back_in_the_order_of_the_findings(tmp_path: Path) -> None:
    given = [make_finding(line_start=line, line_end=line, title=f"number {line}") for line in (9, 4, 6)]
    agent = ScriptedAgent([lambda request: said(proof("confirmed", request.labels["unit"]))])
    result, _ = verify(given, make_plan(tmp_path, FILES), agent)
    told = [one.proofs[0].reason for one in result.verifications]
    assert told == ["verify a.py:9", "verify a.py:4", "verify a.py:6"]
    # Without anything to verify nothing is asked or reported.
    agent = ScriptedAgent([said(proof("refuted"))])
    assert verify([], make_plan(tmp_path, FILES), agent) == (VerifierResult(), [])
    assert agent.requests == ()


def test_the_question_shows_the_code_around_the_finding(tmp_path: Path) -> None:
    agent = ScriptedAgent([said(proof("confirmed"))])
    verify([HIGH], make_plan(tmp_path, FILES, with_tree=True), agent)
    verify([HIGH], make_plan(tmp_path, FILES, trusted=False, with_tree=True), agent)
    first, second = agent.requests
    parts = (">4 value_3 = compute", "value_20", first.labels["fence"], "value_50")
    assert [part in first.prompt for part in parts] == [True, True, True, False]
    assert (first.output_schema, first.labels["unit"]) == (PROOFS_SCHEMA, "verify a.py:4")
    assert (first.tools, second.tools) == (None, ())


def test_the_diff_is_shown_where_the_content_is_not_known(tmp_path: Path) -> None:
    agent = ScriptedAgent([said(proof("confirmed"))])
    plan = replace(make_plan(tmp_path, FILES), without_content=frozenset({"a.py"}))
    verify([HIGH, make_finding(file="deleted.py", line_start=4, evidence="only this")], plan, agent)
    prompts = sorted((request.prompt for request in agent.requests), key=lambda prompt: "only this" in prompt)
    assert [part in prompts[0] for part in ("4 value_3 = compute", "value_50")] == [True, False]
    assert "only this" in prompts[1]
    # For a deleted file, its deleted lines are shown.
    agent = ScriptedAgent([said(proof("confirmed"))])
    body = b"".join(b"-line %d\n" % number for number in range(1, 81))
    gone = FileChange("gone.py", None, FileStatus.DELETED, hunks=(Hunk(1, 80, 0, 0, body, deleted=80),))
    plan = replace(make_plan(tmp_path, {}), files=(gone,))
    verify([make_finding(file="gone.py", line_start=40)], plan, agent)
    assert "-40 line 40\n" in agent.requests[0].prompt
    assert "line 70" not in agent.requests[0].prompt


@pytest.mark.defect("T4")
def test_a_claim_without_a_place_is_verified_with_the_whole_diff_of_its_file(tmp_path: Path) -> None:
    agent = ScriptedAgent([said(proof("refuted"))])
    found = make_finding(anchored=False, evidence="no such line")
    result, _ = verify([found], make_plan(tmp_path, FILES), agent)
    assert result.verifications[0].proofs[0].proof is Proof.REFUTED
    parts = ("no such line", "the quoted code was not found there", "value_1 = compute", "value_50 = compute")
    assert [part in agent.requests[0].prompt for part in parts] == [True] * 4
    assert agent.requests[0].labels["unit"] == "verify a.py"


def test_an_agent_without_tools_verifies_with_the_code_in_the_question(tmp_path: Path) -> None:
    agent = ScriptedAgent([said(proof("refuted"))], limits=AgentLimits(schema=True))
    result, _ = verify([HIGH], make_plan(tmp_path, FILES, with_tree=True), agent)
    assert result.verifications[0].proofs[0].proof is Proof.REFUTED
    assert agent.requests[0].tools == ()


def test_an_exhausted_budget_leaves_the_rest_unverified(tmp_path: Path) -> None:
    agent = ScriptedAgent([said(proof("refuted"))])
    caller = AgentCaller(budget=RunBudget(clock=Timing().clock, max_requests=1))
    given = [make_finding(line_start=number, line_end=number) for number in range(1, 6)]
    result, _ = verify(given, make_plan(tmp_path, FILES), agent, ask=through(caller, agent))
    assert sum(bool(one.proofs) for one in result.verifications) == 1
    assert sum(one.problem.startswith("budget exhausted") for one in result.verifications) == 4
    assert len(result.errors) == 4
    assert result.usage.requests == 1


def test_a_missing_login_is_met_once_and_not_for_each_finding(tmp_path: Path) -> None:
    agent = ScriptedAgent([NotLoggedIn("no key", agent="scripted")])
    given = [make_finding(line_start=number, line_end=number) for number in range(1, 200)]
    result, _ = verify(given, make_plan(tmp_path, FILES), agent)
    assert len(agent.requests) <= 64
    assert len(result.verifications) == 199
    assert all("no key" in one.problem for one in result.verifications)
