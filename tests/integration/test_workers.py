"""Workers as a team runs them: the installed program, real git, a real Postgres server, and the stand-in model."""

import json
import os
import random
import re
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from codeloupe.store.history import DatabaseHistory
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

CALLS = 5
CLEAN = Json({"findings": []})


def project(folder: Path, commits: int, *, reviewer: str) -> GitRepository:
    """A clone of a project with so many commits, about each of which five calls are made."""
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


@pytest.mark.parametrize(
    ("commits", "kills", "agent"),
    [
        pytest.param(5, 3, "api", id="quick"),
        pytest.param(300, 40, "codex", id="whole", marks=[pytest.mark.soak, pytest.mark.timeout(1700)]),
    ],
)
def test_whoever_is_killed_every_job_ends_and_no_answer_is_bought_twice(
    tmp_path: Path, standin: StandInServer, commits: int, kills: int, agent: str
) -> None:
    chance = random.Random(commits)
    clone = project(tmp_path, commits, reviewer=agent)
    answered: list[str] = []

    def slow(request: RecordedRequest) -> Reply:
        # A call is about one file; all else in it may be new each time.
        (name,) = set(re.findall(r"part_\d+/file_\d+\.py", json.dumps(request.body)))
        answered.append(name)
        return Delay(chance.uniform(0.1, 0.5), CLEAN)

    in_flight = 0
    with (
        StandInServer(reply=slow) as server,
        PostgresServer(tmp_path / "pg", settings=("max_connections=100",)) as postgres,
        PostgresDatabase(postgres.url) as database,
    ):
        environment = environment_of(postgres.url, server, agent, tmp_path / "home")
        with fleet(tmp_path, environment, count=3) as workers:
            words = ("commits", f"origin/main~{commits}..origin/main", "--on-workers")
            asking = workers.start(*words, "--repo", str(clone.path), name="asking")
            queue = JobQueue(database)
            comes_to_pass(lambda: len(queue.list(limit=commits)) == commits)
            sweep = queue.list(limit=1)[0].job.sweep
            assert sweep is not None
            # Whoever asked is killed first: what was asked for goes on.
            asking.kill()
            asking.wait()
            for number in range(kills):
                wanted = len(answered) + chance.randint(1, max(2, commits * CALLS // (kills + 2)))
                comes_to_pass(partial(_is_so_far, answered, wanted, queue, sweep.sweep_id))
                if number % 5 == 2:
                    postgres.stop()
                    postgres.start()
                else:
                    in_flight += server.open_requests
                    workers.kill(chance.randrange(3))
            while _left(queue, sweep.sweep_id):
                time.sleep(0.2)
            watched = codeloupe("jobs", "watch", sweep.sweep_id, "--json", cwd=tmp_path, environment=environment)
        counts = queue.counts(sweep.sweep_id)
        record = DatabaseHistory(database).get_sweep(sweep.sweep_id)
        claims = database.select("SELECT count(*) FROM claims")
    assert counts[JobState.DONE] == commits, counts
    assert record is not None
    assert (record.finished, record.problems, len(record.sweep.commits)) == (True, (), commits)
    assert all(commit.reviewed for commit in record.sweep.commits)
    assert watched.exit_code == 0, watched.stderr
    assert len(set(answered)) == commits * CALLS
    # What was on its way when somebody was killed may be asked again, and nothing else.
    assert len(answered) - len(set(answered)) <= in_flight
    assert claims == [(0,)]


def _is_so_far(answered: list[str], wanted: int, queue: JobQueue, sweep_id: str) -> bool:
    return len(answered) >= wanted or not _left(queue, sweep_id)


def _left(queue: JobQueue, sweep_id: str) -> int:
    counts = queue.counts(sweep_id)
    return counts[JobState.WAITING] + counts[JobState.RUNNING]


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
