"""Contents of files in the database, by their SHA-256, in chunks, so that no process needs a large file in its memory.

The functions work in a transaction of the caller. A content is stored in the transaction that refers to it, and removed
in the one that removes the last reference. Both lock the row of the content first, so one of two such transactions
waits for the other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from codeloupe.errors import StoreError
from codeloupe.store.interface import Connection, Content, Database

CHUNK_BYTES = 1024**2


def digest_of(content: Content) -> bytes:
    """Return the SHA-256 of a content. Raise OSError if its file cannot be read."""
    if isinstance(content, bytes):
        return hashlib.sha256(content).digest()
    with content.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").digest()


def put_blob(connection: Connection, digest: bytes, content: Content, *, now: float) -> None:
    """Store a content unless it is stored. Raise OSError, and StoreError if its file changes meanwhile."""
    size = len(content) if isinstance(content, bytes) else content.stat().st_size
    connection.execute(
        "INSERT INTO blobs (digest, size_bytes, created_at) VALUES (?, ?, ?)"
        " ON CONFLICT (digest) DO UPDATE SET created_at = excluded.created_at",
        (digest, size, now),
    )
    stored = connection.execute("SELECT count(*) FROM blob_chunks WHERE digest = ?", (digest,)).fetchone()
    if stored[0] == _count_chunks(size):
        return
    found = hashlib.sha256()
    for position, data in enumerate(_chunks_of(content)):
        found.update(data)
        connection.execute(
            "INSERT INTO blob_chunks (digest, position, data) VALUES (?, ?, ?)", (digest, position, data)
        )
    if found.digest() != digest:
        raise StoreError(f"{content!s:.200} changed while it was stored", hint="resume the run")


def lock_blob(connection: Connection, digest: bytes) -> None:
    """Wait for a transaction that stores or removes the same content; the next statement sees its changes."""
    connection.execute("UPDATE blobs SET created_at = created_at WHERE digest = ?", (digest,))


def read_blob(database: Database, digest: bytes) -> Iterator[bytes]:
    """Yield a stored content in chunks. Raise StoreError at its end if it is damaged."""
    rows = database.select("SELECT size_bytes FROM blobs WHERE digest = ?", (digest,))
    count = _count_chunks(rows[0][0]) if rows else 0
    found = hashlib.sha256()
    for position in range(count):
        statement = "SELECT data FROM blob_chunks WHERE digest = ? AND position = ?"
        for (data,) in database.select(statement, (digest, position)):
            found.update(data)
            yield data
    if found.digest() != digest:
        message = f"a stored file is damaged in the database {database.name}: its content does not match its checksum"
        raise StoreError(message, hint="restore the database from a backup, or start a new run")


def remove_unused_blobs(connection: Connection, digests: Iterable[bytes]) -> int:
    """Remove those of some contents that no run refers to; return their size."""
    size = 0
    # In one order, so that two transactions never wait for each other.
    for digest in sorted(set(digests)):
        lock_blob(connection, digest)
        if connection.execute("SELECT 1 FROM run_files WHERE digest = ? LIMIT 1", (digest,)).fetchone() is not None:
            continue
        row = connection.execute("SELECT size_bytes FROM blobs WHERE digest = ?", (digest,)).fetchone()
        connection.execute("DELETE FROM blobs WHERE digest = ?", (digest,))
        if row is not None:
            size += row[0]
    return size


def unused_blobs(connection: Connection, most: int) -> list[bytes]:
    """Return the digests of some contents that no run refers to."""
    rows = connection.execute(
        "SELECT digest FROM blobs WHERE NOT EXISTS (SELECT 1 FROM run_files WHERE run_files.digest = blobs.digest)"
        " ORDER BY digest LIMIT ?",
        (most,),
    )
    return [bytes(digest) for (digest,) in rows.fetchall()]


def _count_chunks(size_bytes: int) -> int:
    return -(-size_bytes // CHUNK_BYTES)


def _chunks_of(content: Content) -> Iterator[bytes]:
    if isinstance(content, bytes):
        for start in range(0, len(content), CHUNK_BYTES):
            yield content[start : start + CHUNK_BYTES]
        return
    with content.open("rb") as stream:
        while data := stream.read(CHUNK_BYTES):
            yield data
