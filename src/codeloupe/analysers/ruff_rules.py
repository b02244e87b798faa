"""Which rules of ruff are asked for, and what a hit means to us; the table itself is `ruff_rules.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from codeloupe.model.finding import Severity

_TABLE = "ruff_rules.toml"


class RuffRule(Struct, frozen=True, kw_only=True):
    """What one rule means: how bad, of what kind, why it matters and how to mend it.

    `seems_safe` is the severity when ruff, or a look at the code, says that it seems safe. `quiet_in_tests` marks
    what a test rightly does.
    """

    code: str
    severity: Severity
    category: str
    why: str
    fix: str | None
    seems_safe: Severity
    quiet_in_tests: bool


@cache
def ruff_rules() -> Mapping[str, RuffRule]:
    """Every rule that is asked for, by its code.

    Raises ValueError when the table names one code twice or a severity that does not exist.
    """
    document = tomllib.loads((files("codeloupe.analysers") / _TABLE).read_text(encoding="utf-8"))
    rules: dict[str, RuffRule] = {}
    for entry in document["entry"]:
        for code in entry["rules"]:
            if code in rules:
                raise ValueError(f"{_TABLE} holds {code} twice")
            rules[code] = _rule(code, entry)
    return MappingProxyType(rules)


def _rule(code: str, entry: Mapping[str, Any]) -> RuffRule:
    severity = Severity.parse(entry["severity"])
    return RuffRule(
        code=code,
        severity=severity,
        category=entry["category"],
        why=entry["why"],
        fix=entry.get("fix"),
        seems_safe=Severity.parse(entry.get("seems_safe", severity)),
        quiet_in_tests=entry.get("quiet_in_tests", False),
    )
