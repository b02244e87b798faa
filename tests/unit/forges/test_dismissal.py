from __future__ import annotations

from codeloupe.forges.threads import Dismissed, dismissal_in, dismissed_by, possible_maintainers
from tests.publish_material import finding
from tests.publish_states import MAINTAINER, disliked, said, thread_about
from tests.rows import each

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
