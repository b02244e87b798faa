"""The JSON Schema of a configuration file, for editors."""

from __future__ import annotations

from typing import Any

from codeloupe.config.schema import KEYS, Settings, description_of, kind_of
from codeloupe.config.values import plain_values

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """The schema (draft 2020-12), with description and default of every key."""
    defaults = plain_values(Settings())
    return {
        "$schema": _DIALECT,
        "title": "codeloupe configuration",
        "description": "Settings of codeloupe, as written in codeloupe.yaml.",
        "type": "object",
        "properties": {
            key: {**kind_of(key).schema, "default": defaults[key], "description": description_of(key)} for key in KEYS
        },
        "additionalProperties": False,
    }
