"""Where a run works, with whose agents, and within which limits."""

import asyncio
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe.config.schema import Settings
from codeloupe.errors import ConfigError, Crashed, OutputInvalid, Overloaded, TimedOut, WorkspaceError
from codeloupe.git.workspaces import GitWorkspaceStore, KeptTree
from codeloupe.model.agent import AgentLimits, AgentRequest
from codeloupe.model.pipeline import Approval, CriticVerdict, Decision, RecoveryStep, StageRecord, StageState
from codeloupe.pipelines.run import Pipeline, RunOptions, open_run_store, resume_run
from codeloupe.testing import AgentStep, Hang, Json, ScriptedAgent, Text
from tests.engine_pipelines import Cast, Ran, critique, failing, files_in, options, resume, run, write_pipeline, writing
from tests.repository import GitRepository
from tests.rows import each

S = StageState


OFFLINE = Settings(reviewer_type="offline")


FAULTY = "import subprocess\n\n\ndef go(name):\n    subprocess.run('ls ' + name, shell=True)\n"


SOUND = "import subprocess\n\n\ndef go(name):\n    subprocess.run(['ls', name], check=True)\n"


@pytest.fixture
def project(repository: GitRepository) -> GitRepository:
    repository.commit_files({"a.py": "x = 1\n", "docs/b.md": "b\n", ".gitignore": "*.log\n"})
    repository.write("a.py", "x = 'not committed'\n")
    return repository


def test_a_worktree_holds_the_last_commit_and_the_checkout_is_never_touched(
    project: GitRepository, tmp_path: Path
) -> None:
    before = files_in(project.path)
    found: list[dict[str, str]] = []

    def step(request: AgentRequest) -> AgentStep:
        found.append(files_in(request.working_dir))
        (request.working_dir / "docs" / "b.md").unlink()
        return writing({"a.py": "x = 2\n", "new.md": "new\n"})(request)

    file = write_pipeline(tmp_path / "p", {"name": "write"}, workspace="worktree")
    ran = run(file, Cast({"write": [step]}), tmp_path / "state", repo=project.path)
    assert ran.record.state is S.COMPLETED, ran.record.reason
    assert found == [{".gitignore": "*.log\n", "a.py": "x = 1\n", "docs/b.md": "b\n"}]
    assert files_in(project.path) == before
    assert ran.record.repository == project.path
    assert ran.record.stage("write").attempts[0].files_changed == ("a.py", "docs/b.md", "new.md")
    assert ran.result() == {".gitignore": "*.log\n", "a.py": "x = 2\n", "new.md": "new\n"}
    project.git("checkout", "--", "a.py")
    project.git("apply", str(ran.directory / "result.patch"))
    assert files_in(project.path) == ran.result()


def test_in_a_checkout_stages_work_in_the_users_tree_one_at_a_time(project: GitRepository, tmp_path: Path) -> None:
    file = write_pipeline(
        tmp_path / "p", {"name": "one"}, {"name": "two"}, {"name": "three", "needs": ["one"]}, workspace="checkout"
    )
    cast = Cast({name: [writing({f"{name}.md": name})] for name in ("one", "two", "three")})
    ran = run(file, cast, tmp_path / "state", repo=project.path)
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


def test_in_a_checkout_nothing_is_put_back_and_the_patch_of_the_best_attempt_is_named(
    project: GitRepository, tmp_path: Path
) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "write", "gate": "critic"}, workspace="checkout")
    cast = Cast(
        {"write": [writing({"n.md": f"attempt {number}\n", f"{number}.md": "x"}) for number in (1, 2, 3)]},
        {"write": [critique("REWORK", score) for score in (50, 70, 60)]},
    )
    ran = run(file, cast, tmp_path / "state", repo=project.path)
    stage = ran.record.stage("write")
    assert (stage.state, stage.chosen) == (S.COMPLETED, 2)
    assert (
        "the checkout holds a later attempt; the patch of attempt 2 is stages/write/attempt-2/diff.patch"
        in stage.reason
    )
    assert (project.path / "n.md").read_text() == "attempt 3\n"
    assert (project.path / "1.md").exists()
    assert "+attempt 2" in (ran.directory / stage.attempts[1].diff_file).read_text()


def test_in_a_checkout_what_a_failed_call_left_beside_an_approved_attempt_is_said(
    project: GitRepository, tmp_path: Path
) -> None:
    gate = {"kind": "approval", "timeout": "1s"}
    file = write_pipeline(tmp_path / "p", {"name": "write", "gate": gate, "retries": 0}, workspace="checkout")

    def breaks(request: AgentRequest) -> AgentStep:
        (request.working_dir / "half.md").write_text("half", encoding="utf-8")
        return failing(Crashed)

    cast = Cast({"write": [writing({"a.md": "one"}), breaks]})
    words = [Decision.APPROVE, Decision.RETRY]

    async def person(stage: StageRecord, _question: str) -> Approval:
        return Approval(stage=stage.name, decision=words.pop())

    stage = run(file, cast, tmp_path / "state", repo=project.path, ask_person=person).record.stage("write")
    assert (stage.state, stage.chosen) == (S.COMPLETED, 1)
    assert stage.reason.endswith(
        "; the checkout may also hold what calls after it left that failed;"
        " the patch of attempt 1 is stages/write/attempt-1/diff.patch"
    )


def test_in_a_checkout_an_earlier_attempt_cannot_face_another_gate(project: GitRepository, tmp_path: Path) -> None:
    gates = ["critic", {"command": [sys.executable, "-c", "pass"]}]
    file = write_pipeline(tmp_path / "p", {"name": "write", "gates": gates}, workspace="checkout")
    cast = Cast(
        {"write": [writing({"n.md": f"attempt {number}\n"}) for number in (1, 2, 3)]},
        {"write": [critique("REWORK", score) for score in (50, 70, 60)]},
    )
    ran = run(file, cast, tmp_path / "state", repo=project.path)
    assert ran.record.stage("write").state is S.AWAITING_APPROVAL
    assert "the checkout holds a later one" in ran.record.stage("write").reason


def removed(work: Path, _outside: Path) -> None:
    shutil.rmtree(work)


def made_a_link(work: Path, outside: Path) -> None:
    shutil.rmtree(work)
    work.symlink_to(outside, target_is_directory=True)


def made_a_file(work: Path, _outside: Path) -> None:
    shutil.rmtree(work)
    work.write_text("a file")


@each("replaced", [removed, made_a_link, made_a_file])
def test_an_agent_that_does_away_with_its_workspace_has_done_nothing_and_begins_again(
    tmp_path: Path, replaced: Callable[[Path, Path], None]
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text("secret")

    def hostile(
        request: AgentRequest, replaced: Callable[[Path, Path], None] = replaced, outside: Path = outside
    ) -> AgentStep:
        replaced(request.working_dir, outside)
        return Text("done")

    file = write_pipeline(tmp_path / "p", {"name": "write"}, {"name": "next", "needs": ["write"]})
    cast = Cast({"write": [hostile, writing({"a.md": "a"})], "next": [writing({"b.md": "b"})]})
    ran = run(file, cast, tmp_path / "state")
    assert ran.record.state is S.COMPLETED, ran.record.reason
    assert len(ran.record.stage("write").failures) == 1
    assert ran.result() == {"a.md": "a", "b.md": "b"}
    assert files_in(outside) == {"secret.md": "secret"}


def test_work_that_could_not_be_kept_is_kept_later_without_asking_its_agent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cast = Cast({"write": [writing({"a.md": "paid for"})]})

    async def full(_store: GitWorkspaceStore, _directory: Path) -> KeptTree:
        raise WorkspaceError("no room is left on the disk")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GitWorkspaceStore, "keep", full)
        ran = run(write_pipeline(tmp_path / "p", {"name": "write"}), cast, tmp_path / "state")
    stage = ran.record.stage("write")
    assert (stage.state, stage.reason) == (S.AWAITING_APPROVAL, "no room is left on the disk")
    open_run_store(ran.state).put_approval(ran.record.run_id, Approval(stage="write", decision=Decision.RETRY))
    again = resume(ran, cast)
    assert (again.record.state, cast.calls) == (S.COMPLETED, ["write"])
    assert again.result() == {"a.md": "paid for"}


def test_a_review_gate_reviews_what_the_stage_changed(project: GitRepository, tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "write", "gate": "review"}, workspace="worktree")
    cast = Cast({"write": [writing({"go.py": FAULTY}), writing({"go.py": SOUND})]})
    ran = run(file, cast, tmp_path / "state", repo=project.path, settings=OFFLINE)
    assert ran.record.state is S.COMPLETED, ran.record.reason
    first, second = ran.record.stage("write").attempts
    assert first.critiques[0].verdict is CriticVerdict.REWORK
    assert first.critiques[0].blockers[0].startswith("[high] go.py:5: ")
    assert (first.critiques[0].score, second.critiques[0].verdict) == (65, CriticVerdict.PASS)
    assert "go.py:5" in cast.agent.requests[1].prompt
    assert not (ran.directory / "stages" / "write" / "review").exists()


def test_a_review_gate_is_not_talked_out_of_its_findings_by_the_change(project: GitRepository, tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "write", "gate": {"kind": "review", "max_attempts": 1}})
    hushed = FAULTY.replace("shell=True)", "shell=True)  # codeloupe: ignore  # noqa")
    cast = Cast({"write": [writing({"go.py": hushed, "codeloupe.yaml": "fail_on: critical\nexclude: ['*.py']\n"})]})
    stage = run(file, cast, tmp_path / "state", settings=OFFLINE).record.stage("write")
    assert stage.attempts[0].critiques[0].verdict is CriticVerdict.REWORK
    # One attempt is all that is allowed, and its points are enough to be taken, with a word about it.
    assert (stage.state, "without a PASS" in stage.reason) == (S.COMPLETED, True)


def test_a_run_in_a_worktree_goes_on_after_the_repository_moved_on(project: GitRepository, tmp_path: Path) -> None:
    file = write_pipeline(
        tmp_path / "p", {"name": "one", "gate": "approval"}, {"name": "two", "needs": ["one"]}, workspace="worktree"
    )
    cast = Cast({"one": [writing({"one.md": "1"})], "two": [writing({"two.md": "2"})]})
    ran = run(file, cast, tmp_path / "state", repo=project.path)
    assert ran.record.state is S.AWAITING_APPROVAL
    project.commit_files({"later.py": "later = 1\n"})

    async def approve(stage: StageRecord, _question: str) -> Approval | None:
        return Approval(stage=stage.name, decision=Decision.APPROVE)

    again = resume(ran, cast, ask_person=approve)
    assert again.record.state is S.COMPLETED
    assert sorted(again.result()) == [".gitignore", "a.py", "docs/b.md", "one.md", "two.md"]
    assert again.result()["a.py"] == "x = 1\n"


@pytest.mark.defect("P7")
@each("kind", ["worktree", "checkout"])
def test_an_answer_that_we_saved_is_handed_on_but_no_part_of_a_repositorys_patch(
    project: GitRepository, tmp_path: Path, kind: str
) -> None:
    told: list[str] = []

    def step(request: AgentRequest, told: list[str] = told) -> AgentStep:
        told.append(request.prompt)
        return writing({"a.py": "x = 2\n"}, say="All changed.")(request)

    stages = ({"name": "read", "writes": False}, {"name": "write", "needs": "read"})
    cast = Cast({"read": [Text("Two things are wrong.")], "write": [step]})
    ran = run(write_pipeline(tmp_path / "p", *stages, workspace=kind), cast, tmp_path / "state", repo=project.path)
    assert ran.record.state is S.COMPLETED, ran.record.reason
    assert "read-output.md" in told[0]
    assert kind == "worktree" or "Two things are wrong." in told[0]
    patch = (ran.directory / "result.patch").read_text(encoding="utf-8")
    assert "+x = 2" in patch
    assert "-output.md" not in patch
    assert ran.result()["read-output.md"] == "Two things are wrong.\n"
    assert ran.result()["write-output.md"] == "All changed.\n"
    assert sorted(files_in(project.path)) == [".gitignore", "a.py", "docs/b.md"]


@pytest.mark.defect("P7")
@each("kind", ["worktree", "checkout"])
def test_a_review_gate_does_not_count_an_answer_that_we_saved(
    project: GitRepository, tmp_path: Path, kind: str
) -> None:
    stages = (
        {"name": "read", "writes": False, "output_schema": {"type": "object"}},
        {"name": "write", "needs": "read", "gate": {"kind": "review"}},
        {"name": "say", "gate": {"kind": "review", "max_attempts": 1}, "on_failure": "continue"},
    )
    file = write_pipeline(tmp_path / "p", *stages, workspace=kind)
    cast = Cast({"read": [Json({"wrong": 2})], "write": [writing({"b.py": "y = 2\n"})], "say": [Text("Nothing.")]})
    ran = run(file, cast, tmp_path / "state", repo=project.path, settings=OFFLINE)
    assert ran.record.state is S.COMPLETED, ran.record.reason
    (judged,) = ran.record.stage("write").attempts[0].critiques
    assert "1 file" in judged.summary
    (nothing,) = ran.record.stage("say").attempts[0].critiques
    assert nothing.blockers == ("the stage changed no file",)
    assert "read-output.json" in ran.result()
    assert ("read-output.json" in files_in(project.path)) is False


def waiting_run(project: GitRepository, folder: Path) -> tuple[Ran, Cast]:
    """A run in a worktree whose first stage was approved while no process worked on it."""
    stages = ({"name": "write", "gate": "approval"}, {"name": "next", "needs": "write"})
    cast = Cast({"write": [writing({"a.md": "a"})], "next": [writing({"b.md": "b"})]})
    ran = run(write_pipeline(folder / "p", *stages, workspace="worktree"), cast, folder / "state", repo=project.path)
    open_run_store(ran.state).put_approval(ran.record.run_id, Approval(stage="write", decision=Decision.APPROVE))
    return ran, cast


def test_a_run_whose_repository_was_moved_away_goes_on_when_it_is_back(project: GitRepository, tmp_path: Path) -> None:
    ran, cast = waiting_run(project, tmp_path)
    moved = project.path.rename(tmp_path / "moved")
    with pytest.raises(ConfigError, match="cannot continue") as caught:
        resume(ran, cast)
    assert caught.value.hint == "put its repository back where it was"
    moved.rename(project.path)
    assert resume(ran, cast).record.state is S.COMPLETED
    assert cast.calls == ["write", "next"]


def test_a_stage_and_a_critic_have_the_agents_and_models_that_they_name(tmp_path: Path) -> None:
    """An agent of the caller takes the place of the built-in one of that name."""
    passing = critique("PASS", 90)
    stages: list[dict[str, Any]] = [
        {"name": "own", "agent": "codex", "model": "m-stage", "gate": "critic"},
        {"name": "other", "agent": "codex", "gate": {"kind": "critic", "agent": "gemini", "model": "m-gate"}},
        {"name": "usual", "gate": "critic"},
    ]
    file = write_pipeline(tmp_path / "p", *stages)
    agents = {
        name: ScriptedAgent(
            [
                lambda request: (
                    passing if "gate" in request.labels else writing({f"{request.labels['stage']}.md": "a"})(request)
                )
            ],
            name=name,
        )
        for name in ("codex", "gemini", "claude_cli")
    }
    wishes = RunOptions(
        settings=Settings(), agents=agents, agent="claude_cli", model="m-run", state_directory=tmp_path / "state"
    )
    asyncio.run(Pipeline.load(file).run(options=wishes))

    def asked(name: str) -> list[tuple[str, str, str | None]]:
        return sorted(
            (request.labels["stage"], request.labels.get("gate", ""), request.model or "")
            for request in agents[name].requests
        )

    assert asked("codex") == [("other", "", "m-run"), ("own", "", "m-stage"), ("own", "critic", "m-stage")]
    assert asked("gemini") == [("other", "critic", "m-gate")]
    assert asked("claude_cli") == [("usual", "", "m-run"), ("usual", "critic", "m-run")]


def test_a_critics_answer_on_the_same_work_is_bought_once_for_several_runs(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "write", "gate": "critic"})
    cast = Cast({"write": [writing({"a.md": "the same"})]}, {"write": [critique("PASS", 90)]})
    run(file, cast, tmp_path / "state")
    again = run(file, cast, tmp_path / "state")
    assert cast.calls == ["write", "critic of write", "write"]
    critique_ = again.record.stage("write").attempts[0].critiques[0]
    assert (critique_.usage.cached, critique_.usage.requests) == (1, 0)
    # What was bought lies in the state directory too.
    run(file, cast, tmp_path / "elsewhere")
    assert cast.calls[3:] == ["write", "critic of write"]


def test_runs_lie_below_the_state_directory_for_their_user_alone(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "write"})
    cast = Cast({"write": [Text("a")]})
    record = asyncio.run(Pipeline.load(file).run(options=options(cast, tmp_path / "state"), run_id="my-run"))
    directory = tmp_path / "state" / "pipelines" / "my-run"
    assert record.run_id == "my-run"
    assert directory.is_dir()
    for place in (directory, directory / "stages", directory / "result", directory / "store.git"):
        assert place.stat().st_mode & 0o077 == 0, place
    for file in (directory / "run.json", directory / "result.patch"):
        assert file.stat().st_mode & 0o077 == 0, file


def test_a_resumed_run_keeps_the_agent_and_the_model_of_its_beginning(tmp_path: Path) -> None:
    asked: list[tuple[str, str | None]] = []

    def named(name: str) -> ScriptedAgent:
        def step(request: AgentRequest) -> AgentStep:
            asked.append((name, request.model))
            return Text("done")

        return ScriptedAgent([step], name=name)

    stages = ({"name": "a", "gate": "approval"}, {"name": "b", "needs": "a", "gate": "approval"}, {"name": "c"})
    file = write_pipeline(tmp_path / "p", *stages[:2], {**stages[2], "needs": "b"})
    wish = RunOptions(
        settings=Settings(),
        agents={"first": named("first"), "second": named("second")},
        wait_for_approval=False,
        state_directory=tmp_path / "state",
    )
    begun = asyncio.run(Pipeline.load(file).run(options=replace(wish, agent="first", model="m1")))
    store = open_run_store(tmp_path / "state")
    store.put_approval(begun.run_id, Approval(stage="a", decision=Decision.APPROVE))
    asyncio.run(resume_run(begun.run_id, options=wish))
    store.put_approval(begun.run_id, Approval(stage="b", decision=Decision.APPROVE))
    ended = asyncio.run(resume_run(begun.run_id, options=replace(wish, agent="second")))
    assert asked == [("first", "m1"), ("first", "m1"), ("second", None)]
    assert (ended.agent, ended.model, ended.state) == ("second", None, StageState.COMPLETED)


@pytest.mark.defect("P8")
def test_a_pipeline_file_can_name_any_agent_that_the_caller_brings(tmp_path: Path) -> None:
    """Two of them may have the same name of their own, and are still two."""
    stages: list[dict[str, Any]] = [
        {"name": "write", "agent": "Writer-2"},
        {"name": "read", "agent": "house.reader", "writes": False},
        {"name": "look", "agent": "other", "writes": False, "step": "read.md"},
        {"name": "judged", "gate": {"kind": "critic", "agent": "judge"}},
    ]
    file = write_pipeline(tmp_path / "p", *stages, defaults={"agent": "Writer-2"})
    agents = {
        "Writer-2": ScriptedAgent([writing({"a.md": "a"})], name="codex"),
        "house.reader": ScriptedAgent([Text("read")]),
        "other": ScriptedAgent([Text("looked")]),
        "judge": ScriptedAgent([critique("PASS", 90)]),
    }
    ran = run(file, Cast({}), tmp_path / "state", agents=agents, agent=None)
    assert ran.record.state is StageState.COMPLETED, ran.record.reason
    assert {name: len(agent.requests) for name, agent in agents.items()} == {
        "Writer-2": 2,
        "house.reader": 1,
        "other": 1,
        "judge": 1,
    }
    assert ran.result()["look-output.md"] == "looked\n"


pytestmark = pytest.mark.program


@pytest.mark.defect("P2")
def test_each_limit_holds_however_often_a_run_is_resumed(tmp_path: Path) -> None:
    limits: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
        "max_requests": ({"max_requests": 1}, {}, 1),
        "max_tokens": ({"max_tokens": 200}, {}, 2),
        "max_budget_usd": ({"max_budget_usd": 0.3}, {}, 2),
        "pipeline": ({}, {"max_budget_usd": 0.3}, 2),
        "stage": ({}, {"defaults": {"budget": 0.3}}, 2),
    }
    wrong: dict[str, Any] = {}
    for name, (wished, keys, most) in limits.items():
        folder = tmp_path / name
        file = write_pipeline(folder / "p", {"name": "write", "retries": 0, "gate": "critic"}, **keys)
        cast = Cast({"write": [Text("a")]}, {"write": [critique("FAIL", 5)]}, cost_usd=0.2)
        settings = Settings(**wished)
        ran = run(file, cast, folder / "state", settings=settings)
        for _ in range(3):
            ran.say("write", Decision.RETRY)
            ran = resume(ran, cast, settings=settings)
        stage = ran.record.stage("write")
        hint = stage.failures[-1].hint if stage.failures else ""
        key = {"stage": "budget", "pipeline": "max_budget_usd"}.get(name, name)
        command = f"codeloupe pipeline resume {ran.record.run_id}"
        if len(cast.calls) != most or f"`{key}`" not in hint or command not in hint:
            wrong[name] = (cast.calls, stage.reason, hint)
    assert wrong == {}


@pytest.mark.defect("P2")
def test_a_request_that_was_out_when_the_process_was_stopped_counts(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "write"})
    cast = Cast({"write": [Hang()]})
    wishes = options(cast, tmp_path / "state", settings=Settings(max_requests=1))

    async def stopped(start: Any) -> None:
        work = asyncio.create_task(start)
        while not cast.calls:  # noqa: ASYNC110 - nobody tells when
            await asyncio.sleep(0.01)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(stopped(Pipeline.load(file).run(options=wishes, run_id="r")))
    record = asyncio.run(resume_run("r", options=wishes))
    assert cast.calls == ["write"]
    assert (record.usage.requests, record.usage.unknown_costs) == (1, 1)
    assert "the run has made 1 of its 1 requests" in record.stage("write").reason


@pytest.mark.defect("P2")
def test_a_review_gate_has_only_what_is_left_of_the_runs_limits(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "write", "gate": "review"})
    cast = Cast({"write": [Text("a")]})
    ran = run(
        file, cast, tmp_path / "state", settings=Settings(max_requests=1, reviewer_type="api", api_model="openai/m")
    )
    stage = ran.record.stage("write")
    assert (stage.state, ran.record.usage.requests) == (S.AWAITING_APPROVAL, 1)
    assert "the run has made 1 of its 1 requests" in stage.reason


@pytest.mark.defect("P3")
def test_without_retries_there_is_exactly_one_call(tmp_path: Path) -> None:
    errors: list[AgentStep] = [
        failing(Overloaded),
        failing(Crashed, session_id="s-1"),
        failing(TimedOut, session_id="s-1"),
        failing(OutputInvalid, session_id="s-1"),
        Text(" "),
        Json({}),
    ]
    wrong: dict[str, Any] = {}
    for number, error in enumerate(errors):
        folder = tmp_path / str(number)
        stage = {"name": "write", "retries": 0, "artifacts": {"required": ["a.md"]}}
        cast = Cast({"write": [error]})
        ran = run(write_pipeline(folder / "p", stage), cast, folder / "state")
        if (len(cast.calls), ran.record.state) != (1, S.AWAITING_APPROVAL):
            wrong[type(error).__name__] = (cast.calls, ran.record.reason)
        ran.say("write", Decision.RETRY)
        again = resume(ran, cast)
        if len(cast.calls) != 2 or again.record.stage("write").state is not S.AWAITING_APPROVAL:
            wrong[f"{type(error).__name__} again"] = cast.calls
    assert wrong == {}


@pytest.mark.defect("P2")
def test_a_budget_holds_for_an_agent_that_cannot_stop_at_a_cost_or_fork_a_session(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "write", "gate": "critic"}, {"name": "use", "needs": ["write"]})
    plain = AgentLimits(schema=True, resume=True, tools=True, writes=True)
    steps: list[AgentStep] = [failing(Crashed, session_id="s-1"), failing(Crashed, session_id="s-1"), Text("a")]
    cast = Cast({"write": steps, "use": [Text("b")]}, {"write": [critique("PASS", 90)]}, cost_usd=0.2, limits=plain)
    ran = run(file, cast, tmp_path / "state", settings=Settings(max_budget_usd=0.4))
    assert ran.record.stage("write").attempts[0].step is RecoveryStep.RESUME
    assert ran.record.stage("use").state is S.AWAITING_APPROVAL
    assert cast.calls == ["write", "write", "write", "critic of write"]


@pytest.mark.defect("P5")
def test_an_agent_that_stops_at_the_money_left_names_the_limit_to_raise_and_the_next_command(tmp_path: Path) -> None:
    rows: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
        ({"max_budget_usd": 0.3}, {}, "`max_budget_usd` in FILE", " --accept-changes"),
        ({"max_budget_usd": 9}, {"budget": 0.1}, "its `budget` in FILE", " --accept-changes"),
        ({}, {}, "`max_budget_usd` in your settings, or CODELOUPE_MAX_BUDGET_USD", ""),
    ]
    for number, (keys, of_stage, where, option) in enumerate(rows):
        folder, cast = tmp_path / str(number), Cast({"one": [Text("a")], "two": [Text("b")]}, cost_usd=0.2)
        file = write_pipeline(folder / "p", {"name": "one"}, {"name": "two", "needs": ["one"], **of_stage}, **keys)
        ran = run(file, cast, folder / "state", settings=(Settings() if keys else Settings(max_budget_usd=0.3)))
        again = f"`codeloupe pipeline resume {ran.record.run_id}{option} --retry two`"
        hint = ran.record.stage("two").failures[-1].hint
        assert hint == f"raise {where.replace('FILE', str(file))}, then {again}", number
