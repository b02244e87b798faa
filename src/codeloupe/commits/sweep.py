"""A sweep: many commits, each reviewed on its own with the experts of its category, and one outcome for all."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import reduce
from pathlib import Path

from msgspec.structs import replace

from codeloupe.calls import AgentCalls
from codeloupe.commits.categories import categorise
from codeloupe.commits.queries import describe, scope_of, with_whole_days
from codeloupe.commits.running import SweepRun, write_transcript
from codeloupe.config.schema import Settings
from codeloupe.errors import StoreError
from codeloupe.findings.verdict import joined_info, score
from codeloupe.git.commits import list_commits
from codeloupe.git.repository import open_repository
from codeloupe.history import SweepKeeper, keeping_sweep
from codeloupe.model.agent import Usage
from codeloupe.model.events import ReviewerChosen
from codeloupe.model.finding import Finding, Severity, Source
from codeloupe.model.limits import QuotaWait
from codeloupe.model.ports import EventSink
from codeloupe.model.review import Review, describe_pending
from codeloupe.model.sweep import (
    CommitQuery,
    CommitReview,
    CommitSweep,
    CommitVerdict,
    PlanStep,
    SweepPart,
)
from codeloupe.planning.settings import configure
from codeloupe.reviewers.choose import ChosenReviewer, Team, choose_reviewers, guarded
from codeloupe.reviewers.prompt import PROMPT_VERSION

_MOST_PLANNED = 10


def verdict(findings: Sequence[Finding]) -> CommitVerdict:
    """Return LEAVE from 80 points, FIX below, and REVERT for what a reviewer other than the analysers claims.

    That is a score below 50 without the analysers' findings, or a critical finding that verification confirmed.
    """
    reviewed = [finding for finding in findings if finding.source is not Source.ANALYSER]
    critical = [finding for finding in reviewed if finding.can_block and finding.severity is Severity.CRITICAL]
    if score(reviewed) < 50 or any(finding.is_confirmed for finding in critical):
        return CommitVerdict.REVERT
    if score(findings) < 80:
        return CommitVerdict.FIX
    return CommitVerdict.LEAVE


def plan_of(findings: Iterable[Finding]) -> tuple[PlanStep, ...]:
    """Return the steps for each finding of medium or above that counts, the worst first.

    An analyser's finding has one step, `fix`, with the analyser's advice. Every other finding has two steps, `red` and
    `green`; a last step, `refactor`, is for the files of these findings.
    """
    worth = [finding for finding in findings if finding.can_block and finding.severity.at_least(Severity.MEDIUM)]
    worth.sort(key=lambda finding: (finding.severity.priority, finding.file, finding.first_line))
    steps: list[PlanStep] = []
    tested: list[str] = []
    for finding in worth[:_MOST_PLANNED]:
        if finding.source is Source.ANALYSER:
            steps.append(_fix_step(finding))
        else:
            steps += _test_first_steps(finding)
            tested.append(finding.file)
    left = len(worth) - _MOST_PLANNED
    more = f"Then fix the other {left} in the same way." if left > 0 else ""
    if tested:
        files = ", ".join(dict.fromkeys(tested))
        text = f"With all tests green, clean up the changed code: {files}. {more}"
        steps.append(PlanStep("refactor", text.strip()))
    elif more:
        steps.append(PlanStep("fix", more))
    return tuple(steps)


def _fix_step(finding: Finding) -> PlanStep:
    """Return the step for an analyser's finding."""
    text = f"Fix {_place(finding)}: {_sentence(finding.title)}"
    advice = (finding.suggestion or "").strip().splitlines()
    if advice:
        text += f" {advice[0][:300]}"
    return PlanStep("fix", text, finding.replacement or "")


def _test_first_steps(finding: Finding) -> list[PlanStep]:
    """Return the steps for a finding that a test can show: the failing test, and the change that makes it pass."""
    place = _place(finding)
    red = f"Write a test that fails because of this: {_sentence(finding.title)} ({place})"
    green = f"Change {place} until it passes, and nothing else."
    advice = (finding.suggestion or "").strip().splitlines()
    if len(advice) == 1:
        green += f" Suggested: {advice[0][:300]}"
    if finding.replacement:
        green += " New code for these lines:"
    return [PlanStep("red", red), PlanStep("green", green, finding.replacement or "")]


def _place(finding: Finding) -> str:
    if finding.line_start is None:
        return finding.file
    return f"{finding.file}:{finding.line_start}"


def _sentence(title: str) -> str:
    words = " ".join(title.split())
    return words if words.endswith((".", "!", "?")) else f"{words}."


def overall_score(commits: Iterable[CommitReview]) -> float | None:
    """Return the mean score of the commits that were reviewed, or None if there is none."""
    scores = [commit.score for commit in commits if commit.score is not None]
    if not scores:
        return None
    return round(sum(scores) / len(scores), 2)


def summarise(commits: Sequence[CommitReview]) -> str:
    """Return one line of a fixed form: the number of commits, and the number with each recommendation."""
    verdicts = Counter(commit.verdict for commit in commits)
    return (
        f"{len(commits)} commits reviewed, {verdicts[CommitVerdict.LEAVE]} OK, "
        f"{verdicts[CommitVerdict.FIX]} need fixes, {verdicts[CommitVerdict.REVERT]} should be reverted, "
        f"{verdicts[None]} could not be reviewed"
    )


def exit_code(commits: Iterable[CommitReview], *, strict: bool, pass_when_incomplete: bool) -> int:
    """Return the exit code of a sweep.

    It is 1 for a finding of high or above that counts, if `strict`; else 3 for a commit that could not be reviewed,
    unless `pass_when_incomplete`; else 0.
    """
    has_severe_finding = False
    is_incomplete = False
    for commit in commits:
        if commit.verdict is None:
            is_incomplete = True
        findings = () if commit.review is None else commit.review.findings
        if any(finding.can_block and finding.severity.at_least(Severity.HIGH) for finding in findings):
            has_severe_finding = True
    if strict and has_severe_finding:
        return 1
    if is_incomplete and not pass_when_incomplete:
        return 3
    return 0


def judged(commit: CommitReview, review: Review) -> CommitReview:
    """Return a commit with its review, plan, score and verdict. After an incomplete review it has no verdict."""
    outcome = replace(commit, review=review, plan=plan_of(review.findings))
    if not review.complete:
        return replace(outcome, failure=_why_incomplete(review))
    # A commit of which nothing was reviewed has no score.
    reached = score(review.findings) / 100 if review.coverage.files_reviewed else None
    return replace(outcome, score=reached, verdict=verdict(review.findings))


def _why_incomplete(review: Review) -> str:
    """Return the first three reasons why a review is incomplete."""
    reasons = [f"{finding.file or '?'}: {describe_pending(finding)}" for finding in review.pending]
    reasons += [unit.reason for unit in review.coverage.units_failed]
    reasons += [f"{skip.file}: {skip.describe()}" for skip in review.coverage.skipped if skip.is_gap]
    different = [reason for reason in dict.fromkeys(reasons) if reason]
    if not different:
        return "the review is not complete"
    named = "; ".join(different[:3])
    if len(different) > 3:
        named += f"; and {len(different) - 3} more"
    return named


async def review_commits(  # noqa: PLR0913 - each is a choice of its own, by name
    query: CommitQuery | None = None,
    *,
    repo: Path | str = ".",
    settings: Settings | None = None,
    strict: bool = False,
    fresh: bool = False,
    reviewers: Sequence[ChosenReviewer] | None = None,
    emit: EventSink = lambda _event: None,
    calls: AgentCalls | None = None,
) -> CommitSweep:
    """Review commits as `Runtime.review_commits` does; `reviewers` replace those that the settings name."""
    started = time.monotonic()
    query = query or CommitQuery()
    calls = calls or AgentCalls()
    emit = guarded(emit)
    if settings is None:
        configured = await configure(scope_of(query), repo=repo, environment=calls.environment)
        settings = configured.settings
    settings = _for_sweep(settings)
    repository = await open_repository(Path(repo))
    started_sweep = CommitSweep(
        sweep_id=uuid.uuid4().hex, description=describe(query), commits=(), summary="", exit_code=0, strict=strict
    )

    keeping: AbstractAsyncContextManager[SweepKeeper | None] = nullcontext()
    if settings.keep_history:
        keeping = keeping_sweep(
            started_sweep, repo=Path(repo), prompt_version=PROMPT_VERSION, opened=calls.opened_history, emit=emit
        )
    async with keeping as keeper:
        commits = await list_commits(repository, with_whole_days(query))
        chosen = reviewers if reviewers is not None else await choose_reviewers(settings, calls)
        for one in chosen:
            emit(ReviewerChosen(one.info))
        team = Team(
            chosen,
            settings,
            calls,
            repo=Path(repo),
            fresh=fresh,
            transcript=write_transcript,
            quota_wait=QuotaWait.UNTIL_RESET,
        )
        run = SweepRun(repository, settings, team, emit=emit, keeper=keeper)
        reviewed = await run.run(commits, query, judge=judged)
        started_sweep = replace(started_sweep, reviewer=joined_info([one.info for one in chosen]))
        passes = settings.on_incomplete == "pass"
        sweep = concluded(started_sweep, reviewed, passes=passes, seconds=time.monotonic() - started)
        if keeper is not None:
            await keeper.finish(sweep)
    return sweep


def _for_sweep(given: Settings) -> Settings:
    """Return the settings for many calls: a call may take as long as an analyser, not as long as a whole review."""
    return replace(
        given,
        review_timeout_seconds=min(given.review_timeout_seconds, given.timeout_seconds),
        agent_sdk_review_timeout=min(given.agent_sdk_review_timeout, given.timeout_seconds),
    )


def concluded(started: CommitSweep, commits: Sequence[CommitReview], *, passes: bool, seconds: float) -> CommitSweep:
    """Return the sweep with its commits, summary, score and exit code; with `passes`, incomplete commits pass."""
    spent = reduce(Usage.plus, (commit.review.usage for commit in commits if commit.review), Usage())
    return replace(
        started,
        commits=tuple(commits),
        summary=summarise(commits),
        exit_code=exit_code(commits, strict=started.strict, pass_when_incomplete=passes),
        score=overall_score(commits),
        # The reviews ran at the same time, so their times do not add up.
        usage=replace(spent, duration_seconds=seconds),
    )


async def review_commit(
    part: SweepPart,
    *,
    repo: Path,
    settings: Settings,
    calls: AgentCalls,
    fresh: bool = False,
    emit: EventSink = lambda _event: None,
) -> CommitReview:
    """Review one commit of a sweep over several machines, and store it with the sweep. Raise StoreError."""
    settings = _for_sweep(settings)
    repository = await open_repository(repo)
    query = CommitQuery(revision=part.revision, merges=part.merges)
    commits = await list_commits(repository, replace(query, revision=part.commit, max_count=1))
    async with keeping_sweep(
        _started_sweep(part),
        repo=repo,
        prompt_version=PROMPT_VERSION,
        position=part.position,
        work_tree=part.work_tree,
        opened=calls.opened_history,
    ) as keeper:
        chosen = await choose_reviewers(settings, calls)
        team = Team(chosen, settings, calls, repo=repo, fresh=fresh, transcript=write_transcript)
        run = SweepRun(repository, settings, team, emit=guarded(emit), keeper=keeper)
        (reviewed,) = await run.run(commits, query, judge=judged, newest=part.newest)
        if keeper.problem:
            hint = "retry the commit; finished calls come from the ledger"
            raise StoreError(keeper.problem, hint=hint, retryable=True)
    return reviewed


async def give_up_commit(part: SweepPart, reason: str, *, repo: Path, calls: AgentCalls) -> None:
    """Store with its sweep that a commit could not be reviewed, and why."""
    (commit,) = await list_commits(await open_repository(repo), CommitQuery(revision=part.commit, max_count=1))
    outcome = CommitReview(commit=commit, category=categorise(commit), experts=(), failure=" ".join(reason.split()))
    keeping = keeping_sweep(
        _started_sweep(part), repo=repo, position=part.position, work_tree=part.work_tree, opened=calls.opened_history
    )
    async with keeping as keeper:
        await keeper.keep_commit(outcome)
        if keeper.problem:
            raise StoreError(keeper.problem, hint="the sweep is unfinished; retry the job", retryable=True)


def _started_sweep(part: SweepPart) -> CommitSweep:
    """Return the sweep of a part as it was at its start, without commits."""
    return CommitSweep(
        sweep_id=part.sweep_id, description=part.description, strict=part.strict, commits=(), summary="", exit_code=0
    )


async def finish_sweep(part: SweepPart, *, calls: AgentCalls, passes: bool) -> CommitSweep | None:
    """Conclude a sweep over several machines if all its commits are stored; return None while some are missing.

    The worker that stores the last commit calls this. A second call does no harm.
    """

    def finish() -> CommitSweep | None:
        with calls.opened_history() as history:
            if history.count_commits(part.sweep_id) < part.total:
                return None
            record = history.get_sweep(part.sweep_id)
            if record is None or record.problems:
                return None
            reviews = [commit.review for commit in record.sweep.commits if commit.review is not None]
            started = replace(record.sweep, reviewer=reviews[0].reviewer if reviews else None)
            seconds = sum(review.usage.duration_seconds for review in reviews)
            sweep = concluded(started, started.commits, passes=passes, seconds=seconds)
            history.finish_sweep(replace(record, sweep=sweep, finished=True))
            return sweep

    return await asyncio.to_thread(finish)
