"""What is known of a value while the code is read: where it may come from, and what it can no longer do."""

from __future__ import annotations

import ast
import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from msgspec import Struct, field

from codeloupe.analysers.dataflow.meanings import ALL_TEXT, Harm

UNKNOWN: Any = object()
"""Stands for a value that is no known constant."""

_MOST_ORIGINS = 4
_MOST_LINES = 12
_MOST_ITEMS = 40
_MOST_PIECES = 400
_LONGEST_CONSTANT = 2000
_LARGEST_NUMBER = 1 << 64


class Origin(NamedTuple):
    """Where a value came in: `kind` is `outside`, `random`, or `parameter`, whose name is then the text.

    `safe` are the harms that this part of the value cannot do.
    """

    line: int
    text: str
    kind: str = "outside"
    safe: frozenset[Harm] = frozenset()


class Value:
    """One value, never changed once it is made.

    `harmless` says that nothing from outside can be in it; a value without origins that is not harmless is one of which
    nothing is known. `safe` are the harms that it cannot do although it has origins; `proven` those that it cannot do
    whatever is in it: a check that is safe by its name alone proves nothing. `path` is the full name of what it
    is, with `()` for an object of that class. `items` are the parts of a list or dictionary, where they are known.
    `prefix` is the constant text at its start, `pieces` all constant text in it; `lines` are where it was put together.
    """

    __slots__ = (
        "const",
        "function",
        "harmless",
        "items",
        "lines",
        "origins",
        "path",
        "pieces",
        "prefix",
        "proven",
        "safe",
    )

    def __init__(  # noqa: PLR0913 - each is one thing that is known
        self,
        *,
        origins: tuple[Origin, ...] = (),
        safe: frozenset[Harm] = frozenset(),
        proven: frozenset[Harm] = frozenset(),
        const: Any = UNKNOWN,
        items: dict[Any, Value] | list[Value] | None = None,
        path: str = "",
        prefix: str = "",
        pieces: str = "",
        lines: tuple[int, ...] = (),
        harmless: bool = False,
        function: Any = None,
    ) -> None:
        self.origins = origins
        self.safe = safe
        self.proven = proven
        self.const = const
        self.items = items if items is None or len(items) <= _MOST_ITEMS else None
        self.path = path
        self.prefix = prefix
        self.pieces = pieces
        self.lines = lines
        self.harmless = harmless
        self.function = function

    def but(self, **changes: Any) -> Value:
        """The same with some things changed."""
        fields = {name: changes.get(name, getattr(self, name)) for name in self.__slots__}
        return Value(**fields)

    @property
    def is_known(self) -> bool:
        """Whether it is a constant."""
        return self.const is not UNKNOWN

    def is_proven(self, harm: Harm) -> bool:
        """Whether it cannot do this harm whatever it holds."""
        return self.harmless or harm in self.proven

    def can_do(self, harm: Harm) -> bool:
        """Whether outside text in it can do this harm."""
        return bool(self.origins) and harm not in self.safe and any(item.kind != "random" for item in self.origins)


UPLOAD = "<upload>"
"""The path of an uploaded file as an object: what is in it and its name come from outside, but it is no path."""

NOTHING_KNOWN = Value()
HARMLESS = Value(harmless=True)


def constant(value: Any) -> Value:
    """The value of a literal."""
    if isinstance(value, bytes):
        value = value[:_LONGEST_CONSTANT].decode("latin-1")
    text = value[:_MOST_PIECES] if isinstance(value, str) else ""
    return Value(const=value, prefix=text, pieces=text, harmless=True)


def outside(line: int, text: str, safe: frozenset[Harm] = frozenset()) -> Value:
    """A value that comes from outside."""
    return Value(origins=(Origin(line, text),), safe=safe, lines=(line,))


def join(values: Sequence[Value]) -> Value:
    """One of these values, and it is not known which."""
    first = values[0]
    if len(values) == 1 or all(value is first for value in values):
        return first
    same_constant = all(value.is_known and value.const == first.const for value in values)
    same_items = isinstance(first.items, (dict, list)) and all(type(v.items) is type(first.items) for v in values)
    mixed = mix(values)
    return mixed.but(
        const=first.const if same_constant else UNKNOWN,
        items=_joined_items([value.items for value in values]) if same_items else None,
        path=first.path if all(value.path == first.path for value in values) else _path_of(values),
        prefix=first.prefix if all(value.prefix == first.prefix for value in values) else _weakest_prefix(values),
        function=first.function if all(value.function is first.function for value in values) else None,
    )


def _path_of(values: Sequence[Value]) -> str:
    return next((value.path for value in values if value.path.endswith("()")), "")


def _weakest_prefix(values: Sequence[Value]) -> str:
    """Of those that hold outside text, since the others cannot do harm."""
    prefixes = {value.prefix for value in values if value.origins}
    return prefixes.pop() if len(prefixes) == 1 else ""


def _joined_items(items: Sequence[Any]) -> dict[Any, Value] | list[Value] | None:
    if isinstance(items[0], list):
        return [join(row) for row in zip(*items, strict=True)] if len({len(part) for part in items}) == 1 else None
    keys = dict.fromkeys(key for part in items for key in part)
    return {key: join([part[key] for part in items if key in part]) for key in keys}


def mix(values: Iterable[Value], line: int | None = None) -> Value:
    """A value with all of these in it; `line` is where they were put together."""
    parts = list(values)
    origins: dict[Origin, None] = {}
    lines: dict[int, None] = {}
    safe: frozenset[Harm] | None = None
    proven = ALL_TEXT
    for part in parts:
        if not part.harmless:
            proven = proven & part.proven
        if part.origins:
            origins.update(dict.fromkeys(_with_safe(origin, part.safe) for origin in part.origins))
            lines.update(dict.fromkeys(part.lines))
            safe = part.safe if safe is None else safe & part.safe
    if origins and line is not None:
        lines[line] = None
    return Value(
        origins=tuple(origins)[:_MOST_ORIGINS],
        safe=safe or frozenset(),
        proven=proven,
        lines=tuple(lines)[:_MOST_LINES],
        harmless=all(part.harmless for part in parts),
        pieces=" ".join(part.pieces for part in parts if part.pieces)[:_MOST_PIECES],
    )


def _with_safe(origin: Origin, safe: frozenset[Harm]) -> Origin:
    """A parameter with what this part of a value cannot do, whatever it is given; for others the value says it."""
    return origin._replace(safe=origin.safe | safe) if safe and origin.kind == "parameter" else origin


def concatenate(parts: Sequence[Value], line: int) -> Value:
    """Text that is made of these parts, in this order."""
    if all(isinstance(part.const, (str, int)) and part.is_known for part in parts):
        text = "".join(str(part.const) for part in parts)
        if len(text) <= _LONGEST_CONSTANT:
            return constant(text)
    prefix = ""
    for part in parts:
        prefix += part.prefix
        if not isinstance(part.const, str):
            break
    pieces = "".join(part.pieces or "\0" for part in parts)[:_MOST_PIECES]
    path = next((part.path for part in parts if part.path.startswith(("pathlib.", "hmac."))), "")
    return mix(parts, line).but(prefix=prefix, pieces=pieces, path=path)


def filled_text(parts: Sequence[Value], line: int) -> Value:
    """Text of which the first part has places for the others; markup escapes what is put into it."""
    result = concatenate(parts, line)
    return (
        result.but(safe=result.safe | {Harm.HTML}, proven=result.proven | {Harm.HTML})
        if parts[0].path.endswith(".Markup()")
        else result
    )


def element(value: Value) -> Value:
    """Any one part of a list, dictionary or text."""
    if isinstance(value.items, dict):
        return join([*value.items.values()]) if value.items else value.but(items=None)
    if isinstance(value.items, list):
        return join(value.items) if value.items else value.but(items=None)
    return value.but(const=UNKNOWN, prefix="", path=UPLOAD if value.path == UPLOAD else "", function=None)


def number_of(value: Value) -> Value:
    """A number, or another thing without text of its own, that was made from a value; chance stays in it."""
    origins = tuple(origin for origin in value.origins if origin.kind == "random")
    return Value(origins=origins, safe=ALL_TEXT, lines=value.lines if origins else (), harmless=True)


_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def fold(kind: ast.AST, left: Any, right: Any) -> Any:
    """The result of an operator on two constants, or UNKNOWN where it is not worth the work."""
    if isinstance(kind, (ast.In, ast.NotIn)):
        if isinstance(left, str) and isinstance(right, str):
            return (left in right) is isinstance(kind, ast.In)
        return UNKNOWN
    numbers = isinstance(left, (int, float)) and isinstance(right, (int, float))
    texts = isinstance(left, str) and isinstance(right, str) and isinstance(kind, (ast.Add, ast.Eq, ast.NotEq))
    known = _OPERATORS.get(type(kind))
    if known is None or not (numbers or texts):
        return UNKNOWN
    try:
        result = known(left, right)
    except (ArithmeticError, ValueError, TypeError):
        return UNKNOWN
    if isinstance(result, str):
        return result if len(result) <= _LONGEST_CONSTANT else UNKNOWN
    return result if abs(result) <= _LARGEST_NUMBER else UNKNOWN


class OverBudget(Exception):
    """The module takes more work than its size explains."""


class Flow(Struct, frozen=True):
    """Something found: what can happen at a line, and how it gets there."""

    harm: Harm
    line: int
    end_line: int
    target: str
    source: str = ""
    source_line: int = 0
    lines: tuple[int, ...] = ()


class ClassNotes(Struct):
    """A class: its methods, what its objects were seen to keep, and whether a web server calls it (`kind`).

    `made` is what its `__init__` keeps, in terms of its parameters.
    """

    node: ast.ClassDef
    kind: str = ""
    methods: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = field(default_factory=dict)
    attributes: dict[str, Value] = field(default_factory=dict)
    made: dict[str, Value] = field(default_factory=dict)


class ParameterSink(Struct, frozen=True):
    """A parameter of a function that reaches a harmful place inside."""

    name: str
    harm: Harm
    flow: Flow


class Summary(Struct):
    """What a call of a function does: what it returns, and which parameters do harm in it."""

    returned: Value
    sinks: tuple[ParameterSink, ...] = ()


class Notes(Struct):
    """One module. `budget` is the number of steps that are left."""

    budget: int
    is_page_framework: bool = False
    is_django: bool = False
    globals: dict[str, Value] = field(default_factory=dict)
    classes: dict[str, ClassNotes] = field(default_factory=dict)
    summaries: dict[int, Summary | None] = field(default_factory=dict)
    flows: dict[Flow, None] = field(default_factory=dict)
    harmless: dict[int, set[Harm]] = field(default_factory=lambda: defaultdict(set))
    doubtful: dict[int, set[Harm]] = field(default_factory=lambda: defaultdict(set))
    quiet: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    known: dict[str, Any] = field(default_factory=dict)
    patterns: dict[str, str] = field(default_factory=dict)

    def judge(self, line: int, harm: Harm, *, harmless: bool) -> None:
        """Say of a line whether outside text can do this harm there; one doubt is enough."""
        (self.harmless if harmless else self.doubtful)[line].add(harm)
