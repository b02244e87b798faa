"""Guards: the harms that variables can no longer do after a test in the code."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import Any

from codeloupe.analysers.dataflow.harms import ALL_TEXT, NO_HARMS, Harm, Harms
from codeloupe.analysers.dataflow.knowledge import GUARD_NAMES, HOST_PARTS, PERMISSIVE_PATTERN

# Harms that one of a few constants, or a text of plain characters, cannot do. No trust in a name is needed for this.
PROVEN: Harms = ALL_TEXT | {Harm.RANDOM}
_ADDRESS = frozenset({Harm.REDIRECT, Harm.FETCH})
_PATH = frozenset({Harm.PATH})
_QUERY = frozenset({Harm.SQL, Harm.XPATH, Harm.LDAP})
_HEADER = frozenset({Harm.HEADER})
# Harms that a text without the key cannot do.
_HARMS_WITHOUT: dict[object, Harms] = {
    "..": _PATH,
    "../": _PATH,
    "/": _PATH,
    "'": _QUERY,
    '"': _QUERY,
    "`": _QUERY,
    "(": _QUERY,
    "\n": _HEADER,
    "\r": _HEADER,
    "<": frozenset({Harm.HTML}),
}
_CHARACTER_TESTS = frozenset({"isdigit", "isalpha", "isalnum", "isnumeric", "isdecimal", "isidentifier"})
_FILE_TESTS = frozenset({"isfile", "isdir", "exists"})

Excluded = dict[str, Harms]
"""Harms that variables can no longer do, by the variable's name."""


def excluded_by(test: ast.expr, patterns: Mapping[str, str], *, truth: bool) -> Excluded:
    """Return the harms that a test with this result excludes; `patterns` are compiled regular expressions by name."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return excluded_by(operand, patterns, truth=not truth)
        case ast.BoolOp(op=operator, values=values) if isinstance(operator, ast.And) is truth:
            return _excluded_by_all(values, patterns, truth=truth)
        case ast.Compare(ops=[_]):
            return _excluded_by_comparison(test, patterns, truth=truth)
        case ast.Call() if truth:
            return _excluded_by_call(test, patterns)
        case ast.NamedExpr(value=ast.Call() as call) if truth:
            return _excluded_by_call(call, patterns)
        case ast.Attribute(value=ast.Name(id=name), attr=part) if part in HOST_PARTS and not truth:
            return {name: _ADDRESS}
    return {}


def _excluded_by_all(tests: Iterable[ast.expr], patterns: Mapping[str, str], *, truth: bool) -> Excluded:
    excluded: Excluded = {}
    for test in tests:
        for name, harms in excluded_by(test, patterns, truth=truth).items():
            excluded[name] = excluded.get(name, NO_HARMS) | harms
    return excluded


def _excluded_by_comparison(test: ast.Compare, patterns: Mapping[str, str], *, truth: bool) -> Excluded:
    left = test.left
    operator = test.ops[0]
    right = test.comparators[0]
    is_equal = isinstance(operator, (ast.In, ast.Eq, ast.Is)) is truth
    if isinstance(operator, (ast.Is, ast.IsNot)):
        # `re.fullmatch(…) is not None`
        is_none = isinstance(right, ast.Constant) and right.value is None
        if isinstance(left, ast.Call) and is_none and not is_equal:
            return _excluded_by_call(left, patterns)
        return {}
    if isinstance(operator, (ast.In, ast.NotIn)) and isinstance(left, ast.Constant):
        name = name_of(right)
        harms = _HARMS_WITHOUT.get(str(left.value))
        if name and harms and not is_equal:
            return {name: harms}
        return {}
    if not is_equal:
        return {}
    if isinstance(operator, (ast.In, ast.NotIn)):
        return _excluded_by_choice(left, right)
    is_comparable = isinstance(right, (ast.Constant, ast.Name, ast.Attribute))
    if isinstance(operator, (ast.Eq, ast.NotEq)) and is_comparable:
        return _excluded_by_choice(left, right)
    return {}


def _excluded_by_choice(left: ast.expr, right: ast.expr) -> Excluded:
    """Return the harms that are excluded because the left side is one of the values on the right."""
    is_literal = isinstance(right, (ast.Constant, ast.Tuple, ast.List, ast.Set, ast.Dict))
    harms = PROVEN if is_literal or name_of(right).isupper() else ALL_TEXT
    name = name_of(left)
    if name:
        # The first characters prove nothing about the others.
        return {name: ALL_TEXT if isinstance(left, ast.Subscript) else harms}
    if isinstance(left, ast.Attribute) and left.attr in HOST_PARTS:
        return dict.fromkeys(_names_in([left]), _ADDRESS)
    if not isinstance(left, ast.Call):
        return {}
    if _last_name(left.func).endswith(("commonpath", "commonprefix", "dirname")):
        return dict.fromkeys(_names_in(left.args), _PATH)
    if isinstance(left.func, ast.Attribute) and left.func.attr in ("lower", "upper", "strip", "get"):
        name = name_of(left.func.value)
        if name:
            return {name: ALL_TEXT if left.func.attr == "get" else harms}
    return {}


def _excluded_by_call(call: ast.Call, patterns: Mapping[str, str]) -> Excluded:
    """Return the harms that are excluded because a call has a true result."""
    last = _last_name(call.func)
    receiver = name_of(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    if receiver and last in _CHARACTER_TESTS:
        return {receiver: PROVEN}
    if receiver and last == "is_relative_to":
        return {receiver: _PATH}
    if receiver and last == "startswith":
        return {receiver: _excluded_by_prefix(call)}
    names = [name for name in map(name_of, call.args) if name]
    if last in ("fullmatch", "match", "search"):
        return dict.fromkeys(names, _excluded_by_match(call, last, patterns.get(receiver)))
    if last in ("url_has_allowed_host_and_scheme", "is_safe_url"):
        return dict.fromkeys(names, _ADDRESS)
    if last not in _FILE_TESTS and GUARD_NAMES.search(last):
        return dict.fromkeys(names, ALL_TEXT)
    return {}


def _excluded_by_prefix(call: ast.Call) -> Harms:
    """Return the harms that `startswith` excludes: another directory, if the path was resolved, or another host."""
    if len(call.args) != 1:
        return _PATH
    prefix = call.args[0]
    if not isinstance(prefix, ast.Constant) or not isinstance(prefix.value, str):
        return _PATH
    if "://" in prefix.value and prefix.value.count("/") > 2:
        return _ADDRESS
    return _PATH if prefix.value.startswith("/") else NO_HARMS


def _excluded_by_match(call: ast.Call, method: str, pattern: str | None) -> Harms:
    """Return the harms that a match of a regular expression excludes; a pattern that is not known is trusted."""
    for argument in call.args:
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            pattern = argument.value
            break
    if pattern is None:
        return ALL_TEXT
    is_whole = method == "fullmatch"
    if pattern.endswith(("$", r"\Z")) and (method == "match" or pattern.startswith("^")):
        is_whole = not reads_lines(call)
    if is_whole and not PERMISSIVE_PATTERN.search(pattern):
        return PROVEN
    return NO_HARMS


def reads_lines(call: ast.Call) -> bool:
    """Return whether a regular expression has a flag with which `^` and `$` match at each line."""
    attributes = {part.attr for part in ast.walk(call) if isinstance(part, ast.Attribute)}
    return not attributes.isdisjoint({"M", "MULTILINE"})


def _last_name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _names_in(nodes: Iterable[ast.AST]) -> list[str]:
    names: list[str] = []
    for node in nodes:
        names += [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]
    return names


def name_of(node: ast.AST) -> str:
    """Return the name of a variable or of an attribute of `self`, or an empty text for any other expression."""
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


def fits(pattern: ast.pattern, const: Any) -> bool | None:
    """Return whether a pattern fits a constant, or None if that is not known."""
    match pattern:
        case ast.MatchValue(value=ast.Constant(value=value)):
            return bool(value == const)
        case ast.MatchAs(pattern=None):
            return True
        case ast.MatchOr(patterns=patterns):
            answers = [fits(part, const) for part in patterns]
            if True in answers:
                return True
            return None if None in answers else False
    return None
