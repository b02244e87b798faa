"""Requests, results and failures, recorded runs of the real programs, and a program in the place of a vendor's."""

import json
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from codeloupe.agents.calls.program import Message, ProgramAgent
from codeloupe.agents.claude.cli import ClaudeCliAgent, ClaudeReading
from codeloupe.agents.codex.agent import CodexAgent, CodexReading
from codeloupe.agents.gemini.agent import GeminiAgent
from codeloupe.errors import Overloaded, RateLimited
from codeloupe.model.agent import AgentEvent, AgentRequest, AgentResult
from codeloupe.system.process import Completed


def request(prompt: str = "Say hello.", **fields: Any) -> AgentRequest:
    return AgentRequest(**{"prompt": prompt, "working_dir": Path(), **fields})


def result(output: str = "hello", **fields: Any) -> AgentResult:
    return AgentResult(**{"success": True, "output": output, "agent": "scripted", "total_cost_usd": 0.0, **fields})


def rate_limited(retry_after_seconds: float | None = None, **fields: Any) -> RateLimited:
    return RateLimited("too many requests", agent="scripted", retry_after_seconds=retry_after_seconds, **fields)


def overloaded() -> Overloaded:
    return Overloaded("the service has no room", agent="scripted")


def most_in(starts: list[float], seconds: float) -> int:
    """The most starts in any time of that length."""
    ordered, first, most = sorted(starts), 0, 0
    for position, start in enumerate(ordered):
        while start - ordered[first] >= seconds:
            first += 1
        most = max(most, position - first + 1)
    return most


def made_up_token(letter: str = "a") -> str:
    """What looks like a key; put together here, so that none stands in a file."""
    return "-".join(("sk", "ant", letter * 24))


FOLDER = Path(__file__).parents[2] / "captures"
AGENTS: dict[str, type[ProgramAgent]] = {"claude": ClaudeCliAgent, "codex": CodexAgent, "gemini": GeminiAgent}
EPOCH_NOW = 1_700_000_000.0
NOW = datetime(2026, 11, 15, 14, 30, 20)  # noqa: DTZ001 - local time, as the program tells it


def unheard(_event: AgentEvent) -> None:
    """For a call whose events nobody wants to hear."""


@dataclass(frozen=True)
class Capture:
    """One recorded run of a program."""

    agent: str
    exit_code: int
    stdout: str
    stderr: str = ""

    @property
    def lines(self) -> list[str]:
        """The lines of stdout, with their ends."""
        return self.stdout.splitlines(keepends=True)

    @property
    def result(self) -> dict[str, Any]:
        """The last message."""
        found = json.loads(self.lines[-1])
        assert isinstance(found, dict)
        return found

    def replayed(self, request: AgentRequest | None = None, events: list[AgentEvent] | None = None) -> AgentResult:
        """Read as the agent reads a run; raises what it raises."""
        request = request or AgentRequest(prompt="x", working_dir=Path())
        reading = AGENTS[self.agent].reading(
            AGENTS[self.agent].program, request, unheard if events is None else events.append
        )
        for line in self.stdout.encode().splitlines():
            reading.take_line(line)
        reading.raw_output = self.stdout
        completed = Completed(self.exit_code, self.stdout.encode(), self.stderr, 1.5)
        reading.note_end(completed)
        if isinstance(reading, ClaudeReading):
            return reading.answer(completed, now=EPOCH_NOW)
        return reading.answer(completed, now=NOW) if isinstance(reading, CodexReading) else reading.answer(completed)


def claude_run(*messages: dict[str, Any], exit_code: int = 0) -> Capture:
    """A run of claude that prints these messages."""
    return Capture("claude", exit_code, "\n".join(json.dumps(Message(message)) for message in messages))


def names(agent: str) -> set[str]:
    return {file.stem for file in (FOLDER / agent).glob("*.json")}


def capture(agent: str, name: str) -> Capture:
    found = json.loads((FOLDER / agent / f"{name}.json").read_text(encoding="utf-8"))
    return Capture(agent, found["exit_code"], found["stdout"], found["stderr"])


_PROGRAM = """\
#!@python@ -IS
import json, os, sys, time
def text_of(path):
    try:
        return open(path).read()
    except OSError:
        return None
files = [value for one in sys.argv for value in one.split('"') + one.split("=") if value.startswith("/")]
files += [os.environ.get("GEMINI_SYSTEM_MD", "")]
files += [os.environ.get("CODEX_HOME", "") + "/config.toml", os.environ["HOME"] + "/.gemini/settings.json"]
said = {"argv": sys.argv[1:], "environment": dict(os.environ), "cwd": os.getcwd()}
said["leads"] = os.getsid(0) == os.getpid()
# The Agent SDK speaks with its program, which then has no end of input.
said["stdin"] = "" if "--input-format" in sys.argv else sys.stdin.read()
said["files"] = {os.path.basename(path): text for path in files if (text := text_of(path)) is not None}
found = [os.path.join(place, one) for place, _, files in os.walk(os.environ["HOME"]) for one in files]
said["links"] = {os.path.basename(one): os.readlink(one) for one in found if os.path.islink(one)}
with open(@folder@ + "/started.json", "w") as file:
    json.dump(said, file)
@body@
"""


class FakeProgram:
    """The program at `path`. `body` is Python that runs after it wrote down how it was started."""

    def __init__(self, folder: Path, body: str = "", *, name: str = "codex", version: str = "0.99.0") -> None:
        self._folder = folder
        self.path = str(folder / name)
        # A first line has its limit of length, so the interpreter is reached over a short way.
        (folder / "python").symlink_to(sys.executable)
        text = _PROGRAM.replace("@python@", str(folder / "python")).replace("@folder@", repr(str(folder)))
        Path(self.path).write_text(text.replace("@body@", body), encoding="utf-8")
        Path(self.path).chmod(0o755)
        package = {"name": "@google/gemini-cli", "version": version}
        (folder / "package.json").write_text(json.dumps(package), encoding="utf-8")

    @property
    def was_started(self) -> bool:
        """Whether it ran at all."""
        return (self._folder / "started.json").exists()

    @property
    def started(self) -> dict[str, Any]:
        """How it was started."""
        found = json.loads((self._folder / "started.json").read_text(encoding="utf-8"))
        assert isinstance(found, dict)
        return found


def printing(text: str, then: str = "") -> str:
    """A program body that prints a text and goes on."""
    return f"os.write(1, {text.encode()!r})\n{then}"
