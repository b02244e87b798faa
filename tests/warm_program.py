"""The installed program without the time that it takes to load, for tests of what it does once it is loaded.

A run is a process of its own as for `tests/program.py`, with real streams and a real exit code, but forked from a
process that has loaded what the program may need. The packages of the api agent alone take seconds. What is
about the start itself, or about how the program ends, belongs to `tests/program.py`. No test waits for the loading:
until it is done, the program is started as there. All workers of a run share that process: as a plugin of pytest, this
module starts it before them.
"""

import functools
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from tests.program import Ended
from tests.program import codeloupe as started_codeloupe

_SERVER = Path(__file__).with_name("warm_server.py")
# It is no child of ours from the beginning, before it loads anything.
_START = (
    "import os, runpy, sys; os.fork() and os._exit(0); os.setsid(); del sys.argv[0]; "
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)
_READY = b"ready"
_LARGEST_WORDS_BYTES = 1 << 16
_ADDRESS = "WARM_PROGRAM_ADDRESS"
_MAKING = threading.Lock()
# The server ends when these are closed, which is when we end.
_KEPT: list[socket.socket] = []
_READ_AT_START = ("PYTHON", "LC_", "LANG")
# Nothing that the test which happens to be the first has set: what is loaded with it would be there for all, and its
# places may be gone before all is loaded.
_PLAIN = {"LC_ALL": "C.UTF-8", "TZ": "UTC", "NO_PROXY": "127.0.0.1", "HOME": "/nonexistent"}


def pytest_configure(config: pytest.Config) -> None:
    is_for_others = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
    if is_for_others and config.getoption("--tier") != "unit":
        os.environ[_ADDRESS], _KEPT[:] = _start_server()


def codeloupe(*words: str, cwd: Path, stdin: bytes = b"", environment: Mapping[str, str] | None = None) -> Ended:
    """Run the program to its end. A traceback on stderr fails the test, whatever it was about."""
    for name in environment or {}:
        assert not name.startswith(_READ_AT_START), f"{name} is read when an interpreter starts: use tests/program.py"
    line = _line()
    if not line.is_ready():
        return started_codeloupe(*words, cwd=cwd, stdin=stdin, environment=environment)
    run = {"words": words, "cwd": str(cwd), "environment": {**os.environ, **(environment or {})}}
    with _file(stdin) as source, _file() as stdout, _file() as stderr:
        streams = [file.fileno() for file in (source, stdout, stderr)]
        exit_code = _exit_code(line, json.dumps(run).encode(), streams)
        ended = Ended(exit_code, _text(stdout), _text(stderr))
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended


def _start_server() -> tuple[str, list[socket.socket]]:
    """The address of a new server, and what it lives as long as."""
    address = f"codeloupe-tests-{secrets.token_hex(8)}"
    life, its = socket.socketpair()
    with its, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"\0{address}")
        listener.listen(64)
        numbers = (listener.fileno(), its.fileno())
        subprocess.run(
            (sys.executable, "-P", "-c", _START, str(_SERVER), *map(str, numbers)),
            env=_PLAIN,
            pass_fds=numbers,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )
    return address, [life]


class _Line:
    """The line of this process to the server."""

    def __init__(self) -> None:
        if not (address := os.environ.get(_ADDRESS)):
            address, _KEPT[:] = _start_server()
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(f"\0{address}")
        self._is_ready = False
        self._lock = threading.Lock()

    def is_ready(self) -> bool:
        """Whether all is loaded; fails the test with the server's words when that failed."""
        with self._lock:
            if self._is_ready:
                return True
            try:
                said = self.socket.recv(_LARGEST_WORDS_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return False
            assert said == _READY, said.decode("utf-8", "replace") or "the server of warm programs is gone"
            self._is_ready = True
            return True


def _line() -> _Line:
    """The one line, whichever thread asks first."""
    with _MAKING:
        return _made_line()


@functools.cache
def _made_line() -> _Line:
    return _Line()


def _exit_code(line: _Line, message: bytes, streams: list[int]) -> int:
    end, told = os.pipe()
    try:
        socket.send_fds(line.socket, [message], [*streams, told])
    finally:
        os.close(told)
    with os.fdopen(end, "rb") as answer:
        said = answer.read()
    assert said, "nobody told how the program ended"
    return int(said)


@contextmanager
def _file(content: bytes = b"") -> Iterator[IO[bytes]]:
    """A file without a name, to be read from its beginning."""
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        yield file


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "surrogateescape")
