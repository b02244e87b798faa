from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from codeloupe.config.schema import Settings
from codeloupe.errors import ConfigError, Crashed, WorkspaceError
from codeloupe.git.workspaces import GitWorkspaceStore, KeptTree
from codeloupe.model.agent import AgentRequest
from codeloupe.model.pipeline import Approval, CriticVerdict, Decision, StageRecord, StageState
from codeloupe.pipelines.run import open_run_store
from codeloupe.testing import Json, Text
from codeloupe.testing.agent import AgentStep
from tests.engine_pipelines import Cast, Ran, critique, failing, files_in, resume, run, write_pipeline, writing
from tests.repository import GitRepository
from tests.rows import each

S = StageState
OFFLINE = Settings(reviewer_type="offline")
FAULTY = "import subprocess\n\n\ndef go(name):\n    subprocess.run('ls ' + name, shell=True)\n"
SOUND = "import subprocess\n\n\ndef go(name):\n    subprocess.run(['ls', name], check=True)\n"


@pytest.fixture
def project(repository: GitRepository) -> GitRepository:
    repository.write("a.py", "x = 1\n")
    repository.write("docs/b.md", "b\n")
    repository.write(".gitignore", "*.log\n")
    repository.commit()
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

    ran = run(file, cast, tmp_path / "state", repo=project.path, ask_person=person)
    stage = ran.record.stage("write")
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


@pytest.mark.program
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


@pytest.mark.program
def test_work_that_could_not_be_kept_is_kept_later_without_asking_its_agent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "write"})
    cast = Cast({"write": [writing({"a.md": "paid for"})]})

    async def full(_store: GitWorkspaceStore, _directory: Path) -> KeptTree:
        raise WorkspaceError("no room is left on the disk")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GitWorkspaceStore, "keep", full)
        ran = run(file, cast, tmp_path / "state")
    stage = ran.record.stage("write")
    assert (stage.state, stage.reason) == (S.AWAITING_APPROVAL, "no room is left on the disk")
    word = Approval(stage="write", decision=Decision.RETRY)
    open_run_store(ran.state).put_approval(ran.record.run_id, word)
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
    ran = run(file, cast, tmp_path / "state", settings=OFFLINE)
    stage = ran.record.stage("write")
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
    project.write("later.py", "later = 1\n")
    project.commit()

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
    file = write_pipeline(tmp_path / "p", *stages, workspace=kind)
    cast = Cast({"read": [Text("Two things are wrong.")], "write": [step]})
    ran = run(file, cast, tmp_path / "state", repo=project.path)
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
    file = write_pipeline(folder / "p", *stages, workspace="worktree")
    cast = Cast({"write": [writing({"a.md": "a"})], "next": [writing({"b.md": "b"})]})
    ran = run(file, cast, folder / "state", repo=project.path)
    word = Approval(stage="write", decision=Decision.APPROVE)
    open_run_store(ran.state).put_approval(ran.record.run_id, word)
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
