"""GitHub as a forge: its requests, one method each, and how to connect. Every method raises ForgeError."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import quote

from msgspec.structs import replace

from codeloupe.errors import ForgeError, HeadMoved, UsageError, install_command
from codeloupe.forges.comments import check_summary, verdict_line
from codeloupe.forges.forge import Forge, Patience, Sending
from codeloupe.forges.github.address import Endpoints, Target
from codeloupe.forges.github.answers import PENDING, doing, query_failure
from codeloupe.forges.threads import Marker, SigningKey, own_threads, possible_maintainers
from codeloupe.model import Confidential
from codeloupe.model import publication as model
from codeloupe.model.publication import Opinion, PostedComment, StandingOpinion, Thread, ThreadComment

if TYPE_CHECKING:
    from codeloupe.forges.github.transport import GitHubTransport

_NAME = "codeloupe"
_PULL_REQUESTS, _READING = "pull-requests: write", "pull-requests: read"
_CHECKS, _STATUSES = "checks: write", "statuses: write"
_EXTERNAL_ID = "codeloupe publish"
_Item = TypeVar("_Item")
_MERGE_HINT = (
    "the review is for GitHub's test merge commit; review the head instead: in GitHub Actions, set the ref of"
    " actions/checkout to github.event.pull_request.head.sha"
)
_MOST_PAGES = 60
_MOST_PEOPLE = 50
_OPINIONS = {"APPROVED": Opinion.APPROVE, "CHANGES_REQUESTED": Opinion.REQUEST_CHANGES}


class _GitHub:
    """One pull request on GitHub; the methods of `Forge`."""

    forge = "GitHub"

    def __init__(self, transport: GitHubTransport, *, graphql_url: str, name: model.PullRequestName) -> None:
        self._transport, self._graphql_url, self._name = transport, graphql_url, name
        self._repository = f"/repos/{name.owner}/{name.repository}"
        self._pull = f"{self._repository}/pulls/{name.number}"

    async def read(self, key: SigningKey) -> model.PullRequest:
        found = await self.read_head()
        with doing(f"read the files of {self._name}", _READING):
            # GitHub gives three thousand at most.
            listed = await self._listed(f"{self._pull}/files?per_page=100")
            texts = [(str(each.get("filename", "")), each.get("patch")) for each in listed]
        threads = await self.read_threads()
        ours = own_threads(threads, Marker(key, found.repository_id, found.name.number))
        people = possible_maintainers(own.thread for own in ours)
        return replace(
            found,
            files={path: patch if isinstance(patch, str) else None for path, patch in texts},
            comments=await self.read_comments(),
            threads=threads,
            opinions=await self.read_opinions(),
            maintainers=frozenset([who for who in people[:_MOST_PEOPLE] if await self._may_write(who)]),
            unasked=len(people[_MOST_PEOPLE:]),
        )

    async def read_head(self) -> model.PullRequest:
        with doing(f"read {self._name}", _READING):
            document = _document(await self._transport.getitem(self._pull))
            return model.PullRequest(
                name=self._name,
                repository_id=int(document["base"]["repo"]["id"]),
                head=str(document["head"]["sha"]),
                is_open=document["state"] == "open",
                changed_files=int(document["changed_files"]),
                commits=int(document["commits"]),
                merge_commit=document.get("merge_commit_sha"),
                forge=self.forge,
                merge_hint=_MERGE_HINT,
            )

    async def _may_write(self, login: str) -> bool:
        """Whether somebody may write to the repository. Of whom that cannot be known, it is not believed."""
        try:
            with doing(f"read the permissions of {login}", "metadata: read"):
                path = f"{self._repository}/collaborators/{quote(login, safe='')}/permission"
                permission = _document(await self._transport.getitem(path))["permission"]
        except ForgeError as error:
            if error.status not in (403, 404):
                raise
            return False
        return str(permission) in ("admin", "maintain", "write")

    async def read_comments(self) -> tuple[PostedComment, ...]:
        return await self._all("Comments", "comments", _posted)

    async def read_opinions(self) -> tuple[StandingOpinion, ...]:
        return tuple(each for each in await self._all("Reviews", "reviews", _opinion) if each is not None)

    async def read_threads(self) -> tuple[Thread, ...]:
        threads: list[Thread] = []
        for thread, after in await self._all("Threads", "reviewThreads", _thread):
            if after:
                variables = {"thread": thread.thread_id, "after": after}
                more = await self._pages("MoreOfThread", ("node", "comments"), _thread_comment, variables)
                thread = replace(thread, comments=(*thread.comments, *more))  # noqa: PLW2901 - the same, whole
            threads.append(thread)
        return tuple(threads)

    async def _all(self, query: str, field: str, read: Callable[[Any, str], _Item]) -> tuple[_Item, ...]:
        name = self._name
        variables = {"owner": name.owner, "name": name.repository, "number": name.number}
        return await self._pages(query, ("repository", "pullRequest", field), read, variables)

    async def _pages(
        self, query: str, path: Sequence[str], read: Callable[[Any, str], _Item], variables: dict[str, Any]
    ) -> tuple[_Item, ...]:
        what = f"read the comments on {self._name}"
        found: list[_Item] = []
        with doing(what, _READING):
            for _ in range(_MOST_PAGES):
                page = answer = await self._graphql(query, variables)
                for key in path:
                    page = page[key]
                found += [read(node, str(answer["viewer"]["login"])) for node in page["nodes"] if node is not None]
                if (after := _next_page(page)) is None:
                    return tuple(found)
                variables = {**variables, "after": after}
        raise ForgeError(f"could not {what}: there are too many", hint="open a new pull request for the change")

    async def post_comment(self, body: str) -> PostedComment:
        with doing("post the summary", _PULL_REQUESTS):
            path = f"{self._repository}/issues/{self._name.number}/comments"
            made = _document(await self._transport.post(path, data={"body": body}))
            url = str(made.get("html_url", ""))
            return PostedComment(comment_id=int(made["id"]), body=body, is_ours=True, url=url)

    async def edit_comment(self, comment_id: int, body: str) -> None:
        with doing("update the summary", _PULL_REQUESTS):
            await self._transport.patch(f"{self._repository}/issues/comments/{comment_id}", data={"body": body})

    async def delete_comment(self, comment_id: int, *, on_line: bool) -> None:
        try:
            with doing("delete a duplicate comment", _PULL_REQUESTS):
                kind = "pulls" if on_line else "issues"
                await self._transport.delete(f"{self._repository}/{kind}/comments/{comment_id}")
        except ForgeError as error:
            if error.status != 404:
                raise

    async def post_review(
        self, head: str, body: str, opinion: Opinion, comments: Sequence[model.InlineComment]
    ) -> None:
        listed = [
            {"path": one.path, "line": one.line, "side": "RIGHT", "body": one.body}
            | ({} if one.start_line is None else {"start_line": one.start_line, "start_side": "RIGHT"})
            for one in comments
        ]
        data = {"commit_id": head, "body": body, "event": opinion.value, "comments": listed}
        with doing("post comments", _PULL_REQUESTS):
            await self._transport.post(f"{self._pull}/reviews", data=data)

    def is_place_refused(self, error: ForgeError) -> bool:
        # GitHub does not take a line that the diff has not, nor two pending reviews of one account.
        return error.status == 422 and PENDING not in error.message.lower()

    async def withdraw_review(self, review_id: int, message: str) -> None:
        with doing("withdraw an earlier review", _PULL_REQUESTS):
            data = {"message": message, "event": "DISMISS"}
            await self._transport.put(f"{self._pull}/reviews/{review_id}/dismissals", data=data)

    async def reply(self, comment_id: int, body: str) -> None:
        with doing("reply in a thread", _PULL_REQUESTS):
            await self._transport.post(f"{self._pull}/comments/{comment_id}/replies", data={"body": body})

    async def set_resolved(self, thread_id: str, *, resolved: bool) -> None:
        what = "resolve a thread" if resolved else "reopen a thread"
        with doing(what, f"contents: write and {_PULL_REQUESTS}, or use --no-resolve"):
            await self._graphql("Resolve" if resolved else "Unresolve", {"thread": thread_id})

    async def set_status(self, plan: model.Plan, sending: Sending) -> None:
        is_check = plan.options.status is model.StatusKind.CHECK
        await (self._set_check(plan, sending) if is_check else self._set_commit_status(plan, sending))

    async def _set_check(self, plan: model.Plan, sending: Sending) -> None:
        head, runs = plan.pull_request.head, f"{self._repository}/check-runs"
        run: dict[str, Any] = {
            "name": _NAME,
            "status": "completed",
            "conclusion": plan.conclusion.value,
            "external_id": _EXTERNAL_ID,
            "output": {"title": verdict_line(plan.review, 200), "summary": check_summary(plan.review)},
        }

        async def own_runs() -> list[int]:
            with doing("read the checks", _CHECKS):
                path = f"{self._repository}/commits/{head}/check-runs?check_name={_NAME}&per_page=100"
                found = await self._listed(path, within="check_runs")
                return [int(each["id"]) for each in found if each.get("external_id") == _EXTERNAL_ID]

        async def make() -> None:
            with doing(
                "create a check run", f"{_CHECKS}, which only Actions and Apps can have; otherwise use --status commit"
            ):
                await self._transport.post(runs, data={**run, "head_sha": head})

        if not (known := await own_runs()):
            await sending.once(make, own_runs)
            return
        await sending.breathe()
        with doing("update the check run", _CHECKS):
            await self._transport.patch(f"{runs}/{known[0]}", data=run)

    async def _set_commit_status(self, plan: model.Plan, sending: Sending) -> None:
        head, state = plan.pull_request.head, plan.conclusion.value
        if plan.conclusion is model.Conclusion.NEUTRAL:
            # A commit status knows no neutral: what could not be reviewed is an error, unless the policy lets it pass.
            state = "success" if plan.review.passed else "error"
        # GitHub cuts a description at 140 characters, and refuses a longer one.
        data = {"state": state, "context": _NAME, "description": verdict_line(plan.review, 140)}

        async def make() -> None:
            with doing("set the commit's status", _STATUSES):
                await self._transport.post(f"{self._repository}/statuses/{head}", data=data)

        async def is_done() -> bool:
            """Whether the newest status of ours says the same."""
            with doing("read the commit's statuses", _STATUSES):
                path = f"{self._repository}/commits/{head}/statuses?per_page=100"
                found = [_document(each) for each in await self._transport.getitem(path)]
            newest = next((each for each in found if each.get("context") == _NAME), None)
            return newest is not None and all(newest.get(name) == value for name, value in data.items())

        if not await is_done():
            await sending.once(make, is_done)

    async def _listed(self, path: str, *, within: str = "items") -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = []
        async for each in self._transport.getiter(path, iterable_key=within):
            found.append(_document(each))
            if len(found) >= 10_000:
                break
        return found

    async def _graphql(self, name: str, variables: Mapping[str, Any]) -> Mapping[str, Any]:
        text = Path(__file__).with_name("queries.graphql").read_text(encoding="utf-8")
        data = {"query": text, "operationName": name, "variables": dict(variables)}
        answer = _document(await self._transport.post(self._graphql_url, data=data))
        if (failure := query_failure(answer.get("errors"))) is not None:
            raise failure
        return _document(answer["data"])


def _document(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("no object")
    return value


def _next_page(page: Mapping[str, Any]) -> str | None:
    return page["pageInfo"]["endCursor"] if page["pageInfo"]["hasNextPage"] else None


def _is_ours(node: Mapping[str, Any], viewer: str) -> bool:
    """Whether the token's own account wrote it. GraphQL names a bot by its whole name as the viewer alone."""
    author = node["author"] or {}
    ending = "[bot]" if author.get("__typename") == "Bot" else ""
    return node["viewerDidAuthor"] is True or f"{author.get('login', '')}{ending}" == viewer


def _posted(node: Mapping[str, Any], viewer: str) -> PostedComment:
    comment_id, body, url = int(node["fullDatabaseId"]), str(node["body"]), str(node["url"])
    return PostedComment(comment_id=comment_id, body=body, is_ours=_is_ours(node, viewer), url=url)


def _opinion(node: Mapping[str, Any], viewer: str) -> StandingOpinion | None:
    opinion, commit = _OPINIONS.get(node["state"]), node["commit"] or {}
    if opinion is None or not _is_ours(node, viewer):
        return None
    return StandingOpinion(review_id=int(node["fullDatabaseId"]), opinion=opinion, head=str(commit.get("oid", "")))


def _thread(node: Mapping[str, Any], viewer: str) -> tuple[Thread, str | None]:
    page = node["comments"]
    thread = Thread(
        thread_id=str(node["id"]),
        path=str(node["path"]),
        is_resolved=node["isResolved"] is True,
        comments=tuple(_thread_comment(each, viewer) for each in page["nodes"] if each is not None),
    )
    return thread, _next_page(page)


def _thread_comment(node: Mapping[str, Any], viewer: str) -> ThreadComment:
    author = node["author"] or {}
    reactions = node["reactions"]["nodes"] or ()
    users = [each["user"] for each in reactions if each is not None]
    return ThreadComment(
        comment_id=int(node["fullDatabaseId"]),
        body=str(node["body"]),
        is_ours=_is_ours(node, viewer),
        # GraphQL names a bot without its ending, so that it could be taken for a person of that name.
        author=str(author.get("login", "")) if author.get("__typename") == "User" else "",
        association=str(node["authorAssociation"]),
        disliked_by=tuple(str(user["login"]) for user in users if user is not None),
    )


class Login(Confidential, frozen=True, kw_only=True):
    """A token of a person, of GitHub Actions or of an App; or a GitHub App, by its id and its private key."""

    token: str = ""
    app_id: str = ""
    private_key: str = ""

    @property
    def is_installation(self) -> bool:
        """Whether it is that of an App or of Actions, which may make check runs."""
        return bool(self.app_id) or self.token.startswith("ghs_")


@asynccontextmanager
async def connected(endpoints: Endpoints, login: Login, *, target: Target, patience: Patience) -> AsyncIterator[Forge]:
    """A client, whose connections are closed at the end. Raises UsageError without the extra, and ForgeError.

    `target` must have been checked; one without a number is looked up by its branch.
    """
    transport = _load()
    token = login.token
    if login.app_id:
        async with transport.opened(endpoints, None, patience=patience) as api:
            token = await _installation_token(api, transport.app_proof(login.app_id, login.private_key), target)
    async with transport.opened(endpoints, token, patience=patience) as api:
        number = target.number if target.number is not None else await _number(api, target)
        name = model.PullRequestName(target.owner, target.repository, number)
        yield _GitHub(api, graphql_url=endpoints.graphql, name=name)


def _load() -> Any:
    try:
        import codeloupe.forges.github.transport as transport  # noqa: PLC0415, PLR0402 - it needs the packages of an extra
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if missing == "codeloupe":
            raise
        raise UsageError(
            f"publishing needs the package {missing}, which is not installed", hint=install_command("github")
        ) from error
    return transport


async def _number(api: GitHubTransport, target: Target) -> int:
    with doing(f"find the pull request of {target.branch}", _READING):
        path = f"/repos/{target.owner}/{target.repository}/pulls?state=open&per_page=100&head={quote(target.branch)}"
        found = [int(each["number"]) for each in await api.getitem(path) if each["head"]["sha"] == target.head]
    if not found:
        what = f"no open pull request of {target.branch} is at {target.head[:12]}; nothing was posted"
        raise HeadMoved(what, hint="there may be newer commits, which another run reviews")
    return found[0]


async def _installation_token(api: GitHubTransport, proof: str, target: Target) -> str:
    repository = f"{target.owner}/{target.repository}"
    with doing(f"log in as the GitHub App on {repository}", "an installation of the App there"):
        installation = await api.getitem(f"/repos/{repository}/installation", jwt=proof)
        path = f"/app/installations/{int(installation['id'])}/access_tokens"
        answer = await api.post(path, data={"repositories": [target.repository]}, jwt=proof)
        return cast("str", answer["token"])
