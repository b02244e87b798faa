"""The prompts of a review: what is the same for every call first, then what applies to these files, the diff last.

The system text holds our instructions alone. Whatever comes from the repository, its author or a model is in the
other text, between lines with a marker that is random for each run. Pure, but for the texts in `prompts/`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from codeloupe.engine.asked import ASKED
from codeloupe.engine.prompt_material import PromptMaterial, cut, fenced, material_blocks
from codeloupe.model.change import DiffLine, Expert, FileStatus, LineKind, Unit, UnitPart
from codeloupe.model.finding import Finding
from codeloupe.system.untrusted import has_hidden, one_line, visible

# Below a unit of medium effort, so that only a line that is longer than a whole unit loses its end.
MAX_LINE_BYTES = 8_000
_CLAIM_BYTES = 4_000
_SIGNS: dict[LineKind, str] = {"context": " ", "added": "+", "deleted": "-"}
_SEPARATOR = "; "


def _schema(**properties: Any) -> Mapping[str, Any]:
    """The schema of an object; a property whose name ends with an underscore may be left out."""
    return {
        "type": "object",
        "properties": {name.removesuffix("_"): schema for name, schema in properties.items()},
        "required": [name for name in properties if not name.endswith("_")],
        "additionalProperties": False,
    }


_TEXT = {"type": "string"}
_FINDING = _schema(**{name: form for name, (form, _) in ASKED.items()})
_FIELDS = "; ".join(words for _, words in ASKED.values() if words)
FINDINGS_SCHEMA = _schema(findings={"type": "array", "items": _FINDING})
# An answer that is no review must not come back from its repair as one that found nothing.
REPAIR_SCHEMA = _schema(readable={"type": "boolean"}, **FINDINGS_SCHEMA["properties"])
VERIFY_SCHEMA = _schema(reason=_TEXT, proof={"type": "string", "enum": ["refuted", "confirmed", "unproven"]})


class Prompt(Struct, frozen=True):
    """The system's text, the same for all units of a checklist, the unit's own, and what is not in that as it is."""

    system: str
    text: str
    notes: tuple[str, ...] = ()


def review_prompt(unit: Unit, material: PromptMaterial) -> Prompt:
    """Asks for the defects of one unit."""
    blocks, notes = material_blocks(unit.files, material, unit_tokens=unit.tokens)
    diff, cuts = light_diff(unit.parts)
    # The checklist for a line or two that are new since the last review need not be longer than they are.
    listed = checklist(unit.experts, in_brief=material.is_follow_up and unit.tokens < 800)
    # Put in last: an expert's words are not ours, and must not be taken for one of our places to fill.
    system = _system("review", material).replace("{checklist}", listed)
    return Prompt(system, _of_data(material, *blocks, fenced(material.fence, "diff", diff)), (*notes, *cuts))


def repair_prompt(answer: str, problem: str, material: PromptMaterial) -> Prompt:
    """Asks to say an answer that could not be read again as JSON of REPAIR_SCHEMA; a long one loses its middle."""
    shown, notes = answer, tuple[str, ...]()
    left_out = len(answer) - 24_000
    if left_out > 0:
        shown = f"{answer[:16_000]}\n[cut: {left_out:,} more characters]\n{answer[-8_000:]}"
        notes = (f"the answer to repair was cut to {len(shown):,} characters",)
    why = fenced(material.fence, "problem", visible(problem)[:300])
    return Prompt(_resource("repair"), _of_data(material, why, fenced(material.fence, "answer", shown)), notes)


def verify_prompt(finding: Finding, excerpt: str, material: PromptMaterial) -> Prompt:
    """Asks to refute one finding, alone with its code, as JSON of VERIFY_SCHEMA."""
    file = one_line(finding.file)
    lines = f":{finding.line_start}-{finding.line_end}"
    place = file + (" (the quoted code was not found there)" if finding.line_start is None else lines)
    claim = visible("\n\n".join(part for part in (finding.title, finding.evidence, finding.body) if part))
    shown = cut(claim, _CLAIM_BYTES)
    blocks = (fenced(material.fence, f"claim {place}", shown), fenced(material.fence, f"code {file}", excerpt))
    notes = () if shown == claim else (f"the claim to verify was cut to {_CLAIM_BYTES:,} bytes",)
    return Prompt(_system("verify", material), _of_data(material, *blocks), notes)


def excerpt_around(lines: Sequence[str], start: int, end: int) -> str:
    """Numbered lines of a file around those from `start` to `end`, which begin with `>`; of very many the first."""
    start = max(1, min(start, len(lines)))
    end = max(start, min(end, len(lines)))
    first = max(1, start - 25)
    last = min(len(lines), end + 25, first + 119)
    shown = (shown_line(line.rstrip("\r\n").encode("utf-8", "surrogatepass")) for line in lines[first - 1 : last])
    rows = (f"{'>' if start <= number <= end else ' '}{number} {line}" for number, line in enumerate(shown, first))
    return "\n".join(rows)


def _of_data(material: PromptMaterial, *blocks: str) -> str:
    return "\n\n".join((_resource("data").replace("{fence}", material.fence), *blocks))


def _system(name: str, material: PromptMaterial) -> str:
    in_tree = "reading_part" if material.tree_is_partial else "reading_tree"
    text = _resource(name).replace("{fields}", _FIELDS)
    return text.replace("{reading}", _resource(in_tree if material.can_read_tree else "reading_diff"))


@cache
def _resource(name: str) -> str:
    """One of our texts, as it was shipped."""
    return (Path(__file__).with_name("prompts") / f"{name}.md").read_text(encoding="utf-8").strip()


def checklist(experts: Sequence[Expert], *, in_brief: bool = False) -> str:
    """The checklist of one expert whole; of several a line each, with the first of their points that fit."""
    if not experts:
        return "- correctness: anything that goes wrong when the code runs"
    rows = []
    if len(experts) == 1:
        (expert,) = experts
        rows.append(f"- {_plain(expert.name)}: {_plain(expert.description)}")
        for title, points in (
            ("Look for", expert.focus),
            ("Be sceptical of", expert.sceptical_of),
            ("Leave out here", expert.do_not_flag),
            ("Severity here", [f"{label} = {words}" for label, words in expert.severity_guide.items()]),
        ):
            if points:
                rows.append(f"{title}: {_joined(points)}")
        return "\n".join(rows)
    # A joined checklist is paid for in each call, so that its experts share this room; alone an expert says everything.
    room = (640 if in_brief else 1_000) // len(experts)
    for expert in experts:
        focus = list(expert.focus)
        if in_brief:
            focus = [part for point in focus for part in point.split(_SEPARATOR)]
        first, *others = focus or [expert.description]
        wanted = _joined([first, *_fitting(others, room * 0.75 - len(first))])
        left_out = _joined(_fitting(expert.do_not_flag, room - len(wanted)))
        rows.append(f"- {_plain(expert.name)}: {wanted}" + (f" (not: {left_out})" if left_out else ""))
    return "\n".join(rows)


def _fitting(points: Sequence[str], room: float) -> Iterator[str]:
    """The first points that together need no more than the room."""
    for point in points:
        room -= len(_plain(point)) + len(_SEPARATOR)
        if room < 0:
            break
        yield point


def _joined(points: Iterable[str]) -> str:
    return _SEPARATOR.join(_plain(point).rstrip(".;") for point in points)


def _plain(text: str) -> str:
    """One line, since a checklist is a list of lines."""
    return one_line(" ".join(text.split()))


def light_diff(parts: Iterable[UnitPart]) -> tuple[str, list[str]]:
    """The parts of a unit, one after the other, as git shows them, with less around it and nothing hidden.

    Each file begins with `=== path`, each hunk with `@@ -a,b +c,d @@ section`, each line with `+`, `-` or a space.
    Before every tenth line of the new file is its number, as `:120` on a line of its own: no line of code can
    begin with a colon here, and the quote decides the place, so more numbers would cost tokens for nothing. Also
    returns what of the diff is not in the text as it is. Linear in the diff.
    """
    rows: list[str] = []
    notes: list[str] = []
    for part in parts:
        hunks = [(hunk, list(hunk.lines())) for hunk in part.hunks]
        lines = [line for _, of_hunk in hunks for line in of_hunk]
        # Where every line ends with CR LF, the CR is shown once. A change of line ends shows each of them.
        ended = [line for line in lines if line.ends_with_newline]
        end = b"\r" if ended and all(line.text.endswith(b"\r") for line in ended) else b""
        facts = "; ".join(_facts(part, lines, end))
        rows.append(f"=== {one_line(part.file.path)}" + (f" ({facts})" if facts else ""))
        for hunk, of_hunk in hunks:
            section = f" {one_line(hunk.section)}" if hunk.section else ""
            rows.append(f"@@ -{hunk.old_start},{hunk.old_lines} +{hunk.new_start},{hunk.new_lines} @@{section}")
            for line in of_hunk:
                number = line.new_number
                # The hunk's header says where it begins; a number right after it would say the same again.
                if number is not None and number % 10 == 0 and number - hunk.new_start >= 5:
                    rows.append(f":{number}")
                rows.append(_SIGNS[line.kind] + shown_line(line.text.removesuffix(end)))
                if not line.ends_with_newline:
                    rows.append("\\ no newline at the end")
        if long_lines := sum(len(line.text) > MAX_LINE_BYTES for line in lines):
            what = f"{long_lines} line(s) longer than {MAX_LINE_BYTES:,} bytes were sent without their ends"
            notes.append(f"{part.file.path}: {what}")
    return "\n".join(rows), notes


def shown_line(text: bytes) -> str:
    """One line as it is shown: hidden characters and bytes that are not UTF-8 visible, an endless one cut."""
    shown = visible(text[:MAX_LINE_BYTES].decode("utf-8", "surrogateescape"))
    left_out = len(text) - MAX_LINE_BYTES
    return shown if left_out <= 0 else f"{shown} [cut: {left_out:,} more bytes]"


def _facts(part: UnitPart, lines: Sequence[DiffLine], end: bytes) -> Iterator[str]:
    file = part.file
    if file.status in (FileStatus.RENAMED, FileStatus.COPIED):
        yield f"{file.status.value} from {one_line(file.old_path or '')}"
    elif file.status is not FileStatus.MODIFIED:
        yield file.status.value.replace("_", " ")
    if file.old_mode and file.new_mode and file.old_mode != file.new_mode:
        yield f"mode {file.old_mode} to {file.new_mode}"
    if file.is_symlink:
        yield "symbolic link"
    if not file.hunks:
        yield "content not shown" if file.binary else "content not changed"
    if part.repeated_rows:
        yield f"the first {part.repeated_rows} lines are reviewed elsewhere"
    if end:
        yield "lines end with CR LF"
    shown = (line.text.removesuffix(end)[:MAX_LINE_BYTES].decode("utf-8", "surrogateescape") for line in lines)
    if any(map(has_hidden, shown)):
        yield "hidden characters shown as <U+code>, other bytes as <0xcode>"
