from __future__ import annotations

import asyncio

from codeloupe.gates.approval import word_of_a_person
from codeloupe.model.pipeline import Approval, Decision
from tests.endings import ends_soon

YES = Approval(stage="s", decision=Decision.APPROVE)
NO = Approval(stage="s", decision=Decision.REJECT)


def test_a_word_that_was_left_is_taken_at_once_and_nobody_is_asked() -> None:
    async def ask() -> Approval | None:
        raise AssertionError("nobody is to be asked")

    assert asyncio.run(word_of_a_person(lambda: YES, ask, timeout_seconds=0)) == YES


def test_without_anybody_it_gives_up_in_time() -> None:
    assert asyncio.run(word_of_a_person(lambda: None, None, timeout_seconds=0)) is None
    assert asyncio.run(word_of_a_person(lambda: None, None, timeout_seconds=0.1, poll_seconds=0.02)) is None


def test_a_word_is_looked_for_again_and_again() -> None:
    looks = iter([None, None, None, NO])
    assert asyncio.run(word_of_a_person(lambda: next(looks), None, timeout_seconds=20, poll_seconds=0.01)) == NO


def test_whoever_answers_first_counts() -> None:
    async def ask() -> Approval | None:
        return YES

    assert asyncio.run(word_of_a_person(lambda: None, ask, timeout_seconds=0)) == YES


def test_no_clock_runs_out_on_a_person_at_the_terminal() -> None:
    async def ask() -> Approval | None:
        await asyncio.sleep(0.2)
        return NO

    assert asyncio.run(word_of_a_person(lambda: None, ask, timeout_seconds=0, poll_seconds=0.01)) == NO


def test_a_person_who_decides_later_is_not_waited_for() -> None:
    async def ask() -> Approval | None:
        return None

    with ends_soon():
        assert asyncio.run(word_of_a_person(lambda: None, ask, timeout_seconds=600, poll_seconds=0.01)) is None


def test_a_word_from_elsewhere_counts_though_the_person_at_the_terminal_decides_later() -> None:
    said: list[Approval] = []

    async def ask() -> Approval | None:
        said.append(YES)
        return None

    assert asyncio.run(word_of_a_person(lambda: said[0] if said else None, ask, timeout_seconds=600)) == YES


def test_the_question_is_taken_back_when_the_word_came_from_elsewhere() -> None:
    looks = iter([None, None, YES])
    ended: list[str] = []

    async def ask() -> Approval | None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("taken back")
        return None

    assert asyncio.run(word_of_a_person(lambda: next(looks), ask, timeout_seconds=0, poll_seconds=0.01)) == YES
    assert ended == ["taken back"]
