"""Runs whose stages work in the user's own working tree."""

import asyncio
import errno
import fcntl
import sys
from pathlib import Path
from typing import Any

import pytest

from codeloupe.errors import CodeloupeError, Crashed, RunBusy
from codeloupe.model.agent import AgentLimits, AgentRequest
from codeloupe.model.pipeline import Approval, Decision, StageRecord, StageState
from codeloupe.pipelines.run import Pipeline, open_run_store
from codeloupe.testing import AgentStep, Hang, Text
from tests.engine_pipelines import (
    Cast,
    Ran,
    critique,
    failing,
    options,
    person,
    resume,
    run,
    run_stages,
    write_pipeline,
    writing,
)
from tests.repository import GitRepository

pytestmark = pytest.mark.program
S = StageState
WRITE = {"name": "write"}
CRITICISED = {**WRITE, "gate": {"kind": "critic", "max_attempts": 1}}
APPROVED = {"kind": "approval", "timeout": "1s"}
IN_CHECKOUT = {"workspace": "checkout"}
PASSES = {"command": [sys.executable, "-c", "pass"]}
BAD = {"bad.py": "BAD = 1\n"}


@pytest.fixture
def project(repository: GitRepository) -> GitRepository:
    repository.commit_files({"a.py": "x = 1\n", "docs/b.md": "b\n", ".gitignore": "*.log\n"})
    repository.write("a.py", "x = 'not committed'\n")
    return repository


def patch_of(ran: Ran) -> str:
    """The patch of a run; empty if it has none yet."""
    file = ran.directory / "result.patch"
    return file.read_text(encoding="utf-8") if file.exists() else ""


def seen_by_critic(cast: Cast) -> str:
    """The last prompt of a critic."""
    return next(request.prompt for request in reversed(cast.agent.requests) if "gate" in request.labels)


def test_in_a_checkout_stages_work_in_the_users_tree_one_at_a_time(project: GitRepository, tmp_path: Path) -> None:
    stages = ({"name": "one"}, {"name": "two"}, {"name": "three", "needs": ["one"]})
    cast = Cast({name: [writing({f"{name}.md": name})] for name in ("one", "two", "three")})
    ran = run_stages(tmp_path, cast, *stages, keys=IN_CHECKOUT, repo=project.path)
    assert ran.record.state is S.COMPLETED, ran.record.reason
    assert cast.agent.max_seen == 1
    assert {request.working_dir for request in cast.agent.requests} == {project.path}
    assert (project.path / "a.py").read_text() == "x = 'not committed'\n"
    assert (project.path / "three.md").read_text() == "three"
    patch = (ran.directory / "result.patch").read_text()
    assert "one.md" in patch
    # What was there before the run is no part of what it changed.
    assert "a.py" not in patch
    assert not (ran.directory / "result").exists()
    assert (project.path / ".git").is_dir()
    assert project.git("rev-list", "--count", "--all").strip() == b"1"


def three_attempts() -> Cast:
    """Three attempts of which the second is the best."""
    return Cast(
        {"write": [writing({"n.md": f"attempt {number}\n", f"{number}.md": "x"}) for number in (1, 2, 3)]},
        {"write": [critique("REWORK", score) for score in (50, 70, 60)]},
    )


@pytest.mark.parametrize("gates", [["critic"], ["critic", PASSES]])
def test_in_a_checkout_an_earlier_attempt_is_accepted_only_with_its_own_files(
    project: GitRepository, tmp_path: Path, gates: list[object]
) -> None:
    cast = three_attempts()
    ran = run_stages(tmp_path, cast, {**WRITE, "gates": gates}, keys=IN_CHECKOUT, repo=project.path)
    stage = ran.record.stage("write")
    assert stage.state is S.AWAITING_APPROVAL
    assert "the checkout is not as attempt 2 of write left it; restore 3.md, n.md (ignored files" in stage.reason
    assert "the patch of the attempt is stages/write/attempt-2/diff.patch" in stage.reason
    assert (project.path / "n.md").read_text() == "attempt 3\n"
    (project.path / "3.md").unlink()
    project.write("n.md", "attempt 2\n")
    again = resume(ran, cast, repo=project.path)
    assert (again.record.state, again.record.stage("write").chosen) == (S.COMPLETED, 2)
    assert "+attempt 2" in patch_of(again)


def test_a_person_cannot_approve_an_attempt_while_the_checkout_has_other_files(
    project: GitRepository, tmp_path: Path
) -> None:
    def breaks(request: AgentRequest) -> AgentStep:
        (request.working_dir / "half.md").write_text("half", encoding="utf-8")
        return failing(Crashed)

    cast = Cast({"write": [writing({"a.md": "one"}), breaks]})
    asked = {**WRITE, "gate": APPROVED, "retries": 0}
    decided = person(Decision.RETRY, Decision.APPROVE)
    ran = run_stages(tmp_path, cast, asked, keys=IN_CHECKOUT, repo=project.path, ask_person=decided)
    stage = ran.record.stage("write")
    assert (stage.state, stage.chosen) == (S.AWAITING_APPROVAL, None)
    assert "the checkout is not as attempt 1 of write left it; restore half.md (ignored" in stage.reason
    (project.path / "half.md").unlink()
    again = resume(ran, cast, repo=project.path, ask_person=person(Decision.APPROVE))
    assert (again.record.state, again.record.stage("write").chosen) == (S.COMPLETED, 1)


def test_an_approval_does_not_count_if_files_changed_while_the_person_was_asked(
    project: GitRepository, tmp_path: Path
) -> None:
    async def changes_files(stage: StageRecord, _question: str) -> Approval:
        project.write("a.py", "x = 3\n")
        return Approval(stage=stage.name, decision=Decision.APPROVE)

    cast = Cast({"write": [writing({"a.py": "x = 2\n"}), Text("again")]}, {"write": [critique("REWORK", 10)]})
    ran = run_stages(tmp_path, cast, CRITICISED, keys=IN_CHECKOUT, repo=project.path, ask_person=changes_files)
    assert ran.record.stage("write").state is S.AWAITING_APPROVAL
    assert "x = 3" not in patch_of(ran)
    assert any("the approval does not count" in event.message for event in ran.events("note"))


CHANGES = {"command": ["sh", "-c", "echo 'x = 3' > a.py; echo > beside.md; echo > cache.log"]}


@pytest.mark.parametrize(
    ("gates", "judged"), [([CHANGES, PASSES], 1), ([PASSES, CHANGES], 2), ([CHANGES, APPROVED], 1)]
)
def test_files_of_a_checkout_that_changed_since_an_attempt_are_not_accepted(
    project: GitRepository, tmp_path: Path, gates: list[object], judged: int
) -> None:
    cast = Cast({"write": [writing({"a.py": "x = 2\n"})]})
    stage = {**WRITE, "gates": gates}
    ran = run_stages(tmp_path, cast, stage, keys=IN_CHECKOUT, repo=project.path)
    found = ran.record.stage("write")
    assert (found.state, len(found.attempts[0].critiques)) == (S.AWAITING_APPROVAL, judged)
    assert "the checkout is not as attempt 1 of write left it; restore a.py, beside.md (ignored" in found.reason
    # Nothing was restored, so nothing changes; and there is nothing to approve.
    ran.say("write", Decision.APPROVE)
    assert resume(ran, cast, repo=project.path).record.stage("write").reason == found.reason
    project.write("a.py", "x = 2\n")
    (project.path / "beside.md").unlink()
    approves = person(Decision.APPROVE)
    assert resume(ran, cast, repo=project.path, ask_person=approves).record.state is S.COMPLETED
    assert cast.calls == ["write"]


def test_a_retry_includes_the_changed_files_of_a_checkout_in_another_attempt(
    project: GitRepository, tmp_path: Path
) -> None:
    # A call that failed before the first answer makes no difference.
    steps: list[AgentStep] = [failing(Crashed), writing({"a.py": "x = 2\n"}), Text("again")]
    cast = Cast({"write": steps}, {"write": [critique("PASS", 90)]})
    stage = {**WRITE, "gates": ["critic", APPROVED]}
    ran = run_stages(tmp_path, cast, stage, keys=IN_CHECKOUT, repo=project.path)
    project.write("by-hand.py", "HAND = 1\n")
    ran.say("write", Decision.APPROVE)
    ran = resume(ran, cast, repo=project.path)
    assert ran.record.stage("write").state is S.AWAITING_APPROVAL
    assert "restore by-hand.py (ignored" in ran.record.reason
    ran.say("write", Decision.RETRY)
    ran = resume(ran, cast, repo=project.path, ask_person=person(Decision.APPROVE))
    assert (ran.record.state, cast.calls) == (S.COMPLETED, ["write", *["write", "critic of write"] * 2])
    for text in (seen_by_critic(cast), patch_of(ran)):
        assert "+HAND = 1" in text
        assert "+x = 2" in text


def refused_first() -> Cast:
    """Work of one stage that its critic refuses, and then of two stages that is accepted."""
    return Cast(
        {
            "one": [writing({"one.md": "1\n"}), writing({"one.md": "2\n"})],
            "write": [writing(BAD), writing({"good.py": "GOOD = 1\n"})],
        },
        {"write": [critique("REWORK", 0, "remove bad.py"), critique("PASS", 100)]},
    )


@pytest.mark.parametrize("removes", [True, False])
def test_a_stage_does_not_start_on_files_that_were_refused_in_another_stage(
    project: GitRepository, tmp_path: Path, *, removes: bool
) -> None:
    cast = refused_first()
    ran = run_stages(
        tmp_path, cast, {"name": "one"}, {**CRITICISED, "needs": ["one"]}, keys=IN_CHECKOUT, repo=project.path
    )
    assert ran.record.stage("write").state is S.AWAITING_APPROVAL
    ran.say("one", Decision.RETRY, "again")
    ran = resume(ran, cast, repo=project.path)
    assert cast.calls == ["one", "write", "critic of write"]
    assert "one cannot start on changes that were not accepted; restore bad.py (ignored" in ran.record.reason
    if removes:
        (project.path / "bad.py").unlink()
    else:
        ran.say("one", Decision.RETRY)
    ran = resume(ran, cast, repo=project.path)
    assert (ran.record.state, cast.calls[3:]) == (S.COMPLETED, ["one", "write", "critic of write"])
    assert ("bad.py" in patch_of(ran)) is not removes
    assert "+2\n" in patch_of(ran)
    assert "bad.py" in ran.record.stage("one").attempts[0].files_changed or removes


def test_files_of_a_call_that_was_killed_are_not_accepted_with_another_stage(
    project: GitRepository, tmp_path: Path
) -> None:
    def partial(request: AgentRequest) -> AgentStep:
        (request.working_dir / "bad.py").write_text("BAD = 1\n", encoding="utf-8")
        return Hang()

    cast = refused_first()
    cast.stages["write"] = [partial, writing({"good.py": "GOOD = 1\n"})]
    file = write_pipeline(tmp_path / "p", {"name": "one"}, {**CRITICISED, "needs": ["one"]}, **IN_CHECKOUT)

    async def killed() -> None:
        wishes = options(cast, tmp_path / "state", repo=project.path)
        work = asyncio.create_task(Pipeline.load(file).run(options=wishes, run_id="r"))
        while not (project.path / "bad.py").exists():  # noqa: ASYNC110 - nobody tells when
            await asyncio.sleep(0.01)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(killed())
    ran = Ran(open_run_store(tmp_path / "state").load("r"), tmp_path / "state")
    ran.say("one", Decision.RETRY, "again")
    ran = resume(ran, cast, repo=project.path)
    assert cast.calls == ["one", "write"]
    assert "one cannot start on changes that were not accepted; restore bad.py (ignored" in ran.record.reason


def test_a_stage_that_is_run_again_is_judged_since_the_work_that_still_counts(
    project: GitRepository, tmp_path: Path
) -> None:
    cast = Cast(
        {"write": [writing({"old.py": "OLD = 1\n"}), writing({"new.py": "NEW = 1\n"})]},
        {"write": [critique("PASS", 90)]},
    )
    ran = run_stages(tmp_path, cast, WRITE, keys=IN_CHECKOUT, repo=project.path)
    assert ran.record.state is S.COMPLETED
    ran.say("write", Decision.RETRY, "again")
    write_pipeline(tmp_path / "p", CRITICISED, **IN_CHECKOUT)
    ran = resume(ran, cast, repo=project.path, accept_changes=True)
    assert (ran.record.state, cast.calls) == (S.COMPLETED, ["write", "write", "critic of write"])
    for text in (seen_by_critic(cast), patch_of(ran)):
        assert "+OLD = 1" in text
        assert "+NEW = 1" in text


def test_a_completed_stage_that_is_run_again_starts_from_the_initial_files(
    project: GitRepository, tmp_path: Path
) -> None:
    cast = Cast({"write": [writing({"old.py": "OLD = 1\n"}), writing({"new.py": "NEW = 1\n"})]})
    cast.critics["write"] = [critique("PASS", 90)]
    ran = run_stages(tmp_path, cast, CRITICISED, keys=IN_CHECKOUT, repo=project.path)
    ran.say("write", Decision.RETRY, "again")
    ran = resume(ran, cast, repo=project.path)
    assert ran.record.state is S.COMPLETED
    assert "+OLD = 1" in seen_by_critic(cast)
    assert ran.record.stage("write").attempts[0].files_changed == ("new.py", "old.py")


def test_while_a_stage_of_a_checkout_waits_no_other_stage_starts(project: GitRepository, tmp_path: Path) -> None:
    cast = Cast({"write": [writing({"a.py": "x = 2\n"})], "other": [writing({"other.py": "y = 1\n"})]})
    stages = ({**WRITE, "gate": APPROVED}, {"name": "other"})
    ran = run_stages(tmp_path, cast, *stages, keys=IN_CHECKOUT, repo=project.path)
    assert (ran.record.state, cast.calls) == (S.AWAITING_APPROVAL, ["write"])
    ran.say("write", Decision.APPROVE)
    ran = resume(ran, cast, repo=project.path)
    assert (ran.record.state, cast.calls) == (S.COMPLETED, ["write", "other"])
    assert ran.record.stage("other").attempts[0].files_changed == ("other.py",)


@pytest.mark.parametrize("last", ["refused", "good"])
def test_refused_files_in_a_checkout_are_no_part_of_the_patch(
    project: GitRepository, tmp_path: Path, last: str
) -> None:
    cast = Cast({"refused": [writing(BAD)], "good": [writing({"good.py": "GOOD = 1\n"})]})
    refused = {"name": "refused", "on_failure": "continue", "gate": {"command": "false", "max_attempts": 1}}
    stages: list[dict[str, Any]] = [refused, {"name": "good"}]
    if last == "refused":
        stages.reverse()
    ran = run_stages(tmp_path, cast, *stages, keys=IN_CHECKOUT, repo=project.path)
    if last == "good":
        assert "good cannot start on changes that were not accepted; restore bad.py (ignored" in ran.record.reason
        return
    assert ran.record.state is S.COMPLETED
    assert "+GOOD = 1" in patch_of(ran)
    assert "BAD" not in patch_of(ran)
    notes = [event.message for event in ran.events("note")]
    assert notes == ["the checkout contains changes that were not accepted and are not in result.patch: bad.py"]


def test_stages_of_a_checkout_whose_needs_changed_run_again_on_accepted_files(
    project: GitRepository, tmp_path: Path
) -> None:
    cast = Cast({name: [writing({f"{name}.md": name})] for name in ("one", "write")})
    cast.stages["two"] = [writing({"two.md": "2"}), writing({"two.md": "3"})]
    last = {**WRITE, "needs": ["two"], "gate": APPROVED}
    ran = run_stages(tmp_path, cast, {"name": "one"}, {"name": "two"}, last, keys=IN_CHECKOUT, repo=project.path)
    write_pipeline(tmp_path / "p", {"name": "one"}, {"name": "two", "needs": ["one"]}, last, **IN_CHECKOUT)
    ran = resume(ran, cast, accept_changes=True, repo=project.path)
    assert "two cannot start on changes that were not accepted; restore write.md (ignored" in ran.record.reason
    (project.path / "write.md").unlink()
    ran = resume(ran, cast, repo=project.path)
    assert cast.calls == ["one", "two", "write", "two", "write"]
    assert ran.record.stage("write").state is S.AWAITING_APPROVAL


def run_two(first: Path, second: Path, cast: Cast, project: Path, states: tuple[Path, Path]) -> CodeloupeError:
    """Start a second run while the first asks a person; return why it was refused."""
    refusals: list[CodeloupeError] = []

    async def begins_another(_stage: StageRecord, _question: str) -> Approval:
        with pytest.raises(RunBusy) as refused:
            await Pipeline.load(second).run(options=options(cast, states[1], repo=project))
        refusals.append(refused.value)
        return Approval(stage="write", decision=Decision.APPROVE)

    done = run(first, Cast({"write": [Text("done")]}), states[0], repo=project, ask_person=begins_another)
    assert done.record.state is S.COMPLETED
    (refusal,) = refusals
    return refusal


@pytest.mark.parametrize("states", [("state", "state"), ("state", "other-state")])
def test_one_process_at_a_time_works_in_a_checkout_whatever_its_database(
    project: GitRepository, tmp_path: Path, states: tuple[str, str]
) -> None:
    asked = write_pipeline(tmp_path / "p", {**WRITE, "gate": "approval"}, **IN_CHECKOUT)
    file = write_pipeline(tmp_path / "q", WRITE, **IN_CHECKOUT)
    other = Cast({"write": [Text("other")]})
    place, other_place = (tmp_path / name for name in states)
    refusal = run_two(asked, file, other, project.path, (place, other_place))
    assert refusal.message.startswith(f"the checkout {project.path} is busy: another process")
    assert "workspace: worktree" in refusal.hint
    # The refused run was not created, and the checkout is free now.
    runs, _ = open_run_store(other_place).list()
    assert len(runs) == (1 if place == other_place else 0)
    assert other.calls == []
    again = run(file, other, other_place, repo=project.path)
    assert again.record.state is S.COMPLETED


def test_a_checkout_on_a_file_system_without_locks_is_used_with_a_warning(
    project: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lock = fcntl.flock

    def refuse(descriptor: int, operation: int) -> None:
        if project.path.samefile(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.ENOLCK, "no locks available")
        lock(descriptor, operation)

    monkeypatch.setattr("codeloupe.system.directories.fcntl.flock", refuse)
    cast = Cast({"write": [Text("done")]})
    ran = run_stages(tmp_path, cast, WRITE, keys=IN_CHECKOUT, repo=project.path)
    assert ran.record.state is S.COMPLETED
    assert f"cannot lock the checkout {project.path}" in caplog.text


def test_in_a_checkout_a_changed_answer_reopens_the_stages_that_got_it(project: GitRepository, tmp_path: Path) -> None:
    cast = Cast(
        {
            "plan": [Text("plan one"), Text("plan two")],
            "middle": [Text("the same")],
            "report": [Text("report on one"), Text("report on two")],
        }
    )
    stages = [
        {"name": "plan", "writes": False},
        {"name": "middle", "needs": ["plan"], "writes": False},
        {"name": "report", "needs": ["middle"], "writes": False},
    ]
    ran = run_stages(tmp_path, cast, *stages, keys=IN_CHECKOUT, repo=project.path)
    ran.say("plan", Decision.RETRY, "again")
    ran = resume(ran, cast, repo=project.path)
    assert ran.record.state is S.COMPLETED
    assert cast.calls == ["plan", "middle", "report"] * 2
    assert ran.result()["report-output.md"] == "report on two\n"


def test_the_result_of_a_checkout_has_only_answers_of_completed_stages(project: GitRepository, tmp_path: Path) -> None:
    cast = Cast({"plan": [Text("old"), Text("new")], "other": [Text("other")]})
    script = tmp_path / "gate.sh"
    script.write_text("exit 0\n")
    gate = {"command": ["sh", str(script)], "max_attempts": 1}
    plan = {"name": "plan", "writes": False, "on_failure": "continue", "gate": gate}
    ran = run_stages(tmp_path, cast, plan, {"name": "other", "writes": False}, keys=IN_CHECKOUT, repo=project.path)
    assert sorted(ran.result()) == ["other-output.md", "plan-output.md"]
    script.write_text("exit 1\n")
    ran.say("plan", Decision.RETRY, "again")
    ran = resume(ran, cast, repo=project.path)
    assert ran.record.state is S.COMPLETED
    assert ran.result() == {"other-output.md": "other\n"}
    names = open_run_store(ran.state).file_names(ran.record.run_id)
    assert [name for name in names if name.startswith("result/")] == ["result/other-output.md"]


def test_a_long_answer_is_stored_whole_and_cut_visibly_in_prompts(project: GitRepository, tmp_path: Path) -> None:
    text = "x" * 250_000 + "END"
    cast = Cast({"plan": [Text(text)], "use": [Text("used")]})
    stages = [{"name": "plan", "writes": False}, {"name": "use", "needs": ["plan"], "writes": False}]
    ran = run_stages(tmp_path, cast, *stages, keys=IN_CHECKOUT, repo=project.path)
    assert ran.result()["plan-output.md"] == f"{text}\n"
    prompt = cast.agent.requests[1].prompt
    assert "END" not in prompt
    assert "[cut: 50,004 more bytes]" in prompt


def test_a_reading_call_in_a_checkout_is_paid_once_for_the_same_files(project: GitRepository, tmp_path: Path) -> None:
    cast = Cast({"read": [Text("read")]})
    read = {"name": "read", "writes": False}
    for _ in range(2):
        ran = run_stages(tmp_path, cast, read, keys=IN_CHECKOUT, repo=project.path)
        assert ran.record.state is S.COMPLETED
    assert cast.calls == ["read"]
    project.write("a.py", "x = 2\n")
    run_stages(tmp_path, cast, read, keys=IN_CHECKOUT, repo=project.path)
    assert cast.calls == ["read", "read"]


def test_an_answer_in_a_checkout_that_failed_is_not_used_again(project: GitRepository, tmp_path: Path) -> None:
    limits = AgentLimits(schema=True, turns=True, budget=True)
    cast = Cast({"read": [Text("not json"), Text('{"n": 1}')]}, limits=limits)
    rule = {"patterns": ["*.md"], "schemas": {"*.md": {"type": "object"}}}
    read = {"name": "read", "writes": False, "artifacts": rule}
    ran = run_stages(tmp_path, cast, read, keys=IN_CHECKOUT, repo=project.path)
    assert (ran.record.state, cast.calls) == (S.COMPLETED, ["read", "read"])
