"""Parse JSON, TOML and YAML of unknown authors, and refuse texts that two programs may read differently."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import yaml

_MOST_YAML_LEVELS = 50


def table(value: object) -> dict[str, Any]:
    """Return a value that must be a table. A missing one is empty. Raises ValueError for any other type."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError("it has a value of another type in place of a table")
    return value


def rows(value: object) -> list[dict[str, Any]]:
    """Return a value that must be a list of tables. A missing one is empty. Raises ValueError for any other type."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError("it has a value of another type in place of a list")
    return [table(row) for row in value]


def text_of(value: object) -> str:
    """Return a value that must be a text or a number. A missing one is empty. Raises ValueError for any other type."""
    if value is None:
        return ""
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise ValueError("it has a value of another type in place of a text")
    return str(value)


def parse_json(text: str) -> dict[str, Any]:
    """Return the object that a JSON text contains. Raises ValueError, also for a key that is given twice."""

    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        # Programs differ in which of two equal keys they read.
        if len(found) != len(pairs):
            raise ValueError("it has a duplicate key")
        return found

    return table(json.loads(text, object_pairs_hook=collect))


def parse_toml(text: str) -> dict[str, Any]:
    """Return the tables of a TOML text. Raises ValueError."""
    return tomllib.loads(text)


def parse_yaml(text: str) -> object:
    """Return the value of a YAML text, in which each scalar is a text. Raises ValueError.

    PyYAML's own composer crashes on deeply nested values, so the values are built from events here.
    """
    root: list[Any] = []
    # The open collections from the outermost to the innermost, and the key that waits for its value in each.
    collections: list[Any] = [root]
    keys: list[str | None] = [None]
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            value = _value_of(event)
            if value is not None:
                keys[-1] = _add_to_collection(collections[-1], keys[-1], value)
            if isinstance(value, dict | list):
                collections.append(value)
                keys.append(None)
            if isinstance(event, yaml.CollectionEndEvent):
                collections.pop()
                keys.pop()
            if len(collections) > _MOST_YAML_LEVELS:
                raise ValueError("its values are nested too deeply")
    except yaml.YAMLError as error:
        raise ValueError("it is not valid YAML") from error
    if len(root) != 1:
        raise ValueError("it does not have exactly one YAML document")
    return root[0]


def _value_of(event: yaml.Event) -> str | dict[str, Any] | list[Any] | None:
    """Return the scalar or the empty collection that an event begins. Raises ValueError for anchors and aliases."""
    if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
        raise ValueError("it has YAML anchors, which package managers do not write")
    if isinstance(event, yaml.ScalarEvent):
        return str(event.value)
    if isinstance(event, yaml.MappingStartEvent):
        return {}
    if isinstance(event, yaml.SequenceStartEvent):
        return []
    return None


def _add_to_collection(collection: Any, key: str | None, value: Any) -> str | None:
    """Add a value to a list, or to a table under its key. Return the key that waits for its value."""
    if isinstance(collection, list):
        collection.append(value)
        return None
    if key is not None:
        collection[key] = value
        return None
    if not isinstance(value, str) or value in collection:
        raise ValueError("it has a duplicate key, or a key that is not a text")
    return value
