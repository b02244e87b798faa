"""The routes of GitHub's REST API that publishing calls, and who may call them."""

import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace
from typing import Any, Literal, TypeVar
from urllib.parse import urlencode

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.github_server_world import Comment, PullRequest, Repository, User, World

Identity = Literal["user", "actions"]
_Thing = TypeVar("_Thing")
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
_APP_ID, _BOT = 4242, "loupe-app[bot]"
_LONGEST_BODY = 65536
_STATES = {"APPROVE": "APPROVED", "REQUEST_CHANGES": "CHANGES_REQUESTED", "COMMENT": "COMMENTED"}


class Refused(Exception):
    """GitHub's no: a status, a message, what it found, and headers."""

    def __init__(self, status: int, message: str, *errors: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.document = {"message": message, **({"errors": list(errors)} if errors else {})}


@dataclass(frozen=True)
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
        return not self.is_integration or self.permissions.get(permission) == "write"

    def may_resolve(self, pull: PullRequest) -> bool:
        if self.is_integration:
            return self.may_write("contents") and self.may_write("pull_requests")
        return self.user == pull.author or pull.repository.may_write(self.user.login)


@dataclass(frozen=True)
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
        is_user = identity == "user"
        self.token = f"{'ghp' if is_user else 'ghs'}_{secrets.token_hex(18)}"
        user = world.user("reviewer" if is_user else "github-actions[bot]")
        self.actor = Actor(identity, user, "COLLABORATOR" if is_user else "NONE", self.permissions)
        self._actors = {self.token: self.actor}

    @property
    def app_private_key(self) -> str:
        form = serialization.PrivateFormat.TraditionalOpenSSL
        made = _private_key().private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
        return made.decode()

    def of(self, headers: Mapping[str, str]) -> Actor:
        scheme, _, credential = headers.get("authorization", "").partition(" ")
        if scheme.lower() not in ("token", "bearer"):
            raise Refused(401, "Requires authentication")
        if credential.count(".") == 2:
            _check_jwt(credential)
            return Actor("jwt", self.world.user(_BOT), "NONE")
        if credential not in self._actors:
            raise Refused(401, "Bad credentials")
        return self._actors[credential]

    def install(self) -> str:
        token = f"ghs_{secrets.token_hex(18)}"
        self._actors[token] = Actor("app", self.world.user(_BOT), "NONE", self.permissions)
        return token


def _check_jwt(credential: str) -> None:
    key = _private_key().public_key()
    try:
        claims = jwt.decode(credential, key, algorithms=["RS256"], options={"verify_iss": False})
    except jwt.PyJWTError as error:
        raise Refused(401, "A JSON web token could not be decoded") from error
    if str(claims.get("iss")) != str(_APP_ID) or "iat" not in claims or claims.get("exp", 0) > time.time() + 600:
        raise Refused(401, "'Expiration time' claim ('exp') is too far in the future, or this is no App")


def found(thing: _Thing | None) -> _Thing:
    if thing is None:
        raise Refused(404, "Not Found")
    return thing


@dataclass(frozen=True, kw_only=True)
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
        return found(self.world.repositories.get(f"{self.parameters['owner']}/{self.parameters['repo']}".lower()))

    @property
    def pull(self) -> PullRequest:
        number = self.parameters.get("pull_number") or self.parameters["issue_number"]
        return found(self.repository.pulls.get(int(number)))

    def find(self, name: str, things: Sequence[Any]) -> Any:
        return found(next((each for each in things if str(each.id) == self.parameters[name]), None))

    def need(self, *permissions: str) -> None:
        """Raises Refused when the token may write things of none of these kinds; GitHub names them in a header."""
        if not any(self.actor.may_write(permission) for permission in permissions):
            accepted = "; ".join(f"{permission}=write" for permission in permissions)
            raise Refused(403, NOT_ACCESSIBLE, x_accepted_github_permissions=accepted)

    def need_unlocked(self) -> None:
        """Raises Refused when the conversation is locked for whoever asks."""
        if self.pull.locked and not self.repository.may_write(self.actor.user.login):
            raise Refused(403, "Unable to create comment because issue is locked.")

    def need_author(self, comment: Comment) -> None:
        """Raises Refused for a person who neither wrote a comment nor may write here."""
        may = self.actor.is_integration or self.repository.may_write(self.actor.user.login)
        if comment.user != self.actor.user and not may:
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
    pull = call.pull
    return Answer(200, {**_pull(pull), "changed_files": len(pull.diffs[pull.head]), "commits": len(pull.diffs)})


def list_pulls(call: Call) -> Answer:
    listed, head = list(call.repository.pulls.values()), call.query.get("head", "")
    if ":" in head:  # GitHub passes over a branch without its owner
        listed = [pull for pull in listed if head == f"{pull.head_repository.owner.login}:{pull.head_ref}"]
    return call.page([_pull(pull) for pull in listed[::-1]])


def _pull(pull: PullRequest) -> dict[str, Any]:
    head, base = ({"sha": sha, "repo": {"id": pull.repository.id}} for sha in (pull.head, pull.base))
    return {"number": pull.number, "state": "open", "locked": pull.locked, "head": head, "base": base}


def list_files(call: Call) -> Answer:
    files = call.pull.diffs[call.pull.head]
    shown = [{"filename": file.path, **({} if file.patch is None else {"patch": file.patch})} for file in files]
    return call.page(shown)


def get_permission(call: Call) -> Answer:
    """What somebody may do in a repository; `maintain` and `triage` show only in the role."""
    user = found(call.world.users.get(call.parameters["username"].lower()))
    role = call.repository.permission_of(user.login)
    return Answer(200, {"permission": {"maintain": "write", "triage": "read"}.get(role, role), "role_name": role})


def _checked(body: str) -> str:
    if not body.strip() or len(body) > _LONGEST_BODY:
        raise Refused(422, "Validation Failed", f"body is blank or too long (maximum is {_LONGEST_BODY} characters)")
    return body


def create_issue_comment(call: Call) -> Answer:
    call.need("issues", "pull_requests")
    call.need_unlocked()
    return Answer(
        201, _comment(call.pull.add_issue_comment(call.actor.user, call.actor.association, _checked(call.body["body"])))
    )


def _comment(comment: Comment) -> dict[str, Any]:
    url = f"https://github.com/x#issuecomment-{comment.id}"
    return {"id": comment.id, "body": comment.body, "html_url": url, "author_association": comment.association}


def _own_issue_comment(call: Call) -> tuple[PullRequest, Any]:
    call.need("issues", "pull_requests")
    said = [(pull, each) for pull in call.repository.pulls.values() for each in pull.issue_comments]
    comment = call.find("comment_id", [each for _, each in said])
    call.need_author(comment)
    return next(pull for pull, each in said if each is comment), comment


def update_issue_comment(call: Call) -> Answer:
    _, comment = _own_issue_comment(call)
    comment.body = _checked(call.body["body"])
    return Answer(200, _comment(comment))


def delete_issue_comment(call: Call) -> Answer:
    pull, comment = _own_issue_comment(call)
    pull.issue_comments.remove(comment)
    return Answer(204)


def create_review(call: Call) -> Answer:
    call.need("pull_requests")
    call.need_unlocked()
    pull, body, actor = call.pull, call.body, call.actor
    commit, event, entries = body["commit_id"], body["event"], body["comments"]
    if any(each.user == actor.user and each.state == "PENDING" for each in pull.reviews):
        raise _unprocessable("User can only have one pending review per pull request")
    if commit not in pull.diffs:
        raise _unprocessable("The commitOID is not part of the pull request")
    if event == "APPROVE" and actor.kind == "actions":
        raise _unprocessable("GitHub Actions is not permitted to approve pull requests.")
    if event != "COMMENT" and actor.user == pull.author:
        raise _unprocessable(f"Can not {event.lower().replace('_', ' ')} on your own pull request")
    if not body["body"].strip():
        raise _unprocessable("Body can't be blank")
    for entry in entries:
        _check_place(pull, entry, commit)
    review = pull.add_review(actor.user, actor.association, body=body["body"], state=_STATES[event], commit=commit)
    for entry in entries:
        pull.add_thread(review, entry["path"], entry["line"], entry.get("start_line"), entry["body"])
    return Answer(200, {"id": review.id, "state": review.state})


def _unprocessable(message: str) -> Refused:
    return Refused(422, "Unprocessable Entity", message)


def _check_place(pull: PullRequest, entry: Mapping[str, Any], commit: str) -> None:
    """Raises Refused for lines that the diff at a commit has not, without a word on which comment it is."""
    _checked(entry["body"])
    file = next((each for each in pull.diffs[commit] if each.path == entry["path"]), None)
    if file is None:
        raise _unprocessable("Path could not be resolved")
    first, last = (file.lines.get(entry.get(name, 0)) for name in ("start_line", "line"))
    if last is None or entry["side"] != "RIGHT":
        raise _unprocessable("Line could not be resolved")
    if "start_line" in entry and (first is None or first[0] != last[0] or first[1] >= last[1]):
        raise _unprocessable("Start line could not be resolved")


def dismiss_review(call: Call) -> Answer:
    call.need("pull_requests")
    found = call.find("review_id", call.pull.reviews)
    if found.state not in ("APPROVED", "CHANGES_REQUESTED"):
        raise _unprocessable("Can not dismiss a commented pull request review")
    found.state = "DISMISSED"
    return Answer(200, {"id": found.id, "state": found.state})


def reply(call: Call) -> Answer:
    call.need("pull_requests")
    call.need_unlocked()
    parent = call.find("comment_id", call.pull.review_comments)
    return Answer(
        201, _comment(call.pull.reply(parent, call.actor.user, call.actor.association, _checked(call.body["body"])))
    )


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
    _need_commit(call, call.body["head_sha"])
    run = SimpleNamespace(id=call.world.new_id(), app=call.actor.user.login, **call.body)
    call.repository.check_runs.append(run)
    return Answer(201, _check_run(run))


def update_check_run(call: Call) -> Answer:
    _need_app(call)
    run = call.find("check_run_id", call.repository.check_runs)
    if run.app != call.actor.user.login:
        raise Refused(403, "Invalid app_id - check run can only be modified by the GitHub App that made it.")
    vars(run).update(call.body)
    return Answer(200, _check_run(run))


def _need_app(call: Call) -> None:
    """Only Apps make check runs, and the token of Actions is one of an App."""
    if not call.actor.is_integration:
        raise Refused(403, "You must authenticate via a GitHub App.")
    call.need("checks")


def _need_commit(call: Call, sha: str) -> None:
    if sha not in call.repository.commits:
        raise Refused(422, f"No commit found for SHA: {sha}")


def _check_run(run: SimpleNamespace) -> dict[str, Any]:
    return {name: value for name, value in vars(run).items() if name != "app"}


def list_check_runs(call: Call) -> Answer:
    """The check runs of a commit; of one name and App the latest."""
    wanted, name = call.parameters["ref"], call.query.get("check_name")
    found = [run for run in call.repository.check_runs if run.head_sha == wanted and name in (None, run.name)]
    latest = {(run.app, run.name, run.external_id): run for run in found}
    return call.page([_check_run(run) for run in latest.values()][::-1], within="check_runs")


def create_status(call: Call) -> Answer:
    call.need("statuses")
    sha = call.parameters["sha"]
    if not call.actor.is_integration and not call.repository.may_write(call.actor.user.login):
        raise Refused(404, "Not Found")
    _need_commit(call, sha)
    if len(call.body["description"]) > 140:
        raise Refused(422, "Validation Failed", "description is too long (maximum is 140 characters)")
    call.repository.statuses.append(SimpleNamespace(sha=sha, **call.body))
    return Answer(201, call.body)


def list_statuses(call: Call) -> Answer:
    found = [vars(each) for each in call.repository.statuses if each.sha == call.parameters["ref"]]
    return call.page([{name: value for name, value in each.items() if name != "sha"} for each in found[::-1]])


def get_installation(call: Call) -> Answer:
    _need_jwt(call)
    return Answer(200, {"id": 777, "app_id": _APP_ID})


def create_token(call: Call) -> Answer:
    _need_jwt(call)
    return Answer(201, {"token": call.identities.install(), "permissions": dict(PERMISSIONS)})


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
