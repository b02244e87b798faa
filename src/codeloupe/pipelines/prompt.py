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

from codeloupe.config.yaml import escape
from codeloupe.errors import AgentExecutionError
from codeloupe.model.pipeline import ArtifactRule, PastAttempt, StageRequest
from codeloupe.pipelines.artifacts import answer_name

MOST_TEXT_BYTES = 1024 * 1024
# Deep enough that Markdown takes a line for text, even inside of a list.
_INDENT = " " * 6
# Control characters but for the tab, and halves of characters.
_UNFIT = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\ud800-\udfff]")


def build_prompt(request: StageRequest, *, workspace: Path, writes: bool, artifacts: ArtifactRule) -> str:
    """The prompt of a stage: one section for each thing that there is to tell.

    Raises AgentExecutionError from its cause, which names the file, when a file of the stage cannot be read.
    """
    agent_definition = request.agent_definition
    context = (line for key, value in request.elicitation_context.items() for line in _item(escape(key), value))
    prior = [f"- {escape(str(path))}" for path in request.prior_artifacts]
    if prior:
        prior.insert(0, "Earlier stages made these files. Read those that you need; do not change them.")
    sections = {
        "Stage Requirements": read_text(request.step_file, "step file", request.stage).strip(),
        "Agent Definition": (
            "" if agent_definition is None else read_text(agent_definition, "agent definition", request.stage).strip()
        ),
        "Prior Artifacts": "\n".join(prior),
        "Prior Answers": "\n".join(_answers(request.prior_answers)),
        "Elicitation Context": "\n".join(context),
        "Attempt History": "\n".join(_history(request.attempt_history)),
        "Execution Environment": "\n".join(_environment(request.stage, workspace, artifacts, writes=writes)),
    }
    return "\n\n".join(f"## {title}\n\n{text}" for title, text in sections.items() if text) + "\n"


def read_text(file: Path, what: str, stage: str) -> str:
    """The text of a file that a stage names. Raises AgentExecutionError from its cause."""
    try:
        return _text_of(file)
    except (OSError, ValueError) as error:
        match error:
            case FileNotFoundError():
                reason = "is not there"
            case UnicodeDecodeError():
                reason = f"is not UTF-8: byte {error.start + 1:,} cannot be decoded"
            case OSError():
                reason = f"cannot be read: {(error.strerror or str(error)).lower()}"
            case _:
                reason = str(error)
        raise AgentExecutionError(
            f"the stage {stage} cannot begin: its {what} {escape(str(file))} {reason}",
            stage=stage,
            hint=f"check the {what} that the pipeline names; `codeloupe pipeline validate` looks at all of them",
        ) from error


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


def _answers(answers: Mapping[str, str]) -> Iterator[str]:
    if answers:
        yield "Earlier stages answered this."
    for name, text in answers.items():
        yield from _item(escape(name), text)


def _item(label: str, value: str) -> Iterator[str]:
    """`label: value`, and a value of several lines below its label.

    Characters are escaped that no agent takes, or that only a terminal acts on.
    """
    lines = [_UNFIT.sub(lambda found: escape(found[0]), line) for line in value.splitlines()]
    if len(lines) <= 1:
        yield f"- {label}: {''.join(lines)}".rstrip()
        return
    yield f"- {label}:"
    yield from (f"{_INDENT}{line}".rstrip() for line in lines)


def _history(attempts: Sequence[PastAttempt]) -> Iterator[str]:
    if attempts:
        yield "Earlier attempts at this stage were not accepted. Do better where they failed, and keep what was good."
    for attempt in attempts:
        yield f"\n### Attempt {attempt.number}\n"
        for critique in attempt.critiques:
            facts = [critique.verdict.value]
            if critique.score is not None:
                facts.append(f"score {critique.score} of 100")
            if critique.confidence is not None:
                facts.append(f"confidence {critique.confidence:g}")
            yield f"- verdict of the {critique.gate.value} gate: {', '.join(facts)}"
            parts = {"summary": (critique.summary,), "blocker": critique.blockers, "fix": critique.fixes}
            for label, text in ((label, text) for label, texts in parts.items() for text in texts if text):
                yield from _item(label, text)
        if attempt.error:
            yield from _item("error", attempt.error)
        if not attempt.critiques and not attempt.error:
            yield "- no reason is known"


def _environment(stage: str, workspace: Path, rule: ArtifactRule, *, writes: bool) -> Iterator[str]:
    saved_as = f"{answer_name(stage, structured=False, taken=())}, or .json where a value is asked for"
    yield f"- Your working directory: {escape(str(workspace))}"
    if not writes:
        yield "- You may read files, and must not make, change or remove any: a change fails this stage."
        yield f"- Your answer is the result. It is saved for you as {saved_as}, so give it in full."
        return
    yield "- Write files here and in folders below only. Hidden files and links that lead elsewhere are no artifacts."
    if rule.required:
        yield f"- These files must be there when you are done: {', '.join(map(escape, rule.required))}"
    where = "in it and in its folders" if rule.recursive else "directly in it"
    yield f"- Files that count as your artifacts, {where}: {', '.join(map(escape, rule.patterns))}"
    for name in rule.schemas:
        yield f"- {escape(name)} is checked against a JSON Schema."
    yield f"- If you write no such file, your answer is saved as {saved_as}."
