"""The public surface: what `import codeloupe` gives, and its types.

The functions below are never called: mypy, which runs with every `make test`, checks what they claim. An
`assert_type` that is no longer true fails there, and so does a `type: ignore` that ignores nothing.
"""

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import assert_type

import pytest

import codeloupe
from codeloupe import (
    AgentRequest,
    AgentResult,
    CommitQuery,
    CommitSweep,
    Finding,
    Pipeline,
    Preview,
    RangeScope,
    Review,
    ReviewResult,
    RunRecord,
    Settings,
    Severity,
    Verdict,
    WorkdirReviewResult,
)


async def _what_it_gives(agent: codeloupe.Agent) -> None:
    def listen(event: codeloupe.Event | codeloupe.AgentEvent) -> None:
        assert_type(event, codeloupe.Event | codeloupe.AgentEvent)

    outcome = await codeloupe.review(RangeScope("main..HEAD"), repo=Path(), settings=Settings(), fresh=True)
    assert_type(outcome, Review)
    assert_type(outcome.verdict, Verdict)
    assert_type(outcome.findings, tuple[Finding, ...])
    assert_type(outcome.findings[0].severity, Severity)
    await codeloupe.review("main..HEAD")  # type: ignore[arg-type]  # a scope is no text: nothing is guessed
    await codeloupe.review(None, Path())  # type: ignore[call-arg]  # everything but the scope is told by name
    request = AgentRequest(prompt="Say hello.", working_dir=Path(), timeout_seconds=60)
    assert_type((await codeloupe.run_agent(request)).total_cost_usd, float | None)
    await codeloupe.run_agent("Say hello.")  # type: ignore[arg-type]  # a request is no text either
    request.prompt = "another"  # type: ignore[misc]  # a request does not change
    async with codeloupe.Runtime(Settings(), agents=[agent], environment={}, state_directory="state") as runtime:
        assert_type(await runtime.review(RangeScope("main..HEAD"), repo=".", emit=listen), Review)
        assert_type(await runtime.preview(), Preview)
        assert_type(await runtime.review_commits(CommitQuery(), repo="."), CommitSweep)
        assert_type(await runtime.run_agent(request, emit=listen), AgentResult)
        record = await runtime.run_pipeline(Pipeline.load("article.yaml"), {"topic": "rivers"})
        assert_type(await runtime.resume_run(record.run_id), RunRecord)
    await Pipeline.load("article.yaml").run({"topic": 1})  # type: ignore[dict-item]  # inputs are text
    assert_type(await codeloupe.run_pipeline(Pipeline.load("article.yaml"), {"topic": "rivers"}), RunRecord)
    assert_type(await codeloupe.resume_run(record.run_id), RunRecord)
    assert_type(await codeloupe.make_reviewer(Settings())("main..HEAD", None, 300, None), ReviewResult)
    assert_type(await codeloupe.make_workdir_reviewer(Settings()).review(Path(), "main"), WorkdirReviewResult)


def _what_it_gives_without_an_event_loop(request: AgentRequest, agent: codeloupe.Agent) -> None:
    outcome = codeloupe.review_sync(RangeScope("main..HEAD"), repo=Path(), settings=Settings(), fresh=True, emit=print)
    assert_type(outcome, Review)
    codeloupe.review_sync("main..HEAD")  # type: ignore[arg-type]  # a scope is no text: nothing is guessed
    codeloupe.review_sync(frehs=True)  # type: ignore[call-arg]  # its options are known by name
    assert_type(codeloupe.preview_sync(RangeScope("main..HEAD"), repo="."), Preview)
    assert_type(codeloupe.review_commits_sync(CommitQuery(), strict=True), CommitSweep)
    assert_type(codeloupe.run_agent_sync(request, agents=[agent], fresh=True), AgentResult)
    codeloupe.run_agent_sync("Say hello.")  # type: ignore[arg-type]  # a request is no text either
    record = codeloupe.run_pipeline_sync(Pipeline.load("article.yaml"), {"topic": "rivers"})
    assert_type(record, RunRecord)
    assert_type(codeloupe.resume_run_sync(record.run_id, options=codeloupe.RunOptions()), RunRecord)


def test_every_public_name_is_there_and_is_what_a_type_checker_sees() -> None:
    tree = ast.parse(inspect.getsource(codeloupe))
    (late,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {
        name.name: importlib.import_module(str(node.module))
        for statement in late.body
        for node in ast.walk(statement)
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }
    assert sorted(codeloupe.__all__) == sorted({*seen, "__version__"})
    assert [name for name, home in seen.items() if getattr(codeloupe, name) is not getattr(home, name)] == []
    assert all(getattr(codeloupe, name).__doc__ for name in codeloupe.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'reviews'"):
        _ = codeloupe.reviews  # type: ignore[attr-defined]  # a type checker sees it too


# Uses each public name twice, after the others in some order: functions are called, and all are imported by name.
_USED_TWICE = """
import asyncio, importlib, inspect, sys, types
import codeloupe
from pathlib import Path

names = sys.argv[1:]
for name in (*names, *names):
    first, second = getattr(codeloupe, name), getattr(importlib.import_module("codeloupe"), name)
    scope = {}
    exec(f"from codeloupe import {name}", scope)
    assert scope[name] is first is second, f"{name} is not the same each time"
    assert not isinstance(first, types.ModuleType), f"{name} is a module"
    if inspect.iscoroutinefunction(first) or name.endswith("_sync"):
        wrong = {"resume_run": "no-such-run", "run_agent": "no request", "run_pipeline": "no pipeline"}
        given = [words for function, words in wrong.items() if name.startswith(function)]
        try:
            called = first(*given)
            if inspect.iscoroutine(called):
                asyncio.run(called)
        except (codeloupe.CodeloupeError, AttributeError) as error:
            is_expected = name.startswith("run_agent") or any(words in str(error) for words in (*given, "repository"))
            assert is_expected, repr(error)
    elif isinstance(first, types.FunctionType):
        first(codeloupe.Settings(reviewer_type="offline"))
    else:
        assert isinstance(first, type) or not callable(first) or name in ("Event", "AgentEvent"), name
"""


@pytest.mark.program
@pytest.mark.defect("L1")
def test_every_public_name_works_twice_in_every_order_of_first_use(tmp_path: Path) -> None:
    names = [name for name in codeloupe.__all__ if name != "__version__"]
    public = {name: getattr(codeloupe, name) for name in names}
    functions = {one.__module__: name for name, one in public.items() if inspect.isfunction(one)}
    # A function of each module before all else: what it loads must not take the place of a name.
    orders = [[first, *(name for name in names if name != first)] for first in functions.values()]
    failed: list[str] = []
    for order in (*orders, names[::-1]):
        words = (sys.executable, "-c", _USED_TWICE, *order)
        ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        if ended.returncode:
            failed.append(f"{order[0]} first: {ended.stderr[-300:]}")
    assert failed == []


@pytest.mark.defect("L1")
def test_no_public_name_is_also_a_module() -> None:
    modules = {module.name for module in pkgutil.iter_modules(codeloupe.__path__)}
    assert set(codeloupe.__all__) & modules == set()
