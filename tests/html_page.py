"""An HTML report as a tree, read by Python's own parser."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = frozenset({"meta", "link", "br", "input"})


@dataclass
class Node:
    """One element: its attributes, its elements, and the text that stands in it."""

    tag: str
    attributes: dict[str, str | None] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    texts: list[str | Node] = field(default_factory=list)

    def all(self, tag: str = "", *, name: str = "") -> list[Node]:
        found = [node for node in self._below() if not tag or node.tag == tag]
        return [node for node in found if not name or name in (node.attributes.get("class") or "").split()]

    def one(self, tag: str = "", *, name: str = "") -> Node:
        (node,) = self.all(tag, name=name)
        return node

    @property
    def text(self) -> str:
        return "".join(part if isinstance(part, str) else part.text for part in self.texts)

    def _below(self) -> Iterator[Node]:
        for node in self.nodes:
            yield node
            yield from node._below()


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Node("")
        self._open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute of {tag} stands twice"
        node = Node(tag, dict(attrs))
        self._open[-1].nodes.append(node)
        self._open[-1].texts.append(node)
        if tag not in _VOID:
            self._open.append(node)

    def handle_endtag(self, tag: str) -> None:
        assert self._open[-1].tag == tag, f"</{tag}> ends <{self._open[-1].tag}>"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        self._open[-1].texts.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def finish(self) -> Node:
        assert len(self._open) == 1, f"<{self._open[-1].tag}> does not end"
        return self.root


def read_page(page: str) -> Node:
    reader = _Reader()
    reader.feed(page)
    reader.close()
    return reader.finish()
