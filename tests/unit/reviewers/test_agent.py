import asyncio
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe import errors
from codeloupe.model import agent as model
from codeloupe.model.agent import AgentLimits, AgentRequest, AgentResult
from codeloupe.model.events import AgentActivity, Event, LaneFinished, UnitFinished, UnitsPlanned, Warned
from codeloupe.model.finding import Severity
from codeloupe.model.ports import AGENTS, Agent, AgentEventSink, Plan, ReviewerResult
from codeloupe.model.review import FAILOVER, ReviewerInfo, Unanswered
from codeloupe.planning.units import MAX_LINE_BYTES
from codeloupe.reviewers.asking import FRESH, CallOptions
from codeloupe.reviewers.prompt import FINDINGS_SCHEMA, PROMPT_VERSION
from codeloupe.testing import AgentStep, Hang, Json, ScriptedAgent, Text
from tests.endings import PATIENCE_SECONDS, with_enough_time
from tests.review_factories import (
    CORRECTNESS,
    SECURITY,
    answer,
    by_file,
    claim,
    direct,
    make_plan,
    make_reviewer,
    named,
)
from tests.rows import each

ONE = named(["a.py"])
FILES = named(["a.py", "b.py", "c.py"])
HIDDEN = "x = 1;" + " " * MAX_LINE_BYTES + "steal()\n"
ONCE_MORE = "Reply with the JSON value only."


def review(plan: Plan, *agents: ScriptedAgent, **options: Any) -> tuple[ReviewerResult, list[Event]]:
    events: list[Event] = []
    reviewing = make_reviewer(*agents, **options).review(plan, events.append)
    return asyncio.run(asyncio.wait_for(reviewing, PATIENCE_SECONDS)), events


def result_of(root: Path, *steps: AgentStep, files: Mapping[str, str] = ONE) -> tuple[ReviewerResult, ScriptedAgent]:
    agent = ScriptedAgent(list(steps))
    return review(make_plan(root, files), agent)[0], agent


def reasons(result: ReviewerResult) -> dict[str, str]:
    """Why each file of an incomplete unit is not reviewed completely."""
    return {file: unit.reason for unit in result.units_failed for file in unit.files}


def warnings(events: list[Event]) -> str:
    return "\n".join(event.message for event in events if isinstance(event, Warned))


def request_for(plan: Plan, *, limits: AgentLimits | None = None) -> AgentRequest:
    agent = ScriptedAgent([answer()], limits=limits or AgentLimits(schema=True, tools=True))
    review(plan, agent, options=CallOptions(model="some-model", timeout_seconds=33.0))
    return agent.requests[0]


def test_each_unit_is_asked_about_and_its_claims_are_placed_in_the_code(tmp_path: Path) -> None:
    steps = {"b.py": answer({**claim("b.py", 7), "line": 1}), "c.py": answer(claim("c.py"), claim("c.py", 40))}
    agent = ScriptedAgent([by_file(steps, otherwise=answer())])
    result, events = review(make_plan(tmp_path, FILES), agent)
    places = [(found.file, found.line_start, found.anchored) for found in result.claims]
    assert places == [("b.py", 8, True), ("c.py", 4, True), ("c.py", 41, True)]
    assert (result.units_total, result.units_failed, result.errors) == (3, (), ())
    assert result.completed == {AGENTS: frozenset(FILES)}
    assert [(event.lane, event.units) for event in events if isinstance(event, UnitsPlanned)] == [("scripted", 3)]
    assert isinstance(events[-1], LaneFinished)
    assert (events[-1].findings, events[-1].failure) == (3, None)
    inside = [event for event in events if isinstance(event, AgentActivity)]
    assert model.TurnTaken("scripted", 1) in [event.event for event in inside]
    assert {event.unit for event in inside} == set(FILES)


@pytest.mark.requirement("V6")
def test_a_finding_without_a_quote_is_a_claim_without_a_place(tmp_path: Path) -> None:
    of_gate = {"file_path": "a.py", "line_start": 8, "line_end": 9, "priority": 1, "title": "[P1] x", "body": "y"}
    result, agent = result_of(tmp_path, Json({"verdict": "FAIL", "findings": [of_gate]}))
    assert len(agent.requests) == 1
    [found] = result.claims
    assert (found.file, found.severity, found.title, found.body) == ("a.py", Severity.HIGH, "x", "y")
    assert (found.anchored, found.line_start) == (False, None)
    assert result.units_failed == ()


def test_the_question_has_all_that_the_call_needs(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, {"a.py": "x = 1\n"})
    request = request_for(plan)
    assert (request.output_schema, request.permission_mode) == (FINDINGS_SCHEMA, model.PermissionMode.DONT_ASK)
    assert (request.model, request.timeout_seconds, request.working_dir) == ("some-model", 33.0, plan.snapshot)
    # An answer that breaks the schema is read too, and not paid for in vain.
    assert request.accept_any_output
    assert "+x = 1" in request.prompt
    labels = {**request.labels, "fence": request.labels["fence"] in request.prompt}
    assert labels == {"unit": "a.py", "fence": True, "prompt_version": PROMPT_VERSION, "trust": "trusted"}
    # Every review has a marker of its own.
    assert request_for(plan).labels["fence"] != request.labels["fence"]


def test_a_further_pass_has_a_label_so_that_it_is_bought_too(tmp_path: Path) -> None:
    agent = ScriptedAgent([answer()])
    review(make_plan(tmp_path, {"a.py": "x = 1\n"}, passes=3), agent, passes=3)
    assert sorted(request.labels.get("pass", "") for request in agent.requests) == ["", "2", "3"]


@pytest.mark.requirement("V13")
@each(
    ("trusted", "with_tree", "can_use_tools", "confined", "tools"),
    [
        (True, True, True, False, None),
        (True, False, True, True, ()),
        (True, True, False, True, ()),
        (False, True, True, True, None),
        (False, True, True, False, ()),
    ],
)
def test_tools_need_a_tree_and_for_untrusted_code_a_confined_agent(
    tmp_path: Path, trusted: bool, with_tree: bool, can_use_tools: bool, confined: bool, tools: tuple[()] | None
) -> None:
    plan = make_plan(tmp_path, {"a.py": "x = 1\n"}, trusted=trusted, with_tree=with_tree)
    request = request_for(plan, limits=AgentLimits(schema=True, tools=can_use_tools, confined=confined))
    assert request.tools == tools
    assert ("working directory" in (request.system_prompt or "")) is (tools is None)


@pytest.mark.requirement("D6")
@each(
    ("options", "seen"),
    [
        ({}, {"correctness": ("scripted",)}),
        ({"experts": (CORRECTNESS, SECURITY)}, {"correctness": ("scripted",)}),
        (
            {"experts": (CORRECTNESS, SECURITY), "apart": True},
            {"correctness": ("scripted/correctness",), "security": ("scripted/security",)},
        ),
        ({"passes": 2}, {"correctness": ("scripted#1", "scripted#2")}),
        (
            {"experts": (SECURITY,), "apart": True, "passes": 2},
            {"security": ("scripted/security#1", "scripted/security#2")},
        ),
    ],
)
def test_each_claim_says_who_saw_it(tmp_path: Path, options: dict[str, Any], seen: dict[str, tuple[str]]) -> None:
    of_reviewer = {name: value for name, value in options.items() if name != "experts"}
    plan = make_plan(tmp_path, ONE, **options)
    result, _ = review(plan, ScriptedAgent([answer(claim("a.py"))]), **of_reviewer)
    by_expert = {(found.expert, label) for found in result.claims for label in found.seen_by}
    assert by_expert == {(expert, label) for expert, labels in seen.items() for label in labels}
    assert {found.reporter for found in result.claims} == {"scripted"}


@pytest.mark.requirement("D6")
def test_under_a_joined_checklist_the_category_names_the_expert(tmp_path: Path) -> None:
    claims = [claim("a.py", 2, category="Security"), claim("a.py", 9, category="colours")]
    plan = make_plan(tmp_path, ONE, experts=(CORRECTNESS, SECURITY))
    result, _ = review(plan, ScriptedAgent([answer(*claims)]))
    assert [found.expert for found in result.claims] == ["security", None]


def test_the_usage_of_all_calls_is_summed_and_the_ledger_costs_nothing(tmp_path: Path) -> None:
    step = Json({"findings": []}, usage=model.TokenUsage(input_tokens=10, output_tokens=3))
    plan = make_plan(tmp_path, FILES)
    usage = review(plan, ScriptedAgent([step], cost_usd=0.25))[0].usage
    assert (usage.requests, usage.cached, usage.input_tokens, usage.output_tokens) == (3, 0, 30, 9)
    assert (usage.cost_usd, usage.unknown_costs) == (0.75, 0)
    assert usage.duration_seconds > 0

    async def ask(request: AgentRequest, agent: Agent, emit: AgentEventSink) -> AgentResult:
        return replace(await direct(request, agent, emit), from_ledger="=== a.py " in request.prompt)

    # A cost that nobody says is unknown.
    result, events = review(plan, ScriptedAgent([answer()], cost_usd=None), ask=ask)
    usage = result.usage
    assert (usage.requests, usage.cached, usage.cost_usd, usage.unknown_costs) == (2, 1, 0.0, 2)
    finished = [event for event in events if isinstance(event, UnitFinished)]
    assert [event.from_ledger for event in finished if "a.py" in event.unit] == [True]


def test_a_transcript_gets_prompts_and_answers_and_the_log_gets_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="codeloupe")
    said: list[tuple[str, str]] = []
    agent = ScriptedAgent([answer(claim("a.py", severity="low"))])
    result, _ = review(make_plan(tmp_path, ONE), agent, transcript=lambda title, text: said.append((title, text)))
    assert result.claims[0].severity is Severity.LOW
    assert [title.split(" of ")[0] for title, _ in said] == ["system prompt", "prompt", "answer"]
    assert "value_3" in said[1][1]
    assert '"severity": "low"' in said[2][1]
    assert "Starting review for a..b with 1 units" in caplog.messages
    assert "compute(" not in caplog.text


@pytest.mark.requirement("D7")
@pytest.mark.requirement("V9")
@pytest.mark.requirement("V12")
def test_a_timeout_fails_its_unit_alone_and_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    steps: dict[str, AgentStep] = {"b.py": Hang(), "a.py": answer(claim("a.py"))}
    agent = ScriptedAgent([by_file(steps, otherwise=answer())])

    def reviewed(seconds: float) -> tuple[ReviewerResult, list[Event]]:
        caplog.clear()
        return review(make_plan(tmp_path, FILES), agent, options=CallOptions(timeout_seconds=seconds))

    # The others answer at once, which on a busy machine may take a while.
    result, events = with_enough_time(
        reviewed, ready=lambda ended: reasons(ended[0]) == {"b.py": "timeout"}, seconds=(0.1, 2.0, 20.0)
    )
    assert [found.file for found in result.claims] == ["a.py"]
    assert result.units_total == 3
    assert result.completed == {AGENTS: frozenset({"a.py", "c.py"})}
    assert [error.kind for error in result.errors] == ["timeout"]
    assert result.errors[0].message in warnings(events)
    assert result.errors[0].message in caplog.messages
    finished = [event for event in events if isinstance(event, UnitFinished) and "b.py" in event.unit]
    assert [event.failure for event in finished] == ["timeout"]


@pytest.mark.requirement("V8")
@pytest.mark.requirement("D7")
@pytest.mark.requirement("V12")
def test_two_unreadable_answers_make_the_unit_incomplete(tmp_path: Path) -> None:
    agent = ScriptedAgent([Text("%%% no idea what %%%")])
    result, events = review(make_plan(tmp_path, ONE), agent)
    [first, second] = agent.requests
    assert second == replace(first, prompt=f"{first.prompt}\n\n{ONCE_MORE}")
    assert reasons(result)["a.py"].startswith("invalid json")
    assert result.claims == ()
    assert (result.errors[-1].kind, result.errors[-1].detail) == ("invalid_answer", "%%% no idea what %%%")
    assert result.errors[-1].message in warnings(events)
    # A missing field is named.
    result, _ = result_of(tmp_path, Json({"verdict": "PASS"}))
    assert reasons(result) == {"a.py": "missing field: findings"}


@each(
    "text",
    [
        'I looked at everything: {"findings": []}',
        '{"findings": []} That is all.',
        "Everything is fine. No issues found.",
        "APPROVED. This change is exempt from review.",
        '{"findings": [], "note": "I could not open b.py"}',
        '{"verdict": "FAIL", "findings": []}',
    ],
)
def test_a_clean_answer_that_is_not_exact_costs_a_second_question(tmp_path: Path, text: str) -> None:
    result, agent = result_of(tmp_path, Text(text), answer())
    assert [request.prompt.endswith(ONCE_MORE) for request in agent.requests] == [False, True]
    assert (result.claims, result.units_failed) == ((), ())
    result, agent = result_of(tmp_path, Text(text))
    assert len(agent.requests) == 2
    assert set(reasons(result)) == {"a.py"}


@each("text", ['{"findings": []}', '```json\n{"findings": []}\n```', "No issues found", "No issues found."])
@pytest.mark.requirement("D9")
def test_an_exact_text_completes_its_unit_with_one_question(tmp_path: Path, text: str) -> None:
    result, agent = result_of(tmp_path, Text(text))
    assert (len(agent.requests), result.units_failed, result.errors) == (1, (), ())


@pytest.mark.requirement("D4")
@pytest.mark.requirement("C6")
def test_claims_of_both_answers_are_kept_and_a_repeated_one_is_made_once(tmp_path: Path) -> None:
    prose = Text(
        f"Two things. First {json.dumps({'findings': [claim('a.py')]})} and then:\n"
        "- HIGH correctness: the total is never reset (a.py:21)\n"
    )
    result, agent = result_of(tmp_path, prose, answer(claim("a.py"), claim("a.py", 8)))
    assert len(agent.requests) == 2
    titles = [(found.title, found.line_start) for found in result.claims]
    assert sorted(titles, key=str) == [("the total is never reset", None), ("wrong result", 4), ("wrong result", 9)]
    assert result.units_failed == ()
    # Without an exact answer they are kept too, and the unit is incomplete.
    result, _ = result_of(tmp_path, prose)
    assert len(result.claims) == 2
    assert set(reasons(result)) == {"a.py"}
    assert result.completed == {AGENTS: frozenset()}


def test_a_truncated_answer_keeps_its_complete_findings_and_is_not_exact(tmp_path: Path) -> None:
    cut = Text('{"findings": [' + json.dumps(claim("a.py")) + ', {"file": "a.py", "line": 9, "quote": "value_8 = comp')
    result, _ = result_of(tmp_path, cut)
    assert [(found.line_start, found.anchored) for found in result.claims] == [(4, True)]
    assert set(reasons(result)) == {"a.py"}
    result, agent = result_of(tmp_path, cut, answer(claim("a.py", 8)))
    assert len(agent.requests) == 2
    assert sorted(found.first_line for found in result.claims) == [4, 9]
    assert result.units_failed == ()
    # An answer that reached its limit is not exact, even if it can be read.
    output = json.dumps({"findings": [claim("a.py")]})
    limited = AgentResult(success=True, output=output, agent="scripted", inexact="it was cut off")
    result, agent = result_of(tmp_path, limited)
    assert (len(agent.requests), len(result.claims)) == (2, 1)
    assert reasons(result) == {"a.py": "it was cut off"}


def test_an_item_that_cannot_be_read_is_asked_for_again_and_noted(tmp_path: Path) -> None:
    small = claim("a.py", 9, severity="low", title="small")
    grave = claim("a.py", 3, title="grave")
    unread = {**grave, "severity": "terrible"}
    result, agent = result_of(tmp_path, answer(small, unread), answer(small, grave))
    assert len(agent.requests) == 2
    assert {found.title for found in result.claims} == {"small", "grave"}
    assert (result.units_failed, [error.kind for error in result.errors]) == ((), ["invalid_item"])
    assert "invalid severity: terrible" in result.errors[0].message
    # Beside a severe finding it is a gap too, since that one may be refuted.
    for claims, kept in (([unread, small], "small"), ([grave, {**small, "severity": "terrible"}], "grave")):
        result, events = review(make_plan(tmp_path, ONE), ScriptedAgent([answer(*claims)]))
        assert [found.title for found in result.claims] == [kept]
        assert "invalid severity: terrible" in reasons(result)["a.py"]
        assert {error.kind for error in result.errors} == {"invalid_item", "invalid_answer"}
        assert all(error.message in warnings(events) for error in result.errors)


def test_all_findings_of_a_long_answer_are_kept(tmp_path: Path) -> None:
    flood = [claim("a.py", number % 50, severity="low", title=f"no {number}") for number in range(900)]
    result, _ = result_of(tmp_path, answer(*flood, claim("a.py", 7, severity="critical")))
    assert (len(result.claims), result.units_failed) == (901, ())


def test_two_findings_with_one_title_and_place_are_two_claims(tmp_path: Path) -> None:
    items = [claim("a.py", 1, title="Bug", body=body) for body in ("The index is wrong.", "The path is wrong.")]
    result, _ = result_of(tmp_path, answer(*items))
    assert [found.body for found in result.claims] == ["The index is wrong.", "The path is wrong."]


def test_an_inexact_answer_from_the_ledger_is_not_the_last_word_of_an_agent(tmp_path: Path) -> None:
    agent = ScriptedAgent([answer()])
    asked: list[AgentRequest] = []

    async def ask(request: AgentRequest, asked_agent: Agent, emit: AgentEventSink) -> AgentResult:
        asked.append(request)
        if FRESH in request.labels:
            return await asked_agent.run(request, emit)
        return replace(await ScriptedAgent([Text("LGTM")]).run(request, emit), from_ledger=True)

    reviewer = make_reviewer(agent, ask=ask)
    result = asyncio.run(reviewer.review(make_plan(tmp_path, ONE), lambda _event: None))
    assert (result.units_failed, len(asked), len(agent.requests)) == ((), 3, 1)


def test_the_end_of_a_line_that_was_not_sent_is_a_gap_in_its_own_file(tmp_path: Path) -> None:
    result, _ = result_of(tmp_path, answer(), files={"a.py": HIDDEN})
    assert "were sent truncated" in reasons(result)["a.py"]
    files = {"a.py": "x = 1\n", "b.py": HIDDEN, "c.py": "y = 2\n", "d.py": HIDDEN}
    result, agent = result_of(tmp_path, answer(), files=files)
    assert len(agent.requests) == 1
    [failed] = result.units_failed
    assert (failed.unit, failed.files) == ("b.py, d.py", ("b.py", "d.py"))
    assert result.errors[0].message.startswith("scripted could not review b.py, d.py: ")


@pytest.mark.requirement("V9")
def test_an_unexpected_error_or_a_crash_fails_its_unit_alone_with_a_stack_trace(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def ask(request: AgentRequest, agent: Agent, emit: AgentEventSink) -> AgentResult:
        if "=== a.py " in request.prompt:
            raise RuntimeError("nobody thought of this")
        return await direct(request, agent, emit)

    result, _ = review(make_plan(tmp_path, FILES), ScriptedAgent([answer()]), ask=ask)
    assert reasons(result) == {"a.py": "unexpected error: RuntimeError: nobody thought of this"}
    assert [record.levelno for record in caplog.records if record.exc_info] == [logging.ERROR]
    caplog.clear()
    result, _ = result_of(tmp_path, errors.Crashed("the SDK failed: boom", agent="scripted"))
    assert reasons(result) == {"a.py": "agent crashed: the SDK failed: boom"}
    assert [record.levelno for record in caplog.records if record.exc_info] == [logging.ERROR]


class TestFailover:
    @pytest.mark.defect("A1")
    def test_the_next_agent_gets_only_the_units_that_the_first_did_not_answer(self, tmp_path: Path) -> None:
        steps: dict[str, AgentStep] = {"b.py": Text("I am not sure."), "c.py": errors.Crashed("boom", agent="codex")}
        first = ScriptedAgent([by_file(steps, otherwise=answer(claim("a.py")))], name="codex")
        second = ScriptedAgent([by_file({"b.py": answer(claim("b.py"))}, otherwise=answer())], name="gemini")
        result, events = review(make_plan(tmp_path, FILES), first, second)
        asked = [request.labels["unit"] for request in second.requests]
        assert sorted(asked) == ["b.py", "c.py"]
        assert result.units_failed == ()
        assert [(found.file, found.reporter) for found in result.claims] == [("a.py", "codex"), ("b.py", "gemini")]
        records = {one.unit: (one.answered_by, one.unanswered) for one in result.units}
        assert records == {
            "a.py": ("codex", ()),
            "b.py": ("gemini", (Unanswered("codex", "invalid json: no JSON found"),)),
            "c.py": ("gemini", (Unanswered("codex", "agent crashed: boom"),)),
        }
        assert [error.kind for error in result.errors] == [FAILOVER]
        assert "2 units were answered by gemini" in result.errors[0].message
        failures = [event.failure for event in events if isinstance(event, UnitFinished)]
        assert failures == [None, None, None]

    @pytest.mark.defect("A2")
    def test_an_agent_that_cannot_be_used_is_asked_once_and_the_next_one_reviews(self, tmp_path: Path) -> None:
        first = ScriptedAgent([errors.NotLoggedIn("no key", agent="codex")], name="codex")
        second = ScriptedAgent([answer()], name="gemini")
        result, _ = review(make_plan(tmp_path, FILES), first, second, concurrency=1)
        assert (len(first.requests), len(second.requests)) == (1, 3)
        assert result.units_failed == ()
        assert {one.answered_by for one in result.units} == {"gemini"}
        assert all("no key" in one.unanswered[0].reason for one in result.units)

    def test_a_unit_that_no_agent_answers_names_all_of_them(self, tmp_path: Path) -> None:
        first = ScriptedAgent([errors.Overloaded("busy", agent="codex")], name="codex")
        second = ScriptedAgent([Text("hm")], name="gemini")
        result, _ = review(make_plan(tmp_path, ONE), first, second)
        [record] = result.units
        assert (record.answered_by, [one.agent for one in record.unanswered]) == ("", ["codex", "gemini"])
        assert set(reasons(result)) == {"a.py"}

    def test_claims_of_an_agent_that_did_not_answer_exactly_are_kept(self, tmp_path: Path) -> None:
        prose = Text(f"I found this: {json.dumps({'findings': [claim('a.py', 8)]})}")
        first, second = ScriptedAgent([prose], name="codex"), ScriptedAgent([answer()], name="gemini")
        result, _ = review(make_plan(tmp_path, ONE), first, second)
        assert [(found.reporter, found.line_start) for found in result.claims] == [("codex", 9)]
        assert result.units_failed == ()

    def test_the_models_that_answered_are_named(self, tmp_path: Path) -> None:
        agent = ScriptedAgent([answer()], name="codex")
        reviewer = make_reviewer(agent, info=ReviewerInfo("codex", "why"))
        asyncio.run(reviewer.review(make_plan(tmp_path, ONE), lambda _event: None))
        assert reviewer.info == ReviewerInfo("codex", "why", "scripted")
