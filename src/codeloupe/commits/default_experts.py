"""Which experts look at commits of which category, unless the settings say otherwise. Data."""

from __future__ import annotations

from collections.abc import Mapping

from codeloupe.model.sweep import CommitCategory

DEFAULT_EXPERTS: Mapping[CommitCategory, tuple[str, ...]] = {
    CommitCategory.BUG_FIX: ("reliability",),
    CommitCategory.FEATURE: ("correctness", "code_quality"),
    CommitCategory.REFACTOR: ("architecture",),
    CommitCategory.TEST_CHANGE: ("tests",),
    CommitCategory.DOCUMENTATION: ("documentation",),
    CommitCategory.CHORE: ("general",),
    CommitCategory.OTHER: ("general",),
}
