"""One source of settings at a time: what it gives for which key, and which of its names are wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct, field

from codeloupe.config.document import Refused, read_document
from codeloupe.config.files import ConfigText
from codeloupe.config.kinds import Kind
from codeloupe.config.nodes import ListNode, MapNode, Node, describe, plain
from codeloupe.config.problems import Problem, escape, plain_or_quoted, quote
from codeloupe.config.provenance import Origin, OriginKind
from codeloupe.config.schema import KEYS, USER_KEYS, kind_of
from codeloupe.config.suggestions import closest, closest_key

VARIABLE_PREFIX = "CODELOUPE_"
# No setting, but a variable of ours: the folder of ledger, history and runs.
_HOME = "CODELOUPE_HOME"
_MISSPELT_VARIABLE_CUTOFF = 0.75
# Flags that are not called like their key.
_FLAGS = {
    "agents": "--agent",
    "agent_sdk_review_timeout": "--timeout",
    "agent_timeout_seconds": "--timeout",
    "keep_sessions": "--keep-session",
    "review_timeout_seconds": "--timeout",
    "reviewer_type": "--reviewer",
    "reviewers": "--reviewer",
    "timeout_seconds": "--timeout",
}
_UNKNOWN_KEY_HINT = "`codeloupe config show` lists every key"


class Given(Struct, frozen=True):
    """A value that a source gives, not yet checked; `shown` is how a message speaks of it.

    `node` is where it stands in a file, whose parts can be blamed one by one.
    """

    value: object
    origin: Origin
    shown: str
    node: Node | None = None


class Layer(Struct, frozen=True):
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
            values[key.text] = Given(plain(node), Origin(kind, source.name, key.line), describe(node), node)
    return Layer(values, tuple(_key_problems(source.name, document, kind)))


def _may_give(kind: OriginKind, key: str) -> bool:
    return kind is not OriginKind.REPOSITORY or key not in USER_KEYS


def _key_problems(name: str, document: MapNode, kind: OriginKind) -> Iterator[Problem]:
    yield from repetitions(name, document)
    for key, _ in document.entries:
        place = f"{escape(name)}:{key.line}"
        if key.text not in KEYS:
            yield Problem(place, f"{plain_or_quoted(key.text)}: unknown key", _key_hint(key.text), key.line)
        elif not _may_give(kind, key.text):
            what = f"{key.text}: a repository cannot set this, since it decides what runs here and where keys go"
            hint = f"set it in your own configuration file, or as {VARIABLE_PREFIX}{key.text.upper()}"
            yield Problem(place, what, hint, key.line)


def repetitions(name: str, node: Node) -> Iterator[Problem]:
    """Keys that stand twice in one group, at any depth: the second would take the place of the first unseen."""
    if isinstance(node, ListNode):
        for item in node.items:
            yield from repetitions(name, item)
    if not isinstance(node, MapNode):
        return
    first_lines: dict[str, int] = {}
    for key, value in node.entries:
        if key.text in first_lines:
            what = f"{plain_or_quoted(key.text)}: already given on line {first_lines[key.text]}"
            yield Problem(f"{escape(name)}:{key.line}", what, "keep one of the two", key.line)
        first_lines.setdefault(key.text, key.line)
        yield from repetitions(name, value)


def _key_hint(key: str) -> str:
    meant = closest_key(key, KEYS)
    return f"did you mean `{meant}`?" if meant else _UNKNOWN_KEY_HINT


def environment_layer(environment: Mapping[str, str]) -> Layer:
    """Read `CODELOUPE_<KEY>`; an empty variable counts as not set, and a misspelt one is a problem."""
    values: dict[str, Given] = {}
    problems: list[Problem] = []
    for name, text in sorted(environment.items()):
        if name == _HOME and text and not Path(text).is_absolute():
            what = f"expected an absolute path, found {quote(text)}"
            problems.append(Problem(name, what, "give the whole path, so that it is not within a work tree"))
        if not name.startswith(VARIABLE_PREFIX) or name == _HOME or not text.strip():
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
            origin = Origin(OriginKind.FLAG, flag_of(key))
            shown = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            values[key] = Given(read, origin, quote(shown))
    return Layer(values)


def flag_of(key: str) -> str:
    """The flag that sets a key, as a person types it."""
    return _FLAGS.get(key) or "--" + key.replace("_", "-")


def _from_text(kind: Kind, text: str) -> object:
    if kind.from_text is None:
        return text
    try:
        return kind.from_text(text)
    except ValueError:
        return text  # the check of values tells what was expected instead
