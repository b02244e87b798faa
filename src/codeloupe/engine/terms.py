"""What the settings mean for a review: which files are looked at, and what decides the exit code."""

from __future__ import annotations

from codeloupe.config.schema import Settings
from codeloupe.engine.select import SelectionRules
from codeloupe.model.review import UNREAD_CLASSES, Policy


def rules_of(settings: Settings) -> SelectionRules:
    """Which files of a change are reviewed."""
    return SelectionRules(
        include=settings.include,
        exclude=settings.exclude,
        max_file_bytes=settings.max_file_bytes,
        max_file_lines=settings.max_file_lines,
        skip_generated=settings.skip_generated,
        skip_vendored=settings.skip_vendored,
        skip_lock_files=settings.skip_lock_files,
        skip_minified=settings.skip_minified,
        believe_content=not settings.untrusted,
        accept=frozenset(UNREAD_CLASSES[name] for name in settings.accept_unread),
    )


def policy_of(settings: Settings) -> Policy:
    """What decides the exit code."""
    return Policy(
        fail_on=settings.fail_on,
        min_severity=settings.min_severity,
        pass_when_incomplete=settings.on_incomplete == "pass",
    )
