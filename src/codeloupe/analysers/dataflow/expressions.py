"""Reads expressions: what may be in the value of each, given what is in the variables."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from typing import Any

from codeloupe.analysers.dataflow.knowledge import (
    ENVIRONMENT_KEYS,
    HANDLER_PARTS,
    REQUEST_OBJECTS,
    REQUEST_PARTS,
    SQL_TEXT,
    is_plain,
)
from codeloupe.analysers.dataflow.meanings import Harm
from codeloupe.analysers.dataflow.values import (
    HARMLESS,
    NOTHING_KNOWN,
    UNKNOWN,
    UPLOAD,
    ClassNotes,
    Notes,
    OverBudget,
    Value,
    concatenate,
    constant,
    element,
    filled_text,
    fold,
    join,
    mix,
    number_of,
    outside,
)

REQUEST = "<request>"
ENVIRONMENT = "<environ>"
_NUMBER_FORMAT = re.compile(r"[^{}%]*[bcdoxXeEfFgGn%]")
_ONLY_NUMBERS = re.compile(r"(?:[^%]|%%|%[-+ 0#]*\d*(?:\.\d+)?[diouxXeEfFgG])*")
_WITHOUT_TEXT = frozenset(
    {"size", "content_length", "status_code", "method", "user", "session", "remote_addr", "scheme"}
)
_NAME_OF_PATH = frozenset({"name", "stem", "suffix"})
_SERVER_SAYS = re.compile(r"REMOTE_ADDR|SERVER_\w+|REQUEST_METHOD|wsgi\.(?!input)\w+|CONTENT_LENGTH")


class Expressions:
    """Values of expressions. `env` holds the variables; `notes` what is known of the module and found in it."""

    def __init__(self, notes: Notes, env: dict[str, Value], owner: ClassNotes | None = None) -> None:
        self.notes = notes
        self.env = env
        self.owner = owner
        self._readers: dict[type[ast.AST], Callable[[Any], Value]] = {
            ast.Constant: lambda node: constant(node.value),
            ast.Name: self._name,
            ast.Attribute: self._attribute,
            ast.Subscript: self._subscript,
            ast.Call: self.call,
            ast.BinOp: self._binary,
            ast.JoinedStr: self._f_string,
            ast.BoolOp: lambda node: join([self.value(part) for part in node.values]),
            ast.Compare: self._compare,
            ast.UnaryOp: self._unary,
            ast.IfExp: self._choice,
            ast.List: self._sequence,
            ast.Tuple: self._sequence,
            ast.Set: self._sequence,
            ast.Dict: self._dictionary,
            ast.ListComp: self._comprehension,
            ast.SetComp: self._comprehension,
            ast.GeneratorExp: self._comprehension,
            ast.DictComp: self._comprehension,
            ast.Await: lambda node: self.value(node.value),
            ast.Starred: lambda node: element(self.value(node.value)),
            ast.NamedExpr: self._named,
            ast.Yield: lambda node: self.value(node.value) if node.value else NOTHING_KNOWN,
            ast.YieldFrom: lambda node: self.value(node.value),
        }

    def value(self, node: ast.AST) -> Value:
        """What may be in the value of an expression. Raises OverBudget when the module takes too much work."""
        self.notes.budget -= 1
        if self.notes.budget < 0:
            raise OverBudget
        reader = self._readers.get(type(node))
        return NOTHING_KNOWN if reader is None else reader(node)

    def call(self, node: ast.Call) -> Value:
        """The value of a call."""
        raise NotImplementedError

    def refined(self, test: ast.expr, *, truth: bool) -> dict[str, Value]:
        """The variables as they are where a test came out this way."""
        raise NotImplementedError

    def bind(self, target: ast.expr, value: Value) -> None:
        """Give a target its value."""
        raise NotImplementedError

    def _name(self, node: ast.Name) -> Value:
        known = self.env.get(node.id)
        if known is None:
            known = self.notes.globals.get(node.id)
        return Value(path=node.id) if known is None else known

    def _attribute(self, node: ast.Attribute) -> Value:
        if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls") and self.owner is not None:
            return self._own_attribute(node)
        return self.attribute(node, self.value(node.value))

    def attribute(self, node: ast.Attribute, base: Value) -> Value:
        """An attribute of a value."""
        if base.path == REQUEST or base.path in REQUEST_OBJECTS:
            return self._request_part(node)
        if isinstance(base.function, ClassNotes) and isinstance(base.items, dict):
            return base.items.get(node.attr) or self._field(base.function, node.attr, base.items.get("**"))
        if base.origins:
            if node.attr in _WITHOUT_TEXT:
                return NOTHING_KNOWN
            if base.path == UPLOAD and node.attr in ("file", "stream"):
                return base
            safe = (
                base.safe | {Harm.PATH}
                if base.path.startswith("pathlib.") and node.attr in _NAME_OF_PATH
                else base.safe
            )
            found = base.but(safe=safe, const=UNKNOWN, items=None, path="", prefix="", function=None)
            return self._field(base.function, node.attr, found) if isinstance(base.function, ClassNotes) else found
        return Value(path=f"{base.path}.{node.attr}") if base.path else NOTHING_KNOWN

    @staticmethod
    def _field(kind: ClassNotes, name: str, value: Value | None) -> Value:
        """A field of an object that was made of outside data, by its annotation."""
        for item in kind.node.body:
            match item:
                case ast.AnnAssign(target=ast.Name(id=found), annotation=annotation) if found == name:
                    return HARMLESS if is_plain(ast.unparse(annotation)[:80]) else value or NOTHING_KNOWN
        return value or NOTHING_KNOWN

    def _request_part(self, node: ast.Attribute) -> Value:
        if node.attr == "environ":
            return Value(path=ENVIRONMENT)
        if node.attr not in REQUEST_PARTS:
            return NOTHING_KNOWN
        is_json = node.attr in ("json", "get_json")
        found = outside(node.lineno, f"request.{node.attr}", frozenset({Harm.HTML} if is_json else ()))
        return found.but(path=UPLOAD) if node.attr in ("files", "FILES") else found

    def _own_attribute(self, node: ast.Attribute) -> Value:
        name = f"self.{node.attr}"
        if name in self.env:
            return self.env[name]
        assert self.owner is not None  # noqa: S101 - the caller has looked
        if node.attr in self.owner.attributes:
            return self.owner.attributes[node.attr]
        if self.owner.kind == "handler" and node.attr in HANDLER_PARTS:
            return outside(node.lineno, name)
        if self.owner.kind and node.attr == "request":
            return Value(path=REQUEST)
        return Value(path=name)

    def _subscript(self, node: ast.Subscript) -> Value:
        base = self.value(node.value)
        if isinstance(node.slice, ast.Slice):
            return self._sliced(base, node.slice)
        key = self.value(node.slice)
        if base.path == ENVIRONMENT:
            return self.environment(key, node.lineno)
        if key.is_known and isinstance(key.const, str) and base.origins and _SERVER_SAYS.fullmatch(key.const):
            return NOTHING_KNOWN
        return part(base, key)

    @staticmethod
    def environment(key: Value, line: int) -> Value:
        """A value of the WSGI environment."""
        if isinstance(key.const, str) and ENVIRONMENT_KEYS.fullmatch(key.const):
            return outside(line, f"environ[{key.const!r}]")
        return NOTHING_KNOWN

    def _sliced(self, base: Value, bounds: ast.Slice) -> Value:
        edges = [None if edge is None else self.value(edge).const for edge in (bounds.lower, bounds.upper, bounds.step)]
        if isinstance(base.const, str) and all(edge is None or type(edge) is int for edge in edges) and edges[2] != 0:
            return constant(base.const[slice(*edges)])
        return base.but(const=UNKNOWN, items=None, prefix="")

    def _binary(self, node: ast.BinOp) -> Value:
        """A chain such as `a + b + c` is read without recursion: it may be long."""
        chain: list[ast.BinOp] = []
        left: ast.expr = node
        while isinstance(left, ast.BinOp):
            chain.append(left)
            left = left.left
        result = self.value(left)
        for step in reversed(chain):
            result = self._operation(step, result, self.value(step.right))
        self.note_query(node, result)
        return result

    def _operation(self, node: ast.BinOp, left: Value, right: Value) -> Value:
        folded = fold(node.op, left.const, right.const) if left.is_known and right.is_known else UNKNOWN
        if folded is not UNKNOWN:
            return constant(folded)
        if isinstance(node.op, (ast.Add, ast.Sub, ast.Div)) and (_is_number(left) or _is_number(right)):
            return number_of(mix((left, right)))
        if isinstance(node.op, ast.Mod) and left.path.endswith(".Markup()"):
            return filled_text([left, right], node.lineno)
        if isinstance(node.op, ast.Mod) and isinstance(left.const, str):
            if _ONLY_NUMBERS.fullmatch(left.const):
                return number_of(right).but(pieces=left.pieces)
            start = left.const.partition("%")[0]
            return concatenate([left, right], node.lineno).but(prefix=start)
        if isinstance(node.op, (ast.Add, ast.Mod, ast.Mult, ast.Div)):
            result = concatenate([left, right], node.lineno)
            if isinstance(left.items, list) and isinstance(right.items, list):
                return result.but(items=[*left.items, *right.items])
            return result
        return number_of(mix((left, right)))

    def note_query(self, node: ast.expr, result: Value) -> None:
        """Remember whether what looks like a query to ruff can hold anything from outside."""
        if result.pieces and SQL_TEXT.search(result.pieces):
            self.notes.judge(node.lineno, Harm.SQL, harmless=result.is_proven(Harm.SQL))

    def _f_string(self, node: ast.JoinedStr) -> Value:
        parts: list[Value] = []
        for piece in node.values:
            if isinstance(piece, ast.FormattedValue):
                shown = self.value(piece.value)
                parts.append(number_of(shown) if self._shows_number(piece) else shown)
            else:
                parts.append(self.value(piece))
        result = concatenate(parts, node.lineno) if parts else constant("")
        self.note_query(node, result)
        return result

    @staticmethod
    def _shows_number(piece: ast.FormattedValue) -> bool:
        match piece.format_spec:
            case ast.JoinedStr(values=[ast.Constant(value=str(text))]):
                return _NUMBER_FORMAT.fullmatch(text) is not None
        return False

    def _compare(self, node: ast.Compare) -> Value:
        left = self.value(node.left)
        others = [self.value(other) for other in node.comparators]
        if len(others) == 1 and left.is_known and others[0].is_known:
            folded = fold(node.ops[0], left.const, others[0].const)
            if folded is not UNKNOWN:
                return constant(folded)
        self.compared(node, [left, *others])
        return HARMLESS

    def compared(self, node: ast.Compare, values: Sequence[Value]) -> None:
        """Look at what is compared."""
        raise NotImplementedError

    def _unary(self, node: ast.UnaryOp) -> Value:
        operand = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            return constant(not operand.const) if operand.is_known else HARMLESS
        if isinstance(node.op, ast.USub) and isinstance(operand.const, (int, float)):
            return constant(-operand.const)
        return number_of(operand)

    def _choice(self, node: ast.IfExp) -> Value:
        test = self.value(node.test)
        if test.is_known:
            return self.value(node.body if test.const else node.orelse)
        before = self.env
        results: list[Value] = []
        for branch, truth in ((node.body, True), (node.orelse, False)):
            self.env = self.refined(node.test, truth=truth)
            results.append(self.value(branch))
            self.env = before
        return join(results)

    def _sequence(self, node: ast.List | ast.Tuple | ast.Set) -> Value:
        parts = [self.value(item) for item in node.elts]
        has_rest = any(isinstance(item, ast.Starred) for item in node.elts) or isinstance(node, ast.Set)
        return mix(parts, node.lineno).but(items=None if has_rest else parts)

    def _dictionary(self, node: ast.Dict) -> Value:
        items: dict[Any, Value] = {}
        rest: list[Value] = []
        for key, held in zip(node.keys, node.values, strict=True):
            name = UNKNOWN if key is None else self.value(key).const
            if name is UNKNOWN:
                rest.append(self.value(held))
            else:
                items[name] = self.named_secret(str(name), self.value(held), held.lineno)
        return mix((*items.values(), *rest), node.lineno).but(items=None if rest else items)

    def named_secret(self, name: str, value: Value, line: int) -> Value:
        """Look whether a guessable value gets the name of a secret; the value is given back."""
        raise NotImplementedError

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Value:
        before = self.env
        self.env = dict(before)
        for generator in node.generators:
            self.bind(generator.target, element(self.value(generator.iter)))
            for test in generator.ifs:
                self.value(test)
                self.env = self.refined(test, truth=True)
        made: Sequence[ast.expr] = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
        result = mix([self.value(part) for part in made], node.lineno)
        self.env = before
        return result

    def _named(self, node: ast.NamedExpr) -> Value:
        value = self.value(node.value)
        self.bind(node.target, value)
        return value


def _is_number(value: Value) -> bool:
    return type(value.const) in (int, float)


def part(base: Value, key: Value) -> Value:
    """The part of a value under a key. What the key holds does not get into the part."""
    if base.items is not None and key.is_known:
        if isinstance(base.items, dict):
            return base.items.get(key.const, NOTHING_KNOWN)
        if type(key.const) is int and -len(base.items) <= key.const < len(base.items):
            return base.items[key.const]
    if isinstance(base.const, str) and type(key.const) is int and -len(base.const) <= key.const < len(base.const):
        return constant(base.const[key.const])
    return element(base)
