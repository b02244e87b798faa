"""Child processes: what is run, what they see of this machine, and short-lived ones run to their end.

Every child gets its own session, an allowlisted environment, a deadline and a cap on what it may write. Whatever
happens (timeout, overflow, cancellation, also during the clean-up), its process group is gone when `run` ends.

`run` has two gaps that `stream` has not, since a guardian for each git call would cost more than the call: a grandchild
in a session of its own is not followed, and when we are killed, a child lives on until it next reads or writes a pipe.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar

from codeloupe.errors import OutputTooLarge, ProcessError, ProcessTimedOut, ProgramNotFound
from codeloupe.model import Confidential

_Result = TypeVar("_Result")

# The way to the network: a proxy's address may hold a password, but without it nothing can be reached.
NETWORK_NAMES = (
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR"),
)
_HOME_NAMES = ("HOME", "USER", "LOGNAME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")

_NOT_FOUND = {
    *(errno.ENOENT, errno.EACCES, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOEXEC)
}
EXHAUSTED = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE}
_TERMINATE_GRACE_SECONDS = 2.0
_LAST_WAIT_SECONDS = 5.0
_STDERR_TAIL_BYTES = 64 * 1024
_CHUNK_BYTES = 256 * 1024


class Command(Confidential, frozen=True, kw_only=True):
    """What to run. At `max_output_bytes` `run` ends a child; `stream` keeps so much of what it wrote."""

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

    After `run`, `stderr` holds its last 64 KiB. After `stream`, either output may lack its middle (of stdout, so many
    `omitted_bytes`), with a line in its place that says so; `skipped_lines` were too long to be handed over.
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
    kept = {name: os.environ[name] for name in ("TMPDIR", "TZ") if name in os.environ}
    return {"PATH": search_path(), "LC_ALL": "C.UTF-8", **kept, **extra}


def program_environment(names: Iterable[str] = (), settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """For a program of the user's own choice: also the home, the way to the network, and `names`; `settings` win."""
    kept = {name: os.environ[name] for name in (*_HOME_NAMES, *NETWORK_NAMES, *names) if os.environ.get(name)}
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
    elif error.errno in _NOT_FOUND:
        kind = ProgramNotFound
        reason, hint = "it is not installed, or not a program that can be run here", f"install {program} and try again"
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


class Child:
    """A started program in a session of its own; `takers` get its outputs. Making one raises OSError or ValueError."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        environment: Mapping[str, str],
        stdin: bytes,
        takers: tuple[Callable[[bytes], None], Callable[[bytes], None]],
        pass_files: Sequence[int] = (),
    ) -> None:
        pipes: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        own: Any = {"start_new_session": True, "pass_fds": pass_files, "bufsize": 0}
        self.process = subprocess.Popen(argv, cwd=cwd, env=environment, **pipes, **own)  # noqa: S603 - no shell
        self._loop = asyncio.get_running_loop()
        self._open: dict[IO[bytes] | socket.socket, asyncio.Future[None]] = {}
        feed, *outputs = self.process.stdin, self.process.stdout, self.process.stderr
        ends = [self.read(output, take) for output, take in zip(outputs, takers, strict=True) if output]
        self.drained = asyncio.gather(*ends)
        if feed:
            # As fast as the other side reads. A program may rightly end before it has read all of its input.
            os.set_blocking(feed.fileno(), False)
            self._open[feed] = self._loop.create_future()
            self._write(feed, memoryview(stdin))

    def read(self, pipe: IO[bytes] | socket.socket, take: Callable[[bytes], None]) -> asyncio.Future[None]:
        """Hand over what comes until the end; the future is done then, or when all are closed."""
        os.set_blocking(pipe.fileno(), False)
        self._open[pipe] = self._loop.create_future()
        self._loop.add_reader(pipe.fileno(), self._read, pipe, take)
        return self._open[pipe]

    def close(self) -> None:
        """Close the pipes that are still open."""
        for pipe in list(self._open):
            self._end(pipe)

    def _read(self, pipe: IO[bytes] | socket.socket, take: Callable[[bytes], None]) -> None:
        try:
            data = os.read(pipe.fileno(), _CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:  # a socket that was cut is at its end
            data = b""
        if data:
            take(data)
        else:
            self._end(pipe)

    def _write(self, pipe: IO[bytes], rest: memoryview) -> None:
        try:
            rest = rest[os.write(pipe.fileno(), rest) :]
        except BlockingIOError:
            pass
        except OSError:
            rest = rest[:0]
        if rest:
            self._loop.add_writer(pipe.fileno(), self._write, pipe, rest)
        else:
            self._end(pipe)

    def _end(self, pipe: IO[bytes] | socket.socket) -> None:
        self._loop.remove_reader(pipe.fileno())
        self._loop.remove_writer(pipe.fileno())
        pipe.close()
        if not (ended := self._open.pop(pipe)).done():
            ended.set_result(None)

    async def gone(self, seconds: float) -> bool:
        """Wait for the program's end, at most so long; whether it came."""
        give_up, pause_seconds = time.monotonic() + seconds, 0.0002
        while self.process.poll() is None:
            if time.monotonic() > give_up:
                return False
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, 0.02)
        return True

    async def end(self) -> None:
        """TERM, a grace, KILL on the whole group; being cancelled costs the waits, never the KILL."""
        try:
            if self.process.poll() is None:
                self._signal(signal.SIGTERM)
                await self.gone(_TERMINATE_GRACE_SECONDS)
        finally:
            # The leader may be gone while another member of its group lives and holds the pipes.
            self._signal(signal.SIGKILL)
            self.close()
            await self.gone(_LAST_WAIT_SECONDS)

    def _signal(self, number: signal.Signals) -> None:
        """Signal the group; its number is not given away again while a member lives."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


async def run(command: Command) -> Completed:
    """Run a child to its end and return what it wrote, whatever its exit code.

    Raises ProgramNotFound or another ProcessError when it cannot be started, ProcessTimedOut or OutputTooLarge
    when it had to be ended; it is gone in every case.
    """
    started, written, left, tail = time.monotonic(), list[bytes](), command.max_output_bytes, bytearray()
    overflow: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def take_stdout(data: bytes) -> None:
        nonlocal left
        left -= len(data)
        if left >= 0:
            written.append(data)
        else:
            written.clear()
            if not overflow.done():
                overflow.set_result(None)

    def take_stderr(data: bytes) -> None:
        tail.extend(data)
        del tail[:-_STDERR_TAIL_BYTES]

    how: Any = {"cwd": command.cwd, "environment": command.environment, "stdin": command.stdin}
    try:
        child = Child(command.argv, **how, takers=(take_stdout, take_stderr))
    except (OSError, ValueError) as error:
        raise start_failure(command, error) from error
    try:
        ends = (child.drained, overflow)
        await asyncio.wait(ends, timeout=command.timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
        if overflow.done():
            message = f"{command.program} wrote more than {command.max_output_bytes:,} bytes and was ended"
            raise OutputTooLarge(message, program=command.program, hint="review a smaller change")
        seconds = started + command.timeout_seconds - time.monotonic()
        if not child.drained.done() or not await child.gone(seconds):
            message = f"{command.program} did not finish within {command.timeout_seconds:g} s and was ended"
            hint = "raise the time limit, or review a smaller change"
            raise ProcessTimedOut(message, program=command.program, hint=hint)
    finally:
        await uninterrupted(child.end())
    exit_code, stderr = child.process.returncode, tail.decode("utf-8", "replace")
    return Completed(exit_code, b"".join(written), stderr, time.monotonic() - started)
