"""The lines of a baseline's text: which belong to which entry, and how an entry is written."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from codeloupe.model.baseline import BaselineEntry

_INDENT = 2
_TEXT_KEYS = ("fingerprint", "file", "title", "body", "evidence", "rule")
_TEXT_KEYS_OF_PEOPLE = ("reason", "owner")
_DASH = re.compile(r"( {0,40})- ")


class Block(Struct, frozen=True):
    """The lines of one entry, and the comments and empty lines above it."""

    lead: tuple[str, ...]
    body: tuple[str, ...]


class Layout(Struct, frozen=True):
    """The lines of a text, without their ends: those above the list, the entries of it, and those behind it."""

    head: tuple[str, ...]
    blocks: tuple[Block, ...]
    tail: tuple[str, ...]
    indent: int
    line_end: str

    def joined(self, lines: Sequence[str]) -> str:
        """Lines as a text with the line ends of this one."""
        return "".join(f"{line}{self.line_end}" for line in lines)


def laid_out(text: str, starts: Sequence[int]) -> Layout | None:
    """The layout of a text whose entries begin on these lines; None without entries, or when one shares its lines."""
    line_end = "\r\n" if "\r\n" in text else "\n"
    lines = text.split(line_end)
    if lines[-1] == "":
        lines.pop()
    if not starts or any(after <= before for before, after in pairwise(starts)) or starts[-1] > len(lines):
        return None
    dashes = [_DASH.match(lines[start - 1]) for start in starts]
    indents = {len(dash[1]) for dash in dashes if dash is not None}
    if None in dashes or len(indents) != 1:
        return None
    indent = indents.pop()
    ends = [*(start - 1 for start in starts[1:]), _end_of_list(lines, starts[-1], indent)]
    head = lines[: starts[0] - 1]
    blocks: list[Block] = []
    lead: tuple[str, ...] = ()
    for start, end in zip(starts, ends, strict=True):
        own = _end_of_entry(lines, start, end)
        blocks.append(Block(lead, tuple(lines[start - 1 : own])))
        lead = tuple(lines[own:end])
    return Layout(tuple(head), tuple(blocks), (*lead, *lines[ends[-1] :]), indent, line_end)


def _end_of_list(lines: Sequence[str], last_start: int, indent: int) -> int:
    """Behind the last line that may belong to the list: what follows is indented no further than its dashes."""
    for number in range(last_start, len(lines)):
        text = lines[number].strip()
        if text and not text.startswith("#") and len(lines[number]) - len(lines[number].lstrip(" ")) <= indent:
            return number
    return len(lines)


def _end_of_entry(lines: Sequence[str], start: int, end: int) -> int:
    """Behind the last line of an entry that is neither empty nor a comment."""
    while end > start and (not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#")):
        end -= 1
    return end


def entry_lines(entry: BaselineEntry, indent: int = _INDENT) -> list[str]:
    """An entry as lines of YAML; keys without a value are left out."""
    values = [(key, quoted(str(getattr(entry, key)))) for key in _TEXT_KEYS if getattr(entry, key)]
    if entry.severity is not None:
        values.append(("severity", entry.severity.label))
    values += [(key, quoted(str(getattr(entry, key)))) for key in _TEXT_KEYS_OF_PEOPLE if getattr(entry, key)]
    if entry.expires is not None:
        values.append(("expires", entry.expires.isoformat()))
    dashes = ["- ", *["  "] * (len(values) - 1)]
    return [f"{' ' * indent}{dash}{key}: {value}" for dash, (key, value) in zip(dashes, values, strict=True)]


def quoted(text: str) -> str:
    """A text in double quotes, as YAML reads them; what cannot be seen, or not be written, is escaped."""
    whole = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return "".join(
        character if character.isprintable() else _escaped(character)
        for character in json.dumps(whole, ensure_ascii=False)
    )


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
