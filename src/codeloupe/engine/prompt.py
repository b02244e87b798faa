"""The prompts of a review: what is the same for every call first, then what applies to these files, the diff last.

The system text holds our instructions alone. Whatever comes from the repository, its author or a model stands in the
other text, between lines with a marker that is random for each run. Pure, but for the texts in `prompts/`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from msgspec import Struct

from codeloupe.engine.light_diff import light_diff, shown_line
from codeloupe.engine.prompt_checklist import checklist
from codeloupe.engine.prompt_material import PromptMaterial, material_blocks
from codeloupe.engine.prompt_schema import FINDINGS_SCHEMA, REPAIR_SCHEMA, VERIFY_SCHEMA
from codeloupe.engine.prompt_text import cut, fenced, new_fence, one_line, visible
from codeloupe.model.change import Unit
from codeloupe.model.finding import Finding

__all__ = [
    "FINDINGS_SCHEMA",
    "PROMPT_VERSION",
    "REPAIR_SCHEMA",
    "VERIFY_SCHEMA",
    "Prompt",
    "PromptMaterial",
    "excerpt_around",
    "new_fence",
    "repair_prompt",
    "review_prompt",
    "verify_prompt",
]

# Raised with every change of the texts in `prompts/`, of the schemas and of what is put around them.
PROMPT_VERSION = "2"

_RESOURCES = Path(__file__).with_name("prompts")
_FEW_TOKENS = 800
_ANSWER_HEAD_CHARACTERS = 16_000
_ANSWER_TAIL_CHARACTERS = 8_000
_PROBLEM_CHARACTERS = 300
_CLAIM_BYTES = 4_000
_EXCERPT_CONTEXT_LINES = 25
_EXCERPT_LINES = 120


class Prompt(Struct, frozen=True):
    """The two texts of a call: the system's, the same for all units of a checklist, and the unit's own.

    `notes` say in words what of the unit or its material is not in the text as it is.
    """

    system: str
    text: str
    notes: tuple[str, ...] = ()


def review_prompt(unit: Unit, material: PromptMaterial) -> Prompt:
    """Asks for the defects of one unit."""
    blocks = material_blocks(unit.files, material, unit_tokens=unit.tokens)
    diff = light_diff(unit.parts)
    system = _resource("review").replace("{reading}", _reading(material))
    text = "\n\n".join((_about_data(material), *blocks.pieces, fenced(material.fence, "diff", diff.text)))
    # The checklist for a line or two that are new since the last review need not be longer than they are.
    listed = checklist(unit.experts, in_brief=material.is_follow_up and unit.tokens < _FEW_TOKENS)
    # Put in last: an expert's words are not ours, and must not be taken for one of our places to fill.
    return Prompt(system.replace("{checklist}", listed), text, blocks.notes + diff.notes)


def repair_prompt(answer: str, problem: str, material: PromptMaterial) -> Prompt:
    """Asks to say an answer that could not be read again as JSON of REPAIR_SCHEMA, inventing nothing.

    A long answer loses its middle. An answer that is no review is to come back with `readable` false: it must count
    as failed, not as one without findings.
    """
    shown = _head_and_tail(answer)
    why = fenced(material.fence, "problem", visible(problem)[:_PROBLEM_CHARACTERS])
    text = "\n\n".join((_about_data(material), why, fenced(material.fence, "answer", shown)))
    notes = () if shown == answer else (f"the answer to repair was cut to {len(shown):,} characters",)
    return Prompt(_resource("repair"), text, notes)


def verify_prompt(finding: Finding, excerpt: str, material: PromptMaterial) -> Prompt:
    """Asks to refute one finding, alone with its code, as JSON of VERIFY_SCHEMA."""
    place = one_line(finding.file)
    if finding.line_start is None:
        place += " (the quoted code was not found there)"
    else:
        place += f":{finding.line_start}-{finding.line_end}"
    claim = visible("\n\n".join(part for part in (finding.title, finding.evidence, finding.body) if part))
    shown = cut(claim, _CLAIM_BYTES)
    blocks = (
        fenced(material.fence, f"claim {place}", shown),
        fenced(material.fence, f"code {one_line(finding.file)}", excerpt),
    )
    system = _resource("verify").replace("{reading}", _reading(material))
    notes = () if shown == claim else (f"the claim to verify was cut to {_CLAIM_BYTES:,} bytes",)
    return Prompt(system, "\n\n".join((_about_data(material), *blocks)), notes)


def excerpt_around(lines: Sequence[str], start: int, end: int) -> str:
    """Numbered lines of a file around those from `start` to `end`, which begin with `>`.

    Places outside of the file are moved into it; of a very long one the first lines are shown.
    """
    start = max(1, min(start, len(lines)))
    end = max(start, min(end, len(lines)))
    first = max(1, start - _EXCERPT_CONTEXT_LINES)
    last = min(len(lines), end + _EXCERPT_CONTEXT_LINES, first + _EXCERPT_LINES - 1)
    rows = [
        f"{'>' if start <= number <= end else ' '}{number} {_shown(lines[number - 1])}"
        for number in range(first, last + 1)
    ]
    return "\n".join(rows)


def _shown(line: str) -> str:
    return shown_line(line.rstrip("\r\n").encode("utf-8", "surrogatepass"))


def _about_data(material: PromptMaterial) -> str:
    return _resource("data").replace("{fence}", material.fence)


def _reading(material: PromptMaterial) -> str:
    if not material.can_read_tree:
        return _resource("reading_diff")
    return _resource("reading_part" if material.tree_is_partial else "reading_tree")


def _head_and_tail(answer: str) -> str:
    left_out = len(answer) - _ANSWER_HEAD_CHARACTERS - _ANSWER_TAIL_CHARACTERS
    if left_out <= 0:
        return answer
    head, tail = answer[:_ANSWER_HEAD_CHARACTERS], answer[-_ANSWER_TAIL_CHARACTERS:]
    return f"{head}\n[cut: {left_out:,} more characters]\n{tail}"


@cache
def _resource(name: str) -> str:
    """One of our texts, as it was shipped."""
    return (_RESOURCES / f"{name}.md").read_text(encoding="utf-8").strip()
