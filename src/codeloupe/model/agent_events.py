"""What happens during an agent call, for progress displays and logs. Every text in them is redacted."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct


class AgentStarted(Struct, frozen=True):
    """A call began; `label` names it for a person."""

    agent: str
    model: str | None
    label: str = ""


class AttemptStarted(Struct, frozen=True):
    """An attempt began; the first is 1."""

    agent: str
    attempt: int
    of: int


class AttemptFailed(Struct, frozen=True):
    """An attempt failed; `retry_in_seconds` is None when it was the last."""

    agent: str
    attempt: int
    kind: str
    message: str
    retry_in_seconds: float | None = None


class TurnTaken(Struct, frozen=True):
    """The agent finished a turn."""

    agent: str
    turn: int


class ToolUsed(Struct, frozen=True):
    """The agent used a tool; `detail` is short, such as a file name."""

    agent: str
    tool: str
    detail: str = ""


class TokensSpent(Struct, frozen=True):
    """What the agent tells of its use so far; the cost is None when it tells none."""

    agent: str
    input_tokens: int
    output_tokens: int
    cost_usd: float | None = None


class QuotaEnded(Struct, frozen=True):
    """A quota ended; `opens_at` is when it opens again, where that is known; `waiting` whether we wait for it."""

    agent: str
    opens_at: datetime | None
    waiting: bool


class FellBack(Struct, frozen=True):
    """Another agent takes over, and why."""

    from_agent: str
    to_agent: str
    reason: str


class AgentFinished(Struct, frozen=True):
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
