"""The example pipelines run, with a scripted agent and with the real claude program."""

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest

from codeloupe import AgentRequest
from codeloupe.config.schema import Settings
from codeloupe.model.pipeline import CriticVerdict, GateKind, RunRecord, StageRecord, StageState
from codeloupe.pipelines.run import Pipeline, RunOptions, open_run_store
from codeloupe.testing import AgentStep, Json, ScriptedAgent, StandInServer, Text
from tests.agent_factories import assert_nothing_runs_in
from tests.agent_programs import find
from tests.engine_standin import KEY, environment
from tests.example_answers import ANSWERS, ARTICLE, FAILS_THE_REVIEW, INPUTS, PASSES, REPOSITORY
from tests.pipeline_files_model import EXAMPLES, ExampleModel
from tests.repository import GitRepository

FINDING = {
    "file": "shop/prices.py",
    "line": 12,
    "quote": '    return Decimal(format(eval(text.replace(",", ".")), ".2f"))',
    "title": "A price from a form is run as code",
    "body": "eval() runs what a customer types.",
    "category": "security",
    "severity": "high",
}
FINAL_FILES = {
    "article": {"article.md", "claims.json", "notes.md"},
    "change": {"CHANGELOG.md", "shop/prices.py", "tests/test_reading.py"},
    "assessment": {"assessment.md", "risks-output.json", "tests-output.json"},
}


def verdicts(run: RunRecord, stage: str) -> list[list[tuple[GateKind, CriticVerdict]]]:
    return [[(word.gate, word.verdict) for word in attempt.critiques] for attempt in run.stage(stage).attempts]


def assert_ended_well(example: str, run: RunRecord, state: Path) -> Path:
    """Everything is completed, and the result holds the repository with what the stages made; where it lies."""
    assert run.state is StageState.COMPLETED, [(stage.name, stage.reason) for stage in run.stages]
    assert {stage.state for stage in run.stages} == {StageState.COMPLETED}
    result = open_run_store(state).directory(run.run_id) / "result"
    found = {str(file.relative_to(result)) for file in result.rglob("*") if file.is_file() and ".git" not in file.parts}
    assert found == (set() if example == "article" else set(REPOSITORY)) | FINAL_FILES[example]
    return result


def assert_example(example: str, run: RunRecord, state: Path) -> None:
    result = assert_ended_well(example, run, state)
    passed, rework = CriticVerdict.PASS, CriticVerdict.REWORK
    match example:
        case "article":
            assert verdicts(run, "write") == [[(GateKind.CRITIC, rework)], [(GateKind.CRITIC, passed)]]
            assert (result / "article.md").read_text() == ARTICLE
        case "change":
            assert verdicts(run, "implement") == [
                [(GateKind.COMMAND, rework)],
                [(GateKind.COMMAND, passed), (GateKind.REVIEW, rework)],
                [(GateKind.COMMAND, passed), (GateKind.REVIEW, passed)],
            ]
            assert (result / "shop/prices.py").read_text() == PASSES
        case _:
            assert json.loads((result / "tests-output.json").read_text()) == ANSWERS[example]["tests"][0].value
            assert verdicts(run, "plan") == [[(GateKind.CRITIC, passed)]]


def scripted(example: str) -> ScriptedAgent:
    """An agent that gives the made-up answers of an example, and writes its files."""
    asked: Counter[str] = Counter()

    def answer(request: AgentRequest) -> AgentStep:
        stage = request.labels["stage"]
        role = f"critic of {stage}" if "gate" in request.labels else stage
        answers = ANSWERS[example][role]
        chosen = answers[min(asked[role], len(answers) - 1)]
        asked[role] += 1
        for name, text in chosen.files.items():
            file = request.working_dir / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        return Text(chosen.text) if chosen.value is None else Json(chosen.value)

    return ScriptedAgent([answer])


@pytest.fixture
def shop(repository: GitRepository) -> GitRepository:
    repository.commit_files(REPOSITORY)
    return repository


@pytest.mark.parametrize("example", list(ANSWERS))
def test_the_example_runs_with_made_up_answers_at_no_cost(example: str, shop: GitRepository, tmp_path: Path) -> None:
    state = tmp_path / "state"
    options = RunOptions(
        repo=shop.path,
        settings=Settings(reviewer_type="offline"),
        agents={"scripted": scripted(example)},
        agent="scripted",
        state_directory=state,
    )
    pipeline = Pipeline.load(EXAMPLES / example)
    preview = asyncio.run(pipeline.preview(INPUTS[example], options=options))
    assert not state.exists()
    assert (preview.can_start, {stage.agent for stage in preview.stages}) == (True, {"scripted"})
    run = asyncio.run(pipeline.run(INPUTS[example], options=options))
    assert_example(example, run, state)
    assert run.usage.cost_usd == 0
    assert preview.calls.least <= run.usage.requests <= preview.calls.most
    # The files that a stage leaves are known before the run if it requires them.
    for stage in preview.stages if example != "change" else preview.stages[:1]:
        prompt = open_run_store(state).directory(run.run_id) / f"stages/{stage.definition.name}/attempt-1/prompt.md"
        assert prompt.read_text().replace(run.run_id, "RUN") == stage.prompt
    assert {attempt.agent for stage in run.stages for attempt in stage.attempts} == {"scripted"}


def run_with_claude(
    example: str, shop: GitRepository, state: Path, server: StandInServer, monkeypatch: pytest.MonkeyPatch
) -> RunRecord:
    for name, value in environment(server).items():
        monkeypatch.setenv(name, value)
    settings = Settings(claude_path=str(find("claude")), reviewer_type="claude_cli", verify=False)
    options = RunOptions(repo=shop.path, agent="claude_cli", settings=settings, state_directory=state)
    pipeline = Pipeline.load(EXAMPLES / example / "pipeline.yaml")
    return asyncio.run(pipeline.run(INPUTS[example], options=options))


def overlap(one: StageRecord, other: StageRecord) -> bool:
    """Whether two stages ran at the same time."""
    began = [stage.started_at for stage in (one, other) if stage.started_at]
    ended = [stage.ended_at for stage in (one, other) if stage.ended_at]
    assert len(began) == len(ended) == 2
    return max(began) < min(ended)


@pytest.mark.parametrize(
    "example", [*(pytest.param(name, marks=pytest.mark.soak) for name in ("article", "assessment")), "change"]
)
def test_the_example_runs_with_the_real_claude_program(
    example: str, shop: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = shop.git("status", "--porcelain", "--untracked-files=all", "--ignored"), shop.head()
    model = ExampleModel(example, reviews=[FINDING])
    state = tmp_path / "state"
    with StandInServer(reply=model) as server:
        run = run_with_claude(example, shop, state, server, monkeypatch)
    assert_example(example, run, state)
    expected = {role: len(answers) for role, answers in ANSWERS[example].items()}
    assert model.asked == {**expected, **({"review": 2} if example == "change" else {})}
    assert {attempt.agent for stage in run.stages for attempt in stage.attempts} == {"claude_cli"}
    if example == "assessment":
        assert overlap(run.stage("risks"), run.stage("tests"))
        assert not overlap(run.stage("tests"), run.stage("plan"))
    assert (shop.git("status", "--porcelain", "--untracked-files=all", "--ignored"), shop.head()) == before
    assert_nothing_runs_in(state)
    assert [file for file in state.rglob("*") if file.is_file() and KEY.encode() in file.read_bytes()] == []


def test_the_faulty_attempt_of_the_change_has_the_line_that_the_review_quotes() -> None:
    assert str(FINDING["quote"]) in FAILS_THE_REVIEW.splitlines()
