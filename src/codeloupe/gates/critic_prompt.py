"""What a critic is told: our instructions, and apart from them what it judges, which cannot speak for itself.

Pure, but for the texts in `prompts/`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from codeloupe.gates.fencing import cut, fenced
from codeloupe.model.pipeline import Critique
from codeloupe.model.ports import GateTask

# Raised with every change of the texts in `prompts/`, of the schemas and of what is put around them.
CRITIC_VERSION = "1"

_RESOURCES = Path(__file__).with_name("prompts")
_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_MOST_REQUIREMENTS = 200_000
_MOST_ANSWER = 100_000
_MOST_DIFF = 400_000
_MOST_NAMES = 2_000
_MOST_EARLIER = 50_000
_MOST_REPAIRED = 50_000

CRITIQUE_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "summary": _TEXT,
        "verdict": {"type": "string", "enum": ["PASS", "REWORK", "FAIL"]},
        "score": {"type": "integer", "minimum": 0, "maximum": 100},
        "blockers": _TEXTS,
        "fixes": _TEXTS,
        "confidence": {"type": "number"},
    },
    "required": ["summary", "verdict", "score", "blockers", "fixes"],
    "additionalProperties": False,
}

# An answer that is no critique must not come back from its repair as one.
REPAIR_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"readable": {"type": "boolean"}, **CRITIQUE_SCHEMA["properties"]},
    "required": ["readable", *CRITIQUE_SCHEMA["required"]],
    "additionalProperties": False,
}


class CriticPrompt(Struct, frozen=True):
    """The two texts of a call."""

    system: str
    text: str


def critic_prompt(task: GateTask, *, fence: str, instructions: str | None, wish: str, can_read: bool) -> CriticPrompt:
    """Asks for a critique of one attempt. `instructions` are the user's own, in the place of the built-in ones."""
    judging = resource("critic") if instructions is None else instructions.strip()
    answer = resource("critic_answer").replace("{reading}", resource("reading_tree" if can_read else "reading_diff"))
    parts = (judging, wish.strip(), answer)
    text = "\n\n".join((resource("critic_data").replace("{fence}", fence), *_material(task, fence)))
    return CriticPrompt("\n\n".join(part for part in parts if part), text)


def repair_prompt(answer: str, problem: str, *, fence: str) -> CriticPrompt:
    """Asks to say an answer that could not be read again, inventing nothing."""
    shown = answer if len(answer) <= _MOST_REPAIRED else _ends(answer)
    blocks = (fenced(fence, "problem", problem), fenced(fence, "answer", shown))
    text = "\n\n".join((resource("critic_data").replace("{fence}", fence), *blocks))
    return CriticPrompt(resource("critic_repair"), text)


def _material(task: GateTask, fence: str) -> Iterator[str]:
    yield fenced(fence, "requirements", cut(task.requirements, _MOST_REQUIREMENTS))
    if task.artifacts:
        yield fenced(fence, "artifacts", _names([_name(path, task.workspace) for path in task.artifacts]))
    if task.files_changed:
        yield fenced(fence, "files changed", _names(list(task.files_changed)))
    if task.output.strip():
        yield fenced(fence, "what the agent answered", cut(task.output, _MOST_ANSWER))
    if task.earlier:
        earlier = "\n\n".join(_critique(number, critique) for number, critique in enumerate(task.earlier, start=1))
        yield fenced(fence, "earlier critiques", cut(earlier, _MOST_EARLIER))
    change = cut(task.diff, _MOST_DIFF) if task.diff.strip() else "(no file was changed)"
    yield fenced(fence, "diff", change)


def _name(path: Path, workspace: Path) -> str:
    return str(path.relative_to(workspace)) if path.is_relative_to(workspace) else str(path)


def _names(names: list[str]) -> str:
    left = len(names) - _MOST_NAMES
    # A name may hold a line end, which would make two of it.
    lines = [name.replace("\n", "<U+000A>") for name in names[:_MOST_NAMES]]
    return "\n".join(lines if left <= 0 else (*lines, f"[and {left:,} more]"))


def _critique(number: int, critique: Critique) -> str:
    score = "" if critique.score is None else f", score {critique.score}"
    lists = (("blocker", critique.blockers), ("fix", critique.fixes))
    lines = [f"- {what}: {text}" for what, texts in lists for text in texts]
    return "\n".join((f"{number}. {critique.verdict.value}{score}: {critique.summary}", *lines))


def _ends(answer: str) -> str:
    half = _MOST_REPAIRED // 2
    return f"{answer[:half]}\n[cut: {len(answer) - 2 * half:,} characters]\n{answer[-half:]}"


@cache
def resource(name: str) -> str:
    """One of our texts, as it was shipped."""
    return (_RESOURCES / f"{name}.md").read_text(encoding="utf-8").strip()
