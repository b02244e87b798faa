"""A shared database that cannot be used, as a person meets that: a sentence, a hint, nothing lost or half written."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from codeloupe.store.postgres import PostgresDatabase
from codeloupe.system.postgres_server import PostgresServer
from tests.endings import PATIENCE_SECONDS
from tests.postgres_proxy import STARTUP, Proxy, proxy_before
from tests.program import PROGRAM, Ended
from tests.repository import GitRepository
from tests.rows import each
from tests.warm_program import codeloupe

SECRET = "hunter2-%-geheim"
_REVIEW = ("review", "--reviewer", "offline", "--uncommitted", "--format", "json")


def run(url: str, *words: str, cwd: Path) -> Ended:
    return codeloupe(*words, cwd=cwd, environment={"CODELOUPE_DATABASE": url})


def listed(url: str, cwd: Path) -> list[str]:
    ended = run(url, "history", "list", "--json", "--all", cwd=cwd)
    assert ended.exit_code == 0, ended.stderr
    return [entry["id"] for entry in json.loads(ended.stdout)["entries"]]


def refused(ended: Ended, words: str, hint: str, *, exit_code: int = 3) -> None:
    """It ended with one sentence and one hint."""
    assert ended.exit_code == exit_code, ended
    said, _, hinted = ended.stderr.partition("\n  hint: ")
    assert words in said
    assert hint in hinted


@contextmanager
def as_superuser(url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(url.replace("//codeloupe@", "//postgres@"), autocommit=True) as connection:
        yield connection


@pytest.fixture
def role(postgres_url: str) -> Iterator[str]:
    """A role without any right of its own."""
    name = f"role_{os.getpid()}_{os.urandom(3).hex()}"
    with as_superuser(postgres_url) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN".encode())
    yield name
    with as_superuser(postgres_url) as connection:
        connection.execute(f"DROP OWNED BY {name}; DROP ROLE {name}".encode())


@pytest.fixture
def changed(repository: GitRepository) -> Path:
    """A repository with a change that has a finding."""
    repository.write("a.py", "x = 1\n")
    repository.commit("first")
    repository.write("a.py", "import os\n\n\ndef run(word):\n    os.system('ls ' + word)\n")
    return repository.path


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[Proxy]:
    with proxy_before(postgres_url) as made:
        yield made


class TestWrongUrls:
    @each(
        "url, words, hint",
        [
            (f"postgresql://u:{quote(SECRET)}@127.0.0.1:1/x", "cannot be reached (connection failed", "check the URL"),
            (f"postgresql://u:{quote(SECRET)}@[::1]:1/x", "@[::1]:1/x cannot be reached", "the server runs"),
            (
                f"postgresql://u@127.0.0.1:1,127.0.0.1:2/x?password={quote(SECRET)}",
                "cannot be reached",
                "check the URL",
            ),
            ("postgresql:///x?host=/nonexistent", "x?host=/nonexistent cannot be reached", "the server runs"),
            (
                f"postgresql://u:{SECRET}@h/x",
                "cannot parse the URL of the database postgresql://u@h/x: invalid percent-encoded token",
                "% as %25",
            ),
            (
                "postgresql://u:hunter2-/geheim@h/x",
                "cannot parse the URL of the database postgresql://u@h/x: its port is not a number",
                "/ as %2F",
            ),
            (
                "postgresql://u:hunter2-@geheim@h/x",
                "cannot parse the URL of the database postgresql://u@h/x: its host contains an @",
                "@ as %40",
            ),
            ("postgresql://u:hunter2-geheim@h/x?nonsense=1", 'invalid URI query parameter: "…"', "postgresql://USER"),
            (
                "postgresql://u:hunter2-geheim@[::1/x",
                "cannot parse the URL of the database postgresql://u@[::1/x: end of string",
                "postgresql://USER",
            ),
        ],
    )
    def test_each_is_a_sentence_that_holds_no_password(self, tmp_path: Path, url: str, words: str, hint: str) -> None:
        ended = run(url, "history", "list", "--all", cwd=tmp_path)
        refused(ended, words, hint)
        shown = run(url, "config", "show", "--json", cwd=tmp_path)
        assert "hunter2" not in f"{ended}{shown}"
        assert "geheim" not in f"{ended}{shown}"

    @each(
        "url, words, hint",
        [
            (f"postgresql://u:{quote(SECRET)}@127.0.0.1:1/x", "cannot be reached", "check the URL"),
            (f"postgresql://u:{SECRET}@h/x", "cannot parse the URL of the database", "% as %25"),
            (f"mysql://u:{SECRET}@h/x", "expected the URL of a Postgres database", ""),
        ],
    )
    def test_doctor_has_it_among_its_checks(self, tmp_path: Path, url: str, words: str, hint: str) -> None:
        ended = run(url, "doctor", "--json", cwd=tmp_path)
        assert (ended.exit_code, ended.json()["healthy"]) == (3, False)
        (state,) = [check for check in ended.json()["checks"] if check["name"] == "state"]
        assert (state["ok"], words in state["detail"], hint in state["hint"]) == (False, True, True)
        assert "hunter2" not in f"{ended}"

    @each("url", [f"mysql://u:{SECRET}@h/x", f"u:{SECRET}@h/x", f"postgresql:/u:{SECRET}@h/x"])
    def test_what_is_no_url_of_postgres_is_a_mistake_in_the_settings(self, tmp_path: Path, url: str) -> None:
        ended = run(url, "history", "list", cwd=tmp_path)
        assert ended.exit_code == 2
        assert "CODELOUPE_DATABASE: expected the URL of a Postgres database" in ended.stderr
        assert SECRET not in ended.stderr

    def test_a_database_or_a_user_that_is_not_there(self, postgres_url: str, tmp_path: Path) -> None:
        other = postgres_url.replace("@/", "@/no_such_")
        refused(run(other, "history", "list", cwd=tmp_path), "does not exist", "`createdb`")
        other = postgres_url.replace("codeloupe@", "nobody_there@")
        refused(run(other, "history", "list", cwd=tmp_path), "rejected the login", "user name, password")

    def test_a_wrong_password_is_refused_and_the_right_one_works_whatever_is_in_it(
        self, postgres_data: Path, tmp_path: Path
    ) -> None:
        rules = tmp_path / "pg_hba.conf"
        rules.write_text("local all guarded scram-sha-256\nlocal all all trust\n")
        password = "p@ss/w:ör?d#%&=+ \"'x"
        with PostgresServer(postgres_data, durable=False, settings=(f"hba_file={rules}",)) as server:
            with as_superuser(server.url) as connection:
                connection.execute("CREATE ROLE guarded LOGIN IN ROLE codeloupe")
                connection.execute(b"ALTER ROLE guarded PASSWORD '%s'" % password.replace("'", "''").encode())
            right = server.url.replace("codeloupe@", f"guarded:{quote(password, safe='')}@")
            assert run(right, "history", "list", cwd=tmp_path).exit_code == 0
            wrong = server.url.replace("codeloupe@", f"guarded:{quote(password + SECRET, safe='')}@")
            ended = run(wrong, "history", "list", cwd=tmp_path)
            refused(ended, "rejected the login", "password")
            assert SECRET not in ended.stderr


class TestServersThatCannotBeUsed:
    def test_a_newer_schema_is_refused_and_left_as_it_is(self, postgres_url: str, tmp_path: Path) -> None:
        with as_superuser(postgres_url) as connection:
            connection.execute("INSERT INTO codeloupe.schema_steps (step) VALUES (99)")
            ended = run(postgres_url, "history", "list", cwd=tmp_path)
            refused(ended, "was written by a newer codeloupe (schema 99", "use the newer codeloupe")
            assert connection.execute("SELECT max(step), count(*) FROM codeloupe.schema_steps").fetchone()[0] == 99  # type: ignore[index]

    def test_a_server_that_is_too_old_is_refused(self, proxy: Proxy, tmp_path: Path) -> None:
        def older(letter: bytes, body: bytes) -> bytes:
            return b"server_version\0" + b"12.22\0" if letter == b"S" and body.startswith(b"server_version\0") else body

        proxy.answer = older
        refused(run(proxy.url, "history", "list", cwd=tmp_path), "is Postgres 12", "Postgres 13 or newer")

    def test_a_database_that_is_not_in_utf_8_is_refused(self, postgres_url: str, tmp_path: Path) -> None:
        name = postgres_url.partition("@/")[2].partition("?")[0]
        with as_superuser(postgres_url) as connection:
            connection.execute(f"CREATE DATABASE {name}_ascii ENCODING 'SQL_ASCII' TEMPLATE template0".encode())
            other = postgres_url.replace(name, f"{name}_ascii")
            ended = run(other, "history", "list", cwd=tmp_path)
            connection.execute(f"DROP DATABASE {name}_ascii WITH (FORCE)".encode())
        refused(ended, "has the encoding SQL_ASCII", "createdb -E UTF8")

    def test_who_may_not_make_our_schema_is_told_and_who_owns_one_needs_no_more(
        self, postgres_url: str, role: str, changed: Path
    ) -> None:
        theirs = postgres_url.replace("codeloupe@", f"{role}@")
        refused(run(theirs, "history", "list", cwd=changed), "denies this user permission", "GRANT")
        with as_superuser(postgres_url) as connection:
            connection.execute("DROP SCHEMA codeloupe CASCADE")
            refused(run(theirs, "history", "list", cwd=changed), "permission denied for database", "GRANT CREATE")
            connection.execute(f"CREATE SCHEMA codeloupe AUTHORIZATION {role}".encode())
        assert listed(theirs, changed) == []
        assert run(theirs, *_REVIEW, cwd=changed).exit_code == 1
        assert len(listed(theirs, changed)) == 1

    def test_no_connection_left(self, postgres_url: str, role: str, changed: Path) -> None:
        theirs = postgres_url.replace("codeloupe@", f"{role}@")
        with as_superuser(postgres_url) as connection:
            connection.execute(f"ALTER ROLE {role} CONNECTION LIMIT 1".encode())
            with psycopg.connect(theirs):
                refused(run(theirs, "history", "list", cwd=changed), "has no free connections", "max_connections")

    def test_a_standby_can_be_read_and_says_what_it_is_when_it_shall_be_written(
        self, postgres_data: Path, changed: Path
    ) -> None:
        (postgres_data / "standby.signal").touch()
        with PostgresServer(postgres_data, durable=False) as server:
            assert listed(server.url, changed) == []
            ended = run(server.url, *_REVIEW, cwd=changed)
            assert ended.exit_code == 1
            (problem,) = [error["message"] for error in ended.json()["errors"] if error["kind"] == "history"]
            assert "the review is not in the history: the database" in problem
            assert "is read-only, like a standby" in problem
            (state,) = [
                check for check in run(server.url, "doctor", "--json", cwd=changed).json()["checks"]
                if check["name"] == "state"
            ]  # fmt: skip
            assert (state["ok"], state["hint"]) == (False, "give the URL of the primary server")

    def test_a_full_disk_costs_nothing_that_is_stored(self, postgres_data: Path, changed: Path) -> None:
        with (
            PostgresServer(postgres_data, durable=False) as server,
            psycopg.connect(server.url, autocommit=True) as connection,
        ):
            assert run(server.url, *_REVIEW, cwd=changed).exit_code == 1
            before = listed(server.url, changed)
            # The reviews still fit, and the next finding does not: what needs room is on a device that is always full.
            connection.execute("CREATE TABLE codeloupe.new_findings (LIKE codeloupe.findings INCLUDING ALL)")
            connection.execute("ALTER TABLE codeloupe.findings RENAME TO old_findings")
            connection.execute("ALTER TABLE codeloupe.new_findings RENAME TO findings")
            (file,) = connection.execute("SELECT pg_relation_filepath('codeloupe.findings')").fetchone() or ("",)
        (postgres_data / file).unlink()
        (postgres_data / file).symlink_to("/dev/full")
        server = PostgresServer(postgres_data, durable=False)
        server.start()
        try:
            ended = run(server.url, *_REVIEW, cwd=changed)
            assert ended.exit_code == 1
            (problem,) = [error["message"] for error in ended.json()["errors"] if error["kind"] == "history"]
            assert "cannot grow: its disk is full" in problem
            assert listed(server.url, changed) == before
        finally:
            server.stop(how=signal.SIGKILL)  # it cannot flush that file


class TestLostConnections:
    # tests/unit/store/test_postgres.py has all phases.
    @each(
        "misfortune, letter, word",
        [("cut", STARTUP, b""), ("cut", b"P", b"INSERT INTO findings"), ("cut_after", b"Q", b"COMMIT")],
    )
    def test_a_review_is_kept_once_wherever_the_connection_is_lost(
        self, postgres_url: str, changed: Path, misfortune: str, letter: bytes, word: bytes
    ) -> None:
        with as_superuser(postgres_url) as connection:
            connection.execute("DELETE FROM codeloupe.reviews")
        with proxy_before(postgres_url) as proxy:
            proxy.lose(letter, word, misfortune=misfortune)
            ended = run(proxy.url, *_REVIEW, cwd=changed)
            assert proxy.met.is_set()
        assert ended.exit_code == 1, ended.stderr
        report = ended.json()
        assert [error for error in report["errors"] if error["kind"] == "history"] == []
        assert listed(postgres_url, changed) == [report["review_id"]]
        with PostgresDatabase(postgres_url) as database:
            counts = "SELECT (SELECT count(*) FROM findings), (SELECT count(DISTINCT position) FROM findings)"
            ((rows, distinct),) = database.select(counts)
        assert rows == distinct > 0

    @each("letter, word", [(STARTUP, b""), (b"P", b"SELECT"), (b"Q", b"COMMIT")])
    def test_one_that_is_lost_each_time_is_a_sentence(
        self, proxy: Proxy, tmp_path: Path, letter: bytes, word: bytes
    ) -> None:
        proxy.lose(letter, word, times=1_000)
        refused(run(proxy.url, "history", "list", cwd=tmp_path), "lost the connection", "and retry")

    def test_a_server_that_says_nothing_when_it_is_connected_to_ends_in_an_error(
        self, proxy: Proxy, tmp_path: Path
    ) -> None:
        proxy.lose(STARTUP, misfortune="swallow", times=1_000)
        url = f"{proxy.url}&connect_timeout=2"
        refused(run(url, "history", "list", cwd=tmp_path), "connection timeout expired", "the server runs")

    @pytest.mark.parametrize(
        ("words", "letter", "word"),
        [
            (("history", "list"), b"Q", b"BEGIN"),
            (_REVIEW, b"P", b"INSERT INTO reviews"),
            pytest.param(("history", "list"), STARTUP, b"", marks=pytest.mark.soak),
            pytest.param(_REVIEW, b"Q", b"BEGIN ISOLATION LEVEL REPEATABLE READ", marks=pytest.mark.soak),
        ],
    )
    def test_an_interruption_ends_the_waiting_for_a_silent_server(
        self, proxy: Proxy, changed: Path, words: tuple[str, ...], letter: bytes, word: bytes
    ) -> None:
        proxy.lose(letter, word, misfortune="swallow", times=1_000)
        environment = {**os.environ, "CODELOUPE_DATABASE": f"{proxy.url}&connect_timeout=300"}
        program = subprocess.Popen(
            (str(PROGRAM), *words), cwd=changed, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            assert proxy.met.wait(PATIENCE_SECONDS)
            program.send_signal(signal.SIGINT)
            # Less than a silent server is waited for.
            _, said = program.communicate(timeout=14)
        finally:
            program.kill()
            program.communicate()
        assert (program.returncode, b"interrupted" in said) == (130, True), said


def test_the_log_of_a_crash_holds_no_password(tmp_path: Path, home: Path) -> None:
    script = """
import sys
from codeloupe.cli import config, main
def run(arguments): raise RuntimeError(" ".join(sys.argv))
config.run = run
sys.argv = ["codeloupe", "config", "show", "--repo", sys.argv[1]]
main.main()
"""
    url = f"postgresql://u:{quote(SECRET)}/more@h/x?password={SECRET}"
    python = PROGRAM.with_name("python")
    environment = {**os.environ, "CODELOUPE_DATABASE": url, "CODELOUPE_HOME": str(tmp_path / "state")}
    ended = subprocess.run((python, "-c", script, url), cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert ended.returncode == 4
    (log,) = (tmp_path / "state" / "logs").iterdir()
    for text in (ended.stderr.decode(), log.read_text()):
        assert "hunter2" not in text
        assert "geheim" not in text
    shutil.rmtree(tmp_path / "state")
