"""Reads expressions: what may be in the value of each, given what is in the variables."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from codeloupe.analysers.dataflow.knowledge import ALL_TEXT, PATTERNS, PROVEN, WORDS, Harm, is_plain, settled
from codeloupe.analysers.dataflow.sinks import Sinks
from codeloupe.analysers.dataflow.values import (
    HARMLESS,
    NOTHING_KNOWN,
    UNKNOWN,
    UPLOAD,
    ClassNotes,
    Notes,
    OverBudget,
    Value,
    fold,
)
from codeloupe.system.regex import regex

REQUEST = "<request>"
ENVIRONMENT = "<environ>"
_NUMBER_FORMAT = regex(r"[^{}%]*[bcdoxXeEfFgGn%]")
_ONLY_NUMBERS = regex(r"(?:[^%]|%%|%[-+ 0#]*\d*(?:\.\d+)?[diouxXeEfFgG])*")
_WITHOUT_TEXT = frozenset(
    {"size", "content_length", "status_code", "method", "user", "session", "remote_addr", "scheme"}
)
_SERVER_SAYS = regex(r"REMOTE_ADDR|SERVER_\w+|REQUEST_METHOD|wsgi\.(?!input)\w+|CONTENT_LENGTH")
_SENDER_SAYS = regex(r"QUERY_STRING|PATH_INFO|REQUEST_URI|RAW_URI|CONTENT_TYPE|HTTP_\w+|wsgi\.input")


def is_request(value: Value) -> bool:
    """Whether a value is the request itself."""
    return value.path == REQUEST or value.path in WORDS.request_objects


class Expressions(Sinks):
    """Values of expressions. `env` holds the variables; `notes` what is known of the module and found in it.

    The method for a kind of node is called after its class, in small letters.
    """

    def __init__(self, notes: Notes, env: dict[str, Value], owner: ClassNotes | None = None) -> None:
        super().__init__(notes, owner)
        self.env = env
        self.made_from: dict[str, str] = {}
        self.shared: set[str] = set()

    def value(self, node: ast.AST) -> Value:
        """What may be in the value of an expression. Raises OverBudget when the module takes too much work."""
        self.notes.budget -= 1
        if self.notes.budget < 0:
            raise OverBudget
        reader = getattr(self, f"_{type(node).__name__.lower()}", None)
        return NOTHING_KNOWN if reader is None else reader(node)

    def refined(self, test: ast.expr, *, truth: bool) -> dict[str, Value]:
        """The variables as they are where a test came out this way.

        What was tested as an address holds for the text that it was made from too.
        """
        self.notes.budget -= len(self.env) // 4
        refined = dict(self.env)
        known = settled(test, self.notes.patterns, truth=truth)
        for name, harms in (*known.items(), *((self.made_from.get(name, ""), harms) for name, harms in known.items())):
            value = refined.get(name)
            if value is not None and harms:
                refined[name] = value.but_safe(harms).but(
                    proven=value.proven if harms == ALL_TEXT else value.proven | harms,
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

    def _constant(self, node: ast.Constant) -> Value:
        return Value.constant(node.value)

    def _name(self, node: ast.Name) -> Value:
        return self.env.get(node.id) or self.notes.globals.get(node.id) or Value(path=node.id)

    def _await(self, node: ast.Await | ast.YieldFrom) -> Value:
        return self.value(node.value)

    _yieldfrom = _await

    def _yield(self, node: ast.Yield) -> Value:
        return self.value(node.value) if node.value else NOTHING_KNOWN

    def _starred(self, node: ast.Starred) -> Value:
        return self.value(node.value).element()

    def _namedexpr(self, node: ast.NamedExpr) -> Value:
        value = self.value(node.value)
        self.bind(node.target, value)
        return value

    def _boolop(self, node: ast.BoolOp) -> Value:
        return Value.join([self.value(part) for part in node.values])

    def _attribute(self, node: ast.Attribute) -> Value:
        owner = self.owner
        if owner is None or not isinstance(node.value, ast.Name) or node.value.id not in ("self", "cls"):
            return self.attribute(node, self.value(node.value))
        name = f"self.{node.attr}"
        if known := self.env.get(name) or owner.attributes.get(node.attr):
            return known
        if owner.kind == "handler" and node.attr in ("path", "headers", "rfile", "requestline"):
            return Value.outside(node.lineno, name)
        return Value(path=REQUEST if owner.kind and node.attr == "request" else name)

    def attribute(self, node: ast.Attribute, base: Value) -> Value:
        """An attribute of a value."""
        kind = base.function if isinstance(base.function, ClassNotes) else None
        if is_request(base):
            if node.attr == "environ":
                return Value(path=ENVIRONMENT)
            if node.attr not in WORDS.request_parts:
                return NOTHING_KNOWN
            is_json = node.attr in ("json", "get_json")
            found = Value.outside(node.lineno, f"request.{node.attr}", frozenset({Harm.HTML} if is_json else ()))
            return found.but(path=UPLOAD) if node.attr in ("files", "FILES") else found
        if kind is not None and isinstance(base.items, dict):
            return base.items.get(node.attr) or _field(kind, node.attr, base.items.get("**", NOTHING_KNOWN))
        if not base.origins:
            return Value(path=f"{base.path}.{node.attr}") if base.path else NOTHING_KNOWN
        if node.attr in _WITHOUT_TEXT:
            return NOTHING_KNOWN
        if base.path == UPLOAD and node.attr in ("file", "stream"):
            return base
        is_name = base.path.startswith("pathlib.") and node.attr in ("name", "stem", "suffix")
        found = base.but_safe(frozenset({Harm.PATH} if is_name else ()))
        found = found.but(const=UNKNOWN, items=None, path="", prefix="", function=None)
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
        if base.path == ENVIRONMENT:
            return environment(key, node.lineno)
        if isinstance(key.const, str) and base.origins and _SERVER_SAYS.fullmatch(key.const):
            return NOTHING_KNOWN
        return part(base, key)

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

    def note_query(self, node: ast.expr, result: Value) -> Value:
        """Remember whether what looks like a query to ruff can hold anything from outside; gives the value back."""
        if result.pieces and PATTERNS.sql_text.search(result.pieces):
            self.judge(node, Harm.SQL, result)
        return result

    def _joinedstr(self, node: ast.JoinedStr) -> Value:
        parts: list[Value] = []
        for piece in node.values:
            match piece:
                case ast.FormattedValue(value=shown, format_spec=ast.JoinedStr(values=[ast.Constant(value=str(text))])):
                    value = self.value(shown)
                    parts.append(value.number() if _NUMBER_FORMAT.fullmatch(text) else value)
                case ast.FormattedValue(value=shown):
                    parts.append(self.value(shown))
                case _:
                    parts.append(self.value(piece))
        return self.note_query(node, Value.concatenate(parts, node.lineno) if parts else Value.constant(""))

    def _compare(self, node: ast.Compare) -> Value:
        left, *others = [self.value(side) for side in (node.left, *node.comparators)]
        if len(others) == 1 and left.is_known and others[0].is_known:
            folded = fold(node.ops[0], left.const, others[0].const)
            if folded is not UNKNOWN:
                return Value.constant(folded)
        self.compared(node, [left, *others])
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

    _tuple = _set = _list

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

    _setcomp = _generatorexp = _dictcomp = _listcomp


def _with_item(base: Value, key: Value, value: Value) -> Value:
    """A list or dictionary after one of its items got a value."""
    if isinstance(base.items, dict) and key.is_known:
        return Value.container({**base.items, key.const: value})
    if isinstance(base.items, list) and base.has_index(key):
        items = [*base.items]
        items[key.const] = value
        return Value.container(items)
    return Value.mix((base, value)).but(path=base.path) if value.origins else base


def _field(kind: ClassNotes, name: str, value: Value) -> Value:
    """A field of an object that was made of outside data, by its annotation."""
    for item in kind.node.body:
        match item:
            case ast.AnnAssign(target=ast.Name(id=found), annotation=annotation) if found == name:
                return HARMLESS if is_plain(ast.unparse(annotation)[:80]) else value
    return value


def environment(key: Value, line: int) -> Value:
    """A value of the WSGI environment."""
    is_sent = isinstance(key.const, str) and _SENDER_SAYS.fullmatch(key.const)
    return Value.outside(line, f"environ[{key.const!r}]") if is_sent else NOTHING_KNOWN


def part(base: Value, key: Value) -> Value:
    """The part of a value under a key. What the key holds does not get into the part."""
    if isinstance(base.items, dict) and key.is_known:
        return base.items.get(key.const, NOTHING_KNOWN)
    if isinstance(base.items, list) and base.has_index(key):
        found: Value = base.items[key.const]
        return found
    if isinstance(base.const, str) and type(key.const) is int and -len(base.const) <= key.const < len(base.const):
        return Value.constant(base.const[key.const])
    return base.element()


def _operation(node: ast.BinOp, left: Value, right: Value) -> Value:
    folded = fold(node.op, left.const, right.const) if left.is_known and right.is_known else UNKNOWN
    if folded is not UNKNOWN:
        return Value.constant(folded)
    has_number = type(left.const) in (int, float) or type(right.const) in (int, float)
    if isinstance(node.op, (ast.Add, ast.Sub, ast.Div)) and has_number:
        return Value.mix((left, right)).number()
    if isinstance(node.op, ast.Mod) and left.path.endswith(".Markup()"):
        return Value.filled_text([left, right], node.lineno)
    if isinstance(node.op, ast.Mod) and isinstance(left.const, str):
        if _ONLY_NUMBERS.fullmatch(left.const):
            return right.number().but(pieces=left.pieces)
        return Value.concatenate([left, right], node.lineno).but(prefix=left.const.partition("%")[0])
    if isinstance(node.op, (ast.Add, ast.Mod, ast.Mult, ast.Div)):
        result = Value.concatenate([left, right], node.lineno)
        are_lists = isinstance(left.items, list) and isinstance(right.items, list)
        return result.but(items=[*(left.items or ()), *(right.items or ())]) if are_lists else result
    return Value.mix((left, right)).number()
