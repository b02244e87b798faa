"""Phrases that every report and the progress display say in the same way."""

from __future__ import annotations

from codeloupe.model.review import ReviewerInfo

_MINUTE_SECONDS = 60
_OFFLINE_PROMISE = "lint, security and hygiene, not an AI review"
_REVIEWER_NAMES = {
    "offline": "Offline review",
    "agent_sdk": "Claude Agent SDK review",
    "claude": "Claude Code review",
    "codex": "Codex review",
    "gemini": "Gemini review",
    "api": "API model review",
    "cerberus": "Cerberus review",
}


def counted(count: int, one: str, many: str) -> str:
    """`1 file`, `1,200 files`."""
    return f"{count:,} {one if count == 1 else many}"


def duration(seconds: float) -> str:
    """`0.4 s`, `2 min 5 s`."""
    if seconds < _MINUTE_SECONDS:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), _MINUTE_SECONDS)
    return f"{minutes:,} min {rest} s"


def reviewer_in_words(reviewer: ReviewerInfo) -> str:
    """Which reviewer and why, as one sentence; the offline one never passes for an AI review."""
    name = _REVIEWER_NAMES.get(reviewer.type, f"Review by {reviewer.type}")
    model = f" with {reviewer.model}" if reviewer.model else ""
    why = f": {reviewer.why}" if reviewer.why else ""
    promise = f" — {_OFFLINE_PROMISE}" if reviewer.type == "offline" and "not an AI review" not in reviewer.why else ""
    return f"{name}{model}{why}{promise}"
