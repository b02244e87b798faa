"""A pipeline's file as a user writes it, and the definition that comes out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe.errors import UsageError
from codeloupe.model.pipeline import (
    ArtifactRule,
    GateDefinition,
    GateKind,
    InputDefinition,
    OnFailure,
    PipelineDefinition,
    StageDefinition,
    WorkspaceKind,
)
from codeloupe.pipelines.definition import input_values
from tests.pipeline_files import MINIMAL, load, stage_text, write_pipeline
from tests.rows import each

WHOLE = """\
name: whole
description: Every key once.
inputs:
  topic: {description: what to write about}
  audience: {default: developers}
  tone:
workspace: worktree
max_parallel: 2
max_budget_usd: 12.5
defaults:
  agent_definition: agent.md
  agent: codex
  timeout: 1h
  budget: 1
  gate: {max_attempts: 2, min_score: 55, timeout: 30s, agent: gemini, model: small}
stages:
  - name: first
    step: step.md
    agent: claude_cli
    model: sonnet
    writes: false
    tools: [Read, Grep]
    inputs: [topic, tone]
    output_schema: {type: object, properties: {a: {type: string}}}
    timeout: 90s
    budget: 0.5
    max_turns: 20
    retries: 0
    gate: critic
    on_failure: continue
  - name: second
    step: step.md
    needs: first
    artifacts:
      patterns: ["*.md", "*.csv"]
      recursive: true
      required: report.md
      schemas:
        facts.json: {type: array}
        other.json: schema.json
    gates:
      - command: python -m unittest "a b"
      - {kind: command, command: [make, test], timeout: 1800}
      - {kind: review, fail_on: medium, experts: [security], max_attempts: 4}
      - {kind: critic, step: critic.md, agent: api, model: large, min_score: 80}
      - {kind: approval, prompt: Good enough?, timeout: 2h}
"""


def bare(stage: StageDefinition) -> StageDefinition:
    """A stage without the digests of what it was made of."""
    return replace(stage, parts={}, gates=tuple(replace(gate, digest="") for gate in stage.gates))


def test_every_key_reaches_its_field(tmp_path: Path) -> None:
    loaded = load(tmp_path, WHOLE, critic__md="Be strict.", schema__json='{"type": "object"}')
    common: dict[str, Any] = {"timeout_seconds": 30.0, "max_attempts": 2}
    first = StageDefinition(
        name="first",
        step=tmp_path / "step.md",
        agent_definition=tmp_path / "agent.md",
        agent="claude_cli",
        model="sonnet",
        writes=False,
        tools=("Read", "Grep"),
        inputs=("topic", "tone"),
        output_schema={"type": "object", "properties": {"a": {"type": "string"}}},
        timeout_seconds=90.0,
        max_budget_usd=0.5,
        max_turns=20,
        retries=0,
        gates=(GateDefinition(kind=GateKind.CRITIC, agent="gemini", model="small", min_score=55, **common),),
        on_failure=OnFailure.CONTINUE,
    )
    second = StageDefinition(
        name="second",
        step=tmp_path / "step.md",
        agent_definition=tmp_path / "agent.md",
        agent="codex",
        needs=("first",),
        artifacts=ArtifactRule(
            patterns=("*.md", "*.csv"),
            recursive=True,
            required=("report.md",),
            schemas={"facts.json": {"type": "array"}, "other.json": {"type": "object"}},
        ),
        timeout_seconds=3600.0,
        max_budget_usd=1.0,
        gates=(
            GateDefinition(kind=GateKind.COMMAND, command=("python", "-m", "unittest", "a b"), **common),
            GateDefinition(kind=GateKind.COMMAND, command=("make", "test"), timeout_seconds=1800.0, max_attempts=2),
            GateDefinition(
                kind=GateKind.REVIEW,
                fail_on="medium",
                experts=("security",),
                timeout_seconds=30.0,
                max_attempts=4,
                min_score=55,
            ),
            GateDefinition(
                kind=GateKind.CRITIC, step=tmp_path / "critic.md", agent="api", model="large", min_score=80, **common
            ),
            GateDefinition(kind=GateKind.APPROVAL, prompt="Good enough?", timeout_seconds=7200.0),
        ),
    )
    assert replace(loaded, stages=tuple(map(bare, loaded.stages))) == PipelineDefinition(
        name="whole",
        description="Every key once.",
        file=tmp_path / "pipeline.yaml",
        inputs=(
            InputDefinition(name="topic", description="what to write about"),
            InputDefinition(name="audience", default="developers"),
            InputDefinition(name="tone"),
        ),
        workspace=WorkspaceKind.WORKTREE,
        max_parallel=2,
        max_budget_usd=12.5,
        stages=(first, second),
        digest=loaded.digest,
    )


def test_a_file_of_four_lines_has_the_defaults_of_the_definition(tmp_path: Path) -> None:
    loaded = load(tmp_path)
    assert tuple(map(bare, loaded.stages)) == (StageDefinition(name="only", step=tmp_path / "step.md"),)
    assert (loaded.workspace, loaded.inputs, loaded.max_budget_usd) == (WorkspaceKind.DIRECTORY, (), None)


@each("word", ["critic", "review", "approval"])
def test_a_gate_can_be_a_bare_word(tmp_path: Path, word: str) -> None:
    for text in (f"gate: {word}", f"gates: [{word}]", f"gate: {{kind: {word}}}"):
        gates = bare(load(tmp_path, stage_text(text)).stages[0]).gates
        assert gates == (GateDefinition(kind=GateKind(word)),)


def test_defaults_reach_only_the_gates_that_know_them(tmp_path: Path) -> None:
    text = (
        MINIMAL + "    gates: [approval, {command: x}]\ndefaults: {gate: {min_score: 90, model: m, max_attempts: 9}}\n"
    )
    approval, command = bare(load(tmp_path, text).stages[0]).gates
    assert approval == GateDefinition(kind=GateKind.APPROVAL)
    assert command == GateDefinition(kind=GateKind.COMMAND, command=("x",), max_attempts=9)


def test_artifacts_of_a_stage_take_the_place_of_those_of_the_defaults(tmp_path: Path) -> None:
    text = "name: a\ndefaults: {artifacts: {patterns: '*', recursive: true}}\nstages:\n"
    text += "  - {name: one, step: step.md}\n  - {name: two, step: step.md, artifacts: {required: a.md}}\n"
    one, two = load(tmp_path, text).stages
    assert one.artifacts == ArtifactRule(patterns=("*",), recursive=True)
    assert two.artifacts == ArtifactRule(required=("a.md",))


@each(
    ("written", "seconds"),
    [
        ("90s", 90.0),
        ("30m", 1800.0),
        ("2h", 7200.0),
        ("1h30m", 5400.0),
        ("1800", 1800.0),
        ("0.5", 0.5),
        ("720h", 2.592e6),
    ],
)
def test_durations_are_written_as_people_say_them(tmp_path: Path, written: str, seconds: float) -> None:
    assert load(tmp_path, stage_text(f"timeout: {written}")).stages[0].timeout_seconds == seconds


def test_a_file_may_lie_above_the_pipelines_folder_or_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "shared.md").write_text("Shared.")
    folder = tmp_path / "pipelines"
    folder.mkdir()
    (folder / "link.md").symlink_to(tmp_path / "shared.md")
    text = "name: a\nstages:\n  - {name: up, step: ../shared.md}\n  - {name: linked, step: link.md}\n"
    steps = [stage.step.read_text() for stage in load(folder, text).stages]
    assert steps == ["Shared.", "Shared."]


def test_the_digest_changes_with_every_file_that_is_named_and_with_nothing_else(tmp_path: Path) -> None:
    text = stage_text(
        "agent_definition: agent.md", "output_schema: schema.json", "gate: {kind: critic, step: critic.md}"
    )
    files = {"critic__md": "Be strict.", "schema__json": "{}"}
    first = load(tmp_path, text, **files).digest
    assert load(tmp_path, text, **files, unrelated__md="x").digest == first
    changes = {"step__md": "x", "agent__md": "x", "critic__md": "x", "schema__json": '{"type": "array"}'}
    others = [load(tmp_path, text, **{**files, name: content}).digest for name, content in changes.items()]
    assert len({first, *others, load(tmp_path, f"{text}# more\n", **files).digest}) == 6
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert load(elsewhere, text, **files).digest == first


def test_a_schema_may_be_in_a_file_of_json_with_tabs_or_of_yaml(tmp_path: Path) -> None:
    for name, text in (("a.json", '{\n\t"type": "array"\n}'), ("a.yaml", "type: array\n"), ("a.YML", "type: array\n")):
        (tmp_path / name).write_text(text)
        assert load(tmp_path, stage_text(f"output_schema: {name}")).stages[0].output_schema == {"type": "array"}


class TestInputValues:
    DEFINITION = PipelineDefinition(
        name="article",
        file=Path("pipeline.yaml"),
        stages=(),
        inputs=(
            InputDefinition(name="topic"),
            InputDefinition(name="audience", default="developers"),
            InputDefinition(name="tone", default=""),
        ),
    )

    @each(
        ("given", "word"),
        [
            ({}, "missing"),
            ({"topic": ""}, "empty"),
            ({"topic": " \n"}, "empty"),
        ],
    )
    def test_an_input_without_a_default_has_to_be_given(self, given: dict[str, str], word: str) -> None:
        with pytest.raises(UsageError) as caught:
            input_values(self.DEFINITION, given)
        assert caught.value.message == f"article: the input topic is {word}"
        assert caught.value.hint == 'give inputs={"topic": VALUE}'

    def test_an_unknown_input_is_told_with_the_one_that_is_meant(self) -> None:
        with pytest.raises(UsageError) as caught:
            input_values(self.DEFINITION, {"topic": "tides", "audiense": "all"})
        assert caught.value.message == "article: there is no input audiense"
        assert caught.value.hint == "did you mean `audience`?"

    def test_all_that_is_wrong_is_told_at_once(self) -> None:
        with pytest.raises(UsageError, match="no input a\\W.*no input '\\\\x1b'.*topic is missing") as caught:
            input_values(self.DEFINITION, {"a": "1", "\x1b": "2"})
        assert "\x1b" not in caught.value.message


def test_reading_a_pipeline_without_a_schema_loads_no_validator(tmp_path: Path) -> None:
    write_pipeline(tmp_path)
    program = (
        "import sys; from pathlib import Path; from codeloupe.pipelines.definition import load_pipeline\n"
        "assert 'yaml' not in sys.modules\n"
        "load_pipeline(Path('pipeline.yaml'))\n"
        "assert 'jsonschema' not in sys.modules and 'yaml' in sys.modules\n"
    )
    subprocess.run((sys.executable, "-c", program), cwd=tmp_path, check=True)
