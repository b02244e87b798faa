"""From the values of a file that has no mistakes to the pipeline that it defines."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import fields, replace

from codeloupe.model.pipeline_definition import (
    ArtifactRule,
    GateDefinition,
    InputDefinition,
    PipelineDefinition,
    StageDefinition,
)
from codeloupe.pipeline.definition_files import NamedFiles
from codeloupe.pipeline.definition_gates import with_defaults

# Where the field of a definition is not called like its key.
_FIELDS = {"timeout": "timeout_seconds", "budget": "max_budget_usd"}
# Files by their content, and what only bounds a call or a gate left out: it shapes no work and no word.
_FILES = ("step", "agent_definition")
_PARTS = ("agent", "model", "writes", "tools", "needs", "inputs", "artifacts", "output_schema")
_OF_A_GATE = ("kind", "agent", "model", "command", "prompt", "fail_on", "experts", "min_score")

Values = Mapping[str, Any]


def build_pipeline(values: Values, *, file: Path, files: NamedFiles, digest: str) -> PipelineDefinition:
    """The pipeline; `values` are what the kind of the whole file read."""
    defaults = values.get("defaults", {})
    plain = ("name", "description", "workspace", "max_parallel", "max_budget_usd")
    return PipelineDefinition(
        **{key: values[key] for key in plain if key in values},
        file=file,
        inputs=tuple(InputDefinition(name=name, **(about or {})) for name, about in values.get("inputs", {}).items()),
        stages=tuple(_stage(stage, defaults, files) for stage in values["stages"]),
        digest=digest,
    )


def _stage(values: Values, defaults: Values, files: NamedFiles) -> StageDefinition:
    given = {**{key: value for key, value in defaults.items() if key != "gate"}, **values}
    gates = given.pop("gates", ()) or ([given["gate"]] if "gate" in given else ())
    given.pop("gate", None)
    given["gates"] = tuple(_gate(with_defaults(gate, defaults.get("gate", {})), files) for gate in gates)
    if "artifacts" in given:
        given["artifacts"] = _artifacts(given["artifacts"], files)
    if "output_schema" in given:
        given["output_schema"] = _schema(given["output_schema"], files)
    stage = StageDefinition(**_fields(given, files))
    contents = {key: files.content(given[key]) for key in _FILES if key in given}
    parts = {key: _digest(getattr(stage, key)) for key in _PARTS}
    gates = _digest([gate.digest for gate in stage.gates])
    return replace(stage, parts={**dict.fromkeys(_FILES, ""), **contents, **parts, "gates": gates})


def _gate(values: Values, files: NamedFiles) -> GateDefinition:
    gate = GateDefinition(**_fields(values, files))
    step = files.content(values["step"]) if "step" in values else ""
    return replace(gate, digest=_digest([step, *(getattr(gate, key) for key in _OF_A_GATE)]))


def _digest(value: object) -> str:
    """A name for a value of a definition."""
    text = json.dumps(value, sort_keys=True, default=_plain)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _plain(value: Any) -> object:
    return (
        dict(value) if isinstance(value, Mapping) else {each.name: getattr(value, each.name) for each in fields(value)}
    )


def _fields(values: Values, files: NamedFiles) -> dict[str, Any]:
    """Values by the names of a definition's fields, files as paths."""
    paths = {key: files.path(values[key]) for key in ("step", "agent_definition") if key in values}
    return {_FIELDS.get(key, key): value for key, value in {**values, **paths}.items()}


def _artifacts(values: Values, files: NamedFiles) -> ArtifactRule:
    schemas = {name: _schema(schema, files) for name, schema in values.get("schemas", {}).items()}
    return ArtifactRule(**{**values, "schemas": schemas})


def _schema(given: object, files: NamedFiles) -> Mapping[str, Any]:
    return given if isinstance(given, Mapping) else files.schema(str(given))
