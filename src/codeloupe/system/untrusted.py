"""Text that nobody vouches for, fit for a terminal, a log, a JSON document, a machine format or a Markdown page.

What cannot be seen, turns text around or commands a terminal is escaped; ordinary text of any script and emoji stay. In
Markdown, paragraphs, lists, emphasis and code stay; images, links, HTML, headings and the commands of a forge are shown
as the text that they are. Each line is treated by itself, in time linear in its length.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from codeloupe.system.regex import regex

_EMOJI = (
    r"\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u2460-\u24ff\u25a0-\u27bf"
    r"\u2900-\u297f\u2b00-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
_INVISIBLE = (
    r"\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200c\u200e\u200f"
    r"\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    r"\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
# A joiner is a part of some emoji, and between letters a way to make two names look the same.
_JOINER = rf"(?<![{_EMOJI}])(?<![{_EMOJI}]\ufe0f)\u200d|\u200d(?![{_EMOJI}])"
_HIDDEN_ASCII = regex(r"([\x00-\x08\x0b-\x1f\x7f])\1*")
# For text beyond ASCII, which many changes have none of: so large a class takes milliseconds to compile.
_HIDDEN = regex(rf"([\x00-\x08\x0b-\x1f{_INVISIBLE}\ufe0e])\1*|{_JOINER}")
_FORBIDDEN_TEXT = rf"[\x00-\x1f{_INVISIBLE}]|(?<![{_EMOJI}0-9#*])[\ufe0e\ufe0f]|{_JOINER}"
_FORBIDDEN = regex(_FORBIDDEN_TEXT)
_FORBIDDEN_OUTSIDE_ASCII = regex(rf"\x7f|(?![\x00-\x7f])(?:{_FORBIDDEN_TEXT})")
_LOG_COMMAND = regex(r"(?m)^([^\S\n]*):(?=:)|##(?=\w*\[)")
_IN_ASCII = str.maketrans(
    {"—": "-", "–": "-", "‘": "'", "’": "'", "“": '"', "”": '"', "…": "...", "·": "-", "×": "x", "→": "->", "\xa0": " "}
)
_CUT = "…"
_IN_MESSAGE = {ord("%"): "%25", ord("\r"): "%0D", ord("\n"): "%0A"}
_BACKTICKS = regex(r"`+")
_OPENING_FENCE = regex(r"\s*+(`{3,}+(?!.*`)|~{3,}+)", re.DOTALL)
# What becomes code: addresses, then names and numbers that forges turn into links and notices.
_ACTIVE = regex(
    r"[A-Za-z][A-Za-z0-9+.-]{0,20}://[^\s`<>]{1,2000}"
    r"|(?:www\.|mailto:|xmpp:)[^\s`<>]{1,2000}"
    r"|[A-Za-z0-9._%+-]{0,100}@[A-Za-z0-9_][A-Za-z0-9_./-]{0,200}"
    r"|[#!][0-9]{1,12}"
    r"|(?<![A-Za-z0-9])GH-[0-9]{1,12}"
)
_REFERENCES = regex(r"(?:GH-[0-9]{1,12})+")
_SPECIAL = regex(r"[\\`\[\]$|~#_]")
# An underline that makes a heading or a table of the row above, a rule, a command of the forge.
_LINE_START = regex(r"([ 0-9.)]*+)[-*=:](?=[-*=: ]*\Z)|([ ]*+)(?:/(?=[A-Za-z])|:)")


def visible(text: str) -> str:
    """The text with each character that cannot be seen, or that turns others around, as `<U+202E>`.

    A run of one of them becomes `<U+200B×40>`; a byte of a path that is not UTF-8 becomes `<0xE9>`. Tabs and newlines
    stay, and CR LF is a newline. Backslash escapes would look like source code, where they mean something.
    """
    if text.isascii() and text.isprintable():
        return text
    return (_HIDDEN_ASCII if text.isascii() else _HIDDEN).sub(_shown, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """The text as `visible` shows it, with every newline and tab escaped too."""
    return visible(text).replace("\n", "<U+000A>").replace("\t", "<U+0009>")


def has_hidden(text: str) -> bool:
    """Whether `visible` would change the text."""
    return not (text.isascii() and text.isprintable()) and _HIDDEN.search(text) is not None


def _shown(match: re.Match[str]) -> str:
    run = match[0]
    code = ord(run[0])
    name = f"0x{code - 0xDC00:02X}" if 0xDC80 <= code <= 0xDCFF else f"U+{code:04X}"
    return f"<{name}>" if len(run) == 1 else f"<{name}×{len(run)}>"


def encodable(text: str, encoding: str = "ascii") -> str:
    """The text with ASCII in the place of dashes, quotes and the like, and escapes for what the encoding lacks."""
    return text.translate(_IN_ASCII).encode(encoding, "backslashreplace").decode(encoding)


def terminal(text: str, *, keep_newlines: bool = False) -> str:
    """The text with nothing in it that a terminal would obey or hide: `\\x1b`, `\\u202e`; a tab becomes a space.

    A byte of a path that is not UTF-8 (a surrogate escape) is shown as that byte, `\\xff`. Without
    `keep_newlines` the result is one line; with it, `\\r\\n` counts as a newline.
    """
    text = text.replace("\t", " ")
    if text.isascii() and text.isprintable():
        return text
    lines = text.replace("\r\n", "\n").split("\n") if keep_newlines else [text]
    return "\n".join(_FORBIDDEN.sub(_visible, line) for line in lines)


def log_line(text: str) -> str:
    """One line for a CI log: as `terminal`, and nothing in it is a command to the CI system (`::`, `##[`)."""
    return without_log_commands(terminal(text))


def without_log_commands(lines: str) -> str:
    """Break what CI systems would obey: `::` at the start of a line, and `##[` or `##name[` anywhere in it."""
    return _LOG_COMMAND.sub(lambda match: f"{match[1]}: " if match[1] is not None else "## ", lines)


def for_ci_log(text: str) -> str:
    """A whole result for the log of a CI job, without a command to the CI system; a document keeps its value."""
    if text.startswith(("{", "[")):
        return text
    if text.startswith("<"):
        return _LOG_COMMAND.sub(lambda match: f"{match[1]}&#58;" if match[1] is not None else "&#35;#", text)
    return without_log_commands(text)


def json_document(document: str) -> str:
    """A JSON document of the same value that is safe to print: forbidden characters as `\\u` escapes.

    Lone surrogates become `\\udcXX`, so a path that is not UTF-8 survives and the document can be encoded.
    The document must be one that `json.dumps` made: characters outside ASCII are only inside its strings.
    """
    escaped = _FORBIDDEN_OUTSIDE_ASCII.sub(_json_escape, document)
    return re.sub(r"##(?=\w*\[)", r"#\\u0023", escaped) if "##" in escaped else escaped


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass").hex(" ", 2)
    return "".join(f"\\u{unit}" for unit in units.split())


def plain_line(text: str, *, longest: int) -> str:
    """One line without control, bidirectional and invisible characters; of a long text, the beginning."""
    return terminal(" ".join(_capped(text, longest).split()))


def plain_text(text: str, *, longest: int) -> str:
    """As `plain_line`, with its line ends."""
    return terminal(_capped(text, longest).strip("\n").rstrip(), keep_newlines=True)


def plain_code(code: str, *, longest: int) -> str:
    """Code with its tabs and line ends; what cannot be seen in it is shown escaped."""
    rows = _capped(code, longest).replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(terminal(part) for part in row.split("\t")) for row in rows)


def is_inside(path: str) -> bool:
    """Whether a path names something below the root: a finding without a place may have any text as its path."""
    parts = path.split("/")
    return bool(path) and ".." not in parts and parts[0] != "" and "\0" not in path


def is_masked(text: str) -> bool:
    """Whether a secret was taken out of this text."""
    return "[redacted]" in text or "********" in text


def _capped(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[:longest] + _CUT


def command(name: str, properties: Mapping[str, str], message: str, *, longest: int) -> str:
    """`::name key=value,key=value::message`, on one line; of a long message, the beginning. `name` must be ours."""
    values = {key: without_log_commands(terminal(value[:5_000])) for key, value in properties.items()}
    in_property = {**_IN_MESSAGE, ord(":"): "%3A", ord(","): "%2C"}
    stated = ",".join(f"{key}={value.translate(in_property)}" for key, value in values.items())
    shown = without_log_commands(plain_text(message, longest=longest))
    while "::" in shown:
        shown = shown.replace("::", ": :")
    return f"::{name}{f' {stated}' if stated else ''}::{shown.translate(_IN_MESSAGE)}"


def markdown_line(text: str, *, longest: int) -> str:
    """One line of Markdown that shows the text, code spans kept; of a long text, the beginning."""
    return _line(plain_line(text, longest=longest))


def markdown_cell(text: str, *, longest: int) -> str:
    """As `markdown_line`, for a cell of a table: there, even inside code, a bar would end it."""
    return markdown_line(text, longest=longest).replace("\\|", "|").replace("|", "\\|")


def markdown_prose(text: str, *, longest: int) -> str:
    """Paragraphs of Markdown that show the text, code blocks kept; of a long text, the beginning."""
    rows = plain_text(text, longest=longest).split("\n")
    pieces: list[str] = []
    index = 0
    while index < len(rows) and len(pieces) < 400:
        if opening := _OPENING_FENCE.match(rows[index]):
            fence = opening[1]
            # An open block runs to the end.
            marks = ((number, rows[number].strip()) for number in range(index + 1, len(rows)))
            closing = (number for number, mark in marks if len(mark) >= len(fence) and not mark.strip(fence[0]))
            end = next(closing, len(rows))
            pieces.append(markdown_code("\n".join(rows[index + 1 : end])))
            index = end + 1
        else:
            pieces.append(_line(rows[index]))
            index += 1
    return "\n".join([*pieces, *([_CUT] if index < len(rows) else [])])


def markdown_code(code: str, *, language: str = "") -> str:
    """A block of code, with a fence that is longer than any inside. `language` must come from us."""
    shown = "\n".join(terminal(row.expandtabs(4)) for row in code.split("\n"))
    runs = _BACKTICKS.findall(shown)
    fence = "`" * max(3, max(map(len, runs), default=0) + 1)
    return f"{fence}{language}\n{shown}\n{fence}"


def code_span(text: str) -> str:
    """Inline code that shows the text as it is; nothing for an empty one."""
    shown = terminal(text)
    if not shown.strip():
        return ""
    runs = {len(run) for run in _BACKTICKS.findall(shown)}
    fence = "`" * next(length for length in range(1, len(runs) + 2) if length not in runs)
    # A backtick at an edge would lengthen the fence; one space on both sides is not shown.
    padding = " " if shown[0] in "` " or shown[-1] in "` " else ""
    return f"{fence}{padding}{shown}{padding}{fence}"


def _line(row: str) -> str:
    """One row: its code spans as code, all else as text that cannot act."""
    text = row.lstrip(" ")
    # Deeper rows would be code to Markdown, and show what is escaped here.
    indent = min(len(row) - len(text), 3)
    shown = " " * indent + _joined(_spans(text.rstrip()))
    start = _LINE_START.match(shown)
    return f"{shown[: start.end() - 1]}\\{shown[start.end() - 1 :]}" if start else shown


def _spans(row: str) -> list[str]:
    runs = [(match.start(), match.end()) for match in _BACKTICKS.finditer(row)]
    following: dict[int, list[int]] = {}
    for position in range(len(runs) - 1, -1, -1):
        following.setdefault(runs[position][1] - runs[position][0], []).append(position)
    shown: list[str] = []
    at = position = 0
    while position < len(runs):
        start, end = runs[position]
        later = following[end - start]
        while later and later[-1] <= position:
            later.pop()
        if later:
            close = later.pop()
            shown += [_text(row[at:start]), code_span(row[end : runs[close][0]].strip() or " ")]
            at, position = runs[close][1], close + 1
        else:
            shown += [_text(row[at:start]), "\\`" * (end - start)]
            at, position = end, position + 1
    return [*shown, _text(row[at:])]


def _text(text: str) -> str:
    shown: list[str] = []
    at = 0
    for match in _ACTIVE.finditer(text):
        active = match[0].rstrip(".,;:!?)'\"")
        shown += [*_between(text[at : match.start()]), code_span(active)]
        at = match.start() + len(active)
    return _joined([*shown, *_between(text[at:])])


def _between(text: str) -> tuple[str, str]:
    """The text between what became code. A `GH-3` that was the end of a word is one by itself after code."""
    start = _REFERENCES.match(text)
    rest = _SPECIAL.sub(r"\\\g<0>", text[start.end() :] if start else text)
    return code_span(start[0]) if start else "", rest.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _joined(pieces: list[str]) -> str:
    """The pieces one after the other. Two code spans that touch would be read as one, or as none."""
    shown: list[str] = []
    for piece in filter(None, pieces):
        touching = shown and shown[-1][-1] == "`" and piece[0] == "`"
        shown += [" ", piece] if touching else [piece]
    return "".join(shown)
