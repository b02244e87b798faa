"""The execution of jobs on a real repository, with scripted agents."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from codeloupe.errors import RateLimited
from codeloupe.git.mirrors import MirrorCache
from codeloupe.runtime import Runtime
from codeloupe.store.postgres import PostgresDatabase
from codeloupe.testing import ScriptedAgent
from codeloupe.workers import execution
from codeloupe.workers.execution import JobExecutor
from codeloupe.workers.failures import JobPaused
from codeloupe.workers.jobs import Job, JobKind
from tests.repository import GitRepository

pytestmark = pytest.mark.program


def test_a_job_waits_for_the_quota_of_its_own_account(
    repository: GitRepository, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = repository.commit_files({"a.py": "def first(x):\n    return x\n"})
    agent = ScriptedAgent([RateLimited("the quota is used up", agent="scripted", retry_after_seconds=3600.0)])
    monkeypatch.setattr(execution, "Runtime", partial(Runtime, agents=[agent]))
    job = Job(kind=JobKind.REVIEW, repository=str(repository.path), description="a commit", commit=commit)
    environment = {"CODELOUPE_HOME": str(tmp_path / "home"), "CODELOUPE_SHARED_CONCURRENCY": "4"}
    with PostgresDatabase(postgres_url) as database:
        now = database.clock()
        # Another account has to wait for five hours.
        database.change(
            "INSERT INTO limit_accounts (account, lowered, successes, opens_at, next_start_at, answers, next_usd)"
            " VALUES ('another account', 0, 0, ?, 0.0, 0, 0.0)",
            (now + 5 * 3600.0,),
        )
        mirrors = MirrorCache(tmp_path / "mirrors", max_bytes=10**9)
        executor = JobExecutor(database, mirrors, environment=environment)
        with pytest.raises(JobPaused) as paused:
            asyncio.run(executor.execute(job, lambda _progress: None))
    assert agent.requests
    assert 3000.0 < paused.value.until - now < 2 * 3600.0
