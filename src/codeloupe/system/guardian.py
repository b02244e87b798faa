"""The guardian: a small program that starts an agent program for codeloupe, is its parent, and sees to its end.

Each call has one, in a Python of its own that imports nothing of the package. It ends the program with everything that
came of it when codeloupe says so, when the program itself ends, and when codeloupe is gone, however that died. On Linux
it adopts orphans, so not even a daemon escapes; elsewhere it can end the process group only. Left open: a process under
another user's id, one that forks faster than it can be looked up, and what a guardian's own death leaves.

Its arguments are the socket to codeloupe, a file that tells when codeloupe is gone or -1, the variables that the
program must not see, the working directory and the program's own arguments. It writes `failed ERRNO` or `exited CODE`
to the socket, each with a line feed; the end of the socket means "end it" to the guardian, and "all is over" to us.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time

GRACE_SECONDS = 2.0
LAST_WAIT_SECONDS = 2.0

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_KERNEL = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


def main() -> None:
    """Start the program and stay until nothing is left of it."""
    line, parent, hidden, cwd, *arguments = sys.argv[1:]
    files = [int(file) for file in (line, parent) if file != "-1"]
    for file in files:
        os.set_inheritable(file, False)  # noqa: FBT003 - the signature is Python's
    # A thread of the program that uses codeloupe may have blocked some, and what is blocked is inherited.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    adopts = _prctl(_PR_SET_CHILD_SUBREAPER, 1) and _sees_processes()
    variables = {name: value for name, value in os.environ.items() if name not in hidden.split(",")}
    guardian = _Guardian(files, adopts=adopts)
    try:
        guardian.start(cwd, arguments, variables)
    except OSError as error:
        guardian.tell(f"failed {error.errno}")
    else:
        guardian.see_to_the_end()
    # Codeloupe waits for this end; to take the interpreter apart would only make it later.
    os._exit(0)


class _Guardian:
    """The parent of one program, from its start until nothing is left of it."""

    def __init__(self, files: list[int], *, adopts: bool) -> None:
        self._adopts = adopts
        self._line = files[0]
        self._leader = 0
        self._ending = False
        self._poll = select.poll()
        self._signals, writer = os.pipe()
        for end in (self._signals, writer):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, *_ENDING_SIGNALS):
            signal.signal(number, lambda _number, _frame: None)
        for file in (self._signals, *files):
            self._poll.register(file, select.POLLIN)

    def start(self, cwd: str, arguments: list[str], variables: dict[str, str]) -> None:
        """Start the program in a session of its own. Raises OSError when that cannot be."""
        failure, failed = os.pipe()
        guardian, self._leader = os.getpid(), os.fork()
        if not self._leader:
            try:
                os.setsid()
                _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
                # Python ignores these, and what is ignored stays ignored in the program.
                for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
                    signal.signal(ignored, signal.SIG_DFL)
                os.chdir(cwd)
                if os.getppid() == guardian:
                    os.execvpe(arguments[0], arguments, variables)  # noqa: S606 - no shell is wanted
            except OSError as error:
                os.write(failed, str(error.errno).encode())
            finally:
                os._exit(127)
        # The streams are the program's alone, so that their end is seen.
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nothing, stream)
        os.close(failed)
        # The other end closes itself when the program takes over.
        if number := os.read(failure, 16):
            os.waitpid(self._leader, 0)
            raise OSError(int(number), "not started")

    def see_to_the_end(self) -> None:
        """Wait, then TERM, a grace, KILL, until nothing is left or the last wait is over."""
        while self._anything_left() and not self._ending:
            self._wait(None)
        self._signal_until(time.monotonic() + GRACE_SECONDS, signal.SIGTERM, round_seconds=0.1)
        self._signal_until(time.monotonic() + LAST_WAIT_SECONDS, signal.SIGKILL, round_seconds=0.01)

    def tell(self, words: str) -> None:
        """Write to codeloupe. Nobody may be there to listen any more."""
        with contextlib.suppress(OSError):
            os.write(self._line, f"{words}\n".encode())

    def _wait(self, seconds: float | None) -> None:
        """Wait for a signal, or for what means that it is time to end everything."""
        for file, _ in self._poll.poll(None if seconds is None else seconds * 1000):
            if file != self._signals:
                self._ending = True
                self._poll.unregister(file)
            elif any(number in _ENDING_SIGNALS for number in os.read(file, 4096)):
                self._ending = True

    def _signal_until(self, deadline: float, number: signal.Signals, *, round_seconds: float) -> None:
        """Signal everything that is left, each process once, in rounds: what is signalled may yet start others."""
        signalled: set[int] = set()
        send = os.kill if self._adopts else os.killpg
        while self._anything_left():
            # Also when the deadline has passed: on a machine that was suspended, nobody was signalled before.
            for pid in (_descendants(os.getpid()) if self._adopts else {self._leader}) - signalled:
                signalled.add(pid)
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    send(pid, number)
            if (seconds := deadline - time.monotonic()) <= 0:
                return
            self._wait(min(seconds, round_seconds))

    def _anything_left(self) -> bool:
        """Collect what ended; whether a descendant lives, or where orphans are not adopted, a member of the group."""
        try:
            while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                if ended[0] == self._leader:
                    self._ending = True
                    self.tell(f"exited {os.waitstatus_to_exitcode(ended[1])}")
            return True
        except ChildProcessError:
            if self._adopts:
                return False
        try:
            os.killpg(self._leader, 0)
        except OSError:
            return False
        return True


def _descendants(root: int) -> set[int]:
    """Every process that came of this one, by the parent that each one names."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - loading pathlib takes longer than this does
        if name.isdecimal():
            # It may have ended meanwhile. Its name comes first, in brackets, and may hold spaces and brackets.
            with (
                contextlib.suppress(OSError),
                open(f"/proc/{name}/stat", "rb", buffering=0) as file,  # noqa: PTH123 - as above
            ):
                parent = int(file.read(4096).rpartition(b")")[2].split()[1])
                children.setdefault(parent, []).append(int(name))
    found = [root]
    for pid in found:
        found.extend(children.pop(pid, ()))
    return set(found[1:])


def _sees_processes() -> bool:
    """Whether /proc is there and numbers processes as we do: one of another container would not."""
    try:
        return os.readlink("/proc/self") == str(os.getpid())  # noqa: PTH115 - as for the list of processes
    except OSError:
        return False


def _prctl(option: int, value: int) -> bool:
    """Ask the Linux kernel for something about this process; False where that is not to be had."""
    return _KERNEL is not None and _KERNEL(option, *map(ctypes.c_ulong, (value, 0, 0, 0))) == 0
