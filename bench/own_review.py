"""One review in a process of its own, with an agent that answers at once: all that it costs is codeloupe's own cost.

The agent finds something in every unit, so that anchoring, merging and keeping grow with the change too.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.peak_memory import peak_bytes
from codeloupe.config.schema import Settings
from codeloupe.engine import review
from codeloupe.model.agent import AgentLimits, AgentRequest, AgentResult, Availability
from codeloupe.model.events import Event
from codeloupe.model.ports import AgentEventSink
from codeloupe.model.review import Review, ReviewerInfo
from codeloupe.reviewers.choose import ChosenReviewer

_BYTES_PER_TOKEN = 3.5


@dataclass(frozen=True, slots=True)
class OwnReview:
    """What one review took: CPU with that of git and of all else that it starts, and the peak of its own memory."""

    wall_seconds: float
    cpu_seconds: float
    peak_bytes: int
    calls: int
    prompt_tokens: int
    findings: int


def measure_review(root: Path) -> OwnReview:
    """Review the branch of a repository in a new process with a home of its own. RuntimeError unless all went well."""
    with tempfile.TemporaryDirectory() as home:
        completed = subprocess.run(
            [sys.executable, "-m", "bench.own_review", str(root)],
            cwd=Path(__file__).resolve().parent.parent,
            env={"PATH": os.environ["PATH"], "HOME": home, "CODELOUPE_HOME": home},
            capture_output=True,
            check=False,
        )
    if completed.returncode:
        raise RuntimeError(f"the review ended with {completed.returncode}: {completed.stderr.decode()[-2000:]}")
    return OwnReview(**json.loads(completed.stdout))


class _QuickAgent:
    """Finds the first added line of each prompt wrong, and remembers nothing but numbers."""

    name = "quick"
    limits = AgentLimits(schema=True)

    def __init__(self) -> None:
        self.calls = 0
        self.prompt_bytes = 0

    async def check(self) -> Availability:
        """It is always there."""
        return Availability(found=True, version="1", logged_in=True, default_model=self.name)

    async def run(self, request: AgentRequest, emit: AgentEventSink) -> AgentResult:
        """Answer at once."""
        del emit
        self.calls += 1
        texts = (request.prompt, request.system_prompt or "", request.append_system_prompt or "")
        self.prompt_bytes += sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
        answer = {"findings": [_finding(request.prompt, self.calls)]}
        return AgentResult(success=True, output=json.dumps(answer), agent=self.name, structured=answer, num_turns=1)


def _finding(prompt: str, number: int) -> dict[str, object]:
    """A finding at an added line of the last file of a prompt, or at a deleted one where there is none."""
    first, _, rest = prompt.rpartition("\n=== ")[2].partition("\n")
    changed = (line for line in rest.split("\n") if line[:1] in ("+", "-") and line[1:].strip())
    return {
        "file": first.partition(" (")[0],
        "line": 1,
        "quote": next(changed)[1:],
        "title": f"It is wrong in place {number}",
        "body": "It fails.",
        "category": "correctness",
        "severity": "low",
    }


async def _review(root: Path, agent: _QuickAgent) -> Review:
    seat = ChosenReviewer(ReviewerInfo(agent.name, "to measure"), (agent,))
    return await review(repo=root, settings=Settings(verify=False), reviewers=[seat], fresh=True)


def _ignore(_event: Event) -> None:
    """Take an event and do nothing with it."""


def _cpu_seconds() -> float:
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _measure_here(root: Path) -> OwnReview:
    agent = _QuickAgent()
    used, started = _cpu_seconds(), time.monotonic()
    review = asyncio.run(_review(root, agent))
    wall, cpu = time.monotonic() - started, _cpu_seconds() - used
    if not review.complete or review.errors or not review.findings:
        raise RuntimeError(f"it is not complete, or nothing was found: {review.summary} {review.errors[:3]}")
    return OwnReview(
        wall_seconds=wall,
        cpu_seconds=cpu,
        peak_bytes=peak_bytes(),
        calls=agent.calls,
        prompt_tokens=round(agent.prompt_bytes / _BYTES_PER_TOKEN),
        findings=len(review.findings),
    )


if __name__ == "__main__":
    print(json.dumps(asdict(_measure_here(Path(sys.argv[1])))))
