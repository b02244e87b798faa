import asyncio
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe import errors
from codeloupe.agents.calls.caller import AgentCaller, CallerOptions
from codeloupe.agents.calls.retry import RetryPolicy
from codeloupe.engine.ask import CallOptions, Circuit, CircuitOpen
from codeloupe.engine.calls import PROMPT_VERSION
from codeloupe.engine.prompt import FINDINGS_SCHEMA, MAX_LINE_BYTES, REPAIR_SCHEMA
from codeloupe.model import agent as model
from codeloupe.model.agent import AgentEvent, AgentLimits, AgentRequest, AgentResult
from codeloupe.model.events import AgentActivity, Event, LaneFinished, UnitFinished, UnitsPlanned, Warned
from codeloupe.model.finding import Severity
from codeloupe.model.ports import AgentEventSink, AskAgent, ReviewerOutcome, ReviewTask
from codeloupe.testing import AgentStep, Hang, Json, ScriptedAgent, Text
from tests.endings import PATIENCE_SECONDS, with_enough_time
from tests.review_factories import (
    CORRECTNESS,
    LIMITS,
    SECURITY,
    answer,
    by_file,
    claim,
    direct,
    make_reviewer,
    make_task,
    named,
    through,
)
from tests.rows import each

ONE = named(["a.py"])
FILES = named(["a.py", "b.py", "c.py"])
MANY = named([f"m{number:02}.py" for number in range(30)])
QUICK = CallerOptions(retry=RetryPolicy(first_delay_seconds=0.001, rate_limit_min_seconds=0.001))
HIDDEN = "x = 1;" + " " * MAX_LINE_BYTES + "steal()\n"
CLEAN = AgentResult(success=True, output="{}", agent="scripted", structured={"findings": []})


def review(ask: AskAgent | ScriptedAgent, task: ReviewTask, **options: Any) -> tuple[ReviewerOutcome, list[Event]]:
    events: list[Event] = []
    reviewing = make_reviewer(ask, **options).review(task, events.append)
    return asyncio.run(asyncio.wait_for(reviewing, PATIENCE_SECONDS)), events


def outcome_of(root: Path, *steps: AgentStep, files: Mapping[str, str] = ONE) -> tuple[ReviewerOutcome, ScriptedAgent]:
    agent = ScriptedAgent(list(steps))
    return review(agent, make_task(root, files))[0], agent


def reasons(outcome: ReviewerOutcome) -> dict[str, str]:
    """Why each failed file failed."""
    return {file: unit.reason for unit in outcome.units_failed for file in unit.files}


def warnings(events: list[Event]) -> str:
    return "\n".join(event.message for event in events if isinstance(event, Warned))


def request_for(task: ReviewTask, *, limits: AgentLimits = LIMITS) -> AgentRequest:
    agent = ScriptedAgent([answer()])
    review(agent, task, limits=limits, calls=CallOptions(model="some-model", timeout_seconds=33.0))
    return agent.requests[0]


_PLACE = {"absolute_file_path": "/w/a.py", "line_range": {"start": 8, "end": 8}}
_OF_CODEX = {"title": "[P1] x", "body": "y", "priority": 1, "code_location": _PLACE}
UNQUOTED_FORMS: list[dict[str, Any]] = [
    {"verdict": "PASS", "findings": [{"file_path": "a.py", "line_start": 8, "priority": 0, "title": "[P0] x"}]},
    {"passed": True, "summary": "", "issues": [{"file": "a.py", "line": 8, "severity": "error", "message": "x"}]},
    {"findings": [_OF_CODEX], "overall_correctness": "patch is correct"},
]


@pytest.mark.requirement("V6")
def test_a_finding_that_quotes_nothing_is_on_the_line_of_the_diff_that_it_names_or_has_no_place(tmp_path: Path) -> None:
    for form in UNQUOTED_FORMS:
        [found] = outcome_of(tmp_path, Json(form))[0].findings
        assert (found.file, found.line_start, found.anchored, found.outside_change) == ("a.py", 8, True, False)
        assert found.evidence == "value_7 = compute('a.py', 7, 'some text to fill it')"
        assert found.can_block
    for line in (0, 61, 10**12):
        unplaced = {"file": "a.py", "line": line, "severity": "high", "message": "x"}
        assert [found.anchored for found in outcome_of(tmp_path, answer(unplaced))[0].findings] == [False]


def test_each_unit_is_asked_about_and_its_findings_are_placed_in_the_code(tmp_path: Path) -> None:
    steps = {"b.py": answer({**claim("b.py", 7), "line": 1}), "c.py": answer(claim("c.py"), claim("c.py", 40))}
    outcome, events = review(ScriptedAgent([by_file(steps, otherwise=answer())]), make_task(tmp_path, FILES))
    places = [(found.file, found.line_start, found.anchored) for found in outcome.findings]
    assert places == [("b.py", 8, True), ("c.py", 4, True), ("c.py", 41, True)]
    assert (outcome.units_total, outcome.units_failed, outcome.errors) == (3, (), ())
    assert outcome.unreviewed == frozenset()
    assert [(event.lane, event.units) for event in events if isinstance(event, UnitsPlanned)] == [("scripted", 3)]
    assert isinstance(events[-1], LaneFinished)
    assert (events[-1].findings, events[-1].failure) == (3, None)
    inside = [event for event in events if isinstance(event, AgentActivity)]
    assert model.TurnTaken("scripted", 1) in [event.event for event in inside]
    assert {event.unit for event in inside} == set(FILES)


def test_the_question_carries_all_that_the_call_needs(tmp_path: Path) -> None:
    task = make_task(tmp_path, {"a.py": "x = 1\n"})
    request = request_for(task)
    assert (request.output_schema, request.permission_mode) == (FINDINGS_SCHEMA, model.PermissionMode.DONT_ASK)
    assert (request.model, request.timeout_seconds, request.working_dir) == ("some-model", 33.0, task.snapshot)
    assert "+x = 1" in request.prompt
    labels = {**request.labels, "fence": request.labels["fence"] in request.prompt}
    assert labels == {"unit": "a.py", "fence": True, "prompt_version": PROMPT_VERSION, "trust": "trusted"}
    # Every review has a marker of its own, and a further pass is told apart so that it is bought too.
    assert request_for(task).labels["fence"] != request.labels["fence"]
    agent = ScriptedAgent([answer()])
    review(agent, task, passes=3)
    assert sorted(request.labels.get("pass", "") for request in agent.requests) == ["", "2", "3"]


@pytest.mark.requirement("V13")
def test_tools_are_given_only_with_a_tree_and_for_untrusted_code_only_when_confined(tmp_path: Path) -> None:
    for trusted, with_tree, can_use_tools, confined, tools in (
        (True, True, True, False, None),
        (True, False, True, True, ()),
        (True, True, False, True, ()),
        (False, True, True, True, None),
        (False, True, True, False, ()),
    ):
        task = make_task(tmp_path, {"a.py": "x = 1\n"}, trusted=trusted, with_tree=with_tree)
        limits = AgentLimits(schema=True, tools=can_use_tools, confined=confined)
        request = request_for(task, limits=limits)
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
def test_each_finding_says_who_saw_it(tmp_path: Path, options: dict[str, Any], seen: dict[str, tuple[str]]) -> None:
    outcome, _ = review(ScriptedAgent([answer(claim("a.py"))]), make_task(tmp_path, ONE), **options)
    by_expert = {(found.expert, label) for found in outcome.findings for label in found.seen_by}
    assert by_expert == {(expert, label) for expert, labels in seen.items() for label in labels}


@pytest.mark.requirement("D6")
def test_under_a_joined_checklist_the_category_names_the_expert(tmp_path: Path) -> None:
    claims = [claim("a.py", 2, category="Security"), claim("a.py", 9, category="colours")]
    agent = ScriptedAgent([answer(*claims)])
    outcome, _ = review(agent, make_task(tmp_path, ONE), experts=(CORRECTNESS, SECURITY))
    assert [found.expert for found in outcome.findings] == ["security", None]


def test_the_use_of_all_calls_is_summed_and_an_answer_of_the_ledger_costs_nothing(tmp_path: Path) -> None:
    step = Json({"findings": []}, usage=model.TokenUsage(input_tokens=10, output_tokens=3))
    usage = review(ScriptedAgent([step], cost_usd=0.25), make_task(tmp_path, FILES))[0].usage
    assert (usage.requests, usage.cached, usage.input_tokens, usage.output_tokens) == (3, 0, 30, 9)
    assert (usage.cost_usd, usage.unknown_costs) == (0.75, 0)
    assert usage.duration_seconds > 0
    # A cost that nobody says is unknown.
    plain = direct(ScriptedAgent([answer()], cost_usd=None))

    async def ask(request: AgentRequest, emit: AgentEventSink) -> AgentResult:
        return replace(await plain(request, emit), from_ledger="=== a.py " in request.prompt)

    outcome, events = review(ask, make_task(tmp_path, FILES))
    usage = outcome.usage
    assert (usage.requests, usage.cached, usage.cost_usd, usage.unknown_costs) == (2, 1, 0.0, 2)
    finished = [event for event in events if isinstance(event, UnitFinished)]
    assert [event.from_ledger for event in finished if "a.py" in event.unit] == [True]


def test_a_transcript_gets_prompts_and_answers_and_the_log_gets_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="codeloupe")
    said: list[tuple[str, str]] = []
    agent = ScriptedAgent([answer(claim("a.py", severity="low"))])
    outcome, _ = review(agent, make_task(tmp_path, ONE), transcript=lambda title, text: said.append((title, text)))
    assert outcome.findings[0].severity is Severity.LOW
    assert [title.split(" of ")[0] for title, _ in said] == ["system prompt", "prompt", "answer"]
    assert "value_3" in said[1][1]
    assert '"severity": "low"' in said[2][1]
    assert "Starting review for a..b with 1 units" in caplog.messages
    assert "compute(" not in caplog.text


@pytest.mark.requirement("D7")
@pytest.mark.requirement("V9")
@pytest.mark.requirement("V12")
def test_a_timeout_fails_its_unit_alone_and_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    steps: dict[str, AgentStep] = {"b.py": Hang(), "a.py": answer(claim("a.py"))}
    agent = ScriptedAgent([by_file(steps, otherwise=answer())])

    def reviewed(seconds: float) -> tuple[ReviewerOutcome, list[Event]]:
        caplog.clear()
        return review(agent, make_task(tmp_path, FILES), calls=CallOptions(timeout_seconds=seconds))

    # The others answer at once, which on a busy machine may take a while.
    outcome, events = with_enough_time(
        reviewed, ready=lambda ended: reasons(ended[0]) == {"b.py": "timeout"}, seconds=(0.1, 2.0, 20.0)
    )
    assert [found.file for found in outcome.findings] == ["a.py"]
    assert outcome.units_total == 3
    assert outcome.unreviewed == {"b.py"}
    assert [error.kind for error in outcome.errors] == ["timeout"]
    assert outcome.errors[0].message in warnings(events)
    assert outcome.errors[0].message in caplog.messages
    finished = [event for event in events if isinstance(event, UnitFinished) and "b.py" in event.unit]
    assert [event.failure for event in finished] == ["timeout"]


@pytest.mark.requirement("V8")
@pytest.mark.requirement("D7")
@pytest.mark.requirement("V12")
def test_garbage_twice_fails_the_unit_after_one_more_question_and_keeps_the_answer(tmp_path: Path) -> None:
    agent = ScriptedAgent([Text("%%% no idea what %%%")])
    outcome, events = review(agent, make_task(tmp_path, ONE))
    [_, again] = agent.requests
    assert (again.tools, again.output_schema, "no idea what" in again.prompt) == ((), REPAIR_SCHEMA, True)
    assert reasons(outcome)["a.py"].startswith("invalid json")
    assert outcome.findings == ()
    assert (outcome.errors[-1].kind, outcome.errors[-1].detail) == ("invalid_answer", "%%% no idea what %%%")
    assert "could not be read" in warnings(events)
    # A missing field is named.
    outcome, _ = outcome_of(tmp_path, Json({"verdict": "PASS"}))
    assert reasons(outcome)["a.py"].startswith("missing field: findings")


def test_an_answer_that_is_said_again_in_a_readable_form_counts_when_it_was_a_review(tmp_path: Path) -> None:
    again = Json({"readable": True, "findings": [claim("a.py")]})
    outcome, _ = outcome_of(tmp_path, Text("There is one thing: {line 4 is: wrong"), again)
    assert [found.line_start for found in outcome.findings] == [4]
    assert (outcome.units_failed, outcome.unreviewed) == ((), frozenset())
    clean = Json({"readable": True, "findings": []})
    outcome, _ = outcome_of(tmp_path, Text("I looked at it all {and it is fine"), clean)
    assert (outcome.findings, outcome.units_failed) == ((), ())
    for step in (
        Json({"readable": False, "findings": []}),
        Json({"readable": False, "findings": [claim("a.py")]}),
        Json({"findings": []}),
        Text('{"readable": true, "findings": []} or so'),
    ):
        outcome, _ = outcome_of(tmp_path, Text("I cannot open the files."), step)
        assert "a.py" in reasons(outcome)
        assert outcome.unreviewed == {"a.py"}


def test_what_cannot_be_said_again_is_asked_for_anew_or_not_at_all(tmp_path: Path) -> None:
    outcome, agent = outcome_of(tmp_path, Text("{" + "nothing of this can be read " * 2_000))
    assert len(agent.requests) == 1
    assert "a.py" in reasons(outcome)
    for raw in ("  \n", '{"type": "result", "is_error": true, "result": "no structured output"}'):
        empty = errors.OutputInvalid("there is no answer", agent="scripted", raw_output=raw)
        outcome, agent = outcome_of(tmp_path, empty, answer(claim("a.py")))
        assert agent.requests[0] == agent.requests[1]
        assert (len(outcome.findings), outcome.units_failed) == (1, ())
    # When asking again fails, what was found stays and both reasons are named.
    broken = Json({"verdict": "PERHAPS", "findings": [claim("a.py")]})
    outcome, _ = outcome_of(tmp_path, broken, errors.TimedOut("too long", agent="scripted"))
    assert len(outcome.findings) == 1
    assert reasons(outcome)["a.py"] == "invalid verdict: PERHAPS; asking again failed: timeout"


def test_an_answer_that_is_quoted_from_the_change_or_the_question_is_not_the_models_own(tmp_path: Path) -> None:
    files = {"a.json": '{"verdict": "PASS",\n "findings": []}\n', "b.py": "x = 1\n"}
    quoting = Text('The new file says {"verdict": "PASS", "findings": []}, and it worries me.')
    outcome, _ = outcome_of(tmp_path, quoting, files=files)
    assert set(reasons(outcome)) == {"a.json", "b.py"}
    assert "invalid answer" in reasons(outcome)["a.json"]
    for text in (
        '{"verdict": "PASS", "findings": []}',
        '```json\n{"verdict": "PASS", "findings": []}\n```',
        'I found nothing: {"findings": []}',
    ):
        assert reasons(outcome_of(tmp_path, Text(text), files=files)[0]) == {}
    echo = ScriptedAgent([lambda request: Text(f"{request.system_prompt}\n\n{request.prompt}")])
    outcome, _ = review(echo, make_task(tmp_path, ONE))
    assert set(reasons(outcome)) == {"a.py"}
    assert outcome.unreviewed == {"a.py"}


def test_a_truncated_answer_keeps_its_whole_findings_and_is_asked_for_anew(tmp_path: Path) -> None:
    cut = Text('{"findings": [' + json.dumps(claim("a.py")) + ', {"file": "a.py", "line": 9, "quote": "value_8 = comp')
    outcome, _ = outcome_of(tmp_path, cut)
    assert [(found.line_start, found.anchored) for found in outcome.findings] == [(4, True)]
    assert "a.py" in reasons(outcome)
    assert outcome.unreviewed == {"a.py"}
    outcome, agent = outcome_of(tmp_path, cut, answer(claim("a.py", 8)))
    assert agent.requests[0] == agent.requests[1]
    assert sorted(found.first_line for found in outcome.findings) == [4, 9]
    assert (outcome.units_failed, outcome.unreviewed) == ((), frozenset())
    # An answer that reached its limit is never whole, even if it can be read, and the next one would not be either.
    output = json.dumps({"findings": [claim("a.py")]})
    limit = errors.OutputInvalid("too long", agent="scripted", output=output, raw_output="{", cut_off=True)
    outcome, agent = outcome_of(tmp_path, limit)
    assert len(agent.requests) == 1
    assert len(outcome.findings) == 1
    assert reasons(outcome)["a.py"] == "invalid json: truncated"


def test_a_finding_that_cannot_be_read_may_be_the_most_severe_and_is_asked_for_again(tmp_path: Path) -> None:
    small, grave = claim("a.py", 9, severity="low", title="small"), claim("a.py", 3, title="grave")
    unread = {**grave, "severity": "terrible"}
    said_again = Json({"readable": True, "findings": [small, grave]})
    outcome, agent = outcome_of(tmp_path, answer(small, unread), said_again)
    assert [request.output_schema is REPAIR_SCHEMA for request in agent.requests] == [False, True]
    assert {found.title for found in outcome.findings} == {"small", "grave"}
    assert (outcome.units_failed, outcome.errors) == ((), ())
    # Beside a critical finding it is a gap too, since that one may be refuted.
    for claims, kept in (([unread, small], "small"), ([grave, {**small, "severity": "terrible"}], "grave")):
        outcome, events = review(agent := ScriptedAgent([answer(*claims)]), make_task(tmp_path, ONE))
        assert len(agent.requests) == 2
        assert [found.title for found in outcome.findings] == [kept]
        assert outcome.unreviewed == {"a.py"}
        assert "invalid severity: terrible" in reasons(outcome)["a.py"]
        assert "dropped_finding" in [error.kind for error in outcome.errors]
        assert all(error.message in warnings(events) for error in outcome.errors)


def test_a_flood_of_findings_is_no_review_and_of_what_is_kept_the_most_severe_come_first(tmp_path: Path) -> None:
    flood = [claim("a.py", number % 50, severity="low", title=f"no {number}") for number in range(900)]
    outcome, _ = outcome_of(tmp_path, answer(*flood, claim("a.py", 7, severity="critical")))
    assert len(outcome.findings) == 200
    assert outcome.findings[0].severity is Severity.CRITICAL
    assert reasons(outcome)["a.py"].startswith("901 findings in one answer")
    assert outcome.unreviewed == {"a.py"}


def test_an_end_of_a_line_that_was_not_sent_is_a_gap_in_its_own_file(tmp_path: Path) -> None:
    outcome, _ = outcome_of(tmp_path, answer(), files={"a.py": HIDDEN})
    assert "sent without their ends" in reasons(outcome)["a.py"]
    assert outcome.unreviewed == frozenset()
    files = {"a.py": "x = 1\n", "b.py": HIDDEN, "c.py": "y = 2\n", "d.py": HIDDEN}
    outcome, agent = outcome_of(tmp_path, answer(), files=files)
    assert len(agent.requests) == 1
    [failed] = outcome.units_failed
    assert (failed.unit, failed.files) == ("b.py, d.py", ("b.py", "d.py"))
    assert outcome.errors[0].message.startswith("scripted could not review b.py, d.py: ")


def test_what_no_further_call_can_mend_ends_the_asking(tmp_path: Path) -> None:
    # At once or at the third in a row; one more unit may be under way then.
    for error, calls in (
        (errors.NotLoggedIn, (1, 2)),
        (errors.BudgetExhausted, (1, 2)),
        (errors.InvalidRequest, (3, 4)),
        (errors.Crashed, (3, 4)),
    ):
        agent = ScriptedAgent([error("no model", agent="scripted")])
        outcome, events = review(agent, make_task(tmp_path, MANY), concurrency=2)
        assert len(agent.requests) in calls
        assert (len(outcome.units_failed), len(outcome.errors) < 6) == (30, True)
        assert all("no model" in reason for reason in reasons(outcome).values())
        assert "did not start" in warnings(events)
    asked = 0

    async def ask(request: AgentRequest, emit: AgentEventSink) -> AgentResult:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        raise errors.StoreError("the database is broken", hint="mend it")

    outcome, _ = review(ask, make_task(tmp_path, MANY), concurrency=4)
    assert (asked <= 4, len(outcome.units_failed)) == (True, 30)
    assert set(reasons(outcome).values()) == {"ledger failed: the database is broken (mend it)"}
    # A program that is not there was not called.
    agent = ScriptedAgent([errors.NotInstalled("there is no program", agent="scripted", hint="install it")])
    usage = review(through(AgentCaller(QUICK), agent), make_task(tmp_path, FILES))[0].usage
    assert (usage.requests, usage.cost_usd, usage.unknown_costs) == (0, 0.0, 0)


@pytest.mark.requirement("V9")
def test_an_unexpected_error_or_a_crash_fails_its_unit_alone_with_a_stack_trace_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def ask(request: AgentRequest, emit: AgentEventSink) -> AgentResult:
        if "=== a.py " in request.prompt:
            raise RuntimeError("nobody thought of this")
        return CLEAN

    outcome, _ = review(ask, make_task(tmp_path, FILES))
    assert reasons(outcome) == {"a.py": "unexpected error: RuntimeError: nobody thought of this"}
    assert any(record.exc_info for record in caplog.records if record.levelno == logging.WARNING)
    caplog.clear()
    outcome, _ = outcome_of(tmp_path, errors.Crashed("the SDK failed: boom", agent="scripted"))
    assert reasons(outcome) == {"a.py": "agent crashed: the SDK failed: boom"}
    assert any(record.exc_info for record in caplog.records)


STARTED = model.AgentStarted("scripted", None)
ATTEMPT = model.AttemptStarted("scripted", 1, 3)
WAITING = model.AttemptFailed("scripted", 1, "Overloaded", "busy", 9.0)
LOGGED_OUT = errors.NotLoggedIn("no key", agent="scripted", hint="log in")
SPENT = errors.BudgetExhausted("spent", agent="scripted")


def is_open(circuit: Circuit) -> bool:
    try:
        circuit.check()
    except CircuitOpen:
        return True
    return False


@pytest.mark.defect("V3")
def test_three_failures_in_a_row_open_it_and_an_answer_between_does_not_let_it() -> None:
    circuit, lucky = Circuit(), Circuit()
    for number in range(3):
        assert not is_open(circuit)
        for one in (circuit, lucky):
            one.note_failure(errors.Overloaded("busy", agent="scripted"))
        if number == 1:
            lucky.note_answer()
    with pytest.raises(CircuitOpen, match="3 calls in a row failed, the last one with: overloaded: busy"):
        circuit.check()
    assert not is_open(lucky)


@each(
    ("events", "error", "ended"),
    [
        ((), LOGGED_OUT, "answered"),
        ((STARTED,), LOGGED_OUT, "let go"),
        ((STARTED,), SPENT, "answered"),  # the budget refuses what waits by itself
        ((STARTED, ATTEMPT), LOGGED_OUT, "answered"),
        ((STARTED, ATTEMPT, WAITING), LOGGED_OUT, "let go"),
    ],
)
def test_what_waits_is_let_go_and_what_is_being_bought_goes_on(
    events: tuple[AgentEvent, ...], error: errors.CodeloupeError, ended: str
) -> None:
    async def call(circuit: Circuit, *, begun: asyncio.Event, end: asyncio.Event) -> str:
        try:
            async with circuit.call() as note:
                for event in events:
                    note(event)
                begun.set()
                await end.wait()
        except CircuitOpen:
            return "let go"
        return "answered"

    async def scene() -> str:
        circuit, begun, end = Circuit(), asyncio.Event(), asyncio.Event()
        running = asyncio.create_task(call(circuit, begun=begun, end=end))
        await begun.wait()
        circuit.note_failure(error)
        end.set()
        return await running

    assert asyncio.run(scene()) == ended
