"""A branch that is reviewed in rounds by scripted agents, with real git and a real history, in this process."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from codeloupe.config.schema import Settings
from codeloupe.engine.choose import ChosenReviewer
from codeloupe.engine.run import review
from codeloupe.model.agent import AgentLimits, AgentRequest
from codeloupe.model.events import Event, Warned
from codeloupe.model.finding import Finding
from codeloupe.model.review import Review, ReviewerInfo
from codeloupe.model.scope import ScopeRequest
from codeloupe.testing import AgentStep, Json, ScriptedAgent
from tests.repository import GitRepository

_FILE = re.compile(r"^=== (\S+)")
_BUG = re.compile(r"^[+ ].*bug_(\w+)\(")
NO_TOOLS = AgentLimits(schema=True)


def code(*bugs: str) -> str:
    """A function for each name, with a line that the finder finds, and enough between them for a hunk of its own."""
    return "".join(
        f"def work_{bug}(items):\n"
        + "".join(f"    step_{number} = {bug!r}\n" for number in range(8))
        + f"    return bug_{bug}(items)\n\n\n"
        for bug in bugs
    )


@dataclass
class Finder:
    """Reports each line of the diff it is shown with a call of `bug_NAME`, as a model would; not the `overlooked`."""

    severity: str = "critical"
    overlooked: set[str] = field(default_factory=set)
    failing: set[str] = field(default_factory=set)
    bad_items: bool = False
    file_shown: str | None = None

    def __call__(self, request: AgentRequest) -> AgentStep:
        found: list[dict[str, Any]] = []
        file = ""
        for line in request.prompt.split("\n"):
            if header := _FILE.match(line):
                file = header[1]
                if file in self.failing:
                    return Json({"findings": "none of your business"})
            elif (bug := _BUG.match(line)) and bug[1] not in self.overlooked:
                found.append(self._claim(file, line[1:], bug[1]))
        if self.bad_items:
            found.append({**self._claim("a.py", "x", "y"), "severity": "enormous"})
        return Json({"findings": found})

    def _claim(self, file: str, quote: str, bug: str) -> dict[str, Any]:
        words = {"title": f"Fault {bug}", "body": f"It is wrong: {bug}.", "category": "correctness"}
        return {"file": self.file_shown or file, "line": 1, "quote": quote, "severity": self.severity, **words}


def seat(finder: Finder, name: str = "scripted", *, limits: AgentLimits = NO_TOOLS) -> ChosenReviewer:
    return ChosenReviewer(ReviewerInfo(name, "for a test"), (ScriptedAgent([finder], name=name, limits=limits),))


def offline_seat() -> ChosenReviewer:
    return ChosenReviewer(ReviewerInfo("offline", "for a test"))


@dataclass
class Rounds:
    """A project under review; each call is a round."""

    project: GitRepository
    finder: Finder = field(default_factory=Finder)
    settings: Settings = field(default_factory=lambda: Settings(verify=False, guidance=True))
    asked: int = 0
    notes: list[str] = field(default_factory=list)
    prompts: list[str] = field(default_factory=list)

    def review(self, *seats: ChosenReviewer, scope: ScopeRequest | None = None, **given: Any) -> Review:
        chosen: Sequence[ChosenReviewer] = seats or (seat(self.finder),)
        events: list[Event] = []
        options = {name: given.pop(name) for name in ("fresh", "since_last", "context") if name in given}
        settings = replace(self.settings, **given)
        reviewing = review(
            scope, repo=self.project.path, settings=settings, reviewers=chosen, emit=events.append, **options
        )
        outcome = asyncio.run(reviewing)
        self.notes = [event.message for event in events if isinstance(event, Warned)]
        requests = [one for chair in chosen for agent in chair.agents for one in getattr(agent, "requests", ())]
        self.prompts = [request.prompt for request in requests]
        self.asked = len(requests)
        return outcome


def states(review: Review) -> dict[str, str]:
    """The status of each finding by its title."""
    return {finding.title: finding.status.value for finding in review.findings}


def the(review: Review, title: str) -> Finding:
    """The one finding of that title."""
    [found] = [finding for finding in review.findings if finding.title == title]
    return found
