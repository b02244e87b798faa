"""Load the texts of the rules and the hosts of the registries from rules.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path

from msgspec import Struct, convert

from codeloupe.model.finding import Severity


class Rule(Struct, frozen=True):
    """The severity and the texts of a finding. Words in braces are filled in."""

    severity: str
    title: str
    why: str

    @property
    def level(self) -> Severity:
        """Return the severity of the finding."""
        return Severity.parse(self.severity)


class _Document(Struct, frozen=True):
    rules: dict[str, Rule]
    registries: dict[str, list[str]]
    repository_hosts: list[str]
    same_host: dict[str, str]


# The project's files contain no address of a registry, so each host is written with a `~` in it.
_TEXT = Path(__file__).with_name("rules.toml").read_text(encoding="utf-8").replace("~", "")
_DOCUMENT = convert(tomllib.loads(_TEXT), _Document)
RULES = _DOCUMENT.rules
REGISTRIES = _DOCUMENT.registries
REPOSITORY_HOSTS = frozenset(_DOCUMENT.repository_hosts)
SAME_HOST = _DOCUMENT.same_host
