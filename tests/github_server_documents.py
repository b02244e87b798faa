"""What the GitHub server knows, as the documents of GitHub's REST API: people, repositories, commits, pull requests."""

from __future__ import annotations

from typing import Any

from tests.github_server_patches import ChangedFile
from tests.github_server_records import User, node_id
from tests.github_server_world import PullRequest, Repository

WEB = "https://github.com"
_USER_LINKS = (
    "followers",
    "following{/other_user}",
    "gists{/gist_id}",
    "starred{/owner}{/repo}",
    "subscriptions",
    "orgs",
    "repos",
    "events{/privacy}",
    "received_events",
)
_REPOSITORY_LINKS = (
    "archive{/archive_format}{/ref}",
    "assignees{/user}",
    "git/blobs{/sha}",
    "branches{/branch}",
    "collaborators{/collaborator}",
    "comments{/number}",
    "commits{/sha}",
    "compare/{base}...{head}",
    "contents/{+path}",
    "contributors",
    "deployments",
    "downloads",
    "events",
    "forks",
    "git/commits{/sha}",
    "git/refs{/sha}",
    "git/tags{/sha}",
    "hooks",
    "issues/comments{/number}",
    "issues/events{/number}",
    "issues{/number}",
    "keys{/key_id}",
    "labels{/name}",
    "languages",
    "merges",
    "milestones{/number}",
    "notifications{?since,all,participating}",
    "pulls{/number}",
    "releases{/id}",
    "stargazers",
    "statuses/{sha}",
    "subscribers",
    "subscription",
    "tags",
    "teams",
    "git/trees{/sha}",
)
_LINK_NAMES = {
    "orgs": "organizations",
    "git/blobs": "blobs",
    "git/commits": "git_commits",
    "git/refs": "git_refs",
    "git/tags": "git_tags",
    "git/trees": "trees",
    "issues/comments": "issue_comment",
    "issues/events": "issue_events",
}


def _links(base: str, templates: tuple[str, ...]) -> dict[str, str]:
    named = ((template.partition("{")[0].rstrip("/"), template) for template in templates)
    return {f"{_LINK_NAMES.get(name, name)}_url": f"{base}/{template}" for name, template in named}


def simple_user(user: User, url: str) -> dict[str, Any]:
    """A user as they stand in other documents."""
    base = f"{url}/users/{user.login}"
    page = f"{WEB}/apps/{user.login.removesuffix('[bot]')}" if user.is_bot else f"{WEB}/{user.login}"
    return {
        "login": user.login,
        "id": user.id,
        "node_id": user.node_id,
        "avatar_url": f"https://avatars.githubusercontent.com/u/{user.id}?v=4",
        "gravatar_id": "",
        "url": base,
        "html_url": page,
        **_links(base, _USER_LINKS),
        "type": "Bot" if user.is_bot else "User",
        "user_view_type": "public",
        "site_admin": False,
    }


def private_user(user: User, url: str) -> dict[str, Any]:
    """The user whose token it is."""
    nothing = dict.fromkeys(
        ("name", "company", "blog", "location", "email", "hireable", "bio", "twitter_username", "notification_email")
    )
    numbers = dict.fromkeys(
        (
            *("public_repos", "public_gists", "followers", "following", "private_gists", "total_private_repos"),
            *("owned_private_repos", "disk_usage", "collaborators"),
        ),
        0,
    )
    times = {"created_at": "2020-01-01T00:00:00Z", "updated_at": "2020-01-01T00:00:00Z"}
    more = {"user_view_type": "private", "two_factor_authentication": True}
    return {**simple_user(user, url), **nothing, **numbers, **times, **more}


def repository(repo: Repository, url: str) -> dict[str, Any]:
    """A repository as it stands in a pull request."""
    base = f"{url}/repos/{repo.full_name}"
    page = f"{WEB}/{repo.full_name}"
    names = ("has_issues", "has_projects", "has_wiki", "has_pages", "has_downloads", "has_discussions")
    counts = ("forks_count", "stargazers_count", "watchers_count", "size", "open_issues_count")
    return {
        "id": repo.id,
        "node_id": node_id("Repository", repo.id),
        "name": repo.name,
        "full_name": repo.full_name,
        "owner": simple_user(repo.owner, url),
        "private": repo.private,
        "html_url": page,
        "description": None,
        "fork": repo.is_fork,
        "url": base,
        **_links(base, _REPOSITORY_LINKS),
        "git_url": f"git://github.com/{repo.full_name}.git",
        "ssh_url": f"git@github.com:{repo.full_name}.git",
        "clone_url": repo.clone_url,
        "svn_url": page,
        "mirror_url": None,
        "homepage": None,
        "language": None,
        "license": None,
        "topics": [],
        **dict.fromkeys(names, True),
        **dict.fromkeys((*counts, "forks", "open_issues", "watchers"), 0),
        "default_branch": repo.default_branch,
        "archived": False,
        "disabled": False,
        "visibility": "private" if repo.private else "public",
        **dict.fromkeys(("pushed_at", "created_at", "updated_at"), "2026-01-05T09:00:00Z"),
        "allow_forking": True,
        "is_template": False,
        "web_commit_signoff_required": False,
    }


def full_repository(repo: Repository, url: str) -> dict[str, Any]:
    """A repository that was asked for itself."""
    return {**repository(repo, url), "network_count": 0, "subscribers_count": 0}


def commit(repo: Repository, sha: str, url: str) -> dict[str, Any]:
    """One commit, without its files."""
    base, page = f"{url}/repos/{repo.full_name}", f"{WEB}/{repo.full_name}/commit/{sha}"
    person = {"name": "Author", "email": "author@example.com", "date": "2026-01-05T09:00:00Z"}
    parent = repo.commits.get(sha, "")
    return {
        "sha": sha,
        "node_id": node_id("Commit", int(sha, 16)),
        "url": f"{base}/commits/{sha}",
        "html_url": page,
        "comments_url": f"{base}/commits/{sha}/comments",
        "commit": {
            "url": f"{base}/git/commits/{sha}",
            "author": person,
            "committer": person,
            "message": "A commit",
            "comment_count": 0,
            "tree": {"sha": sha, "url": f"{base}/git/trees/{sha}"},
        },
        "author": None,
        "committer": None,
        "parents": [{"sha": parent, "url": f"{base}/commits/{parent}", "html_url": page}] if parent else [],
    }


def diff_entry(pull: PullRequest, file: ChangedFile, url: str) -> dict[str, Any]:
    """One file of a diff."""
    base, page = f"{url}/repos/{pull.repository.full_name}", f"{WEB}/{pull.repository.full_name}"
    added, deleted = (file.patch.additions, file.patch.deletions) if file.patch else (0, 0)
    entry = {
        "sha": pull.head,
        "filename": file.path,
        "status": file.status,
        "additions": added,
        "deletions": deleted,
        "changes": added + deleted,
        "blob_url": f"{page}/blob/{pull.head}/{file.path}".replace(" ", "%20"),
        "raw_url": f"{page}/raw/{pull.head}/{file.path}".replace(" ", "%20"),
        "contents_url": f"{base}/contents/{file.path}?ref={pull.head}".replace(" ", "%20"),
    }
    if file.patch is not None:
        entry["patch"] = file.patch.text
    return entry if file.previous_path is None else {**entry, "previous_filename": file.previous_path}


def pull_request(pull: PullRequest, url: str) -> dict[str, Any]:
    """A pull request that was asked for itself."""
    patches = [file.patch for file in pull.files if file.patch is not None]
    return {
        **pull_request_simple(pull, url),
        "merged": pull.merged,
        "mergeable": None if pull.merged else True,
        "rebaseable": None if pull.merged else True,
        "mergeable_state": "unknown" if pull.merged else "clean",
        "merged_by": None,
        "comments": len(pull.issue_comments),
        "review_comments": len(pull.review_comments),
        "maintainer_can_modify": False,
        "commits": len(pull.commits),
        "additions": sum(patch.additions for patch in patches),
        "deletions": sum(patch.deletions for patch in patches),
        "changed_files": len(pull.files),
    }


def pull_request_simple(pull: PullRequest, url: str) -> dict[str, Any]:
    """A pull request as it stands in a list."""
    links = _pull_links(pull, url)
    return {
        **links,
        "id": pull.id,
        "node_id": node_id("PullRequest", pull.id),
        "number": pull.number,
        "state": pull.state,
        "locked": pull.locked,
        "title": pull.title,
        "user": simple_user(pull.author, url),
        "body": pull.body,
        "labels": [],
        "milestone": None,
        "active_lock_reason": None,
        "created_at": pull.created_at,
        "updated_at": pull.updated_at,
        "closed_at": None if pull.state == "open" else pull.updated_at,
        "merged_at": pull.updated_at if pull.merged else None,
        "merge_commit_sha": pull.merge_commit,
        "assignee": None,
        "assignees": [],
        "requested_reviewers": [],
        "requested_teams": [],
        "head": _end(pull.head_ref, pull.head, pull.head_repository, pull, url),
        "base": _end(pull.base_ref, pull.base, pull.repository, pull, url),
        "_links": {
            "self": {"href": links["url"]},
            "html": {"href": links["html_url"]},
            "issue": {"href": links["issue_url"]},
            "comments": {"href": links["comments_url"]},
            "review_comments": {"href": links["review_comments_url"]},
            "review_comment": {"href": links["review_comment_url"]},
            "commits": {"href": links["commits_url"]},
            "statuses": {"href": links["statuses_url"]},
        },
        "author_association": "CONTRIBUTOR",
        "auto_merge": None,
        "draft": pull.draft,
    }


def _pull_links(pull: PullRequest, url: str) -> dict[str, str]:
    base, page = f"{url}/repos/{pull.repository.full_name}", f"{WEB}/{pull.repository.full_name}/pull/{pull.number}"
    own = f"{base}/pulls/{pull.number}"
    return {
        "url": own,
        "html_url": page,
        "diff_url": f"{page}.diff",
        "patch_url": f"{page}.patch",
        "issue_url": f"{base}/issues/{pull.number}",
        "commits_url": f"{own}/commits",
        "review_comments_url": f"{own}/comments",
        "review_comment_url": f"{base}/pulls/comments{{/number}}",
        "comments_url": f"{base}/issues/{pull.number}/comments",
        "statuses_url": f"{base}/statuses/{pull.head}",
    }


def head_label(pull: PullRequest) -> str:
    """A pull request's branch with its owner, by which it is looked for."""
    return f"{_owner(pull.head_repository, pull).login}:{pull.head_ref}"


def _owner(repo: Repository | None, pull: PullRequest) -> User:
    return pull.author if repo is None else repo.owner


def _end(ref: str, sha: str, repo: Repository | None, pull: PullRequest, url: str) -> dict[str, Any]:
    """One end of a pull request; a fork may have been deleted."""
    owner = _owner(repo, pull)
    return {
        "label": f"{owner.login}:{ref}",
        "ref": ref,
        "sha": sha,
        "user": simple_user(owner, url),
        "repo": None if repo is None else repository(repo, url),
    }
