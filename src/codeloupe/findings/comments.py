"""Comments in the code that suppress findings: `codeloupe: ignore[category] reason`.

A comment is on the finding's line or right above it. In the brackets are categories, rules or experts, separated by
commas; without brackets it applies to any finding. A reason is required. A comment that shares its line with code
applies to that line alone. In an untrusted change comments are ignored.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from codeloupe.model.change import FileChange
from codeloupe.model.finding import Finding
from codeloupe.model.ports import Plan
from codeloupe.model.review import Level, ReviewError
from codeloupe.source.code import comments_in, has_letters, syntax_of
from codeloupe.source.files import TextReader
from codeloupe.system.regex import regex

LinesOf = Callable[[str], Sequence[str] | None]
_MARK = regex(r"codeloupe:[ \t]{0,20}ignore(?![\w-])[ \t]{0,20}(?:\[([^\]]{0,400})(\]?))?", re.IGNORECASE)
_SEPARATORS = regex(r"[\s_-]+")
_AROUND_REASON = " \t\r:,;.-–—#/*"
_LONGEST_REASON = 500
# In a longer finding a comment in the middle is more likely about something smaller.
_MOST_LINES = 10
_MOST_LINES_ABOVE = 10
_MOST_LISTED = 10


class Mark(NamedTuple):
    """A comment that suppresses findings: any if `names` is None; `reason` is empty if it gives none."""

    file: str
    line: int
    names: tuple[str, ...] | None
    reason: str

    @property
    def is_valid(self) -> bool:
        """Tell whether it gives a reason, and names something between its brackets."""
        return bool(self.reason) and self.names != ()

    def applies_to(self, finding: Finding) -> bool:
        """Tell whether it names the category, rule or expert of each claim that is not refuted and has not ended."""
        if self.names is None:
            return True
        names = {_plain(name) for name in self.names}
        for claim in finding.claims:
            words = {_plain(word) for word in (claim.category, claim.rule, claim.expert) if word}
            is_active = claim.is_active
            if is_active and names.isdisjoint(words):
                return False
        return True


class Comments:
    """The comments near findings, and what became of each."""

    def __init__(self, lines_of: LinesOf, *, trusted: bool) -> None:
        self._lines_of = lines_of
        self._trusted = trusted
        self._near: defaultdict[tuple[str, int, str], list[Finding]] = defaultdict(list)
        self._effective: set[Mark] = set()

    def mark_for(self, finding: Finding) -> Mark | None:
        """Return the comment that suppresses a finding, the nearest one first; none in an untrusted change."""
        fitting: list[Mark] = []
        for number, line in self._lines_near(finding):
            if _MARK.search(line):
                self._near[finding.file, number, line].append(finding)
                marks = marks_in(finding.file, number, line)
                fitting += [mark for mark in marks if mark.is_valid and mark.applies_to(finding)]
        self._effective.update(fitting)
        if not fitting or not self._trusted:
            return None
        return fitting[0]

    def _lines_near(self, finding: Finding) -> Iterator[tuple[int, str]]:
        """Yield the lines whose comments apply to a finding: its own, and the comments right above it."""
        lines = self._lines_of(finding.file) or ()
        first = finding.first_line
        last = min(finding.last_line, len(lines))
        if not finding.anchored or not 1 <= first <= last:
            return
        numbers: Sequence[int] = range(first, last + 1)
        if last - first >= _MOST_LINES:
            numbers = (first, last)
        for number in numbers:
            yield number, lines[number - 1]
        for number in range(first - 1, max(first - 1 - _MOST_LINES_ABOVE, 0), -1):
            comments = list(comments_in(lines[number - 1], syntax_of(finding.file)))
            is_only_comment = bool(comments) and comments[-1][1]
            if not is_only_comment:
                return
            yield number, lines[number - 1]

    def errors(self) -> Iterator[ReviewError]:
        """Report each comment that does not do what its author wanted."""
        if not self._trusted:
            yield from self._ignored()
            return
        for (path, number, line), findings in sorted(self._near.items(), key=lambda item: item[0]):
            marks = marks_in(path, number, line)
            if not marks:
                message = f"`codeloupe: ignore` at {path}:{number} is not in a comment, so it suppresses nothing"
                yield ReviewError("ignore_outside_comment", message, level=Level.NOTE)
            for mark in marks:
                yield from self._problem(mark, findings)

    def _problem(self, mark: Mark, findings: Sequence[Finding]) -> Iterator[ReviewError]:
        names = "" if mark.names is None else f"[{', '.join(mark.names)}]"
        comment = f"the comment `codeloupe: ignore{names}` at {mark.file}:{mark.line}"
        if mark.names == ():
            message = f"{comment} names nothing between its brackets, so it suppresses nothing"
            yield ReviewError("ignore_without_reason", message, level=Level.NOTE)
        elif not mark.reason:
            message = f"{comment} gives no reason, so it suppresses nothing"
            yield ReviewError("ignore_without_reason", message, level=Level.NOTE)
        elif mark not in self._effective:
            kinds = dict.fromkeys(f"{one.category} {one.rule or ''}".strip() for one in findings)
            message = f"{comment} matches none of the findings there ({', '.join(kinds)})"
            yield ReviewError("ignore_unused", message, level=Level.NOTE)

    def _ignored(self) -> Iterator[ReviewError]:
        if not self._effective:
            return
        places = [f"{file}:{line}" for file, line in sorted((mark.file, mark.line) for mark in self._effective)]
        what = "1 comment that suppresses a finding was"
        if len(places) > 1:
            what = f"{len(places):,} comments that suppress findings were"
        message = f"{what} not followed, because the change is not trusted ({listed(places)})"
        yield ReviewError("ignores_not_followed", message, level=Level.NOTE)


def marks_in(file: str, number: int, line: str) -> list[Mark]:
    """Return the suppressions in the comments of one line."""
    if "codeloupe:" not in line.lower():
        return []
    marks: list[Mark] = []
    for comment, _ in comments_in(line, syntax_of(file)):
        found = list(_MARK.finditer(comment))
        if not found:
            continue
        ends = [*(mark.start() for mark in found[1:]), len(comment)]
        for mark, end in zip(found, ends, strict=True):
            reason = comment[mark.end() : end].strip(_AROUND_REASON)[:_LONGEST_REASON]
            if not has_letters(reason):
                reason = ""
            names: tuple[str, ...] | None = None
            if mark[1] is not None:
                words = [part.strip() for part in mark[1].split(",")]
                # Brackets that are not closed name nothing.
                names = tuple(word for word in words if word and mark[2])
            marks.append(Mark(file, number, names, reason))
    return marks


def lines_reader(plan: Plan) -> LinesOf:
    """Return a function that reads the lines of a reviewed file; of a file known by its diff the others are empty."""
    reader = TextReader(plan)
    files = {file.new_path: file for file in plan.files if file.new_path is not None}

    @cache
    def lines_of(path: str) -> Sequence[str] | None:
        content = reader.read(path)
        if content is None and path in files:
            content = _shown_lines(files[path])
        return None if content is None else content.decode("utf-8", "replace").split("\n")

    return lines_of


def _shown_lines(file: FileChange) -> bytes:
    known: dict[int, bytes] = {}
    for hunk in file.hunks:
        for line in hunk.lines():
            # Only a forged diff names a line beyond a million.
            if line.new_number is not None and line.new_number <= 1_000_000:
                known[line.new_number] = line.text
    return b"\n".join(known.get(number, b"") for number in range(1, max(known, default=0) + 1))


def listed(places: Sequence[str]) -> str:
    """Return the first places, and how many more there are."""
    more = f" and {len(places) - _MOST_LISTED:,} more" if len(places) > _MOST_LISTED else ""
    return f"{', '.join(places[:_MOST_LISTED])}{more}"


def _plain(name: str) -> str:
    return _SEPARATORS.sub("_", name.strip().casefold())
