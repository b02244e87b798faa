"""A gate is shown the work that is used, whole, or does not decide. What is stored is what was checked."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from codeloupe.model.agent import AgentLimits, AgentRequest, AgentResult
from codeloupe.model.pipeline import Decision
from codeloupe.model.pipeline import StageState as S
from codeloupe.pipelines.attempts import Attempts
from codeloupe.pipelines.recovery import Action
from codeloupe.pipelines.run import Pipeline, open_run_store
from codeloupe.testing import Text
from codeloupe.testing.agent import AgentStep
from tests.engine_pipelines import ALL, Cast, Ran, critique, options, resume, run_stages, write_pipeline, writing
from tests.repository import GitRepository
from tests.rows import each

pytestmark = pytest.mark.program

WITHOUT_TOOLS = AgentLimits(schema=True, turns=True, budget=True, resume=True, fork=True, tools=False, writes=False)
WORKTREE = {"workspace": "worktree"}
PASSED = [critique("PASS", 100)]


@pytest.fixture
def project(tmp_path: Path) -> GitRepository:
    project = GitRepository(tmp_path / "project")
    project.commit_files({"a.py": "x = 1\n", ".gitignore": "build/\n"})
    return project


def last_shown(cast: Cast, stage: str) -> str:
    """The last prompt of a stage's critic."""
    return [each.prompt for each in cast.agent.requests if each.labels == {**each.labels, "gate": "critic"}][-1]


def test_a_file_with_the_name_of_an_earlier_answer_is_judged(tmp_path: Path, project: GitRepository) -> None:
    steps: list[AgentStep] = [Text("an answer"), writing({"write-output.md": "by hand\n", "other.md": "x\n"})]
    cast = Cast({"write": steps}, {"write": [critique("REWORK", 50, "write files"), *PASSED]})
    ran = run_stages(tmp_path, cast, {"name": "write", "gate": "critic"}, keys=WORKTREE, repo=project.path)
    assert ran.record.state is S.COMPLETED
    assert "+by hand" in last_shown(cast, "write")
    assert "+by hand" in (ran.directory / "result.patch").read_text()


def test_an_answer_that_a_later_stage_wrote_over_is_judged(tmp_path: Path, project: GitRepository) -> None:
    files = {"plan-output.md": "by hand\n", "code.md": "x\n"}
    cast = Cast({"plan": [Text("the plan")], "code": [writing(files)]}, {"code": PASSED})
    stages = ({"name": "plan", "writes": False}, {"name": "code", "needs": ["plan"], "gate": "critic"})
    ran = run_stages(tmp_path, cast, *stages, keys=WORKTREE, repo=project.path)
    assert "+by hand" in last_shown(cast, "code")
    assert "plan-output.md" in last_shown(cast, "code")
    assert "+by hand" in (ran.directory / "result.patch").read_text()


def test_a_saved_answer_is_no_change_of_the_repository(tmp_path: Path, project: GitRepository) -> None:
    cast = Cast({"plan": [Text("the plan")], "code": [writing({"code.md": "x\n"})]}, {"code": PASSED})
    stages = ({"name": "plan", "writes": False}, {"name": "code", "needs": ["plan"], "gate": "critic"})
    ran = run_stages(tmp_path, cast, *stages, keys=WORKTREE, repo=project.path)
    assert ran.result()["plan-output.md"] == "the plan\n"
    assert "the plan" not in last_shown(cast, "code")
    assert "the plan" not in (ran.directory / "result.patch").read_text()


@each("workspace", ["directory", "worktree", "checkout"])
def test_a_critic_is_given_the_value_that_is_saved(tmp_path: Path, project: GitRepository, workspace: str) -> None:
    def both(_request: AgentRequest) -> AgentStep:
        return AgentResult(success=True, output="All is well.", agent="scripted", structured={"plan": "delete é"})

    cast = Cast({"plan": [both]}, {"plan": PASSED}, limits=WITHOUT_TOOLS)
    stage = {"name": "plan", "writes": False, "output_schema": {"type": "object"}, "gate": "critic"}
    ran = run_stages(tmp_path, cast, stage, keys={"workspace": workspace}, repo=project.path)
    assert '"plan": "delete é"' in last_shown(cast, "plan")
    assert '"plan": "delete é"' in ran.result()["plan-output.json"]


@each(
    ("workspace", "limits", "is_judged"),
    [
        ("directory", WITHOUT_TOOLS, False),
        ("worktree", WITHOUT_TOOLS, False),
        ("checkout", WITHOUT_TOOLS, False),
        ("checkout", ALL, False),
        ("worktree", ALL, True),
    ],
)
def test_a_long_answer_is_judged_only_by_a_critic_that_can_read_it(
    tmp_path: Path, project: GitRepository, workspace: str, limits: AgentLimits, is_judged: bool
) -> None:
    cast = Cast({"plan": [Text("fine\n" * 30_000)]}, {"plan": PASSED}, limits=limits)
    stage = {"name": "plan", "writes": False, "gate": "critic"}
    ran = run_stages(tmp_path, cast, stage, keys={"workspace": workspace}, repo=project.path)
    if is_judged:
        assert ran.record.state is S.COMPLETED
        return
    assert (ran.record.state, cast.calls) == (S.AWAITING_APPROVAL, ["plan"])
    assert "the answer of attempt 1 is too large for the critic of plan" in ran.record.reason


def linking(folder: Path) -> AgentStep:
    """Make `out.json`, a link over a link in an ignored folder to a file there."""
    (folder / "build" / "deep").mkdir(parents=True)
    (folder / "build" / "deep" / "data.json").write_text("{}")
    (folder / "build" / "step.json").symlink_to("deep/data.json")
    (folder / "short").symlink_to("build")
    (folder / "out.json").symlink_to("short/../short/step.json")
    return Text("done")


def test_the_file_that_a_link_leads_to_is_stored_with_it(tmp_path: Path, project: GitRepository) -> None:
    cast = Cast({"write": [lambda request: linking(request.working_dir)]})
    artifacts = {"required": ["out.json"], "schemas": {"out.json": {"type": "object"}}}
    ran = run_stages(tmp_path, cast, {"name": "write", "artifacts": artifacts}, keys=WORKTREE, repo=project.path)
    assert ran.record.state is S.COMPLETED
    assert ran.result()["out.json"] == "{}"


class Killed(BaseException):
    """The process is gone."""


def killed_before_storing(folder: Path, cast: Cast, monkeypatch: pytest.MonkeyPatch, **stage: Any) -> Ran:
    """Run one stage until its answer is saved and its files are not."""

    async def die(_attempts: Attempts, _action: Action) -> None:
        raise Killed

    file = write_pipeline(folder / "p", {"name": "write", **stage})
    with monkeypatch.context() as patched:
        patched.setattr(Attempts, "store", die)
        with pytest.raises(Killed):
            asyncio.run(Pipeline.load(file).run(options=options(cast, folder / "state"), run_id="r"))
    return Ran(open_run_store(folder / "state").load("r"), folder / "state")


def dangling(file: Path) -> None:
    file.unlink()
    file.symlink_to(file.name)


@each("damage", [lambda file: file.write_text("not json"), Path.unlink, dangling])
def test_an_artifact_is_checked_again_when_it_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], object]
) -> None:
    cast = Cast({"write": [writing({"data.json": '{"n": 1}'})]})
    artifacts = {"required": ["data.json"], "schemas": {"data.json": {"type": "object", "required": ["n"]}}}
    ran = killed_before_storing(tmp_path, cast, monkeypatch, artifacts=artifacts)
    file = ran.directory / "stages/write/work/data.json"
    damage(file)
    again = resume(ran, cast)
    assert again.record.state is S.AWAITING_APPROVAL
    assert "data.json" in again.record.reason
    file.unlink(missing_ok=True)
    file.write_text('{"n": 2}')
    again.say("write", Decision.RETRY)
    mended = resume(again, cast)
    assert (mended.record.state, mended.result(), cast.calls) == (S.COMPLETED, {"data.json": '{"n": 2}'}, ["write"])
