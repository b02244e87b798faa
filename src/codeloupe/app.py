"""The composition root of a review: puts the rooms together and names the concrete classes.

A review, from top to bottom: settings, reviewer, intake (scope, change, selection, snapshot), run.
"""

from __future__ import annotations

import time
from pathlib import Path

from codeloupe.analysers.ast_grep import AstGrepAnalyser
from codeloupe.analysers.interface import Analyser
from codeloupe.analysers.offline import OfflineReviewer
from codeloupe.analysers.ruff import RuffAnalyser
from codeloupe.analysers.secrets import SecretsAnalyser
from codeloupe.config.schema import Settings
from codeloupe.configuring import configure
from codeloupe.demo.repository import make_repository
from codeloupe.diagnosis import diagnose
from codeloupe.intake import take_in
from codeloupe.model.diagnosis import Diagnosis
from codeloupe.model.events import Event, ReviewerChosen, StageStarted
from codeloupe.model.preview import Preview, PreviewFile
from codeloupe.model.review import Policy, Review
from codeloupe.model.scope import DefaultScope, ScopeRequest
from codeloupe.ports import EventSink, Reviewer, ReviewTask
from codeloupe.review.runner import ReviewPlan, run_review
from codeloupe.review.selection import SelectionRules
from codeloupe.review.tokens import estimate_tokens
from codeloupe.switchboard import AGENT_NAMES, make_agent

__all__ = ["configure", "demo", "doctor", "preview", "review"]


def _ignore(_event: Event) -> None:
    """Take an event and do nothing with it."""


async def review(
    scope: ScopeRequest | None = None,
    *,
    repo: Path | str = ".",
    settings: Settings | None = None,
    emit: EventSink = _ignore,
) -> Review:
    """Review a change and return the outcome; nothing is printed.

    Without `settings` they are loaded as the program would. Raises UsageError for what the caller can mend and
    ProcessError when git fails; a failing analyser is in the outcome, which is then not complete.
    """
    started = time.monotonic()
    request = scope or DefaultScope()
    chosen = settings or (await configure(request, repo=repo)).settings
    reviewer = choose_reviewer(chosen)
    emit(ReviewerChosen(reviewer.info))
    emit(StageStarted("reading", "the change"))
    async with take_in(request, Path(repo), base_branch=chosen.base_branch, rules=_rules(chosen)) as intake:
        task = ReviewTask(
            change=intake.change,
            files=intake.selection.files,
            snapshot=intake.snapshot,
            trusted=not chosen.untrusted,
            timeout_seconds=chosen.timeout_seconds,
            without_content=intake.without_content,
        )
        plan = ReviewPlan(task=task, selection=intake.selection, reviewer=reviewer, policy=_policy(chosen))
        return await run_review(plan, clock=time.monotonic, started=started, emit=emit)


async def preview(
    scope: ScopeRequest | None = None, *, repo: Path | str = ".", settings: Settings | None = None
) -> Preview:
    """What a review would look at and what not, without running it. Raises as `review` does."""
    request = scope or DefaultScope()
    chosen = settings or (await configure(request, repo=repo)).settings
    async with take_in(request, Path(repo), base_branch=chosen.base_branch, rules=_rules(chosen)) as intake:
        reasons = {skip.file: skip for skip in intake.selection.skipped}
        listed = tuple(PreviewFile(file, reasons.pop(file.path, None)) for file in intake.change.files)
        return Preview(
            scope=intake.change.scope,
            files=listed,
            units=len(intake.selection.files),
            prompt_tokens_estimate=estimate_tokens(intake.selection.files),
        )


def default_analysers() -> tuple[Analyser, ...]:
    """The analysers of the offline lane."""
    return (RuffAnalyser(), AstGrepAnalyser(), SecretsAnalyser())


def choose_reviewer(settings: Settings) -> Reviewer:
    """The reviewer the settings ask for. `auto` is offline until agents can review."""
    analysers = default_analysers()
    names = ", ".join(analyser.name for analyser in analysers)
    asked = "asked for" if settings.reviewer_type == "offline" else "the only reviewer of this version"
    return OfflineReviewer(analysers, why=f"{names}; {asked}")


def _rules(settings: Settings) -> SelectionRules:
    return SelectionRules(
        include=settings.include,
        exclude=settings.exclude,
        max_file_bytes=settings.max_file_bytes,
        max_file_lines=settings.max_file_lines,
        skip_generated=settings.skip_generated,
        skip_vendored=settings.skip_vendored,
        skip_lock_files=settings.skip_lock_files,
        skip_minified=settings.skip_minified,
        believe_content=not settings.untrusted,
    )


def _policy(settings: Settings) -> Policy:
    return Policy(
        fail_on=settings.fail_on,
        min_severity=settings.min_severity,
        pass_when_incomplete=settings.on_incomplete == "pass",
    )


async def doctor(*, repo: Path | str = ".", settings: Settings) -> Diagnosis:
    """What is here, what is missing, and who would review."""
    reviewer = choose_reviewer(settings)
    agents = [make_agent(name, settings) for name in AGENT_NAMES]
    return await diagnose(default_analysers(), agents, reviewer.info, repo=Path(repo), base_branch=settings.base_branch)


async def demo(directory: Path, *, settings: Settings, emit: EventSink = _ignore) -> Review:
    """Make the demo's repository in an empty directory and review its change."""
    await make_repository(directory)
    return await review(DefaultScope(), repo=directory, settings=settings, emit=emit)
