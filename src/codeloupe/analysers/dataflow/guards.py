"""What a test says about the variables in it, where it came out one way or the other."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from codeloupe.analysers.dataflow.knowledge import GUARDS_BY_NAME
from codeloupe.analysers.dataflow.meanings import ALL_TEXT, Harm
from codeloupe.analysers.dataflow.values import Value

_PERMISSIVE = re.compile(r"(?<!\\)\.[*+]|\\S[*+]|\[\^[^\]]{1,3}\][*+]")
_PLAIN_TEXT = frozenset({"isdigit", "isalpha", "isalnum", "isnumeric", "isdecimal", "isidentifier"})
_HOST_PARTS = frozenset({"netloc", "hostname", "host"})
# Said of a value that is one of a few constants, or has only plain characters: this needs no trust in a name.
_PROVEN = ALL_TEXT | {Harm.RANDOM}
_QUOTED = frozenset({Harm.SQL, Harm.XPATH, Harm.LDAP})


def settled(test: ast.expr, patterns: Mapping[str, str], *, truth: bool) -> dict[str, frozenset[Harm]]:
    """Which harms the variables, by name, can no longer do after a test came out this way.

    `patterns` are the regular expressions that were compiled, by name.
    """
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return settled(operand, patterns, truth=not truth)
        case ast.BoolOp(op=operator, values=values) if isinstance(operator, ast.And) is truth:
            merged: dict[str, frozenset[Harm]] = {}
            for value in values:
                for name, harms in settled(value, patterns, truth=truth).items():
                    merged[name] = merged.get(name, frozenset()) | harms
            return merged
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            return _compared(left, operator, right, patterns, truth=truth)
        case ast.Call():
            return _called(test, patterns) if truth else {}
        case ast.NamedExpr(value=ast.Call() as call):
            return _called(call, patterns) if truth else {}
        case ast.Attribute(value=ast.Name(id=name), attr=part) if part in _HOST_PARTS and not truth:
            return {name: frozenset({Harm.REDIRECT, Harm.FETCH})}
    return {}


def _compared(
    left: ast.expr, operator: ast.cmpop, right: ast.expr, patterns: Mapping[str, str], *, truth: bool
) -> dict[str, frozenset[Harm]]:
    match operator:
        case ast.Is() | ast.IsNot() if isinstance(right, ast.Constant) and right.value is None:
            holds = isinstance(operator, ast.IsNot) is truth
            return _called(left, patterns) if holds and isinstance(left, ast.Call) else {}
        case ast.In() | ast.NotIn():
            is_in = isinstance(operator, ast.In) is truth
            if isinstance(left, ast.Constant):
                return {} if is_in else _without(str(left.value), right)
            return _among(left, right) if is_in else {}
        case ast.Eq() | ast.NotEq() if isinstance(operator, ast.Eq) is truth:
            return _among(left, right) if isinstance(right, (ast.Constant, ast.Name, ast.Attribute)) else {}
    return {}


def _without(text: str, right: ast.expr) -> dict[str, frozenset[Harm]]:
    """The variable is known not to hold this text."""
    name = name_of(right)
    if not name:
        return {}
    if text in ("..", "../", "/"):
        return {name: frozenset({Harm.PATH})}
    if text in ("'", '"', "`", "("):
        return {name: _QUOTED}
    if text in ("\n", "\r"):
        return {name: frozenset({Harm.HEADER})}
    return {name: frozenset({Harm.HTML})} if text == "<" else {}


def _among(left: ast.expr, right: ast.expr) -> dict[str, frozenset[Harm]]:
    """The left side is one of the values on the right."""
    is_fixed = isinstance(right, (ast.Constant, ast.Tuple, ast.List, ast.Set, ast.Dict)) or name_of(right).isupper()
    harms = _PROVEN if is_fixed else ALL_TEXT
    if name := name_of(left):
        return {name: harms}
    if isinstance(left, ast.Attribute) and left.attr in _HOST_PARTS:
        names = [node.id for node in ast.walk(left) if isinstance(node, ast.Name)]
        return dict.fromkeys(names, frozenset({Harm.REDIRECT, Harm.FETCH}))
    if isinstance(left, ast.Call):
        names = [node.id for argument in left.args for node in ast.walk(argument) if isinstance(node, ast.Name)]
        parts = ast.unparse(left.func)[-40:]
        if parts.endswith(("commonpath", "commonprefix", "dirname")):
            return dict.fromkeys(names, frozenset({Harm.PATH}))
        if isinstance(left.func, ast.Attribute) and left.func.attr in ("lower", "upper", "strip", "get"):
            return {name: harms} if (name := name_of(left.func.value)) else {}
    return {}


def _called(call: ast.Call, patterns: Mapping[str, str]) -> dict[str, frozenset[Harm]]:
    """A call with a true result."""
    function = call.func
    last = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    names = [name for argument in call.args if (name := name_of(argument))]
    if isinstance(function, ast.Attribute) and (receiver := name_of(function.value)):
        if last in _PLAIN_TEXT:
            return {receiver: _PROVEN}
        if last == "is_relative_to":
            return {receiver: frozenset({Harm.PATH})}
        if last == "startswith":
            return {receiver: _starts(call)}
    if last in ("fullmatch", "match", "search"):
        return dict.fromkeys(names, _matched(call, last, patterns))
    if last in ("url_has_allowed_host_and_scheme", "is_safe_url"):
        return dict.fromkeys(names, frozenset({Harm.REDIRECT, Harm.FETCH}))
    if last in ("isfile", "isdir", "exists"):
        return {}
    return dict.fromkeys(names, ALL_TEXT) if GUARDS_BY_NAME.search(last) else {}


def _starts(call: ast.Call) -> frozenset[Harm]:
    """What the start of a text rules out: another directory, if the path was resolved; or another host."""
    match call.args:
        case [ast.Constant(value=str(text))] if "://" in text and text.count("/") > 2:
            return frozenset({Harm.REDIRECT, Harm.FETCH})
        case [ast.Constant(value=str(text))] if not text.startswith("/"):
            return frozenset()
    return frozenset({Harm.PATH})


def _matched(call: ast.Call, how: str, patterns: Mapping[str, str]) -> frozenset[Harm]:
    pattern = next(
        (arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)),
        patterns.get(name_of(call.func.value) if isinstance(call.func, ast.Attribute) else ""),
    )
    if pattern is None:
        return ALL_TEXT
    is_whole = how == "fullmatch" or (pattern.endswith(("$", r"\Z")) and (how == "match" or pattern.startswith("^")))
    return _PROVEN if is_whole and not _PERMISSIVE.search(pattern) else frozenset()


def name_of(node: ast.AST) -> str:
    """The name of a variable, or of an attribute of `self`; else nothing."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return f"self.{name}"
        case ast.Call(func=ast.Name(id="str" | "Path"), args=[ast.Name(id=name)]):
            return name
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Slice()):
            return name
    return ""


def made_safe(
    env: dict[str, Value], settled_names: dict[str, frozenset[Harm]], made_from: dict[str, str]
) -> dict[str, Value]:
    """The variables after a test. What was tested as an address holds for the text that it was `made_from` too."""
    refined = dict(env)
    for name, harms in [
        *settled_names.items(),
        *((made_from.get(name, ""), found) for name, found in settled_names.items()),
    ]:
        value = refined.get(name)
        if value is not None and harms:
            refined[name] = value.but(
                safe=value.safe | harms,
                proven=value.proven if harms == ALL_TEXT else value.proven | harms,
                harmless=value.harmless or harms == _PROVEN,
            )
    return refined


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


def captured(pattern: ast.pattern) -> list[str]:
    """The names that a pattern gives to what it fits."""
    return [part.name for part in ast.walk(pattern) if isinstance(part, (ast.MatchAs, ast.MatchStar)) and part.name]
