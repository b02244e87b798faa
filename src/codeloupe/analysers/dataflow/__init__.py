"""Data flow in Python code: from what a request holds to where it does harm, within one module."""

from __future__ import annotations

from msgspec import Struct, field

from codeloupe.analysers.interface import Issue


class Answer(Struct):
    """What the child says of one file; `quiet` are the rules of ruff that have nothing to add at a line."""

    file: str
    failed: str = ""
    issues: list[Issue] = field(default_factory=list)
    quiet: dict[int, list[str]] = field(default_factory=dict)
