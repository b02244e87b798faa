"""Secrets out of text, before it reaches a log, an error, a prompt or a report.

Every search takes time linear in the text, whatever the text is, and masks the secret alone: no text can make
the mask reach over what comes after it.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Literal
from urllib.parse import quote_from_bytes

from codeloupe.system.regex import regex
from codeloupe.system.token_forms import bits_per_character, find_aws_secrets, find_tokens

_MASK = "[redacted]"
_SECRET_NAME = regex(
    r"KEYS?(?![A-Z])|TOKENS?(?![A-Z])|SECRET|PASSW|PASSPHRASE|_PWD$|CREDENTIAL|AUTH$|AUTHORIZATION|AUTH_CONFIG",
    re.IGNORECASE,
)
_Span = tuple[int, int]

# The version that a private key begins with, and a byte of it with what stands between two: also a line of a diff.
_VERSION_BYTES = r"\s{0,4}0x02,\s{0,4}0x01,\s{0,4}0x0[01],"
_BYTE = r"(?:[^0-9A-Za-z]{0,16}(?:[0-9]{1,6}[^0-9A-Za-z]{1,16})?0x[0-9A-Fa-f]{2},?){20,}+"
# Credentials that are known by what stands around them. Each is tried only where its sign is in the text.
_IN_CONTEXT: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("://", regex(r"(?<=://)[^/\s:@]*+:[^/\s@]++(?=@)")),  # user:password@ in an address
    ("://", regex(r"(?<=://)[^/\s:@]{20,}+(?=@)")),  # token@ in an address
    (
        "uthorization",
        regex(
            r"""(?i:authorization)["']?\s{0,8}[:=]\s{0,8}["']?(?i:bearer|basic|token)\s{1,8}[A-Za-z0-9._~+/=-]{8,}"""
        ),
    ),
    ("rivateKey", regex(r"(?<=PrivateKey)\s{0,8}=\s{0,8}[A-Za-z0-9+/]{43}=")),  # WireGuard
    ('"', regex(r'(?<=")(?:d|p|q|dp|dq|qi|k)"\s{0,8}:\s{0,8}"[A-Za-z0-9_-]{40,}(?=")')),  # JSON Web Key
    ("<", regex(r"(?<=<)(?:D|P|Q|DP|DQ|InverseQ)>[A-Za-z0-9+/=\s]{40,4000}(?=</)")),  # RSA key of .NET
    ("LS0tLS1CRUdJTi", regex(r"LS0tLS1CRUdJTi[A-Za-z0-9+/]{20,}={0,2}")),  # a PEM file, encoded once more
    ("MII", regex(r"MII[A-Za-z0-9+/]{120,}={0,2}")),  # a key or certificate on one line
    (
        "0x30",
        regex(r"0x30,\s{0,4}0x(?:8[12],\s{0,4}0x)?\w\w,(?:\s{0,4}0x\w\w,)?" + _VERSION_BYTES + _BYTE),
    ),  # in C
    ("020100", regex(r"(?i)30(?:8[12])?[0-9a-f]{2,4}020100(?:30|02)[0-9a-f]{100,}+")),  # a key in hexadecimal
    ("/u3+7Q", regex(r"/u3\+7Q[A-Za-z0-9+/]{50,}={0,2}")),  # a Java key store
)

# The rows of a key. Between them stand line ends, also escaped ones, and on a row the margin of a diff or a listing. A
# longer row is taken in pieces, so that no row is read again and again.
_ROW = regex(r"(?:[^\n\\]|\\(?![nr])){0,4000}(?:\\[nr]|\n)?")
_OPENING = regex(r"-{4,5} ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}|PuTTY-User-Key-File-\d: ?[\w.@-]{1,40}")
_CLOSING = regex(r"-{4,5} ?END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}|Private-MAC: ?[0-9a-f]{40,64}")
_HEADER = regex(
    r"(?:Proc-Type|DEK-Info|Version|Comment|Encryption|Key-Derivation|Argon2-[A-Za-z]+|Public-Lines|Private-Lines|Hash"
    r"|Charset|MessageID|Subject|x-[a-z-]+): ?[ -~]{0,100}"
)
_RUN = regex(r"[A-Za-z0-9+/=]{16,}")
_BODY = regex(r"(?:(?<=\\[nr])|(?<![A-Za-z0-9+/=\\]))(?:[A-Za-z0-9+/]|\\/){16,}={0,2}")
_LONE_RUN = regex(r"[^A-Za-z0-9]*(?:[0-9]{1,6}[^A-Za-z0-9]+)?[A-Za-z0-9][A-Za-z0-9+/=]{0,79}[^A-Za-z0-9]*")
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
    for value in _own_secrets():
        text = text.replace(value, _MASK)
    spans = [(start, end) for start, end, _form in find_tokens(text)]
    spans += find_aws_secrets(text)
    for sign, pattern in _IN_CONTEXT:
        if sign in text:
            spans += (match.span() for match in pattern.finditer(text))
    spans += _private_keys(text)
    spans += _bare_rows(text)
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
            yield opening.start(), done
            yield from _framed_rows(text, opening.start())


def _framed_rows(text: str, opening: int) -> Iterator[_Span]:
    """The rows of a key that each have before them what its opening has: a command, or the name of a file."""
    frame = _NUMBER.sub("0", text[text.rfind("\n", max(0, opening - _WIDEST_FRAME), opening) + 1 : opening])
    if not any(map(str.isalpha, frame)):
        return
    for start, end in islice(_rows(text, text.find("\n", opening) + 1 or len(text)), 200):
        run = next((run for run in _RUN.finditer(text, start, end) if _is_mixed(run[0])), None)
        if run is None or _NUMBER.sub("0", text[start : run.start()]) != frame:
            break
        yield run.span()


def _end_of_key(text: str, position: int) -> int:
    """Where a key ends whose opening ends at `position`. A row that can be none of a key ends it."""
    last, headers, short = position, 0, 0
    for start, end in _rows(text, position):
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


def _rows(text: str, position: int) -> Iterator[_Span]:
    while position < len(text):
        row = _ROW.match(text, position)
        end = row.end() if row and row.end() > position else position + 1
        yield position, end
        position = end


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
