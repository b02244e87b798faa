"""The one YAML reader: settings, pipelines, experts and baselines as trees of plain values with line numbers.

The tree is built from the parser's events, so that limits on depth, number and expansion of values hold while the file
is read, and no tag can make an object. Only null, booleans, numbers, text, lists and mappings come out. A mistake is a
`Problem`: its place, what is wrong there, and what to do about it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from codeloupe.errors import ConfigError

if TYPE_CHECKING:
    import yaml

MOST_LISTED = 20
_MOST_SHOWN_CHARACTERS = 60
_MOST_ALIASES = 50
_LONGEST_VALUE_CHARACTERS = 4_096
_TAG_PREFIX = "tag:yaml.org,2002:"
_CONVERTED_TAGS = frozenset(f"{_TAG_PREFIX}{name}" for name in ("null", "bool", "int", "float"))
# Patterns as text: to compile them takes milliseconds, and most runs read no file.
_PLAIN_WORD = "[A-Za-z0-9_.-]{1,60}"
# What YAML allows in a file; the parsers report anything else by a byte offset that helps nobody.
_FORBIDDEN_CHARACTER = "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
# The C parser compares each tag directive with all before it: 1 MB of them took 16 s.
_TAG_DIRECTIVE = "(?:^|[\n\r\x85\u2028\u2029])\ufeff*(%TAG)"
_SYNONYMS = {"files": "include", "ignore": "exclude", "paths": "include", "threshold": "fail_on"}
_TAB = ("a tab is used for indentation", "indent with spaces")
_MISPLACED = ("this does not belong here", "check indentation and quotes")
# By what both parsers' messages contain: what is wrong and what to do.
_EXPLANATIONS = {
    "tab character": _TAB,
    "mapping values are not allowed": (
        "there is a `:` where no key can be",
        "put a value that holds `: ` in quotes; check colon and indentation of this line and the one above",
    ),
    "',' or ']'": ("this `[` is not closed", "add the missing `]` or `,`"),
    "',' or '}'": ("this `{` is not closed", "add the missing `}` or `,`"),
    "unexpected end of stream": ("this quote is not closed", "add the closing quote"),
    "unknown escape character": (
        "the text in double quotes holds a `\\` that begins no known escape",
        "use single quotes, or double the `\\`",
    ),
    "could not find expected ':'": ("this line is no `key: value`", "write `key: value`, with a colon"),
    "alphabetic or numeric character": (
        "a plain value cannot begin with `*` or `&`",
        'put it in quotes, such as "*.py"',
    ),
    "did not find expected key": _MISPLACED,
    "<block end>": _MISPLACED,
    "'-' indicator": ("a list and keys are mixed on one level", "indent the list under its key"),
    "node content": ("a value is missing here", "put the value in quotes"),
    "incompatible YAML document": ("this version of YAML is not known", "remove the %YAML line"),
}
# Of these the place is where the open part began.
_OPENED = ("',' or", "unexpected end", "expected ':'", "alphabetic or numeric")

ScalarValue = bool | int | float | str | None


class Problem(Struct, frozen=True):
    """One mistake: the place (`file:line`, a variable or a flag), what is wrong there, and what to do about it."""

    place: str
    what: str
    hint: str = ""
    line: int = 0


class Refused(Exception):
    """The file cannot be read as a whole; `problem` says why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.what)
        self.problem = problem


class Limits(Struct, frozen=True, kw_only=True):
    """How much a file may contain; values are counted with aliases written out."""

    characters: int = 1_000_000
    values: int = 10_000
    depth: int = 10


class ScalarNode(Struct, frozen=True):
    """One value, as written and as meant. `size` and `height` are those of the nodes with parts."""

    line: int
    text: str
    value: ScalarValue
    size: int = 1
    height: int = 0


class ListNode(Struct, frozen=True):
    """A list. `size` counts the values of all levels with aliases written out, `height` the levels below."""

    line: int
    items: tuple[Node, ...]
    size: int
    height: int


class MapNode(Struct, frozen=True):
    """Keys and values in the order of the file; a key that is given twice is there twice."""

    line: int
    entries: tuple[tuple[ScalarNode, Node], ...]
    size: int
    height: int


Node = ScalarNode | ListNode | MapNode


def describe(node: Node) -> str:
    """What a value is, for the end of "expected …, found …"."""
    match node:
        case ListNode():
            return "a list" if node.items else "an empty list"
        case MapNode():
            return "a group of keys"
        case ScalarNode():
            return "nothing" if node.value is None else quote(node.text)


def plain(node: Node) -> object:
    """The value without its place: None, bool, int, float, str, list or dict."""
    match node:
        case ListNode():
            return [plain(item) for item in node.items]
        case MapNode():
            return {key.text: plain(value) for key, value in node.entries}
        case ScalarNode():
            return node.value


def part(node: Node, place: Sequence[int | str]) -> tuple[Node, int]:
    """The part of a value that a place leads to, and its line; for an entry of a group, the line of its key.

    A place that leads nowhere ends at the last part there is.
    """
    line = node.line
    for step in place:
        if isinstance(node, ListNode) and isinstance(step, int) and step < len(node.items):
            node = node.items[step]
            line = node.line
            continue
        entries = node.entries if isinstance(node, MapNode) else ()
        # The last of equal keys is the one that `plain` takes.
        entry = next((each for each in reversed(entries) if each[0].text == step), None)
        if entry is None:
            break
        line, node = entry[0].line, entry[1]
    return node, line


def repetitions(name: str, node: Node) -> Iterator[Problem]:
    """Keys given twice in one group, at any depth: the second would take the place of the first unseen."""
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


def config_error(
    problems: Sequence[Problem],
    *,
    subject: str = "the configuration",
    hint: str = "correct each line, then check with `codeloupe config validate`",
) -> ConfigError:
    """One error for all the mistakes, one to a line; the hint of a lone mistake is the hint of the error."""
    if len(problems) == 1:
        return ConfigError(f"{problems[0].place}: {problems[0].what}", hint=problems[0].hint)
    rows = [f"{subject} has {len(problems):,} mistakes:"]
    rows += [f"  {each.place}: {each.what}{f' ({each.hint})' if each.hint else ''}" for each in problems[:MOST_LISTED]]
    if len(problems) > MOST_LISTED:
        rows.append(f"  and {len(problems) - MOST_LISTED:,} more")
    return ConfigError("\n".join(rows), hint=hint)


def escape(text: str) -> str:
    """The text on one line, with every character that a terminal could act on written as an escape."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "surrogatepass").decode("ascii")
        for character in text
    )


def quote(text: str) -> str:
    """A value as a message shows it: short, in quotes, control characters escaped."""
    more = "…" if len(text) > _MOST_SHOWN_CHARACTERS else ""
    return f"'{escape(text[:_MOST_SHOWN_CHARACTERS])}{more}'"


def plain_or_quoted(key: str) -> str:
    """A key as a message shows it: as it is when it is a plain word, else in quotes."""
    return key if re.fullmatch(_PLAIN_WORD, key) else quote(key)


def path_in_words(key: str, place: Sequence[int | str]) -> str:
    """Where in a setting something is: `own_experts.payments.focus: entry 2`."""
    sign = "."
    for step in place:
        key += f": entry {step + 1}" if isinstance(step, int) else f"{sign}{plain_or_quoted(step)}"
        sign = ": " if isinstance(step, int) else "."
    return key


def closest(word: str, known: Sequence[str], *, cutoff: float = 0.6) -> str | None:
    """The known word that `word` most resembles: another spelling of it, its beginning, or a misspelling; or None.

    `failOn`, `fail-on` and `FAIL ON` are spellings of `fail_on`; `timeout` is the beginning of `timeout_seconds`.
    """
    if len(word) > _MOST_SHOWN_CHARACTERS:
        return None
    spelt = re.sub("[^a-z0-9]+", "_", re.sub("(?<=[a-z0-9])(?=[A-Z])", "_", word).lower()).strip("_")
    if spelt in known:
        return spelt
    begun = [candidate for candidate in known if spelt and candidate.startswith(f"{spelt}_")]
    if len(begun) == 1:
        return begun[0]
    return next(iter(difflib.get_close_matches(spelt, known, n=1, cutoff=cutoff)), None)


def closest_key(key: str, known: Sequence[str]) -> str | None:
    """`closest`, which also knows what other programs call some of our keys."""
    synonym = _SYNONYMS.get(key.lower())
    return synonym if synonym in known else closest(key, known)


def read_document(name: str, text: str, *, deepest_level: int = 10, limits: Limits | None = None) -> MapNode:
    """The top level of a file; an empty file is an empty mapping. Raises Refused."""
    import yaml  # noqa: PLC0415 - most calls have no file to parse, and the parser takes its time to load

    limits = limits or Limits(depth=deepest_level)
    text = text.removeprefix("\ufeff")
    if len(text) > limits.characters:
        raise Refused(Problem(escape(name), f"larger than {limits.characters:,} characters", "shorten the file"))
    if found := re.search(_FORBIDDEN_CHARACTER, text):
        hint = "remove it, and save the file as plain UTF-8 text"
        raise _refused_at(name, text, found.start(), f"the character {quote(found[0])} is not allowed", hint)
    if found := re.search(_TAG_DIRECTIVE, text):
        raise _refused_at(name, text, found.start(1), "tag directives are not allowed", "remove the %TAG line")
    try:
        root = _Composer(name, text, limits, yaml).document()
    except yaml.YAMLError as error:
        raise Refused(_explained(name, text, error)) from error
    if root is None or (isinstance(root, ScalarNode) and root.value is None):
        return MapNode(1, (), 0, 0)
    if not isinstance(root, MapNode):
        raise _refused(name, root.line, f"expected lines of `key: value`, found {describe(root)}", "write `key: value`")
    return root


def _refused(name: str, line: int, what: str, hint: str) -> Refused:
    return Refused(Problem(f"{escape(name)}:{line}", what, hint, line))


def _refused_at(name: str, text: str, index: int, what: str, hint: str) -> Refused:
    line, column = text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index)
    return Refused(Problem(f"{escape(name)}:{line}:{column}", what, hint, line))


def _explained(name: str, text: str, error: Any) -> Problem:
    """A parser's error (a YAMLError, marked with its place or not) for somebody who does not know the grammar."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return Problem(escape(name), "not valid YAML", "compare it with what `codeloupe config init` writes")
    message, character = str(error.problem), text[mark.index : mark.index + 1]
    what, hint = f"not valid YAML: {escape(message)}", "check this line and its quotes"
    if "cannot start any token" in message:
        beginning = (f"neither key nor value can begin with {quote(character)}", "put the value in quotes")
        what, hint = _TAB if character == "\t" else beginning
    else:
        what, hint = next((words for part, words in _EXPLANATIONS.items() if part in message), (what, hint))
        if any(part in message for part in _OPENED):
            mark = error.context_mark or mark
    return Problem(f"{escape(name)}:{mark.line + 1}:{mark.column + 1}", what, hint, mark.line + 1)


class _Composer:
    """Builds the tree of one file. Anchors map to their finished node, or to None while it is being built."""

    def __init__(self, name: str, text: str, limits: Limits, parser: Any) -> None:
        self._name = name
        self._limits = limits
        self._yaml = parser
        # One parser object for events and for the implicit types of plain values.
        self._loader = getattr(parser, "CSafeLoader", parser.SafeLoader)(text)
        self._events: Iterator[yaml.Event] = iter(self._loader.get_event, None)
        self._anchors: dict[str, Node | None] = {}
        self._values = 0
        self._aliases = 0

    def document(self) -> Node | None:
        """The only document of the file, or None when there is none."""
        next(self._events)
        if isinstance(next(self._events), self._yaml.StreamEndEvent):
            return None
        root = self._node(next(self._events), depth=0)
        next(self._events)
        after = next(self._events)
        if not isinstance(after, self._yaml.StreamEndEvent):
            raise self._refusal(after, "a second document begins here", "keep one document, without `---` lines")
        return root

    def _node(self, event: yaml.Event, *, depth: int) -> Node:
        if isinstance(event, self._yaml.AliasEvent):
            return self._alias(event, depth=depth)
        self._check_room(event, depth=depth, values=1)
        anchor = getattr(event, "anchor", None)
        if anchor is not None:
            self._anchors[anchor] = None
        node = self._scalar(event) if isinstance(event, self._yaml.ScalarEvent) else self._collection(event, depth)
        if anchor is not None:
            self._anchors[anchor] = node
        return node

    def _collection(self, event: yaml.Event, depth: int) -> Node:
        self._check_tag(event, (f"{_TAG_PREFIX}seq", f"{_TAG_PREFIX}map", "!"))
        children: list[Node] = []
        while not isinstance(child := next(self._events), self._yaml.CollectionEndEvent):
            children.append(self._node(child, depth=depth + 1))
        size = 1 + sum(child.size for child in children)
        height = 1 + max((child.height for child in children), default=0)
        if isinstance(event, self._yaml.SequenceStartEvent):
            return ListNode(_line_of(event), tuple(children), size, height)
        entries: list[tuple[ScalarNode, Node]] = []
        for key, value in zip(children[::2], children[1::2], strict=True):
            if not isinstance(key, ScalarNode):
                hint = "use a plain word as the key"
                raise _refused(self._name, key.line, f"{describe(key)} cannot be a key", hint)
            entries.append((key, value))
        return MapNode(_line_of(event), tuple(entries), size, height)

    def _alias(self, event: yaml.AliasEvent, *, depth: int) -> Node:
        self._aliases += 1
        if self._aliases > _MOST_ALIASES:
            raise self._refusal(event, f"more than {_MOST_ALIASES} aliases (`*name`)", "write the values out")
        anchor = event.anchor or ""
        if anchor not in self._anchors:
            what = f"the alias {quote('*' + anchor)} has no anchor before it"
            raise self._refusal(event, what, "put a value that begins with `*` in quotes")
        node = self._anchors[anchor]
        if node is None:
            raise self._refusal(event, f"the alias {quote('*' + anchor)} contains itself", "write the value out")
        self._check_room(event, depth=depth + node.height, values=node.size)
        return node

    def _scalar(self, event: yaml.ScalarEvent) -> ScalarNode:
        self._check_tag(event, (f"{_TAG_PREFIX}str", "!"))
        text = event.value
        if len(text) > _LONGEST_VALUE_CHARACTERS:
            what = f"a value longer than {_LONGEST_VALUE_CHARACTERS:,} characters"
            raise self._refusal(event, what, "shorten it")
        value: ScalarValue = text
        if event.tag is None and event.implicit[0]:
            tag = self._loader.resolve(self._yaml.ScalarNode, text, event.implicit)
            if tag in _CONVERTED_TAGS:
                try:
                    value = self._loader.construct_object(self._yaml.ScalarNode(tag, text))
                except ValueError:  # looks like a number and is none, such as 0x_
                    value = text
        return ScalarNode(_line_of(event), text, value)

    def _check_tag(self, event: yaml.Event, allowed: tuple[str, ...]) -> None:
        tag = getattr(event, "tag", None)
        if tag is not None and tag not in allowed:
            what = f"the tag {quote(tag.replace(_TAG_PREFIX, '!!', 1))} is not allowed"
            raise self._refusal(event, what, "write the plain value, without a tag")

    def _check_room(self, event: yaml.Event, *, depth: int, values: int) -> None:
        if depth > self._limits.depth:
            raise self._refusal(event, f"nested more than {self._limits.depth} levels deep", "flatten this value")
        self._values += values
        if self._values > self._limits.values:
            what = f"more than {self._limits.values:,} values, aliases written out"
            raise self._refusal(event, what, "shorten the file")

    def _refusal(self, event: yaml.Event, what: str, hint: str) -> Refused:
        return _refused(self._name, _line_of(event), what, hint)


def _line_of(event: yaml.Event) -> int:
    return 1 if event.start_mark is None else event.start_mark.line + 1
