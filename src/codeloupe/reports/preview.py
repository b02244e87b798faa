"""A preview: every file, whether a review would look at it and why not."""

from __future__ import annotations

from typing import Any

from codeloupe.model.change import FileStatus
from codeloupe.model.review import Preview, PreviewFile, SkippedFile, SkipReason
from codeloupe.reports import Layout
from codeloupe.reports.json_v1 import fields_of, json_text
from codeloupe.reports.page import BOLD, DIM, Page, Part, Text, page_of
from codeloupe.reports.text import other_scopes
from codeloupe.reports.wording import counted

_LETTERS = dict(zip(FileStatus, "AMDRCT", strict=True))
_COLORS = dict(zip(FileStatus, ("green", "yellow", "red", "cyan", "cyan", "yellow"), strict=True))


def render_preview_json(preview: Preview) -> str:
    """The preview as a JSON document: valid and encodable as UTF-8 whatever the paths hold, a newline at the end."""
    return json_text(
        {
            "files": [_file_data(file) for file in preview.files],
            "out_of_reach": [fields_of(skip, "file reason detail") for skip in preview.out_of_reach],
            **fields_of(preview, "units prompt_tokens_estimate"),
        }
    )


def _file_data(file: PreviewFile) -> dict[str, Any]:
    change, skipped = file.change, file.skipped
    # git counts no lines of a binary file; those of the patch are only there to find code that hides after a NUL.
    opaque = skipped is not None and skipped.reason is SkipReason.BINARY
    hunks = () if opaque else change.hunks
    return {
        **fields_of(change, "old_path new_path status binary"),
        **({"added": 0, "deleted": 0} if opaque else fields_of(change, "added deleted")),
        "hunks": [fields_of(hunk, "old_start old_lines new_start new_lines") for hunk in hunks],
        "reviewed": file.reviewed,
        **(fields_of(skipped, "reason detail") if skipped else {"reason": None, "detail": ""}),
    }


def render_preview_text(preview: Preview, layout: Layout) -> str:
    """The preview for a person: the files that would be reviewed, the others with the reason, the totals."""
    page = page_of(layout)
    reviewed = [file for file in preview.files if file.reviewed]
    left_out = [_row(page, file) for file in preview.files if not file.reviewed]
    left_out += [page.item("?", "yellow", Text(page.clean(one.file), _why(page, one))) for one in preview.out_of_reach]
    lines = page.wrap(Text(("Preview", BOLD), f": {page.clean(preview.scope.description)}"))
    groups = {"Would be reviewed": [_row(page, file) for file in reviewed], "Would be left out": left_out}
    for title, files in groups.items():
        if files:
            note = (f"  {counted(len(files), 'file')}", DIM)
            lines += [Text(), Text((title, BOLD), note), *(line for file in files for line in file)]
    return page.printed([*lines, Text(), *_totals(page, preview, reviewed)])


def _row(page: Page, file: PreviewFile) -> list[Text]:
    change = file.change
    parts: list[Part] = [page.clean(change.path)]
    if change.status in (FileStatus.RENAMED, FileStatus.COPIED) and change.old_path:
        parts.append((f" from {page.clean(change.old_path)}", DIM))
    if not change.binary:
        parts += ["  ", (f"+{change.added:,}", "green"), " ", (f"-{change.deleted:,}", "red")]
    if file.skipped:
        parts.append(_why(page, file.skipped))
    return page.item(_LETTERS[change.status], _COLORS[change.status], Text(*parts))


def _why(page: Page, skip: SkippedFile) -> Part:
    return f"  {page.clean(skip.describe())}", "yellow" if skip.is_gap else DIM


def _totals(page: Page, preview: Preview, reviewed: list[PreviewFile]) -> list[Text]:
    total = len(preview.files) + len(preview.out_of_reach)
    if not total:
        return [*page.wrap("No changes to review. Nothing was run or spent."), *other_scopes(page, preview.scope)]
    added, deleted = (sum(getattr(file.change, name) for file in reviewed) for name in ("added", "deleted"))
    parts = [
        f"{len(reviewed):,} of {counted(total, 'file')} would be reviewed",
        f"+{added:,} -{deleted:,} lines",
        counted(preview.units, "unit") if preview.units else "",
        f"about {preview.prompt_tokens_estimate:,} prompt tokens" if preview.prompt_tokens_estimate else "",
    ]
    lines = page.wrap(Text((", ".join(filter(None, parts)), BOLD), ". Nothing was run or spent."))
    if preview.units > 1:
        words = "An agent is asked once a unit; --effort low makes fewer units, high more, which find and cost more."
        lines += page.wrap((words, DIM))
    return lines
