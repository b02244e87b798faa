"""Why a remote gave nothing, from git's words to ours: what the caller can mend, and what not."""

from __future__ import annotations

from codeloupe.errors import CodeloupeError, GitFailed, RevisionError, UsageError
from codeloupe.git.command import failure
from codeloupe.git.remote_address import RemoteAddress
from codeloupe.system.command import Completed

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
