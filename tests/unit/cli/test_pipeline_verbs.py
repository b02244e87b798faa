"""`codeloupe pipeline`: runs that are there, shown, listed and answered; and new ones by a scripted agent."""

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import codeloupe
from codeloupe.cli.pipeline_runs import find_run, open_store
from codeloupe.errors import Crashed, NotLoggedIn, RunNotFound, StoreError, UsageError
from codeloupe.model.pipeline import Approval, Decision, PipelineEvent, RunRecord
from codeloupe.model.pipeline import StageState as S
from codeloupe.pipelines.run import RunOptions
from codeloupe.reports.pipeline_json import list_schema, run_schema
from codeloupe.store.runs import DatabaseRunStore
from codeloupe.testing import ScriptedAgent, Text
from codeloupe.testing.agent import AgentStep
from tests.rows import each
from tests.unit.cli.conftest import Call
from tests.unit.store.run_samples import attempt, critique, run, stage

pytestmark = pytest.mark.program
NAME = "00000001"


@pytest.fixture
def store() -> DatabaseRunStore:
    opened = open_store()
    assert isinstance(opened, DatabaseRunStore)
    return opened


def waiting(number: int = 1) -> RunRecord:
    done = stage("research", S.COMPLETED, attempt(1, critique()), chosen=1)
    waits = stage("write", S.AWAITING_APPROVAL, attempt(1), wants_approval="gate", reason="good?")
    return run(number, done, waits, stage("print"), state=S.AWAITING_APPROVAL)


class TestStatus:
    def test_the_newest_run_is_shown_as_a_tree(self, store: DatabaseRunStore, call: Call) -> None:
        store.create(run(1))
        store.create(waiting(2))
        ended = call("status")
        assert (ended.exit_code, ended.err) == (0, "")
        assert ended.out.startswith("article  awaiting approval  00000002 · ")
        assert "✔ research" in ended.out
        assert "codeloupe pipeline approve 00000002 write --resume" in ended.out
        assert call("status", "00000002").out == call("status", "last").out == ended.out

    def test_programs_get_a_document_that_fits_the_schema(self, store: DatabaseRunStore, call: Call) -> None:
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
        self, store: DatabaseRunStore, call: Call
    ) -> None:
        store.create(run(1, stage("write", S.GATING)))
        told = json.loads(call("status", NAME, "--json").out)
        assert (told["state"], told["stages"][0]["state"], told["exit_code"]) == ("interrupted", "interrupted", 130)
        assert "pipeline resume 00000001" in call("status").out
        with store.lock(NAME):
            told = json.loads(call("status", NAME, "--json").out)
        assert (told["state"], told["busy"], told["process_id"]) == ("running", True, os.getpid())


class TestFinding:
    def test_the_beginning_of_a_name_is_enough_where_it_names_one(self, store: DatabaseRunStore) -> None:
        for name in ("20260314-0912-ab", "20260314-0912-cd", "20260315", "20260315-x"):
            store.create(run(1, run_id=name))
        assert find_run("20260314-0912-a") == "20260314-0912-ab"
        assert find_run("20260315") == "20260315"
        with pytest.raises(UsageError, match="matches several runs:\n  20260314-0912-ab\n  20260314-0912-cd$"):
            find_run("20260314")

        with pytest.raises(RunNotFound, match="no run '../../etc'"):
            find_run("../../etc")

    def test_no_run_yet_says_how_to_make_the_first(self, store: DatabaseRunStore) -> None:
        with pytest.raises(RunNotFound) as raised:
            find_run("last")
        assert "codeloupe pipeline run FILE" in raised.value.hint
        store.create(run(1))
        store.database.change("UPDATE runs SET state = ?", (b"x",))
        with pytest.raises(StoreError, match="no run can be read: the state of the run 00000001 is damaged"):
            find_run("last")


class TestList:
    def test_runs_stand_in_a_table_and_one_that_is_damaged_below(self, store: DatabaseRunStore, call: Call) -> None:
        for number in (1, 2, 3):
            store.create(run(number))
        store.database.change("UPDATE runs SET state = ? WHERE run_id = ?", (b"\0" * 100, "00000003"))
        with store.lock("00000001"):
            ended = call("list")
            told = json.loads(call("list", "--json").out)
        lines = ended.out.splitlines()
        assert [line.split()[0] for line in lines[:3]] == ["RUN", "00000002", "00000001"]
        assert ("interrupted" in lines[1], "running" in lines[2]) == (True, True)
        assert "the run 00000003 is damaged" in lines[3]
        jsonschema.validate(told, list_schema())
        assert [(one["state"], one["busy"]) for one in told["runs"]] == [("interrupted", False), ("running", True)]

    def test_more_than_are_shown_is_said(self, store: DatabaseRunStore, call: Call) -> None:
        for number in (1, 2, 3):
            store.create(run(number))
        ended = call("list", "--limit", "2")
        assert len(ended.out.splitlines()) == 3
        assert "--limit 4 shows more" in ended.err
        assert call("list", "--limit", "0").exit_code == 2


class TestAnswers:
    def test_a_word_on_a_stopped_run_is_left_and_says_how_to_go_on(self, store: DatabaseRunStore, call: Call) -> None:
        store.create(waiting())
        for decision in (Decision.APPROVE, Decision.REJECT):
            ended = call(decision.value, NAME, "write", "--note", "well done")
            assert ended.exit_code == 0
            assert f"write of the run 00000001 is {decision.value}" in ended.out
            assert "`codeloupe pipeline resume 00000001` continues" in ended.out
            word = store.approval(NAME, "write")
            assert word is not None
            assert (word.decision, word.note) == (decision, "well done")

    def test_a_process_that_waits_is_named_and_nothing_is_to_do(self, store: DatabaseRunStore, call: Call) -> None:
        store.create(waiting())
        with store.lock(NAME):
            ended = call("approve", NAME, "write", "--resume")
            again = call("resume", NAME, "--retry", "write", "--note", "shorter")
            beside = call("reject", NAME, "write", "--json")
            call("resume", NAME, "--retry", "write", "--note", "shorter")
        goes_on = f"; process {os.getpid()} continues with it\n"
        assert ended.out == f"write of the run 00000001 is approved{goes_on}"
        assert again.out == f"write of the run 00000001 is to be retried{goes_on}"
        # A program gets the run on standard output, and the words beside it.
        assert (beside.run["run_id"], beside.run["busy"]) == (NAME, True)
        assert beside.err == f"codeloupe: write of the run 00000001 is rejected{goes_on}"
        word = store.approval(NAME, "write")
        assert word is not None
        assert (word.decision, word.note) == (Decision.RETRY, "shorter")

    @each(
        ("words", "complaint", "hint"),
        [
            (("approve", NAME, "research"), "is not waiting for an answer; its state is completed", "mean write?"),
            (("reject", NAME, "print"), "is not waiting for an answer; its state is pending", "mean write?"),
            (("approve", NAME, "typo"), "has no stage 'typo'; it has research, write, print", "mean write?"),
            (("approve", "nope", "write"), "no run 'nope'", "pipeline list"),
            (("resume", NAME, "--retry", "print"), "cannot be retried; its state is pending", "did you mean"),
            (("resume", NAME, "--note", "x"), "--note is for --retry", "--retry STAGE"),
        ],
    )
    def test_what_makes_no_sense_is_refused_and_nothing_is_left(
        self, call: Call, words: tuple[str, ...], complaint: str, hint: str
    ) -> None:
        directory = open_store().create(waiting())
        ended = call(*words)
        assert (ended.exit_code, ended.out) == (2, "")
        assert complaint in ended.err
        assert hint in ended.err.splitlines()[-1]
        assert not (directory / "approvals").exists()

    @pytest.mark.defect("P5")
    def test_a_stage_that_made_nothing_cannot_be_approved(self, store: DatabaseRunStore, call: Call) -> None:
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
        for words in ("stagez", "gone.md: no such file", "unknown stage 'b'", "none.yaml: no such file", "hint: "):
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


@pytest.fixture
def steps() -> list[AgentStep]:
    """What the agent does: the last of them, at every call."""
    return [Text("An answer.")]


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch, steps: list[AgentStep]) -> ScriptedAgent:
    """The command line knows only built-in agents, so this one is put behind it."""
    scripted = ScriptedAgent([lambda _: steps[-1]], cost_usd=0.01)
    made = partial(RunOptions, agents={"scripted": scripted})
    monkeypatch.setattr(codeloupe, "RunOptions", lambda **given: made(**{**given, "agent": "scripted"}))
    return scripted


def written(folder: Path, text: str) -> str:
    for name in ("one", "two"):
        (folder / f"{name}.md").write_text(f"Do the work of {name}.")
    (folder / "p.yaml").write_text(text)
    return "p.yaml"


TWO = "name: pair\ninputs: {topic: {}}\nstages:\n- {name: one, step: one.md, writes: false}\n"
TWO += "- {name: two, step: two.md, writes: false, needs: [one]}\n"
APPROVED = TWO.replace("needs: [one]", "needs: [one], gate: {kind: approval, prompt: Good}")
ONE = "name: alone\ninputs: {password: {default: hunter2}, topic: {default: otters}}\n"
ONE += "stages:\n- {name: one, step: one.md, writes: false%s}\n"


def test_a_run_that_could_not_go_on_says_what_failed_and_what_to_do(
    call: Call, agent: ScriptedAgent, steps: list[AgentStep], tmp_path: Path
) -> None:
    steps.append(NotLoggedIn("no key \x1b[2J", agent="scripted", hint="log in"))
    ended = call("run", written(tmp_path, TWO), "--input", "topic=x", "--no-wait")
    assert ended.exit_code == 3
    assert "one: call failed: the stage one got no answer: no key \\x1b[2J" in ended.err
    shown = " ".join(ended.out.replace("│", " ").split())
    assert "call failed: not_logged_in: the stage one got no answer: no key \\x1b[2J (log in)" in shown
    assert "two  pending" in ended.out.replace("   ", "  ")
    assert "\x1b" not in ended.out + ended.err


def test_an_input_has_a_name_and_a_value_once(call: Call) -> None:
    for words in (["a"], ["=b"], [" =b"], ["a=1", "a=2"]):
        ended = call("run", "p.yaml", *(f"--input={word}" for word in words))
        assert ended.exit_code == 2
        assert "not an input" in ended.err or "given twice" in ended.err


@pytest.mark.defect("P5")
def test_why_a_stage_waits_is_told_once_with_the_number_of_tries_and_the_next_command(
    call: Call, agent: ScriptedAgent, steps: list[AgentStep], tmp_path: Path
) -> None:
    steps.append(Crashed("it broke (529)", agent="scripted", hint="mend it"))
    ended = call("run", written(tmp_path, ONE % ""), "--no-wait")
    assert len(agent.requests) == 3
    (waiting,) = [line for line in ended.err.splitlines() if "awaiting approval: the stage" in line]
    assert waiting == "codeloupe: one: awaiting approval: the stage one got no answer: it broke (529) (after 3 tries)"
    assert ended.err.count("529") == 2
    assert ended.out.count("529") == 1
    assert "call, retry and fresh start failed: crashed:" in ended.out
    assert f"codeloupe pipeline resume {open_store().list()[0][0].run_id} --retry one" in ended.out


@pytest.mark.defect("P5")
def test_a_secret_input_is_shown_nowhere(call: Call, agent: ScriptedAgent, tmp_path: Path) -> None:
    token = "ghp_" + "a1B2" * 9
    secret = ONE.replace("topic:", "pin: {default: '12345', secret: true}, topic:") % ""
    ended = call("run", written(tmp_path, secret), "--input", f"topic={token}", "--json")
    shown = call("status", "--json")
    for document in (ended, shown):
        values = {one["name"]: one["value"] for one in document.run["inputs"]}
        assert values == dict.fromkeys(("password", "pin", "topic"), "[redacted]")
    directory = open_store().directory(ended.run["run_id"])
    prompt = (directory / "stages/one/attempt-1/prompt.md").read_text(encoding="utf-8")
    assert not any(secret in prompt for secret in (token, "hunter2", "12345"))
    saying = ", gate: {command: [sh, -c, 'echo second; exit 1'], max_attempts: 1}"
    call("run", written(tmp_path, ONE % saying), "--input", "pin=first\nsecond", "--no-wait")
    assert "second" not in call("status", "-v").out  # one line of a value
    plain = call("run", written(tmp_path, ONE % ""), "--input", "topic=bees", "--json")
    assert [one["value"] for one in plain.run["inputs"] if one["name"] == "topic"] == ["bees"]


@pytest.mark.defect("P5")
def test_the_place_that_a_hint_names_holds_the_answer(
    call: Call, agent: ScriptedAgent, steps: list[AgentStep], tmp_path: Path
) -> None:
    """An answer that is not as asked, of a stage and of a critic."""
    cases = {
        ", artifacts: {required: x.md}": "Here is my whole answer.",
        ", gate: {kind: critic, max_attempts: 1}": "I would rather talk about otters.",
    }
    for keys, said in cases.items():
        steps.append(Text(said))
        text = (ONE % keys).replace("writes: false, art", "art")
        hint = call("run", written(tmp_path, text), "--no-wait", "--json").run["stages"][0]["failures"][-1]["hint"]
        assert Path(hint.rpartition("its answer is in ")[2]).read_text(encoding="utf-8") == said, (keys, hint)
        assert "log" not in hint


@pytest.mark.defect("P5")
def test_an_attempt_under_way_has_its_own_number(
    call: Call, agent: ScriptedAgent, steps: list[AgentStep], tmp_path: Path
) -> None:
    first = call("run", written(tmp_path, ONE % ", gate: {command: [sh, -c, exit 1], max_attempts: 2}"), "--no-wait")
    again = call("resume", "last", "--retry", "one", "--no-wait")
    assert "one: running attempt 2 of 2" in first.err
    assert "one: running attempt 3 of 4" in again.err
    assert "taken" not in again.err


@pytest.mark.defect("P5")
def test_what_a_changed_file_needs_is_named_and_a_refused_retry_is_forgotten(
    call: Call, agent: ScriptedAgent, tmp_path: Path
) -> None:
    call("run", written(tmp_path, APPROVED), "--input", "topic=x", "--no-wait")
    name = open_store().list()[0][0].run_id
    (tmp_path / "one.md").write_text("Do something else.")
    refused = call("resume", name, "--retry", "one", "--no-wait")
    assert refused.exit_code == 2
    assert f"`codeloupe pipeline resume {name} --accept-changes --retry one`" in refused.err
    approved = call("approve", name, "two", "--resume")
    assert approved.exit_code == 2
    assert f"`codeloupe pipeline resume {name} --accept-changes`; your answer is stored until then" in approved.err
    open_store().remove_approval(name, Approval(stage="two", decision=Decision.APPROVE, question=1))
    accepted = call("resume", name, "--accept-changes", "--no-wait")
    assert "codeloupe: one: its work is from before its step changed" in accepted.err
    before = len(agent.requests)
    again = call("resume", name, "--retry", "one", "--no-wait")
    assert (before, len(agent.requests)) == (2, 3)
    assert "made before" in accepted.out
    assert "made before" not in again.out


@pytest.mark.defect("P5")
def test_a_cost_that_nobody_tells_is_told_in_words(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = partial(RunOptions, agents={"scripted": ScriptedAgent([Text("An answer.")], cost_usd=None)})
    monkeypatch.setattr(codeloupe, "RunOptions", lambda **given: made(**{**given, "agent": "scripted"}))
    ended = call("run", written(tmp_path, ONE % ""))
    assert "cost unknown" in ended.out
    assert "?" not in ended.out
    assert " unknown " in call("list").out


@each("words", [["--json"], []])
def test_a_program_gets_the_run_as_it_is_and_a_person_reads_only_what_stopped_it(
    call: Call, agent: ScriptedAgent, steps: list[AgentStep], monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """The agent is asked once, and then nothing more can be written."""
    is_full: list[bool] = []
    save = DatabaseRunStore.save

    def answer(_request: object) -> Text:
        is_full.append(True)
        return Text("An answer.")

    def saved(self: DatabaseRunStore, run: RunRecord, *events: PipelineEvent, **files: Any) -> None:
        if is_full:
            raise StoreError("cannot write the run: No space left on device", hint="make room")
        save(self, run, *events, **files)

    steps.append(answer)
    monkeypatch.setattr(DatabaseRunStore, "save", saved)
    ended = call("run", written(Path.cwd(), ONE % ""), *words)
    assert ended.exit_code == 3
    assert "No space left on device" in ended.err
    assert "codeloupe: the finished work of the run " in ended.err
    if words:
        assert (ended.run["state"], ended.run["exit_code"]) == ("interrupted", 3)
    else:
        assert ended.out == ""
