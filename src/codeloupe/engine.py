"""A review from top to bottom.

scope → git → change → planning → units → reviewers → claims → merge with earlier rounds → suppress → verify → verdict
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Unpack

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.calls import AgentCalls
from codeloupe.config.schema import Settings
from codeloupe.findings.earlier import Earlier, read_earlier, with_regressions, without_known_gone
from codeloupe.findings.merge import merge
from codeloupe.findings.places import Places
from codeloupe.findings.rounds import Judged, judge_cases, round_of, with_proofs
from codeloupe.findings.since_last import since_last
from codeloupe.findings.suppress import Suppressions
from codeloupe.findings.verdict import conclude, converged, gap_errors, joined_info, policy_of
from codeloupe.git.repository import opening_once
from codeloupe.history import Answers, Saved, store_review
from codeloupe.model.agent import Usage
from codeloupe.model.baseline import Baseline
from codeloupe.model.change import Expert, ScopeKind
from codeloupe.model.events import ChangeRead, ReviewerChosen, StageStarted, Warned
from codeloupe.model.finding import Finding
from codeloupe.model.ports import (
    EventSink,
    Reviewer,
    ReviewerResult,
    ReviewOptions,
    Verification,
    Verifier,
    VerifierResult,
)
from codeloupe.model.review import NOT_VERIFIED, Coverage, Level, Policy, Review, ReviewError, SkipReason, Verdict
from codeloupe.model.scope import DefaultScope, FetchedScope, ScopeRequest
from codeloupe.planning.commits import with_each_commit
from codeloupe.planning.coverage import conditions_of, names_of, uncovered
from codeloupe.planning.experts import experts_of
from codeloupe.planning.prepare import Prepared, fetched, prepare, remarks_of, with_gaps_if_nothing_is_left
from codeloupe.planning.select import with_and_without_lines
from codeloupe.planning.settings import settings_for
from codeloupe.planning.units import plan_units
from codeloupe.reviewers.choose import ChosenReviewer, Team, choose_reviewers, guarded, review_together
from codeloupe.reviewers.prompt import PROMPT_VERSION
from codeloupe.store.baseline import read_baseline
from codeloupe.system.logs import log_failure

_log = logging.getLogger(__name__)
_PARTIAL_TREE = "the repository is very large, so the agent gets a copy of only the files around the change"
_FIRST_ROUND = "there is no earlier review of this branch, so --since-last reports everything"


class Job(Struct, frozen=True, kw_only=True):
    """All that a review needs: the plan, who reviews, who verifies, the policy, and what is known already.

    All `reviewers` review the plan at the same time. In an untrusted change the `baseline` must not come from the
    change itself. `experts` are the names of the checklists that agents get.
    """

    plan: Prepared
    policy: Policy
    reviewers: tuple[Reviewer, ...]
    verifier: Verifier | None = None
    baseline: Baseline = Baseline()
    earlier: Earlier = Earlier()
    experts: frozenset[str] = frozenset()
    fresh: bool = False
    tree: Path | None = None


async def review(
    scope: ScopeRequest | None = None,
    *,
    repo: Path | str = ".",
    settings: Settings | None = None,
    calls: AgentCalls | None = None,
    reviewers: Sequence[ChosenReviewer] | None = None,
    **options: Unpack[ReviewOptions],
) -> Review:
    """Review a change as `Runtime.review` does; `reviewers` replace those that the settings name."""
    started = time.monotonic()
    calls = calls or AgentCalls()
    emit = guarded(options.get("emit"))
    async with AsyncExitStack() as stack:
        stack.enter_context(opening_once())
        request, place = await stack.enter_async_context(fetched(scope or DefaultScope(), Path(repo)))
        settings = await settings_for(request, place, settings, calls.environment)
        if reviewers is None:
            reviewers = await choose_reviewers(settings, calls, needs_agent=options.get("needs_agent", False))
        for one in reviewers:
            emit(ReviewerChosen(one.info))
        answers = Answers(options.get("transcript"))
        team = Team(
            reviewers,
            settings,
            calls,
            place,
            fresh=options.get("fresh", False),
            transcript=answers,
            session_id=options.get("session_id"),
        )
        # Wrong settings are reported before anything is read or paid for.
        made = team.reviewers()
        experts = experts_of(settings) if team.has_agents or settings.experts else ()
        emit(StageStarted("reading", "the change"))
        prepared = await stack.enter_async_context(_prepared(request, team, options, emit))
        emit(ChangeRead(prepared.change))
        conditions = conditions_of(prepared, settings, experts, agents=team.agents, prompt_version=PROMPT_VERSION)
        job = await _job(prepared, team, made, experts, conditions)
        plan, earlier = job.plan, job.earlier
        remarks = [*remarks_of(plan, request), *team.remarks(plan)]
        _announce(job, remarks, emit, only_new=options.get("since_last", False), has_agents=team.has_agents)
        outcome = await run_review(job, started=started, emit=emit)
        found = with_regressions(outcome.findings, calls.opened_history, earlier.checkout)
        outcome = replace(outcome, findings=found, errors=(*outcome.errors, *remarks))
        saved = _saved(outcome, job, team, conditions)
        if options.get("since_last", False):
            outcome = since_last(outcome, plan, earlier)
        if not settings.keep_history or outcome.is_empty:
            return outcome
        work_tree = options.get("work_tree", "")
        saved = replace(saved, raw_outputs=answers.texts, asked_in=Path(repo), work_tree=work_tree)
        return await store_review(outcome, saved, opened=calls.opened_history, emit=emit)


async def _job(
    prepared: Prepared, team: Team, reviewers: tuple[Reviewer, ...], experts: Sequence[Expert], conditions: str
) -> Job:
    """Return the job of a review: the plan with its units, and what earlier rounds and the baseline say."""
    earlier = await _earlier(prepared, team, conditions)
    plan = with_units(prepared, team, experts, earlier)
    return Job(
        plan=plan,
        policy=policy_of(team.settings),
        reviewers=reviewers,
        verifier=team.verifier(),
        baseline=await _baseline(plan, team.repo),
        earlier=earlier,
        experts=frozenset(expert.name for expert in experts),
        fresh=team.fresh,
        tree=_working_tree(plan),
    )


async def run_review(job: Job, *, started: float, emit: EventSink) -> Review:
    """Review a plan: reviewers, merge with earlier rounds, suppress, verify, verdict. Only cancellation is raised."""
    plan = job.plan
    results: list[ReviewerResult] = []
    for reviewer in job.reviewers:
        _log.info("Initializing code reviewer: %s (%s)", reviewer.info.type, reviewer.info.why)
    if plan.files:
        count = len(plan.files)
        emit(StageStarted("analysing", f"{count} file{'' if count == 1 else 's'}"))
        results = await review_together(job.reviewers, plan, emit)
    results.append(_prepared_result(plan))
    claims = [claim for result in results for claim in result.claims]
    # Findings in excluded files are gone; those in other skipped files stay.
    unread = frozenset(skip.file for skip in plan.selection.skipped if skip.reason is not SkipReason.EXCLUDED)
    places = Places(plan, tree=job.tree, unread=unread)
    cases = merge(claims, job.earlier.findings or (), places)
    round_ = round_of(results, places, job.policy, units=plan.units, experts=job.experts, fresh=job.fresh)
    judged = judge_cases(cases, round_)

    suppressions = Suppressions(
        plan,
        statements_of=places.names,
        baseline=job.baseline,
        earlier=job.earlier.findings or (),
        dismissals=job.earlier.dismissals,
        today=datetime.now(UTC).date(),
        unknown=frozenset(file for result in results for unit in result.units_failed for file in unit.files),
        open_findings=frozenset(one.finding.fingerprint for one in judged if one.finding.is_open),
    )
    judged = [_suppressed(one, suppressions) for one in judged]

    verified, verifier_result = await _verified(judged, places, job, emit)
    reported, still_gone = without_known_gone(verified, job.earlier)
    coverage = _coverage(job, results)
    errors = [error for result in results for error in result.errors]
    errors += [*verifier_result.errors, *suppressions.errors(), *gap_errors(coverage)]
    draft = Review(
        review_id=secrets.token_hex(16),
        scope=plan.change.scope,
        reviewer=joined_info([reviewer.info for reviewer in job.reviewers]),
        verdict=Verdict.INCOMPLETE,
        complete=False,
        exit_code=0,
        summary="",
        policy=job.policy,
        findings=tuple(reported),
        omitted=tuple(still_gone),
        coverage=coverage,
        errors=tuple(errors),
    )
    outcome = conclude(draft)
    for error in outcome.errors:
        severity = logging.WARNING if error.level is Level.PROBLEM else logging.INFO
        _log.log(severity, "%s: %s", error.kind, error.message)
        emit(Warned(error.message, error.level))
    usage = reduce(Usage.plus, (result.usage for result in results), verifier_result.usage)
    usage = replace(usage, duration_seconds=time.monotonic() - started)
    return replace(outcome, usage=usage, summary=_summary(outcome, job))


async def _verified(
    judged: Sequence[Judged], places: Places, job: Job, emit: EventSink
) -> tuple[list[Finding], VerifierResult]:
    """Return the findings with their proofs. Suppressed findings are not verified, and none is verified twice."""
    wanted = [number for number, one in enumerate(judged) if one.checks and one.finding.suppression is None]
    result = VerifierResult()
    if job.verifier is not None and wanted:
        try:
            result = await job.verifier.verify([judged[number].question for number in wanted], job.plan, emit)
        except Exception as error:  # noqa: BLE001 - a verifier that fails takes nothing from the findings
            log_failure(_log, error, "the findings could not be verified")
            reason = f"{type(error).__name__}: {error}"
            failed = ReviewError(NOT_VERIFIED, f"the findings could not be verified: {reason}")
            result = VerifierResult(verifications=(Verification(problem=reason),) * len(wanted), errors=(failed,))
    findings = [one.finding for one in judged]
    for number, verification in zip(wanted, result.verifications, strict=False):
        findings[number] = with_proofs(judged[number], verification, places)
    return findings, result


def _suppressed(one: Judged, suppressions: Suppressions) -> Judged:
    if not one.finding.is_open:
        return one
    return replace(one, finding=suppressions.applied_to(one.finding))


def with_units(prepared: Prepared, team: Team, experts: Sequence[Expert], earlier: Earlier) -> Prepared:
    """Return the plan with the units that agents are asked about: the code that no exact answer covered."""
    known = tuple(finding for finding in earlier.findings or () if finding.is_open)
    if not team.has_agents:
        return replace(prepared, known=known)
    settings = team.settings
    files = uncovered(prepared.files, earlier.covered) if earlier.covered else prepared.files
    units = plan_units(
        files,
        effort=settings.effort,
        experts=experts,
        passes=settings.passes,
        apart=team.asks_experts_apart,
        own_tokens=team.own_tokens,
    )
    return replace(prepared, units=units, known=known, is_follow_up=bool(earlier.covered))


@asynccontextmanager
async def _prepared(
    request: ScopeRequest, team: Team, options: ReviewOptions, emit: EventSink
) -> AsyncIterator[Prepared]:
    settings = team.settings
    async with prepare(
        request,
        team.repo,
        settings,
        # In a fetched pull request there is no other tree in which earlier findings could be looked for.
        with_tree=any(one.reads_tree for one in team.chosen) or isinstance(request, FetchedScope),
        whole_tree=any(one.needs_whole_tree for one in team.chosen),
        with_guidance=settings.guidance and team.has_agents,
        context=options.get("context", ""),
        must_match=True,
    ) as prepared:
        own_patterns = options.get("own_patterns", frozenset())
        with_gaps = with_gaps_if_nothing_is_left(prepared, own_patterns)
        yield await with_each_commit(with_gaps, request, settings, emit)


async def _earlier(prepared: Prepared, team: Team, conditions: str) -> Earlier:
    if not prepared.change.files or not team.settings.keep_history:
        return Earlier()
    opened = team.calls.opened_history
    return await read_earlier(prepared, opened, conditions=conditions, fresh=team.fresh)


def _prepared_result(plan: Prepared) -> ReviewerResult:
    """Return the claims that analysers made while the plan was prepared: about lock files, and single commits."""
    read = frozenset(file.path for file in (*plan.lock_files, *plan.files)) - plan.unread_locks
    return ReviewerResult(claims=plan.beforehand, completed={"lock-files": read})


def _coverage(job: Job, results: Sequence[ReviewerResult]) -> Coverage:
    """Return what was reviewed; a file with a failed unit was not."""
    plan = job.plan
    read, unchanged = with_and_without_lines(plan.files)
    failed = tuple(unit for result in results for unit in result.units_failed)
    unreviewed = {file for unit in failed for file in unit.files}
    return Coverage(
        files_total=plan.selection.total,
        files_reviewed=sum(file.path not in unreviewed for file in read) + len(plan.lock_files),
        skipped=(*plan.selection.skipped, *unchanged),
        units_total=sum(result.units_total for result in results),
        units_failed=failed,
        units=tuple(unit for result in results for unit in result.units),
    )


def _announce(job: Job, remarks: Sequence[ReviewError], emit: EventSink, *, only_new: bool, has_agents: bool) -> None:
    """Emit the problems of earlier rounds, and the notes about this one, before anything is paid for."""
    for problem in job.earlier.problems:
        emit(Warned(problem))
    notes = [error.message for error in remarks]
    if only_new and job.earlier.is_first:
        notes.append(_FIRST_ROUND)
    if job.plan.tree_is_partial and has_agents:
        notes.append(_PARTIAL_TREE)
    for note in notes:
        emit(Warned(note, Level.NOTE))


def _saved(outcome: Review, job: Job, team: Team, conditions: str) -> Saved:
    """Return what is stored with a review; a round without agents passes on what agents have covered of this change."""
    earlier = job.earlier
    saved = Saved(repo=team.repo, terms=earlier.terms or conditions, checkout=earlier.checkout)
    if team.has_agents:
        return replace(saved, terms=conditions, seen=_covered(job, outcome), prompt_version=PROMPT_VERSION)
    if not earlier.seen:
        return saved
    still_covered = names_of(job.plan.files).intersection(earlier.seen)
    return replace(saved, seen=tuple(sorted(still_covered)))


def _covered(job: Job, outcome: Review) -> tuple[str, ...]:
    """Return the names of the code that exact answers have covered by now."""
    failed = {file for unit in outcome.coverage.units_failed for file in unit.files}
    return tuple(sorted(names_of(file for file in job.plan.files if file.path not in failed)))


def _working_tree(plan: Prepared) -> Path | None:
    """Return the working tree if that is under review, to find earlier findings outside the change in."""
    is_reviewed = plan.change.scope.kind in (ScopeKind.BRANCH, ScopeKind.UNCOMMITTED)
    if not is_reviewed or not plan.trusted or plan.repository is None:
        return None
    return plan.repository.root


def _summary(outcome: Review, job: Job) -> str:
    """Return the summary; in a later round it says whether a further one is worth its price."""
    fail_on = job.policy.fail_on
    if not job.earlier.is_first and outcome.complete and job.plan.files and converged(outcome.findings, fail_on):
        return f"{outcome.summary}; converged: nothing new of {fail_on.label} or above"
    return outcome.summary


async def _baseline(plan: Prepared, repo: Path) -> Baseline:
    """Return the accepted findings; for an untrusted change those of a base that the change cannot have written."""
    scope = plan.change.scope
    if not plan.trusted:
        scope = replace(scope, base=plan.believed)
    return await read_baseline(scope, repo=repo, trusted=plan.trusted)
