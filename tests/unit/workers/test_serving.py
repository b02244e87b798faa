"""The services of `codeloupe serve`, without its workers."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from codeloupe.errors import StoreError
from codeloupe.system.postgres_server import PostgresServer
from codeloupe.workers.serving import DatabaseService, StopSignals
from tests.endings import comes_to_pass

pytestmark = pytest.mark.program


@pytest.fixture
def server(postgres_data: Path) -> Iterator[PostgresServer]:
    server = PostgresServer(postgres_data, durable=False)
    yield server
    server.stop()


@pytest.fixture
def service(server: PostgresServer) -> DatabaseService:
    """A service whose server crashed after its start, and cannot start because of a setting."""
    service = DatabaseService(server)
    service.start(StopSignals())
    os.kill(server.process_id, signal.SIGKILL)
    assert comes_to_pass(lambda: not server.is_running)
    (server.data / "postgresql.auto.conf").write_text("nonsense = 1\n")
    return service


def test_a_server_that_fails_to_restart_is_tried_again(server: PostgresServer, service: DatabaseService) -> None:
    for _ in range(2):
        service.watch()
        assert not server.is_running
    (server.data / "postgresql.auto.conf").write_text("")
    service.watch()
    with psycopg.connect(server.url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_server_that_repeatedly_fails_to_restart_is_an_error(service: DatabaseService) -> None:
    for _ in range(2):
        service.watch()
    with pytest.raises(StoreError, match="did not start: .*nonsense"):
        service.watch()
