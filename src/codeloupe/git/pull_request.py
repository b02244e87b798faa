"""A pull request, fetched by URL and object name into a repository of our own. It is never the user's own to trust.

What is fetched is the history as commits, and of head and merge base all files; in a clone, what that lacks. Protocols
are https and ssh, plain http to this machine, and files as a remote that the user set up. No address holds a password;
a call has the user's own login, nobody to ask, and a limit of time and size.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.errors import (
    CodeloupeError,
    GitFailed,
    NotARepository,
    ProcessTimedOut,
    RemoteTooLarge,
    RevisionError,
    UsageError,
)
from codeloupe.git.command import ENVIRONMENT, Place, git, git_for_user, try_git
from codeloupe.git.repository import OBJECT_NAME, Repository, lay_out, merge_base, open_repository, private_directory
from codeloupe.git.revisions import meant_revision
from codeloupe.git.scopes import parents_of
from codeloupe.model.scope import FetchedScope, PullRequestScope
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
# A token reaches git by a variable that no other child has. `echo` is part of the shell itself, so that no argument of
# any program holds it; in some shells it reads a backslash as more than that, and no token has one.
_TOKEN_NAME = "CODELOUPE_GIT_TOKEN"  # noqa: S105 - the name of a variable
_TOKEN_HELPER = f'!f() {{ test "$1" = get && echo username=x-access-token && echo "password=${_TOKEN_NAME}"; }}; f'
_TOKEN = regex(r"[!-\[\]-~]{1,4000}")
_CHECK_OUT = "check out the pull request yourself and review it there: --untrusted --base REF"
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
        hint = "remove it; a repository that needs a login can be fetched over ssh"
        raise UsageError("the URL of the pull request contains a user name or a password", hint=hint)
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
        raise _refused_remote("names a program to run")
    if "://" not in text:
        head, colon, _ = text.partition(":")
        if not colon or "/" in head:
            return _of_file(root / text)
        if found := _SCP.fullmatch(text):
            name = f"{found[1]}/{found[2].strip('/').removesuffix('.git')}"
            return RemoteAddress(text, "ssh", name, f"https://{name}")
    url = _split(text)
    if url is None or "://" not in text:
        raise _refused_remote("cannot be parsed")
    if url.scheme == "file" and url.netloc in ("", "localhost"):
        return _of_file(Path(url.path))
    if url.scheme not in ("https", "http", *_SSH_SCHEMES) or not url.hostname:
        raise _refused_remote(f"begins with {url.scheme[:20]}://, but only https, ssh and file URLs are supported")
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
        raise _refused_remote("has a path with unprintable characters")
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
    message = f"cannot fetch from {url.hostname} over plain http: others could read and change the data"
    raise UsageError(message, hint="use https or ssh")


def _not_understood(text: str) -> UsageError:
    # What is before an @ may be a password.
    shown = re.sub(r"//[^/]*@", "//…@", text[:200]) + ("…" if len(text) > 200 else "")
    hint = "give a number, OWNER/NAME#NUMBER, or a URL such as https://HOST/OWNER/NAME/pull/7"
    return UsageError(f"{shown!r} does not name a pull request", hint=hint)


def _refused_remote(why: str) -> UsageError:
    # The address itself is not shown: it may hold a password.
    return UsageError(f"the URL of the remote {why}", hint=f"give the URL of the pull request, or {_CHECK_OUT}")


TokenSource = Callable[[RemoteAddress], str | None]
"""The token for a remote over https, or None: it must only know those of the hosts that it names itself."""
_token_source: ContextVar[TokenSource | None] = ContextVar("token_source", default=None)


@contextmanager
def using_tokens(token_of: TokenSource | None) -> Iterator[None]:
    """Within this context remotes that have a token are asked with it, and not with the login of the user's own git."""
    previous = _token_source.set(token_of)
    try:
        yield
    finally:
        _token_source.reset(previous)


def _token_for(address: RemoteAddress) -> str | None:
    token_of = _token_source.get()
    token = token_of(address) if token_of is not None and address.protocol in ("http", "https") else None
    if token and not _TOKEN.fullmatch(token):
        message = f"the token for {address.name} contains an invalid character, such as a space or a line break"
        raise UsageError(message, hint="set it again, without surrounding characters")
    return token or None


class RemoteRepository(Struct, frozen=True):
    """A remote, and the repository of ours into which it is fetched. `limit_bytes` is what it may send at most.

    `otherwise` is what hints suggest where it cannot be fetched.
    """

    address: RemoteAddress
    git_dir: Path
    limit_bytes: int = 4 * 1024**3
    timeout_seconds: float = 900.0
    otherwise: str = _CHECK_OUT

    async def call(self, *arguments: str, stdin: bytes = b"", settings: tuple[str, ...] = ()) -> bytes:
        """What git prints. Raises UsageError or ProcessError."""
        completed = await self.try_call(*arguments, stdin=stdin, settings=settings)
        if completed.exit_code != 0:
            raise remote_failure(self.address, completed, otherwise=self.otherwise)
        return completed.stdout

    async def try_call(self, *arguments: str, stdin: bytes = b"", settings: tuple[str, ...] = ()) -> Completed:
        """How git ended. Raises ProcessError when it took too long or got too much."""
        protocol, token = self.address.protocol, _token_for(self.address)
        login = await _user_login(self.git_dir) if protocol in ("http", "https") and not token else ()
        own, variables = access_to(protocol, os.environ, with_helper=bool(login))
        if token:
            login, variables[_TOKEN_NAME] = _token_login(self.address), token
        # All that comes is kept in packs, whose size is watched.
        place = Place(self.git_dir, settings=("fetch.unpackLimit=1", *own, *login, *settings))
        environment = {**ENVIRONMENT, **variables, "GIT_ALLOW_PROTOCOL": protocol}
        limits: Any = {"max_bytes": 16 * 1024**2, "timeout_seconds": self.timeout_seconds}
        call = asyncio.ensure_future(try_git(place, *arguments, stdin=stdin, environment=environment, **limits))
        hint = f"run it in a clone of the repository, so that only new commits are fetched, or {self.otherwise}"
        try:
            done = False
            while not done:
                done = bool((await asyncio.wait((call,), timeout=_SECONDS_BETWEEN_LOOKS))[0])
                # Also at the end: it may have got all of it between two looks.
                if self._received_bytes() > self.limit_bytes:
                    message = f"{self.address.name} sent more than {self.limit_bytes:,} bytes"
                    raise RemoteTooLarge(message, program="git", status=-1, hint=hint)
            completed = call.result()
            # It got the token, and may say it.
            return replace(completed, stderr=completed.stderr.replace(token, "***")) if token else completed
        except ProcessTimedOut as error:
            message = f"fetching from {self.address.name} did not finish within {self.timeout_seconds:g} s"
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


def _token_login(address: RemoteAddress) -> tuple[str, ...]:
    """The settings by which git gives a token to the host of the address, and to no other that it might redirect to."""
    url = urlsplit(address.url)
    return f"credential.{url.scheme}://{url.netloc}.helper={_TOKEN_HELPER}", "http.followRedirects=false"


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


def remote_failure(address: RemoteAddress, completed: Completed, *, otherwise: str = _CHECK_OUT) -> CodeloupeError:
    """Why a remote gave nothing: a UsageError for what the caller can mend, else GitFailed."""
    said, name = completed.stderr, address.name
    if _NO_COMMIT.search(said):
        hint = "the pull request may have changed: retry; --base must be a commit of the remote"
        return RevisionError(f"{name} does not offer a commit that was requested", hint=hint)
    if "No space left on device" in said:
        message, code = f"{name} cannot be fetched: no space left on the disk", completed.exit_code
        hint = "free some disk space and retry"
        return GitFailed(message, program="git", status=code, stderr=said, hint=hint, retryable=True)
    if _WANTS_LOGIN.search(said) and _token_for(address):
        hint = "check that the token has not expired and can read this repository"
        return UsageError(f"{name} rejected the token, or does not exist", hint=hint)
    hint = f"check the access of your git (credential helper or ssh) with `git ls-remote`, or {otherwise}"
    if _WANTS_LOGIN.search(said):
        return UsageError(f"{name} requires a login that your git does not have, or does not exist", hint=hint)
    if _NOT_THERE.search(said):
        return UsageError(f"repository {name} not found", hint=hint)
    # The first line names the cause, the others what came of it.
    lines = (line for line in said.splitlines() if line.strip() and not line.lower().startswith("warning"))
    line = next(lines, "git gave no reason").rpartition("': ")[2]
    reason = line.removeprefix("fatal: ").removeprefix("error: ").strip()[:200]
    if _REFUSED.search(said):
        if "returned error: 30" in said:
            hint = f"the repository may have moved: give its new URL, or {otherwise}"
        return UsageError(f"{name} cannot be fetched: {reason}", hint=hint)
    hint = f"check the network and the URL and retry, or {otherwise}"
    message, code = f"{name} could not be reached: {reason}", completed.exit_code
    return GitFailed(message, program="git", status=code, stderr=said, hint=hint, retryable=True)


FETCH = (
    *("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--no-show-forced-updates"),
    *("--recurse-submodules=no", "--force"),
)


# A branch or tag of a remote by its short name, with its object; or a commit that was named outright.
_Branch = tuple[str, str]


async def fetch_pull_request(request: PullRequestScope, *, repo: Path, into: Path) -> tuple[FetchedScope, Path]:
    """Fetch a pull request below the empty directory `into`: what to review, and where. `repo` is where the caller is.

    Raises UsageError for what the caller can mend (no such pull request, a login is wanted, an address that is not
    understood) and ProcessError when the remote cannot be reached, or sends too much or too slowly.
    """
    asked = parse_pull_request(request.name)
    address, at_hand = await _address(asked, repo)
    root = into / folder_of(address)
    git_dir = make_engine(root, address)
    remote = RemoteRepository(address, git_dir)
    families, default = await _ask_for(remote, asked, base=request.base)
    family, (head, merge) = next(iter(families.items()))
    object_format = "sha256" if len(head) == 64 else "sha1"
    partial = not (at_hand and await _borrow_known(git_dir, at_hand, object_format))
    make_engine(root, address, object_format=object_format, partial=partial)
    tried = None
    # The remote's own try to merge tells what the pull request goes to, as long as it is a try to merge this head.
    if merge is not None and request.base is None:
        await _fetch_commits(remote, partial=partial, head=head, merge=merge)
        parents = await parents_of(Place(git_dir), merge)
        if len(parents) == 2 and parents[1] == head:
            is_default = default is not None and default[1] == parents[0]
            tried = default if is_default else (f"its base {parents[0][:12]}", parents[0])
    base = tried or default
    if base is None:
        hint = "give the target branch with --base"
        raise RevisionError(f"{address.name} does not say which branch the pull request targets", hint=hint)
    if tried is None:
        await _fetch_commits(remote, partial=partial, head=head, base=base[1])
    fetched = await open_repository(root)
    start = await merge_base(fetched, base[1], head)
    if start == head:
        message = f"every commit of pull request {asked.number} is in {base[0]} already, so there is nothing to review"
        raise RevisionError(message, hint="give --base a commit from before it was merged")
    if partial:
        trees = await git(fetched.place, "log", "--no-walk", "--no-patch", "--format=%T", start, head, "--")
        # What is here are commits alone; a remote that heard of them would take their files for here too.
        silent = ("fetch.negotiationAlgorithm=noop",)
        await remote.call(*FETCH, "--no-filter", "--stdin", "origin", stdin=trees, settings=silent)
    # Checked out, so to say: history knows a pull request by the name of its branch, and a project by its root.
    ref = branch_ref(f"{address.name}/{family}/{asked.number}")
    await git(Place(git_dir), "update-ref", ref, base[1])
    (git_dir / "HEAD").write_text(f"ref: {ref}\n", encoding="ascii")
    is_assumed = request.base is None and tried is None
    against = f"{base[0]}, which is assumed," if is_assumed else base[0]
    page = page_of(address, asked.number, family)
    description = f"pull request {page} against {against} ({start[:12]} to {head[:12]})"
    return FetchedScope(start, head, description, base[0] if is_assumed else ""), root


async def locate_pull_request(request: PullRequestScope, *, repo: Path) -> tuple[RemoteAddress, int, str]:
    """Where a pull request is, its number, and the commit it is at now. Raises as `fetch_pull_request` does."""
    asked = parse_pull_request(request.name)
    address, _ = await _address(asked, repo)
    with private_directory() as directory:
        remote = RemoteRepository(address, make_engine(directory / "asking", address))
        families, _ = await _ask_for(remote, asked, base=request.base)
    head, _ = next(iter(families.values()))
    return address, asked.number, head


async def _address(asked: PullRequestName, repo: Path) -> tuple[RemoteAddress, Repository | None]:
    """Where to ask, and the repository at hand, if that is a remote of it."""
    remotes: list[str] = []
    own: list[RemoteAddress] = []
    try:
        at_hand: Repository | None = await open_repository(repo)
    except NotARepository:
        at_hand = None
    if at_hand is not None:
        for name in ("upstream", "origin"):
            completed = await git_for_user(at_hand.place, "remote", "get-url", name)
            url = os.fsdecode(completed.stdout).split("\n", 1)[0]
            if completed.exit_code == 0 and url:
                remotes.append(url)
                with suppress(UsageError):
                    own.append(parse_remote(url, at_hand.root))
    if asked.repository is not None:
        address = address_beside(asked.repository, own)
        return address, at_hand if address in own else None
    if asked.address is not None:
        # The user's own way there may have a login that a URL of the web has not.
        same = next((remote for remote in own if remote.is_same(asked.address)), None)
        return same or asked.address, at_hand if same else None
    if at_hand is None:
        message = f"cannot find pull request {asked.number}: {repo} is not inside a git repository"
        raise NotARepository(message, hint="run it in a clone, or give the URL of the pull request")
    if not remotes:
        raise UsageError(
            f"cannot find pull request {asked.number}: {at_hand.root} has no remote named `upstream` or `origin`",
            hint="give the URL of the pull request",
        )
    return parse_remote(remotes[0], at_hand.root), at_hand


def folder_of(address: RemoteAddress) -> str:
    """The folder for a repository, as git names it when it clones: history calls the project by it."""
    name = address.name.rstrip("/").rpartition("/")[2].removesuffix(".git")
    return name if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,100}", name) else "repository"


def make_engine(root: Path, address: RemoteAddress, *, object_format: str = "sha1", partial: bool = False) -> Path:
    """Make the repository at `root` and return its git directory; `partial` allows that objects are missing."""
    config = "[extensions]\n\tpartialClone = origin\n" if partial else ""
    config += origin_section(address) + ("\tpromisor = true\n" if partial else "")
    lay_out(root / ".git", object_format, config=config)
    return root / ".git"


def origin_section(address: RemoteAddress) -> str:
    """The lines of a configuration that make the address its remote `origin`."""
    # Printable, and without what would end the quotes: an address was checked, a path may hold either.
    url = address.url.replace("\\", "\\\\").replace('"', '\\"')
    return f'[remote "origin"]\n\turl = "{url}"\n'


async def _borrow_known(git_dir: Path, clone: Repository, object_format: str) -> bool:
    """Let the engine read the objects of the user's clone, so that only what is new travels; whether that can be."""
    objects, is_other = clone.objects, clone.object_format != object_format
    is_partial = any(objects.glob("pack/*.promisor"))
    if clone.shallow or is_partial or "\n" in str(objects) or is_other:
        return False
    # More tips would make the talk with the remote longer, not what it sends shorter.
    words = ("--sort=-committerdate", "--count=200", "--format=%(objecttype) %(objectname)")
    try:
        output = await git(clone.place, "for-each-ref", *words, "refs/heads", "refs/remotes")
    except GitFailed:  # with a broken ref, say: then everything is fetched
        return False
    rows = (line.split(" ") for line in output.decode("ascii", "replace").split("\n"))
    tips = dict.fromkeys(row[1] for row in rows if row[0] == "commit")
    if not tips:
        return False
    (git_dir / "objects" / "info" / "alternates").write_bytes(os.fsencode(objects) + b"\n")
    refs = (f"{sha} refs/known/{number}\n" for number, sha in enumerate(tips))
    (git_dir / "packed-refs").write_text("".join(refs), encoding="ascii")
    return True


def branch_ref(name: str) -> str:
    """A branch that git accepts, near to a name."""
    parts = (re.sub(r"[^A-Za-z0-9_.-]|\.(?=\.|$)|^[.-]+|\.lock$", "-", part) for part in name.split("/") if part)
    return f"refs/heads/{'/'.join(parts)}"


async def _ask_for(
    remote: RemoteRepository, name: PullRequestName, *, base: str | None
) -> tuple[dict[RefFamily, tuple[str, str | None]], _Branch | None]:
    """By kind of ref the head and the remote's own try to merge, and the base: the one asked for, or the default."""
    families: tuple[RefFamily, ...] = ("pull", "merge-requests") if name.family is None else (name.family,)
    wanted = ["HEAD", *(f"refs/{family}/{name.number}/{part}" for family in families for part in ("head", "merge"))]
    homes = () if base is None else (f"refs/heads/{base}", f"refs/tags/{base}^{{}}", f"refs/tags/{base}")
    if base is not None and (not base or not base.isprintable() or " " in base or base.startswith("-")):
        raise RevisionError(f"{base!r} is not a revision", hint="give --base a branch or a tag of the remote")
    output = await remote.call("ls-remote", "--symref", "--", remote.address.url, *wanted, *homes)
    refs: dict[str, str] = {}
    default = "the default branch"
    for line in output.decode("utf-8", "replace").split("\n")[:1_000]:
        what, _, ref = line.partition("\t")
        if ref == "HEAD" and what.startswith("ref: refs/heads/"):
            default = what.removeprefix("ref: refs/heads/")
        elif ref in (*wanted, *homes) and OBJECT_NAME.fullmatch(what):  # a pattern of git's names others too
            refs[ref] = what
    places = {family: f"refs/{family}/{name.number}" for family in families}
    there = {
        family: (refs[f"{ref}/head"], refs.get(f"{ref}/merge"))
        for family, ref in places.items()
        if f"{ref}/head" in refs
    }
    if not there:
        hint = "check the number; the remote `upstream` is used if it exists, otherwise `origin`"
        raise RevisionError(f"{remote.address.name} has no pull request {name.number}", hint=hint)
    if base is None:
        return there, (default, refs["HEAD"]) if "HEAD" in refs else None
    if OBJECT_NAME.fullmatch(base):
        return there, (base[:12], base)
    if home := next((home for home in homes if home in refs), None):
        return there, (base, refs[home])
    hint = "with --pr, --base must be a branch or tag of the remote, or a full commit hash"
    listed = await remote.call("ls-remote", "--heads", "--tags", "--refs", "--", remote.address.url)
    meant = meant_revision(base, [line.partition("\t")[2] for line in os.fsdecode(listed).splitlines()[:5_000]])
    if meant:
        hint = f"did you mean {meant}? {hint}"
    raise RevisionError(f"{remote.address.name} has no branch or tag {base!r}", hint=hint)


async def _fetch_commits(remote: RemoteRepository, *, partial: bool, **wanted: str) -> None:
    """Fetch commits with their history, each under a ref of its name; of a `partial` engine, without their files."""
    refs = [f"{sha}:refs/pull-request/{name}" for name, sha in wanted.items()]
    # Commits without files are enough to find where a pull request began, and a small part of what a clone is.
    completed = await remote.try_call(*FETCH, *(["--filter=tree:0"] if partial else []), "origin", *refs)
    if partial and completed.exit_code and "filter" in completed.stderr:
        # A server may allow some filters and not this one.
        completed = await remote.try_call(*FETCH, "--no-filter", "origin", *refs)
    if completed.exit_code:
        raise remote_failure(remote.address, completed)
