"""What an engine works with: all that is outside of it, each behind a port."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from msgspec import Struct

from codeloupe.model.agent import AgentEvent
from codeloupe.model.pipeline import Approval, StageRecord
from codeloupe.model.pipeline_definition import GateKind, PipelineDefinition, StageDefinition
from codeloupe.model.ports import AgentEventSink, AskAgent, Gate, WorkspaceStore
from codeloupe.pipeline.descent import Descent
from codeloupe.pipeline.logbook import Logbook
from codeloupe.pipeline.places import Places
from codeloupe.pipeline.purse import Purse

AskFor = Callable[[StageDefinition, str], AskAgent]
TellTree = Callable[[Path, str, int], None]
WordOfAPerson = Callable[[StageRecord, str, float], Awaitable[Approval | None]]


def ignore(_event: AgentEvent) -> None:
    """Take an event and do nothing with it."""


class Surroundings(Struct, frozen=True, kw_only=True):
    """The run's definition and record, and what its stages need.

    `ask` gives the agent of a stage, or by name the one of its agents whose session is resumed. `can_resume` tells of
    an agent, by name, whether it keeps sessions that can be. `tell_tree` is told, before an agent reads a workspace,
    what it holds and how many calls of the attempt have failed: with both the same, an answer that was paid for is
    taken again. `word` asks a person about a stage that waits, for at most so many seconds, and gives None when nobody
    says anything; `left_word` gives what was left by another process, if there is something.
    """

    definition: PipelineDefinition
    book: Logbook
    purse: Purse
    places: Places
    workspaces: WorkspaceStore
    descent: Descent
    ask: AskFor
    can_resume: Callable[[str], bool]
    tell_tree: TellTree
    gates: Mapping[GateKind, Gate]
    word: WordOfAPerson
    left_word: Callable[[str], Approval | None]
    emit: AgentEventSink = ignore

    @property
    def is_checkout(self) -> bool:
        """Whether the stages work in the user's own tree, in which nothing is ever put back."""
        return self.places.checkout is not None
