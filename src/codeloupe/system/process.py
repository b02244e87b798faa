"""Child processes: what they see of this machine, short ones run to their end, and agents read while they run.

Every child gets its own session, an allowlisted environment, a deadline and a cap on what it may write. Whatever
happens (timeout, overflow, cancellation, also during the clean-up), its process group is gone when `run` ends.

`run` has two gaps that `stream` has not, since a guardian for each git call would cost more than the call: a grandchild
in a session of its own is not followed, and when we are killed, a child lives on until it next reads or writes a pipe.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextvars import ContextVar
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

_NO_PROGRAM = ["ENOENT", "EACCES", "ENOTDIR", "EISDIR", "ELOOP", "ENAMETOOLONG", "ENOEXEC"]
EXHAUSTED = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE}
_TERMINATE_GRACE_SECONDS = 2.0
_LAST_WAIT_SECONDS = 5.0
_STDERR_TAIL_BYTES = 64 * 1024
_CHUNK_BYTES = 256 * 1024
_LOOK_AGAIN_SECONDS = 0.5


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
    return os.pathsep.join(entry for entry in entries if entry.startswith("/")) or os.defpath


def find_program(name: str) -> str | None:
    """Where a program is on the PATH, or None."""
    return shutil.which(name, path=search_path())


def start_failure(command: Command, error: OSError | ValueError) -> ProcessError:
    """Return the error that says why a program could not be started."""
    program, kind = command.program, ProcessError
    if not isinstance(error, OSError) or error.errno is None:
        reason, hint = (
            f"invalid argument or environment variable ({error})",
            "check for a NUL byte in its arguments and variables",
        )
    elif error.errno == errno.E2BIG:
        reason, hint = "its arguments are longer than the system allows", "review a smaller change"
    elif error.errno in EXHAUSTED:
        reason, hint = f"the system is out of resources ({error.strerror})", "retry with fewer programs running"
    elif not (command.cwd.is_dir() and os.access(command.cwd, os.X_OK)):
        reason, hint = f"its working directory {command.cwd} does not exist or cannot be entered", "check that path"
    elif errno.errorcode.get(error.errno) in _NO_PROGRAM:
        kind = ProgramNotFound
        reason, hint = "it is not installed, or cannot run on this system", f"install {program} and retry"
    else:
        reason, hint = f"{error.strerror}", f"check the installation of {program}"
    return kind(f"cannot start {program}: {reason}", program=program, hint=hint)


# Of the thread that does what `uninterrupted` was given: set when whoever waits for that was cancelled.
_abandoned: ContextVar[threading.Event | None] = ContextVar("abandoned", default=None)


def is_abandoned() -> bool:
    """Whether what this thread does was cancelled, so that it should not wait for anything any more."""
    event = _abandoned.get()
    if event is not None and event.is_set():
        return True
    try:
        task = asyncio.current_task()
    except RuntimeError:  # there is no event loop in this thread
        return False
    return task is not None and task.cancelling() > 0


async def uninterrupted(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Finish `work` even when we are cancelled meanwhile, however often; the cancellation is raised afterwards.

    A thread of that work sees by `is_abandoned` that it should come to its end.
    """
    event = threading.Event()
    token = _abandoned.set(event)
    task = asyncio.ensure_future(work)
    _abandoned.reset(token)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            # The system may hand Ctrl-C to the thread that works, which wakes nobody here: so we look again.
            await asyncio.wait((task,), timeout=_LOOK_AGAIN_SECONDS)
        except asyncio.CancelledError as error:
            cancelled = error
            event.set()
    if cancelled is None:
        return task.result()
    if not task.cancelled():
        task.exception()  # looked at, so that asyncio does not log it as lost
    raise cancelled


async def saved_once_answered(
    work: Callable[[], Coroutine[Any, Any, _Result]], *, is_answered: Callable[[], bool]
) -> _Result:
    """Do work that waits for an answer and saves it. A cancellation ends it, but not between the answer and its save.

    The cancellation is raised when the work has ended.
    """
    task = asyncio.ensure_future(work())
    try:
        await asyncio.wait((task,))
    except asyncio.CancelledError:
        if not is_answered():
            task.cancel()
        await uninterrupted(_ended(task))
        raise
    return task.result()


async def _ended(task: asyncio.Future[Any]) -> None:
    await asyncio.wait((task,))
    if not task.cancelled():
        task.exception()  # looked at, so that asyncio does not log it as lost


class Child:
    """A started program in a session of its own; `takers` get its outputs. Making one raises OSError or ValueError.

    Its input ends after `stdin`; with None, it stays open for `write`.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        environment: Mapping[str, str],
        stdin: bytes | None,
        takers: tuple[Callable[[bytes], None], Callable[[bytes], None]],
        pass_files: Sequence[int] = (),
    ) -> None:
        pipes: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        own: Any = {"start_new_session": True, "pass_fds": pass_files, "bufsize": 0}
        self.process = subprocess.Popen(argv, cwd=cwd, env=environment, **pipes, **own)  # noqa: S603 - no shell
        self._loop = asyncio.get_running_loop()
        self._open: dict[IO[bytes] | socket.socket, asyncio.Future[None]] = {}
        self._keeps_input_open = stdin is None
        self._input, *outputs = self.process.stdin, self.process.stdout, self.process.stderr
        ends = [self.read(output, take) for output, take in zip(outputs, takers, strict=True) if output]
        self.drained = asyncio.gather(*ends)
        if self._input:
            os.set_blocking(self._input.fileno(), False)
            self._open[self._input] = self._loop.create_future()
            self.write(stdin or b"")

    def write(self, data: bytes) -> None:
        """Write to the input as fast as the program reads, if it is open. Earlier data must have been read."""
        # A program may rightly end before it has read all of its input.
        if self._input in self._open:
            self._write(self._input, memoryview(data))

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
            self._end(pipe)
            return
        if rest:
            self._loop.add_writer(pipe.fileno(), self._write, pipe, rest)
        elif self._keeps_input_open:
            self._loop.remove_writer(pipe.fileno())
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
            message = f"{command.program} wrote more than {command.max_output_bytes:,} bytes and was stopped"
            raise OutputTooLarge(message, program=command.program, hint="review a smaller change")
        seconds = started + command.timeout_seconds - time.monotonic()
        if not child.drained.done() or not await child.gone(seconds):
            message = f"{command.program} did not finish within {command.timeout_seconds:g} s and was stopped"
            hint = "raise the time limit, or review a smaller change"
            raise ProcessTimedOut(message, program=command.program, hint=hint)
    finally:
        await uninterrupted(child.end())
    exit_code, stderr = child.process.returncode, tail.decode("utf-8", "replace")
    return Completed(exit_code, b"".join(written), stderr, time.monotonic() - started)


# Much longer than a guardian takes, which ends by itself after its grace and its last wait: machines are suspended too.
END_SECONDS = 20.0
_GUARDIAN = Path(__file__).with_name("guardian.py")
# As a module and not as a script: that is compiled once, and not at every start.
_START = "import sys; sys.path.append(sys.argv.pop(1)); import guardian; guardian.main()"
# Some builds of Python find their own library by these.
_LOADER_NAMES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
# The slowest program that is known takes half of it between its last word and its end.
_END_SECONDS = 10.0


class StreamTimedOut(ProcessTimedOut):
    """The program was ended at its deadline, or after a silence; its outputs are kept as in `Completed`."""

    def __init__(
        self, message: str, *, program: str, hint: str, stdout: bytes, stderr: str, silent: bool, skipped_lines: int
    ) -> None:
        super().__init__(message, program=program, hint=hint)
        self.stdout = stdout
        self.stderr = stderr
        self.silent = silent
        self.skipped_lines = skipped_lines


async def stream(
    command: Command,
    *,
    on_line: Callable[[bytes], None] | None = None,
    idle_timeout_seconds: float | None = None,
    is_over: Callable[[], bool] | None = None,
    keep_bytes: int | None = None,
    max_line_bytes: int = 16 * 1024**2,
) -> Completed:
    """Run a program to its end and hand each line of its stdout to `on_line` as it comes, without its line end.

    Whatever the program started and left behind is ended with it. Of stdout the first and last bytes are kept,
    `keep_bytes` in all (by default the command's `max_output_bytes`); more output is no failure. A line longer than
    `max_line_bytes` is skipped and counted. A last line without a line feed is handed over when the program ended
    by itself. What `on_line` raises ends the program and is raised here. Once `is_over` says, after a line, that the
    program has said all it had to, it has some seconds left to end.

    Raises ProgramNotFound or another ProcessError when it cannot be started or is lost, StreamTimedOut when it did
    not finish in time or wrote nothing to either output for `idle_timeout_seconds`; it is gone in every case.
    """
    keep_bytes = command.max_output_bytes if keep_bytes is None else keep_bytes
    call = _Call(keep_bytes, Lines(on_line or (lambda _line: None), max_line_bytes), is_over)
    try:
        call.start(command)
    except ValueError as error:
        raise start_failure(command, error) from error
    except OSError as error:
        if error.errno in {*EXHAUSTED, errno.E2BIG}:
            raise start_failure(command, error) from error
        message = f"cannot start {command.program}: cannot run {sys.executable} to supervise it ({error})"
        raise ProcessError(message, program=command.program, hint="check the installation of Python") from error
    try:
        idle_seconds = math.inf if idle_timeout_seconds is None else idle_timeout_seconds
        passed = await call.wait(command.timeout_seconds, idle_seconds)
    finally:
        await uninterrupted(call.end())
    if call.error is not None:
        raise call.error
    if passed is not None:
        raise _timed_out(command, call, round(passed[0], 2), silent=passed[1])
    if call.start_error is not None:
        raise start_failure(command, call.start_error) from call.start_error
    if call.exit_code is None:
        message = f"{command.program} was lost: its supervisor process did not run, or was killed"
        hint = f"check that {sys.executable} runs, and whether a memory or process limit kills programs"
        raise ProcessError(message, program=command.program, hint=hint)
    return call.completed(call.exit_code)


def _timed_out(command: Command, call: _Call, seconds: float, *, silent: bool) -> StreamTimedOut:
    if silent:
        what = f"wrote nothing for {seconds:g} s"
        hint = "raise the idle timeout, or check what it is waiting for"
    else:
        what = f"did not finish within {seconds:g} s"
        hint = "raise the time limit, or ask for less in one call"
    stdout, stderr = call.kept()
    return StreamTimedOut(
        f"{command.program} {what} and was stopped",
        program=command.program,
        hint=hint,
        stdout=stdout,
        stderr=stderr,
        silent=silent,
        skipped_lines=call.skipped_lines,
    )


class HeadAndTail:
    """Keeps the first and the last bytes of what is added, at most `limit_bytes` of it, in bounded memory."""

    def __init__(self, limit_bytes: int) -> None:
        self._head_bytes, self._tail_bytes = (limit_bytes + 1) // 2, limit_bytes // 2
        self._head, self._tail = bytearray(), bytearray()
        self.omitted_bytes = 0

    def add(self, data: bytes) -> None:
        """Take the next bytes."""
        room = self._head_bytes - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        more = max(0, len(self._tail) - self._tail_bytes)
        # To cut the beginning off moves no byte of the rest.
        del self._tail[:more]
        self.omitted_bytes += more

    def kept(self) -> bytes:
        """All of it, or head and tail with a line between them that says how much is left out."""
        gap = f"\n[... {self.omitted_bytes:,} bytes omitted ...]\n".encode() if self.omitted_bytes else b""
        return bytes(self._head + gap + self._tail)


class Lines:
    """Hands over each line without its end; one longer than `limit_bytes` is skipped and counted: memory is bounded."""

    def __init__(self, hand_over: Callable[[bytes], None], limit_bytes: int) -> None:
        self.skipped = 0
        self._hand_over, self._limit_bytes = hand_over, limit_bytes
        self._line = bytearray()

    def add(self, data: bytes) -> None:
        """Take the next bytes and hand over the lines that they complete."""
        *ended, rest = data.split(b"\n")
        for part in ended:
            self._line += part
            self._end_line()
        self._line += rest
        del self._line[self._limit_bytes + 1 :]

    def finish(self) -> None:
        """Hand over a last line that no line feed has ended."""
        if self._line:
            self._end_line()

    def _end_line(self) -> None:
        line = bytes(self._line)
        self._line.clear()
        if len(line) > self._limit_bytes:
            self.skipped += 1
        else:
            self._hand_over(line.removesuffix(b"\r"))


class _Call:
    """A program under a guardian. Without `exit_code` and `start_error` at the end, the guardian itself was lost."""

    def __init__(self, keep_bytes: int, lines: Lines, is_over: Callable[[], bool] | None) -> None:
        self.exit_code: int | None = None
        self.start_error: OSError | None = None
        self.error: Exception | None = None
        self._started = self._heard_at = time.monotonic()
        self._ends_by = math.inf
        self._stdout, self._stderr = HeadAndTail(keep_bytes), HeadAndTail(128 * 1024)
        self._lines = lines
        self._is_over = is_over
        self._told = b""
        self._news = asyncio.Event()

    def start(self, command: Command) -> None:
        """Have the guardian start the program. Raises OSError or ValueError."""
        loader = {name: os.environ[name] for name in _LOADER_NAMES if name in os.environ}
        hidden = ",".join(loader.keys() - command.environment.keys())
        with contextlib.ExitStack() as stack:
            self._line, theirs = socket.socketpair()
            stack.enter_context(theirs)
            undo = stack.enter_context(contextlib.ExitStack())
            undo.enter_context(self._line)
            files = [theirs.fileno()]
            # It becomes readable when we are gone, also when a process that we forked keeps our sockets open.
            with contextlib.suppress(AttributeError, OSError):  # not on every system
                files.append(os.pidfd_open(os.getpid()))
                stack.callback(os.close, files[1])
            # Isolated, it would not hear of the variable by which a user asked for no bytecode.
            python = (sys.executable, "-I", "-S", *(("-B",) if sys.dont_write_bytecode else ()), "-c", _START)
            words = (str(_GUARDIAN.parent), str(files[0]), str([*files, -1][1]), hidden, str(command.cwd.absolute()))
            self._child = Child(
                (*python, *words, *command.argv),
                cwd=Path("/"),
                environment={**loader, **command.environment},
                stdin=command.stdin,
                takers=(self._take_stdout, self._take_stderr),
                pass_files=files,
            )
            undo.pop_all()
        self._gone = self._child.read(self._line, self._hear)
        self._gone.add_done_callback(lambda _: self._news.set())

    async def wait(self, timeout_seconds: float, idle_seconds: float) -> tuple[float, bool] | None:
        """Wait for the program's end, or for the first limit that passes: its seconds, and whether it is of silence."""
        while not self._gone.done() and self.exit_code is None and self.start_error is None and self.error is None:
            now = time.monotonic()
            left = min(self._started + timeout_seconds, self._ends_by) - now
            idle_left = self._heard_at + idle_seconds - now
            if left <= 0:
                return timeout_seconds, False
            if idle_left <= 0:
                return idle_seconds, True
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), min(left, idle_left))
        return None

    async def end(self) -> None:
        """Have everything ended that is left; the guardian goes on with it when this wait is cut short."""
        try:
            if not self._gone.done():
                # Closing would not do: a process that was forked off us may hold the same socket.
                with contextlib.suppress(OSError):
                    self._line.shutdown(socket.SHUT_WR)
                await asyncio.wait((self._gone,), timeout=END_SECONDS)
            # What was written last is still in the pipes. A stranger may hold them open.
            await asyncio.wait((self._child.drained,), timeout=1.0)
        finally:
            self._child.close()
            if not await self._child.gone(END_SECONDS):
                self._child.process.kill()

    def kept(self) -> tuple[bytes, str]:
        """What is kept of both outputs."""
        return self._stdout.kept(), self._stderr.kept().decode("utf-8", "replace")

    @property
    def skipped_lines(self) -> int:
        """How many lines were too long to be handed over."""
        return self._lines.skipped

    def completed(self, exit_code: int) -> Completed:
        """The outcome of a program that ended by itself; its last line is handed over before."""
        seconds = time.monotonic() - self._started
        self._lines.finish()
        skipped, omitted = self._lines.skipped, self._stdout.omitted_bytes
        return Completed(exit_code, *self.kept(), seconds, omitted_bytes=omitted, skipped_lines=skipped)

    def _take_stdout(self, data: bytes) -> None:
        self._heard_at = time.monotonic()
        self._stdout.add(data)
        if self.error is not None:
            return
        try:
            self._lines.add(data)
            if self._ends_by == math.inf and self._is_over is not None and self._is_over():
                self._ends_by = self._heard_at + _END_SECONDS
                self._news.set()
        except Exception as error:  # noqa: BLE001 - whatever the taker raises is its caller's, and is raised there
            self.error = error
            self._news.set()

    def _take_stderr(self, data: bytes) -> None:
        self._heard_at = time.monotonic()
        self._stderr.add(data)

    def _hear(self, data: bytes) -> None:
        *sentences, self._told = (self._told + data).split(b"\n")
        for what, number in (sentence.split() for sentence in sentences):
            if what == b"exited":
                self.exit_code = int(number)
            else:
                self.start_error = OSError(int(number), os.strerror(int(number)))
            self._news.set()


_SET_DUMPABLE = 4


def hide_from_others() -> None:
    """Keep other processes of this user, such as agents, from reading our memory and variables, where Linux can.

    For a process that lives long and holds keys and tokens of a team. Root can read them all the same.
    """
    import ctypes  # noqa: PLC0415 - for one call of few programs

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)
