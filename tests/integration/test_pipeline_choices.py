"""The pipeline file and the run that a command means when a newcomer does not spell them out, with the real program."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from codeloupe.testing import StandInServer, Text
from tests.engine_pipelines import write_pipeline
from tests.engine_standin import environment
from tests.program import Ended
from tests.repository import GitRepository
from tests.warm_program import codeloupe

APPROVED = {"name": "write", "writes": False, "agent": "api", "gate": "approval"}
PLAIN = {"name": "write", "writes": False, "agent": "api"}


@pytest.fixture
def server() -> Iterator[StandInServer]:
    with StandInServer(reply=lambda _: Text("Done.")) as running:
        yield running


def pipeline(server: StandInServer, folder: Path, *words: str) -> Ended:
    model = {"CODELOUPE_API_MODEL": "anthropic:claude-sonnet-4-5"}
    return codeloupe("pipeline", *words, cwd=folder, environment={**environment(server), **model})


def begun(server: StandInServer, folder: Path, file: Path) -> str:
    """The id of a run that stops where it has to."""
    ended = pipeline(server, folder, "run", str(file), "--no-wait", "--json")
    return str(json.loads(ended.stdout)["run_id"])


@pytest.mark.defect("E21")
@pytest.mark.parametrize("name", ["pipeline.yaml", "pipeline.yml"])
def test_a_pipeline_is_found_by_its_folder(tmp_path: Path, server: StandInServer, name: str) -> None:
    file = write_pipeline(tmp_path / "tour", PLAIN)
    file.rename(file.with_name(name))
    for folder, words in ((tmp_path, ("tour",)), (tmp_path, ("tour/",)), (tmp_path / "tour", ())):
        ended = pipeline(server, folder, "run", *words, "--json")
        assert (ended.exit_code, ended.json()["state"]) == (0, "completed"), ended.stderr
        checked = pipeline(server, folder, "validate", *words)
        assert checked.stdout == f"{'tour/' if words else ''}{name}: valid (tested, 1 stage)\n"


@pytest.mark.defect("E21")
def test_a_path_without_a_pipeline_says_what_was_looked_for(tmp_path: Path, server: StandInServer) -> None:
    (tmp_path / "empty").mkdir()
    for words, complaint in [
        ((), "this folder holds neither pipeline.yaml nor pipeline.yml"),
        (("empty",), "empty holds neither pipeline.yaml nor pipeline.yml"),
        (("gone",), "gone: no such file or folder"),
    ]:
        for verb in ("run", "validate"):
            ended = pipeline(server, tmp_path, verb, *words)
            assert (ended.exit_code, ended.stdout) == (2, "")
            assert complaint in ended.stderr
            assert "hint: give a pipeline file, such as pipeline.yaml, or its folder" in ended.stderr


@pytest.mark.defect("E15")
def test_approve_and_resume_mean_the_run_that_waits(tmp_path: Path, server: StandInServer) -> None:
    file = write_pipeline(tmp_path / "p", APPROVED)
    waiting = begun(server, tmp_path, file)
    begun(server, tmp_path, write_pipeline(tmp_path / "plain", PLAIN))
    approved = pipeline(server, tmp_path, "approve")
    assert approved.exit_code == 0, approved.stderr
    assert f"this is about the run {waiting}  tested, awaiting approval (write), started " in approved.stderr
    resumed = pipeline(server, tmp_path, "resume", "--json")
    assert (resumed.exit_code, resumed.json()["run_id"], resumed.json()["state"]) == (0, waiting, "completed")
    assert f"resuming the run {waiting}  tested, " in resumed.stderr
    nothing = pipeline(server, tmp_path, "approve")
    assert (nothing.exit_code, "no run waits for an answer" in nothing.stderr) == (2, True)
    finished = pipeline(server, tmp_path, "resume")
    assert (finished.exit_code, "no run is unfinished" in finished.stderr) == (2, True)


@pytest.mark.defect("E15")
def test_one_word_after_approve_is_a_run_or_else_a_stage(tmp_path: Path, server: StandInServer) -> None:
    file = write_pipeline(tmp_path / "p", APPROVED)
    first = begun(server, tmp_path, file)
    ended = pipeline(server, tmp_path, "reject", "write", "--resume", "--json")
    assert (ended.json()["run_id"], ended.exit_code) == (first, 1)
    second = begun(server, tmp_path, file)
    ended = pipeline(server, tmp_path, "approve", "last", "--resume", "--json")
    assert (ended.json()["run_id"], ended.exit_code) == (second, 0)
    begun(server, tmp_path, file)
    misspelt = pipeline(server, tmp_path, "approve", "wriet")
    assert misspelt.exit_code == 2
    assert "has no stage 'wriet'; it has write" in misspelt.stderr


@pytest.mark.defect("E15")
def test_several_runs_that_wait_are_listed_and_none_is_chosen(tmp_path: Path, server: StandInServer) -> None:
    file = write_pipeline(tmp_path / "p", APPROVED)
    older, newer = (begun(server, tmp_path, file) for _ in range(2))
    ended = pipeline(server, tmp_path, "approve")
    assert ended.exit_code == 2
    assert "several runs wait for an answer:" in ended.stderr
    assert f"  {newer}  tested, awaiting approval (write)" in ended.stderr
    assert f"  {older}  tested, awaiting approval (write)" in ended.stderr
    assert "hint: name one: `codeloupe pipeline approve RUN`" in ended.stderr
    assert pipeline(server, tmp_path, "status", "last~1", "--json").json()["run_id"] == older
    assert pipeline(server, tmp_path, "approve", "last~1", "--resume", "--json").json()["state"] == "completed"
    beyond = pipeline(server, tmp_path, "status", "last~2")
    assert (beyond.exit_code, "no run last~2: the oldest is last~1" in beyond.stderr) == (2, True)


@pytest.mark.defect("E15")
def test_resume_without_an_id_stays_in_its_repository(
    tmp_path: Path, repository: GitRepository, server: StandInServer
) -> None:
    repository.commit_files({"a.txt": "a\n"})
    file = write_pipeline(tmp_path / "p", APPROVED, workspace="worktree")
    run = begun(server, repository.path, file)
    for verb, complaint in (
        ("resume", "no run of this repository can be resumed"),
        ("approve", "no run of this repository waits for an answer"),
    ):
        elsewhere = pipeline(server, tmp_path, verb)
        assert elsewhere.exit_code == 2
        assert complaint in elsewhere.stderr
        assert f"  {run}  tested, awaiting approval (write)" in elsewhere.stderr
    below = repository.path / "below"
    below.mkdir()
    here = pipeline(server, below, "approve", "--resume", "--json")
    assert (here.exit_code, here.json()["run_id"]) == (0, run), here.stderr


@pytest.mark.defect("E15")
def test_remove_never_chooses_a_run_itself(tmp_path: Path, server: StandInServer) -> None:
    run = begun(server, tmp_path, write_pipeline(tmp_path / "p", PLAIN))
    for words, complaint in (((), "pipeline remove needs the id of a run"), (("",), "the id of the run is empty")):
        refused = pipeline(server, tmp_path, "remove", *words)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert complaint in refused.stderr
        assert f"  {run}  tested, completed" in refused.stderr
    assert pipeline(server, tmp_path, "remove", run[:12]).exit_code == 0


@pytest.mark.defect("E15")
def test_commands_without_any_run_say_how_to_make_one(tmp_path: Path, server: StandInServer) -> None:
    for words in (("resume",), ("approve",), ("reject",), ("remove",), ("status",), ("resume", "--retry", "write")):
        ended = pipeline(server, tmp_path, *words)
        assert ended.exit_code == 2
        assert ended.stderr.startswith("codeloupe: no pipeline has been run yet\n")
        assert "`codeloupe pipeline run FILE` starts the first" in ended.stderr


@pytest.mark.defect("E15")
def test_retry_without_an_id_means_the_newest_run_with_the_stage(tmp_path: Path, server: StandInServer) -> None:
    run = begun(server, tmp_path, write_pipeline(tmp_path / "p", PLAIN))
    begun(server, tmp_path, write_pipeline(tmp_path / "other", {**PLAIN, "name": "read"}))
    ended = pipeline(server, tmp_path, "resume", "--retry", "write", "--json")
    assert (ended.exit_code, ended.json()["run_id"]) == (0, run), ended.stderr
    unknown = pipeline(server, tmp_path, "resume", "--retry", "wirte")
    assert unknown.exit_code == 2
    assert "no run of this repository has a stage 'wirte'; its runs:\n" in unknown.stderr
    assert f"  {run}  tested, completed" in unknown.stderr
