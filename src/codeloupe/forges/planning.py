"""From a saved review and a pull request as it stands to what is to be done there. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from codeloupe.errors import ForgeError, HeadMoved, UsageError
from codeloupe.forges.diff_places import DiffPlaces
from codeloupe.forges.judging import conclusion_of, judged_as_a_part, judged_without, opinion_of, to_withdraw
from codeloupe.forges.looked_at import LookedAt, is_surely_a_part, looked_at
from codeloupe.forges.marker import Marker
from codeloupe.forges.new_comments import sort_out
from codeloupe.forges.own_threads import OwnThread, matched, own_threads, with_other_signature
from codeloupe.forges.thread_answers import Answering, Subject, answers_to, standing_threads, untold
from codeloupe.model.finding import Finding
from codeloupe.model.publication import DismissedFinding, Plan, PublishOptions, PullRequest
from codeloupe.model.review import Review
from codeloupe.reports.wording import counted

_SHORT_COMMIT = 12


def make_plan(review: Review, pull_request: PullRequest, *, marker: Marker, options: PublishOptions) -> Plan:
    """What is to be posted, answered and changed. Raises as `check_current`."""
    check_current(review, pull_request)
    places = DiffPlaces(pull_request.files)
    threads = own_threads(pull_request.threads, marker, maintainers=pull_request.maintainers)
    # A thread on a finding that is hidden by its severity is not about something that is gone.
    pairs = matched(threads, (*review.findings, *review.hidden), places=places)
    dismissed = tuple(_dismissed(review.findings, pairs))
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


def _dismissed(findings: Sequence[Finding], pairs: dict[int, tuple[OwnThread, ...]]) -> Iterator[DismissedFinding]:
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
