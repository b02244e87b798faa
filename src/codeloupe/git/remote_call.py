"""One call of git to a remote: with the user's own login, nobody to ask, and within a time and a size."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from codeloupe.errors import GitFailed, ProcessTimedOut
from codeloupe.git.command import Line, Place, git_for_user, git_to_remote
from codeloupe.git.remote_address import RemoteAddress
from codeloupe.git.remote_failures import CHECK_OUT, remote_failure
from codeloupe.system.command import Completed

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
