"""Frozen data as bytes and back: exact, tolerant of added fields, strict about what it does not know."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codeloupe.model.baseline import Suppression, SuppressionKind
from codeloupe.model.finding import Finding, FindingStatus
from codeloupe.model.history import Comparison, HistoryEntry, ReviewRecord, SweepRecord
from codeloupe.model.review import Review
from codeloupe.model.sweep import CommitReview
from codeloupe.store.failures import Unreadable
from codeloupe.store.review_text import FORM, FromNewerVersion, decode, encode, pack, unpack
from tests.unit.reports.examples import finding
from tests.unit.store.history_samples import any_finding, any_of


@dataclass(frozen=True, slots=True)
class Sample:
    name: str
    number: int = 3
    share: float = 0.5
    day: date | None = None
    parts: tuple[str, ...] = ()


def document(value: Any, form: object = FORM) -> bytes:
    return b"j" + json.dumps({"form": form, "value": value}).encode()


@given(before=any_finding)
def test_any_finding_comes_back_exactly(before: Finding) -> None:
    assert repr(decode(Finding, encode(before))) == repr(before)


@pytest.mark.parametrize("kind", [Review, ReviewRecord, SweepRecord, CommitReview, HistoryEntry, Comparison])
@settings(max_examples=5, suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow])
@given(data=st.data())
def test_every_kind_of_record_can_be_stored_whatever_fields_it_has(kind: type, data: st.DataObject) -> None:
    # Fails when the model gets a field of a type that cannot be written.
    value = data.draw(any_of(kind))
    assert decode(kind, encode(value)) == value


def test_a_field_that_is_not_known_is_ignored_and_one_that_is_missing_has_its_default() -> None:
    assert decode(Sample, document({"name": "a", "colour": "red"})) == Sample("a")


def test_a_field_without_a_default_must_be_there() -> None:
    with pytest.raises(Unreadable, match="without a default is missing.*name"):
        decode(Sample, document({"number": 1}))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"name": 1}, "name: a value of type int"),
        ({"name": "a", "number": True}, "number: a value of type bool"),
        ({"name": "a", "number": 1.5}, "number: a value of type float"),
        ({"name": "a", "share": "0.5"}, "share: a value of type str"),
        ({"name": "a", "day": "yesterday"}, "day: Invalid isoformat"),
        ({"name": "a", "day": 20}, "day: "),
        ({"name": "a", "parts": "abc"}, "parts: no list"),
        ({"name": "a", "parts": ["a", None]}, "parts: a value of type NoneType"),
        ("a", "no Sample"),
        (None, "no Sample"),
    ],
)
def test_a_value_of_another_type_is_told_with_its_place(value: Any, words: str) -> None:
    with pytest.raises(Unreadable, match=words):
        decode(Sample, document(value))


def test_a_whole_number_is_a_number() -> None:
    assert decode(Sample, document({"name": "a", "share": 1})).share == 1


def test_a_word_that_a_later_version_added_is_told() -> None:
    stored = json.loads(encode(finding())[1:])
    stored["value"]["status"] = "postponed"
    with pytest.raises(Unreadable, match="status: 'postponed' is no FindingStatus that this version knows"):
        decode(Finding, b"j" + json.dumps(stored).encode())


@pytest.mark.parametrize("form", [FORM + 1, 0, 99])
def test_another_form_is_told_as_another_version(form: int) -> None:
    with pytest.raises(FromNewerVersion, match=f"another version of codeloupe .form {form}, this one reads {FORM}"):
        decode(Sample, document({"name": "a"}, form=form))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"j",
        b"jnull",
        b"j[]",
        b"j{}",
        b'j{"form":"1"}',
        b"x{}",
        b"z1234",
        b"j\xff",
        b'j{"form":',
        b"j" + b"[" * 99999,
    ],
)
def test_what_is_no_stored_value_is_unreadable(data: bytes) -> None:
    with pytest.raises(Unreadable):
        decode(Sample, data)


@pytest.mark.parametrize("data", [None, 7, "j{}", 1.5])
def test_a_column_of_another_kind_is_unreadable(data: object) -> None:
    with pytest.raises(Unreadable):
        decode(Sample, data)


@pytest.mark.parametrize("value", [object(), {"a": 1}, {1, 2}, ["a"], b"a", 10**5000], ids=range(6))
def test_what_is_no_frozen_data_is_refused(value: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the words are Python's own
        encode(Sample("a", number=value))


@pytest.mark.parametrize("hint", ["dict[str, int]", "list[str]", "Sample | int", "tuple[int, int]", "bytes"])
def test_a_type_that_cannot_be_stored_is_found_by_the_first_test(hint: str) -> None:
    kind: Any = dataclass(frozen=True)(type("Odd", (), {"__annotations__": {"field": hint}, "__module__": __name__}))
    with pytest.raises(TypeError, match="cannot be stored"):
        decode(kind, document({}))


def test_long_text_is_compressed_and_short_text_is_not() -> None:
    assert pack("short") == b"jshort"
    assert len(pack("long " * 10_000)) < 1_000
    assert unpack(pack("long \ud800\udc00 " * 10_000)) == "long \ud800\udc00 " * 10_000


def test_a_suppression_comes_back_with_its_day() -> None:
    suppression = Suppression(kind=SuppressionKind.BASELINE, reason="old", owner="ada", expires=date(2027, 1, 2))
    before = finding(suppression=suppression, status=FindingStatus.DISMISSED)
    assert decode(Finding, encode(before)) == before
