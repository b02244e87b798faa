"""What a quote may mean: as it stands, and without the fences, escapes and margins that models put around code."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

_LONGEST_QUOTE = 20_000
_MOST_LINES = 200
_LONGEST_RUN = 200

_FENCE = re.compile(r"\s{0,99}(?:`{3,9}|~{3,9})[^`]{0,80}$")
_REMARK = re.compile(r"\s{0,9}(?:#|//|/\*|--)?\s{0,9}(?:<-{1,3}|←)\s[^\n]{0,200}$", re.MULTILINE)
_BULLET = re.compile(r"^\s{0,9}[>*•]\s", re.MULTILINE)
_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})|(["\'\\/nrt]))')
_ESCAPED = {"n": "\n", "r": "", "t": "\t"}
_VISIBLE = re.compile(r"<(?:U\+([0-9A-F]{4,6})(?:×(\d{1,7}))?|0x[0-9A-F]{2}(?:×\d{1,7})?)>")
_PLACE = re.compile(r"[^\s:]{1,300}:(\d{1,7})(?:[-:]\d{1,7})?(?:\s{0,9}[-:|\u2013\u2014]\s{1,9}|\s{1,9}|$)")
_NUMBER = re.compile(r"\s{0,9}[>*]?\s{0,9}[Ll]?(\d{1,7})(?::\d{1,4})?(?:\s{0,9}[:|│→).]\s?|\t|\s{2})")
_PLAIN_NUMBER = re.compile(r"\s{0,9}>?\s{0,9}(\d{1,7})(?:\s|$)")
_NUMBER_ROW = re.compile(r"\s{0,9}:(\d{1,7})\s{0,9}$")
_DIFF_ROW = re.compile(r"@@ |diff --git |index [0-9a-f]{7}|--- [ab]/|\+\+\+ [ab]/|=== |\\ [Nn]o newline at")


class QuoteForm(Struct, frozen=True):
    """One reading of a quote. `of_deletion` says that it shows deleted lines by its own marks.

    `first_line` is the line number that stands in its margin, if any.
    """

    lines: tuple[str, ...]
    of_deletion: bool = False
    first_line: int | None = None


def quote_forms(quote: str) -> tuple[QuoteForm, ...]:
    """The readings of a quote, the most literal first. A very long quote is read at its beginning. Never raises."""
    whole = tuple(dict.fromkeys(_texts(_shortened(quote))))
    forms: dict[QuoteForm, None] = {}
    for text in whole:
        plain = QuoteForm(tuple(text.split("\n")[:_MOST_LINES]))
        for margins in _MARGINS:
            read = [plain]
            for without_margin in margins:
                read = [changed for form in read for changed in without_margin(form)]
            forms.update(dict.fromkeys(read))
    return tuple(form for form in forms if any(line and not line.isspace() for line in form.lines))


def _shortened(quote: str) -> str:
    text = quote[: _LONGEST_QUOTE + 1]
    if len(text) > _LONGEST_QUOTE:
        # The last line is cut somewhere, so that it stands nowhere as it is.
        text = text[: text.rfind("\n")] if "\n" in text else text[:_LONGEST_QUOTE]
    return text.replace("\r\n", "\n")


def _texts(quote: str) -> Iterator[str]:
    yield quote
    bare = _without_fence(quote)
    yield bare
    yield _without_quotes(bare)
    for text in (bare, _without_quotes(bare)):
        yield _ESCAPE.sub(_unescaped, text)
        yield _VISIBLE.sub(_hidden, text)
        yield html.unescape(text)
    yield _REMARK.sub("", bare)
    yield _BULLET.sub("", bare)
    # Between an odd backtick and the next even one stands code, everything else is words.
    yield max(bare.split("`")[1:-1:2], key=len, default=bare)


def _without_fence(quote: str) -> str:
    lines = quote.strip("\n").split("\n")
    if len(lines) > 1 and _FENCE.match(lines[0]):
        lines = lines[1:]
        if _FENCE.match(lines[-1]):
            lines = lines[:-1]
    return "\n".join(lines)


def _without_quotes(text: str) -> str:
    """The text without one pair of quotes or backticks around all of it."""
    stripped = text.strip()
    for sign in ("```", "``", "`", '"', "'"):
        if len(stripped) > 2 * len(sign) and stripped.startswith(sign) and stripped.endswith(sign):
            return stripped[len(sign) : -len(sign)]
    return text


def _unescaped(escape: re.Match[str]) -> str:
    if escape[1]:
        return chr(int(escape[1], 16))
    return _ESCAPED.get(escape[2], escape[2])


def _hidden(shown: re.Match[str]) -> str:
    """The characters that a prompt shows as `<U+200B×40>`; a byte that is not UTF-8 is nothing to compare with."""
    code = int(shown[1], 16) if shown[1] else 0x110000
    return chr(code) * min(int(shown[2] or 1), _LONGEST_RUN) if code < 0x110000 else ""


def _with_numbers_off(form: QuoteForm) -> Iterator[QuoteForm]:
    """Without line numbers in the margin, on each line or on some, and without rows that hold a number alone."""
    rows = [line for line in form.lines if not _NUMBER_ROW.match(line)]
    told = [int(found[1]) for line in form.lines if (found := _NUMBER_ROW.match(line))]
    numbered = [_NUMBER.match(line) for line in rows]
    if not any(numbered):
        numbered = [_PLAIN_NUMBER.match(line) for line in rows]
        if not _are_consecutive(numbered):
            numbered = [None] * len(rows)
    numbers = [int(found[1]) for found in numbered if found]
    if numbers or told:
        lines = tuple(line[found.end() :] if found else line for line, found in zip(rows, numbered, strict=True))
        yield replace(form, lines=lines, first_line=min(numbers or told))


def _are_consecutive(numbered: Sequence[re.Match[str] | None]) -> bool:
    """A number and a space may be code; several that count upwards are a margin."""
    numbers = [int(found[1]) for found in numbered if found]
    return len(numbers) == len(numbered) > 1 and numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def _with_place_off(form: QuoteForm) -> Iterator[QuoteForm]:
    """Without `path:12 - ` before the code."""
    found = _PLACE.match(form.lines[0].lstrip())
    if found:
        first = form.lines[0].lstrip()[found.end() :]
        yield replace(form, lines=(first, *form.lines[1:]), first_line=int(found[1]))


def _with_signs_off(form: QuoteForm) -> Iterator[QuoteForm]:
    """Without the column of a diff: the new side first, or the old one when nothing is added."""
    rows = [line for line in form.lines if not _DIFF_ROW.match(line)]
    signs = {row[:1] for row in rows}
    if not signs & {"+", "-"}:
        if len(rows) < len(form.lines):
            yield replace(form, lines=tuple(rows))
        return
    if "+" in signs:
        yield replace(form, lines=_unsigned(row for row in rows if row[:1] != "-"))
    if "-" in signs:
        yield replace(form, lines=_unsigned(row for row in rows if row[:1] != "+"), of_deletion=True)
        yield replace(form, lines=_unsigned(rows), of_deletion=True)


def _unsigned(rows: Iterable[str]) -> tuple[str, ...]:
    return tuple(row[1:] if row[:1] in {"+", "-"} else row for row in rows)


_Margin = Callable[[QuoteForm], Iterator[QuoteForm]]
_MARGINS: tuple[tuple[_Margin, ...], ...] = (
    (),
    (_with_numbers_off,),
    (_with_signs_off,),
    (_with_numbers_off, _with_signs_off),
    (_with_signs_off, _with_numbers_off),
    (_with_place_off,),
)
