"""What the real gemini program does beyond the suite for all agents. Each start of it is dear, so there are few."""

from __future__ import annotations

from pathlib import Path

import pytest

from codeloupe.testing import Text, ToolUse
from tests.agent_factories import asked_for, by_name, on_stage

FACTORY = by_name("gemini")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def test_a_system_prompt_replaces_its_own_and_without_tools_it_has_none(work: Path) -> None:
    asked = asked_for(work, system_prompt="I replace.", append_system_prompt="I am appended.", tools=())
    with on_stage(FACTORY, Text("Done.")) as stage:
        stage.answer(asked)
        body = stage.server.requests[-1].body
    assert body["systemInstruction"]["parts"] == [{"text": "I replace.\n\nI am appended."}]
    (functions,) = body["tools"]
    assert [tool["name"] for tool in functions["functionDeclarations"]] == []


def test_its_tools_stay_inside_the_working_directory(work: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.txt").write_text("the-text-outside")
    (work / "link.txt").symlink_to(tmp_path / "outside.txt")
    (work / "inside.txt").write_text("the-text-inside")
    paths = (str(tmp_path / "outside.txt"), "../outside.txt", "link.txt", "inside.txt")
    replies = [ToolUse("read_file", {"file_path": path}) for path in paths]
    with on_stage(FACTORY, *replies, Text("Done.")) as stage:
        assert stage.answer(asked_for(work, model=FACTORY.model)).output == "Done."
        assert stage.sent("the-text-inside")
        assert not stage.sent("the-text-outside")
