"""What a test in the code says of its variables: which harms they can no longer do after it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import Any

from codeloupe.analysers.dataflow.values import ALL_TEXT, PATTERNS, WORDS, Harm, Harms

# What one of a few constants, or a text of plain characters, cannot do: this needs no trust in a name.
PROVEN: Harms = ALL_TEXT | {Harm.RANDOM}
_ADDRESS = frozenset({Harm.REDIRECT, Harm.FETCH})
_PATH = frozenset({Harm.PATH})
# What a text cannot do that does not hold the key.
_WITHOUT: dict[object, Harms] = {
    **dict.fromkeys(("..", "../", "/"), _PATH),
    **dict.fromkeys(("'", '"', "`", "("), frozenset({Harm.SQL, Harm.XPATH, Harm.LDAP})),
    **dict.fromkeys(("\n", "\r"), frozenset({Harm.HEADER})),
    "<": frozenset({Harm.HTML}),
}

Settled = dict[str, Harms]


def settled(test: ast.expr, patterns: Mapping[str, str], *, truth: bool) -> Settled:
    """Which harms variables, by name, can no longer do after a test came out this way; `patterns` are compiled ones."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return settled(operand, patterns, truth=not truth)
        case ast.BoolOp(op=operator, values=values) if isinstance(operator, ast.And) is truth:
            merged: Settled = {}
            for value in values:
                for name, harms in settled(value, patterns, truth=truth).items():
                    merged[name] = merged.get(name, frozenset()) | harms
            return merged
        case ast.Compare(ops=[_]):
            return _compared(test, patterns, truth=truth)
        case ast.Call() | ast.NamedExpr(value=ast.Call()) if truth:
            return _called(test.value if isinstance(test, ast.NamedExpr) else test, patterns)
        case ast.Attribute(value=ast.Name(id=name), attr=part) if part in WORDS.host_parts and not truth:
            return {name: _ADDRESS}
    return {}


def _compared(test: ast.Compare, patterns: Mapping[str, str], *, truth: bool) -> Settled:
    left, operator, right = test.left, test.ops[0], test.comparators[0]
    holds = isinstance(operator, (ast.In, ast.Eq, ast.Is)) is truth
    match operator:
        case ast.Is() | ast.IsNot() if isinstance(left, ast.Call) and not holds:
            return _called(left, patterns) if isinstance(right, ast.Constant) and right.value is None else {}
        case ast.In() | ast.NotIn() if isinstance(left, ast.Constant):
            name, harms = name_of(right), _WITHOUT.get(str(left.value))
            return {name: harms} if name and harms and not holds else {}
        case ast.In() | ast.NotIn():
            return _among(left, right) if holds else {}
        case ast.Eq() | ast.NotEq() if isinstance(right, (ast.Constant, ast.Name, ast.Attribute)):
            return _among(left, right) if holds else {}
    return {}


def _names_in(nodes: Iterable[ast.AST]) -> list[str]:
    return [node.id for root in nodes for node in ast.walk(root) if isinstance(node, ast.Name)]


def _among(left: ast.expr, right: ast.expr) -> Settled:
    """The left side is one of the values on the right."""
    is_fixed = isinstance(right, (ast.Constant, ast.Tuple, ast.List, ast.Set, ast.Dict)) or name_of(right).isupper()
    harms = PROVEN if is_fixed else ALL_TEXT
    if name := name_of(left):
        return {name: harms}
    match left:
        case ast.Attribute(attr=part) if part in WORDS.host_parts:
            return dict.fromkeys(_names_in([left]), _ADDRESS)
        case ast.Call(func=function, args=arguments):
            if ast.unparse(function)[-40:].endswith(("commonpath", "commonprefix", "dirname")):
                return dict.fromkeys(_names_in(arguments), _PATH)
            if isinstance(function, ast.Attribute) and function.attr in ("lower", "upper", "strip", "get"):
                return {name: harms} if (name := name_of(function.value)) else {}
    return {}


def _called(call: Any, patterns: Mapping[str, str]) -> Settled:
    """A call with a true result."""
    function = call.func
    last = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    receiver = name_of(function.value) if isinstance(function, ast.Attribute) else ""
    names = [name for argument in call.args if (name := name_of(argument))]
    match last:
        case "isdigit" | "isalpha" | "isalnum" | "isnumeric" | "isdecimal" | "isidentifier" if receiver:
            return {receiver: PROVEN}
        case "is_relative_to" if receiver:
            return {receiver: _PATH}
        case "startswith" if receiver:  # rules out another directory, if the path was resolved; or another host
            text = call.args[0].value if len(call.args) == 1 and isinstance(call.args[0], ast.Constant) else None
            if not isinstance(text, str):
                return {receiver: _PATH}
            is_host = "://" in text and text.count("/") > 2
            return {receiver: _ADDRESS if is_host else _PATH if text.startswith("/") else frozenset()}
        case "fullmatch" | "match" | "search":
            stated = (arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str))
            if (pattern := next(stated, patterns.get(receiver))) is None:
                return dict.fromkeys(names, ALL_TEXT)
            is_start = last == "match" or pattern.startswith("^")
            is_whole = last == "fullmatch" or (pattern.endswith(("$", r"\Z")) and is_start)
            return dict.fromkeys(names, PROVEN if is_whole and not PATTERNS.permissive.search(pattern) else frozenset())
        case "url_has_allowed_host_and_scheme" | "is_safe_url":
            return dict.fromkeys(names, _ADDRESS)
    is_guard = last not in ("isfile", "isdir", "exists") and PATTERNS.guards_by_name.search(last)
    return dict.fromkeys(names, ALL_TEXT) if is_guard else {}


def name_of(node: ast.AST) -> str:
    """The name of a variable, or of an attribute of `self`; else nothing."""
    match node:
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return f"self.{name}"
        case (
            ast.Name(id=name)
            | ast.Call(func=ast.Name(id="str" | "Path"), args=[ast.Name(id=name)])
            | ast.Subscript(value=ast.Name(id=name), slice=ast.Slice())
        ):
            return name
    return ""


def fits(pattern: ast.pattern, const: Any) -> bool | None:
    """Whether a pattern fits a constant; None where that is not known."""
    match pattern:
        case ast.MatchValue(value=ast.Constant(value=value)):
            return bool(value == const)
        case ast.MatchOr(patterns=patterns):
            answers = [fits(part, const) for part in patterns]
            return True if True in answers else None if None in answers else False
        case ast.MatchAs(pattern=None):
            return True
    return None
