"""The prompts of a review: what is the same for every call first, then what applies to these files, the diff last.

The system text holds our instructions alone. Whatever comes from the repository, its author or a model is in the other
text, with nothing hidden in it, between lines with a marker that is random for each run. Every block of it has a limit,
since it is paid for in each call; what a limit took away is said, in the block and in a note.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from codeloupe.engine.globs import Globs
from codeloupe.model.change import DiffLine, Expert, FileStatus, GuidanceFile, Intent, PathInstruction, Unit, UnitPart
from codeloupe.model.finding import Finding
from codeloupe.system.regex import regex
from codeloupe.system.untrusted import has_hidden, one_line, visible

# What the caller of a review wrote for it goes out as it is, up to about 2,000 tokens of rules and 1,200 of context.
_INSTRUCTIONS_BYTES = 7_000
_CONTEXT_BYTES = 4_000
_MAX_EARLIER = 30
# A project's guidance is written for all work in it, except for this file.
_FOR_REVIEWS = "REVIEW.md"

# Below a unit of medium effort, so that only a line that is longer than a whole unit loses its end.
MAX_LINE_BYTES = 8_000
_SIGNS = {"context": " ", "added": "+", "deleted": "-"}
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
_PROMPTS = Path(__file__).with_name("prompts")
# Each field of a finding, in the order in which it is asked for: its form, and what the prompt says of it, if anything.
_ASKED: dict[str, tuple[dict[str, Any], str]] = msgspec.json.decode((_PROMPTS / "finding.json").read_bytes())["fields"]
_FINDING = _schema(**{name: form for name, (form, _) in _ASKED.items()})
_FIELDS = "; ".join(words for _, words in _ASKED.values() if words)
FINDINGS_SCHEMA = _schema(findings={"type": "array", "items": _FINDING})
# An answer that is no review must not come back from its repair as one that found nothing.
REPAIR_SCHEMA = _schema(readable={"type": "boolean"}, **FINDINGS_SCHEMA["properties"])
VERIFY_SCHEMA = _schema(reason=_TEXT, proof={"type": "string", "enum": ["refuted", "confirmed", "unproven"]})


class PromptMaterial(Struct, frozen=True, kw_only=True):
    """What a prompt is made from beside the diff; in a follow-up, with a diff of what is new, it is more brief."""

    fence: str
    intent: Intent = Intent()
    guidance: tuple[GuidanceFile, ...] = ()
    instructions: tuple[PathInstruction, ...] = ()
    earlier: tuple[Finding, ...] = ()
    can_read_tree: bool = False
    tree_is_partial: bool = False
    is_follow_up: bool = False

    def room(self, unit_tokens: int, share: float, *, least: int, least_in_follow_up: int, most: int) -> int:
        """How many bytes a block may have: a share of its unit, but at most and at least so much."""
        return round(min(max(share * unit_tokens * 3.5, least_in_follow_up if self.is_follow_up else least), most))


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
    why = fenced(material.fence, "problem", visible(problem)[:300])
    shown, left_out = answer, len(answer) - 24_000
    if left_out > 0:
        shown = f"{answer[:16_000]}\n[cut: {left_out:,} more characters]\n{answer[-8_000:]}"
    notes = () if shown == answer else (f"the answer to repair was cut to {len(shown):,} characters",)
    return Prompt(_resource("repair"), _of_data(material, why, fenced(material.fence, "answer", shown)), notes)


def verify_prompt(finding: Finding, excerpt: str, material: PromptMaterial) -> Prompt:
    """Asks to refute one finding, alone with its code, as JSON of VERIFY_SCHEMA."""
    file = one_line(finding.file)
    lines = f":{finding.line_start}-{finding.line_end}"
    place = file + (" (the quoted code was not found there)" if finding.line_start is None else lines)
    claim = visible("\n\n".join(part for part in (finding.title, finding.evidence, finding.body) if part))
    notes: list[str] = []
    shown = _limited(claim, 4_000, "the claim to verify was", notes)
    blocks = (fenced(material.fence, f"claim {place}", shown), fenced(material.fence, f"code {file}", excerpt))
    return Prompt(_system("verify", material), _of_data(material, *blocks), tuple(notes))


def excerpt_around(lines: Sequence[str], start: int, end: int) -> str:
    """Numbered lines of a file around those from `start` to `end`, which begin with `>`; of very many the first."""
    start = max(1, min(start, len(lines)))
    end = max(start, min(end, len(lines)))
    first = max(1, start - 25)
    last = min(len(lines), end + 25, first + 119)
    shown = (shown_line(line.rstrip("\r\n").encode("utf-8", "surrogatepass")) for line in lines[first - 1 : last])
    return "\n".join(
        f"{'>' if start <= number <= end else ' '}{number} {line}" for number, line in enumerate(shown, first)
    )


def _of_data(material: PromptMaterial, *blocks: str) -> str:
    return "\n\n".join((_resource("data").replace("{fence}", material.fence), *blocks))


def _system(name: str, material: PromptMaterial) -> str:
    in_tree = "reading_part" if material.tree_is_partial else "reading_tree"
    text = _resource(name).replace("{fields}", _FIELDS)
    return text.replace("{reading}", _resource(in_tree if material.can_read_tree else "reading_diff"))


@cache
def _resource(name: str) -> str:
    return (_PROMPTS / f"{name}.md").read_text(encoding="utf-8").strip()


def checklist(experts: Sequence[Expert], *, in_brief: bool = False) -> str:
    """The checklist of one expert whole; of several a line each, with the first of their points that fit."""
    if not experts:
        return "- correctness: anything that goes wrong when the code runs"
    rows = []
    if len(experts) == 1:
        (expert,) = experts
        listed = {
            "Look for": expert.focus,
            "Be sceptical of": expert.sceptical_of,
            "Leave out here": expert.do_not_flag,
            "Severity here": [f"{label} = {words}" for label, words in expert.severity_guide.items()],
        }
        rows = [f"{title}: {_joined(points)}" for title, points in listed.items() if points]
        return "\n".join((f"- {_plain(expert.name)}: {_plain(expert.description)}", *rows))
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


def new_fence() -> str:
    """A marker for one run that the author of the reviewed text could not know."""
    return f"data-{os.urandom(4).hex()}"


def cut(text: str, max_bytes: int) -> str:
    """At most the first so many bytes of a text, and how much was left out."""
    encoded = text.encode("utf-8", "surrogatepass")
    if len(encoded) <= max_bytes:
        return text
    return f"{encoded[:max_bytes].decode('utf-8', 'ignore')}\n[cut: {len(encoded) - max_bytes:,} more bytes]"


def fenced(fence: str, label: str, text: str) -> str:
    """A block of data: visible, and between two lines with the marker, which cannot be in the text itself."""
    shown = visible(text).replace(fence, "[marker]").strip("\n")
    return f"<{fence} {one_line(label).replace(fence, '[marker]')}>\n{shown}\n</{fence}>"


def material_blocks(files: Sequence[str], material: PromptMaterial, *, unit_tokens: int) -> tuple[list[str], list[str]]:
    """The blocks for files with a diff of so many tokens, the widest first, and what a limit took out of them."""
    notes: list[str] = []
    guidance = list(_guidance_blocks(files, material, unit_tokens, notes))
    blocks = [_resource("guidance"), *guidance] if guidance else []
    blocks += _intent_blocks(material, unit_tokens, notes)
    return blocks + list(_earlier_blocks(files, material, notes)), notes


def _limited(text: str, max_bytes: int, what: str, notes: list[str]) -> str:
    """As `cut`; what is left out is noted."""
    shown = cut(text, max_bytes)
    if shown != text:
        notes.append(f"{what} cut: at most {max_bytes:,} bytes go into a call")
    return shown


def guidance_for(files: Sequence[str], guidance: Sequence[GuidanceFile]) -> tuple[GuidanceFile, ...]:
    """Of each name the file nearest to one of the reviewed files, the deepest first, and the same text only once."""
    names = list(dict.fromkeys(_name(one) for one in guidance))
    nearest: dict[str, GuidanceFile] = {}
    for folder in dict.fromkeys(file.rpartition("/")[0] for file in files):
        above = [one for one in guidance if f"{folder}/".startswith(one.path.removesuffix(_name(one)))]
        # Of each name the last one, which is the deepest.
        by_name = {_name(one): one for one in sorted(above, key=lambda one: len(one.path))}
        nearest |= {one.path: one for one in by_name.values()}
    ranked = sorted(nearest.values(), key=lambda one: (-one.path.count("/"), names.index(_name(one)), one.path))
    distinct = {one.text.strip(): one for one in reversed(ranked)}
    return tuple(one for one in ranked if one.text.strip() and distinct[one.text.strip()] is one)


def _name(one: GuidanceFile) -> str:
    return one.path.rpartition("/")[2]


def _guidance_blocks(
    files: Sequence[str], material: PromptMaterial, unit_tokens: int, notes: list[str]
) -> Iterator[str]:
    if rules := visible("\n".join(_rules(files, material.instructions))):
        yield fenced(material.fence, "instructions", _limited(rules, _INSTRUCTIONS_BYTES, "instructions were", notes))
    # What was written for reviews first; the order of the rest is that of nearness.
    applying = sorted(guidance_for(files, material.guidance), key=lambda one: _name(one) != _FOR_REVIEWS)
    if applying and _name(applying[0]) == _FOR_REVIEWS:
        left = material.room(unit_tokens, 0.2, least=1_400, least_in_follow_up=600, most=4_000)
    else:
        left = material.room(unit_tokens, 0.1, least=900, least_in_follow_up=200, most=2_000)
    for one in applying:
        text = visible(one.text.strip())
        shown = condensed(text, left, files) if left >= min(_size(text), 100) else ""
        if shown:
            yield fenced(material.fence, f"guidance {one.path}", shown)
            left -= min(left, _size(shown))
        if shown != text:
            notes.append(
                f"{one.path} is sent in part: the rules that concern the files of each call, in about a tenth of its"
                " size (a REVIEW.md gets a fifth; `instructions` of the configuration are sent whole)"
            )


def _rules(files: Sequence[str], instructions: Sequence[PathInstruction]) -> Iterator[str]:
    """The rules that apply, each with the files that it is for: a unit holds others too."""
    for one in instructions:
        globs = Globs(one.paths, ())
        if one.text.strip() and any(globs.unwanted(file) is None for file in files):
            is_for_all = not {"*", "**", "**/*", "/**"}.isdisjoint(one.paths)
            paths = "" if is_for_all else ", ".join(one_line(path) for path in one.paths)
            yield f"- {f'For {paths} only: ' if paths else ''}{one.text.strip()}"


def _intent_blocks(material: PromptMaterial, unit_tokens: int, notes: list[str]) -> Iterator[str]:
    intent = material.intent
    # The messages whole when they fit; otherwise their first lines, since those say the most.
    room = material.room(unit_tokens, 0.08, least=400, least_in_follow_up=120, most=900)
    messages = [message.strip() for message in intent.messages if message.strip() and message.strip() != intent.title]
    written = visible("\n\n".join(messages))
    if _size(written) > room and len(messages) > 1:
        written = visible("\n".join(message.partition("\n")[0] for message in messages))
    said = "\n\n".join(filter(None, (cut(visible(intent.title.strip()), 200), cut(written, room))))
    if said:
        yield from (_resource("intent"), fenced(material.fence, "intent", said))
    if context := visible(intent.context.strip()):
        shown = _limited(context, _CONTEXT_BYTES, "the context was", notes)
        yield from (_resource("context"), fenced(material.fence, "context", shown))


def _earlier_blocks(files: Sequence[str], material: PromptMaterial, notes: list[str]) -> Iterator[str]:
    here = frozenset(files)
    # The open ones first: a limit must not let them be found anew.
    known = sorted((one for one in material.earlier if one.file in here), key=lambda finding: not finding.is_open)
    rows: list[str] = []
    for number, finding in enumerate(known[:_MAX_EARLIER], start=1):
        state = "open" if finding.is_open else finding.status.value
        place = one_line(finding.file) + ("" if finding.line_start is None else f":{finding.line_start}")
        row = f"{number}. {state}, {finding.severity.label}, {finding.category}, {place}: {one_line(finding.title)}"
        rows.append(cut(row, 240).replace("\n", " "))
    if rows:
        yield from (_resource("earlier"), fenced(material.fence, "earlier", "\n".join(rows)))
    if len(known) > _MAX_EARLIER:
        more = len(known) - _MAX_EARLIER
        notes.append(f"{more} earlier finding(s) were left out: at most {_MAX_EARLIER} go into a call")


_WORD = regex(r"[a-z][a-z0-9+#]*")
# The blocks of a Markdown text: code, headings of both forms, points of lists, paragraphs. Each goes on up to an empty
# row or one that begins another block. No part goes back over what another one took.
_FENCE, _HEADING = r"[^\S\n]{0,9}+(?:```|~~~)", r"[^\S\n]{0,3}+#{1,6}+[^\S\n]"
_POINT = r"[^\S\n]*+(?:[-*+]|\d{1,3}+[.)])[^\S\n]"
_MORE = rf".*+(?:\n(?![^\S\n]*+$|{_FENCE}|{_POINT}|{_HEADING}).*+)*+"
_BLOCK = regex(
    rf"^(?:(?P<code>{_FENCE}.*+(?:\n(?!{_FENCE}).*+)*+(?:\n.*+)?)|(?P<heading>{_HEADING}{_MORE})|(?P<point>{_POINT}{_MORE})"
    rf"|(?![^\S\n]*+$)(?:(?P<underlined>.++)\n[^\S\n]{{0,3}}+(?:=++|-{{3,}}+)[^\S\n]*+$|(?P<text>{_MORE})))",
    re.MULTILINE,
)
_SENTENCE_END = regex(r"(?<=[.!?])\s+(?=[A-Z`*\"'(])")
_RULE = regex(
    r"\b(?:must|never|always|do(?:es)? not|don't|cannot|may not|avoid|only|require[sd]?|forbidden|should|prefer|ensure|"
    r"instead of|no longer|without|every|each)\b",
    re.IGNORECASE,
)
_REVIEW_HEADING = regex(
    r"review|secur|rule|convention|style|error|correct|safety|concurren|thread|transaction|database|migration|api\b|"
    r"compatib|invariant|test|privacy|logging|performance|flag|check",
    re.IGNORECASE,
)
_WORKFLOW_HEADING = regex(
    r"set ?up|install|build|getting started|commit|pull request|\bprs?\b|release|deploy|command|workflow|environment|"
    r"overview|layout|structure|about|contact|licen[cs]e|changelog|running|tool",
    re.IGNORECASE,
)
_COMMAND = regex(r"\s*(?:[-*+]\s+)?(?:run|use|call|execute)?\s*`[^`]+`", re.IGNORECASE)
# The words by which guidance speaks of files, by how their names end.
_LANGUAGES_WRITTEN = """
py python pytest django flask fastapi mypy; pyi python; js javascript js node frontend react; jsx javascript js
react frontend; mjs javascript js node; ts typescript ts javascript node frontend react; tsx typescript ts react
frontend; vue vue frontend javascript; go go golang; rs rust cargo; java java jvm spring; kt kotlin jvm android;
swift swift ios; rb ruby rails; php php laravel; cs c# dotnet csharp; c c; h c c++; cc c++; cpp c++; sql sql
database migration migrations query queries; sh shell bash; tf terraform; yml yaml ci; yaml yaml ci; md docs
documentation markdown; css css; scss css scss; html html template templates
"""
_LANGUAGES = {suffix: words for suffix, *words in map(str.split, _LANGUAGES_WRITTEN.split(";"))}
_ALL_LANGUAGE_WORDS = frozenset(word for words in _LANGUAGES.values() for word in words)
# Parts of paths that say nothing about what is in them.
_EMPTY_NAMES = frozenset(("src", "lib", "main", "app", "index", "init", "the", "and", "new", "com", "org", "internal"))


def condensed(text: str, room: int, files: Sequence[str]) -> str:
    """At most about `room` bytes of a text: whole when it fits, else what says most about some files. Linear."""
    size = _size(text)
    if size <= room:
        return text
    ending = f"[condensed from {size:,} bytes]"
    # The words by which guidance may speak of the files: their languages, folders and names.
    topics: set[str] = set()
    for path in files[:400]:
        topics.update(_LANGUAGES.get(path.rpartition(".")[2].lower(), ()))
        for part in re.split(r"[/._-]", path[-240:].lower()):
            if 3 <= len(part) <= 60 and part not in _EMPTY_NAMES:
                topics.update((part, part.removesuffix("s")))
    items = list(_items(text))
    ranked = sorted(range(len(items)), key=lambda place: -_worth(*items[place], topics))
    left = room - len(ending) - 1
    chosen: list[int] = []
    headings: set[str] = set()
    texts: set[str] = set()
    for place in ranked:
        heading, said, _ = items[place]
        plain = " ".join(said.split()).lower()
        cost = _size(said) + 1 + (0 if heading in headings else _size(heading) + 1)
        if cost <= left and plain not in texts:
            left -= cost
            chosen.append(place)
            headings.add(heading)
            texts.add(plain)
    if not chosen:
        return cut(items[ranked[0]][1] if ranked else text, max(0, room - len(ending)))
    rows: list[str] = []
    for heading, places in groupby(sorted(chosen), key=lambda place: items[place][0]):
        rows += [heading, *(items[place][1] for place in places)]
    return "\n".join((*filter(None, rows), ending))


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _worth(heading: str, text: str, kind: str, topics: set[str]) -> int:
    words, above = (set(_WORD.findall(part.lower())) for part in (text, heading))
    worth = 3 * bool(_RULE.search(text)) + 4 * min(2, len(words & topics)) + 3 * bool(above & topics)
    worth += 2 * bool(_REVIEW_HEADING.search(heading)) - 3 * bool(_WORKFLOW_HEADING.search(heading))
    named = (words | above) & _ALL_LANGUAGE_WORDS
    worth -= 5 * bool(named and not named & topics)
    return worth - 4 * (kind == "code") - 2 * bool(_COMMAND.match(text))


def _items(text: str) -> Iterator[tuple[str, str, str]]:
    """The sentences, points of lists and blocks of code, each with its heading and kind."""
    heading = ""
    for found in _BLOCK.finditer(text):
        kind = found.lastgroup or ""
        rows = found[kind].split("\n")
        joined = " ".join(map(str.strip, rows))
        match kind:
            case "heading" | "underlined":
                heading = joined
            case "text":
                yield from ((heading, part, kind) for part in _SENTENCE_END.split(joined))
            case _:
                # How deep a point was nested is said by nothing else than its indentation.
                yield heading, found[kind] if kind == "code" else "\n".join(map(str.rstrip, rows)), kind
