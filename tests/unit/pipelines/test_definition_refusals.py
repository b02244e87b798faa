"""What is wrong with a pipeline's file, told with its line, all of it at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from codeloupe.errors import ConfigError
from codeloupe.pipelines.definition import load_pipeline
from tests.pipeline_files import MINIMAL, refusal, stage_text, write_pipeline
from tests.rows import each

# Lines of the one stage, from line 5 on, and what is said about them.
WRONG_STAGES = [
    ("modle: x", "stage only: modle: unknown key", "did you mean `model`?"),
    ("max_budget_usd: 1", "stage only: max_budget_usd: unknown key", "did you mean `budget`?"),
    (
        "agent: claude",
        "agent: expected agent_sdk, claude_cli, codex, gemini or api, found 'claude'",
        "claude_cli",
    ),
    ("model: 4.1", "model: expected a text, found '4.1'", "put it in quotes"),
    ("writes: 1", "writes: expected true or false, found '1'", ""),
    ("timeout: 10 minutes", "timeout: expected a duration such as 90s, 30m", ""),
    ("timeout: 0", "timeout: expected a duration", ""),
    ("timeout: 721h", "timeout: expected a duration", ""),
    ("timeout: h", "timeout: expected a duration", ""),
    ("timeout: ''", "timeout: expected a duration", ""),
    ("budget: -1", "budget: expected an amount of dollars above 0", ""),
    ("budget: .inf", "budget: expected an amount of dollars above 0", ""),
    ("retries: 11", "retries: expected a whole number from 0 to 10, found '11'", ""),
    ("max_turns: true", "max_turns: expected a whole number", ""),
    ("needs: reserch", "needs: there is no stage 'reserch'", "name a stage of this file"),
    ("needs: [onyl]", "needs: entry 1: there is no stage 'onyl'", "did you mean `only`?"),
    ("needs: only", "needs: a stage cannot need itself", ""),
    ("inputs: topic", "inputs: the pipeline has no input 'topic'", "add it to the pipeline's `inputs`"),
    ("on_failure: stop", "on_failure: expected escalate, fail or continue, found 'stop'", ""),
    ("agent_definition: none.md", "agent_definition: none.md: no such file", "relative to the pipeline's folder"),
    ("agent_definition: ''", "agent_definition: expected the path of a file", ""),
    ("agent_definition: .", "agent_definition: .: a folder, where a file is expected", ""),
    ("agent_definition: empty.md", "agent_definition: empty.md: the file is empty", ""),
    ("agent_definition: /dev/null", "agent_definition: /dev/null: not a regular file", ""),
    ("artifacts: ['*.md']", "artifacts: expected a group with patterns", ""),
    ("artifacts: {patterns: []}", "artifacts.patterns: expected a list of patterns, at least one", ""),
    ("artifacts: {required: ../x}", "artifacts.required: entry 1: expected a pattern that makes sense", ""),
    ("artifacts: {pattern: x}", "artifacts.pattern: unknown key", "did you mean `patterns`?"),
    ("agent_definition: binary.md", "agent_definition: binary.md: not a text file, it holds a NUL byte", ""),
    (
        "artifacts: {required: [only-output.md, report.md]}",
        "artifacts.required: entry 2: a stage that does not write leaves only-output.md and no 'report.md'",
        "let the stage write",
    ),
    ("gate: critc", "gate: expected critic, review or approval, or a group", "did you mean `critic`?"),
    ("gate: command", "gate: a command gate says what to run", ""),
    ("gate: 3", "gate: expected critic, review or approval, or a group", ""),
    ("gate: {min_score: 3}", "gate: `kind` is missing: critic, review, command or approval", ""),
    ("gate: {kind: reveiw}", "gate.kind: expected critic, review, command or approval", "did you mean `review`?"),
    ("gate: {kind: [critic]}", "gate.kind: expected critic, review, command or approval", ""),
    ("gate: {kind: approval, min_score: 3}", "gate.min_score: an approval gate has no such key", ""),
    ("gate: {kind: review, command: x}", "gate.command: a review gate has no such key; it belongs to command", ""),
    ("gate: {kind: command}", "gate: `command` is missing", ""),
    ("gate: {kind: critic, max_atempts: 3}", "gate.max_atempts: unknown key", "did you mean `max_attempts`?"),
    ("gate: {kind: critic, min_score: 101}", "gate.min_score: expected a whole number from 0 to 100", ""),
    ("gate: {kind: critic, max_attempts: 0}", "gate.max_attempts: expected a whole number from 1 to 20", ""),
    ("gate: {kind: critic, step: none.md}", "gate.step: none.md: no such file", ""),
    ("gate: {kind: review, fail_on: P1}", "gate.fail_on: expected critical, high, medium or low, found 'P1'", ""),
    ("gate: {command: ''}", "gate.command: expected", ""),
    ("gate: {command: '  '}", "gate.command: expected a program and its arguments", ""),
    ("gate: {command: ['']}", "gate.command: entry 1: expected a text", ""),
    ("gate: {command: []}", "gate.command: expected a program and its arguments", ""),
    ("gate: {command: true}", "gate.command: expected a program and its arguments", "put it in quotes"),
    ('gate: {command: "a \'b"}', "gate.command: expected a program and its arguments", ""),
    ("gate: {command: ruff . && pytest}", "gate.command: no shell reads this, so `&&` would be an argument", ""),
    ("gates: critic", "gates: expected a list of gates, found 'critic'", ""),
    ("gates: [critic, {command: 1}]", "gates: entry 2: command: expected a program", "put it in quotes"),
    ("output_schema: {type: objct}", "output_schema: not a JSON Schema: at $.type: 'objct'", "correct the schema"),
    ("output_schema: {pattern: '('}", "output_schema: not a JSON Schema: at $.pattern", ""),
    ("output_schema: {$ref: 'https://example.com/a'}", "output_schema: the $ref 'https://example.com/a' is not in", ""),
    ("output_schema: {$ref: '#/$defs/a'}", "output_schema: the $ref '#/$defs/a' is not in the schema", ""),
    ("output_schema: none.json", "output_schema: none.json: no such file", ""),
    ("output_schema: step.md", "step.md: expected a file that ends in .json, .yaml or .yml", ""),
    ("output_schema: broken.json", "broken.json: it holds no JSON that can be read", ""),
    ("output_schema: twice.json", "twice.json: the key 'type' occurs more than once", ""),
    ("output_schema: twice.yaml", "twice.yaml: line 2: type: already given on line 1", ""),
    ("output_schema: list.json", "list.json: expected a JSON object", ""),
    ("output_schema: nan.json", "nan.json: NaN is not a JSON number", ""),
    ("output_schema: deep.json", "deep.json: it is nested more than", ""),
    ("artifacts: {schemas: {a.json: {type: 3}}}", "artifacts.schemas.a.json: not a JSON Schema: at $.type", ""),
    ("artifacts: {schemas: {'/': {}}}", "artifacts.schemas.'/': as a key, expected a pattern", ""),
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


def test_a_mistake_in_a_stage_is_told_with_its_line(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, (line, words, hint) in enumerate(WRONG_STAGES):
        place = tmp_path / f"{number}"
        place.mkdir()
        with subtests.test(line=line, words=words):
            more = "defaults: {writes: false}\n" if "only-output" in line else ""
            error = refusal(place, stage_text(line) + more, **MORE_FILES)
            assert error.message.startswith("pipeline.yaml:5: stage only: "), error.message
            assert words in error.message
            assert hint in error.hint
            assert error.hint


@each(
    ("text", "words"),
    [
        ("", "pipeline.yaml:1: `name` is missing"),
        ("name: a\n", "pipeline.yaml:1: `stages` is missing"),
        ("name: a\nstages: []\n", "pipeline.yaml:2: stages: expected a list of stages, at least one, each"),
        ("name: a\nstages: {}\n", "pipeline.yaml:2: stages: expected a list of stages"),
        ("name: a\nstages: [x]\n", "pipeline.yaml:2: stage 1: expected a group with name and step, found 'x'"),
        ("name: a\nstages: [{name: x}]\n", "pipeline.yaml:2: stage x: `step` is missing"),
        ("name: a\nstages: [{step: step.md}]\n", "pipeline.yaml:2: stage 1: `name` is missing"),
        ("- a\n", "pipeline.yaml:1: expected lines of `key: value`"),
        (f"{MINIMAL}stage: []\n", "pipeline.yaml:5: stage: unknown key"),
        (f"{MINIMAL}workspace: repo\n", "pipeline.yaml:5: workspace: expected directory, worktree or checkout"),
        (f"{MINIMAL}max_parallel: 0\n", "pipeline.yaml:5: max_parallel: expected a whole number from 1 to 100"),
        (f"{MINIMAL}inputs: {{topic: what}}\n", "pipeline.yaml:5: inputs.topic: expected a group with description"),
        (f"{MINIMAL}inputs: {{a b: }}\n", "pipeline.yaml:5: inputs.'a b': as a key, expected a name of letters"),
        (f"{MINIMAL}inputs: {{n: {{default: 3}}}}\n", "pipeline.yaml:5: inputs.n.default: expected a text"),
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
    assert "name: expected a name of small letters, digits, - and _" in message


def stages(**needs: str) -> str:
    rows = [f"  - {{name: {name}, step: step.md, needs: [{needed}]}}\n" for name, needed in needs.items()]
    return f"name: a\nstages:\n{''.join(rows)}"


@each(
    ("text", "circles"),
    [
        (stages(a="b", b="a"), ["a → b → a"]),
        (stages(a="", b="a, d", c="b", d="c"), ["b → d → c → b"]),
        (stages(a="b", b="c", c="b"), ["b → c → b"]),
        (stages(a="b", b="a", c="d", d="c", e="a, c"), ["a → b → a", "c → d → c"]),
        (stages(a="b, c", b="c", c="a"), ["a → c → a"]),
    ],
)
def test_stages_that_wait_for_each_other_are_named_in_their_circle(
    tmp_path: Path, text: str, circles: list[str]
) -> None:
    message = refusal(tmp_path, text).message
    assert message.count("wait for each other") == len(circles)
    for circle in circles:
        assert f"needs: these stages wait for each other: {circle}" in message


def test_two_stages_of_one_name_and_a_need_that_stands_twice_are_refused(tmp_path: Path) -> None:
    text = "name: a\nstages:\n  - {name: x, step: step.md}\n  - {name: x, step: step.md}\n"
    assert "pipeline.yaml:4: stage x: name: stage 1 is called 'x' too" in refusal(tmp_path, text).message
    assert "needs: entry 2: 'a' is given twice" in refusal(tmp_path, stages(a="", b="a, a")).message


@each("line", ["timeout: 1:30", "gate: {kind: critic, timeout: 10:20}"])
def test_a_time_that_yaml_would_read_as_a_number_in_base_sixty_is_refused(tmp_path: Path, line: str) -> None:
    error = refusal(tmp_path, stage_text(line))
    assert "is read as the number" in error.message
    assert "1h30m" in error.hint


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
    assert "stage one: needs: these stages wait for each other: one → two → one" in error.message


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


@each("name", [".", "none.yaml", "/dev/zero", "a\0b", "x" * 5000, "\udcff.yaml"])
def test_a_pipeline_that_is_no_file_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_pipeline(tmp_path / name)
    assert "config init" not in caught.value.hint
    assert caught.value.hint


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


def test_a_file_in_another_encoding_is_to_be_saved_as_utf_8(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_bytes("name: café\n".encode("latin-1"))
    with pytest.raises(ConfigError, match="not UTF-8") as caught:
        load_pipeline(tmp_path / "p.yaml")
    assert caught.value.hint == "save the file as UTF-8"


def test_a_file_that_is_not_there_is_to_be_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file") as caught:
        load_pipeline(tmp_path / "p.yaml")
    assert caught.value.hint == "name a pipeline's file, such as pipeline.yaml"
