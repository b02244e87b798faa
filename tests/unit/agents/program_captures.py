"""What the real codex and gemini programs printed, recorded and shortened."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from codeloupe.agents.calls.program import message_on
from codeloupe.agents.codex.output import CodexProgress
from codeloupe.agents.gemini.output import GeminiProgress
from codeloupe.model.agent import AgentEvent, AgentRequest, AgentResult
from codeloupe.system.command import Completed

FOLDER = Path(__file__).parents[2] / "captures"
NOW = datetime(2026, 11, 15, 14, 30, 20)  # noqa: DTZ001 - local time, as the program tells it


def unheard(_event: AgentEvent) -> None:
    """For a call whose events nobody wants to hear."""


@dataclass(frozen=True)
class Capture:
    """One recorded run of `codex` or `gemini`."""

    agent: str
    exit_code: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[str]:
        """The lines of stdout, with their ends."""
        return self.stdout.splitlines(keepends=True)

    def cut(self, characters: int) -> Capture:
        """The same run, its output ended after so many characters."""
        return dataclasses.replace(self, stdout=self.stdout[:characters])

    def replayed(self, request: AgentRequest | None = None, events: list[AgentEvent] | None = None) -> AgentResult:
        """Read as the agent reads a run; raises what it raises."""
        request = request or AgentRequest(prompt="x", working_dir=Path())
        emit = unheard if events is None else events.append
        completed = Completed(self.exit_code, self.stdout.encode(), self.stderr, 1.5)
        progress = (CodexProgress if self.agent == "codex" else GeminiProgress)(request, emit=emit)
        for line in self.stdout.encode().splitlines():
            if (message := message_on(line)) is not None:
                progress.take(message)
        return (
            progress.answer(completed, now=NOW) if isinstance(progress, CodexProgress) else progress.answer(completed)
        )


def names(agent: str) -> set[str]:
    return {file.stem for file in (FOLDER / agent).glob("*.json")}


def capture(agent: str, name: str) -> Capture:
    found = json.loads((FOLDER / agent / f"{name}.json").read_text(encoding="utf-8"))
    return Capture(agent, found["exit_code"], found["stdout"], found["stderr"])
