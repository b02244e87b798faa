"""What a review with agents costs beside inference: prompt tokens, wall time, CPU. The model answers at once."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.changes import git
from bench.lifelike import LARGE, SMALL, branch_diff, make_lifelike_change
from bench.own_cpu import WatchedAgent
from bench.prompt_tokens import (
    JUDGED,
    MOST_LARGE_RATIO,
    MOST_SMALL_RATIO,
    lines_not_sent,
    times_sent,
    tokens_in,
    tokens_sent,
)
from bench.table import BenchRow
from bench.timing import best_seconds, quiet
from codeloupe.config.schema import Settings
from codeloupe.git.command import PATCH_FLAGS
from codeloupe.git.diff import parse_diff
from codeloupe.model.scope import DefaultScope
from codeloupe.planning.prepare import prepare
from codeloupe.testing import Json, RecordedRequest, Reply, StandInServer
from tests.agent_programs import find

# A provider, a model of it, and what its address ends with.
API_MODELS = (("anthropic", "claude-opus-4-8", ""), ("openai", "gpt-5", "/v1"))
_MOST_RATIOS = {"small": MOST_SMALL_RATIO, "large": MOST_LARGE_RATIO}
_MOST_DIFF_SECONDS = 0.5
_MOST_WALL_SECONDS = 3.0
_MOST_CPU_SECONDS = {"small": 0.8, "large": 2.0}
_TIMES = {"small": 3, "large": 1}
_WALL_TIMES = 5
_FOUND = 1
_MANY_FILES = 50_000
_MOST_LARGE_TREE = 2.0
_WAYS = {
    "offline": ("offline", "main...HEAD"),
    "claude_cli": ("claude_cli", "main...HEAD"),
    "claude_cli, untrusted": ("claude_cli", "main...HEAD", "--untrusted"),
}


@dataclass(frozen=True, slots=True)
class _Change:
    name: str
    root: Path
    diff: bytes

    def new_home(self) -> Path:
        """A home without any history: what was reviewed before must not make the next review cheaper."""
        return Path(tempfile.mkdtemp(dir=self.root.parent))


def rows() -> Iterator[BenchRow]:
    """The small and the large change of `bench.lifelike`, by the `api` agent and by the claude program."""
    with tempfile.TemporaryDirectory() as directory:
        changes = []
        for name, size in (("small", SMALL), ("large", LARGE)):
            root = Path(directory) / name
            make_lifelike_change(root, size)
            changes.append(_Change(name, root, branch_diff(root)))
        small = changes[0]
        for change in changes:
            yield from _tokens(change)
        yield from _reading(small)
        yield from _wall(small)
        for change in changes:
            yield _own_cpu(change)
        yield from _large_tree(Path(directory) / "many")


def _tokens(change: _Change) -> Iterator[BenchRow]:
    in_diff = tokens_in(change.diff.decode())
    for provider, model, path in API_MODELS:
        with StandInServer(reply=_nothing) as server:
            variables = {
                "CODELOUPE_API_MODEL": f"{provider}:{model}",
                "CODELOUPE_API_BASE_URL": f"{server.url}{path}",
                f"{provider.upper()}_API_KEY": "sk-stand-in",
            }
            _review(change, "api", variables)
            requests = server.requests
        hunks = times_sent(branch_diff(change.root, *PATCH_FLAGS), requests)
        if set(hunks.values()) != {1} or lines_not_sent(change.diff, requests):
            raise RuntimeError("not every hunk was sent once")
        sent = tokens_sent(requests)
        title = f"prompt tokens of the {change.name} change, {provider} / its diff"
        ratios = {name: sent[name] / in_diff[name] for name in JUDGED}
        worst = max(ratios, key=lambda name: ratios[name])
        detail = f"{sent[worst]:,} by {worst} for a diff of {in_diff[worst]:,}, in {len(requests)} call(s)"
        yield BenchRow(title, detail, ratios[worst], _MOST_RATIOS[change.name])


def _reading(change: _Change) -> Iterator[BenchRow]:
    for name, work in (
        ("git diff of an ordinary change", lambda: branch_diff(change.root)),
        ("all that a review asks of git about it", lambda: asyncio.run(_take_in(change.root))),
    ):
        seconds = best_seconds(work, times=_WALL_TIMES)
        yield BenchRow(f"{name} / 0.5 s", f"{seconds * 1000:.0f} ms", seconds / _MOST_DIFF_SECONDS, 1.0)


async def _take_in(root: Path) -> None:
    async with prepare(DefaultScope(), root, Settings(), with_tree=True, with_guidance=True):
        pass


def _wall(change: _Change) -> Iterator[BenchRow]:
    with StandInServer(reply=_nothing) as server:
        variables = _for_claude(server, str(find("claude")))
        seconds = best_seconds(lambda: _review(change, "claude_cli", variables), times=_WALL_TIMES)
    detail = f"{seconds:.2f} s, start and the claude program included"
    yield BenchRow("review of an ordinary change without inference / 3 s", detail, seconds / _MOST_WALL_SECONDS, 1.0)
    with StandInServer(reply=_one_finding(change)) as server:
        variables = _for_claude(server, str(find("claude")))
        seconds = best_seconds(
            lambda: _review(change, "claude_cli", variables, "--verify", expected=(_FOUND,)), times=_WALL_TIMES
        )
    name = "the same with a finding that is verified / 3 s"
    yield BenchRow(name, f"{seconds:.2f} s, two calls one after the other", seconds / _MOST_WALL_SECONDS, None)


def _own_cpu(change: _Change) -> BenchRow:
    agent = WatchedAgent(str(find("claude")), change.new_home())
    with StandInServer(reply=_nothing) as server:
        variables = _for_claude(server, str(agent.path))
        command = _command("claude_cli", "--no-verify")
        runs = [
            agent.run(command, cwd=change.root, environment=variables | _surroundings(change.new_home()))
            for _ in range(_TIMES[change.name])
        ]
    spent = min(runs)
    most = _MOST_CPU_SECONDS[change.name]
    detail = f"{spent.own_seconds:.2f} s beside {spent.agent_seconds:.1f} s of {spent.agent_calls} claude calls"
    name = f"own CPU of reviewing the {change.name} change / {most:g} s"
    return BenchRow(name, detail, spent.own_seconds / most, 1.0)


def _large_tree(root: Path) -> Iterator[BenchRow]:
    """One changed file of very many: by CPU, since that is all that differs, without what the claude program takes."""
    root.mkdir()
    git(root, "init", "--quiet", "--template=", "--initial-branch=main")
    git(root, "fast-import", "--quiet", stdin=b"".join(_many_files()))
    git(root, "checkout", "--quiet", "work")
    change = _Change("large tree", root, b"")
    spent: dict[str, float] = {}
    with StandInServer(reply=_nothing) as server:
        for name, words in _WAYS.items():
            agent = WatchedAgent(str(find("claude")), change.new_home())
            variables = _for_claude(server, str(agent.path)) | _surroundings(change.new_home())
            asks = name != "offline"
            runs = (
                agent.run(_command(*words), cwd=root, environment=variables, must_ask=asks)
                for _ in range(_TIMES["small"])
            )
            spent[name] = min(runs).own_seconds
    offline = spent.pop("offline")
    for name, seconds in spent.items():
        title = f"review of one file of {_MANY_FILES:,}, {name} / offline"
        yield BenchRow(title, f"{seconds:.2f} s / {offline:.2f} s of own CPU", seconds / offline, _MOST_LARGE_TREE)


def _many_files() -> Iterator[bytes]:
    """The files for `git fast-import`: all on main, and one changed on the branch work."""

    def commit(branch: str, time: int) -> bytes:
        return b"commit refs/heads/%s\ncommitter a <a@b.example> %d +0000\ndata 1\nx\n" % (branch.encode(), time)

    def file(number: int, content: bytes) -> bytes:
        name = b"p%03d/m%02d/f%d.py" % (number // 500, number // 25 % 20, number)
        return b"M 100644 inline %s\ndata %d\n%s\n" % (name, len(content), content)

    yield commit("main", 1_700_000_000)
    for number in range(_MANY_FILES):
        yield file(number, b"def f(x):\n    return x + %d\n" % number)
    yield commit("work", 1_700_000_100) + b"from refs/heads/main\n" + file(7, b"def f(x):\n    return x * 7\n")


def _review(
    change: _Change, reviewer: str, variables: Mapping[str, str], *flags: str, expected: Sequence[int] = (0,)
) -> None:
    all_variables = {**variables, **_surroundings(change.new_home())}
    env = ["env", "-i", *(f"{name}={value}" for name, value in all_variables.items())]
    quiet([*env, *_command(reviewer, *(flags or ("--no-verify",)))], cwd=change.root, expected=expected)


def _nothing(_request: RecordedRequest) -> Reply:
    return Json({"findings": []})


def _one_finding(change: _Change) -> Callable[[RecordedRequest], Reply]:
    """Answers with a grave finding in the first new file, and confirms it when asked."""
    file = next(file for file in parse_diff(change.diff) if file.old_path is None)
    line = next(line for line in file.hunks[0].lines() if line.kind == "added" and line.text.strip())
    place = {"file": file.path, "line": line.new_number, "quote": line.text.decode()}
    words = {"title": "It is wrong", "body": "It fails.", "category": "correctness", "severity": "high"}

    def reply(request: RecordedRequest) -> Reply:
        if request.mentions("Try to refute the claim"):
            return Json({"proofs": [{"claim": 1, "reason": "It can be followed.", "proof": "confirmed"}]})
        return Json({"findings": [place | words]})

    return reply


def _command(reviewer: str, *flags: str) -> list[str]:
    program = str(Path(sys.executable).with_name("codeloupe"))
    return [program, "review", "--reviewer", reviewer, "--fresh", "-q", *flags]


def _surroundings(home: Path) -> dict[str, str]:
    nowhere = {"HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1,localhost"}
    return {"PATH": os.environ["PATH"], "HOME": str(home), **nowhere}


def _for_claude(server: StandInServer, program: str) -> dict[str, str]:
    return {
        "ANTHROPIC_API_KEY": "sk-stand-in",
        "ANTHROPIC_BASE_URL": server.url,
        "CODELOUPE_CLAUDE_PATH": program,
    }
