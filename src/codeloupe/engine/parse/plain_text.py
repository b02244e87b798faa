"""Findings in text without JSON.

Bullets with named fields, tables, tags, headings and lists with a severity, and the lines that linters print. Prose has
headings and lists too, so an item there counts only where it states a severity and names a file.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice

from msgspec.structs import replace

from codeloupe.engine.parse.items import TRUNCATED_JSON, Fields, answer_of, known_severity, plain_name
from codeloupe.engine.parse.sentences import NAMES, WORDING
from codeloupe.model.finding import ReviewAnswer
from codeloupe.system.json_text import FENCES, TRUNCATED, FlawedObject
from codeloupe.system.regex import regex

_Item = dict[str, object]

# `- **Severity:** HIGH`, `**Category:** …`, `**Description:** …`, `**Evidence:** a.py:12 - …`.
_BULLET_NAMES = {word: name for name, known in WORDING["bullets"].items() for word in known}
_BULLET_WORDS = {"title", "description", "body"}
_LONG = {*_BULLET_WORDS, "suggestion"}
_ONE_LINE = ("severity", "category", "file", "line", "confidence")
_NAME = "|".join(sorted(_BULLET_NAMES, key=len, reverse=True))
_BOLD = rf"(?:\*\*|__)\s?({_NAME})\s?(?::\s?(?:\*\*|__)|(?:\*\*|__)\s?:)"
_BARE = rf"^[ \t]{{0,20}}(?:[-*+•][ \t]{{1,4}}|\d{{1,3}}[.)][ \t]{{1,4}})?({_NAME})[ \t]{{0,2}}:"
# A name in bold anywhere in a line, or any name at its beginning.
_BULLET_FIELD = regex(f"{_BOLD}|{_BARE}", re.IGNORECASE | re.MULTILINE)
_BOLD_FIELD = regex(f"{_BOLD}()", re.IGNORECASE)
_SECTION_END = regex(r"\n[ \t]*+(?=#{1,6} |-{3,}\s|\*{3,}\s|={3,}\s)")
# A quote of several lines is seldom meant, and a line like these begins something else.
_PARAGRAPH_END = regex(r"\n[ \t]*+(?=\n|[-*+•#_]|\d{1,3}[.)])")
_LINE_END = regex(r"\n")
# A last line that is only the beginning of the next field.
_BEGUN = regex(r"\s*(?:[-*+•]|\d{1,3}[.)]?)?\s*(?:[*_]{1,2}[\w ]{0,20}:?[*_]{0,2})?")
_CORE = regex(r"\w(?:.*\w)?", re.DOTALL)

# A field, or the beginning of an item, whose own fields may be attributes.
_TAG = regex(
    r"<(?P<name>[A-Za-z][\w.-]{0,40})>(?P<value>[^<]{0,10000})</(?P=name)>"
    r"|<(?P<item>finding|issue|problem|bug|defect|vulnerability|comment|item|violation)\b(?P<more>[^<>]{0,1000})>",
    re.IGNORECASE,
)
_ATTRIBUTE = regex(r"""([A-Za-z][\w.-]{0,40})\s{0,3}=\s{0,3}(?:"([^"]{0,1000})"|'([^']{0,1000})')""")
_RULE = regex(r"\s{0,3}\|?\s{0,3}:?-{1,200}:?\s{0,3}(?:\|\s{0,3}:?-{0,200}:?\s{0,3}){0,30}")
_CELL_END = regex(r"(?<!\\)\|")
_GRADE = r"critical|high|medium|moderate|low|blocker|major|minor|severe|warning|error|nit|info|p[0-3]"
_MARK = regex(
    rf"(?:^|[\s\[(*_`{{|–—-])(?:[\[(*_`{{]{{1,3}})?\s?({_GRADE})(?:[ -](?:severity|priority|risk))?\s?"
    rf"(?:[\])*_`}}]{{1,3}}:?|:|\s[-–—|]\s)",
    re.IGNORECASE,
)
_SECTION = regex(
    rf"\W{{0,12}}({_GRADE})(?:[ -](?:severity|priority|risk))?(?: (?:issues?|findings?|problems?|bugs?|defects?))?"
    r"\W{0,6}(?:\(?\d{1,4}\)?)?\W{0,6}",
    re.IGNORECASE,
)
_HEADING = regex(r"\s{0,3}#{1,6}\s{1,4}(\S.*)")
_LISTED = regex(r"\s{0,3}(?:\d{1,3}[.)]|[-*+•])\s{1,4}(\S.*)")
# It begins where no other could have begun before, so that each run of such characters is tried once.
_PATH = r"(?<![\w.+@/-])/?(?:[\w.+@-]{1,100}/){0,20}[\w.+@-]{1,100}\.[A-Za-z]\w{0,9}"
_PLACE = regex(rf"`?({_PATH})(?::L?|#L)(\d{{1,9}}(?:[-–]L?\d{{1,9}})?)(?::\d{{1,9}})?`?")
_FILE = regex(rf"`?({_PATH})`?")
_LINE = regex(r"\blines?\W{0,4}(\d{1,9})", re.IGNORECASE)
_CODE = regex(r"`([^`\n]{3,500})`")
_EDGES = " \t*_`:–—-|,.()[]"

_MESSAGE = regex(
    r"^(?P<path>(?:[A-Za-z]:)?[^:\s][^:\n]{0,1000}):(?P<start>\d{1,9})(?:-(?P<end>\d{1,9}))?(?::\d{1,9})?:[ \t]{1,4}"
    r"(?:\[?(?P<grade>critical|high|medium|low|(?:fatal )?error|warning|suggestion|info|p[0-3]|fatal|note|hint)\]?"
    r"(?::[ \t]{0,4}|[ \t]{1,4}-[ \t]{1,4})(?=\S))?(?P<message>\S[^\n]*+)",
    re.MULTILINE | re.IGNORECASE,
)


def read_bullets(text: str, *, in_bold_only: bool = False) -> ReviewAnswer:
    """The findings in bullets; `in_bold_only` for texts with JSON, where a bare name and a colon may be a part of that.

    A field that an item has already begins the next item, and so does one after a blank line, unless all of them are.
    An item without words or without a place at the very end of a text counts as cut.
    """
    marks = list((_BOLD_FIELD if in_bold_only else _BULLET_FIELD).finditer(text))
    gaps_matter = any(not _is_apart(text, mark.start()) for mark in marks[1:])
    items: list[dict[str, str]] = [{}]
    is_cut = False
    for number, mark in enumerate(marks):
        name = _BULLET_NAMES[(mark[1] or mark[2]).lower()]
        is_last = mark is marks[-1]
        end = len(text) if is_last else marks[number + 1].start()
        stop = _LINE_END if name in _ONE_LINE else _SECTION_END if name in _LONG else _PARAGRAPH_END
        value_end = stop.search(text, mark.end(), end)
        if name in items[-1] or (gaps_matter and _is_apart(text, mark.start())):
            items.append({})
        items[-1][name] = _bullet_value(name, text[mark.end() : value_end.start() if value_end else end])
        is_cut = is_last and value_end is None and not text.endswith("\n")
    last = items[-1]
    is_whole = _BULLET_WORDS & last.keys() and {"evidence", "location", "file", "quote"} & last.keys()
    is_cut = is_cut and "severity" in last and not is_whole
    # The names of other fields occur in prose.
    answer = answer_of(item for item in (items[:-1] if is_cut else items) if "severity" in item)
    return replace(answer, problem=TRUNCATED_JSON) if is_cut else answer


def _is_apart(text: str, position: int) -> bool:
    """Whether what begins here begins a line, but for a bullet, with a blank line, a heading or a rule above it."""
    window = max(0, position - 30)
    line_end = text.rfind("\n", window, position)
    if (line_end < 0 and window) or text[line_end + 1 : position].strip(" \t-*+•0123456789.)"):
        return False
    above = text[max(0, line_end - 300) : max(0, line_end)].rpartition("\n")[2]
    return above.startswith("#") or not above.strip("-=* \t\r")


def _bullet_value(name: str, raw: str) -> str:
    if name in _ONE_LINE:
        core = _CORE.search(raw) if name != "file" else None
        return core[0] if core else raw.strip(" \t\r*`")
    lines = [line for line in raw.strip().split("\n") if not line.lstrip().startswith(FENCES)]
    if len(lines) > 1 and _BEGUN.fullmatch(lines[-1]):
        lines.pop()
    value = "\n".join(lines).strip()
    is_quoted = name in _LONG and len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if is_quoted and value.count(value[0]) == 2 else value


def read_listed(text: str, *, from_program: bool = False) -> ReviewAnswer:
    """The findings in tags, a table, headings and lists with a severity, or the lines that linters print."""
    shorter = text[:300_000]
    for items in (*((_messages,) if from_program else ()), _tagged, _tabled, _in_blocks):
        answer = answer_of(islice(items(shorter), 2_000))
        if answer.findings or answer.dropped:
            unplaced = ["missing field: file"] if any(not each.file for each in answer.findings) else []
            problem = TRUNCATED_JSON if shorter != text else answer.problem
            return replace(answer, dropped=(*answer.dropped, *unplaced), problem=problem)
    return ReviewAnswer()


def _messages(text: str) -> Iterator[_Item]:
    """`path:line:col: severity: message`, among other lines; without a severity it is a warning."""
    for match in _MESSAGE.finditer(text):
        # A name with blanks in it may be prose.
        if match["grade"] or not any(char.isspace() for char in match["path"]):
            lines = {"line": match["start"], "line_end": match["end"]}
            said = {"severity": match["grade"] or "warning", "message": match["message"].rstrip()}
            yield {"file": match["path"], **lines, **said}


def _tagged(text: str) -> Iterator[_Item]:
    """`<finding severity="high"><title>…</title></finding>`, with fields as tags or attributes."""
    items: list[_Item] = []
    for tag in _TAG.finditer(text):
        if tag["item"]:
            items.append(
                {each[1]: html.unescape(each[2] or each[3] or "") for each in _ATTRIBUTE.finditer(tag["more"])}
            )
        elif items:
            items[-1].setdefault(tag["name"], html.unescape(tag["value"]).strip())
    if items and not text.rstrip().endswith((">", *FENCES)):
        items[-1] = FlawedObject(items[-1], TRUNCATED)
    return (item for item in items if Fields(item).has_any(NAMES["severity"]))


def _tabled(text: str) -> Iterator[_Item]:
    """The rows of Markdown tables with a column for the severity and one for words."""
    lines = text.split("\n")
    names: list[str] = []
    for above, line in zip(["", *lines], lines, strict=False):
        if "|" in above and _RULE.fullmatch(line.rstrip()):
            names = [plain_name(name).split("/")[0].strip("_") for name in _cells(above)]
            has_words = {*NAMES["title"], *NAMES["words"]} & {*names}
            names = names if has_words and {*NAMES["severity"]} & {*names} else []
        elif "|" not in line:
            names = []
        elif names:
            yield {name: cell for name, cell in zip(names, _cells(line), strict=False) if name and cell}


def _cells(line: str) -> list[str]:
    row = line.strip().removeprefix("|")
    row = row.removesuffix("|") if not row.endswith("\\|") else row
    return [cell.strip("`* ").replace("\\|", "|") for cell in _CELL_END.split(row)[:30]]


def _in_blocks(text: str) -> Iterator[_Item]:
    """Headings and items of lists with a severity of their own, or under a heading that is one."""
    items = [item for block, grade in _blocks(text) if (item := _block_item(block, grade))]
    # What lacks one of them beside such an item is one that cannot be read.
    return iter(items if any("severity" in item and "file" in item for item in items) else ())


def _blocks(text: str) -> Iterator[tuple[list[str], str]]:
    section, block, grade = "", list[str](), ""
    fenced = False
    for line in text.split("\n"):
        is_fence = line.lstrip().startswith(FENCES)
        fenced ^= is_fence
        heading = None if fenced or is_fence else _HEADING.fullmatch(line)
        start = heading or (None if fenced or is_fence else _LISTED.fullmatch(line))
        if start is None or _BULLET_FIELD.match(start[1]):
            block.append(line)
            continue
        if block:
            yield block, grade
        block, grade = [], ""
        if heading is not None and (named := _SECTION.fullmatch(heading[1])):
            section = named[1]
            continue
        mark = _MARK.search(start[1])
        if heading is not None and mark is None:
            section = ""
        block, grade = [start[1]], mark[1] if mark else section
    if block:
        yield block, grade


def _block_item(block: Sequence[str], grade: str) -> _Item | None:
    rows = [(row, _BULLET_FIELD.match(row)) for row in block[1:]]
    fields = {
        _BULLET_NAMES[(mark[1] or mark[2]).lower()]: row[mark.end() :].strip(_EDGES) for row, mark in rows if mark
    }
    grade = fields.get("severity") or grade
    whole = "\n".join(block)
    stated = {"severity": grade} if known_severity(grade) is not None else {}
    place = _PLACE.search(whole)
    if place is None and stated:
        place = _FILE.search(fields.get("file", "")) or _FILE.search(whole)
    if not stated and place is None:
        return None
    there = place[0] if place else ""
    line = place[2] if place and place.re.groups > 1 else fields.get("line")
    if not line and (number := _LINE.search(whole)):
        line = number[1]
    title = _MARK.sub(" ", block[0], count=1).replace(there, " ").replace("**", "").replace("__", "")
    title = " ".join(title.split()).strip(_EDGES)
    body = "\n".join(row.strip() for row, mark in rows if not mark).strip()
    # The code in a fence, or between backticks.
    fences = [row.lstrip().startswith(FENCES) for row in block]
    code = [block[number] for number, count in enumerate(accumulate(fences)) if count % 2 and not fences[number]]
    spans = (found[1] for found in _CODE.finditer(whole))
    span = next((span for span in spans if span not in there and there.strip("`") not in span), "")
    said = {"title": title or body, "body": body if title else "", "line": line, "quote": "\n".join(code) or span}
    return {**said, **stated, **({"file": place[1]} if place else {})}
