"""The routes of GitHub's REST API that publishing calls, and who may call them.

A handler answers with the fields that matter; the others, which GitHub always gives, come from its description.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Literal
from urllib.parse import urlencode

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.github_server_world import (
    ChangedFile,
    CheckRun,
    Place,
    PullRequest,
    Remark,
    Repository,
    Review,
    ReviewComment,
    Status,
    User,
    World,
)

Identity = Literal["user", "actions"]
NOT_ACCESSIBLE = "Resource not accessible by integration"
# Resolving a thread takes `contents: write` as well.
PERMISSIONS = {
    "metadata": "read",
    "contents": "read",
    "issues": "write",
    "pull_requests": "write",
    "checks": "write",
    "statuses": "write",
}
_APP_ID, _INSTALLATION_ID, _SLUG = 4242, 777, "loupe-app"
_LONGEST_BODY = 65536
_LONGEST_DESCRIPTION = 140
_MAY_WRITE = ("admin", "maintain", "write")
_STATES = {"APPROVE": "APPROVED", "REQUEST_CHANGES": "CHANGES_REQUESTED", "COMMENT": "COMMENTED"}


class Refused(Exception):
    """GitHub's no: a status, a message, and what it found."""

    def __init__(
        self, status: int, message: str, *, errors: Sequence[Any] = (), headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or {}
        self.document: dict[str, Any] = {"message": message, "documentation_url": "https://docs.github.com/rest"}
        if errors:
            self.document["errors"] = list(errors)


@dataclass(frozen=True, slots=True)
class Actor:
    """Who asks. `permissions` bind the tokens of integrations: those of Actions and of Apps."""

    kind: Literal["user", "actions", "app", "jwt"]
    user: User
    association: str
    permissions: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_integration(self) -> bool:
        return self.kind in ("actions", "app")

    def may_write(self, permission: str) -> bool:
        """Whether the token may change things of a kind."""
        return not self.is_integration or self.permissions.get(permission) == "write"

    def may_resolve(self, pull: PullRequest) -> bool:
        """Whether the token may resolve threads."""
        if self.is_integration:
            return self.may_write("contents") and self.may_write("pull_requests")
        return self.user == pull.author or pull.repository.permission_of(self.user.login) in _MAY_WRITE


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer: a document, or a text with its media type."""

    status: int
    document: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    media_type: str = "application/json"


@cache
def _private_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class Identities:
    """The tokens that are good here. `token` is the one of a person or of Actions; the App gets its own."""

    app_id = _APP_ID

    def __init__(self, world: World, identity: Identity) -> None:
        self.world = world
        self.permissions = dict(PERMISSIONS)
        self.token = f"{'ghp' if identity == 'user' else 'ghs'}_{secrets.token_hex(18)}"
        login = "reviewer" if identity == "user" else "github-actions[bot]"
        association = "COLLABORATOR" if identity == "user" else "NONE"
        self.actor = Actor(identity, world.user(login), association, self.permissions)
        self._actors = {self.token: self.actor}

    @property
    def app_private_key(self) -> str:
        """The App's key as GitHub hands it out: PEM."""
        form = serialization.PrivateFormat.TraditionalOpenSSL
        made = _private_key().private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
        return made.decode()

    def of(self, headers: Mapping[str, str]) -> Actor:
        """Who asks. Raises Refused with GitHub's 401."""
        scheme, _, credential = headers.get("authorization", "").partition(" ")
        if scheme.lower() not in ("token", "bearer"):
            raise Refused(401, "Requires authentication")
        if credential.count(".") == 2:
            _check_jwt(credential)
            return Actor("jwt", self.world.user(f"{_SLUG}[bot]"), "NONE")
        if credential not in self._actors:
            raise Refused(401, "Bad credentials")
        return self._actors[credential]

    def install(self) -> str:
        """A new token of the App's installation."""
        token = f"ghs_{secrets.token_hex(18)}"
        self._actors[token] = Actor("app", self.world.user(f"{_SLUG}[bot]"), "NONE", self.permissions)
        return token


def _check_jwt(credential: str) -> None:
    try:
        claims = jwt.decode(
            credential, _private_key().public_key(), algorithms=["RS256"], options={"verify_iss": False}
        )
    except jwt.PyJWTError as error:
        raise Refused(401, "A JSON web token could not be decoded") from error
    if str(claims.get("iss")) != str(_APP_ID) or "iat" not in claims:
        raise Refused(401, "A JSON web token could not be decoded")
    if claims.get("exp", 0) > time.time() + 600:
        raise Refused(401, "'Expiration time' claim ('exp') is too far in the future")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request to one of the routes below."""

    world: World
    identities: Identities
    actor: Actor
    url: str
    path: str
    parameters: Mapping[str, str]
    query: Mapping[str, str]
    body: Any

    @property
    def repository(self) -> Repository:
        """The repository of the path. Raises Refused."""
        found = self.world.repositories.get(f"{self.parameters['owner']}/{self.parameters['repo']}".lower())
        if found is None:
            raise Refused(404, "Not Found")
        return found

    @property
    def pull(self) -> PullRequest:
        """The pull request of the path. Raises Refused."""
        number = self.parameters.get("pull_number") or self.parameters["issue_number"]
        found = self.repository.pulls.get(int(number)) if number.isdecimal() else None
        if found is None:
            raise Refused(404, "Not Found")
        return found

    def find(self, name: str, things: Sequence[Any]) -> Any:
        """The thing whose id stands in the path. Raises Refused."""
        found = next((each for each in things if str(each.id) == self.parameters[name]), None)
        if found is None:
            raise Refused(404, "Not Found")
        return found

    def need(self, *permissions: str) -> None:
        """Raises Refused when the token may write things of none of these kinds; GitHub names them in a header."""
        if not any(self.actor.may_write(permission) for permission in permissions):
            accepted = "; ".join(f"{permission}=write" for permission in permissions)
            raise Refused(403, NOT_ACCESSIBLE, headers={"x-accepted-github-permissions": accepted})

    def need_unlocked(self, pull: PullRequest) -> None:
        """Raises Refused when the conversation is locked for whoever asks."""
        if pull.locked and pull.repository.permission_of(self.actor.user.login) not in _MAY_WRITE:
            raise Refused(403, "Unable to create comment because issue is locked.")

    def need_author(self, remark: Remark) -> None:
        """Raises Refused for a person who neither wrote a comment nor may write here."""
        may = self.actor.is_integration or self.repository.permission_of(self.actor.user.login) in _MAY_WRITE
        if remark.user != self.actor.user and not may:
            raise Refused(403, "Must have admin rights to Repository.")

    def page(self, documents: Sequence[Any], *, within: str | None = None) -> Answer:
        """One page of a list with its links; `within` is the field of a document that also has the total."""
        size, number = int(self.query.get("per_page", 30)), int(self.query.get("page", 1))
        shown = list(documents[(number - 1) * size : number * size])
        links = {}
        if number * size < len(documents):
            after = urlencode({**self.query, "page": number + 1})
            links = {"link": f'<{self.url}{self.path}?{after}>; rel="next"'}
        return Answer(200, shown if within is None else {"total_count": len(documents), within: shown}, links)


def get_pull(call: Call) -> Answer:
    return Answer(200, {**_pull(call.pull), "changed_files": len(call.pull.files), "commits": len(call.pull.commits)})


def list_pulls(call: Call) -> Answer:
    wanted, head = call.query.get("state", "open"), call.query.get("head", "")
    found = [pull for pull in call.repository.pulls.values() if wanted in ("all", pull.state)]
    if ":" in head:  # GitHub passes over a branch without its owner
        found = [pull for pull in found if head == f"{pull.head_repository.owner.login}:{pull.head_ref}"]
    return call.page([_pull(pull) for pull in found[::-1]])


def _pull(pull: PullRequest) -> dict[str, Any]:
    def end(ref: str, sha: str, repo: Repository) -> dict[str, Any]:
        label = f"{repo.owner.login}:{ref}"
        return {"label": label, "ref": ref, "sha": sha, "user": _user(repo.owner), "repo": _repository(repo)}

    return {
        "id": pull.id,
        "number": pull.number,
        "state": pull.state,
        "draft": pull.draft,
        "locked": pull.locked,
        "title": "A change",
        "body": "What it is for.",
        "user": _user(pull.author),
        "html_url": f"https://github.com/{pull.repository.full_name}/pull/{pull.number}",
        "head": end(pull.head_ref, pull.head, pull.head_repository),
        "base": end("main", pull.base, pull.repository),
        "author_association": "CONTRIBUTOR",
    }


def _user(user: User) -> dict[str, Any]:
    return {"login": user.login, "id": user.id, "type": "Bot" if user.is_bot else "User"}


def _repository(repo: Repository) -> dict[str, Any]:
    name = repo.full_name.partition("/")[2]
    return {"id": repo.id, "name": name, "full_name": repo.full_name, "owner": _user(repo.owner), "private": False}


def list_files(call: Call) -> Answer:
    return call.page([_file(file) for file in call.pull.files])


def _file(file: ChangedFile) -> dict[str, Any]:
    entry: dict[str, Any] = {"filename": file.path, "status": file.status, "sha": "f" * 40}
    if file.patch is not None:
        entry |= {"patch": file.patch, "additions": len(re.findall(r"(?m)^\+", file.patch))}
    return entry if file.previous_path is None else {**entry, "previous_filename": file.previous_path}


def get_permission(call: Call) -> Answer:
    """What somebody may do in a repository; `maintain` and `triage` show only in the role."""
    user = call.world.users.get(call.parameters["username"].lower())
    if user is None:
        raise Refused(404, f"{call.parameters['username']} is not a user")
    role = call.repository.permission_of(user.login)
    permission = {"maintain": "write", "triage": "read"}.get(role, role)
    return Answer(200, {"permission": permission, "role_name": role, "user": {**_user(user), "role_name": role}})


def _check_body(body: str) -> None:
    if not body.strip():
        raise Refused(422, "Validation Failed", errors=["body can't be blank"])
    if len(body) > _LONGEST_BODY:
        raise Refused(422, "Validation Failed", errors=[f"body is too long (maximum is {_LONGEST_BODY} characters)"])


def create_issue_comment(call: Call) -> Answer:
    call.need("issues", "pull_requests")
    call.need_unlocked(call.pull)
    _check_body(call.body["body"])
    made = call.pull.add_issue_comment(call.actor.user, association=call.actor.association, body=call.body["body"])
    return Answer(201, _issue_comment(made))


def _issue_comment(comment: Remark) -> dict[str, Any]:
    return {
        "id": comment.id,
        "user": _user(comment.user),
        "body": comment.body,
        "html_url": f"https://github.com/x#issuecomment-{comment.id}",
        "created_at": comment.created_at,
        "updated_at": comment.updated_at,
        "author_association": comment.association,
    }


def _own_issue_comment(call: Call) -> tuple[PullRequest, Any]:
    call.need("issues", "pull_requests")
    said = [(pull, each) for pull in call.repository.pulls.values() for each in pull.issue_comments]
    comment = call.find("comment_id", [each for _, each in said])
    call.need_author(comment)
    return next(pull for pull, each in said if each is comment), comment


def update_issue_comment(call: Call) -> Answer:
    _, comment = _own_issue_comment(call)
    _check_body(call.body["body"])
    comment.body, comment.updated_at = call.body["body"], call.world.now()
    return Answer(200, _issue_comment(comment))


def delete_issue_comment(call: Call) -> Answer:
    pull, comment = _own_issue_comment(call)
    pull.issue_comments.remove(comment)
    return Answer(204)


def create_review(call: Call) -> Answer:
    """Make a review with all of its comments, or nothing at all."""
    call.need("pull_requests")
    pull, body = call.pull, call.body or {}
    call.need_unlocked(pull)
    if any(each.user == call.actor.user and each.state == "PENDING" for each in pull.reviews):
        raise _unprocessable("User can only have one pending review per pull request")
    commit, event, text = body.get("commit_id", pull.head), body.get("event"), body.get("body", "")
    if commit not in pull.commits:
        raise _unprocessable("The commitOID is not part of the pull request")
    if event == "APPROVE" and call.actor.kind == "actions":
        raise _unprocessable("GitHub Actions is not permitted to approve pull requests.")
    if event in ("APPROVE", "REQUEST_CHANGES") and call.actor.user == pull.author:
        raise _unprocessable(f"Can not {event.lower().replace('_', ' ')} on your own pull request")
    if not text.strip() and (event == "REQUEST_CHANGES" or (event == "COMMENT" and not body.get("comments"))):
        raise _unprocessable("Body can't be blank")
    places = [_place(pull, entry, commit) for entry in body.get("comments", [])]
    state = "PENDING" if event is None else _STATES[event]
    made = pull.add_review(call.actor.user, association=call.actor.association, body=text, state=state, commit=commit)
    for place, entry in zip(places, body.get("comments", []), strict=True):
        pull.add_thread(made, place, entry["body"])
    return Answer(200, _review(made))


def _unprocessable(message: str) -> Refused:
    return Refused(422, "Unprocessable Entity", errors=[message])


def _place(pull: PullRequest, entry: Mapping[str, Any], commit: str) -> Place:
    """Where a comment stands in the diff at a commit. Raises Refused, without a word on which comment it is."""
    _check_body(entry["body"])
    file = pull.file(entry["path"], commit)
    if file is None:
        raise _unprocessable("Path could not be resolved")
    side = entry.get("side", "RIGHT")
    start, start_side = entry.get("start_line"), entry.get("start_side", side)
    last = file.lines.get((side, entry.get("line") or 0))
    if last is None:
        raise _unprocessable("Line could not be resolved")
    if start is not None and not _precedes(file.lines.get((start_side, start)), last):
        raise _unprocessable("Start line could not be resolved")
    return Place(
        path=file.path, line=entry["line"], side=side, start_line=start, start_side=start_side if start else None
    )


def _precedes(first: tuple[int, int] | None, last: tuple[int, int]) -> bool:
    return first is not None and first[0] == last[0] and first[1] < last[1]


def _review(review: Review) -> dict[str, Any]:
    return {
        "id": review.id,
        "user": _user(review.user),
        "body": review.body,
        "state": review.state,
        "commit_id": review.commit,
        "author_association": review.association,
    }


def dismiss_review(call: Call) -> Answer:
    call.need("pull_requests")
    found = call.find("review_id", call.pull.reviews)
    if found.state not in ("APPROVED", "CHANGES_REQUESTED"):
        raise _unprocessable("Can not dismiss a commented pull request review")
    found.state = "DISMISSED"
    return Answer(200, _review(found))


def reply(call: Call) -> Answer:
    call.need("pull_requests")
    call.need_unlocked(call.pull)
    parent = call.find("comment_id", call.pull.review_comments)
    _check_body(call.body["body"])
    made = call.pull.reply(parent, user=call.actor.user, association=call.actor.association, body=call.body["body"])
    return Answer(201, _review_comment(made))


def _review_comment(comment: ReviewComment) -> dict[str, Any]:
    return {
        **_issue_comment(comment),
        "pull_request_review_id": comment.review.id,
        "path": comment.thread.original.path,
        "commit_id": comment.thread.original_commit,
        "original_commit_id": comment.thread.original_commit,
        "line": comment.thread.original.line,
    }


def delete_comment(call: Call) -> Answer:
    call.need("pull_requests")
    pulls = call.repository.pulls.values()
    comment = call.find("comment_id", [each for pull in pulls for each in pull.review_comments])
    call.need_author(comment)
    comment.thread.comments.remove(comment)
    for pull in pulls:
        pull.threads = [thread for thread in pull.threads if thread.comments]
    return Answer(204)


def create_check_run(call: Call) -> Answer:
    _need_app(call)
    repo, body = call.repository, call.body
    if body["head_sha"] not in repo.commits:
        raise Refused(422, f"No commit found for SHA: {body['head_sha']}")
    run = CheckRun(id=repo.world.new_id(), app=call.actor.user.login, name=body["name"], head_sha=body["head_sha"])
    _fill(run, body)
    repo.check_runs.append(run)
    return Answer(201, _check_run(run))


def update_check_run(call: Call) -> Answer:
    _need_app(call)
    run = call.find("check_run_id", call.repository.check_runs)
    if run.app != call.actor.user.login:
        raise Refused(403, "Invalid app_id - check run can only be modified by the GitHub App that made it.")
    _fill(run, call.body or {})
    return Answer(200, _check_run(run))


def _need_app(call: Call) -> None:
    """Only Apps make check runs, and the token of Actions is one of an App."""
    if not call.actor.is_integration:
        raise Refused(403, "You must authenticate via a GitHub App.")
    call.need("checks")


def _fill(run: CheckRun, body: Mapping[str, Any]) -> None:
    for name, value in {**body, **body.get("output", {})}.items():
        if name in ("name", "external_id", "details_url", "status", "conclusion", "title", "summary", "text"):
            setattr(run, name, value)
    if "conclusion" in body:
        run.status = "completed"


def _check_run(run: CheckRun) -> dict[str, Any]:
    output = {"title": run.title, "summary": run.summary, "text": run.text}
    names = ("id", "name", "head_sha", "status", "conclusion", "external_id", "details_url")
    return {**{name: getattr(run, name) for name in names}, "output": output}


def list_check_runs(call: Call) -> Answer:
    """The check runs of a commit; of one name and App the latest."""
    wanted, name = call.parameters["ref"], call.query.get("check_name")
    found = [run for run in call.repository.check_runs if run.head_sha == wanted and name in (None, run.name)]
    latest = {(run.app, run.name, run.external_id): run for run in found}
    return call.page([_check_run(run) for run in latest.values()][::-1], within="check_runs")


def create_status(call: Call) -> Answer:
    call.need("statuses")
    repo, body, sha = call.repository, call.body, call.parameters["sha"]
    if not call.actor.is_integration and repo.permission_of(call.actor.user.login) not in _MAY_WRITE:
        raise Refused(404, "Not Found")
    if sha not in repo.commits:
        raise Refused(422, f"No commit found for SHA: {sha}")
    if len(body.get("description") or "") > _LONGEST_DESCRIPTION:
        raise Refused(422, "Validation Failed", errors=["description is too long (maximum is 140 characters)"])
    made = Status(
        id=repo.world.new_id(),
        sha=sha,
        state=body["state"],
        context=body.get("context", "default"),
        description=body.get("description"),
        target_url=body.get("target_url"),
        creator=call.actor.user,
        created_at=repo.world.now(),
    )
    repo.statuses.append(made)
    return Answer(201, _status(made))


def _status(status: Status) -> dict[str, Any]:
    names = ("id", "state", "context", "description", "target_url", "created_at")
    return {**{name: getattr(status, name) for name in names}, "creator": _user(status.creator)}


def list_statuses(call: Call) -> Answer:
    found = [each for each in call.repository.statuses if each.sha == call.parameters["ref"]]
    return call.page([_status(each) for each in found[::-1]])


def get_installation(call: Call) -> Answer:
    _need_jwt(call)
    owner = call.repository.owner
    return Answer(200, {"id": _INSTALLATION_ID, "app_id": _APP_ID, "account": _user(owner), "target_id": owner.id})


def create_token(call: Call) -> Answer:
    _need_jwt(call)
    if call.parameters["installation_id"] != str(_INSTALLATION_ID):
        raise Refused(404, "Not Found")
    expires = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Answer(201, {"token": call.identities.install(), "expires_at": expires, "permissions": dict(PERMISSIONS)})


def _need_jwt(call: Call) -> None:
    if call.actor.kind != "jwt":
        raise Refused(401, "A JSON web token could not be decoded")


_REPO = "/repos/{owner}/{repo}"
_PULL = f"{_REPO}/pulls/{{pull_number}}"
HANDLERS: dict[tuple[str, str], Callable[[Call], Answer]] = {
    ("GET", f"{_REPO}/pulls"): list_pulls,
    ("GET", _PULL): get_pull,
    ("GET", f"{_PULL}/files"): list_files,
    ("GET", f"{_REPO}/collaborators/{{username}}/permission"): get_permission,
    ("POST", f"{_REPO}/issues/{{issue_number}}/comments"): create_issue_comment,
    ("PATCH", f"{_REPO}/issues/comments/{{comment_id}}"): update_issue_comment,
    ("DELETE", f"{_REPO}/issues/comments/{{comment_id}}"): delete_issue_comment,
    ("POST", f"{_PULL}/reviews"): create_review,
    ("PUT", f"{_PULL}/reviews/{{review_id}}/dismissals"): dismiss_review,
    ("POST", f"{_PULL}/comments/{{comment_id}}/replies"): reply,
    ("DELETE", f"{_REPO}/pulls/comments/{{comment_id}}"): delete_comment,
    ("POST", f"{_REPO}/check-runs"): create_check_run,
    ("PATCH", f"{_REPO}/check-runs/{{check_run_id}}"): update_check_run,
    ("GET", f"{_REPO}/commits/{{ref}}/check-runs"): list_check_runs,
    ("POST", f"{_REPO}/statuses/{{sha}}"): create_status,
    ("GET", f"{_REPO}/commits/{{ref}}/statuses"): list_statuses,
    ("GET", f"{_REPO}/installation"): get_installation,
    ("POST", "/app/installations/{installation_id}/access_tokens"): create_token,
}


def find(method: str, path: str) -> tuple[str, dict[str, str]] | None:
    """The template of a path among the routes here, with the values in it."""
    for known, template in HANDLERS:
        pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", template)
        if known == method and (found := re.fullmatch(pattern, path)):
            return template, found.groupdict()
    return None
