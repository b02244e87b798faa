"""A run by the engine: stages, gates, recovery, and what people decide."""

import asyncio
import itertools
import sys
from pathlib import Path
from typing import Any

import pytest

from codeloupe.errors import Crashed, NotLoggedIn
from codeloupe.model.agent import AgentRequest
from codeloupe.model.pipeline import Approval, Decision, PipelineEvent, RecoveryStep, RunRecord, StageRecord, StageState
from codeloupe.testing import Json, Text
from codeloupe.testing.agent import AgentStep
from tests import engine_pipelines as play
from tests.engine_pipelines import Cast, Ran, critique, failing, files_in, person, resume, run_stages, writing
from tests.rows import each

pytestmark = pytest.mark.program
S = StageState
# Longer than any test: whoever is waited for comes, or is not waited for.
APPROVAL = {"kind": "approval", "prompt": "Is it fine?", "timeout": "10m"}
WRITE, USE = {"name": "write"}, {"name": "use", "needs": ["write"]}
CRITICISED = {**WRITE, "gate": "critic"}


def test_a_stage_sees_the_work_of_all_that_it_builds_on(tmp_path: Path) -> None:
    seen: dict[str, list[str]] = {}

    def looking(name: str) -> AgentStep:
        def step(request: AgentRequest) -> AgentStep:
            seen[name] = sorted(files_in(request.working_dir))
            return writing({f"{name}.md": name})(request)

        return step

    cast = Cast({name: [looking(name)] for name in ("first", "second", "third")})
    stages = ({"name": "third", "needs": ["second"]}, {"name": "second", "needs": ["first"]}, {"name": "first"})
    ran = run_stages(tmp_path, cast, *stages)
    assert cast.calls == ["first", "second", "third"]
    assert seen == {"first": [], "second": ["first.md"], "third": ["first.md", "second.md"]}
    assert ran.record.state is S.COMPLETED
    assert ran.result() == {"first.md": "first", "second.md": "second", "third.md": "third"}
    assert "- second.md\n- first.md\n" in cast.agent.requests[2].prompt


def test_another_attempt_mends_the_work_of_the_last_and_knows_what_was_wrong(tmp_path: Path) -> None:
    found: list[dict[str, str]] = []

    def second(request: AgentRequest) -> AgentStep:
        found.append(files_in(request.working_dir))
        return writing({"b.md": "more"})(request)

    cast = Cast(
        {"write": [writing({"a.md": "one"}), second]},
        {"write": [critique("REWORK", 50, "b.md is missing"), critique("PASS", 90)]},
    )
    ran = run_stages(tmp_path, cast, CRITICISED)
    assert found == [{"a.md": "one"}]
    assert "b.md is missing" in cast.agent.requests[2].prompt
    assert ran.record.stage("write").attempts[1].artifacts == ("a.md", "b.md")
    assert ran.result() == {"a.md": "one", "b.md": "more"}
    assert ran.states("write") == ["running", "gating", "reworking", "running", "gating", "completed"]
    # The critic of the second attempt is told what was said of the first.
    assert "b.md is missing" in cast.agent.requests[3].prompt


def test_independent_stages_work_at_the_same_time_but_no_more_of_them_than_the_pipeline_allows(tmp_path: Path) -> None:
    names = ("one", "two", "three")
    stages = [{"name": name} for name in names]
    cast = Cast({name: [writing({f"{name}.md": name})] for name in (*names, "join")})
    agent = play.HeldAgent(cast)
    for name, other in zip(names, ("two", "three", "one"), strict=True):
        agent.hold(name, until=agent.begun[other])
    ran = run_stages(tmp_path, cast, *stages, {"name": "join", "needs": names}, agents={"scripted": agent})
    assert ran.result() == {f"{name}.md": name for name in (*names, "join")}
    cast = Cast(cast.stages)
    ran = run_stages(tmp_path, cast, *stages, keys={"max_parallel": 1})
    assert (ran.record.state, cast.agent.max_seen) == (S.COMPLETED, 1)


def test_a_conflict_without_a_stage_that_joins_leaves_no_result_and_says_so(tmp_path: Path) -> None:
    cast = Cast({"one": [writing({"a.md": "one"})], "two": [writing({"a.md": "two"})]})
    ran = run_stages(tmp_path, cast, {"name": "one"}, {"name": "two"})
    assert ran.record.state is S.FAILED
    assert "there is no result: cannot merge the work of one and two" in ran.record.reason
    assert "a.md" in ran.record.reason
    assert f"`codeloupe pipeline resume {ran.record.run_id} --accept-changes --retry two`" in ran.record.reason


def test_a_failure_that_fails_the_run_lets_what_is_under_way_finish(tmp_path: Path) -> None:
    stages = ({"name": "bad", "on_failure": "fail"}, {"name": "under-way"}, {"name": "later", "needs": ["under-way"]})
    cast = Cast({"bad": [failing(NotLoggedIn)], "under-way": [writing({"a.md": "a"})], "later": [Text("x")]})
    has_failed = asyncio.Event()
    agent = play.HeldAgent(cast)
    agent.hold("bad", until=agent.begun["under-way"])
    agent.hold("under-way", until=has_failed)

    def watch(record: RunRecord, _event: PipelineEvent) -> None:
        if record.stage("bad").state is S.FAILED:
            has_failed.set()

    ran = run_stages(tmp_path, cast, *stages, agents={"scripted": agent}, watch=watch)
    states = [stage.state for stage in ran.record.stages]
    assert (ran.record.state, states) == (S.FAILED, [S.FAILED, S.COMPLETED, S.CANCELLED])
    assert ran.record.reason.startswith("bad failed: ")


def test_a_gate_judges_exactly_what_would_go_on(tmp_path: Path) -> None:
    """A program may change the workspace; neither the next gate nor the result sees anything of that."""
    spoil = "import pathlib; pathlib.Path('a.md').write_text('spoilt'); pathlib.Path('new.md').touch()"
    look = "import os, sys; sys.exit(open('a.md').read() != 'fine' or os.path.exists('new.md'))"
    gates = [{"command": [sys.executable, "-c", code]} for code in (spoil, look)]
    ran = run_stages(tmp_path, Cast({"write": [writing({"a.md": "fine"})]}), {**WRITE, "gates": gates})
    assert ran.record.state is S.COMPLETED, ran.record.reason
    assert ran.result() == {"a.md": "fine"}
    assert files_in(ran.directory / "stages" / "write" / "work") == {"a.md": "fine"}


def test_a_stage_is_told_the_inputs_that_it_names(tmp_path: Path) -> None:
    stages = ({"name": "all"}, {"name": "some", "inputs": ["topic"]})
    inputs = {"topic": {}, "secret-word": {"default": "xyzzy"}}
    cast = Cast({"all": [Text("a")], "some": [Text("b")]})
    ran = run_stages(tmp_path, cast, *stages, keys={"inputs": inputs}, inputs={"topic": "rivers"})
    prompts = {request.labels["stage"]: request.prompt for request in cast.agent.requests}
    told = {name: ("rivers" in prompt, "xyzzy" in prompt) for name, prompt in prompts.items()}
    assert told == {"all": (True, True), "some": (True, False)}
    assert dict(ran.record.inputs) == {"topic": "rivers", "secret-word": "xyzzy"}


def test_every_step_is_shown_to_whoever_watches_and_a_broken_display_breaks_nothing(tmp_path: Path) -> None:
    seen: list[tuple[str, StageState]] = []

    def watch(record: RunRecord, event: PipelineEvent) -> None:
        seen.append((event.kind, record.state))
        raise RuntimeError("the display is gone")

    ran = run_stages(tmp_path, Cast({"write": [Text("a")]}), WRITE, watch=watch)
    assert [kind for kind, _ in seen] == [event.kind for event in ran.journal]
    assert seen[0] == ("run_started", S.RUNNING)
    assert seen[-1] == ("run_ended", S.COMPLETED)


def test_a_person_may_ask_for_as_many_attempts_as_they_like_and_their_words_reach_the_agent(tmp_path: Path) -> None:
    cast = Cast({"write": [writing({"a.md": str(number)}) for number in range(9)]})
    asked = person(*[Decision.RETRY] * 5, Decision.APPROVE, note="make it shorter")
    ran = run_stages(tmp_path, cast, {**WRITE, "gate": APPROVAL}, ask_person=asked)
    assert ran.record.state is S.COMPLETED
    assert len(cast.calls) == 6
    assert cast.agent.requests[1].prompt.count("make it shorter") == 1
    assert ran.result() == {"a.md": "5"}


def test_gates_behind_an_approval_still_have_their_say(tmp_path: Path) -> None:
    cast = Cast({"write": [writing({"a.md": "a"})]}, {"write": [critique("FAIL", 5)]})
    stage = {**WRITE, "gates": [APPROVAL, "critic"]}
    ran = run_stages(tmp_path, cast, stage, ask_person=person(Decision.APPROVE))
    assert ran.record.stage("write").state is S.FAILED
    assert ran.states("write") == ["running", "gating", "awaiting_approval", "gating", "failed"]


def test_a_person_takes_the_best_of_what_no_gate_let_pass(tmp_path: Path) -> None:
    cast = Cast(
        {"write": [writing({"a.md": f"attempt {number}"}) for number in (1, 2, 3)]},
        {"write": [critique("REWORK", score) for score in (20, 30, 25)]},
    )
    asked: list[str] = []
    ran = run_stages(tmp_path, cast, CRITICISED, ask_person=person(Decision.APPROVE, asked=asked))
    assert ran.record.state is S.COMPLETED
    assert "too low to accept" in asked[0]
    assert ran.result() == {"a.md": "attempt 2"}


def test_what_there_is_no_attempt_of_cannot_be_approved(tmp_path: Path) -> None:
    cast = Cast({"write": [failing(NotLoggedIn)]})
    ran = run_stages(tmp_path, cast, WRITE, ask_person=person(Decision.APPROVE))
    assert ran.record.stage("write").state is S.AWAITING_APPROVAL
    (note,) = ran.events("note")
    again = f"`codeloupe pipeline resume {ran.record.run_id} --retry write` retries it"
    assert note.message == f"a person approved it, but it has no work to approve; {again}"


def test_a_failed_stage_that_a_person_has_tried_again_brings_the_given_up_ones_back(tmp_path: Path) -> None:
    cast = Cast(
        {"write": [writing({"a.md": "bad"}), writing({"a.md": "good"})], "use": [Text("used")]},
        {"write": [critique("FAIL", 5), critique("PASS", 95)]},
    )
    ran = run_stages(tmp_path, cast, CRITICISED, USE)
    assert ran.record.state is S.FAILED
    assert resume(ran, cast).record == ran.record
    ran.say("write", Decision.RETRY, "the requirements were changed")
    again = resume(ran, cast)
    assert (again.record.state, [stage.state for stage in again.record.stages]) == (S.COMPLETED, [S.COMPLETED] * 2)
    assert again.result() == {"a.md": "good", "use-output.md": "used\n"}
    assert "the requirements were changed" in cast.agent.requests[2].prompt


def test_a_run_that_fails_asks_nobody_any_more(tmp_path: Path) -> None:
    stages = ({"name": "waits", "gate": APPROVAL}, {"name": "fails", "on_failure": "fail"})
    is_asked = asyncio.Event()

    async def never(_stage: StageRecord, _question: str) -> Approval | None:
        is_asked.set()
        await asyncio.Event().wait()
        return None

    cast = Cast({"waits": [Text("a")], "fails": [failing(NotLoggedIn)]})
    agent = play.HeldAgent(cast)
    agent.hold("fails", until=is_asked)
    ran = run_stages(tmp_path, cast, *stages, ask_person=never, agents={"scripted": agent})
    assert (ran.record.state, ran.record.stage("waits").state) == (S.FAILED, S.AWAITING_APPROVAL)


@each(("decision", "state"), [(Decision.APPROVE, S.COMPLETED), (Decision.REJECT, S.FAILED)])
def test_a_word_on_an_escalated_stage_that_comes_while_others_work_is_heard(
    tmp_path: Path, decision: Decision, state: StageState
) -> None:
    judged = {**WRITE, "gate": {"kind": "critic", "max_attempts": 1}, "on_failure": "escalate"}
    deeds: dict[str, play.Steps] = {"write": [writing({"a.md": "a"})], "slow": [Text("b")], "slower": [Text("c")]}

    def watch(record: RunRecord, event: PipelineEvent) -> None:
        if event.kind == "approval_wanted":
            Ran(record, tmp_path / "state").say("write", decision)

    cast = Cast(deeds, {"write": [critique("REWORK", 1)]})
    ran = run_stages(tmp_path, cast, judged, {"name": "slow"}, {"name": "slower", "needs": ["slow"]}, watch=watch)
    assert (ran.record.stage("write").state, ran.record.state) == (state, state)


@each(("decision", "gate"), itertools.product((Decision.APPROVE, Decision.RETRY), ("approval", "critic")))
def test_what_a_person_changed_in_the_workspace_is_no_part_of_the_work_and_not_lost(
    tmp_path: Path, decision: Decision, gate: str
) -> None:
    texts = [writing({"a.md": f"{number}\n"}) for number in (1, 2, 3)]
    cast = Cast({"write": texts}, {"write": [critique("REWORK", score) for score in (30, 20, 10)]})
    ran = run_stages(tmp_path, cast, {**WRITE, "gate": gate})
    workspace = ran.directory / "stages" / "write" / "work"
    assert files_in(workspace) == {"a.md": "1\n"}, "the best attempt is there to be looked at"
    (workspace / "a.md").write_text("mended\n", encoding="utf-8")
    ran.say("write", decision)
    ran = resume(ran, cast)
    assert "-1\n+mended\n" in (ran.directory / "stages/write/attempt-1/by-hand.patch").read_text(encoding="utf-8")
    [note] = ran.events("note", "write")
    assert note.message.endswith("are not part of attempt 1; they are stored in stages/write/attempt-1/by-hand.patch")
    assert decision is Decision.RETRY or ran.result() == {"a.md": "1\n"}


def crashing(files: dict[str, str], **more: Any) -> AgentStep:
    """A step that writes files and then fails."""

    def step(request: AgentRequest) -> AgentStep:
        writing(files)(request)
        return failing(Crashed, **more)

    return step


def test_each_step_of_recovery_is_visible_in_order(tmp_path: Path) -> None:
    ran = run_stages(tmp_path, Cast({"write": [failing(Crashed, "it fell over", session_id="s-1")]}), WRITE)
    assert [event.facts["step"] for event in ran.events("recovery")] == ["retry", "resume", "fresh", "escalate"]
    assert [event.facts["step"] for event in ran.events("try_failed")] == ["first", "retry", "resume", "fresh"]
    assert ran.states("write") == ["running", *["recovering", "running"] * 3, "recovering", "awaiting_approval"]
    stage = ran.record.stage("write")
    assert [failure.step.value for failure in stage.failures] == ["first", "retry", "resume", "fresh"]
    assert stage.failures[0].kind == "crashed"
    assert "it fell over" in stage.reason
    assert "(after 4 tries)" in stage.reason
    order = [event.kind for event in ran.journal if event.kind in ("try_failed", "recovery", "approval_wanted")]
    assert order == ["try_failed", "recovery"] * 4 + ["approval_wanted"]


def test_retry_and_fresh_begin_anew_and_a_resumed_session_finds_what_it_left(tmp_path: Path) -> None:
    seen: list[tuple[str | None, dict[str, str], bool]] = []

    def looking(step: AgentStep) -> AgentStep:
        def look(request: AgentRequest) -> AgentStep:
            told = "Attempt History" in request.prompt
            assert request.fork_session is (request.resume_session is not None)
            seen.append((request.resume_session, files_in(request.working_dir), told))
            return step

        return look

    steps = [
        writing({"a.md": "one"}),
        looking(crashing({"half.md": "first"}, session_id="s-1")),
        looking(crashing({"half.md": "second"}, session_id="s-2")),
        looking(crashing({"more.md": "third"}, session_id="s-3")),
        looking(writing({"a.md": "fresh"})),
    ]
    cast = Cast({"write": steps}, {"write": [critique("REWORK", 50, "more"), critique("PASS", 90)]})
    ran = run_stages(tmp_path, cast, CRITICISED)
    assert seen == [
        (None, {"a.md": "one"}, True),
        (None, {"a.md": "one"}, True),
        ("s-2", {"a.md": "one", "half.md": "second"}, True),
        (None, {}, False),
    ]
    assert ran.record.state is S.COMPLETED
    assert ran.record.stage("write").attempts[1].step is RecoveryStep.FRESH
    assert ran.result() == {"a.md": "fresh"}


def test_what_trying_again_cannot_mend_stops_for_a_person_who_then_has_it_tried_again(tmp_path: Path) -> None:
    cast = Cast({"write": [failing(NotLoggedIn, "log in first"), writing({"a.md": "a"})], "use": [Text("used")]})
    ran = run_stages(tmp_path, cast, WRITE, USE)
    for stopped in (ran, resume(ran, cast)):
        assert (stopped.record.state, cast.calls) == (S.AWAITING_APPROVAL, ["write"])
    ran.say("write", Decision.RETRY, "you are logged in now")
    again = resume(ran, cast)
    assert (again.record.state, cast.calls) == (S.COMPLETED, ["write", "write", "use"])
    assert "you are logged in now" in cast.agent.requests[1].prompt
    assert again.events("approval_given")[0].facts["decision"] == "retry"


def test_a_critic_without_an_exact_answer_is_never_a_pass_and_costs_the_stage_no_other_call(tmp_path: Path) -> None:
    odd = Json({"verdict": "fine", "score": 99})
    cast = Cast({"write": [writing({"a.md": "a"})]}, {"write": [odd, odd, critique("PASS", 90)]})
    ran = run_stages(tmp_path, cast, CRITICISED)
    stage = ran.record.stage("write")
    assert stage.state is S.AWAITING_APPROVAL
    assert "is not exact: missing field: summary" in stage.reason
    assert cast.calls == ["write", "critic of write", "critic of write"]
    assert stage.failures[0].gate == 0
    ran.say("write", Decision.RETRY)
    assert resume(ran, cast).record.state is S.COMPLETED
    assert cast.calls == ["write", *["critic of write"] * 3]


def test_secrets_in_failures_are_not_written_down(tmp_path: Path) -> None:
    token = "ghp_" + "a1B2" * 9
    cast = Cast({"write": [failing(NotLoggedIn, f"refused {token}", hint=f"not {token}")]})
    ran = run_stages(tmp_path, cast, WRITE)
    assert "refused [redacted]" in ran.record.stage("write").reason
    for name in ("run.json", "journal.jsonl"):
        assert token not in (ran.directory / name).read_text()


def test_what_the_first_call_of_a_session_made_is_an_artifact_of_the_one_that_resumed_it(tmp_path: Path) -> None:
    half = crashing({"a.md": "half\n", "b.bin": "no\n"}, session_id="s-1")
    ran = run_stages(tmp_path, Cast({"write": [half, half, writing({"c.md": "rest\n"})]}), WRITE)
    attempt = ran.record.stage("write").attempts[0]
    assert attempt.step is RecoveryStep.RESUME
    assert attempt.artifacts == ("a.md", "c.md")
