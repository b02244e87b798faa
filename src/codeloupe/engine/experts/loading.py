"""Experts by their names: those of the configuration before those of a folder before those that are built in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import MappingProxyType

from codeloupe.engine.experts.definition import Definition, define, did_you_mean
from codeloupe.engine.experts.shipped import read_shipped
from codeloupe.errors import ConfigError
from codeloupe.model.expert import Expert

DEFAULT = "default"
"""A name that stands for the experts of an ordinary review, each with its checklist in one line."""

_BUILT_IN = (
    "correctness",
    "security",
    "reliability",
    "performance",
    "concurrency",
    "api_compatibility",
    "tests",
    "documentation",
    "architecture",
    "code_quality",
    "general",
)
_IN_DEFAULT = (
    "correctness",
    "security",
    "reliability",
    "concurrency",
    "performance",
    "api_compatibility",
    "tests",
    "documentation",
)
_HERE = Path(__file__).parent
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_SUFFIXES = (".yaml", ".yml")
_NONE: Mapping[str, Mapping[str, object]] = MappingProxyType({})


def builtin_names() -> tuple[str, ...]:
    """The names of the experts that come with codeloupe."""
    return _BUILT_IN


def default_experts() -> tuple[Expert, ...]:
    """The experts of an ordinary review: short enough to be asked together, in every call."""
    return load_experts((DEFAULT,))


def load_experts(
    names: Sequence[str], *, own: Mapping[str, Mapping[str, object]] = _NONE, folder: Path | None = None
) -> tuple[Expert, ...]:
    """The experts of these names, in order, each once.

    `own` are definitions from the configuration; `folder` holds one `<name>.yaml` an expert, never reached through a
    symbolic link. `default` stands for several experts in short; one that is named as well is loaded whole. Only what
    is asked for is read. Raises ConfigError for an unknown name, a malformed definition or an unreadable file.
    """
    in_brief: dict[str, bool] = {}
    for name in names:
        if name == DEFAULT:
            in_brief = {**dict.fromkeys(_IN_DEFAULT, True), **in_brief}
        else:
            in_brief[name] = False
    shelf = _Shelf(own, folder)
    loaded = [(shelf.definition(name), brief) for name, brief in in_brief.items()]
    return tuple(definition.in_brief() if brief else definition.expert for definition, brief in loaded)


class _Shelf:
    """The definitions at hand, by name."""

    def __init__(self, own: Mapping[str, Mapping[str, object]], folder: Path | None) -> None:
        """Raises ConfigError when there is no such folder, or a name cannot be one."""
        self._own = own
        self._files = _files_in(folder) if folder else {}
        for name in (*own, *self._files):
            if name == DEFAULT or not _NAME.fullmatch(name):
                raise ConfigError(
                    f"experts: {name[:60]!r} cannot be the name of an expert",
                    hint=f"use letters, digits, - and _; `{DEFAULT}` means the experts of an ordinary review",
                )

    def definition(self, name: str) -> Definition:
        """The definition of a name. Raises ConfigError."""
        if name in self._own:
            return define(name, self._own[name], place=f"experts.{name}")
        if name in self._files:
            path = self._only_file(name)
            # Loaded late, for it loads a YAML parser.
            reading = import_module("codeloupe.engine.experts.reading")
            return define(name, reading.read_definition(path), place=reading.place_of(path))
        if name in _BUILT_IN:
            return define(name, read_shipped(_HERE / f"{name}.yaml"), place=f"{_HERE.name}/{name}.yaml")
        known = tuple(dict.fromkeys((*self._own, *self._files, *_BUILT_IN, DEFAULT)))
        raise ConfigError(f"there is no expert {name[:60]!r}", hint=did_you_mean(name, known))

    def _only_file(self, name: str) -> Path:
        first, *others = self._files[name]
        if others:
            raise ConfigError(
                f"the expert {name} has two files: {first.name} and {others[0].name}", hint="keep one of the two"
            )
        return first


def _files_in(folder: Path) -> dict[str, list[Path]]:
    """The files of a folder by the names of their experts."""
    try:
        entries = sorted(entry.name for entry in folder.iterdir())
    except OSError as error:
        reason = (error.strerror or "unknown error").lower()
        raise ConfigError(
            f"the folder of experts {str(folder)!r} cannot be read: {reason}", hint="check where it is"
        ) from error
    files: dict[str, list[Path]] = {}
    for entry in entries:
        if entry.endswith(_SUFFIXES) and not entry.startswith("."):
            files.setdefault(entry.rpartition(".")[0], []).append(folder / entry)
    return files
