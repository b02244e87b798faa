"""What the real gemini program does beyond the suite for all agents. Each start of it is dear, so there are few."""

from pathlib import Path

import pytest

from codeloupe.testing import Text
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
