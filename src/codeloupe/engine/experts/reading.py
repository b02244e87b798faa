"""The YAML file of an expert as plain text, lists and mappings. Capped, and no tag or alias can do anything.

Every scalar is text, since a checklist is made of words: `yes` and `1.10` stay what was written.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePath

import yaml

from codeloupe.errors import ConfigError

MAX_FILE_BYTES = 64 * 1024
_DEEPEST_LEVEL = 3
_MOST_VALUES = 1_000
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PLAIN_TAGS = (None, "!", *(f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map")))

Plain = str | list["Plain"] | dict[str, "Plain"] | None


def read_definition(path: Path) -> dict[str, Plain]:
    """The keys and values of an expert's file. Raises ConfigError, which names the file, for anything else."""
    name = place_of(path)
    try:
        text = _bytes_of(path, name).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name}: not UTF-8 text", hint="save the file as UTF-8") from error
    document = _Document(name, text).root()
    if not isinstance(document, dict):
        raise ConfigError(f"{name}: expected lines of `key: value`", hint="begin with `description:` and `focus:`")
    return document


def place_of(path: Path) -> str:
    """A file as a message shows it: with its folder, and without anything that a terminal could act on."""
    place = str(PurePath(path.parent.name, path.name))
    return place if place.isprintable() else ascii(place)


def _bytes_of(path: Path, name: str) -> bytes:
    # O_NONBLOCK: opening a named pipe would wait for a writer that never comes.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags)
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
    except OSError as error:
        if error.errno == errno.ELOOP:
            hint = "put the file itself in its place"
            raise ConfigError(f"{name}: a symbolic link, which is not followed", hint=hint) from error
        reason = (error.strerror or "unknown error").lower()
        raise ConfigError(f"{name}: cannot be read: {reason}", hint="check the file's permissions") from error
    if data is None:
        raise ConfigError(f"{name}: not a regular file", hint="put a plain text file in its place")
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"{name}: larger than {MAX_FILE_BYTES:,} bytes", hint="shorten the file")
    return data


class _Document:
    """Builds plain values from the events of a parser, so that the limits hold while it reads."""

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._text = text
        self._values = 0

    def root(self) -> Plain:
        """The only document of the file, or None when there is none. Raises ConfigError."""
        try:
            return self._only(iter(yaml.parse(self._text, Loader=_LOADER)))
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            place = f"{self._name}:{mark.line + 1}" if mark else self._name
            problem = getattr(error, "problem", None) or "a character that is not allowed"
            raise ConfigError(
                f"{place}: not valid YAML: {problem}", hint="check indentation, colons and quotes of this line"
            ) from error

    def _only(self, events: Iterator[yaml.Event]) -> Plain:
        next(events)
        if isinstance(next(events), yaml.StreamEndEvent):
            return None
        root = self._value(next(events), events, depth=0)
        next(events)
        if not isinstance(after := next(events), yaml.StreamEndEvent):
            raise self._refusal(after, "a second document begins here", "keep one document, without `---` lines")
        return root

    def _value(self, event: yaml.Event, events: Iterator[yaml.Event], *, depth: int) -> Plain:
        self._values += 1
        if depth > _DEEPEST_LEVEL or self._values > _MOST_VALUES:
            raise self._refusal(event, "too many or too deeply nested values", "keep to lists of short texts")
        if isinstance(event, yaml.AliasEvent):
            raise self._refusal(event, "aliases (`*name`) are not allowed", "put a text that begins with `*` in quotes")
        if getattr(event, "tag", None) not in _PLAIN_TAGS:
            raise self._refusal(event, "tags (`!name`) are not allowed", "put a text that begins with `!` in quotes")
        if isinstance(event, yaml.ScalarEvent):
            return None if event.style is None and event.value in {"", "~", "null"} else str(event.value)
        items = list(self._items(events, depth=depth + 1))
        return items if isinstance(event, yaml.SequenceStartEvent) else self._mapping(event, items)

    def _items(self, events: Iterator[yaml.Event], *, depth: int) -> Iterator[Plain]:
        while not isinstance(event := next(events), yaml.CollectionEndEvent):
            yield self._value(event, events, depth=depth)

    def _mapping(self, event: yaml.Event, items: list[Plain]) -> dict[str, Plain]:
        mapping: dict[str, Plain] = {}
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, str):
                raise self._refusal(event, "a key here is not a word", "write `key: value`")
            if key in mapping:
                raise self._refusal(event, f"the key {key[:60]!r} is given twice", "keep one of the two")
            mapping[key] = value
        return mapping

    def _refusal(self, event: yaml.Event, what: str, hint: str) -> ConfigError:
        line = event.start_mark.line + 1 if event.start_mark else 1
        return ConfigError(f"{self._name}:{line}: {what}", hint=hint)
