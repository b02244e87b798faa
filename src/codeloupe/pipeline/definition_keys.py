"""Every key of a pipeline's file with its kind and its meaning, and the JSON Schema that follows from them."""

from __future__ import annotations

from copy import deepcopy
from enum import StrEnum
from typing import Any

from msgspec.structs import fields, replace

from codeloupe.config.kinds import BOOLEAN, NAME, PATTERN, TEXT, Kind, group, list_of, one_of, optional
from codeloupe.model.pipeline_definition import (
    DEFAULT_ARTIFACTS,
    OnFailure,
    PipelineDefinition,
    StageDefinition,
    WorkspaceKind,
)
from codeloupe.pipeline.definition_gates import GATE, GATE_DEFAULTS, GATE_SCHEMA
from codeloupe.pipeline.definition_kinds import (
    AGENT,
    DEFAULT_TEXT,
    DOLLARS,
    DURATION,
    FILE,
    MOST_NAMES,
    MOST_SCHEMAS,
    MOST_STAGES,
    PARALLEL,
    RETRIES,
    SCHEMA,
    STAGE_NAME,
    STAGE_NAMES,
    TEXTS,
    TURNS,
    by_name,
    described,
    one_or_more,
)

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_MOST_GATES = 10
_STAGE = {each.name: each.default for each in fields(StageDefinition)}
_PIPELINE = {each.name: each.default for each in fields(PipelineDefinition)}


def _word_of(words: type[StrEnum]) -> Kind:
    return one_of(*(word.value for word in words), meaning=words)


_ARTIFACTS = group(
    "a group with patterns, recursive, required and schemas",
    {
        "patterns": described(
            one_or_more(PATTERN, "a list of patterns, at least one", least=1),
            "Which files that the stage made or changed are its artifacts.",
            list(DEFAULT_ARTIFACTS),
        ),
        "recursive": described(BOOLEAN, "Look into folders too, not only at the top of the workspace.", default=False),
        "required": described(
            one_or_more(PATTERN, "a list of names or patterns"), "The stage fails unless each of these is there."
        ),
        "schemas": described(
            by_name("schemas by name or pattern of an artifact", PATTERN, SCHEMA, most=MOST_SCHEMAS),
            "JSON Schemas for artifacts that hold JSON or YAML, by name or pattern; inline, or the path of a file.",
        ),
    },
    make=dict,
)
# Keys of a stage that may stand under `defaults` as well.
_SHARED = {
    "agent_definition": described(FILE, "A file that says who the agent is and how it works."),
    "agent": described(AGENT, "Which agent does it. Not given: the first of the settings that can be used."),
    "model": described(TEXT, "Which model. Not given: the agent's own default."),
    "writes": described(
        BOOLEAN, "Whether the agent may change files. If not, its answer is the artifact.", default=True
    ),
    "tools": described(TEXTS, "The agent's tools, by its own names. An empty list: none. Not given: its usual ones."),
    "artifacts": described(_ARTIFACTS, "Which files are the stage's result."),
    "timeout": described(DURATION, "How long one call of the agent may take.", _STAGE["timeout_seconds"]),
    "budget": described(DOLLARS, "How many dollars the stage may cost, with its gates and all its attempts."),
    "max_turns": described(TURNS, "How many turns one call may take."),
    "retries": described(
        RETRIES,
        "How often a failed call is tried again before its session is resumed. 0: one call, and no recovery.",
        _STAGE["retries"],
    ),
    "on_failure": described(
        _word_of(OnFailure),
        "When the stage failed for good. escalate: stop until a person decides. fail: the run fails. continue: go on "
        "without it and without the stages that need it.",
        OnFailure.ESCALATE.value,
    ),
}
_STAGE_KEYS = {
    "name": described(STAGE_NAME, "The stage's name, which is also the name of its folder."),
    "step": described(FILE, "A file with what the stage has to do."),
    "needs": described(STAGE_NAMES, "The stages whose work it builds on. Stages that need nothing begin at once."),
    "inputs": described(
        one_or_more(NAME, "a list of names of inputs"), "Which inputs of the pipeline it gets. Not given: all."
    ),
    **_SHARED,
    "output_schema": described(
        SCHEMA, "A JSON Schema that the agent's answer has to fit; inline, or the path of a file."
    ),
    "gate": described(GATE, "What decides whether the result is accepted."),
    "gates": described(list_of(GATE, "a list of gates", most=_MOST_GATES), "Several gates, passed in this order."),
}
_STAGE_GROUP = group("a group with name and step", _STAGE_KEYS, make=dict, needed=("name", "step"))
_ONE_OF_THE_TWO = {"not": {"required": ["gate", "gates"]}}
_INPUT = optional(
    group(
        "a group with description, default and secret, or nothing",
        {
            "description": described(TEXT, "What to give."),
            "default": described(
                DEFAULT_TEXT, "The value when none is given. Without a default the input is required."
            ),
            "secret": described(BOOLEAN, "Never show its value, in no report and no message.", default=False),
        },
        make=dict,
    )
)
PIPELINE = group(
    "a group with name and stages",
    {
        "name": described(STAGE_NAME, "The pipeline's name."),
        "description": described(TEXT, "What it is for."),
        "inputs": described(
            by_name(
                "inputs by name, such as {topic: {description: what to write about}}", NAME, _INPUT, most=MOST_NAMES
            ),
            "Values that a run is given with `--input name=value`.",
        ),
        "workspace": described(
            _word_of(WorkspaceKind),
            "Where stages work. directory: an empty one. worktree: the repository at its last commit, apart from your "
            "checkout. checkout: your own working tree, one stage at a time.",
            WorkspaceKind.DIRECTORY.value,
        ),
        "max_parallel": described(PARALLEL, "How many stages may run at the same time.", _PIPELINE["max_parallel"]),
        "max_budget_usd": described(DOLLARS, "How many dollars a run may cost."),
        "defaults": described(
            group(
                "a group with keys of stages",
                {**_SHARED, "gate": described(GATE_DEFAULTS, "For gates that do not say otherwise.")},
                make=dict,
            ),
            "What holds for stages that do not say otherwise.",
        ),
        "stages": described(
            list_of(
                replace(_STAGE_GROUP, schema={**_STAGE_GROUP.schema, **_ONE_OF_THE_TWO}),
                "a list of stages, at least one, each with name and step",
                least=1,
                most=MOST_STAGES,
            ),
            "What is done. The order follows from `needs`; stages that do not need each other run at the same time.",
        ),
    },
    make=dict,
    needed=("name", "stages"),
)


def pipeline_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a pipeline's file, with the meaning of every key.

    It refuses nothing that `load_pipeline` takes. What it cannot say, such as that needed stages exist, only the
    loader finds.
    """
    whole = {
        "$schema": _DIALECT,
        "title": "codeloupe pipeline",
        "description": "A pipeline of agent stages, as `codeloupe pipeline run` takes it.",
        **PIPELINE.schema,
        "$defs": {"gate": GATE_SCHEMA},
    }
    return deepcopy(whole)
