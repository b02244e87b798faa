"""`codeloupe pipeline` through the front door: the real program, the real claude binary, and the stand-in model."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios
import threading
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from codeloupe.reports.pipeline_json import list_schema, run_schema
from codeloupe.testing import Empty, Garbage, Hang, Json, RecordedRequest, Reply, StandInServer, Status, Text, ToolUse
from tests.agent_factories import assert_nothing_runs_in
from tests.agent_programs import find
from tests.endings import PATIENCE_SECONDS, comes_to_pass
from tests.engine_pipelines import write_pipeline
from tests.engine_standin import KEY, WORKSPACE, Child, Stage, Writes, background, environment
from tests.program import PROGRAM, Ended
from tests.repository import GitRepository
from tests.warm_program import codeloupe

PIPELINE = """\
name: article
inputs: {topic: {description: what to write about}}
defaults: {agent: claude_cli}
stages:
- {name: research, step: research.md, writes: false}
- {name: write, step: write.md, writes: false, needs: [research], gates: [%s]}
"""
CRITIC = "{kind: critic, agent: claude_cli}"
FAULTY = "import subprocess\n\n\ndef go(name):\n    subprocess.run('ls ' + name, shell=True)\n"
APPROVAL = "{kind: approval, prompt: Is the tone right?, timeout: 10m}"


class Model:
    """What the stand-in says: an answer to each stage, and the critic's words one after the other.

    Nobody is answered before `may_answer` is set, and who asks for a stage in `silent` never is.
    """

    def __init__(self, *critics: tuple[str, int], silent: tuple[str, ...] = ()) -> None:
        self.critics = list(critics)
        self.silent = set(silent)
        self.asked: list[str] = []
        self.may_answer = threading.Event()
        self.may_answer.set()

    def __call__(self, request: RecordedRequest) -> Reply:
        stage = next(name for name in ("write", "research") if request.mentions(f"marker-{name}"))
        if request.mentions("You are the critic of one stage"):
            self.asked.append("critic")
            verdict, score = self.critics.pop(0)
            summary = "Sound." if verdict == "PASS" else "No source."
            return Json({"verdict": verdict, "score": score, "summary": summary, "blockers": [], "fixes": []})
        self.asked.append(stage)
        self.may_answer.wait(PATIENCE_SECONDS)
        return Hang() if stage in self.silent else Text(f"The {stage}, number {len(self.asked)}.")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "pipelines"
    place.mkdir()
    for name in ("research", "write"):
        (place / f"{name}.md").write_text(f"Do marker-{name} about the topic.\n")
    return place


def written(folder: Path, *gates: str) -> str:
    (folder / "article.yaml").write_text(PIPELINE % ", ".join(gates))
    return "article.yaml"


def pipeline(server: StandInServer, folder: Path, *words: str) -> Ended:
    return codeloupe("pipeline", *words, cwd=folder, environment=environment(server))


def started(server: StandInServer, folder: Path, *words: str) -> AbstractContextManager[Child]:
    """The program at work."""
    pipes = {"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE, "cwd": folder}
    program, temporary = (str(PROGRAM), "pipeline"), folder.parent / "tmp"
    return background(*program, *words, temporary=temporary, variables=environment(server), **pipes)


def told(child: Child, words: str) -> str:
    """The line on stderr with these words, when it comes."""
    assert child.stderr is not None
    for line in child.stderr:
        if words in line:
            return line
    raise AssertionError(f"it ended without {words!r}")


def status(server: StandInServer, folder: Path) -> Any:
    return pipeline(server, folder, "status", "--json").json()


def test_a_run_is_reworked_until_its_critic_is_content_and_tells_where_its_result_is(folder: Path) -> None:
    model = Model(("REWORK", 50), ("PASS", 85))
    with StandInServer(reply=model) as server:
        ended = pipeline(server, folder, "run", written(folder, CRITIC), "--input", "topic=otters")
        document = status(server, folder)
        listed = pipeline(server, folder, "list", "--json").json()
    assert ended.exit_code == 0, ended.stderr
    jsonschema.validate(document, run_schema())
    jsonschema.validate(listed, list_schema())
    assert (document["state"], document["exit_code"], document["pipeline"]) == ("completed", 0, "article")
    write = document["stages"][1]
    assert [attempt["score"] for attempt in write["attempts"]] == [50, 85]
    assert (write["chosen"], write["agent"]) == (2, "claude_cli")
    assert document["usage"]["cost_usd"] > 0
    assert sorted(model.asked) == ["critic", "critic", "research", "write", "write"]
    result = Path(document["result"])
    assert (result / "write-output.md").read_text().startswith("The write, number ")
    assert f"Result    {result}\n" in ended.stdout
    assert "critic REWORK 50: No source." in ended.stdout
    assert re.search(r"✔ write +completed", ended.stdout)
    assert "codeloupe: write: critic REWORK 50: No source.\n" in ended.stderr
    assert KEY not in ended.stdout + ended.stderr
    assert listed["runs"][0]["run_id"] == document["run_id"]


def test_a_person_elsewhere_is_waited_for_and_the_answer_is_heard(folder: Path) -> None:
    model = Model()
    file = written(folder, APPROVAL)
    with (
        StandInServer(reply=model) as server,
        started(server, folder, "run", file, "--input", "topic=x", "--json") as run,
    ):
        told(run, "write: awaiting approval: Is the tone right?")
        assert status(server, folder)["busy"] is True
        with started(server, folder, "status", "--follow") as following:
            told(following, "write: awaiting approval")
            busy = pipeline(server, folder, "resume", "last")
            refused = pipeline(server, folder, "remove", "last")
            answered = pipeline(server, folder, "approve", "last", "write", "--note", "fine by me")
            out, _ = run.communicate(timeout=PATIENCE_SECONDS)
            followed, _ = following.communicate(timeout=PATIENCE_SECONDS)
    assert (run.returncode, json.loads(out)["state"]) == (0, "completed")
    assert f"process {run.pid} continues with it" in answered.stdout
    assert (busy.exit_code, refused.exit_code) == (2, 2)
    assert f"is busy: process {run.pid} (since " in busy.stderr
    assert f"is busy: process {run.pid} (since " in refused.stderr
    assert following.returncode == 0
    assert followed.startswith("article  completed")
    assert "a person approved it: fine by me" in followed


def test_a_person_who_is_not_there_answers_later_and_nothing_is_bought_again(folder: Path) -> None:
    model = Model()
    with StandInServer(reply=model) as server:
        stopped = pipeline(
            server, folder, "run", written(folder, APPROVAL), "--input", "topic=x", "--no-wait", "--json"
        )
        asked = len(model.asked)
        again = pipeline(server, folder, "resume", "last", "--retry", "write", "--note", "shorter", "--no-wait")
        rejected = pipeline(server, folder, "reject", "last", "write", "--note", "too loud", "--resume", "--json")
        freed = pipeline(server, folder, "remove", "last")
        left = pipeline(server, folder, "list")
    assert (stopped.exit_code, stopped.json()["state"]) == (3, "awaiting_approval")
    assert stopped.json()["stages"][1]["wants_approval"] == "gate"
    assert again.exit_code == 3, again.stderr
    assert model.asked[asked:] == ["write"]
    assert (rejected.exit_code, rejected.json()["state"]) == (1, "failed")
    assert re.match(r"removed the run \S+, which freed [\d.,]+ (kB|MB)\n", freed.stdout)
    assert left.stdout.startswith("No pipeline has been run yet")


def test_a_terminated_run_ends_cleanly_and_goes_on_where_it_was(folder: Path) -> None:
    model = Model(silent=("write",))
    file = written(folder)
    with StandInServer(reply=model) as server:
        with started(server, folder, "run", file, "--input", "topic=x", "--json") as run:
            told(run, "write: running")
            assert comes_to_pass(lambda: "write" in model.asked)
            run.terminate()
            out, err = run.communicate(timeout=PATIENCE_SECONDS)
        assert run.returncode == 130
        assert json.loads(out)["state"] == "interrupted"
        assert "codeloupe: interrupted; 1 of 2 stages are finished and stored; " in err
        assert f"`codeloupe pipeline resume {json.loads(out)['run_id']}` continues\n" in err
        assert "Traceback" not in err
        assert_nothing_runs_in(folder.parent)
        model.silent.clear()
        resumed = pipeline(server, folder, "resume", "last", "--json")
    assert (resumed.exit_code, resumed.json()["state"]) == (0, "completed"), resumed.stderr
    assert model.asked == ["research", "write", "write"]


def test_work_in_a_worktree_ends_as_a_patch_that_can_be_applied(folder: Path, repository: GitRepository) -> None:
    repository.commit_files({"a.txt": "a\n"})
    (folder / "p.yaml").write_text(
        "name: change\nworkspace: worktree\nstages:\n- {name: write, step: write.md, agent: claude_cli}\n"
    )

    def writes_a_note(request: RecordedRequest) -> Reply:
        if request.mentions("a note\n"):
            return Text("It is written.")
        workspace = next(found[1] for text in request.strings() if (found := WORKSPACE.search(text)))
        return ToolUse("Write", {"file_path": f"{workspace}/note.md", "content": "a note\n"})

    with StandInServer(reply=writes_a_note) as server:
        ended = codeloupe(
            *("pipeline", "run", str(folder / "p.yaml")), cwd=repository.path, environment=environment(server)
        )
    assert ended.exit_code == 0, ended.stderr
    found = re.search(r"^Next +(git apply \S+)", ended.stdout, re.MULTILINE)
    assert found is not None, ended.stdout
    subprocess.run(found[1].split(), cwd=repository.path, check=True)
    assert (repository.path / "note.md").read_text() == "a note\n"
    assert {path.name for path in repository.path.iterdir()} == {".git", "a.txt", "note.md"}


def test_every_mistake_has_a_way_on_and_costs_nothing(folder: Path) -> None:
    (folder / "bad.yaml").write_text("name: bad\nstagez: 1\nstages: [{name: a, step: gone.md}]\n")
    model = Model()
    with StandInServer(reply=model) as server:
        for words, complaint in [
            (("run", "bad.yaml"), "the pipeline has 2 mistakes"),
            (("run", written(folder), "--input", "topic=x", "--agent", "nobody"), "unknown agent 'nobody'"),
            (("validate", "bad.yaml", "article.yaml"), "stagez: unknown key"),
            (("status",), "no pipeline has been run yet"),
            (("frobnicate",), "'frobnicate' is not a command of pipeline"),
        ]:
            ended = pipeline(server, folder, *words)
            assert ended.exit_code == 2, ended.stdout
            assert complaint in ended.stderr
            assert "hint: " in ended.stderr
    assert model.asked == []


def test_on_a_terminal_a_tree_is_drawn_and_a_person_is_asked(folder: Path) -> None:
    """Through a real pseudo-terminal, with keys."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    model = Model()
    model.may_answer.clear()
    with StandInServer(reply=model) as server:
        child = subprocess.Popen(
            (str(PROGRAM), "pipeline", "run", written(folder, APPROVAL), "--input", "topic=x"),
            cwd=folder,
            env={**os.environ, **environment(server), "TERM": "xterm"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        try:
            text = read_until(master, r"├─ ▸ research +running(.|\n)*\d/2 stages")
            model.may_answer.set()
            text += read_until(master, r"\[l\]ater: ")
            os.write(master, b"a\n")
            text += read_until(master, None)
            child.wait(PATIENCE_SECONDS)
        finally:
            child.kill()
            child.wait()
            os.close(master)
    assert child.returncode == 0, text
    assert "write waits for you: Is the tone right?" in text
    final = text[text.rindex("article  completed") :]
    assert re.search(r"╰─ ✔ write +completed", final)
    assert "a person approved it" in final
    assert "stages  " not in final  # nothing is drawn behind the end


def read_until(master: int, pattern: str | None) -> str:
    """What a terminal shows, without its colours, up to some words or to the end."""
    received = b""
    while pattern is None or not re.search(pattern, plain(received)):
        try:
            chunk = os.read(master, 65536)
        except OSError:  # Linux says EIO when the last writer has left
            chunk = b""
        if not chunk:
            assert pattern is None, plain(received)
            break
        received += chunk
    return plain(received)


def plain(received: bytes) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", received.decode("utf-8", "replace"))


def by_api(server: StandInServer, folder: Path, *words: str, **more: str) -> Ended:
    model = {"CODELOUPE_API_MODEL": "anthropic:claude-sonnet-4-5"}
    return codeloupe("pipeline", *words, cwd=folder, environment={**environment(server), **model, **more})


@pytest.mark.defect("P3")
def test_without_retries_the_service_is_asked_once(tmp_path: Path) -> None:
    replies: dict[str, Reply] = {
        "overloaded": Status(529),
        "broken": Status(500),
        "empty": Empty(),
        "garbage": Garbage(),
    }
    wrong = {}
    for name, reply in replies.items():
        stage = {"name": "write", "agent": "api", "writes": False, "retries": 0, "output_schema": {"type": "object"}}
        file = write_pipeline(tmp_path / name, stage)
        with StandInServer(reply=lambda _, reply=reply: reply) as server:  # type: ignore[misc]  # bound now
            ended = by_api(server, tmp_path, "run", str(file), "--no-wait")
            if (ended.exit_code, len(server.requests)) != (3, 1):
                wrong[name] = (ended.exit_code, len(server.requests), ended.stderr)
    assert wrong == {}


@pytest.mark.defect("P2")
def test_a_limit_of_requests_holds_over_all_resumes(tmp_path: Path) -> None:
    stage = {"name": "write", "agent": "api", "writes": False, "retries": 0, "gate": {"command": "false"}}
    file = write_pipeline(tmp_path / "p", stage)
    limit = {"CODELOUPE_MAX_REQUESTS": "2"}
    with StandInServer(reply=lambda _: Text("An answer.")) as server:
        first = by_api(server, tmp_path, "run", str(file), "--no-wait", **limit)
        assert (first.exit_code, len(server.requests)) == (3, 2)
        words = ("resume", "last", "--retry", "write", "--no-wait", "--json")
        ended = [by_api(server, tmp_path, *words, **limit) for _ in range(2)]
        assert ([each.exit_code for each in ended], len(server.requests)) == ([3, 3], 2)
        run = json.loads(ended[-1].stdout)
        failure = run["stages"][0]["failures"][-1]
        assert "the run has made 2 of its 2 requests" in failure["message"]
        assert "CODELOUPE_MAX_REQUESTS" in failure["hint"]
        assert f"`codeloupe pipeline resume {run['run_id']} --retry write`" in failure["hint"]
        raised = {"CODELOUPE_MAX_REQUESTS": "3"}
        by_api(server, tmp_path, "resume", "last", "--retry", "write", "--no-wait", **raised)
        assert len(server.requests) == 3


@pytest.mark.defect("F9")
def test_a_run_is_not_completed_while_its_review_gate_finds_a_defect(tmp_path: Path) -> None:
    gates = [{"kind": "review", "max_attempts": 2}, {"command": "true"}]
    file = write_pipeline(tmp_path / "p", {"name": "write", "agent": "claude_cli", "gates": gates})
    model = Stage({"write": [Writes("go.py", FAULTY)]})
    with StandInServer(reply=model.reply) as server:
        variables = {**environment(server), "CODELOUPE_REVIEWER_TYPE": "offline"}
        ended = codeloupe("pipeline", "run", str(file), "--no-wait", "--json", cwd=tmp_path, environment=variables)
    run = ended.json()
    assert (ended.exit_code, run["state"], run["result"]) == (3, "awaiting_approval", None), ended.stderr
    [stage] = run["stages"]
    verdicts = [[critique["verdict"] for critique in attempt["critiques"]] for attempt in stage["attempts"]]
    assert verdicts == [["REWORK"], ["REWORK"]]
    assert "no attempt passed every gate after 2 attempts" in stage["reason"]


def without_login(folder: Path, *words: str) -> Ended:
    """Run a verb where claude is installed and not logged in, and codex is not installed."""
    variables = {"CODELOUPE_CLAUDE_PATH": str(find("claude")), "CODELOUPE_CODEX_PATH": str(folder / "no-codex")}
    return codeloupe("pipeline", *words, cwd=folder, environment=variables)


@pytest.mark.defect("E9")
def test_a_run_without_a_usable_agent_is_refused_once_and_not_created(tmp_path: Path) -> None:
    gate = {"kind": "critic", "agent": "codex"}
    stages = ({"name": "write", "agent": "claude_cli"}, {"name": "check", "agent": "claude_cli", "gate": gate})
    file = write_pipeline(tmp_path / "p", *stages)
    ended = without_login(tmp_path, "run", str(file))
    assert (ended.exit_code, ended.stdout) == (2, "")
    refusal, first, second, hint = ended.stderr.splitlines()
    assert refusal == "codeloupe: the pipeline tested was not started: these agents cannot be used"
    assert first.startswith("  claude_cli, for the stage write, the stage check: not logged in (set ANTHROPIC_API_KEY")
    assert second.startswith("  codex, for the critic of check: not installed (")
    assert hint.startswith("  hint: ")
    assert without_login(tmp_path, "list").stdout.startswith("No pipeline has been run yet")
    reviewed = write_pipeline(tmp_path / "r", {"name": "write", "agent": "claude_cli", "gate": "review"})
    variables = {**environment_with_key(), "CODELOUPE_REVIEWER_TYPE": "codex", "CODELOUPE_CODEX_PATH": "/no/codex"}
    by_review = codeloupe("pipeline", "run", str(reviewed), cwd=tmp_path, environment=variables)
    assert (by_review.exit_code, "  codex, for review gates: not installed (" in by_review.stderr) == (2, True)


def environment_with_key() -> dict[str, str]:
    return {"ANTHROPIC_API_KEY": KEY, "CODELOUPE_CLAUDE_PATH": str(find("claude"))}


@pytest.mark.defect("E9")
def test_a_run_is_not_resumed_without_an_agent_unless_it_needs_none(folder: Path) -> None:
    model = Model()
    with StandInServer(reply=model) as server:
        words = ("run", written(folder, APPROVAL), "--input", "topic=x", "--no-wait", "--json")
        before = pipeline(server, folder, *words).json()
        retried = without_login(folder, "resume", "last", "--retry", "write", "--no-wait")
        after = status(server, folder)
        # Nothing is left to ask an agent.
        approved = without_login(folder, "approve", "last", "write", "--resume", "--json")
    assert (retried.exit_code, retried.stdout) == (2, "")
    assert f"the run {before['run_id']} was not continued: these agents cannot be used\n" in retried.stderr
    assert retried.stderr.count("not logged in") == 1
    assert after["stages"] == before["stages"]
    assert (approved.exit_code, approved.json()["state"]) == (0, "completed"), approved.stderr
