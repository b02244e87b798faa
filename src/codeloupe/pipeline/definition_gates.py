"""Gates as a pipeline's file has them: a word, or a group whose kind says which other keys it may have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import fields

from codeloupe.config.kinds import NAMES, SEVERITY, TEXT, Kind, Mistake, Wrong, group, in_words, one_of
from codeloupe.model.pipeline_definition import GateDefinition, GateKind
from codeloupe.pipeline.definition_kinds import AGENT, ATTEMPTS, COMMAND, DURATION, FILE, SCORE, described

_KINDS = tuple(kind.value for kind in GateKind)
_WORDS = tuple(kind for kind in _KINDS if kind != GateKind.COMMAND)
_DEFAULT = {each.name: each.default for each in fields(GateDefinition)}
_EXPECTED = f"{in_words(_WORDS)}, or a group such as {{command: pytest -q}} or {{kind: critic, min_score: 60}}"

_TIMEOUT = described(
    DURATION,
    "How long the gate may take; for an approval, how long a person is waited for before the run stops.",
    _DEFAULT["timeout_seconds"],
)
_ATTEMPTS = described(ATTEMPTS, "How often the stage may be attempted in all.", _DEFAULT["max_attempts"])
_SCORE = described(SCORE, "When no attempt passed, the best one is taken from this score on.", _DEFAULT["min_score"])
_AGENT = described(AGENT, "The agent that is the critic.")
_MODEL = described(TEXT, "The critic's model.")
_KEYS: Mapping[GateKind, Mapping[str, Kind]] = {
    GateKind.CRITIC: {
        "step": described(FILE, "A file with what the critic is to look at. Not given: the built-in instructions."),
        "prompt": described(TEXT, "A sentence for the critic, in addition to its instructions."),
        "agent": _AGENT,
        "model": _MODEL,
        "timeout": _TIMEOUT,
        "max_attempts": _ATTEMPTS,
        "min_score": _SCORE,
    },
    GateKind.REVIEW: {
        "fail_on": described(one_of(*SEVERITY.choices), "Findings from this severity on send the stage back."),
        "experts": described(NAMES, "The checklists to review by."),
        "timeout": _TIMEOUT,
        "max_attempts": _ATTEMPTS,
        "min_score": _SCORE,
    },
    GateKind.COMMAND: {
        "command": described(COMMAND, "The program and its arguments; exit code 0 passes. No shell reads it."),
        "timeout": _TIMEOUT,
        "max_attempts": _ATTEMPTS,
    },
    GateKind.APPROVAL: {
        "prompt": described(TEXT, "What the person is asked."),
        "timeout": _TIMEOUT,
    },
}
_WITH_ARTICLE = {kind: f"{'an' if kind is GateKind.APPROVAL else 'a'} {kind.value}" for kind in GateKind}
_MEANINGS = {
    GateKind.CRITIC: "An agent that reads the result and answers PASS, REWORK or FAIL with a score from 0 to 100.",
    GateKind.REVIEW: "codeloupe's own review of what the stage changed.",
    GateKind.COMMAND: "A program, such as tests or a linter.",
    GateKind.APPROVAL: "A person, on the terminal or by `codeloupe pipeline approve`.",
}


def _of_kind(kind: GateKind) -> Kind:
    keys = {"kind": one_of(kind.value), **_KEYS[kind]}
    needed = ("command",) if kind is GateKind.COMMAND else ("kind",)
    return group(f"a group of a {kind.value} gate", keys, make=dict, needed=needed)


def _accept(value: object) -> dict[str, Any]:
    if isinstance(value, str):
        return _word(value)
    if not isinstance(value, Mapping):
        raise ValueError("no gate")
    kind = _kind_of(value)
    misplaced = list(_misplaced(kind, value))
    rest = {key: each for key, each in value.items() if key not in {mistake.place[0] for mistake in misplaced}}
    try:
        read: dict[str, Any] = _OF_KIND[kind].read(rest)
    except Wrong as wrong:
        raise Wrong([*misplaced, *wrong.mistakes]) from None
    if misplaced:
        raise Wrong(misplaced)
    return {**read, "kind": kind}


def _word(word: str) -> dict[str, Any]:
    if word == GateKind.COMMAND:
        raise Wrong([Mistake("a command gate says what to run, such as {command: pytest -q}", found=False)])
    if word not in _WORDS:
        raise Wrong([Mistake(f"expected {_EXPECTED}", choices=_KINDS)])
    return {"kind": GateKind(word)}


def _kind_of(value: Mapping[str, object]) -> GateKind:
    if "kind" not in value and "command" in value:
        return GateKind.COMMAND
    if "kind" not in value:
        raise Wrong([Mistake(f"`kind` is missing: {in_words(_KINDS)}", found=False)])
    word = value["kind"]
    if not isinstance(word, str) or word not in _KINDS:
        raise Wrong([Mistake(f"expected {in_words(_KINDS)}", ("kind",), _KINDS)])
    return GateKind(word)


def _misplaced(kind: GateKind, value: Mapping[str, object]) -> Iterator[Mistake]:
    """Keys that belong to gates of other kinds."""
    for key in value:
        others = [other.value for other, keys in _KEYS.items() if key in keys]
        if others and kind.value not in others:
            yield Mistake(
                f"{_WITH_ARTICLE[kind]} gate has no such key; it belongs to {' and '.join(others)}", (key,), found=False
            )


def with_defaults(gate: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """A gate that was read, with those of the defaults that its kind knows and that it does not give itself."""
    known = _KEYS[gate["kind"]]
    return {**{key: value for key, value in defaults.items() if key in known}, **gate}


_OF_KIND = {kind: _of_kind(kind) for kind in GateKind}
GATE = Kind(_EXPECTED, _accept, {"$ref": "#/$defs/gate"})
GATE_SCHEMA: dict[str, Any] = {
    "description": "What decides whether the stage's result is accepted.",
    "anyOf": [
        {"enum": list(_WORDS)},
        *({"description": _MEANINGS[kind], **_OF_KIND[kind].schema} for kind in GateKind),
    ],
}
GATE_DEFAULTS = group(
    "a group with agent, model, timeout, max_attempts and min_score",
    {"agent": _AGENT, "model": _MODEL, "timeout": _TIMEOUT, "max_attempts": _ATTEMPTS, "min_score": _SCORE},
    make=dict,
)
