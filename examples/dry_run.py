"""Runs the examples without an agent, without a network and without cost, to see what a run looks like.

    python examples/dry_run.py                    all three
    python examples/dry_run.py change             one of them
    python examples/dry_run.py change --keep DIR  and keep the run's files in DIR

The agent is the scripted one of `codeloupe.testing`; what it says and writes stands in `dry_run_answers.py`. All else
is real: the pipeline's file, the workspaces, the tests that the command gate runs, the offline review, the state on
disk.
"""  # noqa: INP001 - a script

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from dry_run_answers import ANSWERS, INPUTS, REPOSITORY

from codeloupe import AgentRequest, Settings
from codeloupe.model.pipeline import PipelineEvent, RunRecord, StageState
from codeloupe.pipelines.run import Pipeline, RunOptions, open_run_store
from codeloupe.testing import AgentStep, Json, ScriptedAgent, Text

EXAMPLES = Path(__file__).resolve().parent


def scripted(example: str) -> ScriptedAgent:
    """An agent that gives the made-up answers of an example."""
    asked: Counter[str] = Counter()

    def answer(request: AgentRequest) -> AgentStep:
        stage = request.labels["stage"]
        role = f"critic of {stage}" if "gate" in request.labels else stage
        answers = ANSWERS[example][role]
        chosen = answers[min(asked[role], len(answers) - 1)]
        asked[role] += 1
        for name, text in chosen.files.items():
            file = request.working_dir / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        return Text(chosen.text) if chosen.value is None else Json(chosen.value)

    return ScriptedAgent([answer])


async def run(example: str, *, repository: Path, state: Path) -> RunRecord:
    """Run an example to its end, telling each step."""
    pipeline = Pipeline.load(EXAMPLES / example / "pipeline.yaml")
    options = RunOptions(
        repo=repository,
        settings=Settings(reviewer_type="offline"),
        agents={"scripted": scripted(example)},
        agent="scripted",
        state_directory=state,
        watch=tell,
    )
    return await pipeline.run(INPUTS[example], options=options)


def tell(_run: RunRecord, event: PipelineEvent) -> None:
    """Print one event of a run, but for states that another event has told already."""
    if event.facts.get("state") in ("running", "gating", "reworking"):
        return
    about = {
        name: event.facts[name] for name in ("attempt", "gate", "verdict", "score", "state") if event.facts.get(name)
    }
    facts = " ".join(f"{name}={value}" for name, value in about.items())
    say(f"  {event.stage or '-':<10} {event.kind:<17} {facts:<45} {event.message}".rstrip())


def say(line: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{line}\n")


def make_repository(folder: Path) -> Path:
    """A small git repository for the examples that work on one."""
    for name, text in REPOSITORY.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    author = ("-c", "user.name=Ada Example", "-c", "user.email=ada@example.com")
    for words in (("init", "--quiet"), ("add", "--all"), (*author, "commit", "--quiet", "-m", "The shop")):
        subprocess.run(("git", "-C", str(folder), *words), check=True)  # noqa: S603, S607 - git, in a folder of ours
    return folder


def dry_run(example: str, folder: Path, *, keep: bool) -> RunRecord:
    """Run an example in a folder and tell how it ended, and where its files are if they are kept."""
    say(f"{example}: {EXAMPLES / example / 'pipeline.yaml'}")
    state = folder / "state"
    # Whatever else is kept between runs stays in the folder too.
    os.environ["CODELOUPE_HOME"] = str(state)
    record = asyncio.run(run(example, repository=make_repository(folder / "repository"), state=state))
    directory = open_run_store(state).directory(record.run_id)
    say(f"  {record.state.value}; what it cost: ${record.usage.cost_usd:.2f}")
    for stage in record.stages:
        scores = [f"{attempt.number}: {attempt.score}" for attempt in stage.attempts if attempt.score is not None]
        more = f" (scores by attempt: {', '.join(scores)})" if scores else ""
        say(f"  {stage.name}: {stage.state.value}, attempt {stage.chosen} of {len(stage.attempts)}{more}")
    if keep:
        say(f"  result: {directory / 'result'}\n  patch:  {directory / 'result.patch'}")
    return record


def main() -> int:
    """Run what was asked for; 1 when an example did not complete."""
    parser = argparse.ArgumentParser(description="Run the example pipelines offline, with made-up answers.")
    parser.add_argument("examples", nargs="*", metavar="EXAMPLE", help=f"{', '.join(ANSWERS)} (default: all)")
    parser.add_argument("--keep", metavar="DIR", type=Path, help="keep the run's files here")
    words = parser.parse_args()
    for name in words.examples:
        if name not in ANSWERS:
            parser.error(f"there is no example {name}; there are {', '.join(ANSWERS)}")
    completed = True
    for example in words.examples or ANSWERS:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) if words.keep is None else words.keep.resolve() / example
            completed &= dry_run(example, folder, keep=bool(words.keep)).state is StageState.COMPLETED
    if words.keep is None:
        say("Nothing was kept; with --keep DIR you can look at the files.")
    return 0 if completed else 1


if __name__ == "__main__":
    sys.exit(main())
