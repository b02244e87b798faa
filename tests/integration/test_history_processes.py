"""One history, many processes: nothing that was saved is lost, whoever writes or is killed meanwhile."""

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from codeloupe.model.history import HistoryQuery
from codeloupe.store.database import Database
from codeloupe.store.history import SqliteHistory
from tests.endings import comes_to_pass
from tests.unit.store.history_samples import REPOSITORY

PROCESSES = 3
REVIEWS_EACH = 12
FINDINGS = 40

_BEGIN = f"""
import sys
from pathlib import Path
from codeloupe.model.agent import AgentResult
from codeloupe.model.history import HistoryQuery, PruneRule
from codeloupe.store.database import Database
from codeloupe.store.history import SqliteHistory
from codeloupe.store.ledger import SqliteLedger
from tests.unit.store.history_samples import commit_review, identifier, named, record, sweep_record

def findings(number):
    return [named(f"{{number}} {{index}}", body="x" * 500) for index in range({FINDINGS})]

database = Database(Path(sys.argv[1]))
history = SqliteHistory(database)
first = int(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
"""
_SAVE_MANY = (
    _BEGIN
    + f"""
ledger = SqliteLedger(database)
for number in range(first, first + {REVIEWS_EACH}):
    history.save(record(number, *findings(number)), raw_outputs={{"u": "x" * 20000}})
    ledger.put(str(number), AgentResult(success=True, output="answer", agent="scripted"))
    assert history.get(identifier(number)).problems == ()
    assert len(history.list(HistoryQuery(limit=5)).entries) >= 1
print("done", flush=True)
"""
)
_SAVE_UNTIL_KILLED = (
    _BEGIN
    + """
sweep = sweep_record(first + 500_000)
for number in range(first, first + 100_000):
    history.save(record(number, *findings(number)), raw_outputs={"u": "x" * 20000})
    print(f"saved {number}", flush=True)
    history.save(record(first, *findings(number)))
    print(f"again {number}", flush=True)
    history.add_commit(sweep, commit_review(number, *findings(number)))
    print(f"added {number}", flush=True)
"""
)

_SAVE_ONE_OVER_AND_OVER = (
    _BEGIN
    + """
for turn in range(100_000):
    history.save(record(first, *findings(turn)[: 1 + turn % 2 * 30]))
    history.save_sweep(sweep_record(first + 1, *(commit_review(number) for number in range(1 + turn % 3))))
    if turn == 0:
        print("saved", flush=True)
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
        cwd=Path(__file__).parents[2],
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        yield child
    finally:
        child.kill()
        child.communicate()


def let_go(child: Child) -> None:
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()


def assert_whole(database: Database) -> None:
    with database.reading() as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


def test_processes_that_save_at_once_lose_nothing_and_are_never_locked_out(path: Path) -> None:
    with ExitStack() as stack:
        children = [
            stack.enter_context(started(_SAVE_MANY, path, 1 + number * REVIEWS_EACH)) for number in range(PROCESSES)
        ]
        for child in children:
            let_go(child)
        for child in children:
            printed, complaint = child.communicate()
            assert (child.returncode, printed, complaint) == (0, "done\n", "")
    with Database(path) as database:
        history = SqliteHistory(database)
        found = history.list(HistoryQuery(repositories=(REPOSITORY,), limit=1_000))
        assert (len(found.entries), found.problems) == (PROCESSES * REVIEWS_EACH, ())
        records = [history.get(entry.entry_id) for entry in found.entries]
        assert all(record is not None and len(record.review.findings) == FINDINGS for record in records)
        assert all(record is not None and record.problems == () for record in records)
        with database.reading() as connection:
            assert connection.execute("SELECT count(*) FROM results").fetchone() == (PROCESSES * REVIEWS_EACH,)
        assert_whole(database)


def test_a_reader_sees_a_review_before_or_after_it_is_saved_again_and_never_between(path: Path) -> None:
    with started(_SAVE_ONE_OVER_AND_OVER, path, 1) as writer, Database(path) as database:
        let_go(writer)
        assert writer.stdout is not None
        assert writer.stdout.readline() == "saved\n"
        history = SqliteHistory(database)
        found, commits = set[int](), set[int]()

        def reads_what_is_whole() -> bool:
            """Look once; whether every state of both was seen by now."""
            record, sweep = history.get("00000001" + "0" * 24), history.get_sweep("00000002" + "0" * 24)
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
def test_after_a_kill_at_any_moment_all_that_was_saved_is_there_and_whole(path: Path, round_number: int) -> None:
    chance = random.Random(round_number)
    with started(_SAVE_UNTIL_KILLED, path, 1) as here, started(_SAVE_UNTIL_KILLED, path, 2_000_000) as other:
        for child in (here, other):
            let_go(child)
        printed = []
        for child in (here, other):
            assert child.stdout is not None
            assert child.stderr is not None
            printed.append(child.stdout.readline())
            time.sleep(chance.uniform(0, 0.1))
            child.kill()
            # Not `communicate`: that does not know what `readline` has taken from the pipe already.
            printed += child.stdout.readlines()
            assert child.stderr.read() == ""
    told = [words.split() for words in printed if words.endswith("\n")]
    with Database(path) as database:
        assert_whole(database)
        history = SqliteHistory(database)
        for word, number in told:
            if word == "saved":
                _assert_review_is_whole(history, int(number))
        _assert_sweeps_are_whole(history, [int(number) for word, number in told if word == "added"])


def _assert_review_is_whole(history: SqliteHistory, number: int) -> None:
    record = history.get(f"{number:08x}" + "0" * 24)
    assert record is not None
    assert (record.problems, len(record.review.findings)) == ((), FINDINGS)
    # The first of each process is saved over and over: it is the one or the other, never a mixture.
    assert len({finding.fingerprint.split()[0] for finding in record.review.findings}) == 1
    assert history.raw_outputs(record.review.review_id) == {"u": "x" * 20000}


def _assert_sweeps_are_whole(history: SqliteHistory, added: list[int]) -> None:
    for first in (1, 2_000_000):
        its = [number for number in added if (number < 2_000_000) == (first == 1)]
        sweep = history.get_sweep(f"{first + 500_000:08x}" + "0" * 24)
        assert sweep is not None or not its
        if sweep is not None:
            assert sweep.problems == ()
            assert not sweep.finished
            # One more than was told may be there: it was saved, and its process killed before it could tell.
            assert len(its) <= len(sweep.sweep.commits) <= len(its) + 1
            assert all(commit.review and len(commit.review.findings) == FINDINGS for commit in sweep.sweep.commits)
