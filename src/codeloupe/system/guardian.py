"""The guardian: a small program of its own that starts agent programs for codeloupe and sees to their end.

It runs beside codeloupe while calls are in flight, in a Python of its own, and imports nothing of the package. For each
call it forks a supervisor, which starts the program and is its parent. The supervisor ends the program with everything
that came of it when it is told so, when the program itself ends, and when codeloupe is gone, however that died: the
line between them is then at its end.

On Linux the supervisor adopts orphans, so whatever the program started is its descendant for good: a daemon that
forked twice, made a session of its own and cleared its environment too. Elsewhere it can end the process group only.

Left open: a process under another user's id cannot be ended by us; one that forks faster than it can be looked up may
need more than one round; and when a supervisor is itself killed, the program dies with it, but not what that started.

What is said on a call's line, to the supervisor: four bytes of length and, separated by NUL, the number of arguments,
the working directory, the arguments, the variables; after that only the end of the line, which means "end it". From
the supervisor: `failed ERRNO`, or `exited CODE`, each with a line feed, then the end, when nothing is left.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable

GRACE_SECONDS = 2.0
LAST_WAIT_SECONDS = 2.0

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_POLITE_ROUND_SECONDS = 0.1
_ROUND_SECONDS = 0.01
_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_CALL_FILES = 4


# What a supervisor starts: the working directory, the arguments and the variables. No class for it, since to load
# dataclasses would double the time the guardian takes to start.
_Program = tuple[bytes, list[bytes], dict[bytes, bytes]]


def main() -> None:
    """Serve until there will be no further call or codeloupe is gone, and end after the last supervisor.

    Its arguments are files: the socket on which calls come, and one that tells when codeloupe is gone, or -1.
    """
    requests, parent = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    _keep_from_programs(requests.fileno(), parent)
    # A thread of the program that uses codeloupe may have blocked some, and what is blocked is inherited.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # What is touched first after a fork is copied then, and what is loaded then is loaded for each call: so no
    # collection of garbage, and what only the start of a program would load is loaded here.
    gc.disable()
    gc.freeze()
    os.get_exec_path({})
    watch = _Watch([requests.fileno(), parent])
    while True:
        ready = watch.wait()
        _collect(lambda _pid, _status: None)
        if parent in ready or (requests.fileno() in ready and not _serve(requests, parent)):
            break
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    # Codeloupe waits for this end; to take the interpreter apart would only make it later.
    os._exit(0)


def _serve(requests: socket.socket, parent: int) -> bool:
    """Start a supervisor for the next call. False when there will be no further call."""
    data, files, _, _ = socket.recv_fds(requests, 1, _CALL_FILES)
    if not data:
        return False
    _keep_from_programs(*files)
    pid: int | None = None
    if len(files) == _CALL_FILES:
        try:
            pid = os.fork()
        except OSError as error:
            _tell(files[-1], f"failed {error.errno}")
    if pid == 0:
        # Whatever goes wrong in a supervisor ends there: it must never fall back into the guardian's loop.
        try:
            requests.close()
            _supervise(files, parent)
        finally:
            os._exit(0)
    for file in files:
        os.close(file)
    return True


def _keep_from_programs(*files: int) -> None:
    for file in files:
        if file >= 0:
            os.set_inheritable(file, False)  # noqa: FBT003 - the signature is Python's


def _supervise(files: list[int], parent: int) -> None:
    *streams, line = files
    adopts = _prctl(_PR_SET_CHILD_SUBREAPER, 1) and _sees_processes()
    program = _read_program(line)
    if program is None:
        return
    watch = _Watch([line, parent], _ENDING_SIGNALS)
    try:
        leader = _start(program, streams)
    except OSError as error:
        _tell(line, f"failed {error.errno}")
        return
    _Supervisor(leader, line, watch, adopts=adopts).see_to_the_end()


def _read_program(line: int) -> _Program | None:
    """What is to be started; None when codeloupe ended the line before it had said all."""
    size = int.from_bytes(_read_exactly(line, 4), "big")
    text = _read_exactly(line, size)
    if not size or len(text) < size:
        return None
    count, cwd, *fields = text.split(b"\0")
    arguments, variables = fields[: int(count)], fields[int(count) :]
    pairs = (variable.partition(b"=") for variable in variables)
    return cwd, arguments, {name: value for name, _, value in pairs}


def _read_exactly(file: int, size: int) -> bytes:
    parts: list[bytes] = []
    while size and (part := os.read(file, min(size, 1 << 20))):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _start(program: _Program, streams: list[int]) -> int:
    """Start the program in a session of its own; its process number. OSError when that cannot be."""
    failure, failed = os.pipe()
    supervisor, pid = os.getpid(), os.fork()
    if pid == 0:
        try:
            _become(program, streams, supervisor)
        except OSError as error:
            os.write(failed, str(error.errno).encode())
        finally:
            os._exit(127)
    for file in (*streams, failed):
        os.close(file)
    # The other end closes itself when the program takes over.
    number = _read_exactly(failure, 16)
    os.close(failure)
    if number:
        os.waitpid(pid, 0)
        raise OSError(int(number), "not started")
    return pid


def _become(program: _Program, streams: list[int], supervisor: int) -> None:
    os.setsid()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:
        return
    for number, file in enumerate(streams):
        os.dup2(file, number)
    # Python ignores these, and what is ignored stays ignored in the program.
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    cwd, arguments, variables = program
    os.chdir(cwd)
    os.execvpe(arguments[0], arguments, variables)  # noqa: S606 - no shell is wanted


class _Supervisor:
    """The parent of one program, from its start until nothing is left of it."""

    def __init__(self, leader: int, line: int, watch: _Watch, *, adopts: bool) -> None:
        self._leader = leader
        self._line = line
        self._watch = watch
        self._adopts = adopts
        self._ended = False

    def see_to_the_end(self) -> None:
        """Wait, then TERM, a grace, KILL, until nothing is left or the last wait is over."""
        while self._anything_left() and not self._ended and not self._watch.told:
            self._watch.wait_for_the_end()
        self._signal_until(time.monotonic() + GRACE_SECONDS, signal.SIGTERM, _POLITE_ROUND_SECONDS)
        self._signal_until(time.monotonic() + LAST_WAIT_SECONDS, signal.SIGKILL, _ROUND_SECONDS)

    def _signal_until(self, deadline: float, number: signal.Signals, round_seconds: float) -> None:
        """Signal everything that is left, each process once, in rounds: what is signalled may yet start others."""
        signalled: set[int] = set()
        while self._anything_left():
            # Also when the deadline has passed: on a machine that stood still, nobody was signalled before.
            signalled |= self._signal_others(signalled, number)
            if (seconds := deadline - time.monotonic()) <= 0:
                return
            self._watch.wait_for_the_end(min(seconds, round_seconds))

    def _anything_left(self) -> bool:
        """Collect what ended; whether a descendant lives, or where orphans are not adopted, a member of the group."""
        has_children = _collect(self._note)
        if has_children or self._adopts:
            return has_children
        try:
            os.killpg(self._leader, 0)
        except OSError:
            return False
        return True

    def _note(self, pid: int, status: int) -> None:
        if pid == self._leader:
            self._ended = True
            _tell(self._line, f"exited {os.waitstatus_to_exitcode(status)}")

    def _signal_others(self, signalled: set[int], number: signal.Signals) -> set[int]:
        if not self._adopts:
            others, send = {self._leader} - signalled, os.killpg
        else:
            others, send = set(_descendants(os.getpid())) - signalled, os.kill
        for pid in others:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                send(pid, number)
        return others


class _Watch:
    """Waits for files to become readable and for signals. `told` is set when it is time to end everything."""

    def __init__(self, files: list[int], signals: tuple[signal.Signals, ...] = ()) -> None:
        self.told = False
        self._poll = select.poll()
        self._signals, writer = os.pipe()
        for end in (self._signals, writer):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, *signals):
            signal.signal(number, lambda _number, _frame: None)
        for file in (self._signals, *files):
            if file >= 0:
                self._poll.register(file, select.POLLIN)

    def wait(self, seconds: float | None = None) -> set[int]:
        """Wait for anything to happen; the files at which it did."""
        ready = {file for file, _ in self._poll.poll(None if seconds is None else seconds * 1000)}
        if self._signals in ready:
            ready.discard(self._signals)
            self.told |= any(number in _ENDING_SIGNALS for number in os.read(self._signals, 4096))
        return ready

    def wait_for_the_end(self, seconds: float | None = None) -> None:
        """As `wait`, where a readable file means that it is time to end everything."""
        for file in self.wait(seconds):
            self.told = True
            self._poll.unregister(file)


def _collect(note: Callable[[int, int], None]) -> bool:
    """Take the exit status of every child that ended; whether there are others."""
    try:
        while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            note(*ended)
    except ChildProcessError:
        return False
    return True


def _descendants(root: int) -> list[int]:
    """Every process that came of this one, by the parent that each one names."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - loading pathlib takes longer than this does
        if name.isdecimal():
            children.setdefault(_parent_of(name), []).append(int(name))
    found = [root]
    for pid in found:
        found.extend(children.pop(pid, ()))
    return found[1:]


def _sees_processes() -> bool:
    """Whether /proc is there and numbers processes as we do: one of another container would not."""
    try:
        return os.readlink("/proc/self") == str(os.getpid())  # noqa: PTH115 - as for the list of processes
    except OSError:
        return False


def _parent_of(name: str) -> int:
    try:
        with open(f"/proc/{name}/stat", "rb", buffering=0) as file:  # noqa: PTH123 - as for the list of processes
            # The program's name stands before it in brackets and may itself hold spaces and brackets.
            return int(file.read(4096).rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def _tell(line: int, words: str) -> None:
    # Nobody may be there to listen any more.
    with contextlib.suppress(OSError):
        os.write(line, f"{words}\n".encode())


def _prctl(option: int, value: int) -> bool:
    """Ask the Linux kernel for something about this process; False where that is not to be had."""
    return _KERNEL is not None and _KERNEL(option, *map(ctypes.c_ulong, (value, 0, 0, 0))) == 0


_KERNEL = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
