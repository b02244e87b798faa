"""`codeloupe pipeline run` and `resume`, with the real engine and an agent that does as it is told."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

import codeloupe
from codeloupe.cli.pipeline import _open_store
from codeloupe.errors import Crashed, NotLoggedIn, StoreError
from codeloupe.model.pipeline import PipelineEvent, RunRecord
from codeloupe.pipelines.run import RunOptions
from codeloupe.store.runs import DirectoryRunStore
from codeloupe.testing import ScriptedAgent, Text
from codeloupe.testing.agent import AgentStep
from tests.rows import each
from tests.unit.cli.conftest import Call

pytestmark = pytest.mark.program


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


ONE = "name: alone\ninputs: {password: {default: hunter2}, topic: {default: otters}}\n"
ONE += "stages:\n- {name: one, step: one.md, writes: false%s}\n"


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
    assert f"codeloupe pipeline resume {_open_store().list()[0][0].run_id} --retry one" in ended.out


@pytest.mark.defect("P5")
def test_a_secret_input_is_shown_nowhere(call: Call, agent: ScriptedAgent, tmp_path: Path) -> None:
    token = "ghp_" + "a1B2" * 9
    secret = ONE.replace("topic:", "pin: {default: '12345', secret: true}, topic:") % ""
    ended = call("run", written(tmp_path, secret), "--input", f"topic={token}", "--json")
    shown = call("status", "--json")
    for document in (ended, shown):
        values = {one["name"]: one["value"] for one in document.run["inputs"]}
        assert values == dict.fromkeys(("password", "pin", "topic"), "[redacted]")
    directory = _open_store().directory(ended.run["run_id"])
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
        ended = call("run", written(tmp_path, text), "--no-wait", "--json")
        hint = ended.run["stages"][0]["failures"][-1]["hint"]
        assert Path(hint.rpartition("its answer is in ")[2]).read_text(encoding="utf-8") == said, (keys, hint)
        assert "log" not in hint


@pytest.mark.defect("P5")
def test_an_attempt_under_way_has_its_own_number(
    call: Call, agent: ScriptedAgent, steps: list[AgentStep], tmp_path: Path
) -> None:
    gate = ", gate: {command: [sh, -c, exit 1], max_attempts: 2}"
    first = call("run", written(tmp_path, ONE % gate), "--no-wait")
    again = call("resume", "last", "--retry", "one", "--no-wait")
    assert "one: running attempt 2 of 2" in first.err
    assert "one: running attempt 3 of 4" in again.err
    assert "taken" not in again.err


@pytest.mark.defect("P5")
def test_what_a_changed_file_needs_is_named_and_a_refused_retry_is_forgotten(
    call: Call, agent: ScriptedAgent, tmp_path: Path
) -> None:
    call("run", written(tmp_path, APPROVED), "--input", "topic=x", "--no-wait")
    name = _open_store().list()[0][0].run_id
    (tmp_path / "one.md").write_text("Do something else.")
    refused = call("resume", name, "--retry", "one", "--no-wait")
    assert refused.exit_code == 2
    assert f"`codeloupe pipeline resume {name} --accept-changes --retry one`" in refused.err
    approved = call("approve", name, "two", "--resume")
    assert approved.exit_code == 2
    assert f"`codeloupe pipeline resume {name} --accept-changes`; your answer is kept until then" in approved.err
    _open_store().take_approval(name, "two")
    accepted = call("resume", name, "--accept-changes", "--no-wait")
    assert "codeloupe: one: it keeps the work that it did before its step changed" in accepted.err
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
    save = DirectoryRunStore.save

    def answer(_request: object) -> Text:
        is_full.append(True)
        return Text("An answer.")

    def saved(self: DirectoryRunStore, run: RunRecord, *events: PipelineEvent) -> None:
        if is_full:
            raise StoreError("cannot write the run: No space left on device", hint="make room")
        save(self, run, *events)

    steps.append(answer)
    monkeypatch.setattr(DirectoryRunStore, "save", saved)
    ended = call("run", written(Path.cwd(), ONE % ""), *words)
    assert ended.exit_code == 3
    assert "No space left on device" in ended.err
    assert "keeps what was done" in ended.err
    if words:
        assert (ended.run["state"], ended.run["exit_code"]) == ("interrupted", 3)
    else:
        assert ended.out == ""
