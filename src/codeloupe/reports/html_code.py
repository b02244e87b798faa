"""The code of a finding as a table: the lines of the diff around it when they are known, or else the quote alone."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from codeloupe.model.change import Hunk, LineKind
from codeloupe.model.finding import Finding
from codeloupe.reports import ShownDiff, asset
from codeloupe.reports.markup import Markup, joined
from codeloupe.reports.wording import counted, dedented

_HASH_COMMENTS = ("", *".py .sh .bash .rb .yml .yaml .toml .pl .r .tf .cfg .ini .mk .conf".split())  # noqa: SIM905
_TOKENS = r"""
    (?P<s>"(?:[^"\\]|\\.){0,300}"|'(?:[^'\\]|\\.){0,300}'|`[^`]{0,300}`)
    |(?P<n>\b(?:0[xXbBoO][0-9a-fA-F_]{1,40}|[0-9][0-9_]{0,40}(?:\.[0-9]{1,40})?)\b)
    |(?P<k>[^\W\d]\w*)
"""
_AROUND = 4
_MOST_ROWS = 40
_LONGEST_ROW = 1_000
_SIGNS: dict[LineKind, str] = {"context": "", "added": "+", "deleted": "-"}


def highlighted(line: str, *, path: str) -> Markup:
    """One line of code as markup: its strings, numbers, keywords and comments have classes `s`, `n`, `k` and `c`."""
    pieces: list[str] = []
    at = 0
    for match in _pattern(PurePosixPath(path).suffix.lower()).finditer(line):
        if match.lastgroup != "k" or match[0] in _keywords():
            token = Markup(f'<span class="{match.lastgroup}">{joined([match[0]])}</span>')
            pieces += [line[at : match.start()], token]
            at = match.end()
    return joined([*pieces, line[at:]])


@cache
def _keywords() -> frozenset[str]:
    return frozenset(asset("keywords.txt").split())


@lru_cache(maxsize=100)
def _pattern(suffix: str) -> re.Pattern[str]:
    comment = r"--.*" if suffix in (".sql", ".lua", ".hs") else r"//.*|/\*.*"
    if suffix in _HASH_COMMENTS:
        comment = r"(?<![^\s;])\#.*"
    return re.compile(f"{_TOKENS}|(?P<c>{comment})", re.VERBOSE)


class _Row(NamedTuple):
    kind: LineKind
    number: int | None
    text: str
    is_hit: bool = False


class Excerpts:
    """Shows findings in their code. What is read of the change is read once, however many findings it has."""

    def __init__(self, diff: ShownDiff | None) -> None:
        self._files = {} if diff is None else diff.files
        self._mask = str if diff is None else diff.mask
        self._read: dict[tuple[str, int], list[_Row]] = {}

    def code_of(self, finding: Finding) -> dict[str, Any]:
        """The annotated lines, as a card shows them; nothing when nothing was quoted."""
        around, quoted, first = self._around(finding), finding.evidence.rstrip("\n").split("\n"), finding.first_line
        if not around and not finding.evidence.strip():
            return {}
        rows = around or [
            _Row("context", first + offset if first > 0 else None, line, is_hit=first > 0)
            for offset, line in enumerate(quoted)
        ]
        shown = [
            {
                "kinds": " ".join(filter(None, (row.kind if around else "", "hit" if row.is_hit else ""))),
                # Numbers and signs are drawn from attributes, so that only code is copied.
                "number": row.number,
                "signed": "yes" if around else "",
                "sign": _SIGNS[row.kind],
                "text": highlighted(text[:_LONGEST_ROW], path=finding.file),
                "cut": "…" if len(text) > _LONGEST_ROW else "",
            }
            for row, text in zip(rows, dedented([row.text for row in rows[:_MOST_ROWS]]), strict=False)
        ]
        more = len(rows) - _MOST_ROWS
        rest = f"… {counted(more, 'more line')}" if more > 0 else ""
        shape = {"diff": " diff", "columns": 3} if around else {"diff": "", "columns": 2}
        return {"code": "code", "rows": shown, "rest": rest, **shape}

    def _around(self, finding: Finding) -> list[_Row]:
        """The lines of the finding, and a few on both sides; none when no hunk has it, or when a secret is near."""
        change = self._files.get(finding.file)
        if change is None or not finding.anchored:
            return []
        start, end = finding.first_line, max(finding.first_line, finding.last_line)
        for index, hunk in enumerate(change.hunks):
            if hunk.new_start <= start < hunk.new_start + hunk.new_lines:
                if (finding.file, index) not in self._read:
                    self._read[finding.file, index] = self._rows(hunk)
                rows = self._read[finding.file, index]
                places = [at for at, row in enumerate(rows) if row.number is not None and start <= row.number <= end]
                if not places or rows[places[0]].number != start:
                    return []
                last = places[min(len(places), _MOST_ROWS + 1) - 1]
                return [
                    row._replace(is_hit=row.number is not None and start <= row.number <= end)
                    for row in rows[max(places[0] - _AROUND, 0) : last + _AROUND + 1]
                ]
        return []

    def _rows(self, hunk: Hunk) -> list[_Row]:
        """The rows of a hunk; none when there is something to mask in them."""
        rows = [
            _Row(line.kind, line.new_number, line.text.decode("utf-8", "replace").rstrip("\r")) for line in hunk.lines()
        ]
        for is_deleted in (True, False):
            side = "\n".join(row.text for row in rows if (row.kind == "deleted") is is_deleted)
            if self._mask(side) != side:
                return []
        return rows
