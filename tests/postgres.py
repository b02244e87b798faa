"""A real Postgres server for the tests, one for all workers of a run, and a database of its own for each test.

As a plugin of pytest it starts before the workers, and ends with the process that started them. The schema is made
once, in a template: a copy of that takes some milliseconds.
"""

import itertools
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

import psycopg
import pytest

from codeloupe.store.interface import Database
from codeloupe.store.postgres import PostgresDatabase
from codeloupe.store.sqlite import DATABASE_NAME, SqliteDatabase
from codeloupe.system.postgres_server import PostgresServer

_ADDRESS = "TEST_POSTGRES_ADDRESS"
_ROLE = "codeloupe"
_TEMPLATE = "codeloupe"
_STOPPED = "stopped"
_numbers = itertools.count()
# Of the machine: a test has a folder of its own for temporary files, which must be empty at the end.
_FOLDER = tempfile.gettempdir()
_kept: list[tuple[PostgresServer, tempfile.TemporaryDirectory[str]]] = []


def pytest_configure(config: pytest.Config) -> None:
    is_for_others = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
    if is_for_others and config.getoption("--tier") != "unit" and not config.getoption("collectonly"):
        os.environ[_ADDRESS] = _start()


def pytest_unconfigure() -> None:
    while _kept:
        server, folder = _kept.pop()
        server.stop()
        folder.cleanup()


def _start() -> str:
    folder = tempfile.TemporaryDirectory(prefix="tests-postgres-", dir=_FOLDER)
    data = Path(folder.name) / "data"
    with PostgresServer(data, durable=False) as server, PostgresDatabase(server.url) as database:
        database.check()
    shutil.copytree(data, data.with_name(_STOPPED))
    server = PostgresServer(data, durable=False, settings=("max_connections=300",))
    server.start()
    _kept.append((server, folder))
    return server.url


@pytest.fixture(scope="session")
def postgres_server() -> str:
    """The URL of the template on the server of this run. Nobody may stay connected to it."""
    if _ADDRESS not in os.environ:
        os.environ[_ADDRESS] = _start()
    return os.environ[_ADDRESS]


@pytest.fixture
def postgres_data(postgres_server: str, tmp_path: Path) -> Path:
    """The data of a server of this test's own, with our schema, as a server left it that was stopped."""
    data = Path(unquote(postgres_server.partition("host=")[2]))
    copy = tmp_path / "data"
    shutil.copytree(data.with_name(_STOPPED), copy)
    return copy


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """The URL of a database of this test's own, with our schema and nothing in it."""
    with database_of(postgres_server) as url:
        yield url


@pytest.fixture
def other_postgres_url(postgres_server: str) -> Iterator[str]:
    """One more of these."""
    with database_of(postgres_server) as url:
        yield url


def admin_url_of(url: str) -> str:
    """Return the URL of the superuser and its own database on the server of a URL."""
    return re.sub("//[^?]*", "//postgres@/postgres", url)


@contextmanager
def database_of(postgres_server: str) -> Iterator[str]:
    """Yield the URL of a new database with our schema, which is deleted at the end."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    statement = f"CREATE DATABASE {name} OWNER {_ROLE} TEMPLATE {_TEMPLATE} STRATEGY FILE_COPY"
    with psycopg.connect(admin_url_of(postgres_server), autocommit=True) as connection:
        connection.execute(statement.encode())
        url = postgres_server.replace(f"@/{_TEMPLATE}?", f"@/{name}?")
        try:
            with psycopg.connect(url, autocommit=True) as created:
                # A copy of the template has the id of the template.
                created.execute("UPDATE codeloupe.identity SET id = gen_random_uuid()")
            yield url
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def made_database(request: pytest.FixtureRequest) -> Database:
    """An empty database of the kind that a fixture's parameter names, which the caller closes."""
    if request.param == "sqlite":
        folder: Path = request.getfixturevalue("tmp_path")
        return SqliteDatabase(folder / DATABASE_NAME)
    return PostgresDatabase(request.getfixturevalue("postgres_url"))
