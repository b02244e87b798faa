"""Stand-ins for tests, shipped so that users can test their own set-ups: a model server and an agent. No network."""

from codeloupe.agents.calls.limiter import Timing
from codeloupe.testing.agent import AgentStep, ScriptedAgent
from codeloupe.testing.answers import (
    ScriptedFinding,
    asked_for,
    critique,
    findings,
    proof,
    review_answers,
)
from codeloupe.testing.apis import RecordedRequest
from codeloupe.testing.replies import (
    Cut,
    Delay,
    Empty,
    Garbage,
    Hang,
    Json,
    MaxTokens,
    Refusal,
    Reply,
    Stall,
    Status,
    Text,
    ToolUse,
    read_script,
)
from codeloupe.testing.server import StandInServer
from codeloupe.testing.timing import instant_timing

__all__ = ["AgentStep", "Cut", "Delay", "Empty", "Garbage", "Hang", "Json", "MaxTokens", "RecordedRequest", "Refusal"]
__all__ += ["Reply", "ScriptedAgent", "Stall", "StandInServer", "Status", "Text", "ToolUse", "read_script"]
__all__ += ["ScriptedFinding", "asked_for", "critique", "findings", "proof", "review_answers"]
__all__ += ["Timing", "instant_timing"]
