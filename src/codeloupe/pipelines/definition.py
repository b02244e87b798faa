"""A pipeline's file: read, checked as a whole before anything is spent, and made the pipeline that it defines.

`pipeline.schema.json` has every key with its meaning, and what is expected where a value is wrong. Whether the names
and files exist that the file names, no schema can tell.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import NoneType
from typing import Any

from msgspec import convert, to_builtins
from msgspec.structs import replace

from codeloupe.config import yaml as reader
from codeloupe.config.files import read_config_file
from codeloupe.config.kinds import LONGEST_TEXT, Mistake, Place, in_words
from codeloupe.errors import ConfigError, UsageError
from codeloupe.model.agent import AGENT_NAMES
from codeloupe.model.pipeline import GateDefinition, GateKind, PipelineDefinition, StageDefinition
from codeloupe.model.scope import check_pattern
from codeloupe.pipelines.artifacts import SchemaRefused, answer_name, check_schema, matches, parse_value, read_named
from codeloupe.system.regex import regex

_FILE_HINT = "name a pipeline's file, such as pipeline.yaml"
_HINT = "correct each line; `codeloupe pipeline schema` describes every key, `codeloupe pipeline validate` checks"
_SCHEMA_HINT = "`codeloupe pipeline schema` describes every key"
# What other programs, or other places of ours, call some of the keys.
_SYNONYMS = {
    "budget": "max_budget_usd",
    "budget_usd": "budget",
    "depends_on": "needs",
    "max_budget_usd": "budget",
    "prompt": "step",
    "timeout_seconds": "timeout",
}
# Where the field of a definition is not called like its key.
_FIELDS = {"timeout": "timeout_seconds", "budget": "max_budget_usd"}
# Files by their content, and what only bounds a call or a gate left out: it shapes no work and no verdict.
_FILES = ("step", "agent_definition")
_PARTS = ("agent", "model", "writes", "tools", "needs", "inputs", "artifacts", "output_schema")
_GATE_PARTS = ("kind", "agent", "model", "command", "prompt", "fail_on", "experts", "min_score")
_TYPES: Mapping[str, Any] = {
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": int | float,
    "array": list,
    "object": Mapping,
    "null": NoneType,
}
_DURATION = regex(r"(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,6})s)?")
_UNUSABLE = regex("[\x00\ud800-\udfff]")
# Words that mean something to a shell and nothing to a program; whoever writes one expects a shell.
_SHELL_WORDS = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "2>&1"})
# More entries than these are a mistake already, and are not looked at.
_MOST_NAMES = 100

Values = Mapping[str, Any]
_Hint = str | Callable[[], str]


def pipeline_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a pipeline's file. It refuses nothing that `load_pipeline` takes."""
    schema: dict[str, Any] = json.loads(Path(__file__).with_name("pipeline.schema.json").read_text(encoding="utf-8"))
    schema["$defs"]["agent"]["examples"] = list(AGENT_NAMES)
    return schema


_schema = cache(pipeline_schema)


def load_pipeline(path: Path, *, agents: Collection[str] | None = AGENT_NAMES) -> PipelineDefinition:
    """The pipeline that a YAML file defines. Every file that it names was found and read.

    `agents` are the names of those that it may name; with None every name is taken. Raises ConfigError, which lists
    every mistake with its line.
    """
    try:
        text = read_config_file(path, name=str(path), follow_symlinks=True).text
        # Schemas may be inside the file, some levels below its own.
        root = reader.read_document(str(path), text, deepest_level=24)
    except ConfigError as error:
        is_missing = isinstance(error.__cause__, FileNotFoundError)
        raise ConfigError(error.message, hint=_FILE_HINT if is_missing else error.hint) from error
    except ValueError as error:  # a NUL byte
        raise ConfigError(f"{reader.escape(str(path))}: this cannot be the name of a file", hint=_FILE_HINT) from error
    except reader.Refused as refusal:
        raise reader.config_error([refusal.problem]) from refusal
    files = _NamedFiles(path.absolute().parent)
    values = _Checks(str(path), root, files).values(agents)
    defaults = values.get("defaults", {})
    made = {
        "file": path.absolute(),
        "inputs": [{"name": name, **(about or {})} for name, about in values.get("inputs", {}).items()],
        "stages": [_stage(stage, defaults, files) for stage in values["stages"]],
        "digest": files.digest(text),
    }
    return convert({**{key: value for key, value in values.items() if key != "defaults"}, **made}, PipelineDefinition)


def input_values(definition: PipelineDefinition, given: Mapping[str, str]) -> Mapping[str, str]:
    """The value of every input: what is given, else its default. Raises UsageError for missing and unknown ones."""
    known = {each.name: each for each in definition.inputs}
    unknown = [name for name in given if name not in known]
    wanted = [name for name, each in known.items() if each.required and not given.get(name, "").strip()]
    mistakes = [f"there is no input {reader.plain_or_quoted(name)}" for name in unknown]
    mistakes += [f"the input {name} is {'empty' if name in given else 'missing'}" for name in wanted]
    if mistakes:
        meant = " ".join(filter(None, (did_you_mean(name, known) for name in unknown)))
        missing = f"give {' '.join(f'--input {name}=VALUE' for name in wanted)}" if wanted else ""
        inputs = f"the inputs are: {', '.join(known)}" if known else "the pipeline has no inputs"
        raise UsageError(f"{definition.name}: {'; '.join(mistakes)}", hint=meant or missing or inputs)
    return {name: given.get(name, each.default or "") for name, each in known.items()}


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """A hint that names the known word which was probably meant; empty when none is near."""
    if not isinstance(word, str):
        return ""
    words = tuple(known)
    meant = synonym if (synonym := _SYNONYMS.get(word)) in words else reader.closest(word, words)
    return f"did you mean `{meant}`?" if meant else ""


def _stage(values: Values, defaults: Values, files: _NamedFiles) -> StageDefinition:
    given = {**{key: value for key, value in defaults.items() if key != "gate"}, **values}
    gate = given.pop("gate", None)
    gates = given.pop("gates", ()) or ([gate] if gate else ())
    given["gates"] = [_gate(gate, defaults.get("gate", {}), files) for gate in gates]
    if "artifacts" in given:
        rule = given["artifacts"]
        schemas = {name: files.schema(each) for name, each in rule.get("schemas", {}).items()}
        listed = {key: [each] for key, each in rule.items() if isinstance(each, str)}
        given["artifacts"] = {**rule, **listed, "schemas": schemas}
    if "output_schema" in given:
        given["output_schema"] = files.schema(given["output_schema"])
    stage = convert(_fields(given, files), StageDefinition)
    parts = {key: _sha256(files.text(given[key])) if key in given else "" for key in _FILES}
    parts |= {key: _digest(getattr(stage, key)) for key in _PARTS}
    return replace(stage, parts={**parts, "gates": _digest([gate.digest for gate in stage.gates])})


def _gate(written: str | Values, defaults: Values, files: _NamedFiles) -> GateDefinition:
    own = {"kind": written} if isinstance(written, str) else {"kind": GateKind.COMMAND.value, **written}
    known = _gate_groups()[own["kind"]]["properties"]
    values = {**{key: value for key, value in defaults.items() if key in known}, **own}
    if isinstance(values.get("command"), str):
        values["command"] = shlex.split(values["command"])
    gate = convert(_fields(values, files), GateDefinition)
    step = _sha256(files.text(values["step"])) if "step" in values else ""
    return replace(gate, digest=_digest([step, *(getattr(gate, key) for key in _GATE_PARTS)]))


def _fields(values: Values, files: _NamedFiles) -> dict[str, Any]:
    made = {key: files.folder / values[key] for key in _FILES if key in values}
    made |= {key: [values[key]] for key in ("needs", "inputs", "tools") if isinstance(values.get(key), str)}
    if "timeout" in values:
        made["timeout"] = _seconds(values["timeout"])
    return {_FIELDS.get(key, key): value for key, value in {**values, **made}.items()}


def _seconds(value: float | str) -> float:
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return float(value)
    return float(sum(int(part or 0) * unit for part, unit in zip(found.groups(), (3600, 60, 1), strict=True)))


def _digest(value: object) -> str:
    return _sha256(json.dumps(to_builtins(value, enc_hook=dict), sort_keys=True))[:16]


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class _NamedFiles:
    """The files that a pipeline's file names, as they are written there. Each is read once and counts in the digest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._texts: dict[str, str] = {}
        self._schemas: dict[str, Mapping[str, Any]] = {}

    def text(self, written: str) -> str:
        """The text of a file. Raises SchemaRefused, which names it."""
        if written not in self._texts:
            self._texts[written] = read_named(self.folder / written, written)
        return self._texts[written]

    def schema(self, given: str | Values) -> Values:
        """A schema, or the one in a file, which is valid. Raises SchemaRefused."""
        if not isinstance(given, str):
            return given
        if given not in self._schemas:
            text = self.text(given)
            try:
                if Path(given).suffix.lower() not in (".json", ".yaml", ".yml"):
                    raise SchemaRefused("expected a file that ends in .json, .yaml or .yml")  # noqa: TRY301 - as below
                schema = parse_value(given, text)
                check_schema(schema)
            except SchemaRefused as refused:
                raise SchemaRefused(f"{reader.escape(given)}: {refused}") from refused
            self._schemas[given] = schema
        return self._schemas[given]

    def digest(self, text: str) -> str:
        """A name for the content of the pipeline's own text and of every file that was read."""
        return _sha256(text + "".join(f"\0{name}\0{_sha256(its)}" for name, its in sorted(self._texts.items())))


def _resolved(schema: Values) -> Values:
    while "$ref" in schema:
        target: Any = _schema()
        for step in schema["$ref"].split("/")[1:]:
            target = target[step]
        schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
    return schema


@cache
def _gate_groups() -> Mapping[str, Values]:
    return {group["properties"]["kind"]["enum"][0]: group for group in _schema()["$defs"]["gate"]["anyOf"][1:]}


def _mistakes(schema: Values, value: Any, place: Place = ()) -> Iterator[Mistake]:
    """All that a part of the schema finds wrong with a value."""
    if schema.get("$ref") == "#/$defs/gate" and not isinstance(value, int | list | None):
        yield from _gate_mistakes(value, place)
        return
    whole = _resolved(schema)
    options = [_resolved(each) for each in whole.get("anyOf", (whole,))]
    # To Python a boolean is a whole number too.
    kinds = [each for each in options if isinstance(value, _TYPES[each["type"]])]
    fitting = next((each for each in kinds if isinstance(value, bool) is (each["type"] == "boolean")), None)
    objection = "" if fitting is None else _objection(fitting, value)
    if objection is not None:
        expected = _expected(fitting or whole) or _expected(whole)
        choices = tuple((fitting or whole).get("enum", ()))
        wants_text = any(each["type"] == "string" for each in options)
        yield Mistake(objection or f"expected {expected}", place, choices, found=not objection, wants_text=wants_text)
    elif isinstance(value, list) and fitting is not None:
        for index, each in enumerate(value):
            yield from _mistakes(fitting["items"], each, (*place, index))
    elif isinstance(value, Mapping) and fitting is not None:
        yield from _key_mistakes(fitting, value, place)


def _expected(schema: Values) -> str:
    if "enum" in schema:
        return in_words(schema["enum"])
    if schema.get("type") == "integer":
        return f"a whole number from {schema['minimum']} to {schema['maximum']:,}"
    return str(schema.get("errorMessage", "true or false" if schema.get("type") == "boolean" else ""))


def _objection(schema: Values, value: Any) -> str | None:
    """What is wrong with a value of the right type; empty where it is only not as expected, None where it is fine."""
    if isinstance(value, str):
        is_usable = schema.get("minLength", 0) <= len(value) <= LONGEST_TEXT and not _UNUSABLE.search(value)
        if not is_usable or ("pattern" in schema and not re.fullmatch(schema["pattern"][1:-1], value)):
            return ""
        if "enum" in schema and value not in schema["enum"]:
            return ""
        check = _OBJECTIONS.get(schema.get("x-check", ""))
        return None if check is None else check(value)
    if isinstance(value, bool | NoneType):
        return None
    if isinstance(value, int | float):
        is_within = schema.get("minimum", 0) <= value <= schema["maximum"]
        return None if is_within and value != schema.get("exclusiveMinimum") else ""
    most = schema.get("maxItems", schema.get("maxProperties"))
    if most is not None and len(value) > most:
        return f"more than {most:,} entries"
    return "" if len(value) < schema.get("minItems", 0) else None


def _command_objection(value: str) -> str | None:
    try:
        words = shlex.split(value)
    except ValueError:
        return ""
    shell = next((word for word in words if word in _SHELL_WORDS), None)
    if shell is not None:
        return f"no shell reads this, so `{shell}` would be an argument: write several gates, or [sh, -c, ...]"
    return None if words and words[0] else ""


def _glob_objection(value: str) -> str | None:
    problem = check_pattern(value)
    return f"expected a pattern that makes sense: {problem}" if problem else None


_OBJECTIONS: Mapping[str, Callable[[str], str | None]] = {
    "command": _command_objection,
    "duration": lambda value: None if 0 < _seconds(value) <= 30 * 24 * 3600 else "",
    "glob": _glob_objection,
}


def _key_mistakes(schema: Values, value: Values, place: Place) -> Iterator[Mistake]:
    """Of a group with known keys, or with names of the user's own; of an inline JSON Schema nothing is looked at."""
    known = schema.get("properties")
    if known is not None:
        unknown = (str(key) for key in value if key not in known)
        yield from (Mistake("unknown key", (*place, key), tuple(known), found=False) for key in unknown)
        missing = (key for key in schema.get("required", ()) if key not in value)
        yield from (Mistake(f"`{key}` is missing", place, found=False) for key in missing)
        for key in (key for key in known if key in value):
            yield from _mistakes(known[key], value[key], (*place, key))
    elif "propertyNames" in schema:
        for key, each in value.items():
            for mistake in _mistakes(schema["propertyNames"], key):
                yield Mistake(f"as a key, {mistake.what}", (*place, key), found=False)
            yield from _mistakes(schema["additionalProperties"], each, (*place, key))


def _gate_mistakes(value: str | Values, place: Place) -> Iterator[Mistake]:
    kinds = tuple(_gate_groups())
    if isinstance(value, str):
        if value == GateKind.COMMAND:
            yield Mistake("a command gate says what to run, such as {command: pytest -q}", place, found=False)
        elif value not in kinds:
            yield Mistake(f"expected {_schema()['$defs']['gate']['errorMessage']}", place, kinds)
        return
    word = value.get("kind", GateKind.COMMAND.value if "command" in value else None)
    if word is None and "kind" not in value:
        yield Mistake(f"`kind` is missing: {in_words(kinds)}", place, found=False)
    elif not isinstance(word, str) or word not in kinds:
        yield Mistake(f"expected {in_words(kinds)}", (*place, "kind"), kinds)
    else:
        owners = {key: [kind for kind, group in _gate_groups().items() if key in group["properties"]] for key in value}
        elsewhere = {key: kinds for key, kinds in owners.items() if kinds and word not in kinds}
        article = "an" if word == GateKind.APPROVAL else "a"
        for key, others in elsewhere.items():
            what = f"{article} {word} gate has no such key; it belongs to {' and '.join(others)}"
            yield Mistake(what, (*place, key), found=False)
        rest = {key: each for key, each in value.items() if key not in elsewhere}
        yield from _mistakes(_gate_groups()[word], rest, place)


class _Checks:
    """One pipeline's file, with all that is wrong in it, by places in its tree.

    The checks of names and files look at the plain values and pass over what is not of its kind, so that they find
    their mistakes in a file that has others.
    """

    def __init__(self, name: str, root: reader.MapNode, files: _NamedFiles) -> None:
        self._name = name
        self._root = root
        self._files = files
        # To guess what was meant takes time, and only some are shown, so a hint is worked out late.
        self._complaints: dict[tuple[int, str], _Hint] = {}
        document: Any = reader.plain(root)
        self._document: Values = document
        stages = self._document.get("stages")
        listed = enumerate(stages[:_MOST_NAMES]) if isinstance(stages, list) else ()
        self._stages = [(number, stage) for number, stage in listed if isinstance(stage, Mapping)]
        self._defaults = each if isinstance(each := self._document.get("defaults"), Mapping) else {}
        # The places where agents, files and gates are named.
        self._tops: list[tuple[Place, Values]] = [
            (("defaults",), self._defaults),
            *((("stages", number), stage) for number, stage in self._stages),
        ]

    def values(self, agents: Collection[str] | None) -> Values:
        """The values of the file. Raises ConfigError with everything that is wrong, in the order of the file."""
        for problem in reader.repetitions(self._name, self._root):
            self._complaints[problem.line, problem.what] = problem.hint
        for node in _numbers_with_colons(self._root):
            what = f"{reader.quote(node.text)} is read as the number {node.value:,}"
            self._complaints[node.line, what] = "write a duration as 1h30m, a text in quotes"
        for mistake in _mistakes(_schema(), self._document):
            self._add_mistake(mistake)
        for place, name in self._named("agent"):
            if agents is not None and name not in agents:
                what = f"expected {in_words(tuple(agents))}, found {reader.quote(name)}"
                self._add(place, what, _nearest(name, agents, otherwise="name one of these"))
        self._check_names_and_needs()
        self._check_files()
        for number, stage in self._stages:
            self._check_stage(number, stage)
        ranked = sorted(self._complaints.items(), key=lambda each: each[0][0])
        problems = []
        for number, ((line, what), late) in enumerate(ranked):
            hint = "" if number >= reader.MOST_LISTED else late if isinstance(late, str) else late()
            # The one hint for all says the same once.
            hint = "" if hint == _SCHEMA_HINT and len(ranked) > 1 else hint
            problems.append(reader.Problem(f"{reader.escape(self._name)}:{line}", what, hint, line))
        if problems:
            raise reader.config_error(problems, subject="the pipeline", hint=_HINT)
        return self._document

    def _add(self, place: Place, what: str, hint: _Hint) -> None:
        """Complain about what is at a place, or about its absence. An alias leads to one place twice: counts once."""
        subject, rest = "", place
        if place[:1] == ("stages",) and len(place) > 1:
            name = next((stage.get("name") for number, stage in self._stages if number == place[1]), None)
            shown = reader.plain_or_quoted(name) if isinstance(name, str) and name else int(place[1]) + 1
            subject, rest = f"stage {shown}: ", place[2:]
        if rest:
            subject += f"{reader.path_in_words(reader.plain_or_quoted(str(rest[0])), rest[1:])}: "
        _, line = reader.part(self._root, place)
        self._complaints[line, f"{subject}{what}"] = hint

    def _add_mistake(self, mistake: Mistake) -> None:
        blamed, _ = reader.part(self._root, mistake.place)

        def hint() -> str:
            # What is wrong is either the value or, for an unknown key, the key itself.
            value = reader.plain(blamed) if mistake.found or not mistake.place else mistake.place[-1]
            if meant := did_you_mean(value, mistake.choices):
                return meant
            if mistake.wants_text and isinstance(value, bool | int | float):
                return "put it in quotes"
            keys = mistake.choices and not mistake.found
            return f"the keys are {in_words(mistake.choices)}" if keys else _SCHEMA_HINT

        what = f"{mistake.what}, found {reader.describe(blamed)}" if mistake.found else mistake.what
        self._add(mistake.place, what, hint)

    def _check_files(self) -> None:
        below = "paths are relative to the pipeline's folder"
        for key in _FILES:
            for place, written in self._named(key):
                try:
                    self._files.text(written)
                except SchemaRefused as refused:
                    self._add(place, str(refused), below)
        for place, given in self._schemas():
            try:
                if isinstance(given, Mapping):
                    check_schema(given)
                elif _is_text(given):
                    self._files.schema(given)
            except SchemaRefused as refused:
                self._add(place, str(refused), "correct the schema" if isinstance(given, Mapping) else below)

    def _check_names_and_needs(self) -> None:
        names: dict[str, int] = {}
        for number, stage in self._stages:
            name = stage.get("name")
            if isinstance(name, str) and names.setdefault(name, number) != number:
                what = f"stage {names[name] + 1} is called {reader.quote(name)} too"
                self._add(("stages", number, "name"), what, "give each stage its own name")
        needs: dict[str, list[str]] = {name: [] for name in names}
        for number, stage in self._stages:
            own, seen = stage.get("name"), set[str]()
            for inside, needed in _words(stage.get("needs")):
                place = ("stages", number, "needs", *inside)
                if needed == own:
                    self._add(place, "a stage cannot need itself", "remove it")
                elif needed not in names:
                    hint = _nearest(needed, names, otherwise="name a stage of this file")
                    self._add(place, f"there is no stage {reader.quote(needed)}", hint)
                elif needed in seen:
                    self._add(place, f"{reader.quote(needed)} is given twice", "keep one of the two")
                elif isinstance(own, str):
                    needs[own].append(needed)
                seen.add(needed)
        for circle in _circles(needs):
            what = f"these stages wait for each other: {' → '.join(circle)}"
            self._add(("stages", names[circle[0]], "needs"), what, "remove one of these needs")

    def _check_stage(self, number: int, stage: Values) -> None:
        """Its inputs and gates; and of one that does not write, that it has to leave its answer and nothing else."""
        inputs, place = self._document.get("inputs"), ("stages", number)
        known = tuple(inputs) if isinstance(inputs, Mapping) else ()
        for inside, name in _words(stage.get("inputs")):
            if name not in known:
                hint = _nearest(name, known, otherwise="add it to the pipeline's `inputs`")
                self._add((*place, "inputs", *inside), f"the pipeline has no input {reader.quote(name)}", hint)
        if "gate" in stage and "gates" in stage:
            what = "a stage has `gate` for one, or `gates` for several"
            self._add((*place, "gates"), what, "put all of them into `gates`")
        artifacts, named = stage.get("artifacts"), stage.get("name")
        if stage.get("writes", self._defaults.get("writes")) is not False or not isinstance(artifacts, Mapping):
            return
        answer = answer_name(named if isinstance(named, str) else "", structured="output_schema" in stage, taken=())
        for inside, required in _words(artifacts.get("required")):
            if not matches(answer, required, recursive=False):
                what = f"a stage that does not write leaves {answer} and no {reader.quote(required)}"
                self._add((*place, "artifacts", "required", *inside), what, "remove it, or let the stage write")

    def _named(self, key: str) -> Iterator[tuple[Place, str]]:
        """Every text under a key of the defaults, the stages and their gates, with its place."""
        for place, top in self._tops:
            gates = top.get("gates")
            listed = enumerate(gates[:_MOST_NAMES] if isinstance(gates, list) else ())
            groups = [((), top), (("gate",), top.get("gate")), *((("gates", index), gate) for index, gate in listed)]
            for inside, each in groups:
                if isinstance(each, Mapping) and _is_text(each.get(key)):
                    yield (*place, *inside, key), each[key]

    def _schemas(self) -> Iterator[tuple[Place, Any]]:
        for place, each in self._tops:
            if "output_schema" in each and place != ("defaults",):
                yield (*place, "output_schema"), each["output_schema"]
            artifacts = each.get("artifacts")
            schemas = artifacts.get("schemas") if isinstance(artifacts, Mapping) else None
            for name, schema in list(schemas.items())[:_MOST_NAMES] if isinstance(schemas, Mapping) else ():
                yield (*place, "artifacts", "schemas", name), schema


def _numbers_with_colons(node: reader.Node) -> Iterator[reader.ScalarNode]:
    """Numbers such as 1:30, which YAML reads in base 60 and people as a time, each in a way of their own."""
    if isinstance(node, reader.ScalarNode):
        if ":" in node.text and isinstance(node.value, int | float) and not isinstance(node.value, bool):
            yield node
        return
    for inner in node.items if isinstance(node, reader.ListNode) else (value for _, value in node.entries):
        yield from _numbers_with_colons(inner)


def _circles(needs: Mapping[str, Sequence[str]]) -> Iterator[list[str]]:
    """Stages that need each other in a circle, the first one again at the end; each stage is in at most one."""
    left = dict(needs)
    while True:
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            circle = error.args[1][::-1]
            yield circle
            left = {name: [each for each in left[name] if each not in circle] for name in left if name not in circle}
        else:
            return


def _nearest(word: str, known: Iterable[str], *, otherwise: str) -> _Hint:
    return lambda: did_you_mean(word, known) or otherwise


def _is_text(value: object) -> bool:
    return isinstance(value, str) and not any(_mistakes(_schema()["$defs"]["text"], value))


def _words(value: object) -> list[tuple[Place, str]]:
    """The texts of a list, each with its place in it, or the text that is short for a list of one."""
    if isinstance(value, str):
        return [((), value)]
    listed = enumerate(value[:_MOST_NAMES]) if isinstance(value, list) else ()
    return [((index,), each) for index, each in listed if isinstance(each, str)]
