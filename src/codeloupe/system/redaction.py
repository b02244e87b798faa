"""Secrets in text: the known forms of tokens, and masking before text reaches a log, an error, a prompt or a report.

Every search takes time linear in the text, whatever the text is, and masks the secret alone: no text can make
the mask reach over what comes after it. No mask reaches over the end of a quoted string or splits an escape, so that a
JSON document keeps its structure, its keys and the number of its items.
"""

from __future__ import annotations

import base64
import binascii
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import quote_from_bytes

from codeloupe.model.finding import Severity
from codeloupe.system.regex import regex

_MASK = "[redacted]"
_SECRET_NAME = regex(
    r"KEYS?(?![A-Z])|TOKENS?(?![A-Z])|SECRET|PASSW|PASSPHRASE|_PWD$|CREDENTIAL|AUTH$|AUTHORIZATION|AUTH_CONFIG",
    re.IGNORECASE,
)
_Span = tuple[int, int]
# An escape of JSON, and what is between two quotation marks.
_ESCAPE = regex(r"\\(?:u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_LONGEST_ESCAPE = 6
_QUOTED = regex(r'(?:[^"\\]++|\\.)++', re.DOTALL)
_IS_KEY = regex(r'\\?"\s*:')

# The rows of a key. Between them are line ends, also escaped ones, and on a row the margin of a diff or a listing. A
# longer row is taken in pieces, so that no row is read again and again.
_ROW = regex(r"(?:[^\n\\]|\\(?![nr])){1,4000}(?:\\[nr]|\n)?|\\[nr]|\n")
_OPENING = regex(r"-{4,5} ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}|PuTTY-User-Key-File-\d: ?[\w.@-]{1,40}")
_CLOSING = regex(r"-{4,5} ?END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}|Private-MAC: ?[0-9a-f]{40,64}")
_HEADER = regex(
    r"(?:Proc-Type|DEK-Info|Version|Comment|Encryption|Key-Derivation|Argon2-[A-Za-z]+|Public-Lines|Private-Lines|Hash"
    r"|Charset|MessageID|Subject|x-[a-z-]+): ?[ -~]{0,100}"
)
_RUN = regex(r"[A-Za-z0-9+/=]{16,}")
_BODY = regex(r"(?:(?<=\\[nr])|(?<![A-Za-z0-9+/=\\]))(?:[A-Za-z0-9+/]|\\/){16,}={0,2}")
_LONE_RUN = regex(r"[^A-Za-z0-9]*(?:[0-9]{1,6}[^A-Za-z0-9]+)?[A-Za-z0-9][A-Za-z0-9+/=]{0,79}[^A-Za-z0-9]*")
_SHORT_STRING = regex(r"[A-Za-z0-9+/=]{1,80}(?:\\[nr])*")
_LINE_END = regex(r"(?:\\[nr]|\n)\Z")
_FULL_ROW = range(60, 81)
_WIDEST_MARGIN = 40
_WIDEST_FRAME = 120
_NUMBER = regex(r"[0-9]+")
_DIGEST = regex(r"(?i)sha[0-9]{1,3}[-:=]\Z")
_PATH = regex(r"/[0-9]{9}|[0-9]{9}/")
_BEFORE_ROW = regex(r"(?:\A|\n|\\[nr])[^A-Za-z0-9\n]*(?:[0-9]{1,6}[^A-Za-z0-9\n]+)?[bBrRuU]?[\"'`]?\Z")
_AFTER_ROW = regex(r"[^A-Za-z0-9\n\\]*(?:\Z|\n|\\[nr])")
# The environment as it was, and the credentials in it.
_own: tuple[Mapping[Any, Any], tuple[str, ...]] = ({}, ())


def redact(text: str) -> str:
    """Mask the exact values of credentials in our environment, and every well-known form of token and private key."""
    spans = list(_find_own_secrets(text))
    tokens = find_tokens(text, (form for forms in _table() for form in forms))
    spans += [(start, end) for start, end, _form in tokens]
    spans += (*find_aws_secrets(text), *_private_keys(text), *_bare_rows(text))
    if "\\" in text:
        spans = [_with_whole_escapes(text, span) for span in spans]
    # One mask for each part that some spans cover.
    parts: list[str] = []
    done = 0
    first = last = -1
    for start, end in [*sorted(spans), (len(text) + 1, 0)]:
        if start > last:
            if last >= 0:
                parts += (text[done:first], _MASK)
                done = last
            first = start
        last = max(last, end)
    return "".join((*parts, text[done:]))


def _find_own_secrets(text: str) -> Iterator[_Span]:
    for value in _own_secrets():
        start = text.find(value)
        while start >= 0:
            end = start + len(value)
            yield start, end
            start = text.find(value, end)


def _with_whole_escapes(text: str, span: _Span) -> _Span:
    """Return the span, longer by the rest of an escape that it begins or ends in."""
    first = _escape_over(text, span[0])
    last = _escape_over(text, span[1])
    start = span[0] if first is None else first[0]
    end = span[1] if last is None else last[1]
    return start, end


def _escape_over(text: str, position: int) -> _Span | None:
    """Return the escape that begins before a position and ends after it."""
    for start in range(position - 1, max(position - _LONGEST_ESCAPE, -1), -1):
        if text[start] != "\\":
            continue
        before = start
        while before and text[before - 1] == "\\":
            before -= 1
        is_escaped = (start - before) % 2 == 1
        escape = None if is_escaped else _ESCAPE.match(text, start)
        return escape.span() if escape is not None and escape.end() > position else None
    return None


def is_secret(name: str, value: str) -> bool:
    """Whether a named value is a credential, by its name or by its form."""
    return bool(_SECRET_NAME.search(name)) or redact(value) != value


def _own_secrets() -> tuple[str, ...]:
    """The credentials in our environment, the longest first: no tail is left of one that begins with another."""
    global _own  # noqa: PLW0603 - looked up again only when the environment changed
    # As the system has it; the public view decodes every variable each time, which takes far longer.
    present: Any = getattr(os.environ, "_data", os.environ)
    if present != _own[0]:
        values = {value.strip() for name, value in os.environ.items() if _SECRET_NAME.search(name)}
        long = [value for value in values if len(value) >= 8]
        forms = {*long, *(quote_from_bytes(os.fsencode(value), safe="") for value in long)}
        _own = dict(present), tuple(sorted(forms, key=len, reverse=True))
    return _own[1]


def _private_keys(text: str) -> Iterator[_Span]:
    """From the opening of each key to its end, or to the last row that can be of it."""
    done = 0
    for opening in _OPENING.finditer(text):
        if opening.start() >= done:
            done = _end_of_key(text, opening.end())
            yield from _quoted_parts(text, opening.start(), done)
            yield from _framed_rows(text, opening.start())


def _quoted_parts(text: str, start: int, end: int) -> Iterator[_Span]:
    """The parts of a key: the whole, or if it is written as several strings, what is of the key in each of them."""
    for part in _QUOTED.finditer(text, start, end):
        if part.start() == start:
            yield part.span()
            continue
        if _IS_KEY.match(text, part.end()):
            continue
        runs = [run for run in _RUN.finditer(text, *part.span()) if _is_mixed(run[0])]
        if runs:
            yield runs[0].start(), runs[-1].end()
        elif _CLOSING.search(text, *part.span()) or _SHORT_STRING.fullmatch(text, *part.span()):
            yield part.span()


def _framed_rows(text: str, opening: int) -> Iterator[_Span]:
    """The rows of a key that each have before them what its opening has: a command, or the name of a file."""
    frame = _NUMBER.sub("0", text[text.rfind("\n", max(0, opening - _WIDEST_FRAME), opening) + 1 : opening])
    if not any(map(str.isalpha, frame)):
        return
    for row in islice(_ROW.finditer(text, text.find("\n", opening) + 1 or len(text)), 200):
        run = next((run for run in _RUN.finditer(text, *row.span()) if _is_mixed(run[0])), None)
        if run is None or _NUMBER.sub("0", text[row.start() : run.start()]) != frame:
            break
        yield run.span()


def _end_of_key(text: str, position: int) -> int:
    """Where a key ends whose opening ends at `position`. A row that can be none of a key ends it."""
    last, headers, short = position, 0, 0
    for start, end in (row.span() for row in _ROW.finditer(text, position)):
        closing = _CLOSING.search(text, start, end)
        kind = _kind_of_row(text[start : closing.start() if closing else end])
        if closing is not None:
            return last if kind == "other" else closing.end()
        if kind == "key" or (kind == "header" and headers < 12):
            # The end of what is on the row: its last letter, digit or sign of padding.
            row = _LINE_END.sub("", text[start:end])
            last = max((match.end() for match in re.finditer(r"[A-Za-z0-9+/=]+", row)), default=0) + start
            headers += kind == "header"
            short = 0 if kind == "key" else short
        elif kind == "short" and short < 2:
            short += 1  # of the key only if its closing follows: else it is a word
        elif kind != "margin":
            break
    return last


def _kind_of_row(row: str) -> Literal["key", "short", "margin", "header", "other"]:
    row = _LINE_END.sub("", row).replace("\\/", "/")  # as some writers of JSON have it
    if _HEADER.search(row):
        return "header"
    size = sum(len(run) for run in _RUN.findall(row) if _is_mixed(run))
    # What of a row may be no key: the number of a line, the letter before a string.
    if size and sum(map(len, re.findall(r"[A-Za-z0-9]+", row))) - size <= max(10, 0.1 * size):
        return "key"
    if not any(character.isalpha() for character in row):
        return "margin"
    return "short" if _LONE_RUN.fullmatch(row) else "other"


def _is_mixed(run: str) -> bool:
    return any(map(str.isdigit, run)) and any(map(str.isupper, run)) and any(map(str.islower, run))


def _bare_rows(text: str) -> Iterator[_Span]:
    """Rows that can only be the body of a key or a certificate: a diff may show them without their opening."""
    group: list[_Span] = []
    framed = ""
    for run in _BODY.finditer(text):
        start, end = run.span()
        if not _is_body(run[0].replace("\\/", "/")) or _DIGEST.search(text, max(0, start - _WIDEST_MARGIN), start):
            continue
        gap = text[group[-1][1] : start][: _WIDEST_FRAME + 1] if group else ""
        # What each row of a key may have around it, such as a command or the name of its file.
        frame = _NUMBER.sub("0", gap) if len(gap) <= _WIDEST_FRAME and gap.count("\n") == 1 else ""
        # Between two rows may be: a line end, also as `&#xA;` or `<br>`, quotes, the number of a line.
        is_margin = len(gap) <= _WIDEST_MARGIN and sum(map(str.isalpha, gap)) <= 3
        is_next = bool(group) and (is_margin or bool(frame and frame == (framed or frame)))
        framed = frame if is_next else ""
        if not is_next:
            yield from _masked_of_group(text, group)
            group = []
        if is_next or end - start in _FULL_ROW or _CLOSING.search(text, end, end + 2 * _WIDEST_MARGIN):
            group.append((start, end))
    yield from _masked_of_group(text, group)


def _masked_of_group(text: str, group: list[_Span]) -> Iterator[_Span]:
    """All of several rows close to each other; of a few those that are alone."""
    many = sum(end - start in _FULL_ROW for start, end in group) >= 3
    for start, end in group:
        # It has a row for itself, but for the margin of a diff or a listing and the quotes of a string.
        before, after = text[max(0, start - _WIDEST_MARGIN) : start], text[end : end + _WIDEST_MARGIN]
        if many or (_BEFORE_ROW.search(before) and _AFTER_ROW.match(after)):
            yield start, end


def _is_body(run: str) -> bool:
    if any(letters in run for letters in ("ABCDEF", "abcdef", "012345")) or _PATH.search(run):
        return False
    return _is_mixed(run) and bits_per_character(run) >= min(4.2, 0.8 * math.log2(len(run)))


class Form(NamedTuple):
    """One form. `pattern` is what the whole token looks like; with `word` it counts only at the start of a word.

    It is known by its signs, short texts of which each such token begins with one, or holds one where it says `inside`.
    """

    name: str
    signs: list[str]
    pattern: str
    severity: Severity
    word: bool
    inside: bool


@cache
def _table() -> tuple[tuple[Form, ...], tuple[Form, ...]]:
    """The forms of tokens, and those that are known by what is around them."""
    text = Path(__file__).with_name("token_forms.txt").read_text(encoding="utf-8")
    text = text.replace("<word>", "[A-Za-z0-9_-]")
    # An escape inside a string of JSON, except that of a quotation mark or of white space.
    text = text.replace("<escape>", r'\\[^"\snrt]')
    text = text.replace("<uuid>", "[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
    tokens, around = (map(_form, re.findall(r"^[^#\n].*", part, re.MULTILINE)) for part in text.split("\n---\n"))
    return tuple(tokens), tuple(form._replace(word=False, inside=True) for form in around)


def _form(row: str) -> Form:
    name, signs, pattern, notes = (*row.split(" :: "), "")[:4]
    severity = next((one for one in Severity if one.label in notes), Severity.HIGH)
    return Form(name, signs.split(), pattern, severity, word="anywhere" not in notes, inside="inside" in notes)


def token_forms() -> tuple[Form, ...]:
    """The forms by which a vendor's secret is known wherever it is."""
    return _table()[0]


# A pattern is made when it is first needed.
_compiled = cache(re.compile)


@cache
def _any_sign() -> re.Pattern[str]:
    """Return a pattern that finds a sign of any form."""
    signs: set[str] = set()
    for form in token_forms():
        signs.update(form.signs)
    return re.compile("|".join(map(re.escape, sorted(signs))))


def find_tokens(text: str, forms: Iterable[Form] | None = None) -> Iterator[tuple[int, int, Form]]:
    """Yield each token of a known form, with the places where it begins and ends; tokens may overlap."""
    if forms is None:
        # Few lines have a sign, and one search for all signs is faster than one for each form.
        if _any_sign().search(text) is None:
            return
        forms = token_forms()
    for form in forms:
        signs = [sign for sign in form.signs if sign in text]
        if form.inside and signs:
            matches = _compiled(form.pattern).finditer(text)
            for found in matches:
                start, end = found.span(found.lastindex or 0)
                if _may_begin(text, found.start(), form) and not is_words(text[start:end]):
                    yield start, end, form
        for sign in () if form.inside else signs:
            position = text.find(sign)
            while position >= 0:
                end = position + len(sign)
                match = _compiled(form.pattern).match(text, position) if _may_begin(text, position, form) else None
                if match is not None and not is_words(text[end : match.end()]):
                    end = match.end()
                    yield position, end, form
                position = text.find(sign, end)


# Words in lower case, capitals or camel case; the last one may be cut. The groups are atomic: the search stays linear.
_PROSE = regex(r"(?>[A-Z]?[a-z]{2,15}+(?![a-z])|[A-Z]{3,15}+(?![A-Z])|[-_./ ]+)++[A-Z]{0,2}[a-z]?")


def is_words(value: str) -> bool:
    """Return whether a value consists of words, so that no generator made it: `learn-pipeline-with-columns`."""
    return _PROSE.fullmatch(value) is not None


def _may_begin(text: str, position: int, form: Form) -> bool:
    """Whether no word goes on here; the end of an escape such as `\\n` is no word."""
    before = text[max(0, position - 2) : position]
    if not form.word or not before or not (before[-1] in "_-" or (before[-1].isascii() and before[-1].isalnum())):
        return True
    return before in ("\\n", "\\r", "\\t")


# An AWS secret access key has no sign, only its length and that a generator made it.
_FORTY = regex(r"[A-Za-z0-9+/]{40,}")
_LONGEST_WORD = regex(r"[a-z]{9}|[A-Z]{9}|[0-9]{9}|(?:[a-z]{3,}/){2}")
_CHANGES = regex(r"(?<=[a-z])[^a-z]|(?<=[A-Z])[^A-Z]|(?<=[0-9])[^0-9]|(?<=[+/])[^+/]")


def find_aws_secrets(text: str) -> Iterator[tuple[int, int]]:
    """Where values are that can only be AWS secret access keys: forty characters from a generator, and no more."""
    for match in _FORTY.finditer(text):
        start, end = match.span()
        # A `=` before it is an assignment, one after it is padding.
        before, after = text[start - 1 : start] or " ", text[end : end + 1] or " "
        if end - start == 40 and before not in "._-~%@" and after not in "=._-~%@" and _is_generated(match[0]):
            yield start, end


def _is_generated(value: str) -> bool:
    """Letters of both cases and digits in turn, as no word, path or encoded text has them."""
    if not all(any(map(kind, value)) for kind in (str.isupper, str.islower, str.isdigit)):
        return False
    if _LONGEST_WORD.search(value) or len(_CHANGES.findall(value)) < 19 or bits_per_character(value) < 4.3:
        return False
    try:
        decoded = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return True
    return not all(byte in b"\t\r\n" or 0x20 <= byte < 0x7F for byte in decoded)


def bits_per_character(value: str) -> float:
    """The Shannon entropy of the characters; 0.0 for an empty text."""
    size = len(value)
    return -sum(count / size * math.log2(count / size) for count in Counter(value).values())
