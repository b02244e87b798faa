"""Our side of the guardian: it is started with the first call in flight and is gone after the last.

Nothing of it is left between calls: no process, no file, no setting of our own process, so that a program that uses
codeloupe as a library sees none of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

from msgspec import Struct

from codeloupe.system.process import inherited_environment, uninterrupted

_PROGRAM = Path(__file__).with_name("guardian.py")
# As a module and not as a script: that is compiled once, and not at every start.
_START = "import sys; sys.path.append(sys.argv.pop()); import guardian; guardian.main()"
_END_SECONDS = 5.0
_BUSY = {errno.EAGAIN, errno.ENOBUFS, errno.ETOOMANYREFS}
# Some builds of Python find their own library by these.
_LOADER_NAMES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


class _Guardian(Struct, frozen=True):
    process: subprocess.Popen[bytes]
    requests: socket.socket

    def let_go(self) -> None:
        """Tell it that there will be no further call."""
        with contextlib.suppress(OSError):
            self.requests.shutdown(socket.SHUT_RDWR)
        self.requests.close()


class _Shared:
    """The one guardian of this process and how many calls are in flight, on whatever thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls = 0
        self._guardian: _Guardian | None = None

    def enter(self) -> None:
        with self._lock:
            self._calls += 1

    def leave(self) -> _Guardian | None:
        """The guardian, when this was the last call in flight and it has to go."""
        with self._lock:
            self._calls -= 1
            if self._calls:
                return None
            last, self._guardian = self._guardian, None
            return last

    def hand_over(self, files: tuple[int, int, int, int]) -> None:
        """Hand a call to the guardian, and to a new one when the one there was has been ended."""
        with self._lock:
            if self._guardian is not None:
                try:
                    socket.send_fds(self._guardian.requests, [b"+"], files)
                    return
                except (BrokenPipeError, ConnectionResetError):
                    lost, self._guardian = self._guardian, None
                    lost.let_go()
                    lost.process.wait()
            self._guardian = _start()
            socket.send_fds(self._guardian.requests, [b"+"], files)

    def forget(self) -> None:
        """In a process that was forked off: the guardian is the parent's, and a thread of it may hold the lock."""
        if self._guardian is not None:
            self._guardian.requests.close()
            self._guardian.process.returncode = 0
        self._lock = threading.Lock()
        self._calls = 0
        self._guardian = None


_shared = _Shared()
os.register_at_fork(after_in_child=_shared.forget)


@contextlib.asynccontextmanager
async def guarded() -> AsyncIterator[None]:
    """Around a call: after the last one in flight the guardian is gone too."""
    _shared.enter()
    try:
        yield
    finally:
        last = _shared.leave()
        if last is not None:
            await uninterrupted(_end(last))


async def hand_over(files: tuple[int, int, int, int]) -> None:
    """Have a supervisor started that gets these files: the program's three streams, and the line to us.

    OSError when the guardian cannot be started or does not keep up.
    """
    give_up = time.monotonic() + _END_SECONDS
    while True:
        try:
            return _shared.hand_over(files)
        except OSError as error:
            if error.errno not in _BUSY or time.monotonic() > give_up:
                raise
        await asyncio.sleep(0.01)


def _start() -> _Guardian:
    ours, theirs = socket.socketpair()
    with contextlib.ExitStack() as stack:
        stack.enter_context(theirs)
        undo = stack.enter_context(contextlib.ExitStack())
        undo.enter_context(ours)
        ours.setblocking(False)  # noqa: FBT003 - the signature is Python's
        parent = _own_process_file()
        passed = [theirs.fileno()]
        if parent is not None:
            stack.callback(os.close, parent)
            passed.append(parent)
        words = (str(theirs.fileno()), str(-1 if parent is None else parent), str(_PROGRAM.parent))
        loader = {name: os.environ[name] for name in _LOADER_NAMES if name in os.environ}
        process = subprocess.Popen(  # noqa: S603 - our own program, in isolated mode
            # Isolated, it would not hear of the variable by which a user asked for no bytecode.
            (sys.executable, "-I", "-S", *(("-B",) if sys.dont_write_bytecode else ()), "-c", _START, *words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=inherited_environment(**loader),
            pass_fds=passed,
            start_new_session=True,
        )
        undo.pop_all()
    return _Guardian(process, ours)


def _own_process_file() -> int | None:
    """A file that becomes readable when we are gone, also when a process that we forked keeps our sockets open."""
    try:
        return os.pidfd_open(os.getpid())
    except (AttributeError, OSError):
        return None


async def _end(guardian: _Guardian) -> None:
    guardian.let_go()
    give_up, pause_seconds = time.monotonic() + _END_SECONDS, 0.001
    while guardian.process.poll() is None:
        if time.monotonic() > give_up:
            guardian.process.kill()
        await asyncio.sleep(pause_seconds)
        pause_seconds = min(2 * pause_seconds, 0.05)
