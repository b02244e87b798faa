"""Codeloupe puts a code change under a magnifying glass.

The public names load on first use, so that `codeloupe --help` does not pay for them.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

__version__ = "0.2.0"
UNSUPPORTED_SYSTEM = "codeloupe does not run on Windows yet; use Linux, macOS or the Windows Subsystem for Linux"

__all__ = ["__version__"]
__all__ += ["Runtime", "preview", "review", "review_commits", "run_agent"]
__all__ += ["preview_sync", "review_commits_sync", "review_sync", "run_agent_sync"]
__all__ += ["Pipeline", "PipelinePreview", "RunOptions", "RunRecord", "StageRequest"]
__all__ += ["resume_run", "resume_run_sync", "run_pipeline", "run_pipeline_sync"]
__all__ += ["CodeReviewer", "ReviewResult", "make_reviewer"]
__all__ += ["WorkdirReviewResult", "WorkdirReviewer", "make_workdir_reviewer"]
__all__ += ["BaseScope", "CommitScope", "DefaultScope", "DiffScope", "PullRequestScope", "RangeScope", "StagedScope"]
__all__ += ["CommitQuery", "CommitSweep", "Event", "Finding", "Preview", "Review", "Severity", "Verdict"]
__all__ += ["Change", "Claim", "CommitReview", "Level", "ReviewerInfo"]
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
    from codeloupe.model.change import Change
    from codeloupe.model.events import Event
    from codeloupe.model.finding import Claim, Finding, Severity
    from codeloupe.model.pipeline import RunRecord, StageRequest
    from codeloupe.model.pipeline_preview import PipelinePreview
    from codeloupe.model.ports import Agent
    from codeloupe.model.review import Level, Preview, Review, ReviewerInfo, Verdict
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
    from codeloupe.model.sweep import CommitQuery, CommitReview, CommitSweep
    from codeloupe.pipelines.run import Pipeline, RunOptions
    from codeloupe.runtime import Runtime, preview, resume_run, review, review_commits, run_agent, run_pipeline
    from codeloupe.sync import (
        preview_sync,
        resume_run_sync,
        review_commits_sync,
        review_sync,
        run_agent_sync,
        run_pipeline_sync,
    )
else:

    def __getattr__(name: str) -> object:
        # Otherwise the first import of a module that Windows does not have would fail, and not say why.
        if name in __all__ and sys.platform == "win32":
            raise ImportError(UNSUPPORTED_SYSTEM)
        match name:
            case "Runtime" | "preview" | "resume_run" | "review" | "review_commits" | "run_agent" | "run_pipeline":
                from codeloupe import runtime as home
            case _ if name.endswith("_sync") and name in __all__:
                from codeloupe import sync as home
            case "Pipeline" | "RunOptions":
                from codeloupe.pipelines import run as home
            case (
                "CodeReviewer"
                | "ReviewResult"
                | "WorkdirReviewResult"
                | "WorkdirReviewer"
                | "make_reviewer"
                | "make_workdir_reviewer"
            ):
                from codeloupe import integrations as home
            case "AgentError" | "AgentExecutionError" | "CodeloupeError":
                from codeloupe import errors as home
            case "Settings":
                from codeloupe.config import schema as home
            case "Spent":
                from codeloupe.agents.calls import budget as home
            case _ if name in __all__:
                from codeloupe.model import agent, change, events, finding, pipeline, ports, review, scope, sweep
                from codeloupe.model import pipeline_preview as preview

                homes = (agent, change, events, finding, pipeline, preview, ports, review, scope, sweep)
                home = next(home for home in homes if hasattr(home, name))
            case _:
                raise AttributeError(f"module 'codeloupe' has no attribute {name!r}")
        return getattr(home, name)
