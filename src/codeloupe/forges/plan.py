"""From a saved review and a pull request as it stands to what is to be done there. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.errors import ForgeError, HeadMoved, UsageError
from codeloupe.forges.comments import DiffPlaces, Nowhere, Place, finding_body
from codeloupe.forges.marker import Marker, key_of, word_of
from codeloupe.forges.threads import (
    Answering,
    LookedAt,
    OwnThread,
    Subject,
    _names,
    answers_to,
    matched,
    own_threads,
    standing_threads,
    untold,
    with_other_signature,
)
from codeloupe.model.change import ScopeKind
from codeloupe.model.finding import Finding, FindingStatus, Severity
from codeloupe.model.publication import (
    Conclusion,
    DismissedFinding,
    InlineComment,
    Opinion,
    Plan,
    PublishOptions,
    PullRequest,
    StandingOpinion,
    WithoutComment,
)
from codeloupe.model.review import FailedUnit, Policy, Review, Verdict, unsettled_claims
from codeloupe.reports.wording import blocks, counted, gaps_of

_PASSED, _BLOCKED, _INCOMPLETE = 0, 1, 3


def judged_without(review: Review, dismissed: Collection[Finding]) -> Review:
    """The review with these findings of it as dismissed, its verdict and exit code from what is left.

    A file may claim anything: what blocks is seen from the findings, and what is missing from the coverage.
    """
    findings = tuple(_dismissed(finding) if finding in dismissed else finding for finding in review.findings)
    complete = _saw_everything(review) and not unsettled_claims(findings, review.policy)
    was_blocked_by_hidden = review.exit_code == _BLOCKED and not any(blocks(review, each) for each in review.findings)
    judged = replace(
        review, findings=findings, complete=complete, verdict=_verdict(findings, review.policy, complete=complete)
    )
    if was_blocked_by_hidden or any(blocks(judged, finding) for finding in findings):
        return replace(judged, exit_code=_BLOCKED)
    return _without_a_block(judged)


def judged_as_a_part(review: Review) -> Review:
    """The review as one that did not see all of the pull request: it may block, and cannot let pass."""
    missing = FailedUnit("the pull request", (), "only a part of it was reviewed")
    coverage = replace(review.coverage, units_failed=(*review.coverage.units_failed, missing))
    verdict = _verdict(review.findings, review.policy, complete=False)
    judged = replace(review, complete=False, coverage=coverage, verdict=verdict)
    return judged if review.exit_code == _BLOCKED else _without_a_block(judged)


def _without_a_block(review: Review) -> Review:
    passes = review.complete or review.policy.pass_when_incomplete
    return replace(review, exit_code=_PASSED if passes else _INCOMPLETE)


def conclusion_of(review: Review) -> Conclusion:
    """Failure when something blocks, neutral when not everything could be reviewed, else success."""
    if review.exit_code == _BLOCKED:
        return Conclusion.FAILURE
    return Conclusion.SUCCESS if review.complete and review.exit_code == _PASSED else Conclusion.NEUTRAL


def opinion_of(
    conclusion: Conclusion, pull_request: PullRequest, *, options: PublishOptions, is_whole: bool = True
) -> Opinion:
    """What to say now; COMMENT also when the same was said on this commit before.

    Without `is_whole` something of the pull request was perhaps not looked at, and nothing is approved.
    """
    wanted = Opinion.COMMENT
    if options.approve and conclusion is Conclusion.SUCCESS and is_whole:
        wanted = Opinion.APPROVE
    elif options.request_changes and conclusion is Conclusion.FAILURE:
        wanted = Opinion.REQUEST_CHANGES
    said = any(standing.opinion is wanted and standing.head == pull_request.head for standing in pull_request.opinions)
    return Opinion.COMMENT if said else wanted


def to_withdraw(
    conclusion: Conclusion, pull_request: PullRequest, *, is_whole: bool = True
) -> tuple[StandingOpinion, ...]:
    """Earlier opinions of ours that do not hold any more: an approval unless it passes, a request when all does."""
    if conclusion is Conclusion.SUCCESS and not is_whole:
        return ()
    wrong = Opinion.REQUEST_CHANGES if conclusion is Conclusion.SUCCESS else Opinion.APPROVE
    return tuple(standing for standing in pull_request.opinions if standing.opinion is wrong)


def _dismissed(finding: Finding) -> Finding:
    return replace(finding, status=FindingStatus.DISMISSED) if finding.is_open else finding


def _saw_everything(review: Review) -> bool:
    """Whether all was reviewed, unsettled claims aside: those are for a person to settle."""
    return review.coverage.complete and (review.complete or bool(review.unsettled))


def _verdict(findings: Collection[Finding], policy: Policy, *, complete: bool) -> Verdict:
    severities = {finding.severity for finding in findings if finding.can_block}
    if any(severity.at_least(Severity.HIGH) for severity in severities):
        return Verdict.FAIL
    if not complete and not any(severity.at_least(policy.fail_on) for severity in severities):
        return Verdict.INCOMPLETE
    return Verdict.NEEDS_WORK if severities else Verdict.PASS


def looked_at(review: Review, pull_request: PullRequest) -> LookedAt:
    """What the review saw: all of the pull request or a part of it, which files not, through whose eyes."""
    gaps = gaps_of(review)
    skipped = {skip.file for skip in review.coverage.skipped}
    unseen = frozenset(skipped.union(*(gap.files for gap in gaps)))
    reviewers = _names(word_of(review.reviewer.type))
    if any(not gap.files for gap in gaps):
        return LookedAt("not everything could be reviewed", unseen, reviewers)
    if not _is_whole(review, pull_request):
        return LookedAt("only a part of the pull request was reviewed", unseen, reviewers)
    return LookedAt("", unseen, reviewers)


def is_surely_a_part(review: Review, pull_request: PullRequest) -> bool:
    """Whether the review left out commits or files of the pull request for certain.

    Two files of the forge may be one of ours: what it shows as deleted and added, git may know as renamed.
    """
    return _is_one_of_many(review, pull_request) or 2 * review.coverage.files_total < pull_request.changed_files


def _is_one_of_many(review: Review, pull_request: PullRequest) -> bool:
    return review.scope.kind is ScopeKind.COMMIT and pull_request.commits > 1


def _is_whole(review: Review, pull_request: PullRequest) -> bool:
    return not _is_one_of_many(review, pull_request) and review.coverage.files_total >= pull_request.changed_files


class Sorted(Struct, frozen=True):
    """Findings with a comment and without one."""

    comments: tuple[InlineComment, ...] = ()
    without: tuple[WithoutComment, ...] = ()


def sort_out(
    findings: Sequence[Finding],
    *,
    places: DiffPlaces,
    limit: int,
    already: int,
    review: Review,
    marker: Marker,
) -> Sorted:
    """Comments for new findings, the worst first. `already` threads of ours are open and count towards `limit`."""
    comments: list[InlineComment] = []
    without: list[WithoutComment] = []
    keys: set[tuple[str, str]] = set()
    for finding in findings:
        place = places.find(finding)
        key = key_of(finding)
        if isinstance(place, Nowhere):
            without.append(WithoutComment(finding, place.reason))
        elif (key, finding.file) in keys:
            without.append(WithoutComment(finding, "another finding of its file has the same fingerprint"))
        elif already + len(comments) >= limit:
            most = counted(limit, "comment is", "comments are")
            without.append(WithoutComment(finding, f"no more than {most} open at a time"))
        else:
            keys.add((key, finding.file))
            comments.append(_comment(finding, place, review=review, marker=marker))
    return Sorted(tuple(comments), tuple(without))


def _comment(finding: Finding, place: Place, *, review: Review, marker: Marker) -> InlineComment:
    return InlineComment(
        key=key_of(finding),
        finding=finding,
        path=place.path,
        line=place.last,
        start_line=place.first if place.first < place.last else None,
        body=finding_body(finding, place, review=review, marker=marker),
    )


_SHORT_COMMIT = 12


def make_plan(review: Review, pull_request: PullRequest, *, marker: Marker, options: PublishOptions) -> Plan:
    """What is to be posted, answered and changed. Raises as `check_current`."""
    check_current(review, pull_request)
    places = DiffPlaces(pull_request.files)
    threads = own_threads(pull_request.threads, marker, maintainers=pull_request.maintainers)
    # A thread on a finding that is hidden by its severity is not about something that is gone.
    pairs = matched(threads, (*review.findings, *review.hidden), places=places)
    dismissed = tuple(_planning_dismissed(review.findings, pairs))
    judged = judged_without(review, frozenset(one.finding for one in dismissed))
    seen = looked_at(judged, pull_request)
    if is_surely_a_part(judged, pull_request):
        judged = judged_as_a_part(judged)
    subjects = [
        Subject(one, pairs.get(at, ()), is_shown=at < len(judged.findings))
        for at, one in enumerate((*judged.findings, *judged.hidden))
    ]
    shown = sorted(filter(_counts, subjects), key=_worst_first)
    new = sort_out(
        [subject.finding for subject in shown if not subject.threads],
        places=places,
        limit=options.max_comments,
        already=sum(1 for _ in standing_threads(subjects)),
        review=judged,
        marker=marker,
    )
    answering = Answering(head=pull_request.head, marker=marker, seen=seen, resolve=options.resolve)
    conclusion = conclusion_of(judged)
    left = untold(threads, subjects, seen=seen)
    is_whole = not seen.why_not and not left
    return Plan(
        pull_request=pull_request,
        review=judged,
        options=options,
        conclusion=conclusion,
        opinion=opinion_of(conclusion, pull_request, options=options, is_whole=is_whole),
        comments=new.comments,
        answers=answers_to(threads, subjects, answering=answering),
        withdrawn=to_withdraw(conclusion, pull_request, is_whole=is_whole),
        known=tuple(subject.finding for subject in shown if subject.threads),
        without_comment=new.without,
        dismissed=dismissed,
        notes=tuple(_notes(pull_request, marker, left=left, seen=seen)),
    )


def check_current(review: Review, pull_request: PullRequest) -> None:
    """Raise unless the review is for the newest commit of an open pull request.

    UsageError for a review of no commit, HeadMoved for one of another commit, ForgeError for a closed pull request.
    """
    reviewed, name = review.scope.head, pull_request.name
    if reviewed is None:
        raise UsageError(
            "this review is of an index or a working tree, not of a commit, so it cannot be that of a pull request",
            hint="review the commits, such as codeloupe review origin/main...HEAD",
        )
    if reviewed != pull_request.head:
        raise HeadMoved(
            f"{name} is at {pull_request.head[:_SHORT_COMMIT]}, the review is for {reviewed[:_SHORT_COMMIT]};"
            " nothing was posted",
            hint=_how_to_meet(reviewed, pull_request),
        )
    if not pull_request.is_open:
        raise ForgeError(f"{name} is closed; nothing was posted", hint="reopen it, or leave it")


def _how_to_meet(reviewed: str, pull_request: PullRequest) -> str:
    if reviewed == pull_request.merge_commit:
        return (
            "the review is for GitHub's trial merge; review the head itself: in GitHub Actions give actions/checkout"
            " the ref github.event.pull_request.head.sha"
        )
    return "review the newest commit; a run for it may be under way"


def _planning_dismissed(
    findings: Sequence[Finding], pairs: dict[int, tuple[OwnThread, ...]]
) -> Iterator[DismissedFinding]:
    for at, finding in enumerate(findings):
        said = [own.dismissed for own in pairs.get(at, ()) if own.dismissed is not None]
        if said and finding.is_open:
            yield DismissedFinding(finding, said[-1].who, said[-1].reason)


def _counts(subject: Subject) -> bool:
    return subject.is_shown and subject.finding.is_open


def _worst_first(subject: Subject) -> tuple[int, bool, str, int, str]:
    finding = subject.finding
    return finding.severity.priority, not finding.anchored, finding.file, finding.first_line, finding.title


def _notes(pull_request: PullRequest, marker: Marker, *, left: Sequence[OwnThread], seen: LookedAt) -> Iterator[str]:
    if left:
        why = seen.why_not or "the file was not reviewed, or not by the reviewer that found it"
        yield f"{counted(len(left), 'earlier finding stays', 'earlier findings stay')} open: {why}"
    if others := with_other_signature(pull_request, marker):
        which = counted(others, "comment", "comments")
        yield f"{which} of this account bear a mark that was signed with another key, and were left alone"
    if pull_request.unasked:
        yield f"{counted(pull_request.unasked, 'person', 'people')} may have dismissed findings, too many to ask about"
    if len(pull_request.files) < pull_request.changed_files:
        which = f"{len(pull_request.files):,} of {counted(pull_request.changed_files, 'file', 'files')}"
        yield f"GitHub shows the diff of {which}; findings in the others have no comment of their own"
