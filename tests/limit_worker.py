"""Processes that make agent calls under shared limits."""

import signal
import subprocess
import sys

# A worker: its arguments are the URL, the shared options, the prompt and the number of calls. It reports each call.
WORKER = """
import asyncio, sys
from pathlib import Path
from codeloupe.agents.calls.caller import AgentCaller, CallerOptions
from codeloupe.agents.calls.limiter import Timing
from codeloupe.agents.calls.shared import SharedCalls, SharedOptions
from codeloupe.errors import BudgetExhausted
from codeloupe.model.agent import AgentRequest, Priority
from codeloupe.store.limits import SharedLimits
from codeloupe.store.postgres import PostgresDatabase
from codeloupe.testing import Delay, Hang, ScriptedAgent, Text

def step(request):
    print("asked", flush=True)
    return Hang() if request.prompt == "hang" else Delay(0.05, Text("hello"))

async def main(url, options, prompt, calls):
    async def name_of(repo):
        return "r", "r"
    limits = SharedLimits(PostgresDatabase(url), lease_seconds=300.0)
    shared = SharedCalls(limits, options, timing=Timing(), priority=Priority.PERSON, name_of=name_of)
    caller = AgentCaller(CallerOptions(concurrency=10), shared=shared)
    request = AgentRequest(prompt=prompt, working_dir=Path(), timeout_seconds=120.0)
    agent = ScriptedAgent([step], cost_usd=1.0)
    ready = asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    print("ready", flush=True)
    await ready
    made = (caller.call(request, agent=agent, emit=lambda event: None) for _ in range(calls))
    for outcome in await asyncio.gather(*made, return_exceptions=True):
        if isinstance(outcome, BudgetExhausted):
            print("refused", flush=True)
        elif isinstance(outcome, BaseException):
            raise outcome
    print("done", flush=True)

asyncio.run(main(sys.argv[1], SharedOptions(**eval(sys.argv[2])), sys.argv[3], int(sys.argv[4])))
"""


class Worker:
    """A process that makes calls when `go` is called."""

    def __init__(self, url: str, prompt: str = "work", calls: int = 1, **options: object) -> None:
        words = (sys.executable, "-c", WORKER, url, repr(options), prompt, str(calls))
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def reads(self, word: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"{word}\n"

    def go(self) -> None:
        self.reads("ready")
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def end(self, how: signal.Signals | None = None) -> str:
        if how is not None:
            self.process.send_signal(how)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        # Not `communicate`, which does not know the lines that an earlier `readline` has buffered.
        rest = self.process.stdout.read()
        self.process.stdout.close()
        self.process.wait(timeout=120)
        return rest
