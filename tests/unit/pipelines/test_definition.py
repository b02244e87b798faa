"""A pipeline's file as a user writes it: the definition that comes out, what is wrong with its line, and the schema."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from msgspec import Struct
from msgspec.structs import asdict, fields, replace

from codeloupe.errors import ConfigError, UsageError
from codeloupe.model.pipeline import (
    ArtifactRule,
    GateDefinition,
    GateKind,
    InputDefinition,
    PipelineDefinition,
    StageDefinition,
    WorkspaceKind,
)
from codeloupe.pipelines.definition import (
    FILE_NAMES,
    find_pipeline_file,
    input_values,
    load_pipeline,
    pipeline_schema,
)
from tests.pipeline_files import MINIMAL, load, refusal, stage_text, write_pipeline
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
    """A stage without the texts and the digests of what it was made of."""
    gates = tuple(replace(gate, step_text="", digest="") for gate in stage.gates)
    return replace(stage, parts={}, step_text="", agent_definition_text="", gates=gates)


# The same as it is defined, without what has its default.
DEFINED = """\
{name: whole, description: Every key once., file: pipeline.yaml, workspace: worktree, max_parallel: 2,
 max_budget_usd: 12.5, inputs: [{name: topic, description: what to write about}, {name: audience, default: developers},
 {name: tone}], stages: [
  {name: first, step: step.md, agent_definition: agent.md, agent: claude_cli, model: sonnet, writes: false,
   tools: [Read, Grep], inputs: [topic, tone], output_schema: {type: object, properties: {a: {type: string}}},
   timeout_seconds: 90.0, max_budget_usd: 0.5, max_turns: 20, retries: 0, on_failure: continue,
   gates: [{kind: critic, agent: gemini, model: small, min_score: 55, timeout_seconds: 30.0, max_attempts: 2}]},
  {name: second, step: step.md, agent_definition: agent.md, agent: codex, needs: [first], timeout_seconds: 3600.0,
   max_budget_usd: 1.0, artifacts: {patterns: ["*.md", "*.csv"], recursive: true, required: [report.md],
     schemas: {facts.json: {type: array}, other.json: {type: object}}},
   gates: [
     {kind: command, command: [python, -m, unittest, a b], timeout_seconds: 30.0, max_attempts: 2},
     {kind: command, command: [make, test], timeout_seconds: 1800.0, max_attempts: 2},
     {kind: review, fail_on: medium, experts: [security], timeout_seconds: 30.0, max_attempts: 4},
     {kind: critic, step: critic.md, agent: api, model: large, min_score: 80, timeout_seconds: 30.0, max_attempts: 2},
     {kind: approval, prompt: "Good enough?", timeout_seconds: 7200.0}]}]}
"""


# No key of the file, but made of it.
_MADE = ("parts", "file", "digest", "texts", "step_text", "agent_definition_text")


def defined(value: Any) -> Any:
    """A definition without defaults and digests, and files by their names."""
    if isinstance(value, Struct):
        usual = {one.name: one.default for one in fields(value)}
        given = {name: each for name, each in asdict(value).items() if each not in (usual[name], (), {})}
        return {name: defined(each) for name, each in given.items() if name == "file" or name not in _MADE}
    if isinstance(value, tuple):
        return [defined(each) for each in value]
    return value.name if isinstance(value, Path) else value


def test_every_key_reaches_its_field(tmp_path: Path) -> None:
    loaded = load(tmp_path, WHOLE, critic__md="Be strict.", schema__json='{"type": "object"}')
    assert defined(loaded) == yaml.safe_load(DEFINED)
    assert loaded.stages[1].gates[3].step == tmp_path / "critic.md"
    assert loaded.stages[1].gates[3].step_text == "Be strict."
    assert (loaded.stages[0].step_text, loaded.stages[0].agent_definition_text) == ("Do it.\n", "You are careful.\n")


def test_a_file_of_four_lines_has_the_defaults_of_the_definition(tmp_path: Path) -> None:
    loaded = load(tmp_path)
    assert tuple(map(bare, loaded.stages)) == (StageDefinition(name="only", step=tmp_path / "step.md"),)
    assert (loaded.workspace, loaded.inputs, loaded.max_budget_usd) == (WorkspaceKind.DIRECTORY, (), None)


@each("word", ["critic", "review", "approval"])
def test_a_gate_can_be_a_bare_word(tmp_path: Path, word: str) -> None:
    for text in (f"gate: {word}", f"gates: [{word}]", f"gate: {{kind: {word}}}"):
        assert bare(load(tmp_path, stage_text(text)).stages[0]).gates == (GateDefinition(kind=GateKind(word)),)


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


DURATIONS = {"90s": 90, "30m": 1800, "2h": 7200, "1h30m": 5400, "1800": 1800, "0.5": 0.5, "720h": 2_592_000}


@each(("written", "seconds"), DURATIONS.items())
def test_durations_are_written_as_people_say_them(tmp_path: Path, written: str, seconds: float) -> None:
    assert load(tmp_path, stage_text(f"timeout: {written}")).stages[0].timeout_seconds == seconds


def test_a_file_may_lie_above_the_pipelines_folder_or_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "shared.md").write_text("Shared.")
    folder = tmp_path / "pipelines"
    folder.mkdir()
    (folder / "link.md").symlink_to(tmp_path / "shared.md")
    text = "name: a\nstages:\n  - {name: up, step: ../shared.md}\n  - {name: linked, step: link.md}\n"
    assert [stage.step.read_text() for stage in load(folder, text).stages] == ["Shared.", "Shared."]


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


INPUTS = PipelineDefinition(
    name="article",
    file=Path("pipeline.yaml"),
    stages=(),
    inputs=(InputDefinition(name="topic"), InputDefinition(name="audience", default="developers")),
)


@each(
    ("given", "message", "hint"),
    [
        ({}, "the input topic is missing", 'give inputs={"topic": VALUE}'),
        ({"topic": " \n"}, "the input topic is empty", 'give inputs={"topic": VALUE}'),
        ({"topic": "tides", "audiense": "all"}, "unknown input audiense", "did you mean `audience`?"),
        ({"\x1b": "2"}, "unknown input '\\x1b'; the input topic is missing", 'give inputs={"topic": VALUE}'),
    ],
)
def test_inputs_that_are_missing_or_unknown_are_named_at_once(given: dict[str, str], message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        input_values(INPUTS, given)
    assert (caught.value.message, caught.value.hint) == (f"article: {message}", hint)
    assert input_values(INPUTS, {"topic": "tides"}) == {"topic": "tides", "audience": "developers"}


def test_reading_a_pipeline_without_a_schema_loads_no_validator(tmp_path: Path) -> None:
    write_pipeline(tmp_path)
    program = (
        "import sys; from pathlib import Path; from codeloupe.pipelines.definition import load_pipeline\n"
        "assert 'yaml' not in sys.modules\n"
        "load_pipeline(Path('pipeline.yaml'))\n"
        "assert 'jsonschema' not in sys.modules and 'yaml' in sys.modules\n"
    )
    subprocess.run((sys.executable, "-c", program), cwd=tmp_path, check=True)


# Lines of the one stage, from line 5 on, and what is said about them.
WRONG_STAGES = [
    ("modle: x", "stage only: modle: unknown key", "did you mean `model`?"),
    ("max_budget_usd: 1", "stage only: max_budget_usd: unknown key", "did you mean `budget`?"),
    (
        "agent: claude",
        "agent: expected agent_sdk, claude_cli, codex, gemini or api, found 'claude'",
        "claude_cli",
    ),
    ("model: 4.1", "model: expected a string, found '4.1'", "put it in quotes"),
    ("writes: 1", "writes: expected true or false, found '1'", ""),
    ("timeout: 10 minutes", "timeout: expected a duration such as 90s, 30m", ""),
    ("timeout: 0", "timeout: expected a duration", ""),
    ("timeout: 721h", "timeout: expected a duration", ""),
    ("timeout: h", "timeout: expected a duration", ""),
    ("timeout: ''", "timeout: expected a duration", ""),
    ("budget: -1", "budget: expected an amount in dollars above 0", ""),
    ("budget: .inf", "budget: expected an amount in dollars above 0", ""),
    ("retries: 11", "retries: expected a whole number from 0 to 10, found '11'", ""),
    ("max_turns: true", "max_turns: expected a whole number", ""),
    ("needs: reserch", "needs: unknown stage 'reserch'", "use a stage of this file"),
    ("needs: [onyl]", "needs: entry 1: unknown stage 'onyl'", "did you mean `only`?"),
    ("needs: only", "needs: a stage cannot need itself", ""),
    ("inputs: topic", "inputs: the pipeline has no input 'topic'", "add it to the pipeline's `inputs`"),
    ("on_failure: stop", "on_failure: expected escalate, fail or continue, found 'stop'", ""),
    ("agent_definition: none.md", "agent_definition: none.md: no such file", "relative to the pipeline's folder"),
    ("agent_definition: ''", "agent_definition: expected the path of a file", ""),
    ("agent_definition: .", "agent_definition: .: expected a file, found a folder", ""),
    ("agent_definition: empty.md", "agent_definition: empty.md: the file is empty", ""),
    ("agent_definition: /dev/null", "agent_definition: /dev/null: not a regular file", ""),
    ("artifacts: ['*.md']", "artifacts: expected a group with patterns", ""),
    ("artifacts: {patterns: []}", "artifacts.patterns: expected a list of at least one pattern", ""),
    ("artifacts: {required: ../x}", "artifacts.required: invalid pattern", ""),
    ("artifacts: {pattern: x}", "artifacts.pattern: unknown key", "did you mean `patterns`?"),
    ("agent_definition: binary.md", "agent_definition: binary.md: not a text file: it contains a NUL byte", ""),
    (
        "artifacts: {required: [only-output.md, report.md]}",
        "artifacts.required: entry 2: a stage that does not write produces only only-output.md, not 'report.md'",
        "let the stage write",
    ),
    ("gate: critc", "gate: expected critic, review or approval, or a group", "did you mean `critic`?"),
    ("gate: command", "gate: expected critic, review or approval, or a group such as {command: pytest -q}", ""),
    ("gate: 3", "gate: expected critic, review or approval, or a group", ""),
    ("gate: {min_score: 3}", "gate: `kind` is missing: critic, review, command or approval", ""),
    ("gate: {kind: reveiw}", "gate.kind: expected critic, review, command or approval", "did you mean `review`?"),
    ("gate: {kind: [critic]}", "gate.kind: expected critic, review, command or approval", ""),
    ("gate: {kind: approval, min_score: 3}", "gate.min_score: unknown key", "the keys are kind, prompt or timeout"),
    ("gate: {kind: review, min_score: 3}", "gate.min_score: unknown key", "the keys are kind, fail_on, experts"),
    ("gate: {kind: review, command: x}", "gate.command: unknown key", "the keys are kind, fail_on, experts"),
    ("gate: {kind: command}", "gate: `command` is missing", ""),
    ("gate: {kind: critic, max_atempts: 3}", "gate.max_atempts: unknown key", "did you mean `max_attempts`?"),
    ("gate: {kind: critic, min_score: 101}", "gate.min_score: expected a whole number from 0 to 100", ""),
    ("gate: {kind: critic, max_attempts: 0}", "gate.max_attempts: expected a whole number from 1 to 20", ""),
    ("gate: {kind: critic, step: none.md}", "gate.step: none.md: no such file", ""),
    ("gate: {kind: review, fail_on: P1}", "gate.fail_on: expected critical, high, medium or low, found 'P1'", ""),
    ("gate: {command: ''}", "gate.command: expected", ""),
    ("gate: {command: '  '}", "gate.command: expected a program and its arguments", ""),
    ("gate: {command: ['']}", "gate.command: entry 1: expected a string", ""),
    ("gate: {command: []}", "gate.command: expected a program and its arguments", ""),
    ("gate: {command: true}", "gate.command: expected a program and its arguments", "put it in quotes"),
    ('gate: {command: "a \'b"}', "gate.command: expected a program and its arguments", ""),
    (
        "gate: {command: ruff . && pytest}",
        "gate.command: this does not run in a shell, so `&&` would be an argument",
        "",
    ),
    ("gates: critic", "gates: expected a list of gates, found 'critic'", ""),
    ("gates: [critic, {command: 1}]", "gates: entry 2: command: expected a program", "put it in quotes"),
    ("output_schema: {type: objct}", "output_schema: not a JSON Schema: at $.type: 'objct'", "correct the schema"),
    ("output_schema: {pattern: '('}", "output_schema: not a JSON Schema: at $.pattern", ""),
    ("output_schema: {$ref: 'https://example.com/a'}", "output_schema: the $ref 'https://example.com/a' is not in", ""),
    ("output_schema: {$ref: '#/$defs/a'}", "output_schema: the $ref '#/$defs/a' is not in the schema", ""),
    ("output_schema: none.json", "output_schema: none.json: no such file", ""),
    ("output_schema: step.md", "step.md: expected a file that ends in .json, .yaml or .yml", ""),
    ("output_schema: broken.json", "broken.json: not JSON: ", ""),
    ("output_schema: twice.json", "twice.json: key given twice: type", ""),
    ("output_schema: twice.yaml", "twice.yaml: line 2: type: already given on line 1", ""),
    ("output_schema: list.json", "list.json: expected a JSON object", ""),
    ("output_schema: nan.json", "nan.json: NaN is not a JSON number", ""),
    ("output_schema: deep.json", "deep.json: nested more than", ""),
    ("artifacts: {schemas: {a.json: {type: 3}}}", "artifacts.schemas.a.json: not a JSON Schema: at $.type", ""),
    ("artifacts: {schemas: {'/': {}}}", "artifacts.schemas.'/': as a key, expected a valid pattern", ""),
]
MORE_FILES = {
    "binary__md": "a\0b",
    "empty__md": "\ufeff \n",
    "broken__json": '{\n"type":',
    "twice__json": '{"type": "array", "type": "object"}',
    "twice__yaml": "type: array\ntype: object\n",
    "list__json": "[]",
    "nan__json": '{"const": NaN}',
    "deep__json": '{"items":' * 600 + "{}" + "}" * 600,
}


@each(("line", "words", "hint"), WRONG_STAGES)
def test_a_mistake_in_a_stage_is_told_with_its_line(tmp_path: Path, line: str, words: str, hint: str) -> None:
    more = "defaults: {writes: false}\n" if "only-output" in line else ""
    error = refusal(tmp_path, stage_text(line) + more, **MORE_FILES)
    assert error.message.startswith("pipeline.yaml:5: stage only: "), error.message
    assert words in error.message
    assert hint in error.hint
    assert error.hint


@each(
    ("text", "words"),
    [
        ("", "pipeline.yaml:1: `name` is missing"),
        ("name: a\n", "pipeline.yaml:1: `stages` is missing"),
        ("name: a\nstages: []\n", "pipeline.yaml:2: stages: expected a list of at least one stage, each"),
        ("name: a\nstages: {}\n", "pipeline.yaml:2: stages: expected a list of at least one stage"),
        ("name: a\nstages: [x]\n", "pipeline.yaml:2: stage 1: expected a group with name and step, found 'x'"),
        ("name: a\nstages: [{name: x}]\n", "pipeline.yaml:2: stage x: `step` is missing"),
        ("name: a\nstages: [{step: step.md}]\n", "pipeline.yaml:2: stage 1: `name` is missing"),
        ("- a\n", "pipeline.yaml:1: expected lines of `key: value`"),
        (f"{MINIMAL}stage: []\n", "pipeline.yaml:5: stage: unknown key"),
        (f"{MINIMAL}workspace: repo\n", "pipeline.yaml:5: workspace: expected directory, worktree or checkout"),
        (f"{MINIMAL}max_parallel: 0\n", "pipeline.yaml:5: max_parallel: expected a whole number from 1 to 100"),
        (f"{MINIMAL}inputs: {{topic: what}}\n", "pipeline.yaml:5: inputs.topic: expected a group with description"),
        (
            f"{MINIMAL}inputs: {{a b: }}\n",
            "pipeline.yaml:5: inputs.'a b': as a key, expected a name consisting of letters",
        ),
        (f"{MINIMAL}inputs: {{n: {{default: 3}}}}\n", "pipeline.yaml:5: inputs.n.default: expected a string"),
        (f"{MINIMAL}defaults: {{step: x}}\n", "pipeline.yaml:5: defaults.step: unknown key"),
        (f"{MINIMAL}defaults: {{gate: critic}}\n", "pipeline.yaml:5: defaults.gate: expected a group with agent"),
        (
            f"{MINIMAL}defaults: {{agent_definition: x}}\n",
            "pipeline.yaml:5: defaults.agent_definition: x: no such file",
        ),
        (
            f"{MINIMAL}defaults: {{artifacts: {{schemas: {{a: x.json}}}}}}\n",
            "artifacts.schemas.a: x.json: no such file",
        ),
        (f"{MINIMAL}name: again\n", "pipeline.yaml:5: name: already given on line 1"),
        (f"{MINIMAL}    step: x.md\n    step: step.md\n", "pipeline.yaml:5: step: already given on line 4"),
        ("name: a\nstages:\n\t- x\n", "pipeline.yaml:3:1: a tab is used for indentation"),
        ("name: !!python/object:os.system a\n", "pipeline.yaml:1: the tag"),
        ("name: a\n---\nname: b\n", "pipeline.yaml:2: a second document begins here"),
    ],
)
def test_a_mistake_in_the_pipeline_is_told_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    assert words in refusal(tmp_path, text).message


@each("name", ["../x", "A", "-a", "a b", "ä", "a/b", ".", "", "a" * 61, "yes", "1.5", "_a"])
def test_a_name_that_cannot_be_a_folder_is_refused(tmp_path: Path, name: str) -> None:
    message = refusal(tmp_path, f"name: a\nstages:\n  - step: step.md\n    name: {name}\n").message
    assert "pipeline.yaml:4: " in message
    assert "name: expected a name with lower-case letters, digits, - and _" in message


def stages(**needs: str) -> str:
    rows = [f"  - {{name: {name}, step: step.md, needs: [{needed}]}}\n" for name, needed in needs.items()]
    return f"name: a\nstages:\n{''.join(rows)}"


@each(
    ("text", "circle"),
    [
        (stages(a="b", b="a"), "a → b → a"),
        (stages(a="", b="a, d", c="b", d="c"), "b → d → c → b"),
        (stages(a="b", b="c", c="b"), "b → c → b"),
        (stages(a="b", b="a", c="d", d="c", e="a, c"), "a → b → a"),
        (stages(a="b, c", b="c", c="a"), "a → c → a"),
    ],
)
def test_stages_that_wait_for_each_other_are_named_in_their_circle(tmp_path: Path, text: str, circle: str) -> None:
    assert f"needs: these stages need each other: {circle}" in refusal(tmp_path, text).message


def test_two_stages_of_one_name_and_a_need_that_stands_twice_are_refused(tmp_path: Path) -> None:
    text = "name: a\nstages:\n  - {name: x, step: step.md}\n  - {name: x, step: step.md}\n"
    assert "pipeline.yaml:4: stage x: name: stage 1 is also called 'x'" in refusal(tmp_path, text).message
    assert "needs: entry 2: 'a' is given twice" in refusal(tmp_path, stages(a="", b="a, a")).message


def test_every_mistake_is_told_in_one_error_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = (
        "name: A\n"
        "stages:\n"
        "  - name: one\n"
        "    step: none.md\n"
        "    needs: [two]\n"
        "    output_schema: {type: x}\n"
        "  - name: two\n"
        "    stp: step.md\n"
        "    needs: [one, tree]\n"
        "    timeout: long\n"
        "worksapce: directory\n"
    )
    error = refusal(tmp_path, text)
    rows = error.message.splitlines()
    assert rows[0] == "the pipeline has 9 mistakes:"
    assert [row.split(":")[1] for row in rows[1:]] == ["1", "4", "5", "6", "7", "8", "9", "10", "11"]
    assert "codeloupe pipeline validate" in error.hint
    assert "stage one: needs: these stages need each other: one → two → one" in error.message


@each("mode", ["missing", "folder", "latin", "pipe", "loop"])
def test_a_step_that_cannot_be_read_is_refused_before_anything_runs(tmp_path: Path, mode: str) -> None:
    file = write_pipeline(tmp_path)
    step = tmp_path / "step.md"
    step.unlink()
    match mode:
        case "latin":
            step.write_bytes(b"caf\xe9")
        case "pipe":
            os.mkfifo(step)
        case "loop":
            step.symlink_to("step.md")
        case "folder":
            step.mkdir()
        case _:
            pass
    with pytest.raises(ConfigError, match=r"pipeline.yaml:4: stage only: step: step\.md"):
        load_pipeline(file)


@each("name", [".", "none.yaml", "/dev/zero", "a\0b", "x" * 5000, "\udcff.yaml", "latin.yaml"])
def test_a_pipeline_that_is_no_file_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "latin.yaml").write_bytes("name: café\n".encode("latin-1"))
    with pytest.raises(ConfigError) as caught:
        load_pipeline(tmp_path / name)
    assert "config init" not in caught.value.hint
    by_name = "give a pipeline file, such as pipeline.yaml, or its folder"
    hints = {".": by_name, "none.yaml": by_name, "latin.yaml": "save the file as UTF-8"}
    assert caught.value.hint == hints.get(name, caught.value.hint) != ""


def test_a_folder_without_a_pipeline_names_the_pipelines_in_it(tmp_path: Path) -> None:
    (tmp_path / "codeloupe.yaml").write_text("fail_on: high\n")
    (tmp_path / "tour.yml").write_text("name: tour\nstages: []\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "pipeline.yml").write_text("name: other\nstages: []\n")
    for name in (".", "toor"):
        with pytest.raises(ConfigError) as caught:
            load_pipeline(tmp_path / name)
        assert caught.value.hint == f"these are pipelines: {tmp_path / 'other/pipeline.yml'}, {tmp_path / 'tour.yml'}"


def test_a_folder_with_two_pipeline_files_is_refused(tmp_path: Path) -> None:
    for name in FILE_NAMES:
        (tmp_path / name).write_text("name: tour\nstages: []\n")
    with pytest.raises(ConfigError, match=r"holds both pipeline\.yaml and pipeline\.yml$"):
        find_pipeline_file(tmp_path)


def test_what_a_terminal_could_act_on_is_escaped(tmp_path: Path) -> None:
    text = stage_text('"\\e[31m": 1', 'needs: ["\\u202ea"]', 'agent: "\\e]0;x"', 'agent_definition: "\\e[1m"')
    message = refusal(tmp_path, text).message
    assert "\x1b" not in message
    assert "\u202e" not in message


def many(count: int, stage: str) -> str:
    return "name: a\nstages:\n" + "".join(f"  - {{{stage.replace('N', str(n))}}}\n" for n in range(count))


@each(
    "text",
    [
        "".join(f"k{n}: 1\n" for n in range(4900)),
        many(100, ", ".join(f"agentx{n}: 1" for n in range(45))),
        many(100, f"name: stage-N, step: step.md, needs: [{', '.join(f'stagex{m}' for m in range(90))}]"),
        many(95, f"name: sN, step: step.md, needs: [{', '.join(f's{m}' for m in range(95))}]"),
        many(1900, "name: a, step: step.md"),
        "a: " + "[" * 20_000,
        "#" * 1_000_001,
    ],
)
def test_a_file_with_very_many_mistakes_ends_in_words(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_pipeline(write_pipeline(tmp_path, text))
    assert 0 < len(caught.value.message) < 10_000


SCHEMA = pipeline_schema()
PROJECT = Path(__file__).parents[3]


def test_the_schema_is_valid_names_every_field_and_has_the_defaults_of_the_definition() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    stage, gates = SCHEMA["$defs"]["stage"], SCHEMA["$defs"]["gate"]["anyOf"][1:]
    names = {"timeout": "timeout_seconds", "budget": "max_budget_usd", "gate": "gates"}
    for definition, parts in ((PipelineDefinition, [SCHEMA]), (StageDefinition, [stage]), (GateDefinition, gates)):
        keys = {key: value for part in parts for key, value in part["properties"].items() if key != "defaults"}
        renamed = {} if definition is PipelineDefinition else names
        known = {one.name: one.default for one in fields(definition) if one.name not in _MADE}
        assert {renamed.get(key, key) for key in keys} == set(known)
        for key, value in keys.items():
            resolved = value | (SCHEMA["$defs"][value["$ref"].rpartition("/")[2]] if "$ref" in value else {})
            assert key == "kind" or resolved["description"]
            assert value.get("default", known[renamed.get(key, key)]) == known[renamed.get(key, key)], key


def test_the_examples_and_the_file_that_the_documentation_shows_pass_schema_and_loader(tmp_path: Path) -> None:
    text = (PROJECT / "docs" / "pipelines.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    for name in re.findall(r"(?:steps|agents|critics|schemas)/[a-z]+\.(?:md|json)", shown):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}" if name.endswith(".json") else "Do it.")
    for file in (write_pipeline(tmp_path, shown), *sorted((PROJECT / "examples").glob("*/*.yaml"))):
        jsonschema.Draft202012Validator(SCHEMA).validate(yaml.safe_load(file.read_text(encoding="utf-8")))
        load_pipeline(file)
    told = set(re.findall(r"`([a-z_]+)[`:]", text)) | set(yaml.safe_load(shown))
    assert {*SCHEMA["$defs"]["stage"]["properties"], *SCHEMA["properties"]} - told == set()
    named = set(re.findall(r"examples/[a-z]+", text))
    assert named
    assert [name for name in named if not (PROJECT / name / "pipeline.yaml").is_file()] == []
