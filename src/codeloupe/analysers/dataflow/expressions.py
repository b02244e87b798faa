"""Expressions: the value of each, given the values of the variables."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from codeloupe.analysers.dataflow.guards import PROVEN, excluded_by
from codeloupe.analysers.dataflow.harms import ALL_TEXT, NO_HARMS, Harm
from codeloupe.analysers.dataflow.knowledge import (
    CONSTANT_NAME,
    INTERPRETED_AGAIN,
    NUMBER_FORMAT,
    QUERY_TEXT,
    REQUEST_OBJECTS,
    REQUEST_PARTS,
    SENDER_VARIABLES,
    SERVER_VARIABLES,
    SIGNATURE,
    WITHOUT_TEXT,
    is_textless_annotation,
    names_a_secret,
    only_resembles_a_secret,
)
from codeloupe.analysers.dataflow.notes import ClassNotes, Environment, Flow, Function, Notes, ParameterSink
from codeloupe.analysers.dataflow.values import (
    ENUM_MEMBER,
    ENVIRONMENT,
    HARMLESS,
    MODEL_OPTIONS,
    NOTHING_KNOWN,
    REQUEST,
    UNKNOWN,
    UPLOAD,
    Origin,
    Value,
    concatenate,
    constant,
    container,
    fold,
    join,
    mix,
    operate,
    outside,
)

# The method of a reader for each kind of expression. All other expressions are unknown.
_METHODS: Mapping[type[ast.AST], str] = {
    ast.Attribute: "_attribute",
    ast.Await: "_passed_value",
    ast.BinOp: "_binary_operation",
    ast.BoolOp: "_boolean_operation",
    ast.Call: "_call",
    ast.Compare: "_comparison",
    ast.Dict: "_dictionary",
    ast.DictComp: "_comprehension",
    ast.GeneratorExp: "_comprehension",
    ast.IfExp: "_conditional",
    ast.JoinedStr: "_f_string",
    ast.List: "_list",
    ast.ListComp: "_comprehension",
    ast.NamedExpr: "_named_expression",
    ast.Set: "_list",
    ast.SetComp: "_comprehension",
    ast.Starred: "_starred",
    ast.Subscript: "_subscript",
    ast.Tuple: "_list",
    ast.UnaryOp: "_unary_operation",
    ast.Yield: "_sent_value",
    ast.YieldFrom: "_sent_value",
}
_HTML = frozenset({Harm.HTML})
_PATH = frozenset({Harm.PATH})


def is_request(value: Value) -> bool:
    """Return whether a value is the request itself."""
    return value.path == REQUEST or value.path in REQUEST_OBJECTS


class Expressions:
    """The values of expressions in one function, or in the statements of the module.

    `env` contains the variables, `notes` everything known about the module. `context` are the names of the function and
    its class, `targets` the targets of the assignment that is being read.
    `sinks` collects the parameters that reach a sink, `returned` the returned values. `shared` are names that the
    function declares as `global`. `address_of` maps the parts of an address to the text they were made from.
    `depth` counts the functions that are being read.
    """

    def __init__(self, notes: Notes, env: Environment, owner: ClassNotes | None = None) -> None:
        self.notes = notes
        self.env = env
        self.owner = owner
        self.context: tuple[str, ...] = ()
        self.targets: list[ast.expr] = []
        self.sinks: list[ParameterSink] = []
        self.returned: list[Value] = []
        self.shared: set[str] = set()
        self.address_of: dict[str, str] = {}
        self.patterns = dict(notes.patterns)
        self.depth = 0

    # Findings.

    def report(self, harm: Harm, node: ast.expr | ast.stmt, target: str) -> None:
        """Report code that is harmful with any values."""
        first, last = _span(node)
        self.notes.flows[Flow(harm, first, last, target)] = None

    def arrive(self, harm: Harm, at: ast.expr | ast.stmt | int, target: str, value: Value) -> None:
        """Note that a value reaches a sink, if something in it comes from outside or from a parameter."""
        if not value.can_do(harm):
            return
        if harm is Harm.PATH and value.path == UPLOAD:
            return
        first, last = _span(at)
        for origin in value.origins:
            self.connect(Flow(harm, first, last, target, origin.text, origin.line, value.lines), origin)
            if origin.kind == "outside":
                return

    def connect(self, flow: Flow, origin: Origin) -> None:
        """Note a flow from outside, or from a parameter of the function that is being read."""
        if origin.kind == "outside":
            self.notes.flows[flow] = None
        elif origin.kind == "parameter" and flow.harm not in origin.safe:
            self.sinks.append(ParameterSink(origin.text, flow))

    def judge(self, node: ast.expr, harm: Harm, value: Value, built_from: Sequence[ast.expr]) -> None:
        """Note, for each line of a sink, whether the sink was followed and is safe, so that ruff can be silent.

        `built_from` are the expressions of the value.
        """
        is_safe = value.harmless or harm in value.proven
        if harm is Harm.SHELL and not value.harmless and INTERPRETED_AGAIN.search(value.pieces):
            is_safe = False
        judged = self.notes.judged
        first, last = _span(node)
        for line in range(first, min(last, first + 200) + 1):
            expressions = judged.setdefault((line, harm), [])
            if not is_safe:
                judged[line, harm] = None
            elif expressions is not None:
                expressions += built_from

    def judge_query(self, node: ast.expr, query: Value) -> None:
        """Note whether a text that looks like a query to ruff can contain anything from outside."""
        if query.pieces and QUERY_TEXT.search(query.pieces):
            self.judge(node, Harm.SQL, query, [node])

    def report_guessable(self, at: ast.expr | ast.stmt | int, value: Value, target: str) -> None:
        """Report a secret that was made by a predictable random generator."""
        first, last = _span(at)
        for origin in value.origins:
            if origin.kind == "random":
                flow = Flow(Harm.RANDOM, first, last, target, origin.text, origin.line, value.lines)
                self.notes.flows[flow] = None

    def check_name(self, name: str, value: Value, line: int) -> None:
        """Report a value that is harmful under this name: a guessable secret, or a program for MongoDB."""
        if not value.origins:
            return
        if name == "$where":
            self.arrive(Harm.CODE, line, name, value)
        if names_a_secret(name) and not only_resembles_a_secret(name):
            self.report_guessable(line, value, f"`{name}`")

    # Variables.

    def refined(self, test: ast.expr, *, truth: bool) -> Environment:
        """Return the variables after a test with this result. A test of an address also tests the address's text."""
        self.notes.spend(len(self.env) // 4)
        refined = dict(self.env)
        excluded = excluded_by(test, self.patterns, truth=truth)
        is_proof = bool(excluded) and self._compares_with_constants(test)
        for name, harms in list(excluded.items()):
            for variable in (name, self.address_of.get(name, "")):
                value = refined.get(variable)
                if value is None or not harms:
                    continue
                refined[variable] = value.but(
                    safe=value.safe | harms,
                    proven=value.proven | harms if is_proof and harms != ALL_TEXT else value.proven,
                    harmless=value.harmless or (is_proof and harms == PROVEN),
                )
        return refined

    def _compares_with_constants(self, test: ast.expr) -> bool:
        """Return whether each name in a test that looks like a constant is one, if this module gives it a value.

        A compiled pattern is a constant if its text is known.
        """
        for part in ast.walk(test):
            if isinstance(part, ast.Name) and part.id.isupper() and part.id not in self.patterns:
                value = self.env.get(part.id) or self.notes.globals.get(part.id)
                if value is not None and not value.harmless:
                    return False
        return True

    def bind(self, target: ast.expr, value: Value) -> None:
        """Assign a value to a target. An item of a list or dictionary changes the variable that contains it."""
        match target:
            case ast.Name(id=name):
                self.env[name] = value
                if name in self.shared:
                    self._store_global(name, value)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                self._bind_parts(parts, value)
            case ast.Starred(value=place):
                self.bind(place, value.but(items=None))
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if self.owner is not None:
                self._store_attribute(self.owner, name, value)
            case ast.Subscript(value=ast.Name(id=name) as holder, slice=index):
                key = self.value(index)
                self.env[name] = _with_item(self.value(holder), key, value)

    def _bind_parts(self, targets: list[ast.expr], value: Value) -> None:
        items = value.items
        for position, target in enumerate(targets):
            if isinstance(items, list) and len(items) == len(targets):
                self.bind(target, items[position])
            else:
                self.bind(target, value.element())

    def _store_global(self, name: str, value: Value) -> None:
        known = self.notes.globals.get(name, value)
        self.notes.globals[name] = join([known, value])
        if value.origins:
            self.notes.stored_outside += 1

    def _store_attribute(self, owner: ClassNotes, name: str, value: Value) -> None:
        self.env[f"self.{name}"] = value
        if self.context[:1] == ("__init__",):
            owner.initial_attributes[name] = value
        if value.is_outside:
            owner.outside_attributes[name] = join([owner.outside_attributes.get(name, value), value])
            self.notes.stored_outside += 1

    # Expressions.

    def value(self, node: ast.AST) -> Value:
        """Return what is known about the value of an expression. Raise OverBudget for too much work."""
        self.notes.spend(1)
        kind = type(node)
        if kind is ast.Name:
            return self._name(node.id)  # type: ignore[attr-defined]  # its type was just compared
        if kind is ast.Constant:
            return constant(node.value)  # type: ignore[attr-defined]  # as above
        method = _METHODS.get(kind)
        if method is None:
            return NOTHING_KNOWN
        result: Value = getattr(self, method)(node)
        return result

    def _name(self, name: str) -> Value:
        return self.env.get(name) or self.notes.globals.get(name) or Value(path=name)

    def _passed_value(self, node: ast.Await) -> Value:
        return self.value(node.value)

    def _sent_value(self, node: ast.Yield | ast.YieldFrom) -> Value:
        """Return what a coroutine gets for the value it yields, which is most likely made from that value."""
        return NOTHING_KNOWN if node.value is None else self.value(node.value).doubted()

    def _starred(self, node: ast.Starred) -> Value:
        return self.value(node.value).element()

    def _named_expression(self, node: ast.NamedExpr) -> Value:
        value = self.value(node.value)
        self.bind(node.target, value)
        return value

    def _boolean_operation(self, node: ast.BoolOp) -> Value:
        return join([self.value(part) for part in node.values])

    def _attribute(self, node: ast.Attribute) -> Value:
        owner = self.owner
        if owner is None or not isinstance(node.value, ast.Name) or node.value.id not in ("self", "cls"):
            return self.attribute_of(self.value(node.value), node)
        name = f"self.{node.attr}"
        known = self.env.get(name) or owner.outside_attributes.get(node.attr) or owner.constant(node.attr)
        if known is not None:
            return known
        if owner.kind == "handler" and node.attr in ("path", "headers", "rfile", "requestline"):
            return outside(node.lineno, name)
        if owner.kind and node.attr == "request":
            return Value(path=REQUEST)
        return Value(path=name, harmless=CONSTANT_NAME.fullmatch(node.attr) is not None)

    def attribute_of(self, base: Value, node: ast.Attribute) -> Value:
        """Return the attribute that a node names of a value."""
        name = node.attr
        if is_request(base):
            return _request_part(name, node.lineno)
        if isinstance(base.function, ClassNotes):
            member = _member(base.function, base, name)
            if member is not None:
                return member
        if base.path == ENUM_MEMBER and name in ("name", "value"):
            return base.but(path="")
        if name == "_meta" or base.path == MODEL_OPTIONS:
            return HARMLESS.but(path=MODEL_OPTIONS)
        if not base.origins:
            if not base.path:
                return NOTHING_KNOWN
            is_constant = base.function is None and CONSTANT_NAME.fullmatch(name) is not None
            return Value(path=f"{base.path}.{name}", harmless=is_constant)
        return _part_of_outside_data(base, name)

    def _subscript(self, node: ast.Subscript) -> Value:
        base = self.value(node.value)
        if isinstance(node.slice, ast.Slice):
            return self._slice(base, node.slice)
        key = self.value(node.slice)
        if base.path == ENVIRONMENT:
            return environment_variable(key, node.lineno)
        if base.origins and isinstance(key.const, str) and SERVER_VARIABLES.fullmatch(key.const):
            return NOTHING_KNOWN
        return base.part(key)

    def _slice(self, base: Value, node: ast.Slice) -> Value:
        bounds = (node.lower, node.upper, node.step)
        edges = [None if bound is None else self.value(bound).const for bound in bounds]
        is_fixed = all(edge is None or type(edge) is int for edge in edges)
        if is_fixed and edges[2] != 0 and isinstance(base.const, str):
            return constant(base.const[slice(*edges)])
        return base.but(const=UNKNOWN, items=None, prefix="", proven=NO_HARMS)

    def _binary_operation(self, node: ast.BinOp) -> Value:
        # A chain such as `a + b + c` is read without recursion, because it may be long.
        chain: list[ast.BinOp] = []
        left: ast.expr = node
        while isinstance(left, ast.BinOp):
            chain.append(left)
            left = left.left
        result = self.value(left)
        for step in reversed(chain):
            result = operate(step, result, self.value(step.right))
        self.judge_query(node, result)
        return result

    def _f_string(self, node: ast.JoinedStr) -> Value:
        result = self._filled_text(node)
        self.judge_query(node, result)
        return result

    def _filled_text(self, node: ast.JoinedStr) -> Value:
        parts: list[Value] = []
        for piece in node.values:
            if isinstance(piece, ast.FormattedValue):
                parts.append(self._hole(piece))
            else:
                parts.append(self.value(piece))
        return concatenate(parts, node.lineno) if parts else constant("")

    def _hole(self, node: ast.FormattedValue) -> Value:
        value = self.value(node.value)
        match node.format_spec:
            case None:
                return value
            case ast.JoinedStr(values=[ast.Constant(value=str(text))]) if NUMBER_FORMAT.fullmatch(text):
                return value.number()
            case ast.JoinedStr(values=pieces):
                # A format of variable parts can contain any characters to fill with.
                formats = [self._hole(piece) for piece in pieces if isinstance(piece, ast.FormattedValue)]
                return mix([value, *formats], node.lineno) if formats else value
        return value

    def _comparison(self, node: ast.Compare) -> Value:
        values = [self._compared(side) for side in (node.left, *node.comparators)]
        if len(values) == 2:
            folded = fold(node.ops[0], values[0], values[1])
            if folded is not None:
                return folded
        # A comparison that stops at the first difference shows how much of a signature is right.
        is_equality = isinstance(node.ops[0], (ast.Eq, ast.NotEq))
        if is_equality and any(SIGNATURE.fullmatch(value.path) for value in values):
            self.report(Harm.TIMING, node, "the comparison")
        return HARMLESS

    def _compared(self, side: ast.expr) -> Value:
        """Return the value of a side of a comparison. A query that is only compared is not run, so it is safe."""
        if not isinstance(side, ast.JoinedStr):
            return self.value(side)
        text = self._filled_text(side)
        if QUERY_TEXT.search(text.pieces):
            self.judge(side, Harm.SQL, HARMLESS, [])
        return text

    def _unary_operation(self, node: ast.UnaryOp) -> Value:
        operand = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            return constant(not operand.const) if operand.is_known else HARMLESS
        if isinstance(node.op, ast.USub) and isinstance(operand.const, (int, float)):
            return constant(-operand.const)
        return operand.number()

    def _conditional(self, node: ast.IfExp) -> Value:
        test = self.value(node.test)
        if test.is_known:
            return self.value(node.body if test.const else node.orelse)
        before = self.env
        self.env = self.refined(node.test, truth=True)
        then = self.value(node.body)
        self.env = before
        self.env = self.refined(node.test, truth=False)
        otherwise = self.value(node.orelse)
        self.env = before
        return join([then, otherwise])

    def _list(self, node: ast.List | ast.Tuple | ast.Set) -> Value:
        parts = [self.value(item) for item in node.elts]
        is_countable = not isinstance(node, ast.Set) and not any(isinstance(item, ast.Starred) for item in node.elts)
        return mix(parts, node.lineno).but(items=parts if is_countable else None)

    def _dictionary(self, node: ast.Dict) -> Value:
        items: dict[Any, Value] = {}
        unnamed: list[Value] = []
        for key, content in zip(node.keys, node.values, strict=True):
            named = NOTHING_KNOWN if key is None else self.value(key)
            name = named.const
            value = self.value(content)
            if name is UNKNOWN:
                unnamed.append(value if named.harmless or key is None else value.doubted())
            else:
                self.check_name(str(name), value, content.lineno)
                items[name] = value
        return mix([*items.values(), *unnamed], node.lineno).but(items=None if unnamed else items)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Value:
        before = self.env
        self.env = dict(before)
        for generator in node.generators:
            self.bind(generator.target, self.value(generator.iter).element())
            for test in generator.ifs:
                self.value(test)
                self.env = self.refined(test, truth=True)
        if isinstance(node, ast.DictComp):
            parts = [self.value(node.key), self.value(node.value)]
        else:
            parts = [self.value(node.elt)]
        inside = self.env
        self.env = before
        for part in ast.walk(node):
            if isinstance(part, ast.NamedExpr):
                # Its variable belongs to the function, not to the comprehension.
                name = part.target.id
                self.bind(part.target, join([inside[name], before.get(name, inside[name])]))
        return mix(parts, node.lineno)

    # Functions and classes, which the statements' reader knows how to read.

    def _call(self, node: ast.Call) -> Value:
        raise NotImplementedError

    def read_function(self, function: Function, owner: ClassNotes | None) -> None:
        """Read a function of this module, so that its summary is known."""
        raise NotImplementedError


def _span(at: ast.expr | ast.stmt | int) -> tuple[int, int]:
    """Return the first and the last line of a node, or of a line number."""
    if isinstance(at, int):
        return at, at
    return at.lineno, at.end_lineno or at.lineno


def _request_part(name: str, line: int) -> Value:
    if name == "environ":
        return Value(path=ENVIRONMENT)
    if name not in REQUEST_PARTS:
        return NOTHING_KNOWN
    part = outside(line, f"request.{name}")
    if name in ("json", "get_json"):
        return part.but_safe(_HTML)
    return part.but(path=UPLOAD) if name in ("files", "FILES") else part


def _member(kind: ClassNotes, base: Value, name: str) -> Value | None:
    """Return a field of an object of this module's class or a constant of the class, or None if it is unknown."""
    if isinstance(base.items, dict):
        return base.items.get(name) or _field(kind, name, base.items.get("**", NOTHING_KNOWN))
    return kind.constant(name)


def _part_of_outside_data(base: Value, name: str) -> Value:
    if name in WITHOUT_TEXT:
        return NOTHING_KNOWN
    if base.path == UPLOAD and name in ("file", "stream"):
        return base
    if base.path.startswith("pathlib.") and name in ("name", "stem", "suffix"):
        base = base.but_safe(_PATH)
    found = base.but(const=UNKNOWN, items=None, path="", prefix="", function=None)
    if isinstance(base.function, ClassNotes):
        return _field(base.function, name, found)
    return found


def environment_variable(key: Value, line: int) -> Value:
    """Return a variable of the WSGI environment."""
    if isinstance(key.const, str) and SENDER_VARIABLES.fullmatch(key.const):
        return outside(line, f"environ[{key.const!r}]")
    return NOTHING_KNOWN


def _with_item(base: Value, key: Value, value: Value) -> Value:
    """Return a list or dictionary after the assignment of one item."""
    if isinstance(base.items, dict) and key.is_known:
        return container({**base.items, key.const: value})
    if isinstance(base.items, list) and base.has_index(key.const):
        items = list(base.items)
        items[key.const] = value
        return container(items)
    changed = mix([base, value]).but(path=base.path) if value.origins else base
    return changed if value.harmless and key.harmless else changed.doubted()


def _field(kind: ClassNotes, name: str, value: Value) -> Value:
    """Return a field of an object that was made from outside data, by the field's annotation."""
    for item in kind.node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and item.target.id == name:
            annotation = ast.unparse(item.annotation)[:80]
            return HARMLESS if is_textless_annotation(annotation) else value
    return value
