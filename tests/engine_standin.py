"""A model server that plays the agents of a pipeline for the real claude program, stage by stage and call by call."""

import json
import os
import re
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeAlias

from codeloupe.testing import Hang, Json, RecordedRequest, Reply, StandInServer, Text, ToolUse
from tests.agent_programs import find
from tests.program import PROGRAM

KEY = "made-up-" + "for-tests"
WORKSPACE = re.compile(r"Your working directory: (\S+)")
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
            if _is_going_on(request):
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


def _is_going_on(request: RecordedRequest) -> bool:
    """Whether a request brings the result of a tool."""
    return '"tool_result"' in json.dumps(request.body)


def critique(verdict: str, score: int, *blockers: str) -> Json:
    """A critic's answer."""
    return Json({"summary": "so", "verdict": verdict, "score": score, "blockers": list(blockers), "fixes": []})


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


class Running:
    """The installed program with a pipeline under way; it is gone at the end of the block, whatever happens."""

    def __init__(
        self, server: StandInServer, folder: Path, *words: str, command: Sequence[str] = (str(PROGRAM),)
    ) -> None:
        # Who is killed cannot tidy up.
        temporary = folder / "tmp"
        temporary.mkdir(exist_ok=True, parents=True)
        self._path = folder / "stderr.log"
        self._log = self._path.open("w", encoding="utf-8")
        self.child = subprocess.Popen(
            (*command, "pipeline", *words, "--agent", "claude_cli", "--json"),
            cwd=folder,
            env={**os.environ, **environment(server), "TMPDIR": str(temporary)},
            stdout=subprocess.PIPE,
            stderr=self._log,
            stdin=subprocess.DEVNULL,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.child.kill()
        self.child.wait()
        if self.child.stdout is not None:
            self.child.stdout.close()
        self._log.close()

    def told(self) -> str:
        return self._path.read_text(encoding="utf-8")

    def ended(self) -> tuple[int, Any]:
        """Its exit code and its document; fails the test when it does not end in time."""
        stdout, _ = self.child.communicate(timeout=_END_SECONDS)
        assert "Traceback" not in self.told(), self.told()
        return self.child.returncode, json.loads(stdout) if stdout.strip() else None


def until(condition: Callable[[], bool], *, seconds: float = 40.0) -> None:
    """Wait for something to come to pass."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass in time"
        time.sleep(0.02)
