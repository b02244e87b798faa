"""One database, many processes: nothing is bought twice, nothing stored is lost, nobody waits for the dead."""

import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest

from codeloupe.model.history import HistoryQuery
from codeloupe.store import is_postgres, open_database
from codeloupe.store.history import DatabaseHistory
from codeloupe.store.interface import Database
from codeloupe.store.ledger import DatabaseLedger
from codeloupe.store.owner import Owner
from codeloupe.store.postgres import PostgresDatabase
from codeloupe.store.schema import schema_steps
from codeloupe.store.sqlite import DATABASE_NAME
from tests.endings import comes_to_pass
from tests.unit.store.history_samples import REPOSITORY, identifier
from tests.unit.store.samples import result

KEYS = 200
# Far longer than any test takes: no claim may run out by itself.
LEASE_SECONDS = 3600.0
SAVERS = 3
REVIEWS_EACH = 12
FINDINGS = 40

_BEGIN = """
import json, os, random, sys, time
from pathlib import Path
from codeloupe.model.agent import AgentResult
from codeloupe.store import is_postgres, open_database
from codeloupe.store import sqlite as sqlite_module
from codeloupe.store.ledger import DatabaseLedger
from codeloupe.store.owner import Owner

def answer(key):
    return AgentResult(success=True, output=f"{key} from {os.getpid()}", agent="scripted", raw_output="x" * 2000)

place = sys.argv[1]
database = open_database(place if is_postgres(place) else None, Path(place).parent)
print("ready", flush=True)
sys.stdin.readline()
"""
# A program of the next version: its schema has one more step.
_USE_SCHEMA = """
import sys
from codeloupe.errors import StoreError
from codeloupe.model.agent import AgentResult
from codeloupe.store.ledger import DatabaseLedger
from codeloupe.store.postgres import PostgresDatabase
from codeloupe.store.schema import schema_steps
from codeloupe.store.schema import SchemaStep, schema_steps

steps = schema_steps()
if sys.argv[2] == "next":
    steps = (*steps, SchemaStep("03_next.sql", ("CREATE TABLE next (a bigint)", "INSERT INTO next VALUES (1)")))
print("ready", flush=True)
sys.stdin.readline()
try:
    with PostgresDatabase(sys.argv[1], steps=steps) as database:
        DatabaseLedger(database).put(sys.argv[3], AgentResult(success=True, output="", agent="a"))
        print("schema", database.schema())
except StoreError as error:
    print(error.message, "|", error.hint)
"""
_BUY_EACH_ONCE = f"""{_BEGIN}
if sys.argv[3] == "shared":
    # A network file system cannot be had in a test; that this machine's disk is one must be said.
    sqlite_module.may_be_shared = lambda path: True
ledger = DatabaseLedger(database)
keys = [str(number) for number in range(int(sys.argv[2]))]
random.shuffle(keys)
bought, seen = [], {{}}
for key in keys:
    while (found := ledger.get(key)) is None:
        if ledger.claim(key, lease_seconds=3600):
            bought.append(key)
            time.sleep(random.random() / 1000)
            ledger.put(key, answer(key))
        else:
            time.sleep(0.002)
    seen[key] = found.output
database.close()
print(json.dumps({{"bought": bought, "seen": seen}}))
"""
_STORE_UNTIL_KILLED = f"""{_BEGIN}
owner = Owner("another machine", os.getpid(), sys.argv[2]) if sys.argv[3] == "elsewhere" else None
ledger = DatabaseLedger(database, owner=owner)
for number in range(10**9):
    key = f"{{sys.argv[2]}}-{{number}}"
    assert ledger.claim(f"open-{{key}}", lease_seconds=3600)
    print(f"claimed open-{{key}}", flush=True)
    assert ledger.claim(key, lease_seconds=3600)
    ledger.put(key, answer(key))
    print(f"stored {{key}}", flush=True)
"""
_BUY_ONE_SLOWLY = f"""{_BEGIN}
ledger = DatabaseLedger(database)
assert ledger.claim("k", lease_seconds=3600)
print("claimed", flush=True)
sys.stdin.readline()
ledger.put("k", answer("k"))
database.close()
"""
_BEGIN_SAVING = f"""
from codeloupe.model.history import HistoryQuery
from codeloupe.store.history import DatabaseHistory
from tests.unit.store.history_samples import commit_review, identifier, named, record, sweep_record

def findings(number):
    return [named(f"{{number}} {{index}}", body="x" * 500) for index in range({FINDINGS})]
{_BEGIN}
history = DatabaseHistory(database)
first = int(sys.argv[2])
"""
_SAVE_MANY = f"""{_BEGIN_SAVING}
ledger = DatabaseLedger(database)
for number in range(first, first + {REVIEWS_EACH}):
    history.save(record(number, *findings(number)), raw_outputs={{"u": "x" * 20000}})
    ledger.put(str(number), answer(number))
    assert history.get(identifier(number)).problems == ()
    assert len(history.list(HistoryQuery(limit=5)).entries) >= 1
print("done", flush=True)
"""
_SAVE_UNTIL_KILLED = f"""{_BEGIN_SAVING}
sweep = sweep_record(first + 500_000)
for number in range(first, first + 100_000):
    history.save(record(number, *findings(number)), raw_outputs={{"u": "x" * 20000}})
    print(f"saved {{number}}", flush=True)
    history.save(record(first, *findings(number)))
    print(f"again {{number}}", flush=True)
    history.add_commit(sweep, commit_review(number, *findings(number)))
    print(f"added {{number}}", flush=True)
"""
_SAVE_ONE_OVER_AND_OVER = f"""{_BEGIN_SAVING}
for turn in range(100_000):
    history.save(record(first, *findings(turn)[: 1 + turn % 2 * 30]))
    history.save_sweep(sweep_record(first + 1, *(commit_review(number) for number in range(1 + turn % 3))))
    if turn == 0:
        print("saved", flush=True)
"""

Child = subprocess.Popen[str]


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A file or a URL of this test's own."""
    if request.param == "sqlite":
        return str(tmp_path / "state" / DATABASE_NAME)
    url: str = request.getfixturevalue("postgres_url")
    return url


def opened(place: str) -> Database:
    return open_database(place if is_postgres(place) else None, Path(place).parent)


@contextmanager
def started(script: str, *arguments: object) -> Iterator[Child]:
    """A process that has loaded all it needs and waits for a line; it is gone at the end, whatever happens."""
    child = subprocess.Popen(
        (sys.executable, "-c", script, *map(str, arguments)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    try:
        assert line(child) == "ready"
        yield child
    finally:
        child.kill()
        child.communicate()


def line(child: Child) -> str:
    assert child.stdout is not None
    return child.stdout.readline().rstrip("\n")


def let_go(child: Child) -> None:
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()


def killed(child: Child) -> list[str]:
    """Kill -9, and the whole lines that it had printed until then."""
    assert child.stdout is not None
    assert child.stderr is not None
    child.kill()
    child.wait()
    # Not `communicate`: that does not know what `readline` has taken from the pipe already.
    printed = child.stdout.readlines()
    assert child.stderr.read() == ""
    return [words.rstrip("\n") for words in printed if words.endswith("\n")]


def ended(script: str, place: str, *arguments: tuple[object, ...]) -> list[str]:
    """What processes print that work at once, each with its arguments; all of them end well."""
    with ExitStack() as stack:
        children = [stack.enter_context(started(script, place, *own)) for own in arguments]
        for child in children:
            let_go(child)
        told = [(*child.communicate(), child.returncode) for child in children]
    assert [(complaint, exit_code) for _, complaint, exit_code in told] == [("", 0)] * len(arguments)
    return [printed for printed, _, _ in told]


def without_schema(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA codeloupe CASCADE")


@pytest.mark.defect("W2")
@pytest.mark.parametrize("rounds", [4, pytest.param(12, marks=pytest.mark.soak)])
def test_processes_that_meet_an_empty_database_all_work(postgres_url: str, rounds: int) -> None:
    for _ in range(rounds):
        without_schema(postgres_url)
        programs = [("this", number) for number in range(4)]
        assert ended(_USE_SCHEMA, postgres_url, *programs) == [f"schema {len(schema_steps())}\n"] * 4


def test_a_newer_program_upgrades_the_schema_while_several_start(postgres_url: str) -> None:
    stored = ended(_USE_SCHEMA, postgres_url, ("this", "before"))
    assert stored == [f"schema {len(schema_steps())}\n"]
    programs = [("next", number) for number in range(4)]
    assert ended(_USE_SCHEMA, postgres_url, *programs) == [f"schema {len(schema_steps()) + 1}\n"] * 4
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT a FROM codeloupe.next").fetchall() == [(1,)]
        assert connection.execute("SELECT count(*) FROM codeloupe.results").fetchall() == [(5,)]


def test_an_older_program_is_refused_and_changes_nothing(postgres_url: str) -> None:
    ended(_USE_SCHEMA, postgres_url, ("next", "new"))
    known = len(schema_steps())
    for printed in ended(_USE_SCHEMA, postgres_url, *[("this", number) for number in range(2)]):
        assert f"was written by a newer codeloupe (schema {known + 1}; this version supports up to {known})" in printed
        assert "use the newer codeloupe; the database was not changed" in printed
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT key FROM codeloupe.results").fetchall() == [("new",)]
        assert connection.execute("SELECT max(step) FROM codeloupe.schema_steps").fetchall() == [(known + 1,)]


@pytest.mark.defect("W2")
def test_old_and_new_programs_that_meet_an_empty_database_agree(postgres_url: str) -> None:
    without_schema(postgres_url)
    programs = [("this", 1), ("next", 2), ("this", 3), ("next", 4)]
    printed = ended(_USE_SCHEMA, postgres_url, *programs)
    known = len(schema_steps())
    assert [printed[1], printed[3]] == [f"schema {known + 1}\n"] * 2
    for older in (printed[0], printed[2]):
        # An older program that came first has created its tables, and the newer ones have upgraded them.
        assert older.startswith("schema ") or "was written by a newer codeloupe" in older


def assert_whole(database: Database) -> None:
    if isinstance(database, PostgresDatabase):
        return
    assert database.select("PRAGMA integrity_check") == [("ok",)]
    assert database.select("PRAGMA foreign_key_check") == []


@pytest.mark.parametrize(
    ("place", "disk", "keys", "journal"),
    [("sqlite", "local", KEYS, "wal"), ("sqlite", "shared", KEYS // 5, "delete"), ("postgres", "", KEYS // 3, "")],
    indirect=["place"],
)
def test_processes_that_buy_at_once_buy_each_call_exactly_once(place: str, disk: str, keys: int, journal: str) -> None:
    told = [json.loads(printed) for printed in ended(_BUY_EACH_ONCE, place, *[(keys, disk)] * 4)]
    bought = Counter(key for process in told for key in process["bought"])
    assert bought == {str(number): 1 for number in range(keys)}
    assert all(process["seen"] == told[0]["seen"] for process in told)
    assert len(told[0]["seen"]) == keys
    if journal:
        assert Path(place).read_bytes()[18] == (2 if journal == "wal" else 1)
    with opened(place) as database:
        counts = "SELECT (SELECT count(*) FROM results), (SELECT count(*) FROM leases)"
        assert database.select(counts) == [(keys, 0)]
        assert_whole(database)


@pytest.mark.parametrize(
    ("place", "round_number"), [*(("sqlite", number) for number in range(4)), ("postgres", 0)], indirect=["place"]
)
def test_after_a_kill_at_any_moment_all_that_was_stored_is_there(place: str, round_number: int) -> None:
    chance = random.Random(round_number)
    with (
        started(_STORE_UNTIL_KILLED, place, "a", "here") as here,
        started(_STORE_UNTIL_KILLED, place, "b", "elsewhere") as elsewhere,
    ):
        for child in (here, elsewhere):
            let_go(child)
        assert line(here) == "claimed open-a-0"
        assert line(elsewhere) == "claimed open-b-0"
        printed = []
        for child in (here, elsewhere):
            time.sleep(chance.uniform(0, 0.05))
            printed += killed(child)
    stored = [words.removeprefix("stored ") for words in printed if words.startswith("stored ")]
    with opened(place) as database:
        assert_whole(database)
        ledger = DatabaseLedger(database)
        assert [key for key in stored if ledger.get(key) is None] == []
        assert ledger.claim("open-a-0", lease_seconds=LEASE_SECONDS) is bool(Owner.here().machine)
        assert not ledger.claim("open-b-0", lease_seconds=LEASE_SECONDS)
        later = DatabaseLedger(database, clock=lambda: time.time() + LEASE_SECONDS)
        assert later.claim("open-b-0", lease_seconds=LEASE_SECONDS)
        ledger.put("after", result())
        assert ledger.get("after") is not None


@pytest.mark.parametrize("is_killed", [False, True])
def test_the_second_of_two_gets_what_the_first_bought_or_its_claim_when_it_was_killed(
    place: str, *, is_killed: bool
) -> None:
    with started(_BUY_ONE_SLOWLY, place) as first, opened(place) as database:
        let_go(first)
        assert line(first) == "claimed"
        ledger = DatabaseLedger(database)
        assert ledger.get("k") is None
        assert not ledger.claim("k", lease_seconds=LEASE_SECONDS)
        if is_killed:
            killed(first)
            assert ledger.get("k") is None
            assert ledger.claim("k", lease_seconds=LEASE_SECONDS) is bool(Owner.here().machine)
            return
        let_go(first)
        assert comes_to_pass(lambda: ledger.get("k") is not None)
        found = ledger.get("k")
        assert found is not None
        assert (found.output, found.from_ledger) == (f"k from {first.pid}", True)


def test_processes_that_save_at_once_lose_nothing_and_are_never_locked_out(place: str) -> None:
    firsts = [(1 + number * REVIEWS_EACH,) for number in range(SAVERS)]
    assert ended(_SAVE_MANY, place, *firsts) == ["done\n"] * SAVERS
    with opened(place) as database:
        history = DatabaseHistory(database)
        found = history.list(HistoryQuery(repositories=(REPOSITORY,), limit=1_000))
        assert (len(found.entries), found.problems) == (SAVERS * REVIEWS_EACH, ())
        records = [history.get(entry.entry_id) for entry in found.entries]
        assert all(record is not None and len(record.review.findings) == FINDINGS for record in records)
        assert all(record is not None and record.problems == () for record in records)
        assert database.select("SELECT count(*) FROM results") == [(SAVERS * REVIEWS_EACH,)]
        assert_whole(database)


def test_a_reader_sees_a_review_before_or_after_it_is_saved_again_and_never_between(place: str) -> None:
    with started(_SAVE_ONE_OVER_AND_OVER, place, 1) as writer, opened(place) as database:
        let_go(writer)
        assert line(writer) == "saved"
        history = DatabaseHistory(database)
        found, commits = set[int](), set[int]()

        def reads_what_is_whole() -> bool:
            """Look once; whether every state of both was seen by now."""
            record, sweep = history.get(identifier(1)), history.get_sweep(identifier(2))
            assert record is not None
            assert sweep is not None
            assert record.problems == sweep.problems == ()
            found.add(len(record.review.findings))
            commits.add(len(sweep.sweep.commits))
            return len(found) >= 2 and len(commits) >= 3

        for _ in range(100):
            reads_what_is_whole()
        # How often the writer gets a turn meanwhile is the machine's business.
        assert comes_to_pass(reads_what_is_whole)
        assert (found, commits) == ({1, 31}, {1, 2, 3})


@pytest.mark.soak
@pytest.mark.parametrize("round_number", range(3))
def test_after_a_kill_at_any_moment_all_that_was_saved_is_there_and_whole(place: str, round_number: int) -> None:
    chance = random.Random(round_number)
    with started(_SAVE_UNTIL_KILLED, place, 1) as here, started(_SAVE_UNTIL_KILLED, place, 2_000_000) as other:
        for child in (here, other):
            let_go(child)
        printed = []
        for child in (here, other):
            printed.append(line(child))
            time.sleep(chance.uniform(0, 0.1))
            printed += killed(child)
    told = [words.split() for words in printed]
    with opened(place) as database:
        assert_whole(database)
        history = DatabaseHistory(database)
        for word, number in told:
            if word == "saved":
                _assert_review_is_whole(history, int(number))
        _assert_sweeps_are_whole(history, [int(number) for word, number in told if word == "added"])


def _assert_review_is_whole(history: DatabaseHistory, number: int) -> None:
    record = history.get(identifier(number))
    assert record is not None
    assert (record.problems, len(record.review.findings)) == ((), FINDINGS)
    # The first of each process is saved over and over: it is the one or the other, never a mixture.
    assert len({finding.fingerprint.split()[0] for finding in record.review.findings}) == 1
    assert history.raw_outputs(record.review.review_id) == {"u": "x" * 20000}


def _assert_sweeps_are_whole(history: DatabaseHistory, added: list[int]) -> None:
    for first in (1, 2_000_000):
        its = [number for number in added if (number < 2_000_000) == (first == 1)]
        sweep = history.get_sweep(identifier(first + 500_000))
        assert sweep is not None or not its
        if sweep is not None:
            assert sweep.problems == ()
            assert not sweep.finished
            # One more than was told may be there: it was saved, and its process killed before it could tell.
            assert len(its) <= len(sweep.sweep.commits) <= len(its) + 1
            assert all(commit.review and len(commit.review.findings) == FINDINGS for commit in sweep.sweep.commits)
