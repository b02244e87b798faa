"""Changes the text of a baseline as little as can be: only entries that come, go or change are touched.

So the lines of all others, their order and every comment stay as somebody wrote them. A text in an unusual shape, such
as a list within brackets, is written from the start, with the comments at its top.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.errors import ConfigError
from codeloupe.model.baseline import BASELINE_NAME, Baseline, BaselineEntry
from codeloupe.store.baseline import FIELDS, VERSION, parse_baseline
from codeloupe.system.regex import regex

_INDENT = 2
_DASH = regex(r"( {0,40})- ")
_TOP = (
    "# Findings that are known and do not count: see `codeloupe baseline --help`. Each needs a reason, and one that",
    "# expires holds up to that day.",
)
_Key = tuple[str, str]


class _Block(Struct, frozen=True):
    """The lines of one entry, and the comments and empty lines above it."""

    lead: list[str]
    body: list[str]


class _Layout(Struct, frozen=True):
    """The lines of a text, without their ends: those above the list, the entries of it, and those after it."""

    head: list[str]
    blocks: list[_Block]
    tail: list[str]
    indent: int
    line_end: str


def edited(text: str, baseline: Baseline, *, put: Sequence[BaselineEntry] = (), remove: Iterable[_Key] = ()) -> str:
    """The text, which holds `baseline`, with some entries put in by file and fingerprint, and without some others."""
    gone = frozenset(remove)
    coming = {entry.key: replace(entry, line=0) for entry in put}
    kept = [coming.get(entry.key, entry) for entry in baseline.entries if entry.key not in gone]
    # Each new one comes before the first of the others that belongs after it.
    present = {entry.key for entry in kept}
    highest = list(accumulate((entry.key for entry in kept), max))
    slots: defaultdict[int, list[BaselineEntry]] = defaultdict(list)
    for key, entry in sorted(coming.items()):
        if key not in present:
            slots[bisect_right(highest, key)].append(entry)
    wanted = [each for index, entry in enumerate(kept) for each in (*slots[index], entry)] + slots[len(kept)]
    layout = _laid_out(text, [entry.line for entry in baseline.entries])
    if layout is not None:
        spliced = _spliced(layout, baseline, wanted)
        try:
            found = parse_baseline(BASELINE_NAME, spliced).entries
        except ConfigError:
            found = ()
        if [replace(entry, line=0) for entry in found] == [replace(entry, line=0) for entry in wanted]:
            return spliced
    lines = text.removeprefix("\ufeff").splitlines()
    end = next((index for index, line in enumerate(lines) if line.strip() and not line.startswith("#")), len(lines))
    top = [line.rstrip() for line in lines[:end]] or _TOP
    body = [line for entry in wanted for line in _entry_lines(entry)]
    return "\n".join([*top, f"version: {VERSION}", "entries:" if body else "entries: []", *body, ""])


def _spliced(layout: _Layout, baseline: Baseline, wanted: Sequence[BaselineEntry]) -> str:
    """The text with the blocks of unchanged entries as they are. What was above an entry that goes stays."""
    place_of = {entry.key: index for index, entry in enumerate(baseline.entries)}
    lines = list(layout.head)
    reached = 0
    for entry in wanted:
        place = place_of.get(entry.key)
        if place is not None:
            lines += [line for block in layout.blocks[reached : place + 1] for line in block.lead]
            reached = place + 1
        is_unchanged = place is not None and entry.line
        lines += layout.blocks[place].body if is_unchanged and place is not None else _entry_lines(entry, layout.indent)
    lines += [line for block in layout.blocks[reached:] for line in block.lead]
    return "".join(f"{line}{layout.line_end}" for line in [*lines, *layout.tail])


def _laid_out(text: str, starts: Sequence[int]) -> _Layout | None:
    """The layout of a text whose entries begin on these lines; None without entries, or when one shares its lines."""
    line_end = "\r\n" if "\r\n" in text else "\n"
    lines = text.split(line_end)
    if lines[-1] == "":
        lines.pop()
    if not starts or any(after <= before for before, after in pairwise(starts)) or starts[-1] > len(lines):
        return None
    indents = {len(dash[1]) if (dash := _DASH.match(lines[start - 1])) else None for start in starts}
    indent = indents.pop()
    if indent is None or indents:
        return None
    # The list ends where something is indented no further than its dashes.
    end_of_list = len(lines)
    for number in range(starts[-1], len(lines)):
        line = lines[number].strip()
        if line and not line.startswith("#") and len(lines[number]) - len(lines[number].lstrip(" ")) <= indent:
            end_of_list = number
            break
    blocks: list[_Block] = []
    lead: list[str] = []
    for start, end in zip(starts, [*(start - 1 for start in starts[1:]), end_of_list], strict=True):
        own = end
        while own > start and (not lines[own - 1].strip() or lines[own - 1].lstrip().startswith("#")):
            own -= 1
        blocks.append(_Block(lead, lines[start - 1 : own]))
        lead = lines[own:end]
    return _Layout(lines[: starts[0] - 1], blocks, [*lead, *lines[end_of_list:]], indent, line_end)


def _entry_lines(entry: BaselineEntry, indent: int = _INDENT) -> list[str]:
    """An entry as lines of YAML; keys without a value are left out."""
    lines: list[str] = []
    for key in FIELDS:
        value = getattr(entry, key)
        if key == "severity":
            text = "" if value is None else value.label
        elif key == "expires":
            text = "" if value is None else value.isoformat()
        else:
            whole = json.dumps(value.encode("utf-8", "backslashreplace").decode("utf-8"), ensure_ascii=False)
            # As YAML reads them; what cannot be seen, or not be written, is escaped.
            text = "".join(
                each if each.isprintable() else f"\\u{ord(each):04x}" if ord(each) < 0x10000 else f"\\U{ord(each):08x}"
                for each in (whole if value else "")
            )
        if text:
            lines.append(f"{' ' * indent}{'  ' if lines else '- '}{key}: {text}")
    return lines
