"""What a runtime shares among its calls."""

import asyncio
import itertools
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, cast

import pytest

import codeloupe
from codeloupe import AgentRequest, AgentResult, CommitQuery, CommitScope, Runtime, Settings
from codeloupe.calls import AgentCalls
from codeloupe.errors import BudgetExhausted, Cancelled, ForgeRefused, InvalidRequest, UsageError
from codeloupe.forges.publishing import PublishRequest
from codeloupe.model.agent import TokenUsage
from codeloupe.testing import AgentStep, Delay, Json, ScriptedAgent, Text
from tests.engine_pipelines import write_pipeline
from tests.repository import GitRepository

NOTHING_FOUND = Json({"findings": []})


def ask(number: int, directory: Path, **fields: Any) -> AgentRequest:
    return AgentRequest(prompt=f"Question {number}.", working_dir=directory, tools=(), **fields)


async def ask_many(runtime: Runtime, directory: Path, count: int) -> list[AgentResult | BaseException]:
    calls = (runtime.run_agent(ask(number, directory), fresh=True) for number in range(count))
    return list(await asyncio.gather(*calls, return_exceptions=True))


@pytest.mark.defect("L3")
def test_two_hundred_calls_with_a_limit_of_ten_make_ten_and_never_more_than_five_at_once(tmp_path: Path) -> None:
    agent = ScriptedAgent([Delay(0.02, Text("an answer"))])

    async def run() -> list[AgentResult | BaseException]:
        settings = Settings(max_requests=10, concurrency=5)
        async with Runtime(settings, agents=[agent], state_directory=tmp_path / "state") as runtime:
            ended = await ask_many(runtime, tmp_path, 200)
            assert runtime.spent.requests == 10
            return ended

    ended = asyncio.run(run())
    refused = [end for end in ended if isinstance(end, BudgetExhausted)]
    assert (len(agent.requests), len(refused)) == (10, 190)
    assert sum(isinstance(end, AgentResult) for end in ended) == 10
    assert 1 < agent.max_seen <= 5
    assert "10 of 10 requests used" in refused[0].message
    assert "raise max_requests" in refused[0].hint


@pytest.mark.defect("L3", "V2")
def test_tokens_and_money_pass_their_limit_by_less_than_one_answer_at_any_concurrency(tmp_path: Path) -> None:
    sizes = (700, 1_777, 3_000, 250, 9_000)

    def scripted(*, usd_each: float) -> ScriptedAgent:
        numbers = itertools.cycle(sizes)

        def step(_request: AgentRequest) -> AgentStep:
            size = next(numbers)
            usage = TokenUsage(input_tokens=size - size // 5, output_tokens=size // 5)
            return AgentResult(success=True, output="x", agent="", usage=usage, total_cost_usd=size * usd_each)

        return ScriptedAgent([step])

    async def spent(**limits: Any) -> codeloupe.Spent:
        agent = scripted(usd_each=4e-6)
        settings = Settings(concurrency=10, **limits)
        async with Runtime(settings, agents=[agent], state_directory=tmp_path / "state") as runtime:
            await ask_many(runtime, tmp_path, 60)
            return runtime.spent

    wrong = []
    for most in (1, 6_000, 25_000, 80_000):
        tokens = asyncio.run(spent(max_tokens=most)).tokens
        usd = asyncio.run(spent(max_budget_usd=most * 4e-6)).usd / 4e-6
        wrong += [f"{what:,.0f} of {most:,}" for what in (tokens, usd) if not most <= what < most + max(sizes)]
    assert wrong == []


@pytest.mark.defect("L3")
def test_every_kind_of_call_draws_on_the_same_budget_and_the_same_store(repository: GitRepository) -> None:
    repository.commit_files({"a.py": "x = 1\n"}, "One")
    repository.commit_files({"a.py": "x = 2\n"}, "Two")
    agent = ScriptedAgent([NOTHING_FOUND])
    home = repository.path.parent / "kept"
    pipeline = codeloupe.Pipeline.load(
        write_pipeline(repository.path.parent / "pipeline", {"name": "only", "agent": "scripted"})
    )

    async def run() -> None:
        settings = Settings(max_requests=4, base_branch="main")
        async with Runtime(settings, agents=[agent], state_directory=home) as runtime:
            review = await runtime.review(CommitScope("HEAD"), repo=repository.path)
            assert (review.reviewer.type, review.complete, runtime.spent.requests) == ("scripted", True, 1)
            sweep = await runtime.review_commits(CommitQuery(max_count=1), repo=repository.path, fresh=True)
            assert (len(sweep.commits), runtime.spent.requests) == (1, 2)
            await runtime.run_agent(ask(1, repository.path))
            assert (await runtime.run_agent(ask(1, repository.path))).from_ledger
            assert runtime.spent.requests == 3
            record = await runtime.run_pipeline(pipeline, options=codeloupe.RunOptions(repo=repository.path))
            assert (record.state.value, runtime.spent.requests) == ("completed", 4)
            refused = await runtime.review(CommitScope("HEAD"), repo=repository.path, fresh=True)
            assert not refused.complete
            assert "4 of 4 requests used" in refused.coverage.units_failed[0].reason
            with pytest.raises(BudgetExhausted):
                await runtime.run_agent(ask(2, repository.path))

    asyncio.run(run())
    assert len(agent.requests) == 4
    assert {path.name for path in home.iterdir()} >= {"codeloupe.sqlite3", "pipelines"}


class NeverAnswers(ScriptedAgent):
    """Lets go of whoever waits for `asked` when so many calls run."""

    def __init__(self, calls: int) -> None:
        super().__init__([self._begin])
        self.asked = asyncio.Event()
        self._calls = calls

    def _begin(self, _request: AgentRequest) -> AgentStep:
        if len(self.requests) == self._calls:
            self.asked.set()
        return Delay(3600, Text("too late"))


class TestLeaving:
    def test_what_still_runs_is_ended_and_its_caller_told(self, repository: GitRepository) -> None:
        repository.commit_files({"a.py": "x = 1\n"}, "One")
        agent = NeverAnswers(2)

        async def caller(runtime: Runtime) -> str:
            try:
                await runtime.run_agent(ask(1, repository.path))
            except Cancelled as error:
                return error.message  # the caller's own task goes on
            return "answered"

        async def run() -> None:
            async with Runtime(Settings(), agents=[agent]) as runtime:
                waiting = asyncio.create_task(caller(runtime))
                review = asyncio.create_task(runtime.review(CommitScope("HEAD"), repo=repository.path))
                await agent.asked.wait()
            assert asyncio.all_tasks() <= {asyncio.current_task(), waiting, review}
            assert await waiting == "the runtime was closed while this call was running"
            with pytest.raises(Cancelled):
                await review

        asyncio.run(run())

    def test_a_call_after_it_fails_with_a_sentence(self, repository: GitRepository) -> None:
        async def run() -> None:
            async with Runtime(Settings(), agents=[ScriptedAgent([Text("x")])]) as runtime:
                pass
            calls = (runtime.review(), runtime.preview(), runtime.review_commits(), runtime.list_agents())
            for call in (
                *calls,
                runtime.run_agent(ask(1, repository.path)),
                runtime.resume_run("x"),
                runtime.__aenter__(),
            ):
                with pytest.raises(UsageError, match="this runtime is closed"):
                    await call

        asyncio.run(run())


def wrong_calls(repo: Path) -> dict[str, Any]:
    """Each call has one argument of a wrong type; what the hint must name, by the call."""
    wrong, untyped = object(), cast("Any", codeloupe)
    return {
        "RangeScope('main..x')": lambda: untyped.Runtime().review("main..x", repo=repo),
        "RangeScope('a...b')": lambda: untyped.preview("a...b", repo=repo),
        'CommitScope("HEAD")': lambda: untyped.review("", repo=repo),
        'BaseScope("main")': lambda: untyped.review(codeloupe.CommitScope, repo=repo),
        "PullRequestScope('https://": lambda: untyped.review("https://forge.example/a/b/pull/7", repo=repo),
        "DiffScope(NAME, DATA)": lambda: untyped.review(b"--- a", repo=repo),
        "type str": lambda: untyped.review(CommitScope(untyped), repo=repo),
        "type bytes": lambda: untyped.review(codeloupe.DiffScope("a", untyped), repo=repo),
        "CommitQuery(": lambda: untyped.review_commits("main..x", repo=repo),
        "type int": lambda: untyped.review_commits(CommitQuery(max_count=untyped), repo=repo),
        "AgentRequest(": lambda: untyped.run_agent("What does a.py do?"),
        "Pipeline.load(": lambda: untyped.Runtime(Settings()).run_pipeline("pipeline.yaml"),
        "Pipeline.load(FILE) reads": lambda: untyped.Pipeline("pipeline.yaml"),
        "RunOptions(": lambda: untyped.resume_run("x", options={}),
        "dict of agents": lambda: untyped.RunOptions(agents=["codex"]),
        "Settings(...)": lambda: untyped.Runtime({"effort": "low"}),
        "Settings(agents=": lambda: untyped.Runtime(agents=["codex"]),
        "Settings(...), or None": lambda: untyped.make_reviewer("codex"),
        "codeloupe.Settings": lambda: untyped.make_workdir_reviewer(wrong),
        "a string": lambda: untyped.make_reviewer(Settings(), repo=repo)(5),
        "a list of commits": lambda: untyped.make_reviewer(Settings(), repo=repo)("", commit_shas=[5]),
        "number of seconds": lambda: untyped.make_reviewer(Settings(), repo=repo)("a..b", timeout="5"),
        "a path": lambda: untyped.make_workdir_reviewer(Settings()).review(5, "main"),
        "a string or a Path": lambda: untyped.review(repo=None),
        "a function": lambda: untyped.review(repo=repo, emit="print"),
        "True or False": lambda: untyped.review(repo=repo, fresh="no"),
        "strings by name": lambda: untyped.Runtime(environment=["HOME"]),
    }


@pytest.mark.defect("L4")
def test_an_argument_of_a_wrong_type_is_refused_with_what_to_give_instead(repository: GitRepository) -> None:
    repository.commit_files({"a.py": "x = 1\n"}, "One")
    wrong = []
    for hint, call in wrong_calls(repository.path).items():
        try:
            made = call()
            asyncio.run(made)
            wrong.append(f"{hint}: {made} was taken")
        except (UsageError, InvalidRequest) as error:
            if hint not in error.hint:
                wrong.append(f"{hint}: {error.message} ({error.hint})")
    assert wrong == []


class TestSettings:
    @pytest.mark.program
    @pytest.mark.defect("L2")
    def test_what_a_request_leaves_open_the_settings_say_and_what_it_says_counts(self, tmp_path: Path) -> None:
        agent = ScriptedAgent([Text("an answer")])
        settings = Settings(model="some-model", agent_timeout_seconds=77.0)

        async def run() -> None:
            async with Runtime(settings, agents=[agent]) as runtime:
                await runtime.run_agent(ask(1, tmp_path))
                await runtime.run_agent(ask(2, tmp_path, model="another", timeout_seconds=1800.0))

        asyncio.run(run())
        asked = [(request.model, request.timeout_seconds) for request in agent.requests]
        assert [model for model, _ in asked] == ["some-model", "another"]
        assert asked[0][1] <= 77
        assert asked[1][1] > 1700

    @pytest.mark.defect("L2")
    def test_without_settings_they_are_loaded_as_the_program_loads_them(self, repository: GitRepository) -> None:
        repository.write("codeloupe.yaml", "model: of-the-repository\n")
        agent = ScriptedAgent([Text("an answer")])
        user_file = repository.path.parent / "user" / "codeloupe" / "config.yaml"
        user_file.parent.mkdir(parents=True)
        user_file.write_text("agent_timeout_seconds: 66\n")
        environment = {"XDG_CONFIG_HOME": str(user_file.parent.parent), "CODELOUPE_MAX_REQUESTS": "1"}

        async def run() -> None:
            home = repository.path.parent / "state"
            async with Runtime(agents=[agent], environment=environment, state_directory=home) as runtime:
                await runtime.run_agent(ask(1, repository.path))
                with pytest.raises(BudgetExhausted):
                    await runtime.run_agent(ask(2, repository.path))

        asyncio.run(run())
        (request,) = agent.requests
        assert request.model == "of-the-repository"
        assert request.timeout_seconds <= 66


@pytest.mark.program
@pytest.mark.defect("L4")
def test_a_scripted_agent_can_be_given_to_one_call(tmp_path: Path) -> None:
    agent = ScriptedAgent([Text("an answer")])
    answer = asyncio.run(codeloupe.run_agent(ask(1, tmp_path), settings=Settings(), agents=[agent]))
    assert (answer.output, answer.agent) == ("an answer", "scripted")


@pytest.mark.defect("L4")
def test_what_a_request_was_given_is_copied_and_not_followed(tmp_path: Path) -> None:
    context, labels = {"the plan": "build"}, {"step": "1"}
    request = ask(1, tmp_path, context=context, labels=labels)
    context["more"] = "x"
    labels.clear()
    assert dict(request.context) == {"the plan": "build"}
    assert dict(request.labels) == {"step": "1"}


@pytest.mark.defect("L7")
def test_a_caller_without_logging_hears_nothing_of_an_answer_that_cannot_be_read(repository: GitRepository) -> None:
    repository.commit_files({"a.py": "x = 1\n"})
    repository.write("a.py", "x = 2\n")
    client = (
        "import asyncio, sys, codeloupe\n"
        "from codeloupe.testing import ScriptedAgent, Text\n"
        "async def main():\n"
        "    async with codeloupe.Runtime(agents=[ScriptedAgent([Text('no findings in this form')])]) as runtime:\n"
        "        review = await runtime.review(codeloupe.UncommittedScope(), repo=sys.argv[1])\n"
        "    sys.exit(0 if review.verdict is codeloupe.Verdict.INCOMPLETE else 9)\n"
        "asyncio.run(main())\n"
    )
    command = (sys.executable, "-c", client, str(repository.path))
    ended = subprocess.run(command, cwd=repository.path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_to_publish_it_takes_the_token_of_its_own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "made-up")

    async def publish() -> None:
        async with Runtime(Settings(), environment={}) as runtime:
            await runtime.publish(PublishRequest(repo=tmp_path, pull_request="owner/name#1"))

    with pytest.raises(ForgeRefused, match="no token"):
        asyncio.run(publish())


def test_the_end_of_a_runtime_does_not_block_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    was_released: list[bool] = []

    def close(_calls: AgentCalls) -> None:
        # As a database does that is unreachable for a while.
        was_released.append(released.wait(20))

    monkeypatch.setattr(AgentCalls, "close", close)

    async def use() -> None:
        async with Runtime(Settings()):
            asyncio.get_running_loop().call_soon(released.set)

    asyncio.run(use())
    assert was_released == [True]
