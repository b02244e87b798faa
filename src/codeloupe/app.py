"""The composition root of a review: puts the rooms together and names the concrete classes.

A review, from top to bottom: settings, reviewer, intake (scope, change, selection, snapshot), run.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from importlib import import_module
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.cli.demo_repository import make_repository
from codeloupe.config.schema import Settings
from codeloupe.doctor import DiagnosisPlace, diagnose
from codeloupe.engine.asking import Transcript
from codeloupe.engine.calls import AGENT_NAMES, AgentCalls, make_agent
from codeloupe.engine.history import Answers, keep
from codeloupe.engine.lanes import joined_info
from codeloupe.engine.path_choice import literal_pattern, nearest_path
from codeloupe.engine.plan import plan_units
from codeloupe.engine.prepare import Intake, at_hand, fetch, policy_of, rules_of, take_in, with_and_without_lines
from codeloupe.engine.prompt import FINDINGS_SCHEMA, PROMPT_VERSION, PromptMaterial, new_fence, review_prompt
from codeloupe.engine.reviewers import Floor, Seat, agent_to_check, choose_seats, default_analysers, experts_of, seated
from codeloupe.engine.rounds import begin_round
from codeloupe.engine.run import ReviewPlan, run_review
from codeloupe.engine.selection import Selection, wanted_only
from codeloupe.engine.settings import configure
from codeloupe.engine.tokens import tokens_of
from codeloupe.errors import NotARepository, RevisionError, UsageError
from codeloupe.git.engine import private_directory
from codeloupe.git.guidance import guidance_changed
from codeloupe.git.pushing import pushed_ranges, read_pushed
from codeloupe.git.repository import Repository, find_root, open_repository
from codeloupe.git.scopes import Sides, resolve_scope, unknown_word
from codeloupe.git.snapshot import list_files, list_head_files
from codeloupe.model.change import Scope
from codeloupe.model.diagnosis import Diagnosis
from codeloupe.model.events import ChangeRead, Event, ReviewerChosen, StageStarted, Warned
from codeloupe.model.ports import EventSink
from codeloupe.model.preview import Preview, PreviewFile
from codeloupe.model.review import NOT_INCLUDED, Review, ReviewError, SkippedFile, SkipReason
from codeloupe.model.scope import (
    DefaultScope,
    DiffScope,
    FetchedScope,
    PushedRange,
    PushedRef,
    RangeScope,
    ScopeRequest,
)
from codeloupe.model.unit import Unit
from codeloupe.store.baseline.revision import read_baseline
from codeloupe.store.location import state_directory

__all__ = [
    "configure",
    "demo",
    "doctor",
    "fetch",
    "new_in_push",
    "patterns_of",
    "preview",
    "private_directory",
    "review",
]

_NO_AGENT = "no_agent"
_RULES_CHANGED = "rules_changed"
_GUIDANCE_UNUSED = "guidance_unused"
_ASSUMED_BASE = "assumed_base"
_PARTIAL_TREE = "the repository is very large, so the agent gets a copy of the files around the change alone"


def _ignore(_event: Event) -> None:
    """Take an event and do nothing with it."""


async def review(  # noqa: PLR0913 - each is a choice of its own, by name
    scope: ScopeRequest | None = None,
    *,
    repo: Path | str = ".",
    settings: Settings | None = None,
    emit: EventSink = _ignore,
    context: str = "",
    fresh: bool = False,
    since_last: bool = False,
    transcript: Transcript | None = None,
    session_id: str | None = None,
    own_patterns: frozenset[str] = frozenset(),
    needs_agent: bool = False,
    calls: AgentCalls | None = None,
) -> Review:
    """Review a change and return the outcome; nothing is printed.

    Without `settings` they are loaded as the program would. `context` is what the reviewers should know beside the
    change, as data. What an agent saw in the last review of this branch, and what was paid for before, is not asked
    again, unless `fresh`; `since_last` leaves out of the outcome what the last review saw. `transcript` gets every
    prompt and raw answer, as they were before secrets were masked. `session_id` names the caller's session to an
    external gate. `own_patterns` says which of the settings `include` and `exclude` the caller chose for this very
    review: where they leave nothing of an untrusted change, there is nothing to review; other settings that do so
    make it incomplete. Raises UsageError for what the caller can mend and ProcessError when git fails; a reviewer
    that fails is in the outcome, which is then not complete.
    """
    calls = calls or AgentCalls()
    async with at_hand(scope or DefaultScope(), Path(repo)) as (request, place):
        chosen = await _settings(request, place, settings, calls)
        floor = Floor(repo=place, calls=calls, transcript=transcript, session_id=session_id)
        how = ReviewWish(settings=chosen, floor=floor, context=context, fresh=fresh, since_last=since_last)
        how = replace(how, own_patterns=own_patterns)
        return await review_by(await choose_seats(chosen, calls, needs_agent=needs_agent), request, how, emit=emit)


async def _settings(request: ScopeRequest, repo: Path, given: Settings | None, calls: AgentCalls) -> Settings:
    """Those that were given, or are in force; a pull request is untrusted, whatever they say."""
    settings = given or (await configure(request, repo=repo, environment=calls.environment)).settings
    return replace(settings, untrusted=True) if isinstance(request, FetchedScope) else settings


class ReviewWish(Struct, frozen=True, kw_only=True):
    """How a review is to be made; as in `review`."""

    settings: Settings
    floor: Floor
    context: str = ""
    fresh: bool = False
    since_last: bool = False
    own_patterns: frozenset[str] = frozenset()


async def review_by(seats: Sequence[Seat], request: ScopeRequest, wish: ReviewWish, *, emit: EventSink) -> Review:
    """Review a change by those who sit there. Raises as `review` does."""
    started = time.monotonic()
    chosen, repo = wish.settings, wish.floor.repo
    for seat in seats:
        emit(ReviewerChosen(seat.info))
    emit(StageStarted("reading", "the change"))
    answers = Answers(wish.floor.transcript)
    with seated(seats, chosen, floor=replace(wish.floor, transcript=answers), fresh=wish.fresh) as panel:
        # Who cannot review as the settings want it is found out before anything is read or bought.
        reviewers = panel.reviewers()
        async with take_in(
            request,
            repo,
            base_branch=chosen.base_branch,
            rules=rules_of(chosen),
            trusted=not chosen.untrusted,
            # Of a pull request there is no other tree in which earlier findings could be looked for.
            with_tree=any(seat.reads_tree for seat in seats) or isinstance(request, FetchedScope),
            whole_tree=any(seat.needs_whole_tree for seat in seats),
            with_guidance=chosen.guidance and any(seat.agents for seat in seats),
            context=wish.context,
            must_match=True,
        ) as taken:
            intake = replace(taken, selection=_unless_empty(taken.selection, wish))
            intake = await _with_each_commit(intake, request, wish)
            emit(ChangeRead(intake.change))
            round_ = await begin_round(
                intake, seats, chosen, floor=wish.floor, fresh=wish.fresh, since_last=wish.since_last
            )
            told = (*_assumed_base(request), *_changed_rules(intake, chosen), *_unused_guidance(intake), *round_.errors)
            for note in (*(error.message for error in told), *round_.notes, *_partial_tree(intake, seats)):
                emit(Warned(note))
            plan = ReviewPlan(
                task=intake.task(trusted=not chosen.untrusted, timeout_seconds=chosen.timeout_seconds),
                selection=intake.selection,
                reviewers=round_.over(reviewers, seats),
                verifier=panel.verifier(),
                policy=policy_of(chosen),
                baseline=await read_baseline(_believed(intake, chosen), repo=repo, trusted=not chosen.untrusted),
                earlier=round_.earlier,
                beforehand=intake.beforehand,
            )
            outcome = await run_review(plan, clock=time.monotonic, started=started, emit=emit)
            offline = _went_offline(seats) if intake.change.files else ()
            outcome = replace(outcome, errors=(*outcome.errors, *told, *offline))
            if not chosen.keep_history:
                return outcome
            return await keep(
                outcome,
                repo=repo,
                raw_outputs=answers.texts,
                prompt_version=PROMPT_VERSION if any(seat.agents for seat in seats) else "",
                terms=round_.terms,
                seen=round_.seen(plan.task, outcome),
                left_out=round_.left_out,
                place=round_.place,
                opened=wish.floor.calls.opened_history,
                emit=emit,
            )


async def _with_each_commit(intake: Intake, request: ScopeRequest, wish: ReviewWish) -> Intake:
    """The intake with the secrets that single commits of a push hold; what cannot be searched is a gap."""
    if not isinstance(request, RangeScope) or not request.commits:
        return intake
    rules = rules_of(wish.settings)
    read = await read_pushed(await open_repository(wish.floor.repo), request.commits)
    searched = await import_module("codeloupe.analysers.history_secrets").search_commits(
        [(one.commit.sha, wanted_only(one.change, rules)) for one in read if one.change is not None],
        intake.selection.files,
        trusted=not wish.settings.untrusted,
        timeout_seconds=wish.settings.timeout_seconds,
    )
    failed = [(f"commit {one.commit.sha[:12]}", one.problem) for one in read if one.change is None]
    gaps = (rules.skipped(name, SkipReason.UNREADABLE, why) for name, why in (*failed, *searched.failed))
    skipping = replace(intake, selection=replace(intake.selection, skipped=(*intake.selection.skipped, *gaps)))
    return replace(skipping, beforehand=(*intake.beforehand, *searched.findings))


def _partial_tree(intake: Intake, seats: Sequence[Seat]) -> tuple[str, ...]:
    return (_PARTIAL_TREE,) if intake.tree_is_partial and any(seat.agents for seat in seats) else ()


def _unless_empty(selection: Selection, wish: ReviewWish) -> Selection:
    """The selection; of an untrusted change, settings that leave out all of it make the review incomplete."""
    if not wish.settings.untrusted or selection.present or not selection.skipped:
        return selection
    skipped = tuple(replace(skip, accepted=False) if _by_settings(skip, wish) else skip for skip in selection.skipped)
    return replace(selection, skipped=skipped)


def _by_settings(skip: SkippedFile, wish: ReviewWish) -> bool:
    is_own = ("include" if skip.detail == NOT_INCLUDED else "exclude") in wish.own_patterns
    return skip.reason is SkipReason.EXCLUDED and not is_own


def _believed(intake: Intake, settings: Settings) -> Scope:
    """The scope, with the base that an untrusted change cannot have written."""
    scope = intake.change.scope
    return replace(scope, base=intake.believed) if settings.untrusted else scope


def _unused_guidance(intake: Intake) -> tuple[ReviewError, ...]:
    return tuple(
        ReviewError(_GUIDANCE_UNUSED, f"{one.path} was not used: {one.unused}") for one in intake.unused_guidance
    )


def _went_offline(seats: Sequence[Seat]) -> tuple[ReviewError, ...]:
    """Whoever wanted an agent to review, and reads of no finding, should know that none has looked."""
    words = "only the analysers reviewed this change: {}; `codeloupe doctor` says how to set one up"
    return tuple(ReviewError(_NO_AGENT, words.format(seat.instead)) for seat in seats if seat.instead)


def _assumed_base(request: ScopeRequest) -> tuple[ReviewError, ...]:
    """A pull request whose base nobody tells is compared with a guess, and whoever reads the verdict should know."""
    if not isinstance(request, FetchedScope) or not request.assumed_base:
        return ()
    message = (
        f"the remote does not say which branch this pull request goes to: {request.assumed_base} was assumed;"
        " give its base to compare with another"
    )
    return (ReviewError(_ASSUMED_BASE, message),)


def _changed_rules(intake: Intake, settings: Settings) -> tuple[ReviewError, ...]:
    """A stranger's change to what steers reviews does not steer this one, and whoever merges it should know."""
    changed = guidance_changed(intake.change) if settings.untrusted else ()
    if not changed:
        return ()
    message = f"the change edits {', '.join(changed)}; the base's version was used for this review"
    return (ReviewError(_RULES_CHANGED, message),)


async def new_in_push(refs: Sequence[PushedRef], *, remote: str, repo: Path | str = ".") -> tuple[PushedRange, ...]:
    """What a push of these refs would bring to a remote. Raises RevisionError for a ref that is not here."""
    base = (await configure(DefaultScope(), repo=Path(repo))).settings.base_branch
    return await pushed_ranges(await open_repository(Path(repo)), refs, remote=remote, base_branch=base)


async def patterns_of(
    words: Sequence[str], paths: Sequence[str], scope: ScopeRequest, *, repo: Path
) -> tuple[str, ...]:
    """The include patterns for files and folders that are named relative to `repo`; `paths` are certainly such.

    A word may name a file of the working tree or of HEAD; of a diff or a pull request any. Raises UsageError for one
    that is neither, and says what was probably meant, and for one outside of the repository.
    """
    if not words and not paths:
        return ()
    is_elsewhere = isinstance(scope, DiffScope | FetchedScope)
    try:
        root = find_root(repo)
    except NotARepository:
        if not is_elsewhere:
            raise
        root = repo.resolve()
    inside = [_inside(word, root, repo) for word in (*words, *paths)]
    unsure = (
        [] if is_elsewhere else [name for name in inside[: len(words)] if name and not os.path.lexists(root / name)]
    )
    if unsure:
        repository = await open_repository(repo)
        known = await list_files(repository, await _sides(repository, scope)) + await list_head_files(repository)
        for word, name in zip(words, inside, strict=False):
            if name in unsure and not any(file == name or file.startswith(f"{name}/") for file in known):
                raise await unknown_word(repository, word, nearest_path(name, known))
    # The whole repository is no narrowing.
    return () if "" in inside else tuple(map(literal_pattern, inside))


async def _sides(repository: Repository, scope: ScopeRequest) -> Sides | None:
    """Both sides of what is reviewed, so that a deleted file can be named; None where they are not known yet."""
    try:
        return await resolve_scope(repository, scope, base_branch=None)
    except (RevisionError, NotARepository):
        return None


def _inside(word: str, root: Path, here: Path) -> str:
    """A path as git names it; empty for the root itself."""
    # Not resolved further: a link in the repository is a file of its own.
    path = os.path.normpath(os.path.join(here.resolve(), word))  # noqa: PTH118 - Path has no such normalisation
    relative = os.path.relpath(path, root)
    if relative == ".." or relative.startswith("../"):
        raise UsageError(f"{word!r} is outside of the repository {root}", hint="give a path inside of it")
    return "" if relative == "." else relative


async def preview(
    scope: ScopeRequest | None = None, *, repo: Path | str = ".", settings: Settings | None = None, calls: AgentCalls
) -> Preview:
    """What a review would look at and what not, without running it. Raises as `review` does."""
    async with AsyncExitStack() as stack:
        request, place = await stack.enter_async_context(at_hand(scope or DefaultScope(), Path(repo)))
        chosen = await _settings(request, place, settings, calls)
        intake = await stack.enter_async_context(
            take_in(
                request,
                place,
                base_branch=chosen.base_branch,
                rules=rules_of(chosen),
                trusted=not chosen.untrusted,
                must_match=True,
            )
        )
        files, without_lines = with_and_without_lines(intake.selection.files)
        reasons = {skip.file: skip for skip in (*intake.selection.skipped, *without_lines)}
        listed = tuple(PreviewFile(file, reasons.get(file.path)) for file in intake.change.files)
        shown = {file.path for file in intake.change.files}
        units = plan_units(
            files,
            effort=chosen.effort,
            experts=experts_of(chosen),
            passes=chosen.passes,
            apart=len(chosen.experts) > 1,
            own_tokens=_own_tokens(chosen),
        )
        return Preview(
            scope=intake.change.scope,
            files=listed,
            out_of_reach=tuple(skip for skip in reasons.values() if skip.file not in shown),
            units=len(units),
            prompt_tokens_estimate=_prompt_tokens(units),
        )


def _own_tokens(settings: Settings) -> int:
    """What the agent that is asked first adds to each call, as far as that can be told without looking for it."""
    name = (settings.reviewers or (settings.reviewer_type,))[0]
    chosen = settings.agents[0] if name == "auto" and settings.agents else name
    return make_agent(chosen, settings).limits.own_tokens if chosen in AGENT_NAMES else 0


def _prompt_tokens(units: Sequence[Unit]) -> int:
    """About how many tokens all prompts are: the diff, and what stands around it in each of them."""
    if not units:
        return 0
    sample = review_prompt(units[0], PromptMaterial(fence=new_fence()))
    around = tokens_of(sample.system) + tokens_of(json.dumps(FINDINGS_SCHEMA)) + tokens_of(sample.text)
    return sum(unit.tokens for unit in units) + max(0, around - units[0].tokens) * len(units)


async def doctor(*, repo: Path | str = ".", settings: Settings) -> Diagnosis:
    """What is here, what is missing, and who would review."""
    seats = await choose_seats(settings, calls := AgentCalls())
    return await diagnose(
        default_analysers(),
        [agent_to_check(name, settings, calls) for name in AGENT_NAMES],
        joined_info([seat.info for seat in seats]),
        needed_agents=frozenset(seat.info.type for seat in seats if seat.agents),
        place=DiagnosisPlace(Path(repo), settings.base_branch, state_directory(os.environ)),
    )


async def demo(directory: Path, *, settings: Settings, emit: EventSink = _ignore) -> Review:
    """Make the demo's repository in an empty directory and review its change offline, at no cost."""
    await make_repository(directory)
    offline = replace(settings, reviewer_type="offline", reviewers=(), keep_history=False)
    return await review(DefaultScope(), repo=directory, settings=offline, emit=emit)
