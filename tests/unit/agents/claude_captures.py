"""What the real claude program printed, recorded and shortened."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codeloupe.agents.calls.program import Failure, message_on
from codeloupe.agents.claude.cli import CLAUDE_CLI
from codeloupe.agents.claude.output import Progress, answer_in, ended_without_result
from codeloupe.model.agent import AgentEvent, AgentRequest, AgentResult

FOLDER = Path(__file__).parents[2] / "captures"


@dataclass(frozen=True)
class Capture:
    """One recorded run."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def result(self) -> dict[str, Any]:
        """The last message."""
        found = json.loads(self.stdout.splitlines()[-1])
        assert isinstance(found, dict)
        return found

    def replayed(self, request: AgentRequest | None = None, events: list[AgentEvent] | None = None) -> AgentResult:
        """Read as the agent reads a run; raises what it raises."""
        request = request or AgentRequest(prompt="x", working_dir=Path())
        progress = Progress(request, program=CLAUDE_CLI, emit=unheard if events is None else events.append)
        for line in self.stdout.encode().splitlines():
            if message := message_on(line):
                progress.take(message)
        if progress.result is None:
            failure = Failure(program=CLAUDE_CLI, session_id=progress.session_id, raw_output=self.stdout)
            raise ended_without_result(failure, exit_code=self.exit_code, stderr=self.stderr)
        return answer_in(progress.result, progress.told(), duration_ms=1, now=1_700_000_000)


def unheard(event: AgentEvent) -> None:
    """For whoever wants no events."""


def capture(name: str) -> Capture:
    found = json.loads((FOLDER / "claude" / f"{name}.json").read_text(encoding="utf-8"))
    return Capture(found["exit_code"], found["stdout"], found["stderr"])
