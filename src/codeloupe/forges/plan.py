"""From a saved review and a pull request as it is to what is to be done there. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.errors import ForgeError, HeadMoved, UsageError
from codeloupe.findings.verdict import conclude
from codeloupe.forges.comments import DiffPlaces, answer_body, finding_body
from codeloupe.forges.threads import Marker, OwnThread, key_of, own_threads, word_of
from codeloupe.model import publication as model
from codeloupe.model.change import ScopeKind
from codeloupe.model.finding import Finding, FindingStatus, Suppression, SuppressionKind
from codeloupe.model.publication import AnswerKind, Conclusion, Opinion, PublishOptions, PullRequest
from codeloupe.model.review import FailedUnit, Review
from codeloupe.reports.wording import counted, gaps_of, why_not_counted

_CanTell = Callable[[OwnThread], bool]
_ThreadsAbout = Callable[[Finding], tuple[OwnThread, ...]]


class _Subject(Struct, frozen=True):
    """A finding of the review and the threads about it, the oldest first; a hidden or omitted one is not shown."""

    finding: Finding
    threads: tuple[OwnThread, ...]
    is_shown: bool = False
    is_omitted: bool = False

    @property
    def is_back(self) -> bool:
        """Whether it is open again, and we said last that it is not, or it was fixed by what the review knows."""
        if not self.threads or not self.finding.is_open or not self.is_shown:
            return False
        newest = self.threads[-1]
        regressed = self.finding.status is FindingStatus.REGRESSED and newest.thread.is_resolved
        return newest.is_said_closed or (regressed and newest.last_word is None)


def _order(subject: _Subject) -> tuple[int, bool, str, int, str]:
    finding = subject.finding
    return finding.severity.priority, not finding.anchored, finding.file, finding.first_line, finding.title


def make_plan(review: Review, pull_request: PullRequest, *, marker: Marker, options: PublishOptions) -> model.Plan:
    """What is to be posted, answered and changed. Raises as `check_current`."""
    check_current(review, pull_request)
    places = DiffPlaces(pull_request.files, forge=pull_request.forge)
    threads = own_threads(pull_request.threads, marker, maintainers=pull_request.maintainers)
    threads_about = _matching(threads, places)
    judged, dismissed = _with_dismissals(review, threads_about)
    why_not, can_tell = _seen(judged, pull_request)
    # Two files of the forge may be one of ours: what it shows as deleted and added, git may know as renamed.
    if _is_one_of_many(judged, pull_request) or 2 * judged.coverage.files_total < pull_request.changed_files:
        judged = _judged_as_a_part(judged)
    # A thread on a finding that is hidden by its severity, or omitted, is not about something that is gone.
    subjects = [_Subject(finding, threads_about(finding), is_omitted=True) for finding in judged.omitted]
    subjects += [_Subject(finding, threads_about(finding)) for finding in judged.hidden]
    subjects += [_Subject(finding, threads_about(finding), is_shown=True) for finding in judged.findings]
    about = {own.thread.thread_id: each for each in subjects for own in each.threads}
    # They stay open, since nobody knows of their findings.
    left = [
        own
        for own in threads
        if own.thread.thread_id not in about
        and not (own.thread.is_resolved or own.dismissed is not None or own.is_said_closed or can_tell(own))
    ]
    shown = sorted((each for each in subjects if each.is_shown and each.finding.is_open), key=_order)
    comments, without = _new_comments(shown, subjects, judged, places=places, limit=options.max_comments, marker=marker)
    conclusion = Conclusion.SUCCESS if judged.complete else Conclusion.NEUTRAL
    if judged.exit_code == 1:
        conclusion = Conclusion.FAILURE
    is_whole = not why_not and not left
    # An approval holds as long as it passes, a request until all does; of what was not seen nothing is known.
    wrong = Opinion.REQUEST_CHANGES if conclusion is Conclusion.SUCCESS else Opinion.APPROVE
    is_known = is_whole or conclusion is not Conclusion.SUCCESS
    return model.Plan(
        pull_request=pull_request,
        review=judged,
        options=options,
        conclusion=conclusion,
        opinion=_opinion(conclusion, pull_request, options, is_whole=is_whole),
        comments=comments,
        answers=tuple(_answers(threads, about, can_tell, pull_request.head, marker=marker, options=options)),
        withdrawn=tuple(each for each in pull_request.opinions if each.opinion is wrong and is_known),
        known=tuple(each.finding for each in shown if each.threads),
        without_comment=without,
        dismissed=dismissed,
        notes=tuple(_notes(pull_request, marker, left=left, why_not=why_not)),
    )


def check_current(review: Review, pull_request: PullRequest) -> None:
    """Raise unless the review is for the newest commit of an open pull request.

    UsageError for a review of no commit, HeadMoved for one of another commit, ForgeError for a closed pull request.
    """
    reviewed, name, head = review.scope.head, pull_request.name, pull_request.head
    if reviewed is None:
        what = "this review is for an index or a working tree, not for a commit of a pull request"
        raise UsageError(what, hint="review the commits, for example `codeloupe review origin/main...HEAD`")
    if reviewed != head:
        is_merge = reviewed == pull_request.merge_commit
        hint = (
            pull_request.merge_hint if is_merge else "review the newest commit; another run may be doing that already"
        )
        at = f"{name} is at {head[:12]}, but the review is for {reviewed[:12]}"
        raise HeadMoved(f"{at}; nothing was posted", hint=hint)
    if not pull_request.is_open:
        raise ForgeError(f"{name} is closed; nothing was posted", hint="reopen it to publish")


def _matching(threads: Sequence[OwnThread], places: DiffPlaces) -> _ThreadsAbout:
    """Return a function that finds the threads about a finding, the oldest first."""
    by_key: dict[str, list[OwnThread]] = defaultdict(list)
    for own in threads:
        by_key[own.key].append(own)

    def threads_about(finding: Finding) -> tuple[OwnThread, ...]:
        alike = by_key.get(key_of(finding), ())
        here = tuple(own for own in alike if own.thread.path == finding.file)
        # In another file it may be a copy of the code, unless the thread's own file is not in the diff any more.
        return here or tuple(own for own in alike if own.thread.path not in places)

    return threads_about


def _with_dismissals(review: Review, threads_about: _ThreadsAbout) -> tuple[Review, tuple[model.DismissedFinding, ...]]:
    """Return the review concluded with what maintainers dismissed in threads, and the findings that they dismissed."""
    dismissed: list[model.DismissedFinding] = []

    def after_dismissal(finding: Finding) -> Finding:
        said = [own.dismissed for own in threads_about(finding) if own.dismissed is not None]
        if not said or not finding.is_open:
            return finding
        who, reason = said[-1]
        dismissed.append(model.DismissedFinding(finding, who, reason))
        suppression = Suppression(kind=SuppressionKind.DISMISSAL, reason=reason, owner=who)
        return replace(finding, suppression=suppression)

    judged = replace(
        review,
        findings=tuple(after_dismissal(finding) for finding in review.findings),
        hidden=tuple(after_dismissal(finding) for finding in review.hidden),
        omitted=tuple(after_dismissal(finding) for finding in review.omitted),
    )
    return conclude(judged), tuple(dismissed)


def _judged_as_a_part(review: Review) -> Review:
    """The review as one that did not see all of the pull request: it may block, and cannot let pass."""
    missing = FailedUnit("the pull request", (), "only a part of it was reviewed")
    coverage = replace(review.coverage, units_failed=(*review.coverage.units_failed, missing))
    return conclude(replace(review, coverage=coverage))


def _is_one_of_many(review: Review, pull_request: PullRequest) -> bool:
    return review.scope.kind is ScopeKind.COMMIT and pull_request.commits > 1


def _seen(review: Review, pull_request: PullRequest) -> tuple[str, _CanTell]:
    """Why the review can tell of no thread, or nothing; and whether it would have found a thread's finding again."""
    gaps, why_not = gaps_of(review), ""
    if any(not gap.files for gap in gaps):
        why_not = "not everything could be reviewed"
    elif _is_one_of_many(review, pull_request) or review.coverage.files_total < pull_request.changed_files:
        why_not = "only a part of the pull request was reviewed"
    unseen = {skip.file for skip in review.coverage.skipped}.union(*(gap.files for gap in gaps))
    reviewers = {"", *word_of(review.reviewer.type).split("+")}

    def can_tell(own: OwnThread) -> bool:
        return not why_not and own.thread.path not in unseen and reviewers.issuperset(own.reviewer.split("+"))

    return why_not, can_tell


def _new_comments(
    shown: Sequence[_Subject],
    subjects: Sequence[_Subject],
    review: Review,
    *,
    places: DiffPlaces,
    limit: int,
    marker: Marker,
) -> tuple[tuple[model.InlineComment, ...], tuple[model.WithoutComment, ...]]:
    """Comments for new findings, and those without. Threads of ours that are open count towards `limit`."""
    already = sum(
        each.finding.is_open and (each.is_back or any(not own.thread.is_resolved for own in each.threads))
        for each in subjects
    )
    comments: dict[tuple[str, str], model.InlineComment] = {}
    without: list[model.WithoutComment] = []
    for finding in [each.finding for each in shown if not each.threads]:
        place, key = places.find(finding), key_of(finding)
        if isinstance(place, str):
            without.append(model.WithoutComment(finding, place))
        elif (key, finding.file) in comments:
            without.append(model.WithoutComment(finding, "another finding of its file has the same fingerprint"))
        elif already + len(comments) >= limit:
            most = counted(limit, "comment is", "comments are")
            without.append(model.WithoutComment(finding, f"no more than {most} open at a time"))
        else:
            comments[key, finding.file] = model.InlineComment(
                key=key,
                finding=finding,
                path=place.path,
                line=place.last,
                start_line=place.first if place.first < place.last else None,
                body=finding_body(finding, place, review=review, marker=marker),
            )
    return tuple(comments.values()), tuple(without)


def _opinion(conclusion: Conclusion, pull_request: PullRequest, options: PublishOptions, *, is_whole: bool) -> Opinion:
    """What to say now; COMMENT also when the same was said on this commit before."""
    wanted = Opinion.COMMENT
    if options.approve and conclusion is Conclusion.SUCCESS and is_whole:
        wanted = Opinion.APPROVE
    elif options.request_changes and conclusion is Conclusion.FAILURE:
        wanted = Opinion.REQUEST_CHANGES
    said = any(each.opinion is wanted and each.head == pull_request.head for each in pull_request.opinions)
    return Opinion.COMMENT if said else wanted


def _answers(
    threads: Sequence[OwnThread],
    about: Mapping[str, _Subject],
    can_tell: _CanTell,
    head: str,
    *,
    marker: Marker,
    options: PublishOptions,
) -> Iterator[model.ThreadAnswer]:
    for own in threads:
        thread = own.thread
        kind, why = _answer(own, about.get(thread.thread_id), can_tell)
        if kind is None:
            continue
        wanted = kind is not AnswerKind.BACK
        resolved = wanted if options.resolve and thread.is_resolved is not wanted else None
        body = None if why is None else answer_body(kind, own.key, head=head, why=why, marker=marker)
        if body is not None or resolved is not None:
            first = thread.comments[0].comment_id
            yield model.ThreadAnswer(
                thread_id=thread.thread_id, comment_id=first, kind=kind, path=thread.path, body=body, resolved=resolved
            )


def _answer(
    own: OwnThread, subject: _Subject | None, can_tell: _CanTell
) -> tuple[AnswerKind, str | None] | tuple[None, None]:
    """What became of the finding of a thread, None for no answer; and why, which is None when it needs no word."""
    if own.dismissed is not None:
        # The maintainer's word is there already.
        return AnswerKind.ASIDE, None
    if subject is not None and subject.is_omitted:
        return None, None
    if subject is not None and subject.finding.is_open:
        return (AnswerKind.BACK, "") if subject.is_back and own is subject.threads[-1] else (None, None)
    is_unknown = subject is None and not can_tell(own) and not own.is_said_closed
    # Somebody opened it again and said why.
    if is_unknown or (own.is_said_closed and own.was_contradicted):
        return None, None
    kind, why = AnswerKind.GONE, ""
    if subject and (subject.finding.status is not FindingStatus.FIXED or subject.finding.suppression is not None):
        kind, why = AnswerKind.ASIDE, why_not_counted(subject.finding)
    return kind, None if own.is_said_closed or own.thread.is_resolved else why


def _notes(pull_request: PullRequest, marker: Marker, *, left: Sequence[OwnThread], why_not: str) -> Iterator[str]:
    if left:
        why = why_not or "the file was not reviewed, or not by the reviewer that found it"
        yield f"{counted(len(left), 'earlier finding stays', 'earlier findings stay')} open: {why}"
    said = [*pull_request.comments, *(first for thread in pull_request.threads for first in thread.comments[:1])]
    if others := sum(one.is_ours and marker.looks_marked(one.body) for one in said):
        which = counted(others, "comment", "comments")
        yield f"{which} of this account were signed with another key, and were not changed"
    if pull_request.unasked:
        yield f"{counted(pull_request.unasked, 'person', 'people')} may have dismissed findings: too many to check"
    if len(pull_request.files) < pull_request.changed_files:
        which = f"{len(pull_request.files):,} of {counted(pull_request.changed_files, 'file', 'files')}"
        yield f"{pull_request.forge} shows the diff of {which}; findings in the other files have no comment"
