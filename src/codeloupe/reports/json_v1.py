"""The JSON documents, version 1: fields are added, never changed, so the schemas beside this file are their source.

A document has what its schema lists, in that order. A reader must expect fields that it does not know: later versions
add some.
"""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from enum import Enum
from functools import cache
from pathlib import PurePath
from typing import Any

from codeloupe import __version__
from codeloupe.model.finding import Severity
from codeloupe.model.review import Review
from codeloupe.reports import asset
from codeloupe.system.untrusted import json_document

TOOL = {"name": "codeloupe", "version": __version__}


def schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema of a document: `review`, `pipeline-run` or `pipeline-list`."""
    schema: dict[str, Any] = json.loads(asset(f"{name}.schema.json"))
    return schema


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a review."""
    return schema_of("review")


def render_json(review: Review) -> str:
    """The review as a JSON document: two spaces of indent, keys in a fixed order, a newline at the end."""
    return json_text(document("review", "ReviewV1", review, schema_version=1, tool=TOOL))


def json_text(content: object, *, indent: int | None = 2) -> str:
    """A JSON document with a newline at its end, valid and encodable as UTF-8 whatever its texts hold."""
    return json_document(json.dumps(content, indent=indent, ensure_ascii=False, allow_nan=False)) + "\n"


def document(schema: str, kind: str, value: Any, **given: Any) -> dict[str, Any]:
    """What a part of a schema wants to know of an object: its attributes of the same names, and what is given apart.

    An empty text becomes None where the schema has null; a number that JSON cannot write becomes 0 where it has not.
    """
    made: dict[str, Any] = {}
    for name, allows_none, part in _fields(schema, kind):
        found = given[name] if name in given else getattr(value, name)
        if name in given:
            made[name] = found
        elif found is None or (found == "" and allows_none):
            made[name] = None
        elif part and isinstance(found, tuple):
            made[name] = [document(schema, part, each) for each in found]
        elif part:
            made[name] = document(schema, part, found)
        else:
            made[name] = _plain(found, unknown=None if allows_none else 0.0)
    return made


def fields_of(value: Any, names: str) -> dict[str, Any]:
    """Some attributes of an object, with `names` between spaces."""
    return {name: _plain(getattr(value, name)) for name in names.split()}


@cache
def _fields(schema: str, kind: str) -> list[tuple[str, bool, str]]:
    """The fields of a part: name, whether it may be null, and the part that it holds, or holds a list of."""
    whole = schema_of(schema)
    found = []
    for name, field in (whole if kind == whole["title"] else whole["$defs"][kind])["properties"].items():
        choices = [choice.get("items", choice) for choice in field.get("anyOf", [field])]
        part = next((choice["$ref"].rpartition("/")[2] for choice in choices if "$ref" in choice), "")
        found.append((name, {"type": "null"} in choices, part))
    return found


def _plain(value: Any, *, unknown: float | None = None) -> Any:
    """A value as JSON has it; `unknown` is for a number that it cannot write."""
    if isinstance(value, Enum):
        return value.label if isinstance(value, Severity) else value.value
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return unknown
    return str(value) if isinstance(value, PurePath) else value
