"""What a query for commits means: in words, and where the settings for them come from."""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from contextvars import ContextVar
from datetime import date
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.commits.categories import categorise
from codeloupe.commits.dispatch import AgentDispatcher, Assignment, Relay
from codeloupe.commits.scoring import exit_code, overall_score, summarise, total_usage
from codeloupe.config.schema import Settings
from codeloupe.engine.asking import Transcript
from codeloupe.engine.calls import AgentCalls
from codeloupe.engine.history import SweepKeeper, keeping_sweep
from codeloupe.engine.lanes import joined_info
from codeloupe.engine.prepare import policy_of, rules_of, settle, take_in
from codeloupe.engine.prompt import PROMPT_VERSION
from codeloupe.engine.reviewers import Floor, Panel, Seat, choose_seats, commit_experts, seated
from codeloupe.engine.run import ReviewPlan, run_review
from codeloupe.engine.selection import Selection, select_by_diff
from codeloupe.engine.settings import configure
from codeloupe.errors import CodeloupeError, RevisionError
from codeloupe.git.blob_contents import read_blobs
from codeloupe.git.commit_changes import read_commit_changes
from codeloupe.git.commits import list_commits
from codeloupe.git.guidance import read_guidance
from codeloupe.git.repository import Repository, open_repository
from codeloupe.git.scopes import Side, Sides, believed_base, resolve_scope
from codeloupe.git.snapshot import empty_directory, write_file
from codeloupe.model.baseline import EXPIRED, UNUSED, Baseline
from codeloupe.model.change import Change, FileChange, Scope, ScopeKind
from codeloupe.model.commit import Commit
from codeloupe.model.events import Event, ReviewerChosen, StageStarted
from codeloupe.model.finding import Finding
from codeloupe.model.material import GuidanceFile, Intent
from codeloupe.model.ports import EventSink, Reviewer, ReviewerOutcome, ReviewTask, Verifier
from codeloupe.model.review import Policy, Review, ReviewerInfo
from codeloupe.model.scope import CommitScope, DefaultScope, RangeScope, ScopeRequest
from codeloupe.model.severity import Severity
from codeloupe.model.sweep import CommitCategory, CommitQuery, CommitSweep
from codeloupe.store.baseline.revision import read_baseline
from codeloupe.system.removal import remove_tree

_DAY = re.compile(r"([0-9]{4})([-/.])([0-9]{1,2})\2([0-9]{1,2})")


def with_whole_days(query: CommitQuery) -> CommitQuery:
    """The query with each day of the calendar as all of it: from its beginning, or until its end, in local time.

    To git a day without a time is this very moment of it, so that the same words would choose other commits at night
    than in the morning. Raises RevisionError for a day that no calendar has, which git would take for another.
    """
    return replace(query, since=_timed(query.since, "00:00:00"), until=_timed(query.until, "23:59:59"))


def _timed(text: str | None, time: str) -> str | None:
    found = _DAY.fullmatch((text or "").strip())
    if found is None:
        return text
    try:
        day = date(int(found[1]), int(found[3]), int(found[4]))
    except ValueError as error:
        raise RevisionError(f"{text!r} is no day of the calendar", hint="write it as YYYY-MM-DD") from error
    return f"{day.isoformat()} {time}"


def describe(query: CommitQuery) -> str:
    """The query in words."""
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


def within(selection: Selection, change: Change) -> Selection:
    """Of the files of a whole commit those that are meant: a merge may be meant only for what it changed itself."""
    meant = {file.path: file for file in change.files}
    unread = {name for name, _ in change.unreadable}
    return Selection(
        files=tuple(
            file if _is_shown_otherwise(file, meant[file.path]) else meant[file.path]
            for file in selection.files
            if file.path in meant
        ),
        lock_files=tuple(file for file in selection.lock_files if file.path in meant),
        skipped=tuple(skip for skip in selection.skipped if skip.file in meant or skip.file in unread),
    )


def _is_shown_otherwise(file: FileChange, meant: FileChange) -> bool:
    """Whether its lines may not be those of git's diff: it was decoded, or is read whole for its new name or mode."""
    was_decoded = meant.binary and not file.binary
    return was_decoded or (file.old_path or file.path) != file.path or file.old_mode != file.new_mode


def intent_of(commit: Commit) -> Intent:
    """What a commit says that it is for."""
    return Intent(title=commit.subject, messages=(commit.body,) if commit.body else ())


DEFAULT_EXPERTS: Mapping[CommitCategory, tuple[str, ...]] = {
    CommitCategory.BUG_FIX: ("reliability",),
    CommitCategory.FEATURE: ("correctness", "code_quality"),
    CommitCategory.REFACTOR: ("architecture",),
    CommitCategory.TEST_CHANGE: ("tests",),
    CommitCategory.DOCUMENTATION: ("documentation",),
    CommitCategory.CHORE: ("general",),
    CommitCategory.OTHER: ("general",),
}


_MOST_CONTENT_BYTES = 32 * 1024**2
_log = logging.getLogger(__name__)
TranscriptOf = Callable[[str], Transcript]
# One panel reviews all commits at the same time, each in a task of its own.
_taking_down: ContextVar[Transcript | None] = ContextVar("_taking_down", default=None)


def _ignore(_event: Event) -> None:
    """Take an event and do nothing with it."""


async def review_commits(  # noqa: PLR0913 - each is a choice of its own, by name
    query: CommitQuery | None = None,
    *,
    repo: Path | str = ".",
    settings: Settings | None = None,
    strict: bool = False,
    fresh: bool = False,
    seats: Sequence[Seat] | None = None,
    emit: EventSink = _ignore,
    calls: AgentCalls | None = None,
) -> CommitSweep:
    """Review commits, each by itself with the experts of its category, and return what became of all of them.

    A commit whose review fails is in the outcome as one that could not be reviewed. What was bought before is not
    bought again, unless `fresh`: a sweep that was interrupted goes on where it was. Each commit is saved to the history
    as it is finished, if the settings keep one. With `strict` the exit code is 1 for an open finding of high or above.
    One call takes at most `timeout_seconds` of the settings. `seats` says who reviews, in place of the settings.
    Raises UsageError for what the caller can mend, ProcessError when git fails.
    """
    asked, calls = query or CommitQuery(), calls or AgentCalls()
    given = settings or (await configure(scope_of(asked), repo=repo, environment=calls.environment)).settings
    chosen, repository = _with_patience(given), await open_repository(Path(repo))
    wish = _Wish(asked, repository, Path(repo), chosen, None if seats is None else tuple(seats), fresh, calls)
    name = uuid.uuid4().hex
    known = CommitSweep(sweep_id=name, description=describe(asked), commits=(), summary="", exit_code=0, strict=strict)
    if not chosen.keep_history:
        return await _swept(known, wish, keeper=None, emit=emit)
    async with keeping_sweep(
        known, repo=wish.repo, prompt_version=PROMPT_VERSION, opened=calls.opened_history, emit=emit
    ) as keeper:
        sweep = await _swept(known, wish, keeper=keeper, emit=emit)
        await keeper.finish(sweep)
    return sweep


class _Wish(Struct, frozen=True):
    """What is to be reviewed, and how; as in `review_commits`."""

    query: CommitQuery
    repository: Repository
    repo: Path
    settings: Settings
    seats: tuple[Seat, ...] | None
    fresh: bool
    calls: AgentCalls


async def _swept(known: CommitSweep, wish: _Wish, *, keeper: SweepKeeper | None, emit: EventSink) -> CommitSweep:
    """The sweep that `known` is the beginning of."""
    started = time.monotonic()
    asked, chosen, repository = wish.query, wish.settings, wish.repository
    commits = await list_commits(repository, with_whole_days(asked))
    taken = wish.seats if wish.seats is not None else await choose_seats(chosen, wish.calls)
    for seat in taken:
        emit(ReviewerChosen(seat.info))
    floor = Floor(repo=wish.repo, calls=wish.calls, transcript=_take_down)
    with (
        seated(taken, chosen, floor=floor, fresh=wish.fresh) as panel,
        empty_directory() as nowhere,
    ):
        reviewers = _reviewers(panel, taken, chosen)
        for_agents = any(seat.agents for seat in taken)
        rules = await _rules(repository, commits, asked, chosen, for_agents=for_agents)
        relay = Relay(emit, total=len(commits))
        transcript_of = None if keeper is None else keeper.transcript_of
        sweep = _Sweep(repository, chosen, taken, panel, nowhere, reviewers, rules, relay, transcript_of)
        relay.emit(StageStarted("reviewing", f"{len(commits):,} commits"))
        dispatcher = AgentDispatcher(
            sweep.review,
            max_concurrent=_commits_at_once(taken, chosen),
            keep=None if keeper is None else keeper.keep_commit,
            finished=relay.finished,
        )
        reviewed = await dispatcher.dispatch(sweep.assignments(commits, merges=asked.looks_into_merges))
    return replace(
        known,
        reviewer=joined_info([seat.info for seat in taken]),
        commits=reviewed,
        summary=summarise(reviewed),
        exit_code=exit_code(reviewed, strict=known.strict, pass_when_incomplete=chosen.on_incomplete == "pass"),
        score=overall_score(reviewed),
        usage=total_usage(reviewed, seconds=time.monotonic() - started),
    )


def _take_down(title: str, text: str) -> None:
    if (transcript := _taking_down.get()) is not None:
        transcript(title, text)


def _with_patience(settings: Settings) -> Settings:
    """A sweep is many calls, so that each gets the time of an analyser at most, and not that of a whole review."""
    return replace(
        settings,
        review_timeout_seconds=min(settings.review_timeout_seconds, settings.timeout_seconds),
        agent_sdk_review_timeout=min(settings.agent_sdk_review_timeout, settings.timeout_seconds),
    )


def _commits_at_once(seats: Sequence[Seat], settings: Settings) -> int:
    """As many as calls may run, which the caller of agents sees to; so that no call waits, some more get ready."""
    return settings.concurrency + (settings.concurrency + 1) // 2 * all(seat.agents for seat in seats)


class _Bench(NamedTuple):
    """Who looks at the commits of one category, and under which checklists."""

    experts: tuple[str, ...]
    reviewers: tuple[Reviewer, ...]


def _reviewers(panel: Panel, seats: Sequence[Seat], settings: Settings) -> Mapping[CommitCategory, _Bench]:
    """For every category, so that a mistake in the settings is told before anything is bought. Raises ConfigError."""
    if not any(seat.agents for seat in seats):
        return dict.fromkeys(CommitCategory, _Bench((), panel.reviewers(())))
    return {
        category: _Bench(tuple(expert.name for expert in experts), panel.reviewers(experts))
        for category, experts in commit_experts(settings, DEFAULT_EXPERTS).items()
    }


class _Rules(Struct, frozen=True):
    """What a project says of all its commits: how to review, and which findings are known."""

    guidance: tuple[GuidanceFile, ...] = ()
    baseline: Baseline = Baseline()


async def _rules(
    repository: Repository, commits: Sequence[Commit], query: CommitQuery, settings: Settings, *, for_agents: bool
) -> _Rules:
    """Of trusted commits from the newest one; of others from the base of their range, and without a range nothing."""
    scope = scope_of(query)
    if not commits or (settings.untrusted and not isinstance(scope, RangeScope)):
        return _Rules()
    if settings.untrusted:
        sides = await resolve_scope(repository, scope, base_branch=None)
        if (believed := await believed_base(repository, scope, sides, base_branch=settings.base_branch)) is None:
            return _Rules()
        sides = replace(sides, base=believed, scope=replace(sides.scope, base=believed))
    else:
        newest = commits[0].sha
        sides = Sides(Scope(ScopeKind.COMMIT, None, newest, "the newest commit"), newest, Side.COMMIT)
    trusted = not settings.untrusted
    paths = (path for commit in commits for path in commit.files)
    wanted = settings.guidance and for_agents
    guidance = await read_guidance(repository, sides, paths, trusted=trusted) if wanted else ()
    baseline = await read_baseline(sides.scope, repo=repository.root, trusted=trusted)
    return _Rules(guidance=tuple(one for one in guidance if not one.unused), baseline=baseline)


class _Sweep(Struct, frozen=True):
    """What every commit of one sweep is reviewed with."""

    repository: Repository
    settings: Settings
    seats: tuple[Seat, ...]
    panel: Panel
    nowhere: Path
    benches: Mapping[CommitCategory, _Bench]
    rules: _Rules
    relay: Relay
    transcript_of: TranscriptOf | None

    async def assignments(self, commits: Sequence[Commit], *, merges: bool) -> AsyncGenerator[Assignment]:
        """Each commit with its change, its category and its experts, read as they are asked for."""
        async with aclosing(read_commit_changes(self.repository, commits, merges=merges)) as changes:
            async for read in changes:
                category = categorise(read.commit)
                yield Assignment(
                    commit=read.commit,
                    category=category,
                    experts=self.benches[category].experts,
                    change=read.change,
                    problem=read.problem,
                )

    async def review(self, assignment: Assignment, change: Change) -> Review:
        """Review one commit. Raises what a review raises."""
        _taking_down.set(None if self.transcript_of is None else self.transcript_of(assignment.commit.sha))
        if not (change.files or change.unreadable) or all(seat.agents for seat in self.seats):
            review = await self._by_diff(assignment, change)
        else:
            review = await self._by_content(assignment, change)
        return replace(review, findings=tuple(self._signed(finding, assignment) for finding in review.findings))

    def _signed(self, finding: Finding, assignment: Assignment) -> Finding:
        """With its commit, and with all experts of a joined checklist when none of them is named."""
        by_agent = finding.reviewer in {seat.info.type for seat in self.seats if seat.agents}
        experts = ", ".join(assignment.experts) if by_agent else None
        return replace(finding, commit_sha=assignment.commit.sha, expert=finding.expert or experts)

    async def _by_diff(self, assignment: Assignment, change: Change) -> Review:
        rules = rules_of(self.settings)
        settled = await settle(select_by_diff(change, rules), rules, root=None, repository=self.repository)
        verifier = self.panel.verifier()
        bench = self.benches[assignment.category]
        # Nothing is there yet, and for most commits nothing will be.
        snapshot = self.nowhere.with_name(assignment.commit.sha)
        task = ReviewTask(
            change=change,
            files=settled.selection.files,
            snapshot=snapshot,
            trusted=not self.settings.untrusted,
            timeout_seconds=self.settings.timeout_seconds,
            intent=intent_of(assignment.commit),
            guidance=self.rules.guidance,
        )
        plan = ReviewPlan(
            task=task,
            selection=settled.selection,
            reviewers=tuple(_WithContent(reviewer, self) for reviewer in bench.reviewers),
            verifier=None if verifier is None else _WithTree(verifier, self, assignment.commit),
            policy=_policy(self.settings),
            baseline=self.rules.baseline,
            beforehand=settled.lock_findings,
        )
        try:
            return await self._run(plan, assignment.commit)
        finally:
            if snapshot.exists():
                remove_tree(snapshot)

    async def _by_content(self, assignment: Assignment, change: Change) -> Review:
        trusted = not self.settings.untrusted
        async with take_in(
            CommitScope(assignment.commit.sha),
            self.repository.root,
            base_branch=None,
            rules=rules_of(self.settings),
            trusted=trusted,
            with_tree=any(seat.reads_tree for seat in self.seats),
            whole_tree=any(seat.needs_whole_tree for seat in self.seats),
            with_guidance=self.settings.guidance and any(seat.agents for seat in self.seats),
        ) as intake:
            selection = within(intake.selection, change)
            task = intake.task(trusted=trusted, timeout_seconds=self.settings.timeout_seconds)
            plan = ReviewPlan(
                task=replace(task, change=change, files=selection.files),
                selection=selection,
                reviewers=self.benches[assignment.category].reviewers,
                verifier=self.panel.verifier(),
                policy=_policy(self.settings),
                baseline=self.rules.baseline,
                beforehand=intake.beforehand,
            )
            return await self._run(plan, assignment.commit)

    async def _run(self, plan: ReviewPlan, commit: Commit) -> Review:
        started = time.monotonic()
        review = await run_review(plan, clock=time.monotonic, started=started, emit=self.relay.of(commit))
        for error in review.errors:
            if error.kind == EXPIRED:
                self.relay.warn(error.message)
        # Of the whole baseline not one commit can tell: an entry that this one does not need may be for another.
        own = (error for error in review.errors if error.kind not in (EXPIRED, UNUSED))
        return replace(review, errors=tuple(own))


class _WithContent(Struct, frozen=True):
    """A reviewer in an empty directory, after whom the files that it found something in are in the snapshot.

    A diff is enough to review, but what a finding is known by from one review to the next stands around it too.
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
            await self._write(task.snapshot, blobs)
        return outcome

    async def _write(self, snapshot: Path, blobs: Mapping[str, str]) -> None:
        try:
            contents = await read_blobs(self.sweep.repository, blobs.values(), max_bytes=_MOST_CONTENT_BYTES)
        except CodeloupeError as error:
            _log.warning("the files of some findings could not be read: %s", error.message)
            return
        for path, blob in blobs.items():
            # A path that leaves the tree, or is file and folder at once, has no content here.
            with suppress(OSError, ValueError):
                if blob in contents:
                    write_file(snapshot, path, contents[blob])


class _WithTree(Struct, frozen=True):
    """A verifier that gets the whole tree of a commit, which is exported only when there is something to verify."""

    verifier: Verifier
    sweep: _Sweep
    commit: Commit

    async def verify(self, findings: Sequence[Finding], task: ReviewTask, emit: EventSink) -> ReviewerOutcome:
        if not any(finding.is_open and finding.severity.at_least(Severity.HIGH) for finding in findings):
            return ReviewerOutcome(findings=tuple(findings))
        async with take_in(
            CommitScope(self.commit.sha),
            self.sweep.repository.root,
            base_branch=None,
            rules=rules_of(self.sweep.settings),
            trusted=task.trusted,
            with_tree=True,
        ) as intake:
            whole = intake.task(trusted=task.trusted, timeout_seconds=task.timeout_seconds)
            return await self.verifier.verify(findings, whole, emit)


def _policy(settings: Settings) -> Policy:
    """What `strict` fails on is never hidden, whatever the settings say for a review."""
    policy = policy_of(settings)
    return policy if Severity.HIGH.at_least(policy.fail_on) else replace(policy, fail_on=Severity.HIGH)
