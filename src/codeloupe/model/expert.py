"""An expert: a named, narrow checklist for a reviewing agent. It is not a character."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct, field


class Expert(Struct, frozen=True, kw_only=True):
    """What to look for and what to leave alone. `paths` are globs; empty means every file.

    A glob that begins with `!` leaves files out; where there are only such globs, every other file is in.
    `severity_guide` says, by the label of a severity, what deserves it. `joined` experts are asked together, in
    one call, also where each of the others has calls of its own.
    """

    name: str
    description: str
    focus: tuple[str, ...]
    sceptical_of: tuple[str, ...] = ()
    do_not_flag: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    severity_guide: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    joined: bool = False
