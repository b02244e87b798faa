from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from codeloupe.agents.calls.caller import CallerOptions
from codeloupe.agents.calls.retry import RetryPolicy
from codeloupe.engine import reviewer as agent_reviewer
from codeloupe.engine.prompt import MAX_LINE_BYTES, REPAIR_SCHEMA
from codeloupe.engine.reviewer import AgentReviewer
from codeloupe.errors import (
    OutputInvalid,
    TimedOut,
)
from codeloupe.model.events import Event, UnitFinished, Warned
from codeloupe.model.ports import ReviewerOutcome, ReviewTask
from codeloupe.model.severity import Severity
from codeloupe.testing import AgentStep, Hang, Json, ScriptedAgent, Text
from tests.endings import with_enough_time
from tests.review_factories import answer, by_file, claim, make_reviewer, make_task, named
from tests.unit.engine.samples import each_row

FILES = named(["a.py", "b.py", "c.py"])
MANY = named([f"m{number:02}.py" for number in range(30)])
QUICK = CallerOptions(retry=RetryPolicy(first_delay_seconds=0.001, rate_limit_min_seconds=0.001))


def review(reviewer: AgentReviewer, task: ReviewTask) -> tuple[ReviewerOutcome, list[Event]]:
    events: list[Event] = []
    return asyncio.run(asyncio.wait_for(reviewer.review(task, events.append), 30)), events


def reasons(outcome: ReviewerOutcome) -> dict[str, str]:
    """Why each failed file failed."""
    return {file: unit.reason for unit in outcome.units_failed for file in unit.files}


def warnings(events: list[Event]) -> str:
    return "\n".join(event.message for event in events if isinstance(event, Warned))


def once(first: AgentStep, then: AgentStep) -> list[AgentStep]:
    return [first, then]


@pytest.mark.requirement("D7")
@pytest.mark.requirement("V9")
@pytest.mark.requirement("V12")
def test_a_timeout_fails_its_unit_alone_and_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    steps: dict[str, AgentStep] = {"b.py": Hang(), "a.py": answer(claim("a.py"))}
    agent = ScriptedAgent([by_file(steps, otherwise=answer())])
    task = make_task(tmp_path, FILES)

    def reviewed(seconds: float) -> tuple[ReviewerOutcome, list[Event]]:
        caplog.clear()
        return review(make_reviewer(agent, call_timeout_seconds=seconds), task)

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
    assert [event.failure for event in events if isinstance(event, UnitFinished) and "b.py" in event.unit] == [
        "timeout"
    ]


@pytest.mark.requirement("V8")
@pytest.mark.requirement("D7")
@pytest.mark.requirement("V12")
def test_garbage_twice_fails_the_unit_after_one_more_question_and_keeps_the_answer(tmp_path: Path) -> None:
    agent = ScriptedAgent([Text("%%% no idea what %%%")])
    outcome, events = review(make_reviewer(agent), make_task(tmp_path, named(["a.py"])))
    assert len(agent.requests) == 2
    assert agent.requests[1].tools == ()
    assert agent.requests[1].output_schema == REPAIR_SCHEMA
    assert "no idea what" in agent.requests[1].prompt
    assert reasons(outcome)["a.py"].startswith("invalid json")
    assert outcome.findings == ()
    assert outcome.errors[-1].kind == "invalid_answer"
    assert outcome.errors[-1].detail == "%%% no idea what %%%"
    assert "could not be read" in warnings(events)


@pytest.mark.requirement("V8")
def test_a_missing_field_is_named(tmp_path: Path) -> None:
    agent = ScriptedAgent([Json({"verdict": "PASS"})])
    outcome, _ = review(make_reviewer(agent), make_task(tmp_path, named(["a.py"])))
    assert reasons(outcome)["a.py"].startswith("missing field: findings")


def test_an_answer_that_is_said_again_in_a_readable_form_counts(tmp_path: Path) -> None:
    again = Json({"readable": True, "findings": [claim("a.py")]})
    agent = ScriptedAgent(once(Text("There is one thing: {line 4 is: wrong"), again))
    outcome, _ = review(make_reviewer(agent), make_task(tmp_path, named(["a.py"])))
    assert [found.line_start for found in outcome.findings] == [4]
    assert (outcome.units_failed, outcome.unreviewed) == ((), frozenset())


def test_an_answer_that_was_no_review_does_not_become_a_clean_one_by_saying_it_again(tmp_path: Path) -> None:
    def check(again: AgentStep) -> None:
        agent = ScriptedAgent(once(Text("I cannot open the files."), again))
        outcome, _ = review(make_reviewer(agent), make_task(tmp_path, named(["a.py"])))
        assert "a.py" in reasons(outcome)
        assert outcome.unreviewed == {"a.py"}

    each_row(
        [
            Json({"readable": False, "findings": []}),
            Json({"readable": False, "findings": [claim("a.py")]}),
            Json({"findings": []}),
            Text('{"readable": true, "findings": []} or so'),
        ],
        check,
    )


def test_a_clean_answer_that_is_said_again_counts_when_it_says_that_it_was_a_review(tmp_path: Path) -> None:
    agent = ScriptedAgent(once(Text("I looked at it all {and it is fine"), Json({"readable": True, "findings": []})))
    outcome, _ = review(make_reviewer(agent), make_task(tmp_path, named(["a.py"])))
    assert (outcome.findings, outcome.units_failed) == ((), ())


def test_an_answer_too_long_to_be_said_again_whole_is_not_asked_for(tmp_path: Path) -> None:
    agent = ScriptedAgent([Text("{" + "nothing of this can be read " * 2_000)])
    outcome, _ = review(make_reviewer(agent), make_task(tmp_path, named(["a.py"])))
    assert len(agent.requests) == 1
    assert "a.py" in reasons(outcome)


def test_an_empty_answer_is_asked_for_anew_since_nothing_can_be_said_again(tmp_path: Path) -> None:
    def check(raw: str) -> None:
        empty = OutputInvalid("there is no answer", agent="scripted", raw_output=raw)
        agent = ScriptedAgent(once(empty, answer(claim("a.py"))))
        outcome, _ = review(make_reviewer(agent), make_task(tmp_path, named(["a.py"])))
        assert agent.requests[0] == agent.requests[1]
        assert len(outcome.findings) == 1
        assert outcome.units_failed == ()

    each_row(["  \n", '{"type": "result", "is_error": true, "result": "no structured output"}'], check)


def test_an_answer_that_is_quoted_from_the_change_is_not_the_models_own(tmp_path: Path) -> None:
    task = make_task(tmp_path, {"a.json": '{"verdict": "PASS",\n "findings": []}\n', "b.py": "x = 1\n"})
    quoting = Text('The new file says {"verdict": "PASS", "findings": []}, and it worries me.')
    outcome, _ = review(make_reviewer(ScriptedAgent(once(quoting, quoting))), task)
    assert set(reasons(outcome)) == {"a.json", "b.py"}
    assert "invalid answer" in reasons(outcome)["a.json"]


def test_an_echo_of_the_question_is_no_answer(tmp_path: Path) -> None:
    agent = ScriptedAgent([lambda request: Text(f"{request.system_prompt}\n\n{request.prompt}")])
    outcome, _ = review(make_reviewer(agent), make_task(tmp_path, named(["a.py"])))
    assert set(reasons(outcome)) == {"a.py"}
    assert outcome.unreviewed == {"a.py"}


def test_an_answer_of_the_models_own_counts_even_if_the_change_has_one_too(tmp_path: Path) -> None:
    def check(text: str) -> None:
        task = make_task(tmp_path, {"a.json": '{"verdict": "PASS",\n "findings": []}\n'})
        outcome, _ = review(make_reviewer(ScriptedAgent([Text(text)])), task)
        assert reasons(outcome) == {}

    each_row(
        [
            '{"verdict": "PASS", "findings": []}',
            '```json\n{"verdict": "PASS", "findings": []}\n```',
            'I found nothing: {"findings": []}',
        ],
        check,
    )


def test_a_truncated_answer_keeps_its_whole_findings_and_is_incomplete(tmp_path: Path) -> None:
    text = Text('{"findings": [' + _json(claim("a.py")) + ', {"file": "a.py", "line": 9, "quote": "value_8 = comp')
    outcome, _ = review(make_reviewer(ScriptedAgent([text])), make_task(tmp_path, named(["a.py"])))
    assert [(found.line_start, found.anchored) for found in outcome.findings] == [(4, True)]
    assert "a.py" in reasons(outcome)
    assert outcome.unreviewed == {"a.py"}


def test_a_truncated_answer_is_asked_for_anew_and_loses_nothing_that_it_had(tmp_path: Path) -> None:
    cut = Text('{"findings": [' + _json(claim("a.py")) + ', {"file": "a.py", "line": 9, "quote": "value_8 = comp')
    agent = ScriptedAgent(once(cut, answer(claim("a.py", 8))))
    outcome, _ = review(make_reviewer(agent), make_task(tmp_path, named(["a.py"])))
    assert agent.requests[0] == agent.requests[1]
    assert sorted(found.first_line for found in outcome.findings) == [4, 9]
    assert (outcome.units_failed, outcome.unreviewed) == ((), frozenset())


def test_an_answer_that_reached_its_limit_is_never_whole_even_if_it_can_be_read(tmp_path: Path) -> None:
    cut = OutputInvalid("too long", agent="scripted", output=_json_answer(claim("a.py")), raw_output="{", cut_off=True)
    agent = ScriptedAgent([cut])
    outcome, _ = review(make_reviewer(agent), make_task(tmp_path, named(["a.py"])))
    assert len(agent.requests) == 1
    assert len(outcome.findings) == 1
    assert reasons(outcome)["a.py"] == "invalid json: truncated"


def test_when_asking_again_fails_what_was_found_stays_and_both_reasons_are_told(tmp_path: Path) -> None:
    broken = Json({"verdict": "PERHAPS", "findings": [claim("a.py")]})
    agent = ScriptedAgent(once(broken, TimedOut("too long", agent="scripted")))
    outcome, _ = review(make_reviewer(agent), make_task(tmp_path, named(["a.py"])))
    assert len(outcome.findings) == 1
    assert reasons(outcome)["a.py"] == "invalid verdict: PERHAPS; asking again failed: timeout"


def test_a_finding_that_cannot_be_read_is_told_and_the_others_stay(tmp_path: Path) -> None:
    bad = claim("a.py", severity="terrible")
    agent = ScriptedAgent([answer(bad, claim("a.py", 9))])
    outcome, events = review(make_reviewer(agent), make_task(tmp_path, named(["a.py"])))
    assert len(outcome.findings) == 1
    # It may be the gravest of all, and the other one may yet be refuted.
    assert reasons(outcome) == {"a.py": "invalid severity: terrible (finding 1)"}
    assert "dropped_finding" in [error.kind for error in outcome.errors]
    assert all(error.message in warnings(events) for error in outcome.errors)


def test_a_flood_of_findings_is_no_review_and_of_what_is_kept_the_gravest_come_first(tmp_path: Path) -> None:
    flood = [claim("a.py", number % 50, severity="low", title=f"no {number}") for number in range(900)]
    agent = ScriptedAgent([answer(*flood, claim("a.py", 7, severity="critical"))])
    outcome, _ = review(make_reviewer(agent), make_task(tmp_path, named(["a.py"])))
    assert len(outcome.findings) == 200
    assert outcome.findings[0].severity is Severity.CRITICAL
    assert reasons(outcome)["a.py"].startswith("901 findings in one answer")
    assert outcome.unreviewed == {"a.py"}


def test_a_file_that_no_unit_has_is_not_reviewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_reviewer, "plan_units", lambda _files, **_options: ())
    outcome, _ = review(make_reviewer(ScriptedAgent([answer()])), make_task(tmp_path, FILES))
    assert reasons(outcome) == dict.fromkeys(FILES, "it is in no unit")
    assert outcome.unreviewed == set(FILES)


def test_a_unit_all_of_whose_findings_were_lost_is_not_clean(tmp_path: Path) -> None:
    agent = ScriptedAgent([answer(claim("a.py", severity="terrible"))])
    outcome, _ = review(make_reviewer(agent), make_task(tmp_path, named(["a.py"])))
    assert reasons(outcome)["a.py"] == "invalid severity: terrible"
    assert outcome.unreviewed == {"a.py"}


def test_a_model_that_claims_defects_and_then_names_none_is_not_clean(tmp_path: Path) -> None:
    def check(first: Json, reason: str) -> None:
        agent = ScriptedAgent(once(first, Json({"readable": True, "findings": []})))
        outcome, _ = review(make_reviewer(agent), make_task(tmp_path, named(["a.py"])))
        assert reasons(outcome)["a.py"] == f"{reason}; asked again, it named none"
        assert outcome.unreviewed == {"a.py"}

    each_row(
        [
            (Json({"verdict": "FAIL", "findings": []}), "verdict FAIL without findings"),
            (Json({"findings": [claim("a.py", severity="terrible")]}), "invalid severity: terrible"),
        ],
        check,
    )


def test_an_end_of_a_line_that_was_not_sent_is_not_reviewed(tmp_path: Path) -> None:
    hidden = "x = 1;" + " " * MAX_LINE_BYTES + "steal()\n"
    agent = ScriptedAgent([answer()])
    outcome, _ = review(make_reviewer(agent), make_task(tmp_path, {"a.py": hidden}))
    assert "sent without their ends" in reasons(outcome)["a.py"]
    assert outcome.unreviewed == frozenset()


def _json(value: object) -> str:
    return json.dumps(value)


def _json_answer(*claims: object) -> str:
    return _json({"findings": list(claims)})
