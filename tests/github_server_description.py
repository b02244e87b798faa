"""GitHub's own OpenAPI description: which requests are right, and which answers.

The description is read once for a process. Beyond what it says, a field that it does not name is found too: GitHub
would pass over it in a body without a word, and the mistake with it. Our answers have the fields that matter alone, so
that no field must be there.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

_FILE = Path(__file__).parent.parent / ".cache/agents/node_modules/@octokit/openapi/generated/api.github.com.json"
_KEPT = frozenset({"type", "enum", "pattern", "minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems"})


@cache
def description() -> Mapping[str, Any]:
    """The whole description. Fails the test when it is not installed."""
    if not _FILE.is_file():
        raise AssertionError("GitHub's OpenAPI description is missing: run `make test`, which installs it")
    return json.loads(_FILE.read_bytes())  # type: ignore[no-any-return]  # it is an object


def request_problems(method: str, template: str, query: Mapping[str, str], body: Any) -> Iterator[str]:
    """What is wrong with the query and the body of a request; None is a body that is not there."""
    spec = description()["paths"][template][method.lower()]
    parameters = [_resolved(each) for each in spec.get("parameters", ())]
    known = {each["name"]: each["schema"] for each in parameters if each["in"] == "query"}
    for name, value in query.items():
        if name not in known:
            yield f"{template} knows no query parameter {name!r}"
            continue
        typed = int(value) if known[name].get("type") == "integer" and value.isdecimal() else value
        yield from (f"query parameter {name}: {error}" for error in _errors(known[name], typed, strict=True))
        if name == "per_page" and isinstance(typed, int) and not 1 <= typed <= 100:
            yield f"query parameter per_page: {typed} is not from 1 to 100"
    wanted = _resolved(spec.get("requestBody", {}))
    schema = wanted.get("content", {}).get("application/json", {}).get("schema")
    if schema is not None and body is not None:
        yield from (f"body: {error}" for error in _errors(schema, body, strict=True))
    elif body is not None:
        yield f"{method} {template} takes no body"
    elif wanted.get("required"):
        yield f"{method} {template} needs a body"


def answer_problems(method: str, template: str, status: int, document: Any) -> Iterator[str]:
    """In what an answer of ours is not what GitHub says it answers."""
    answers = description()["paths"][template][method.lower()]["responses"]
    content = _resolved(answers[str(status)]).get("content", {})
    if (document is None) is bool(content):
        yield f"{method} {template} answers {status} with {'a' if content else 'no'} document"
    elif content:
        schema = content["application/json"]["schema"]
        yield from (f"answer {status}: {error}" for error in _errors(schema, document, strict=False))


def _resolved(value: Mapping[str, Any]) -> Mapping[str, Any]:
    while "$ref" in value:
        found: Any = description()
        for part in value["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        value = found
    return value


def _errors(schema: Mapping[str, Any], value: Any, *, strict: bool) -> Iterator[str]:
    for error in _validator(json.dumps(schema), strict).iter_errors(value):
        yield f"{error.json_path}: {error.message[:300]}"
    yield from _unknown(schema, value, "$")


@cache
def _validator(schema: str, strict: bool) -> Any:
    needed: dict[str, Any] = {}
    root = _converted(json.loads(schema), needed, strict=strict)
    return jsonschema.Draft202012Validator({**root, "components": {"schemas": needed}})


def _converted(schema: Any, needed: dict[str, Any], *, strict: bool) -> Any:
    """A schema of OpenAPI 3.0 as one of JSON Schema; the components that it names are added to `needed`."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name not in needed:
            needed[name] = {}
            needed[name] = _converted(description()["components"]["schemas"][name], needed, strict=strict)
        return {"$ref": schema["$ref"]}
    made: dict[str, Any] = {key: value for key, value in schema.items() if key in _KEPT}
    if strict and "required" in schema:
        made["required"] = schema["required"]
    if "properties" in schema:
        fields = schema["properties"].items()
        made["properties"] = {name: _converted(each, needed, strict=strict) for name, each in fields}
    if "items" in schema:
        made["items"] = _converted(schema["items"], needed, strict=strict)
    made["allOf"] = [_converted(each, needed, strict=strict) for each in schema.get("allOf", ())]
    for key in ("anyOf", "oneOf"):
        # GitHub's alternatives overlap, so that a right value often fits more than one of them.
        if key in schema:
            made["allOf"].append({"anyOf": [_converted(each, needed, strict=strict) for each in schema[key]]})
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
        for name, each in value.items() if declared else ():
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
