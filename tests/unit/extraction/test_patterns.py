"""Patterns that are compiled late do what compiled ones do, and every one in the room can be compiled."""

from __future__ import annotations

import importlib
import pkgutil
import re

import codeloupe.engine.parse
from codeloupe.engine.parse import patterns

ROOM = [
    importlib.import_module(f"codeloupe.engine.parse.{module.name}")
    for module in pkgutil.iter_modules(codeloupe.engine.parse.__path__)
]


def test_a_late_pattern_finds_what_a_compiled_one_finds() -> None:
    late, compiled = patterns.late("a(B)", re.IGNORECASE), re.compile("a(B)", re.IGNORECASE)
    for text in ("ab", "xAb ab", ""):
        assert bool(late.match(text)) is bool(compiled.match(text))
        assert late.findall(text) == compiled.findall(text)
        assert late.sub("-", text) == compiled.sub("-", text)
    assert late.pattern == compiled.pattern


def test_every_late_pattern_of_the_room_can_be_compiled() -> None:
    found = [
        each
        for module in ROOM
        for value in vars(module).values()
        for each in (value.values() if isinstance(value, dict) else [value])
        if isinstance(each, patterns._LatePattern)
    ]
    assert len(found) > 30
    assert all(each.groups >= 0 for each in found)
