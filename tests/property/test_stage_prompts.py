"""Whatever values, names and critiques a stage is told of, its prompt says all of them and stays in shape."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from codeloupe.config.yaml import escape
from codeloupe.model.pipeline import ArtifactRule, AttemptRecord, CriticVerdict, Critique, GateKind, StageRequest
from codeloupe.pipelines.execution import build_prompt

HEADINGS = (
    *("## Stage Requirements", "## Agent Definition", "## Prior Artifacts", "## Elicitation Context"),
    *("## Attempt History", "## Execution Environment"),
)
# Text of any kind, with what could pass for a part of the prompt more often.
_forgeries = st.sampled_from(
    [*HEADINGS, "### Attempt 9", "\n", "\r\n", "\r", "\x0b", "\x0c", "\x85", "\u2028", "- ", "```", "==="]
)
texts = st.lists(_forgeries | st.text(st.characters(), max_size=8), max_size=8).map("".join)
paths = texts.map(lambda text: Path("/run") / text.replace("\0", "0").replace("/", "_"))
critiques = st.builds(
    Critique,
    verdict=st.sampled_from(CriticVerdict),
    gate=st.sampled_from(GateKind),
    score=st.none() | st.integers(0, 100),
    summary=texts,
    blockers=st.lists(texts, max_size=3).map(tuple),
    fixes=st.lists(texts, max_size=3).map(tuple),
    confidence=st.none() | st.floats(0, 1),
)
attempts = st.builds(AttemptRecord, number=st.integers(1, 9), critiques=st.lists(critiques, max_size=2).map(tuple))
requests = st.builds(
    StageRequest,
    stage=st.just("write"),
    step_file=st.just(Path("step.md")),
    prior_artifacts=st.lists(paths, max_size=4).map(tuple),
    elicitation_context=st.dictionaries(texts, texts, max_size=4),
    attempt_history=st.lists(attempts, max_size=3).map(tuple),
)
rules = st.builds(ArtifactRule, required=st.lists(texts, max_size=2).map(tuple), recursive=st.booleans())


def built(request: StageRequest, rule: ArtifactRule, *, writes: bool, definition: str) -> str:
    with TemporaryDirectory() as folder:
        files = {"step_file": Path(folder) / "step.md", "agent_definition": Path(folder) / "agent.md"}
        files["step_file"].write_text("Do it.")
        files["agent_definition"].write_text(definition)
        asked = replace(request, **(files if definition else {"step_file": files["step_file"]}))
        return build_prompt(asked, writes=writes, artifacts=rule)


@given(requests, rules, st.booleans(), st.sampled_from(["", "You can."]))
def test_a_prompt_says_everything_in_its_own_sections(
    request: StageRequest, rule: ArtifactRule, writes: bool, definition: str
) -> None:
    text = built(request, rule, writes=writes, definition=definition)
    assert text == built(request, rule, writes=writes, definition=definition)
    text.encode()
    assert "\0" not in text

    parts = (True, definition, request.prior_artifacts, request.elicitation_context, request.attempt_history, True)
    lines = text.splitlines()
    assert [line for line in lines if line.startswith("## ")] == [
        heading for heading, part in zip(HEADINGS, parts, strict=True) if part
    ]
    assert sum(line.startswith("### ") for line in lines) == len(request.attempt_history)
    # Nothing but our own headings and sentences stands at the beginning of a line.
    said = [f"- {escape(str(path))}" for path in request.prior_artifacts]
    assert [line for line in said if line not in lines] == []
    keys = [f"- {escape(key)}:" for key in request.elicitation_context]
    assert [key for key in keys if not any(line.startswith(key) for line in lines)] == []


@given(st.lists(st.text(st.characters(blacklist_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1), min_size=1))
def test_a_value_of_several_lines_is_there_line_by_line(value: list[str]) -> None:
    request = StageRequest(stage="write", step_file=Path("step.md"), elicitation_context={"key": "\n".join(value)})
    text = built(request, ArtifactRule(), writes=True, definition="")
    shown = [line.strip() for line in text.splitlines()]
    expected = [line.strip() for line in value] if len(value) > 1 else [f"- key: {value[0]}".strip()]
    assert [line for line in expected if line not in shown] == []
