"""What was said and reported, as the documents of GitHub's REST API: comments, reviews, check runs, statuses."""

from __future__ import annotations

from typing import Any

from tests.github_server_documents import WEB, simple_user
from tests.github_server_records import (
    CheckRun,
    IssueComment,
    Reaction,
    Remark,
    Review,
    ReviewComment,
    Status,
    User,
    node_id,
)
from tests.github_server_world import PullRequest, Repository

_CONTENTS = ("+1", "-1", "laugh", "confused", "heart", "hooray", "eyes", "rocket")


def rollup(remark: Remark, own: str) -> dict[str, Any]:
    """How many of each reaction a comment has."""
    counts = {content: sum(each.content == content for each in remark.reactions) for content in _CONTENTS}
    return {"url": f"{own}/reactions", "total_count": len(remark.reactions), **counts}


def reaction(each: Reaction, url: str) -> dict[str, Any]:
    """One reaction."""
    return {
        "id": each.id,
        "node_id": node_id("Reaction", each.id),
        "user": simple_user(each.user, url),
        "content": each.content,
        "created_at": each.created_at,
    }


def issue_comment(pull: PullRequest, comment: IssueComment, url: str) -> dict[str, Any]:
    """A comment on the whole."""
    base = f"{url}/repos/{pull.repository.full_name}"
    own = f"{base}/issues/comments/{comment.id}"
    return {
        "id": comment.id,
        "node_id": node_id("IssueComment", comment.id),
        "url": own,
        "html_url": f"{WEB}/{pull.repository.full_name}/pull/{pull.number}#issuecomment-{comment.id}",
        "issue_url": f"{base}/issues/{pull.number}",
        "user": simple_user(comment.user, url),
        "created_at": comment.created_at,
        "updated_at": comment.updated_at,
        "author_association": comment.association,
        "body": comment.body,
        "reactions": rollup(comment, own),
        "performed_via_github_app": None,
    }


def review(pull: PullRequest, each: Review, url: str) -> dict[str, Any]:
    """A review, without its comments."""
    page = f"{WEB}/{pull.repository.full_name}/pull/{pull.number}#pullrequestreview-{each.id}"
    own = f"{url}/repos/{pull.repository.full_name}/pulls/{pull.number}"
    document = {
        "id": each.id,
        "node_id": node_id("PullRequestReview", each.id),
        "user": simple_user(each.user, url),
        "body": each.body,
        "state": each.state,
        "html_url": page,
        "pull_request_url": own,
        "author_association": each.association,
        "_links": {"html": {"href": page}, "pull_request": {"href": own}},
        "commit_id": each.commit,
    }
    return document if each.submitted_at is None else {**document, "submitted_at": each.submitted_at}


def review_comment(pull: PullRequest, comment: ReviewComment, url: str) -> dict[str, Any]:
    """A comment on a line; its line is null when it is outdated."""
    base = f"{url}/repos/{pull.repository.full_name}/pulls"
    own, page = f"{base}/comments/{comment.id}", f"{WEB}/{pull.repository.full_name}/pull/{pull.number}"
    thread = comment.thread
    original, place = thread.original, thread.place
    document = {
        "url": own,
        "pull_request_review_id": comment.review.id,
        "id": comment.id,
        "node_id": node_id("PullRequestReviewComment", comment.id),
        "diff_hunk": thread.diff_hunk,
        "path": thread.path,
        "commit_id": thread.commit,
        "original_commit_id": thread.original_commit,
        "user": simple_user(comment.user, url),
        "body": comment.body,
        "created_at": comment.created_at,
        "updated_at": comment.updated_at,
        "html_url": f"{page}#discussion_r{comment.id}",
        "pull_request_url": f"{base}/{pull.number}",
        "author_association": comment.association,
        "_links": {
            "self": {"href": own},
            "html": {"href": f"{page}#discussion_r{comment.id}"},
            "pull_request": {"href": f"{base}/{pull.number}"},
        },
        "reactions": rollup(comment, own),
        "start_line": None if place is None else place.start_line,
        "original_start_line": original.start_line,
        "start_side": original.start_side if original.start_line is not None else None,
        "line": None if place is None else place.line,
        "original_line": original.line,
        "side": original.side,
        "original_position": thread.original_position,
        "position": thread.position,
        "subject_type": "file" if original.line is None else "line",
    }
    return document if comment.in_reply_to is None else {**document, "in_reply_to_id": comment.in_reply_to}


def comment_of_review(pull: PullRequest, comment: ReviewComment, url: str) -> dict[str, Any]:
    """A comment as the list of one review shows it: without lines, by a schema of its own."""
    document = review_comment(pull, comment, url)
    lines = ("start_line", "original_start_line", "start_side", "line", "original_line", "side", "subject_type")
    return {name: value for name, value in document.items() if name not in lines}


def app(slug: str, owner: User, url: str, *, number: int) -> dict[str, Any]:
    """A GitHub App."""
    return {
        "id": number,
        "slug": slug,
        "node_id": node_id("App", number),
        "owner": simple_user(owner, url),
        "name": slug,
        "description": None,
        "external_url": "https://example.com",
        "html_url": f"{WEB}/apps/{slug}",
        "created_at": "2020-01-01T00:00:00Z",
        "updated_at": "2020-01-01T00:00:00Z",
        "permissions": {"metadata": "read"},
        "events": [],
    }


def check_run(repo: Repository, run: CheckRun, url: str) -> dict[str, Any]:
    """A check run."""
    own = f"{url}/repos/{repo.full_name}/check-runs/{run.id}"
    pulls = [pull for pull in repo.pulls.values() if run.head_sha == pull.head]
    return {
        "id": run.id,
        "head_sha": run.head_sha,
        "node_id": node_id("CheckRun", run.id),
        "external_id": run.external_id,
        "url": own,
        "html_url": f"{WEB}/{repo.full_name}/runs/{run.id}",
        "details_url": run.details_url,
        "status": run.status,
        "conclusion": run.conclusion,
        "started_at": run.started_at,
        "completed_at": run.completed_at,
        "output": {
            "title": run.title,
            "summary": run.summary,
            "text": run.text,
            "annotations_count": len(run.annotations),
            "annotations_url": f"{own}/annotations",
        },
        "name": run.name,
        "check_suite": {"id": 1},
        "app": app(run.app, repo.owner, url, number=15368),
        "pull_requests": [_pull_minimal(pull, url) for pull in pulls],
    }


def _pull_minimal(pull: PullRequest, url: str) -> dict[str, Any]:
    source = pull.head_repository or pull.repository
    return {
        "id": pull.id,
        "number": pull.number,
        "url": f"{url}/repos/{pull.repository.full_name}/pulls/{pull.number}",
        "head": {"ref": pull.head_ref, "sha": pull.head, "repo": _repository_minimal(source, url)},
        "base": {"ref": pull.base_ref, "sha": pull.base, "repo": _repository_minimal(pull.repository, url)},
    }


def _repository_minimal(repo: Repository, url: str) -> dict[str, Any]:
    return {"id": repo.id, "url": f"{url}/repos/{repo.full_name}", "name": repo.name}


def status(repo: Repository, each: Status, url: str, *, whole: bool = True) -> dict[str, Any]:
    """A commit status; without `whole` as it stands in the combined one."""
    document = {
        "url": f"{url}/repos/{repo.full_name}/statuses/{each.sha}",
        "avatar_url": f"https://avatars.githubusercontent.com/u/{each.creator.id}?v=4",
        "id": each.id,
        "node_id": node_id("Status", each.id),
        "state": each.state,
        "description": each.description,
        "target_url": each.target_url,
        "context": each.context,
        "created_at": each.created_at,
        "updated_at": each.created_at,
    }
    return {**document, "creator": simple_user(each.creator, url)} if whole else document
