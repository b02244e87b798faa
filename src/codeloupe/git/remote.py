"""From what a person types, or what a remote is set to, to the place where git may ask for a pull request. Pure.

The protocols are few: https and ssh, plain http to this machine alone, and files only as a remote that the user set
up. No address holds a password: git asks without one, or does not ask.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from codeloupe.errors import CodeloupeError, GitFailed, ProcessTimedOut, RevisionError, UsageError
from codeloupe.git.command import Line, Place, failure, git_for_user, git_to_remote
from codeloupe.system.process import Completed

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


CHECK_OUT = "check the pull request out with your own git, and review it there: --untrusted --base REF"

_LOGIN = (
    *("could not read Username", "could not read Password", "Authentication failed"),
    *("returned error: 401", "returned error: 403"),
)
_SSH_LOGIN = ("Permission denied (", "Too many authentication failures")
_HOST_KEY = ("Host key verification failed",)
_CERTIFICATE = ("SSL certificate problem", "certificate verify failed", "server certificate verification failed")
_NOT_REACHED = (
    *("Could not resolve", "Failed to connect", "Connection refused", "Connection timed out", "Couldn't connect"),
    *("Network is unreachable", "No route to host", "Operation timed out", "Name or service not known"),
    *("Operation too slow", "Connection reset", "Empty reply from server", "Temporary failure in name resolution"),
    *("early EOF", "unexpected disconnect", "hung up", "returned error: 5", "returned error: 429", "Could not connect"),
)
_MOVED = ("returned error: 30", "disabled in libcurl")
_NO_COMMIT = ("not our ref", "unadvertised object")
_NOT_THERE = ("not found", "returned error: 404", "does not appear to be a git repository")


def remote_failure(address: RemoteAddress, verb: str, completed: Completed) -> CodeloupeError:
    """The error for a call that ended badly."""
    said = completed.stderr
    told = _login_failure(address, said)
    if told is not None:
        return told
    # Of an ssh server that cannot be reached git also says that it hung up, and that there may be no such repository.
    if _any(_NO_COMMIT, said):
        return RevisionError(
            f"{address.name} does not offer a commit that was requested",
            hint="the pull request may have moved just now: try again; --base must be a commit that the remote has",
        )
    if _any(_NOT_THERE, said):
        return UsageError(f"there is no repository at {address.name}", hint=f"check the address, or {CHECK_OUT}")
    if _any(_MOVED, said):
        return UsageError(f"{address.name} leads to another place, which was not followed", hint="give its new address")
    if _any(_NOT_REACHED, said):
        return GitFailed(
            f"{address.name} could not be reached: {_reason(said)}",
            program="git",
            exit_code=completed.exit_code,
            stderr=said,
            hint="check the network and the address, and try again",
        )
    unknown = failure(verb, completed)
    unknown.hint = f"try again, or {CHECK_OUT}"
    return unknown


def _login_failure(address: RemoteAddress, said: str) -> UsageError | None:
    host = address.name.partition("/")[0]
    if address.protocol == "ssh" and _any(_SSH_LOGIN, said):
        return UsageError(
            f"{host} refused the ssh login: it accepts none of this user's ssh keys",
            hint=f"load a key (ssh-add), or {CHECK_OUT}",
        )
    if _any(_LOGIN, said):
        return UsageError(
            f"{address.name} wants a login that your git does not have, or does not exist",
            hint=f"set up a credential helper (`git ls-remote` shows whether it works), use ssh, or {CHECK_OUT}",
        )
    if _any(_HOST_KEY, said):
        return UsageError(
            f"the host key of {host} is not known here, or has changed",
            hint="connect once with ssh by hand, and compare the key",
        )
    if _any(_CERTIFICATE, said):
        return UsageError(
            f"the certificate of {host} cannot be trusted",
            hint="set SSL_CERT_FILE to the certificates of the house",
        )
    return None


def _any(signs: tuple[str, ...], said: str) -> bool:
    return any(sign in said for sign in signs)


def _reason(said: str) -> str:
    """The line of git's words that says why."""
    line = next((line for line in said.splitlines() if _any(_NOT_REACHED, line)), "")
    return line.rpartition("': ")[2].removeprefix("fatal: ").removeprefix("error: ").strip()[:200]


TIMEOUT_SECONDS = 900.0
MAX_RECEIVED_BYTES = 4 * 1024**3
_SECONDS_BETWEEN_LOOKS = 0.5
# A user's own settings for ssh hold, but for what would wait for a person or outlive the call.
_SSH_SETTINGS = (
    *("BatchMode=yes", "StrictHostKeyChecking=yes", "ConnectTimeout=30", "ServerAliveInterval=30"),
    *("ControlMaster=no", "ControlPath=none", "ClearAllForwardings=yes", "ForwardAgent=no", "PermitLocalCommand=no"),
)
_SSH = " ".join(("ssh", *(f"-o {setting}" for setting in _SSH_SETTINGS)))
_PROXY_NAMES = ("HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "all_proxy", "no_proxy")
_HTTP_NAMES = (*_PROXY_NAMES, "GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "SSL_CERT_FILE", "SSL_CERT_DIR")
# What credential helpers such as `store`, `cache`, `libsecret` and that of gh look at.
_HELPER_NAMES = (
    *("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "USER", "LOGNAME"),
    *("DBUS_SESSION_BUS_ADDRESS", "GNUPGHOME", "PASSWORD_STORE_DIR"),
    *("GH_TOKEN", "GITHUB_TOKEN", "GH_HOST", "GH_CONFIG_DIR", "GITLAB_TOKEN", "GLAB_CONFIG_DIR"),
)
_OWN_SCOPES = ("global", "system")
_SSH_NAMES = ("SSH_AUTH_SOCK", "USER", "LOGNAME")
_HTTP_SETTINGS = ("http.lowSpeedLimit=1000", "http.lowSpeedTime=60")
# All that comes is kept in packs, whose size is watched.
_KEEP_PACKS = "fetch.unpackLimit=1"


class RemoteRepository(Struct, frozen=True):
    """A remote, and the repository of ours into which it is fetched. `limit_bytes` is what it may send at most."""

    address: RemoteAddress
    git_dir: Path
    limit_bytes: int = MAX_RECEIVED_BYTES
    timeout_seconds: float = TIMEOUT_SECONDS

    async def call(self, *arguments: str, stdin: bytes = b"", settings: tuple[str, ...] = ()) -> bytes:
        """What git prints. Raises UsageError or ProcessError in words."""
        completed = await self.try_call(*arguments, stdin=stdin, settings=settings)
        if completed.exit_code != 0:
            raise remote_failure(self.address, arguments[0], completed)
        return completed.stdout

    async def try_call(self, *arguments: str, stdin: bytes = b"", settings: tuple[str, ...] = ()) -> Completed:
        """How git ended. Raises ProcessError when it took too long or got too much."""
        login = await user_login(self.git_dir) if self.address.protocol in ("http", "https") else ()
        place = Place(self.git_dir, settings=(_KEEP_PACKS, *settings_of(self.address), *login, *settings))
        line = line_to(self.address, os.environ, self.timeout_seconds, with_helper=bool(login))
        call = asyncio.ensure_future(git_to_remote(place, line, *arguments, stdin=stdin))
        try:
            while not (await asyncio.wait((call,), timeout=_SECONDS_BETWEEN_LOOKS))[0]:
                self._check_size()
            completed = call.result()
            self._check_size()  # it may have got all of it between two looks
            return completed
        except ProcessTimedOut as error:
            raise ProcessTimedOut(
                f"{self.address.name} did not send everything within {self.timeout_seconds:g} s",
                program="git",
                hint=f"run it in a clone of the repository, of which only what is new is fetched, or {CHECK_OUT}",
            ) from error
        finally:
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)

    def _check_size(self) -> None:
        received = sum(_size(file) for file in (self.git_dir / "objects" / "pack").glob("*"))
        if received > self.limit_bytes:
            raise GitFailed(
                f"{self.address.name} sent more than {self.limit_bytes:,} bytes",
                program="git",
                exit_code=-1,
                hint=f"run it in a clone of the repository, of which only what is new is fetched, or {CHECK_OUT}",
            )


async def user_login(git_dir: Path) -> tuple[str, ...]:
    """The credential helpers that the user or the machine has set up, as settings; never those of a repository.

    `git_dir` is the repository of ours, whose configuration has none, so that all it sees is the user's.
    """
    completed = await git_for_user(
        Place(git_dir),
        "config",
        "-z",
        "--show-scope",
        "--get-regexp",
        r"^credential\.(.*\.)?(helper|username|usehttppath)$",
    )
    fields = os.fsdecode(completed.stdout).split("\0")
    rows = zip(fields[::2], fields[1::2], strict=False)
    return tuple(
        f"{name}={value}" for scope, row in rows if scope in _OWN_SCOPES for name, _, value in (row.partition("\n"),)
    )


def line_to(
    address: RemoteAddress, environment: Mapping[str, str], timeout_seconds: float, *, with_helper: bool = False
) -> Line:
    """How git may talk to an address: for http, if the user has a credential helper, with what that looks at."""
    if address.protocol == "ssh":
        kept = {name: environment[name] for name in _SSH_NAMES if name in environment}
        return Line("ssh", timeout_seconds, {**kept, "GIT_SSH_COMMAND": _SSH, "GIT_SSH_VARIANT": "ssh"})
    if address.protocol == "file":
        return Line("file", timeout_seconds)
    names = (*_HTTP_NAMES, *_HELPER_NAMES) if with_helper else _HTTP_NAMES
    return Line(address.protocol, timeout_seconds, {name: environment[name] for name in names if name in environment})


def settings_of(address: RemoteAddress) -> tuple[str, ...]:
    """What holds for a protocol. A renamed repository redirects; plain http must not lead away from this machine."""
    match address.protocol:
        case "https":
            return (*_HTTP_SETTINGS, "http.followRedirects=initial")
        case "http":
            return (*_HTTP_SETTINGS, "http.followRedirects=false")
        case "ssh" | "file":
            return ()


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:  # renamed meanwhile
        return 0
