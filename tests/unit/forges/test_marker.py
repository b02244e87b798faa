from __future__ import annotations

import pytest
from msgspec.structs import replace

from codeloupe.errors import UsageError
from codeloupe.forges.marker import Mark, Marker, MarkKind, SigningKey, key_of, word_of
from tests.publish_material import finding
from tests.rows import each

SECRET = SigningKey.from_secret("a long and random text")
MARKER = Marker(SECRET, repository_id=5, number=7)
MARK = Mark(MarkKind.FINDING, "abcdef0123456789", "offline")


def test_a_mark_is_read_back() -> None:
    assert MARKER.read(f"{MARKER.line(MARK)}\nwords") == MARK


def test_a_mark_shows_nothing_on_the_page() -> None:
    assert MARKER.line(MARK).startswith("<!--")
    assert MARKER.line(MARK).endswith("-->")
    assert "\n" not in MARKER.line(MARK)


@each(
    "other",
    [
        Marker(SECRET, repository_id=6, number=7),
        Marker(SECRET, repository_id=5, number=8),
        Marker(SigningKey.from_secret("another random text"), repository_id=5, number=7),
        Marker(SigningKey.public(), repository_id=5, number=7),
    ],
)
def test_a_mark_of_another_pull_request_or_key_is_none(other: Marker) -> None:
    body = f"{other.line(MARK)}\nwords"
    assert MARKER.read(body) is None
    assert MARKER.looks_marked(body)


def test_a_mark_counts_on_the_first_line_alone() -> None:
    line = MARKER.line(MARK)
    for body in (f"quoted:\n{line}", f" {line}", f"```\n{line}\n```", f"words {line}"):
        assert MARKER.read(body) is None
        assert not MARKER.looks_marked(body)


@each("changed", ["gone", "summary"])
def test_what_a_mark_says_cannot_be_changed(changed: str) -> None:
    assert MARKER.read(MARKER.line(MARK).replace("finding", changed)) is None
    assert MARKER.read(MARKER.line(MARK).replace("abcdef", "abcdee")) is None
    assert MARKER.read(MARKER.line(MARK).replace("offline", "other")) is None


def test_a_kind_that_nobody_knows_is_no_mark() -> None:
    assert MARKER.read(MARKER.line(MARK).replace("finding", "nonsense")) is None
    assert MARKER.read("<!-- codeloupe:1 " + "x" * 100_000) is None


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(UsageError, match="16 characters"):
        SigningKey.from_secret("   short   ")


def test_a_key_never_shows_its_material() -> None:
    assert "material" not in repr(SECRET)


def test_a_finding_goes_by_its_fingerprint_when_that_fits_into_a_mark() -> None:
    assert key_of(finding(fingerprint="0123456789abcdef")) == "0123456789abcdef"


@each("odd", ["", "--> <img>", "a b c d e f g h", "short", "x" * 500, "\udcff" * 20])
def test_any_other_finding_goes_by_what_it_says(odd: str) -> None:
    key = key_of(finding(fingerprint=odd))
    assert MARKER.read(MARKER.line(Mark(MarkKind.FINDING, key))) == Mark(MarkKind.FINDING, key)
    assert key == key_of(finding(fingerprint=odd))
    assert key != key_of(replace(finding(fingerprint=odd), title="something else"))


def test_any_text_becomes_one_word() -> None:
    for text in ("agent_sdk+codex", "", "a b -->", "\x00\udcff", "x" * 1000):
        mark = Mark(MarkKind.FINDING, "abcdefgh", word_of(text))
        assert MARKER.read(MARKER.line(mark)) == mark
