"""The state of a run as JSON: exact, tolerant of added fields, strict about what it does not know."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace

from codeloupe.model.agent import Usage
from codeloupe.model.pipeline import Approval, Decision, PipelineEvent, RunRecord, StageState
from codeloupe.store import record_text
from codeloupe.store.failures import Unreadable
from codeloupe.store.review_text import FromNewerVersion
from codeloupe.store.run_json import (
    VERSION,
    approval_from_json,
    approval_to_json,
    event_from_line,
    event_to_line,
    run_from_json,
    run_to_json,
)
from tests.unit.store.run_samples import at, attempt, critique, event, failed_try, run, stage
from tests.unit.store.run_strategies import any_value

any_run: Any = any_value(RunRecord)
any_event: Any = any_value(PipelineEvent)
any_approval: Any = any_value(Approval)


@pytest.mark.requirement("S9")
@settings(suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow], max_examples=25)
@given(before=any_run)
def test_any_run_comes_back_exactly(before: RunRecord) -> None:
    known = replace(before, version=VERSION)
    after = run_from_json(run_to_json(known))
    assert after == known
    assert [type(value) for value in flat(after)] == [type(value) for value in flat(known)]


@given(before=any_event)
def test_any_event_comes_back_exactly_and_is_one_line(before: PipelineEvent) -> None:
    line = event_to_line(before)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert event_from_line(line) == before
    assert dict(event_from_line(line).facts) == dict(before.facts)


@given(before=any_approval)
def test_any_word_of_a_person_comes_back_exactly(before: Approval) -> None:
    assert approval_from_json(approval_to_json(before)) == before


def flat(value: Any) -> list[Any]:
    """Every plain value below an object, so that an int in the place of a bool is noticed."""
    if isinstance(value, Mapping):
        return [leaf for item in value.values() for leaf in flat(item)]
    if isinstance(value, tuple):
        return [leaf for item in value for leaf in flat(item)]
    if hasattr(value, "__dataclass_fields__"):
        return [leaf for name in value.__dataclass_fields__ for leaf in flat(getattr(value, name))]
    return [value]


def document(**changes: Any) -> bytes:
    """A run as it is written, with some keys changed."""
    before = run(1, stage("write", StageState.GATING, attempt(1, critique()), failures=(failed_try(),)))
    return json.dumps({**json.loads(run_to_json(before)), **changes}).encode()


def test_what_is_written_is_plain_json_with_moments_in_utc() -> None:
    elsewhere = datetime(2026, 3, 14, 11, 12, 0, 5, tzinfo=timezone(timedelta(hours=2)))
    written = json.loads(run_to_json(run(1, started_at=elsewhere)))
    assert written["version"] == 1
    assert written["started_at"] == "2026-03-14T09:12:00.000005+00:00"
    assert written["inputs"] == {"topic": "otters"}
    assert written["file"] == "/pipelines/article.yaml"
    assert written["stages"][0]["state"] == "pending"
    read = run_from_json(run_to_json(run(1, started_at=elsewhere)))
    assert read.started_at == elsewhere
    assert read.started_at.tzinfo is UTC


def test_a_field_that_is_not_known_is_ignored_and_one_that_is_missing_has_its_default() -> None:
    assert run_from_json(document(colour="red")).run_id == "00000001"
    older = json.loads(document())
    del older["reason"], older["stages"][0]["attempts"], older["inputs"]
    read = run_from_json(json.dumps(older).encode())
    assert (read.reason, read.stages[0].attempts, dict(read.inputs)) == ("", (), {})


@pytest.mark.parametrize("version", [VERSION + 1, 99])
def test_a_newer_version_is_told(version: int) -> None:
    with pytest.raises(FromNewerVersion, match=f"a newer codeloupe .version {version}, this one reads {VERSION}"):
        run_from_json(document(version=version, stages="in another form"))


@pytest.mark.parametrize("version", [None, "1", True, 0, -1, 1.0])
def test_what_has_no_version_is_no_state(version: object) -> None:
    with pytest.raises(Unreadable, match="no version"):
        run_from_json(document(version=version))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"run_id": 7}, "run_id: a value of type int"),
        ({"state": "asleep"}, "state: 'asleep' is no StageState that this version knows"),
        ({"state": ["running"]}, "state: "),
        ({"stages": {}}, "stages: no list"),
        ({"stages": [3]}, "stages: no StageRecord"),
        ({"stages": [{}]}, "stages: a field without a default is missing.*name"),
        ({"inputs": []}, "inputs: no object"),
        ({"inputs": {"a": 1}}, "inputs: a value of type int"),
        ({"file": None}, "file: a value of type NoneType"),
        ({"started_at": "yesterday"}, "started_at: Invalid isoformat"),
        ({"started_at": 20260314}, "started_at: "),
        ({"started_at": "2026-03-14T09:12:00"}, "started_at: a moment without a time zone"),
    ],
)
def test_a_value_of_another_type_is_told_with_its_place(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(Unreadable, match=words):
        run_from_json(document(**changes))


@pytest.mark.parametrize(
    "data",
    [b"", b"null", b"[]", b"{", b'{"version": 1', b"\xff", b"\0" * 500, b"[" * 99_999, b"9" * 9_999, b'{"version":1}'],
    ids=range(10),
)
def test_what_is_no_state_is_unreadable(data: bytes) -> None:
    with pytest.raises(Unreadable):
        run_from_json(data)


@pytest.mark.parametrize("cut", range(0, 1200, 97))
def test_a_part_of_a_state_is_never_taken_for_the_whole(cut: int) -> None:
    data = run_to_json(run(1, stage("write", StageState.GATING, attempt(1, critique()))))
    assert cut < len(data) - 2
    with pytest.raises(Unreadable):
        run_from_json(data[:cut])


@pytest.mark.parametrize(
    "write",
    [
        lambda: run_to_json(run(1, started_at=at().replace(tzinfo=None))),
        lambda: run_to_json(run(1, inputs={"a": object()})),
        lambda: run_to_json(run(1, inputs={1: "a"})),
        lambda: run_to_json(run(1, reason=10**5000)),
        lambda: run_to_json(run(1, stages=[stage("a")])),
        lambda: event_to_line(event(facts={"a": [1]})),
        lambda: approval_to_json(Approval(stage="a", decision=Decision.RETRY, note=b"x")),  # type: ignore[arg-type]  # what is tried
    ],
    ids=range(7),
)
def test_what_is_no_frozen_data_is_refused(write: Callable[[], bytes]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - some of the words are Python's own
        write()


def test_a_number_that_is_written_whole_is_read() -> None:
    usage = Usage(requests=1, cost_usd=2, duration_seconds=3)
    record = run(1, stage("a", StageState.RUNNING, attempt(1, critique(confidence=1), usage=usage)))
    assert run_from_json(run_to_json(record)) == record


@pytest.mark.parametrize("kind", [dict[str, int], list[str], tuple[int, int], bytes, Mapping[int, str], Usage | int])
def test_a_type_that_cannot_be_stored_is_found_at_once(kind: Any) -> None:
    with pytest.raises(TypeError, match="cannot be stored"):
        record_text._reader(kind, in_utc=True)
