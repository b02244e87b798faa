"""Pull requests, their files, comments on the whole, reactions, commits: what GitHub's REST API does with them."""

from __future__ import annotations

from collections.abc import Callable

from tests import github_server_documents as documents
from tests import github_server_remarks as remarks
from tests.github_server_calls import Answer, Call, Handler, Refused, invalid, not_found
from tests.github_server_patches import ChangedFile, whole_diff
from tests.github_server_records import IssueComment, Remark
from tests.github_server_review_routes import check_author, check_unlocked, find_comment
from tests.github_server_reviewing import body_problem
from tests.github_server_world import PullRequest

_REPOSITORY = "/repos/{owner}/{repo}"
_DIFF_TYPES = ("application/vnd.github.diff", "application/vnd.github.v3.diff")
_MOST_FILES_OF_A_DIFF = 300
_MOST_FILES = 3000


def get_repository(call: Call) -> Answer:
    return Answer(200, documents.full_repository(call.repository, call.url))


def list_pulls(call: Call) -> Answer:
    wanted = call.query.get("state", "open")
    found = [pull for pull in call.repository.pulls.values() if wanted in ("all", pull.state)]
    head = call.query.get("head", "")
    if ":" in head:  # GitHub passes over a branch without its owner
        found = [pull for pull in found if documents.head_label(pull) == head]
    return call.page(found[::-1], lambda pull: documents.pull_request_simple(pull, call.url))


def get_pull(call: Call) -> Answer:
    """A pull request, or its diff when the media type asks for it."""
    pull = call.pull
    if call.accept in _DIFF_TYPES:
        if len(pull.files) > _MOST_FILES_OF_A_DIFF:
            message = f"Sorry, the diff exceeded the maximum number of files ({_MOST_FILES_OF_A_DIFF})."
            raise Refused(406, message, errors=[{"resource": "PullRequest", "field": "diff", "code": "too_large"}])
        return Answer(200, whole_diff(pull.files), media_type=call.accept)
    return Answer(200, documents.pull_request(pull, call.url))


def list_files(call: Call) -> Answer:
    pull = call.pull
    return call.page(pull.files[:_MOST_FILES], lambda file: documents.diff_entry(pull, file, call.url))


def list_commits(call: Call) -> Answer:
    repo = call.repository
    return call.page(call.pull.commits, lambda sha: documents.commit(repo, sha, call.url))


def get_commit(call: Call) -> Answer:
    sha = call.repository.resolve(call.parameters["ref"])
    if sha is None:
        raise Refused(422, f"No commit found for SHA: {call.parameters['ref']}")
    return Answer(200, documents.commit(call.repository, sha, call.url))


def list_pulls_of_commit(call: Call) -> Answer:
    repo = call.repository
    sha = repo.resolve(call.parameters["commit_sha"])
    if sha is None:
        raise Refused(422, f"No commit found for SHA: {call.parameters['commit_sha']}")
    found = [pull for pull in repo.pulls.values() if sha in pull.commits]
    return call.page(found, lambda pull: documents.pull_request_simple(pull, call.url))


def compare(call: Call) -> Answer:
    """Two commits of a pull request; only base to one of its heads is known."""
    repo = call.repository
    base_name, dots, head_name = call.parameters["basehead"].partition("...")
    base, head = (repo.resolve(name.rpartition(":")[2]) for name in (base_name, head_name))
    if not dots or base is None or head is None:
        raise not_found()
    pull = next((each for each in repo.pulls.values() if head in each.diffs), None)
    files = pull.diffs[head] if pull is not None and base == pull.base else ()
    if call.accept in _DIFF_TYPES:
        return Answer(200, whole_diff(files), media_type="application/vnd.github.diff")
    return Answer(200, _comparison(call, base, head, [] if pull is None else _entries(call, pull, files)))


def _entries(call: Call, pull: PullRequest, files: tuple[ChangedFile, ...]) -> list[dict[str, object]]:
    return [documents.diff_entry(pull, file, call.url) for file in files]


def _comparison(call: Call, base: str, head: str, files: list[dict[str, object]]) -> dict[str, object]:
    repo = call.repository
    own, page = f"{call.url}/repos/{repo.full_name}/compare", f"{documents.WEB}/{repo.full_name}/compare"
    commits = [] if base == head else [documents.commit(repo, head, call.url)]
    return {
        "url": f"{own}/{base}...{head}",
        "html_url": f"{page}/{base}...{head}",
        "permalink_url": f"{page}/{base}...{head}",
        "diff_url": f"{page}/{base}...{head}.diff",
        "patch_url": f"{page}/{base}...{head}.patch",
        "base_commit": documents.commit(repo, base, call.url),
        "merge_base_commit": documents.commit(repo, base, call.url),
        "status": "identical" if base == head else "ahead",
        "ahead_by": len(commits),
        "behind_by": 0,
        "total_commits": len(commits),
        "commits": commits,
        "files": files,
    }


def list_issue_comments(call: Call) -> Answer:
    pull = call.pull
    found = [each for each in pull.issue_comments if each.updated_at >= call.query.get("since", "")]
    return call.page(found, lambda each: remarks.issue_comment(pull, each, call.url))


def create_issue_comment(call: Call) -> Answer:
    _need_comments(call)
    pull = call.pull
    check_unlocked(call, pull)
    _check_body(call)
    made = pull.add_issue_comment(call.actor.user, association=call.actor.association, body=call.body["body"])
    return Answer(201, remarks.issue_comment(pull, made, call.url))


def _need_comments(call: Call) -> None:
    call.need("issues", "pull_requests")


def _check_body(call: Call) -> None:
    if problem := body_problem(call.body["body"]):
        raise invalid("IssueComment", "body", problem, code="unprocessable")


def _issue_comment(call: Call) -> tuple[PullRequest, IssueComment]:
    number = call.number("comment_id")
    for pull in call.repository.pulls.values():
        for comment in pull.issue_comments:
            if comment.id == number:
                return pull, comment
    raise not_found()


def get_issue_comment(call: Call) -> Answer:
    pull, comment = _issue_comment(call)
    return Answer(200, remarks.issue_comment(pull, comment, call.url))


def update_issue_comment(call: Call) -> Answer:
    _need_comments(call)
    pull, comment = _issue_comment(call)
    check_author(call, pull, comment)
    _check_body(call)
    comment.body, comment.updated_at = call.body["body"], pull.world.now()
    return Answer(200, remarks.issue_comment(pull, comment, call.url))


def delete_issue_comment(call: Call) -> Answer:
    _need_comments(call)
    pull, comment = _issue_comment(call)
    check_author(call, pull, comment)
    pull.issue_comments.remove(comment)
    return Answer(204)


def _reactions(find: Callable[[Call], tuple[PullRequest, Remark]], template: str) -> dict[tuple[str, str], Handler]:
    """The three things to do with reactions, on the comments that `find` finds."""

    def listed(call: Call) -> Answer:
        wanted = call.query.get("content")
        found = [each for each in find(call)[1].reactions if wanted in (None, each.content)]
        return call.page(found, lambda each: remarks.reaction(each, call.url))

    def added(call: Call) -> Answer:
        _need_comments(call)
        pull, remark = find(call)
        before = len(remark.reactions)
        made = pull.react_by(call.actor.user.login, remark, call.body["content"])
        return Answer(200 if len(remark.reactions) == before else 201, remarks.reaction(made, call.url))

    def removed(call: Call) -> Answer:
        _need_comments(call)
        remark, number = find(call)[1], call.number("reaction_id")
        found = next((each for each in remark.reactions if each.id == number), None)
        if found is None or found.user != call.actor.user:
            raise not_found()
        remark.reactions.remove(found)
        return Answer(204)

    return {("GET", template): listed, ("POST", template): added, ("DELETE", f"{template}/{{reaction_id}}"): removed}


HANDLERS: dict[tuple[str, str], Handler] = {
    ("GET", _REPOSITORY): get_repository,
    ("GET", f"{_REPOSITORY}/pulls"): list_pulls,
    ("GET", f"{_REPOSITORY}/pulls/{{pull_number}}"): get_pull,
    ("GET", f"{_REPOSITORY}/pulls/{{pull_number}}/files"): list_files,
    ("GET", f"{_REPOSITORY}/pulls/{{pull_number}}/commits"): list_commits,
    ("GET", f"{_REPOSITORY}/commits/{{ref}}"): get_commit,
    ("GET", f"{_REPOSITORY}/commits/{{commit_sha}}/pulls"): list_pulls_of_commit,
    ("GET", f"{_REPOSITORY}/compare/{{basehead}}"): compare,
    ("GET", f"{_REPOSITORY}/issues/{{issue_number}}/comments"): list_issue_comments,
    ("POST", f"{_REPOSITORY}/issues/{{issue_number}}/comments"): create_issue_comment,
    ("GET", f"{_REPOSITORY}/issues/comments/{{comment_id}}"): get_issue_comment,
    ("PATCH", f"{_REPOSITORY}/issues/comments/{{comment_id}}"): update_issue_comment,
    ("DELETE", f"{_REPOSITORY}/issues/comments/{{comment_id}}"): delete_issue_comment,
    **_reactions(_issue_comment, f"{_REPOSITORY}/issues/comments/{{comment_id}}/reactions"),
    **_reactions(find_comment, f"{_REPOSITORY}/pulls/comments/{{comment_id}}/reactions"),
}
