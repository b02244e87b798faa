"""What is kept between runs: ledger, history, baseline and runs, in one file of this machine or on a shared server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from codeloupe.errors import StoreError, install_command

if TYPE_CHECKING:
    from codeloupe.store.interface import Database, RunStore


def open_database(url: str | None, directory: Path) -> Database:
    """The shared database at a URL, or the file in a directory. Nothing is touched before its first use."""
    if url is None:
        from codeloupe.store.sqlite import DATABASE_NAME, SqliteDatabase  # noqa: PLC0415 - not where a server is used

        return SqliteDatabase(directory / DATABASE_NAME)
    try:
        from codeloupe.store.postgres import PostgresDatabase  # noqa: PLC0415 - an extra, and it takes 0.3 s to load
    except ImportError as error:
        message = "`database` names a Postgres server, and what talks to one is not installed"
        raise StoreError(message, hint=install_command("server")) from error
    return PostgresDatabase(url)


def open_run_store(database: Database, directory: Path) -> RunStore:
    """The runs in a shared database, with copies below a directory; else those of that directory."""
    from codeloupe.store.runs import RUNS_DIRECTORY, DirectoryRunStore  # noqa: PLC0415 - where pipelines are used

    if not database.is_shared:
        return DirectoryRunStore(directory / RUNS_DIRECTORY)
    from codeloupe.store.shared_runs import SharedRunStore  # noqa: PLC0415 - where a server is used

    return SharedRunStore(database, directory / f"{RUNS_DIRECTORY}-shared")
