"""Where each value of the settings came from."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from codeloupe.config.schema import Settings


class OriginKind(StrEnum):
    """The sources, weakest first."""

    DEFAULT = "default"
    USER = "user"
    REPOSITORY = "repository"
    SITUATION = "situation"
    ENVIRONMENT = "environment"
    FLAG = "flag"


class Origin(Struct, frozen=True):
    """One place. `where` names the file, variable or flag, or tells the situation; `line` is known for files only."""

    kind: OriginKind
    where: str = ""
    line: int | None = None

    def __str__(self) -> str:
        """The place as a person would write it: `default`, `file:line`, the variable or the flag, or the reason."""
        if self.kind is OriginKind.DEFAULT:
            return "default"
        return self.where if self.line is None else f"{self.where}:{self.line}"


DEFAULT_ORIGIN = Origin(OriginKind.DEFAULT)


class LoadedSettings(Struct, frozen=True):
    """The settings in force, and the origin of every key. `notes` tell of files that only look like settings."""

    settings: Settings
    origins: Mapping[str, Origin]
    notes: tuple[str, ...] = ()
