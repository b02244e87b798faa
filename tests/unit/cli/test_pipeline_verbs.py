"""`codeloupe pipeline` about runs that are there: shown, listed, answered, removed; each mistake told with a way on."""

from __future__ import annotations

import json
import os
from pathlib import Path

import jsonschema
import pytest

from codeloupe.cli.pipeline import _find_run, _open_store
from codeloupe.errors import RunNotFound, StoreError, UsageError
from codeloupe.model.pipeline import Decision, RunRecord
from codeloupe.model.pipeline import StageState as S
from codeloupe.reports.pipeline_json import list_schema, run_schema
from codeloupe.store.runs import DirectoryRunStore
from tests.rows import each
from tests.unit.cli.conftest import Call
from tests.unit.store.run_samples import attempt, critique, run, stage

pytestmark = pytest.mark.program

NAME = "00000001"


@pytest.fixture
def store() -> DirectoryRunStore:
    return _open_store()


def waiting(number: int = 1) -> RunRecord:
    done = stage("research", S.COMPLETED, attempt(1, critique()), chosen=1)
    waits = stage("write", S.AWAITING_APPROVAL, attempt(1), wants_approval="gate", reason="good?")
    return run(number, done, waits, stage("print"), state=S.AWAITING_APPROVAL)


class TestStatus:
    def test_the_newest_run_is_shown_as_a_tree(self, store: DirectoryRunStore, call: Call) -> None:
        store.create(run(1))
        store.create(waiting(2))
        ended = call("status")
        assert (ended.exit_code, ended.err) == (0, "")
        assert ended.out.startswith("article  awaiting approval  00000002 · ")
        assert "✔ research" in ended.out
        assert "codeloupe pipeline approve 00000002 write --resume" in ended.out
        assert call("status", "00000002").out == call("status", "last").out == ended.out

    def test_programs_get_a_document_that_fits_the_schema(self, store: DirectoryRunStore, call: Call) -> None:
        directory = store.create(run(1, state=S.FAILED))
        (directory / "result").mkdir()
        assert json.loads(call("status", NAME, "--json").out)["result"] is None  # nothing was made
        (directory / "result" / "a.md").write_text("a")
        (directory / "result.patch").write_text("")
        told = json.loads(call("status", NAME, "--json").out)
        jsonschema.validate(told, run_schema())
        assert (told["busy"], told["process_id"], told["exit_code"]) == (False, None, 3)
        assert (told["directory"], told["result"]) == (str(directory), str(directory / "result"))
        assert told["patch"] is None  # an empty patch changes nothing
        (directory / "result.patch").write_text("diff")
        assert json.loads(call("status", NAME, "--json").out)["patch"] == str(directory / "result.patch")
        # What lies there from before a resume is not the result of a run that waits, or has none.
        for record in (waiting(), run(1, state=S.FAILED, reason="there is no result: no room")):
            store.save(record)
            told = json.loads(call("status", NAME, "--json").out)
            assert (told["result"], told["patch"]) == (None, None)

    def test_a_run_whose_process_is_gone_is_interrupted_and_one_at_work_is_not(
        self, store: DirectoryRunStore, call: Call
    ) -> None:
        store.create(run(1, stage("write", S.GATING)))
        told = json.loads(call("status", NAME, "--json").out)
        assert (told["state"], told["stages"][0]["state"], told["exit_code"]) == ("interrupted", "interrupted", 130)
        assert "pipeline resume 00000001" in call("status").out
        with store.lock(NAME):
            told = json.loads(call("status", NAME, "--json").out)
        assert (told["state"], told["busy"], told["process_id"]) == ("running", True, os.getpid())


class TestFinding:
    def test_the_beginning_of_a_name_is_enough_where_it_names_one(self, store: DirectoryRunStore) -> None:
        for name in ("20260314-0912-ab", "20260314-0912-cd", "20260315", "20260315-x"):
            store.create(run(1, run_id=name))
        assert _find_run("20260314-0912-a") == "20260314-0912-ab"
        assert _find_run("20260315") == "20260315"
        with pytest.raises(UsageError, match="beginning of several runs:\n  20260314-0912-ab\n  20260314-0912-cd$"):
            _find_run("20260314")

        with pytest.raises(RunNotFound, match="there is no run '../../etc'"):
            _find_run("../../etc")

    def test_no_run_yet_says_how_to_make_the_first(self, store: DirectoryRunStore) -> None:
        with pytest.raises(RunNotFound) as raised:
            _find_run("last")
        assert "codeloupe pipeline run FILE" in raised.value.hint
        (store.create(run(1)) / "run.json").unlink()
        with pytest.raises(StoreError, match="no run can be read: the run 00000001 has no state"):
            _find_run("last")


class TestList:
    def test_runs_stand_in_a_table_and_one_that_is_damaged_below(self, store: DirectoryRunStore, call: Call) -> None:
        for number in (1, 2, 3):
            store.create(run(number))
        (store.directory("00000003") / "run.json").write_bytes(b"\0" * 100)
        with store.lock("00000001"):
            ended = call("list")
            told = json.loads(call("list", "--json").out)
        lines = ended.out.splitlines()
        assert [line.split()[0] for line in lines[:3]] == ["RUN", "00000002", "00000001"]
        assert ("interrupted" in lines[1], "running" in lines[2]) == (True, True)
        assert "the run 00000003 is damaged" in lines[3]
        jsonschema.validate(told, list_schema())
        assert [(one["state"], one["busy"]) for one in told["runs"]] == [("interrupted", False), ("running", True)]

    def test_more_than_are_shown_is_said(self, store: DirectoryRunStore, call: Call) -> None:
        for number in (1, 2, 3):
            store.create(run(number))
        ended = call("list", "--limit", "2")
        assert len(ended.out.splitlines()) == 3
        assert "--limit 4 shows more" in ended.err
        assert call("list", "--limit", "0").exit_code == 2


class TestAnswers:
    def test_a_word_on_a_stopped_run_is_left_and_says_how_to_go_on(self, store: DirectoryRunStore, call: Call) -> None:
        store.create(waiting())
        for decision in (Decision.APPROVE, Decision.REJECT):
            ended = call(decision.value, NAME, "write", "--note", "well done")
            assert ended.exit_code == 0
            assert f"write of the run 00000001 is {decision.value}" in ended.out
            assert "`codeloupe pipeline resume 00000001` continues" in ended.out
            word = store.take_approval(NAME, "write")
            assert word is not None
            assert (word.decision, word.note) == (decision, "well done")

    def test_a_process_that_waits_is_named_and_nothing_is_to_do(self, store: DirectoryRunStore, call: Call) -> None:
        store.create(waiting())
        with store.lock(NAME):
            ended = call("approve", NAME, "write", "--resume")
            again = call("resume", NAME, "--retry", "write", "--note", "shorter")
            beside = call("reject", NAME, "write", "--json")
            call("resume", NAME, "--retry", "write", "--note", "shorter")
        goes_on = f"; process {os.getpid()} continues with it\n"
        assert ended.out == f"write of the run 00000001 is approved{goes_on}"
        assert again.out == f"write of the run 00000001 is to be tried again{goes_on}"
        # A program gets the run on standard output, and the words beside it.
        assert (beside.run["run_id"], beside.run["busy"]) == (NAME, True)
        assert beside.err == f"codeloupe: write of the run 00000001 is rejected{goes_on}"
        word = store.take_approval(NAME, "write")
        assert word is not None
        assert (word.decision, word.note) == (Decision.RETRY, "shorter")

    @each(
        ("words", "complaint", "hint"),
        [
            (("approve", NAME, "research"), "is not waiting for an answer; its state is completed", "mean write?"),
            (("reject", NAME, "print"), "is not waiting for an answer; its state is pending", "mean write?"),
            (("approve", NAME, "typo"), "has no stage 'typo'; it has research, write, print", "mean write?"),
            (("approve", "nope", "write"), "there is no run 'nope'", "pipeline list"),
            (("resume", NAME, "--retry", "print"), "cannot be tried again; its state is pending", "did you mean"),
            (("resume", NAME, "--note", "x"), "--note is for --retry", "--retry STAGE"),
        ],
    )
    def test_what_makes_no_sense_is_refused_and_nothing_is_left(
        self, call: Call, words: tuple[str, ...], complaint: str, hint: str
    ) -> None:
        directory = _open_store().create(waiting())
        ended = call(*words)
        assert (ended.exit_code, ended.out) == (2, "")
        assert complaint in ended.err
        assert hint in ended.err.splitlines()[-1]
        assert not (directory / "approvals").exists()

    @pytest.mark.defect("P5")
    def test_a_stage_that_made_nothing_cannot_be_approved(self, store: DirectoryRunStore, call: Call) -> None:
        empty = stage("write", S.AWAITING_APPROVAL, wants_approval="escalation", reason="no login")
        directory = store.create(run(1, empty, state=S.AWAITING_APPROVAL))
        for words in ([], ["--resume"]):
            ended = call("approve", NAME, "write", *words)
            assert (ended.exit_code, ended.out) == (2, "")
            assert "the stage 'write' of the run 00000001 has no work to approve: no login" in ended.err
            assert "`codeloupe pipeline resume 00000001 --retry write` tries it again" in ended.err
        assert not (directory / "approvals").exists()


class TestFilesOfPipelines:
    def test_every_file_is_checked_and_every_mistake_told(self, tmp_path: Path, call: Call) -> None:
        (tmp_path / "step.md").write_text("Do it.")
        good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
        good.write_text("name: good\ninputs: {topic: {}}\nstages: [{name: a, step: step.md}]\n")
        bad.write_text("name: bad\nstagez: 1\nstages: [{name: a, step: gone.md, needs: [b]}]\n")
        ended = call("validate", str(bad), str(good), str(tmp_path / "none.yaml"))
        assert ended.exit_code == 2
        assert ended.out == f"{good}: valid (good, 1 stage, 1 input)\n"
        for words in ("stagez", "gone.md: no such file", "no stage 'b'", "none.yaml: no such file", "hint: "):
            assert words in ended.err
        told = json.loads(call("validate", "--json", str(bad), str(good)).out)
        assert [one["valid"] for one in told["files"]] == [False, True]
        assert len(told["files"][0]["problems"]) == 3
        assert told["files"][1] == {"file": str(good), "valid": True, "problems": [], "hint": None}
        assert call("validate", str(good)).exit_code == 0

    def test_the_schemas_are_printed(self, call: Call) -> None:
        schemas = {word: json.loads(call("schema", word).out) for word in ("file", "status", "list")}
        assert json.loads(call("schema").out) == schemas["file"]
        assert "stages" in schemas["file"]["properties"]
        assert schemas["status"] == run_schema()
        assert schemas["list"] == list_schema()
