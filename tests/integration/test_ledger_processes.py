"""One ledger, many processes: nothing is bought twice, nothing that was stored is lost, nobody waits for the dead."""

import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from codeloupe.store.database import Database
from codeloupe.store.ledger import Owner, SqliteLedger
from tests.endings import PATIENCE_SECONDS
from tests.unit.store.samples import result

PROCESSES = 4
KEYS = 200
# Far longer than any test takes: no claim may run out by itself.
LEASE_SECONDS = 3600.0

_BEGIN = """
import json, os, random, sys, time
from pathlib import Path
from codeloupe.model.agent import AgentResult
from codeloupe.store import database as database_module
from codeloupe.store.ledger import Owner
from codeloupe.store.database import Database
from codeloupe.store.ledger import SqliteLedger

def answer(key):
    return AgentResult(success=True, output=f"{key} from {os.getpid()}", agent="scripted", raw_output="x" * 2000)

database = Database(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
"""
_BUY_EACH_ONCE = (
    _BEGIN
    + """
if sys.argv[3] == "shared":
    # A network file system cannot be had in a test; that this machine's disk is one must be said.
    database_module.may_be_shared = lambda path: True
ledger = SqliteLedger(database)
keys = [str(number) for number in range(int(sys.argv[2]))]
random.shuffle(keys)
bought, seen = [], {}
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
print(json.dumps({"bought": bought, "seen": seen}))
"""
)
_STORE_UNTIL_KILLED = (
    _BEGIN
    + """
owner = Owner("another machine", os.getpid(), sys.argv[2]) if sys.argv[3] == "elsewhere" else None
ledger = SqliteLedger(database, owner=owner)
for number in range(10**9):
    key = f"{sys.argv[2]}-{number}"
    assert ledger.claim(f"open-{key}", lease_seconds=3600)
    print(f"claimed open-{key}", flush=True)
    assert ledger.claim(key, lease_seconds=3600)
    ledger.put(key, answer(key))
    print(f"stored {key}", flush=True)
"""
)
_BUY_ONE_SLOWLY = (
    _BEGIN
    + """
ledger = SqliteLedger(database)
assert ledger.claim("k", lease_seconds=3600)
print("claimed", flush=True)
sys.stdin.readline()
ledger.put("k", answer("k"))
database.close()
"""
)

Child = subprocess.Popen[str]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "codeloupe.sqlite3"


@contextmanager
def started(script: str, *arguments: object) -> Iterator[Child]:
    """A process that has loaded all it needs and waits for a line; it is gone at the end, whatever happens."""
    child = subprocess.Popen(
        (sys.executable, "-c", script, *map(str, arguments)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
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
    """Kill -9, and what it had printed until then."""
    assert child.stdout is not None
    assert child.stderr is not None
    child.kill()
    child.wait()
    # Not `communicate`: that does not know what `readline` has taken from the pipe already.
    printed = child.stdout.readlines()
    assert child.stderr.read() == ""
    return [words.rstrip("\n") for words in printed]


def assert_whole(database: Database) -> None:
    with database.reading() as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def hammered(path: Path, *, keys: int, disk: str) -> list[dict[str, Any]]:
    with ExitStack() as stack:
        children = [stack.enter_context(started(_BUY_EACH_ONCE, path, keys, disk)) for _ in range(PROCESSES)]
        for child in children:
            let_go(child)
        return [_told(child) for child in children]


def _told(child: Child) -> dict[str, Any]:
    printed, complaint = child.communicate()
    assert (child.returncode, complaint) == (0, "")
    told: dict[str, Any] = json.loads(printed)
    return told


@pytest.mark.parametrize(("disk", "keys", "journal"), [("local", KEYS, "wal"), ("shared", KEYS // 5, "delete")])
def test_processes_that_buy_at_once_buy_each_call_exactly_once(path: Path, disk: str, keys: int, journal: str) -> None:
    told = hammered(path, keys=keys, disk=disk)
    bought = Counter(key for process in told for key in process["bought"])
    assert bought == {str(number): 1 for number in range(keys)}
    assert all(process["seen"] == told[0]["seen"] for process in told)
    assert len(told[0]["seen"]) == keys
    assert path.read_bytes()[18] == (2 if journal == "wal" else 1)
    with Database(path) as database:
        with database.reading() as connection:
            counts = "SELECT (SELECT count(*) FROM results), (SELECT count(*) FROM claims)"
            assert connection.execute(counts).fetchone() == (keys, 0)
        assert_whole(database)


@pytest.mark.parametrize("round_number", range(4))
def test_after_a_kill_at_any_moment_all_that_was_stored_is_there(path: Path, round_number: int) -> None:
    chance = random.Random(round_number)
    with (
        started(_STORE_UNTIL_KILLED, path, "a", "here") as here,
        started(_STORE_UNTIL_KILLED, path, "b", "elsewhere") as elsewhere,
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
    with Database(path) as database:
        assert_whole(database)
        ledger = SqliteLedger(database)
        assert [key for key in stored if ledger.get(key) is None] == []
        assert ledger.claim("open-a-0", lease_seconds=LEASE_SECONDS) is bool(Owner.here().machine)
        assert not ledger.claim("open-b-0", lease_seconds=LEASE_SECONDS)
        later = SqliteLedger(database, clock=lambda: time.time() + LEASE_SECONDS)
        assert later.claim("open-b-0", lease_seconds=LEASE_SECONDS)
        ledger.put("after", result())
        assert ledger.get("after") is not None


def test_the_second_of_two_waits_and_gets_what_the_first_bought(path: Path) -> None:
    with started(_BUY_ONE_SLOWLY, path) as first, Database(path) as database:
        let_go(first)
        assert line(first) == "claimed"
        ledger = SqliteLedger(database)
        assert ledger.get("k") is None
        assert not ledger.claim("k", lease_seconds=LEASE_SECONDS)
        let_go(first)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (found := ledger.get("k")) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert found is not None
        assert found.output == f"k from {first.pid}"
        assert found.from_ledger


def test_the_second_does_not_wait_out_the_lease_of_a_first_that_was_killed(path: Path) -> None:
    with started(_BUY_ONE_SLOWLY, path) as first, Database(path) as database:
        let_go(first)
        assert line(first) == "claimed"
        ledger = SqliteLedger(database)
        assert not ledger.claim("k", lease_seconds=LEASE_SECONDS)
        killed(first)
        known = bool(Owner.here().machine)
        assert ledger.get("k") is None
        assert ledger.claim("k", lease_seconds=LEASE_SECONDS) is known
