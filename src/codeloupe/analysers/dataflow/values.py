"""What is known of libraries and names (`knowledge.toml`), and of a value: its origins, and what it cannot do."""

from __future__ import annotations

import ast
import operator
import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from msgspec import Struct, field
from msgspec.structs import force_setattr, replace

from codeloupe.system.regex import regex


class Harm(StrEnum):
    """What outside text can do at a place; its value is the rule's name."""

    SQL = "py-sql-injection"
    SHELL = "py-command-injection"
    CODE = "py-code-injection"
    PATH = "py-path-traversal"
    XPATH = "py-xpath-injection"
    LDAP = "py-ldap-injection"
    TEMPLATE = "py-template-injection"
    REDIRECT = "py-open-redirect"
    OBJECT = "py-unsafe-deserialization"
    HTML = "py-cross-site-scripting"
    FETCH = "py-request-forgery"
    XML = "py-xml-external-entity"
    HEADER = "py-header-injection"
    RANDOM = "py-guessable-secret"
    COOKIE = "py-insecure-cookie"
    TLS = "py-tls-not-verified"
    ASSERT = "py-assert-as-guard"
    TIMING = "py-signature-comparison"


Harms = frozenset[Harm]
# Every harm that text can do.
ALL_TEXT: Harms = frozenset(Harm) - {Harm.RANDOM, Harm.COOKIE, Harm.TLS, Harm.ASSERT, Harm.TIMING}

_TABLE: dict[str, Any] = tomllib.loads(Path(__file__).with_name("knowledge.toml").read_text(encoding="utf-8"))
WORDS = SimpleNamespace(**{name: frozenset(text.split()) for name, text in _TABLE["words"].items()})
PATTERNS = SimpleNamespace(**{name: regex(text, re.VERBOSE) for name, text in _TABLE["patterns"].items()})
# Each harm's severity, title, why and fix.
MEANINGS = {Harm(name): SimpleNamespace(**about) for name, about in _TABLE["harm"].items()}
SINKS: dict[str, tuple[Harm, list[int | str]]] = {
    f"{module}{name}": (Harm(sink["harm"]), sink["arguments"])
    for sink in _TABLE["sinks"]
    for module in sink.get("modules", "").split() or [""]
    for name in sink["names"].split()
}
ESCAPERS = [(regex(escaper["pattern"]), frozenset(map(Harm, escaper["safe"]))) for escaper in _TABLE["escapers"]]

# The constant of a value that is not known to be one.
UNKNOWN: Any = object()
# The path of an uploaded file as an object: what is in it and its name come from outside, but it is no path.
UPLOAD = "<upload>"
REQUEST = "<request>"
ENVIRONMENT = "<environ>"
UNSAFE_PARSER = "<parser that resolves entities>"
_MOST_PIECES = 400
_LONGEST_CONSTANT = 2000


def is_plain(annotation: str) -> bool:
    """Whether what is annotated so holds no text of the sender."""
    wrapped = PATTERNS.wrapped_annotations.fullmatch(annotation)
    bare = next(filter(None, wrapped.groups())) if wrapped else annotation
    return PATTERNS.safe_annotations.fullmatch(bare) is not None


class Origin(NamedTuple):
    """Where a value came in: `kind` is `outside`, `random` or `parameter`; `safe` are harms that it cannot do."""

    line: int
    text: str
    kind: str = "outside"
    safe: Harms = frozenset()


class Value(Struct, frozen=True, kw_only=True, eq=False):
    """One value.

    `harmless` says that nothing from outside can be in it; a value without origins that is not harmless is one of which
    nothing is known. `safe` are the harms that it cannot do although it has origins; `proven` those that it cannot do
    whatever is in it: a check that is safe by its name alone proves nothing. `path` is the full name of what it
    is, with `()` for an object of that class. `items` are the parts of a list or dictionary, where they are known.
    `prefix` is the constant text at its start, `pieces` all constant text in it; `lines` are where it was put together.
    """

    origins: tuple[Origin, ...] = ()
    safe: Harms = frozenset()
    proven: Harms = frozenset()
    const: Any = UNKNOWN
    items: dict[Any, Value] | list[Value] | None = None
    path: str = ""
    prefix: str = ""
    pieces: str = ""
    lines: tuple[int, ...] = ()
    harmless: bool = False
    function: Any = None

    def __post_init__(self) -> None:
        if self.items is not None and len(self.items) > 40:
            force_setattr(self, "items", None)

    def but(self, **changes: Any) -> Value:
        """The same with some things changed."""
        return replace(self, **changes)

    def but_safe(self, *harms: Harm) -> Value:
        """The same, and it cannot do these harms."""
        return replace(self, safe=self.safe | set(harms))

    @property
    def is_known(self) -> bool:
        """Whether it is a constant."""
        return self.const is not UNKNOWN

    @property
    def is_outside(self) -> bool:
        """Whether anything in it is known to come from outside."""
        return any(origin.kind == "outside" for origin in self.origins)

    def can_do(self, harm: Harm) -> bool:
        """Whether outside text in it can do this harm."""
        return harm not in self.safe and any(origin.kind != "random" for origin in self.origins)

    def has_index(self, key: Value) -> bool:
        """Whether the key is the number of one of its parts or characters."""
        parts = self.items if isinstance(self.items, list) else self.const if isinstance(self.const, str) else ()
        return type(key.const) is int and -len(parts) <= key.const < len(parts)

    @staticmethod
    def constant(value: Any) -> Value:
        """The value of a literal."""
        if isinstance(value, bytes):
            value = value[:_LONGEST_CONSTANT].decode("latin-1")
        text = value[:_MOST_PIECES] if isinstance(value, str) else ""
        return Value(const=value, prefix=text, pieces=text, harmless=True)

    @staticmethod
    def outside(line: int, text: str) -> Value:
        """A value that comes from outside."""
        return Value(origins=(Origin(line, text),), lines=(line,))

    @staticmethod
    def mix(values: Iterable[Value], line: int | None = None) -> Value:
        """A value with all of these in it; `line` is where they were put together."""
        parts = list(values)
        origins: dict[Origin, None] = {}
        lines: dict[int, None] = {}
        safe: Harms | None = None
        proven = ALL_TEXT
        for part in parts:
            if not part.harmless:
                proven = proven & part.proven
            if part.origins:
                for origin in part.origins:
                    # A parameter keeps what this part of a value cannot do, whatever it is given.
                    keeps = part.safe and origin.kind == "parameter"
                    origins[origin._replace(safe=origin.safe | part.safe) if keeps else origin] = None
                lines.update(dict.fromkeys(part.lines))
                safe = part.safe if safe is None else safe & part.safe
        if origins and line is not None:
            lines[line] = None
        return Value(
            origins=tuple(origins)[:4],
            safe=safe or frozenset(),
            proven=proven,
            lines=tuple(lines)[:12],
            harmless=all(part.harmless for part in parts),
            pieces=" ".join(part.pieces for part in parts if part.pieces)[:_MOST_PIECES],
        )

    @staticmethod
    def container(items: dict[Any, Value] | list[Value]) -> Value:
        """A dictionary or list of these parts."""
        return Value.mix(items.values() if isinstance(items, dict) else items).but(items=items)

    @staticmethod
    def concatenate(parts: Sequence[Value], line: int) -> Value:
        """Text that is made of these parts, in this order."""
        if all(isinstance(part.const, (str, int)) for part in parts):
            text = "".join(str(part.const) for part in parts)
            if len(text) <= _LONGEST_CONSTANT:
                return Value.constant(text)
        prefix = ""
        for part in parts:
            prefix += part.prefix
            if not isinstance(part.const, str):
                break
        pieces = "".join(part.pieces or "\0" for part in parts)[:_MOST_PIECES]
        path = next((part.path for part in parts if part.path.startswith(("pathlib.", "hmac."))), "")
        return Value.mix(parts, line).but(prefix=prefix, pieces=pieces, path=path)

    @staticmethod
    def filled_text(parts: Sequence[Value], line: int) -> Value:
        """Text of which the first part has places for the others; markup escapes what is put into it."""
        result = Value.concatenate(parts, line)
        if parts[0].path.endswith(".Markup()"):
            return result.but_safe(Harm.HTML).but(proven=result.proven | {Harm.HTML})
        return result

    @staticmethod
    def join(values: Sequence[Value]) -> Value:
        """One of these values, and it is not known which."""
        first = values[0]
        if all(value is first for value in values):
            return first
        paths = [value.path for value in values]
        items: list[Any] = [value.items for value in values]
        joined: Any = None
        if all(isinstance(part, list) for part in items) and len({len(part) for part in items}) == 1:
            joined = [Value.join(row) for row in zip(*items, strict=True)]
        elif all(isinstance(part, dict) for part in items):
            keys = dict.fromkeys(key for part in items for key in part)
            joined = {key: Value.join([part[key] for part in items if key in part]) for key in keys}
        # What holds nothing from outside can do no harm, so its start does not matter.
        prefixes = {value.prefix for value in values}, {value.prefix for value in values if value.origins}
        return Value.mix(values).but(
            const=first.const if all(value.is_known and value.const == first.const for value in values) else UNKNOWN,
            items=joined,
            path=paths[0] if len(set(paths)) == 1 else next((path for path in paths if path.endswith("()")), ""),
            prefix=next((next(iter(found)) for found in prefixes if len(found) == 1), ""),
            function=first.function if all(value.function is first.function for value in values) else None,
        )

    def element(self) -> Value:
        """Any one part of a list, dictionary or text."""
        if self.items is None:
            return self.but(const=UNKNOWN, prefix="", path=UPLOAD if self.path == UPLOAD else "", function=None)
        parts = self.items.values() if isinstance(self.items, dict) else self.items
        return Value.join([*parts]) if parts else self.but(items=None)

    def part(self, key: Value) -> Value:
        """The part under a key. What the key holds does not get into the part."""
        if isinstance(self.items, dict) and key.is_known:
            return self.items.get(key.const, NOTHING_KNOWN)
        if self.has_index(key):
            return self.items[key.const] if isinstance(self.items, list) else Value.constant(self.const[key.const])
        return self.element()

    def number(self) -> Value:
        """A number, or another thing without text of its own, that was made from a value; chance stays in it."""
        origins = tuple(origin for origin in self.origins if origin.kind == "random")
        return Value(origins=origins, safe=ALL_TEXT, lines=self.lines if origins else (), harmless=True)


NOTHING_KNOWN = Value()
HARMLESS = Value(harmless=True)


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


def fold(kind: ast.AST, left: Value, right: Value) -> Value | None:
    """The result of an operator on two constants, or None where it is not worth the work."""
    one, other = left.const, right.const
    texts = isinstance(one, str) and isinstance(other, str)
    if isinstance(kind, (ast.In, ast.NotIn)):
        return Value.constant((one in other) is isinstance(kind, ast.In)) if texts else None
    numbers = isinstance(one, (int, float)) and isinstance(other, (int, float))
    known = _OPERATORS.get(type(kind))
    if known is None or not (numbers or (texts and isinstance(kind, (ast.Add, ast.Eq, ast.NotEq)))):
        return None
    try:
        result = known(one, other)
    except (ArithmeticError, ValueError, TypeError):
        return None
    is_small = len(result) <= _LONGEST_CONSTANT if isinstance(result, str) else abs(result) <= 1 << 64
    return Value.constant(result) if is_small else None


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


class ClassNotes(Struct, eq=False):
    """A class, what its objects keep, by its `__init__` too (`made`), and whether a web server calls it (`kind`)."""

    node: ast.ClassDef
    kind: str
    methods: dict[str, ast.FunctionDef | ast.AsyncFunctionDef]
    attributes: dict[str, Value]
    made: dict[str, Value] = field(default_factory=dict)


# What a call of a function does: what it returns, and which parameters, by name, reach a harmful place inside.
Summary = tuple[Value, tuple[tuple[str, Flow], ...]]


class Notes(Struct):
    """One module. `budget` is the number of steps that are left.

    `harmless` says of a line and a harm whether outside text cannot do it there; one doubt is enough. `quiet` are the
    rules of ruff that have nothing to add at a line. `patterns` are compiled regular expressions, by name.
    """

    budget: int
    is_page_framework: bool = False
    is_django: bool = False
    globals: dict[str, Value] = field(default_factory=dict)
    classes: dict[str, ClassNotes] = field(default_factory=dict)
    summaries: dict[int, Summary | None] = field(default_factory=dict)
    flows: dict[Flow, None] = field(default_factory=dict)
    harmless: dict[tuple[int, Harm], bool] = field(default_factory=dict)
    quiet: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    patterns: dict[str, str] = field(default_factory=dict)
