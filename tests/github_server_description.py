"""GitHub's own OpenAPI description: which requests are right, and which answers.

The description is read once for a process, when it is first needed. Beyond what it says, a field of a body that it
does not name is found too: GitHub would pass over it without a word, and the mistake with it.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import jsonschema

_FILE = Path(__file__).parent.parent / ".cache/agents/node_modules/@octokit/openapi/generated/api.github.com.json"
_LARGEST_PAGE = 100
_DROPPED = frozenset(
    {"example", "examples", "description", "title", "default", "deprecated", "discriminator", "externalDocs"}
)
_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_URI = re.compile(r"[a-z][a-z0-9+.-]*://\S+")

NULL_IN_TRUTH = {
    "pull-request-review-comment": ("line", "position", "original_line", "original_position"),
    "review-comment": ("line", "original_line", "original_position"),
    "pull-request": ("head.repo",),
    "pull-request-simple": ("head.repo",),
}
"""Fields that are null in truth, and not in the description: lines of outdated comments and of those on whole files,
and the head's repository when a fork was deleted."""


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

    @cached_property
    def body_schema(self) -> Mapping[str, Any] | None:
        """The schema of a JSON body, or None when there is to be none."""
        content = _resolved(self.spec.get("requestBody", {})).get("content", {})
        return content.get("application/json", {}).get("schema")  # type: ignore[no-any-return]  # it is JSON

    @cached_property
    def body_names(self) -> frozenset[str]:
        """The fields that a body may have."""
        schemas = () if self.body_schema is None else _alternatives(self.body_schema)
        return frozenset(name for each in schemas for name in each.get("properties", ()))

    def query_problems(self, query: Mapping[str, str]) -> Iterator[str]:
        """What is wrong with a query."""
        for name, value in query.items():
            schema = self.query_parameters.get(name)
            if schema is None:
                yield f"{self.template} knows no query parameter {name!r}"
                continue
            typed = int(value) if schema.get("type") == "integer" and value.isdecimal() else value
            yield from (f"query parameter {name}: {error}" for error in _errors(schema, typed))
            if name == "per_page" and isinstance(typed, int) and not 1 <= typed <= _LARGEST_PAGE:
                yield f"query parameter per_page: {typed} is not from 1 to {_LARGEST_PAGE}"

    def body_problems(self, body: Any) -> Iterator[str]:
        """What is wrong with a body; None is a body that is not there."""
        if self.body_schema is None:
            if body is not None:
                yield f"{self.method} {self.template} takes no body"
            return
        if body is None:
            if _resolved(self.spec["requestBody"]).get("required"):
                yield f"{self.method} {self.template} needs a body"
            return
        yield from (f"body: {error}" for error in _errors(self.body_schema, body))
        yield from (f"body: {error}" for error in _unknown(self.body_schema, body, "$"))

    def answer_problems(self, status: int, document: Any, media_type: str) -> Iterator[str]:
        """In what an answer of ours is not what GitHub says it answers."""
        response = self.spec["responses"].get(str(status))
        if response is None:
            if status < 400:
                yield f"{self.method} {self.template} never answers {status}"
                return
            response = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/basic-error"}}}}
        content = _resolved(response).get("content", {})
        if document is None or media_type not in ("application/json", *content):
            if content and status != 304 and media_type == "application/json":
                yield f"{self.method} {self.template} answers {status} with a document"
            return
        if media_type not in content:
            yield f"{self.method} {self.template} answers {status} without a document"
            return
        schema = content[media_type]["schema"]
        yield from (f"answer {status}: {error}" for error in _errors(schema, document))
        if status < 400:
            yield from (f"answer {status}: {error}" for error in _unknown(schema, document, "$"))


@dataclass(frozen=True, slots=True)
class Match:
    """The operation that a request means, with the values in its path."""

    operation: Operation
    parameters: Mapping[str, str]


def find(method: str, path: str) -> Match | None:
    """The operation of a path, or None when GitHub has no such thing."""
    segments = path.removeprefix("/").split("/")
    best: tuple[int, Match] | None = None
    for template in _templates()[len(segments)] + _templates()[0]:
        spec = description()["paths"][template].get(method.lower())
        parameters = _fitting(template.strip("/").split("/"), segments)
        if spec is None or parameters is None:
            continue
        rank = len(parameters) + ("{basehead}" in template)
        if best is None or rank < best[0]:
            best = rank, Match(_operation(method, template), parameters)
    return None if best is None else best[1]


@cache
def description() -> Mapping[str, Any]:
    """The whole description. Fails the test in words when it is not installed."""
    if not _FILE.is_file():
        raise AssertionError("GitHub's OpenAPI description is missing: run `make test`, which installs it")
    return json.loads(_FILE.read_bytes())  # type: ignore[no-any-return]  # it is an object


@cache
def _templates() -> defaultdict[int, tuple[str, ...]]:
    """The paths by their number of segments; under 0 those whose last one may hold slashes."""
    found: defaultdict[int, tuple[str, ...]] = defaultdict(tuple)
    for template in description()["paths"]:
        if "..." in template:  # the older spelling of `compare/{basehead}`
            continue
        count = 0 if template.endswith(("{basehead}", "/contents/{path}")) else template.strip("/").count("/") + 1
        found[count] += (template,)
    return found


@cache
def _operation(method: str, template: str) -> Operation:
    return Operation(method, template, description()["paths"][template][method.lower()])


def _fitting(template: list[str], segments: list[str]) -> dict[str, str] | None:
    if template[-1] in ("{basehead}", "{path}"):
        last = len(template) - 1
        segments = [*segments[:last], "/".join(segments[last:])]
    if len(template) != len(segments):
        return None
    parameters: dict[str, str] = {}
    for expected, given in zip(template, segments, strict=True):
        if expected.startswith("{"):
            if not given:
                return None
            parameters[expected.strip("{}")] = unquote(given)
        elif expected != given:
            return None
    return parameters


def _resolved(value: Mapping[str, Any]) -> Mapping[str, Any]:
    while "$ref" in value:
        found: Any = description()
        for part in value["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        value = found
    return value


def _errors(schema: Mapping[str, Any], value: Any) -> Iterator[str]:
    for error in _validator(json.dumps(schema)).iter_errors(value):
        message = error.message if len(error.message) <= 300 else f"{error.message[:150]} … {error.message[-150:]}"
        yield f"{error.json_path}: {message}"


@cache
def _validator(schema: str) -> Any:
    needed: dict[str, Any] = {}
    root = _converted(json.loads(schema), needed)
    return jsonschema.Draft202012Validator({**root, "components": {"schemas": needed}}, format_checker=_formats())


@cache
def _formats() -> jsonschema.FormatChecker:
    checker = jsonschema.FormatChecker(formats=())
    checker.checks("date-time")(lambda value: not isinstance(value, str) or bool(_DATE_TIME.fullmatch(value)))
    checker.checks("uri")(lambda value: not isinstance(value, str) or bool(_URI.fullmatch(value)))
    return checker


def _converted(schema: Any, needed: dict[str, Any]) -> Any:
    """A schema of OpenAPI 3.0 as one of JSON Schema; the components that it names are added to `needed`."""
    if isinstance(schema, list):
        return [_converted(each, needed) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        _need(schema["$ref"].rpartition("/")[2], needed)
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


def _need(name: str, needed: dict[str, Any]) -> None:
    if name in needed:
        return
    needed[name] = {}
    schema = json.loads(json.dumps(description()["components"]["schemas"][name]))
    for path in NULL_IN_TRUTH.get(name, ()):
        _allow_null(schema, path.split("."))
    needed[name] = _converted(schema, needed)


def _allow_null(schema: Any, path: list[str]) -> None:
    for part in path[:-1]:
        schema = schema["properties"][part]
    schema["properties"][path[-1]] = {"anyOf": [schema["properties"][path[-1]]], "nullable": True}


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
