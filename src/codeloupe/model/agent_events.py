"""What happens during an agent call, for progress displays and logs. Every text in them is redacted."""

from __future__ import annotations

from datetime import datetime

from codeloupe.model.records import dataclass


@dataclass(frozen=True, slots=True)
class AgentStarted:
    """A call began; `label` names it for a person."""

    agent: str
    model: str | None
    label: str = ""


@dataclass(frozen=True, slots=True)
class AttemptStarted:
    """An attempt began; the first is 1."""

    agent: str
    attempt: int
    of: int


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """An attempt failed; `retry_in_seconds` is None when it was the last."""

    agent: str
    attempt: int
    kind: str
    message: str
    retry_in_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class TurnTaken:
    """The agent finished a turn."""

    agent: str
    turn: int


@dataclass(frozen=True, slots=True)
class ToolUsed:
    """The agent used a tool; `detail` is short, such as a file name."""

    agent: str
    tool: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class TokensSpent:
    """What the agent tells of its use so far; the cost is None when it tells none."""

    agent: str
    input_tokens: int
    output_tokens: int
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class QuotaEnded:
    """A quota ended; `opens_at` is when it opens again, where that is known; `waiting` whether we wait for it."""

    agent: str
    opens_at: datetime | None
    waiting: bool


@dataclass(frozen=True, slots=True)
class FellBack:
    """Another agent takes over, and why."""

    from_agent: str
    to_agent: str
    reason: str


@dataclass(frozen=True, slots=True)
class AgentFinished:
    """A call ended, well or not."""

    agent: str
    success: bool
    attempts: int
    duration_ms: int
    cost_usd: float | None
    from_ledger: bool = False


AgentEvent = (
    AgentStarted
    | AttemptStarted
    | AttemptFailed
    | TurnTaken
    | ToolUsed
    | TokensSpent
    | QuotaEnded
    | FellBack
    | AgentFinished
)
