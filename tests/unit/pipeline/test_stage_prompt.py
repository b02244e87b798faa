from __future__ import annotations

import os
from dataclasses import FrozenInstanceError
from pathlib import Path
from types import MappingProxyType

import pytest
from msgspec.structs import replace

from codeloupe.errors import AgentExecutionError
from codeloupe.model.pipeline import CriticVerdict, Critique, PastAttempt, StageRequest
from codeloupe.model.pipeline_definition import ArtifactRule, GateKind
from codeloupe.pipeline.stage_prompt import MOST_TEXT_BYTES, StageTexts, build_prompt, read_texts
from tests.stage_workspaces import fill

WORK = Path("/some/work")
EMPTY = StageRequest(stage="write", step_file=Path("step.md"))


def prompt(request: StageRequest = EMPTY, *, writes: bool = True, rule: ArtifactRule | None = None) -> str:
    texts = StageTexts("Write a poem.", "You are a poet.")
    return build_prompt(request, texts, workspace=WORK, writes=writes, artifacts=rule or ArtifactRule())


def headings(text: str) -> list[str]:
    return [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]


@pytest.mark.requirement("S1")
def test_a_request_cannot_be_changed() -> None:
    request = StageRequest(
        stage="write",
        step_file=Path("step.md"),
        agent_definition=Path("agent.md"),
        prior_artifacts=(Path("a.md"),),
        elicitation_context=MappingProxyType({"tone": "dry"}),
        attempt_history=(PastAttempt(number=1),),
    )
    for name in ("stage", "step_file", "agent_definition", "prior_artifacts", "elicitation_context", "attempt_history"):
        with pytest.raises(FrozenInstanceError):
            setattr(request, name, None)


@pytest.mark.requirement("S2")
def test_the_sections_stand_in_order_and_say_everything() -> None:
    critique = Critique(
        verdict=CriticVerdict.REWORK,
        gate=GateKind.CRITIC,
        score=55,
        summary="Too long.",
        blockers=("It has no end.", "Two\nlines"),
        fixes=("Write an end.",),
        confidence=0.75,
    )
    request = replace(
        EMPTY,
        prior_artifacts=(Path("/run/research.md"), Path("/run/plan.json")),
        elicitation_context={"tone": "dry", "notes": "first\nsecond"},
        attempt_history=(PastAttempt(number=1, critiques=(critique,)), PastAttempt(number=2, error="It timed out.")),
    )
    rule = ArtifactRule(required=("poem.md",), schemas={"meta.json": {}})
    text = prompt(request, rule=rule)
    assert headings(text) == [
        "Stage Requirements",
        "Agent Definition",
        "Prior Artifacts",
        "Elicitation Context",
        "Attempt History",
        "Execution Environment",
    ]
    expected = (
        "Write a poem.",
        "You are a poet.",
        "- /run/research.md\n- /run/plan.json",
        "- tone: dry\n- notes:\n      first\n      second",
        "### Attempt 1",
        "- verdict of the critic gate: REWORK, score 55 of 100, confidence 0.75",
        "- summary: Too long.",
        "- blocker: It has no end.",
        "- blocker:\n      Two\n      lines",
        "- fix: Write an end.",
        "### Attempt 2",
        "- error: It timed out.",
        "- Your working directory: /some/work",
        "must be there when you are done: poem.md",
        "directly in it: *.md, *.json, *.txt, *.yaml, *.yml",
        "- meta.json is checked against a JSON Schema.",
        "saved as write-output.md",
    )
    assert [part for part in expected if part not in text] == []


@pytest.mark.requirement("S2")
def test_what_there_is_nothing_to_say_about_has_no_section() -> None:
    text = build_prompt(EMPTY, StageTexts("Do it."), workspace=WORK, writes=True, artifacts=ArtifactRule())
    assert headings(text) == ["Stage Requirements", "Execution Environment"]


def test_an_agent_that_may_not_write_is_told_to_answer() -> None:
    text = prompt(writes=False)
    assert "must not make, change or remove any" in text
    assert "Your answer is the result" in text
    assert "*.md" not in text


def test_folders_are_spoken_of_only_when_they_count() -> None:
    assert "directly in it" in prompt(rule=ArtifactRule())
    assert "in it and in its folders" in prompt(rule=ArtifactRule(recursive=True))


def test_a_prompt_holds_nothing_that_no_agent_takes() -> None:
    request = replace(
        EMPTY,
        prior_artifacts=(Path(os.fsdecode(b"/run/\xff\n## Stage Requirements")),),
        elicitation_context={"k\x00\udc80": "v\x00\x1b[31m \udcff\u2028## Attempt History\r## More"},
    )
    text = prompt(request)
    text.encode()
    assert "\0" not in text
    assert "\x1b" not in text
    assert "/run/\\udcff\\n## Stage Requirements" in text
    assert headings(text).count("Stage Requirements") == 1
    assert "Attempt History" not in headings(text)


class TestFiles:
    @pytest.fixture
    def request_for(self, tmp_path: Path) -> StageRequest:
        fill(tmp_path, {"step.md": "Do it.\n", "agent.md": "You can.\n"})
        return StageRequest(stage="write", step_file=tmp_path / "step.md", agent_definition=tmp_path / "agent.md")

    @pytest.mark.requirement("S2")
    def test_both_texts_are_read(self, request_for: StageRequest) -> None:
        assert read_texts(request_for) == StageTexts("Do it.\n", "You can.\n")
        assert read_texts(replace(request_for, agent_definition=None)) == StageTexts("Do it.\n", "")

    def test_a_mark_of_the_encoding_is_no_part_of_the_text(self, request_for: StageRequest) -> None:
        request_for.step_file.write_bytes(b"\xef\xbb\xbfDo it.")
        assert read_texts(request_for).step == "Do it."

    @pytest.mark.requirement("S5")
    @pytest.mark.parametrize("which", ["step file", "agent definition"])
    @pytest.mark.parametrize(
        ("how", "words"),
        [
            ("missing", "is not there"),
            ("below a file", "cannot be read: not a directory"),
            ("directory", "is a directory"),
            ("pipe", "is not a regular file"),
            ("empty", "is empty"),
            ("blank", "is empty"),
            ("latin", "is not UTF-8: byte 3 cannot be decoded"),
            ("NUL", "is not a text: it holds a NUL byte"),
            ("huge", f"is larger than {MOST_TEXT_BYTES:,} bytes"),
            ("circle", "cannot be read: too many levels of symbolic links"),
        ],
    )
    def test_a_file_that_cannot_be_used_is_told_with_its_cause(
        self, request_for: StageRequest, which: str, how: str, words: str
    ) -> None:
        file = request_for.step_file if which == "step file" else request_for.agent_definition
        assert file is not None
        spoil(file, how)
        if how == "below a file":
            step = file / "x" if which == "step file" else request_for.step_file
            request_for = StageRequest(stage="write", step_file=step, agent_definition=file / "x")
        with pytest.raises(AgentExecutionError, match=words) as caught:
            read_texts(request_for)
        assert caught.value.stage == "write"
        assert which in caught.value.message
        assert str(file) in caught.value.message
        assert isinstance(caught.value.__cause__, OSError | ValueError)
        assert caught.value.hint

    def test_the_largest_text_that_may_be_is_read(self, request_for: StageRequest) -> None:
        request_for.step_file.write_text("x" * MOST_TEXT_BYTES)
        assert len(read_texts(request_for).step) == MOST_TEXT_BYTES


def spoil(file: Path, how: str) -> None:
    contents = {
        "empty": b"",
        "blank": b" \n\t\n",
        "latin": b"ok\xe9",
        "NUL": b"a\0b",
        "huge": b"x" * (MOST_TEXT_BYTES + 1),
    }
    if how in contents:
        file.write_bytes(contents[how])
    elif how != "below a file":
        file.unlink()
    if how == "directory":
        file.mkdir()
    elif how == "pipe":
        os.mkfifo(file)
    elif how == "circle":
        file.symlink_to(file)
