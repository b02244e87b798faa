"""Text of others in a prompt: nothing in it is hidden, and it stands between marks that it cannot write itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.engine.prompt_material import (
    PromptMaterial,
    cut,
    fenced,
    has_hidden,
    material_blocks,
    one_line,
    visible,
)
from codeloupe.model.change import DiffLine, FileChange, FileStatus, Hunk, LineKind
from codeloupe.model.expert import Expert
from codeloupe.model.finding import Finding
from codeloupe.model.unit import Unit, UnitPart

_TEXT = {"type": "string"}

FINDINGS_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "findings": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "file": _TEXT,
                    "line": {"type": "integer"},
                    "quote": _TEXT,
                    "title": _TEXT,
                    "body": _TEXT,
                    "category": _TEXT,
                    "severity": {"type": "string", "enum": ["critical", "high", "medium", "low"]},
                    "confidence": {"type": "number"},
                    "suggestion": _TEXT,
                    "replacement": _TEXT,
                },
                "required": ["file", "line", "quote", "title", "body", "category", "severity"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["findings"],
    "additionalProperties": False,
}

# An answer that is no review must not come back from its repair as one that found nothing.
REPAIR_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"readable": {"type": "boolean"}, **FINDINGS_SCHEMA["properties"]},
    "required": ["readable", "findings"],
    "additionalProperties": False,
}

VERIFY_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "reason": _TEXT,
        "proof": {"type": "string", "enum": ["refuted", "confirmed", "unproven"]},
    },
    "required": ["reason", "proof"],
    "additionalProperties": False,
}


# A joined checklist is paid for in each call, so that its experts share this room; alone an expert says everything.
_JOINED_CHARACTERS = 1_000
_JOINED_CHARACTERS_IN_BRIEF = 640
_FOCUS_SHARE = 0.75
_SEPARATOR = "; "


def checklist(experts: Sequence[Expert], *, in_brief: bool = False) -> str:
    """The checklist of one expert whole; of several a line each, with the first of their points that fit.

    What an expert is sceptical of, and its own guide to severity, it says only alone. `in_brief` makes
    the lines shorter.
    """
    if not experts:
        return "- correctness: anything that goes wrong when the code runs"
    if len(experts) == 1:
        return "\n".join(_whole(experts[0]))
    if in_brief:
        experts = [replace(expert, focus=tuple(_parts(expert.focus))) for expert in experts]
    room = (_JOINED_CHARACTERS_IN_BRIEF if in_brief else _JOINED_CHARACTERS) // len(experts)
    return "\n".join(f"- {_plain(expert.name)}: {_in_short(expert, room)}" for expert in experts)


def _whole(expert: Expert) -> Iterator[str]:
    yield f"- {_plain(expert.name)}: {_plain(expert.description)}"
    for title, points in (
        ("Look for", expert.focus),
        ("Be sceptical of", expert.sceptical_of),
        ("Leave out here", expert.do_not_flag),
        ("Severity here", [f"{label} = {words}" for label, words in expert.severity_guide.items()]),
    ):
        if points:
            yield f"{title}: {_joined(points)}"


def _in_short(expert: Expert, room: int) -> str:
    points = list(expert.focus or (expert.description,))
    looked_for = _joined([points[0], *_fitting(points[1:], room * _FOCUS_SHARE - len(points[0]))])
    left_out = _joined(_fitting(expert.do_not_flag, room - len(looked_for)))
    return f"{looked_for} (not: {left_out})" if left_out else looked_for


def _fitting(points: Sequence[str], room: float) -> Iterator[str]:
    """The first points that together need no more than the room."""
    for point in points:
        room -= len(_plain(point)) + len(_SEPARATOR)
        if room < 0:
            break
        yield point


def _parts(points: Sequence[str]) -> Iterator[str]:
    for point in points:
        yield from point.split(_SEPARATOR)


def _joined(points: Iterable[str]) -> str:
    return _SEPARATOR.join(_plain(point).rstrip(".;") for point in points)


def _plain(text: str) -> str:
    """One line, since a checklist is a list of lines."""
    return one_line(" ".join(text.split()))


# Below a unit of medium effort, so that only a line that is longer than a whole unit loses its end.
MAX_LINE_BYTES = 8_000
_NUMBER_EVERY = 10
# The hunk's header tells where it begins; a number right behind it would say the same again.
_QUIET_LINES = 5
_SIGNS: dict[LineKind, str] = {"context": " ", "added": "+", "deleted": "-"}
_NO_NEWLINE = "\\ no newline at the end"


class LightDiff(Struct, frozen=True):
    """The text, and in words what of the diff is not in it as it is."""

    text: str
    notes: tuple[str, ...] = ()


def light_diff(parts: Iterable[UnitPart]) -> LightDiff:
    """The parts of a unit, one after the other."""
    rendered = [_render(part) for part in parts]
    return LightDiff("\n".join(one.text for one in rendered), tuple(note for one in rendered for note in one.notes))


def shown_line(text: bytes) -> str:
    """One line as it is shown: hidden characters and bytes that are not UTF-8 visible, an endless one cut."""
    shown = visible(text[:MAX_LINE_BYTES].decode("utf-8", "surrogateescape"))
    left_out = len(text) - MAX_LINE_BYTES
    return shown if left_out <= 0 else f"{shown} [cut: {left_out:,} more bytes]"


def _render(part: UnitPart) -> LightDiff:
    hunks = [(hunk, list(hunk.lines())) for hunk in part.hunks]
    lines = [line for _, of_hunk in hunks for line in of_hunk]
    end = b"\r" if _is_crlf(lines) else b""
    rows = [_header(part, lines, end)]
    for hunk, of_hunk in hunks:
        rows += _hunk_rows(hunk, of_hunk, end)
    return LightDiff("\n".join(rows), tuple(_notes(part.file, lines)))


def _is_crlf(lines: Sequence[DiffLine]) -> bool:
    """Whether every line ends with CR LF: then the CR is told once. A change of line ends shows each of them."""
    ended = [line for line in lines if line.ends_with_newline]
    return bool(ended) and all(line.text.endswith(b"\r") for line in ended)


def _header(part: UnitPart, lines: Sequence[DiffLine], end: bytes) -> str:
    facts = list(_facts(part.file))
    if part.repeated_rows:
        facts.append(f"the first {part.repeated_rows} lines are reviewed elsewhere")
    if end:
        facts.append("lines end with CR LF")
    if any(
        has_hidden(line.text.removesuffix(end)[:MAX_LINE_BYTES].decode("utf-8", "surrogateescape")) for line in lines
    ):
        facts.append("hidden characters shown as <U+code>, other bytes as <0xcode>")
    return f"=== {one_line(part.file.path)}" + (f" ({'; '.join(facts)})" if facts else "")


def _facts(file: FileChange) -> Iterator[str]:
    match file.status:
        case FileStatus.MODIFIED:
            pass
        case FileStatus.RENAMED | FileStatus.COPIED:
            yield f"{file.status.value} from {one_line(file.old_path or '')}"
        case _:
            yield file.status.value.replace("_", " ")
    if file.old_mode and file.new_mode and file.old_mode != file.new_mode:
        yield f"mode {file.old_mode} to {file.new_mode}"
    if file.is_symlink:
        yield "symbolic link"
    if not file.hunks:
        yield "content not shown" if file.binary else "content not changed"


def _hunk_rows(hunk: Hunk, lines: Sequence[DiffLine], end: bytes) -> Iterator[str]:
    section = f" {one_line(hunk.section)}" if hunk.section else ""
    yield f"@@ -{hunk.old_start},{hunk.old_lines} +{hunk.new_start},{hunk.new_lines} @@{section}"
    for line in lines:
        number = line.new_number
        if number is not None and number % _NUMBER_EVERY == 0 and number - hunk.new_start >= _QUIET_LINES:
            yield f":{number}"
        yield _SIGNS[line.kind] + shown_line(line.text.removesuffix(end))
        if not line.ends_with_newline:
            yield _NO_NEWLINE


def _notes(file: FileChange, lines: Sequence[DiffLine]) -> Iterator[str]:
    cut_lines = sum(len(line.text) > MAX_LINE_BYTES for line in lines)
    if cut_lines:
        yield f"{file.path}: {cut_lines} line(s) longer than {MAX_LINE_BYTES:,} bytes were sent without their ends"


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
        f"{'>' if start <= number <= end else ' '}{number} {_prompt_shown(lines[number - 1])}"
        for number in range(first, last + 1)
    ]
    return "\n".join(rows)


def _prompt_shown(line: str) -> str:
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
