"""Guards around every test, as a pytest plugin.

Each test gets a home, state and temporary directory of its own and an environment without secrets or settings
of the machine. A test fails when the real home directory changes, when its temporary directory is not empty
afterwards, or when it reaches for the network off loopback. Child processes find proxy variables that lead
nowhere.
"""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import os
import pwd
import re
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

DEAD_PROXY = "http://127.0.0.1:9"
_HOME_PARTS = ("", ".cache", ".config", ".local", ".local/share", ".local/state")
_HOME_FILES = (".gitconfig", ".config/git/config")
_LOOPBACK_NAMES = frozenset({"", "localhost", "localhost.localdomain", "ip6-localhost"})
_CONNECTING = ("connect", "connect_ex", "sendto", "sendmsg")
_LOOKING_UP = ("getaddrinfo", "gethostbyname", "gethostbyname_ex", "gethostbyaddr")
# Without compiled modules each start of a program that a test makes takes three times as long.
_SCRUBBED = re.compile(
    r"(GIT|CODELOUPE|XDG|GITHUB|GITLAB|RUNNER|CI|CIRCLE|SYSTEM_PULLREQUEST|LC)_.*"
    r"|.*(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY).*"
    r"|NO_COLOR|FORCE_COLOR|CLICOLOR.*|CI|COLUMNS|LINES|TERM|COLORTERM|LANG|LANGUAGE|PAGER|LESS|EDITOR|VISUAL"
    r"|PYTHONDONTWRITEBYTECODE"
)

_network_attempts: list[str] = []
_numbers = itertools.count()


class OffLoopbackError(OSError):
    """A test reached for the network."""


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts what it puts into the background with Ctrl-C ignored, and so would each program that a test starts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # It cannot be taken back, so it stands once for each process. An audit hook would see more, but while one written
    # in Python runs inside `sys.settrace`, other threads that coverage wants to trace die (CPython 3.11).
    if not getattr(sys, "_codeloupe_network_guard", False):
        sys._codeloupe_network_guard = True  # type: ignore[attr-defined]  # a mark that outlives this module
        for name in _CONNECTING:
            _guard_connecting(name)
        for name in _LOOKING_UP:
            _guard_looking_up(name)


def _guard_connecting(name: str) -> None:
    original = getattr(socket.socket, name)

    def checked(connection: socket.socket, *arguments: object, **named: object) -> object:
        if arguments:
            _refuse_address(f"socket.{name}", arguments[-1])
        return original(connection, *arguments, **named)

    setattr(socket.socket, name, checked)


def _guard_looking_up(name: str) -> None:
    original = getattr(socket, name)

    def checked(host: object, *arguments: object, **named: object) -> object:
        _refuse_host(f"socket.{name}", host)
        return original(host, *arguments, **named)

    setattr(socket, name, checked)


def _refuse_address(event: str, address: object) -> None:
    # Anything but a tuple is the path of a local socket, or None for one that is connected already.
    if isinstance(address, tuple):
        _refuse_host(event, address[0])


def _refuse_host(event: str, host: object) -> None:
    if host is not None and not _is_loopback(host):
        _network_attempts.append(f"{event} to {host!r}")
        raise OffLoopbackError(f"tests stay on this machine, but this one tried {_network_attempts[-1]}")


def _is_loopback(host: object) -> bool:
    name = host.decode("ascii", "replace") if isinstance(host, bytes) else str(host)
    if name in _LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _real_homes() -> frozenset[Path]:
    homes = {Path.home()}
    with contextlib.suppress(KeyError):  # a container's user may have no entry
        homes.add(Path(pwd.getpwuid(os.getuid()).pw_dir))
    return frozenset(homes)


_HOMES = _real_homes()


def _home_listing() -> dict[str, int | None]:
    """Every name in the usual places below the real home, and when the files that tools like to edit changed."""
    seen: dict[str, int | None] = {}
    for home in _HOMES:
        for part in _HOME_PARTS:
            directory = home / part
            try:
                seen.update(dict.fromkeys(str(entry) for entry in directory.iterdir()))
            except OSError:  # not every home has every place
                continue
        seen.update(
            (str(home / name), (home / name).stat().st_mtime_ns) for name in _HOME_FILES if (home / name).exists()
        )
    return seen


@pytest.fixture(scope="session", autouse=True)
def _scrubbed_environment() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if _SCRUBBED.fullmatch(name)]:
            patch.delenv(name)
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            patch.setenv(name, DEAD_PROXY)
            patch.setenv(name.lower(), DEAD_PROXY)
        patch.setenv("NO_PROXY", "127.0.0.1,localhost")
        patch.setenv("no_proxy", "127.0.0.1,localhost")
        patch.setenv("LC_ALL", "C.UTF-8")
        patch.setenv("TZ", "UTC")
        yield


@pytest.fixture(scope="session")
def _home_before(_scrubbed_environment: None) -> dict[str, int | None]:
    """The home as the last test left it: what one test leaves, the next finds, so each looks once."""
    return _home_listing()


@pytest.fixture(scope="session")
def _places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("places", numbered=True)


@pytest.fixture(autouse=True)
def _guarded(_home_before: dict[str, int | None], _places: Path) -> Iterator[None]:
    home, temporary = _make_places(_places / str(next(_numbers)))
    _network_attempts.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        patch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
        patch.setenv("XDG_CACHE_HOME", str(home / ".cache"))
        patch.setenv("XDG_DATA_HOME", str(home / ".local" / "share"))
        patch.setenv("XDG_STATE_HOME", str(home / ".local" / "state"))
        patch.setenv("CODELOUPE_HOME", str(home / "codeloupe"))
        patch.setenv("TMPDIR", str(temporary))
        # tempfile remembers the first directory it saw for the life of the process.
        patch.setattr(tempfile, "tempdir", None)
        yield
    _fail_on(_problems(_home_before, temporary))


def _make_places(place: Path) -> tuple[Path, Path]:
    home, temporary = place / "home", place / "tmp"
    place.mkdir()
    home.mkdir()
    temporary.mkdir()
    return home, temporary


def _problems(before: dict[str, int | None], temporary: Path) -> Iterator[str]:
    after = _home_listing()
    if after != before:
        changed = sorted(name for name in before.keys() | after.keys() if before.get(name, -1) != after.get(name, -1))
        before.clear()
        before.update(after)
        yield f"the real home directory changed while this test ran: {', '.join(changed)}"
    if left := sorted(entry.name for entry in temporary.iterdir()):
        yield f"the temporary directory is not empty after this test: {', '.join(left)}"
    if _network_attempts:
        yield f"this test reached for the network: {', '.join(_network_attempts)}"


def _fail_on(problems: Iterator[str]) -> None:
    if message := "\n".join(problems):
        pytest.fail(message, pytrace=False)
