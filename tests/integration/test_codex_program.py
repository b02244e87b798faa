"""What the real codex program does beyond the suite for all agents."""

import base64
import json
import os
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from codeloupe.agents.codex.agent import CodexAgent
from codeloupe.errors import InvalidRequest
from codeloupe.model.agent import PermissionMode
from codeloupe.testing import RecordedRequest, StandInServer, Text, ToolUse
from tests import agent_programs
from tests.agent_factories import MADE_UP, Stage, asked_for, by_name, environment, on_stage

FACTORY = by_name("codex")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def seen_work() -> Iterator[Path]:
    """A directory that the sandbox of the program shows: it has a /dev of its own, and tests may have files in ours."""
    with tempfile.TemporaryDirectory(dir=agent_programs.PROJECT / ".cache") as folder:
        yield Path(folder)


def spoken(request: RecordedRequest) -> list[tuple[str, str]]:
    """Who says what to the model, in order."""
    items = [item for item in request.body["input"] if item["type"] == "message"]
    return [(item["role"], part["text"]) for item in items for part in item["content"]]


def commanded(command: str) -> ToolUse:
    return ToolUse("exec", f"text(JSON.stringify(await tools.exec_command({{cmd: {json.dumps(command)}}})))")


def outcome(request: RecordedRequest) -> str:
    """What the model is told of the tool that it used."""
    return json.dumps([item for item in request.body["input"] if item["type"] == "custom_tool_call_output"])


def test_system_prompts_reach_the_model_and_a_command_sees_neither_key_nor_network_and_changes_nothing(
    work: Path,
) -> None:
    command = commanded("env; touch here; (: > /dev/tcp/127.0.0.1/9) 2>&1; echo ended")
    with on_stage(FACTORY, command, Text("Done.")) as stage:
        stage.answer(asked_for(work, system_prompt="I replace.", append_system_prompt="I am appended."))
        said, told = spoken(stage.server.requests[0]), outcome(stage.server.requests[-1])
    assert said[:2] == [("developer", "I replace."), ("developer", "I am appended.")]
    assert said[-1] == ("user", "Say hello.")
    assert "ended" in told
    assert "CODEX_SANDBOX_NETWORK_DISABLED" in told
    assert MADE_UP not in told
    assert list(work.iterdir()) == []


def test_who_may_edit_may_do_so_in_the_working_directory_alone(work: Path, tmp_path: Path) -> None:
    patch = "*** Begin Patch\\n*** Add File: new.txt\\n+hello\\n*** End Patch"
    # By default it lets commands write to /tmp as well.
    outside = (tmp_path / "outside", Path("/tmp", f"codeloupe-{uuid.uuid4()}"))
    edits = ToolUse("exec", f'await tools.apply_patch("{patch}")')
    with on_stage(FACTORY, edits, *(commanded(f"touch '{file}'") for file in outside), Text("Done.")) as stage:
        result = stage.answer(asked_for(work, permission_mode=PermissionMode.ACCEPT_EDITS))
    assert result.files_changed == ("new.txt",)
    assert (work / "new.txt").read_text() == "hello\n"
    assert [file for file in outside if file.exists()] == []


def test_without_tools_the_model_cannot_read_a_file(seen_work: Path) -> None:
    (seen_work / "a.txt").write_text("the-text-of-the-file")
    for tools, is_read in ((None, True), ((), False)):
        with on_stage(FACTORY, commanded("cat a.txt"), Text("Done.")) as stage:
            assert stage.answer(asked_for(seen_work, tools=tools)).output == "Done."
            assert ("the-text-of-the-file" in outcome(stage.server.requests[-1])) is is_read


# The other tests of sessions and of hostile settings try the same through the program.
@pytest.mark.soak
def test_a_session_that_is_kept_can_be_resumed(work: Path, tmp_path: Path) -> None:
    source = {**environment(FACTORY), "HOME": str(tmp_path)}
    program = str(agent_programs.find("codex"))
    with StandInServer([Text("One."), Text("Two.")]) as server:
        keeping = CodexAgent(program, source, base_url=f"{server.url}/v1", keep_sessions=True)
        first = Stage(keeping, server).answer(asked_for(work, "The first question."))
        agent = CodexAgent(program, source, base_url=f"{server.url}/v1")
        second = Stage(agent, server).answer(asked_for(work, "The second.", resume_session=first.session_id))
        said = spoken(server.requests[-1])
    assert (second.output, second.session_id) == ("Two.", first.session_id)
    spoken_before = [text for role, text in said if role in ("user", "assistant")]
    assert spoken_before[-3:] == ["The first question.", "One.", "The second."]


def test_a_session_that_is_not_known_is_told(work: Path) -> None:
    with on_stage(FACTORY, Text("never")) as stage:
        for _ in range(2):
            with pytest.raises(InvalidRequest, match="session"):
                stage.answer(asked_for(work, resume_session="01a1e194-efef-7572-9e0c-bae4611c8902"))
            Path(os.environ["HOME"], ".codex").mkdir(exist_ok=True)
        assert stage.calls == 0


def test_a_login_of_the_program_is_used_where_there_is_no_key(work: Path, tmp_path: Path) -> None:
    token = made_up_login(tmp_path)
    source = {**environment(FACTORY, logged_in=False), "HOME": str(tmp_path)}
    before = (tmp_path / ".codex" / "auth.json").read_bytes()
    with StandInServer([Text("Done.")]) as server:
        agent = CodexAgent(str(agent_programs.find("codex")), source, base_url=f"{server.url}/v1")
        assert Stage(agent, server).answer(asked_for(work)).output == "Done."
        (asked,) = (request for request in server.requests if not request.auxiliary)
    assert asked.credential == token
    assert (tmp_path / ".codex" / "auth.json").read_bytes() == before
    assert not list((tmp_path / ".codex").glob("*.sqlite*")), "it keeps records of the call in the user's directory"


def made_up_login(home: Path) -> str:
    """Write a login as the program does, and return the token in it."""
    claims = {"chatgpt_plan_type": "plus", "chatgpt_account_id": "made-up"}
    parts = {"alg": "none"}, {"exp": 4102444800, "email": "a@b.example", "https://api.openai.com/auth": claims}
    pieces = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    token = ".".join((*pieces, "signature"))
    tokens = {"id_token": token, "access_token": token, "refresh_token": "made-up", "account_id": "made-up"}
    folder = home / ".codex"
    folder.mkdir()
    login = {"auth_mode": "chatgpt", "tokens": tokens, "last_refresh": "2099-01-01T00:00:00Z"}
    (folder / "auth.json").write_text(json.dumps(login))
    return token
