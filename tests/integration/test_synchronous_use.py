"""The functions for programs without an event loop: the same arguments and results, in any thread, and Ctrl-C."""

import ast
import asyncio
import inspect
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import codeloupe
from codeloupe import AgentRequest, CommitQuery, CommitScope, Pipeline, RunOptions, Settings
from codeloupe.errors import RunNotFound, UsageError
from codeloupe.testing import ScriptedAgent, Text
from tests.endings import PATIENCE_SECONDS, comes_to_pass
from tests.engine_pipelines import write_pipeline
from tests.program import PYTHON_HEADER
from tests.repository import GitRepository
from tests.rows import each

OFFLINE = Settings(reviewer_type="offline")
SYNCHRONOUS = [name for name in codeloupe.__all__ if name.endswith("_sync")]


@pytest.fixture
def project(repository: GitRepository) -> GitRepository:
    repository.commit_files({"a.py": "import os\n"})
    repository.commit_files({"a.py": "import os\n\n\ndef first(names):\n    return nmaes[0]\n"})
    return repository


def test_every_async_function_has_a_synchronous_form_with_the_same_parameters() -> None:
    functions = {name: getattr(codeloupe, name) for name in codeloupe.__all__}
    asynchronous = {name for name, function in functions.items() if inspect.iscoroutinefunction(function)}
    assert {f"{name}_sync" for name in asynchronous} == set(SYNCHRONOUS)
    for name in asynchronous:
        expected = inspect.signature(functions[name])
        found = inspect.signature(functions[f"{name}_sync"])
        assert str(found.return_annotation) == str(expected.return_annotation), name
        for one, other in zip(expected.parameters.values(), found.parameters.values(), strict=True):
            assert (one.name, one.kind, one.annotation) == (other.name, other.kind, other.annotation), name


def test_each_synchronous_function_gives_what_the_async_one_gives(project: GitRepository, tmp_path: Path) -> None:
    review = codeloupe.review_sync(CommitScope("HEAD"), repo=project.path, settings=OFFLINE)
    assert [finding.file for finding in review.findings] == ["a.py"]
    assert codeloupe.preview_sync(CommitScope("HEAD"), repo=project.path, settings=OFFLINE).files[0].reviewed
    sweep = codeloupe.review_commits_sync(CommitQuery(revision="HEAD~1..HEAD"), repo=project.path, settings=OFFLINE)
    assert len(sweep.commits) == 1
    request = AgentRequest(prompt="Say hello.", working_dir=project.path, tools=())
    assert codeloupe.run_agent_sync(request, agents=[ScriptedAgent([Text("hello")])]).output == "hello"
    pipeline = Pipeline.load(write_pipeline(tmp_path / "pipeline", {"name": "write", "agent": "scripted"}))
    options = RunOptions(
        repo=project.path, agents={"scripted": ScriptedAgent([Text("done")])}, state_directory=tmp_path / "state"
    )
    record = codeloupe.run_pipeline_sync(pipeline, options=options)
    assert record.state.value == "completed"
    assert codeloupe.resume_run_sync(record.run_id, options=options).run_id == record.run_id
    with pytest.raises(RunNotFound):
        codeloupe.resume_run_sync("no-such-run", options=options)


def test_threads_review_at_the_same_time(project: GitRepository) -> None:
    def reviewed(_number: int) -> tuple[str, str]:
        review = codeloupe.review_sync(CommitScope("HEAD"), repo=project.path, settings=OFFLINE)
        return threading.current_thread().name, review.verdict.value

    with ThreadPoolExecutor(3) as threads:
        outcomes = list(threads.map(reviewed, range(3)))
    assert {verdict for _, verdict in outcomes} == {outcomes[0][1]}
    assert threading.main_thread().name not in {name for name, _ in outcomes}


ARGUMENTS: dict[str, tuple[object, ...]] = {
    "run_agent_sync": (AgentRequest(prompt="Say hello.", working_dir=Path()),),
    "run_pipeline_sync": (None,),
    "resume_run_sync": ("any",),
}


@each("name", SYNCHRONOUS)
def test_inside_an_event_loop_the_error_names_the_async_function(name: str) -> None:
    async def main() -> None:
        getattr(codeloupe, name)(*ARGUMENTS.get(name, ()))

    with pytest.raises(UsageError, match="inside a running event loop") as caught:
        asyncio.run(main())
    assert caught.value.hint == f"use `await codeloupe.{name.removesuffix('_sync')}(...)` instead"


CELL = """
import asyncio, codeloupe
settings = codeloupe.Settings(reviewer_type="offline")
try:
    codeloupe.preview_sync(repo=project, settings=settings)
except codeloupe.CodeloupeError as error:
    refused = error.hint
awaited = await codeloupe.preview(codeloupe.CommitScope("HEAD"), repo=project, settings=settings)
threaded = await asyncio.to_thread(
    codeloupe.preview_sync, codeloupe.CommitScope("HEAD"), repo=project, settings=settings
)
same = awaited.files == threaded.files
"""


def test_a_cell_of_a_notebook_awaits_or_uses_a_thread(project: GitRepository) -> None:
    """A notebook compiles a cell with top-level await, and runs it inside its own event loop."""
    code = compile(CELL, "<cell>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names: dict[str, object] = {"project": project.path}

    async def notebook() -> None:
        waiting = eval(code, names)
        assert inspect.isawaitable(waiting)
        await waiting

    asyncio.run(notebook())
    assert names["refused"] == "use `await codeloupe.preview(...)` instead"
    assert names["same"] is True


PROGRAM = """
import codeloupe
settings = codeloupe.Settings(reviewer_type="command", review_command=[{reviewer!r}])
codeloupe.review_sync(codeloupe.StagedScope(), settings=settings)
"""


def test_ctrl_c_ends_the_reviewer_and_is_raised_as_a_keyboard_interrupt(
    repository: GitRepository, tmp_path: Path
) -> None:
    repository.commit_files({"a.py": "x = 1\n"})
    repository.write("a.py", "x = 2\n")
    repository.git("add", "a.py")
    marker = tmp_path / "started"
    reviewer = tmp_path / "reviewer"
    lines = "import os, time", f"open({str(marker)!r}, 'w').write(f'{{os.getpid()}}\\n')", "time.sleep(600)"
    reviewer.write_text(PYTHON_HEADER + "\n".join(lines) + "\n")
    reviewer.chmod(0o755)
    words = (sys.executable, "-c", PROGRAM.format(reviewer=str(reviewer)))
    with subprocess.Popen(words, cwd=repository.path, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert comes_to_pass(lambda: marker.exists() and marker.read_text().endswith("\n"))
            process.send_signal(signal.SIGINT)
            _, written = process.communicate(timeout=PATIENCE_SECONDS)
        finally:
            process.kill()
    assert written.rstrip().endswith("KeyboardInterrupt")
    assert process.returncode == -signal.SIGINT
    assert comes_to_pass(lambda: not os.path.exists(f"/proc/{int(marker.read_text())}"))  # noqa: PTH110 - a process
