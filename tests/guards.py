"""Guards around every test, as a pytest plugin.

Each test gets a home, state and temporary directory of its own and an environment without secrets or settings
of the machine. The user's home cannot be found from a test: where `HOME` is not set, the account's home is a path at
which nothing can be written. It is not watched, since other programs write to it meanwhile. A test fails when its
temporary directory is not empty afterwards, or when it reaches for the network off loopback. Child processes find
proxy variables that lead nowhere.
"""

from __future__ import annotations

import ipaddress
import itertools
import os
import pwd
import re
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

DEAD_PROXY = "http://127.0.0.1:9"
# Below a file that is no directory, nothing can be made, not even by root.
OUT_OF_BOUNDS = "/dev/null/home"
# Whoever starts the tests by nohup or in the background of a shell has these ignored, and so would each program that a
# test starts and then ends by them.
_INHERITED_AS_IGNORED = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM)
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
    for number in _INHERITED_AS_IGNORED:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)
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


def _without_a_home(entry_of: Callable[[int], pwd.struct_passwd]) -> Callable[[int], pwd.struct_passwd]:
    def entry_without_a_home(user: int) -> pwd.struct_passwd:
        entry = entry_of(user)
        return pwd.struct_passwd((*entry[:5], OUT_OF_BOUNDS, entry.pw_shell))

    return entry_without_a_home


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
        patch.setattr(pwd, "getpwuid", _without_a_home(pwd.getpwuid))
        yield


@pytest.fixture(scope="session")
def _places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("places", numbered=True)


@pytest.fixture(autouse=True)
def _guarded(_places: Path) -> Iterator[None]:
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
    _fail_on(_problems(temporary))


def _make_places(place: Path) -> tuple[Path, Path]:
    home, temporary = place / "home", place / "tmp"
    place.mkdir()
    home.mkdir()
    temporary.mkdir()
    return home, temporary


def _problems(temporary: Path) -> Iterator[str]:
    if left := sorted(entry.name for entry in temporary.iterdir()):
        yield f"the temporary directory is not empty after this test: {', '.join(left)}"
    if _network_attempts:
        yield f"this test reached for the network: {', '.join(_network_attempts)}"


def _fail_on(problems: Iterator[str]) -> None:
    if message := "\n".join(problems):
        pytest.fail(message, pytrace=False)
