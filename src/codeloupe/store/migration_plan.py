"""The tables that a migration copies, and their columns, as the schema declares them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from codeloupe.store.catalogue import Table, known_tables
from codeloupe.store.schema import SchemaStep, stored_tables

# The order in which entries were saved in a database. A copy keeps the order, but its numbers may differ.
TURN = "turn"
# These columns depend on the database that an entry was stored in, so copies are not compared by them.
_NOT_COMPARED = frozenset({TURN, "created_at"})
_SIZE = "size_bytes"
_RUNS = "runs"


class Part(Struct, frozen=True):
    """A table whose rows belong to entries. `columns` are those that are copied, apart from `owner_column`."""

    name: str
    owner_column: str
    order: tuple[str, ...]
    columns: tuple[str, ...]
    types: tuple[type | str, ...]


class Kind(Struct, frozen=True):
    """A table of entries, with its parts. `columns` are those that are copied, apart from the key.

    `handle` is the column that parts refer to.
    """

    table: Table
    parts: tuple[Part, ...]
    columns: tuple[str, ...]
    types: tuple[type | str, ...]
    handle: str

    @property
    def name(self) -> str:
        """The name of the table."""
        return self.table.name

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the table and of its parts."""
        return (self.name, *(part.name for part in self.parts))

    @property
    def compared(self) -> frozenset[str]:
        """The columns by which copies are compared."""
        return frozenset(self.columns) - _NOT_COMPARED

    @property
    def has_turn(self) -> bool:
        """Return whether the entries have an order."""
        return TURN in self.columns

    @property
    def size_column(self) -> str:
        """The column with the size of an entry, or an empty string."""
        if _SIZE in self.columns:
            return _SIZE
        return ""

    @property
    def is_alone(self) -> bool:
        """Return whether an entry needs its own batch, because its size is not known."""
        return bool(self.parts) and not self.size_column

    @property
    def is_run(self) -> bool:
        """Return whether the entries are runs, which a process may be working on."""
        return self.name == _RUNS


def plan(steps: Sequence[SchemaStep]) -> tuple[Kind, ...]:
    """Return the tables of entries in the order in which they are copied."""
    tables = known_tables(steps)
    stored = [tables[name] for name in stored_tables(steps)]
    return tuple(_kind(table, stored) for table in stored if table.owner is None)


def _kind(table: Table, stored: Sequence[Table]) -> Kind:
    parts = tuple(_part(other) for other in stored if _belongs_to(other, table))
    columns = _columns(table, without=table.key)
    types = tuple(table.types[column] for column in columns)
    return Kind(table, parts, columns, types, table.number or table.key[0])


def _belongs_to(table: Table, other: Table) -> bool:
    return table.owner is not None and table.owner.table == other.name


def _part(table: Table) -> Part:
    owner_column = "" if table.owner is None else table.owner.column
    order = tuple(column for column in table.key if column != owner_column)
    columns = _columns(table, without=(owner_column,))
    types = tuple(table.types[column] for column in columns)
    return Part(table.name, owner_column, order, columns, types)


def _columns(table: Table, *, without: Sequence[str]) -> tuple[str, ...]:
    return tuple(column for column in table.types if column != table.number and column not in without)
