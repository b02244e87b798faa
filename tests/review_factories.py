"""Changes, plans, agents' answers and reviewers for the tests of a review by agents."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from codeloupe.agents.calls.caller import AgentCaller
from codeloupe.config.schema import Settings
from codeloupe.model.agent import AgentRequest, AgentResult
from codeloupe.model.change import Change, Effort, Expert, FileChange, FileStatus, Hunk, Scope, ScopeKind
from codeloupe.model.ports import Agent, AgentEventSink, AskAgent, Plan
from codeloupe.model.review import ReviewerInfo
from codeloupe.planning.units import plan_units
from codeloupe.reviewers.agent import AgentReviewer
from codeloupe.testing import AgentStep, Json

SCOPE = Scope(ScopeKind.RANGE, "a" * 40, "b" * 40, "a..b")
CORRECTNESS = Expert(name="correctness", description="Does it do what it should?", focus=("wrong results",))
SECURITY = Expert(name="security", description="Can it be abused?", focus=("injection",))


def source(name: str, *, lines: int = 60) -> str:
    """The text of a file, of about one unit at high effort, whose lines are told apart by its name."""
    return "".join(f"value_{number} = compute('{name}', {number}, 'some text to fill it')\n" for number in range(lines))


def added(path: str, text: str) -> FileChange:
    """A file that the change adds."""
    rows = text.encode("utf-8", "surrogateescape").splitlines()
    hunk = Hunk(0, 0, 1, len(rows), b"".join(b"+" + row + b"\n" for row in rows), added=len(rows))
    return FileChange(None, path, FileStatus.ADDED, new_mode="100644", hunks=(hunk,))


def make_plan(
    root: Path,
    files: Mapping[str, str],
    *,
    trusted: bool = True,
    with_tree: bool = False,
    experts: Sequence[Expert] = (CORRECTNESS,),
    passes: int = 1,
    apart: bool = False,
) -> Plan:
    """Return the plan of a change that adds some files, whose content is in a snapshot below `root`.

    Its units are small: those of high effort.
    """
    snapshot = root / "snapshot"
    snapshot.mkdir(exist_ok=True)
    for name, text in files.items():
        (snapshot / name).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / name).write_text(text, encoding="utf-8")
    changes = tuple(added(name, text) for name, text in files.items())
    return Plan(
        change=Change(SCOPE, changes),
        files=changes,
        snapshot=snapshot,
        trusted=trusted,
        timeout_seconds=30.0,
        units=plan_units(changes, effort=Effort.HIGH, experts=experts, passes=passes, apart=apart),
        tree=snapshot if with_tree else None,
    )


def claim(
    name: str, number: int = 3, *, severity: str = "high", title: str = "wrong result", **more: Any
) -> dict[str, Any]:
    """A finding as a model reports it, about a line of `source(name)`."""
    return {
        "file": name,
        "line": number + 1,
        "quote": f"value_{number} = compute('{name}', {number}, 'some text to fill it')",
        "title": title,
        "body": "It fails for zero.",
        "category": "correctness",
        "severity": severity,
        **more,
    }


def answer(*claims: Mapping[str, Any]) -> Json:
    """What a model answers in the form that is asked for."""
    return Json({"findings": [dict(one) for one in claims]})


def by_file(steps: Mapping[str, AgentStep], otherwise: AgentStep) -> Callable[[AgentRequest], AgentStep]:
    """A step that depends on the file in the question; about any other file it is `otherwise`."""

    def choose(request: AgentRequest) -> AgentStep:
        return next((step for name, step in steps.items() if f"=== {name} " in request.prompt), otherwise)

    return choose


async def direct(request: AgentRequest, agent: Agent, emit: AgentEventSink) -> AgentResult:
    """Ask an agent with nothing around the call."""
    return await agent.run(request, emit)


def through(caller: AgentCaller, *chain: Agent) -> AskAgent:
    """Return a function that asks an agent through a caller, with its limits, budget and retries."""

    async def ask(request: AgentRequest, agent: Agent, emit: AgentEventSink) -> AgentResult:
        return await caller.call(request, agent=agent, chain=chain, emit=emit)

    return ask


def make_reviewer(*agents: Agent, ask: AskAgent = direct, **options: Any) -> AgentReviewer:
    """Return a reviewer that asks these agents in order; options that it does not have are those of the settings."""
    own = {name: options.pop(name) for name in AgentReviewer.__struct_fields__ if name in options}
    settings = Settings(**{"concurrency": 64, **options})
    chosen: dict[str, Any] = {"info": ReviewerInfo(agents[0].name, "for a test"), **own}
    return AgentReviewer(ask=ask, agents=agents, settings=settings, **chosen)


def named(names: Sequence[str]) -> dict[str, str]:
    """Files of about one unit each."""
    return {name: source(name) for name in names}
