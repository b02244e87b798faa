"""`codeloupe serve`: from a fresh install to the first review in two commands, and the same after a crash."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from codeloupe.store.postgres import PostgresDatabase
from codeloupe.workers.jobs import JobState
from codeloupe.workers.queue import JobQueue
from tests.endings import comes_to_pass
from tests.fresh_install import Install
from tests.program import PROGRAM, Ended
from tests.program import codeloupe as run_program
from tests.repository import GitRepository
from tests.rows import each
from tests.warm_program import codeloupe

_MARK = "TESTS_SERVE"
UNSAFE = "import subprocess\n\n\ndef run(command):\n    return subprocess.run(command, shell=True, check=True)\n"


@pytest.fixture
def clone(tmp_path: Path) -> GitRepository:
    """A clone whose last commit, which is pushed, has a finding."""
    upstream = tmp_path / "upstream.git"
    made = GitRepository(tmp_path / "clone")
    made.write("a.py", "import subprocess\n")
    made.commit("one")
    made.write("a.py", UNSAFE)
    made.commit("two")
    made.git("clone", "--quiet", "--bare", ".", str(upstream))
    made.git("remote", "add", "origin", str(upstream))
    made.git("fetch", "--quiet", "origin")
    return made


class Serving:
    """A `serve` that runs. All that it starts carries a mark in its environment."""

    def __init__(self, program: Path, home: Path, words: tuple[str, ...]) -> None:
        self._mark = f"{_MARK}={home}"
        self._log = home.with_suffix(".log")
        self.home = home
        environment = {**os.environ, "CODELOUPE_HOME": str(home), _MARK: str(home)}
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                (str(program), "serve", *words), env=environment, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self.said = ""

    def variable(self) -> dict[str, str]:
        """Wait until it is ready, and return the variable that it tells its clients to set."""
        assert self.process.stdout is not None
        found: re.Match[str] | None = None
        while found is None:
            line = self.process.stdout.readline()
            assert line, self.logs()
            self.said += line
            found = re.search(r"export (CODELOUPE_DATABASE)='(.*)'", line)
        return {found[1]: found[2], "CODELOUPE_HOME": str(self.home.with_name("client"))}

    def logs(self) -> str:
        return self._log.read_text("utf-8", "replace")

    def left(self) -> list[int]:
        """Return the processes that it has started, and that run."""
        found: list[int] = []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                environment = (place / "environ").read_bytes()
                state = (place / "stat").read_bytes().rpartition(b")")[2].split()[:1]
            except OSError:
                continue  # it has ended
            if os.fsencode(self._mark) in environment.split(b"\0") and state != [b"Z"]:
                found.append(int(place.name))
        return found


@contextmanager
def serving(home: Path, *words: str, program: Path = PROGRAM) -> Iterator[Serving]:
    running = Serving(program, home, words)
    try:
        yield running
    finally:
        for process in running.left():
            os.kill(process, signal.SIGKILL)
        running.process.communicate()


def has_found_it(ended: Ended) -> bool:
    return ended.exit_code == 1 and "S602" in ended.stdout


def states(url: str) -> list[JobState]:
    with PostgresDatabase(url) as database:
        return [record.state for record in JobQueue(database).list()]


def test_two_commands_lead_from_a_fresh_install_to_a_review(
    tmp_path: Path, clone: GitRepository, fresh_install: Install
) -> None:
    with serving(tmp_path / "home", program=fresh_install.program) as server:
        variable = server.variable()
        words = ("review", "--commit", "HEAD", "--on-workers", "--offline")
        ended = run_program(*words, cwd=clone.path, environment=variable, program=fresh_install.program)
        assert has_found_it(ended), (ended.stderr, server.logs())
        listed = run_program("workers", cwd=clone.path, environment=variable, program=fresh_install.program)
        assert len(re.findall(r" process \d+", listed.stdout)) == 2
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0, server.logs()
        assert comes_to_pass(lambda: server.left() == [])
    assert "codeloupe: stopped\n" in server.logs()


def test_after_a_kill_the_next_start_has_the_same_address_and_does_all_jobs(
    tmp_path: Path, clone: GitRepository
) -> None:
    with serving(tmp_path / "home", "--workers", "1") as server:
        variable = server.variable()
        server.process.kill()
        server.process.wait()
        # Its workers and its database end with it.
        assert comes_to_pass(lambda: server.left() == [])
    with serving(tmp_path / "home", "--workers", "1") as again:
        assert again.variable() == variable
        url = variable["CODELOUPE_DATABASE"]
        for process in again.left():
            if process != again.process.pid and b"worker" in Path(f"/proc/{process}/cmdline").read_bytes():
                os.kill(process, signal.SIGSTOP)
        words = ("review", "--commit", "HEAD", "--on-workers", "--offline")
        client = subprocess.Popen(
            (str(PROGRAM), *words), cwd=clone.path, env={**os.environ, **variable},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert comes_to_pass(lambda: states(url) == [JobState.WAITING])
        client.kill()
        client.wait()
        again.process.kill()
        again.process.wait()
        for process in again.left():
            os.kill(process, signal.SIGKILL)
    with serving(tmp_path / "home", "--workers", "1") as last:
        assert last.variable() == variable
        assert comes_to_pass(lambda: states(url) == [JobState.DONE])
        assert has_found_it(codeloupe("jobs", "watch", "1", cwd=clone.path, environment=variable))


def test_a_worker_or_a_database_that_dies_is_started_again(tmp_path: Path, clone: GitRepository) -> None:
    with serving(tmp_path / "home", "--workers", "1") as server:
        variable = server.variable()
        url = variable["CODELOUPE_DATABASE"]
        data = tmp_path / "home" / "postgres"
        postgres = int((data / "postmaster.pid").read_text().split()[0])
        # In a user namespace, the server sees another process id than we do only with another pid namespace.
        os.kill(postgres, signal.SIGKILL)
        assert comes_to_pass(lambda: "Postgres server ended unexpectedly" in server.logs())
        with PostgresDatabase(url) as database:
            assert comes_to_pass(lambda: _answers(database))
            workers = JobQueue(database).workers()
        for worker in workers:
            assert worker.process_id is not None
            os.kill(worker.process_id, signal.SIGKILL)
        assert comes_to_pass(lambda: "a worker ended unexpectedly" in server.logs())
        words = ("review", "--commit", "HEAD", "--on-workers", "--offline")
        assert has_found_it(codeloupe(*words, cwd=clone.path, environment=variable))


def _answers(database: PostgresDatabase) -> bool:
    try:
        return bool(database.select("SELECT 1"))
    except Exception:  # noqa: BLE001 - it is still starting
        return False


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_listening_needs_a_password_that_stays_the_same(tmp_path: Path) -> None:
    port = free_port()
    urls: set[str] = set()
    for _ in range(2):
        with serving(tmp_path / "home", "--workers", "1", "--listen", f"0.0.0.0:{port}") as server:
            url = server.variable()["CODELOUPE_DATABASE"]
            urls.add(url)
            password = url.partition("codeloupe:")[2].partition("@")[0]
            assert len(password) >= 24
            address = f"127.0.0.1:{port}/codeloupe"
            with psycopg.connect(f"postgresql://codeloupe:{password}@{address}") as connection:
                assert connection.execute("SELECT 1").fetchone() == (1,)
            with pytest.raises(psycopg.OperationalError, match="password"):
                psycopg.connect(f"postgresql://codeloupe@{address}")
            server.process.send_signal(signal.SIGINT)
            assert server.process.wait(60) == 0, server.logs()
            assert password not in server.logs()
            assert f"`ssh -N -L {port}:127.0.0.1:{port} {socket.gethostname()}`" in server.logs()
    assert len(urls) == 1
    file = tmp_path / "home" / "serve-password"
    assert file.stat().st_mode & 0o077 == 0


def test_without_other_machines_nothing_is_said_about_encryption(tmp_path: Path) -> None:
    port = free_port()
    with serving(tmp_path / "home", "--workers", "1", "--listen", str(port)) as server:
        assert f"@127.0.0.1:{port}/codeloupe" in server.variable()["CODELOUPE_DATABASE"]
        assert "encrypted" not in server.logs()


@each(
    ("words", "message"),
    [
        (("--workers", "0"), "--workers and --concurrency must be above 0"),
        (("--listen", "nowhere"), "'nowhere' is not an address"),
        (("--listen", "127.0.0.1,0.0.0.0:5433"), "'127.0.0.1,0.0.0.0:5433' is not an address"),
        (("--listen", "1.2.3.4:99999"), "'1.2.3.4:99999' is not an address"),
        (("--password-file", "x"), "--password-file is for --listen"),
        (("--listen", "5433", "--password-file", "missing"), "cannot read the password in missing"),
    ],
)
def test_a_mistake_is_explained_before_anything_starts(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    home = {"CODELOUPE_HOME": str(tmp_path / "home")}
    ended = codeloupe("serve", *words, cwd=tmp_path, environment=home)
    assert (ended.exit_code, message in ended.stderr) == (2, True), ended.stderr
    assert not (tmp_path / "home").exists()


def test_with_a_configured_database_only_workers_are_started(tmp_path: Path, postgres_url: str) -> None:
    variables = {"CODELOUPE_HOME": str(tmp_path / "home"), "CODELOUPE_DATABASE": postgres_url}
    ended = codeloupe("serve", "--listen", "5433", cwd=tmp_path, environment=variables)
    assert (ended.exit_code, "a database is configured" in ended.stderr) == (2, True), ended.stderr
    program = (sys.executable, "-m", "codeloupe", "serve", "--workers", "1", "--quiet")
    with subprocess.Popen(program, env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"export CODELOUPE_DATABASE='{postgres_url}'\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert not (tmp_path / "home" / "postgres").exists()
