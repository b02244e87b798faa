"""A client for one pull request: gidgethub loaded, and the token of a person, of Actions or of a GitHub App at hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from codeloupe.errors import HeadMoved, UsageError, install_command
from codeloupe.forges.forge import Patience
from codeloupe.forges.github.address import Endpoints, Target
from codeloupe.forges.github.answers import READING
from codeloupe.forges.github.client import GitHubClient, doing
from codeloupe.model import Confidential
from codeloupe.model.publication import PullRequestName

if TYPE_CHECKING:
    from codeloupe.forges.github.transport import GitHubTransport


class TokenLogin(Confidential, frozen=True):
    """A token of a person, of GitHub Actions, or one that an App was given elsewhere."""

    token: str

    @property
    def is_installation(self) -> bool:
        """Whether it is that of an App or of Actions, which may make check runs."""
        return self.token.startswith("ghs_")


class AppLogin(Confidential, frozen=True):
    """A GitHub App, by its id and its private key."""

    app_id: str
    private_key: str

    is_installation = True


Login = TokenLogin | AppLogin


@asynccontextmanager
async def connected(
    endpoints: Endpoints, login: Login, *, target: Target, patience: Patience
) -> AsyncIterator[GitHubClient]:
    """A client, whose connections are closed at the end. Raises UsageError without the extra, and ForgeError.

    `target` must have been checked; one without a number is looked up by its branch.
    """
    transport = _load()
    token = login.token if isinstance(login, TokenLogin) else None
    if isinstance(login, AppLogin):
        async with transport.opened(endpoints, None, patience=patience) as api:
            token = await _installation_token(api, transport.app_proof(login.app_id, login.private_key), target)
    async with transport.opened(endpoints, token, patience=patience) as api:
        number = target.number if target.number is not None else await _number(api, target)
        name = PullRequestName(target.owner, target.repository, number)
        yield GitHubClient(api, graphql_url=endpoints.graphql, name=name)


def _load() -> Any:
    try:
        import codeloupe.forges.github.transport as transport  # noqa: PLC0415, PLR0402 - it needs the packages of an extra
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if missing == "codeloupe":
            raise
        raise UsageError(
            f"to publish, the package {missing} is needed, and it is not installed", hint=install_command("github")
        ) from error
    return transport


async def _number(api: GitHubTransport, target: Target) -> int:
    """The open pull request of a branch that is at a commit."""
    with doing(f"look for the pull request of {target.branch}", READING):
        path = f"/repos/{target.owner}/{target.repository}/pulls?state=open&per_page=100&head={quote(target.branch)}"
        found = [int(each["number"]) for each in await api.getitem(path) if each["head"]["sha"] == target.head]
    if not found:
        raise HeadMoved(
            f"no open pull request of {target.branch} is at {target.head[:12]}; nothing was posted",
            hint="there may be newer commits, with a run of their own",
        )
    return found[0]


async def _installation_token(api: GitHubTransport, proof: str, target: Target) -> str:
    """A token for this repository alone."""
    repository = f"{target.owner}/{target.repository}"
    with doing(f"log in as the GitHub App on {repository}", "an installation of the App there"):
        installation = await api.getitem(f"/repos/{repository}/installation", jwt=proof)
        path = f"/app/installations/{int(installation['id'])}/access_tokens"
        answer = await api.post(path, data={"repositories": [target.repository]}, jwt=proof)
        return cast("str", answer["token"])
