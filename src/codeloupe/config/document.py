"""A YAML file as a tree of plain values with line numbers.

The tree is built from the parser's events, so that limits on depth, number and expansion of values hold while
the file is read, and no tag can make an object. Only null, booleans, numbers, text, lists and mappings come out.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from codeloupe.config.nodes import ListNode, MapNode, Node, ScalarNode, ScalarValue, describe
from codeloupe.config.problems import Problem, escape, quote
from codeloupe.config.syntax import explain, unreadable_text

if TYPE_CHECKING:
    import yaml

MOST_CHARACTERS = 1_000_000
MOST_VALUES = 10_000
_MOST_ALIASES = 50
_DEEPEST_LEVEL = 10
_LONGEST_VALUE_CHARACTERS = 4_096
_TAG_PREFIX = "tag:yaml.org,2002:"
_STRING_TAGS = (f"{_TAG_PREFIX}str", "!")
_CONVERTED_TAGS = frozenset(f"{_TAG_PREFIX}{name}" for name in ("null", "bool", "int", "float"))


@cache
def _yaml() -> Any:
    """The parser, loaded when there is a file to parse: most calls have none, and it takes its time."""
    return import_module("yaml")


class Refused(Exception):
    """The file cannot be read as a whole; `problem` says why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.what)
        self.problem = problem


def read_document(name: str, text: str, *, deepest_level: int = _DEEPEST_LEVEL) -> MapNode:
    """The top level of a configuration file; an empty file is an empty mapping. Raises Refused."""
    text = text.removeprefix("\ufeff")
    if len(text) > MOST_CHARACTERS:
        raise Refused(Problem(escape(name), f"larger than {MOST_CHARACTERS:,} characters", "shorten the file"))
    if problem := unreadable_text(name, text):
        raise Refused(problem)
    try:
        root = _Composer(name, text, deepest_level).document()
    except _yaml().YAMLError as error:
        raise Refused(explain(name, text, error)) from error
    if root is None or (isinstance(root, ScalarNode) and root.value is None):
        return MapNode(1, (), 0, 0)
    if not isinstance(root, MapNode):
        raise _refused(name, root.line, f"expected lines of `key: value`, found {describe(root)}", "write `key: value`")
    return root


def _refused(name: str, line: int, what: str, hint: str) -> Refused:
    return Refused(Problem(f"{escape(name)}:{line}", what, hint, line))


def _line_of(event: yaml.Event) -> int:
    return 1 if event.start_mark is None else event.start_mark.line + 1


class _Composer:
    """Builds the tree of one file. Anchors map to their finished node, or to None while it is being built."""

    def __init__(self, name: str, text: str, deepest_level: int) -> None:
        self._name = name
        self._deepest_level = deepest_level
        self._yaml = _yaml()
        # One parser object for events and for the implicit types of plain values.
        self._loader = getattr(self._yaml, "CSafeLoader", self._yaml.SafeLoader)(text)
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
        self._check_depth(event, depth)
        self._count(event, 1)
        anchor = getattr(event, "anchor", None)
        if anchor is not None:
            self._anchors[anchor] = None
        node = self._fresh_node(event, depth=depth)
        if anchor is not None:
            self._anchors[anchor] = node
        return node

    def _fresh_node(self, event: yaml.Event, *, depth: int) -> Node:
        if isinstance(event, self._yaml.ScalarEvent):
            return self._scalar(event)
        self._check_tag(event, (f"{_TAG_PREFIX}seq", f"{_TAG_PREFIX}map", "!"))
        line = _line_of(event)
        children = tuple(self._children(depth=depth + 1))
        size = 1 + sum(child.size for child in children)
        height = 1 + max((child.height for child in children), default=0)
        if isinstance(event, self._yaml.SequenceStartEvent):
            return ListNode(line, children, size, height)
        pairs = zip(children[::2], children[1::2], strict=True)
        return MapNode(line, tuple((self._key(key), value) for key, value in pairs), size, height)

    def _children(self, *, depth: int) -> Iterator[Node]:
        while not isinstance(event := next(self._events), self._yaml.CollectionEndEvent):
            yield self._node(event, depth=depth)

    def _key(self, key: Node) -> ScalarNode:
        if isinstance(key, ScalarNode):
            return key
        raise _refused(self._name, key.line, f"{describe(key)} cannot be a key", "use a plain word as the key")

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
        self._check_depth(event, depth + node.height)
        self._count(event, node.size)
        return node

    def _scalar(self, event: yaml.ScalarEvent) -> ScalarNode:
        self._check_tag(event, _STRING_TAGS)
        text = event.value
        if len(text) > _LONGEST_VALUE_CHARACTERS:
            what = f"a value longer than {_LONGEST_VALUE_CHARACTERS:,} characters"
            raise self._refusal(event, what, "shorten it")
        line = _line_of(event)
        return ScalarNode(line, text, self._converted(event) if event.tag is None and event.implicit[0] else text)

    def _converted(self, event: yaml.ScalarEvent) -> ScalarValue:
        tag = self._loader.resolve(self._yaml.ScalarNode, event.value, event.implicit)
        if tag not in _CONVERTED_TAGS:
            return str(event.value)
        node = self._yaml.ScalarNode(tag, event.value)
        try:
            value: ScalarValue = self._loader.construct_object(node)
        except ValueError:  # looks like a number and is none, such as 0x_
            return str(event.value)
        return value

    def _check_tag(self, event: yaml.Event, allowed: tuple[str, ...]) -> None:
        tag = getattr(event, "tag", None)
        if tag is not None and tag not in allowed:
            raise self._refusal(
                event,
                f"the tag {quote(tag.replace(_TAG_PREFIX, '!!', 1))} is not allowed",
                "write the plain value, without a tag",
            )

    def _check_depth(self, event: yaml.Event, depth: int) -> None:
        if depth > self._deepest_level:
            raise self._refusal(event, f"nested more than {self._deepest_level} levels deep", "flatten this value")

    def _count(self, event: yaml.Event, values: int) -> None:
        self._values += values
        if self._values > MOST_VALUES:
            raise self._refusal(event, f"more than {MOST_VALUES:,} values, aliases written out", "shorten the file")

    def _refusal(self, event: yaml.Event, what: str, hint: str) -> Refused:
        return _refused(self._name, _line_of(event), what, hint)
