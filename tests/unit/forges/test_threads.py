"""Marks, the threads that bear them, and who dismisses what they say."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from codeloupe.errors import UsageError
from codeloupe.forges.marker import Mark, Marker, MarkKind, SigningKey, key_of, word_of
from codeloupe.forges.threads import (
    Dismissed,
    dismissal_in,
    dismissed_by,
    double_comments,
    own_threads,
    possible_maintainers,
)
from codeloupe.model.finding import Finding
from codeloupe.model.publication import Thread, ThreadComment
from tests.publish_material import finding
from tests.publish_states import MAINTAINER, MARKER, disliked, said, thread_about
from tests.rows import each

SECRET = SigningKey.from_secret("a long and random text")
OURS = Marker(SECRET, repository_id=5, number=7)
MARK = Mark(MarkKind.FINDING, "abcdef0123456789", "offline")


def test_a_mark_is_read_back() -> None:
    assert OURS.read(f"{OURS.line(MARK)}\nwords") == MARK


def test_a_mark_shows_nothing_on_the_page() -> None:
    assert OURS.line(MARK).startswith("<!--")
    assert OURS.line(MARK).endswith("-->")
    assert "\n" not in OURS.line(MARK)


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
    assert OURS.read(body) is None
    assert OURS.looks_marked(body)


def test_a_mark_counts_on_the_first_line_alone() -> None:
    line = OURS.line(MARK)
    for body in (f"quoted:\n{line}", f" {line}", f"```\n{line}\n```", f"words {line}"):
        assert OURS.read(body) is None
        assert not OURS.looks_marked(body)


@each("changed", ["gone", "summary"])
def test_what_a_mark_says_cannot_be_changed(changed: str) -> None:
    assert OURS.read(OURS.line(MARK).replace("finding", changed)) is None
    assert OURS.read(OURS.line(MARK).replace("abcdef", "abcdee")) is None
    assert OURS.read(OURS.line(MARK).replace("offline", "other")) is None


def test_a_kind_that_nobody_knows_is_no_mark() -> None:
    assert OURS.read(OURS.line(MARK).replace("finding", "nonsense")) is None
    assert OURS.read("<!-- codeloupe:1 " + "x" * 100_000) is None


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
    assert OURS.read(OURS.line(Mark(MarkKind.FINDING, key))) == Mark(MarkKind.FINDING, key)
    assert key == key_of(finding(fingerprint=odd))
    assert key != key_of(replace(finding(fingerprint=odd), title="something else"))


def test_any_text_becomes_one_word() -> None:
    for text in ("agent_sdk+codex", "", "a b -->", "\x00\udcff", "x" * 1000):
        mark = Mark(MarkKind.FINDING, "abcdefgh", word_of(text))
        assert OURS.read(OURS.line(mark)) == mark


FIRST, OTHER = finding(4), finding(9)


def thread(about: Finding, comment_id: int, *replies: ThreadComment) -> Thread:
    plain = thread_about(about, *replies, thread_id=f"T{comment_id}")
    return replace(plain, comments=(replace(plain.comments[0], comment_id=comment_id), *plain.comments[1:]))


def doubles(*threads: Thread) -> tuple[int, ...]:
    return double_comments(own_threads(threads, MARKER))


def test_all_but_the_oldest_are_doubles_in_whatever_order_they_come() -> None:
    assert doubles(thread(FIRST, 7), thread(OTHER, 6), thread(FIRST, 3), thread(FIRST, 5)) == (5, 7)


def test_the_same_finding_in_another_file_is_no_double() -> None:
    assert doubles(thread(FIRST, 3), thread(replace(FIRST, file="other.py"), 5)) == ()


def test_one_that_somebody_answered_or_reacted_to_stays() -> None:
    answered, reacted = thread(FIRST, 5, said("dismiss: it is a constant")), disliked(thread(FIRST, 6), "maintainer")
    assert doubles(thread(FIRST, 3), answered, reacted) == ()


def test_one_of_somebody_else_is_neither_a_double_nor_the_oldest() -> None:
    ours = thread(FIRST, 5)
    copied = replace(thread(FIRST, 3), comments=(replace(ours.comments[0], comment_id=3, is_ours=False),))
    assert doubles(copied, ours) == ()


PEOPLE = frozenset({MAINTAINER})


@each(
    ("body", "reason"),
    [
        ("dismiss", ""),
        ("  Dismiss.  ", ""),
        ("dismiss: it is a constant", "it is a constant"),
        ("dismiss - tests only", "tests only"),
        ("dismiss — tests only", "tests only"),
        ("/codeloupe dismiss", ""),
        ("/codeloupe dismiss it is a constant", "it is a constant"),
        ("/Codeloupe  DISMISS: it is\nand more words", "it is"),
        ("\n\ndismiss\nbecause of that", ""),
    ],
)
def test_a_reply_that_dismisses(body: str, reason: str) -> None:
    assert dismissal_in(body) == reason


@each(
    "body",
    [
        "dismissing this would be wrong",
        "Dismiss? No, this is real.",
        "dismiss this please",
        "please dismiss",
        "I would not dismiss: it is real",
        "> dismiss\n\nno",
        "/codeloupe dismissed",
        "/codeloupe help",
        "",
        "dismis",
    ],
)
def test_a_reply_with_the_word_in_it_does_not_dismiss(body: str) -> None:
    assert dismissal_in(body) is None


def test_a_long_reply_takes_no_time() -> None:
    assert dismissal_in("dismiss" + " " * 5_000_000 + "x") is None


def test_a_maintainer_dismisses_by_a_reply_and_the_last_word_counts() -> None:
    thread = thread_about(finding(), said("dismiss: first"), said("dismiss: second"), said("thanks"))
    assert dismissed_by(thread, PEOPLE) == Dismissed(MAINTAINER, "second")


def test_a_maintainer_dismisses_by_a_thumb_down() -> None:
    thread = disliked(thread_about(finding()), "stranger", MAINTAINER)
    assert dismissed_by(thread, PEOPLE) == Dismissed(MAINTAINER, "")


@each("association", ["NONE", "CONTRIBUTOR", "FIRST_TIME_CONTRIBUTOR"])
def test_a_stranger_dismisses_nothing(association: str) -> None:
    thread = thread_about(finding(), said("dismiss", association=association))
    assert dismissed_by(thread, PEOPLE) is None
    assert possible_maintainers([thread]) == ()


def test_a_member_without_the_right_to_write_dismisses_nothing() -> None:
    thread = disliked(thread_about(finding(), said("dismiss", author="reader")), "another")
    assert dismissed_by(thread, PEOPLE) is None


def test_those_who_may_decide_are_asked_about_once_and_those_who_replied_first() -> None:
    first = disliked(thread_about(finding(1), said("a question", author="nobody")), "fan", "ann")
    second = thread_about(finding(2), said("dismiss", author="ann"), said("dismiss", author=""))
    assert possible_maintainers([first, second]) == ("ann", "fan")
