"""A run that is stopped by an error of its own, such as a disk that is full."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from codeloupe.cli import pipeline_carrying
from codeloupe.cli.main import main
from codeloupe.errors import StoreError
from codeloupe.model.pipeline import PipelineEvent, RunRecord
from codeloupe.pipelines import RunOptions
from codeloupe.store.run_store import DirectoryRunStore
from codeloupe.testing import ScriptedAgent, Text


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file whose agent is asked once, and then nothing more can be written."""
    is_full: list[bool] = []

    def answer(_request: object) -> Text:
        is_full.append(True)
        return Text("An answer.")

    save = DirectoryRunStore.save

    def saved(self: DirectoryRunStore, run: RunRecord, *events: PipelineEvent) -> None:
        if is_full:
            raise StoreError("cannot write the run: No space left on device", hint="make room")
        save(self, run, *events)

    made = partial(RunOptions, agents={"scripted": ScriptedAgent([answer])})
    monkeypatch.setattr(pipeline_carrying, "RunOptions", lambda **given: made(**{**given, "agent": "scripted"}))
    monkeypatch.setattr(DirectoryRunStore, "save", saved)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.md").write_text("Do the work of one.")
    (tmp_path / "p.yaml").write_text("name: p\nstages: [{name: one, step: one.md, writes: false}]\n")
    return "p.yaml"


def test_a_program_gets_the_run_as_it_stands_with_the_exit_code_of_the_error(
    pipeline: str, capsys: pytest.CaptureFixture[str]
) -> None:
    exit_code = main(["pipeline", "run", pipeline, "--json"])
    told = capsys.readouterr()
    document = json.loads(told.out)
    assert (document["state"], document["exit_code"]) == ("interrupted", exit_code) == ("interrupted", 3)
    assert f"the run {document['run_id']} keeps what was done" in told.err
    assert "No space left on device" in told.err


def test_a_person_reads_only_what_stopped_it(pipeline: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "run", pipeline]) == 3
    told = capsys.readouterr()
    assert told.out == ""
    assert "No space left on device" in told.err
