"""Which code of a change agents have covered already: its hunks in stretches, each known by its content.

Agents are asked only about code that no exact answer has covered under the same reviewer, model, checklist, effort,
trust and guidance. A stretch is known by its file, its lines and the stretches next to it, not by its line numbers: it
stays covered if code far away changes, and is asked about again if its neighbours change or disappear.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from codeloupe.config.schema import Settings
from codeloupe.git.hunks import stretches_of
from codeloupe.model.change import Expert, FileChange, Hunk
from codeloupe.model.ports import Plan

# Rows of context that are sent with uncovered code.
_ROWS_AROUND = 4
_LONGEST_STRETCH = 24


class _Stretch(NamedTuple):
    """Some rows of a hunk, from `start` to before `end`, and the name that they are known by."""

    start: int
    end: int
    name: str


def names_of(files: Iterable[FileChange]) -> frozenset[str]:
    """Return the names of all stretches of some files."""
    names: set[str] = set()
    for file in files:
        for _, stretches in _stretches_of_file(file):
            names.update(stretch.name for stretch in stretches)
    return frozenset(names)


def uncovered(files: Iterable[FileChange], covered: frozenset[str]) -> tuple[FileChange, ...]:
    """Return the files with only the code that is not covered, and a few rows around it; other files are omitted."""
    left: list[FileChange] = []
    for file in files:
        hunks: list[Hunk] = []
        for hunk, stretches in _stretches_of_file(file):
            wanted = [(one.start, one.end) for one in stretches if one.name not in covered]
            rows = stretches[-1].end if stretches else 0
            hunks += stretches_of(hunk, _widened(wanted, rows))
        if hunks:
            left.append(replace(file, hunks=tuple(hunks)))
    return tuple(left)


def _widened(ranges: Iterable[tuple[int, int]], rows: int) -> list[tuple[int, int]]:
    """Return ranges of rows with some rows around each; those that then meet become one."""
    joined: list[tuple[int, int]] = []
    for first, last in ranges:
        start = max(0, first - _ROWS_AROUND)
        if joined and start <= joined[-1][1]:
            start = joined.pop()[0]
        joined.append((start, min(last + _ROWS_AROUND, rows)))
    return joined


def _stretches_of_file(file: FileChange) -> Iterator[tuple[Hunk, list[_Stretch]]]:
    """Yield the hunks of a file with their stretches; if a file has the same rows twice, each has its own name."""
    facts = (file.path, file.old_path, file.status.value, file.old_mode, file.new_mode)
    times: Counter[bytes] = Counter()
    for hunk in file.hunks:
        rows = hunk.body.split(b"\n")
        ranges = list(_ranges(rows))
        # Git names the section above a hunk; inside it, the stretch before says what is above.
        bodies = [hunk.section.encode("utf-8", "surrogateescape")]
        bodies += [b"\n".join(rows[start:end]) for start, end in ranges]
        bodies.append(b"")
        stretches: list[_Stretch] = []
        for number, (start, end) in enumerate(ranges, start=1):
            around = b"\0".join(bodies[number - 1 : number + 2])
            times[around] += 1
            known_by = repr((*facts, times[around])).encode("utf-8", "surrogateescape")
            name = hashlib.sha256(known_by + b"\0" + around).hexdigest()[:24]
            stretches.append(_Stretch(start, end, name))
        yield hunk, stretches


def _ranges(rows: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows whose ends the rows themselves decide, so that an inserted line moves only the next end."""
    last = len(rows)
    if rows and rows[-1] == b"":
        last -= 1
    start = 0
    for row in range(1, last):
        if row - start >= _LONGEST_STRETCH or _begins_something(rows[row - 1], rows[row]):
            yield start, row
            start = row
    yield start, last


def _begins_something(before: bytes, after: bytes) -> bool:
    """Tell whether a row comes after a blank one, or begins at the margin after an indented one."""
    if not after[1:].strip():
        return False
    is_after_blank = not before[1:].strip()
    is_at_margin = after[1:2].isalpha() and before[1:2].isspace()
    return is_after_blank or is_at_margin


def conditions_of(
    plan: Plan, settings: Settings, experts: Sequence[Expert], *, agents: Sequence[str], prompt_version: str
) -> str:
    """Return a digest of everything beside the diff that agents are asked with, except for commit messages."""
    parts = (
        prompt_version,
        *agents,
        *(repr(expert) for expert in experts),
        repr(settings.untrusted),
        settings.api_base_url or "",
        settings.effort.value,
        str(settings.passes),
        *(repr(rule) for rule in settings.instructions),
        *(repr(file) for file in plan.guidance),
        plan.intent.context,
    )
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
