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
from codeloupe.system.regex import regex

_DEFAULT_API = "https://api.github.com"
_OWNER = r"[A-Za-z0-9_-]{1,100}"
_NAME = r"[A-Za-z0-9._-]{1,100}"
_FULL_NAME = regex(rf"({_OWNER})/({_NAME})")
_NUMBER = regex(r"#?([1-9][0-9]{0,8})")
_SHORT = regex(rf"({_OWNER})/({_NAME})#([1-9][0-9]{{0,8}})")
_PAGE = regex(rf"/({_OWNER})/({_NAME})/pull/([1-9][0-9]{{0,8}})(?:/.*)?")
_HOW = "give --pr a number, OWNER/NAME#NUMBER, or the address of the pull request's page"


class Endpoints(Struct, frozen=True):
    """Where GitHub answers: the addresses of its REST and its GraphQL API, and the host of its pages."""

    api: str
    graphql: str
    page_host: str

    def knows(self, url: str) -> bool:
        """Whether an address is one of this GitHub, to which a token may be sent."""
        return _origin(urlsplit(url)) in (_origin(urlsplit(self.api)), _origin(urlsplit(self.graphql)))


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
        """Whether both name one repository, of which GitHub tells no small letters from capitals."""
        own, theirs = (self.owner, self.repository), (other.owner, other.repository)
        return [part.lower() for part in own] == [part.lower() for part in theirs]

    def completed(self, other: Target) -> Target:
        """This, with what it lacks from another; of another repository nothing is taken."""
        if self.owner and not self.is_same_repository(other):
            return self
        return Target(**{name: own or getattr(other, name) for name, own in asdict(self).items()})

    def check(self) -> None:
        """Raise UsageError when it is not clear which one is meant."""
        if self.number is None and not self.branch:
            raise UsageError("which pull request is meant is not known", hint=_HOW)
        if not self.owner:
            raise UsageError("which repository is meant is not known", hint="give --repo-name OWNER/NAME")


def endpoints_of(environment: Mapping[str, str]) -> Endpoints:
    """From GITHUB_API_URL and GITHUB_GRAPHQL_URL. Raises UsageError for an address that is not safe for a token."""
    api = _checked("GITHUB_API_URL", environment.get("GITHUB_API_URL", "").strip() or _DEFAULT_API)
    is_enterprise = api.path == "/api/v3"
    default = api._replace(path="/api/graphql" if is_enterprise else f"{api.path}/graphql").geturl()
    graphql = _checked("GITHUB_GRAPHQL_URL", environment.get("GITHUB_GRAPHQL_URL", "").strip() or default)
    host = (api.hostname or "").lower()
    return Endpoints(api.geturl(), graphql.geturl(), host if is_enterprise else host.removeprefix("api."))


def _checked(name: str, text: str) -> SplitResult:
    try:
        address = urlsplit(text.rstrip("/"))
        host, port = address.hostname or "", address.port
    except ValueError as error:
        raise UsageError(f"{name} is no address", hint=f"an example: {_DEFAULT_API}") from error
    if address.scheme not in ("https", "http") or not host or port == 0:
        raise UsageError(f"{name} is no web address", hint=f"an example: {_DEFAULT_API}")
    if address.username is not None or address.query or address.fragment:
        raise UsageError(f"{name} holds more than an address", hint="give it without user, password, ? and #")
    if address.scheme == "http" and not _is_loopback(host):
        raise UsageError(
            f"{name} is not encrypted, so the token could be read on its way", hint="give an address with https://"
        )
    return address


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _origin(address: SplitResult) -> tuple[str, str, int | None]:
    default = {"https": 443, "http": 80}.get(address.scheme)
    try:
        return address.scheme, (address.hostname or "").lower(), address.port or default
    except ValueError:
        return "", "", None


def parse_pull_request(text: str, endpoints: Endpoints) -> Target:
    """A number, `OWNER/NAME#NUMBER` or the address of a page. Raises UsageError."""
    word = text.strip()
    if found := _NUMBER.fullmatch(word):
        return Target(number=int(found[1]))
    if found := _SHORT.fullmatch(word):
        return replace(parse_repository(f"{found[1]}/{found[2]}"), number=int(found[3]))
    page, host = None, ""
    with suppress(ValueError):
        address = urlsplit(word)
        host = (address.hostname or "").lower()
        page = _PAGE.fullmatch(address.path) if address.scheme in ("https", "http") else None
    if page is None:
        raise UsageError(f"{_shown(word)} names no pull request", hint=_HOW)
    if host != endpoints.page_host:
        raise UsageError(
            f"the pull request is on {host}, and the token is for {endpoints.page_host}",
            hint="set GITHUB_API_URL to the API of that host, such as https://HOST/api/v3",
        )
    return replace(parse_repository(f"{page[1]}/{page[2]}"), number=int(page[3]))


def parse_repository(text: str) -> Target:
    """`OWNER/NAME`. Raises UsageError."""
    found = _FULL_NAME.fullmatch(text.strip())
    if found is None or found[2] in (".", ".."):
        raise UsageError(f"{_shown(text)} is not the name of a repository", hint="give --repo-name OWNER/NAME")
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
        raise UsageError("the event file of GitHub Actions is no JSON", hint="give --pr and --repo-name") from error
    if not isinstance(event, dict):
        return Target()
    name = _field(event, "repository", "full_name")
    target = parse_repository(name) if isinstance(name, str) else Target()
    numbers = [_field(event, "pull_request", "number")]
    if _field(event, "issue", "pull_request") is not None:
        numbers.append(_field(event, "issue", "number"))
    finished = _field(event, "workflow_run", "pull_requests")
    if isinstance(finished, list) and len(finished) == 1 and isinstance(finished[0], dict):
        numbers.append(finished[0].get("number"))
    number = next((each for each in numbers if type(each) is int and each > 0), None)
    branch = head = ""
    if str(_field(event, "workflow_run", "event")).startswith("pull_request"):
        run = event["workflow_run"]
        facts = (_field(run, "head_repository", "owner", "login"), run.get("head_branch"), run.get("head_sha"))
        if all(isinstance(each, str) and each for each in facts):
            branch, head = f"{facts[0]}:{facts[1]}", str(facts[2])
    return Target(target.owner, target.repository, number, branch, head)


def _field(event: dict[str, Any], *path: str) -> Any:
    value: Any = event
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value
