"""A sweep: many commits, each reviewed by itself with the experts of its category, and one outcome for all.

Agents get each commit's diff from one pass over the log, and its files from git's objects. The whole tree of a commit
is exported only where a critical or high finding is to be verified. What a project says of all its commits, guidance
and baseline, is read once: at the newest commit, or before untrusted ones.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from contextvars import ContextVar
from datetime import date
from functools import partial, reduce
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.calls import AgentCalls
from codeloupe.commits.categories import categorise, tables
from codeloupe.config.schema import Settings
from codeloupe.engine import Job, run_review, with_units
from codeloupe.errors import CodeloupeError, RevisionError, StoreError
from codeloupe.findings.earlier import Earlier, read_dismissals
from codeloupe.findings.verdict import joined_info, policy_of, score
from codeloupe.git.commits import list_commits, read_commit_changes
from codeloupe.git.guidance import read_guidance
from codeloupe.git.objects import reading_objects
from codeloupe.git.repository import Repository, open_repository
from codeloupe.git.scopes import Side, Sides, believed_base, resolve_scope
from codeloupe.history import SweepKeeper, keeping_sweep
from codeloupe.model.agent import Usage
from codeloupe.model.baseline import EXPIRED, UNUSED, Baseline
from codeloupe.model.change import Change, Commit, Expert, GuidanceFile, Intent, Scope, ScopeKind
from codeloupe.model.events import AgentActivity, CommitReviewed, Event, ReviewerChosen, StageStarted, Warned
from codeloupe.model.finding import Claim, Finding, Severity, Source
from codeloupe.model.history import Dismissal
from codeloupe.model.ports import EventSink, Plan, Transcript, Verifier, VerifierResult
from codeloupe.model.review import Level, Review, describe_pending
from codeloupe.model.scope import DefaultScope, RangeScope, ScopeRequest
from codeloupe.model.sweep import (
    CommitCategory,
    CommitQuery,
    CommitReview,
    CommitSweep,
    CommitVerdict,
    PlanStep,
    SweepPart,
)
from codeloupe.planning.experts import experts_of
from codeloupe.planning.prepare import CommitSource, Prepared, prepare_commit
from codeloupe.planning.settings import configure
from codeloupe.reviewers.choose import ChosenReviewer, Team, choose_reviewers, guarded
from codeloupe.reviewers.prompt import PROMPT_VERSION
from codeloupe.store.baseline import read_baseline
from codeloupe.system.directories import temporary_folder
from codeloupe.system.logs import log_failure
from codeloupe.system.regex import regex


def verdict(findings: Sequence[Finding]) -> CommitVerdict:
    """LEAVE from 80 points, FIX from 50, REVERT below, and for any critical finding that verification confirmed."""
    critical = (finding for finding in findings if finding.can_block and finding.severity is Severity.CRITICAL)
    reached = score(findings)
    if reached < 50 or any(finding.is_confirmed for finding in critical):
        return CommitVerdict.REVERT
    return CommitVerdict.LEAVE if reached >= 80 else CommitVerdict.FIX


def plan_of(findings: Iterable[Finding]) -> tuple[PlanStep, ...]:
    """Test first: red and green for each finding of medium or above that counts, the worst first, then refactor."""
    worth = (finding for finding in findings if finding.can_block and finding.severity.at_least(Severity.MEDIUM))
    ordered = sorted(worth, key=lambda finding: (finding.severity.priority, finding.file, finding.first_line))
    planned = ordered[:10]
    steps: list[PlanStep] = []
    for finding in planned:
        place = finding.file if finding.line_start is None else f"{finding.file}:{finding.line_start}"
        title = " ".join(finding.title.split())
        title += "" if title.endswith((".", "!", "?")) else "."
        steps.append(PlanStep("red", f"Write a test that fails because of this: {title} ({place})"))
        lines = (finding.suggestion or "").strip().splitlines()
        hint = f" Suggested: {lines[0][:300]}" if len(lines) == 1 else ""
        offer = " New code for these lines:" if finding.replacement else ""
        green = f"Change {place} until it passes, and nothing else.{hint}{offer}"
        steps.append(PlanStep("green", green, finding.replacement or ""))
    if steps:
        changed = ", ".join(dict.fromkeys(finding.file for finding in planned))
        left = len(ordered) - len(planned)
        more = f" Then fix the other {left} in the same way." if left else ""
        steps.append(PlanStep("refactor", f"With all tests green, clean up the changed code: {changed}.{more}"))
    return tuple(steps)


def overall_score(commits: Iterable[CommitReview]) -> float | None:
    """The mean over the commits that were reviewed, or None when there is none."""
    scores = [commit.score for commit in commits if commit.score is not None]
    return round(sum(scores) / len(scores), 2) if scores else None


def summarise(commits: Sequence[CommitReview]) -> str:
    """One line of a fixed form: how many, and what is to be done with them."""
    counts = {kind: sum(commit.verdict is kind for commit in commits) for kind in (*CommitVerdict, None)}
    return (
        f"{len(commits)} commits reviewed, {counts[CommitVerdict.LEAVE]} OK, {counts[CommitVerdict.FIX]} need fixes, "
        f"{counts[CommitVerdict.REVERT]} should be reverted, {counts[None]} could not be reviewed"
    )


def exit_code(commits: Iterable[CommitReview], *, strict: bool, pass_when_incomplete: bool) -> int:
    """1 for a finding of high or above that counts, if `strict`; 3 for a commit that could not be reviewed; else 0."""
    known = tuple(commits)
    findings = (finding for commit in known if commit.review is not None for finding in commit.review.findings)
    if strict and any(finding.can_block and finding.severity.at_least(Severity.HIGH) for finding in findings):
        return 1
    return 3 if not pass_when_incomplete and any(commit.verdict is None for commit in known) else 0


_DAY = regex(r"([0-9]{4})([-/.])([0-9]{1,2})\2([0-9]{1,2})")
# Nobody can log in, install a program or mend a database while the others wait. A budget that is spent is not among
# them: it refuses by itself, at no cost, and lets through what was bought before.
_LASTING = frozenset(("not_logged_in", "not_installed", "ledger_failed"))
# Commits that only analysers review: so many that the next call of an analyser has enough to analyse together.
_MOST_OFFLINE_COMMITS = int(__import__("os").environ.get("X_COMMITS", "64"))
_log = logging.getLogger(__name__)
# The same reviewers review all commits at the same time, each in a task of its own.
_transcript: ContextVar[Transcript | None] = ContextVar("_transcript", default=None)

# A commit that is not reviewed yet, and its change; without one `failure` says why it cannot be read.
Assignment = tuple[CommitReview, Change | None]


def commit_experts(settings: Settings) -> Mapping[CommitCategory, tuple[Expert, ...]]:
    """Whose checklists a sweep uses for each category: those of the settings, or the usual ones. Raises ConfigError."""
    # The category is what an author says of a commit: one that is called documentation may be anything.
    always = ("general",) if settings.untrusted else ()
    usual = tables()["experts"]
    named = {each: settings.commit_experts.get(each.value, usual[each.value]) for each in CommitCategory}
    return {each: experts_of(settings, tuple(dict.fromkeys((*names, *always)))) for each, names in named.items()}


def with_whole_days(query: CommitQuery) -> CommitQuery:
    """The query with each day of the calendar as all of it: from its beginning, or until its end, in local time.

    To git a day without a time is this very moment of it, so that the same words would choose other commits at night
    than in the morning. Raises RevisionError for a day that no calendar has, which git would take for another.
    """

    def timed(text: str | None, moment: str) -> str | None:
        found = _DAY.fullmatch((text or "").strip())
        if found is None:
            return text
        try:
            day = date(int(found[1]), int(found[3]), int(found[4]))
        except ValueError as error:
            raise RevisionError(f"{text!r} is not a valid date", hint="write it as YYYY-MM-DD") from error
        return f"{day.isoformat()} {moment}"

    return replace(query, since=timed(query.since, "00:00:00"), until=timed(query.until, "23:59:59"))


def describe(query: CommitQuery) -> str:
    """Describe a query in words."""
    parts = [
        f"commits of {query.revision}",
        f"since {query.since}" if query.since else "",
        f"until {query.until}" if query.until else "",
        f"by {query.author}" if query.author else "",
        f"at most {query.max_count:,}" if query.max_count is not None else "",
        "each merged commit on its own" if query.merges else "",
    ]
    return ", ".join(part for part in parts if part)


def scope_of(query: CommitQuery) -> ScopeRequest:
    """Where the settings come from when the commits are not trusted: the base of a range, else that of the branch."""
    return RangeScope(query.revision) if ".." in query.revision else DefaultScope()


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
    """Review commits as `Runtime.review_commits` does; `reviewers` take the place of those that the settings name."""
    started = time.monotonic()
    query, calls = query or CommitQuery(), calls or AgentCalls()
    emit = guarded(emit)
    given = settings or (await configure(scope_of(query), repo=repo, environment=calls.environment)).settings
    settings = _for_sweep(given)
    repository = await open_repository(Path(repo))
    known = CommitSweep(
        sweep_id=uuid.uuid4().hex, description=describe(query), commits=(), summary="", exit_code=0, strict=strict
    )

    keeping: AbstractAsyncContextManager[SweepKeeper | None] = nullcontext()
    if settings.keep_history:
        keeping = keeping_sweep(
            known, repo=Path(repo), prompt_version=PROMPT_VERSION, opened=calls.opened_history, emit=emit
        )
    async with keeping as keeper:
        commits = await list_commits(repository, with_whole_days(query))
        chosen = reviewers if reviewers is not None else await choose_reviewers(settings, calls)
        for one in chosen:
            emit(ReviewerChosen(one.info))
        team = Team(chosen, settings, calls, repo=Path(repo), fresh=fresh, transcript=_take_down)
        reviewed = await _Sweep(repository, settings, team, emit, keeper).run(commits, query)
        known = replace(known, reviewer=joined_info([one.info for one in chosen]))
        passes = settings.on_incomplete == "pass"
        sweep = concluded(known, reviewed, passes=passes, seconds=time.monotonic() - started)
        if keeper is not None:
            await keeper.finish(sweep)
    return sweep


def _for_sweep(given: Settings) -> Settings:
    """The settings for many calls: each gets the time of an analyser at most, and not that of a whole review."""
    return replace(
        given,
        review_timeout_seconds=min(given.review_timeout_seconds, given.timeout_seconds),
        agent_sdk_review_timeout=min(given.agent_sdk_review_timeout, given.timeout_seconds),
    )


def concluded(known: CommitSweep, commits: Sequence[CommitReview], *, passes: bool, seconds: float) -> CommitSweep:
    """The sweep with all its commits, and what follows from them; `passes` is said of what could not be reviewed."""
    spent = reduce(Usage.plus, (commit.review.usage for commit in commits if commit.review), Usage())
    return replace(
        known,
        commits=tuple(commits),
        summary=summarise(commits),
        exit_code=exit_code(commits, strict=known.strict, pass_when_incomplete=passes),
        score=overall_score(commits),
        # They ran side by side, so that their times do not add up.
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
    """Review one commit of a sweep that is spread over machines, and keep it there: as `review_commits` does with each.

    Raises StoreError when it cannot be kept.
    """
    settings, repository = _for_sweep(settings), await open_repository(repo)
    query = CommitQuery(revision=part.revision, merges=part.merges)
    commits = await list_commits(repository, replace(query, revision=part.commit, max_count=1))
    async with keeping_sweep(
        _known(part),
        repo=repo,
        prompt_version=PROMPT_VERSION,
        position=part.position,
        work_tree=part.work_tree,
        opened=calls.opened_history,
    ) as keeper:
        chosen = await choose_reviewers(settings, calls)
        team = Team(chosen, settings, calls, repo=repo, fresh=fresh, transcript=_take_down)
        (reviewed,) = await _Sweep(repository, settings, team, guarded(emit), keeper).run(
            commits, query, newest=part.newest
        )
        if keeper.problem:
            hint = "retry the commit; finished calls come from the ledger"
            raise StoreError(keeper.problem, hint=hint, retryable=True)
    return reviewed


async def give_up_commit(part: SweepPart, reason: str, *, repo: Path, calls: AgentCalls) -> None:
    """Store with its sweep that a commit could not be reviewed, and why."""
    (commit,) = await list_commits(await open_repository(repo), CommitQuery(revision=part.commit, max_count=1))
    outcome = CommitReview(commit=commit, category=categorise(commit), experts=(), failure=" ".join(reason.split()))
    keeping = keeping_sweep(
        _known(part), repo=repo, position=part.position, work_tree=part.work_tree, opened=calls.opened_history
    )
    async with keeping as keeper:
        await keeper.keep_commit(outcome)
        if keeper.problem:
            raise StoreError(keeper.problem, hint="the sweep is unfinished; retry the job", retryable=True)


def _known(part: SweepPart) -> CommitSweep:
    about = {"sweep_id": part.sweep_id, "description": part.description, "strict": part.strict}
    return CommitSweep(**about, commits=(), summary="", exit_code=0)  # type: ignore[arg-type]  # as named


async def finish_sweep(part: SweepPart, *, calls: AgentCalls, passes: bool) -> CommitSweep | None:
    """Conclude a sweep that is spread over machines when all its commits are there; None while some are missing.

    Whoever keeps the last commit calls this; twice does no harm.
    """

    def finish() -> CommitSweep | None:
        with calls.opened_history() as history:
            if history.count_commits(part.sweep_id) < part.total:
                return None
            record = history.get_sweep(part.sweep_id)
            if record is None or record.problems:
                return None
            reviews = [commit.review for commit in record.sweep.commits if commit.review is not None]
            known = replace(record.sweep, reviewer=reviews[0].reviewer if reviews else None)
            seconds = sum(review.usage.duration_seconds for review in reviews)
            sweep = concluded(known, known.commits, passes=passes, seconds=seconds)
            history.finish_sweep(replace(record, sweep=sweep, finished=True))
            return sweep

    return await asyncio.to_thread(finish)


def _take_down(title: str, text: str) -> None:
    if (transcript := _transcript.get()) is not None:
        transcript(title, text)


class AgentDispatcher:
    """Hands commits to reviewers, at most so many at a time, in one event loop, which it never blocks.

    `review` makes one review; whatever it raises degrades its commit alone. When it fails for a reason that stays, or
    always, no further review is begun: the commits that are left are among those that could not be reviewed.
    `finished` is awaited for each commit as it ends.
    """

    def __init__(
        self,
        review: Callable[[CommitReview, Change], Awaitable[Review]],
        *,
        max_concurrent: int = 5,
        finished: Callable[[CommitReview], Awaitable[None]] | None = None,
    ) -> None:
        if max_concurrent < 1:
            raise ValueError(f"max_concurrent must be at least 1, not {max_concurrent}")
        self._review, self._finished = review, finished
        self._places = asyncio.Semaphore(max_concurrent)
        # The failure after which nothing more is begun, and what led to it.
        self._lasting_failure = ""
        self._is_answered = False
        self._invalid_requests = self._in_a_row = 0

    async def dispatch(self, assignments: AsyncGenerator[Assignment]) -> tuple[CommitReview, ...]:
        """Every commit with its outcome, in their order. What the source raises comes when begun reviews have ended."""
        running: list[asyncio.Task[CommitReview]] = []
        problem: Exception | None = None
        async with asyncio.TaskGroup() as group, aclosing(assignments):
            try:
                # A commit is read only when somebody is free for it, so that a long history does not fill the memory.
                await self._places.acquire()
                async for commit, change in assignments:
                    running.append(group.create_task(self._outcome(commit, change)))
                    running[-1].add_done_callback(lambda _task: self._places.release())
                    await self._places.acquire()
            except Exception as error:  # noqa: BLE001 - whatever it was, it is raised below as it came
                problem = error
        if problem is not None:
            raise problem
        return tuple(task.result() for task in running)

    async def _outcome(self, commit: CommitReview, change: Change | None) -> CommitReview:
        if change is None:
            outcome = replace(commit, failure=commit.failure or "its change cannot be read")
        elif self._lasting_failure:
            outcome = replace(commit, failure=f"not started: {self._lasting_failure}")
        else:
            outcome = await self._reviewed(commit, change)
            self._note(outcome)
        outcome = replace(outcome, failure=" ".join(outcome.failure.split()))
        if outcome.failure:
            _log.warning("commit %s could not be reviewed: %s", commit.commit.sha[:12], outcome.failure)
        if self._finished is not None:
            await self._finished(outcome)
        return outcome

    async def _reviewed(self, commit: CommitReview, change: Change) -> CommitReview:
        try:
            review = await self._review(commit, change)
        except CodeloupeError as error:
            return replace(commit, failure=f"{error.message} ({error.hint})" if error.hint else error.message)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            # Raise only if this task itself is cancelled, not if something that it awaited was cancelled.
            if task is None or task.cancelling() > 0:
                raise
            return replace(commit, failure="the reviewer cancelled itself")
        except Exception as error:  # noqa: BLE001 - whatever a reviewer trips over, it is this commit that failed
            log_failure(_log, error, "the review of commit %s failed", commit.commit.sha[:12])
            return replace(commit, failure=f"unexpected error: {type(error).__name__}: {error}")
        outcome = replace(commit, review=review, plan=plan_of(review.findings))
        if not review.complete:
            # It says nothing about what it did not see: the commit has no verdict.
            return replace(outcome, failure=_why_incomplete(review))
        # Nothing can be said of a commit of which nothing was read, not even that it is good.
        reached = score(review.findings) / 100 if review.coverage.files_reviewed else None
        return replace(outcome, score=reached, verdict=verdict(review.findings))

    def _note(self, outcome: CommitReview) -> None:
        """Stop at a failure that lasts, at a second invalid request before any answer, at twenty failures in a row."""
        review = outcome.review
        if review is not None and review.coverage.files_reviewed:
            self._is_answered, self._in_a_row = True, 0
            return
        kinds = {error.kind for error in review.errors} if review is not None else set[str]()
        was_asked = review is None or review.coverage.units_failed
        if not outcome.failure or not was_asked or "budget_exhausted" in kinds:
            return
        self._in_a_row += 1
        self._invalid_requests += "invalid_request" in kinds
        is_refused = not self._is_answered and self._invalid_requests >= 2
        if kinds & _LASTING or is_refused or self._in_a_row >= 20:
            self._lasting_failure = self._lasting_failure or " ".join(outcome.failure.split())


def _why_incomplete(review: Review) -> str:
    failed = [unit.reason for unit in review.coverage.units_failed]
    gaps = [f"{skip.file}: {skip.describe()}" for skip in review.coverage.skipped if skip.is_gap]
    pending = [f"{finding.file or '?'}: {describe_pending(finding)}" for finding in review.pending]
    reasons = [reason for reason in dict.fromkeys((*pending, *failed, *gaps)) if reason]
    more = f"; and {len(reasons) - 3} more" if len(reasons) > 3 else ""
    return "; ".join(reasons[:3]) + more or "the review is not complete"


class _Sweep:
    """What every commit of one sweep is reviewed with, and one stream of events from all those reviews."""

    def __init__(
        self, repository: Repository, settings: Settings, team: Team, emit: EventSink, keeper: SweepKeeper | None
    ) -> None:
        self._repository, self._settings = repository, settings
        self._team, self._emit, self._keeper = team, emit, keeper
        # For every category, so that a mistake in the settings is reported before anything is bought.
        experts = commit_experts(settings) if team.has_agents else dict.fromkeys(CommitCategory, ())
        self._experts: Mapping[CommitCategory, tuple[Expert, ...]] = experts
        self._reviewers = team.reviewers()
        self._guidance: tuple[GuidanceFile, ...] = ()
        self._baseline = Baseline()
        self._dismissals: tuple[Dismissal, ...] = ()
        self._total = self._done = 0
        self._warned: set[str] = set()
        # What `strict` fails on is never hidden, whatever the settings say for a review.
        policy = policy_of(settings)
        self._policy = policy if Severity.HIGH.at_least(policy.fail_on) else replace(policy, fail_on=Severity.HIGH)

    async def run(self, commits: Sequence[Commit], query: CommitQuery, newest: str = "") -> tuple[CommitReview, ...]:
        """Every commit with its outcome. `newest` is that of the sweep, where the first of these is not."""
        self._total = len(commits)
        await self._read_project(commits, query, newest or next((commit.sha for commit in commits), ""))
        async with reading_objects(self._repository) as objects, temporary_folder() as folder:
            self._source = CommitSource(self._repository, objects, folder)
            self._emit(StageStarted("reviewing", f"{len(commits):,} commits"))
            dispatcher = AgentDispatcher(self._review, max_concurrent=self._commits_at_once(), finished=self._finished)
            return await dispatcher.dispatch(self._assignments(commits, merges=query.looks_into_merges))

    def _commits_at_once(self) -> int:
        """Return how many commits are reviewed at the same time."""
        if all(one.info.type == "offline" for one in self._team.chosen):
            return _MOST_OFFLINE_COMMITS
        concurrency = self._settings.concurrency
        if all(one.agents for one in self._team.chosen):
            # As many as calls may run, and some more that get ready, so that no call waits for its commit.
            return concurrency + (concurrency + 1) // 2
        return concurrency

    async def _read_project(self, commits: Sequence[Commit], query: CommitQuery, newest: str) -> None:
        """Guidance and baseline: of trusted commits from the newest; of others from the base of their range, if any."""
        scope, trusted = scope_of(query), not self._settings.untrusted
        if not commits or not (trusted or isinstance(scope, RangeScope)):
            return
        if trusted:
            sides = Sides(Scope(ScopeKind.COMMIT, None, newest, "the newest commit"), newest, Side.COMMIT)
        else:
            sides = await resolve_scope(self._repository, scope, base_branch=None)
            base = await believed_base(self._repository, scope, sides, base_branch=self._settings.base_branch)
            if base is None:
                return
            sides = replace(sides, base=base, scope=replace(sides.scope, base=base))
        if trusted:
            self._dismissals = await read_dismissals(self._repository.root, self._team.calls.opened_history)
        if self._settings.guidance and self._team.has_agents:
            paths = (path for commit in commits for path in commit.files)
            guidance = await read_guidance(self._repository, sides, paths, trusted=trusted)
            self._guidance = tuple(one for one in guidance if not one.unused)
        self._baseline = await read_baseline(sides.scope, repo=self._repository.root, trusted=trusted)

    async def _assignments(self, commits: Sequence[Commit], *, merges: bool) -> AsyncGenerator[Assignment]:
        async with aclosing(read_commit_changes(self._repository, commits, merges=merges)) as changes:
            async for read in changes:
                category = categorise(read.commit)
                experts = tuple(expert.name for expert in self._experts[category])
                about = CommitReview(commit=read.commit, category=category, experts=experts, failure=read.problem)
                yield about, read.change

    def prepared(self, change: Change, **trees: bool) -> AbstractAsyncContextManager[Prepared]:
        """What is to be reviewed of a commit; with its tree, if that is asked for."""
        return prepare_commit(change, self._settings, self._source, **trees)

    async def _review(self, about: CommitReview, change: Change) -> Review:
        commit, team = about.commit, self._team
        _transcript.set(None if self._keeper is None else self._keeper.transcript_of(commit.sha))
        # Agents get the diff alone; programs of others get all there is.
        needs_tree = any(one.needs_whole_tree for one in team.chosen)
        async with self.prepared(change, with_tree=needs_tree, whole_tree=needs_tree) as prepared:
            intent = Intent(title=commit.subject, messages=(commit.body,) if commit.body else ())
            plan = replace(prepared, intent=intent, guidance=self._guidance)
            verifier = team.verifier()
            job = Job(
                plan=with_units(plan, team, self._experts[about.category], Earlier()),
                reviewers=self._reviewers,
                verifier=None if verifier is None else _WithTree(verifier, self),
                policy=self._policy,
                baseline=self._baseline,
                earlier=Earlier(dismissals=self._dismissals),
            )
            emit = partial(self._pass_on, commit.sha[:10])
            review = await run_review(job, started=time.monotonic(), emit=emit)
        for error in review.errors:
            if error.kind == EXPIRED:
                self._warn(error.message)
        # All experts of a joined checklist, if a claim names none of them.
        experts = ", ".join(about.experts)
        findings = tuple(_of_commit(finding, commit.sha, experts) for finding in review.findings)
        # Of the whole baseline not one commit can tell: an entry that this one does not need may be for another.
        own = (error for error in review.errors if error.kind not in (EXPIRED, UNUSED))
        return replace(review, findings=findings, errors=tuple(own))

    def _pass_on(self, commit: str, event: Event) -> None:
        if isinstance(event, AgentActivity):
            self._emit(AgentActivity(f"{commit} {event.unit}", event.event))
        elif isinstance(event, Warned):
            self._warn(event.message, of=f"{commit}: ", level=event.level)

    def _warn(self, message: str, *, of: str = "", level: Level = Level.PROBLEM) -> None:
        """Pass a problem or a note on once, even if several commits have it; `of` names the first of them."""
        if message not in self._warned:
            self._warned.add(message)
            self._emit(Warned(f"{of}{message}", level))

    async def _finished(self, outcome: CommitReview) -> None:
        if self._keeper is not None:
            await self._keeper.keep_commit(outcome)
        self._done += 1
        self._emit(CommitReviewed(outcome, self._done, self._total))


def _of_commit(finding: Finding, sha: str, experts: str) -> Finding:
    """Return a finding with its commit, and each agent's claim with its experts."""
    claims: list[Claim] = []
    for claim in finding.claims:
        expert = claim.expert
        if claim.source is Source.AGENT:
            expert = expert or experts
        claims.append(replace(claim, expert=expert, commit_sha=sha))
    return replace(finding, claims=tuple(claims), commit_sha=sha)


class _WithTree(Struct, frozen=True):
    """A verifier that gets the whole tree of a commit, which is exported only if there is something to verify."""

    verifier: Verifier
    sweep: _Sweep

    async def verify(self, findings: Sequence[Finding], plan: Plan, emit: EventSink) -> VerifierResult:
        if plan.tree is not None:
            return await self.verifier.verify(findings, plan, emit)
        async with self.sweep.prepared(plan.change, with_tree=True) as prepared:
            return await self.verifier.verify(findings, prepared, emit)
