"""A project's guidance in less room: the rules that concern some files, in their own words and order.

Guidance is written for whoever works in a project, and is paid for with each unit. A review needs its rules, first
those for the languages and folders of its files; how to build, commit and release it does not need. Names and words
alone decide, the same way every time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from codeloupe.engine.prompt_text import cut

_WORD = re.compile(r"[a-z][a-z0-9+#]*")
_HEADING = re.compile(r"\s{0,3}(#{1,6})\s+(.*?)\s*#*\s*$")
_UNDERLINE = re.compile(r"\s{0,3}(?:=+|-{3,})\s*$")
_BULLET = re.compile(r"\s*(?:[-*+]|\d{1,3}[.)])\s+")
_FENCE = re.compile(r"\s{0,9}(?:```|~~~)")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`*\"'(])")
_RULE = re.compile(
    r"\b(?:must|never|always|do(?:es)? not|don't|cannot|may not|avoid|only|require[sd]?|forbidden|should|prefer|ensure|"
    r"instead of|no longer|without|every|each)\b",
    re.IGNORECASE,
)
_REVIEW_HEADING = re.compile(
    r"review|secur|rule|convention|style|error|correct|safety|concurren|thread|transaction|database|migration|api\b|"
    r"compatib|invariant|test|privacy|logging|performance|flag|check",
    re.IGNORECASE,
)
_WORKFLOW_HEADING = re.compile(
    r"set ?up|install|build|getting started|commit|pull request|\bprs?\b|release|deploy|command|workflow|environment|"
    r"overview|layout|structure|about|contact|licen[cs]e|changelog|running|tool",
    re.IGNORECASE,
)
_COMMAND = re.compile(r"\s*(?:[-*+]\s+)?(?:run|use|call|execute)?\s*`[^`]+`", re.IGNORECASE)
# The words by which guidance speaks of files, by how their names end.
_LANGUAGES: dict[str, tuple[str, ...]] = {
    "py": ("python", "pytest", "django", "flask", "fastapi", "mypy"),
    "pyi": ("python",),
    "js": ("javascript", "js", "node", "frontend", "react"),
    "jsx": ("javascript", "js", "react", "frontend"),
    "mjs": ("javascript", "js", "node"),
    "ts": ("typescript", "ts", "javascript", "node", "frontend", "react"),
    "tsx": ("typescript", "ts", "react", "frontend"),
    "vue": ("vue", "frontend", "javascript"),
    "go": ("go", "golang"),
    "rs": ("rust", "cargo"),
    "java": ("java", "jvm", "spring"),
    "kt": ("kotlin", "jvm", "android"),
    "swift": ("swift", "ios"),
    "rb": ("ruby", "rails"),
    "php": ("php", "laravel"),
    "cs": ("c#", "dotnet", "csharp"),
    "c": ("c",),
    "h": ("c", "c++"),
    "cc": ("c++",),
    "cpp": ("c++",),
    "sql": ("sql", "database", "migration", "migrations", "query", "queries"),
    "sh": ("shell", "bash"),
    "tf": ("terraform",),
    "yml": ("yaml", "ci"),
    "yaml": ("yaml", "ci"),
    "md": ("docs", "documentation", "markdown"),
    "css": ("css",),
    "scss": ("css", "scss"),
    "html": ("html", "template", "templates"),
}
_ALL_LANGUAGE_WORDS = frozenset(word for words in _LANGUAGES.values() for word in words)
# Parts of paths that say nothing about what is in them.
_EMPTY_NAMES = frozenset(("src", "lib", "main", "app", "index", "init", "the", "and", "new", "com", "org", "internal"))
_FEWEST_LETTERS = 3
_LONGEST_NAME = 60
_MOST_NAMES = 400


class _Item(NamedTuple):
    """A sentence, a point of a list or a block of code, below its heading."""

    order: int
    heading: str
    text: str
    is_code: bool = False


def condensed(text: str, room: int, files: Sequence[str]) -> str:
    """At most about `room` bytes of a text: whole when it fits, else the parts that say most about some files.

    What does not fit even so is cut, and the end says how much there was. Linear in the text.
    """
    size = len(text.encode("utf-8", "surrogatepass"))
    if size <= room:
        return text
    ending = f"[condensed from {size:,} bytes]"
    items = list(_items(text))
    topics = _topics(files)
    ranked = sorted(items, key=lambda item: (-_worth(item, topics), item.order))
    chosen = _fitting(ranked, room - len(ending) - 1)
    if not chosen:
        return cut(ranked[0].text if ranked else text, max(0, room - len(ending)))
    return f"{_written(chosen)}\n{ending}"


def _fitting(ranked: Sequence[_Item], room: int) -> list[_Item]:
    """The first items that fit, each text once, in the order of the text."""
    chosen: list[_Item] = []
    headings: set[str] = set()
    texts: set[str] = set()
    for item in ranked:
        plain = " ".join(item.text.split()).lower()
        cost = len(item.text.encode("utf-8", "surrogatepass")) + 1
        if item.heading not in headings:
            cost += len(item.heading.encode("utf-8", "surrogatepass")) + 1
        if cost > room or plain in texts:
            continue
        room -= cost
        chosen.append(item)
        headings.add(item.heading)
        texts.add(plain)
    return sorted(chosen)


def _written(items: Sequence[_Item]) -> str:
    rows: list[str] = []
    heading = ""
    for item in items:
        if item.heading != heading:
            heading = item.heading
            rows.append(heading)
        rows.append(item.text)
    return "\n".join(row for row in rows if row)


def _worth(item: _Item, topics: frozenset[str]) -> int:
    words, above = _words(item.text), _words(item.heading)
    worth = 3 * bool(_RULE.search(item.text)) + 4 * min(2, len(words & topics)) + 3 * bool(above & topics)
    worth += 2 * bool(_REVIEW_HEADING.search(item.heading)) - 3 * bool(_WORKFLOW_HEADING.search(item.heading))
    named = (words | above) & _ALL_LANGUAGE_WORDS
    worth -= 5 * bool(named and not named & topics)
    return worth - 4 * item.is_code - 2 * bool(_COMMAND.match(item.text))


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.lower()))


def _topics(files: Sequence[str]) -> frozenset[str]:
    """The words by which guidance may speak of some files: their languages, folders and names."""
    found: set[str] = set()
    for path in files[:_MOST_NAMES]:
        found.update(_LANGUAGES.get(path.rpartition(".")[2].lower(), ()))
        for part in re.split(r"[/._-]", path[-4 * _LONGEST_NAME :].lower()):
            if _FEWEST_LETTERS <= len(part) <= _LONGEST_NAME and part not in _EMPTY_NAMES:
                found.add(part)
                found.add(part.removesuffix("s"))
    return frozenset(found)


def _items(text: str) -> Iterator[_Item]:
    heading, order = "", 0
    for kind, block in _blocks(text):
        if kind == "heading":
            heading = block
        elif kind == "code":
            yield _Item(order, heading, block, is_code=True)
        elif kind == "point":
            yield _Item(order, heading, block)
        else:
            for sentence in _SENTENCE_END.split(block):
                yield _Item(order, heading, sentence)
                order += 1
        order += 1


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """The headings, points, paragraphs and blocks of code of a Markdown text, with what belongs to each on its rows."""
    kind, rows = "", list[str]()
    for row in [*text.split("\n"), ""]:
        if kind == "code":
            rows.append(row)
            if _FENCE.match(row):
                yield kind, "\n".join(rows)
                kind, rows = "", []
            continue
        starts = _kind_of(row)
        if kind == "text" and len(rows) == 1 and _UNDERLINE.match(row):
            kind, starts = "heading", "blank"
        if rows and (starts or not kind):
            yield kind, _joined(kind, rows)
            kind, rows = "", []
        if starts != "blank":
            kind = starts or kind or "text"
            rows.append(row)
    if rows:
        yield kind, "\n".join(rows)


def _kind_of(row: str) -> str:
    """What a row begins, or nothing when it goes on with what was before."""
    if not row.strip():
        return "blank"
    if _FENCE.match(row):
        return "code"
    if _HEADING.match(row):
        return "heading"
    return "point" if _BULLET.match(row) else ""


def _joined(kind: str, rows: Sequence[str]) -> str:
    if kind == "point":
        # How deep a point was nested is said by nothing else than its indentation.
        return "\n".join([rows[0].rstrip(), *(row.rstrip() for row in rows[1:])])
    return " ".join(row.strip() for row in rows)
