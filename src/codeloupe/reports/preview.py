"""A preview as JSON: every file, its hunks, whether a review would look at it and why not."""

from __future__ import annotations

import json
from typing import Any

from rich.text import Text

from codeloupe.model.change import FileChange, FileStatus
from codeloupe.model.review import Preview, PreviewFile, SkippedFile, SkipReason
from codeloupe.reports.page import BOLD, DIM, NARROWEST, Page, print_lines
from codeloupe.reports.wording import counted
from codeloupe.system.untrusted import json_document


def render_preview_json(preview: Preview) -> str:
    """The preview as a JSON document: valid and encodable as UTF-8 whatever the paths hold, a newline at the end."""
    data = {
        "files": [_file_data(file) for file in preview.files],
        "out_of_reach": [
            {"file": skip.file, "reason": skip.reason.value, "detail": skip.detail} for skip in preview.out_of_reach
        ],
        "units": preview.units,
        "prompt_tokens_estimate": preview.prompt_tokens_estimate,
    }
    return json_document(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)) + "\n"


def _file_data(file: PreviewFile) -> dict[str, Any]:
    change, skipped = file.change, file.skipped
    # git counts no lines of a binary file; those of the patch are only there to find code that hides behind a NUL.
    opaque = skipped is not None and skipped.reason is SkipReason.BINARY
    return {
        "old_path": change.old_path,
        "new_path": change.new_path,
        "status": change.status.value,
        "binary": change.binary,
        "added": 0 if opaque else change.added,
        "deleted": 0 if opaque else change.deleted,
        "hunks": [
            {
                "old_start": hunk.old_start,
                "old_lines": hunk.old_lines,
                "new_start": hunk.new_start,
                "new_lines": hunk.new_lines,
            }
            for hunk in (() if opaque else change.hunks)
        ],
        "reviewed": file.reviewed,
        "reason": skipped.reason.value if skipped else None,
        "detail": skipped.detail if skipped else "",
    }


_LETTERS = {
    FileStatus.ADDED: ("A", "green"),
    FileStatus.MODIFIED: ("M", "yellow"),
    FileStatus.DELETED: ("D", "red"),
    FileStatus.RENAMED: ("R", "cyan"),
    FileStatus.COPIED: ("C", "cyan"),
    FileStatus.TYPE_CHANGED: ("T", "yellow"),
}


def render_preview_text(preview: Preview, *, width: int, color: bool, ascii_only: bool = False) -> str:
    """The preview for a person: the files that would be reviewed, the others with the reason, the totals."""
    page = Page(width=max(width, NARROWEST), color=color, ascii_only=ascii_only)
    reviewed = [file for file in preview.files if file.reviewed]
    left_out = [file for file in preview.files if not file.reviewed]
    unknown = [_row_without_change(page, skip) for skip in preview.out_of_reach]
    lines = [
        *page.wrap(Text.assemble(("Preview", BOLD), f": {page.clean(preview.scope.description)}")),
        *_section("Would be reviewed", [_row(page, file) for file in reviewed]),
        *_section("Would be left out", [*(_row(page, file) for file in left_out), *unknown]),
        Text(""),
        *_totals(page, preview, reviewed),
    ]
    return print_lines(page, lines)


def _section(title: str, files: list[list[Text]]) -> list[Text]:
    if not files:
        return []
    rows = [line for file in files for line in file]
    return [Text(""), Text.assemble((title, BOLD), (f"  {counted(len(files), 'file', 'files')}", DIM)), *rows]


def _row(page: Page, file: PreviewFile) -> list[Text]:
    change = file.change
    letter, style = _LETTERS[change.status]
    shown = Text(page.clean(change.path))
    if change.status in (FileStatus.RENAMED, FileStatus.COPIED) and change.old_path:
        shown.append(f" from {page.clean(change.old_path)}", style=DIM)
    shown.append_text(_counts(change))
    if file.skipped:
        shown.append_text(_reason(page, file.skipped))
    return page.wrap(shown, indent=4, hang=2, first=Text.assemble("  ", (letter, style), " "))


def _row_without_change(page: Page, skip: SkippedFile) -> list[Text]:
    shown = Text(page.clean(skip.file)).append_text(_reason(page, skip))
    return page.wrap(shown, indent=4, hang=2, first=Text.assemble("  ", ("?", "yellow"), " "))


def _reason(page: Page, skip: SkippedFile) -> Text:
    return Text(f"  {page.clean(skip.in_words())}", style="yellow" if skip.is_gap else DIM)


def _counts(change: FileChange) -> Text:
    if change.binary:
        return Text("")
    return Text.assemble("  ", (f"+{change.added:,}", "green"), " ", (f"-{change.deleted:,}", "red"))


def _totals(page: Page, preview: Preview, reviewed: list[PreviewFile]) -> list[Text]:
    total = len(preview.files) + len(preview.out_of_reach)
    if not total:
        return page.wrap(Text("No changes to review. Nothing was run or spent."))
    added = sum(file.change.added for file in reviewed)
    deleted = sum(file.change.deleted for file in reviewed)
    parts = [
        f"{len(reviewed):,} of {counted(total, 'file', 'files')} would be reviewed",
        f"+{added:,} -{deleted:,} lines",
        f"{counted(preview.units, 'unit', 'units')}" if preview.units else "",
        f"about {preview.prompt_tokens_estimate:,} prompt tokens" if preview.prompt_tokens_estimate else "",
    ]
    totals = Text.assemble((", ".join(part for part in parts if part), BOLD), ". Nothing was run or spent.")
    return [*page.wrap(totals), *_about_effort(page, preview)]


def _about_effort(page: Page, preview: Preview) -> list[Text]:
    """What makes units fewer or more is worth knowing when there are several."""
    if preview.units <= 1:
        return []
    words = "An agent is asked once a unit; --effort low makes fewer units, high more, which find and cost more."
    return page.wrap(Text(words, style=DIM))
