"""GitHub as a forge: its requests, one method each, and how to connect. Every method raises ForgeError."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import quote

from msgspec.structs import replace

from codeloupe.errors import ForgeError, HeadMoved, UsageError, install_command
from codeloupe.forges.forge import Patience, Sending, Status
from codeloupe.forges.github.address import Endpoints, Target
from codeloupe.forges.github.answers import (
    CHECKS,
    CONTENTS,
    PENDING,
    PULL_REQUESTS,
    READING,
    STATUSES,
    BadAnswer,
    Doing,
    explained,
    query_failure,
)
from codeloupe.forges.marker import Marker, SigningKey
from codeloupe.forges.threads import own_threads, possible_maintainers
from codeloupe.model import Confidential
from codeloupe.model.publication import (
    ChangedFile,
    Conclusion,
    InlineComment,
    Opinion,
    PostedComment,
    PullRequest,
    PullRequestName,
    StandingOpinion,
    StatusKind,
    Thread,
    ThreadComment,
)

if TYPE_CHECKING:
    from codeloupe.forges.github.transport import GitHubTransport

Document = Mapping[str, Any]
_NAME = "codeloupe"
_EXTERNAL_ID = "codeloupe publish"
_RESOLVE = "mutation($thread: ID!) { resolveReviewThread(input: {threadId: $thread}) { thread { isResolved } } }"
_UNRESOLVE = "mutation($thread: ID!) { unresolveReviewThread(input: {threadId: $thread}) { thread { isResolved } } }"
_Item = TypeVar("_Item")
_MOST_PAGES = 60
_MOST_PEOPLE = 50
_OPINIONS = {"APPROVED": Opinion.APPROVE, "CHANGES_REQUESTED": Opinion.REQUEST_CHANGES}
_PAGE = "pageInfo { hasNextPage endCursor }"
_AUTHOR = "viewerDidAuthor author { __typename login }"
_COMMENT_FIELDS = f"""
  fullDatabaseId body authorAssociation {_AUTHOR}
  reactions(first: 100, content: THUMBS_DOWN) {{ nodes {{ user {{ login }} }} }}
"""
_OF_PULL_REQUEST = """
query($owner: String!, $name: String!, $number: Int!, $after: String) {
  viewer { login }
  repository(owner: $owner, name: $name) { pullRequest(number: $number) { %s } }
}"""
_COMMENTS = (
    _OF_PULL_REQUEST
    % f"comments(first: 100, after: $after) {{ {_PAGE} nodes {{ fullDatabaseId body url {_AUTHOR} }} }}"
)
_THREADS = (
    _OF_PULL_REQUEST
    % f"""
  reviewThreads(first: 30, after: $after) {{ {_PAGE} nodes {{
    id path isResolved comments(first: 30) {{ {_PAGE} nodes {{ {_COMMENT_FIELDS} }} }}
  }} }}"""
)
_REVIEWS = (
    _OF_PULL_REQUEST
    % f"""
  reviews(first: 100, after: $after, states: [APPROVED, CHANGES_REQUESTED]) {{
    {_PAGE} nodes {{ fullDatabaseId state {_AUTHOR} commit {{ oid }} }}
  }}"""
)
_MORE_OF_THREAD = f"""
query($thread: ID!, $after: String) {{
  viewer {{ login }}
  node(id: $thread) {{ ... on PullRequestReviewThread {{
    comments(first: 100, after: $after) {{ {_PAGE} nodes {{ {_COMMENT_FIELDS} }} }}
  }} }}
}}"""


class GitHubClient:
    """One pull request on GitHub."""

    def __init__(self, transport: GitHubTransport, *, graphql_url: str, name: PullRequestName) -> None:
        self._transport = transport
        self._graphql_url = graphql_url
        self.name = name
        self._repository = f"/repos/{name.owner}/{name.repository}"
        self._pull = f"{self._repository}/pulls/{name.number}"

    async def read(self, key: SigningKey) -> PullRequest:
        """All that a plan needs. Raises ForgeError."""
        found = await self.read_head()
        with doing(f"read the files of {self.name}", READING):
            # GitHub gives three thousand at most.
            files = [_file(each) for each in await self._listed(f"{self._pull}/files?per_page=100")]
        threads = await self.read_threads()
        comments, opinions = await self.read_comments(), await self.read_opinions()
        ours = own_threads(threads, Marker(key, found.repository_id, found.name.number))
        people = possible_maintainers(own.thread for own in ours)
        return replace(
            found,
            files=tuple(files),
            comments=comments,
            threads=threads,
            opinions=opinions,
            maintainers=frozenset([who for who in people[:_MOST_PEOPLE] if await self._may_write(who)]),
            unasked=len(people[_MOST_PEOPLE:]),
        )

    async def read_head(self) -> PullRequest:
        """What the pull request says of itself, without its files and comments."""
        with doing(f"read {self.name}", READING):
            document = _document(await self._transport.getitem(self._pull))
            return PullRequest(
                name=self.name,
                repository_id=int(document["base"]["repo"]["id"]),
                head=str(document["head"]["sha"]),
                is_open=document["state"] == "open",
                changed_files=int(document["changed_files"]),
                commits=int(document["commits"]),
                merge_commit=document.get("merge_commit_sha"),
            )

    async def _may_write(self, login: str) -> bool:
        """Whether somebody may write to the repository. Of whom that cannot be known, it is not believed."""
        try:
            with doing(f"ask for the rights of {login}", "metadata: read"):
                path = f"{self._repository}/collaborators/{quote(login, safe='')}/permission"
                permission = _document(await self._transport.getitem(path))["permission"]
        except ForgeError as error:
            if error.status not in (403, 404):
                raise
            return False
        return str(permission) in ("admin", "maintain", "write")

    async def read_comments(self) -> tuple[PostedComment, ...]:
        """The comments on the whole."""
        return await self._all(_COMMENTS, "comments", _posted)

    async def read_opinions(self) -> tuple[StandingOpinion, ...]:
        """Our own approvals and requests for changes that still hold."""
        found = await self._all(_REVIEWS, "reviews", _opinion)
        return tuple(each for each in found if each is not None)

    async def read_threads(self) -> tuple[Thread, ...]:
        """The threads on lines of the diff, each with all its comments."""
        threads: list[Thread] = []
        for thread, after in await self._all(_THREADS, "reviewThreads", _thread):
            more: tuple[ThreadComment, ...] = ()
            if after:
                variables = {"thread": thread.thread_id, "after": after}
                more = await self._pages(_MORE_OF_THREAD, ("node", "comments"), _thread_comment, variables)
            threads.append(replace(thread, comments=(*thread.comments, *more)))
        return tuple(threads)

    async def _all(self, text: str, field: str, read: Callable[[Any, str], _Item]) -> tuple[_Item, ...]:
        variables = {"owner": self.name.owner, "name": self.name.repository, "number": self.name.number, "after": None}
        return await self._pages(text, ("repository", "pullRequest", field), read, variables)

    async def _pages(
        self, text: str, path: Sequence[str], read: Callable[[Any, str], _Item], variables: dict[str, Any]
    ) -> tuple[_Item, ...]:
        what = f"read what was said on {self.name}"
        found: list[_Item] = []
        for _ in range(_MOST_PAGES):
            page = answer = await self._graphql(text, Doing(what, READING), variables)
            with doing(what, READING):
                for key in path:
                    page = page[key]
                found += [read(node, str(answer["viewer"]["login"])) for node in page["nodes"] if node is not None]
                after = page["pageInfo"]["endCursor"] if page["pageInfo"]["hasNextPage"] else None
                if after is None:
                    return tuple(found)
                variables = {**variables, "after": after}
        raise ForgeError(f"could not {what}: there is too much of it", hint="open another pull request for the change")

    async def post_comment(self, body: str) -> PostedComment:
        """Comment on the whole. May raise ForgeUncertain."""
        with doing("post the summary", PULL_REQUESTS):
            path = f"{self._repository}/issues/{self.name.number}/comments"
            made = _document(await self._transport.post(path, data={"body": body}))
            url = str(made.get("html_url", ""))
            return PostedComment(comment_id=int(made["id"]), body=body, is_ours=True, url=url)

    async def edit_comment(self, comment_id: int, body: str) -> None:
        """Change a comment of ours on the whole."""
        with doing("change the summary", PULL_REQUESTS):
            path = f"{self._repository}/issues/comments/{comment_id}"
            await self._transport.patch(path, data={"body": body})

    async def delete_comment(self, comment_id: int) -> None:
        """Delete a comment of ours on the whole; one that is gone already is no error."""
        await self._delete("a summary that is there twice", f"issues/comments/{comment_id}")

    async def delete_review_comment(self, comment_id: int) -> None:
        """Delete a comment of ours on a line; one that is gone already is no error."""
        await self._delete("a comment that is there twice", f"pulls/comments/{comment_id}")

    async def _delete(self, what: str, path: str) -> None:
        try:
            with doing(f"delete {what}", PULL_REQUESTS):
                await self._transport.delete(f"{self._repository}/{path}")
        except ForgeError as error:
            if error.status != 404:
                raise

    async def post_review(self, head: str, body: str, opinion: Opinion, comments: Sequence[InlineComment]) -> None:
        """Post a review with its comments. May raise ForgeUncertain."""
        listed = [
            {"path": one.path, "line": one.line, "side": "RIGHT", "body": one.body}
            | ({} if one.start_line is None else {"start_line": one.start_line, "start_side": "RIGHT"})
            for one in comments
        ]
        data = {"commit_id": head, "body": body, "event": opinion.value, "comments": listed}
        with doing("post comments", PULL_REQUESTS):
            await self._transport.post(f"{self._pull}/reviews", data=data)

    def is_place_refused(self, error: ForgeError) -> bool:
        """GitHub does not take a line that the diff has not, nor two pending reviews of one account."""
        return error.status == 422 and PENDING not in error.message.lower()

    async def withdraw_review(self, review_id: int, message: str) -> None:
        """Dismiss a review of ours."""
        with doing("withdraw an earlier review", PULL_REQUESTS):
            data = {"message": message, "event": "DISMISS"}
            await self._transport.put(f"{self._pull}/reviews/{review_id}/dismissals", data=data)

    async def reply(self, comment_id: int, body: str) -> None:
        """Answer in a thread. May raise ForgeUncertain."""
        with doing("answer in a thread", PULL_REQUESTS):
            await self._transport.post(f"{self._pull}/comments/{comment_id}/replies", data={"body": body})

    async def set_resolved(self, thread_id: str, *, resolved: bool) -> None:
        """Resolve a thread, or open it again."""
        what = "resolve a thread" if resolved else "open a thread again"
        task = Doing(what, f"{CONTENTS} and {PULL_REQUESTS}, or say --no-resolve")
        await self._graphql(_RESOLVE if resolved else _UNRESOLVE, task, {"thread": thread_id})

    async def set_status(self, status: Status, sending: Sending) -> None:
        """Make or change our check run, or set the commit's status."""
        await (self._set_check if status.kind is StatusKind.CHECK else self._set_commit_status)(status, sending)

    async def _set_check(self, status: Status, sending: Sending) -> None:
        run: dict[str, Any] = {
            "name": _NAME,
            "status": "completed",
            "conclusion": status.conclusion.value,
            "external_id": _EXTERNAL_ID,
            "output": {"title": status.title, "summary": status.summary},
        }
        runs = f"{self._repository}/check-runs"

        async def own_run() -> int | None:
            with doing("read the checks", CHECKS):
                path = f"{self._repository}/commits/{status.head}/check-runs?check_name={_NAME}&per_page=100"
                found = await self._listed(path, within="check_runs")
                return next((int(each["id"]) for each in found if each.get("external_id") == _EXTERNAL_ID), None)

        async def make() -> None:
            with doing("make a check run", f"{CHECKS}, which only Actions and Apps can have: else --status commit"):
                await self._transport.post(runs, data={**run, "head_sha": status.head})

        async def is_done() -> bool:
            return await own_run() is not None

        known = await own_run()
        if known is None:
            await sending.once(make, is_done)
            return
        await sending.breathe()
        with doing("change the check run", CHECKS):
            await self._transport.patch(f"{runs}/{known}", data=run)

    async def _set_commit_status(self, status: Status, sending: Sending) -> None:
        state = status.conclusion.value
        if status.conclusion is Conclusion.NEUTRAL:
            # A commit status knows no neutral: what could not be reviewed is an error, unless the policy lets it pass.
            state = "success" if status.passed else "error"
        data = {"state": state, "context": _NAME, "description": status.description}

        async def make() -> None:
            with doing("set the commit's status", STATUSES):
                await self._transport.post(f"{self._repository}/statuses/{status.head}", data=data)

        async def is_done() -> bool:
            """Whether the newest status of ours says the same."""
            with doing("read the commit's statuses", STATUSES):
                path = f"{self._repository}/commits/{status.head}/statuses?per_page=100"
                found = [_document(each) for each in await self._transport.getitem(path)]
            newest = next((each for each in found if each.get("context") == _NAME), None)
            return newest is not None and all(newest.get(name) == value for name, value in data.items())

        if not await is_done():
            await sending.once(make, is_done)

    async def _listed(self, path: str, *, within: str = "items") -> list[Document]:
        found: list[Document] = []
        async for each in self._transport.getiter(path, iterable_key=within):
            found.append(_document(each))
            if len(found) >= 10_000:
                break
        return found

    async def _graphql(self, text: str, task: Doing, variables: Mapping[str, Any]) -> Document:
        """Ask GraphQL. What it says beside the data is an error too: half an answer is none."""
        with doing(task.what, task.permission):
            data = {"query": text, "variables": dict(variables)}
            answer = _document(await self._transport.post(self._graphql_url, data=data))
            if answer.get("errors"):
                raise query_failure(answer["errors"], task)
            return _document(answer["data"])


def _document(value: Any) -> Document:
    if not isinstance(value, dict):
        raise TypeError("no object")
    return value


@contextmanager
def doing(what: str, permission: str) -> Iterator[None]:
    """Turn what goes wrong inside into a ForgeError that says what was being done."""
    try:
        yield
    except BadAnswer as answer:
        raise explained(answer, Doing(what, permission)) from answer
    except (KeyError, TypeError, ValueError, LookupError, AttributeError, RecursionError) as error:
        raise ForgeError(
            f"could not {what}: an answer of GitHub has another form ({type(error).__name__})",
            hint="look whether GITHUB_API_URL is the address of GitHub's API",
        ) from error


def _file(document: Document) -> ChangedFile:
    patch = document.get("patch")
    return ChangedFile(str(document.get("filename", "")), patch if isinstance(patch, str) else None)


def _is_ours(node: Mapping[str, Any], viewer: str) -> bool:
    """Whether the token's own account wrote it. GraphQL names a bot by its whole name as the viewer alone."""
    author = node["author"] or {}
    ending = "[bot]" if author.get("__typename") == "Bot" else ""
    return node["viewerDidAuthor"] is True or f"{author.get('login', '')}{ending}" == viewer


def _posted(node: Mapping[str, Any], viewer: str) -> PostedComment:
    return PostedComment(
        comment_id=int(node["fullDatabaseId"]),
        body=str(node["body"]),
        is_ours=_is_ours(node, viewer),
        url=str(node["url"]),
    )


def _opinion(node: Mapping[str, Any], viewer: str) -> StandingOpinion | None:
    opinion = _OPINIONS.get(node["state"])
    if opinion is None or not _is_ours(node, viewer):
        return None
    commit = node["commit"] or {}
    return StandingOpinion(review_id=int(node["fullDatabaseId"]), opinion=opinion, head=str(commit.get("oid", "")))


def _thread(node: Mapping[str, Any], viewer: str) -> tuple[Thread, str | None]:
    """A thread with its first comments, and where the next ones begin."""
    page = node["comments"]
    thread = Thread(
        thread_id=str(node["id"]),
        path=str(node["path"]),
        is_resolved=node["isResolved"] is True,
        comments=tuple(_thread_comment(each, viewer) for each in page["nodes"] if each is not None),
    )
    return thread, page["pageInfo"]["endCursor"] if page["pageInfo"]["hasNextPage"] else None


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
