"""From what an external reviewer claims to findings on lines of the reviewed files.

Linters and gates name lines and quote nothing. Such a claim is taken at its word when the file has that line.
"""

from __future__ import annotations

from collections.abc import Iterable

from codeloupe.engine.anchor import Anchorer, Origin
from codeloupe.engine.reviewed_file import TextReader
from codeloupe.engine.stated_lines import StatedLines
from codeloupe.model.answer import ClaimedFinding
from codeloupe.model.finding import Finding, Source
from codeloupe.model.ports import ReviewTask
from codeloupe.system.redaction import redact


def place(claims: Iterable[ClaimedFinding], task: ReviewTask, *, reviewer: str) -> tuple[Finding, ...]:
    """The claims as findings, in their order. One whose place cannot be found is kept and says so."""
    text = TextReader(task)
    anchorer = Anchorer(task.files, text.read, mask=redact)
    lines = StatedLines(task, text, mask=redact, only_shown=False)
    unit_files = tuple(file.path for file in task.files)
    return tuple(
        lines.believe(
            claim,
            anchorer.place(
                claim, Origin(reviewer=_name(reviewer, claim), source=Source.EXTERNAL), unit_files=unit_files
            ),
        )
        for claim in claims
    )


def _name(reviewer: str, claim: ClaimedFinding) -> str:
    return f"{reviewer}/{claim.reviewer}" if claim.reviewer else reviewer
