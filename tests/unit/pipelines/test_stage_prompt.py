from __future__ import annotations

import os
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe.config.files import MAX_FILE_BYTES
from codeloupe.errors import AgentExecutionError
from codeloupe.model.pipeline import ArtifactRule, CriticVerdict, Critique, GateKind, PastAttempt, StageRequest
from codeloupe.pipelines.execution import build_prompt, read_text
from tests.stage_workspaces import fill

WORK = Path("/some/work")
EMPTY = StageRequest(stage="write", step_file=Path("step.md"), agent_definition=Path("agent.md"))


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, {"step.md": "Write a poem.", "agent.md": "You are a poet."})
    monkeypatch.chdir(tmp_path)


def prompt(request: StageRequest = EMPTY, *, writes: bool = True, rule: ArtifactRule | None = None) -> str:
    return build_prompt(request, workspace=WORK, writes=writes, artifacts=rule or ArtifactRule())


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
        with pytest.raises(AttributeError):
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
    text = prompt(replace(EMPTY, agent_definition=None))
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


def read(file: Path) -> str:
    return read_text(file, "step file", "write")


@pytest.mark.requirement("S2")
def test_a_text_is_read_without_the_mark_of_its_encoding_up_to_the_largest_that_may_be(tmp_path: Path) -> None:
    file = tmp_path / "step.md"
    assert read(file) == "Write a poem."
    file.write_bytes(b"\xef\xbb\xbfDo it.\n")
    assert read(file) == "Do it.\n"
    file.write_text("x" * MAX_FILE_BYTES)
    assert len(read(file)) == MAX_FILE_BYTES


@pytest.mark.requirement("S5")
def test_a_file_that_cannot_be_used_is_told_with_its_cause(tmp_path: Path, subtests: pytest.Subtests) -> None:
    contents = {
        "the file is empty": (b"", b" \n\t\n"),
        "not UTF-8 text": (b"ok\xe9",),
        "not a text file, it holds a NUL byte": (b"a\0b",),
        f"larger than {MAX_FILE_BYTES:,} bytes": (b"x" * (MAX_FILE_BYTES + 1),),
    }
    fill(tmp_path, {f"{words[:9]}-{n}": text for words, texts in contents.items() for n, text in enumerate(texts)})
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    rows = [(f"{words[:9]}-{n}", words) for words, texts in contents.items() for n, _ in enumerate(texts)]
    rows += [
        ("nowhere", "no such file"),
        ("step.md/x", "cannot be read: not a directory"),
        (".", "a folder, where a file is expected"),
        ("pipe", "not a regular file"),
        ("circle", "a symbolic link"),
    ]
    for name, words in rows:
        for which in ("step file", "agent definition"):
            file = tmp_path / name
            both: dict[str, Any] = {"step_file": tmp_path / "step.md", "agent_definition": tmp_path / "agent.md"}
            both[which.replace(" ", "_")] = file
            with subtests.test(name=name, which=which):
                with pytest.raises(AgentExecutionError, match=words) as caught:
                    prompt(StageRequest(stage="write", **both))
                assert caught.value.stage == "write"
                assert which in caught.value.message
                assert str(file) in caught.value.message
                assert isinstance(caught.value.__cause__, OSError | ValueError)
                assert caught.value.hint
