"""The server of our own: who may start it and where, and what is left when something is killed."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from urllib.parse import quote, unquote

import psycopg
import pytest

from codeloupe.errors import StoreError
from codeloupe.store.postgres import PostgresDatabase
from codeloupe.system import postgres_server
from codeloupe.system.postgres_server import Listen, PostgresServer
from tests.endings import comes_to_pass
from tests.rows import each

pytestmark = pytest.mark.program

# As root, somebody else is had in a user namespace: our interpreter may be where nobody else can read it.
_ELSE = () if os.geteuid() else ("unshare", "--user", "--map-user=1000", "--map-group=1000", "--")
_PASSWORD = "a-long-password"
_SERVE = """
import os, sys
from pathlib import Path
from codeloupe.store.postgres import PostgresDatabase
from codeloupe.system.postgres_server import PostgresServer
with PostgresServer(Path(sys.argv[1]), durable=False) as server:
    with PostgresDatabase(server.url) as database:
        database.check()
    print(os.geteuid(), server.process_id, server.url, flush=True)
    sys.stdin.readline()
"""


@contextmanager
def another_process(data: Path, *before: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A process that runs a server there, and what it says of it: user, process, address."""
    words = (*before, sys.executable, "-c", _SERVE, str(data))
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            yield child, child.stdout.readline().split()
        finally:
            child.kill()


def test_a_server_that_crashed_has_all_its_data_after_the_next_start(postgres_data: Path) -> None:
    server = PostgresServer(postgres_data)
    for number in (1, 2):
        with server, PostgresDatabase(server.url) as database:
            assert database.select("SELECT count(*) FROM dismissals") == [(number - 1,)]
            database.change("INSERT INTO dismissals VALUES ('r', ?, '')", (str(number),))
            server.stop(how=signal.SIGKILL)
    with server, PostgresDatabase(server.url) as database:
        assert database.change("DELETE FROM dismissals") == 2


@each("length", [10, 90])
def test_a_second_server_on_the_same_data_is_refused_and_the_first_goes_on(postgres_data: Path, length: int) -> None:
    # The socket of data with a long path is in a folder of its own.
    data = postgres_data.rename(postgres_data.with_name("d" * length))
    with another_process(data) as (child, (_, _, url)):
        second = PostgresServer(data)
        with pytest.raises(StoreError, match=rf"process {child.pid} is already running a Postgres server in") as caught:
            second.start()
        second.stop()
        assert "another folder" in caught.value.hint
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        child.communicate("\n")
        assert child.returncode == 0
    data.rename(postgres_data)


def test_a_server_ends_with_its_killed_process_and_the_next_waits_for_that(postgres_data: Path) -> None:
    # So long that its socket is elsewhere.
    data = postgres_data.rename(postgres_data.with_name("d" * 90))
    with another_process(data) as (child, (_, number, url)):
        child.kill()
        child.wait()
        with PostgresServer(data, durable=False) as server, PostgresDatabase(server.url) as database:
            database.check()
        assert not Path(unquote(url.partition("host=")[2])).exists()
        assert comes_to_pass(lambda: not Path(f"/proc/{number}").exists())


def test_somebody_who_is_not_root_makes_and_starts_one_too(tmp_path: Path) -> None:
    with another_process(tmp_path / "data", *_ELSE) as (child, (user, _, _)):
        assert int(user) != 0
        child.communicate("\n")
        assert child.returncode == 0
    assert (tmp_path / "data" / "PG_VERSION").exists()


@each("name", ["d" * 150, "a, b", 'a "b" ä'])
def test_a_path_may_be_long_and_hold_any_character(postgres_data: Path, name: str) -> None:
    data = postgres_data.with_name(name)
    postgres_data.rename(data)
    with PostgresServer(data, durable=False) as server, PostgresDatabase(server.url) as database:
        database.check()
    data.rename(postgres_data)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_connections_over_tcp_need_the_password_and_the_socket_needs_none(postgres_data: Path) -> None:
    port = free_port()
    address = f"127.0.0.1:{port}/codeloupe"
    for password in ('it\'s "quoted"', "changed-since"):
        listen = Listen("127.0.0.1", port, password)
        with PostgresServer(postgres_data, durable=False, listen=listen) as server:
            with PostgresDatabase(server.url) as database:
                database.check()
            with PostgresDatabase(f"postgresql://codeloupe:{quote(password, safe='')}@{address}") as database:
                database.check()
            for wrong in ("", "wrong"):
                with pytest.raises(psycopg.OperationalError, match="password"):
                    psycopg.connect(f"postgresql://codeloupe:{wrong}@{address}")
    with PostgresServer(postgres_data, durable=False), pytest.raises(psycopg.OperationalError, match="refused"):
        psycopg.connect(f"postgresql://codeloupe@{address}")


def test_the_included_postgres_has_no_tls(postgres_data: Path) -> None:
    # Once it has, `serve --listen` should offer it. Until then, the docs and its output recommend an SSH tunnel.
    with pytest.raises(StoreError, match="SSL is not supported by this build"):
        PostgresServer(postgres_data, durable=False, settings=("ssl=on",)).start()


@pytest.fixture
def listening(postgres_data: Path) -> Iterator[tuple[PostgresServer, int]]:
    """Yield a server that listens over TCP, and its port."""
    port = free_port()
    with PostgresServer(postgres_data, durable=False, listen=Listen("127.0.0.1", port, _PASSWORD)) as server:
        yield server, port


@each("is_over_tcp", [True, False])
def test_clients_own_their_database_and_cannot_run_programs(
    listening: tuple[PostgresServer, int], *, is_over_tcp: bool
) -> None:
    server, port = listening
    url = server.url
    if is_over_tcp:
        url = f"postgresql://codeloupe:{_PASSWORD}@127.0.0.1:{port}/codeloupe"
    owner = "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = current_database()"
    with psycopg.connect(url, autocommit=True) as connection:
        assert connection.execute("SHOW is_superuser").fetchone() == ("off",)
        assert connection.execute(owner).fetchone() == ("codeloupe",)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("COPY (SELECT 1) TO PROGRAM 'true'")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("CREATE ROLE another SUPERUSER")


@each("name", ["postgres@{}/postgres", "postgres@{}/codeloupe", "codeloupe@{}/postgres"])
def test_over_tcp_only_the_client_role_and_its_database_can_be_used(
    listening: tuple[PostgresServer, int], name: str
) -> None:
    server, port = listening
    with psycopg.connect(server.admin_url, autocommit=True) as connection:
        assert connection.execute("SHOW is_superuser").fetchone() == ("on",)
        connection.execute(f"ALTER ROLE postgres PASSWORD '{_PASSWORD}'".encode())
    address = name.format(f"127.0.0.1:{port}")
    with pytest.raises(psycopg.OperationalError, match="no pg_hba.conf entry"):
        psycopg.connect(f"postgresql://{address}?password={_PASSWORD}")


def test_a_statement_that_fails_at_the_start_is_an_error(postgres_data: Path) -> None:
    (postgres_data / "standby.signal").touch()
    listen = Listen("127.0.0.1", free_port(), _PASSWORD)
    server = PostgresServer(postgres_data, durable=False, listen=listen)
    with pytest.raises(StoreError, match="cannot prepare the database in .*: .*cannot execute ALTER ROLE") as caught:
        server.start()
    assert not server.is_running
    assert server.process_id == 0
    assert _PASSWORD not in caught.value.message
    assert _PASSWORD not in (postgres_data / "server.log").read_text()
    (postgres_data / "standby.signal").unlink()
    with server, PostgresDatabase(server.url) as database:
        database.check()


def test_a_missing_role_and_database_are_created_at_the_next_start(postgres_data: Path) -> None:
    server = PostgresServer(postgres_data, durable=False)
    with server, psycopg.connect(server.admin_url, autocommit=True) as connection:
        connection.execute("DROP DATABASE codeloupe")
        connection.execute("DROP ROLE codeloupe")
    with server, PostgresDatabase(server.url) as database:
        database.check()


def test_a_start_waits_for_a_backend_of_the_killed_server(postgres_data: Path) -> None:
    server = PostgresServer(postgres_data, durable=False)
    with server, psycopg.connect(server.url) as connection:
        backend = connection.info.backend_pid
        os.kill(backend, signal.SIGSTOP)
        ending = threading.Timer(0.5, os.kill, (backend, signal.SIGCONT))
        os.kill(server.process_id, signal.SIGKILL)
        assert comes_to_pass(lambda: not server.is_running)
        ending.start()
        try:
            server.start()
        finally:
            ending.join()
        with PostgresDatabase(server.url) as database:
            database.check()


def test_the_address_is_the_same_after_every_start(postgres_data: Path) -> None:
    data = postgres_data.rename(postgres_data.with_name("d" * 90))
    urls: set[str] = set()
    for _ in range(2):
        with another_process(data) as (child, (_, _, url)):
            urls.add(url)
            child.kill()
            child.wait()
    assert len(urls) == 1
    with PostgresServer(data, durable=False) as server:
        assert {server.url} == urls


def test_a_folder_that_others_can_open_is_refused_for_the_socket(postgres_data: Path) -> None:
    data = postgres_data.rename(postgres_data.with_name("d" * 90))
    folder = Path(unquote(PostgresServer(data).url.partition("host=")[2]))
    folder.mkdir(mode=0o700)
    folder.chmod(0o755)
    try:
        with pytest.raises(StoreError, match="is not a private folder of this user"):
            PostgresServer(data, durable=False).start()
    finally:
        folder.rmdir()


@each("left", ["", "{}\n/somewhere\n1700000000\n5432\n\n\n5432001 0\nready\n"])
def test_a_pid_file_that_a_crash_left_is_ignored(postgres_data: Path, left: str) -> None:
    # The number is that of a process of this user, as after a restart of the machine.
    (postgres_data / "postmaster.pid").write_text(left.format(os.getppid()))
    with PostgresServer(postgres_data, durable=False) as server, PostgresDatabase(server.url) as database:
        database.check()


def test_a_server_that_was_started_by_hand_is_not_taken_over(postgres_data: Path) -> None:
    # Without the lock of the other server, as if somebody had started it with Postgres' own programs.
    with another_process(postgres_data) as (_, (_, number, _)):
        (postgres_data.parent / f".{postgres_data.name}.lock").unlink()
        server = PostgresServer(postgres_data, durable=False)
        with pytest.raises(StoreError, match=rf'lock file "postmaster.pid" already exists HINT: .* \(PID {number}\)'):
            server.start()
        assert (postgres_data / "postmaster.pid").read_text().startswith(f"{number}\n")
        with psycopg.connect(server.url) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)


def test_data_is_served_by_the_version_that_created_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = postgres_server.installed_versions()
    oldest, newest = min(installed), max(installed)
    assert oldest < newest
    server = PostgresServer(tmp_path / "data", durable=False)
    with monkeypatch.context() as before_the_upgrade:
        before_the_upgrade.setattr(postgres_server, "installed_versions", lambda: {oldest: installed[oldest]})
        with server:
            pass
    with server, psycopg.connect(server.url) as connection:
        assert connection.info.server_version // 10_000 == oldest
    monkeypatch.setattr(postgres_server, "installed_versions", lambda: {newest: installed[newest]})
    with pytest.raises(StoreError, match=f"is of Postgres {oldest}, and this machine has the versions {newest}"):
        server.start()


def test_a_user_who_cannot_run_postgres_is_told_why(
    postgres_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    # In many containers, root cannot create a user namespace.
    for name in ("unshare", "setpriv", "postgres"):
        (programs / name).write_text("#!/bin/sh\necho 'unshare failed: Operation not permitted' >&2\nexit 1\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setattr(postgres_server, "installed_versions", lambda: {18: programs})
    with pytest.raises(StoreError, match="cannot run Postgres: unshare failed: Operation not permitted") as caught:
        PostgresServer(postgres_data).start()
    assert "run it as another user" in caught.value.hint


def test_a_broken_program_of_postgres_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "pginstall" / "bin" / "postgres"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho 'libz.so.1 not found' >&2\nexit 127\n")
    program.chmod(0o755)
    package = ModuleSpec("package", None, is_package=True)
    package.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(postgres_server, "find_spec", lambda _name: package)
    with pytest.raises(StoreError, match="cannot run .*/bin/postgres: libz.so.1 not found"):
        PostgresServer(tmp_path / "data").start()


def test_an_error_quotes_the_log_without_times(postgres_data: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        listen = Listen("127.0.0.1", other.getsockname()[1], _PASSWORD)
        with pytest.raises(StoreError, match=r": Address already in use HINT: ") as caught:
            PostgresServer(postgres_data, listen=listen).start()
    assert "UTC" not in caught.value.message
    assert "check the address to listen on" in caught.value.hint


def test_what_cannot_be_started_is_explained(
    postgres_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoreError, match="did not start: .*nonsense") as caught:
        PostgresServer(postgres_data, settings=("nonsense=1",)).start()
    assert caught.value.hint
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="cannot start the Postgres server in .*: (Not a directory|File exists)"):
        PostgresServer(tmp_path / "file" / "data").start()
    (tmp_path / "full" / "data").mkdir(parents=True)
    (tmp_path / "full" / "data" / "something").write_text("x")
    with pytest.raises(StoreError, match="cannot start the Postgres server in .*: Directory not empty"):
        PostgresServer(tmp_path / "full" / "data").start()
    assert (tmp_path / "full" / "data" / "something").read_text() == "x"
    monkeypatch.setattr(postgres_server, "find_spec", lambda _name: None)
    with pytest.raises(StoreError, match="the extra `embedded` is not installed") as caught:
        PostgresServer(tmp_path / "data").start()
    assert ".[embedded]" in caught.value.hint


@pytest.mark.soak
def test_a_making_that_was_killed_half_way_is_begun_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    child = subprocess.Popen((sys.executable, "-c", _SERVE, str(data)), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert comes_to_pass((tmp_path / ".data.new" / "PG_VERSION").exists)
    child.kill()
    child.communicate()
    assert not data.exists()
    with PostgresServer(data, durable=False) as server, PostgresDatabase(server.url) as database:
        database.check()
