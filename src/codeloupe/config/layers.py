"""One source of settings at a time: what it gives for which key, and which of its names are wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from codeloupe.config.document import Refused, read_document
from codeloupe.config.files import ConfigText
from codeloupe.config.kinds import Kind
from codeloupe.config.nodes import ListNode, MapNode, Node, describe, plain
from codeloupe.config.problems import Problem, escape, plain_or_quoted, quote
from codeloupe.config.provenance import Origin, OriginKind
from codeloupe.config.schema import KEYS, USER_KEYS, kind_of
from codeloupe.config.suggestions import closest, closest_key

VARIABLE_PREFIX = "CODELOUPE_"
_OTHER_VARIABLES = frozenset({"CODELOUPE_HOME"})
_MISSPELT_VARIABLE_CUTOFF = 0.75
_UNKNOWN_KEY_HINT = "`codeloupe config show` lists every key"


@dataclass(frozen=True, slots=True)
class GivenItem:
    """One entry of a list in a file."""

    value: object
    line: int
    shown: str


@dataclass(frozen=True, slots=True)
class Given:
    """A value that a source gives, not yet checked; `shown` is how a message speaks of it.

    `items` are the entries of a list in a file, which can be blamed one by one.
    """

    value: object
    origin: Origin
    shown: str
    items: tuple[GivenItem, ...] = ()


@dataclass(frozen=True, slots=True)
class Layer:
    """What one source gives."""

    values: Mapping[str, Given] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


def file_layer(source: ConfigText, kind: OriginKind) -> Layer:
    """Read a configuration file; whatever is wrong with it is among the problems."""
    try:
        document = read_document(source.name, source.text)
    except Refused as refusal:
        return Layer(problems=(refusal.problem,))
    values: dict[str, Given] = {}
    for key, node in document.entries:
        if key.text in KEYS and key.text not in values and _may_give(kind, key.text):
            values[key.text] = _given(node, Origin(kind, source.name, key.line))
    return Layer(values, tuple(_key_problems(source.name, document, kind)))


def _may_give(kind: OriginKind, key: str) -> bool:
    return kind is not OriginKind.REPOSITORY or key not in USER_KEYS


def _given(node: Node, origin: Origin) -> Given:
    entries = node.items if isinstance(node, ListNode) else ()
    items = tuple(GivenItem(plain(entry), entry.line, describe(entry)) for entry in entries)
    return Given(plain(node), origin, describe(node), items)


def _key_problems(name: str, document: MapNode, kind: OriginKind) -> Iterator[Problem]:
    first_lines: dict[str, int] = {}
    for key, _ in document.entries:
        place = f"{escape(name)}:{key.line}"
        if key.text in first_lines:
            what = f"{plain_or_quoted(key.text)}: already given on line {first_lines[key.text]}"
            yield Problem(place, what, "keep one of the two", key.line)
        elif key.text not in KEYS:
            yield Problem(place, f"{plain_or_quoted(key.text)}: unknown key", _key_hint(key.text), key.line)
        elif not _may_give(kind, key.text):
            what = f"{key.text}: a repository cannot set this, since it decides what runs here and where keys go"
            hint = f"set it in your own configuration file, or as {VARIABLE_PREFIX}{key.text.upper()}"
            yield Problem(place, what, hint, key.line)
        first_lines.setdefault(key.text, key.line)


def _key_hint(key: str) -> str:
    meant = closest_key(key, KEYS)
    return f"did you mean `{meant}`?" if meant else _UNKNOWN_KEY_HINT


def environment_layer(environment: Mapping[str, str]) -> Layer:
    """Read `CODELOUPE_<KEY>`; an empty variable counts as not set, and a misspelt one is a problem."""
    values: dict[str, Given] = {}
    problems: list[Problem] = []
    for name, text in sorted(environment.items()):
        if not name.startswith(VARIABLE_PREFIX) or name in _OTHER_VARIABLES or not text.strip():
            continue
        key = name.removeprefix(VARIABLE_PREFIX)
        if key.isupper() and key.lower() in KEYS:
            origin = Origin(OriginKind.ENVIRONMENT, name)
            values[key.lower()] = Given(_from_text(kind_of(key.lower()), text), origin, quote(text))
        elif meant := closest(key, KEYS, cutoff=_MISSPELT_VARIABLE_CUTOFF):
            hint = f"did you mean `{VARIABLE_PREFIX}{meant.upper()}`?"
            problems.append(Problem(escape(name), "unknown variable", hint))
    return Layer(values, tuple(problems))


def flag_layer(flags: Mapping[str, object]) -> Layer:
    """Take the flags that were given (not None), by the key they set. Raises KeyError for an unknown key."""
    values: dict[str, Given] = {}
    for key, value in flags.items():
        kind = kind_of(key)
        if value is not None:
            read = _from_text(kind, value) if isinstance(value, str) else value
            origin = Origin(OriginKind.FLAG, "--" + key.replace("_", "-"))
            values[key] = Given(read, origin, quote(str(value)))
    return Layer(values)


def _from_text(kind: Kind, text: str) -> object:
    try:
        return kind.from_text(text)
    except ValueError:
        return text  # the check of values tells what was expected instead
