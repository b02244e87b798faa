"""In which order files stand in a plan, so that related ones are near: a source before its tests, a folder whole.

Names alone decide, in linear time. A further pass has another order, drawn from its number and the names, so that
it is the same at every run and a file more or less leaves the others in their order.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

# Folders that tell what kind of code is below them, and not what it is about.
_TEST_FOLDERS = frozenset(("test", "tests", "__tests__", "spec", "specs", "testing"))
_NEUTRAL_FOLDERS = _TEST_FOLDERS | {"src", "lib", "main", "source", "sources", "unit", "integration", "property", "e2e"}
_TEST_BEGINNINGS = ("test_", "test-", "tests_")
_TEST_ENDINGS = ("_test", "_tests", "_spec", "-test", "-tests", "-spec", ".test", ".tests", ".spec")
_TEST_WORD = re.compile(r"^(?:Test|test)(?=[A-Z])|(?<=[a-z0-9])(?:Tests?|Spec|IT)$")


class Block(NamedTuple):
    """Files that belong together, by their places in the change: a source and its tests, or a file alone."""

    folder: str
    members: tuple[int, ...]


class _Name(NamedTuple):
    """A path by what it is about: `stem` without marks of a test, `topic` with the folders that say something."""

    folder: str
    stem: str
    topic: tuple[str, ...]
    is_test: bool


def related_blocks(paths: Sequence[str], *, pass_number: int = 1) -> list[Block]:
    """Every path, by its place, in exactly one block; in a first pass by folder, in further ones shuffled."""
    names = [_name_of(path) for path in paths]
    owners = _owners(names)
    members: dict[int, list[int]] = {place: [place] for place in range(len(paths)) if place not in owners}
    for test, owner in owners.items():
        members[owner].append(test)
    order = sorted(members, key=lambda place: (names[place].folder, paths[place], place))
    if pass_number > 1:
        order = _shuffled(order, paths, pass_number)
    return [Block(names[place].folder, tuple(_members_in_order(members[place], paths, pass_number))) for place in order]


def shuffle_key(text: str, pass_number: int) -> bytes:
    """A key to sort by: as good as random, different in each pass, and always the same."""
    return blake2b(f"{pass_number}\0{text}".encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _shuffled(places: Iterable[int], paths: Sequence[str], pass_number: int) -> list[int]:
    return sorted(places, key=lambda place: (shuffle_key(paths[place], pass_number), place))


def _members_in_order(places: list[int], paths: Sequence[str], pass_number: int) -> list[int]:
    if pass_number > 1:
        return _shuffled(places, paths, pass_number)
    return [places[0], *sorted(places[1:], key=lambda place: (paths[place], place))]


def _name_of(path: str) -> _Name:
    folder, _, name = path.rpartition("/")
    folders = folder.lower().split("/")
    base = name.rpartition(".")[0] or name
    stem = _without_test_marks(base)
    is_test = stem != base or not _TEST_FOLDERS.isdisjoint(folders)
    topic = (*(part for part in folders if part not in _NEUTRAL_FOLDERS), stem.lower())
    return _Name(folder, stem.lower(), topic, is_test)


def _without_test_marks(base: str) -> str:
    for beginning in _TEST_BEGINNINGS:
        if base.startswith(beginning):
            return base[len(beginning) :]
    for ending in _TEST_ENDINGS:
        if base.endswith(ending):
            return base[: -len(ending)]
    return _TEST_WORD.sub("", base)


def _owners(names: Sequence[_Name]) -> dict[int, int]:
    """Which test belongs to which source: the one of the same topic, or else the only one of the same stem."""
    by_topic: dict[tuple[str, ...], int] = {}
    by_stem: defaultdict[str, list[int]] = defaultdict(list)
    for place, name in enumerate(names):
        if not name.is_test:
            by_topic.setdefault(name.topic, place)
            by_stem[name.stem].append(place)
    owners: dict[int, int] = {}
    for place, name in enumerate(names):
        if name.is_test and (owner := _owner(name, by_topic, by_stem)) is not None:
            owners[place] = owner
    return owners


def _owner(test: _Name, by_topic: dict[tuple[str, ...], int], by_stem: dict[str, list[int]]) -> int | None:
    stem = test.stem
    while stem:
        if (same_topic := by_topic.get((*test.topic[:-1], stem))) is not None:
            return same_topic
        if len(same_stem := by_stem.get(stem, [])) == 1:
            return same_stem[0]
        # test_plan_names may be a test of plan as well.
        stem = stem.rpartition("_")[0]
    return None
