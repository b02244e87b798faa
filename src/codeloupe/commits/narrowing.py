"""What of a commit is meant to be reviewed, and what it says that it is for. Pure."""

from __future__ import annotations

from codeloupe.engine.select import Selection
from codeloupe.model.change import Change, Commit, FileChange, Intent


def within(selection: Selection, change: Change) -> Selection:
    """Of the files of a whole commit those that are meant: a merge may be meant only for what it changed itself."""
    meant = {file.path: file for file in change.files}
    unread = {name for name, _ in change.unreadable}
    return Selection(
        files=tuple(
            file if _is_shown_otherwise(file, meant[file.path]) else meant[file.path]
            for file in selection.files
            if file.path in meant
        ),
        lock_files=tuple(file for file in selection.lock_files if file.path in meant),
        skipped=tuple(skip for skip in selection.skipped if skip.file in meant or skip.file in unread),
    )


def _is_shown_otherwise(file: FileChange, meant: FileChange) -> bool:
    """Whether its lines may not be those of git's diff: it was decoded, or is read whole for its new name or mode."""
    was_decoded = meant.binary and not file.binary
    return was_decoded or (file.old_path or file.path) != file.path or file.old_mode != file.new_mode


def intent_of(commit: Commit) -> Intent:
    """What a commit says that it is for."""
    return Intent(title=commit.subject, messages=(commit.body,) if commit.body else ())
