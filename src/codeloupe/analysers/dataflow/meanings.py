"""The harms that outside text can do: how bad each is, and what to say of it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path

from msgspec import Struct

from codeloupe.model.finding import Severity


def words(text: str) -> frozenset[str]:
    """The words of a text, to look some up in."""
    return frozenset(text.split())


class Harm(StrEnum):
    """What outside text can do at a place; its value is the rule's name."""

    SQL = "py-sql-injection"
    SHELL = "py-command-injection"
    CODE = "py-code-injection"
    PATH = "py-path-traversal"
    XPATH = "py-xpath-injection"
    LDAP = "py-ldap-injection"
    TEMPLATE = "py-template-injection"
    REDIRECT = "py-open-redirect"
    OBJECT = "py-unsafe-deserialization"
    HTML = "py-cross-site-scripting"
    FETCH = "py-request-forgery"
    XML = "py-xml-external-entity"
    HEADER = "py-header-injection"
    RANDOM = "py-guessable-secret"
    COOKIE = "py-insecure-cookie"
    TLS = "py-tls-not-verified"
    ASSERT = "py-assert-as-guard"
    TIMING = "py-signature-comparison"


class Meaning(Struct, frozen=True):
    """How bad a harm is, what to say of it, and which of ruff's rules speak of the same."""

    severity: Severity
    title: str
    why: str
    fix: str
    same_as: frozenset[str] = frozenset()


@cache
def meanings() -> Mapping[Harm, Meaning]:
    """What each harm means, from `meanings.toml`."""
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return {
        Harm(name): Meaning(
            Severity.parse(entry["severity"]),
            entry["title"],
            entry["why"],
            entry["fix"],
            frozenset(entry.get("same_as", ())),
        )
        for name, entry in table.items()
    }


ALL_TEXT = frozenset(
    {
        Harm.SQL, Harm.SHELL, Harm.CODE, Harm.PATH, Harm.XPATH, Harm.LDAP, Harm.TEMPLATE, Harm.REDIRECT, Harm.OBJECT,
        Harm.HTML, Harm.FETCH, Harm.XML, Harm.HEADER,
    }
)  # fmt: skip
"""Every harm that text can do."""
