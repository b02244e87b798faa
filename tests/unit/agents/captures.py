"""What the real claude, codex and gemini programs printed, recorded and shortened."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from codeloupe.agents.calls.program import Message, ProgramAgent, message_on
from codeloupe.agents.claude.cli import ClaudeCliAgent, ClaudeReading
from codeloupe.agents.codex.agent import CodexAgent, CodexReading
from codeloupe.agents.gemini.agent import GeminiAgent
from codeloupe.model.agent import AgentEvent, AgentRequest, AgentResult
from codeloupe.system.process import Completed

FOLDER = Path(__file__).parents[2] / "captures"
AGENTS: dict[str, type[ProgramAgent]] = {"claude": ClaudeCliAgent, "codex": CodexAgent, "gemini": GeminiAgent}
EPOCH_NOW = 1_700_000_000.0
NOW = datetime(2026, 11, 15, 14, 30, 20)  # noqa: DTZ001 - local time, as the program tells it


def unheard(_event: AgentEvent) -> None:
    """For a call whose events nobody wants to hear."""


@dataclass(frozen=True)
class Capture:
    """One recorded run of a program."""

    agent: str
    exit_code: int
    stdout: str
    stderr: str = ""

    @property
    def lines(self) -> list[str]:
        """The lines of stdout, with their ends."""
        return self.stdout.splitlines(keepends=True)

    @property
    def result(self) -> dict[str, Any]:
        """The last message."""
        found = json.loads(self.lines[-1])
        assert isinstance(found, dict)
        return found

    def replayed(self, request: AgentRequest | None = None, events: list[AgentEvent] | None = None) -> AgentResult:
        """Read as the agent reads a run; raises what it raises."""
        request = request or AgentRequest(prompt="x", working_dir=Path())
        reading = AGENTS[self.agent].reading(
            AGENTS[self.agent].program, request, unheard if events is None else events.append
        )
        for line in self.stdout.encode().splitlines():
            if (message := message_on(line)) is not None:
                reading.take(message)
        reading.raw_output = self.stdout
        completed = Completed(self.exit_code, self.stdout.encode(), self.stderr, 1.5)
        if isinstance(reading, ClaudeReading):
            return reading.answer(completed, now=EPOCH_NOW)
        return reading.answer(completed, now=NOW) if isinstance(reading, CodexReading) else reading.answer(completed)


def claude_run(*messages: dict[str, Any], exit_code: int = 0) -> Capture:
    """A run of claude that prints these messages."""
    return Capture("claude", exit_code, "\n".join(json.dumps(Message(message)) for message in messages))


def names(agent: str) -> set[str]:
    return {file.stem for file in (FOLDER / agent).glob("*.json")}


def capture(agent: str, name: str) -> Capture:
    found = json.loads((FOLDER / agent / f"{name}.json").read_text(encoding="utf-8"))
    return Capture(agent, found["exit_code"], found["stdout"], found["stderr"])
