"""Workers as a team runs them: the installed program, real git, a real Postgres server, and the stand-in model."""

import json
import os
import random
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from codeloupe.model.agent import TokenUsage
from codeloupe.store.history import DatabaseHistory
from codeloupe.store.ledger import DatabaseLedger
from codeloupe.store.postgres import PostgresDatabase
from codeloupe.system.postgres_server import PostgresServer
from codeloupe.testing import Delay, Json, RecordedRequest, Reply, StandInServer
from codeloupe.workers.jobs import JobState
from codeloupe.workers.queue import JobQueue
from tests.agent_programs import agents_at
from tests.endings import comes_to_pass
from tests.engine_pipelines import write_pipeline
from tests.engine_standin import Deed, Stage, Writes
from tests.engine_standin import environment as agent_environment
from tests.program import codeloupe
from tests.repository import GitRepository
from tests.sweep_history import Made, make_commits
from tests.worker_fleet import Fleet, fleet

CALLS = 4
CLEAN = Json({"findings": []})


def project(folder: Path, commits: int, *, reviewer: str) -> GitRepository:
    """A clone of a project with so many commits, each of which takes four calls."""
    settings = {"reviewer_type": reviewer, "verify": False, "effort": "high"}
    # A file is as much as goes into one call, which is more for an agent with tools.
    lines = [f"value_{line} = compute_{line}" for line in range(170 if reviewer == "codex" else 45)]
    made = [Made(message="first", files={"codeloupe.yaml": json.dumps(settings)})]
    for number in range(commits):
        names = [f"part_{number}/file_{call}.py" for call in range(CALLS)]
        made.append(Made(message=f"fix: {number}", files={name: f"({name!r})\n".join(lines) for name in names}))
    make_commits(folder / "upstream", made)
    clone = GitRepository(folder / "clone")
    clone.git("remote", "add", "origin", str(folder / "upstream"))
    clone.git("fetch", "--quiet", "origin")
    clone.git("checkout", "--quiet", "-B", "main", "origin/main")
    return clone


@pytest.fixture
def standin() -> Iterator[StandInServer]:
    with StandInServer(reply=lambda _request: Delay(0.05, CLEAN)) as server:
        yield server


def environment_of(url: str, server: StandInServer, agent: str, home: Path) -> dict[str, str]:
    home.mkdir(exist_ok=True)
    return {**agents_at(server, agent), "CODELOUPE_DATABASE": url, "CODELOUPE_HOME": str(home)}


def test_a_sweep_on_workers_ends_as_one_here_and_nothing_is_bought_twice(
    tmp_path: Path, postgres_url: str, standin: StandInServer
) -> None:
    clone = project(tmp_path, 2, reviewer="api")
    environment = environment_of(postgres_url, standin, "api", tmp_path / "home")
    words = ("commits", "origin/main~2..origin/main", "--format", "json")
    with fleet(tmp_path, environment, count=1) as workers:
        ended = codeloupe(*words, "--on-workers", cwd=clone.path, environment=environment)
        assert ended.exit_code == 0, ended.stderr
        assert "2 commits queued; `codeloupe jobs watch" in ended.stderr
        bought = standin.count(auxiliary=False)
        assert bought == 2 * CALLS
        (entry,) = codeloupe("history", "list", "--json", cwd=clone.path, environment=environment).json()["entries"]
        assert entry["id"] == ended.json()["sweep_id"]
        listed = codeloupe("jobs", "list", "--json", cwd=tmp_path, environment=environment).json()["jobs"]
        assert [job["state"] for job in listed] == ["done"] * 2
        # It is in the shared history, and another sweep, made here, finds all answers in the shared ledger.
        here = codeloupe(*words, cwd=clone.path, environment=environment)
        assert standin.count(auxiliary=False) == bought
        assert workers.left()
    there, here_too = ended.json(), here.json()
    for document in (there, here_too):
        assert [commit["reviewed"] for commit in document["commits"]] == [True] * 2
    assert [one["sha"] for one in there["commits"]] == [one["sha"] for one in here_too["commits"]]
    assert there["summary"] == here_too["summary"]


@pytest.mark.defect("E6")
def test_a_pull_request_is_reviewed_on_a_worker_with_the_exit_code_of_its_findings(
    tmp_path: Path, postgres_url: str, standin: StandInServer
) -> None:
    clone = project(tmp_path, 1, reviewer="offline")
    upstream = GitRepository(tmp_path / "upstream")
    upstream.git("checkout", "--quiet", "-b", "change")
    upstream.commit_files({"b.py": "import subprocess\n\n\ndef run(x):\n    subprocess.call(x, shell=True)\n"})
    upstream.git("update-ref", "refs/pull/7/head", "change")
    upstream.git("checkout", "--quiet", "main")
    environment = environment_of(postgres_url, standin, "api", tmp_path / "home")
    with fleet(tmp_path, environment, count=1):
        words = ("review", "--pr", "7", "--reviewer", "offline", "--format", "json", "--on-workers")
        ended = codeloupe(*words, cwd=clone.path, environment=environment)
        assert ended.exit_code == 1, ended.stderr
        assert {finding["file"] for finding in ended.json()["findings"]} == {"b.py"}
        (job,) = codeloupe("jobs", "list", "--json", cwd=tmp_path, environment=environment).json()["jobs"]
        again = codeloupe("jobs", "watch", str(job["job_id"]), "--json", cwd=tmp_path, environment=environment)
        assert (again.exit_code, again.json()["findings"]) == (1, ended.json()["findings"])
        # It belongs to the work tree that asked, though a worker made it elsewhere.
        last = codeloupe("history", "render", "--format", "json", cwd=clone.path, environment=environment)
        assert last.json()["review_id"] == ended.json()["review_id"]
        # What cannot be reviewed is not tried for ever: it is dead, and ends as it would here.
        upstream.git("update-ref", "refs/pull/8/head", "main")
        merged = [
            codeloupe("review", "--pr", "8", *more, cwd=clone.path, environment=environment)
            for more in ((), words[-1:])
        ]
        assert [one.exit_code for one in merged] == [2, 2], merged
        assert "is dead: every commit of pull request 8 is in main already" in merged[1].stderr
        upstream.git("update-ref", "-d", "refs/pull/7/head")
        gone = codeloupe(*words, cwd=clone.path, environment=environment)
        assert gone.exit_code == 2, gone.stderr
        assert "no pull request 7" in gone.stderr


@pytest.mark.defect("E17")
def test_a_review_of_no_change_on_a_worker_is_shown_and_not_stored(
    tmp_path: Path, postgres_url: str, standin: StandInServer
) -> None:
    clone = project(tmp_path, 1, reviewer="offline")
    environment = environment_of(postgres_url, standin, "api", tmp_path / "home")
    with fleet(tmp_path, environment, count=1):
        words = ("review", "origin/main..origin/main", "--reviewer", "offline", "--json", "--on-workers")
        ended = codeloupe(*words, cwd=clone.path, environment=environment)
        assert ended.exit_code == 0, ended.stderr
        assert ended.json()["nothing_to_review"] is True
    stored = codeloupe("history", "list", "--all", "--json", cwd=clone.path, environment=environment)
    assert stored.json()["entries"] == []


class Payments:
    """Counts what the stand-in model is asked about: a request for a stored answer is one that is paid for twice."""

    def __init__(self, database: PostgresDatabase, chance: random.Random) -> None:
        self._ledger = DatabaseLedger(database)
        self._chance = chance
        self._tokens: dict[str, int] = {}
        self.asked: Counter[int] = Counter()
        self.paid_twice: list[int] = []

    def reply(self, request: RecordedRequest) -> Reply:
        # A call is about one file. Its number is in the answer too, as the number of tokens.
        ((part, file),) = set(re.findall(r"part_(\d+)/file_(\d+)\.py", json.dumps(request.body)))
        number = 1000 + int(part) * CALLS + int(file)
        self.asked[number] += 1
        if self.asked[number] > 1 and number in self.stored():
            self.paid_twice.append(number)
        usage = TokenUsage(input_tokens=number, output_tokens=1)
        return Delay(self._chance.uniform(0.1, 0.5), Json({"findings": []}, usage=usage))

    def stored(self) -> set[int]:
        """Return the numbers of the answers that are stored."""
        database = self._ledger.database
        # The server may be restarting in this moment.
        for (key,) in database.persist(lambda: database.select("SELECT key FROM results")):
            if key not in self._tokens:
                result = self._ledger.get(key)
                assert result is not None
                self._tokens[key] = result.usage.input_tokens
        return set(self._tokens.values())


@pytest.mark.parametrize(
    ("commits", "kills", "restarts"),
    [
        pytest.param(5, 3, 1, id="quick"),
        pytest.param(200, 40, 8, id="whole", marks=[pytest.mark.soak, pytest.mark.timeout(1700)]),
    ],
)
def test_after_kills_and_restarts_every_job_ends_and_no_stored_answer_is_paid_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], commits: int, kills: int, restarts: int
) -> None:
    chance = random.Random(commits)
    clone = project(tmp_path, commits, reviewer="api")
    events = ["kill"] * kills + ["restart"] * restarts
    chance.shuffle(events)
    with (
        PostgresServer(tmp_path / "pg", settings=("max_connections=100",)) as postgres,
        PostgresDatabase(postgres.url) as database,
    ):
        payments = Payments(database, chance)
        queue = JobQueue(database)
        with StandInServer(reply=payments.reply) as server:
            environment = environment_of(postgres.url, server, "api", tmp_path / "home")
            with fleet(tmp_path, environment, count=3) as workers:
                words = ("commits", f"origin/main~{commits}..origin/main", "--on-workers")
                asking = workers.start(*words, "--repo", str(clone.path), name="asking")
                comes_to_pass(lambda: len(queue.list(limit=commits)) == commits)
                sweep = queue.list(limit=1)[0].job.sweep
                assert sweep is not None
                # The client is killed first: its jobs continue.
                asking.kill()
                asking.wait()
                for event in events:
                    more = chance.randint(1, max(2, commits * CALLS // (len(events) + 2)))
                    wanted = payments.asked.total() + more
                    comes_to_pass(partial(_has_asked, payments, wanted, queue))
                    if event == "restart":
                        postgres.stop()
                        postgres.start()
                    else:
                        workers.kill(chance.randrange(3))
                while database.persist(queue.has_open_jobs):
                    time.sleep(0.2)
                watched = codeloupe("jobs", "watch", sweep.sweep_id, "--json", cwd=tmp_path, environment=environment)
                comes_to_pass(lambda: _count(database, "processes WHERE slots > 0") == 3)
            left = {name: _count(database, name) for name in ("leases", "limited_requests", "processes")}
            left["deliveries"] = _count(database, "procrastinate_jobs")
        counts = queue.counts(sweep.sweep_id)
        record = DatabaseHistory(database).get_sweep(sweep.sweep_id)
        stored = len(payments.stored())
    asked = payments.asked.total()
    with capsys.disabled():
        print(  # noqa: T201 - the counts are the result
            f"\n{commits} jobs of {CALLS} calls, {kills} kills, {restarts} restarts: {counts[JobState.DONE]} done,"
            f" {asked} calls, {stored} stored, {asked - stored} repeated in flight,"
            f" {len(payments.paid_twice)} paid twice, left: {left}"
        )
    assert counts[JobState.DONE] == commits, counts
    assert record is not None
    assert (record.finished, record.problems, len(record.sweep.commits)) == (True, (), commits)
    assert all(commit.reviewed for commit in record.sweep.commits)
    assert watched.exit_code == 0, watched.stderr
    assert (len(payments.asked), stored, payments.paid_twice) == (commits * CALLS, commits * CALLS, [])
    assert left == {"leases": 0, "limited_requests": 0, "processes": 0, "deliveries": 0}


def _has_asked(payments: Payments, wanted: int, queue: JobQueue) -> bool:
    return payments.asked.total() >= wanted or not queue.has_open_jobs()


def _count(database: PostgresDatabase, rows: str) -> int:
    return int(database.select(f"SELECT count(*) FROM {rows}")[0][0])


def test_a_run_killed_on_one_worker_goes_on_on_another_and_no_finished_stage_is_asked_again(
    tmp_path: Path, postgres_url: str, repository: GitRepository
) -> None:
    repository.commit_files({"kept.txt": "as it was\n"})
    deeds: dict[str, Sequence[Deed]] = {
        name: [Writes(f"{name}.md", f"{name}\n")] for name in ("first", "second", "third")
    }
    stages = ({"name": "first"}, {"name": "second", "needs": ["first"]}, {"name": "third", "needs": ["second"]})
    file = write_pipeline(tmp_path / "p", *stages, workspace="worktree")
    stage = Stage(deeds, held={"second 1"})
    with StandInServer(reply=stage.reply) as server:
        environment = {**agent_environment(server), "CODELOUPE_DATABASE": postgres_url}
        homes = [{"CODELOUPE_HOME": str(tmp_path / name)} for name in ("here", "there")]
        words = ("pipeline", "run", str(file), "--repo", str(repository.path), "--agent", "claude_cli", "--on-workers")
        asking = Fleet(tmp_path, {**environment, "CODELOUPE_HOME": str(tmp_path / "asks")}).start(*words, name="asking")
        with fleet(tmp_path, {**environment, **homes[0]}, count=1) as first:
            comes_to_pass(lambda: "second" in stage.asked and server.open_requests == 1)
            first.workers[0].kill()
            first.workers.pop().wait()
            with fleet(tmp_path / "p", {**environment, **homes[1]}, count=1):
                assert asking.wait(150) == 0, (tmp_path / "asking.log").read_text()
    assert stage.counts() == {"first": 1, "second": 2, "third": 1}
    assert "completed" in (tmp_path / "asking.log").read_text()


@pytest.mark.defect("W11")
def test_an_approved_run_continues_on_a_worker_and_not_where_it_was_approved(
    tmp_path: Path, postgres_url: str, repository: GitRepository
) -> None:
    repository.commit_files({"kept.txt": "as it was\n"})
    deeds: dict[str, Sequence[Deed]] = {name: [Writes(f"{name}.md", f"{name}\n")] for name in ("draft", "release")}
    stages = ({"name": "draft", "gate": {"kind": "approval"}}, {"name": "release", "needs": ["draft"]})
    file = write_pipeline(tmp_path / "p", *stages, workspace="worktree")
    stage = Stage(deeds)
    # The machine of the person has no agent.
    person = {"CODELOUPE_DATABASE": postgres_url, "CODELOUPE_HOME": str(tmp_path / "person")}
    with StandInServer(reply=stage.reply) as server:
        workers = {**agent_environment(server), **person, "CODELOUPE_HOME": str(tmp_path / "home")}
        with fleet(tmp_path, workers, count=1):
            words = ("run", str(file), "--repo", str(repository.path), "--agent", "claude_cli", "--on-workers")
            stopped = codeloupe("pipeline", *words, cwd=tmp_path, environment=workers)
            assert stopped.exit_code == 3, stopped.stderr
            approved = codeloupe("pipeline", "approve", "last", "draft", "--resume", cwd=tmp_path, environment=person)
            assert approved.exit_code == 0, approved.stderr
    assert stage.counts() == {"draft": 1, "release": 1}


def test_a_worker_that_cannot_work_says_so_at_its_start(tmp_path: Path, postgres_url: str) -> None:
    (tmp_path / "file").write_text("")
    environment = {**os.environ, "CODELOUPE_DATABASE": postgres_url}
    for words, said in (
        (("--cache", "file/cache"), "cannot use the repository cache"),
        (("--pulse", "nowhere/pulse"), "cannot write the --pulse file"),
        (("--grace", "nan"), "must be above 0"),
        (("--cache-gb", "nan"), "must be above 0"),
    ):
        ended = codeloupe("worker", "--until-idle", *words, cwd=tmp_path, environment=environment)
        assert (ended.exit_code, said in ended.stderr) == (2, True), ended.stderr


def test_without_a_database_and_without_the_extra_it_is_said_what_to_do(tmp_path: Path) -> None:
    for words in (("worker",), ("jobs", "list")):
        ended = codeloupe(*words, cwd=tmp_path)
        assert ended.exit_code == 2
        assert "none is configured" in ended.stderr
        assert "CODELOUPE_DATABASE" in ended.stderr
    # A package of that name that cannot be loaded stands for one that is not there.
    (tmp_path / "psycopg.py").write_text("raise ImportError('not installed')\n")
    environment = {"PYTHONPATH": str(tmp_path), "CODELOUPE_DATABASE": "postgresql://somebody@127.0.0.1:1/nowhere"}
    ended = codeloupe("history", "list", cwd=tmp_path, environment={**os.environ, **environment})
    assert ended.exit_code == 3
    assert ".[server]" in ended.stderr
