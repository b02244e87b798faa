"""Marks, the threads that bear them, and who dismisses what they say."""

import pytest
from msgspec.structs import replace

from codeloupe.errors import UsageError
from codeloupe.forges.threads import (
    Mark,
    Marker,
    MarkKind,
    SigningKey,
    dismissal_in,
    dismissed_by,
    double_comments,
    key_of,
    own_threads,
    possible_maintainers,
    word_of,
)
from codeloupe.model.finding import Finding
from codeloupe.model.publication import Thread, ThreadComment
from tests.findings_material import changed_finding
from tests.publish_material import finding
from tests.publish_states import MAINTAINER, MARKER, disliked, said, thread_about
from tests.rows import each

SECRET = SigningKey.from_secret("a long and random text")
OURS = Marker(SECRET, repository_id=5, number=7)
MARK = Mark(MarkKind.FINDING, "abcdef0123456789", "offline")


def test_a_mark_is_one_line_that_the_page_does_not_show_and_is_read_back_as_0_1_0_wrote_it() -> None:
    assert OURS.read(f"{OURS.line(MARK)}\nwords") == MARK
    first_version = Marker(SigningKey.from_secret("a secret of the first version"), repository_id=5, number=7)
    assert first_version.line(MARK) == (
        "<!-- codeloupe:1 finding abcdef0123456789 offline 87e0ed4c8d82f58f567d50d0b9585597 -->"
    )


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


def test_a_mark_counts_on_the_first_line_alone_and_cannot_be_changed() -> None:
    line = OURS.line(MARK)
    for body in (f"quoted:\n{line}", f" {line}", f"```\n{line}\n```", f"words {line}"):
        assert OURS.read(body) is None
        assert not OURS.looks_marked(body)
    changes = {"finding": ("gone", "summary", "nonsense"), "abcdef": ("abcdee",), "offline": ("other",)}
    for word, others in changes.items():
        for other in others:
            assert OURS.read(line.replace(word, other)) is None
    assert OURS.read("<!-- codeloupe:1 " + "x" * 100_000) is None


def test_a_short_secret_is_refused_and_none_is_shown() -> None:
    with pytest.raises(UsageError, match="16 characters"):
        SigningKey.from_secret("   short   ")
    assert "material" not in repr(SECRET)


def test_a_finding_goes_by_its_fingerprint_or_by_what_it_says_and_any_text_is_one_word() -> None:
    assert key_of(finding(fingerprint="0123456789abcdef")) == "0123456789abcdef"
    for odd in ("", "--> <img>", "a b c d e f g h", "short", "x" * 500, "\udcff" * 20):
        key = key_of(finding(fingerprint=odd))
        assert key != key_of(finding(fingerprint=odd, title="something else"))
        mark = Mark(MarkKind.FINDING, key, word_of(odd))
        assert OURS.read(OURS.line(mark)) == mark


FIRST, OTHER = finding(4), finding(9)


def thread(about: Finding, comment_id: int, *replies: ThreadComment) -> Thread:
    plain = thread_about(about, *replies, thread_id=f"T{comment_id}")
    return replace(plain, comments=(replace(plain.comments[0], comment_id=comment_id), *plain.comments[1:]))


def test_all_but_the_oldest_of_ours_are_doubles_unless_somebody_answered_or_reacted() -> None:
    def doubles(*threads: Thread) -> tuple[int, ...]:
        return double_comments(own_threads(threads, MARKER))

    assert doubles(thread(FIRST, 7), thread(OTHER, 6), thread(FIRST, 3), thread(FIRST, 5)) == (5, 7)
    assert doubles(thread(FIRST, 3), thread(changed_finding(FIRST, file="other.py"), 5)) == ()
    answered, reacted = thread(FIRST, 5, said("dismiss: it is a constant")), disliked(thread(FIRST, 6), "maintainer")
    assert doubles(thread(FIRST, 3), answered, reacted) == ()
    ours = thread(FIRST, 5)
    copied = replace(thread(FIRST, 3), comments=(replace(ours.comments[0], comment_id=3, is_ours=False),))
    assert doubles(copied, ours) == ()


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
        # A sentence with the word in it does not dismiss.
        ("dismissing this would be wrong", None),
        ("Dismiss? No, this is real.", None),
        ("dismiss this please", None),
        ("please dismiss", None),
        ("I would not dismiss: it is real", None),
        ("> dismiss\n\nno", None),
        ("/codeloupe dismissed", None),
        ("/codeloupe help", None),
        ("", None),
        ("dismis", None),
        # This would take long if it were looked at in a naive way.
        ("dismiss" + " " * 5_000_000 + "x", None),
    ],
)
def test_a_reply_dismisses_by_its_first_words(body: str, reason: str | None) -> None:
    assert dismissal_in(body) == reason


def test_a_maintainer_dismisses_by_a_reply_the_last_first_or_by_a_thumb_down_and_nobody_else() -> None:
    people = frozenset({MAINTAINER})
    replied = thread_about(finding(), said("dismiss: first"), said("dismiss: second"), said("thanks"))
    assert dismissed_by(replied, people) == (MAINTAINER, "second")
    assert dismissed_by(disliked(thread_about(finding()), "stranger", MAINTAINER), people) == (MAINTAINER, "")
    for association in ("NONE", "CONTRIBUTOR", "FIRST_TIME_CONTRIBUTOR"):
        stranger = thread_about(finding(), said("dismiss", association=association))
        assert dismissed_by(stranger, people) is None
        assert possible_maintainers([stranger]) == ()
    assert dismissed_by(disliked(thread_about(finding(), said("dismiss", author="reader")), "another"), people) is None


def test_those_who_may_decide_are_asked_about_once_and_those_who_replied_first() -> None:
    first = disliked(thread_about(finding(1), said("a question", author="nobody")), "fan", "ann")
    second = thread_about(finding(2), said("dismiss", author="ann"), said("dismiss", author=""))
    assert possible_maintainers([first, second]) == ("ann", "fan")
