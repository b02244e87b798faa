"""The published JSON Schema of a pipeline's file."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from codeloupe.config.yaml import plain, read_document
from codeloupe.model.pipeline_definition import GateDefinition, PipelineDefinition, StageDefinition
from codeloupe.pipeline.definition import load_pipeline, pipeline_schema
from tests.pipeline_files import MINIMAL, stage_text
from tests.unit.pipeline.test_definition import WHOLE
from tests.unit.pipeline.test_definition_refusals import WRONG_STAGES

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


def test_whoever_changes_what_was_given_changes_it_for_nobody_else() -> None:
    pipeline_schema()["properties"]["stages"].clear()
    assert pipeline_schema() == SCHEMA


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
        fields = {field.name for field in dataclasses.fields(definition)} - NOT_IN_THE_FILE
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


def test_it_refuses_one_gate_beside_several() -> None:
    assert not accepts(stage_text("gate: critic", "gates: [review]"))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.parent.name)
def test_the_examples_pass_schema_and_loader(file: Path) -> None:
    VALIDATOR.validate(read(file.read_text(encoding="utf-8")))
    load_pipeline(file)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 3
