"""Reviews and the comments on lines: what GitHub's REST API does with them."""

from __future__ import annotations

from typing import Any

from tests.github_server_calls import Answer, Call, Handler, Refused, invalid, not_found
from tests.github_server_records import Review, ReviewComment
from tests.github_server_remarks import comment_of_review, review, review_comment
from tests.github_server_reviewing import (
    ONE_PENDING,
    STATES,
    Draft,
    Misplaced,
    body_problem,
    check_submission,
    draft,
    unprocessable,
)
from tests.github_server_world import PullRequest

_PULL = "/repos/{owner}/{repo}/pulls/{pull_number}"
_COMMENT = "/repos/{owner}/{repo}/pulls/comments/{comment_id}"


def create_review(call: Call) -> Answer:
    """Make a review with all of its comments, or nothing at all."""
    call.need("pull_requests")
    pull, body = call.pull, call.body or {}
    check_unlocked(call, pull)
    if _pending(call, pull):
        raise unprocessable(f"User {ONE_PENDING}")
    commit = body.get("commit_id", pull.head)
    if commit not in pull.commits:
        raise unprocessable("The commitOID is not part of the pull request")
    event, text, entries = body.get("event"), body.get("body", ""), body.get("comments", [])
    check_submission(pull, call.actor, event, body=text, has_comments=bool(entries))
    drafts = _drafts(pull, entries, commit)
    state = "PENDING" if event is None else STATES[event]
    made = pull.add_review(call.actor.user, association=call.actor.association, body=text, state=state, commit=commit)
    for each in drafts:
        pull.add_thread(made, each.place, each.body)
    return Answer(200, review(pull, made, call.url))


def _drafts(pull: PullRequest, entries: list[Any], commit: str) -> list[Draft]:
    try:
        return [draft(pull, entry, commit) for entry in entries]
    except Misplaced as error:
        raise error.of_review(short_words=pull.world.short_words) from error


def check_unlocked(call: Call, pull: PullRequest) -> None:
    """Raises Refused when the conversation is locked for whoever asks."""
    if pull.locked and pull.repository.permission_of(call.actor.user.login) in ("read", "none"):
        raise Refused(403, "Unable to create comment because issue is locked.")


def _pending(call: Call, pull: PullRequest) -> Review | None:
    own = (each for each in pull.reviews if each.user == call.actor.user)
    return next((each for each in own if each.state == "PENDING"), None)


def _visible(call: Call, pull: PullRequest) -> list[Review]:
    return [each for each in pull.reviews if each.state != "PENDING" or each.user == call.actor.user]


def _review(call: Call) -> Review:
    number = call.number("review_id")
    found = next((each for each in _visible(call, call.pull) if each.id == number), None)
    if found is None:
        raise not_found()
    return found


def list_reviews(call: Call) -> Answer:
    pull = call.pull
    return call.page(_visible(call, pull), lambda each: review(pull, each, call.url))


def get_review(call: Call) -> Answer:
    return Answer(200, review(call.pull, _review(call), call.url))


def update_review(call: Call) -> Answer:
    call.need("pull_requests")
    found = _review(call)
    if found.user != call.actor.user:
        raise Refused(403, "Must have admin rights to Repository.")
    if not call.body["body"].strip():
        raise unprocessable("Body can't be blank")
    found.body = call.body["body"]
    return Answer(200, review(call.pull, found, call.url))


def delete_review(call: Call) -> Answer:
    call.need("pull_requests")
    found, pull = _review(call), call.pull
    if found.state != "PENDING":
        raise unprocessable("Can not delete a non-pending pull request review")
    pull.reviews.remove(found)
    for comment in found.comments:
        comment.thread.comments.remove(comment)
    pull.threads = [thread for thread in pull.threads if thread.comments]
    return Answer(200, review(pull, found, call.url))


def submit_review(call: Call) -> Answer:
    call.need("pull_requests")
    found, pull = _review(call), call.pull
    if found.state != "PENDING":
        raise unprocessable("Could not submit a review that is not pending.")
    event, text = call.body["event"], call.body.get("body", found.body)
    check_submission(pull, call.actor, event, body=text, has_comments=bool(found.comments))
    found.state, found.body, found.submitted_at = STATES[event], text, pull.world.now()
    return Answer(200, review(pull, found, call.url))


def dismiss_review(call: Call) -> Answer:
    call.need("pull_requests")
    found = _review(call)
    if found.state not in ("APPROVED", "CHANGES_REQUESTED"):
        raise unprocessable("Can not dismiss a commented pull request review")
    call.body.get("event")  # there is one, and it is the default
    found.state, found.dismissal = "DISMISSED", call.body["message"]
    return Answer(200, review(call.pull, found, call.url))


def list_comments_of_review(call: Call) -> Answer:
    pull = call.pull
    return call.page(_review(call).comments, lambda each: comment_of_review(pull, each, call.url))


def list_comments(call: Call) -> Answer:
    """The comments of one pull request, the oldest first unless told otherwise."""
    pull = call.pull
    since, direction = call.query.get("since", ""), call.query.get("direction")
    found = [each for each in pull.review_comments if each.updated_at >= since]
    if call.query.get("sort") in ("created", "updated"):
        key = f"{call.query['sort']}_at"
        found = sorted(found, key=lambda each: str(getattr(each, key)), reverse=direction == "desc")
    return call.page(found, lambda each: review_comment(pull, each, call.url))


def create_comment(call: Call) -> Answer:
    """A comment on a line by itself; GitHub makes a review of its own for it."""
    call.need("pull_requests")
    pull, body = call.pull, call.body
    check_unlocked(call, pull)
    body.heed_all()  # `draft` looks at every field, and of a reply GitHub itself looks at its text alone
    if body.get("in_reply_to") is not None:
        return _reply(call, body["in_reply_to"], body["body"])
    if body["commit_id"] not in pull.commits:
        raise invalid("PullRequestReviewComment", "commit_id", "commit_id is not part of the pull request")
    _check_no_pending(call, pull)
    try:
        each = draft(pull, body, body["commit_id"])
    except Misplaced as error:
        raise error.of_comment(short_words=pull.world.short_words) from error
    made = pull.add_review(
        call.actor.user,
        association=call.actor.association,
        body="",
        state="COMMENTED",
        commit=body["commit_id"],
    )
    return Answer(201, review_comment(pull, pull.add_thread(made, each.place, each.body), call.url))


def _check_no_pending(call: Call, pull: PullRequest) -> None:
    if _pending(call, pull):
        raise invalid("PullRequestReview", "user_id", f"user_id {ONE_PENDING}")


def reply(call: Call) -> Answer:
    call.need("pull_requests")
    check_unlocked(call, call.pull)
    return _reply(call, call.number("comment_id"), call.body["body"])


def _reply(call: Call, number: int, body: str) -> Answer:
    pull = call.pull
    parent = next((each for each in pull.review_comments if each.id == number), None)
    if parent is None:
        raise not_found()
    if parent.in_reply_to is not None:
        raise invalid("PullRequestReviewComment", "in_reply_to", "in_reply_to must be a top-level comment")
    if problem := body_problem(body):
        raise invalid("PullRequestReviewComment", "body", problem)
    _check_no_pending(call, pull)
    made = pull.reply(parent, user=call.actor.user, association=call.actor.association, body=body)
    return Answer(201, review_comment(pull, made, call.url))


def find_comment(call: Call) -> tuple[PullRequest, ReviewComment]:
    """The comment of a path, which does not name the pull request. Raises Refused."""
    number = call.number("comment_id")
    for pull in call.repository.pulls.values():
        for comment in pull.review_comments:
            if comment.id == number:
                return pull, comment
    raise not_found()


def get_comment(call: Call) -> Answer:
    pull, comment = find_comment(call)
    return Answer(200, review_comment(pull, comment, call.url))


def update_comment(call: Call) -> Answer:
    call.need("pull_requests")
    pull, comment = find_comment(call)
    check_author(call, pull, comment)
    if problem := body_problem(call.body["body"]):
        raise invalid("PullRequestReviewComment", "body", problem)
    comment.body, comment.updated_at = call.body["body"], pull.world.now()
    return Answer(200, review_comment(pull, comment, call.url))


def check_author(call: Call, pull: PullRequest, remark: Any) -> None:
    """Raises Refused for a person who neither wrote a comment nor may write here."""
    may = pull.repository.permission_of(call.actor.user.login) in ("admin", "maintain", "write")
    if remark.user != call.actor.user and not may and not call.actor.is_integration:
        raise Refused(403, "Must have admin rights to Repository.")


def delete_comment(call: Call) -> Answer:
    call.need("pull_requests")
    pull, comment = find_comment(call)
    check_author(call, pull, comment)
    comment.thread.comments.remove(comment)
    comment.review.comments.remove(comment)
    pull.threads = [thread for thread in pull.threads if thread.comments]
    return Answer(204)


HANDLERS: dict[tuple[str, str], Handler] = {
    ("GET", f"{_PULL}/reviews"): list_reviews,
    ("POST", f"{_PULL}/reviews"): create_review,
    ("GET", f"{_PULL}/reviews/{{review_id}}"): get_review,
    ("PUT", f"{_PULL}/reviews/{{review_id}}"): update_review,
    ("DELETE", f"{_PULL}/reviews/{{review_id}}"): delete_review,
    ("GET", f"{_PULL}/reviews/{{review_id}}/comments"): list_comments_of_review,
    ("POST", f"{_PULL}/reviews/{{review_id}}/events"): submit_review,
    ("PUT", f"{_PULL}/reviews/{{review_id}}/dismissals"): dismiss_review,
    ("GET", f"{_PULL}/comments"): list_comments,
    ("POST", f"{_PULL}/comments"): create_comment,
    ("POST", f"{_PULL}/comments/{{comment_id}}/replies"): reply,
    ("GET", _COMMENT): get_comment,
    ("PATCH", _COMMENT): update_comment,
    ("DELETE", _COMMENT): delete_comment,
}
