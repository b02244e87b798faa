"""The rules that every database of the store follows."""

from pathlib import Path

from codeloupe.store.interface import Database
from codeloupe.store.postgres import PostgresDatabase
from codeloupe.store.sqlite import DATABASE_NAME, SqliteDatabase


def identities(*databases: Database) -> list[str]:
    found: list[str] = []
    for database in databases:
        with database:
            found.append(database.identity)
    return found


def test_a_database_has_one_identity_under_every_address(postgres_url: str, tmp_path: Path) -> None:
    folder = tmp_path / "state"
    link = tmp_path / "link"
    link.symlink_to(folder, target_is_directory=True)
    first, again = identities(SqliteDatabase(folder / DATABASE_NAME), SqliteDatabase(link / DATABASE_NAME))
    assert first == again
    first, again = identities(PostgresDatabase(postgres_url), PostgresDatabase(f"{postgres_url}&application_name=a"))
    assert first == again


def test_two_databases_have_two_identities(postgres_url: str, other_postgres_url: str, tmp_path: Path) -> None:
    databases = (
        SqliteDatabase(tmp_path / "one.sqlite3"),
        SqliteDatabase(tmp_path / "two.sqlite3"),
        PostgresDatabase(postgres_url),
        PostgresDatabase(other_postgres_url),
    )
    assert len(set(identities(*databases))) == len(databases)
