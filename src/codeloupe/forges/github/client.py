"""The requests that we make of GitHub, one method each. Every one raises ForgeError in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from msgspec.structs import replace

from codeloupe.errors import ForgeError
from codeloupe.forges.github.answers import (
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
from codeloupe.forges.marker import Marker, SigningKey
from codeloupe.forges.threads import own_threads, possible_maintainers
from codeloupe.model.publication import (
    ChangedFile,
    Opinion,
    PostedComment,
    PullRequest,
    PullRequestName,
    StandingOpinion,
    Thread,
    ThreadComment,
)

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


_Item = TypeVar("_Item")

_READING_MOST_PAGES = 60
_MOST_PEOPLE = 50
_MAY_WRITE = ("admin", "maintain", "write")
_OPINIONS = {"APPROVED": Opinion.APPROVE, "CHANGES_REQUESTED": Opinion.REQUEST_CHANGES}
_PAGE = "pageInfo { hasNextPage endCursor }"
_COMMENT_FIELDS = """
  fullDatabaseId body viewerDidAuthor authorAssociation author { __typename login }
  reactions(first: 100, content: THUMBS_DOWN) { nodes { user { login } } }
"""
_COMMENTS = f"""
query($owner: String!, $name: String!, $number: Int!, $after: String) {{
  viewer {{ login }}
  repository(owner: $owner, name: $name) {{ pullRequest(number: $number) {{
    comments(first: 100, after: $after) {{ {_PAGE} nodes {{
      fullDatabaseId body url viewerDidAuthor author {{ __typename login }}
    }} }}
  }} }}
}}"""
_THREADS = f"""
query($owner: String!, $name: String!, $number: Int!, $after: String) {{
  viewer {{ login }}
  repository(owner: $owner, name: $name) {{ pullRequest(number: $number) {{
    reviewThreads(first: 30, after: $after) {{ {_PAGE} nodes {{
      id path isResolved
      comments(first: 30) {{ {_PAGE} nodes {{ {_COMMENT_FIELDS} }} }}
    }} }}
  }} }}
}}"""
_MORE_OF_THREAD = f"""
query($thread: ID!, $after: String) {{
  viewer {{ login }}
  node(id: $thread) {{ ... on PullRequestReviewThread {{
    comments(first: 100, after: $after) {{ {_PAGE} nodes {{ {_COMMENT_FIELDS} }} }}
  }} }}
}}"""
_REVIEWS = f"""
query($owner: String!, $name: String!, $number: Int!, $after: String) {{
  viewer {{ login }}
  repository(owner: $owner, name: $name) {{ pullRequest(number: $number) {{
    reviews(first: 100, after: $after, states: [APPROVED, CHANGES_REQUESTED]) {{
      {_PAGE} nodes {{ fullDatabaseId state viewerDidAuthor author {{ __typename login }} commit {{ oid }} }}
    }}
  }} }}
}}"""


async def read_pull_request(client: GitHubClient, key: SigningKey) -> PullRequest:
    """All that a plan needs. Raises ForgeError."""
    found = await read_head(client)
    files = [_file(each) for each in await client.files()]
    threads = await read_threads(client)
    whole = replace(
        found,
        files=tuple(files),
        comments=await read_comments(client),
        threads=threads,
        opinions=await read_opinions(client),
    )
    ours = own_threads(threads, Marker(key, whole.repository_id, whole.name.number))
    people = possible_maintainers(own.thread for own in ours)
    maintainers = await _maintainers(client, people[:_MOST_PEOPLE])
    return replace(whole, maintainers=maintainers, unasked=len(people[_MOST_PEOPLE:]))


async def read_head(client: GitHubClient) -> PullRequest:
    """What the pull request says of itself, without its files and comments."""
    document = await client.pull_request()
    try:
        return PullRequest(
            name=client.name,
            repository_id=int(document["base"]["repo"]["id"]),
            head=str(document["head"]["sha"]),
            is_open=document["state"] == "open",
            changed_files=int(document["changed_files"]),
            commits=int(document["commits"]),
            merge_commit=document.get("merge_commit_sha"),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise unreadable(f"read {client.name}", error) from error


async def read_comments(client: GitHubClient) -> tuple[PostedComment, ...]:
    """The comments on the whole."""
    return await _all(client, _COMMENTS, "comments", _posted)


async def read_opinions(client: GitHubClient) -> tuple[StandingOpinion, ...]:
    """Our own approvals and requests for changes that still hold."""
    found = await _all(client, _REVIEWS, "reviews", _opinion)
    return tuple(each for each in found if each is not None)


async def read_threads(client: GitHubClient) -> tuple[Thread, ...]:
    """The threads on lines of the diff, each with all its comments."""
    threads: list[Thread] = []
    for thread, after in await _all(client, _THREADS, "reviewThreads", _thread):
        more = await _rest(client, thread.thread_id, after) if after else ()
        threads.append(replace(thread, comments=(*thread.comments, *more)))
    return tuple(threads)


async def _rest(client: GitHubClient, thread_id: str, after: str) -> tuple[ThreadComment, ...]:
    def connection(document: Document) -> Any:
        return document["node"]["comments"]

    return await _pages(client, _MORE_OF_THREAD, connection, _thread_comment, after=after, thread=thread_id)


async def _all(client: GitHubClient, text: str, field: str, read: Callable[[Any, str], _Item]) -> tuple[_Item, ...]:
    def connection(document: Document) -> Any:
        return document["repository"]["pullRequest"][field]

    name = client.name
    variables = {"owner": name.owner, "name": name.repository, "number": name.number}
    return await _pages(client, text, connection, read, after=None, **variables)


async def _pages(
    client: GitHubClient,
    text: str,
    connection: Callable[[Document], Any],
    read: Callable[[Any, str], _Item],
    *,
    after: str | None,
    **variables: Any,
) -> tuple[_Item, ...]:
    what = f"read what was said on {client.name}"
    found: list[_Item] = []
    for _ in range(_READING_MOST_PAGES):
        answer = await client.query(text, what=what, after=after, **variables)
        try:
            page, viewer = connection(answer), str(answer["viewer"]["login"])
            found += [read(node, viewer) for node in page["nodes"] if node is not None]
            after = page["pageInfo"]["endCursor"] if page["pageInfo"]["hasNextPage"] else None
        except (KeyError, TypeError, ValueError) as error:
            raise unreadable(what, error) from error
        if after is None:
            return tuple(found)
    raise ForgeError(f"could not {what}: there is too much of it", hint="open another pull request for the change")


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


async def _maintainers(client: GitHubClient, people: Sequence[str]) -> frozenset[str]:
    """Those who may write to the repository. Of whom that cannot be known, it is not believed."""
    found: set[str] = set()
    for login in people:
        try:
            permission = await client.permission(login)
        except ForgeError as error:
            if error.status not in (403, 404):
                raise
            continue
        if permission in _MAY_WRITE:
            found.add(login)
    return frozenset(found)
