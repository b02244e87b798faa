"""The prompts of a review: the instructions, the material that applies to a unit's files, and the diff at the end.

The system text contains only our instructions, and is the same for all units with the same checklist. Text from the
repository, its author or a model goes into the other text, with hidden characters made visible, between lines with a
marker that is random for each run. Each block has a limit, because every call pays for it. A text that was cut says so,
and so does a note of the prompt.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.model.change import Expert, GuidanceFile, Intent, PathInstruction, Unit
from codeloupe.model.finding import Claim, Finding, Proof, Severity
from codeloupe.planning.globs import Globs
from codeloupe.planning.guidance import guidance_texts
from codeloupe.reviewers.diff_text import light_diff, shown_line
from codeloupe.system.untrusted import one_line, visible

# Raise it with every change of a text in `prompts/`, of a schema or of this module: it is part of the ledger's keys.
PROMPT_VERSION = "4"

_PROMPTS = Path(__file__).with_name("prompts")
# Instructions and context were written for this review, so they get more room than the author's description.
_INSTRUCTIONS_BYTES = 7_000
_CONTEXT_BYTES = 4_000
_TITLE_BYTES = 200
_MESSAGES_BYTES = 300
_MESSAGES_BYTES_IN_FOLLOW_UP = 200
_CLAIM_BYTES = 4_000
_MAX_KNOWN = 30
_KNOWN_BYTES = 200
# Several experts share this many characters, because every call pays for all of them. One expert alone has no limit.
_CHECKLIST_CHARACTERS = 1_000
_BRIEF_CHECKLIST_CHARACTERS = 640
_BRIEF_UNIT_TOKENS = 800
_LINES_AROUND = 25
_MAX_EXCERPT_LINES = 120


def _object_schema(properties: Mapping[str, Any], *, optional: Sequence[str] = ()) -> Mapping[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


def _list_schema(name: str, item: Mapping[str, Any]) -> Mapping[str, Any]:
    return _object_schema({name: {"type": "array", "items": item}})


_TEXT = {"type": "string"}
_INTEGER = {"type": "integer"}
# The order matters: the claim follows the reasoning.
_FINDING = {
    "file": _TEXT,
    "line": _INTEGER,
    "quote": _TEXT,
    "body": _TEXT,
    "title": _TEXT,
    "category": _TEXT,
    "severity": {"type": "string", "enum": [severity.label for severity in Severity]},
}
_PROOF = {
    "claim": _INTEGER,
    "reason": _TEXT,
    "proof": {"type": "string", "enum": [proof.value for proof in Proof]},
    "suggestion": _TEXT,
    "replacement": _TEXT,
}
FINDINGS_SCHEMA = _list_schema("findings", _object_schema(_FINDING))
FINDINGS_WITH_ID_SCHEMA = _list_schema("findings", _object_schema({**_FINDING, "id": _TEXT}, optional=["id"]))
PROOFS_SCHEMA = _list_schema("proofs", _object_schema(_PROOF, optional=["suggestion", "replacement"]))


class PromptMaterial(Struct, frozen=True, kw_only=True):
    """The material of a prompt beside the diff.

    `known` are the findings of earlier rounds. In a follow-up the diff has only new code, and the prompt is shorter.
    """

    fence: str
    intent: Intent = Intent()
    guidance: tuple[GuidanceFile, ...] = ()
    instructions: tuple[PathInstruction, ...] = ()
    known: tuple[Finding, ...] = ()
    can_read_tree: bool = False
    tree_is_partial: bool = False
    is_follow_up: bool = False


class Prompt(Struct, frozen=True, kw_only=True):
    """A question to an agent and the schema of its answer; `notes` describe what was cut."""

    system: str
    text: str
    schema: Mapping[str, Any]
    notes: tuple[str, ...] = ()


def review_prompt(unit: Unit, material: PromptMaterial) -> Prompt:
    """Return the question for the defects of one unit."""
    notes: list[str] = []
    known = _known_in(unit.files, material.known)
    diff, diff_notes = light_diff(unit.parts)
    blocks = [
        _data_rule(material),
        *_guidance_blocks(unit, material, notes),
        *_intent_blocks(material, notes),
        *_known_blocks(known, material, notes),
        fenced(material.fence, "diff", diff),
    ]
    schema = FINDINGS_WITH_ID_SCHEMA if known else FINDINGS_SCHEMA
    in_brief = material.is_follow_up and unit.tokens < _BRIEF_UNIT_TOKENS
    # The checklist is inserted last, so that an expert's words are not taken for one of our placeholders.
    system = _system("review", material).replace("{checklist}", checklist(unit.experts, in_brief=in_brief))
    return Prompt(system=system, text="\n\n".join(blocks), schema=schema, notes=(*notes, *diff_notes))


def again(prompt: Prompt) -> Prompt:
    """Return the full question once more, for an agent whose answer was not exact."""
    return replace(prompt, text=f"{prompt.text}\n\nReply with the JSON value only.")


def verify_prompt(finding: Finding, excerpt: str, material: PromptMaterial) -> Prompt:
    """Return the question for one proof per claim of a finding; the claims are numbered from 1."""
    notes: list[str] = []
    blocks = [_data_rule(material)]
    for number, claim in enumerate(finding.claims, start=1):
        blocks.append(_claim_block(number, claim, material, notes))
    blocks.append(fenced(material.fence, f"code {one_line(finding.file)}", excerpt))
    system = _system("verify", material)
    return Prompt(system=system, text="\n\n".join(blocks), schema=PROOFS_SCHEMA, notes=tuple(notes))


def excerpt_around(lines: Sequence[str], start: int, end: int) -> str:
    """Return numbered lines of a file around those from `start` to `end`, which start with `>`."""
    start = max(1, min(start, len(lines)))
    end = max(start, min(end, len(lines)))
    first = max(1, start - _LINES_AROUND)
    last = min(len(lines), end + _LINES_AROUND, first + _MAX_EXCERPT_LINES - 1)
    rows: list[str] = []
    for number in range(first, last + 1):
        mark = ">" if start <= number <= end else " "
        line = lines[number - 1].rstrip("\r\n").encode("utf-8", "surrogatepass")
        rows.append(f"{mark}{number} {shown_line(line)}")
    return "\n".join(rows)


def known_id(finding: Finding) -> str:
    """Return the id by which prompts and answers name a known finding."""
    return finding.fingerprint[:8]


def new_fence() -> str:
    """Return a marker for one run that the author of the reviewed text could not know."""
    return f"data-{os.urandom(4).hex()}"


def fenced(fence: str, label: str, text: str) -> str:
    """Return a block of data between two lines with the marker, which cannot be in the text itself."""
    shown_label = one_line(label).replace(fence, "[marker]")
    shown_text = visible(text).replace(fence, "[marker]").strip("\n")
    return f"<{fence} {shown_label}>\n{shown_text}\n</{fence}>"


def cut(text: str, max_bytes: int) -> str:
    """Return at most the first `max_bytes` of a text, with the number of bytes that were cut."""
    encoded = text.encode("utf-8", "surrogatepass")
    if len(encoded) <= max_bytes:
        return text
    return f"{encoded[:max_bytes].decode('utf-8', 'ignore')}\n[cut: {len(encoded) - max_bytes:,} more bytes]"


def _cut_with_note(text: str, max_bytes: int, what: str, notes: list[str]) -> str:
    shown = cut(text, max_bytes)
    if shown != text:
        notes.append(f"{what} cut to {max_bytes:,} bytes")
    return shown


def checklist(experts: Sequence[Expert], *, in_brief: bool = False) -> str:
    """Return the whole checklist of one expert; of several, one line each, with the first points that fit."""
    if not experts:
        return "- correctness: anything that goes wrong when the code runs"
    if len(experts) == 1:
        return _whole_checklist(experts[0])
    characters = _BRIEF_CHECKLIST_CHARACTERS if in_brief else _CHECKLIST_CHARACTERS
    rows = [_checklist_row(expert, characters // len(experts), in_brief=in_brief) for expert in experts]
    return "\n".join(rows)


def _whole_checklist(expert: Expert) -> str:
    rows = [f"- {_plain(expert.name)}: {_plain(expert.description)}"]
    severities = [f"{label} = {words}" for label, words in expert.severity_guide.items()]
    for title, points in (
        ("Look for", expert.focus),
        ("Be sceptical of", expert.sceptical_of),
        ("Do not report here", expert.do_not_flag),
        ("Severity here", severities),
    ):
        if points:
            rows.append(f"{title}: {_joined(points)}")
    return "\n".join(rows)


def _checklist_row(expert: Expert, characters: int, *, in_brief: bool) -> str:
    """Return one expert's row: its first point in any case, and further ones within a number of characters."""
    points = list(expert.focus) or [expert.description]
    if in_brief:
        points = _joined(points).split("; ")
    first = points[0]
    look_for = _joined([first, *_fitting(points[1:], characters * 3 // 4 - len(first))])
    row = f"- {_plain(expert.name)}: {look_for}"
    do_not_flag = _joined(_fitting(expert.do_not_flag, characters - len(look_for)))
    if do_not_flag:
        row += f" (not: {do_not_flag})"
    return row


def _fitting(points: Sequence[str], characters: int) -> Iterator[str]:
    """Yield the first points that fit into a number of characters together."""
    for point in points:
        characters -= len("; ") + len(_plain(point))
        if characters < 0:
            break
        yield point


def _joined(points: Iterable[str]) -> str:
    return "; ".join(_plain(point).rstrip(".;") for point in points)


def _plain(text: str) -> str:
    return one_line(" ".join(text.split()))


@cache
def _resource(name: str) -> str:
    return (_PROMPTS / f"{name}.md").read_text(encoding="utf-8").strip()


def _system(name: str, material: PromptMaterial) -> str:
    if not material.can_read_tree:
        reading = "reading_diff"
    elif material.tree_is_partial:
        reading = "reading_part"
    else:
        reading = "reading_tree"
    return _resource(name).replace("{reading}", _resource(reading))


def _data_rule(material: PromptMaterial) -> str:
    return _resource("data").replace("{fence}", material.fence)


def _guidance_blocks(unit: Unit, material: PromptMaterial, notes: list[str]) -> list[str]:
    """Return the instructions of the configuration and the project's guidance for a unit."""
    blocks: list[str] = []
    rules = visible("\n".join(_rules(unit.files, material.instructions)))
    if rules:
        shown = _cut_with_note(rules, _INSTRUCTIONS_BYTES, "instructions were", notes)
        blocks.append(fenced(material.fence, "instructions", shown))
    for guidance in guidance_texts(unit.files, material.guidance, unit_tokens=unit.tokens):
        text = guidance.text
        if guidance.paragraphs_cut:
            text += f"\n[cut: {guidance.paragraphs_cut} paragraphs]"
            # The same words for every unit, because a note that repeats is reported once.
            notes.append(
                f"{guidance.path} was not sent in full: guidance is limited to 10 % of each call, between 250 and"
                " 1,500 tokens"
            )
        if guidance.text:
            blocks.append(fenced(material.fence, f"guidance {guidance.path}", text))
    if blocks:
        blocks.insert(0, _resource("guidance"))
    return blocks


def _rules(files: Sequence[str], instructions: Sequence[PathInstruction]) -> Iterator[str]:
    """Yield the instructions that apply to some files, each with its patterns, because a unit has other files too."""
    for instruction in instructions:
        globs = Globs(instruction.paths, ())
        text = instruction.text.strip()
        if not text or all(globs.unwanted(file) for file in files):
            continue
        applies_to_all = not instruction.paths or not {"*", "**", "**/*", "/**"}.isdisjoint(instruction.paths)
        if applies_to_all:
            yield f"- {text}"
        else:
            paths = ", ".join(one_line(path) for path in instruction.paths)
            yield f"- For {paths} only: {text}"


def _intent_blocks(material: PromptMaterial, notes: list[str]) -> list[str]:
    """Return the author's description and the caller's context."""
    blocks: list[str] = []
    description = _description(material)
    if description:
        blocks += [_resource("intent"), fenced(material.fence, "intent", description)]
    context = visible(material.intent.context.strip())
    if context:
        shown = _cut_with_note(context, _CONTEXT_BYTES, "the context was", notes)
        blocks += [_resource("context"), fenced(material.fence, "context", shown)]
    return blocks


def _description(material: PromptMaterial) -> str:
    """Return the title and the commit messages; of messages that are too long together, the first lines."""
    title = material.intent.title.strip()
    messages = [message.strip() for message in material.intent.messages]
    messages = [message for message in messages if message not in ("", title)]
    max_bytes = _MESSAGES_BYTES_IN_FOLLOW_UP if material.is_follow_up else _MESSAGES_BYTES
    text = visible("\n\n".join(messages))
    if len(messages) > 1 and cut(text, max_bytes) != text:
        text = visible("\n".join(message.partition("\n")[0] for message in messages))
    return f"{cut(visible(title), _TITLE_BYTES)}\n\n{cut(text, max_bytes)}".strip()


def _known_in(files: Sequence[str], known: Sequence[Finding]) -> list[Finding]:
    """Return the open findings in some files, the worst first."""
    found = [finding for finding in known if finding.is_open and finding.file in files]
    return sorted(found, key=lambda finding: (finding.priority, finding.file, finding.first_line))


def _known_blocks(known: Sequence[Finding], material: PromptMaterial, notes: list[str]) -> list[str]:
    if not known:
        return []
    rows: list[str] = []
    for finding in known[:_MAX_KNOWN]:
        row = f"{known_id(finding)}, {finding.severity.label}, {_place(finding.main_claim)}, {one_line(finding.title)}"
        rows.append(cut(row, _KNOWN_BYTES).replace("\n", " "))
    if len(known) > _MAX_KNOWN:
        notes.append(f"{len(known) - _MAX_KNOWN} known finding(s) were not sent: at most {_MAX_KNOWN} go into a call")
    return [_resource("known"), fenced(material.fence, "known", "\n".join(rows))]


def _place(claim: Claim) -> str:
    place = one_line(claim.file)
    if claim.line_start is not None:
        place += f":{claim.line_start}"
    return place


def _claim_block(number: int, claim: Claim, material: PromptMaterial, notes: list[str]) -> str:
    """Return one claim as data; its severity is not shown, because it does not bear on the proof."""
    place = one_line(claim.file)
    if claim.line_start is not None:
        place += f":{claim.line_start}-{claim.last_line}"
    elif claim.evidence:
        place += " (the quoted code was not found there)"
    parts = [part for part in (claim.title, claim.evidence, claim.body) if part]
    parts += [f"Also reported as:\n{words}" for words in claim.other_words]
    text = _cut_with_note(visible("\n\n".join(parts)), _CLAIM_BYTES, "a claim to verify was", notes)
    return fenced(material.fence, f"claim {number} {place}", text)
