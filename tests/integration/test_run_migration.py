"""`codeloupe store migrate` and the runs of pipelines: they go to a server and back whole, and go on anywhere."""

import asyncio
import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from codeloupe.calls import AgentCalls
from codeloupe.model.pipeline import Approval, Decision, RunRecord
from codeloupe.model.pipeline import StageState as S
from codeloupe.pipelines.run import open_run_store, resume_run
from codeloupe.pipelines.sharing import preparing
from codeloupe.store.interface import RunStore
from codeloupe.store.migration import Migrated
from codeloupe.store.postgres import PostgresDatabase
from codeloupe.store.run_migration import Prepared, migrate_runs
from codeloupe.store.runs import DirectoryRunStore
from codeloupe.store.shared_runs import SharedRunStore
from codeloupe.testing import StandInServer
from tests.engine_pipelines import Cast, files_in, options, person, write_pipeline, writing
from tests.engine_pipelines import run as run_pipeline
from tests.engine_standin import Stage, Writes, at_work, environment
from tests.program import PROGRAM, Ended
from tests.repository import GitRepository
from tests.unit.store.run_samples import attempt, event, run, stage
from tests.warm_program import codeloupe

NAME = "00000001"
APPROVAL = {"name": "first", "gate": {"kind": "approval", "timeout": "1s"}}
SECOND = {"name": "second", "needs": "first"}
ANSWER = Approval(stage="write \udcff", decision=Decision.APPROVE, note="fine")


@pytest.fixture
def shared(postgres_url: str, tmp_path: Path) -> Iterator[SharedRunStore]:
    with PostgresDatabase(postgres_url) as database:
        yield SharedRunStore(database, tmp_path / "copies")


@pytest.fixture
def local(tmp_path: Path) -> DirectoryRunStore:
    return DirectoryRunStore(tmp_path / "pipelines")


def fill(store: RunStore, *numbers: int) -> None:
    """Runs with a journal, an answer that waits, and files, one of them large and one a program."""
    for number in numbers:
        record = run(number, stage("write", S.AWAITING_APPROVAL, attempt(1)))
        directory = store.create(record)
        with store.lock(record.run_id):
            for name, data in {
                "stages/write/attempt-1/output.md": b"said",
                "stages/write/work/x.md": b"at work",
                "store.git/objects/pack/pack-1.pack": bytes(range(256)) * 4_000 * 3,
                "ä\udcff": b"",
            }.items():
                (directory / name).parent.mkdir(parents=True, exist_ok=True)
                (directory / name).write_bytes(data)
            (directory / "stages/write/attempt-1/output.md").chmod(0o755)
            store.save(record, event("begun"), event("two\nlines \udcff"))
        store.put_approval(record.run_id, ANSWER)


def told(store: RunStore, run_id: str) -> object:
    """All that a run is, but for its workspaces."""
    with store.lock(run_id):
        folder = store.directory(run_id)
        files = {
            str(file.relative_to(folder)): (file.stat().st_mode & 0o777, file.read_bytes())
            for file in folder.rglob("*")
            if file.is_file() and not {"work", "approvals"}.intersection(file.parts)
        }
    for name in ("lock", ".copy", "run.json", "journal.jsonl"):
        files.pop(name, None)
    answer = store.take_approval(run_id, ANSWER.stage)
    if answer:
        store.put_approval(run_id, answer)
    return replace(store.load(run_id), home="", host=""), store.journal(run_id), answer, files


def copied(source: RunStore, target: RunStore, room: Path, *, replace: bool = False, dry_run: bool = False) -> Migrated:
    def prepare(record: RunRecord, *_: Path) -> Prepared:
        return Prepared(record)

    return migrate_runs(source, target, room=room, prepare=prepare, replace=replace, dry_run=dry_run)


def test_runs_go_to_a_server_to_another_and_back_and_are_the_same(
    local: DirectoryRunStore, shared: SharedRunStore, other_postgres_url: str, tmp_path: Path
) -> None:
    fill(local, 1, 2)
    seen = told(local, NAME)
    with (local.directory("00000002") / "journal.jsonl").open("ab") as journal:
        journal.write(b"damaged \xff\xfe\ntorn")
    back = DirectoryRunStore(tmp_path / "back" / "pipelines")
    other = SharedRunStore(PostgresDatabase(other_postgres_url), tmp_path / "copies")
    stores: list[RunStore] = [local, shared, other, back, DirectoryRunStore(tmp_path / "again")]
    digests = set()
    for source, target in pairwise(stores):
        before = copied(source, target, tmp_path / "room", dry_run=True)
        assert (before.copied, target.matching("")) == ({"runs": 2}, ())
        done = copied(source, target, tmp_path / "room")
        assert (done.is_verified, done.copied, done.left) == (True, {"runs": 2}, ())
        assert copied(source, target, tmp_path / "room").there == {"runs": 2}
        digests |= {(check.table, check.source_rows, check.source_digest) for check in done.checks}
        assert told(target, NAME) == seen
        assert [one.message for one in target.journal("00000002")][2].startswith("line 3 of the journal cannot be read")
    assert [(table, rows) for table, rows, _ in sorted(digests)] == [("run_files", 6), ("runs", 2)]
    other.database.close()
    assert list((tmp_path / "room").iterdir()) == []
    assert sorted(one.name for one in (tmp_path / "back" / "pipelines").iterdir()) == [NAME, "00000002"]


@pytest.mark.parametrize("back", [False, True])
def test_a_run_that_differs_stays_unless_it_is_replaced(
    local: DirectoryRunStore, shared: SharedRunStore, tmp_path: Path, *, back: bool
) -> None:
    source, target = (shared, local) if back else (local, shared)
    fill(source, 1, 2)
    fill(target, 1)
    theirs = replace(target.load(NAME), reason="theirs")
    with target.lock(NAME):
        (target.directory(NAME) / "theirs.md").write_text("theirs")
        target.save(theirs, event("theirs"))
    done = copied(source, target, tmp_path)
    assert (done.is_verified, done.different) == (False, (f"run {NAME}",))
    assert (done.copied, done.there, target.load(NAME)) == ({"runs": 1}, {"runs": 1}, theirs)
    with target.lock(NAME):
        held = copied(source, target, tmp_path, replace=True)
    assert (held.is_verified, f"process {os.getpid()}" in held.left[0]) == (False, True)
    done = copied(source, target, tmp_path, replace=True)
    assert (done.is_verified, done.replaced) == (True, {"runs": 1})
    assert told(target, NAME) == told(source, NAME)
    # Of the same state, and without an answer that somebody left at the source.
    assert target.take_approval(NAME, ANSWER.stage)
    assert copied(source, target, tmp_path).different == (f"run {NAME}",)


@pytest.mark.parametrize("back", [False, True])
def test_a_run_that_is_worked_on_is_left_unless_it_is_there_already(
    local: DirectoryRunStore, shared: SharedRunStore, tmp_path: Path, *, back: bool
) -> None:
    source, target = (shared, local) if back else (local, shared)
    fill(source, 1, 2)
    with source.lock(NAME):
        done = copied(source, target, tmp_path)
        assert (done.is_verified, done.copied, done.different) == (False, {"runs": 1}, ())
        assert done.left[0].startswith(f"run {NAME}: process {os.getpid()}")
        assert target.matching("") == ("00000002",)
    assert copied(source, target, tmp_path).is_verified
    with source.lock(NAME):
        assert copied(source, target, tmp_path).is_verified


def test_damaged_runs_are_named_and_do_not_stop_the_others(
    local: DirectoryRunStore, shared: SharedRunStore, tmp_path: Path
) -> None:
    fill(local, 1, 2, 3, 4)
    (local.directory(NAME) / "run.json").write_text("{")
    next((local.directory("00000002") / "approvals").iterdir()).write_text("no")
    done = copied(local, shared, tmp_path)
    assert (done.is_verified, done.copied) == (False, {"runs": 2})
    assert [each.partition(": ")[0] for each in done.left] == [f"run {NAME}", "run 00000002"]
    assert "is damaged" in done.left[0]
    # In the database: content, and a state that --replace mends.
    shared.database.change("UPDATE run_chunks SET data = 'x' WHERE position = 1")
    shared.database.change("UPDATE runs SET state = 'x' WHERE run_id = '00000003'")
    back = DirectoryRunStore(tmp_path / "back")
    done = copied(shared, back, tmp_path)
    assert (done.copied, len(done.left), back.matching("")) == ({}, 2, ())
    assert "its content does not match its checksum" in done.left[1]
    assert copied(local, shared, tmp_path, replace=True).replaced == {"runs": 1}


class _Killed(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("back", [False, True])
def test_an_interrupted_copy_leaves_no_half_of_a_run_and_the_next_one_ends_it(
    local: DirectoryRunStore, shared: SharedRunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, back: bool
) -> None:
    source, target = (shared, local) if back else (local, shared)
    fill(source, 1)

    def killed(*_: object, **_named: object) -> None:
        raise _Killed

    for moment in ["state_of"] if back else ["packed_state", "stage_key"]:
        with monkeypatch.context() as patch:
            patch.setattr(f"codeloupe.store.run_migration.{moment}", killed)
            with pytest.raises(_Killed):
                copied(source, target, tmp_path / "room")
        assert target.matching("") == ()
    assert copied(source, target, tmp_path / "room").is_verified
    assert told(target, NAME) == told(source, NAME)


def goes_on(url: str, state: Path, cast: Cast, name: str, **more: object) -> RunRecord:
    """The end of a run on a machine with that state directory."""
    with AgentCalls(state_directory=state, database=url) as calls:
        given = options(cast, state, ask_person=person(Decision.APPROVE), **more)
        return asyncio.run(resume_run(name, options=given, calls=calls))


def to_server(state: Path, url: str) -> Migrated:
    """Copy the runs of a machine's directory."""
    with PostgresDatabase(url) as database:
        target = SharedRunStore(database, state / "pipelines-shared")
        source = open_run_store(state)
        return migrate_runs(source, target, room=state, prepare=preparing(target))


class TestGoingOn:
    def test_a_worktree_goes_on_elsewhere_with_what_it_borrowed(
        self, tmp_path: Path, postgres_url: str, repository: GitRepository
    ) -> None:
        repository.write("old.txt", "an older text, which the run brings back\n")
        repository.write("codeloupe.yaml", "model: large\n")
        repository.commit("first")
        repository.write("old.txt", "new\n")
        repository.commit("second")
        file = write_pipeline(tmp_path / "p", APPROVAL, SECOND, workspace="worktree")
        old = "an older text, which the run brings back\n"
        cast = Cast({"first": [writing({"first.md": old})], "second": [writing({"second.md": "2"})]})
        ran = run_pipeline(file, cast, tmp_path / "state", repo=repository.path)
        head = repository.git("rev-parse", "HEAD").decode().strip()
        done = to_server(tmp_path / "state", postgres_url)
        assert (done.is_verified, done.remarks) == (True, ())
        assert to_server(tmp_path / "state", postgres_url).there == {"runs": 1}
        for left in (tmp_path / "p", repository.path):
            left.rename(left.with_name(f"{left.name}-is-gone"))
        ended = goes_on(postgres_url, tmp_path / "other", cast, ran.record.run_id)
        assert (ended.state, ended.reason, cast.calls) == (S.COMPLETED, "", ["first", "second"])
        assert ended.base_commit == head
        with PostgresDatabase(postgres_url) as database:
            folder = SharedRunStore(database, tmp_path / "other" / "pipelines-shared").fetched(ended.run_id)
            assert old.strip() in (folder / "result.patch").read_text()
            assert (folder / "definition" / "codeloupe.yaml").read_text() == "model: large\n"
        assert not to_server(tmp_path / "state", postgres_url).is_verified

    def test_here_it_goes_on_with_changed_files_and_elsewhere_it_says_why_not(
        self, tmp_path: Path, postgres_url: str
    ) -> None:
        file = write_pipeline(tmp_path / "p", APPROVAL, SECOND)
        cast = Cast({name: [writing({f"{name}.md": name})] for name in ("first", "second")})
        ran = run_pipeline(file, cast, tmp_path / "state")
        text = (tmp_path / "p" / "second.md").read_text()
        (tmp_path / "p" / "second.md").write_text("other")
        done = to_server(tmp_path / "state", postgres_url)
        assert done.is_verified
        (remark,) = done.remarks
        assert remark.startswith(
            f"run {ran.record.run_id}: it can only continue on this machine, where its pipeline's files are"
        )
        assert "has changed since the run started" in remark
        with pytest.raises(Exception, match="is missing or damaged"):
            goes_on(postgres_url, tmp_path / "other", cast, ran.record.run_id)
        (tmp_path / "p" / "second.md").write_text(text)
        assert goes_on(postgres_url, tmp_path / "state", cast, ran.record.run_id).state is S.COMPLETED

    def test_a_checkout_goes_on_here_only(self, tmp_path: Path, postgres_url: str, repository: GitRepository) -> None:
        repository.write("a.txt", "a\n")
        repository.commit("first")
        file = write_pipeline(tmp_path / "p", APPROVAL, workspace="checkout")
        cast = Cast({"first": [writing({"first.md": "one\n"})]})
        ran = run_pipeline(file, cast, tmp_path / "state", repo=repository.path)
        assert "it can only continue on this machine" in to_server(tmp_path / "state", postgres_url).remarks[0]
        with pytest.raises(Exception, match="cannot use another one"):
            goes_on(postgres_url, tmp_path / "other", cast, ran.record.run_id)
        assert goes_on(postgres_url, tmp_path / "state", cast, ran.record.run_id).state is S.COMPLETED

    def test_an_answer_whose_workspace_was_not_looked_at_yet_is_not_bought_again(
        self, tmp_path: Path, postgres_url: str
    ) -> None:
        file = write_pipeline(tmp_path / "p", {"name": "first"})
        cast = Cast({"first": [writing({"first.md": "one\n"})]})
        ran = run_pipeline(file, cast, tmp_path / "state")
        # As it was saved when its agent had answered.
        (first,) = ran.record.stages
        left = replace(first.attempts[0], tree="", artifacts=(), files_changed=(), diff_file="")
        store = open_run_store(tmp_path / "state")
        asked = replace(first, state=S.RUNNING, attempts=(left,), chosen=None, ended_at=None)
        store.save(replace(ran.record, state=S.RUNNING, stages=(asked,)))
        done = to_server(tmp_path / "state", postgres_url)
        assert (done.is_verified, done.remarks) == (True, ())
        ended = goes_on(postgres_url, tmp_path / "other", cast, ran.record.run_id)
        assert (ended.state, cast.calls) == (S.COMPLETED, ["first"])
        with PostgresDatabase(postgres_url) as database:
            folder = SharedRunStore(database, tmp_path / "other" / "pipelines-shared").directory(ended.run_id)
            assert files_in(folder / "result") == {"first.md": "one\n"}

    def test_back_from_a_server_it_goes_on_where_it_began_and_where_only_its_kept_files_are(
        self, tmp_path: Path, postgres_url: str
    ) -> None:
        file = write_pipeline(tmp_path / "p", APPROVAL)
        cast = Cast({"first": [writing({"first.md": "one\n"})]})
        ran = run_pipeline(file, cast, tmp_path / "state")
        run_id = ran.record.run_id
        assert to_server(tmp_path / "state", postgres_url).is_verified
        with PostgresDatabase(postgres_url) as database:
            for place in ("state", "elsewhere"):
                source = SharedRunStore(database, tmp_path / place / "pipelines-shared")
                back = DirectoryRunStore(tmp_path / f"{place}-2" / "pipelines")
                assert copied(source, back, tmp_path / "room").is_verified
                assert (back.load(run_id).home == "") is (place == "state")
            here = SharedRunStore(database, tmp_path / "state" / "pipelines-shared")
            done = copied(here, open_run_store(tmp_path / "state"), tmp_path / "room")
            assert (done.is_verified, done.there) == (True, {"runs": 1})
        (tmp_path / "p").rename(tmp_path / "gone")
        for place in ("state-2", "elsewhere-2"):
            given = options(cast, tmp_path / place, ask_person=person(Decision.APPROVE))
            assert asyncio.run(resume_run(run_id, options=given)).state is S.COMPLETED


def test_through_the_front_door_a_run_moves_to_a_server_and_ends_on_another_machine(
    tmp_path: Path, postgres_url: str
) -> None:
    home, other = tmp_path / "a" / "home", {"CODELOUPE_HOME": str(tmp_path / "b"), "CODELOUPE_DATABASE": postgres_url}
    file = write_pipeline(tmp_path / "p", APPROVAL)
    actor = Stage({"first": [Writes("first.md", "one\n")]})

    def says(*words: str, **variables: str) -> Ended:
        return codeloupe(*words, cwd=tmp_path, environment={"CODELOUPE_HOME": str(home), **variables})

    with StandInServer(reply=actor.reply) as server:
        words = (str(PROGRAM), "pipeline", "run", str(file), "--agent", "claude_cli", "--json", "--no-wait")
        variables = {**environment(server), "CODELOUPE_HOME": str(home)}
        with at_work(tmp_path / "a", *words, variables=variables) as program:
            code, document = program.ended()
        assert (code, document["state"]) == (3, "awaiting_approval"), program.told()
        run_id = document["run_id"]
        store = DirectoryRunStore(home / "pipelines")
        with store.lock(run_id):
            busy = says("store", "migrate", "--to", postgres_url)
            assert (busy.exit_code, "not verified: 1 run was not copied" in busy.stderr) == (3, True), busy
            assert f"Not copied: run {run_id}: process {os.getpid()}" in busy.stdout
        assert "Would copy: 1 run.\n" in says("store", "migrate", "--to", postgres_url, "--dry-run").stdout
        moved = says("store", "migrate", "--to", postgres_url)
        assert (moved.exit_code, "Copied: 1 run.\n" in moved.stdout, "Verified" in moved.stdout) == (0, True, True)
        assert "1 of 1 run verified" in moved.stderr
        assert "\nruns" in says("store", "show", postgres_url).stdout
        (tmp_path / "p").rename(tmp_path / "gone")
        ended = says("pipeline", "approve", run_id, "first", "--resume", "--json", **other, **environment(server))
    assert (ended.exit_code, ended.json()["state"]) == (0, "completed"), ended.stderr
    assert files_in(Path(ended.json()["result"])) == {"first.md": "one\n"}
    assert actor.counts() == {"first": 1}
    again = says("store", "migrate", "--to", postgres_url)
    assert (again.exit_code, f"different in the target: run {run_id}" in again.stderr) == (3, True)
