"""Stand-ins for tests, shipped so that users can test their own set-ups: a model server and an agent. No network."""

from codeloupe.testing.agent import AgentStep, ScriptedAgent
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

__all__ = ["AgentStep", "Cut", "Delay", "Empty", "Garbage", "Hang", "Json", "MaxTokens", "RecordedRequest", "Refusal"]
__all__ += ["Reply", "ScriptedAgent", "Stall", "StandInServer", "Status", "Text", "ToolUse", "read_script"]
