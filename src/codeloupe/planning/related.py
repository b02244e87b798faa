"""Find files that belong together: a source and its tests, by their names and folders."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

from codeloupe.system.regex import regex

# Folders that name the kind of code in them, not its topic.
_TEST_FOLDERS = frozenset(("test", "tests", "__tests__", "spec", "specs", "testing"))
_NEUTRAL_FOLDERS = _TEST_FOLDERS | {"src", "lib", "main", "source", "sources", "unit", "integration", "property", "e2e"}
_TEST_MARK = regex(r"^tests?_|^test-|(?:_tests?|_spec|-tests?|-spec|\.tests?|\.spec)$")
_TEST_WORD = regex(r"^(?:Test|test)(?=[A-Z])|(?<=[a-z0-9])(?:Tests?|Spec|IT)$")


def related_blocks(paths: Sequence[str], *, pass_number: int = 1) -> list[tuple[int, ...]]:
    """Return the index of each source with those of its tests. The order differs from pass to pass."""

    def order(index: int) -> tuple[object, ...]:
        path = paths[index]
        if pass_number > 1:
            return shuffle_key(path, pass_number), index
        folder = path.rpartition("/")[0]
        return folder, path, index

    owners = _owners(paths)
    tests: defaultdict[int, list[int]] = defaultdict(list)
    for test, owner in owners.items():
        tests[owner].append(test)
    sources = [index for index in range(len(paths)) if index not in owners]
    return [(source, *sorted(tests[source], key=order)) for source in sorted(sources, key=order)]


def shuffle_key(text: str, pass_number: int) -> bytes:
    """Return a key to sort by that looks random, differs in each pass, and is the same in each run."""
    return blake2b(f"{pass_number}\0{text}".encode("utf-8", "surrogatepass"), digest_size=16).digest()


class _TestFile(NamedTuple):
    """A test: its place in the list, the stem of the source that it probably tests, and the folders of its topic."""

    place: int
    stem: str
    topic: tuple[str, ...]


def _owners(paths: Sequence[str]) -> dict[int, int]:
    """Return the source of each test, by index: the one of the same topic and stem, or the only one of that stem."""
    by_topic: dict[tuple[str, ...], int] = {}
    by_stem: defaultdict[str, list[int]] = defaultdict(list)
    tests: list[_TestFile] = []
    for index, path in enumerate(paths):
        folder, _, name = path.rpartition("/")
        folders = folder.lower().split("/")
        base = name.rpartition(".")[0] or name
        stem = _without_test_mark(base)
        topic = tuple(part for part in folders if part not in _NEUTRAL_FOLDERS)
        if stem != base or not _TEST_FOLDERS.isdisjoint(folders):
            tests.append(_TestFile(index, stem.lower(), topic))
        else:
            by_topic.setdefault((*topic, stem.lower()), index)
            by_stem[stem.lower()].append(index)
    owners: dict[int, int] = {}
    for test in tests:
        stem = test.stem
        while stem and test.place not in owners:
            same_stem = by_stem.get(stem, [])
            if (*test.topic, stem) in by_topic:
                owners[test.place] = by_topic[*test.topic, stem]
            elif len(same_stem) == 1:
                owners[test.place] = same_stem[0]
            # test_plan_names may be a test of plan as well.
            stem = stem.rpartition("_")[0]
    return owners


def _without_test_mark(base: str) -> str:
    """Return the name of a file without the part that marks it as a test."""
    stem = _TEST_MARK.sub("", base, count=1)
    if stem != base:
        return stem
    return _TEST_WORD.sub("", base)
