"""The composition root: puts the rooms together. The only place that names concrete classes.

A review, from top to bottom: settings, reviewer, intake (scope, change, selection, snapshot), run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from codeloupe.analysers.ast_grep import AstGrepAnalyser
from codeloupe.analysers.interface import Analyser
from codeloupe.analysers.offline import OfflineReviewer
from codeloupe.analysers.ruff import RuffAnalyser
from codeloupe.analysers.secrets import SecretsAnalyser
from codeloupe.config.files import (
    REPOSITORY_FILE_NAMES,
    ConfigText,
    decode_config,
    read_repository_file,
    repository_root,
    user_file_path,
)
from codeloupe.config.loading import load_settings
from codeloupe.config.provenance import LoadedSettings
from codeloupe.config.schema import Settings
from codeloupe.demo.repository import make_repository
from codeloupe.diagnosis import diagnose
from codeloupe.git.blobs import read_file_at
from codeloupe.git.repository import open_repository
from codeloupe.git.scopes import resolve_scope
from codeloupe.intake import take_in
from codeloupe.model.agent import AgentRequest, AgentResult, Availability
from codeloupe.model.agent_events import AgentEvent
from codeloupe.model.diagnosis import Diagnosis
from codeloupe.model.events import Event, ReviewerChosen, StageStarted
from codeloupe.model.preview import Preview, PreviewFile
from codeloupe.model.review import Policy, Review
from codeloupe.model.scope import DefaultScope, DiffScope, ScopeRequest
from codeloupe.ports import AgentEventSink, EventSink, Reviewer, ReviewTask
from codeloupe.review.runner import ReviewPlan, run_review
from codeloupe.review.selection import SelectionRules
from codeloupe.review.tokens import estimate_tokens
from codeloupe.switchboard import AGENT_NAMES, call_agents, check_agents, make_agent

__all__ = ["AGENT_NAMES", "configure", "demo", "doctor", "list_agents", "preview", "review", "run_agent"]


def _ignore(_event: Event | AgentEvent) -> None:
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


async def run_agent(
    request: AgentRequest,
    *,
    settings: Settings | None = None,
    fresh: bool = False,
    emit: AgentEventSink = _ignore,
) -> AgentResult:
    """Ask the first agent of the settings that can be used, and return its answer.

    The same question about the same files is bought once: a finished call comes from the ledger unless `fresh`.
    Raises an AgentError, whose kind says what happened and whether trying again makes sense, or a StoreError.
    """
    chosen = settings or (await configure(repo=request.working_dir)).settings
    agents = [make_agent(name, chosen) for name in chosen.agents]
    return await call_agents(request, agents=agents, settings=chosen, fresh=fresh, emit=emit)


async def list_agents(*, settings: Settings) -> tuple[tuple[str, Availability], ...]:
    """Every known agent, and whether it can be used here. Costs nothing."""
    return await check_agents(settings)


async def configure(
    scope: ScopeRequest | None = None,
    *,
    repo: Path | str = ".",
    flags: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
) -> LoadedSettings:
    """The settings in force, with their origins. For an untrusted change the repository's file is the base's."""
    variables = os.environ if environment is None else environment
    given = dict(flags or {})
    user_file = user_file_path(variables)

    def load(repository_file: ConfigText | None) -> LoadedSettings:
        return load_settings(repository_file=repository_file, user_file=user_file, environment=variables, flags=given)

    trusting = load(None)
    if not trusting.settings.untrusted:
        trusting = load(read_repository_file(repository_root(Path(repo))))
    if not trusting.settings.untrusted:
        return trusting
    # Whoever said it, the reviewed files cannot take it back.
    given["untrusted"] = True
    return load(await _file_of_base(scope or DefaultScope(), Path(repo), trusting.settings.base_branch))


async def _file_of_base(request: ScopeRequest, repo: Path, base_branch: str | None) -> ConfigText | None:
    if isinstance(request, DiffScope):
        return None  # nothing tells which revision the diff belongs to
    repository = await open_repository(repo)
    sides = await resolve_scope(repository, request, base_branch=base_branch)
    for name in REPOSITORY_FILE_NAMES:
        content = await read_file_at(repository, sides.base, name)
        if content is not None:
            return decode_config(f"{sides.base[:12]}:{name}", content)
    return None


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
