"""Stored data as bytes and back: exact, tolerant of added fields, strict about what it does not know."""

import json
import zlib
from datetime import date
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from codeloupe.model.agent import AgentResult, TokenUsage
from codeloupe.model.finding import Finding
from codeloupe.model.history import Comparison, HistoryEntry, ReviewRecord, SweepRecord
from codeloupe.model.review import Review
from codeloupe.model.sweep import CommitReview
from codeloupe.store.records import (
    FORM,
    FromNewerVersion,
    Unreadable,
    decode,
    encode,
    from_json,
    pack,
    read_json,
    unpack,
)
from tests.rows import each
from tests.unit.reports.examples import finding
from tests.unit.store.history_samples import any_finding, any_of


class Sample(Struct, frozen=True):
    name: str
    number: int = 3
    share: float = 0.5
    day: date | None = None
    parts: tuple[str, ...] = ()


def document(value: Any, form: object = FORM) -> bytes:
    return b"j" + json.dumps({"form": form, "value": value}).encode()


def decode_result(data: object) -> AgentResult:
    return from_json(AgentResult, read_json(unpack(data)))


def stored(**fields: Any) -> bytes:
    return b"j" + json.dumps(fields).encode()


@given(before=any_finding)
def test_any_finding_comes_back_exactly(before: Finding) -> None:
    assert repr(decode(Finding, encode(before))) == repr(before)


@settings(max_examples=20, suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow])
@given(
    kind=st.sampled_from([Review, ReviewRecord, SweepRecord, CommitReview, HistoryEntry, Comparison]), data=st.data()
)
def test_every_kind_of_record_can_be_stored_whatever_fields_it_has(kind: type, data: st.DataObject) -> None:
    # Fails when the model gets a field of a type that cannot be written.
    value = data.draw(any_of(kind))
    assert decode(kind, encode(value)) == value


def test_fields_of_a_newer_version_are_ignored_and_those_an_older_one_lacked_get_their_default() -> None:
    assert decode(Sample, document({"name": "a", "colour": "red", "share": 1})) == Sample("a", share=1.0)
    usage = {"input_tokens": 3, "reasoning_tokens": 4}
    read = decode_result(stored(success=True, output="x", agent="a", usage=usage, mood="fine"))
    assert read == AgentResult(success=True, output="x", agent="a", usage=TokenUsage(input_tokens=3))


def test_what_a_later_version_wrote_is_told() -> None:
    changed = json.loads(encode(finding())[1:])
    changed["value"]["status"] = "postponed"
    with pytest.raises(Unreadable, match="Invalid enum value 'postponed'"):
        decode(Finding, b"j" + json.dumps(changed).encode())
    for form in (FORM + 1, 0, 99):
        with pytest.raises(
            FromNewerVersion, match=f"another version of codeloupe wrote it .format {form}, this version reads {FORM}"
        ):
            decode(Sample, document({"name": "a"}, form=form))


@each(
    "data",
    [
        *(b"", b"j", b"jnull", b"j[]", b"j{}", b'j{"form":"1"}', b"x{}", b"z1234", b"j\xff", b'j{"form":', b"j{"),
        *(b"zgarbage", b"z" + zlib.compress(b"\xff"), b"j" + b"[" * 99_999, None, 7, "j{}", 1.5),
        pack(str({"x": "y" * 5000}))[:-20],
    ],
)
def test_what_is_nothing_stored_is_unreadable(data: object) -> None:
    for read in (lambda: decode(Sample, data), lambda: decode_result(data)):
        with pytest.raises(Unreadable):
            read()


def test_a_value_that_is_no_json_is_refused() -> None:
    for odd in (object(), 10**5000):
        with pytest.raises(ValueError):  # noqa: PT011 - the words are those of the libraries
            encode(Sample("a", number=odd))  # type: ignore[arg-type]  # that it is refused is the test


def test_long_text_is_compressed_and_short_text_can_be_read_by_people() -> None:
    assert pack("shört") == b"j" + "shört".encode()
    assert len(pack("long " * 10_000)) < 1_000
    assert unpack(pack("long \ud800\udc00 " * 10_000)) == "long \ud800\udc00 " * 10_000
