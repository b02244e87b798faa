"""The one YAML reader: settings, pipelines, experts and baselines as trees of plain values with line numbers.

Limits on depth, number and expansion of values hold while the file is read, and no tag can make an object. Only null,
booleans, numbers, text, lists and mappings come out. A mistake is a `Problem`: its place, what is wrong there, and what
to do about it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from codeloupe.errors import ConfigError

MOST_LISTED = 20
MOST_SHOWN_CHARACTERS = 60
_LONGEST_VALUE_CHARACTERS = 4_096
_TAG_PREFIX = "tag:yaml.org,2002:"
_ALLOWED_TAGS = (None, *(f"{_TAG_PREFIX}{name}" for name in ("str", "seq", "map")))
_CONVERTED_TAGS = frozenset(f"{_TAG_PREFIX}{name}" for name in ("null", "bool", "int", "float"))
# Patterns as text: to compile them takes milliseconds, and most runs read no file.
_PLAIN_WORD = "[A-Za-z0-9_.-]{1,60}"
# What YAML allows in a file; the parsers report anything else by a byte offset that helps nobody.
_FORBIDDEN_CHARACTER = "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
# The C parser compares each tag directive with all before it: 1 MB of them took 16 s.
_TAG_DIRECTIVE = "(?:^|[\n\r\x85\u2028\u2029])\ufeff*(%TAG)"
_SYNONYMS = {"files": "include", "ignore": "exclude", "paths": "include", "threshold": "fail_on"}
# By what both parsers' messages contain: what is wrong, what to do, and whether it is so where the open part began.
_EXPLANATIONS = (
    ("tab character", "a tab is used for indentation", "indent with spaces", False),
    ("mapping values are not", "unexpected `:`", "put a value that contains `: ` in quotes", False),
    ("',' or", "this bracket is not closed", "add the missing bracket or comma", True),
    ("unexpected end of", "this quote is not closed", "add the closing quote", True),
    ("expected ':'", "this line is not `key: value`", "write `key: value`, with a colon", True),
    ("alphabetic", "a plain value cannot begin with `*` or `&`", 'put it in quotes, such as "*.py"', True),
    ("undefined alias", "this alias has no anchor before it", "put a value that begins with `*` in quotes", False),
    ("node content", "a value is missing here", "put the value in quotes", False),
)

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
    """How much a file may contain; values are counted, and levels too, with aliases written out."""

    characters: int = 1_000_000
    values: int = 10_000
    depth: int = 10


class ScalarNode(Struct, frozen=True):
    """One value, as written and as meant."""

    line: int
    text: str
    value: ScalarValue


class ListNode(Struct, frozen=True):
    """A list."""

    line: int
    items: tuple[Node, ...]


class MapNode(Struct, frozen=True):
    """Keys and values in the order of the file; a key that is given twice is there twice."""

    line: int
    entries: tuple[tuple[ScalarNode, Node], ...]


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


def plain(node: Node, *, as_written: bool = False) -> object:
    """The value without its place: None, bool, int, float, str, list or dict; as it is written, with str alone."""
    match node:
        case ListNode():
            return [plain(item, as_written=as_written) for item in node.items]
        case MapNode():
            return {key.text: plain(value, as_written=as_written) for key, value in node.entries}
        case ScalarNode():
            return node.text if as_written and node.value is not None else node.value


def part(node: Node, place: Sequence[int | str]) -> tuple[Node, int]:
    """The part of a value that a place leads to, or the last there is, and its line; of an entry that of its key."""
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
    more = "…" if len(text) > MOST_SHOWN_CHARACTERS else ""
    return f"'{escape(text[:MOST_SHOWN_CHARACTERS])}{more}'"


def plain_or_quoted(key: str) -> str:
    """A key as a message shows it: as it is when it is a plain word, else in quotes."""
    return key if re.fullmatch(_PLAIN_WORD, key) else quote(key)


def path_text(key: str, place: Sequence[int | str]) -> str:
    """Where in a setting something is: `own_experts.payments.focus: entry 2`."""
    sign = "."
    for step in place:
        key += f": entry {step + 1}" if isinstance(step, int) else f"{sign}{plain_or_quoted(step)}"
        sign = ": " if isinstance(step, int) else "."
    return key


def closest(word: str, known: Sequence[str], *, cutoff: float = 0.6) -> str | None:
    """The known word that `word` most resembles: another spelling, its beginning, or a misspelling; or None."""
    if len(word) > MOST_SHOWN_CHARACTERS:
        return None
    spelt = re.sub("[^a-z0-9]+", "_", re.sub("(?<=[a-z0-9])(?=[A-Z])", "_", word).lower()).strip("_")
    if spelt in known:
        return spelt
    begun = [candidate for candidate in known if spelt and candidate.startswith(f"{spelt}_")]
    if len(begun) == 1:
        return begun[0]
    import difflib  # noqa: PLC0415 - for a mistake alone

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
    if found := re.search(_FORBIDDEN_CHARACTER, text) or re.search(_TAG_DIRECTIVE, text):
        index, character = found.span(found.lastindex or 0)[0], quote(found[0])
        what, hint = f"the character {character} is not allowed", "remove it, and save the file as plain UTF-8 text"
        if found.lastindex:
            what, hint = "tag directives are not allowed", "remove the %TAG line"
        line, column = text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index)
        raise Refused(Problem(f"{escape(name)}:{line}:{column}", what, hint, line))
    try:
        root = _composed(name, text, limits, yaml)
    except yaml.YAMLError as error:
        raise Refused(_explained(name, text, error)) from error
    if root is None or (isinstance(root, ScalarNode) and root.value is None):
        return MapNode(1, ())
    if not isinstance(root, MapNode):
        raise _refused(name, root.line, f"expected lines of `key: value`, found {describe(root)}", "write `key: value`")
    return root


def _refused(name: str, line: int, what: str, hint: str) -> Refused:
    return Refused(Problem(f"{escape(name)}:{line}", what, hint, line))


def _explained(name: str, text: str, error: Any) -> Problem:
    """A parser's error (a YAMLError, marked with its place or not) for somebody who does not know the grammar."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return Problem(escape(name), "not valid YAML", "compare it with the output of `codeloupe config init`")
    message, character = str(error.problem), text[mark.index : mark.index + 1]
    message = "tab character" if "cannot start any token" in message and character == "\t" else message
    what, hint, is_open = f"not valid YAML: {escape(message)}", "check the indentation and quotes of this line", False
    what, hint, is_open = next((row[1:] for row in _EXPLANATIONS if row[0] in message), (what, hint, is_open))
    mark = (error.context_mark if is_open else None) or mark
    return Problem(f"{escape(name)}:{mark.line + 1}:{mark.column + 1}", what, hint, mark.line + 1)


def _refuse_hostile(name: str, events: Iterable[Any], limits: Limits, parser: Any) -> None:
    """Refuse what the parser would build by recursion, or would have understood in its own way."""
    depth = documents = 0
    for event in events:
        line = 1 if event.start_mark is None else event.start_mark.line + 1
        depth += isinstance(event, parser.CollectionStartEvent) - isinstance(event, parser.CollectionEndEvent)
        documents += isinstance(event, parser.DocumentStartEvent)
        if depth > limits.depth + 1:
            raise _refused(name, line, f"nested more than {limits.depth} levels deep", "flatten this value")
        if documents > 1:
            raise _refused(name, line, "a second document begins here", "keep one document, without `---` lines")
        if (tag := getattr(event, "tag", None)) not in _ALLOWED_TAGS:
            what = f"the tag {quote(str(tag).replace(_TAG_PREFIX, '!!', 1))} is not allowed"
            raise _refused(name, line, what, "write the plain value, without a tag")
        if isinstance(event, parser.ScalarEvent) and len(event.value) > _LONGEST_VALUE_CHARACTERS:
            raise _refused(name, line, f"a value longer than {_LONGEST_VALUE_CHARACTERS:,} characters", "shorten it")


def _composed(name: str, text: str, limits: Limits, parser: Any) -> Node | None:
    """The tree of the only document of a file, or None when there is none. Raises Refused and YAMLError."""
    loader: Any = getattr(parser, "CSafeLoader", parser.SafeLoader)
    _refuse_hostile(name, parser.parse(text, loader), limits, parser)
    source, values = loader(text), 0

    def tree(node: Any, depth: int) -> Node:
        nonlocal values
        values += 1
        line = node.start_mark.line + 1
        if depth > limits.depth:
            raise _refused(name, line, f"nested more than {limits.depth} levels deep", "flatten this value")
        if values > limits.values:
            what = f"more than {limits.values:,} values after expanding aliases"
            raise _refused(name, line, what, "shorten the file")
        if isinstance(node, parser.SequenceNode):
            return ListNode(line, tuple(tree(item, depth + 1) for item in node.value))
        if isinstance(node, parser.MappingNode):
            entries: list[tuple[ScalarNode, Node]] = []
            for key_node, value_node in node.value:
                key = tree(key_node, depth + 1)
                if not isinstance(key, ScalarNode):
                    raise _refused(name, key.line, f"{describe(key)} cannot be a key", "use a plain word as the key")
                entries.append((key, tree(value_node, depth + 1)))
            return MapNode(line, tuple(entries))
        value: ScalarValue = node.value
        if node.tag in _CONVERTED_TAGS:
            # What looks like a number may be none, such as 0x_.
            with contextlib.suppress(ValueError):
                value = source.construct_object(node)
        return ScalarNode(line, node.value, value)

    root = source.get_single_node()
    return None if root is None else tree(root, 0)
