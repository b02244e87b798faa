"""One stream of events from many reviews at the same time."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, field

from codeloupe.model.change import Commit
from codeloupe.model.events import AgentActivity, CommitReviewed, Event, Warned
from codeloupe.model.sweep import CommitReview

_SHORT_SHA = 10


class Relay(Struct):
    """Tells what happens in many reviews at once: each commit as it ends, and what holds up the calls of one."""

    emit: Callable[[Event], None]
    total: int
    done: int = 0
    warned: set[str] = field(default_factory=set)

    def finished(self, outcome: CommitReview) -> None:
        """Tell that a commit is done."""
        self.done += 1
        self.emit(CommitReviewed(outcome, self.done, self.total))

    def warn(self, message: str, *, of: str = "") -> None:
        """Tell a warning, once, whichever commits it is about; `of` names the first of them."""
        if message not in self.warned:
            self.warned.add(message)
            self.emit(Warned(f"{of}: {message}" if of else message))

    def of(self, commit: Commit) -> Callable[[Event], None]:
        """The sink for the review of one commit."""
        name = commit.sha[:_SHORT_SHA]

        def take(event: Event) -> None:
            if isinstance(event, AgentActivity):
                self.emit(AgentActivity(f"{name} {event.unit}", event.event))
            elif isinstance(event, Warned):
                self.warn(event.message, of=name)

        return take
