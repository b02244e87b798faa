"""ruff takes every text with SQL words and a hole for an injection; what cannot be one must not hold up a push."""

from __future__ import annotations

from codeloupe.analysers.ruff import is_harmless_query
from tests.rows import each


@each(
    "row",
    [
        '    raise ValueError(f"could not select {column} from {table}")',
        '    print(f"Update {name} set of values from {source}")',
        '    logger.warning(f"delete from {name} where it is old")',
        '    rows = c.execute(f"SELECT * FROM {TABLE} WHERE id = ?", (key,))',
        '    c.execute(f"SELECT * FROM {TABLE} WHERE a = %s AND b = %(b)s", values)',
        '    sql = f"SELECT {cls.COLUMNS} FROM {TABLE}"',
        """    c.execute(f"DELETE FROM t WHERE id IN ({','.join('?' for _ in ids)})", ids)""",
        """    c.execute(f"SELECT a FROM {TABLE} WHERE id IN ({', '.join(['%s'] * len(ids))})", ids)""",
        '    c.execute("SELECT * FROM t WHERE id IN (%s)" % ",".join("?" * len(ids)), ids)',
    ],
)
def test_a_message_a_constant_or_a_row_of_marks_is_harmless(row: str) -> None:
    assert is_harmless_query([row])


@each(
    "row",
    [
        """    c.execute(f"SELECT * FROM t WHERE a = '{name}'")""",
        """    c.execute(f"SELECT * FROM {TABLE} WHERE a = '{name}'")""",
        """    c.execute(f"SELECT * FROM {TABLE} WHERE a = " + name)""",
        """    c.execute(f"SELECT * FROM {TABLE} WHERE a = %s" % name)""",
        """    c.execute(f"SELECT * FROM {TABLE} WHERE a = {}".format(name))""",
        """    c.execute("SELECT * FROM t WHERE a = " + name)""",
        """    c.execute("SELECT * FROM t WHERE a = '%s'" % name)""",
        """    c.execute(f"SELECT * FROM t WHERE id IN ({','.join(ids)})")""",
        """    c.execute("SELECT * FROM t WHERE id IN (%s) AND a = " % ",".join("?" * len(ids)) + name)""",
        """    c.execute(f"SELECT * FROM t WHERE a = {name} AND id IN ({','.join('?' for _ in ids)})", ids)""",
        """    assert c.execute(f"SELECT * FROM t WHERE a = '{name}'")""",
        """    sql = f"SELECT * FROM {table}" """,
    ],
)
def test_a_query_with_a_part_that_may_come_from_outside_is_not(row: str) -> None:
    assert not is_harmless_query([row])


def test_a_query_over_several_rows_is_looked_at_whole() -> None:
    assert not is_harmless_query(['    c.execute(f"SELECT * FROM {TABLE} "', "    f\"WHERE a = '{name}'\")"])
    assert is_harmless_query(['    c.execute(f"SELECT * FROM {TABLE} "', '    "WHERE a = ?", (name,))'])


@each("part", ["{", "','.join(", "a.", "log", "% ", "A", "','.join('?' for _ in ", '"+'])
def test_hostile_rows_are_given_up(part: str) -> None:
    assert not is_harmless_query([part * 500_000])
    assert not is_harmless_query([(part * 400)[:400]] * 20)
    assert not is_harmless_query(['f"{A}"'] * 1_000_000)
