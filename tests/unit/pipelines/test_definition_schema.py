"""The published JSON Schema of a pipeline's file."""

from __future__ import annotations

import ast
import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from codeloupe.config.yaml import plain, read_document
from codeloupe.model.pipeline import GateDefinition, PipelineDefinition, StageDefinition
from codeloupe.pipelines.definition import load_pipeline, pipeline_schema
from tests.pipeline_files import MINIMAL, stage_text
from tests.unit.pipelines.test_definition import WHOLE
from tests.unit.pipelines.test_definition_refusals import WRONG_STAGES

SCHEMA = pipeline_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*/*.yaml"))
# Keys that the file has under another name, and fields that it does not set.
OTHER_NAMES = {"timeout": "timeout_seconds", "budget": "max_budget_usd", "gate": "gates"}
NOT_IN_THE_FILE = {"parts", "file", "digest"}


def read(text: str) -> object:
    return plain(read_document("pipeline.yaml", text, deepest_level=24))


def accepts(text: str) -> bool:
    return bool(VALIDATOR.is_valid(read(text)))


def test_it_is_a_valid_schema_of_the_draft_it_names() -> None:
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA


def stage_schema() -> dict[str, Any]:
    found: dict[str, Any] = SCHEMA["properties"]["stages"]["items"]
    return found


def properties(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for key, value in schema.get("properties", {}).items():
        yield f"{path}.{key}", value
        yield from properties(value, f"{path}.{key}")


def test_every_key_says_what_it_means() -> None:
    gates = {"properties": {kind["description"]: kind for kind in SCHEMA["$defs"]["gate"]["anyOf"][1:]}}
    described = [*properties(SCHEMA), *properties(stage_schema()), *properties(gates)]
    assert len(described) > 50
    silent = [path for path, value in described if not value.get("description") and not path.endswith(".kind")]
    assert silent == []


def test_every_field_of_a_definition_can_be_written() -> None:
    gates = [kind["properties"] for kind in SCHEMA["$defs"]["gate"]["anyOf"][1:]]
    for definition, keys in (
        (PipelineDefinition, set(SCHEMA["properties"]) - {"defaults"}),
        (StageDefinition, set(stage_schema()["properties"])),
        (GateDefinition, {key for properties in gates for key in properties}),
    ):
        fields = set(definition.__struct_fields__) - NOT_IN_THE_FILE
        renamed = OTHER_NAMES if definition is not PipelineDefinition else {}
        assert {renamed.get(key, key) for key in keys} == fields


def test_it_accepts_what_is_right() -> None:
    assert accepts(MINIMAL)
    assert accepts(WHOLE)


# Mistakes that no schema can see: names and files that are not there, and what a text means.
UNSEEN = (
    "no stage",
    "need itself",
    "no input",
    "no such file",
    "is expected",
    "not in",
    "not a",
    "makes sense",
    "does not write",
    "json:",
    "as a key",
)
UNSEEN_LINES = (
    "agent: claude",
    "empty.md",
    "binary.md",
    "721h",
    "'  '",
    "'b",
    "&&",
    "/dev/null",
    "twice.yaml",
    "step.md",
    "''}",
)


def test_it_refuses_what_it_can_see() -> None:
    visible = [
        line
        for line, words, _ in WRONG_STAGES
        if not any(unseen in words for unseen in UNSEEN) and not any(unseen in line for unseen in UNSEEN_LINES)
    ]
    assert len(visible) >= 35
    assert [line for line in visible if accepts(stage_text(line))] == []


def test_the_examples_pass_schema_and_loader(subtests: pytest.Subtests) -> None:
    for file in EXAMPLES:
        with subtests.test(file=file):
            VALIDATOR.validate(read(file.read_text(encoding="utf-8")))
            load_pipeline(file)


PROJECT = Path(__file__).parents[3]
TEXT = (PROJECT / "docs" / "pipelines.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    found = re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)
    assert len(found) == 1
    return str(found[0])


def test_the_file_is_loaded_once_the_files_that_it_names_are_there(tmp_path: Path) -> None:
    for name in re.findall(r"(?:steps|agents|critics|schemas)/[a-z]+\.(?:md|json)", block("yaml")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}" if name.endswith(".json") else "Do it.")
    (tmp_path / "pipeline.yaml").write_text(block("yaml"))
    loaded = load_pipeline(tmp_path / "pipeline.yaml")
    assert [stage.name for stage in loaded.stages] == ["collect", "write"]
    assert len(loaded.stages[1].gates) == 3


def test_every_key_of_the_file_and_of_a_stage_is_told() -> None:
    schema = pipeline_schema()
    told = set(re.findall(r"`([a-z_]+)[`:]", TEXT)) | set(yaml.safe_load(block("yaml")))
    assert set(schema["properties"]["stages"]["items"]["properties"]) - told == set()
    assert set(schema["properties"]) - told == set()


def test_the_program_uses_only_what_there_is() -> None:
    tree = ast.parse(block("python"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            module = importlib.import_module(node.module)
            assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "load":
            [file] = node.args
            assert isinstance(file, ast.Constant)
            load_pipeline(PROJECT / str(file.value))


def test_links_and_examples_that_it_names_are_there() -> None:
    named = set(re.findall(r"examples/[\w./-]+\.(?:yaml|py)", TEXT))
    assert named
    assert [name for name in named if not (PROJECT / name).is_file()] == []
