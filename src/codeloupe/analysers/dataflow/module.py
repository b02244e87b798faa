"""What is remembered while one module is read: its functions and classes, and what was found in it."""

from __future__ import annotations

import ast
from collections import defaultdict
from typing import Any

from msgspec import Struct, field

from codeloupe.analysers.dataflow.meanings import Harm
from codeloupe.analysers.dataflow.values import Value


class OverBudget(Exception):
    """The module takes more work than its size explains."""


class Flow(Struct, frozen=True):
    """Something found: what can happen at a line, and how it gets there."""

    harm: Harm
    line: int
    end_line: int
    target: str
    source: str = ""
    source_line: int = 0
    lines: tuple[int, ...] = ()


class ClassNotes(Struct):
    """A class: its methods, what its objects were seen to keep, and whether a web server calls it (`kind`).

    `made` is what its `__init__` keeps, in terms of its parameters.
    """

    node: ast.ClassDef
    kind: str = ""
    methods: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = field(default_factory=dict)
    attributes: dict[str, Value] = field(default_factory=dict)
    made: dict[str, Value] = field(default_factory=dict)


class ParameterSink(Struct, frozen=True):
    """A parameter of a function that reaches a harmful place inside."""

    name: str
    harm: Harm
    flow: Flow


class Summary(Struct):
    """What a call of a function does: what it returns, and which parameters do harm in it."""

    returned: Value
    sinks: tuple[ParameterSink, ...] = ()


class Notes(Struct):
    """One module. `budget` is the number of steps that are left."""

    budget: int
    is_page_framework: bool = False
    is_django: bool = False
    globals: dict[str, Value] = field(default_factory=dict)
    classes: dict[str, ClassNotes] = field(default_factory=dict)
    summaries: dict[int, Summary | None] = field(default_factory=dict)
    flows: dict[Flow, None] = field(default_factory=dict)
    harmless: dict[int, set[Harm]] = field(default_factory=lambda: defaultdict(set))
    doubtful: dict[int, set[Harm]] = field(default_factory=lambda: defaultdict(set))
    quiet: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    known: dict[str, Any] = field(default_factory=dict)
    patterns: dict[str, str] = field(default_factory=dict)

    def judge(self, line: int, harm: Harm, *, harmless: bool) -> None:
        """Say of a line whether outside text can do this harm there; one doubt is enough."""
        (self.harmless if harmless else self.doubtful)[line].add(harm)
