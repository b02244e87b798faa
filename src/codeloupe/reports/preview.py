"""A preview: every file or folder, whether it would be reviewed and why not, by whom, and the likely cost."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from codeloupe.model.change import FileStatus
from codeloupe.model.review import CostEstimate, Preview, PreviewFile, SkippedFile, SkipReason
from codeloupe.reports import Layout
from codeloupe.reports.json_v1 import fields_of, json_text
from codeloupe.reports.page import BOLD, DIM, Page, Part, Text, page_of
from codeloupe.reports.text import other_scopes
from codeloupe.reports.wording import counted, dollars, reviewer_text

_LETTERS = dict(zip(FileStatus, "AMDRCT", strict=True))
_COLORS = dict(zip(FileStatus, ("green", "yellow", "red", "cyan", "cyan", "yellow"), strict=True))

# More files than this are summed up by folder, in at most so many lines.
_MOST_FILES = 40
_MOST_FOLDERS = 20


def render_preview_json(preview: Preview) -> str:
    """The preview as a JSON document: valid and encodable as UTF-8 whatever the paths hold, a newline at the end."""
    return json_text(
        {
            "files": [_file_data(file) for file in preview.files],
            "out_of_reach": [fields_of(skip, "file reason detail") for skip in preview.out_of_reach],
            "reviewers": [fields_of(reviewer, "type model why") for reviewer in preview.reviewers],
            **fields_of(preview, "units calls prompt_tokens_estimate"),
            "cost_usd_estimate": preview.cost.usd,
            "cost_basis": preview.cost.basis,
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
    """Return the preview for a person: reviewers, files or folders, skipped ones with the reason, and the totals."""
    page = page_of(layout)
    reviewed = [file for file in preview.files if file.reviewed]
    lines = page.wrap(Text(("Preview", BOLD), f": {page.clean(preview.scope.description)}"))
    lines += _section(page, "Would be reviewed", reviewed)
    lines += _section(page, "Would be skipped", _skipped(preview))
    return page.printed([*lines, Text(), *_totals(page, preview, reviewed)])


_Entry = PreviewFile | SkippedFile


def _skipped(preview: Preview) -> list[_Entry]:
    """Return the files that would not be reviewed; those that leave a gap come first."""
    left_out = [file for file in preview.files if not file.reviewed]
    skipped: list[_Entry] = [*left_out, *preview.out_of_reach]
    return sorted(skipped, key=lambda entry: not _skip_of(entry).is_gap)


def _skip_of(entry: _Entry) -> SkippedFile:
    """Return why a file is skipped. Raise ValueError for one that is not."""
    skip = entry if isinstance(entry, SkippedFile) else entry.skipped
    if skip is None:
        raise ValueError("this file would be reviewed")
    return skip


def _section(page: Page, title: str, entries: Sequence[_Entry]) -> list[Text]:
    """Return a heading and a line for each file; many files are summed up by folder, unless all are wanted."""
    if not entries:
        return []
    lines = [Text(), Text((title, BOLD), (f"  {counted(len(entries), 'file')}", DIM))]
    if page.verbose or len(entries) <= _MOST_FILES:
        for entry in entries:
            lines += _line(page, entry)
        return lines
    gaps = [entry for entry in entries if _is_gap(entry)]
    for entry in gaps[:_MOST_FILES]:
        lines += _line(page, entry)
    rest = [entry for entry in entries if not _is_gap(entry)] + gaps[_MOST_FILES:]
    return [*lines, *_folders(page, rest)]


def _is_gap(entry: _Entry) -> bool:
    skip = entry if isinstance(entry, SkippedFile) else entry.skipped
    return skip is not None and skip.is_gap


def _path(entry: _Entry) -> str:
    return entry.file if isinstance(entry, SkippedFile) else entry.change.path


def _folders(page: Page, entries: Sequence[_Entry]) -> list[Text]:
    """Return a line for each folder with files, the largest first, as deep as there is room for."""
    deepest = max((_path(entry).count("/") for entry in entries), default=0)
    groups: dict[str, list[_Entry]] = {}
    for depth in range(deepest, -1, -1):
        groups = defaultdict(list)
        for entry in entries:
            groups[_folder(_path(entry), max(depth, 1))].append(entry)
        if len(groups) <= _MOST_FOLDERS:
            break
    largest_first = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
    lines: list[Text] = []
    for folder, files in largest_first[:_MOST_FOLDERS]:
        parts: list[Part] = [page.clean(folder), (f"  {counted(len(files), 'file')}", DIM), *_sums(files)]
        lines += page.item(page.sign("·"), DIM, Text(*parts))
    more = len(largest_first) - _MOST_FOLDERS
    if more > 0:
        lines += page.item(page.sign("…"), DIM, f"and {counted(more, 'more folder')}")
    return [*lines, *page.wrap(("-v lists every file", DIM), indent=4)]


def _folder(path: str, depth: int) -> str:
    """Return the folder of a file, at most so many levels deep; `./` for a file at the root."""
    folders = path.rstrip("/").split("/")[:-1][:depth]
    return "".join(f"{name}/" for name in folders) or "./"


def _sums(entries: Sequence[_Entry]) -> list[Part]:
    """Return the changed lines of some files, or why they are skipped."""
    reasons = Counter[str]()
    added = 0
    deleted = 0
    for entry in entries:
        if isinstance(entry, PreviewFile) and entry.reviewed:
            added += entry.change.added
            deleted += entry.change.deleted
        else:
            reasons[_skip_of(entry).reason.value] += 1
    if not reasons:
        return ["  ", (f"+{added:,}", "green"), " ", (f"-{deleted:,}", "red")]
    if len(reasons) == 1:
        return [(f"  {next(iter(reasons))}", DIM)]
    return [("  " + ", ".join(f"{count:,} {reason}" for reason, count in reasons.most_common()), DIM)]


def _line(page: Page, entry: _Entry) -> list[Text]:
    if isinstance(entry, SkippedFile):
        return page.item("?", "yellow", Text(page.clean(entry.file), _why(page, entry)))
    return _row(page, entry)


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
    """Return how much would be reviewed, by whom and why, and the likely calls, tokens and cost."""
    total = len(preview.files) + len(preview.out_of_reach)
    if not total:
        return [*page.wrap("No changes to review. Nothing was run or spent."), *other_scopes(page, preview.scope)]
    added = sum(file.change.added for file in reviewed)
    deleted = sum(file.change.deleted for file in reviewed)
    lines = page.wrap(Text((f"{len(reviewed):,} of {counted(total, 'file')} would be reviewed", BOLD), "."))
    rows: dict[str, Part] = {"Lines": f"+{added:,} -{deleted:,}"}
    if preview.reviewers:
        rows["Reviewer"] = page.clean("; ".join(map(reviewer_text, preview.reviewers)))
    if preview.units:
        calls = f"{counted(preview.calls, 'call')} for {counted(preview.units, 'unit')}"
        rows["Calls"] = f"{calls}; verification and follow-up questions are extra"
        rows["Tokens"] = f"about {preview.prompt_tokens_estimate:,} in the prompts"
    rows["Cost"] = page.clean(_cost_text(preview.cost))
    lines += page.rows(rows)
    if preview.units:
        less = "Code that an earlier review covered is not sent again, so it may be less."
        lines += page.wrap((less, DIM))
    if preview.units > 1:
        words = "--effort low makes fewer units, and high makes more, which find more and cost more."
        lines += page.wrap((words, DIM))
    return [*lines, *page.wrap("Nothing was run or spent.")]


def _cost_text(cost: CostEstimate) -> str:
    """Return the likely cost and where it comes from, or why it is not known."""
    if cost.usd is None:
        return f"not known: {cost.basis}" if cost.basis else "not known"
    if not cost.usd:
        return f"nothing: {cost.basis}"
    return f"about {dollars(cost.usd)} {cost.basis}"
