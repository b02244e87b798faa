"""The interfaces of the store: a database, the ledger, the history and the runs of pipelines.

They do not depend on a kind of database. Methods are safe between processes, durable when they return, and raise
StoreError.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

if TYPE_CHECKING:
    from codeloupe.model import history as model
    from codeloupe.model.agent import AgentResult, DatabaseReachable, DatabaseUnreachable
    from codeloupe.model.finding import Finding
    from codeloupe.model.pipeline import Approval, PipelineEvent, RunRecord
    from codeloupe.model.sweep import CommitReview
    from codeloupe.store.runs import Holder
    from codeloupe.store.schema import SchemaStep


# The content of a file of a run: bytes, or a file that is read chunk by chunk.
Content = bytes | Path
_Answer = TypeVar("_Answer")
_Given = ParamSpec("_Given")
_Store = TypeVar("_Store", bound="_InDatabase")


class Rows(Protocol):
    """The result of a statement."""

    @property
    def rowcount(self) -> int:
        """The number of changed rows."""

    def fetchone(self) -> Any:
        """Return the next row, or None."""

    def fetchall(self) -> list[Any]:
        """Return all remaining rows."""

    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """Run statements in which a question mark is a value. Every value of the model is accepted."""

    def execute(self, sql: str, parameters: Sequence[object] = ..., /) -> Rows:
        """Run one statement."""

    def executemany(self, sql: str, rows: Iterable[Sequence[object]], /) -> object:
        """Run one statement for each row."""


class Database(Protocol):
    """The tables of the store, safe between threads, processes and, if shared, machines.

    `name` is for messages and contains no password. `week` is an SQL expression for the Monday of the week of
    `saved_at`. `findings_of_reviews` joins both tables in the order in which trends are counted fastest. `steps` is the
    schema that the program knows.
    """

    week: str
    findings_of_reviews: str
    is_shared: bool
    steps: tuple[SchemaStep, ...]

    @property
    def name(self) -> str:
        """The file, or the address without a password."""

    @property
    def identity(self) -> str:
        """The id that the database was created with, which is the same under every address. Raise StoreError."""
        ((identity,),) = self.select("SELECT id FROM identity")
        return str(identity)

    @property
    def up_since(self) -> float:
        """Return when the server was started, in seconds since 1970; 0 for a file."""

    def clock(self) -> float:
        """Return the time in seconds since 1970, the same for all users of this database."""

    def reading(self) -> AbstractContextManager[Connection]:
        """Yield a connection for one statement that reads."""

    def snapshot(self) -> AbstractContextManager[Connection]:
        """Yield a connection for several statements that read the same state."""

    def writing(self, about: str = "") -> AbstractContextManager[Connection]:
        """Yield a connection in a transaction. Only one of those `about` the same text runs at a time."""

    def select(self, statement: str, values: Sequence[object] = ...) -> list[Any]:
        """Return the rows of one statement."""

    def change(self, statement: str, values: Sequence[object] = ...) -> int:
        """Make one change durably and return the number of changed rows."""

    def persist(self, step: Callable[[], _Answer]) -> _Answer:
        """Run a step and retry it during an outage. The step must be idempotent."""

    def once(self) -> AbstractContextManager[None]:
        """Let the steps of this thread fail at once, instead of waiting for the end of an outage."""

    def check(self) -> None:
        """Raise StoreError if the database cannot be read or written."""

    def is_made(self) -> bool:
        """Return whether the database has our tables, without creating them."""

    def schema(self) -> int:
        """Return how many steps of the schema were applied."""

    def size_bytes(self) -> int:
        """Return the size of all stored data."""

    def give_back_room(self) -> None:
        """Free the space of deleted rows, if the database does not do so itself."""

    def close(self) -> None:
        """Close the database. The next use opens it again."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def short_identity(database: Database) -> str:
    """Return a word for the names of a database's files, the same under every address. Raise StoreError."""
    identity = database.persist(lambda: database.identity)
    return hashlib.sha256(identity.encode()).hexdigest()[:12]


class _InDatabase(Protocol):
    @property
    def database(self) -> Database: ...


def persistent(
    method: Callable[Concatenate[_Store, _Given], _Answer],
) -> Callable[Concatenate[_Store, _Given], _Answer]:
    """Let a method of a store retry during an outage of its database. The method must be idempotent."""

    @wraps(method)
    def run(store: _Store, /, *arguments: _Given.args, **named: _Given.kwargs) -> _Answer:
        return store.database.persist(lambda: method(store, *arguments, **named))

    return run


class Ledger(Protocol):
    """Finished calls by content key, so that no answer is paid for twice. Safe between processes.

    `last_event` is the newest change of its database for the user, or None.
    """

    last_event: DatabaseUnreachable | DatabaseReachable | None

    def open(self) -> None:
        """Make sure that answers can be stored, before one is paid for."""

    def get(self, key: str, *, since: float = ...) -> AgentResult | None:
        """Return a finished call that was stored `since` a time, by default at any time, or None."""

    def claim(self, key: str, *, lease_seconds: float) -> bool:
        """Claim a key before a call. False while another process has a claim that has not expired."""

    def renew(self, key: str, *, lease_seconds: float) -> None:
        """Extend our own claim."""

    def put(self, key: str, result: AgentResult) -> bool:
        """Store a result durably and end our claim, before the result is used.

        Return whether the database has it; otherwise it is on this machine, and moved to the database later.
        """

    def release(self, key: str) -> None:
        """End our claim without a result."""


class History(Protocol):
    """Saved reviews and sweeps. `repositories` are the names of one repository; None means all of them."""

    def save(self, record: model.ReviewRecord, *, raw_outputs: Mapping[str, str] = ...) -> None:
        """Save a review durably and whole, in the place of the one with its id."""

    def save_sweep(self, record: model.SweepRecord) -> None:
        """Save a sweep with its commits and their reviews."""

    def add_commit(
        self,
        record: model.SweepRecord,
        commit: CommitReview,
        *,
        raw_outputs: Mapping[str, str] = ...,
        position: int | None = ...,
    ) -> None:
        """Save one more commit of a sweep that goes on, in the place of itself where it is there already."""

    def count_commits(self, sweep_id: str) -> int:
        """How many commits of a sweep are saved."""

    def finish_sweep(self, record: model.SweepRecord) -> None:
        """Save what a sweep came to whose commits are all saved."""

    def get(self, review_id: str) -> model.ReviewRecord | None:
        """A saved review, or None."""

    def raw_outputs(self, review_id: str) -> Mapping[str, str]:
        """What agents printed for a review, by unit."""

    def get_sweep(self, sweep_id: str) -> model.SweepRecord | None:
        """A saved sweep with its reviews, or None."""

    def outline(self, sweep_id: str) -> model.SweepOutline | None:
        """A saved sweep without the findings of its reviews, or None."""

    def last(self, work_tree: str, *, back: int = 0) -> model.ReviewRecord | None:
        """Return the newest review of a work tree, or the one so far `back`; reviews of sweeps do not count."""

    def list(self, query: model.HistoryQuery) -> model.Listing:
        """The newest entries; no payload is read."""

    def matching(self, prefix: str, *, limit: int = 10) -> model.Listing:
        """Reviews, also those of sweeps, and sweeps whose id begins so."""

    def findings_of(
        self, fingerprints: Sequence[str], *, repositories: Sequence[str] | None = None
    ) -> tuple[model.Sighting, ...]:
        """Every time these findings were seen, the oldest first."""

    def fingerprints(self, prefix: str, *, repositories: Sequence[str], limit: int) -> Sequence[str]:
        """The findings of a repository whose fingerprint begins so, at most `limit`."""

    def finding(self, fingerprint: str, *, repositories: Sequence[str]) -> Finding | None:
        """A finding of a repository as it was saved last, or None."""

    def dismiss(self, dismissal: model.Dismissal) -> None:
        """Keep that a person set a finding aside, in the place of an earlier word on it."""

    def take_back(self, fingerprint: str, *, repositories: Sequence[str]) -> bool:
        """Forget that a finding was dismissed; False when it was not."""

    def dismissals(self, repositories: Sequence[str]) -> tuple[model.Dismissal, ...]:
        """What persons set aside in a repository, the oldest first."""

    def trends(
        self,
        by: Sequence[model.TrendKey],
        *,
        repositories: Sequence[str] | None = None,
        work_tree: str | None = None,
    ) -> tuple[model.Trends, ...]:
        """Return findings, cost, time and the share that was fixed, for each of the keys."""

    def prune(self, rule: model.PruneRule, *, dry_run: bool = False) -> model.Removed:
        """Remove what the rule names and tell what went; with `dry_run`, what would."""

    def file_bytes(self) -> int:
        """How much room all that is stored takes."""

    def work_tree_of(self, root: Path) -> str:
        """Return the name under which this history knows a work tree."""

    def commit_of(self, place: bytes) -> str | None:
        """Return the commit that the repository at a place on this machine goes by, if it is known."""

    def remember_commit(self, place: bytes, commit: str) -> None:
        """Store the commit that the repository at a place on this machine goes by."""

    def known_commits(self) -> Iterable[str]:
        """Return the commits that repositories with reviews, sweeps or dismissals go by."""


class RunStore(Protocol):
    """The runs of pipelines in a database. Methods raise StoreError, or RunNotFound for an unknown run.

    The database has the state, the journal, the approvals and the files of a run. Its directory on this machine has
    copies for people, and a cache of what git needs; it may be deleted while no process works on the run.
    """

    @property
    def name(self) -> str:
        """The file of the database, or its address without a password."""

    @property
    def home(self) -> str:
        """The machine and its state directory: the paths in a record are valid where `home` is the record's."""

    def create(self, run: RunRecord, files: Mapping[str, Content] = ...) -> Path:
        """Store a new run with its files, and return its directory. Raise StoreError if its name is taken."""

    def directory(self, run_id: str) -> Path:
        """Return the directory of a run on this machine, which may not exist."""

    def save(
        self,
        run: RunRecord,
        *events: PipelineEvent,
        files: Mapping[str, Content | None] = ...,
        answered: Approval | None = ...,
    ) -> None:
        """Store the state, new events and files in one transaction; the caller holds the lock.

        A file without a content is removed.

        The same transaction removes the answer that was `answered`, because the state now has its effect. Raise RunBusy
        if another process holds the lock by now, and AnswerReplaced if the person has answered again. Then nothing is
        written.
        """

    def load(self, run_id: str) -> RunRecord:
        """Return the last state of a run."""

    def journal(self, run_id: str) -> tuple[PipelineEvent, ...]:
        """Return the events of a run, the oldest first."""

    def list(self) -> tuple[tuple[RunRecord, ...], Mapping[str, str]]:
        """Return all runs, the newest first, and the runs that cannot be read, each with the reason."""

    def matching(self, prefix: str) -> tuple[str, ...]:
        """Return the ids of runs with a prefix, sorted, readable or not."""

    def file_names(self, run_id: str) -> tuple[str, ...]:
        """Return the names of the stored files of a run, sorted."""

    def read_file(self, run_id: str, name: str) -> bytes | None:
        """Return the content of a stored file, or None if the run has no such file."""

    def copy_file(self, run_id: str, name: str, target: Path) -> None:
        """Write a stored file to a path, chunk by chunk."""

    def has_copies(self, run_id: str) -> bool:
        """Return whether the directory of a run has the copies of its last save."""

    def write_copies(self, run_id: str) -> None:
        """Write all copies for people to the directory of a run."""

    def put_approval(self, run_id: str, approval: Approval) -> None:
        """Store a person's answer for a run, also while another process holds the lock; it replaces an earlier one."""

    def approval(self, run_id: str, stage: str) -> Approval | None:
        """Return the answer on a stage, or None."""

    def remove_approval(self, run_id: str, approval: Approval) -> None:
        """Remove an answer, unless another question has been answered in its place."""

    def lock(self, run_id: str) -> AbstractContextManager[None]:
        """Hold the right to work on a run. Raise RunBusy, which names the process that holds it."""

    def holder(self, run_id: str) -> Holder | None:
        """Return the process that works on a run, or None."""

    def remove(self, run_id: str) -> int:
        """Remove a run with its files, and return how many bytes that freed. Raise RunBusy if a process works on it."""
