"""Settings values as text, as they could stand in a configuration file."""

from __future__ import annotations

import json

from codeloupe.config.problems import escape
from codeloupe.config.schema import Settings


def default_text(key: str) -> str:
    """A key's default. Raises KeyError for an unknown key."""
    return value_text(Settings().model_dump(mode="json")[key])


def value_text(value: object) -> str:
    """A value as `Settings.model_dump(mode="json")` gives it, on one line, control characters escaped."""
    match value:
        case str():
            return escape(value)
        case float():
            return repr(value).removesuffix(".0")
        case _:
            return escape(json.dumps(value, ensure_ascii=False))
