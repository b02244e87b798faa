"""Pull requests as they may stand, made by hand, for the tests of what is planned there."""

from typing import Any

from msgspec.structs import replace

from codeloupe.forges.comments import Place, answer_body, finding_body
from codeloupe.forges.threads import Marker, SigningKey, key_of
from codeloupe.model.finding import Finding
from codeloupe.model.publication import (
    AnswerKind,
    PostedComment,
    PullRequest,
    PullRequestName,
    Thread,
    ThreadComment,
)
from tests.publish_material import FIRST, patch, review

MARKER = Marker(SigningKey.from_secret("a secret of some length"), repository_id=77, number=1)
MAINTAINER = "maintainer"


def pull_request(*threads: Thread, comments: tuple[PostedComment, ...] = (), **changes: Any) -> PullRequest:
    whole = PullRequest(
        name=PullRequestName("octo", "demo", 1),
        repository_id=77,
        head=FIRST,
        is_open=True,
        changed_files=2,
        commits=1,
        files={"app.py": patch(), "other.py": patch()},
        comments=comments,
        threads=threads,
        maintainers=frozenset({MAINTAINER}),
        forge="GitHub",
        merge_hint="review github.event.pull_request.head.sha",
    )
    return replace(whole, **changes)


def thread_about(finding: Finding, *replies: ThreadComment, reviewer: str = "scripted", **changes: Any) -> Thread:
    place = Place(finding.file, finding.first_line, finding.last_line, takes_edit=True)
    posted = review(finding)
    posted = replace(posted, reviewer=replace(posted.reviewer, type=reviewer))
    first = ThreadComment(
        comment_id=500, body=finding_body(finding, place, review=posted, marker=MARKER), is_ours=True, author="us"
    )
    plain = Thread(thread_id=f"T{key_of(finding)}", path=finding.file, is_resolved=False, comments=(first, *replies))
    return replace(plain, **changes)


def said(body: str, *, author: str = MAINTAINER, association: str = "MEMBER") -> ThreadComment:
    return ThreadComment(comment_id=600, body=body, is_ours=False, author=author, association=association)


def told(kind: AnswerKind, finding: Finding) -> ThreadComment:
    body = answer_body(kind, key_of(finding), head="9" * 40, why="", marker=MARKER)
    return ThreadComment(comment_id=601, body=body, is_ours=True, author="us")


def disliked(thread: Thread, *people: str) -> Thread:
    first = replace(thread.comments[0], disliked_by=people)
    return replace(thread, comments=(first, *thread.comments[1:]))
