"""Codeloupe puts a code change under a magnifying glass.

The public names load on first use, so that `codeloupe --help` does not pay for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

__all__ = ["__version__"]
__all__ += ["Runtime", "preview", "review", "review_commits", "run_agent"]
__all__ += ["Pipeline", "RunOptions", "RunRecord", "resume_run"]
__all__ += ["CodeReviewer", "ReviewResult", "make_reviewer"]
__all__ += ["WorkdirReviewResult", "WorkdirReviewer", "make_workdir_reviewer"]
__all__ += ["BaseScope", "CommitScope", "DefaultScope", "DiffScope", "PullRequestScope", "RangeScope", "StagedScope"]
__all__ += ["CommitQuery", "CommitSweep", "Event", "Finding", "Preview", "Review", "Severity", "Verdict"]
__all__ += ["Agent", "AgentEvent", "AgentLimits", "AgentRequest", "AgentResult", "Availability", "PermissionMode"]
__all__ += ["AgentError", "AgentExecutionError", "CodeloupeError", "Settings", "Spent", "UncommittedScope"]

# A type checker must not see `__getattr__`: to it, the module would have every name, misspelt ones too.
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
else:
    _HOMES = {
        "agents.calls.budget": ("Spent",),
        "config.schema": ("Settings",),
        "errors": ("AgentError", "AgentExecutionError", "CodeloupeError"),
        "pipelines.run": ("Pipeline", "RunOptions", "resume_run"),
        "runtime": ("Runtime", "preview", "review", "review_commits", "run_agent"),
    }
    _MODEL = ("agent", "events", "finding", "pipeline", "ports", "review", "scope", "sweep")

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'codeloupe' has no attribute {name!r}")
        from importlib import import_module

        homes = [home for home, names in _HOMES.items() if name in names]
        others = (*(f"model.{one}" for one in _MODEL), "integrations")
        modules = (import_module(f"codeloupe.{home}") for home in homes or others)
        return next(getattr(module, name) for module in modules if hasattr(module, name))
