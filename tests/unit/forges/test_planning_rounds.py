"""Plans for any sequence of pushes, done by hand on the state of the pull request: nothing twice, nothing lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from codeloupe.forges.marker import key_of
from codeloupe.forges.plan import make_plan
from codeloupe.model.finding import Finding
from codeloupe.model.publication import Plan, PublishOptions, PullRequest, Thread, ThreadComment
from tests.publish_material import finding, review
from tests.publish_states import MARKER, pull_request, said

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
