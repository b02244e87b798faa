"""The ledger with a hundred thousand finished calls against an empty one, and on a server against a file."""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from bench.table import BenchRow
from codeloupe.model.agent import AgentResult, TokenUsage
from codeloupe.store.ledger import DatabaseLedger
from codeloupe.store.postgres import PostgresDatabase
from codeloupe.store.records import pack, to_json
from codeloupe.store.sqlite import SqliteDatabase
from codeloupe.system.postgres_server import PostgresServer

_ROWS = 100_000
_TIMES = 500
_LEASE_SECONDS = 60.0
_LIMIT = 2.0
_OUTPUT = "The last page is left out when the number of items is a multiple of its size. " * 12


def rows() -> Iterator[BenchRow]:
    """Each step of a bought call in both ledgers by turns, and the first of a process, which also prunes."""
    with tempfile.TemporaryDirectory() as directory:
        empty, full = Path(directory) / "empty.sqlite3", Path(directory) / "full.sqlite3"
        _fill(full)
        with SqliteDatabase(empty) as few, SqliteDatabase(full) as many:
            ledgers = DatabaseLedger(few), DatabaseLedger(many)
            first = [_seconds(partial(ledger.put, _key(-1), _result(-1))) for ledger in ledgers]
            yield _row("the first put of a process, which also prunes", *first, limit=None)
            for name, step in _STEPS:
                yield _row(name, *_in_turns(ledgers, step), limit=_LIMIT)
        yield from _on_a_server(Path(directory))


def _on_a_server(directory: Path) -> Iterator[BenchRow]:
    """The same steps on a Postgres server of this machine, reached through its socket, against a file; both flush."""
    with (
        SqliteDatabase(directory / "beside.sqlite3") as file,
        PostgresServer(directory / "server") as server,
        PostgresDatabase(server.url) as shared,
    ):
        ledgers = DatabaseLedger(file), DatabaseLedger(shared)
        for ledger in ledgers:
            ledger.put(_key(-1), _result(-1))
        for name, step in _STEPS:
            of_file, of_server = _in_turns(ledgers, step)
            detail = f"{of_server * 1000:.3f} ms / {of_file * 1000:.3f} ms"
            yield BenchRow(f"ledger in Postgres / in SQLite: {name}", detail, of_server / of_file, None)


def _row(name: str, empty: float, full: float, *, limit: float | None) -> BenchRow:
    detail = f"{full * 1000:.3f} ms / {empty * 1000:.3f} ms"
    return BenchRow(f"ledger of {_ROWS:,} calls / empty: {name}", detail, full / empty, limit)


# In this order: what is claimed is stored after that, and found after that.
_STEPS: Sequence[tuple[str, Callable[[DatabaseLedger, int], object]]] = (
    ("get what is not there", lambda ledger, number: ledger.get(_key(_ROWS + number))),
    ("claim", lambda ledger, number: ledger.claim(_key(_ROWS + number), lease_seconds=_LEASE_SECONDS)),
    ("put", lambda ledger, number: ledger.put(_key(_ROWS + number), _result(number))),
    ("get", lambda ledger, number: _found(ledger.get(_key(_ROWS + number)))),
)


def _in_turns(
    ledgers: tuple[DatabaseLedger, DatabaseLedger], step: Callable[[DatabaseLedger, int], object]
) -> tuple[float, float]:
    """The medians of both, one step here and one there, so that a busy moment of the machine counts for both."""
    pairs = [[_seconds(partial(step, ledger, number)) for ledger in ledgers] for number in range(_TIMES)]
    return median(pair[0] for pair in pairs), median(pair[1] for pair in pairs)


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _found(result: AgentResult | None) -> AgentResult:
    if result is None:
        raise RuntimeError("what was stored was not found")
    return result


def _fill(path: Path) -> None:
    """All in one transaction: how they came there is not what is measured."""
    payload = pack(to_json(_result(0)))
    now = time.time()
    with SqliteDatabase(path) as database, database.writing() as connection:
        connection.executemany(
            "INSERT INTO results (key, created_at, size_bytes, agent, model, cost_usd, payload)"
            " VALUES (?, ?, ?, 'scripted', 'a-model', 0.01, ?)",
            ((_key(number), now - number, len(payload), payload) for number in range(_ROWS)),
        )


def _key(number: int) -> str:
    return hashlib.sha256(b"%d" % number).hexdigest()


def _result(number: int) -> AgentResult:
    return AgentResult(
        success=True,
        output=f"{number} {_OUTPUT}",
        agent="scripted",
        structured={"findings": []},
        duration_ms=1000,
        num_turns=1,
        total_cost_usd=0.01,
        usage=TokenUsage(input_tokens=4000, output_tokens=200),
        model="a-model",
    )
