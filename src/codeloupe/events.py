"""Every event of the library: reviews emit `Event`, agent calls `AgentEvent`, runs of pipelines `PipelineEvent`.

Each event is frozen data with a `kind`. `to_json` returns it as one line of JSON.
"""

from __future__ import annotations

import json

from msgspec import to_builtins

from codeloupe.model.agent import (
    AgentEvent,
    AgentFinished,
    AgentStarted,
    AttemptFailed,
    AttemptStarted,
    DatabaseReachable,
    DatabaseUnreachable,
    FellBack,
    QuotaEnded,
    TokensSpent,
    ToolUsed,
    TurnTaken,
)
from codeloupe.model.event import EventBase
from codeloupe.model.events import (
    AgentActivity,
    ChangeRead,
    CommitReviewed,
    Event,
    FindingVerified,
    LaneFinished,
    ReviewerChosen,
    StageStarted,
    UnitFinished,
    UnitsPlanned,
    Warned,
)
from codeloupe.model.pipeline import PipelineEvent, PipelineEventKind

__all__ = ["AgentEvent", "AgentFinished", "AgentStarted", "AttemptFailed", "AttemptStarted", "FellBack", "QuotaEnded"]
__all__ += ["DatabaseReachable", "DatabaseUnreachable", "TokensSpent", "ToolUsed", "TurnTaken"]
__all__ += ["AgentActivity", "ChangeRead", "CommitReviewed", "Event", "FindingVerified", "LaneFinished"]
__all__ += ["ReviewerChosen", "StageStarted", "UnitFinished", "UnitsPlanned", "Warned"]
__all__ += ["EventBase", "PipelineEvent", "PipelineEventKind", "to_json"]


def to_json(event: EventBase | PipelineEvent) -> str:
    """Return an event as one line of JSON: an object with its `kind` and its fields.

    Bytes of a diff are written in base64, and a severity as its number, 0 for critical to 3 for low.
    """
    return json.dumps(to_builtins(event))
