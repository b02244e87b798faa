"""Running a sweep: one set of reviewers, one reader of git's objects and one stream of events for all its commits.

Agents get each commit's diff from one pass over the log, and its files from git's objects. The whole tree of a commit
is exported only to verify a critical or high finding. The project's guidance and baseline are read once: at the newest
commit or, for untrusted commits, before them. All commits that analysers review have their files in one temporary
directory, so that an analyser can analyse several commits in one call.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from contextvars import ContextVar
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.commits.categories import categorise, commit_experts
from codeloupe.commits.dispatch import AgentDispatcher, Assignment
from codeloupe.commits.queries import scope_of
from codeloupe.config.schema import Settings
from codeloupe.engine import Job, run_review, with_units
from codeloupe.findings.earlier import Earlier, read_dismissals
from codeloupe.findings.verdict import policy_of
from codeloupe.git.commits import read_commit_changes
from codeloupe.git.guidance import read_guidance
from codeloupe.git.objects import reading_objects
from codeloupe.git.repository import Repository
from codeloupe.git.scopes import Side, Sides, believed_base, resolve_scope
from codeloupe.history import SweepKeeper
from codeloupe.model.baseline import EXPIRED, UNUSED, Baseline
from codeloupe.model.change import Change, Commit, Expert, GuidanceFile, Intent, Scope, ScopeKind
from codeloupe.model.events import AgentActivity, CommitReviewed, Event, StageStarted, Warned
from codeloupe.model.finding import Claim, Finding, Severity, Source
from codeloupe.model.history import Dismissal
from codeloupe.model.ports import EventSink, Plan, Transcript, Verifier, VerifierResult
from codeloupe.model.review import Level, Policy, Review
from codeloupe.model.scope import RangeScope
from codeloupe.model.sweep import CommitCategory, CommitQuery, CommitReview
from codeloupe.planning.prepare import CommitSource, Prepared, prepare_commit
from codeloupe.reviewers.choose import Team
from codeloupe.store.baseline import read_baseline
from codeloupe.system.directories import temporary_folder

# Commits that only analysers review: so many that the next call of an analyser has enough to analyse together.
_MOST_OFFLINE_COMMITS = 64
# The same reviewers review all commits at the same time, each in a task of its own.
_transcript: ContextVar[Transcript | None] = ContextVar("_transcript", default=None)


def write_transcript(title: str, text: str) -> None:
    """Pass a prompt or an answer to the transcript of the commit that this task reviews."""
    transcript = _transcript.get()
    if transcript is not None:
        transcript(title, text)


class SweepRun:
    """Everything that all commits of one sweep are reviewed with, and one stream of events from all their reviews."""

    def __init__(
        self, repository: Repository, settings: Settings, team: Team, *, emit: EventSink, keeper: SweepKeeper | None
    ) -> None:
        self._repository = repository
        self._settings = settings
        self._team = team
        self._emit = emit
        self._keeper = keeper
        # For every category, so that a mistake in the settings is reported before the first call.
        self._experts: Mapping[CommitCategory, tuple[Expert, ...]] = dict.fromkeys(CommitCategory, ())
        if team.has_agents:
            self._experts = commit_experts(settings)
        self._reviewers = team.reviewers()
        self._policy = _sweep_policy(settings)
        self._guidance: tuple[GuidanceFile, ...] = ()
        self._baseline = Baseline()
        self._dismissals: tuple[Dismissal, ...] = ()
        self._total = 0
        self._done = 0
        self._warned: set[str] = set()

    async def run(
        self,
        commits: Sequence[Commit],
        query: CommitQuery,
        *,
        judge: Callable[[CommitReview, Review], CommitReview],
        newest: str = "",
    ) -> tuple[CommitReview, ...]:
        """Return every commit with its outcome. `newest` is the newest commit of the sweep, if `commits` lack it."""
        self._total = len(commits)
        if commits:
            await self._read_project(commits, query, newest or commits[0].sha)
        async with reading_objects(self._repository) as objects, temporary_folder() as folder:
            self._source = CommitSource(self._repository, objects, folder)
            self._emit(StageStarted("reviewing", f"{len(commits):,} commits"))
            dispatcher = AgentDispatcher(
                self._review, judge=judge, max_concurrent=self._commits_at_once(), finished=self._finished
            )
            return await dispatcher.dispatch(self._assignments(commits, merges=query.looks_into_merges))

    def prepared(
        self, change: Change, *, with_tree: bool, whole_tree: bool = False
    ) -> AbstractAsyncContextManager[Prepared]:
        """Return the context in which a commit can be reviewed."""
        return prepare_commit(change, self._settings, self._source, with_tree=with_tree, whole_tree=whole_tree)

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
        """Read guidance and baseline: at the newest trusted commit, or at the base of an untrusted range."""
        trusted = not self._settings.untrusted
        if trusted:
            self._dismissals = await read_dismissals(self._repository.root, self._team.calls.opened_history)
            sides = Sides(Scope(ScopeKind.COMMIT, None, newest, "the newest commit"), newest, Side.COMMIT)
        else:
            base = await self._sides_at_base(query)
            if base is None:
                return
            sides = base
        if self._settings.guidance and self._team.has_agents:
            paths = (path for commit in commits for path in commit.files)
            guidance = await read_guidance(self._repository, sides, paths, trusted=trusted)
            self._guidance = tuple(one for one in guidance if not one.unused)
        self._baseline = await read_baseline(sides.scope, repo=self._repository.root, trusted=trusted)

    async def _sides_at_base(self, query: CommitQuery) -> Sides | None:
        """Return the sides of an untrusted range, with the base whose guidance applies; None if there is none."""
        scope = scope_of(query)
        if not isinstance(scope, RangeScope):
            return None
        sides = await resolve_scope(self._repository, scope, base_branch=None)
        base = await believed_base(self._repository, scope, sides, base_branch=self._settings.base_branch)
        if base is None:
            return None
        return replace(sides, base=base, scope=replace(sides.scope, base=base))

    async def _assignments(self, commits: Sequence[Commit], *, merges: bool) -> AsyncGenerator[Assignment]:
        async with aclosing(read_commit_changes(self._repository, commits, merges=merges)) as changes:
            async for read in changes:
                category = categorise(read.commit)
                experts = tuple(expert.name for expert in self._experts[category])
                about = CommitReview(commit=read.commit, category=category, experts=experts, failure=read.problem)
                yield about, read.change

    async def _review(self, about: CommitReview, change: Change) -> Review:
        """Review one commit."""
        commit = about.commit
        team = self._team
        _transcript.set(None if self._keeper is None else self._keeper.transcript_of(commit.sha))
        # Agents get the diff alone; external programs get the whole tree.
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
        return self._of_commit(review, about)

    def _of_commit(self, review: Review, about: CommitReview) -> Review:
        """Return a review with the commit in its findings, and without remarks about the baseline of the sweep."""
        for error in review.errors:
            if error.kind == EXPIRED:
                self._warn(error.message)
        # All experts of a joined checklist, if a claim names none of them.
        experts = ", ".join(about.experts)
        findings = tuple(_finding_of_commit(finding, about.commit.sha, experts) for finding in review.findings)
        # An entry of the baseline that this commit does not need may be for another one.
        own = tuple(error for error in review.errors if error.kind not in (EXPIRED, UNUSED))
        return replace(review, findings=findings, errors=own)

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


def _sweep_policy(settings: Settings) -> Policy:
    """Return the policy of the settings, except that findings which `strict` fails on are never hidden."""
    policy = policy_of(settings)
    if Severity.HIGH.at_least(policy.fail_on):
        return policy
    return replace(policy, fail_on=Severity.HIGH)


def _finding_of_commit(finding: Finding, sha: str, experts: str) -> Finding:
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
    sweep: SweepRun

    async def verify(self, findings: Sequence[Finding], plan: Plan, emit: EventSink) -> VerifierResult:
        if plan.tree is not None:
            return await self.verifier.verify(findings, plan, emit)
        async with self.sweep.prepared(plan.change, with_tree=True) as prepared:
            return await self.verifier.verify(findings, prepared, emit)
