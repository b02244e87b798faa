"""Runs for programs: one documented form, valid whatever a run holds."""

import json
from pathlib import Path
from typing import Any

import jsonschema
from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace

from codeloupe.model.agent import Usage
from codeloupe.model.pipeline import CriticVerdict, GateKind, RunRecord, StageState
from codeloupe.reports.pipeline import Places, as_it_is, exit_code_of
from codeloupe.reports.pipeline_json import list_schema, run_json, run_schema, runs_json
from tests.rows import each
from tests.unit.store.run_samples import START, at, attempt, critique, failed_try, run, stage
from tests.unit.store.run_strategies import any_value

S = StageState
PLACES = Places(directory=Path("/state/1"), result=Path("/state/1/result"))
any_run: Any = any_value(RunRecord)


def without_the_range_of_scores(schema: dict[str, Any]) -> Any:
    """The model's type lets a score be any number; that it is one to 100 is the gates' business."""
    return json.loads(json.dumps(schema).replace('"minimum": 0, ', "").replace('"maximum": 100', '"title": "any"'))


RUN = jsonschema.Draft202012Validator(without_the_range_of_scores(run_schema()))
LIST = jsonschema.Draft202012Validator(list_schema())


def document(record: RunRecord, **options: Any) -> Any:
    given_options = {"busy": False, "now": at(hours=2), **options}
    return json.loads(run_json(record, given_options.pop("places", PLACES), **given_options))


def test_a_run_is_told_with_every_attempt() -> None:
    said = critique(CriticVerdict.REWORK, score=50, blockers=("b",), fixes=("f",))
    record = run(
        1,
        stage("research", S.COMPLETED, attempt(1), chosen=1),
        stage("write", S.RUNNING, attempt(1, said), failures=(failed_try(attempt=1),), needs=("research",)),
    )
    told = document(record, busy=True, process_id=7)
    assert told["schema_version"] == 1
    assert told["tool"]["name"] == "codeloupe"
    assert (told["run_id"], told["state"], told["exit_code"]) == ("00000001", "running", None)
    assert (told["busy"], told["process_id"]) == (True, 7)
    assert told["inputs"] == [{"name": "topic", "value": "otters"}]
    assert told["started_at"] == "2026-03-14T10:12:00+00:00"
    assert told["duration_seconds"] == 3600
    assert (told["directory"], told["result"], told["patch"]) == ("/state/1", "/state/1/result", None)
    write = told["stages"][1]
    assert (write["needs"], write["score"], write["agent"], write["chosen"]) == (["research"], 50, "claude_cli", None)
    assert (write["max_attempts"], write["ended_at"]) == (None, None)
    assert write["duration_seconds"] == 7200
    assert write["attempts"][0]["critiques"][0]["blockers"] == ["b"]
    assert write["attempts"][0]["files_changed"] == ["notes.md", "data/facts.json"]
    assert write["failures"][0]["kind"] == "Overloaded"
    assert told["usage"]["requests"] == 4
    jsonschema.validate(told, run_schema())


@settings(max_examples=25, suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow])
@given(record=any_run)
def test_any_run_fits_the_schema_and_can_be_encoded(record: RunRecord) -> None:
    text = run_json(record, PLACES, busy=False, now=START)
    text.encode("utf-8")
    RUN.validate(json.loads(text))
    listed = runs_json([record], {"\udcff": "\x1b"}, busy=frozenset(), now=START)
    listed.encode("utf-8")
    assert "\x1b" not in listed
    LIST.validate(json.loads(listed))


def test_a_number_that_json_does_not_have_is_not_known() -> None:
    endless = attempt(1, critique(confidence=float("nan")), usage=Usage(requests=1, cost_usd=float("inf")))
    [only] = document(run(1, stage("a", S.COMPLETED, endless, chosen=1)))["stages"][0]["attempts"]
    assert only["usage"]["cost_usd"] == 0
    assert only["critiques"][0]["confidence"] is None


def test_the_list_tells_each_run_in_short_and_what_cannot_be_read() -> None:
    done = run(2, stage("a", S.COMPLETED, attempt(1), chosen=1), stage("b"), state=S.AWAITING_APPROVAL)
    told = json.loads(runs_json([done, run(1)], {"x": "damaged"}, busy=frozenset({"00000001"}), now=at(hours=3)))
    assert [each["run_id"] for each in told["runs"]] == ["00000002", "00000001"]
    assert [each["busy"] for each in told["runs"]] == [False, True]
    assert told["runs"][0]["stages"] == {"total": 2, "completed": 1}
    assert (told["runs"][0]["cost_usd"], told["runs"][0]["exit_code"]) == (0.05, 3)
    assert told["problems"] == [{"name": "x", "reason": "damaged"}]


class TestHowItStands:
    def test_what_was_under_way_is_interrupted_when_its_process_is_gone(self) -> None:
        states = [S.COMPLETED, S.RUNNING, S.GATING, S.REWORKING, S.RECOVERING, S.AWAITING_APPROVAL, S.PENDING]
        record = run(1, *(stage(state.value, state) for state in states))
        assert as_it_is(record, busy=True) == record
        stands = as_it_is(record, busy=False)
        assert stands.state is S.INTERRUPTED
        expected = [S.COMPLETED, *[S.INTERRUPTED] * 4, S.AWAITING_APPROVAL, S.PENDING]
        assert [each.state for each in stands.stages] == expected
        assert "process that ran it is gone" in stands.stages[1].reason
        for state in (S.COMPLETED, S.FAILED, S.CANCELLED, S.AWAITING_APPROVAL, S.INTERRUPTED):
            assert as_it_is(run(1, state=state), busy=False).state is state


def failed(*said: Any, **more: Any) -> Any:
    return run(1, stage("a", S.FAILED, *(attempt(1, one) for one in said), **more), state=S.FAILED)


FAIL = critique(CriticVerdict.FAIL)
BROKEN = (failed_try(),)


@each(
    ("record", "code"),
    [
        (run(1, state=S.COMPLETED), 0),
        (run(1, state=S.AWAITING_APPROVAL), 3),
        (run(1, state=S.CANCELLED), 3),
        (run(1, state=S.INTERRUPTED), 130),
        (run(1, state=S.RUNNING), None),
        # A gate that said no is another failure than a call that failed.
        (failed(FAIL), 1),
        (failed(replace(FAIL, gate=GateKind.APPROVAL, score=None)), 1),
        (failed(failures=BROKEN), 3),
        (failed(critique(), failures=BROKEN), 3),
    ],
)
def test_the_state_and_what_failed_decide_on_the_exit_code(record: RunRecord, code: int | None) -> None:
    assert exit_code_of(record) == code
