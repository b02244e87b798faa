"""GitHub's own OpenAPI description: which requests are right, and which answers.

The description is read once for a process. Beyond what it says, a field of a body that it does not name is found too:
GitHub would pass over it without a word, and the mistake with it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import jsonschema

_FILE = Path(__file__).parent.parent / ".cache/agents/node_modules/@octokit/openapi/generated/api.github.com.json"
_DROPPED = frozenset(
    {"example", "examples", "description", "title", "default", "deprecated", "discriminator", "externalDocs"}
)
_MOMENT = "2026-01-05T09:00:00Z"
_FORMATS = {"date-time": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", "uri": r"[a-z][a-z0-9+.-]*://\S+"}
_PLAIN: Mapping[str, Any] = {"integer": 0, "number": 0, "boolean": False, "array": [], "string": "x"}


@dataclass(frozen=True)
class Operation:
    """One method of one path of the description."""

    method: str
    template: str
    spec: Mapping[str, Any]

    @cached_property
    def query_parameters(self) -> dict[str, Mapping[str, Any]]:
        """The names that may stand behind the question mark, with their schemas."""
        parameters = (_resolved(each) for each in self.spec.get("parameters", ()))
        return {each["name"]: each["schema"] for each in parameters if each["in"] == "query"}

    def query_problems(self, query: Mapping[str, str]) -> Iterator[str]:
        """What is wrong with a query."""
        for name, value in query.items():
            schema = self.query_parameters.get(name)
            if schema is None:
                yield f"{self.template} knows no query parameter {name!r}"
                continue
            typed = int(value) if schema.get("type") == "integer" and value.isdecimal() else value
            yield from (f"query parameter {name}: {error}" for error in _errors(schema, typed))
            if name == "per_page" and isinstance(typed, int) and not 1 <= typed <= 100:
                yield f"query parameter per_page: {typed} is not from 1 to 100"

    def body_problems(self, body: Any) -> Iterator[str]:
        """What is wrong with a body; None is a body that is not there."""
        told = _resolved(self.spec.get("requestBody", {}))
        schema = told.get("content", {}).get("application/json", {}).get("schema")
        if schema is None or body is None:
            if body is not None:
                yield f"{self.method} {self.template} takes no body"
            elif told.get("required"):
                yield f"{self.method} {self.template} needs a body"
            return
        yield from (f"body: {error}" for error in _errors(schema, body))
        yield from (f"body: {error}" for error in _unknown(schema, body, "$"))

    def answer_schema(self, status: int) -> Mapping[str, Any] | None:
        """The schema of the document that comes with a status; None where there is none."""
        content = _resolved(self.spec["responses"][str(status)]).get("content", {})
        return content["application/json"]["schema"] if content else None

    def answer(self, status: int, document: Any) -> Any:
        """A document with every field that GitHub always gives; what is not in it has some value of its type."""
        schema = self.answer_schema(status)
        return document if schema is None else _filled(schema, document)

    def answer_problems(self, status: int, document: Any) -> Iterator[str]:
        """In what an answer of ours is not what GitHub says it answers."""
        schema = self.answer_schema(status)
        if schema is None or document is None:
            if (schema is None) is not (document is None):
                yield f"{self.method} {self.template} answers {status} with {'no' if schema is None else 'a'} document"
            return
        yield from (f"answer {status}: {error}" for error in _errors(schema, document))
        yield from (f"answer {status}: {error}" for error in _unknown(schema, document, "$"))


@cache
def operation(method: str, template: str) -> Operation:
    """An operation of the description. Raises KeyError."""
    return Operation(method, template, description()["paths"][template][method.lower()])


@cache
def description() -> Mapping[str, Any]:
    """The whole description. Fails the test in words when it is not installed."""
    if not _FILE.is_file():
        raise AssertionError("GitHub's OpenAPI description is missing: run `make test`, which installs it")
    return json.loads(_FILE.read_bytes())  # type: ignore[no-any-return]  # it is an object


def _resolved(value: Mapping[str, Any]) -> Mapping[str, Any]:
    while "$ref" in value:
        found: Any = description()
        for part in value["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        value = found
    return value


def _filled(schema: Mapping[str, Any], value: Any) -> Any:
    schemas = [*_alternatives(schema)]
    if isinstance(value, list):
        items: Mapping[str, Any] = next((each["items"] for each in schemas if "items" in each), {})
        return [_filled(items, each) for each in value]
    if not isinstance(value, dict):
        return value
    made = dict(value)
    # Of alternatives that are objects the first that has all that is given is meant.
    meant = [each for each in schemas if "properties" in each]
    fitting = [each for each in meant if value.keys() <= each["properties"].keys()] or meant
    for each in fitting[:1]:
        for name in {*each.get("required", ()), *value}:
            field = each["properties"].get(name, {})
            made[name] = _filled(field, value[name]) if name in value else _some(field)
    return made


def _some(schema: Mapping[str, Any]) -> Any:
    """Some value that a schema allows: null where it can be."""
    schemas = [*_alternatives(schema)]
    if any(each.get("nullable") for each in schemas):
        return None
    for each in schemas:
        if "enum" in each:
            return each["enum"][0]
        if each.get("type") == "object" or "properties" in each:
            return _filled(each, {})
        if each.get("format") in _FORMATS:
            return _MOMENT if each["format"] == "date-time" else "https://github.com/x"
        if each.get("type") in _PLAIN:
            return _PLAIN[each["type"]]
    raise AssertionError(f"no value is known for {schema}")


def _errors(schema: Mapping[str, Any], value: Any) -> Iterator[str]:
    for error in _validator(json.dumps(schema)).iter_errors(value):
        message = error.message if len(error.message) <= 300 else f"{error.message[:150]} … {error.message[-150:]}"
        yield f"{error.json_path}: {message}"


@cache
def _validator(schema: str) -> Any:
    needed: dict[str, Any] = {}
    root = _converted(json.loads(schema), needed)
    checker = jsonschema.FormatChecker(formats=())
    for name, pattern in _FORMATS.items():
        fits = re.compile(pattern).fullmatch
        checker.checks(name)(lambda value, fits=fits: not isinstance(value, str) or bool(fits(value)))
    return jsonschema.Draft202012Validator({**root, "components": {"schemas": needed}}, format_checker=checker)


def _converted(schema: Any, needed: dict[str, Any]) -> Any:
    """A schema of OpenAPI 3.0 as one of JSON Schema; the components that it names are added to `needed`."""
    if isinstance(schema, list):
        return [_converted(each, needed) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name not in needed:
            needed[name] = {}
            needed[name] = _converted(description()["components"]["schemas"][name], needed)
        return {"$ref": schema["$ref"]}
    made: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties":
            made[key] = {name: _converted(each, needed) for name, each in value.items()}
        elif key == "oneOf":
            # GitHub's alternatives overlap, so that a right value often fits more than one of them.
            made.setdefault("allOf", []).append({"anyOf": _converted(value, needed)})
        elif key == "allOf":
            made.setdefault("allOf", []).extend(_converted(value, needed))
        elif key not in _DROPPED and not key.startswith("x-") and key != "nullable":
            made[key] = _converted(value, needed) if key in ("items", "anyOf", "additionalProperties", "not") else value
    return {"anyOf": [made, {"type": "null"}]} if schema.get("nullable") else made


def _unknown(schema: Mapping[str, Any], value: Any, path: str) -> Iterator[str]:
    """Fields of a value that no alternative of its schema names."""
    alternatives = list(_alternatives(schema))
    if isinstance(value, list):
        items = [each["items"] for each in alternatives if "items" in each]
        for index, each in enumerate(value if items else ()):
            yield from _unknown({"anyOf": items}, each, f"{path}[{index}]")
    elif isinstance(value, dict):
        declared: dict[str, list[Any]] = {}
        for each in alternatives:
            for name, field in each.get("properties", {}).items():
                declared.setdefault(name, []).append(field)
        if not declared or any(each.get("additionalProperties") and "properties" not in each for each in alternatives):
            return
        for name, each in value.items():
            if name in declared:
                yield from _unknown({"anyOf": declared[name]}, each, f"{path}.{name}")
            else:
                yield f"{path} has a field {name!r} that the description does not name"


def _alternatives(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    schema = _resolved(schema)
    yield schema
    for key in ("allOf", "anyOf", "oneOf"):
        for each in schema.get(key, ()):
            yield from _alternatives(each)
