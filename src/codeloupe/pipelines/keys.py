"""Every key of a pipeline's file with its kind and its meaning, and the JSON Schema that follows from them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from msgspec.structs import fields, replace

from codeloupe.config.kinds import (
    BOOLEAN,
    LONGEST_TEXT,
    NAME,
    NAMES,
    PATTERN,
    SEVERITY,
    TEXT,
    Kind,
    Mistake,
    Wrong,
    group,
    in_words,
    list_of,
    one_of,
    optional,
    read_each,
)
from codeloupe.model.agent import AGENT_NAMES
from codeloupe.model.pipeline import (
    DEFAULT_ARTIFACTS,
    GateDefinition,
    GateKind,
    OnFailure,
    PipelineDefinition,
    StageDefinition,
    WorkspaceKind,
)
from codeloupe.system.regex import regex

MOST_STAGES = 100
MOST_NAMES = 100
MOST_SCHEMAS = 50
_DURATION = regex(r"(?=[0-9])(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,6})s)?")
# Words that mean something to a shell and nothing to a program; whoever writes one expects a shell.
_SHELL_WORDS = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "2>&1"})
_STAGE, _GATE, _PIPELINE = (
    {each.name: each.default for each in fields(kind)} for kind in (StageDefinition, GateDefinition, PipelineDefinition)
)


def _key(kind: Kind, meaning: str, default: object = None) -> Kind:
    """The kind of a key, with its meaning in the schema, and its default where there is one."""
    return replace(
        kind, schema={**kind.schema, "description": meaning, **({} if default is None else {"default": default})}
    )


def _matching(pattern: str, expected: str, **schema: Any) -> Kind:
    def accept(value: object) -> str:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise ValueError("not a name")
        return value

    return Kind(expected, accept, {"type": "string", "pattern": f"^{pattern}$", **schema}, is_text=True)


def _number(expected: str, schema: Mapping[str, Any], made: Callable[[Any], Any] = lambda value: value) -> Kind:
    """A number within the limits of its schema, or whatever `made` makes one of."""
    whole = schema["type"] == "integer"

    def accept(value: object) -> float:
        number = made(value)
        if isinstance(number, bool) or not isinstance(number, int if whole else int | float):
            raise ValueError("not a number")
        if not schema.get("minimum", 0) <= number <= schema["maximum"] or number == schema.get("exclusiveMinimum"):
            raise ValueError("not such a number")
        return number if whole else float(number)

    return Kind(expected, accept, schema)


def _whole(least: int, most: int) -> Kind:
    schema = {"type": "integer", "minimum": least, "maximum": most}
    return _number(f"a whole number from {least} to {most:,}", schema)


def _seconds(value: object) -> object:
    if not isinstance(value, str):
        return value
    found = _DURATION.fullmatch(value)
    if found is None:
        raise ValueError("not a duration")
    hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return hours * 3600 + minutes * 60 + seconds


def _command(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        words = shlex.split(TEXT.read(value))
        if shell := next((word for word in words if word in _SHELL_WORDS), None):
            what = f"no shell reads this, so `{shell}` would be an argument: write several gates, or [sh, -c, ...]"
            raise Wrong([Mistake(what, found=False)])
    elif isinstance(value, list):
        words = list(_WORDS.read(value))
    else:
        raise ValueError("no words")
    if not words or not words[0]:
        raise ValueError("no program")
    return tuple(words)


def _one_or_more(entry: Kind, expected: str, *, least: int = 0) -> Kind:
    """The kind of a list in which a single text is short for a list of one."""
    listed = list_of(entry, expected, least=least, most=MOST_NAMES)
    schema = {"anyOf": [dict(entry.schema), dict(listed.schema)]}
    return replace(
        listed, accept=lambda value: listed.accept([value] if isinstance(value, str) else value), schema=schema
    )


def _by_name(expected: str, name: Kind, value: Kind, *, most: int) -> Kind:
    """The kind of a group whose keys are names of the user's own; what is read is a dict."""

    def accept(given: object) -> dict[str, Any]:
        if not isinstance(given, Mapping):
            raise ValueError("not a group")
        if len(given) > most:
            raise Wrong([Mistake(f"more than {most} entries", found=False)])
        mistakes = []
        for key in given:
            try:
                name.read(key)
            except Wrong as wrong:
                mistakes += [Mistake(f"as a key, {each.what}", (key,), found=False) for each in wrong.mistakes]
        read = read_each(((key, value, each) for key, each in given.items()), mistakes)
        return dict(zip(given, read, strict=True))

    schema = {
        "type": "object",
        "propertyNames": dict(name.schema),
        "additionalProperties": dict(value.schema),
        "maxProperties": most,
    }
    return Kind(expected, accept, schema)


_WORDS = list_of(TEXT, "a program and its arguments", least=1)
_STAGE_NAME = _matching(
    "[a-z0-9][a-z0-9_-]{0,59}",
    "a name of small letters, digits, - and _, at most 60 of them, such as write-report",
)
_ANY_SECONDS = {"type": "number", "exclusiveMinimum": 0, "maximum": 30 * 24 * 3600.0}
_TIME = replace(
    _number("a duration such as 90s, 30m, 1h30m or 1800 (seconds), at most 30 days", _ANY_SECONDS, _seconds),
    schema={"anyOf": [_ANY_SECONDS, {"type": "string", "pattern": f"^{_DURATION.pattern}$"}]},
)
_DOLLARS = _number(
    "an amount of dollars above 0, at most 1,000,000",
    {"type": "number", "exclusiveMinimum": 0, "maximum": 1_000_000},
)
_COMMAND = Kind(
    "a program and its arguments, such as `pytest -q` or [pytest, -q]",
    _command,
    {"anyOf": [dict(TEXT.schema), dict(_WORDS.schema)]},
    is_text=True,
)
FILE = replace(TEXT, expected="the path of a file, seen from the pipeline's folder")
_SCHEMA = Kind(
    "a JSON Schema, or the path of a file with one",
    lambda value: value if isinstance(value, Mapping) else FILE.accept(value),
    {"anyOf": [{"type": "object"}, dict(FILE.schema)]},
    is_text=True,
)
_DEFAULT_TEXT = Kind(
    f"a text of at most {LONGEST_TEXT:,} characters",
    lambda value: "" if value == "" else TEXT.accept(value),
    {"type": "string"},
    is_text=True,
)
# Whether there is one of that name, only whoever runs the pipeline knows.
_AGENT = _matching(
    "[A-Za-z0-9][A-Za-z0-9_.-]{0,59}",
    f"the name of an agent, such as {in_words(AGENT_NAMES)}",
    examples=list(AGENT_NAMES),
)

_GATE_KINDS = tuple(kind.value for kind in GateKind)
_GATE_WORDS = tuple(kind for kind in _GATE_KINDS if kind != GateKind.COMMAND)
_GATE_EXPECTED = (
    f"{in_words(_GATE_WORDS)}, or a group such as {{command: pytest -q}} or {{kind: critic, min_score: 60}}"
)
_GATE_TIMEOUT = _key(
    _TIME,
    "How long the gate may take; for an approval, how long a person is waited for before the run stops.",
    _GATE["timeout_seconds"],
)
_LIMITS = {
    "timeout": _GATE_TIMEOUT,
    "max_attempts": _key(_whole(1, 20), "How often the stage may be attempted in all.", _GATE["max_attempts"]),
}
_BEST_FROM = "When no attempt passed, the best one is taken from this score on."
_JUDGED = {**_LIMITS, "min_score": _key(_whole(0, 100), _BEST_FROM, _GATE["min_score"])}
_CRITIC = {"agent": _key(_AGENT, "The agent that is the critic."), "model": _key(TEXT, "The critic's model.")}
GATE_KEYS: Mapping[GateKind, Mapping[str, Kind]] = {
    GateKind.CRITIC: {
        "step": _key(FILE, "A file with what the critic is to look at. Not given: the built-in instructions."),
        "prompt": _key(TEXT, "A sentence for the critic, in addition to its instructions."),
        **_CRITIC,
        **_JUDGED,
    },
    GateKind.REVIEW: {
        "fail_on": _key(one_of(*SEVERITY.choices), "Findings from this severity on send the stage back."),
        "experts": _key(NAMES, "The checklists to review by."),
        **_JUDGED,
    },
    GateKind.COMMAND: {
        "command": _key(_COMMAND, "The program and its arguments; exit code 0 passes. No shell reads it."),
        **_LIMITS,
    },
    GateKind.APPROVAL: {"prompt": _key(TEXT, "What the person is asked."), "timeout": _GATE_TIMEOUT},
}
_GATE_MEANINGS = {
    GateKind.CRITIC: "An agent that reads the result and answers PASS, REWORK or FAIL with a score from 0 to 100.",
    GateKind.REVIEW: "codeloupe's own review of what the stage changed.",
    GateKind.COMMAND: "A program, such as tests or a linter.",
    GateKind.APPROVAL: "A person, on the terminal or by `codeloupe pipeline approve`.",
}
_GATE_GROUPS = {
    kind: group(
        f"a group of a {kind.value} gate",
        {"kind": one_of(kind.value), **keys},
        make=dict,
        needed=("command",) if kind is GateKind.COMMAND else ("kind",),
    )
    for kind, keys in GATE_KEYS.items()
}


def _gate(value: object) -> dict[str, Any]:
    if isinstance(value, str) and value in _GATE_WORDS:
        return {"kind": GateKind(value)}
    if isinstance(value, str):
        bare = Mistake("a command gate says what to run, such as {command: pytest -q}", found=False)
        unknown = Mistake(f"expected {_GATE_EXPECTED}", choices=_GATE_KINDS)
        raise Wrong([bare if value == GateKind.COMMAND else unknown])
    if not isinstance(value, Mapping):
        raise ValueError("no gate")
    if "kind" not in value and "command" not in value:
        raise Wrong([Mistake(f"`kind` is missing: {in_words(_GATE_KINDS)}", found=False)])
    word = value.get("kind", GateKind.COMMAND.value)
    if not isinstance(word, str) or word not in _GATE_KINDS:
        raise Wrong([Mistake(f"expected {in_words(_GATE_KINDS)}", ("kind",), _GATE_KINDS)])
    mistakes, article = list[Mistake](), "an" if word == GateKind.APPROVAL else "a"
    for key in value:
        others = [other.value for other, keys in GATE_KEYS.items() if key in keys]
        if others and word not in others:
            what = f"{article} {word} gate has no such key; it belongs to {' and '.join(others)}"
            mistakes.append(Mistake(what, (key,), found=False))
    elsewhere = {mistake.place[0] for mistake in mistakes}
    read: dict[str, Any] = {}
    try:
        read = _GATE_GROUPS[GateKind(word)].read({key: each for key, each in value.items() if key not in elsewhere})
    except Wrong as wrong:
        mistakes += wrong.mistakes
    if mistakes:
        raise Wrong(mistakes)
    return {**read, "kind": GateKind(word)}


_ANY_GATE = Kind(_GATE_EXPECTED, _gate, {"$ref": "#/$defs/gate"})
_ARTIFACTS = {
    "patterns": _key(
        _one_or_more(PATTERN, "a list of patterns, at least one", least=1),
        "Which files that the stage made or changed are its artifacts.",
        list(DEFAULT_ARTIFACTS),
    ),
    "recursive": _key(BOOLEAN, "Look into folders too, not only at the top of the workspace.", default=False),
    "required": _key(
        _one_or_more(PATTERN, "a list of names or patterns"), "The stage fails unless each of these is there."
    ),
    "schemas": _key(
        _by_name("schemas by name or pattern of an artifact", PATTERN, _SCHEMA, most=MOST_SCHEMAS),
        "JSON Schemas for artifacts that hold JSON or YAML, by name or pattern; inline, or the path of a file.",
    ),
}
# Keys of a stage that `defaults` may have as well.
_SHARED = {
    "agent_definition": _key(FILE, "A file that says who the agent is and how it works."),
    "agent": _key(_AGENT, "Which agent does it. Not given: the first of the settings that can be used."),
    "model": _key(TEXT, "Which model. Not given: the agent's own default."),
    "writes": _key(BOOLEAN, "Whether the agent may change files. If not, its answer is the artifact.", default=True),
    "tools": _key(
        _one_or_more(TEXT, "a list of texts"),
        "The agent's tools, by its own names. An empty list: none. Not given: its usual ones.",
    ),
    "artifacts": _key(
        group("a group with patterns, recursive, required and schemas", _ARTIFACTS, make=dict),
        "Which files are the stage's result.",
    ),
    "timeout": _key(_TIME, "How long one call of the agent may take.", _STAGE["timeout_seconds"]),
    "budget": _key(_DOLLARS, "How many dollars the stage may cost, with its gates and all its attempts."),
    "max_turns": _key(_whole(1, 10_000), "How many turns one call may take."),
    "retries": _key(
        _whole(0, 10),
        "How often a failed call is tried again before its session is resumed. 0: one call, and no recovery.",
        _STAGE["retries"],
    ),
    "on_failure": _key(
        one_of(*(word.value for word in OnFailure), meaning=OnFailure),
        "When the stage failed for good. escalate: stop until a person decides. fail: the run fails. continue: go on "
        "without it and without the stages that need it.",
        OnFailure.ESCALATE.value,
    ),
}
_OF_STAGES = {
    "name": _key(_STAGE_NAME, "The stage's name, which is also the name of its folder."),
    "step": _key(FILE, "A file with what the stage has to do."),
    "needs": _key(
        _one_or_more(_STAGE_NAME, "a list of names of stages, such as [research]"),
        "The stages whose work it builds on. Stages that need nothing begin at once.",
    ),
    "inputs": _key(
        _one_or_more(NAME, "a list of names of inputs"), "Which inputs of the pipeline it gets. Not given: all."
    ),
    **_SHARED,
    "output_schema": _key(_SCHEMA, "A JSON Schema that the agent's answer has to fit; inline, or the path of a file."),
    "gate": _key(_ANY_GATE, "What decides whether the result is accepted."),
    "gates": _key(list_of(_ANY_GATE, "a list of gates", most=10), "Several gates, passed in this order."),
}
_ANY_STAGE = group("a group with name and step", _OF_STAGES, make=dict, needed=("name", "step"))
_OF_INPUTS = {
    "description": _key(TEXT, "What to give."),
    "default": _key(_DEFAULT_TEXT, "The value when none is given. Without a default the input is required."),
    "secret": _key(BOOLEAN, "Never show its value, in no report and no message.", default=False),
}
_ANY_INPUT = optional(group("a group with description, default and secret, or nothing", _OF_INPUTS, make=dict))
_GATE_DEFAULTS = group(
    "a group with agent, model, timeout, max_attempts and min_score", {**_CRITIC, **_JUDGED}, make=dict
)
_OF_DEFAULTS = {**_SHARED, "gate": _key(_GATE_DEFAULTS, "For gates that do not say otherwise.")}
_OF_PIPELINES = {
    "name": _key(_STAGE_NAME, "The pipeline's name."),
    "description": _key(TEXT, "What it is for."),
    "inputs": _key(
        _by_name(
            "inputs by name, such as {topic: {description: what to write about}}", NAME, _ANY_INPUT, most=MOST_NAMES
        ),
        "Values that a run is given with `--input name=value`.",
    ),
    "workspace": _key(
        one_of(*(word.value for word in WorkspaceKind), meaning=WorkspaceKind),
        "Where stages work. directory: an empty one. worktree: the repository at its last commit, apart from your "
        "checkout. checkout: your own working tree, one stage at a time.",
        WorkspaceKind.DIRECTORY.value,
    ),
    "max_parallel": _key(_whole(1, 100), "How many stages may run at the same time.", _PIPELINE["max_parallel"]),
    "max_budget_usd": _key(_DOLLARS, "How many dollars a run may cost."),
    "defaults": _key(
        group("a group with keys of stages", _OF_DEFAULTS, make=dict),
        "What holds for stages that do not say otherwise.",
    ),
    "stages": _key(
        list_of(
            replace(_ANY_STAGE, schema={**_ANY_STAGE.schema, "not": {"required": ["gate", "gates"]}}),
            "a list of stages, at least one, each with name and step",
            least=1,
            most=MOST_STAGES,
        ),
        "What is done. The order follows from `needs`; stages that do not need each other run at the same time.",
    ),
}
PIPELINE = group("a group with name and stages", _OF_PIPELINES, make=dict, needed=("name", "stages"))


def pipeline_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a pipeline's file, with the meaning of every key.

    It refuses nothing that `load_pipeline` takes. What it cannot say, such as that needed stages exist, only the
    loader finds.
    """
    groups = ({"description": _GATE_MEANINGS[kind], **_GATE_GROUPS[kind].schema} for kind in GateKind)
    gate = {
        "description": "What decides whether the stage's result is accepted.",
        "anyOf": [{"enum": list(_GATE_WORDS)}, *groups],
    }
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "codeloupe pipeline",
        "description": "A pipeline of agent stages, as `codeloupe pipeline run` takes it.",
        **PIPELINE.schema,
        "$defs": {"gate": gate},
    }
    return deepcopy(whole)
