"""Guards around every test, as a pytest plugin.

Tests run without the machine's secrets and settings, and with a home at which nothing can be written, not even by root;
the fixture `home` gives one that can. A test fails when it reaches for the network off loopback, and a test of the unit
tier when it starts a program or opens a socket. A run fails at its end when temporary files are left. Child processes
find proxy variables that lead nowhere.
"""

import functools
import ipaddress
import itertools
import os
import pwd
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

DEAD_PROXY = "http://127.0.0.1:9"
# Below a file that is no directory, nothing can be made, not even by root.
OUT_OF_BOUNDS = "/dev/null/home"
# Whoever starts the tests by nohup or in the background of a shell has these ignored, and so would each program that a
# test starts and then ends by them.
_INHERITED_AS_IGNORED = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM)
_LOOPBACK_NAMES = frozenset({"", "localhost", "localhost.localdomain", "ip6-localhost"})
_CONNECTING = ("connect", "connect_ex", "sendto", "sendmsg")
_OF_PROGRAMS = ((subprocess.Popen, "__init__"), (os, "fork"), (os, "posix_spawn"), (socket.socket, "bind"))
_LOOKING_UP = ("getaddrinfo", "gethostbyname", "gethostbyname_ex", "gethostbyaddr")
# Without compiled modules each start of a program that a test makes takes three times as long.
_SCRUBBED = re.compile(
    r"(GIT|CODELOUPE|XDG|GITHUB|GITLAB|RUNNER|CI|CIRCLE|SYSTEM_PULLREQUEST|LC)_.*"
    r"|.*(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY).*"
    r"|NO_COLOR|FORCE_COLOR|CLICOLOR.*|CI|COLUMNS|LINES|TERM|COLORTERM|LANG|LANGUAGE|PAGER|LESS|EDITOR|VISUAL"
    r"|PYTHONDONTWRITEBYTECODE"
)

_attempts: list[str] = []
_numbers = itertools.count()
# Whether the test that runs is one of the unit tier.
_strict = False


class OutOfBoundsError(OSError):
    """A test reached for the network, or one of the unit tier for a program or a socket."""


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
        for owner, name in _OF_PROGRAMS:
            _guard_program(owner, name)


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


def _guard_program(owner: object, name: str) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def checked(*arguments: Any, **named: Any) -> Any:
        if _strict:
            _attempts.append(name.replace("__init__", "Popen"))
            raise OutOfBoundsError(f"a test of the unit tier called {_attempts[-1]}; mark it `program`")
        return original(*arguments, **named)

    setattr(owner, name, checked)


def _refuse_address(event: str, address: object) -> None:
    if _strict:
        _attempts.append(event)
        raise OutOfBoundsError(f"a test of the unit tier called {event}; mark it `program`")
    # Anything but a tuple is the path of a local socket, or None for one that is connected already.
    if isinstance(address, tuple):
        _refuse_host(event, address[0])


def _refuse_host(event: str, host: object) -> None:
    if host is not None and not _is_loopback(host):
        _attempts.append(f"{event} to {host!r}")
        raise OutOfBoundsError(f"tests stay on this machine, but this one tried {_attempts[-1]}")


def _is_loopback(host: object) -> bool:
    name = host.decode("ascii", "replace") if isinstance(host, bytes) else str(host)
    if name in _LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        return False


@pytest.fixture(scope="session", autouse=True)
def _scrubbed_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    temporary = tmp_path_factory.mktemp("tmp")
    entry_of = pwd.getpwuid

    def entry_without_a_home(user: int) -> pwd.struct_passwd:
        entry = entry_of(user)
        return pwd.struct_passwd((*entry[:5], OUT_OF_BOUNDS, entry.pw_shell))

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
        patch.setenv("TMPDIR", str(temporary))
        # tempfile remembers the first directory it saw for the life of the process.
        patch.setattr(tempfile, "tempdir", None)
        patch.setattr(pwd, "getpwuid", entry_without_a_home)
        set_home(patch, Path(OUT_OF_BOUNDS))
        yield
    left = sorted(entry.name for entry in temporary.iterdir())
    assert not left, f"tests left temporary files: {', '.join(left)}"


@pytest.fixture
def home(
    _scrubbed_environment: None, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A home and state directory of the test's own, for what keeps something there."""
    place = tmp_path_factory.getbasetemp() / "homes" / str(next(_numbers))
    set_home(monkeypatch, place)
    return place


def set_home(patch: pytest.MonkeyPatch, home: Path) -> None:
    """Let everything that is kept for a user go below a directory, which is made when it can be."""
    if str(home) != OUT_OF_BOUNDS:
        home.mkdir(parents=True)
    patch.setenv("HOME", str(home))
    patch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    patch.setenv("XDG_CACHE_HOME", str(home / ".cache"))
    patch.setenv("XDG_DATA_HOME", str(home / ".local" / "share"))
    patch.setenv("XDG_STATE_HOME", str(home / ".local" / "state"))
    patch.setenv("CODELOUPE_HOME", str(home / "codeloupe"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    yield from _watched(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    yield from _watched(item)


def _watched(item: pytest.Item) -> Iterator[None]:
    global _strict  # noqa: PLW0603 - the guards are methods of other classes and ask here
    _attempts.clear()
    _strict = item.get_closest_marker("program") is None
    try:
        yield
    finally:
        _strict = False
    if _attempts:
        pytest.fail(f"this test went out of bounds: {', '.join(_attempts)}", pytrace=False)
