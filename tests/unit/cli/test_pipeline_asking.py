"""Asking a person on a real terminal: what there is to see, every answer, and an end at any moment."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from codeloupe.cli.pipeline_display import PipelineDisplay, TerminalAsker, can_ask
from codeloupe.cli.pipeline_runs import open_store
from codeloupe.cli.progress import ProgressMode
from codeloupe.model.pipeline import Approval, CriticVerdict, Decision, StageRecord, StageState
from tests.endings import PATIENCE_SECONDS
from tests.unit.cli.run_terminal import Terminal
from tests.unit.store.run_samples import attempt, critique, event, run, stage

pytestmark = pytest.mark.program

PROMPTS = ("[l]ater: ", "do differently? ")
DIFF = "diff --git a/n b/n\n--- a/n\n+++ b/n\n@@ -1,2 +1,3 @@\n-old\n+new \x1b[2J\n+more\n+last\n"
WAITS = stage(
    "write",
    StageState.AWAITING_APPROVAL,
    attempt(
        1,
        critique(CriticVerdict.REWORK, score=60, summary="Long \x1b[2J.", blockers=tuple(f"b{n}" for n in range(10))),
        artifacts=("notes.md",),
        notes=("big.bin was left out",),
    ),
    reason="the critic sent it back",
)


def ask(terminal: Terminal, *typed: str, about: StageRecord = WAITS) -> Approval | None:
    """Ask, and type each answer when something is waited for."""

    async def asked(asker: TerminalAsker) -> Approval | None:
        before = prompts(terminal)
        question = asyncio.ensure_future(asker(about, "Is the tone right?"))
        for number, words in enumerate(typed, start=1):
            await until(lambda number=number: prompts(terminal) == before + number)  # type: ignore[misc]  # bound on purpose
            terminal.type(words)
        return await question

    return with_asker(terminal, asked)


def prompts(terminal: Terminal) -> int:
    """How often an answer was asked for so far."""
    return sum(map(terminal.so_far().count, PROMPTS))


async def until(met: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not met():
        assert time.monotonic() < end, "it did not come"
        await asyncio.sleep(0.01)


def with_asker(terminal: Terminal, use: Callable[[TerminalAsker], Awaitable[Approval | None]]) -> Approval | None:
    store = open_store()
    if not store.matching("00000001"):
        store.create(run(1, WAITS), {"stages/write/attempt-1/diff.patch": DIFF.encode()})
    with terminal.as_ours(), PipelineDisplay(stream=sys.stderr, mode=ProgressMode.PLAIN) as display:
        display.watch(run(1, WAITS), event(kind="approval_wanted"))

        async def used() -> Approval | None:
            return await use(TerminalAsker(display, store))

        return asyncio.run(used())


def test_what_there_is_to_decide_on_is_shown(terminal: Terminal) -> None:
    assert ask(terminal, "a\n") == Approval(stage="write", decision=Decision.APPROVE)
    shown = terminal.text().replace("\r", "")
    directory = open_store().directory("00000001")
    for words in (
        "\nwrite waits for you: Is the tone right?\n",
        "? write  awaiting approval  attempt 1 · score 60 · $0.06 · ",
        "the critic sent it back\n",
        "critic REWORK 60: Long \\x1b[2J.\n",
        "✖ b4\n",
        "and 5 more\n",
        "note: big.bin was left out\n",
        "\n  changed: 2 files, 3 lines added, 1 removed\n",
        "\n  artifacts: notes.md\n",
        f"\n  in {directory}/stages/write/work\n",
    ):
        assert words in shown
    assert "\x1b[2J" not in shown
    assert "b5" not in shown


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["approve\n"], Decision.APPROVE),
        (["  A \n"], Decision.APPROVE),
        (["r\n"], Decision.REJECT),
        (["NO\n"], Decision.REJECT),
        (["maybe\n", "a\n"], Decision.APPROVE),
        (["\n", "r\n"], Decision.REJECT),
        (["l\n"], None),
        (["\x04"], None),
        (["t\n", "\x04"], None),
    ],
)
def test_every_answer_is_understood_and_no_other_is_taken(
    terminal: Terminal, typed: list[str], expected: Decision | None
) -> None:
    answer = ask(terminal, *typed)
    assert (answer.decision if answer else None) is expected
    if expected is None:
        assert "write keeps waiting; `codeloupe pipeline approve 00000001 write` answers" in terminal.text()


def test_what_is_not_there_cannot_be_approved(terminal: Terminal) -> None:
    assert ask(terminal, "a\n", "l\n", about=replace(WAITS, attempts=(), wants_approval="escalation")) is None
    assert "pprove  " not in terminal.text()
    assert "`codeloupe pipeline resume 00000001 --retry write` answers" in terminal.text()


def test_the_diff_is_shown_and_asked_again(terminal: Terminal) -> None:
    assert ask(terminal, "d\n", "a\n") is not None
    outside = stage("write", StageState.AWAITING_APPROVAL, attempt(1, diff_file="../../../../etc/passwd"))
    assert ask(terminal, "d\n", "a\n", about=outside) is not None
    shown = terminal.text().replace("\r", "")
    assert "\n+new \\x1b[2J\n" in shown
    assert "There is no diff to show." in shown
    assert "root:" not in shown


def test_what_was_typed_before_the_question_is_no_answer(terminal: Terminal) -> None:
    terminal.type("a\n")
    terminal.wait_for("a")  # it is shown when it has been typed
    answer = ask(terminal, "r\n")
    assert answer is not None
    assert answer.decision is Decision.REJECT


def test_a_question_can_be_taken_back_at_any_time(terminal: Terminal) -> None:
    async def taken_back(asker: TerminalAsker) -> Approval | None:
        question = asyncio.ensure_future(asker(WAITS, "Good?"))
        await until(lambda: terminal.so_far().endswith("[l]ater: "))
        question.cancel()
        with pytest.raises(asyncio.CancelledError):
            await question
        # The next one finds the terminal as it was.
        again = asyncio.ensure_future(asker(WAITS, "Good?"))
        await until(lambda: terminal.so_far().count("[l]ater: ") == 2)
        terminal.type("a\n")
        return await again

    assert with_asker(terminal, taken_back) is not None
    assert "[l]ater: \r\n\r\n" in terminal.text()


def test_two_questions_are_asked_one_after_the_other(terminal: Terminal) -> None:
    async def both(asker: TerminalAsker) -> Approval | None:
        other = stage("print", StageState.AWAITING_APPROVAL, attempt(1))
        questions = [asyncio.ensure_future(asker(each, "Good?")) for each in (WAITS, other)]
        await until(lambda: terminal.so_far().endswith("[l]ater: "))
        await asyncio.sleep(0.1)
        assert "print waits for you" not in terminal.so_far()
        terminal.type("a\n")
        await until(lambda: terminal.so_far().count("[l]ater: ") == 2)
        assert "print waits for you" in terminal.so_far()
        terminal.type("r\n")
        answers = await asyncio.gather(*questions)
        assert [answer.decision for answer in answers if answer] == [Decision.APPROVE, Decision.REJECT]
        return answers[0]

    assert with_asker(terminal, both) is not None


def test_a_person_is_asked_only_where_one_sits(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert not can_ask()
    with terminal.as_ours():
        assert can_ask()
        with (tmp_path / "log").open("w") as log:
            monkeypatch.setattr(sys, "stderr", log)
            assert not can_ask()
