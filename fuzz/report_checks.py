"""What must hold for the text of each format, said without the code that makes it."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any
from xml.etree import ElementTree as ET

from codeloupe.report.formats import FORMATS, Layout
from fuzz.target import hold
from tests.html_page import Node, read_page
from tests.markdown_page import ACTIVE, kinds, shown_text
from tests.report_documents import check_gitlab, check_junit, check_rdjson, check_rdjsonl, check_sarif
from tests.telling_reviews import empty_review, incomplete_review, passed_review, shown_diff, telling_review

_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_MENTION = re.compile(r"@[A-Za-z0-9]|(?:^|\W)#[0-9]|[A-Za-z]://\w|www\.\w|(?<![A-Za-z0-9])GH-[0-9]")
_PICTURE = "svg style defs clipPath rect g text line path circle"
_SWEEP = (
    "commit-sweep sweep description reviewer usage commits commit author subject failure experts expert files file "
    "findings finding title evidence quote suggestion verification plan step summary"
)
_ELEMENTS = frozenset(f"{_PICTURE} {_SWEEP}".split())
_XML_ATTACKS = ("<!DOCTYPE", "<!ENTITY", "<?xml-stylesheet")


def check_plain(text: str) -> None:
    """Nothing in it acts on a terminal or turns its text around."""
    for character in text:
        hold(
            character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cs"),
            f"a control character in plain text: {character!a}",
        )
        hold(character not in _BIDI, f"a bidirectional control in plain text: {character!a}")


def check_text(text: str) -> None:
    """The text report, whose only escape sequences are colours."""
    check_plain(_COLOUR.sub("", text))
    check_no_commands(text)


def check_no_commands(text: str) -> None:
    """No line of it is a command to a CI system."""
    for line in text.split("\n"):
        hold(not line.lstrip().startswith("::"), "a line begins a command")
        hold("##[" not in line and not re.search(r"##\w+\[", line), "a line holds a command")


def check_json(text: str) -> None:
    """One value, encodable, without what acts on a terminal."""
    json.loads(text, parse_constant=_refuse)
    check_plain(text)


def _refuse(constant: str) -> Any:
    hold(condition=False, words=f"no number of JSON: {constant}")


def check_github(text: str) -> None:
    """Each line is one command of ours."""
    check_plain(text)
    for line in text.removesuffix("\n").split("\n"):
        hold(line.startswith(("::error ", "::warning ", "::notice ")), "a line is no command of ours")
        hold(line.count("::") == 2, "a line holds another command")
        hold("##[" not in line, "a line holds another command")


def check_markdown(text: str) -> None:
    """Nothing is fetched, linked, called or marked up by what was put in."""
    check_plain(text)
    active = kinds(text) & ACTIVE
    hold(not active, f"alive: {sorted(active)}")
    found = _MENTION.search(shown_text(text))
    hold(found is None, "alive: a mention, a number or an address")


def check_html(text: str) -> None:
    """Elements and attributes are those of harmless pages, and so are style, script and addresses."""
    page = read_page(text)
    known, addresses, blocks = _harmless()
    for node in _nodes(page):
        hold(node.tag in known, f"an element from somewhere: {node.tag[:20]}")
        unknown = set(node.attributes) - known.get(node.tag, set())
        hold(not unknown, f"an attribute from somewhere: {sorted(unknown)[:1]}")
        for name in ("href", "src"):
            value = node.attributes.get(name)
            hold(value is None or value.startswith("#") or value in addresses, "an address from somewhere")
        if node.tag in ("script", "style"):
            hold(node.text in blocks, f"a {node.tag} from somewhere")


def _nodes(page: Node) -> Iterator[Node]:
    for node in page.nodes:
        yield node
        yield from _nodes(node)


@cache
def _harmless() -> tuple[dict[str, set[str]], set[str | None], set[str]]:
    """The attributes of each element, the addresses and the blocks of pages in which nothing is strange."""
    known: dict[str, set[str]] = {"td": {"colspan"}, "p": {"class"}}
    addresses: set[str | None] = set()
    blocks: set[str] = set()
    prose = "One `a` **b** *c*\n\n- x\n- y\n\n1. z\n\n```python\nx\n```\n> q"
    telling = telling_review(summary=prose)
    telling = replace(telling, findings=tuple(replace(each, body=prose) for each in telling.findings))
    for review in (telling, passed_review(), empty_review(), incomplete_review()):
        for diff in (None, shown_diff()):
            for node in _nodes(read_page(FORMATS["html"](review, Layout(diff=diff)))):
                known.setdefault(node.tag, set()).update(node.attributes)
                addresses |= {node.attributes.get("href"), node.attributes.get("src")}
                if node.tag in ("script", "style"):
                    blocks.add(node.text)
    return known, addresses, blocks


def check_xml(text: str) -> None:
    """Well-formed, without a document type, and no element or attribute that nobody wrote."""
    hold(not any(attack in text for attack in _XML_ATTACKS), "a document type from somewhere")
    root = ET.fromstring(text)  # noqa: S314 - it holds no document type
    for element in root.iter():
        hold(isinstance(element.tag, str), "a comment or an instruction from somewhere")
        tag = element.tag.rpartition("}")[2]
        hold(tag in _ELEMENTS, f"an element from somewhere: {tag[:30]}")
        hold(
            not any(name.startswith("on") or name.endswith("href") for name in element.attrib), "an attribute that acts"
        )


CHECKS: dict[str, Callable[[str], Any]] = {
    "text": check_text,
    "concise": check_text,
    "json": check_json,
    "sarif": check_sarif,
    "markdown": check_markdown,
    "html": check_html,
    "junit": check_junit,
    "gitlab-codequality": check_gitlab,
    "rdjson": check_rdjson,
    "rdjsonl": check_rdjsonl,
    "github": check_github,
    "svg": check_xml,
    "sweep-xml": check_xml,
    "sweep-json": check_json,
    "sweep-markdown": check_markdown,
    "sweep-text": check_text,
}
