"""Changes the text of a baseline as little as can be: only entries that come, go or change are touched.

So the lines of all others, their order and every comment stay as somebody wrote them. A text in an unusual shape, such
as a list within brackets, is written anew, with the comments at its top.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from msgspec.structs import replace

from codeloupe.errors import ConfigError
from codeloupe.model.baseline import BASELINE_NAME, Baseline, BaselineEntry
from codeloupe.store.baseline.layout import Block, Layout, entry_lines, laid_out
from codeloupe.store.baseline.reading import VERSION, parse_baseline

_TOP = (
    "# Findings that are known and do not count: see `codeloupe baseline --help`. Each needs a reason, and one that",
    "# expires holds up to that day.",
)
Key = tuple[str, str]


def edited(text: str, baseline: Baseline, *, put: Sequence[BaselineEntry] = (), remove: Iterable[Key] = ()) -> str:
    """The text with some entries in it, in the place of those with the same key, and without some others.

    `baseline` is what the text holds. New entries go where they belong by file and fingerprint.
    """
    gone = frozenset(remove)
    coming = {entry.key: replace(entry, line=0) for entry in put}
    kept = [coming.get(entry.key, entry) for entry in baseline.entries if entry.key not in gone]
    wanted = _merged(kept, coming)
    layout = laid_out(text, [entry.line for entry in baseline.entries])
    spliced = None if layout is None else _spliced(layout, baseline, wanted)
    return spliced if spliced is not None and _holds(spliced, wanted) else _written_anew(text, wanted)


def _merged(kept: Sequence[BaselineEntry], coming: Mapping[Key, BaselineEntry]) -> list[BaselineEntry]:
    """The kept ones in their order, each new one before the first of them that belongs behind it."""
    present = {entry.key for entry in kept}
    highest = list(accumulate((entry.key for entry in kept), max))
    slots: defaultdict[int, list[BaselineEntry]] = defaultdict(list)
    for key, entry in sorted(coming.items()):
        if key not in present:
            slots[bisect_right(highest, key)].append(entry)
    merged: list[BaselineEntry] = []
    for index, entry in enumerate(kept):
        merged += [*slots[index], entry]
    return merged + slots[len(kept)]


def _spliced(layout: Layout, baseline: Baseline, wanted: Sequence[BaselineEntry]) -> str:
    """The text with the blocks of unchanged entries as they are. What stood above an entry that goes stays."""
    place_of = {entry.key: index for index, entry in enumerate(baseline.entries)}
    lines = list(layout.head)
    reached = 0
    for entry in wanted:
        place = place_of.get(entry.key)
        if place is not None:
            lines += _leads(layout.blocks[reached : place + 1])
            reached = place + 1
        unchanged = place is not None and entry.line
        lines += layout.blocks[place].body if unchanged and place is not None else entry_lines(entry, layout.indent)
    return layout.joined([*lines, *_leads(layout.blocks[reached:]), *layout.tail])


def _leads(blocks: Iterable[Block]) -> list[str]:
    return [line for block in blocks for line in block.lead]


def _holds(text: str, expected: Sequence[BaselineEntry]) -> bool:
    try:
        found = parse_baseline(BASELINE_NAME, text).entries
    except ConfigError:
        return False
    return [replace(entry, line=0) for entry in found] == [replace(entry, line=0) for entry in expected]


def _written_anew(text: str, entries: Sequence[BaselineEntry]) -> str:
    lines = text.removeprefix("\ufeff").splitlines()
    end = next((index for index, line in enumerate(lines) if line.strip() and not line.startswith("#")), len(lines))
    top = [line.rstrip() for line in lines[:end]] or _TOP
    body = [line for entry in entries for line in entry_lines(entry)]
    return "\n".join([*top, f"version: {VERSION}", "entries:" if body else "entries: []", *body, ""])
