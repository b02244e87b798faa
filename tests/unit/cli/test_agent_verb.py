"""`codeloupe agent run` up to the call itself."""

import json
from pathlib import Path

import pytest

from codeloupe.cli.main import main
from codeloupe.model.agent import AgentRequest, AgentResult
from tests.rows import each


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[AgentRequest]:
    """What the call would be made with."""
    requests: list[AgentRequest] = []

    async def answer(request: AgentRequest, **_: object) -> AgentResult:
        requests.append(request)
        return AgentResult(success=True, output="fine", agent="scripted")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("codeloupe.runtime.run_agent", answer)
    return requests


def test_two_files_of_one_name_are_both_sent_along(asked: list[AgentRequest], tmp_path: Path) -> None:
    for folder in ("old", "new"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "notes.md").write_text(f"the {folder} ones")
    (tmp_path / "plan.md").write_text("the plan")
    words = ("--context", "old/notes.md", "--context", "new/notes.md", "--context", "plan.md")
    assert main(["agent", "run", "-q", *words, "Compare them."]) == 0
    assert asked[0].context == {"old/notes.md": "the old ones", "new/notes.md": "the new ones", "plan.md": "the plan"}


@each(
    ("words", "kind"),
    [
        (("--agent", "clude", "Hi"), "ConfigError"),
        (("--prompt-file", "nowhere.txt"), "UsageError"),
        (("--timeout", "-1", "Hi"), "ConfigError"),
    ],
)
def test_what_stops_it_before_the_call_is_told_in_json_too(
    asked: list[AgentRequest], capsys: pytest.CaptureFixture[str], words: tuple[str, ...], kind: str
) -> None:
    assert main(["agent", "run", "--json", *words]) == 2
    told = capsys.readouterr()
    document = json.loads(told.out)
    assert (document["success"], document["error_kind"], document["attempts"]) == (False, kind, 0)
    assert document["error"]
    assert "hint:" in told.err
    assert not asked


@each(
    ("words", "said"),
    [
        (("--schema", "deep.json", "Hi"), "deep.json: nested too deeply"),
        (("--prompt-file", "/dev/zero"), "/dev/zero is larger than 67,108,864 bytes"),
        (("--context", "/dev/zero", "Hi"), "/dev/zero is larger than 67,108,864 bytes"),
    ],
)
def test_a_file_without_an_end_or_nested_beyond_reading_is_refused(
    asked: list[AgentRequest], capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    Path("deep.json").write_text('{"a":' * 50_000)
    assert main(["agent", "run", *words]) == 2
    assert said in capsys.readouterr().err
    assert not asked
