"""What no kind of value can tell: whether the names and files that a pipeline's file speaks of are there.

These checks look at the plain values and pass over what is not of its kind, so that they find their mistakes in a
file that has others too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from codeloupe.config.kinds import Place, Wrong, in_words
from codeloupe.config.yaml import quote
from codeloupe.pipeline.artifact_patterns import matches
from codeloupe.pipeline.artifacts import answer_name
from codeloupe.pipeline.definition_files import FileRefused, NamedFiles
from codeloupe.pipeline.definition_kinds import FILE, MOST_NAMES, MOST_SCHEMAS, MOST_STAGES
from codeloupe.pipeline.definition_problems import Complaints, nearest
from codeloupe.pipeline.definition_schemas import SchemaRefused, check_schema

_FOLDER_HINT = "paths are relative to the pipeline's folder"
_SCHEMA_HINT = "correct the schema"

Document = Mapping[str, Any]
Stages = Sequence[tuple[int, Mapping[str, Any]]]


def check_references(
    document: Document, files: NamedFiles, complaints: Complaints, *, agents: Collection[str] | None = None
) -> None:
    """Complain about stages, inputs, agents and files that are spoken of and are not there, and about circles.

    `agents` are those that there are; None leaves that to whoever knows them.
    """
    stages = _stages_of(document)
    if agents is not None:
        _check_agents(document, stages, agents, complaints)
    _check_names(stages, complaints)
    _check_needs(stages, complaints)
    _check_inputs(document, stages, complaints)
    _check_gate_keys(stages, complaints)
    _check_required(document, stages, complaints)
    for place, written in _texts(document, stages):
        try:
            files.check_text(written)
        except FileRefused as refused:
            complaints.add(place, str(refused), _FOLDER_HINT)
    for place, given in _schemas(document, stages):
        _check_schema(place, given, files, complaints)


def _stages_of(document: Document) -> Stages:
    stages = document.get("stages")
    listed = enumerate(stages[:MOST_STAGES]) if isinstance(stages, list) else ()
    return [(position, stage) for position, stage in listed if isinstance(stage, Mapping)]


def _name_of(stage: Mapping[str, Any]) -> str | None:
    name = stage.get("name")
    return name if isinstance(name, str) else None


def _check_names(stages: Stages, complaints: Complaints) -> None:
    first: dict[str, int] = {}
    for position, stage in stages:
        name = _name_of(stage)
        if name is not None and first.setdefault(name, position) != position:
            what = f"stage {first[name] + 1} is called {quote(name)} too"
            complaints.add(("stages", position, "name"), what, "give each stage its own name")


def _check_needs(stages: Stages, complaints: Complaints) -> None:
    names = {name: position for position, stage in stages if (name := _name_of(stage)) is not None}
    needs: dict[str, list[str]] = {name: [] for name in names}
    for position, stage in stages:
        own, seen = _name_of(stage), set[str]()
        for inside, needed in _words(stage.get("needs")):
            place = ("stages", position, "needs", *inside)
            if needed == own:
                complaints.add(place, "a stage cannot need itself", "remove it")
            elif needed not in names:
                what = f"there is no stage {quote(needed)}"
                complaints.add(place, what, nearest(needed, names, otherwise="name a stage of this file"))
            elif needed in seen:
                complaints.add(place, f"{quote(needed)} is given twice", "keep one of the two")
            elif own is not None:
                needs[own].append(needed)
            seen.add(needed)
    for circle in _circles(needs):
        what = f"these stages wait for each other: {' → '.join(circle)}"
        complaints.add(("stages", names[circle[0]], "needs"), what, "remove one of these needs")


def _circles(needs: Mapping[str, Sequence[str]]) -> Iterator[list[str]]:
    """Stages that need each other in a circle, the first one again at the end; each stage is in at most one."""
    left = {name: set(needed) for name, needed in needs.items()}
    while left:
        ready = [name for name, needed in left.items() if not needed & left.keys()]
        for name in ready:
            del left[name]
        if ready or not left:
            continue
        walked = [next(iter(left))]
        while (following := next(name for name in needs[walked[-1]] if name in left)) not in walked:
            walked.append(following)
        circle = walked[walked.index(following) :]
        yield [*circle, circle[0]]
        for name in circle:
            del left[name]


def _check_agents(document: Document, stages: Stages, agents: Collection[str], complaints: Complaints) -> None:
    for place, name in _agents_named(document, stages):
        if name not in agents:
            what = f"expected {in_words(tuple(agents))}, found {quote(name)}"
            complaints.add(place, what, nearest(name, agents, otherwise="name one of these"))


def _agents_named(document: Document, stages: Stages) -> Iterator[tuple[Place, str]]:
    defaults = document.get("defaults")
    groups: list[tuple[Place, Mapping[str, Any]]] = [(("defaults",), defaults)] if isinstance(defaults, Mapping) else []
    groups += [(("stages", position), stage) for position, stage in stages]
    for place, group in groups:
        yield from _named(group, place, ("agent",))
        yield from _named(group.get("gate"), (*place, "gate"), ("agent",))
        gates = group.get("gates")
        for index, gate in enumerate(gates[:MOST_NAMES] if isinstance(gates, list) else ()):
            yield from _named(gate, (*place, "gates", index), ("agent",))


def _check_inputs(document: Document, stages: Stages, complaints: Complaints) -> None:
    inputs = document.get("inputs")
    known = tuple(inputs) if isinstance(inputs, Mapping) else ()
    for position, stage in stages:
        for inside, name in _words(stage.get("inputs")):
            if name not in known:
                what = f"the pipeline has no input {quote(name)}"
                hint = nearest(name, known, otherwise="add it to the pipeline's `inputs`")
                complaints.add(("stages", position, "inputs", *inside), what, hint)


def _check_gate_keys(stages: Stages, complaints: Complaints) -> None:
    for position, stage in stages:
        if "gate" in stage and "gates" in stage:
            what = "a stage has `gate` for one, or `gates` for several"
            complaints.add(("stages", position, "gates"), what, "put all of them into `gates`")


def _check_required(document: Document, stages: Stages, complaints: Complaints) -> None:
    """A stage that does not write leaves its answer and nothing else."""
    defaults = document.get("defaults")
    shared = defaults if isinstance(defaults, Mapping) else {}
    for position, stage in stages:
        artifacts = stage.get("artifacts")
        if stage.get("writes", shared.get("writes")) is not False or not isinstance(artifacts, Mapping):
            continue
        answer = answer_name(_name_of(stage) or "", structured="output_schema" in stage, taken=())
        for inside, required in _words(artifacts.get("required")):
            if not matches(answer, required, recursive=False):
                what = f"a stage that does not write leaves {answer} and no {quote(required)}"
                place = ("stages", position, "artifacts", "required", *inside)
                complaints.add(place, what, "remove it, or let the stage write")


def _texts(document: Document, stages: Stages) -> Iterator[tuple[Place, str]]:
    """Every file of instructions that is named, with its place."""
    yield from _named(document.get("defaults"), ("defaults",), ("agent_definition",))
    for position, stage in stages:
        here = ("stages", position)
        yield from _named(stage, here, ("step", "agent_definition"))
        yield from _named(stage.get("gate"), (*here, "gate"), ("step",))
        gates = stage.get("gates")
        for index, gate in enumerate(gates[:MOST_NAMES] if isinstance(gates, list) else ()):
            yield from _named(gate, (*here, "gates", index), ("step",))


def _named(group: object, place: Place, keys: Sequence[str]) -> Iterator[tuple[Place, str]]:
    if isinstance(group, Mapping):
        yield from (((*place, key), group[key]) for key in keys if _is_path(group.get(key)))


def _is_path(value: object) -> bool:
    try:
        FILE.read(value)
    except Wrong:
        return False
    return True


def _schemas(document: Document, stages: Stages) -> Iterator[tuple[Place, object]]:
    """Every schema, or the name of its file, with its place."""
    yield from _schemas_of_artifacts(document.get("defaults"), ("defaults",))
    for position, stage in stages:
        if "output_schema" in stage:
            yield ("stages", position, "output_schema"), stage["output_schema"]
        yield from _schemas_of_artifacts(stage, ("stages", position))


def _schemas_of_artifacts(group: object, place: Place) -> Iterator[tuple[Place, object]]:
    artifacts = group.get("artifacts") if isinstance(group, Mapping) else None
    schemas = artifacts.get("schemas") if isinstance(artifacts, Mapping) else None
    if isinstance(schemas, Mapping):
        yield from (
            ((*place, "artifacts", "schemas", name), each) for name, each in list(schemas.items())[:MOST_SCHEMAS]
        )


def _check_schema(place: Place, given: object, files: NamedFiles, complaints: Complaints) -> None:
    try:
        if isinstance(given, Mapping):
            check_schema(given)
        elif isinstance(given, str) and _is_path(given):
            files.schema(given)
    except FileRefused as refused:
        complaints.add(place, str(refused), _FOLDER_HINT)
    except SchemaRefused as refused:
        complaints.add(place, str(refused), _SCHEMA_HINT)


def _words(value: object) -> list[tuple[Place, str]]:
    """The texts of a list, each with its place in it, or the text that stands for a list of one."""
    if isinstance(value, str):
        return [((), value)]
    listed = enumerate(value[:MOST_NAMES]) if isinstance(value, list) else ()
    return [((index,), each) for index, each in listed if isinstance(each, str)]
