"""Reads expressions: what may be in the value of each, given what is in the variables, and what it does where it is."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from codeloupe.analysers.dataflow import values as tables
from codeloupe.analysers.dataflow.guards import PROVEN, settled
from codeloupe.analysers.dataflow.values import HARMLESS, NOTHING_KNOWN, PATTERNS, UNKNOWN, WORDS, Harm, Value

_READ_ALIKE = {
    "trystar": "try",
    "importfrom": "import",
    "tuple": "list",
    "set": "list",
    **dict.fromkeys(("setcomp", "generatorexp", "dictcomp"), "listcomp"),
}


def is_request(value: Value) -> bool:
    """Whether a value is the request itself."""
    return value.path == tables.REQUEST or value.path in WORDS.request_objects


class Expressions:
    """Values of expressions. `env` holds the variables; `notes` what is known of the module and found in it.

    `context` are the names around the code; `sinks` collects what the parameters of a function do, `returned` what it
    returns; `waiting` are functions that are still to be read. `depth` counts those that are being read.
    """

    depth = 0
    ended = is_page = is_wsgi = False

    def __init__(self, notes: tables.Notes, env: dict[str, Value], owner: tables.ClassNotes | None = None) -> None:
        self.notes = notes
        self.env = env
        self.owner = owner
        self.context: tuple[str, ...] = ()
        self.sinks: list[tuple[str, tables.Flow]] = []
        self.made_from: dict[str, str] = {}
        self.shared: set[str] = set()
        self.returned: list[Value] = []
        self.waiting: list[ast.FunctionDef | ast.AsyncFunctionDef] = []
        self._loops: list[list[dict[str, Value]]] = []

    # What is found.

    def note(self, harm: Harm, node: ast.expr | ast.stmt, target: str) -> None:
        """Note something that does harm whatever the values are."""
        self.notes.flows[tables.Flow(harm, node.lineno, node.end_lineno or node.lineno, target)] = None

    def hit(self, harm: Harm, at: ast.expr | ast.stmt | int, target: str, value: Value) -> None:
        """Note that a value reaches a place, if anything in it comes from outside or from a parameter."""
        if value.can_do(harm) and not (harm is Harm.PATH and value.path == tables.UPLOAD):
            for origin in value.origins:
                self.reached(tables.Flow(harm, *_span(at), target, origin.text, origin.line, value.lines), origin)
                if origin.kind == "outside":
                    return

    def reached(self, flow: tables.Flow, origin: tables.Origin) -> None:
        """Note a flow from outside, or from a parameter of the function that is being read."""
        if origin.kind == "outside":
            self.notes.flows[flow] = None
        elif origin.kind == "parameter" and flow.harm not in origin.safe:
            self.sinks.append((origin.text, flow))

    def judge(self, node: ast.expr, harm: Harm, value: Value) -> None:
        """Note, for ruff's own rules, whether a value is harmless at its line."""
        known = self.notes.harmless.get((node.lineno, harm), True)
        self.notes.harmless[node.lineno, harm] = known and (value.harmless or harm in value.proven)

    def guessable(self, at: ast.expr | ast.stmt | int, value: Value, what: str) -> None:
        """Note a secret that was made by chance that can be guessed."""
        for origin in value.origins:
            if origin.kind == "random":
                self.notes.flows[tables.Flow(Harm.RANDOM, *_span(at), what, origin.text, origin.line, value.lines)] = (
                    None
                )

    def named_secret(self, name: str, value: Value, line: int) -> Value:
        """Look whether a secret is guessable, or a program comes from outside, by its name; gives the value back."""
        if name == "$where":
            self.hit(Harm.CODE, line, name, value)
        if value.origins and PATTERNS.secret_names.search(name) and not PATTERNS.not_secret_names.search(name):
            self.guessable(line, value, f"`{name}`")
        return value

    def note_query(self, node: ast.expr, result: Value) -> Value:
        """Remember whether what looks like a query to ruff can hold anything from outside; gives the value back."""
        if result.pieces and PATTERNS.sql_text.search(result.pieces):
            self.judge(node, Harm.SQL, result)
        return result

    # Variables.

    def refined(self, test: ast.expr, *, truth: bool) -> dict[str, Value]:
        """Variables where a test came out this way; what an address passed, its text passed too."""
        self.notes.budget -= len(self.env) // 4
        refined = dict(self.env)
        known = settled(test, self.notes.patterns, truth=truth)
        for name, harms in (*known.items(), *((self.made_from.get(name, ""), harms) for name, harms in known.items())):
            value = refined.get(name)
            if value is not None and harms:
                refined[name] = value.but_safe(*harms).but(
                    proven=value.proven if harms == tables.ALL_TEXT else value.proven | harms,
                    harmless=value.harmless or harms == PROVEN,
                )
        return refined

    def bind(self, target: ast.expr, value: Value) -> None:
        """Give a target its value; an item of a list or dictionary changes the variable that holds it."""
        match target:
            case ast.Name(id=name):
                self.env[name] = value
                if name in self.shared:
                    self.notes.globals[name] = Value.join([self.notes.globals.get(name, value), value])
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                items = value.items if isinstance(value.items, list) and len(value.items) == len(parts) else None
                for position, place in enumerate(parts):
                    self.bind(place, items[position] if items is not None else value.element())
            case ast.Starred(value=place):
                self.bind(place, value.but(items=None))
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if self.owner is not None:
                self.env[f"self.{name}"] = value
                if self.context[:1] == ("__init__",):
                    self.owner.made[name] = value
                if value.is_outside:
                    self.owner.attributes[name] = Value.join([self.owner.attributes.get(name, value), value])
            case ast.Subscript(value=ast.Name(id=name) as holder, slice=at):
                key = self.value(at)
                self.env[name] = _with_item(self.value(holder), key, value)

    # Expressions.

    def value(self, node: ast.AST) -> Value:
        """What may be in the value of an expression. Raises tables.OverBudget when the module takes too much work."""
        self.notes.budget -= 1
        if self.notes.budget < 0:
            raise tables.OverBudget
        match node:
            case ast.Name():
                return self.env.get(node.id) or self.notes.globals.get(node.id) or Value(path=node.id)
            case ast.Constant():
                return Value.constant(node.value)
            case ast.Await() | ast.YieldFrom() | ast.Yield():
                return self.value(node.value) if node.value else NOTHING_KNOWN
            case ast.Starred():
                return self.value(node.value).element()
            case ast.NamedExpr():
                value = self.value(node.value)
                self.bind(node.target, value)
                return value
            case ast.BoolOp():
                return Value.join([self.value(part) for part in node.values])
        reader = self.reader(node)
        return NOTHING_KNOWN if reader is None else reader(node)

    def reader(self, node: ast.AST) -> Callable[[Any], Any] | None:
        """The method for a kind of node, which is called after its class or after a class that is read alike."""
        kind = type(node).__name__.lower().removeprefix("async")
        return getattr(self, f"_{_READ_ALIKE.get(kind, kind)}", None)

    def _attribute(self, node: ast.Attribute) -> Value:
        owner = self.owner
        if owner is None or not isinstance(node.value, ast.Name) or node.value.id not in ("self", "cls"):
            return self.attribute(node, self.value(node.value))
        name = f"self.{node.attr}"
        if known := self.env.get(name) or owner.attributes.get(node.attr):
            return known
        if owner.kind == "handler" and node.attr in ("path", "headers", "rfile", "requestline"):
            return Value.outside(node.lineno, name)
        return Value(path=tables.REQUEST if owner.kind and node.attr == "request" else name)

    def attribute(self, node: ast.Attribute, base: Value) -> Value:
        """An attribute of a value."""
        kind = base.function if isinstance(base.function, tables.ClassNotes) else None
        if is_request(base):
            if node.attr not in WORDS.request_parts:
                return Value(path=tables.ENVIRONMENT) if node.attr == "environ" else NOTHING_KNOWN
            found = Value.outside(node.lineno, f"request.{node.attr}")
            if node.attr in ("json", "get_json"):
                return found.but_safe(Harm.HTML)
            return found.but(path=tables.UPLOAD) if node.attr in ("files", "FILES") else found
        if kind is not None and isinstance(base.items, dict):
            return base.items.get(node.attr) or _field(kind, node.attr, base.items.get("**", NOTHING_KNOWN))
        if not base.origins:
            return Value(path=f"{base.path}.{node.attr}") if base.path else NOTHING_KNOWN
        if node.attr in WORDS.without_text:
            return NOTHING_KNOWN
        if base.path == tables.UPLOAD and node.attr in ("file", "stream"):
            return base
        if base.path.startswith("pathlib.") and node.attr in ("name", "stem", "suffix"):
            base = base.but_safe(Harm.PATH)
        found = base.but(const=UNKNOWN, items=None, path="", prefix="", function=None)
        return found if kind is None else _field(kind, node.attr, found)

    def _subscript(self, node: ast.Subscript) -> Value:
        base = self.value(node.value)
        if isinstance(node.slice, ast.Slice):
            bounds = (node.slice.lower, node.slice.upper, node.slice.step)
            edges = [None if edge is None else self.value(edge).const for edge in bounds]
            is_fixed = all(edge is None or type(edge) is int for edge in edges) and edges[2] != 0
            if isinstance(base.const, str) and is_fixed:
                return Value.constant(base.const[slice(*edges)])
            return base.but(const=UNKNOWN, items=None, prefix="")
        key = self.value(node.slice)
        if base.path == tables.ENVIRONMENT:
            return environment(key, node.lineno)
        if isinstance(key.const, str) and base.origins and PATTERNS.server_says.fullmatch(key.const):
            return NOTHING_KNOWN
        return base.part(key)

    def _binop(self, node: ast.BinOp) -> Value:
        """A chain such as `a + b + c` is read without recursion: it may be long."""
        chain: list[ast.BinOp] = []
        left: ast.expr = node
        while isinstance(left, ast.BinOp):
            chain.append(left)
            left = left.left
        result = self.value(left)
        for step in reversed(chain):
            result = _operation(step, result, self.value(step.right))
        return self.note_query(node, result)

    def _joinedstr(self, node: ast.JoinedStr) -> Value:
        parts: list[Value] = []
        for piece in node.values:
            value = self.value(piece.value if isinstance(piece, ast.FormattedValue) else piece)
            match piece:
                case ast.FormattedValue(format_spec=ast.JoinedStr(values=[ast.Constant(value=str(text))])):
                    value = value.number() if PATTERNS.number_format.fullmatch(text) else value
            parts.append(value)
        return self.note_query(node, Value.concatenate(parts, node.lineno) if parts else Value.constant(""))

    def _compare(self, node: ast.Compare) -> Value:
        """Look whether a signature is compared character by character. A query that is only compared is not run."""
        sides = (node.left, *node.comparators)
        values = [self.value(side) for side in sides]
        if len(values) == 2 and (folded := tables.fold(node.ops[0], *values)) is not None:
            return folded
        for text in sides:
            if isinstance(text, ast.JoinedStr):
                self.notes.quiet[text.lineno].add("S608")
        if isinstance(node.ops[0], (ast.Eq, ast.NotEq)) and any(
            PATTERNS.signature.fullmatch(value.path) for value in values
        ):
            self.note(Harm.TIMING, node, "the comparison")
        return HARMLESS

    def _unaryop(self, node: ast.UnaryOp) -> Value:
        operand = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            return Value.constant(not operand.const) if operand.is_known else HARMLESS
        if isinstance(node.op, ast.USub) and isinstance(operand.const, (int, float)):
            return Value.constant(-operand.const)
        return operand.number()

    def _ifexp(self, node: ast.IfExp) -> Value:
        test = self.value(node.test)
        if test.is_known:
            return self.value(node.body if test.const else node.orelse)
        before = self.env
        results: list[Value] = []
        for branch, truth in ((node.body, True), (node.orelse, False)):
            self.env = self.refined(node.test, truth=truth)
            results.append(self.value(branch))
            self.env = before
        return Value.join(results)

    def _list(self, node: ast.List | ast.Tuple | ast.Set) -> Value:
        parts = [self.value(item) for item in node.elts]
        has_rest = any(isinstance(item, ast.Starred) for item in node.elts) or isinstance(node, ast.Set)
        return Value.mix(parts, node.lineno).but(items=None if has_rest else parts)

    def _dict(self, node: ast.Dict) -> Value:
        items: dict[Any, Value] = {}
        rest: list[Value] = []
        for key, held in zip(node.keys, node.values, strict=True):
            name = UNKNOWN if key is None else self.value(key).const
            if name is UNKNOWN:
                rest.append(self.value(held))
            else:
                items[name] = self.named_secret(str(name), self.value(held), held.lineno)
        return Value.mix((*items.values(), *rest), node.lineno).but(items=None if rest else items)

    def _listcomp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Value:
        before = self.env
        self.env = dict(before)
        for generator in node.generators:
            self.bind(generator.target, self.value(generator.iter).element())
            for test in generator.ifs:
                self.value(test)
                self.env = self.refined(test, truth=True)
        made: Sequence[ast.expr] = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
        result = Value.mix([self.value(part) for part in made], node.lineno)
        self.env = before
        return result


def _span(at: ast.expr | ast.stmt | int) -> tuple[int, int]:
    return (at, at) if isinstance(at, int) else (at.lineno, at.end_lineno or at.lineno)


def _with_item(base: Value, key: Value, value: Value) -> Value:
    """A list or dictionary after one of its items got a value."""
    if isinstance(base.items, dict) and key.is_known:
        return Value.container({**base.items, key.const: value})
    if isinstance(base.items, list) and base.has_index(key):
        items = [*base.items]
        items[key.const] = value
        return Value.container(items)
    return Value.mix((base, value)).but(path=base.path) if value.origins else base


def _field(kind: tables.ClassNotes, name: str, value: Value) -> Value:
    """A field of an object that was made of outside data, by its annotation."""
    for item in kind.node.body:
        match item:
            case ast.AnnAssign(target=ast.Name(id=found), annotation=annotation) if found == name:
                return HARMLESS if tables.is_plain(ast.unparse(annotation)[:80]) else value
    return value


def environment(key: Value, line: int) -> Value:
    """A value of the WSGI environment."""
    is_sent = isinstance(key.const, str) and PATTERNS.sender_says.fullmatch(key.const)
    return Value.outside(line, f"environ[{key.const!r}]") if is_sent else NOTHING_KNOWN


def _operation(node: ast.BinOp, left: Value, right: Value) -> Value:
    if (folded := tables.fold(node.op, left, right)) is not None:
        return folded
    has_number = type(left.const) in (int, float) or type(right.const) in (int, float)
    if isinstance(node.op, (ast.Add, ast.Sub, ast.Div)) and has_number:
        return Value.mix((left, right)).number()
    if isinstance(node.op, ast.Mod) and left.path.endswith(".Markup()"):
        return Value.filled_text([left, right], node.lineno)
    if isinstance(node.op, ast.Mod) and isinstance(left.const, str):
        if PATTERNS.only_numbers.fullmatch(left.const):
            return right.number().but(pieces=left.pieces)
        return Value.concatenate([left, right], node.lineno).but(prefix=left.const.partition("%")[0])
    if isinstance(node.op, (ast.Add, ast.Mod, ast.Mult, ast.Div)):
        result = Value.concatenate([left, right], node.lineno)
        are_lists = isinstance(left.items, list) and isinstance(right.items, list)
        return result.but(items=[*(left.items or ()), *(right.items or ())]) if are_lists else result
    return Value.mix((left, right)).number()
