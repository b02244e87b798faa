"""What of a commit is meant to be reviewed, and what it says that it is for. Pure."""

from __future__ import annotations

from codeloupe.engine.selection import Selection
from codeloupe.model.change import Change
from codeloupe.model.commit import Commit
from codeloupe.model.material import Intent


def within(selection: Selection, change: Change) -> Selection:
    """Of the files of a whole commit those that are meant: a merge may be meant only for what it changed itself."""
    meant = {file.path: file for file in change.files}
    unread = {name for name, _ in change.unreadable}
    return Selection(
        # One that is no longer binary was decoded, and its lines are not those of the bytes.
        files=tuple(
            file if meant[file.path].binary and not file.binary else meant[file.path]
            for file in selection.files
            if file.path in meant
        ),
        lock_files=tuple(file for file in selection.lock_files if file.path in meant),
        skipped=tuple(skip for skip in selection.skipped if skip.file in meant or skip.file in unread),
    )


def intent_of(commit: Commit) -> Intent:
    """What a commit says that it is for."""
    return Intent(title=commit.subject, messages=(commit.body,) if commit.body else ())
