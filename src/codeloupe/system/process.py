"""Child processes: what is run, what they see of this machine, and short-lived ones run to their end.

Every child gets its own session, an allowlisted environment, its input by a pipe that is closed, a deadline and a cap
on what it may write. Whatever happens (timeout, overflow, cancellation, even a second cancellation during the
clean-up), the child and its process group are gone when `run` returns or raises.

Two gaps are left in `run`, and `stream` has neither. A grandchild that moved to a session of its own is not followed:
git and the analysers make none. And when this process is killed outright, a child lives on until it next reads or
writes a pipe of ours: a guardian for each git call would cost more than the call.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import signal
import time
from collections.abc import Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from codeloupe.errors import OutputTooLarge, ProcessError, ProcessTimedOut, ProgramNotFound
from codeloupe.model import Confidential

_Result = TypeVar("_Result")

_INHERITED_NAMES = ("TMPDIR", "TZ")
_PROXY_NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
_XDG_NAMES = ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
_CERTIFICATE_NAMES = ("NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR")
# The way to the network: a proxy's address may hold a password, but without it nothing can be reached.
NETWORK_NAMES = (*_PROXY_NAMES, *(name.lower() for name in _PROXY_NAMES), *_CERTIFICATE_NAMES)

_NOT_FOUND = {errno.ENOENT, errno.EACCES, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG}
EXHAUSTED = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE}
_TERMINATE_GRACE_SECONDS = 2.0
_LAST_WAIT_SECONDS = 5.0
_STDERR_TAIL_BYTES = 64 * 1024
_STDIN, _STDOUT, _STDERR = 0, 1, 2


class Command(Confidential, frozen=True, kw_only=True):
    """What to run. `argv[0]` is a path or a name looked up on the PATH of `environment`.

    `max_output_bytes` is where `run` ends a child, and how much `stream` keeps of what it wrote.
    """

    argv: tuple[str, ...]
    cwd: Path
    environment: Mapping[str, str]
    timeout_seconds: float
    max_output_bytes: int
    stdin: bytes = b""

    @property
    def program(self) -> str:
        """The short name of the program, for messages."""
        return Path(self.argv[0]).name


class Completed(Confidential, frozen=True):
    """How a child ended; a negative exit code is the signal that ended it.

    After `run`, `stdout` is whole and `stderr` holds at most its last 64 KiB. After `stream`, either may lack its
    middle, with a line in its place that says so; `omitted_bytes` is what stdout lacks. `skipped_lines` counts the
    lines that were too long to be handed over.
    """

    exit_code: int
    stdout: bytes
    stderr: str
    seconds: float
    omitted_bytes: int = 0
    skipped_lines: int = 0

    @property
    def stdout_truncated(self) -> bool:
        """Whether `stdout` lacks its middle, so that it must not be parsed as a whole."""
        return self.omitted_bytes > 0


def inherited_environment(**extra: str) -> dict[str, str]:
    """The few variables every child may see, plus `extra`; nothing else of ours, so no secret leaks."""
    kept = {name: os.environ[name] for name in _INHERITED_NAMES if name in os.environ}
    return {"PATH": search_path(), "LC_ALL": "C.UTF-8", **kept, **extra}


def program_environment(names: Iterable[str] = (), settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """For a program of the user's own choice: also the home, the way to the network, and of our variables `names`.

    `settings` has the last word.
    """
    passed_on = ("HOME", "USER", "LOGNAME", *_XDG_NAMES, *NETWORK_NAMES, *names)
    kept = {name: os.environ[name] for name in passed_on if os.environ.get(name)}
    return {**inherited_environment(), **kept, "NO_COLOR": "1", **(settings or {})}


def search_path() -> str:
    """Where programs are looked for."""
    # A relative or empty entry means the current directory, which may be the reviewed tree with its own "git".
    entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(entry for entry in entries if Path(entry).is_absolute()) or os.defpath


def find_program(name: str) -> str | None:
    """Where a program is on the PATH, or None."""
    return shutil.which(name, path=search_path())


def start_failure(command: Command, error: OSError | ValueError) -> ProcessError:
    """The error that says why a program could not be started."""
    program, kind = command.program, ProcessError
    if not isinstance(error, OSError) or error.errno is None:
        reason, hint = f"an argument or a variable cannot be handed over ({error})", "look for a name with a NUL byte"
    elif error.errno == errno.E2BIG:
        reason, hint = "its arguments are longer than the system allows", "review a smaller change"
    elif error.errno in EXHAUSTED:
        reason, hint = f"the system has no room for it ({error.strerror})", "try again with fewer programs running"
    elif not (command.cwd.is_dir() and os.access(command.cwd, os.X_OK)):
        reason, hint = f"its working directory {command.cwd} does not exist or cannot be entered", "check that path"
    elif error.errno == errno.ENOEXEC:
        kind = ProgramNotFound
        reason, hint = "it is not a program that this machine can run", f"install {program} again"
    elif error.errno in _NOT_FOUND:
        kind = ProgramNotFound
        reason, hint = "it is not installed or not executable", f"install {program} and try again"
    else:
        reason, hint = f"{error.strerror}", f"check the installation of {program}"
    return kind(f"cannot start {program}: {reason}", program=program, hint=hint)


async def uninterrupted(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Finish `work` even when we are cancelled meanwhile, however often; the cancellation is raised afterwards."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return task.result()
    if not task.cancelled():
        task.exception()  # looked at, so that asyncio does not log it as lost
    raise cancelled


def settle(future: asyncio.Future[None]) -> None:
    """Mark a future as done, unless it is."""
    if not future.done():
        future.set_result(None)


async def run(command: Command) -> Completed:
    """Run a child to its end and return what it wrote, whatever its exit code.

    Raises ProgramNotFound or another ProcessError when it cannot be started, ProcessTimedOut or OutputTooLarge
    when it had to be ended; it is gone in every case.
    """
    started = time.monotonic()
    child = await _start(command)
    try:
        child.feed(command.stdin)
        await asyncio.wait((child.finished,), timeout=command.timeout_seconds)
        if child.overflowed:
            raise OutputTooLarge(
                f"{command.program} wrote more than {command.max_output_bytes:,} bytes and was ended",
                program=command.program,
                hint="review a smaller change",
            )
        if not child.finished.done():
            raise ProcessTimedOut(
                f"{command.program} did not finish within {command.timeout_seconds:g} s and was ended",
                program=command.program,
                hint="raise the time limit, or review a smaller change",
            )
    finally:
        await uninterrupted(_end(child))
    words = child.tail.decode("utf-8", "replace")
    return Completed(child.exit_code(), b"".join(child.chunks), words, time.monotonic() - started)


class _Child(asyncio.SubprocessProtocol):
    """A running child and what it wrote so far.

    `exited` is done when the child itself is gone, `finished` when also both of its outputs are at their end
    (or one grew over the cap), `closed` when no pipe to it is open any more.
    """

    def __init__(self, max_output_bytes: int) -> None:
        loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[None] = loop.create_future()
        self.finished: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self.overflowed = False
        self.chunks: list[bytes] = []
        self.tail = b""
        self._room_bytes = max_output_bytes
        self._open_outputs = {_STDOUT, _STDERR}
        self._transport: asyncio.SubprocessTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)  # noqa: S101 - for the type checker
        self._transport = transport

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == _STDERR:
            self.tail = (self.tail + data)[-_STDERR_TAIL_BYTES:]
        elif not self.overflowed:
            self._room_bytes -= len(data)
            self.chunks.append(data)
            if self._room_bytes < 0:
                self.overflowed = True
                self.chunks.clear()
                settle(self.finished)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._open_outputs.discard(fd)
        self._finish_if_over()

    def process_exited(self) -> None:
        settle(self.exited)
        self._finish_if_over()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        settle(self.closed)

    def _finish_if_over(self) -> None:
        if self.exited.done() and not self._open_outputs:
            settle(self.finished)

    def feed(self, data: bytes) -> None:
        """Hand over the whole input and close it. A child may rightly end before it has read all of it."""
        pipe = self._transport.get_pipe_transport(_STDIN)
        if isinstance(pipe, asyncio.WriteTransport):
            pipe.write(data)
            pipe.write_eof()

    def close_pipes(self) -> None:
        """Let go of every pipe, also of one that a stray grandchild holds open, and of input not yet read."""
        pipe = self._transport.get_pipe_transport(_STDIN)
        if isinstance(pipe, asyncio.WriteTransport) and pipe.get_write_buffer_size():
            pipe.abort()
        self._transport.close()

    def signal_group(self, number: signal.Signals) -> None:
        """Signal the child's process group; its number is not given away again while a member lives."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._transport.get_pid(), number)

    def exit_code(self) -> int:
        code = self._transport.get_returncode()
        assert code is not None  # noqa: S101 - asked only when `finished` is done
        return code


async def _start(command: Command) -> _Child:
    """Start the child. A cancellation that comes while it starts waits for it, so that it can be ended."""

    async def create() -> _Child:
        _, child = await asyncio.get_running_loop().subprocess_exec(
            lambda: _Child(command.max_output_bytes),
            *command.argv,
            cwd=command.cwd,
            env=dict(command.environment),
            start_new_session=True,
        )
        return child

    async def end_when_started() -> None:
        await _end(await creation)

    creation = asyncio.ensure_future(create())
    try:
        return await asyncio.shield(creation)
    except asyncio.CancelledError:
        with contextlib.suppress(OSError, ValueError):
            await uninterrupted(end_when_started())
        raise
    except (OSError, ValueError) as error:
        raise start_failure(command, error) from error


async def _end(child: _Child) -> None:
    """TERM, a grace, KILL on the whole group, and bounded waits until child and pipes are gone.

    Being cancelled itself (a second Ctrl-C does that to every task) costs the waits, never the KILL.
    """
    try:
        if not child.exited.done():
            child.signal_group(signal.SIGTERM)
            await asyncio.wait((child.exited,), timeout=_TERMINATE_GRACE_SECONDS)
    finally:
        # The leader may be gone while another member of its group lives and holds the pipes.
        child.signal_group(signal.SIGKILL)
        try:
            await asyncio.wait((child.exited,), timeout=_LAST_WAIT_SECONDS)
        finally:
            child.close_pipes()
    await asyncio.wait((child.closed,), timeout=_LAST_WAIT_SECONDS)
