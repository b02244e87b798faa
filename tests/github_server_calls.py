"""One request to the GitHub server as its handlers see it, and what they answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar
from urllib.parse import urlencode

from tests.github_server_records import User
from tests.github_server_world import PullRequest, Repository, World

Kind = Literal["user", "actions", "app", "jwt"]
Thing = TypeVar("Thing")

DOCUMENTATION = "https://docs.github.com/rest"
NOT_ACCESSIBLE = "Resource not accessible by integration"
_DEFAULT_PAGE = 30
_LARGEST_PAGE = 100


@dataclass(frozen=True, slots=True)
class Actor:
    """Who asks. `permissions` bind the tokens of integrations: those of Actions and of Apps.

    `repositories` are the only ones that a token is for; None is all.
    """

    kind: Kind
    user: User
    association: str
    permissions: Mapping[str, str] = field(default_factory=dict)
    app_slug: str | None = None
    repositories: frozenset[str] | None = None

    @property
    def is_integration(self) -> bool:
        return self.kind in ("actions", "app")

    def sees(self, repository: Repository) -> bool:
        """Whether the token is for a repository, and its user may know of it."""
        if self.kind == "user" and repository.permission_of(self.user.login) == "none":
            return not repository.private
        return self.repositories is None or repository.full_name in self.repositories

    def may_write(self, permission: str) -> bool:
        """Whether the token may change things of a kind."""
        return not self.is_integration or self.permissions.get(permission) == "write"


class Heeded(dict[str, Any]):
    """What a request says, and what of it a handler looked at: what nobody looks at would be lost without a word."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self._unseen = set(values)

    @property
    def unheeded(self) -> list[str]:
        """The names that were not looked at."""
        return sorted(self._unseen)

    def heed_all(self) -> None:
        """Say that all of it is looked at elsewhere, or that GitHub itself looks at none of it."""
        self._unseen.clear()

    def __getitem__(self, name: str) -> Any:
        self._unseen.discard(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self._unseen.discard(str(name))
        return super().__contains__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self._unseen.discard(name)
        return super().get(name, default)


class Refused(Exception):
    """GitHub's no: a status, a message, and what it found."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        errors: Sequence[Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or {}
        self.document: dict[str, Any] = {"message": message, "documentation_url": DOCUMENTATION, "status": str(status)}
        if errors is not None:
            self.document["errors"] = list(errors)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer: a document, or a text with its media type."""

    status: int
    document: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    media_type: str = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request that was found in the description."""

    world: World
    actor: Actor
    url: str
    path: str
    parameters: Mapping[str, str]
    query: Heeded
    body: Any
    accept: str

    @property
    def repository(self) -> Repository:
        """The repository of the path. Raises Refused."""
        found = self.world.find_repository(self.parameters["owner"], self.parameters["repo"])
        if found is None or not self.actor.sees(found):
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

    def number(self, name: str) -> int:
        """A number in the path. Raises Refused."""
        if not self.parameters[name].isdecimal():
            raise Refused(404, "Not Found")
        return int(self.parameters[name])

    def need(self, *permissions: str) -> None:
        """Raises Refused when the token may write things of none of these kinds; GitHub names them in a header."""
        if not any(self.actor.may_write(permission) for permission in permissions):
            accepted = "; ".join(f"{permission}=write" for permission in permissions)
            raise Refused(403, NOT_ACCESSIBLE, headers={"x-accepted-github-permissions": accepted})

    def page(self, items: Sequence[Thing], render: Callable[[Thing], Any], *, within: str | None = None) -> Answer:
        """One page of a list with its links; `within` is the field of a document that also has the total."""
        size = min(int(self.query.get("per_page", _DEFAULT_PAGE)), _LARGEST_PAGE)
        number = int(self.query.get("page", 1))
        shown = [render(item) for item in items[(number - 1) * size : number * size]]
        document = shown if within is None else {"total_count": len(items), within: shown}
        links = self._links(number, last=-(-len(items) // size))
        return Answer(200, document, {"link": links} if links else {})

    def _links(self, number: int, *, last: int) -> str:
        pages: list[tuple[str, int]] = []
        if number > 1:
            pages += [("prev", number - 1), ("first", 1)]
        if number < last:
            pages += [("next", number + 1), ("last", last)]
        query = dict(self.query.items())
        return ", ".join(
            f'<{self.url}{self._own_path()}?{urlencode({**query, "page": page})}>; rel="{relation}"'
            for relation, page in pages
        )

    def _own_path(self) -> str:
        """The path by which GitHub links: a repository by its number."""
        if "owner" not in self.parameters:
            return self.path
        return "/".join(["", "repositories", str(self.repository.id), *self.path.split("/")[4:]])


Handler = Callable[[Call], Answer]


def not_found() -> Refused:
    """What GitHub says of everything that is not there, or not to be seen."""
    return Refused(404, "Not Found")


def invalid(resource: str, field_name: str, message: str | None = None, *, code: str = "custom") -> Refused:
    """GitHub's 422 with one field that it names."""
    error = {"resource": resource, "field": field_name, "code": code}
    return Refused(422, "Validation Failed", errors=[error if message is None else {**error, "message": message}])
