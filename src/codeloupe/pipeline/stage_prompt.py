"""What a stage's agent is told: the texts of the stage's files, and the prompt that is made of them.

The step file and the agent definition are the pipeline author's and stand in the prompt as they are. Everything else
may come from a model or a hostile file name: it never begins a line, so it cannot pass for a heading.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from codeloupe.config.yaml import escape
from codeloupe.errors import AgentExecutionError
from codeloupe.model.pipeline import Critique, PastAttempt, StageRequest
from codeloupe.model.pipeline_definition import ArtifactRule
from codeloupe.pipeline.artifacts import answer_name

MOST_TEXT_BYTES = 1024 * 1024
# Deep enough that Markdown takes a line for text, even inside of a list.
_INDENT = " " * 6
# Control characters but for the tab, and halves of characters.
_UNFIT = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\ud800-\udfff]")


class StageTexts(Struct, frozen=True):
    """The text of a stage's step file, and of its agent definition, empty where there is none."""

    step: str
    agent_definition: str = ""


def read_texts(request: StageRequest) -> StageTexts:
    """The texts of the files that a stage names. Raises AgentExecutionError from its cause, which names the file."""
    definition = request.agent_definition
    return StageTexts(
        step=_read(request.step_file, "step file", request.stage),
        agent_definition="" if definition is None else _read(definition, "agent definition", request.stage),
    )


def _read(file: Path, what: str, stage: str) -> str:
    try:
        return _text_of(file)
    except (OSError, ValueError) as error:
        reason = _reason(error)
        raise AgentExecutionError(
            f"the stage {stage} cannot begin: its {what} {escape(str(file))} {reason}",
            stage=stage,
            hint=f"check the {what} that the pipeline names; `codeloupe pipeline validate` looks at all of them",
        ) from error


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        return "is not there"
    if isinstance(error, UnicodeDecodeError):
        return f"is not UTF-8: byte {error.start + 1:,} cannot be decoded"
    if isinstance(error, OSError):
        return f"cannot be read: {(error.strerror or str(error)).lower()}"
    return str(error)


def _text_of(file: Path) -> str:
    # Not blocking: opening a pipe would wait for whoever writes to it.
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("is not a regular file")
        content = stream.read(MOST_TEXT_BYTES + 1)
    if len(content) > MOST_TEXT_BYTES:
        raise ValueError(f"is larger than {MOST_TEXT_BYTES:,} bytes")
    text = content.decode("utf-8-sig")
    if not text.strip():
        raise ValueError("is empty")
    if "\0" in text:
        raise ValueError("is not a text: it holds a NUL byte")
    return text


def build_prompt(
    request: StageRequest, texts: StageTexts, *, workspace: Path, writes: bool, artifacts: ArtifactRule
) -> str:
    """The prompt of a stage: one section for each thing that there is to tell. Pure."""
    sections = {
        "Stage Requirements": texts.step.strip(),
        "Agent Definition": texts.agent_definition.strip(),
        "Prior Artifacts": "\n".join(_prior(request.prior_artifacts)),
        "Prior Answers": "\n".join(_answers(request.prior_answers)),
        "Elicitation Context": "\n".join(_context(request.elicitation_context)),
        "Attempt History": "\n".join(_history(request.attempt_history)),
        "Execution Environment": "\n".join(
            _environment(request.stage, workspace, rule=artifacts) if writes else _reading(request.stage, workspace)
        ),
    }
    return "\n\n".join(f"## {title}\n\n{text}" for title, text in sections.items() if text) + "\n"


def _prior(paths: Sequence[Path]) -> Iterator[str]:
    if paths:
        yield "Earlier stages made these files. Read those that you need; do not change them."
        yield from (f"- {escape(str(path))}" for path in paths)


def _answers(answers: Mapping[str, str]) -> Iterator[str]:
    if answers:
        yield "Earlier stages answered this."
    for name, text in answers.items():
        yield from _item(escape(name), text)


def _context(values: Mapping[str, str]) -> Iterator[str]:
    for key, value in values.items():
        yield from _item(escape(key), value)


def _item(label: str, value: str) -> Iterator[str]:
    """`label: value`, and a value of several lines below its label."""
    lines = [_harmless(line) for line in value.splitlines()]
    if len(lines) <= 1:
        yield f"- {label}: {''.join(lines)}".rstrip()
        return
    yield f"- {label}:"
    yield from (f"{_INDENT}{line}".rstrip() for line in lines)


def _harmless(line: str) -> str:
    """A line with the characters escaped that no agent takes, or that only a terminal acts on."""
    return _UNFIT.sub(lambda found: escape(found[0]), line)


def _history(attempts: Sequence[PastAttempt]) -> Iterator[str]:
    if attempts:
        yield "Earlier attempts at this stage were not accepted. Do better where they failed, and keep what was good."
    for attempt in attempts:
        yield f"\n### Attempt {attempt.number}\n"
        for critique in attempt.critiques:
            yield from _critique(critique)
        if attempt.error:
            yield from _item("error", attempt.error)
        if not attempt.critiques and not attempt.error:
            yield "- no reason is known"


def _critique(critique: Critique) -> Iterator[str]:
    facts = [critique.verdict.value]
    if critique.score is not None:
        facts.append(f"score {critique.score} of 100")
    if critique.confidence is not None:
        facts.append(f"confidence {critique.confidence:g}")
    yield f"- verdict of the {critique.gate.value} gate: {', '.join(facts)}"
    if critique.summary:
        yield from _item("summary", critique.summary)
    for blocker in critique.blockers:
        yield from _item("blocker", blocker)
    for fix in critique.fixes:
        yield from _item("fix", fix)


def _environment(stage: str, workspace: Path, *, rule: ArtifactRule) -> Iterator[str]:
    yield f"- Your working directory: {escape(str(workspace))}"
    yield "- Write files here and in folders below only. Hidden files and links that lead elsewhere are no artifacts."
    if rule.required:
        yield f"- These files must be there when you are done: {_listed(rule.required)}"
    where = "in it and in its folders" if rule.recursive else "directly in it"
    yield f"- Files that count as your artifacts, {where}: {_listed(rule.patterns)}"
    for name in rule.schemas:
        yield f"- {escape(name)} is checked against a JSON Schema."
    yield f"- If you write no such file, your answer is saved as {_saved_as(stage)}."


def _reading(stage: str, workspace: Path) -> Iterator[str]:
    yield f"- Your working directory: {escape(str(workspace))}"
    yield "- You may read files, and must not make, change or remove any: a change fails this stage."
    yield f"- Your answer is the result. It is saved for you as {_saved_as(stage)}, so give it in full."


def _saved_as(stage: str) -> str:
    return f"{answer_name(stage, structured=False, taken=())}, or .json where a value is asked for"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(escape, names))
