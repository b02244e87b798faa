"""A review from top to bottom: settings, reviewers, change, round, findings, verdict, history."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.config.schema import Settings
from codeloupe.engine.calls import PROMPT_VERSION, AgentCalls
from codeloupe.engine.choose import ChosenReviewer, Reviewers, choose_reviewers
from codeloupe.engine.globs import Globs
from codeloupe.engine.history import Answers, Round, keep
from codeloupe.engine.prepare import Prepared, fetched, prepare, with_and_without_lines
from codeloupe.engine.select import Selection, left_out
from codeloupe.engine.settings import configure
from codeloupe.engine.verdict import conclude, converged, joined_info
from codeloupe.git.commits import read_pushed
from codeloupe.git.guidance import guidance_changed
from codeloupe.git.repository import opening_once
from codeloupe.model.baseline import Baseline
from codeloupe.model.change import Change
from codeloupe.model.events import ChangeRead, Event, ReviewerChosen, StageStarted, Warned
from codeloupe.model.finding import Finding
from codeloupe.model.ports import Clock, EventSink, Reviewer, ReviewerOutcome, ReviewOptions, ReviewTask, Verifier
from codeloupe.model.review import (
    NOT_INCLUDED,
    Coverage,
    Policy,
    Review,
    ReviewError,
    SkippedFile,
    SkipReason,
    unplaced_errors,
)
from codeloupe.model.scope import DefaultScope, FetchedScope, RangeScope, ScopeRequest
from codeloupe.store.baseline import read_baseline

if TYPE_CHECKING:
    from codeloupe.engine.lifecycle import EarlierRounds

_log = logging.getLogger(__name__)
_PARTIAL_TREE = "the repository is very large, so the agent gets a copy of the files around the change alone"
_OFFLINE = "only the analysers reviewed this change: {}; `codeloupe doctor` says how to set one up"


async def review(
    scope: ScopeRequest | None = None,
    *,
    repo: Path | str = ".",
    settings: Settings | None = None,
    calls: AgentCalls | None = None,
    reviewers: Sequence[ChosenReviewer] | None = None,
    **options: Unpack[ReviewOptions],
) -> Review:
    """Review a change as `Runtime.review` does; `reviewers` take the place of those that the settings name."""
    started, calls = time.monotonic(), calls or AgentCalls()
    emit: EventSink = options.get("emit") or (lambda _event: None)
    async with AsyncExitStack() as stack:
        stack.enter_context(opening_once())
        request, place = await stack.enter_async_context(fetched(scope or DefaultScope(), Path(repo)))
        settings = await settings_for(request, place, settings, calls)
        if reviewers is None:
            reviewers = await choose_reviewers(settings, calls, needs_agent=options.get("needs_agent", False))
        for one in reviewers:
            emit(ReviewerChosen(one.info))
        emit(StageStarted("reading", "the change"))
        answers, fresh = Answers(options.get("transcript")), options.get("fresh", False)
        team = Reviewers(reviewers, settings, calls, place, fresh, answers, options.get("session_id"))
        # A reviewer that cannot work under these settings is found before anything is read or bought.
        made = team.make()
        prepared = await stack.enter_async_context(_prepared(request, team, options))
        emit(ChangeRead(prepared.change))
        round_ = await _round(prepared, team, options)
        remarks = (*_remarks(prepared, request), *round_.errors)
        partial = (_PARTIAL_TREE,) if prepared.tree_is_partial and team.have_agents else ()
        for note in (*(error.message for error in remarks), *round_.notes, *partial):
            emit(Warned(note))
        plan = ReviewPlan(
            task=prepared,
            selection=prepared.selection,
            reviewers=round_.over(made, reviewers),
            verifier=team.verifier(),
            policy=policy_of(settings),
            baseline=await _baseline(prepared, place),
            earlier=round_.earlier,
            beforehand=prepared.beforehand,
        )
        outcome = await run_review(plan, clock=time.monotonic, started=started, emit=emit)
        # Whoever wanted an agent to review, and reads of no finding, should know that none has looked.
        offline = [ReviewError("no_agent", _OFFLINE.format(one.instead)) for one in reviewers if one.instead]
        outcome = replace(outcome, errors=(*outcome.errors, *remarks, *(offline if prepared.change.files else ())))
        if not settings.keep_history:
            return outcome
        return await keep(
            outcome,
            repo=place,
            raw_outputs=answers.texts,
            prompt_version=PROMPT_VERSION if team.have_agents else "",
            terms=round_.conditions,
            seen=round_.seen(plan.task, outcome),
            left_out=round_.left_out,
            checkout=round_.checkout,
            opened=calls.opened_history,
            emit=emit,
        )


@asynccontextmanager
async def _prepared(request: ScopeRequest, team: Reviewers, options: ReviewOptions) -> AsyncIterator[Prepared]:
    """What these reviewers need of the change, with what single commits of a push hold."""
    settings = team.settings
    async with prepare(
        request,
        team.repo,
        settings,
        # Of a pull request there is no other tree in which earlier findings could be looked for.
        with_tree=any(one.reads_tree for one in team.chosen) or isinstance(request, FetchedScope),
        whole_tree=any(one.needs_whole_tree for one in team.chosen),
        with_guidance=settings.guidance and team.have_agents,
        context=options.get("context", ""),
        must_match=True,
    ) as prepared:
        selection = prepared.selection
        if settings.untrusted and not selection.present:
            own = options.get("own_patterns", frozenset())
            selection = replace(selection, skipped=tuple(_as_gap(skip, own) for skip in selection.skipped))
        yield await _with_each_commit(replace(prepared, selection=selection), request, settings)


async def _round(prepared: Prepared, team: Reviewers, options: ReviewOptions) -> Round:
    """What earlier reviews of the same work saw and found; of no change they can have seen nothing."""
    if not prepared.change.files:
        return Round()
    from codeloupe.engine.rounds import begin_round

    return await begin_round(
        prepared,
        team.chosen,
        team.settings,
        calls=team.calls,
        repo=team.repo,
        fresh=team.fresh,
        since_last=options.get("since_last", False),
    )


def _as_gap(skip: SkippedFile, own_patterns: frozenset[str]) -> SkippedFile:
    """A file of an untrusted change of which nothing is left: not accepted unread, unless the caller left it out."""
    is_own = ("include" if skip.detail == NOT_INCLUDED else "exclude") in own_patterns
    return replace(skip, accepted=False) if skip.reason is SkipReason.EXCLUDED and not is_own else skip


async def settings_for(request: ScopeRequest, repo: Path, given: Settings | None, calls: AgentCalls) -> Settings:
    """Those that were given, or are in force; a pull request is untrusted, whatever they say."""
    settings = given or (await configure(request, repo=repo, environment=calls.environment)).settings
    return replace(settings, untrusted=True) if isinstance(request, FetchedScope) else settings


async def _baseline(prepared: Prepared, repo: Path) -> Baseline:
    """The accepted findings: of an untrusted change, those of a base that the change cannot have written."""
    scope = prepared.change.scope
    base = scope if prepared.trusted else replace(scope, base=prepared.believed)
    return await read_baseline(base, repo=repo, trusted=prepared.trusted)


def policy_of(settings: Settings) -> Policy:
    """What decides the exit code."""
    passes = settings.on_incomplete == "pass"
    return Policy(fail_on=settings.fail_on, min_severity=settings.min_severity, pass_when_incomplete=passes)


async def _with_each_commit(prepared: Prepared, request: ScopeRequest, settings: Settings) -> Prepared:
    """With the secrets that single commits of a push hold; what cannot be searched is a gap."""
    if not isinstance(request, RangeScope) or not request.commits or prepared.repository is None:
        return prepared
    globs = Globs(settings.include, settings.exclude)
    read = await read_pushed(prepared.repository, request.commits)
    from codeloupe.analysers.secrets import search_commits

    wanted: list[tuple[str, Change]] = []
    for one in read:
        if one.change is not None:
            files = tuple(file for file in one.change.files if globs.unwanted(file.path) is None)
            wanted.append((one.commit.sha, replace(one.change, files=files)))
    searched = await search_commits(
        wanted, prepared.selection.files, trusted=prepared.trusted, timeout_seconds=settings.timeout_seconds
    )
    failed = [(f"commit {one.commit.sha[:12]}", one.problem) for one in read if one.change is None]
    gaps = (left_out(name, SkipReason.UNREADABLE, why, settings) for name, why in (*failed, *searched.failed))
    selection = replace(prepared.selection, skipped=(*prepared.selection.skipped, *gaps))
    return replace(prepared, selection=selection, beforehand=(*prepared.beforehand, *searched.findings))


def _remarks(prepared: Prepared, request: ScopeRequest) -> Iterator[ReviewError]:
    """What whoever reads the verdict should know of how the change was read."""
    if isinstance(request, FetchedScope) and request.assumed_base:
        what = f"the remote does not say which branch this pull request goes to: {request.assumed_base} was assumed"
        yield ReviewError("assumed_base", f"{what}; give its base to compare with another")
    # A stranger's change to what steers reviews does not steer this one.
    if not prepared.trusted and (changed := guidance_changed(prepared.change)):
        message = f"the change edits {', '.join(changed)}; the base's version was used for this review"
        yield ReviewError("rules_changed", message)
    for one in prepared.unused_guidance:
        yield ReviewError("guidance_unused", f"{one.path} was not used: {one.unused}")


class ReviewPlan(Struct, frozen=True, kw_only=True):
    """All that a run needs: the task, what was left out, who reviews, who verifies, and the policy.

    `reviewers` all review the same files at the same time; there is at least one. `baseline` holds the findings that
    are known and do not count; of an untrusted change it must not come from the change itself. `earlier` is what
    earlier rounds of this review found. `beforehand` is what analysers found in files that no reviewer gets.
    """

    task: ReviewTask
    selection: Selection
    policy: Policy
    reviewers: tuple[Reviewer, ...]
    verifier: Verifier | None = None
    baseline: Baseline = Baseline()
    earlier: EarlierRounds | None = None
    beforehand: tuple[Finding, ...] = ()


async def run_review(plan: ReviewPlan, *, clock: Clock, started: float, emit: EventSink) -> Review:
    """Review the plan's files: reviewers, merge, earlier rounds, suppressions, verification, verdict, in that order.

    A failed part makes the review incomplete; only cancellation is raised. A change without files to review is
    concluded at once, and nobody is asked.
    """
    warnings: set[str] = set()
    broken = False

    def sink(event: Event) -> None:
        """Pass an event on, a warning once. A listener that fails takes nothing from the review."""
        nonlocal broken
        if isinstance(event, Warned):
            if event.message in warnings:
                return
            warnings.add(event.message)
        try:
            emit(event)
        except Exception:  # noqa: BLE001 - a display may fail at anything, and what was bought for the review is not lost for it
            if not broken:
                _log.warning("an event of the review could not be shown", exc_info=True)
            broken = True

    for reviewer in plan.reviewers:
        _log.info("Initializing code reviewer: %s (%s)", reviewer.info.type, reviewer.info.why)
    outcome = ReviewerOutcome()
    if plan.task.files or plan.beforehand:
        count = len(plan.task.files)
        sink(StageStarted("analysing", f"{count} file{'' if count == 1 else 's'}"))
        from codeloupe.engine.merge import find

        outcome = await find(plan, sink)
    result = _conclude(plan, outcome)
    for error in (one for one in result.errors if one.message not in warnings):
        _log.warning("%s: %s", error.kind, error.message)
    for gap in result.errors[len(outcome.errors) :]:
        sink(Warned(gap.message))
    return replace(result, usage=replace(outcome.usage, duration_seconds=clock() - started))


def _conclude(plan: ReviewPlan, outcome: ReviewerOutcome) -> Review:
    read, unchanged = with_and_without_lines(plan.task.files)
    coverage = Coverage(
        files_total=plan.selection.total,
        files_reviewed=sum(file.path not in outcome.unreviewed for file in read) + len(plan.selection.lock_files),
        skipped=(*plan.selection.skipped, *unchanged),
        units_total=outcome.units_total,
        units_failed=outcome.units_failed,
    )
    result = Review(
        review_id=secrets.token_hex(16),
        scope=plan.task.change.scope,
        reviewer=joined_info([reviewer.info for reviewer in plan.reviewers]),
        coverage=coverage,
        **conclude(outcome.findings, plan.policy, coverage, complete=coverage.complete),
    )
    summary, fail_on = result.summary, plan.policy.fail_on
    if (earlier := plan.earlier) is not None and plan.task.files:
        summary += earlier.remark
        # Whether a further round is worth its price: this one brought nothing new that could block.
        if not earlier.is_first and result.complete and converged(result.findings, fail_on):
            summary += f"; converged: nothing new of {fail_on.label} or above"
    # A file that should have been reviewed and was not is an error of the review.
    gaps = (f"{skip.file}: {skip.describe()}" for skip in coverage.skipped if skip.is_gap)
    errors = (*outcome.errors, *(ReviewError("not_reviewed", gap) for gap in gaps), *unplaced_errors(result.unsettled))
    return replace(result, summary=summary, errors=errors)
