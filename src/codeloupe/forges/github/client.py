"""The requests that we make of GitHub, one method each. Every one raises ForgeError in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from codeloupe.errors import ForgeError
from codeloupe.forges.github.failures import (
    CHECKS,
    CONTENTS,
    PULL_REQUESTS,
    READING,
    STATUSES,
    BadAnswer,
    Doing,
    explained,
    query_failure,
)
from codeloupe.model.publication import PullRequestName

if TYPE_CHECKING:
    from codeloupe.forges.github.transport import GitHubTransport

Document = Mapping[str, Any]
_MOST_PAGES = 100
_NOT_THERE = 404
_RESOLVE = "mutation($thread: ID!) { resolveReviewThread(input: {threadId: $thread}) { thread { isResolved } } }"
_UNRESOLVE = "mutation($thread: ID!) { unresolveReviewThread(input: {threadId: $thread}) { thread { isResolved } } }"


class GitHubClient:
    """One pull request on GitHub."""

    def __init__(self, transport: GitHubTransport, *, graphql_url: str, name: PullRequestName) -> None:
        self._transport = transport
        self._graphql_url = graphql_url
        self.name = name
        self._repository = f"/repos/{name.owner}/{name.repository}"
        self._pull = f"{self._repository}/pulls/{name.number}"

    async def pull_request(self) -> Document:
        """The pull request itself."""
        with _doing(f"read {self.name}", READING):
            return _document(await self._transport.getitem(self._pull))

    async def files(self) -> list[Document]:
        """Its files with their patches; GitHub gives three thousand at most."""
        with _doing(f"read the files of {self.name}", READING):
            return await self._listed(f"{self._pull}/files?per_page=100")

    async def permission(self, login: str) -> str:
        """What somebody may do with the repository: admin, write, read or none."""
        with _doing(f"ask for the rights of {login}", "metadata: read"):
            path = f"{self._repository}/collaborators/{quote(login, safe='')}/permission"
            return str(_document(await self._transport.getitem(path))["permission"])

    async def query(self, text: str, *, what: str, **variables: Any) -> Document:
        """Ask GraphQL. What it says beside the data is an error too: half an answer is none."""
        return await self._graphql(text, Doing(what, READING), variables)

    async def post_comment(self, body: str) -> Document:
        """Comment on the whole. May raise ForgeUncertain."""
        with _doing("post the summary", PULL_REQUESTS):
            path = f"{self._repository}/issues/{self.name.number}/comments"
            return _document(await self._transport.post(path, data={"body": body}))

    async def edit_comment(self, comment_id: int, body: str) -> Document:
        """Change a comment of ours on the whole."""
        with _doing("change the summary", PULL_REQUESTS):
            path = f"{self._repository}/issues/comments/{comment_id}"
            return _document(await self._transport.patch(path, data={"body": body}))

    async def delete_comment(self, comment_id: int) -> None:
        """Delete a comment of ours on the whole; one that is gone already is no error."""
        await self._delete("a summary that is there twice", f"issues/comments/{comment_id}")

    async def post_review(self, review: Document) -> Document:
        """Post a review with its comments. May raise ForgeUncertain; status 422 is a place that the diff has not."""
        with _doing("post comments", PULL_REQUESTS):
            return _document(await self._transport.post(f"{self._pull}/reviews", data=dict(review)))

    async def withdraw_review(self, review_id: int, message: str) -> None:
        """Dismiss a review of ours."""
        with _doing("withdraw an earlier review", PULL_REQUESTS):
            data = {"message": message, "event": "DISMISS"}
            await self._transport.put(f"{self._pull}/reviews/{review_id}/dismissals", data=data)

    async def reply(self, comment_id: int, body: str) -> None:
        """Answer in a thread. May raise ForgeUncertain."""
        with _doing("answer in a thread", PULL_REQUESTS):
            await self._transport.post(f"{self._pull}/comments/{comment_id}/replies", data={"body": body})

    async def delete_review_comment(self, comment_id: int) -> None:
        """Delete a comment of ours on a line; one that is gone already is no error."""
        await self._delete("a comment that is there twice", f"pulls/comments/{comment_id}")

    async def _delete(self, what: str, path: str) -> None:
        try:
            with _doing(f"delete {what}", PULL_REQUESTS):
                await self._transport.delete(f"{self._repository}/{path}")
        except ForgeError as error:
            if error.status != _NOT_THERE:
                raise

    async def set_resolved(self, thread_id: str, *, resolved: bool) -> None:
        """Resolve a thread, or open it again."""
        doing = Doing(
            "resolve a thread" if resolved else "open a thread again",
            f"{CONTENTS} and {PULL_REQUESTS}, or say --no-resolve",
        )
        await self._graphql(_RESOLVE if resolved else _UNRESOLVE, doing, {"thread": thread_id})

    async def check_runs(self, head: str, check_name: str) -> list[Document]:
        """The check runs of a commit with a name."""
        with _doing("read the checks", CHECKS):
            path = f"{self._repository}/commits/{head}/check-runs?check_name={quote(check_name)}&per_page=100"
            return await self._listed(path, within="check_runs")

    async def post_check_run(self, run: Document) -> None:
        """Make a check run. May raise ForgeUncertain."""
        with _doing("make a check run", f"{CHECKS}, which only Actions and Apps can have: else --status commit"):
            await self._transport.post(f"{self._repository}/check-runs", data=dict(run))

    async def edit_check_run(self, run_id: int, run: Document) -> None:
        """Change a check run of ours."""
        with _doing("change the check run", CHECKS):
            await self._transport.patch(f"{self._repository}/check-runs/{run_id}", data=dict(run))

    async def statuses(self, head: str) -> list[Document]:
        """The newest statuses of a commit."""
        with _doing("read the commit's statuses", STATUSES):
            found = await self._transport.getitem(f"{self._repository}/commits/{head}/statuses?per_page=100")
            return [_document(each) for each in found]

    async def post_status(self, head: str, status: Document) -> None:
        """Set a commit status. May raise ForgeUncertain."""
        with _doing("set the commit's status", STATUSES):
            await self._transport.post(f"{self._repository}/statuses/{head}", data=dict(status))

    async def _listed(self, path: str, *, within: str = "items") -> list[Document]:
        found: list[Document] = []
        async for each in self._transport.getiter(path, iterable_key=within):
            found.append(_document(each))
            if len(found) >= _MOST_PAGES * 100:
                break
        return found

    async def _graphql(self, text: str, doing: Doing, variables: Mapping[str, Any]) -> Document:
        with _doing(doing.what, doing.permission):
            data = {"query": text, "variables": dict(variables)}
            answer = _document(await self._transport.post(self._graphql_url, data=data))
            if answer.get("errors"):
                raise query_failure(answer["errors"], doing)
            return _document(answer["data"])


def _document(value: Any) -> Document:
    if not isinstance(value, dict):
        raise TypeError("no object")
    return value


@contextmanager
def _doing(what: str, permission: str) -> Iterator[None]:
    """Turn what goes wrong inside into a ForgeError that says what was being done."""
    try:
        yield
    except BadAnswer as answer:
        raise explained(answer, Doing(what, permission)) from answer
    except (KeyError, TypeError, ValueError, LookupError, AttributeError, RecursionError) as error:
        raise unreadable(what, error) from error


def unreadable(what: str, error: Exception) -> ForgeError:
    """The error for an answer in another form than GitHub describes."""
    return ForgeError(
        f"could not {what}: an answer of GitHub has another form ({type(error).__name__})",
        hint="look whether GITHUB_API_URL is the address of GitHub's API",
    )
