"""Which file a reviewer means by the path it wrote."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from codeloupe.engine.prompt_text import one_line
from codeloupe.model.change import FileChange, FileStatus

_LONGEST_PATH = 4096
_MOST_PARTS = 64
_LOCATION = re.compile(
    r"(?::\d{1,9}(?:[-:]\d{1,9}){0,2}|#L\d{1,9}(?:-L?\d{1,9})?|\s{0,9}\((?:lines?|L)\s?\d[^()]{0,40}\))$"
)
_DRIVE = re.compile(r"[A-Za-z]:/")
_MANY_SLASHES = re.compile(r"/(?:\.?/){1,999}")
_WRAPPING = " \t\r\n`'\"<>*,;"


class ClaimedPaths:
    """Finds the file of a claimed path among the changed files first, then in the rest of the tree.

    `is_readable` tells whether the reviewed tree has a file; it is asked only for clean relative paths.
    """

    def __init__(self, files: Sequence[FileChange], is_readable: Callable[[str], bool]) -> None:
        self._is_readable = is_readable
        self._changed: dict[str, str] = {}
        self._by_name: defaultdict[str, list[str]] = defaultdict(list)
        for file in files:
            if file.path not in self._changed:
                self._by_name[file.path.rpartition("/")[2]].append(file.path)
                self._changed[file.path] = file.path
        for file in files:
            self._changed.setdefault(one_line(file.path), file.path)
            if file.status is FileStatus.RENAMED and file.old_path:
                self._changed.setdefault(file.old_path, file.path)
        self._found = lru_cache(maxsize=4096)(self._find)

    def candidates(self, claimed: str, unit_files: Sequence[str]) -> tuple[str, ...]:
        """The files that may be meant, the likeliest first; none when none is, or when too many could be."""
        if claimed in self._changed:
            return (self._changed[claimed],)
        return self._found(claimed[: _LONGEST_PATH + 1], tuple(unit_files))

    def _find(self, claimed: str, unit_files: tuple[str, ...]) -> tuple[str, ...]:
        spellings = list(_spellings(claimed))
        for path in spellings:
            if path in self._changed:
                return (self._changed[path],)
        path = spellings[-1]
        parts = path.split("/")
        if not is_inside(path.lstrip("/")) or len(parts) > _MOST_PARTS:
            return ()
        if path.startswith("/") or _DRIVE.match(path):
            return self._of_absolute(parts[1:])
        exact = [spelling for spelling in spellings if is_inside(spelling) and self._is_readable(spelling)]
        return self._of_relative(parts, unit_files, exact[:1])

    def _of_absolute(self, parts: list[str]) -> tuple[str, ...]:
        """The longest end of it that names a file, as nobody knows where the tree was for the reviewer."""
        ends = ("/".join(parts[index:]) for index in range(len(parts)))
        found = next((end for end in ends if end in self._changed or self._is_readable(end)), None)
        return () if found is None else (self._changed.get(found, found),)

    def _of_relative(self, parts: list[str], unit_files: tuple[str, ...], exact: list[str]) -> tuple[str, ...]:
        end = "/" + "/".join(parts)
        longer = [known for known in self._by_name.get(parts[-1], ()) if known.endswith(end)]
        if len(longer) > 1:
            longer = [known for known in longer if known in unit_files]
            if len(longer) != 1:
                return ()
        ends = ("/".join(parts[index:]) for index in range(1, len(parts)))
        shorter = next(((self._changed[end],) for end in ends if end in self._changed), ())
        return tuple(dict.fromkeys((*longer, *exact, *shorter)))


def clean_path(claimed: str) -> str:
    """The path without what is around it: quotes, line numbers, prefixes of a diff, doubled slashes."""
    return list(_spellings(claimed))[-1]


def _spellings(claimed: str) -> Iterator[str]:
    path = claimed.strip(_WRAPPING)
    yield path
    path = _LOCATION.sub("", path).strip(_WRAPPING)
    yield path
    path = path.removeprefix("file://").replace("\\", "/")
    yield path
    path = _MANY_SLASHES.sub("/", path)
    while path.startswith("./"):
        path = path[2:]
    yield path
    if path.startswith(("a/", "b/")):
        path = path[2:]
        yield path


def is_inside(path: str) -> bool:
    """Whether a relative path stays in the tree, is not the repository's own storage, and can name a file at all."""
    parts = path.split("/")
    ordinary = not any(part in {"", ".", ".."} or part.lower() == ".git" for part in parts)
    return ordinary and 0 < len(path) <= _LONGEST_PATH and "\0" not in path
