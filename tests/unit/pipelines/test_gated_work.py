"""A gate is shown the work that is used, whole, or does not decide. What is stored is what was checked."""

from pathlib import Path

import pytest

from codeloupe.model.agent import AgentLimits, AgentRequest, AgentResult
from codeloupe.model.pipeline import StageState as S
from codeloupe.testing import Text
from codeloupe.testing.agent import AgentStep
from tests.engine_pipelines import ALL, Cast, critique, run_stages, writing
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
    steps = [Text("an answer"), writing({"write-output.md": "by hand\n", "other.md": "x\n"})]
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
