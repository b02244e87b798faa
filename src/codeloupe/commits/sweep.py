"""A sweep: many commits, each reviewed by itself with the experts of its category, and one outcome for all.

Agents get each commit's diff from one pass over the log, so that a sweep costs a few git processes and not several
for each commit. The whole tree of a commit is exported only where a critical or high finding is to be verified. What a
project says of all its commits, guidance and baseline, is read once: at the newest commit, or before untrusted ones.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext, suppress
from contextvars import ContextVar
from datetime import date
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.commits.categories import categorise
from codeloupe.commits.dispatch import AgentDispatcher, Assignment
from codeloupe.commits.scoring import exit_code, overall_score, summarise, total_usage
from codeloupe.config.schema import Settings
from codeloupe.engine.asked import PROMPT_VERSION
from codeloupe.engine.calls import AgentCalls
from codeloupe.engine.choose import ChosenReviewer, Reviewers, choose_reviewers, experts_of
from codeloupe.engine.keeping import SweepKeeper, keeping_sweep
from codeloupe.engine.prepare import lay_out, prepare, rules_of, settle
from codeloupe.engine.run import ReviewPlan, policy_of, run_review
from codeloupe.engine.select import Selection, select_by_diff
from codeloupe.engine.settings import configure
from codeloupe.engine.verdict import joined_info
from codeloupe.errors import CodeloupeError, RevisionError
from codeloupe.git.commits import list_commits, read_commit_changes
from codeloupe.git.guidance import read_guidance
from codeloupe.git.repository import Repository, open_repository, read_blobs, reading
from codeloupe.git.scopes import Side, Sides, believed_base, resolve_scope
from codeloupe.git.snapshot import empty_directory, write_file
from codeloupe.model.baseline import EXPIRED, UNUSED, Baseline
from codeloupe.model.change import Change, Commit, Expert, FileChange, GuidanceFile, Intent, Scope, ScopeKind
from codeloupe.model.events import AgentActivity, CommitReviewed, Event, ReviewerChosen, StageStarted, Warned
from codeloupe.model.finding import Finding, Severity
from codeloupe.model.ports import EventSink, Reviewer, ReviewerOutcome, ReviewTask, Transcript, Verifier
from codeloupe.model.review import Review, ReviewerInfo
from codeloupe.model.scope import CommitScope, DefaultScope, RangeScope, ScopeRequest
from codeloupe.model.sweep import CommitCategory, CommitQuery, CommitReview, CommitSweep
from codeloupe.store.baseline import read_baseline
from codeloupe.system.directories import remove_tree
from codeloupe.system.regex import regex

# Which experts look at commits of which category, unless the settings say otherwise.
DEFAULT_EXPERTS: Mapping[CommitCategory, tuple[str, ...]] = {
    CommitCategory.BUG_FIX: ("reliability",),
    CommitCategory.FEATURE: ("correctness", "code_quality"),
    CommitCategory.REFACTOR: ("architecture",),
    CommitCategory.TEST_CHANGE: ("tests",),
    CommitCategory.DOCUMENTATION: ("documentation",),
    CommitCategory.CHORE: ("general",),
    CommitCategory.OTHER: ("general",),
}
_DAY = regex(r"([0-9]{4})([-/.])([0-9]{1,2})\2([0-9]{1,2})")
_log = logging.getLogger(__name__)
# The same reviewers review all commits at the same time, each in a task of its own.
_transcript: ContextVar[Transcript | None] = ContextVar("_transcript", default=None)


def commit_experts(settings: Settings) -> Mapping[CommitCategory, tuple[Expert, ...]]:
    """Whose checklists a sweep uses for each category: those of the settings, or the usual ones. Raises ConfigError."""
    # The category is what an author says of a commit: one that is called documentation may be anything.
    always = ("general",) if settings.untrusted else ()
    named = {each: settings.commit_experts.get(each.value, DEFAULT_EXPERTS[each]) for each in CommitCategory}
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
            raise RevisionError(f"{text!r} is no day of the calendar", hint="write it as YYYY-MM-DD") from error
        return f"{day.isoformat()} {moment}"

    return replace(query, since=timed(query.since, "00:00:00"), until=timed(query.until, "23:59:59"))


def describe(query: CommitQuery) -> str:
    """What a query asks for, as people say it."""
    parts = [
        f"commits of {query.revision}",
        f"since {query.since}" if query.since else "",
        f"until {query.until}" if query.until else "",
        f"by {query.author}" if query.author else "",
        f"at most {query.max_count:,}" if query.max_count is not None else "",
        "each that a merge brought in by itself" if query.merges else "",
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
    given = settings or (await configure(scope_of(query), repo=repo, environment=calls.environment)).settings
    # A sweep is many calls, so that each gets the time of an analyser at most, and not that of a whole review.
    settings = replace(
        given,
        review_timeout_seconds=min(given.review_timeout_seconds, given.timeout_seconds),
        agent_sdk_review_timeout=min(given.agent_sdk_review_timeout, given.timeout_seconds),
    )
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
        team = Reviewers(chosen, settings, calls, repo=Path(repo), fresh=fresh, transcript=_take_down)
        reviewed = await _Sweep(repository, settings, tuple(chosen), team, emit, keeper).run(commits, query)
        sweep = replace(
            known,
            reviewer=joined_info([one.info for one in chosen]),
            commits=reviewed,
            summary=summarise(reviewed),
            exit_code=exit_code(reviewed, strict=strict, pass_when_incomplete=settings.on_incomplete == "pass"),
            score=overall_score(reviewed),
            usage=total_usage(reviewed, seconds=time.monotonic() - started),
        )
        if keeper is not None:
            await keeper.finish(sweep)
    return sweep


def _take_down(title: str, text: str) -> None:
    if (transcript := _transcript.get()) is not None:
        transcript(title, text)


class _Sweep:
    """What every commit of one sweep is reviewed with, and one stream of events from all those reviews."""

    def __init__(
        self,
        repository: Repository,
        settings: Settings,
        chosen: tuple[ChosenReviewer, ...],
        team: Reviewers,
        emit: EventSink,
        keeper: SweepKeeper | None,
    ) -> None:
        self.repository, self.settings = repository, settings
        self._chosen, self._team = chosen, team
        self._emit, self._keeper = emit, keeper
        # For every category, so that a mistake in the settings is reported before anything is bought.
        experts = commit_experts(settings) if team.have_agents else dict.fromkeys(CommitCategory, ())
        self._experts = {category: tuple(one.name for one in named) for category, named in experts.items()}
        self._reviewers = {category: team.make(named) for category, named in experts.items()}
        self._guidance: tuple[GuidanceFile, ...] = ()
        self._baseline = Baseline()
        self._total = self._done = 0
        self._warned: set[str] = set()
        # What `strict` fails on is never hidden, whatever the settings say for a review.
        policy = policy_of(settings)
        self._policy = policy if Severity.HIGH.at_least(policy.fail_on) else replace(policy, fail_on=Severity.HIGH)

    async def run(self, commits: Sequence[Commit], query: CommitQuery) -> tuple[CommitReview, ...]:
        """Every commit with its outcome."""
        self._total = len(commits)
        await self._read_project(commits, query)
        with empty_directory() as self.nowhere, reading(self.repository) as place:
            self._engine = place.git_dir
            self._emit(StageStarted("reviewing", f"{len(commits):,} commits"))
            # As many as calls may run, which the caller of agents sees to; so that no call waits, some more get ready.
            concurrency = self.settings.concurrency
            more = (concurrency + 1) // 2 if all(one.agents for one in self._chosen) else 0
            dispatcher = AgentDispatcher(
                self._review,
                max_concurrent=concurrency + more,
                finished=self._finished,
            )
            return await dispatcher.dispatch(self._assignments(commits, merges=query.looks_into_merges))

    async def _read_project(self, commits: Sequence[Commit], query: CommitQuery) -> None:
        """Guidance and baseline: of trusted commits from the newest; of others from the base of their range, if any."""
        scope, trusted = scope_of(query), not self.settings.untrusted
        if not commits or not (trusted or isinstance(scope, RangeScope)):
            return
        if trusted:
            newest = commits[0].sha
            sides = Sides(Scope(ScopeKind.COMMIT, None, newest, "the newest commit"), newest, Side.COMMIT)
        else:
            sides = await resolve_scope(self.repository, scope, base_branch=None)
            base = await believed_base(self.repository, scope, sides, base_branch=self.settings.base_branch)
            if base is None:
                return
            sides = replace(sides, base=base, scope=replace(sides.scope, base=base))
        if self.settings.guidance and self._team.have_agents:
            paths = (path for commit in commits for path in commit.files)
            guidance = await read_guidance(self.repository, sides, paths, trusted=trusted)
            self._guidance = tuple(one for one in guidance if not one.unused)
        self._baseline = await read_baseline(sides.scope, repo=self.repository.root, trusted=trusted)

    async def _finished(self, outcome: CommitReview) -> None:
        if self._keeper is not None:
            await self._keeper.keep_commit(outcome)
        self._done += 1
        try:
            self._emit(CommitReviewed(outcome, self._done, self._total))
        except Exception:  # noqa: BLE001 - a listener may fail at anything; what was bought is not lost for it
            _log.warning("the end of commit %s could not be reported", outcome.commit.sha[:12], exc_info=True)

    def _warn(self, message: str, *, of: str = "") -> None:
        """Pass a warning on, once, whichever commits it is about; `of` names the first of them."""
        if message not in self._warned:
            self._warned.add(message)
            self._emit(Warned(f"{of}: {message}" if of else message))

    async def _assignments(self, commits: Sequence[Commit], *, merges: bool) -> AsyncGenerator[Assignment]:
        async with aclosing(read_commit_changes(self.repository, commits, merges=merges)) as changes:
            async for read in changes:
                category = categorise(read.commit)
                experts = self._experts[category]
                about = CommitReview(commit=read.commit, category=category, experts=experts, failure=read.problem)
                yield about, read.change

    async def _review(self, about: CommitReview, change: Change) -> Review:
        commit = about.commit
        _transcript.set(None if self._keeper is None else self._keeper.transcript_of(commit.sha))
        reviewers = self._reviewers[about.category]
        if any(one.reads_tree and not one.agents for one in self._chosen):
            review = await self._by_tree(commit, change, reviewers)
        else:
            review = await self._by_diff(commit, change, reviewers)
        agents = {one.info.type for one in self._chosen if one.agents}
        # All experts of a joined checklist, when none of them is named.
        experts = ", ".join(about.experts)
        return replace(
            review,
            findings=tuple(
                replace(
                    finding,
                    commit_sha=commit.sha,
                    expert=finding.expert or (experts if finding.reviewer in agents else None),
                )
                for finding in review.findings
            ),
        )

    async def _by_diff(self, commit: Commit, change: Change, reviewers: Sequence[Reviewer]) -> Review:
        rules, verifier = rules_of(self.settings), self._team.verifier()
        snapshot = self.nowhere.with_name(commit.sha)
        if by_content := any(not one.agents for one in self._chosen):
            snapshot.mkdir()
            selection, beforehand = await lay_out(
                change, rules, repository=self.repository, root=snapshot, engine=self._engine
            )
        else:
            # Agents get a diff. Nothing is in the snapshot yet, and for most commits nothing will be.
            selected = select_by_diff(change, rules)
            selection, beforehand = await settle(selected, rules, root=None, repository=self.repository)
        task = ReviewTask(
            change=change,
            files=selection.files,
            snapshot=snapshot,
            trusted=not self.settings.untrusted,
            timeout_seconds=self.settings.timeout_seconds,
            intent=Intent(title=commit.subject, messages=(commit.body,) if commit.body else ()),
            guidance=self._guidance,
        )
        plan = ReviewPlan(
            task=task,
            selection=selection,
            reviewers=tuple(reviewers if by_content else (_WithContent(reviewer, self) for reviewer in reviewers)),
            verifier=None if verifier is None else _WithTree(verifier, self, commit),
            policy=self._policy,
            baseline=self._baseline,
            beforehand=beforehand,
        )
        try:
            return await self._run(plan, commit)
        finally:
            if snapshot.exists():
                remove_tree(snapshot)

    async def _by_tree(self, commit: Commit, change: Change, reviewers: Sequence[Reviewer]) -> Review:
        async with prepare(
            CommitScope(commit.sha),
            self.repository.root,
            replace(self.settings, base_branch=None),
            with_tree=any(one.reads_tree for one in self._chosen),
            whole_tree=any(one.needs_whole_tree for one in self._chosen),
            with_guidance=self.settings.guidance and self._team.have_agents,
        ) as prepared:
            selection = _within(prepared.selection, change)
            task = prepared.task(timeout_seconds=self.settings.timeout_seconds)
            plan = ReviewPlan(
                task=replace(task, change=change, files=selection.files),
                selection=selection,
                reviewers=tuple(reviewers),
                verifier=self._team.verifier(),
                policy=self._policy,
                baseline=self._baseline,
                beforehand=prepared.beforehand,
            )
            return await self._run(plan, commit)

    async def _run(self, plan: ReviewPlan, commit: Commit) -> Review:
        name = commit.sha[:10]

        def pass_on(event: Event) -> None:
            if isinstance(event, AgentActivity):
                self._emit(AgentActivity(f"{name} {event.unit}", event.event))
            elif isinstance(event, Warned):
                self._warn(event.message, of=name)

        review = await run_review(plan, clock=time.monotonic, started=time.monotonic(), emit=pass_on)
        for error in review.errors:
            if error.kind == EXPIRED:
                self._warn(error.message)
        # Of the whole baseline not one commit can tell: an entry that this one does not need may be for another.
        own = (error for error in review.errors if error.kind not in (EXPIRED, UNUSED))
        return replace(review, errors=tuple(own))


def _within(selection: Selection, change: Change) -> Selection:
    """Of the files of a whole commit those that are meant: a merge may be meant only for what it changed itself."""
    meant = {file.path: file for file in change.files}
    unread = {name for name, _ in change.unreadable}

    def shown(file: FileChange) -> FileChange:
        """As git's diff has it, unless it was decoded, or is read whole for its new name or mode."""
        was_decoded = meant[file.path].binary and not file.binary
        is_otherwise = was_decoded or (file.old_path or file.path) != file.path or file.old_mode != file.new_mode
        return file if is_otherwise else meant[file.path]

    return Selection(
        files=tuple(shown(file) for file in selection.files if file.path in meant),
        lock_files=tuple(file for file in selection.lock_files if file.path in meant),
        skipped=tuple(skip for skip in selection.skipped if skip.file in meant or skip.file in unread),
    )


class _WithContent(Struct, frozen=True):
    """A reviewer in an empty directory, after whom the files that it found something in are in the snapshot.

    A diff is enough to review, but what a finding is known by from one review to the next is around it too.
    """

    reviewer: Reviewer
    sweep: _Sweep

    @property
    def info(self) -> ReviewerInfo:
        return self.reviewer.info

    async def review(self, task: ReviewTask, emit: EventSink) -> ReviewerOutcome:
        outcome = await self.reviewer.review(replace(task, snapshot=self.sweep.nowhere), emit)
        found = {finding.file for finding in outcome.findings}
        blobs = {file.path: file.new_blob for file in task.files if file.path in found and file.new_blob}
        if blobs:
            try:
                contents = await read_blobs(self.sweep.repository, blobs.values(), max_bytes=32 * 1024**2)
            except CodeloupeError as error:
                _log.warning("the files of some findings could not be read: %s", error.message)
                return outcome
            for path, blob in blobs.items():
                # A path that leaves the tree, or is file and folder at once, has no content here.
                with suppress(OSError, ValueError):
                    if blob in contents:
                        write_file(task.snapshot, path, contents[blob])
        return outcome


class _WithTree(Struct, frozen=True):
    """A verifier that gets the whole tree of a commit, which is exported only when there is something to verify."""

    verifier: Verifier
    sweep: _Sweep
    commit: Commit

    async def verify(self, findings: Sequence[Finding], task: ReviewTask, emit: EventSink) -> ReviewerOutcome:
        if not any(finding.is_open and finding.severity.at_least(Severity.HIGH) for finding in findings):
            return ReviewerOutcome(findings=tuple(findings))
        settings = replace(self.sweep.settings, base_branch=None)
        async with prepare(
            CommitScope(self.commit.sha), self.sweep.repository.root, settings, with_tree=True
        ) as prepared:
            return await self.verifier.verify(findings, prepared.task(timeout_seconds=task.timeout_seconds), emit)
