"""Patterns that are compiled at their first use, and that all of ours can be."""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import pytest

import codeloupe
from codeloupe.system.regex import regex


def test_it_is_compiled_at_its_first_use_and_does_what_a_pattern_does() -> None:
    broken = regex("(")
    assert broken.pattern == "("
    for pattern in (regex(r"\d+", re.ASCII), re.compile(r"\d+", re.ASCII)):
        assert pattern.findall("a1 b22") == ["1", "22"]
        assert (pattern.sub("n", "a1 b22"), bool(pattern.fullmatch("7"))) == ("an bn", True)
        assert pattern.flags & re.ASCII
        assert (pattern.groups, pattern.pattern) == (0, r"\d+")


def patterns_in(value: object) -> Iterator[Any]:
    if type(value) is type(regex("")):
        yield value
    elif isinstance(value, tuple | list | frozenset):
        for part in value:
            yield from patterns_in(part)
    elif isinstance(value, dict):
        yield from patterns_in(list(value.values()))


# An import of a dependency starts `file` to learn about the platform.
@pytest.mark.program
def test_every_pattern_of_ours_can_be_compiled() -> None:
    names = [found.name for found in pkgutil.walk_packages(codeloupe.__path__, "codeloupe.")]
    modules = [importlib.import_module(name) for name in names if not name.endswith("__main__")]
    found = [pattern for module in modules for pattern in patterns_in(list(vars(module).values()))]
    assert len(found) > 100
    assert all(isinstance(pattern.flags, int) for pattern in found)
