"""Comments of ours that say the same, which runs at once may leave."""

from __future__ import annotations

from msgspec.structs import replace

from codeloupe.forges.threads import double_comments, own_threads
from codeloupe.model.finding import Finding
from codeloupe.model.publication import Thread, ThreadComment
from tests.publish_material import finding
from tests.publish_states import MARKER, disliked, said, thread_about

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
