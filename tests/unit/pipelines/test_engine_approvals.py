from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from codeloupe.errors import NotLoggedIn
from codeloupe.model.pipeline import Approval, Decision, PipelineEvent, RunRecord, StageRecord, StageState
from codeloupe.pipelines.run import AskPerson, open_run_store
from codeloupe.testing import Text
from tests.engine_pipelines import (
    Cast,
    HeldAgent,
    Ran,
    critique,
    failing,
    files_in,
    resume,
    run,
    write_pipeline,
    writing,
)
from tests.rows import each

pytestmark = pytest.mark.program

S = StageState
# Longer than any test: whoever is waited for comes, or is not waited for.
APPROVAL = {"kind": "approval", "prompt": "Is it fine?", "timeout": "10m"}


def say(ran: Ran, stage: str, decision: Decision, note: str = "") -> None:
    open_run_store(ran.state).put_approval(ran.record.run_id, Approval(stage=stage, decision=decision, note=note))


def answered(state: Path, decision: Decision, record: RunRecord) -> None:
    say(Ran(record, state), "write", decision)


def person(*decisions: Decision | None, note: str = "", asked: list[tuple[str, str]] | None = None) -> AskPerson:
    """Somebody at a terminal who decides so, time after time."""
    left = list(decisions)

    async def ask(stage: StageRecord, question: str) -> Approval | None:
        if asked is not None:
            asked.append((stage.name, question))
        decision = left.pop(0)
        return None if decision is None else Approval(stage=stage.name, decision=decision, note=note)

    return ask


def test_a_person_may_ask_for_as_many_attempts_as_they_like_and_their_words_reach_the_agent(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "write", "gate": APPROVAL})
    cast = Cast({"write": [writing({"a.md": str(number)}) for number in range(9)]})
    wishes = [Decision.RETRY] * 5 + [Decision.APPROVE]
    ran = run(file, cast, tmp_path / "state", ask_person=person(*wishes, note="make it shorter"))
    assert ran.record.state is S.COMPLETED
    assert len(cast.calls) == 6
    assert cast.agent.requests[1].prompt.count("make it shorter") == 1
    assert ran.result() == {"a.md": "5"}


def test_gates_behind_an_approval_still_have_their_say(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "write", "gates": [APPROVAL, "critic"]})
    cast = Cast({"write": [writing({"a.md": "a"})]}, {"write": [critique("FAIL", 5)]})
    ran = run(file, cast, tmp_path / "state", ask_person=person(Decision.APPROVE))
    assert ran.record.stage("write").state is S.FAILED
    assert ran.states("write") == ["running", "gating", "awaiting_approval", "gating", "failed"]


def when(kind: str, act: Callable[[RunRecord], object]) -> Callable[[RunRecord, PipelineEvent], None]:
    """A display that does something when an event of a kind comes."""

    def watch(record: RunRecord, event: PipelineEvent) -> None:
        if event.kind == kind:
            act(record)

    return watch


def test_the_word_of_another_process_is_heard_while_somebody_sits_at_the_terminal(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "write", "gate": APPROVAL})
    ended: list[str] = []

    async def never(stage: StageRecord, question: str) -> Approval | None:
        say(Ran(record[0], tmp_path / "state"), stage.name, Decision.APPROVE)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(question)
        return None

    record: list[RunRecord] = []
    watch = when("approval_wanted", record.append)
    ran = run(file, Cast({"write": [Text("a")]}), tmp_path / "state", ask_person=never, watch=watch)
    assert (ran.record.state, ended) == (S.COMPLETED, ["Is it fine?"])


def test_a_person_takes_the_best_of_what_no_gate_let_pass(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "write", "gate": "critic"})
    cast = Cast(
        {"write": [writing({"a.md": f"attempt {number}"}) for number in (1, 2, 3)]},
        {"write": [critique("REWORK", score) for score in (20, 30, 25)]},
    )
    asked: list[tuple[str, str]] = []
    ran = run(file, cast, tmp_path / "state", ask_person=person(Decision.APPROVE, asked=asked))
    assert ran.record.state is S.COMPLETED
    assert "too low to be taken" in asked[0][1]
    assert ran.result() == {"a.md": "attempt 2"}


def test_after_a_persons_retry_the_gate_allows_its_attempts_again(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "write", "gate": {"kind": "critic", "max_attempts": 2}})
    scores = (20, 30, 25, 10, 90)
    cast = Cast(
        {"write": [writing({"a.md": f"attempt {number}"}) for number in range(1, 6)]},
        {"write": [*(critique("REWORK", score) for score in scores[:-1]), critique("PASS", 90)]},
    )
    wishes = (Decision.RETRY, Decision.RETRY)
    ran = run(file, cast, tmp_path / "state", ask_person=person(*wishes, note="again"))
    stage = ran.record.stage("write")
    assert [attempt.score for attempt in stage.attempts] == [*scores]
    assert (stage.state, stage.chosen) == (S.COMPLETED, 5)


def test_what_there_is_no_attempt_of_cannot_be_approved(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "write"})
    cast = Cast({"write": [failing(NotLoggedIn)]})
    ran = run(file, cast, tmp_path / "state", ask_person=person(Decision.APPROVE))
    assert ran.record.stage("write").state is S.AWAITING_APPROVAL
    (note,) = ran.events("note")
    again = f"`codeloupe pipeline resume {ran.record.run_id} --retry write` tries it again"
    assert note.message == f"a person approved it, but it has no work to approve; {again}"


def test_a_failed_stage_that_a_person_has_tried_again_brings_the_given_up_ones_back(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "write", "gate": "critic"}, {"name": "use", "needs": ["write"]})
    cast = Cast(
        {"write": [writing({"a.md": "bad"}), writing({"a.md": "good"})], "use": [Text("used")]},
        {"write": [critique("FAIL", 5), critique("PASS", 95)]},
    )
    ran = run(file, cast, tmp_path / "state")
    assert ran.record.state is S.FAILED
    assert resume(ran, cast).record == ran.record
    say(ran, "write", Decision.RETRY, "the requirements were changed")
    again = resume(ran, cast)
    assert (again.record.state, [stage.state for stage in again.record.stages]) == (S.COMPLETED, [S.COMPLETED] * 2)
    assert again.result() == {"a.md": "good", "use-output.md": "used\n"}
    assert "the requirements were changed" in cast.agent.requests[2].prompt


def test_a_run_that_fails_asks_nobody_any_more(tmp_path: Path) -> None:
    file = write_pipeline(
        tmp_path / "p",
        {"name": "waits", "gate": APPROVAL},
        {"name": "fails", "on_failure": "fail"},
    )
    is_asked = asyncio.Event()

    async def never(_stage: StageRecord, _question: str) -> Approval | None:
        is_asked.set()
        await asyncio.Event().wait()
        return None

    cast = Cast({"waits": [Text("a")], "fails": [failing(NotLoggedIn)]})
    agent = HeldAgent(cast)
    agent.hold("fails", until=is_asked)
    ran = run(file, cast, tmp_path / "state", ask_person=never, agents={"scripted": agent})
    assert (ran.record.state, ran.record.stage("waits").state) == (S.FAILED, S.AWAITING_APPROVAL)


@each("decision", [Decision.APPROVE, Decision.REJECT])
def test_a_word_on_an_escalated_stage_that_comes_while_others_work_is_heard(tmp_path: Path, decision: Decision) -> None:
    file = write_pipeline(
        tmp_path / "p",
        {"name": "write", "gate": {"kind": "critic", "max_attempts": 1}, "on_failure": "escalate"},
        {"name": "slow"},
        {"name": "slower", "needs": ["slow"]},
    )
    cast = Cast(
        {"write": [writing({"a.md": "a"})], "slow": [Text("b")], "slower": [Text("c")]},
        {"write": [critique("REWORK", 1)]},
    )
    state = tmp_path / "state"
    watch = when("approval_wanted", partial(answered, state, decision))
    ran = run(file, cast, state, watch=watch)
    expected = S.COMPLETED if decision is Decision.APPROVE else S.FAILED
    assert (ran.record.stage("write").state, ran.record.state) == (expected, expected)


def test_what_a_person_changed_in_the_workspace_is_no_part_of_the_work_and_not_lost(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    rows: list[Decision] = [Decision.APPROVE, Decision.RETRY]
    for decision in rows:
        rows1: list[str] = ["approval", "critic"]
        for number, gate in enumerate(rows1):
            place = tmp_path / f"{number}-{len(list(tmp_path.iterdir()))}"
            place.mkdir()
            with subtests.test(decision=decision, gate=gate):
                file = write_pipeline(place / "p", {"name": "write", "gate": gate})
                texts = [writing({"a.md": f"{number}\n"}) for number in (1, 2, 3)]
                cast = Cast({"write": texts}, {"write": [critique("REWORK", score) for score in (30, 20, 10)]})
                ran = run(file, cast, place / "state")
                workspace = ran.directory / "stages" / "write" / "work"
                assert files_in(workspace) == {"a.md": "1\n"}, "the best attempt is there to be looked at"
                (workspace / "a.md").write_text("mended\n", encoding="utf-8")
                say(ran, "write", decision)
                ran = resume(ran, cast)
                patch = (ran.directory / "stages/write/attempt-1/by-hand.patch").read_text(encoding="utf-8")
                assert "-1\n+mended\n" in patch
                [note] = ran.events("note", "write")
                assert note.message.endswith(
                    "is no part of attempt 1; it is kept in stages/write/attempt-1/by-hand.patch"
                )
                if decision is Decision.APPROVE:
                    assert ran.result() == {"a.md": "1\n"}
