"""A run of an agent that did not end with exactly one readable answer never completes a unit or refutes a claim."""

import json
from pathlib import Path
from typing import Any

import pytest

from codeloupe import AgentResult, errors
from codeloupe.model.agent import AGENT_NAMES
from codeloupe.testing import Garbage, Json, MaxTokens, StandInServer
from tests.agent_programs import KEY, agents_at
from tests.engine_pipelines import Cast, critique, run_stages, writing
from tests.program import Ended
from tests.repository import GitRepository
from tests.trusted_verdict_material import CODE, FILE, INCOMPLETE, Model, Rounds, claim, only, outcome, proof_value
from tests.unit.agents.samples import FakeProgram, printing
from tests.warm_program import codeloupe

CLEAN: dict[str, Any] = {"findings": []}
FOUND: dict[str, Any] = {"findings": [claim()]}
CLEAN_TEXT = json.dumps(CLEAN)
FOUND_TEXT = json.dumps(FOUND)


@pytest.fixture
def rounds(repository: GitRepository, tmp_path: Path) -> Rounds:
    return Rounds(repository, tmp_path / "state", {FILE: CODE})


def incomplete(ended: Ended) -> list[str]:
    """Return the titles of the findings of a review that has to be incomplete."""
    document = ended.json()
    assert (document["verdict"], document["complete"], ended.exit_code) == INCOMPLETE, ended.stderr
    return [finding["title"] for finding in document["findings"]]


def assistant(value: Any) -> dict[str, Any]:
    used = {"type": "tool_use", "name": "StructuredOutput", "input": value}
    said = {"id": str(value), "model": "c", "content": [used], "usage": {}}
    return {"type": "assistant", "parent_tool_use_id": None, "message": said}


def result(**more: Any) -> dict[str, Any]:
    known = {"type": "result", "subtype": "success", "is_error": False, "session_id": "s", "total_cost_usd": 0.01}
    return {**known, "result": CLEAN_TEXT, "structured_output": CLEAN, **more}


EXHAUSTED = {
    "subtype": "error_max_structured_output_retries", "is_error": True, "result": "", "structured_output": None,
    "errors": ["Failed to provide valid structured output after 2 attempts"],
}  # fmt: skip
GEMINI_START = ({"type": "init", "session_id": "s", "model": "g"}, {"type": "message", "role": "user", "content": "x"})
GEMINI_END = {"type": "result", "status": "success", "stats": {"input_tokens": 5, "total_tokens": 10}}
CODEX_START = {"type": "thread.started", "thread_id": "t"}
CODEX_END = {"type": "turn.completed", "usage": {"input_tokens": 5, "output_tokens": 5}}


def gemini_said(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": text, "delta": True}


def codex_said(text: str) -> dict[str, Any]:
    return {"type": "item.completed", "item": {"type": "agent_message", "text": text}}


BROKEN_PIECE = f"(node:12) Warning: {json.dumps(gemini_said(json.dumps(claim())))}"
NULL = json.dumps({**CLEAN, "files_not_read": None})
# The program, what it prints, its exit code, and whether the claim in it is listed.
RUNS: dict[str, tuple[str, list[Any], int, bool]] = {
    "claude: retries exhausted": ("claude", [assistant(CLEAN), result(**EXHAUSTED)], 1, False),
    "claude: rejected answer": ("claude", [assistant(FOUND), assistant(CLEAN), result()], 0, True),
    "claude: refusal": ("claude", [result(stop_reason="refusal")], 0, False),
    "claude: broken second result": ("claude", [result(), '{"type": "result", "is_error": tr'], 0, False),
    "gemini: broken piece": (
        *("gemini", [*GEMINI_START, gemini_said('{"findings": ['), BROKEN_PIECE, gemini_said("]}"), GEMINI_END]),
        *(0, False),
    ),
    "gemini: failed, then succeeded": (
        *("gemini", [*GEMINI_START, gemini_said(CLEAN_TEXT), {**GEMINI_END, "status": "error"}, GEMINI_END], 0, False),
    ),
    "gemini: error, then succeeded": (
        *("gemini", [*GEMINI_START, gemini_said(CLEAN_TEXT), {"type": "error", "message": "x"}, GEMINI_END], 0, False),
    ),
    "gemini: perhaps cut off": ("gemini", [*GEMINI_START, gemini_said("No issues found"), GEMINI_END], 0, False),
    "codex: two messages": ("codex", [CODEX_START, codex_said(FOUND_TEXT), codex_said(CLEAN_TEXT), CODEX_END], 0, True),
    "codex: exit code 1": ("codex", [CODEX_START, codex_said(CLEAN_TEXT), CODEX_END], 1, False),
    "codex: null of an unknown key": ("codex", [CODEX_START, codex_said(NULL), CODEX_END], 0, False),
}
SETTINGS = {
    "claude": ("claude_cli", "CODELOUPE_CLAUDE_PATH", "ANTHROPIC_API_KEY"),
    "codex": ("codex", "CODELOUPE_CODEX_PATH", "OPENAI_API_KEY"),
    "gemini": ("gemini", "CODELOUPE_GEMINI_PATH", "GEMINI_API_KEY"),
}


@pytest.mark.defect("F8")
@pytest.mark.parametrize("name", RUNS)
def test_anything_but_one_readable_success_leaves_the_unit_incomplete(
    name: str, rounds: Rounds, tmp_path: Path
) -> None:
    program, messages, exit_code, is_listed = RUNS[name]
    printed = "".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in messages)
    folder = tmp_path / "program"
    folder.mkdir()
    fake = FakeProgram(folder, printing(printed, then=f"sys.exit({exit_code})"), name=program)
    agent, path_variable, key_variable = SETTINGS[program]
    ended = codeloupe(
        *("review", "--reviewer", agent, "--format", "json"),
        cwd=rounds.repository.path,
        environment={path_variable: fake.path, key_variable: KEY},
    )
    assert incomplete(ended) == ([claim()["title"]] if is_listed else [])


@pytest.mark.parametrize("agent", ["claude_cli", "agent_sdk"])
def test_the_claim_of_a_rejected_structured_answer_is_kept(agent: str, rounds: Rounds) -> None:
    rejected = Json({"findings": [claim()], "summary": "One."})
    with StandInServer([rejected, Json(CLEAN)]) as server:
        words = ("review", "--reviewer", agent, "--format", "json")
        ended = codeloupe(*words, cwd=rounds.repository.path, environment=agents_at(server, agent))
    assert incomplete(ended) == [claim()["title"]]


@pytest.mark.parametrize("agent", AGENT_NAMES)
def test_the_sentence_alone_is_not_exact_if_the_answer_reached_its_limit(agent: str, rounds: Rounds) -> None:
    with StandInServer([MaxTokens("No issues found")]) as server:
        words = ("review", "--reviewer", agent, "--format", "json")
        ended = codeloupe(*words, cwd=rounds.repository.path, environment=agents_at(server, agent))
    assert incomplete(ended) == []


@pytest.mark.parametrize("agent", AGENT_NAMES)
def test_an_ordinary_run_is_exact(agent: str, rounds: Rounds) -> None:
    with StandInServer([Json(CLEAN)]) as server:
        words = ("review", "--reviewer", agent, "--format", "json")
        ended = codeloupe(*words, cwd=rounds.repository.path, environment=agents_at(server, agent))
        assert server.count(auxiliary=False) == 1
    document = ended.json()
    assert (document["verdict"], document["complete"], ended.exit_code) == ("PASS", True, 0), ended.stderr


def completion(content: str | None, *calls: tuple[str, str]) -> Garbage:
    used = [
        {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for number, (name, arguments) in enumerate(calls)
    ]
    message = {"role": "assistant", "content": content, "tool_calls": used}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    known = {"id": "x", "object": "chat.completion", "created": 1, "model": "stand-in"}
    return Garbage(json.dumps({**known, "choices": [choice], "usage": usage}))


TWICE = f'{{"findings": [{json.dumps(claim())}], "findings": []}}'
COMPLETIONS = {
    "two answers": completion(None, ("final_result", CLEAN_TEXT), ("final_result", FOUND_TEXT)),
    "another tool": completion("No issues found", ("report", FOUND_TEXT)),
    "key given twice": completion(None, ("final_result", TWICE)),
}


@pytest.mark.defect("F8")
@pytest.mark.parametrize("name", COMPLETIONS)
def test_an_api_answer_with_unread_parts_leaves_the_unit_incomplete(name: str, rounds: Rounds) -> None:
    with StandInServer([COMPLETIONS[name]]) as server:
        variables = {"CODELOUPE_API_MODEL": "local", "CODELOUPE_API_BASE_URL": f"{server.url}/v1"}
        words = ("review", "--reviewer", "api", "--format", "json")
        ended = codeloupe(*words, cwd=rounds.repository.path, environment=variables)
    assert incomplete(ended) == [claim()["title"]]


def failed(value: Any) -> errors.OutputInvalid:
    """Return the error of a run that failed, with an answer that could be read."""
    return errors.OutputInvalid("no answer fits the schema", agent="scripted", output=json.dumps(value))


@pytest.mark.defect("F8")
def test_the_answer_of_a_failed_run_completes_no_unit(rounds: Rounds) -> None:
    assert outcome(rounds.review(Model(answers=[failed(CLEAN)]))) == INCOMPLETE


@pytest.mark.defect("F8")
def test_the_answer_of_a_failed_run_refutes_no_claim(rounds: Rounds) -> None:
    review = rounds.review(Model(claim(), proof=failed(proof_value("refuted"))))
    assert outcome(review) == INCOMPLETE
    assert only(review).is_open


@pytest.mark.defect("F8")
def test_the_answer_of_a_failed_run_passes_no_gate(tmp_path: Path) -> None:
    critic = failed(critique("PASS", 95).value)
    cast = Cast({"write": [writing({"a.md": "A draft."})]}, {"write": [critic]})
    ran = run_stages(tmp_path, cast, {"name": "write", "gate": "critic"})
    assert ran.record.state.value != "completed"


def test_a_structured_value_that_cannot_be_read_leaves_the_unit_incomplete(rounds: Rounds) -> None:
    deep: list[Any] = []
    for _ in range(120):
        deep = [deep]
    for value in (claim(note=deep), claim(confidence=float("inf"))):
        for text in ("No issues found", CLEAN_TEXT):
            step = AgentResult(success=True, output=text, structured={"findings": [value]}, agent="", model="s")
            assert outcome(rounds.review(Model(answers=[step]), fresh=True)) == INCOMPLETE


def test_masking_hides_no_claim_between_an_address_and_a_mention(repository: GitRepository, tmp_path: Path) -> None:
    def made(title: str, **more: Any) -> dict[str, Any]:
        return claim(file="a.py", title=title, body="", **more)

    items = [made("Plaintext", quote="http://"), made("Injection", quote=""), made("Untested", quote="@app.cli")]
    text = json.dumps({"findings": items}, separators=(",", ":"))
    step = AgentResult(success=True, output=text, agent="", model="s")
    review = Rounds(repository, tmp_path / "state", {"a.py": CODE}).review(Model(answers=[step]))
    assert {finding.title for finding in review.findings} == {"Plaintext", "Injection", "Untested"}
