"""What is told of one agent call, and that nothing of it is told twice."""

from __future__ import annotations

import io

from codeloupe.cli.progress import AgentProgress, ProgressMode
from codeloupe.model.agent import AgentEvent, AgentFinished, AgentStarted, AttemptFailed, AttemptStarted, FellBack


def shown(*events: AgentEvent) -> list[str]:
    stream = io.StringIO()
    with AgentProgress(stream=stream, mode=ProgressMode.PLAIN, clock=lambda: 0.0) as progress:
        for event in events:
            progress.emit(event)
    return stream.getvalue().splitlines()


def test_an_attempt_that_is_made_again_is_told_with_its_reason() -> None:
    assert shown(AttemptFailed("codex", 1, "Overloaded", "no room", 2.0)) == [
        "codeloupe: codex: attempt 1 failed: no room; again in 2.0 s"
    ]


def test_a_last_failure_is_told_only_by_whoever_takes_over() -> None:
    lines = shown(
        AgentStarted("codex", None),
        AttemptStarted("codex", 1, 3),
        AttemptFailed("codex", 1, "NotLoggedIn", "codex has no login"),
        FellBack("codex", "gemini", "codex has no login"),
        AttemptStarted("gemini", 1, 3),
        AttemptFailed("gemini", 1, "NotLoggedIn", "gemini has no login"),
        AgentFinished("gemini", success=False, attempts=1, duration_ms=100, cost_usd=None),
    )
    assert lines == [
        "codeloupe: codex: asked",
        "codeloupe: codex: working",
        "codeloupe: gemini: takes over from codex: codex has no login",
        "codeloupe: gemini: working",
        "codeloupe: gemini: gave no answer after 0.1 s",
    ]
