"""Changes the text of a baseline as little as can be: only entries that come, go or change are touched.

So the lines of all others, their order and every comment stay as somebody wrote them. A text in an unusual shape, such
as a list within brackets, is written from the start, with the comments at its top.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

from msgspec.structs import replace

from codeloupe.errors import ConfigError
from codeloupe.model.baseline import BASELINE_NAME, Baseline, BaselineEntry
from codeloupe.store.baseline import FIELDS, VERSION, parse_baseline
from codeloupe.system.regex import regex

_DASH = regex(r"( {0,40})- ")
_TOP = (
    "# Findings that are known and do not count: see `codeloupe baseline --help`. Each needs a reason, and one that",
    "# expires holds up to that day.",
)


def edited(
    text: str, baseline: Baseline, *, put: Sequence[BaselineEntry] = (), remove: Iterable[tuple[str, str]] = ()
) -> str:
    """The text, which holds `baseline`, with some entries put in by file and fingerprint, and without some others."""
    gone, coming = frozenset(remove), {entry.key: replace(entry, line=0) for entry in put}
    present = {entry.key for entry in baseline.entries} - gone
    highest = list(accumulate((entry.key for entry in baseline.entries), max))
    # The new ones that come before all others, and each of the others with those that come after it: a new one comes
    # before the first of the others that belongs after it.
    kept = ([coming.get(entry.key, entry)] if entry.key in present else [] for entry in baseline.entries)
    groups: list[list[BaselineEntry]] = [[], *kept]
    for key, entry in sorted(coming.items()):
        if key not in present:
            groups[bisect_right(highest, key)].append(entry)
    wanted = [entry for group in groups for entry in group]
    spliced = _spliced(text, [entry.line for entry in baseline.entries], groups)
    try:
        found = () if spliced is None else parse_baseline(BASELINE_NAME, spliced).entries
    except ConfigError:
        found = ()
    if spliced is not None and [replace(each, line=0) for each in found] == [replace(each, line=0) for each in wanted]:
        return spliced
    lines = text.removeprefix("\ufeff").splitlines()
    end = next((index for index, line in enumerate(lines) if line.strip() and not line.startswith("#")), len(lines))
    top = [line.rstrip() for line in lines[:end]] or _TOP
    body = [line for entry in wanted for line in _entry_lines(entry, 2)]
    return "\n".join([*top, f"version: {VERSION}", "entries:" if body else "entries: []", *body, ""])


def _spliced(text: str, starts: Sequence[int], groups: Sequence[Sequence[BaselineEntry]]) -> str | None:
    """The text with the lines of unchanged entries, and all comments, as they are; None for an unusual shape."""
    line_end = "\r\n" if "\r\n" in text else "\n"
    lines = text.removesuffix(line_end).split(line_end)
    if not starts or any(after <= before for before, after in pairwise(starts)) or starts[-1] > len(lines):
        return None
    dashes = {dash[1] if (dash := _DASH.match(lines[start - 1])) else None for start in starts}
    margin = dashes.pop()
    if margin is None or dashes:
        return None
    # The list ends where something is indented no further than its dashes.
    end_of_list = starts[-1]
    while end_of_list < len(lines):
        line = lines[end_of_list].lstrip(" ")
        if line.strip() and not line.startswith("#") and len(lines[end_of_list]) - len(line) <= len(margin):
            break
        end_of_list += 1
    result = lines[: starts[0] - 1]
    result += [line for entry in groups[0] for line in _entry_lines(entry, len(margin))]
    for start, end, group in zip(starts, [*(start - 1 for start in starts[1:]), end_of_list], groups[1:], strict=True):
        own = end
        while own > start and (not lines[own - 1].strip() or lines[own - 1].lstrip().startswith("#")):
            own -= 1
        for entry in group:
            result += lines[start - 1 : own] if entry.line else _entry_lines(entry, len(margin))
        result += lines[own:end]
    return "".join(f"{line}{line_end}" for line in [*result, *lines[end_of_list:]])


def _entry_lines(entry: BaselineEntry, indent: int) -> list[str]:
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
