"""From what a person types, or what a remote is set to, to the place where git may ask for a pull request. Pure.

The protocols are few: https and ssh, plain http to this machine alone, and files only as a remote that the user set
up. No address holds a password: git asks without one, or does not ask.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from codeloupe.errors import UsageError

Protocol = Literal["https", "ssh", "http", "file"]
RefFamily = Literal["pull", "merge-requests"]

_NUMBER = re.compile(r"[#!]?([0-9]{1,10})")
_SHORT = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.-]{0,99}(?:/[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}){1,9})[#!]([0-9]{1,10})")
_USUAL_HOST = "https://github.com"
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")
_SCP = re.compile(r"(?:([A-Za-z0-9_][A-Za-z0-9_.-]{0,60})@)?([A-Za-z0-9_][A-Za-z0-9_.-]{0,252}):([^:].*)")
_SSH_SCHEMES = ("ssh", "git+ssh", "ssh+git")
_MARKS: dict[str, RefFamily] = {"pull": "pull", "pulls": "pull", "merge_requests": "merge-requests"}
_LONGEST = 2_000
_HINT = "give a number, OWNER/NAME#NUMBER, or a URL such as https://HOST/OWNER/NAME/pull/7"
_CHECK_OUT = "check the pull request out, and review it there with --untrusted --base REF"


class RemoteAddress(Struct, frozen=True):
    """Where a repository is: the URL for git, the one protocol that may be spoken, and a name without either.

    `page` is the address of its web page, where it can be told from the URL.
    """

    url: str
    protocol: Protocol
    name: str
    page: str | None = None

    def is_same(self, other: RemoteAddress) -> bool:
        """Whether both lead to one repository, perhaps by different protocols."""
        return self.name.casefold() == other.name.casefold()


class PullRequestName(Struct, frozen=True):
    """A pull request as it was named: by a number alone, or with its repository and its kind of ref.

    `repository` is its OWNER/NAME where that was given without a host.
    """

    number: int
    address: RemoteAddress | None = None
    family: RefFamily | None = None
    repository: str | None = None


def parse_pull_request(text: str) -> PullRequestName:
    """What `--pr` names. Raises UsageError in words."""
    if number := _NUMBER.fullmatch(text):
        return PullRequestName(_positive(int(number[1]), text))
    if short := _SHORT.fullmatch(text):
        return PullRequestName(_positive(int(short[2]), text), repository=short[1])
    url = _split(text)
    parts = [part for part in url.path.split("/") if part]
    for place in range(2, len(parts) - 1):
        family = _MARKS.get(parts[place])
        if family is not None and parts[place + 1].isascii() and parts[place + 1].isdigit():
            repository = parts[: place - 1] if parts[place - 1] == "-" and place > 2 else parts[:place]
            address = _of_web(url, "/".join(repository), text)
            return PullRequestName(_positive(int(parts[place + 1][:11]), text), address, family)
    raise _not_understood(text)


def parse_remote(text: str, root: Path) -> RemoteAddress:
    """The address of a remote of the user's own repository at `root`. Raises UsageError for one that is not safe."""
    if not text.isprintable() or not text or len(text) > _LONGEST or text.startswith("-"):
        raise _refused_remote("cannot be used")
    if re.match(r"[A-Za-z0-9+.-]+::", text):
        raise _refused_remote("names its own program")
    if "://" in text:
        return _of_remote_url(text)
    head, colon, _ = text.partition(":")
    if colon and "/" not in head:
        return _of_scp(text)
    return _of_file(root / text)


def address_beside(repository: str, remotes: Iterable[RemoteAddress]) -> RemoteAddress:
    """Where OWNER/NAME is: one of the remotes at hand, else on the host of the first that has pages, else on GitHub."""
    known = tuple(remotes)
    for remote in known:
        if remote.name.casefold().removesuffix(".git").endswith(f"/{repository.casefold()}"):
            return remote
    pages = (urlsplit(remote.page) for remote in known if remote.page)
    host = next((f"{page.scheme}://{page.netloc}" for page in pages), _USUAL_HOST)
    return _of_web(urlsplit(f"{host}/{repository}"), repository, repository)


def page_of(address: RemoteAddress, number: int, family: RefFamily) -> str:
    """How a report names the pull request: by the URL of its page, or by its number in a folder."""
    if address.page is None:
        return f"{number} of {address.name}"
    return f"{address.page}/{'pull' if family == 'pull' else '-/merge_requests'}/{number}"


def _positive(number: int, text: str) -> int:
    if not 0 < number < 10**10:
        raise _not_understood(text)
    return number


def _split(text: str) -> SplitResult:
    if not text.isprintable() or " " in text or len(text) > _LONGEST:
        raise _not_understood(text)
    try:
        url = urlsplit(text)
        _ = url.port  # raises for what is no number
    except ValueError:
        raise _not_understood(text) from None
    if url.scheme not in ("https", "http") or not url.hostname:
        raise _not_understood(text)
    if url.username is not None or url.password is not None:
        raise UsageError(
            "the URL of the pull request holds a user name or a password",
            hint="leave that out: a review holds no login; a repository that needs one is fetched over ssh",
        )
    return url


def _of_web(url: SplitResult, path: str, text: str) -> RemoteAddress:
    if any(part in (".", "..") for part in path.split("/")):
        raise _not_understood(text)
    host = _host(url, text)
    _check_plain(url)
    page = f"{url.scheme}://{host}/{path.removesuffix('.git')}"
    protocol: Protocol = "https" if url.scheme == "https" else "http"
    return RemoteAddress(f"{page}.git", protocol, _name(host, path), page)


def _of_remote_url(text: str) -> RemoteAddress:
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        raise _refused_remote("cannot be understood") from None
    if url.scheme == "file" and url.netloc in ("", "localhost"):
        return _of_file(Path(url.path))
    if url.scheme not in ("https", "http", *_SSH_SCHEMES) or not url.hostname:
        raise _refused_remote(f"begins with {url.scheme[:20]}://, and only https, ssh and files are used")
    path = url.path.strip("/")
    host = _host(url, text)
    if url.scheme in _SSH_SCHEMES:
        user = f"{url.username}@" if url.username and _HOST.fullmatch(url.username) else ""
        plain = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
        page = f"https://{plain}/{path.removesuffix('.git')}"
        place = f"{plain}:{port}" if port else plain
        return RemoteAddress(f"ssh://{user}{place}{url.path}", "ssh", _name(plain, path), page)
    _check_plain(url)
    protocol: Protocol = "https" if url.scheme == "https" else "http"
    page = f"{url.scheme}://{host}/{path.removesuffix('.git')}"
    # Whatever stands before the host is a login, and goes no further.
    return RemoteAddress(f"{url.scheme}://{host}/{path}", protocol, _name(host, path), page)


def _of_scp(text: str) -> RemoteAddress:
    found = _SCP.fullmatch(text)
    if found is None:
        raise _refused_remote("cannot be understood")
    path = found[3].strip("/")
    return RemoteAddress(text, "ssh", _name(found[2], path), f"https://{found[2]}/{path.removesuffix('.git')}")


def _of_file(path: Path) -> RemoteAddress:
    place = str(path.resolve())
    if not place.isprintable():
        raise _refused_remote("has a path with characters that cannot be shown")
    return RemoteAddress(place, "file", place)


def _host(url: SplitResult, text: str) -> str:
    """Host and port, fit to stand in a URL."""
    host = url.hostname or ""
    if ":" in host:
        try:
            host = f"[{ipaddress.IPv6Address(host)}]"
        except ValueError:
            raise _not_understood(text) from None
    elif not _HOST.fullmatch(host):
        raise _not_understood(text)
    return host if url.port is None else f"{host}:{url.port}"


def _check_plain(url: SplitResult) -> None:
    if url.scheme == "http" and not _is_loopback(url.hostname or ""):
        raise UsageError(
            f"{url.hostname} would be asked over plain http, where others can read and change what comes back",
            hint="use https or ssh",
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _name(host: str, path: str) -> str:
    return f"{host}/{path.removesuffix('.git')}"


def _not_understood(text: str) -> UsageError:
    # What stands before an @ may be a password.
    shown = re.sub(r"//[^/]*@", "//…@", text[:200]) + ("…" if len(text) > 200 else "")
    return UsageError(f"{shown!r} does not name a pull request", hint=_HINT)


def _refused_remote(why: str) -> UsageError:
    # The address itself is not shown: it may hold a password.
    return UsageError(f"the address of the remote {why}", hint=f"give the URL of the pull request, or {_CHECK_OUT}")
