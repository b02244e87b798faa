"""A pull request as it stands on GitHub: its head, diff, comments, threads, and what we said of it before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from codeloupe.errors import ForgeError
from codeloupe.forges.dismissal import possible_maintainers
from codeloupe.forges.github.client import Document, GitHubClient, unreadable
from codeloupe.forges.marker import Marker, SigningKey
from codeloupe.forges.own_threads import own_threads
from codeloupe.model.publication import (
    ChangedFile,
    Opinion,
    PostedComment,
    PullRequest,
    StandingOpinion,
    Thread,
    ThreadComment,
)

_Item = TypeVar("_Item")

_MOST_PAGES = 60
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
    for _ in range(_MOST_PAGES):
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
