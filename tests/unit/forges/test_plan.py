"""What a plan has for a pull request, and for any sequence of pushes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from codeloupe.errors import CodeloupeError, ForgeError, HeadMoved, UsageError
from codeloupe.forges.comments import summary_body
from codeloupe.forges.plan import make_plan
from codeloupe.forges.threads import key_of
from codeloupe.model.change import Scope, ScopeKind
from codeloupe.model.finding import ClaimEnd, Finding, FindingStatus, Proof, Severity, Suppression, SuppressionKind
from codeloupe.model.publication import (
    AnswerKind,
    Conclusion,
    Opinion,
    Plan,
    PostedComment,
    PublishOptions,
    PullRequest,
    StandingOpinion,
    Thread,
    ThreadComment,
)
from codeloupe.model.review import Coverage, FailedUnit, Policy, Review, SkippedFile, SkipReason, Verdict
from tests.publish_material import BASE, FIRST, SECOND, finding, patch, review
from tests.publish_states import MAINTAINER, MARKER, disliked, pull_request, said, thread_about, told
from tests.rows import each


def plan(reviewed: Review, pull: PullRequest, **options: Any) -> Plan:
    return make_plan(reviewed, pull, marker=MARKER, options=PublishOptions(**options))


def lines(made: Plan) -> list[tuple[str, int | None, int]]:
    return [(one.path, one.start_line, one.line) for one in made.comments]


@each(
    ("reviewed", "changes", "kind", "words", "hint"),
    [
        # The trial merge of GitHub is not the head.
        (review(head=SECOND), {"merge_commit": SECOND}, HeadMoved, "the review is for 222222222222", "head.sha"),
        (review(head=None), {}, UsageError, "not for a commit", "review the commits"),
        (review(), {"is_open": False}, ForgeError, "is closed", "reopen it"),
    ],
)
def test_only_a_review_of_the_head_of_an_open_pull_request_is_posted(
    reviewed: Review, changes: dict[str, Any], kind: type[CodeloupeError], words: str, hint: str
) -> None:
    with pytest.raises(kind, match=words) as raised:
        plan(reviewed, pull_request(**changes))
    assert hint in raised.value.hint


def kinds(made: Plan) -> list[AnswerKind]:
    return [answer.kind for answer in made.answers]


KNOWN = Suppression(kind=SuppressionKind.BASELINE, reason="known")
DISMISSAL = Suppression(kind=SuppressionKind.DISMISSAL, reason="fine")


class TestNewFindings:
    def test_each_has_a_comment_on_its_lines_the_most_severe_first(self) -> None:
        found = (finding(2, severity=Severity.LOW), finding(9, line_end=12, severity=Severity.CRITICAL), finding(5))
        made = plan(review(*found), pull_request())
        assert lines(made) == [("app.py", 9, 12), ("app.py", None, 5), ("app.py", None, 2)]
        assert made.without_comment == ()

    def test_only_so_many_get_a_comment_and_threads_that_are_open_count(self) -> None:
        made = plan(review(*(finding(line) for line in range(1, 6))), pull_request(), max_comments=2)
        assert len(made.comments) == 2
        assert {one.reason for one in made.without_comment} == {"no more than 2 comments are open at a time"}
        known = [finding(1), finding(2), finding(3)]
        pull = pull_request(
            thread_about(known[0]), thread_about(known[1], is_resolved=True), thread_about(known[2], said("why?"))
        )
        assert lines(plan(review(*known, finding(7), finding(8)), pull, max_comments=3)) == [("app.py", None, 7)]
        back = pull_request(thread_about(finding(4), told(AnswerKind.GONE, finding(4)), is_resolved=True))
        assert plan(review(finding(4), finding(5)), back, max_comments=1).comments == ()

    def test_what_does_not_count_has_no_comment(self) -> None:
        ends: list[dict[str, Any]] = [
            {"proof": Proof.REFUTED},
            {"end": ClaimEnd.FIXED},
            {"suppression": DISMISSAL},
            {"suppression": KNOWN},
        ]
        made = plan(review(*(finding(line, **end) for line, end in enumerate(ends, 1))), pull_request())
        assert (made.comments, made.without_comment, made.conclusion) == ((), (), Conclusion.SUCCESS)

    def test_two_with_one_fingerprint_are_both_told(self) -> None:
        made = plan(review(finding(1, fingerprint="same" * 4), finding(2, fingerprint="same" * 4)), pull_request())
        assert lines(made) == [("app.py", None, 1)]
        assert [one.finding.line_start for one in made.without_comment] == [2]


class TestKnownFindings:
    def test_one_that_has_a_thread_is_not_posted_again_and_what_is_resolved_stays_so(self) -> None:
        for is_resolved in (False, True):
            made = plan(review(finding(4)), pull_request(thread_about(finding(4), is_resolved=is_resolved)))
            assert (made.comments, made.answers, made.known) == ((), (), (finding(4),))

    def test_a_mark_of_a_stranger_hides_nothing(self) -> None:
        thread = thread_about(finding(4))
        forged = replace(thread, comments=(replace(thread.comments[0], is_ours=False, author="stranger"),))
        made = plan(review(finding(4)), pull_request(forged))
        assert (len(made.comments), made.answers, made.notes) == (1, (), ())

    def test_a_renamed_file_keeps_its_thread_and_a_copy_has_one_of_its_own(self) -> None:
        moved = finding(4, file="new.py", fingerprint=finding(4).fingerprint)
        files = {"new.py": patch(), "other.py": patch()}
        made = plan(review(moved), pull_request(thread_about(finding(4)), files=files))
        assert (made.known, made.answers) == ((moved,), ())
        copied = finding(4, file="other.py", fingerprint=finding(4).fingerprint)
        made = plan(review(copied), pull_request(thread_about(finding(4))))
        assert (lines(made), kinds(made)) == ([("other.py", None, 4)], [AnswerKind.GONE])

    def test_one_without_a_fingerprint_is_known_by_what_it_says(self) -> None:
        odd = finding(4, fingerprint="")
        assert plan(review(odd), pull_request(thread_about(odd))).known == (odd,)


def answered(reviewed: Review, *threads: Thread, **options: Any) -> list[tuple[AnswerKind, bool | None, str]]:
    """What is said in the threads, how they are left, and the words after the mark."""
    made = plan(reviewed, pull_request(*threads), **options)
    return [(one.kind, one.resolved, (one.body or "").partition("\n")[2]) for one in made.answers]


GONE = told(AnswerKind.GONE, finding(4))
NOT_FOUND = "No longer found at `111111111111`."
ASIDE = "No longer counts at `111111111111`"


class TestThreads:
    @each(
        ("found", "thread", "answers"),
        [
            # One that is gone is answered and resolved; that is said once, and what is left to do is done.
            ((), thread_about(finding(4)), [(AnswerKind.GONE, True, NOT_FOUND)]),
            ((), thread_about(finding(4), GONE), [(AnswerKind.GONE, True, "")]),
            ((), thread_about(finding(4), GONE, is_resolved=True), []),
            # Somebody opened it again with a word, or closed it without one.
            ((), thread_about(finding(4), GONE, said("no, it is still there")), []),
            ((), thread_about(finding(4), is_resolved=True), []),
            # One that does not count any more says why.
            ((finding(4, end=ClaimEnd.FIXED),), thread_about(finding(4)), [(AnswerKind.GONE, True, NOT_FOUND)]),
            (
                (finding(4, proof=Proof.REFUTED, reason="It cannot be zero."),),
                thread_about(finding(4)),
                [(AnswerKind.ASIDE, True, f"{ASIDE}: refuted: It cannot be zero.")],
            ),
            (
                (finding(4, suppression=Suppression(kind=SuppressionKind.INLINE, reason="a test")),),
                thread_about(finding(4)),
                [(AnswerKind.ASIDE, True, f"{ASIDE}: suppressed by a comment in the code: a test")],
            ),
            # One that we called gone, or that the review knows as back, is opened again, and that is said once.
            *(
                (
                    (finding(4),),
                    thread_about(finding(4), told(kind, finding(4)), is_resolved=True),
                    [(AnswerKind.BACK, False, "Found again at `111111111111`.")],
                )
                for kind in (AnswerKind.GONE, AnswerKind.ASIDE)
            ),
            ((finding(4),), thread_about(finding(4), GONE, told(AnswerKind.BACK, finding(4))), []),
            (
                (finding(4, status=FindingStatus.REGRESSED),),
                thread_about(finding(4), is_resolved=True),
                [(AnswerKind.BACK, False, "Found again at `111111111111`.")],
            ),
            # One that is dismissed is resolved without a word.
            ((finding(4),), disliked(thread_about(finding(4)), MAINTAINER), [(AnswerKind.ASIDE, True, "")]),
        ],
    )
    def test_what_became_of_a_finding_is_said_once_in_its_thread(
        self, found: tuple[Finding, ...], thread: Thread, answers: list[tuple[AnswerKind, bool | None, str]]
    ) -> None:
        assert answered(review(*found), thread) == answers

    def test_without_the_right_to_resolve_it_is_only_answered(self) -> None:
        assert answered(review(), thread_about(finding(4)), resolve=False) == [(AnswerKind.GONE, None, NOT_FOUND)]

    @each(
        "changes",
        [
            {"coverage": Coverage(files_total=1, files_reviewed=1)},
            {"scope": Scope(ScopeKind.COMMIT, BASE, FIRST, "one commit")},
            {"coverage": Coverage(files_total=2, units_failed=(FailedUnit("u", (), "timeout"),))},
            {"coverage": Coverage(files_total=2, units_failed=(FailedUnit("u", ("app.py",), "timeout"),))},
            {"coverage": Coverage(files_total=2, skipped=(SkippedFile("app.py", SkipReason.EXCLUDED),))},
        ],
    )
    def test_what_was_not_looked_at_again_stays_open_and_that_is_told(self, changes: dict[str, Any]) -> None:
        made = plan(review(**changes), pull_request(thread_about(finding(4)), commits=2))
        assert made.answers == ()
        assert made.notes[0].startswith("1 earlier finding stays open")

    def test_what_another_reviewer_found_or_is_hidden_stays_open(self) -> None:
        made = plan(review(), pull_request(thread_about(finding(4), reviewer="agent_sdk")))
        assert made.answers == ()
        assert "not by the reviewer that found it" in made.notes[0]
        several = replace(review().reviewer, type="offline+scripted")
        assert len(answered(review(reviewer=several), thread_about(finding(4)))) == 1
        low = finding(4, severity=Severity.LOW)
        policy = Policy(min_severity=Severity.MEDIUM)
        assert answered(review(hidden=(low,), hidden_findings=1, policy=policy), thread_about(low)) == []

    @each(
        "thread",
        [
            thread_about(finding(4)),
            thread_about(finding(4), is_resolved=True),
            thread_about(finding(4), GONE),
            thread_about(finding(4), GONE, is_resolved=True),
        ],
    )
    def test_the_thread_of_an_omitted_finding_stays_as_it_is(self, thread: Thread) -> None:
        for omitted in (finding(4), finding(4, status=FindingStatus.REGRESSED), finding(4, end=ClaimEnd.FIXED)):
            made = plan(review(omitted=(omitted,)), pull_request(thread))
            assert (made.answers, made.comments, made.notes) == ((), (), ())

    def test_open_threads_of_omitted_findings_count_towards_the_limit(self) -> None:
        made = plan(review(finding(5), omitted=(finding(4),)), pull_request(thread_about(finding(4))), max_comments=1)
        assert (made.comments, [one.finding.line_start for one in made.without_comment]) == ((), [5])


def test_one_that_is_dismissed_is_not_posted_again_does_not_count_and_is_told() -> None:
    pull = pull_request(thread_about(finding(4), said("dismiss: it is a constant")))
    made = plan(review(finding(4)), pull)
    assert (made.comments, made.known, made.review.verdict, made.review.exit_code) == ((), (), Verdict.PASS, 0)
    assert [(one.who, one.reason) for one in made.dismissed] == [(MAINTAINER, "it is a constant")]
    made = plan(review(finding(4), finding(5)), pull)
    assert ([one.finding.line_start for one in made.comments], made.conclusion) == ([5], Conclusion.FAILURE)


GAPS = Coverage(files_total=2, units_failed=(FailedUnit("u", ("app.py",), "timeout"),))


NEUTRAL: dict[str, Any] = {"coverage": GAPS}
PASSES: dict[str, Any] = {"coverage": GAPS, "policy": Policy(pass_when_incomplete=True)}
LOW = finding(4, severity=Severity.LOW)
APPROVED = StandingOpinion(review_id=9, opinion=Opinion.APPROVE, head=FIRST)
REQUESTED = StandingOpinion(review_id=8, opinion=Opinion.REQUEST_CHANGES, head=FIRST)


@each(
    ("reviewed", "changes", "conclusion"),
    [
        (review(), {}, Conclusion.SUCCESS),
        # What does not block is success.
        (review(LOW), {}, Conclusion.SUCCESS),
        # What could not be reviewed is neutral, also when that may pass.
        (review(**NEUTRAL), {}, Conclusion.NEUTRAL),
        (review(**PASSES), {}, Conclusion.NEUTRAL),
        # A report that claims to have passed is not believed.
        (review(finding(4), verdict=Verdict.PASS, exit_code=0), {}, Conclusion.FAILURE),
        (review(coverage=GAPS, complete=True, exit_code=0), {}, Conclusion.NEUTRAL),
        # Files that the forge shows twice for a rename are no part.
        (review(), {"changed_files": 4}, Conclusion.SUCCESS),
    ],
)
def test_the_conclusion_follows_from_what_was_found_and_what_was_seen(
    reviewed: Review, changes: dict[str, Any], conclusion: Conclusion
) -> None:
    made = plan(reviewed, pull_request(**changes))
    assert made.conclusion is conclusion
    is_grave = any(one.severity is Severity.HIGH for one in reviewed.findings)
    assert (made.review.verdict is Verdict.FAIL) is is_grave


@each(
    "changes",
    [
        {"scope": Scope(ScopeKind.COMMIT, BASE, FIRST, "one commit")},
        {"coverage": Coverage(files_total=2, files_reviewed=2)},
    ],
)
def test_a_part_of_the_pull_request_can_block_and_cannot_pass(changes: dict[str, Any]) -> None:
    pull = pull_request(commits=2, changed_files=5)
    made = plan(review(**changes), pull)
    assert (made.conclusion, made.review.exit_code) == (Conclusion.NEUTRAL, 3)
    body = summary_body(made, (), marker=MARKER)
    assert "INCOMPLETE" in body
    assert "only a part of it was reviewed" in body
    assert plan(review(finding(4), **changes), pull).conclusion is Conclusion.FAILURE
    allowed = plan(review(policy=Policy(pass_when_incomplete=True), **changes), pull)
    assert (allowed.conclusion, allowed.review.exit_code) == (Conclusion.NEUTRAL, 0)


class TestOpinions:
    @each(
        ("reviewed", "options", "opinion"),
        [
            # By itself it has none.
            (review(), {}, Opinion.COMMENT),
            (review(finding(4)), {}, Opinion.COMMENT),
            # It approves when asked to, and all was reviewed, and nothing blocks.
            (review(), {"approve": True}, Opinion.APPROVE),
            (review(LOW), {"approve": True}, Opinion.APPROVE),
            (review(finding(4)), {"approve": True}, Opinion.COMMENT),
            (review(**NEUTRAL), {"approve": True}, Opinion.COMMENT),
            (review(**PASSES), {"approve": True}, Opinion.COMMENT),
            # It requests changes when asked to and something blocks.
            (review(finding(4)), {"request_changes": True}, Opinion.REQUEST_CHANGES),
            (review(), {"request_changes": True}, Opinion.COMMENT),
        ],
    )
    def test_it_is_given_when_asked_for(self, reviewed: Review, options: dict[str, Any], opinion: Opinion) -> None:
        made = plan(reviewed, pull_request(), **options)
        assert made.opinion is opinion
        assert bool(made.comments) is bool(reviewed.findings)

    @each("pull", [pull_request(changed_files=3), pull_request(thread_about(finding(4), reviewer="agent_sdk"))])
    def test_without_having_seen_all_it_neither_approves_nor_withdraws_a_request(self, pull: PullRequest) -> None:
        made = plan(review(), replace(pull, opinions=(REQUESTED,)), approve=True)
        assert (made.opinion, made.withdrawn) == (Opinion.COMMENT, ())

    def test_the_same_is_not_said_twice_of_one_commit_and_what_does_not_hold_any_more_is_withdrawn(self) -> None:
        assert plan(review(), pull_request(opinions=(APPROVED,)), approve=True).opinion is Opinion.COMMENT
        old = replace(APPROVED, head=SECOND)
        assert plan(review(), pull_request(opinions=(old,)), approve=True).opinion is Opinion.APPROVE
        both = pull_request(opinions=(APPROVED, REQUESTED))
        for reviewed, withdrawn in (
            (review(finding(4)), APPROVED),
            (review(**NEUTRAL), APPROVED),
            (review(), REQUESTED),
        ):
            assert plan(reviewed, both).withdrawn == (withdrawn,)


def test_comments_of_others_are_not_noted() -> None:
    other = PostedComment(comment_id=1, body="<!-- codeloupe:1 summary x -->", is_ours=False)
    assert plan(review(), pull_request(comments=(other,))).notes == ()


def test_a_plan_of_very_many_findings_takes_little_time() -> None:
    hunks = "\n".join(f"@@ -{line},0 +{line},1 @@\n+x" for line in range(1, 8_000, 2))
    many = tuple(finding(line, fingerprint=f"{line:016}") for line in range(1, 8_000))
    files = {"app.py": hunks, "other.py": None}
    made = plan(review(*many), pull_request(files=files))
    assert len(made.comments) == 20
    assert len(made.without_comment) == len(many) - 20


LINES = st.sets(st.integers(min_value=1, max_value=6), max_size=6)
# What somebody does to one of the threads between two pushes: resolve, open, dismiss, answer.
DEEDS = st.lists(st.tuples(st.integers(min_value=0, max_value=5), st.sampled_from(["close", "open", "dismiss", "say"])))


def done(plan: Plan) -> PullRequest:
    """The pull request after a plan was carried out."""
    pull = plan.pull_request
    threads = {thread.thread_id: thread for thread in pull.threads}
    for answer in plan.answers:
        thread = threads[answer.thread_id]
        if answer.body is not None:
            reply = ThreadComment(comment_id=700, body=answer.body, is_ours=True)
            thread = replace(thread, comments=(*thread.comments, reply))
        if answer.resolved is not None:
            thread = replace(thread, is_resolved=answer.resolved)
        threads[answer.thread_id] = thread
    for number, comment in enumerate(plan.comments, len(threads)):
        first = ThreadComment(comment_id=800 + number, body=comment.body, is_ours=True)
        made = Thread(thread_id=f"T{number}", path=comment.path, is_resolved=False, comments=(first,))
        threads[made.thread_id] = made
    return replace(pull, threads=tuple(threads.values()))


def meddled(pull: PullRequest, deeds: list[tuple[int, str]]) -> PullRequest:
    threads = list(pull.threads)
    for index, deed in deeds:
        if index >= len(threads):
            continue
        thread = threads[index]
        if deed in ("close", "open"):
            threads[index] = replace(thread, is_resolved=deed == "close")
        else:
            body = "dismiss: enough" if deed == "dismiss" else "hm"
            threads[index] = replace(thread, comments=(*thread.comments, said(body)))
    return replace(pull, threads=tuple(threads))


@given(pushes=st.lists(st.tuples(LINES, DEEDS), min_size=1, max_size=6), limit=st.integers(min_value=0, max_value=7))
def test_no_sequence_of_pushes_posts_a_finding_twice_or_loses_one(
    pushes: list[tuple[set[int], list[tuple[int, str]]]], limit: int
) -> None:
    pull = pull_request()
    options = PublishOptions(max_comments=limit)
    for lines, deeds in pushes:
        reviewed = review(*(finding(line) for line in sorted(lines)))
        pull = meddled(pull, deeds)
        plan = make_plan(reviewed, pull, marker=MARKER, options=options)
        told: list[Finding] = [
            *(one.finding for one in plan.comments),
            *plan.known,
            *(one.finding for one in plan.without_comment),
            *(one.finding for one in plan.dismissed),
        ]
        assert sorted(map(key_of, told)) == sorted(map(key_of, reviewed.findings))
        pull = done(plan)
        firsts = [thread.comments[0].body.split("\n", 1)[0] for thread in pull.threads]
        assert len(firsts) == len(set(firsts))
        again = make_plan(reviewed, pull, marker=MARKER, options=options)
        assert not again.comments
        assert not again.answers
        assert again.conclusion is plan.conclusion
