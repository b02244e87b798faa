"""Which GitHub, which repository and which pull request: from what people, variables and event files say."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct
from msgspec.structs import asdict, replace

from codeloupe.errors import UsageError
from codeloupe.git import pull_request as pulls
from codeloupe.system.regex import regex

_DEFAULT_API = "https://api.github.com"
_FULL_NAME = regex(r"([A-Za-z0-9_-]{1,100})/([A-Za-z0-9._-]{1,100})")
_HOW = "give --pr a number, OWNER/NAME#NUMBER, or the URL of the pull request"


class Endpoints(Struct, frozen=True):
    """Where GitHub answers: the addresses of its REST and its GraphQL API, and the host of its pages."""

    api: str
    graphql: str
    page_host: str

    def knows(self, url: str) -> bool:
        """Whether an address is one of this GitHub, to which a token may be sent."""
        return _origin(url) in (_origin(self.api), _origin(self.graphql))


class Target(Struct, frozen=True):
    """What is known so far of the pull request that is meant.

    `branch` is `OWNER:BRANCH` and `head` a commit, where GitHub says that it is the pull request with these.
    """

    owner: str = ""
    repository: str = ""
    number: int | None = None
    branch: str = ""
    head: str = ""

    def is_same_repository(self, other: Target) -> bool:
        """Whether both name one repository; to GitHub small letters and capitals are the same."""
        own, theirs = (f"{each.owner}/{each.repository}".lower() for each in (self, other))
        return own == theirs

    def completed(self, other: Target) -> Target:
        """This, with what it lacks from another; of another repository nothing is taken."""
        if self.owner and not self.is_same_repository(other):
            return self
        return Target(**{name: own or getattr(other, name) for name, own in asdict(self).items()})

    def check(self) -> None:
        """Raise UsageError if the pull request or its repository is unknown."""
        if self.number is None and not self.branch:
            raise UsageError("cannot tell which pull request to use", hint=_HOW)
        if not self.owner:
            raise UsageError("cannot tell which repository to use", hint="give --repo-name OWNER/NAME")


def endpoints_of(environment: Mapping[str, str]) -> Endpoints:
    """From GITHUB_API_URL and GITHUB_GRAPHQL_URL. Raises UsageError for an address that is not safe for a token."""
    api = _checked("GITHUB_API_URL", environment, _DEFAULT_API)
    is_enterprise = api.path == "/api/v3"
    default = api._replace(path="/api/graphql" if is_enterprise else f"{api.path}/graphql").geturl()
    graphql = _checked("GITHUB_GRAPHQL_URL", environment, default)
    host = (api.hostname or "").lower()
    return Endpoints(api.geturl(), graphql.geturl(), host if is_enterprise else host.removeprefix("api."))


def _checked(name: str, environment: Mapping[str, str], default: str) -> SplitResult:
    text = environment.get(name, "").strip() or default
    scheme, host, _ = _origin(text)
    if scheme not in ("https", "http") or not host:
        raise UsageError(f"{name} is not a URL", hint=f"for example {_DEFAULT_API}")
    address = urlsplit(text.rstrip("/"))
    if address.username is not None or address.query or address.fragment:
        raise UsageError(
            f"{name} must contain only scheme, host and path", hint="remove user, password, query and fragment"
        )
    is_loopback = host == "localhost"
    with suppress(ValueError):
        is_loopback = is_loopback or ipaddress.ip_address(host).is_loopback
    if scheme == "http" and not is_loopback:
        hint = "use an https:// URL"
        raise UsageError(f"{name} is not encrypted, so others could read the token", hint=hint)
    return address


def _origin(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port; empty if the text is not a URL."""
    try:
        address = urlsplit(url)
        port = address.port if address.port is not None else {"https": 443, "http": 80}.get(address.scheme, 0)
    except ValueError:
        return "", "", 0
    return (address.scheme, (address.hostname or "").lower(), port) if port else ("", "", 0)


def parse_pull_request(text: str, endpoints: Endpoints) -> Target:
    """A number, `OWNER/NAME#NUMBER` or the address of a page. Raises UsageError."""
    named = pulls.parse_pull_request(text.strip())
    page, repository = urlsplit(named.address.page or "") if named.address else None, named.repository
    if page is not None:
        host, repository = (page.hostname or "").lower(), page.path.strip("/")
        if host != endpoints.page_host:
            what = f"the pull request is on {host}, but the token is for {endpoints.page_host}"
            raise UsageError(what, hint="set GITHUB_API_URL to the API of that host, such as https://HOST/api/v3")
    return replace(parse_repository(repository) if repository else Target(), number=named.number)


def parse_repository(text: str) -> Target:
    """`OWNER/NAME`. Raises UsageError."""
    found = _FULL_NAME.fullmatch(text.strip())
    if found is None or found[2] in (".", ".."):
        raise UsageError(f"{_shown(text)} is not a repository name", hint="give --repo-name OWNER/NAME")
    return Target(found[1], found[2])


def _shown(text: str) -> str:
    # What is before an @ may be a password.
    masked = re.sub(r"//[^/]*@", "//…@", text[:200])
    return repr(masked if len(text) <= 200 else f"{masked}…")


def repository_at(address: str, endpoints: Endpoints) -> Target:
    """The repository that a clone's address, written as `host/owner/name`, means on this GitHub; or nothing."""
    host, _, rest = address.partition("/")
    found = _FULL_NAME.fullmatch(rest)
    return Target(found[1], found[2]) if found and host.lower() == endpoints.page_host else Target()


def read_event(text: str) -> Target:
    """The repository and number of the event's pull request, as far as it has them. Raises UsageError.

    The event of a workflow that follows another one names no pull request from a fork; there the branch and the commit
    of the first one say which it is, whatever that one left.
    """
    try:
        event = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            "the event file of GitHub Actions is not valid JSON", hint="give --pr and --repo-name"
        ) from error
    name, issue, run = _field(event, "repository", "full_name"), _field(event, "issue"), _field(event, "workflow_run")
    target = parse_repository(name) if isinstance(name, str) else Target()
    finished = _field(run, "pull_requests")
    holders = (
        _field(event, "pull_request"),
        issue if _field(issue, "pull_request") is not None else None,
        finished[0] if isinstance(finished, list) and len(finished) == 1 else None,
    )
    numbers = (_field(each, "number") for each in holders)
    target = replace(target, number=next((each for each in numbers if type(each) is int and each > 0), None))
    facts = [_field(run, *path.split()) for path in ("head_repository owner login", "head_branch", "head_sha")]
    if not str(_field(run, "event")).startswith("pull_request") or not all(
        isinstance(each, str) and each for each in facts
    ):
        return target
    return replace(target, branch=f"{facts[0]}:{facts[1]}", head=facts[2])


def _field(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value
