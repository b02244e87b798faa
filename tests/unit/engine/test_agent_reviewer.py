from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe.engine.prompt import FINDINGS_SCHEMA, PROMPT_VERSION
from codeloupe.engine.reviewer import AgentReviewer, AgentReviewOptions
from codeloupe.model.agent import AgentLimits, AgentRequest, AgentResult, PermissionMode, TokenUsage
from codeloupe.model.agent_events import TurnTaken
from codeloupe.model.events import AgentActivity, Event, LaneFinished, UnitFinished, UnitsPlanned
from codeloupe.model.ports import AgentEventSink, ReviewerOutcome, ReviewTask
from codeloupe.model.review import ReviewerInfo
from codeloupe.model.severity import Severity
from codeloupe.testing import Json, ScriptedAgent
from tests.endings import PATIENCE_SECONDS
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
)
from tests.unit.engine.samples import each_row

FILES = named(["a.py", "b.py", "c.py"])


def review(reviewer: AgentReviewer, task: ReviewTask) -> tuple[ReviewerOutcome, list[Event]]:
    events: list[Event] = []
    return asyncio.run(reviewer.review(task, events.append)), events


def request_for(task: ReviewTask, *, limits: AgentLimits = LIMITS) -> AgentRequest:
    agent = ScriptedAgent([answer()])
    review(make_reviewer(agent, limits=limits, model="some-model", max_turns=7, call_timeout_seconds=33.0), task)
    return agent.requests[0]


UNQUOTED_FORMS = [
    {"verdict": "PASS", "findings": [{"file_path": "a.py", "line_start": 8, "priority": 0, "title": "[P0] x"}]},
    {"passed": True, "summary": "", "issues": [{"file": "a.py", "line": 8, "severity": "error", "message": "x"}]},
    {
        "findings": [
            {
                "title": "[P1] x",
                "body": "y",
                "priority": 1,
                "code_location": {"absolute_file_path": "/w/a.py", "line_range": {"start": 8, "end": 8}},
            }
        ],
        "overall_correctness": "patch is correct",
    },
]


@pytest.mark.requirement("V6")
def test_a_finding_that_quotes_nothing_is_on_the_line_of_the_diff_that_it_names(tmp_path: Path) -> None:
    def check(form: dict[str, Any]) -> None:
        outcome, _ = review(make_reviewer(ScriptedAgent([Json(form)])), make_task(tmp_path, named(["a.py"])))
        [found] = outcome.findings
        assert (found.file, found.line_start, found.anchored, found.outside_change) == ("a.py", 8, True, False)
        assert found.evidence == "value_7 = compute('a.py', 7, 'some text to fill it')"
        assert found.can_block

    each_row(UNQUOTED_FORMS, check)


def test_a_finding_that_quotes_nothing_and_names_no_line_of_the_diff_has_no_place(tmp_path: Path) -> None:
    def check(line: int) -> None:
        unplaced = {"file": "a.py", "line": line, "severity": "high", "message": "x"}
        outcome, _ = review(make_reviewer(ScriptedAgent([answer(unplaced)])), make_task(tmp_path, named(["a.py"])))
        assert [found.anchored for found in outcome.findings] == [False]

    each_row([0, 61, 10**12], check)


def test_each_unit_is_asked_about_and_its_findings_are_placed_in_the_code(tmp_path: Path) -> None:
    steps = {"b.py": answer({**claim("b.py", 7), "line": 1}), "c.py": answer(claim("c.py"), claim("c.py", 40))}
    outcome, events = review(
        make_reviewer(ScriptedAgent([by_file(steps, otherwise=answer())])), make_task(tmp_path, FILES)
    )
    assert [(found.file, found.line_start, found.anchored) for found in outcome.findings] == [
        ("b.py", 8, True),
        ("c.py", 4, True),
        ("c.py", 41, True),
    ]
    assert {found.reviewer for found in outcome.findings} == {"scripted"}
    assert outcome.units_total == 3
    assert (outcome.units_failed, outcome.errors, outcome.unreviewed) == ((), (), frozenset())
    planned = next(event for event in events if isinstance(event, UnitsPlanned))
    assert (planned.lane, planned.units) == ("scripted", 3)
    assert planned.tokens > 1_000
    assert isinstance(events[-1], LaneFinished)
    assert (events[-1].findings, events[-1].failure) == (3, None)


def test_findings_appear_as_their_units_end_and_not_when_all_have(tmp_path: Path) -> None:
    task = make_task(tmp_path, FILES)
    seen: list[str] = []
    gate = asyncio.Event()
    agent = ScriptedAgent([by_file({"b.py": answer(claim("b.py"))}, otherwise=answer())])
    plain = direct(agent)

    async def ask(request: AgentRequest, emit: AgentEventSink) -> AgentResult:
        if "=== a.py " in request.prompt:
            await gate.wait()
        return await plain(request, emit)

    def emit(event: Event) -> None:
        if isinstance(event, UnitFinished):
            seen.append(event.unit)
            if event.findings:
                assert event.findings[0].anchored
                gate.set()

    outcome = asyncio.run(asyncio.wait_for(make_reviewer(ask).review(task, emit), PATIENCE_SECONDS))
    assert len(seen) == 3
    assert "a.py" in seen[-1]
    assert len(outcome.findings) == 1


def test_findings_are_in_the_order_of_the_units_whichever_ends_first(tmp_path: Path) -> None:
    task = make_task(tmp_path, FILES)
    agent = ScriptedAgent([by_file({name: answer(claim(name)) for name in FILES}, otherwise=answer())])
    plain = direct(agent)
    ended = {name: asyncio.Event() for name in FILES}
    after = {"a.py": "b.py", "b.py": "c.py"}

    async def ask(request: AgentRequest, emit: AgentEventSink) -> AgentResult:
        name = next(name for name in FILES if f"=== {name} " in request.prompt)
        if name in after:
            await ended[after[name]].wait()
        result = await plain(request, emit)
        ended[name].set()
        return result

    outcome, _ = review(make_reviewer(ask), task)
    assert [found.file for found in outcome.findings] == ["a.py", "b.py", "c.py"]


def test_the_question_carries_all_that_the_call_needs(tmp_path: Path) -> None:
    task = make_task(tmp_path, {"a.py": "x = 1\n"})
    request = request_for(task)
    assert request.output_schema == FINDINGS_SCHEMA
    assert request.permission_mode is PermissionMode.DONT_ASK
    assert (request.model, request.max_turns, request.timeout_seconds) == ("some-model", 7, 33.0)
    assert request.working_dir == task.snapshot
    assert "+x = 1" in request.prompt
    assert request.system_prompt
    assert request.labels["prompt_version"] == PROMPT_VERSION
    assert "a.py" in request.labels["unit"]
    assert len(request.labels["fence"]) >= 8
    assert request.labels["fence"] in request.prompt
    assert "pass" not in request.labels


def test_every_review_has_a_marker_of_its_own(tmp_path: Path) -> None:
    task = make_task(tmp_path, {"a.py": "x = 1\n"})
    assert request_for(task).labels["fence"] != request_for(task).labels["fence"]


@pytest.mark.requirement("V13")
def test_tools_are_given_only_with_a_tree_and_for_untrusted_code_only_when_confined(tmp_path: Path) -> None:
    def check(
        trusted: bool, with_tree: bool, can_use_tools: bool, confined: bool, tools: tuple[str, ...] | None
    ) -> None:
        task = make_task(tmp_path, {"a.py": "x = 1\n"}, trusted=trusted, with_tree=with_tree)
        limits = AgentLimits(schema=True, tools=can_use_tools, confined=confined)
        request = request_for(task, limits=limits)
        assert request.tools == tools
        assert request.max_turns is None
        assert ("working directory" in (request.system_prompt or "")) is (tools is None)

    each_row(
        [
            (True, True, True, False, None),
            (True, False, True, True, ()),
            (True, True, False, True, ()),
            (False, True, True, True, None),
            (False, True, True, False, ()),
        ],
        check,
    )


def test_each_finding_says_who_saw_it(tmp_path: Path) -> None:
    def check(options: dict[str, Any], looks: set[object]) -> None:
        task = make_task(tmp_path, named(["a.py"]))
        outcome, _ = review(make_reviewer(ScriptedAgent([answer(claim("a.py"))]), **options), task)
        assert {(found.expert, found.seen_by) for found in outcome.findings} == looks

    each_row(
        [
            ({}, {("correctness", ("scripted",))}),
            ({"experts": (CORRECTNESS, SECURITY)}, {("correctness", ("scripted",))}),
            (
                {"experts": (CORRECTNESS, SECURITY), "apart": True},
                {("correctness", ("scripted/correctness",)), ("security", ("scripted/security",))},
            ),
            ({"passes": 2}, {("correctness", ("scripted#1",)), ("correctness", ("scripted#2",))}),
            (
                {"experts": (SECURITY,), "apart": True, "passes": 2},
                {("security", ("scripted/security#1",)), ("security", ("scripted/security#2",))},
            ),
        ],
        check,
    )


@pytest.mark.requirement("D6")
def test_under_a_joined_checklist_the_category_names_the_expert(tmp_path: Path) -> None:
    task = make_task(tmp_path, named(["a.py"]))
    claims = [claim("a.py", 2, category="Security"), claim("a.py", 9, category="colours")]
    outcome, _ = review(make_reviewer(ScriptedAgent([answer(*claims)]), experts=(CORRECTNESS, SECURITY)), task)
    assert [found.expert for found in outcome.findings] == ["security", None]


def test_a_further_pass_is_told_apart_so_that_it_is_bought_too(tmp_path: Path) -> None:
    agent = ScriptedAgent([answer()])
    review(make_reviewer(agent, passes=3), make_task(tmp_path, {"a.py": "x = 1\n"}))
    assert sorted(request.labels.get("pass", "") for request in agent.requests) == ["", "2", "3"]


def test_the_use_of_all_calls_is_summed(tmp_path: Path) -> None:
    step = Json({"findings": []}, usage=TokenUsage(input_tokens=10, output_tokens=3))
    outcome, _ = review(make_reviewer(ScriptedAgent([step], cost_usd=0.25)), make_task(tmp_path, FILES))
    usage = outcome.usage
    assert (usage.requests, usage.cached, usage.input_tokens, usage.output_tokens) == (3, 0, 30, 9)
    assert (usage.cost_usd, usage.unknown_costs) == (0.75, 0)
    assert usage.duration_seconds > 0


def test_a_cost_that_is_not_told_is_unknown_and_an_answer_of_the_ledger_costs_nothing(tmp_path: Path) -> None:
    plain = direct(ScriptedAgent([answer()], cost_usd=None))

    async def ask(request: AgentRequest, emit: AgentEventSink) -> AgentResult:
        result = await plain(request, emit)
        return replace(result, from_ledger="=== a.py " in request.prompt)

    outcome, events = review(make_reviewer(ask), make_task(tmp_path, FILES))
    usage = outcome.usage
    assert (usage.requests, usage.cached, usage.cost_usd, usage.unknown_costs) == (2, 1, 0.0, 2)
    finished = [event for event in events if isinstance(event, UnitFinished)]
    assert [event.from_ledger for event in finished if "a.py" in event.unit] == [True]


def test_what_happens_inside_a_call_is_passed_on_with_its_unit(tmp_path: Path) -> None:
    _, events = review(make_reviewer(ScriptedAgent([answer()])), make_task(tmp_path, {"a.py": "x = 1\n"}))
    inside = [event for event in events if isinstance(event, AgentActivity)]
    assert TurnTaken("scripted", 1) in [event.event for event in inside]
    assert all("a.py" in event.unit for event in inside)


def test_a_change_without_hunks_needs_no_call(tmp_path: Path) -> None:
    agent = ScriptedAgent([answer()])
    task = make_task(tmp_path, {"a.py": "x = 1\n"})
    renamed = replace(task.files[0], old_path="b.py", hunks=())
    outcome, _ = review(make_reviewer(agent), replace(task, files=(renamed,)))
    assert agent.requests == ()
    assert (outcome.units_total, outcome.units_failed, outcome.unreviewed) == (0, (), frozenset())


def test_the_log_tells_the_scope_and_the_number_of_units_and_never_a_prompt(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="codeloupe")
    review(make_reviewer(ScriptedAgent([answer(claim("a.py"))])), make_task(tmp_path, FILES))
    assert "Starting review for a..b with 3 units" in caplog.messages
    assert "compute(" not in caplog.text


def test_a_transcript_gets_prompts_and_answers(tmp_path: Path) -> None:
    said: list[tuple[str, str]] = []
    reviewer = AgentReviewer(
        "scripted",
        direct(ScriptedAgent([answer(claim("a.py", severity="low"))])),
        limits=LIMITS,
        info=ReviewerInfo("scripted", "for a test"),
        options=AgentReviewOptions(experts=(CORRECTNESS,)),
        transcript=lambda title, text: said.append((title, text)),
    )
    outcome, _ = review(reviewer, make_task(tmp_path, named(["a.py"])))
    assert outcome.findings[0].severity is Severity.LOW
    titles = [title.split(" of ")[0] for title, _ in said]
    assert titles == ["system prompt", "prompt", "answer"]
    assert "value_3" in said[1][1]
    assert '"severity": "low"' in said[2][1]
