"""The code of a finding as a table: the lines of the diff around it when they are known, or else the quote alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import PurePosixPath

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.model.change import Hunk, LineKind
from codeloupe.model.finding import Finding
from codeloupe.reports import ShownDiff
from codeloupe.reports.markup import Child, Html, element, joined
from codeloupe.reports.wording import counted

_HASH_COMMENTS = frozenset(
    {".py", ".sh", ".bash", ".rb", ".yml", ".yaml", ".toml", ".pl", ".r", ".tf", ".cfg", ".ini", ".mk", ".conf", ""}
)
_DASH_COMMENTS = frozenset({".sql", ".lua", ".hs"})
_KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        """
    and as assert async await begin bool boolean break case catch char class const constexpr continue crate def default
    defer del delete do done double elif else elsif end enum esac except export extends false False fi final finally
    float fn for foreach from func function global go goto if impl implements import in include instanceof int interface
    is lambda let long loop match mod module mut namespace new nil None nonlocal not null nullptr of or override package
    pass private protected pub public raise return self short signed sizeof static string struct super switch template
    then this throw throws trait true True try type typedef typeof union unless unsafe unsigned until use using var
    virtual void volatile when where while with yield
    """,
    )
)
_TOKENS = r"""
    (?P<string>"(?:[^"\\]|\\.){0,300}"|'(?:[^'\\]|\\.){0,300}'|`[^`]{0,300}`)
    |(?P<number>\b(?:0[xXbBoO][0-9a-fA-F_]{1,40}|[0-9][0-9_]{0,40}(?:\.[0-9]{1,40})?)\b)
    |(?P<word>[^\W\d]\w*)
"""
_SLASH = r"|(?P<comment>//.*|/\*.*)"
_HASH = r"|(?P<comment>(?<![^\s;])\#.*)"
_DASH = r"|(?P<comment>--.*)"


def highlighted(line: str, *, path: str) -> Html:
    """One line of code as markup."""
    pieces: list[Child] = []
    at = 0
    for match in _pattern(_comments(path)).finditer(line):
        kind = match.lastgroup
        if kind == "word" and match[0] not in _KEYWORDS:
            continue
        pieces += [line[at : match.start()], element("span", match[0], class_=_CLASSES[kind or "word"])]
        at = match.end()
    return joined([*pieces, line[at:]])


_CLASSES = {"string": "s", "number": "n", "word": "k", "comment": "c"}


def _comments(path: str) -> str:
    suffix = PurePosixPath(path).suffix.lower()
    if suffix in _HASH_COMMENTS:
        return _HASH
    return _DASH if suffix in _DASH_COMMENTS else _SLASH


@cache
def _pattern(comments: str) -> re.Pattern[str]:
    return re.compile(_TOKENS + comments, re.VERBOSE)


_AROUND = 4
_MOST_ROWS = 40
_LONGEST_ROW = 1_000
_TAB_CELLS = 4
_SIGNS: dict[LineKind, str] = {"context": "", "added": "+", "deleted": "-"}


class _Row(Struct, frozen=True):
    kind: LineKind
    number: int | None
    text: str
    hit: bool = False


class Excerpts:
    """Shows findings in their code. What is read of the change is read once, however many findings it has."""

    def __init__(self, diff: ShownDiff | None) -> None:
        self._files = {} if diff is None else diff.files
        self._mask = str if diff is None else diff.mask
        self._read: dict[tuple[str, int], _HunkRows] = {}

    def table(self, finding: Finding) -> Html | None:
        """The annotated lines; None when nothing was quoted."""
        around = self._around(finding)
        rows = around or _quoted_rows(finding)
        if not rows:
            return None
        shown = [_row(row, finding.file, with_sign=bool(around)) for row in _dedented(rows[:_MOST_ROWS])]
        if len(rows) > _MOST_ROWS:
            rest = f"… {counted(len(rows) - _MOST_ROWS, 'more line', 'more lines')}"
            shown.append(element("tr", element("td", colspan=3 if around else 2, class_="rest", data_note=rest)))
        table = element("table", element("tbody", joined(shown)), class_="code diff" if around else "code")
        return element("div", table, class_="excerpt", tabindex=0, role="group", aria_label="Code")

    def _around(self, finding: Finding) -> list[_Row]:
        """The lines of the hunk around the finding; none when it is not in one, or when a secret is near."""
        change = self._files.get(finding.file)
        if change is None or not finding.anchored:
            return []
        for index, hunk in enumerate(change.hunks):
            if hunk.new_start <= finding.first_line < hunk.new_start + hunk.new_lines:
                rows = self._read.get((finding.file, index)) or _HunkRows.of(hunk, self._mask)
                self._read[finding.file, index] = rows
                return rows.around(finding.first_line, max(finding.first_line, finding.last_line))
        return []


class _HunkRows(Struct, frozen=True):
    """The rows of a hunk, and where each line of the new file is among them."""

    rows: tuple[_Row, ...]
    places: Mapping[int, int]

    @classmethod
    def of(cls, hunk: Hunk, mask: Callable[[str], str]) -> _HunkRows:
        """Without any row when there is something to mask in them."""
        rows = tuple(
            _Row(line.kind, line.new_number, line.text.decode("utf-8", "replace").rstrip("\r")) for line in hunk.lines()
        )
        for is_deleted in (True, False):
            side = "\n".join(row.text for row in rows if (row.kind == "deleted") is is_deleted)
            if mask(side) != side:
                return cls((), {})
        return cls(rows, {row.number: index for index, row in enumerate(rows) if row.number is not None})

    def around(self, start: int, end: int) -> list[_Row]:
        """Lines `start` to `end`, as far as they are here, and a few on both sides."""
        first = self.places.get(start)
        if first is None:
            return []
        reach = min(end, start + _MOST_ROWS)
        last = max(self.places.get(number, first) for number in range(start, reach + 1))
        return [
            replace(row, hit=row.number is not None and start <= row.number <= end)
            for row in self.rows[max(first - _AROUND, 0) : last + _AROUND + 1]
        ]


def _row(row: _Row, path: str, *, with_sign: bool) -> Html:
    cut = "…" if len(row.text) > _LONGEST_ROW else None
    classes = " ".join(word for word in (row.kind if with_sign else "", "hit" if row.hit else "") if word)
    # Numbers and signs are drawn from attributes, so that only code is copied.
    return element(
        "tr",
        element("td", class_="number", data_note="" if row.number is None else str(row.number)),
        element("td", class_="sign", data_note=_SIGNS[row.kind]) if with_sign else None,
        element("td", highlighted(row.text[:_LONGEST_ROW], path=path), cut, class_="line"),
        class_=classes or None,
    )


def _dedented(rows: Sequence[_Row]) -> list[_Row]:
    """Tabs as spaces, and without the indentation that all rows share: a phone has no room for it."""
    expanded = [replace(row, text=row.text.expandtabs(_TAB_CELLS)) for row in rows]
    indents = [len(row.text) - len(row.text.lstrip(" ")) for row in expanded if row.text.strip(" ")]
    common = min(indents, default=0)
    return [replace(row, text=row.text[common:]) for row in expanded]


def _quoted_rows(finding: Finding) -> list[_Row]:
    if not finding.evidence.strip():
        return []
    lines = finding.evidence.rstrip("\n").split("\n")
    placed = finding.first_line > 0
    return [
        _Row("context", finding.first_line + offset if placed else None, line.rstrip("\r"), hit=placed)
        for offset, line in enumerate(lines)
    ]
