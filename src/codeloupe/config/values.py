"""Settings values as a file could hold them: as plain data, and as text on one line."""

from __future__ import annotations

import json
from typing import Any

from codeloupe.config.groups import plain_experts, plain_instructions, plain_names
from codeloupe.config.problems import escape
from codeloupe.config.schema import KEYS, Settings
from codeloupe.model.change import Effort
from codeloupe.model.severity import Severity


def plain_values(settings: Settings) -> dict[str, Any]:
    """Every key with its value as JSON has it; `Settings(**plain_values(settings))` is the same again."""
    special = {
        "own_experts": plain_experts(settings.own_experts),
        "commit_experts": plain_names(settings.commit_experts),
        "instructions": plain_instructions(settings.instructions),
    }
    return {key: special[key] if key in special else _plain(getattr(settings, key)) for key in KEYS}


def _plain(value: object) -> object:
    match value:
        case Severity():
            return value.label
        case Effort():
            return value.value
        case tuple():
            return list(value)
        case _:
            return value


def default_text(key: str) -> str:
    """A key's default. Raises KeyError for an unknown key."""
    return value_text(plain_values(Settings())[key])


def value_text(value: object) -> str:
    """A value as `plain_values` gives it, on one line, control characters escaped."""
    match value:
        case str():
            return escape(value)
        case float():
            return repr(value).removesuffix(".0")
        case _:
            return escape(json.dumps(value, ensure_ascii=False))
