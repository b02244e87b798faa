"""The files of the built-in experts, read without a YAML parser, whose loading is a good part of a start.

They are YAML, and keep to the little of it that is read here; a test holds that a parser reads the same. Files of users
are read by `reading`.
"""

from __future__ import annotations

import json
from pathlib import Path

Value = str | list[str] | dict[str, str]


def read_shipped(path: Path) -> dict[str, Value]:
    """The keys and values of a built-in expert's file: texts, folded texts, lists and mappings of texts."""
    values: dict[str, Value] = {}
    key = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("  "):
            values[key] = _with(values[key], line.strip())
        elif line.strip() and not line.startswith("#"):
            key, _, text = line.partition(":")
            values[key] = _of_line(text.strip())
    return values


def _of_line(text: str) -> Value:
    # A list on one line is written as JSON has it.
    return list(map(str, json.loads(text))) if text.startswith("[") else text.removeprefix(">-")


def _with(value: Value, line: str) -> Value:
    """A value and its next line, which tells of what kind it is."""
    if line.startswith("- "):
        return [*(value if isinstance(value, list) else []), _unquoted(line[2:])]
    name, colon, text = line.partition(": ")
    if colon and name.isidentifier() and not (isinstance(value, str) and value):
        return {**(value if isinstance(value, dict) else {}), name: _unquoted(text)}
    return f"{value} {line}".strip() if isinstance(value, str) else value


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text
