"""Notes: everything that the analysis collects about one module while it reads it."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from codeloupe.analysers.dataflow.doubts import Doubts
from codeloupe.analysers.dataflow.harms import Harm
from codeloupe.analysers.dataflow.values import Value

Function = ast.FunctionDef | ast.AsyncFunctionDef
Environment = dict[str, Value]


class OverBudget(Exception):
    """The module takes more steps than its size explains."""


class Flow(NamedTuple):
    """One harm at a line, the source of the data, and the lines between source and sink."""

    harm: Harm
    line: int
    end_line: int
    target: str
    source: str = ""
    source_line: int = 0
    lines: tuple[int, ...] = ()

    def all_lines(self) -> set[int]:
        """Return every line that is part of the flow."""
        last = min(self.end_line, self.line + 50)
        return {self.source_line, *self.lines, *range(self.line, last + 1)}


class ParameterSink(NamedTuple):
    """A parameter of a function that reaches a sink inside of it."""

    parameter: str
    flow: Flow


class Summary(NamedTuple):
    """The effect of calling a function: the value it returns, and its parameters that reach a sink."""

    returned: Value
    sinks: tuple[ParameterSink, ...]


def functions_in(statements: Sequence[ast.stmt]) -> Iterator[Function]:
    """Yield the functions that statements define, also in blocks such as `if` and `try`, in the order of the file."""
    for definition in _definitions_in(statements):
        if isinstance(definition, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield definition


def classes_in(statements: Sequence[ast.stmt]) -> Iterator[ast.ClassDef]:
    """Yield the classes that statements define, also in blocks such as `if` and `try`, in the order of the file."""
    for definition in _definitions_in(statements):
        if isinstance(definition, ast.ClassDef):
            yield definition


def _definitions_in(statements: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    waiting: list[ast.AST] = list(reversed(statements))
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node
        elif isinstance(node, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            waiting += reversed(list(ast.iter_child_nodes(node)))


class ClassNotes:
    """One class of the module.

    `kind` says which web server calls its methods: `handler`, `tornado`, `view` or nothing. `functions` are all
    functions in its body, and `methods` the last one of each name. `constants` are harmless values in its body.
    `outside_attributes` is the outside data that methods store in objects, and `initial_attributes` everything that
    `__init__` stores in a new object.
    """

    def __init__(self, node: ast.ClassDef, *, kind: str, is_enum: bool) -> None:
        self.node = node
        self.kind = kind
        self.is_enum = is_enum
        self.functions = list(functions_in(node.body))
        self.methods = {function.name: function for function in self.functions}
        self.constants: Environment = {}
        self.outside_attributes: Environment = {}
        self.initial_attributes: Environment = {}
        self._assigned: set[str] | None = None

    def constant(self, name: str) -> Value | None:
        """Return a constant of the class, or None if the class assigns it again or has none of this name."""
        if name not in self.constants:
            return None
        if self._assigned is None:
            self._assigned = set()
            for part in ast.walk(self.node):
                if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store):
                    self._assigned.add(part.attr)
        return None if name in self._assigned else self.constants[name]


class Notes:
    """One module. `budget` is the number of steps that are left.

    `judged` has, for a line and a harm, the expressions that reach a sink there if all are followed and safe, or None.
    `quiet` are rules of ruff that have nothing to add at a line. `stored_outside` counts how often outside data was
    stored in an attribute or a module variable.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.is_page_framework = False
        self.is_django = False
        self.globals: Environment = {}
        self.patterns: dict[str, str] = {}
        self.classes: list[ClassNotes] = []
        self.summaries: dict[int, Summary | None] = {}
        self.flows: dict[Flow, None] = {}
        self.judged: dict[tuple[int, Harm], list[ast.AST] | None] = {}
        self.quiet: dict[int, set[str]] = defaultdict(set)
        self.stored_outside = 0

    def spend(self, steps: int) -> None:
        """Take steps from the budget. Raise OverBudget if none is left."""
        self.budget -= steps
        if self.budget < 0:
            raise OverBudget

    def quiet_rules(self, tree: ast.Module, added: AbstractSet[int]) -> dict[int, set[str]]:
        """Return, for each added line, the defects and rules that other analysers need not report there.

        A defect is quiet on a line if all its sinks there were followed and are safe, without a doubt about a name, and
        on each line of a flow.
        """
        quiet = {line: set(rules) for line, rules in self.quiet.items() if line in added}
        doubts: Doubts | None = None
        for (line, harm), expressions in self.judged.items():
            if line not in added or expressions is None:
                continue
            doubts = doubts or Doubts(tree)
            if not doubts.about(expressions):
                quiet.setdefault(line, set()).add(harm.value)
        for flow in self.flows:
            for line in flow.all_lines() & added:
                quiet.setdefault(line, set()).add(flow.harm.value)
        return quiet
