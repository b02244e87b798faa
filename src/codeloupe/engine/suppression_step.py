"""The step of a review that suppresses findings: from what a task knows of its files to what the pure part needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from types import MappingProxyType

from msgspec.structs import replace

from codeloupe.engine.reviewed_file import TextReader
from codeloupe.engine.suppression import LinesOf, added_suppressions, apply_suppressions
from codeloupe.model.baseline import Baseline
from codeloupe.model.change import FileChange
from codeloupe.model.ports import ReviewerOutcome, ReviewTask

# Only a forged diff names a line beyond it.
_MOST_LINES = 1_000_000


def suppress(
    outcome: ReviewerOutcome,
    task: ReviewTask,
    *,
    baseline: Baseline,
    today: date,
    first_names: Mapping[str, str] = MappingProxyType({}),
) -> ReviewerOutcome:
    """The outcome with its findings suppressed where they should be, and with what is to be told about that.

    `first_names` are the fingerprints that version 0.1.0 gave to findings: a baseline may have been written by that.

    Of a change that is not trusted no comment is followed: whoever wrote it may have written them.
    """
    failed = {name for unit in outcome.units_failed for name in unit.files}
    suppressed = apply_suppressions(
        outcome.findings,
        baseline=baseline,
        lines_of=reviewed_lines(task),
        today=today,
        inline=task.trusted,
        files=task.files,
        unknown=task.without_content | outcome.unreviewed | failed,
        first_names=first_names,
    )
    errors = (*outcome.errors, *suppressed.errors, *added_suppressions(task.change.files))
    return replace(outcome, findings=suppressed.findings, errors=errors)


def reviewed_lines(task: ReviewTask) -> LinesOf:
    """What gives the lines of a reviewed file after the change; of one that is known by its diff alone, those there."""
    reader = TextReader(task)
    files = {file.new_path: file for file in task.files if file.new_path is not None}

    def lines_of(path: str) -> Sequence[str] | None:
        content = reader.read(path)
        if content is not None:
            return content.decode("utf-8", "replace").split("\n")
        return _lines_of_diff(files[path]) if path in files else None

    return lines_of


def _lines_of_diff(file: FileChange) -> list[str]:
    """The lines that the hunks of a file show, each at its place; the others are empty."""
    known = {
        line.new_number: line.text.decode("utf-8", "replace")
        for hunk in file.hunks
        for line in hunk.lines()
        if line.new_number is not None and line.new_number <= _MOST_LINES
    }
    return [known.get(number, "") for number in range(1, max(known, default=0) + 1)]
