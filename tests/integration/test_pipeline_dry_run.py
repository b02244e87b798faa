"""`codeloupe pipeline run --dry-run` with the real program: what a run would do, and nothing done."""

from pathlib import Path

import jsonschema
import pytest

from codeloupe.reports.pipeline_preview import preview_schema
from codeloupe.testing import StandInServer, Text
from tests.engine_pipelines import write_pipeline
from tests.engine_standin import environment
from tests.example_answers import INPUTS
from tests.pipeline_files_model import EXAMPLES
from tests.program import Ended
from tests.repository import GitRepository
from tests.warm_program import codeloupe

ORDER = {
    "article": [["research"], ["write"]],
    "change": [["implement"], ["document"]],
    "assessment": [["risks", "tests"], ["plan"]],
}
CALLS = {
    "article": {"least": 3, "most": 7},
    "change": {"least": 2, "most": 7},
    "assessment": {"least": 4, "most": 6},
}


def dry_run(folder: Path, *words: str, **variables: str) -> Ended:
    no_agents = dict.fromkeys(("CODELOUPE_CODEX_PATH", "CODELOUPE_GEMINI_PATH"), "/no/program")
    return codeloupe("pipeline", "run", *words, "--dry-run", cwd=folder, environment={**no_agents, **variables})


def everything_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.fixture
def shop(repository: GitRepository) -> GitRepository:
    repository.commit_files({"a.txt": "a\n"})
    return repository


@pytest.mark.defect("E4")
@pytest.mark.parametrize("example", list(ORDER))
def test_a_dry_run_of_an_example_needs_no_agent_and_leaves_nothing(
    example: str, shop: GitRepository, home: Path
) -> None:
    inputs = [word for name, value in INPUTS[example].items() for word in ("--input", f"{name}={value}")]
    before = everything_below(shop.path)
    ended = dry_run(shop.path, str(EXAMPLES / example), *inputs, "--json")
    assert ended.exit_code == 0, ended.stderr
    preview = ended.json()
    jsonschema.validate(preview, preview_schema())
    assert (preview["pipeline"], preview["steps"], preview["calls"]) == (example, ORDER[example], CALLS[example])
    assert preview["can_start"] is False
    assert [stage["agent"] for stage in preview["stages"]] == [None] * len(preview["stages"])
    for stage in preview["stages"]:
        assert stage["prompt_tokens"] > 100
        assert all(value in stage["prompt"] for value in INPUTS[example].values())
    text = dry_run(shop.path, str(EXAMPLES / example), *inputs)
    assert (text.exit_code, text.stderr) == (0, "")
    assert text.stdout.startswith(f"{example}  dry run: no agent was asked, no command ran, nothing was stored\n")
    assert "The run cannot start yet: `codeloupe doctor`" in text.stdout
    assert everything_below(shop.path) == before
    assert [path for path in home.rglob("*") if path.is_file()] == []
    listed = codeloupe("pipeline", "list", cwd=shop.path)
    assert listed.stdout.startswith("No pipeline has been run yet")


@pytest.mark.defect("E4")
def test_a_dry_run_asks_no_agent_and_runs_no_command(tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    gates = [
        {"command": ["touch", str(touched)]},
        {"kind": "critic", "max_attempts": 2, "min_score": 70},
        {"kind": "review", "fail_on": "medium"},
        {"kind": "approval", "prompt": "May it be published?", "timeout": "1h"},
    ]
    plain = {"name": "read", "agent": "claude_cli", "writes": False, "on_failure": "continue"}
    judged = {
        "name": "write",
        "agent": "claude_cli",
        "model": "sonnet",
        "needs": "read",
        "tools": ["Read"],
        "artifacts": {"required": "out.md"},
        "timeout": "10m",
        "max_turns": 9,
        "retries": 0,
        "budget": 1.5,
        "gates": gates,
    }
    write_pipeline(tmp_path / "p", plain, judged, max_budget_usd=3)
    with StandInServer(reply=lambda _: Text("Done.")) as server:
        ended = dry_run(tmp_path, "p", **environment(server))
        assert server.requests == ()
    assert ended.exit_code == 0, ended.stderr
    assert not touched.exists()
    shown = " ".join(ended.stdout.split())
    for fact in (
        "Limits $3.00 for the run",
        "Order read → write",
        "Calls 3 to 7 agent calls, not counting retries; 1 to 3 reviews",
        "1. read agent claude_cli, may only read files prompt about ",
        "leaves its answer as read-output.md",
        "failure the run continues without this stage and the stages that need it",
        "2. write after read agent claude_cli (sonnet), may read and write files, with the tools Read",
        "reads read-output.md leaves out.md (required), files that match *.md",
        "limits 10 min per call, 0 retries, 9 turns, $1.50 in all, 3 attempts",
        f"gate 1 command touch {touched}: at most 3 attempts, 10 min",
        "gate 2 critic by claude_cli (sonnet): at most 2 attempts, 10 min; accepted with a score of 70 or more",
        "that fails on medium: at most 3 attempts, 10 min",
        "gate 4 approval by a person, waits 60 min: May it be published?",
        "The run can start: remove --dry-run.",
    ):
        assert fact in shown


@pytest.mark.defect("E4")
def test_a_dry_run_refuses_what_a_run_refuses(tmp_path: Path) -> None:
    write_pipeline(tmp_path / "p", {"name": "write"}, inputs={"topic": {"description": "What it is about."}})
    write_pipeline(tmp_path / "w", {"name": "write"}, workspace="worktree")
    for words, complaint in [
        (("p",), "tested: the input topic is missing (What it is about.)\n  hint: give --input topic=VALUE"),
        (("p", "--input", "topic=x", "--agent", "nobody"), "unknown agent 'nobody'"),
        (("p", "--input", "topic=x", "--on-workers"), "--dry-run and --on-workers exclude each other"),
        (("w",), "the pipeline tested has `workspace: worktree`, and . is not inside a git repository"),
    ]:
        ended = dry_run(tmp_path, *words)
        assert (ended.exit_code, ended.stdout) == (2, "")
        assert complaint in ended.stderr


@pytest.mark.defect("E4")
def test_a_dry_run_names_programs_that_are_missing(tmp_path: Path) -> None:
    gates = [{"command": "no-such-program --check"}, {"command": ["./made-by-the-agent"]}]
    write_pipeline(tmp_path / "p", {"name": "write", "gates": gates})
    problems = dry_run(tmp_path, "p", "--json").json()["problems"]
    assert problems[-1] == "there is no program no-such-program, for the command gate of write"
    assert not any("made-by-the-agent" in problem for problem in problems)


@pytest.mark.defect("E4")
@pytest.mark.parametrize(
    ("workspace", "order"), [("worktree", "Order one and two\n"), ("checkout", "Order one, two\n")]
)
def test_a_dry_run_says_which_stages_run_at_the_same_time(shop: GitRepository, workspace: str, order: str) -> None:
    file = write_pipeline(shop.path / "p", {"name": "one"}, {"name": "two"}, workspace=workspace)
    shown = "\n".join(" ".join(line.split()) for line in dry_run(shop.path, str(file)).stdout.splitlines())
    assert order in shown
    assert ("1. one at the same time as two\n" in shown) is (workspace == "worktree")


@pytest.mark.defect("E4")
def test_a_dry_run_shows_prompts_without_secrets(tmp_path: Path) -> None:
    inputs = {"password": {"secret": True}, "topic": {"default": "otters"}}
    write_pipeline(tmp_path / "p", {"name": "write"}, inputs=inputs)
    for words in (("-v",), ("--json",)):
        ended = dry_run(tmp_path, "p", "--input", "password=hunter2-hunter2", *words)
        assert "hunter2" not in ended.stdout + ended.stderr
        assert "password: [redacted]" in ended.stdout
        assert "topic: otters" in ended.stdout
        assert "All paths here are relative to it." in ended.stdout
