"""The agents that go through the contract suite, each with what only it knows. A new agent joins by an entry here."""

import asyncio
import contextlib
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from codeloupe.agents.api.agent import ApiAgent
from codeloupe.agents.calls.schemas import check_output
from codeloupe.agents.claude.cli import ClaudeCliAgent
from codeloupe.agents.claude.sdk import AgentSdkAgent
from codeloupe.agents.codex.agent import CodexAgent
from codeloupe.agents.gemini.agent import JOINER, GeminiAgent
from codeloupe.errors import AgentError
from codeloupe.model.agent import AgentEvent, AgentRequest, AgentResult
from codeloupe.model.ports import Agent, AgentEventSink
from codeloupe.testing import Reply, StandInServer, ToolUse
from tests import agent_programs
from tests.endings import comes_to_pass

_PASSED_ON = ("PATH", "HOME", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
MADE_UP = "made-up-for-tests"


@dataclass(frozen=True, kw_only=True)
class AgentFactory:
    """How one agent is made for a test, and what it does in its own way.

    `make` gets the address of the stand-in server and the environment. `key` is the variable that counts as a login.
    `model` is one that the agent takes. `read` and `write` are the calls of its own tools on a file; None where it has
    none that can be scripted. `search` is one that looks for "text" in the files of a folder, for an agent that reads
    nothing outside its working directory. `plain_command` starts its program as a user would who takes no care, so
    that a trap is shown to be one; `address_variable` names the server, or URL in the command is its place. `as_sent`
    is how a prompt reaches the model; one that `repeats_prompt` says it on its output too, and loses the rest of that
    when it ends at once.
    """

    name: str
    make: Callable[[str, Mapping[str, str]], Agent]
    key: str
    model: str
    read: Callable[[Path], ToolUse] | None = None
    write: Callable[[Path, str], ToolUse] | None = None
    search: Callable[[Path], ToolUse] | None = None
    keeps_turns: bool = False
    keeps_budget: bool = False
    tells_cost: bool = False
    tells_session: bool = True
    tells_cut_off: bool = True
    tells_denials: bool = True
    as_sent: Callable[[str], str] = str
    repeats_prompt: bool = False
    plain_command: tuple[str, ...] = ()
    address_variable: str = ""
    plain_environment: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Stage:
    """An agent before a server that answers by a script, and the events of its calls.

    It is an agent itself, which keeps the failures that a caller tries again.
    """

    agent: Agent
    server: StandInServer
    events: list[AgentEvent] = field(default_factory=list)
    failures: list[AgentError] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.name, self.limits, self.check = self.agent.name, self.agent.limits, self.agent.check

    async def run(self, request: AgentRequest, emit: AgentEventSink) -> AgentResult:
        try:
            return await self.agent.run(request, emit)
        except AgentError as error:
            self.failures.append(error)
            raise

    async def ask(self, asked: AgentRequest) -> AgentResult:
        """One attempt, its answer checked against the schema as the caller does."""
        result = await self.agent.run(asked, self.events.append)
        return result if asked.output_schema is None else check_output(result, asked.output_schema)

    def answer(self, asked: AgentRequest) -> AgentResult:
        """The same in an event loop of its own."""
        return asyncio.run(self.ask(asked))

    def sent(self, text: str) -> bool:
        """Whether a text stands in anything that the server received."""
        return any(request.mentions(text) for request in self.server.requests)

    @property
    def calls(self) -> int:
        """How many requests the server received that were not of the program's own."""
        return self.server.count(auxiliary=False)


@contextlib.contextmanager
def on_stage(factory: AgentFactory, *replies: Reply, logged_in: bool = True) -> Iterator[Stage]:
    """The agent and its server, for the length of a block."""
    with StandInServer(replies) as server:
        yield Stage(factory.make(server.url, environment(factory, logged_in=logged_in)), server)


def environment(factory: AgentFactory, *, logged_in: bool = True) -> dict[str, str]:
    """What an agent may take variables from: the guarded places and the dead proxy of the test, and made-up keys."""
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    # Node.js comes with the development tools.
    passed["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), passed["PATH"]))
    return {**passed, **({factory.key: MADE_UP} if logged_in else {})}


def by_name(name: str) -> AgentFactory:
    """An agent of the suite."""
    return next(factory for factory in AGENTS if factory.name == name)


def asked_for(work: Path, prompt: str = "Say hello.", **fields: Any) -> AgentRequest:
    """A request with a time limit that fits a test."""
    return AgentRequest(**{"prompt": prompt, "working_dir": work, "timeout_seconds": 55.0, **fields})


def assert_nothing_runs_in(folder: Path) -> None:
    """Fail unless every process whose working directory is in a folder ends."""
    comes_to_pass(lambda: not _running_in(folder))
    assert _running_in(folder) == []


def _running_in(folder: Path) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        # It may end, or not be ours, at any moment.
        with contextlib.suppress(OSError):
            if (process / "cwd").readlink().is_relative_to(folder):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
    return found


def _claude_factory(kind: type[ClaudeCliAgent | AgentSdkAgent]) -> AgentFactory:
    return AgentFactory(
        name=kind.name,
        make=lambda url, source: kind(str(agent_programs.find("claude")), source, base_url=url),
        key="ANTHROPIC_API_KEY",
        model="claude-haiku-4-5",
        read=lambda file: ToolUse("Read", {"file_path": str(file)}),
        write=lambda file, text: ToolUse("Write", {"file_path": str(file), "content": text}),
        search=lambda folder: ToolUse("Grep", {"pattern": "text", "path": str(folder), "output_mode": "content"}),
        keeps_turns=True,
        keeps_budget=True,
        tells_cost=True,
        plain_command=("claude", "-p", "Say hello."),
        address_variable="ANTHROPIC_BASE_URL",
    )


def _api_factory() -> AgentFactory:
    return AgentFactory(
        name="api",
        make=lambda url, source: ApiAgent("anthropic:claude-stand-in", base_url=url, environment=source),
        key="ANTHROPIC_API_KEY",
        model="claude-stand-in",
        tells_session=False,
    )


def _codex_command(command: str) -> ToolUse:
    """A call of the tool by which its default model runs a command: a script in which other tools are functions."""
    return ToolUse("exec", f"text(JSON.stringify(await tools.exec_command({{cmd: {json.dumps(command)}}})))")


def _codex_factory() -> AgentFactory:
    return AgentFactory(
        name="codex",
        make=lambda url, source: CodexAgent(str(agent_programs.find("codex")), source, base_url=f"{url}/v1"),
        key="OPENAI_API_KEY",
        model="gpt-6.1-sol",
        read=lambda file: _codex_command(f"cat '{file}'"),
        write=lambda file, text: _codex_command(f"printf %s '{text}' > '{file}'"),
        tells_denials=False,
        plain_command=("codex", "exec", "-s", "workspace-write", "-c", 'openai_base_url="URL/v1"', "Say hello."),
    )


def _gemini_factory() -> AgentFactory:
    return AgentFactory(
        name="gemini",
        make=lambda url, source: GeminiAgent(str(agent_programs.find("gemini")), source, base_url=url),
        key="GEMINI_API_KEY",
        model="gemini-2.5-flash",
        read=lambda file: ToolUse("read_file", {"file_path": str(file)}),
        write=lambda file, text: ToolUse("write_file", {"file_path": str(file), "content": text}),
        search=lambda folder: ToolUse("grep_search", {"pattern": "text", "dir_path": str(folder)}),
        keeps_turns=True,
        tells_cut_off=False,
        as_sent=lambda prompt: prompt.replace("@", f"@{JOINER}"),
        repeats_prompt=True,
        plain_command=("gemini", "-p", "Say hello."),
        address_variable="GOOGLE_GEMINI_BASE_URL",
        plain_environment={"GEMINI_CLI_TRUST_WORKSPACE": "true"},
    )


AGENTS = [
    _claude_factory(ClaudeCliAgent),
    _claude_factory(AgentSdkAgent),
    _codex_factory(),
    _gemini_factory(),
    _api_factory(),
]


def every_agent(
    *, able: Callable[[AgentFactory], object] = bool, cases: Sequence[tuple[Any, ...]] = ((),), at_once: int = 2
) -> Callable[[Callable[..., None]], Callable[[Path], None]]:
    """Make a test of a check: with every agent that is able, in every case, in a folder of its own, a few at once.

    The test fails with every agent and case in which the check fails.
    """

    def decorate(check: Callable[..., None]) -> Callable[[Path], None]:
        def test(tmp_path: Path) -> None:
            def failure(run: tuple[int, tuple[AgentFactory, tuple[Any, ...]]]) -> Exception | None:
                number, (factory, case) = run
                work = tmp_path / str(number) / "work"
                work.mkdir(parents=True)
                try:
                    check(factory, work, *case)
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - told with those of the others
                    error.add_note(f"in the check of {factory.name} {case}")
                    return error if isinstance(error, Exception) else AssertionError(str(error))
                return None

            runs = enumerate(itertools.product(filter(able, AGENTS), cases))
            with ThreadPoolExecutor(at_once) as pool:
                errors = [error for error in pool.map(failure, runs) if error is not None]
            if errors:
                raise ExceptionGroup(check.__name__, errors)

        test.__name__ = test.__qualname__ = check.__name__
        return test

    return decorate
