"""Entries, texts and findings for the tests of this room."""

from __future__ import annotations

from datetime import date
from typing import Any

from codeloupe.model.baseline import BaselineEntry
from codeloupe.model.finding import Finding, Severity

TODAY = date(2030, 6, 15)
ONE = "11111111aaaa22223333444455556666"
TWO = "22222222bbbb22223333444455556666"
TEXT = f"""\
# Ours, by agreement.
version: 1
entries:
  # The old queries.
  - fingerprint: "{ONE}"
    file: "a.py"
    title: "built from text"
    reason: "legacy"  # see the wiki

  - fingerprint: {TWO}
    file: b.py
    reason: 'ours: fine'
    owner: payments
    expires: 2030-12-31
"""


def entry(fingerprint: str = ONE, **more: Any) -> BaselineEntry:
    return BaselineEntry(**{"fingerprint": fingerprint, "reason": "legacy", "file": "a.py", **more})


def finding(fingerprint: str = ONE, **more: Any) -> Finding:
    values: dict[str, Any] = {
        "file": "a.py",
        "line_start": 3,
        "line_end": 3,
        "severity": Severity.HIGH,
        "category": "security",
        "title": "built from text",
        "body": "why",
        "evidence": "    run(query + name)",
        "reviewer": "ruff",
        **more,
    }
    return Finding(fingerprint=fingerprint, **values)
