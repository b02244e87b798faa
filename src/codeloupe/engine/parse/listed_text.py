"""Findings in the other forms that models have for lists: tables, CSV, tags, headings, and items with a severity.

Prose has headings and lists too, so that an item counts only where it states a severity and names a file.
"""

from __future__ import annotations

import csv
import html
import re
from collections.abc import Iterator, Sequence

from codeloupe.engine.parse.fields import Fields, plain_name
from codeloupe.engine.parse.finding_item import answer_of, findings_of
from codeloupe.engine.parse.flaws import TRUNCATED, FlawedObject
from codeloupe.engine.parse.patterns import late
from codeloupe.engine.parse.reasons import missing_field
from codeloupe.engine.parse.stated_severity import stated_severity
from codeloupe.model.finding import ReviewAnswer

_MAX_CHARACTERS = 300_000
_MAX_ITEMS = 2_000
_MAX_CELLS = 30
_COLUMNS = {
    **dict.fromkeys(("severity", "priority", "level", "risk", "impact"), "severity"),
    **dict.fromkeys(("file", "path", "filename", "location", "where", "place", "file_path"), "file"),
    **dict.fromkeys(("line", "lines", "line_number", "line(s)"), "line"),
    **dict.fromkeys(("code", "quote", "evidence", "snippet"), "quote"),
    **dict.fromkeys(("fix", "suggestion", "recommendation", "suggested_fix"), "suggestion"),
    **dict.fromkeys(("category", "type", "kind"), "category"),
    "rule": "rule",
}
_WORDS = ("title", "issue", "finding", "problem", "bug", "vulnerability", "defect", "summary", "message", "description")
_MORE_WORDS = ("details", "explanation", "body", "comment", "why")
_ITEM_TAGS = frozenset(
    {"finding", "issue", "problem", "bug", "defect", "vulnerability", "comment", "item", "violation"}
)
_TAG = late(r"<(/?)([A-Za-z][\w.-]{0,40})((?:\s[^<>]{0,1000})?)(/?)>")
_ATTRIBUTE = late(r"""([A-Za-z][\w.-]{0,40})\s{0,3}=\s{0,3}(?:"([^"]{0,1000})"|'([^']{0,1000})')""")
_RULE = late(r"\s{0,3}\|?\s{0,3}:?-{1,200}:?\s{0,3}(?:\|\s{0,3}:?-{0,200}:?\s{0,3}){0,30}")
_CELL_END = late(r"(?<!\\)\|")
_GRADE = r"critical|high|medium|moderate|low|blocker|major|minor|severe|warning|error|nit|info|p[0-3]"
_MARK = late(
    rf"(?:^|[\s\[(*_`{{|–—-])(?:[\[(*_`{{]{{1,3}})?\s?({_GRADE})(?:[ -](?:severity|priority|risk))?\s?"
    rf"(?:[\])*_`}}]{{1,3}}:?|:|\s[-–—|]\s)",
    re.IGNORECASE,
)
_SECTION = late(
    rf"\W{{0,12}}({_GRADE})(?:[ -](?:severity|priority|risk))?(?: (?:issues?|findings?|problems?|bugs?|defects?))?"
    r"\W{0,6}(?:\(?\d{1,4}\)?)?\W{0,6}",
    re.IGNORECASE,
)
_HEADING = late(r"\s{0,3}#{1,6}\s{1,4}(\S.*)")
_LISTED = late(r"\s{0,3}(?:\d{1,3}[.)]|[-*+•])\s{1,4}(\S.*)")
_FIELD = late(
    r"\W{0,8}(severity|priority|file|path|location|lines?|category|description|evidence|fix|suggestion|code|quote|issue"
    r"|title|details)\W{0,4}:\W{0,4}(.*)",
    re.IGNORECASE,
)
# It begins where no other could have begun before, so that each run of such characters is tried once.
_PATH = r"(?<![\w.+@/-])(?:[\w.+@-]{1,100}/){0,20}[\w.+@-]{1,100}\.[A-Za-z]\w{0,9}"
_PLACE = late(rf"`?({_PATH})(?::L?(\d{{1,9}})(?:[-–:]L?\d{{1,9}})?|#L(\d{{1,9}}))`?")
_FILE = late(rf"`?({_PATH})`?")
_LINE = late(r"\blines?\W{0,4}(\d{1,9})", re.IGNORECASE)
_CODE = late(r"`([^`\n]{3,500})`")
_EDGES = " \t*_`:–—-|,.()[]"


def read_listed(text: str) -> ReviewAnswer | None:
    """The findings in a text of one of these forms, or None when it has none."""
    shown = text[:_MAX_CHARACTERS]
    for items in (_tagged, _tabled, _separated, _in_blocks):
        found, reasons = findings_of(_first(items(shown)))
        if found or reasons:
            return answer_of(found, [*reasons, *_unplaced(found)], is_cut=len(text) > _MAX_CHARACTERS)
    return None


def _first(items: Iterator[dict[str, object]]) -> Iterator[dict[str, object]]:
    for number, item in enumerate(items):
        if number >= _MAX_ITEMS:
            return
        yield item


def _unplaced(found: Sequence[object]) -> list[str]:
    return [missing_field("file") for finding in found if not getattr(finding, "file", None)][:1]


def _tagged(text: str) -> Iterator[dict[str, object]]:
    """`<finding severity="high"><title>…</title></finding>`, with fields as tags or attributes."""
    item: dict[str, object] | None = None
    name = field = ""
    start = 0
    for tag in _TAG.finditer(text):
        closing, word, attributes, ends = tag[1], tag[2].lower(), tag[3], tag[4]
        if item is None:
            if not closing and word in _ITEM_TAGS:
                item, name, field = _attributes(attributes), word, ""
        elif not closing and not field and not ends:
            field, start = word, tag.end()
        elif closing and word == field:
            item[field] = html.unescape(text[start : tag.start()]).replace("<![CDATA[", "").replace("]]>", "").strip()
            field = ""
        if item is not None and ((closing and word == name) or (ends and word == name)):
            if Fields(item).has_any(("severity", "priority", "level")):
                yield item
            item = None
    if item is not None and Fields(item).has_any(("severity", "priority", "level")):
        yield FlawedObject(item, TRUNCATED)


def _attributes(text: str) -> dict[str, object]:
    return {found[1]: html.unescape(found[2] or found[3] or "") for found in _ATTRIBUTE.finditer(text)}


def _tabled(text: str) -> Iterator[dict[str, object]]:
    """The rows of Markdown tables with a column for the severity and one for words."""
    lines = text.split("\n")
    columns: list[str] = []
    for above, line in zip(["", *lines], lines, strict=False):
        if "|" in above and _RULE.fullmatch(line.rstrip()):
            columns = _columns(_cells(above))
        elif "|" not in line:
            columns = []
        elif columns and (item := _row(columns, _cells(line))):
            yield item


def _cells(line: str) -> list[str]:
    row = line.strip().removeprefix("|")
    row = row.removesuffix("|") if not row.endswith("\\|") else row
    return [cell.strip().replace("\\|", "|") for cell in _CELL_END.split(row)[:_MAX_CELLS]]


def _columns(heads: Sequence[str]) -> list[str]:
    """What the columns are, or nothing where the table is none of findings."""
    names: list[str] = []
    for head in heads:
        plain = plain_name(head.strip(_EDGES)).split("/")[0].strip("_")
        known = _COLUMNS.get(plain, "")
        if not known and plain in (*_WORDS, *_MORE_WORDS):
            known = "title" if "title" not in names and plain in _WORDS else "body"
        names.append(known if known not in names else "")
    return names if {"severity", "title"} <= set(names) else []


def _row(columns: Sequence[str], cells: Sequence[str]) -> dict[str, object] | None:
    item: dict[str, object] = {name: cell for name, cell in zip(columns, cells, strict=False) if name and cell}
    if "title" not in item:
        return None
    for name in ("file", "quote", "line"):
        if name in item:
            item[name] = str(item[name]).strip("`* ")
    return item


def _separated(text: str) -> Iterator[dict[str, object]]:
    """Lines of CSV under a line of names."""
    lines = [line for line in text.split("\n") if not line.startswith(("```", "~~~"))]
    start = next((number for number, line in enumerate(lines) if line.strip()), None)
    if start is None or lines[start].count(",") < 2:
        return
    try:
        rows = csv.reader(lines[start:], strict=False)
        columns = _columns(next(rows))
        for row in rows if columns else ():
            if item := _row(columns, [cell.strip() for cell in row]):
                yield item
    except csv.Error:
        return


def _in_blocks(text: str) -> Iterator[dict[str, object]]:
    """Headings and items of lists with a severity of their own, or under a heading that is one."""
    blocks = list(_blocks(text))
    if any("severity" in item and "file" in item for item in blocks):
        # What lacks one of them beside such an item is one that cannot be read.
        yield from blocks


def _blocks(text: str) -> Iterator[dict[str, object]]:
    section, block, grade = "", list[str](), ""
    fenced = False
    for line in text.split("\n"):
        is_fence = line.lstrip().startswith(("```", "~~~"))
        fenced ^= is_fence
        heading = None if fenced or is_fence else _HEADING.fullmatch(line)
        start = heading or (None if fenced or is_fence else _LISTED.fullmatch(line))
        if start is None or _FIELD.fullmatch(start[1]):
            block.append(line)
            continue
        yield from _block(block, grade)
        block, grade = [], ""
        if heading is not None and (named := _SECTION.fullmatch(heading[1])):
            section = named[1]
            continue
        mark = _MARK.search(start[1])
        if heading is not None and mark is None:
            section = ""
        block, grade = [start[1]], mark[1] if mark else section
    yield from _block(block, grade)


def _block(block: Sequence[str], grade: str) -> Iterator[dict[str, object]]:
    if not block:
        return
    fields = {found[1].lower(): found[2].strip(_EDGES) for line in block[1:] if (found := _FIELD.fullmatch(line))}
    grade = fields.get("severity") or fields.get("priority") or grade
    whole = "\n".join(block)
    stated = {"severity": grade} if _is_grade(grade) else {}
    place = _PLACE.search(whole)
    if place is None and stated:
        place = _FILE.search(fields.get("file", "")) or _FILE.search(whole)
    if not stated and place is None:
        return
    there = place[0] if place else ""
    line = (place[2] or place[3]) if place and place.re.groups > 1 else None
    line = line or fields.get("line") or fields.get("lines") or _first_number(whole)
    title = _title(block[0], there)
    body = "\n".join(row.strip() for row in block[1:] if not _FIELD.fullmatch(row)).strip()
    words = {"title": title or body, "body": body if title else "", "line": line, "quote": _quote(block, there)}
    yield {**words, **stated, **({"file": place[1]} if place else {})}


def _is_grade(word: str) -> bool:
    try:
        stated_severity(word)
    except ValueError:
        return False
    return True


def _first_number(text: str) -> str | None:
    found = _LINE.search(text)
    return found[1] if found else None


def _title(line: str, place: str) -> str:
    words = _MARK.sub(" ", line, count=1).replace(place, " ")
    return " ".join(words.replace("**", "").replace("__", "").split()).strip(_EDGES)


def _quote(block: Sequence[str], place: str) -> str:
    """The code in a fence, or between backticks."""
    inside, code = False, list[str]()
    for row in block:
        if row.lstrip().startswith(("```", "~~~")):
            inside = not inside
        elif inside:
            code.append(row)
    if code:
        return "\n".join(code)
    spans = (found[1] for found in _CODE.finditer("\n".join(block)))
    return next((span for span in spans if span not in place and place.strip("`") not in span), "")
