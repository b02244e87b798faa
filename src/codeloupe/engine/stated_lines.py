"""Claims that name a line and quote nothing: what stands on that line becomes their evidence.

Linters and gates never quote, and the forms of answer that many models know have no room for a quote.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from msgspec.structs import replace

from codeloupe.engine.reviewed_file import TextReader, WholeLines
from codeloupe.model.answer import ClaimedFinding
from codeloupe.model.change import FileChange
from codeloupe.model.finding import Finding
from codeloupe.model.ports import ReviewTask

_EVIDENCE_LINES = 10
_LONGEST_RANGE = 1_000
_EVIDENCE_CHARACTERS = 4_000


class StatedLines:
    """The lines of the reviewed files by their numbers, as far as they are known.

    `mask` takes secrets out of evidence. With `only_shown` a line counts where the diff shows it and nowhere else: a
    model that quotes nothing may know the number of a line that it saw, and guesses any other.
    """

    def __init__(self, task: ReviewTask, text: TextReader, *, mask: Callable[[str], str], only_shown: bool) -> None:
        self._changes = {file.path: file for file in task.files}
        self._text = text
        self._mask = mask
        self._only_shown = only_shown
        # Few are kept, since a claim can name any file of the tree, and one may be large.
        self._of = lru_cache(maxsize=4)(self._read)

    def believe(self, claim: ClaimedFinding, finding: Finding) -> Finding:
        """The finding on the line that the claim names, when nothing but a quote is missing for that."""
        if finding.anchored or claim.evidence.strip() or claim.line_start is None:
            return finding
        line, start = self._of(finding.file), claim.line_start
        if line(start) is None:
            return finding
        end, stated = start, min(claim.line_end or start, start + _LONGEST_RANGE)
        while end < stated and line(end + 1) is not None:
            end += 1
        is_shown = _is_shown(self._changes.get(finding.file), start, end)
        if self._only_shown and not is_shown:
            return finding
        shown = (line(number) or b"" for number in range(start, min(end, start + _EVIDENCE_LINES - 1) + 1))
        quote = "\n".join(text.decode("utf-8", "replace").removesuffix("\r") for text in shown)
        return replace(
            finding,
            line_start=start,
            line_end=end,
            evidence=self._mask(quote)[:_EVIDENCE_CHARACTERS],
            anchored=True,
            outside_change=not is_shown,
        )

    def _read(self, path: str) -> Callable[[int], bytes | None]:
        """What gives a line of a file by its number, or None where there is none."""
        content = self._text.read(path)
        if content is None:
            return _lines_of_diff(self._changes.get(path)).get
        lines = WholeLines(content)
        return lambda number: lines.text(number - 1) if 1 <= number <= lines.count else None


def _lines_of_diff(change: FileChange | None) -> dict[int, bytes]:
    """The lines of a file of which only the diff is known."""
    if change is None or change.new_path is None:
        return {}
    lines = (line for hunk in change.hunks for line in hunk.lines())
    return {line.new_number: line.text for line in lines if line.new_number is not None}


def _is_shown(change: FileChange | None, start: int, end: int) -> bool:
    """Whether the diff shows one of the lines."""
    return change is not None and any(
        hunk.new_start <= end and start < hunk.new_start + hunk.new_lines for hunk in change.hunks
    )
