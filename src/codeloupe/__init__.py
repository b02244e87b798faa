"""Codeloupe puts a code change under a magnifying glass.

The public names load on first use, so that `codeloupe --help` does not pay for them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from codeloupe.agents.calls.budget import Spent
    from codeloupe.config.schema import Settings
    from codeloupe.errors import AgentError, AgentExecutionError, CodeloupeError
    from codeloupe.integrations import (
        CodeReviewer,
        ReviewResult,
        WorkdirReviewer,
        WorkdirReviewResult,
        make_reviewer,
        make_workdir_reviewer,
    )
    from codeloupe.model.agent import AgentEvent, AgentLimits, AgentRequest, AgentResult, Availability, PermissionMode
    from codeloupe.model.events import Event
    from codeloupe.model.finding import Finding, Severity
    from codeloupe.model.pipeline import RunRecord
    from codeloupe.model.ports import Agent
    from codeloupe.model.review import Preview, Review, Verdict
    from codeloupe.model.scope import (
        BaseScope,
        CommitScope,
        DefaultScope,
        DiffScope,
        PullRequestScope,
        RangeScope,
        StagedScope,
        UncommittedScope,
    )
    from codeloupe.model.sweep import CommitQuery, CommitSweep
    from codeloupe.pipelines.run import Pipeline, RunOptions, resume_run
    from codeloupe.runtime import Runtime, preview, review, review_commits, run_agent

_HOMES = {
    "Agent": "codeloupe.model.ports",
    "AgentError": "codeloupe.errors",
    "AgentEvent": "codeloupe.model.agent",
    "AgentExecutionError": "codeloupe.errors",
    "AgentLimits": "codeloupe.model.agent",
    "AgentRequest": "codeloupe.model.agent",
    "AgentResult": "codeloupe.model.agent",
    "Availability": "codeloupe.model.agent",
    "BaseScope": "codeloupe.model.scope",
    "CodeReviewer": "codeloupe.integrations",
    "CodeloupeError": "codeloupe.errors",
    "CommitQuery": "codeloupe.model.sweep",
    "CommitScope": "codeloupe.model.scope",
    "CommitSweep": "codeloupe.model.sweep",
    "DefaultScope": "codeloupe.model.scope",
    "DiffScope": "codeloupe.model.scope",
    "Event": "codeloupe.model.events",
    "Finding": "codeloupe.model.finding",
    "PermissionMode": "codeloupe.model.agent",
    "Pipeline": "codeloupe.pipelines.run",
    "Preview": "codeloupe.model.review",
    "PullRequestScope": "codeloupe.model.scope",
    "RangeScope": "codeloupe.model.scope",
    "Review": "codeloupe.model.review",
    "ReviewResult": "codeloupe.integrations",
    "RunOptions": "codeloupe.pipelines.run",
    "RunRecord": "codeloupe.model.pipeline",
    "Runtime": "codeloupe.runtime",
    "Settings": "codeloupe.config.schema",
    "Severity": "codeloupe.model.finding",
    "Spent": "codeloupe.agents.calls.budget",
    "StagedScope": "codeloupe.model.scope",
    "UncommittedScope": "codeloupe.model.scope",
    "Verdict": "codeloupe.model.review",
    "WorkdirReviewResult": "codeloupe.integrations",
    "WorkdirReviewer": "codeloupe.integrations",
    "make_reviewer": "codeloupe.integrations",
    "make_workdir_reviewer": "codeloupe.integrations",
    "preview": "codeloupe.runtime",
    "resume_run": "codeloupe.pipelines.run",
    "review": "codeloupe.runtime",
    "review_commits": "codeloupe.runtime",
    "run_agent": "codeloupe.runtime",
}

__all__ = [
    "Agent",
    "AgentError",
    "AgentEvent",
    "AgentExecutionError",
    "AgentLimits",
    "AgentRequest",
    "AgentResult",
    "Availability",
    "BaseScope",
    "CodeReviewer",
    "CodeloupeError",
    "CommitQuery",
    "CommitScope",
    "CommitSweep",
    "DefaultScope",
    "DiffScope",
    "Event",
    "Finding",
    "PermissionMode",
    "Pipeline",
    "Preview",
    "PullRequestScope",
    "RangeScope",
    "Review",
    "ReviewResult",
    "RunOptions",
    "RunRecord",
    "Runtime",
    "Settings",
    "Severity",
    "Spent",
    "StagedScope",
    "UncommittedScope",
    "Verdict",
    "WorkdirReviewResult",
    "WorkdirReviewer",
    "__version__",
    "make_reviewer",
    "make_workdir_reviewer",
    "preview",
    "resume_run",
    "review",
    "review_commits",
    "run_agent",
]


# A type checker must not see this: to it, a module with `__getattr__` would have every name, misspelt ones too.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'codeloupe' has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)
