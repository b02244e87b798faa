"""A model server that plays the agents of a pipeline for the real claude program, stage by stage and call by call."""

import json
import os
import re
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from codeloupe.testing import Hang, RecordedRequest, Reply, StandInServer, Text, ToolUse
from tests.agent_programs import find

KEY = "made-up-" + "for-tests"
# In the instructions that the claude program adds.
WORKSPACE = re.compile(r"Primary working directory: (\S+)")
_STEP = re.compile(r"Do the work of ([\w-]+)\.")
# A run starts the claude program several times, each of which takes long where many tests run at once.
_END_SECONDS = 120.0


@dataclass(frozen=True)
class Writes:
    """A call in which the agent writes a file and then says that it is done."""

    name: str
    text: str


Deed: TypeAlias = "Writes | Reply"
Child = subprocess.Popen[str]


@dataclass
class Stage:
    """What the model does for a pipeline: for each stage, or `critic of STAGE`, one deed for each call of its agent.

    `asked` notes every call when its first request comes; a call that is held does not end.
    """

    deeds: Mapping[str, Sequence[Deed]]
    asked: list[str] = field(default_factory=list)
    held: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def reply(self, request: RecordedRequest) -> Reply:
        """The answer to one request, found by what stands in it."""
        name = self._name(request)
        with self.lock:
            if '"tool_result"' in json.dumps(request.body):
                return Text("It is done.")
            self.asked.append(name)
            deeds = self.deeds[name]
            deed = deeds[min(self.asked.count(name), len(deeds)) - 1]
        if f"{name} {self.asked.count(name)}" in self.held:
            return Hang()
        if not isinstance(deed, Writes):
            return deed
        workspace = next(found[1] for text in request.strings() if (found := WORKSPACE.search(text)))
        return ToolUse("Write", {"file_path": f"{workspace}/{deed.name}", "content": deed.text})

    def counts(self) -> Counter[str]:
        """How often each agent was asked."""
        with self.lock:
            return Counter(self.asked)

    @staticmethod
    def _name(request: RecordedRequest) -> str:
        stage = next(found[1] for text in request.strings() if (found := _STEP.search(text)))
        return f"critic of {stage}" if request.mentions("You are the critic of one stage") else stage


def environment(server: StandInServer) -> dict[str, str]:
    """What the program needs to find the stand-in."""
    return {
        "ANTHROPIC_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": server.url,
        "CODELOUPE_CLAUDE_PATH": str(find("claude")),
    }


@contextmanager
def background(
    *words: str, temporary: Path, variables: Mapping[str, str] | None = None, **more: Any
) -> Iterator[Child]:
    """A program in the background; it is gone at the end, whatever happens. Who is killed cannot tidy up."""
    temporary.mkdir(exist_ok=True, parents=True)
    around = {**os.environ, **(variables or {}), "TMPDIR": str(temporary)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=around, **more) as child:
        try:
            yield child
        finally:
            child.kill()


@dataclass
class Running:
    """A program under way, and what it has told so far."""

    child: Child
    log: Path

    def told(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def ended(self) -> tuple[int, Any]:
        """Its exit code and its document; fails the test when it does not end in time."""
        stdout, _ = self.child.communicate(timeout=_END_SECONDS)
        assert "Traceback" not in self.told(), self.told()
        return self.child.returncode, json.loads(stdout) if stdout.strip() else None


@contextmanager
def at_work(folder: Path, *words: str, variables: Mapping[str, str]) -> Iterator[Running]:
    """A program at work in a folder, with its log beside that; it is gone at the end, whatever happens."""
    folder.mkdir(exist_ok=True)
    log, temporary = folder.with_suffix(".log"), folder.with_suffix(".tmp")
    more: dict[str, Any] = {"cwd": folder, "stdin": subprocess.DEVNULL}
    with (
        log.open("w", encoding="utf-8") as stderr,
        background(*words, temporary=temporary, variables=variables, stderr=stderr, **more) as child,
    ):
        yield Running(child, log)
