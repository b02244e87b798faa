"""Stored data: ledger, history, baseline and pipeline runs, in one file on this machine or on a shared server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from codeloupe.errors import StoreError, install_command

if TYPE_CHECKING:
    from codeloupe.store.interface import Database, RunStore

# The parts of a query that name a place. Every other part may be a secret.
_SHOWN = ("host", "hostaddr", "port", "dbname", "user", "service", "sslmode", "target_session_attrs")


def open_database(url: str | None, directory: Path) -> Database:
    """Return the shared database at a URL, or the file in a directory. It is opened with its first use."""
    if url is None:
        from codeloupe.store.sqlite import DATABASE_NAME, SqliteDatabase  # noqa: PLC0415 - not where a server is used

        return SqliteDatabase(directory / DATABASE_NAME)
    try:
        from codeloupe.store.postgres import PostgresDatabase  # noqa: PLC0415 - an extra, and it takes 0.3 s to load
    except ImportError as error:
        message = (
            f"the database {without_password(url)} is on a Postgres server, but the Postgres driver is not installed"
        )
        raise StoreError(message, hint=install_command("server")) from error
    return PostgresDatabase(url)


def open_run_store(database: Database, directory: Path) -> RunStore:
    """Return the runs in a database, with copies for people below a state directory."""
    from codeloupe.store.runs import DatabaseRunStore  # noqa: PLC0415 - only pipelines need it

    return DatabaseRunStore(database, directory)


def is_postgres(place: str) -> bool:
    """Return whether a text is the URL of a Postgres database, and not the name of a file."""
    return place.startswith(("postgresql://", "postgres://"))


def without_password(url: str) -> str:
    """Return the URL without its password. If it is invalid, every possible password is removed."""
    scheme, _, rest = url.partition("://")
    user = re.match(r"[^:/?@]*", rest)[0]  # type: ignore[index]  # it always matches
    at = ""
    if rest[len(user) :].startswith((":", "@")) and "@" in rest:
        # A password may hold any character, by mistake also what has to be escaped in it: up to the last `@` that can
        # be its end, all is a password.
        _, at, rest = rest.rpartition("@") if rest[len(user)] == ":" else rest.partition("@")
    place, *query = re.split("[?&]", rest)
    kept = "&".join(each for each in query if unquote(each.partition("=")[0]) in _SHOWN)
    return f"{scheme}://{user if at else ''}{at}{place}{'?' if kept else ''}{kept}"
