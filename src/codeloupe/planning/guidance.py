"""Choose the part of a project's guidance that goes into one agent call. Pure.

Guidance has a budget per call: 10 % of the unit's tokens, at least 250 and at most 1,500. REVIEW.md comes first, then
the sections of AGENTS.md and CLAUDE.md with "review" in their heading, then the rest from the top. The text is cut at a
paragraph; only a first paragraph that exceeds the budget alone is cut within.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.model.change import GuidanceFile
from codeloupe.planning.units import tokens_of
from codeloupe.system.untrusted import visible

_SHARE = 0.1
_MIN_TOKENS = 250
_MAX_TOKENS = 1_500
_REVIEW_FILE = "REVIEW.md"


class GuidanceText(Struct, frozen=True):
    """The text of one guidance file for one call, and the number of its paragraphs that did not fit."""

    path: str
    text: str
    paragraphs_cut: int = 0


class _Paragraph(Struct, frozen=True):
    """A paragraph of a guidance file with the line ends after it; `rank` 0 is sent first."""

    path: str
    text: str
    rank: int


def guidance_budget(unit_tokens: int) -> int:
    """Return the number of guidance tokens in a call about a unit of this size."""
    return min(max(round(_SHARE * unit_tokens), _MIN_TOKENS), _MAX_TOKENS)


def guidance_for(files: Sequence[str], guidance: Sequence[GuidanceFile]) -> tuple[GuidanceFile, ...]:
    """Return the guidance files that apply to some files: for each of them the nearest of each name.

    The deepest come first. The same text is returned only once.
    """
    deepest_first = sorted(guidance, key=lambda file: file.path.count("/"), reverse=True)
    nearest: set[str] = set()
    for folder in {path.rpartition("/")[0] for path in files}:
        names: set[str] = set()
        for file in deepest_first:
            name = _name(file.path)
            if name not in names and _is_inside(folder, file.folder):
                names.add(name)
                nearest.add(file.path)
    by_text: dict[str, GuidanceFile] = {}
    for file in deepest_first:
        text = file.text.strip()
        if text and file.path in nearest:
            by_text.setdefault(text, file)
    return tuple(by_text.values())


def guidance_texts(
    files: Sequence[str], guidance: Sequence[GuidanceFile], *, unit_tokens: int
) -> tuple[GuidanceText, ...]:
    """Return the guidance for a unit with these files, cut to its budget; REVIEW.md comes first."""
    paragraphs: list[_Paragraph] = []
    for file in guidance_for(files, guidance):
        paragraphs.extend(_ranked_paragraphs(file))
    paragraphs.sort(key=lambda paragraph: paragraph.rank)
    budget = guidance_budget(unit_tokens)
    count = _count_within(budget, paragraphs)
    sent = paragraphs[:count]
    not_sent = paragraphs[count:]
    if not_sent and not sent:
        sent = [_beginning(not_sent[0], budget)]
    texts: list[GuidanceText] = []
    for path in dict.fromkeys(paragraph.path for paragraph in paragraphs):
        text = "".join(paragraph.text for paragraph in sent if paragraph.path == path)
        paragraphs_cut = sum(paragraph.path == path for paragraph in not_sent)
        texts.append(GuidanceText(path, text.strip(), paragraphs_cut))
    return tuple(texts)


def _is_inside(folder: str, parent: str) -> bool:
    return not parent or f"{folder}/".startswith(f"{parent}/")


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _count_within(budget: int, paragraphs: Sequence[_Paragraph]) -> int:
    """Return the number of paragraphs before the first one that exceeds the budget."""
    text = ""
    for count, paragraph in enumerate(paragraphs):
        text += paragraph.text
        if tokens_of(text) > budget:
            return count
    return len(paragraphs)


def _beginning(paragraph: _Paragraph, budget: int) -> _Paragraph:
    """Return about as much of a paragraph as fits the budget, which it exceeds."""
    length = len(paragraph.text) * budget // tokens_of(paragraph.text)
    return replace(paragraph, text=paragraph.text[:length])


def _ranked_paragraphs(guidance: GuidanceFile) -> list[_Paragraph]:
    """Return the paragraphs of a file, each with its rank: REVIEW.md, a section about reviews, or the rest."""
    is_review_file = _name(guidance.path) == _REVIEW_FILE
    paragraphs: list[_Paragraph] = []
    # The level of the heading of the review section that the paragraph is in, or 0.
    review_level = 0
    for text in split_paragraphs(visible(guidance.text.strip()) + "\n\n"):
        level = _heading_level(text)
        if level and (not review_level or level <= review_level):
            heading = text.partition("\n")[0]
            review_level = 0
            if "review" in heading.lower():
                review_level = level
        if is_review_file:
            rank = 0
        elif review_level:
            rank = 1
        else:
            rank = 2
        paragraphs.append(_Paragraph(guidance.path, text, rank))
    return paragraphs


def split_paragraphs(text: str) -> list[str]:
    """Split a Markdown text; joined, the paragraphs are the text again.

    A paragraph starts after an empty line, at a heading and at a list item that is not indented. A heading belongs to
    the paragraph below it, and a code block to one paragraph.
    """
    paragraphs: list[str] = []
    current = ""
    is_after_empty_line = False
    in_code = False
    for line in text.splitlines(keepends=True):
        is_heading = not in_code and _heading_level(line) > 0
        is_item = not in_code and _is_list_item(line)
        is_empty = not in_code and not line.strip()
        starts = is_heading or is_item or (is_after_empty_line and not is_empty)
        if starts and current and (is_heading or not _is_only_heading(current)):
            paragraphs.append(current)
            current = ""
        current += line
        is_after_empty_line = is_empty
        if line.lstrip().startswith(("```", "~~~")):
            in_code = not in_code
    if current:
        paragraphs.append(current)
    return paragraphs


def _heading_level(text: str) -> int:
    """Return 1 to 6 if a text starts with a Markdown heading, otherwise 0."""
    marks = text.partition(" ")[0]
    if 1 <= len(marks) <= 6 and marks == "#" * len(marks):
        return len(marks)
    return 0


def _is_only_heading(text: str) -> bool:
    return _heading_level(text) > 0 and "\n" not in text.strip()


def _is_list_item(line: str) -> bool:
    """Return whether a line starts a bulleted or numbered list item that is not indented."""
    mark, space, _ = line.partition(" ")
    is_numbered = mark.endswith((".", ")")) and mark[:-1].isdecimal()
    return bool(space) and (mark in ("-", "*", "+") or is_numbered)
