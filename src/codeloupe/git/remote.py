"""Remotes: from what a person types, or what a remote is set to, to one call of git that may talk to it.

The protocols are few: https and ssh, plain http to this machine alone, and files only as a remote that the user set
up. No address holds a password. A call has the user's own login, nobody to ask, and a limit of time and size.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from codeloupe.errors import CodeloupeError, GitFailed, ProcessTimedOut, RevisionError, UsageError
from codeloupe.git.command import ENVIRONMENT, Place, git_for_user, try_git
from codeloupe.system.process import Completed
from codeloupe.system.regex import regex

Protocol = Literal["https", "ssh", "http", "file"]
RefFamily = Literal["pull", "merge-requests"]

_WORD = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}"
_SHORT = regex(rf"(?:({_WORD}(?:/{_WORD}){{1,9}})?[#!])?([0-9]{{1,10}})")
_HOST = regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")
_SCP = regex(rf"(?:{_WORD}@)?([A-Za-z0-9_][A-Za-z0-9_.-]{{0,252}}):([^:].*)")
_SSH_SCHEMES = ("ssh", "git+ssh", "ssh+git")
_MARKS: dict[str, RefFamily] = {"pull": "pull", "pulls": "pull", "merge_requests": "merge-requests"}
_SECONDS_BETWEEN_LOOKS = 0.5

# A user's own settings for ssh hold, but for what would wait for a person or outlive the call.
_SSH_SETTINGS = (
    *("BatchMode=yes", "StrictHostKeyChecking=yes", "ConnectTimeout=30", "ServerAliveInterval=30"),
    *("ControlMaster=no", "ControlPath=none", "ClearAllForwardings=yes", "ForwardAgent=no", "PermitLocalCommand=no"),
)
_SSH = {"GIT_SSH_COMMAND": " -o ".join(("ssh", *_SSH_SETTINGS)), "GIT_SSH_VARIANT": "ssh"}
_HTTP_NAMES = (
    *("HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "all_proxy", "no_proxy"),
    *("GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "SSL_CERT_FILE", "SSL_CERT_DIR"),
)
# What credential helpers such as `store`, `cache`, `libsecret` and that of gh look at.
_HELPER_NAMES = (
    *("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "USER", "LOGNAME"),
    *("DBUS_SESSION_BUS_ADDRESS", "GNUPGHOME", "PASSWORD_STORE_DIR"),
    *("GH_TOKEN", "GITHUB_TOKEN", "GH_HOST", "GH_CONFIG_DIR", "GITLAB_TOKEN", "GLAB_CONFIG_DIR"),
)
_CHECK_OUT = "check the pull request out with your own git, and review it there: --untrusted --base REF"
# What git says when a remote wants a login, is not there, lacks a commit, or refuses for another reason.
_WANTS_LOGIN = regex(
    r"Permission denied \(|Too many authentication failures|could not read (?:Username|Password)|Authentication failed"
    r"|returned error: 40[13]"
)
_NO_COMMIT = regex(r"not our ref|unadvertised object")
_NOT_THERE = regex(r"not found|returned error: 404|does not appear to be a git repository")
_REFUSED = regex(r"Host key verification failed|certificate|returned error: 30|disabled in libcurl")


class RemoteAddress(Struct, frozen=True):
    """Where a repository is: the URL for git, the protocol that may be spoken, a name without either, its web page."""

    url: str
    protocol: Protocol
    name: str
    page: str | None = None

    def is_same(self, other: RemoteAddress) -> bool:
        """Whether both lead to one repository, perhaps by different protocols."""
        return self.name.casefold() == other.name.casefold()


class PullRequestName(Struct, frozen=True):
    """A pull request as it was named: by a number alone, or with its repository's address or OWNER/NAME."""

    number: int
    address: RemoteAddress | None = None
    family: RefFamily | None = None
    repository: str | None = None


def parse_pull_request(text: str) -> PullRequestName:
    """What `--pr` names. Raises UsageError."""
    if (short := _SHORT.fullmatch(text)) and int(short[2]):
        return PullRequestName(int(short[2]), repository=short[1])
    url = _split(text)
    if url is None or url.scheme not in ("https", "http") or not url.hostname or " " in text:
        raise _not_understood(text)
    if url.username is not None or url.password is not None:
        hint = "leave that out: a review holds no login; a repository that needs one is fetched over ssh"
        raise UsageError("the URL of the pull request holds a user name or a password", hint=hint)
    parts = [part for part in url.path.split("/") if part]
    for place in range(2, len(parts) - 1):
        family, number = _MARKS.get(parts[place]), parts[place + 1]
        if family is not None and re.fullmatch(r"[0-9]{1,10}", number) and int(number):
            repository = parts[: place - 1] if parts[place - 1] == "-" and place > 2 else parts[:place]
            return PullRequestName(int(number), _of_web(url, "/".join(repository), text), family)
    raise _not_understood(text)


def parse_remote(text: str, root: Path) -> RemoteAddress:
    """The address of a remote of the user's own repository at `root`. Raises UsageError for one that is not safe."""
    if not text.isprintable() or not text or len(text) > 2_000 or text.startswith("-"):
        raise _refused_remote("cannot be used")
    if re.match(r"[A-Za-z0-9+.-]+::", text):
        raise _refused_remote("names its own program")
    if "://" not in text:
        head, colon, _ = text.partition(":")
        if not colon or "/" in head:
            return _of_file(root / text)
        if found := _SCP.fullmatch(text):
            name = f"{found[1]}/{found[2].strip('/').removesuffix('.git')}"
            return RemoteAddress(text, "ssh", name, f"https://{name}")
    url = _split(text)
    if url is None or "://" not in text:
        raise _refused_remote("cannot be understood")
    if url.scheme == "file" and url.netloc in ("", "localhost"):
        return _of_file(Path(url.path))
    if url.scheme not in ("https", "http", *_SSH_SCHEMES) or not url.hostname:
        raise _refused_remote(f"begins with {url.scheme[:20]}://, and only https, ssh and files are used")
    path, host = url.path.strip("/"), _host(url, text)
    if url.scheme in _SSH_SCHEMES:
        user = f"{url.username}@" if url.username and _HOST.fullmatch(url.username) else ""
        name = f"{host if url.port is None else host.rpartition(':')[0]}/{path.removesuffix('.git')}"
        return RemoteAddress(f"ssh://{user}{host}{url.path}", "ssh", name, f"https://{name}")
    name = f"{host}/{path.removesuffix('.git')}"
    # Whatever is before the host is a login, and goes no further.
    return RemoteAddress(f"{url.scheme}://{host}/{path}", _checked_protocol(url), name, f"{url.scheme}://{name}")


def address_beside(repository: str, remotes: Iterable[RemoteAddress]) -> RemoteAddress:
    """Where OWNER/NAME is: one of the remotes at hand, else on the host of the first that has pages, else on GitHub."""
    known = tuple(remotes)
    for remote in known:
        if remote.name.casefold().removesuffix(".git").endswith(f"/{repository.casefold()}"):
            return remote
    pages = (urlsplit(remote.page) for remote in known if remote.page)
    host = next((f"{page.scheme}://{page.netloc}" for page in pages), "https://github.com")
    return _of_web(urlsplit(f"{host}/{repository}"), repository, repository)


def page_of(address: RemoteAddress, number: int, family: RefFamily) -> str:
    """How a report names the pull request: by the URL of its page, or by its number in a folder."""
    if address.page is None:
        return f"{number} of {address.name}"
    return f"{address.page}/{'pull' if family == 'pull' else '-/merge_requests'}/{number}"


def _split(text: str) -> SplitResult | None:
    """The parts of a URL; None for what is none, or has a port that is no number."""
    with suppress(ValueError):
        url = urlsplit(text)
        if text.isprintable() and len(text) <= 2_000 and (url.port is None or url.port >= 0):
            return url
    return None


def _of_web(url: SplitResult, path: str, text: str) -> RemoteAddress:
    if any(part in (".", "..") for part in path.split("/")):
        raise _not_understood(text)
    name = f"{_host(url, text)}/{path.removesuffix('.git')}"
    page = f"{url.scheme}://{name}"
    return RemoteAddress(f"{page}.git", _checked_protocol(url), name, page)


def _of_file(path: Path) -> RemoteAddress:
    place = str(path.resolve())
    if not place.isprintable():
        raise _refused_remote("has a path with characters that cannot be shown")
    return RemoteAddress(place, "file", place)


def _host(url: SplitResult, text: str) -> str:
    """Host and port, fit to be in a URL."""
    host = url.hostname or ""
    if ":" in host:
        try:
            host = f"[{ipaddress.IPv6Address(host)}]"
        except ValueError:
            raise _not_understood(text) from None
    elif not _HOST.fullmatch(host):
        raise _not_understood(text)
    return host if url.port is None else f"{host}:{url.port}"


def _checked_protocol(url: SplitResult) -> Protocol:
    """https, or http to this machine."""
    if url.scheme == "https":
        return "https"
    with suppress(ValueError):
        if url.hostname == "localhost" or ipaddress.ip_address(url.hostname or "").is_loopback:
            return "http"
    message = f"{url.hostname} would be asked over plain http, where others can read and change what comes back"
    raise UsageError(message, hint="use https or ssh")


def _not_understood(text: str) -> UsageError:
    # What is before an @ may be a password.
    shown = re.sub(r"//[^/]*@", "//…@", text[:200]) + ("…" if len(text) > 200 else "")
    hint = "give a number, OWNER/NAME#NUMBER, or a URL such as https://HOST/OWNER/NAME/pull/7"
    return UsageError(f"{shown!r} does not name a pull request", hint=hint)


def _refused_remote(why: str) -> UsageError:
    # The address itself is not shown: it may hold a password.
    return UsageError(f"the address of the remote {why}", hint=f"give the URL of the pull request, or {_CHECK_OUT}")


class RemoteRepository(Struct, frozen=True):
    """A remote, and the repository of ours into which it is fetched. `limit_bytes` is what it may send at most."""

    address: RemoteAddress
    git_dir: Path
    limit_bytes: int = 4 * 1024**3
    timeout_seconds: float = 900.0

    async def call(self, *arguments: str, stdin: bytes = b"", settings: tuple[str, ...] = ()) -> bytes:
        """What git prints. Raises UsageError or ProcessError."""
        completed = await self.try_call(*arguments, stdin=stdin, settings=settings)
        if completed.exit_code != 0:
            raise remote_failure(self.address, completed)
        return completed.stdout

    async def try_call(self, *arguments: str, stdin: bytes = b"", settings: tuple[str, ...] = ()) -> Completed:
        """How git ended. Raises ProcessError when it took too long or got too much."""
        protocol = self.address.protocol
        login = await _user_login(self.git_dir) if protocol in ("http", "https") else ()
        own, variables = access_to(protocol, os.environ, with_helper=bool(login))
        # All that comes is kept in packs, whose size is watched.
        place = Place(self.git_dir, settings=("fetch.unpackLimit=1", *own, *login, *settings))
        environment = {**ENVIRONMENT, **variables, "GIT_ALLOW_PROTOCOL": protocol}
        limits: Any = {"max_bytes": 16 * 1024**2, "timeout_seconds": self.timeout_seconds}
        call = asyncio.ensure_future(try_git(place, *arguments, stdin=stdin, environment=environment, **limits))
        hint = f"run it in a clone of the repository, of which only what is new is fetched, or {_CHECK_OUT}"
        try:
            done = False
            while not done:
                done = bool((await asyncio.wait((call,), timeout=_SECONDS_BETWEEN_LOOKS))[0])
                # Also at the end: it may have got all of it between two looks.
                if self._received_bytes() > self.limit_bytes:
                    message = f"{self.address.name} sent more than {self.limit_bytes:,} bytes"
                    raise GitFailed(message, program="git", exit_code=-1, hint=hint)
            return call.result()
        except ProcessTimedOut as error:
            message = f"{self.address.name} did not send everything within {self.timeout_seconds:g} s"
            raise ProcessTimedOut(message, program="git", hint=hint) from error
        finally:
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)

    def _received_bytes(self) -> int:
        total = 0
        for file in (self.git_dir / "objects" / "pack").glob("*"):
            with suppress(OSError):  # renamed meanwhile
                total += file.stat().st_size
        return total


async def _user_login(git_dir: Path) -> tuple[str, ...]:
    """The credential helpers that the user or the machine has set up, as settings; never those of a repository."""
    pattern = r"^credential\.(.*\.)?(helper|username|usehttppath)$"
    completed = await git_for_user(Place(git_dir), "config", "-z", "--show-scope", "--get-regexp", pattern)
    fields = os.fsdecode(completed.stdout).split("\0")
    rows = zip(fields[::2], fields[1::2], strict=False)
    return tuple("=".join(row.split("\n", 1)) for scope, row in rows if scope in ("global", "system"))


def access_to(
    protocol: Protocol, environment: Mapping[str, str], *, with_helper: bool
) -> tuple[tuple[str, ...], dict[str, str]]:
    """The settings and variables for git: for http, if the user has a credential helper, with what that looks at."""
    if protocol == "ssh":
        own = ("SSH_AUTH_SOCK", "USER", "LOGNAME")
        return (), {**{name: environment[name] for name in own if name in environment}, **_SSH}
    if protocol == "file":
        return (), {}
    # A renamed repository redirects; plain http must not lead away from this machine.
    redirects = "http.followRedirects=" + ("initial" if protocol == "https" else "false")
    names = (*_HTTP_NAMES, *_HELPER_NAMES) if with_helper else _HTTP_NAMES
    variables = {name: environment[name] for name in names if name in environment}
    return ("http.lowSpeedLimit=1000", "http.lowSpeedTime=60", redirects), variables


def remote_failure(address: RemoteAddress, completed: Completed) -> CodeloupeError:
    """Why a remote gave nothing: a UsageError for what the caller can mend, else GitFailed."""
    said, name = completed.stderr, address.name
    if _NO_COMMIT.search(said):
        hint = "the pull request may have moved: try again; --base must be a commit that the remote has"
        return RevisionError(f"{name} does not offer a commit that was requested", hint=hint)
    hint = f"`git ls-remote` shows whether your own git gets in, by a credential helper or ssh; or {_CHECK_OUT}"
    if _WANTS_LOGIN.search(said):
        return UsageError(f"{name} wants a login that your git does not have, or does not exist", hint=hint)
    if _NOT_THERE.search(said):
        return UsageError(f"there is no repository at {name}", hint=hint)
    # The first line names the cause, the others what came of it.
    lines = (line for line in said.splitlines() if line.strip() and not line.lower().startswith("warning"))
    line = next(lines, "git gave no reason").rpartition("': ")[2]
    reason = line.removeprefix("fatal: ").removeprefix("error: ").strip()[:200]
    if _REFUSED.search(said):
        return UsageError(f"{name} cannot be fetched: {reason}", hint=hint)
    hint = f"check the network and the address, and try again, or {_CHECK_OUT}"
    message, code = f"{name} could not be reached: {reason}", completed.exit_code
    return GitFailed(message, program="git", exit_code=code, stderr=said, hint=hint)
