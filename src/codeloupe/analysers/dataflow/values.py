"""Values: what the analysis knows about the result of an expression, and the results of operators on values."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from codeloupe.analysers.dataflow.harms import ALL_TEXT, NO_HARMS, Harm, Harms
from codeloupe.analysers.dataflow.knowledge import NUMBERS_ONLY_FORMAT

# The constant of a value that is not known to be one.
UNKNOWN: Any = object()
# Paths of objects that no import names.
REQUEST = "<request>"
ENVIRONMENT = "<environ>"
# An uploaded file as an object: its content and its name come from outside, but it is not a path.
UPLOAD = "<upload>"
UNSAFE_PARSER = "<parser that resolves entities>"
ENUM_MEMBER = "<enum member>"
# The options of a model of Django, such as its table: they are part of the program.
MODEL_OPTIONS = "<model options>"

_MOST_ITEMS = 40
_MOST_ORIGINS = 4
_MOST_LINES = 12
_MOST_PIECES = 400
_LONGEST_CONSTANT = 2000
_LARGEST_NUMBER = 1 << 64

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

Items = dict[Any, "Value"] | list["Value"]


class Origin(NamedTuple):
    """The place where data came in.

    `kind` is `outside`, `random` or `parameter`. The origin `parameter` means data that a caller of the function
    passes. `safe` are harms that this part of the data cannot do with any argument.
    """

    line: int
    text: str
    kind: str = "outside"
    safe: Harms = NO_HARMS


class Value:
    """One value. A value is never changed: `but` returns a changed copy.

    `harmless`: nothing from outside can be in it.
    `followed`: everything in it is harmless or has an origin. A value that is not followed contains something unknown.
    `safe`: harms that it cannot do although it has origins.
    `proven`: harms that it cannot do, proven without trust in the name of a function.
    `path`: the full name of the object, with `()` for an instance of that class.
    `items`: the parts of a list or dictionary, if they are known.
    `prefix`: the constant text at its start. `pieces`: all constant text in it.
    `lines`: the lines that built it from its origins.
    `function`: the function or class of this module that it is.

    This is a plain class because the import of msgspec takes longer than the analysis of most changes.
    """

    def __init__(  # noqa: PLR0913 - each argument is one thing known about the value
        self,
        *,
        origins: tuple[Origin, ...] = (),
        safe: Harms = NO_HARMS,
        proven: Harms = NO_HARMS,
        const: Any = UNKNOWN,
        items: Items | None = None,
        path: str = "",
        prefix: str = "",
        pieces: str = "",
        lines: tuple[int, ...] = (),
        harmless: bool = False,
        followed: bool = False,
        function: Any = None,
    ) -> None:
        self.origins = origins
        self.safe = safe
        self.proven = proven
        self.const = const
        self.items = _few(items)
        self.path = path
        self.prefix = prefix
        self.pieces = pieces
        self.lines = lines
        self.harmless = harmless
        self.followed = followed or harmless
        self.function = function

    def but(self, **changes: Any) -> Value:
        """Return the same value with some attributes changed."""
        changed = Value.__new__(Value)
        changed.__dict__ = self.__dict__ | changes
        if "items" in changes:
            changed.items = _few(changed.items)
        return changed

    def but_safe(self, harms: Harms) -> Value:
        """Return the same value, which cannot do these harms."""
        return self.but(safe=self.safe | harms)

    def doubted(self) -> Value:
        """Return the same value, in which something may be unknown."""
        return self.but(const=UNKNOWN, items=None, prefix="", proven=NO_HARMS, harmless=False, followed=False)

    @property
    def is_known(self) -> bool:
        """Whether it is a constant."""
        return self.const is not UNKNOWN

    @property
    def is_outside(self) -> bool:
        """Whether something in it is known to come from outside."""
        return any(origin.kind == "outside" for origin in self.origins)

    def can_do(self, harm: Harm) -> bool:
        """Return whether outside data in it can do this harm."""
        return harm not in self.safe and any(origin.kind != "random" for origin in self.origins)

    def has_index(self, index: Any) -> bool:
        """Return whether this is the number of one of its items or characters."""
        if type(index) is not int:
            return False
        if isinstance(self.items, list):
            length = len(self.items)
        elif isinstance(self.const, str):
            length = len(self.const)
        else:
            return False
        return -length <= index < length

    def element(self) -> Value:
        """Return any one part of a list, dictionary or text."""
        if self.items is None:
            path = UPLOAD if self.path == UPLOAD else ""
            return self.but(const=UNKNOWN, prefix="", path=path, function=None)
        if not self.items:
            return self.but(items=None)
        if isinstance(self.items, dict):
            return join(list(self.items.values()))
        return join(self.items)

    def part(self, key: Value) -> Value:
        """Return the part under a key. The content of the key does not get into the part."""
        if isinstance(self.items, dict) and key.is_known:
            return self.items.get(key.const, NOTHING_KNOWN)
        index: Any = key.const
        if not self.has_index(index):
            return self.element()
        return self.items[index] if isinstance(self.items, list) else constant(self.const[index])

    def number(self) -> Value:
        """Return a number, or another thing without text, that was made from it. Randomness stays in it."""
        origins = tuple(origin for origin in self.origins if origin.kind == "random")
        if not origins:
            return NUMBER
        return Value(origins=origins, safe=ALL_TEXT, lines=self.lines, harmless=True)


def _few(items: Items | None) -> Items | None:
    """Return the items of a container, or None if there are too many to follow each."""
    if items is not None and len(items) > _MOST_ITEMS:
        return None
    return items


NOTHING_KNOWN = Value()
HARMLESS = Value(harmless=True)
NUMBER = Value(safe=ALL_TEXT, harmless=True)


def constant(value: Any) -> Value:
    """Return the value of a literal."""
    if isinstance(value, bytes):
        value = value[:_LONGEST_CONSTANT].decode("latin-1")
    text = value[:_MOST_PIECES] if isinstance(value, str) else ""
    return Value(const=value, prefix=text, pieces=text, harmless=True)


def outside(line: int, text: str) -> Value:
    """Return a value that comes from outside."""
    return Value(origins=(Origin(line, text),), lines=(line,), followed=True)


def parameter(line: int, name: str) -> Value:
    """Return the value of a parameter of the function that is being read."""
    return Value(origins=(Origin(line, name, "parameter"),), followed=True)


def mix(values: Iterable[Value], line: int | None = None) -> Value:
    """Return a value that contains all of these; `line` is the line that put them together."""
    origins: dict[Origin, None] = {}
    lines: dict[int, None] = {}
    safe: Harms | None = None
    proven = ALL_TEXT
    harmless = True
    followed = True
    pieces: list[str] = []
    for value in values:
        if value.pieces:
            pieces.append(value.pieces)
        if not value.harmless:
            harmless = False
            followed = followed and value.followed
            proven = proven & value.proven
        if value.origins:
            for origin in value.origins:
                origins[_with_safe(origin, value.safe)] = None
            lines.update(dict.fromkeys(value.lines))
            safe = value.safe if safe is None else safe & value.safe
    if origins and line is not None:
        lines[line] = None
    return Value(
        origins=tuple(origins)[:_MOST_ORIGINS],
        safe=safe or NO_HARMS,
        proven=proven,
        lines=tuple(lines)[:_MOST_LINES],
        harmless=harmless,
        followed=followed and len(origins) <= _MOST_ORIGINS,
        pieces=" ".join(pieces)[:_MOST_PIECES],
    )


def _with_safe(origin: Origin, safe: Harms) -> Origin:
    """Return an origin. A parameter remembers the harms that its part of a value cannot do."""
    if origin.kind != "parameter" or not safe:
        return origin
    return origin._replace(safe=origin.safe | safe)


def container(items: Items) -> Value:
    """Return a dictionary or list of these parts."""
    parts = items.values() if isinstance(items, dict) else items
    return mix(parts).but(items=items)


def concatenate(parts: Sequence[Value], line: int) -> Value:
    """Return the text that consists of these parts, in this order."""
    if all(isinstance(part.const, (str, int)) for part in parts):
        text = "".join(str(part.const) for part in parts)
        if len(text) <= _LONGEST_CONSTANT:
            return constant(text)
    prefix = ""
    for part in parts:
        prefix += part.prefix
        if not isinstance(part.const, str):
            break
    path = ""
    for part in parts:
        if part.path.startswith(("pathlib.", "hmac.")):
            path = part.path
            break
    pieces = "".join(part.pieces or "\0" for part in parts)
    return mix(parts, line).but(prefix=prefix, pieces=pieces[:_MOST_PIECES], path=path)


def fill_in(template: Value, parts: Sequence[Value], line: int) -> Value:
    """Return a text with these parts in its holes. Markup escapes the parts."""
    filled = concatenate([template, *parts], line)
    if template.path.endswith(".Markup()"):
        html = frozenset({Harm.HTML})
        return filled.but(safe=filled.safe | html, proven=filled.proven | html)
    return filled


def join(values: Sequence[Value]) -> Value:
    """Return one of these values, without knowing which."""
    first = values[0]
    if all(value is first for value in values):
        return first
    const = UNKNOWN
    if all(value.is_known and value.const == first.const for value in values):
        const = first.const
    function = None
    if all(value.function is first.function for value in values):
        function = first.function
    return mix(values).but(
        const=const,
        items=_joined_items(values),
        path=_joined_path(values),
        prefix=_joined_prefix(values),
        function=function,
    )


def _joined_items(values: Sequence[Value]) -> Items | None:
    lists: list[list[Value]] = []
    dictionaries: list[dict[Any, Value]] = []
    for value in values:
        if isinstance(value.items, list):
            lists.append(value.items)
        elif isinstance(value.items, dict):
            dictionaries.append(value.items)
    if len(lists) == len(values) and len({len(items) for items in lists}) == 1:
        return [join(row) for row in zip(*lists, strict=True)]
    if len(dictionaries) < len(values):
        return None
    under_key: dict[Any, list[Value]] = {}
    for items in dictionaries:
        for key, item in items.items():
            under_key.setdefault(key, []).append(item)
    return {key: join(parts) for key, parts in under_key.items()}


def _joined_path(values: Sequence[Value]) -> str:
    paths = [value.path for value in values]
    if len(set(paths)) == 1:
        return paths[0]
    for path in paths:
        if path.endswith("()"):
            return path
    return ""


def _joined_prefix(values: Sequence[Value]) -> str:
    """Return the common prefix of all values, or of those that can do harm."""
    prefixes = {value.prefix for value in values}
    if len(prefixes) > 1:
        prefixes = {value.prefix for value in values if value.origins}
    return prefixes.pop() if len(prefixes) == 1 else ""


# Operators.


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
    if isinstance(result, str) and len(result) > _LONGEST_CONSTANT:
        return None
    if not isinstance(result, str) and abs(result) > _LARGEST_NUMBER:
        return None
    return constant(result)


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
