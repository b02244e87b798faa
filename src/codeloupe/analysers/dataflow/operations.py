"""Operators: their results on values."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from codeloupe.analysers.dataflow.knowledge import NUMBERS_ONLY_FORMAT
from codeloupe.analysers.dataflow.values import LONGEST_CONSTANT, Value, concatenate, constant, fill_in, mix

_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def fold(operation: ast.AST, left: Value, right: Value) -> Value | None:
    """Return the result of an operator on two constants, or None if it is unknown or large."""
    one = left.const
    other = right.const
    are_texts = isinstance(one, str) and isinstance(other, str)
    if isinstance(operation, (ast.In, ast.NotIn)):
        if not are_texts:
            return None
        return constant((one in other) is isinstance(operation, ast.In))
    are_numbers = isinstance(one, (int, float)) and isinstance(other, (int, float))
    if not are_numbers and not (are_texts and isinstance(operation, (ast.Add, ast.Eq, ast.NotEq))):
        return None
    calculate = _OPERATORS.get(type(operation))
    if calculate is None:
        return None
    try:
        result = calculate(one, other)
    except (ArithmeticError, ValueError, TypeError):
        return None
    is_small = len(result) <= LONGEST_CONSTANT if isinstance(result, str) else abs(result) <= 1 << 64
    return constant(result) if is_small else None


def operate(node: ast.BinOp, left: Value, right: Value) -> Value:
    """Return the result of a binary operator."""
    folded = fold(node.op, left, right)
    if folded is not None:
        return folded
    kind = type(node.op)
    has_number = type(left.const) in (int, float) or type(right.const) in (int, float)
    if has_number and kind in (ast.Add, ast.Sub, ast.Div):
        return mix([left, right]).number()
    if kind is ast.Mult:
        return _repetition(node, left, right)
    if kind is ast.Mod and (isinstance(left.const, str) or left.path.endswith(".Markup()")):
        return _percent_format(node, left, right)
    if kind in (ast.Add, ast.Mod, ast.Div):
        result = concatenate([left, right], node.lineno)
        if isinstance(left.items, list) and isinstance(right.items, list):
            return result.but(items=[*left.items, *right.items])
        return result
    mixed = mix([left, right])
    if mixed.harmless or has_number or (kind is ast.BitAnd and (left.harmless or right.harmless)):
        return mixed.number()
    # The operator may be one of sets or dictionaries.
    return mixed.number().doubted()


def _percent_format(node: ast.BinOp, template: Value, right: Value) -> Value:
    if template.path.endswith(".Markup()"):
        return fill_in(template, [right], node.lineno)
    if NUMBERS_ONLY_FORMAT.fullmatch(template.const):
        return right.number().but(pieces=template.pieces)
    return concatenate([template, right], node.lineno).but(prefix=template.const.partition("%")[0])


def _repetition(node: ast.BinOp, left: Value, right: Value) -> Value:
    """Return a product. The factor beside a text or a list is a number, which adds no text of its own."""
    for repeated in (left, right):
        is_text = isinstance(repeated.const, str)
        if is_text or isinstance(repeated.items, list):
            return mix([repeated], node.lineno)
    return concatenate([left, right], node.lineno)
