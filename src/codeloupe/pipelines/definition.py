"""A pipeline's file: read, checked as a whole before anything is spent, and made the pipeline that it defines.

`pipeline.schema.json` has every key with its meaning, and what is expected where a value is wrong. Whether the names
and files exist that the file names, no schema can tell.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import MappingProxyType, NoneType
from typing import Any

from msgspec import convert, to_builtins
from msgspec.structs import replace

from codeloupe.config import yaml as reader
from codeloupe.config.files import MAX_FILE_BYTES, read_config_file, read_regular_file
from codeloupe.config.kinds import LONGEST_TEXT, Place, either
from codeloupe.errors import ConfigError, UsageError
from codeloupe.model.agent import AGENT_NAMES
from codeloupe.model.pipeline import GateDefinition, GateKind, PipelineDefinition, StageDefinition
from codeloupe.model.scope import check_pattern
from codeloupe.pipelines.artifacts import SchemaRefused, answer_name, check_schema, matches, parse_value, read_named
from codeloupe.system.regex import regex

FILE_NAMES = ("pipeline.yaml", "pipeline.yml")
_FILE_HINT = "give a pipeline file, such as pipeline.yaml, or its folder"
_HINT = (
    "correct each line, then check with `codeloupe pipeline validate`; `codeloupe pipeline schema` describes every key"
)
_SCHEMA_HINT = "`codeloupe pipeline schema` describes every key"
# Other names of some keys, in other programs or in other files of codeloupe.
_SYNONYMS = {"budget": "max_budget_usd", "max_budget_usd": "budget", "depends_on": "needs", "prompt": "step"}
# Fields of a definition whose name is not that of their key.
_FIELDS = {"timeout": "timeout_seconds", "budget": "max_budget_usd"}
# The keys that shape the work of a stage or the verdict of a gate. Limits such as a timeout do not.
_FILES = ("step", "agent_definition")
# Lists for which one text may be given.
_LISTS = ("needs", "inputs", "tools")
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
_STAGES = regex(rb"^stages[ \t]*:", re.MULTILINE)
_UNUSABLE = regex("[\x00\ud800-\udfff]")
# Words that only a shell understands; a user who writes one expects a shell.
_SHELL_WORDS = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "2>&1"})
# More entries than these are a mistake already, and are not looked at.
_MOST_NAMES = 100

_AS_WRITTEN: Mapping[str, str] = MappingProxyType({})

Values = Mapping[str, Any]
_Hint = str | Callable[[], str]


def pipeline_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a pipeline's file. It accepts all that `load_pipeline` does."""
    schema: dict[str, Any] = json.loads(Path(__file__).with_name("pipeline.schema.json").read_text(encoding="utf-8"))
    schema["$defs"]["agent"]["examples"] = list(AGENT_NAMES)
    return schema


_schema = cache(pipeline_schema)


def load_pipeline(
    path: Path, *, agents: Collection[str] | None = AGENT_NAMES, names: Mapping[str, str] = _AS_WRITTEN
) -> PipelineDefinition:
    """Return the pipeline that a YAML file defines, after reading every file that it names.

    `path` is the file, or the folder that holds it. `agents` are the names that the file may use for agents; None
    allows every name. `names` maps a file's name as it is written to the name under which it is stored. Raise
    ConfigError, which lists every mistake with its line.
    """
    path = find_pipeline_file(path)
    try:
        text = read_config_file(path, name=str(path), follow_symlinks=True).text
        # Schemas may be inside the file, some levels below its own.
        root = reader.read_document(str(path), text, deepest_level=24)
    except ConfigError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        words = f"{reader.escape(str(path))}: no such file or folder"
        raise ConfigError(words, hint=_pipelines_in(path.parent) or _FILE_HINT) from error
    except ValueError as error:  # a NUL byte
        raise ConfigError(f"{reader.escape(str(path))}: not a valid file name", hint=_FILE_HINT) from error
    except reader.Refused as refusal:
        raise reader.config_error([refusal.problem]) from refusal
    files = _NamedFiles(path.absolute().parent, names)
    values = _Checks(str(path), root, files, agents).values()
    defaults = values.get("defaults", {})
    made = {
        "file": path.absolute(),
        "inputs": [{"name": name, **(about or {})} for name, about in values.get("inputs", {}).items()],
        "stages": [_stage(stage, defaults, files) for stage in values["stages"]],
        "digest": files.digest(text),
        "texts": {"": text, **files.texts},
    }
    return convert({**{key: value for key, value in values.items() if key != "defaults"}, **made}, PipelineDefinition)


def find_pipeline_file(path: Path) -> Path:
    """Return the pipeline's file at a path: the path itself, or the one file of `FILE_NAMES` in that folder.

    Raise ConfigError if the folder holds none of them or both. A path that does not exist is returned as it is.
    """
    if not os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises for a name that no file can have
        return path
    found = [path / name for name in FILE_NAMES if os.path.lexists(path / name)]
    if len(found) == 1:
        return found[0]
    is_here = path == Path()
    folder = "this folder" if is_here else reader.escape(str(path))
    if found:
        raise ConfigError(f"{folder} holds both {' and '.join(FILE_NAMES)}", hint="name one of the two files")
    words = f"{folder} holds neither {' nor '.join(FILE_NAMES)}"
    raise ConfigError(words, hint=_pipelines_in(path) or _FILE_HINT)


def _pipelines_in(folder: Path) -> str:
    """Return a hint that names the pipelines in a folder and in the folders below it; empty if there are none."""
    try:
        entries = sorted(folder.iterdir())[:_MOST_NAMES]
    except OSError:
        return ""
    candidates: list[Path] = []
    for entry in entries:
        if entry.suffix in (".yaml", ".yml"):
            candidates.append(entry)
        else:
            candidates += [entry / name for name in FILE_NAMES]
    found = [reader.escape(str(file)) for file in candidates if _has_stages(file)]
    return f"these are pipelines: {', '.join(found[:5])}" if found else ""


def _has_stages(file: Path) -> bool:
    """Return whether a file has the key `stages`, which other YAML files do not have."""
    try:
        return _STAGES.search(read_regular_file(file, follow_symlinks=True, most=MAX_FILE_BYTES)) is not None
    except (OSError, ValueError):
        return False


def input_values(definition: PipelineDefinition, given: Mapping[str, str]) -> Mapping[str, str]:
    """Return the value of every input, or its default. Raise UsageError for missing and unknown inputs."""
    known = {each.name: each for each in definition.inputs}
    unknown = [name for name in given if name not in known]
    wanted = [name for name, each in known.items() if each.default is None and not given.get(name, "").strip()]
    mistakes = [f"unknown input {reader.plain_or_quoted(name)}" for name in unknown]
    for name in wanted:
        problem = "empty" if name in given else "missing"
        about = known[name].description.strip()
        mistakes.append(f"the input {name} is {problem} ({about})" if about else f"the input {name} is {problem}")
    if mistakes:
        meant = " ".join(filter(None, (did_you_mean(name, known) for name in unknown)))
        missing = f"give {' '.join(f'--input {name}=VALUE' for name in wanted)}" if wanted else ""
        inputs = f"the inputs are: {', '.join(known)}" if known else "the pipeline has no inputs"
        raise UsageError(f"{definition.name}: {'; '.join(mistakes)}", hint=meant or missing or inputs)
    return {name: given.get(name, each.default or "") for name, each in known.items()}


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return a hint with the known word that was probably meant; empty if none is similar."""
    if not isinstance(word, str):
        return ""
    words = tuple(known)
    meant = _SYNONYMS.get(word)
    if meant not in words:
        meant = reader.closest(word, words)
    return f"did you mean `{meant}`?" if meant else ""


def _stage(values: Values, defaults: Values, files: _NamedFiles) -> StageDefinition:
    given = {**defaults}
    given.pop("gate", None)
    given.update(values)
    gate = given.pop("gate", None)
    gates = given.pop("gates", ())
    if not gates and gate:
        gates = [gate]
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
    """Return the fields of a definition from the values of its keys."""
    fields = {_FIELDS.get(key, key): _field(key, value, files) for key, value in values.items()}
    for key in _FILES:
        if key in values:
            fields[f"{key}_text"] = files.text(values[key])
    return fields


def _field(key: str, value: Any, files: _NamedFiles) -> Any:
    if key in _FILES:
        return files.path(value)
    if key in _LISTS and isinstance(value, str):
        return [value]
    if key == "timeout":
        return _seconds(value)
    return value


def _seconds(value: float | str) -> float:
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return float(value)
    return float(sum(int(part or 0) * unit for part, unit in zip(found.groups(), (3600, 60, 1), strict=True)))


def _digest(value: object) -> str:
    return _sha256(json.dumps(to_builtins(value), sort_keys=True))[:16]


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class _NamedFiles:
    """The files that a pipeline's file names, as they are written there. Each is read once and counts in the digest."""

    def __init__(self, folder: Path, names: Mapping[str, str]) -> None:
        self._folder, self._names = folder, names
        self.texts: dict[str, str] = {}

    def path(self, written: str) -> Path:
        """Return the path of a file."""
        return self._folder / self._names.get(written, written)

    def text(self, written: str) -> str:
        """Return the text of a file. Raise SchemaRefused, which names it."""
        if written not in self.texts:
            self.texts[written] = read_named(self.path(written), written)
        return self.texts[written]

    def schema(self, given: str | Values) -> Values:
        """Return a valid schema, or the one in a file. Raise SchemaRefused."""
        if not isinstance(given, str):
            check_schema(given)
            return given
        text = self.text(given)
        try:
            if Path(given).suffix.lower() not in (".json", ".yaml", ".yml"):
                raise SchemaRefused("expected a file that ends in .json, .yaml or .yml")  # noqa: TRY301 - as below
            schema: Values = parse_value(given, text)
            check_schema(schema)
        except SchemaRefused as refused:
            raise SchemaRefused(f"{reader.escape(given)}: {refused}") from refused
        return schema

    def digest(self, text: str) -> str:
        """Return a digest of the pipeline's own text and of every file that was read."""
        return _sha256(text + "".join(f"\0{name}\0{_sha256(its)}" for name, its in sorted(self.texts.items())))


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


def _expected(schema: Values) -> str:
    if "enum" in schema:
        return either(schema["enum"])
    if schema.get("type") == "integer":
        return f"a whole number from {schema['minimum']} to {schema['maximum']:,}"
    return str(schema.get("errorMessage", "true or false" if schema.get("type") == "boolean" else ""))


def _fits(schema: Values, value: Any) -> bool:
    """Return whether a value of the right type fits the schema, as far as that needs no other value."""
    if isinstance(value, str):
        is_usable = schema.get("minLength", 0) <= len(value) <= LONGEST_TEXT and not _UNUSABLE.search(value)
        is_shaped = "pattern" not in schema or re.fullmatch(schema["pattern"][1:-1], value)
        return bool(is_usable and is_shaped and value in schema.get("enum", (value,)))
    if isinstance(value, bool | NoneType):
        return True
    if isinstance(value, int | float):
        return bool(schema.get("minimum", 0) <= value <= schema["maximum"] and value != schema.get("exclusiveMinimum"))
    return bool(len(value) >= schema.get("minItems", 0))


class _Checks:
    """The mistakes in a pipeline's file. A check skips values of another type, so that later mistakes are found."""

    def __init__(self, name: str, root: reader.MapNode, files: _NamedFiles, agents: Collection[str] | None) -> None:
        self._name, self._root, self._files, self._agents = name, root, files, agents
        # To guess what was meant takes time, and only some are shown, so a hint is worked out late.
        self._complaints: dict[tuple[int, str], _Hint] = {}
        document: Any = reader.plain(root)
        self._document: Values = document
        stages = document.get("stages")
        listed = enumerate(stages[:_MOST_NAMES]) if isinstance(stages, list) else ()
        self._stages = [(number, stage) for number, stage in listed if isinstance(stage, Mapping)]

    def values(self) -> Values:
        """Return the values of the file. Raise ConfigError with every mistake, in the order of the file."""
        for problem in reader.repetitions(self._name, self._root):
            self._complaints[problem.line, problem.what] = problem.hint
        self._check(_schema(), self._document, ())
        self._check_names_and_needs()
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

    def _add(self, place: Place, what: str, hint: _Hint = _SCHEMA_HINT) -> None:
        """Report a mistake at a place. An alias leads to one place twice, and the mistake counts once."""
        subject, rest = "", place
        if place[:1] == ("stages",) and len(place) > 1:
            name = next((stage.get("name") for number, stage in self._stages if number == place[1]), None)
            shown = reader.plain_or_quoted(name) if isinstance(name, str) and name else int(place[1]) + 1
            subject, rest = f"stage {shown}: ", place[2:]
        if rest:
            subject += f"{reader.path_text(reader.plain_or_quoted(str(rest[0])), rest[1:])}: "
        _, line = reader.part(self._root, place)
        self._complaints[line, f"{subject}{what}"] = hint

    def _add_unexpected(self, place: Place, expected: str, choices: Sequence[str] = (), *, text: bool = False) -> None:
        """Report a value that is not as expected; with `text`, quotes could fix it."""
        blamed, _ = reader.part(self._root, place)
        value = reader.plain(blamed)
        otherwise = "put it in quotes" if text and isinstance(value, bool | int | float) else _SCHEMA_HINT
        self._add(place, f"expected {expected}, found {reader.describe(blamed)}", _nearest(value, choices, otherwise))

    def _check(self, schema: Values, value: Any, place: Place) -> None:
        """Report every violation of a part of the schema in a value."""
        if schema.get("$ref") == "#/$defs/gate" and isinstance(value, str | Mapping):
            self._check_gate(value, place)
            return
        whole = _resolved(schema)
        options = [_resolved(each) for each in whole.get("anyOf", (whole,))]
        # To Python a boolean is a whole number too.
        kinds = [each for each in options if isinstance(value, _TYPES[each["type"]])]
        fitting = next((each for each in kinds if isinstance(value, bool) is (each["type"] == "boolean")), None)
        if fitting is None or not _fits(fitting, value):
            part = fitting or whole
            is_text = any(each["type"] == "string" for each in options)
            self._add_unexpected(place, _expected(part) or _expected(whole), part.get("enum", ()), text=is_text)
        elif (most := fitting.get("maxItems", fitting.get("maxProperties"))) is not None and len(value) > most:
            self._add(place, f"more than {most:,} entries")
        elif "x-check" in fitting:
            self._check_meaning(fitting["x-check"], value, place, _expected(whole))
        elif isinstance(value, list):
            for index, each in enumerate(value):
                self._check(fitting["items"], each, (*place, index))
        elif isinstance(value, Mapping):
            self._check_keys(fitting, value, place)

    def _check_keys(self, schema: Values, value: Values, place: Place) -> None:
        """Report the unknown, missing and wrong keys of a group."""
        known = schema.get("properties", {})
        for key in (str(key) for key in value if key not in known):
            if "propertyNames" not in schema:
                self._add((*place, key), "unknown key", _nearest(key, known, f"the keys are {either(tuple(known))}"))
                continue
            names = _resolved(schema["propertyNames"])
            problem = check_pattern(key) if names.get("x-check") == "glob" and _fits(names, key) else None
            if problem or not _fits(names, key):
                sense = f"a valid pattern: {problem}" if problem else _expected(names)
                self._add((*place, key), f"as a key, expected {sense}")
            self._check(schema["additionalProperties"], value[key], (*place, key))
        for key in schema.get("required", ()):
            if key not in value:
                self._add(place, f"`{key}` is missing")
        for key in (key for key in known if key in value):
            self._check(known[key], value[key], (*place, key))

    def _check_meaning(self, check: str, value: Any, place: Place, expected: str) -> None:
        """Check what the schema cannot express: that a file, an agent, a pattern or a command is valid."""
        match check:
            case "agent" if self._agents is not None and value not in self._agents:
                what = f"expected {either(tuple(self._agents))}, found {reader.quote(value)}"
                self._add(place, what, _nearest(value, self._agents, "use one of these"))
            case "duration" if not 0 < _seconds(value) <= 30 * 24 * 3600:
                self._add_unexpected(place, expected)
            case "glob" if problem := check_pattern(value):
                self._add(place, f"invalid pattern: {problem}")
            case "command":
                try:
                    words = shlex.split(value)
                except ValueError:
                    words = []
                if not words or not words[0]:
                    self._add_unexpected(place, expected)
                for sign in _SHELL_WORDS.intersection(words):
                    how = "write several gates, or [sh, -c, ...]"
                    self._add(place, f"this does not run in a shell, so `{sign}` would be an argument: {how}")
            case "file" | "schema":
                try:
                    (self._files.text if check == "file" else self._files.schema)(value)
                except SchemaRefused as refused:
                    below = "paths are relative to the pipeline's folder"
                    self._add(place, str(refused), "correct the schema" if isinstance(value, Mapping) else below)

    def _check_gate(self, value: str | Values, place: Place) -> None:
        groups, whole = _gate_groups(), _schema()["$defs"]["gate"]
        kinds = tuple(groups)
        if isinstance(value, str):
            if value not in whole["anyOf"][0]["enum"]:
                self._add_unexpected(place, whole["errorMessage"], kinds)
            return
        kind = value.get("kind", GateKind.COMMAND.value) if {"kind", "command"} & value.keys() else ""
        if kind == "":
            self._add(place, f"`kind` is missing: {either(kinds)}")
        elif not isinstance(kind, str) or kind not in kinds:
            self._add_unexpected((*place, "kind"), either(kinds), kinds)
        else:
            self._check_keys(groups[kind], value, place)

    def _check_names_and_needs(self) -> None:
        names: dict[str, int] = {}
        for number, stage in self._stages:
            name = stage.get("name")
            if isinstance(name, str) and names.setdefault(name, number) != number:
                what = f"stage {names[name] + 1} is also called {reader.quote(name)}"
                self._add(("stages", number, "name"), what, "give each stage its own name")
        needs: dict[str, list[str]] = {name: [] for name in names}
        for number, stage in self._stages:
            own = stage.get("name")
            for inside, needed in _words(stage.get("needs")):
                place = ("stages", number, "needs", *inside)
                if needed == own:
                    self._add(place, "a stage cannot need itself", "remove it")
                elif needed not in names:
                    hint = _nearest(needed, names, "use a stage of this file")
                    self._add(place, f"unknown stage {reader.quote(needed)}", hint)
                elif isinstance(own, str) and needed in needs[own]:
                    self._add(place, f"{reader.quote(needed)} is given twice", "keep one of the two")
                elif isinstance(own, str):
                    needs[own].append(needed)
        try:
            TopologicalSorter(needs).prepare()
        except CycleError as error:
            circle = error.args[1][::-1]
            what = f"these stages need each other: {' → '.join(circle)}"
            self._add(("stages", names[circle[0]], "needs"), what, "remove one of these needs")

    def _check_stage(self, number: int, stage: Values) -> None:
        """Check the inputs and gates of a stage, and that one that does not write requires only its answer."""
        inputs, place = self._document.get("inputs"), ("stages", number)
        known = tuple(inputs) if isinstance(inputs, Mapping) else ()
        for inside, name in _words(stage.get("inputs")):
            if name not in known:
                hint = _nearest(name, known, "add it to the pipeline's `inputs`")
                self._add((*place, "inputs", *inside), f"the pipeline has no input {reader.quote(name)}", hint)
        if "gate" in stage and "gates" in stage:
            what = "a stage has either `gate` for one gate or `gates` for several"
            self._add((*place, "gates"), what, "list all of them in `gates`")
        artifacts, named, defaults = stage.get("artifacts"), stage.get("name"), self._document.get("defaults")
        usual = defaults.get("writes") if isinstance(defaults, Mapping) else None
        if stage.get("writes", usual) is not False or not isinstance(artifacts, Mapping):
            return
        answer = answer_name(named if isinstance(named, str) else "", structured="output_schema" in stage, taken=())
        for inside, required in _words(artifacts.get("required")):
            if not matches(answer, required, recursive=False):
                what = f"a stage that does not write produces only {answer}, not {reader.quote(required)}"
                self._add((*place, "artifacts", "required", *inside), what, "remove it, or let the stage write")


def _nearest(word: object, known: Iterable[str], otherwise: str) -> _Hint:
    return lambda: did_you_mean(word, known) or otherwise


def _words(value: object) -> list[tuple[Place, str]]:
    """Return the texts of a list with their positions, or the one text that may be given instead of a list."""
    if isinstance(value, str):
        return [((), value)]
    listed = enumerate(value[:_MOST_NAMES]) if isinstance(value, list) else ()
    return [((index,), each) for index, each in listed if isinstance(each, str)]
