"""The words by which findings are compared, read once from `vocabulary.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from msgspec import Struct

_FILE = Path(__file__).with_name("vocabulary.toml")


class Vocabulary(Struct, frozen=True):
    """Words as they stand in the file: empty ones, opposites, beginnings by family, ways to say each kind of defect."""

    empty_words: frozenset[str]
    attributes: frozenset[str]
    things: frozenset[str]
    told_of: frozenset[str]
    synonyms: tuple[tuple[str, ...], ...]
    opposites: tuple[tuple[str, str], ...]
    families: Mapping[str, tuple[str, ...]]
    kinds: Mapping[str, tuple[tuple[str, ...], ...]]


@cache
def vocabulary() -> Vocabulary:
    """The words of the file that is shipped."""
    document = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    return Vocabulary(
        empty_words=frozenset(document["empty_words"].split()),
        attributes=frozenset(document["attributes"].split()),
        things=frozenset(document["things"].split()),
        told_of=frozenset(document["told_of"]),
        synonyms=tuple(tuple(group.split()) for group in document["synonyms"]),
        opposites=tuple((one, other) for one, other in document["opposites"]),
        families={name: tuple(beginnings.split()) for name, beginnings in document["families"].items()},
        kinds={
            kind: tuple(tuple(way.split()) for way in ways.split(",") if way.strip())
            for kind, ways in document["kinds"].items()
        },
    )
