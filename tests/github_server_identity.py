"""Who asks the GitHub server: its tokens, its App, and the routes about people and installations."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Literal

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.github_server_calls import NOT_ACCESSIBLE, Actor, Answer, Call, Handler, Refused, not_found
from tests.github_server_documents import WEB, private_user, repository, simple_user
from tests.github_server_remarks import app
from tests.github_server_world import Repository, World

Identity = Literal["user", "actions"]
PERMISSIONS = {
    "metadata": "read",
    "contents": "read",
    "issues": "write",
    "pull_requests": "write",
    "checks": "write",
    "statuses": "write",
}
"""What the tokens of Actions and of the App may do. Resolving a thread takes `contents: write` as well."""

_LONGEST_JWT_SECONDS = 600
_APP_ID = 4242
_INSTALLATION_ID = 777
_SLUG = "loupe-app"


@cache
def _private_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class Identities:
    """The tokens that are good here. `token` is the one of a person or of Actions; the App gets its own."""

    app_id = _APP_ID
    app_slug = _SLUG
    installation_id = _INSTALLATION_ID

    def __init__(self, world: World, identity: Identity) -> None:
        self.world = world
        self.identity = identity
        self.permissions: dict[str, str] = dict(PERMISSIONS)
        login = "reviewer" if identity == "user" else "github-actions[bot]"
        self.user = world.user(login)
        self.association = "COLLABORATOR" if identity == "user" else "NONE"
        self.token = self._new_token("ghp" if identity == "user" else "ghs")
        self._installed: dict[str, Actor] = {}

    @property
    def app_private_key(self) -> str:
        """The App's key as GitHub hands it out: PEM."""
        return (
            _private_key()
            .private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            )
            .decode()
        )

    def actor(self, headers: Mapping[str, str]) -> Actor:
        """Who asks. Raises Refused with GitHub's 401."""
        scheme, _, credential = headers.get("authorization", "").partition(" ")
        if not credential:
            raise Refused(401, "Requires authentication")
        if scheme.lower() not in ("token", "bearer"):
            raise Refused(401, "Bad credentials")
        if credential == self.token:
            return Actor(
                self.identity,
                self.user,
                self.association,
                self.permissions,
                "github-actions" if self.identity == "actions" else None,
            )
        if credential in self._installed:
            return self._installed[credential]
        if credential.count(".") == 2:
            _check_jwt(credential)
            return Actor("jwt", self.world.user(f"{_SLUG}[bot]"), "NONE", {}, _SLUG)
        raise Refused(401, "Bad credentials")

    def install(
        self, *, permissions: Mapping[str, str] | None = None, repositories: frozenset[str] | None = None
    ) -> str:
        """A new token of the App's installation, for all that it may or for less."""
        token, bot = self._new_token("ghs"), self.world.user(f"{_SLUG}[bot]")
        granted = self.permissions if permissions is None else {"metadata": "read", **permissions}
        self._installed[token] = Actor("app", bot, "NONE", granted, _SLUG, repositories)
        return token

    def expire(self) -> None:
        """Let every token of the installation run out."""
        self._installed.clear()

    def _new_token(self, prefix: str) -> str:
        return f"{prefix}_{secrets.token_hex(18)}"


def _check_jwt(credential: str) -> None:
    try:
        header = jwt.get_unverified_header(credential)
        claims = jwt.decode(
            credential, _private_key().public_key(), algorithms=["RS256"], options={"verify_iss": False}
        )
    except jwt.ExpiredSignatureError as error:
        raise Refused(401, "'Expiration time' claim ('exp') must be a numeric value representing the future") from error
    except jwt.PyJWTError as error:
        raise Refused(401, "A JSON web token could not be decoded") from error
    if header.get("alg") != "RS256" or str(claims.get("iss")) != str(_APP_ID):
        raise Refused(401, "A JSON web token could not be decoded")
    if "exp" not in claims:
        raise Refused(401, "Missing 'expiration time' claim ('exp') in assertion")
    if claims["exp"] > time.time() + _LONGEST_JWT_SECONDS:
        raise Refused(401, "'Expiration time' claim ('exp') is too far in the future")
    if "iat" not in claims:
        raise Refused(401, "Missing 'issued at' claim ('iat') in assertion")


def _need_jwt(call: Call) -> None:
    if call.actor.kind != "jwt":
        raise Refused(401, "A JSON web token could not be decoded")


def routes(identities: Identities) -> dict[tuple[str, str], Handler]:
    """The routes that need to know the tokens."""

    def get_user(call: Call) -> Answer:
        if call.actor.is_integration:
            raise Refused(403, NOT_ACCESSIBLE)
        return Answer(200, private_user(call.actor.user, call.url))

    def get_app(call: Call) -> Answer:
        _need_jwt(call)
        return Answer(200, app(_SLUG, identities.world.user("owner"), call.url, number=_APP_ID))

    def get_installation(call: Call) -> Answer:
        _need_jwt(call)
        if not call.repository.has_app:
            raise not_found()
        return Answer(200, _installation(call, identities))

    def create_token(call: Call) -> Answer:
        _need_jwt(call)
        if call.number("installation_id") != _INSTALLATION_ID:
            raise not_found()
        return Answer(201, _new_installation_token(call, identities))

    return {
        ("GET", "/user"): get_user,
        ("GET", "/app"): get_app,
        ("GET", "/repos/{owner}/{repo}/installation"): get_installation,
        ("POST", "/app/installations/{installation_id}/access_tokens"): create_token,
        ("GET", "/repos/{owner}/{repo}/collaborators/{username}/permission"): get_permission,
    }


def _new_installation_token(call: Call, identities: Identities) -> dict[str, Any]:
    """A token for what is asked for, or for all."""
    body = call.body or {}
    permissions = body.get("permissions", identities.permissions)
    for name, wanted in permissions.items():
        if identities.permissions.get(name) not in (wanted, "write"):
            raise Refused(422, "The permissions requested are not granted to this installation.")
    selected = _selected(call.world, body.get("repositories"), body.get("repository_ids"))
    names = None if selected is None else frozenset(repo.full_name for repo in selected)
    expires = datetime.now(UTC) + timedelta(hours=1)
    document: dict[str, Any] = {
        "token": identities.install(permissions=body.get("permissions"), repositories=names),
        "expires_at": expires.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "permissions": dict(permissions),
        "repository_selection": "all" if selected is None else "selected",
    }
    if selected is not None:
        document["repositories"] = [repository(repo, call.url) for repo in selected]
    return document


def _selected(world: World, names: list[str] | None, ids: list[int] | None) -> list[Repository] | None:
    if names is None and ids is None:
        return None
    known = [repo for repo in world.repositories.values() if repo.has_app]
    found = [repo for repo in known if repo.name in (names or ()) or repo.id in (ids or ())]
    if len(found) < len(names or ()) + len(ids or ()):
        words = "There is at least one repository that does not exist or is not accessible to the parent installation."
        raise Refused(422, words)
    return found


def _installation(call: Call, identities: Identities) -> dict[str, Any]:
    repo = call.repository
    return {
        "id": _INSTALLATION_ID,
        "account": simple_user(repo.owner, call.url),
        "repository_selection": "all",
        "access_tokens_url": f"{call.url}/app/installations/{_INSTALLATION_ID}/access_tokens",
        "repositories_url": f"{call.url}/installation/repositories",
        "html_url": f"{WEB}/settings/installations/{_INSTALLATION_ID}",
        "app_id": _APP_ID,
        "app_slug": _SLUG,
        "target_id": repo.owner.id,
        "target_type": "User",
        "permissions": dict(identities.permissions),
        "events": [],
        "created_at": "2020-01-01T00:00:00Z",
        "updated_at": "2020-01-01T00:00:00Z",
        "single_file_name": None,
        "suspended_by": None,
        "suspended_at": None,
    }


def get_permission(call: Call) -> Answer:
    """What somebody may do in a repository; `maintain` and `triage` show only in the role."""
    repo, login = call.repository, call.parameters["username"]
    known = next((user for user in call.world.users.values() if user.login.lower() == login.lower()), None)
    if known is None:
        raise Refused(404, f"{login} is not a user")
    role = repo.permission_of(known.login)
    permission = {"maintain": "write", "triage": "read"}.get(role, role)
    rights = ("pull", "triage", "push", "maintain", "admin")
    rank = {"none": 0, "read": 1, "triage": 2, "write": 3, "maintain": 4, "admin": 5}[role]
    user = {
        **simple_user(known, call.url),
        "permissions": {right: index < rank for index, right in enumerate(rights)},
        "role_name": role,
    }
    return Answer(200, {"permission": permission, "role_name": role, "user": user})
