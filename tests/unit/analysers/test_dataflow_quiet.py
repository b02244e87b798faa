"""The rules of ruff that the data flow silences: every sink on the line was followed to harmless values."""

import tomllib
from pathlib import Path
from textwrap import dedent

import pytest

from codeloupe.analysers.dataflow.worker import examine
from codeloupe.analysers.ruff import ruff_rules

IMPORTS = "import json, os, pickle, shlex, subprocess, sys\nfrom enum import Enum\n"
UNKNOWN = tomllib.loads(Path(__file__).with_name("dataflow_doubts.toml").read_text(encoding="utf-8"))
# The code of each case is followed by the rule, which is silent on every line of the last statement.
SAFE = {
    "call over several lines": (
        """
        def f(db, x):
            db.execute(
                "SELECT * FROM t WHERE a = %d"
                % int(x)
            )
        """,
        "S608",
    ),
    "f-string over several lines": (
        '''
        TABLE = "users"
        def f(db):
            db.execute(f"""
                SELECT *
                FROM {TABLE}
            """)
        ''',
        "S608",
    ),
    "constant of a class by its name": (
        """
        class Model:
            TABLE = "users"
        def f(db):
            db.execute(f"SELECT * FROM {Model.TABLE}")
        """,
        "S608",
    ),
    "constant of a class made of constants": (
        """
        PREFIX = "app"
        class Model:
            TABLE = f"{PREFIX}_users"
            def f(self, db):
                db.execute("SELECT * FROM " + self.TABLE)
        """,
        "S608",
    ),
    "query in a class": (
        """
        TABLE = "users"
        class Model:
            QUERY = f"SELECT * FROM {TABLE}"
        """,
        "S608",
    ),
    "member of an enumeration": (
        """
        class Column(Enum):
            NAME = "name"
        def f(db):
            db.execute(f"SELECT {Column.NAME.value} FROM t")
        """,
        "S608",
    ),
    "marks as many as a parameter says": (
        """
        def f(db, n):
            db.execute("SELECT * FROM t WHERE a IN (%s)" % ",".join("?" * n))
        """,
        "S608",
    ),
    "list of marks": (
        """
        def f(db, rows):
            marks = ", ".join(["%s"] * len(rows))
            db.execute("SELECT * FROM t WHERE a IN ({})".format(marks))
        """,
        "S608",
    ),
    "variable of a loop over constants": (
        """
        def f(db):
            for table, column in (("a", "b"), ("c", "d")):
                db.execute(f"SELECT {column} FROM {table}")
        """,
        "S608",
    ),
    "query in parts": (
        """
        def f(db, x):
            query = "SELECT * FROM t"
            query += " LIMIT " + str(int(x))
            db.execute(f"SELECT a FROM ({query})")
        """,
        "S608",
    ),
    "table of a model": (
        """
        def f(db, model):
            db.execute(f"SELECT * FROM {model._meta.db_table}")
        """,
        "S608",
    ),
    "constants of other modules": (
        """
        from settings import TABLE
        import names
        def f(db):
            db.execute(f"SELECT {names.COLUMN} FROM {TABLE} WHERE a = %s AND b = %(b)s", {})
        """,
        "S608",
    ),
    "list that only its own function changes": (
        """
        def f(db, x):
            conditions = ["a = ?"]
            if x:
                conditions.append("b = ?")
            db.execute("SELECT * FROM t WHERE " + " AND ".join(conditions), (x,))
        """,
        "S608",
    ),
    "dictionary of constants": (
        """
        COLUMNS = {"a": "x", "b": "y"}
        def f(db, key):
            if key not in COLUMNS:
                raise KeyError(key)
            db.execute(f"SELECT {COLUMNS[key]} FROM t")
        """,
        "S608",
    ),
    "quoted argument over several lines": (
        """
        def f(x):
            os.system(
                "ls "
                + shlex.quote(x)
            )
        """,
        "S605",
    ),
    "joined words": (
        """
        def f(words):
            subprocess.run(
                shlex.join(words),
                shell=True,
            )
        """,
        "S602",
    ),
    "object that was serialised here": (
        """
        def f(x):
            data = pickle.dumps(x)
            return pickle.loads(data)
        """,
        "S301",
    ),
    "code that was compiled from a constant": (
        """
        def f(x):
            exec(
                compile("a = 1", "a.py", "exec"),
            )
        """,
        "S102",
    ),
    "constant code over several lines": (
        """
        def f(x):
            return eval(
                "1 + 1",
            )
        """,
        "S307",
    ),
}
DOUBTFUL = {
    "parameter": (
        """
        def f(db, table):
            db.execute(
                f"SELECT * FROM {table}",
            )
        """,
        "S608",
    ),
    "parameter with a default": (
        """
        def f(db, table="users"):
            db.execute(f"SELECT * FROM {table}")
        """,
        "S608",
    ),
    "constant beside something unknown from a helper": (
        """
        def query(table):
            return table + unknown()
        def f(db):
            db.execute("SELECT * FROM " + query("users"))
        """,
        "S608",
    ),
    "constant of a class that is assigned again": (
        """
        class Model:
            TABLE = "users"
            def g(self, x):
                self.TABLE = x
            def f(self, db):
                db.execute("SELECT * FROM " + self.TABLE)
        """,
        "S608",
    ),
    "one of two sinks on the line": (
        """
        def f(db, x):
            db.execute("SELECT 1 FROM " + "t"), db.execute("SELECT 1 FROM " + x)
        """,
        "S608",
    ),
    "command of a parameter": (
        """
        def f(x):
            os.system("ls " + x)
        """,
        "S605",
    ),
    "object that comes from elsewhere": (
        """
        def f(x):
            return pickle.loads(x)
        """,
        "S301",
    ),
}


def quiet_lines(code: str, rule: str) -> set[int]:
    """Return the lines of the last statement at which the rule is silent; all lines are added."""
    text = IMPORTS + dedent(code)
    answer = examine(text.encode(), frozenset(range(1, text.count("\n") + 1)))
    assert not answer["failed"]
    defect = ruff_rules()[rule].defect
    return {line for line, names in answer["quiet"].items() if rule in names or defect in names}


@pytest.mark.defect("N3")
@pytest.mark.parametrize("name", SAFE)
def test_ruff_is_silent_on_each_line_of_a_sink_that_is_followed_and_safe(name: str) -> None:
    code, rule = SAFE[name]
    text = (IMPORTS + dedent(code)).splitlines()
    last = len(text)
    first = max(number for number, line in enumerate(text, start=1) if _starts_sink(line))
    assert set(range(first, last + 1)) <= quiet_lines(code, rule)


def _starts_sink(line: str) -> bool:
    names = ("db.execute(", "os.system(", "subprocess.run(", "pickle.loads(", "exec(", "eval(", "QUERY =")
    return any(name in line for name in names)


@pytest.mark.defect("N3")
@pytest.mark.parametrize("name", DOUBTFUL)
def test_ruff_speaks_where_a_sink_may_get_anything_unknown(name: str) -> None:
    code, rule = DOUBTFUL[name]
    last = (IMPORTS + dedent(code)).count("\n")
    assert last not in quiet_lines(code, rule)


@pytest.mark.defect("N3")
@pytest.mark.parametrize("name", UNKNOWN)
def test_ruff_speaks_where_the_reader_cannot_follow_every_change(name: str) -> None:
    code = UNKNOWN[name]["code"]
    lines = (IMPORTS + code).splitlines()
    (sink,) = [number for number, line in enumerate(lines, start=1) if line.endswith("# sink")]
    assert sink not in quiet_lines(code, UNKNOWN[name]["rule"])
