"""Findings as `codex review` prints them: `- [P1] Title — path/file.py:3-5`, and indented lines as the body."""

from __future__ import annotations

import re
from itertools import chain, pairwise

from codeloupe.engine.parse.finding_item import answer_of, findings_of
from codeloupe.engine.parse.places import written_place
from codeloupe.model.finding import ReviewAnswer

_COMMENT = re.compile(r"^[ \t]{0,3}[-*][ \t]{1,4}(?=\[P[0-3]\] )", re.MULTILINE)
_BODY_END = re.compile(r"\n(?=[^\s])")
_DASHES = (" — ", " – ", " - ")


def read_review_comments(text: str) -> ReviewAnswer | None:
    """The comments in a text, or None when it has none. One at the very end without a place or a body is cut."""
    items, is_cut = [], False
    for mark, following in pairwise(chain(_COMMENT.finditer(text), (None,))):
        if mark is None:
            break
        end = following.start() if following else len(text)
        body_end = _BODY_END.search(text, mark.end(), end)
        item = _item(text[mark.end() : body_end.start() if body_end else end])
        reaches_end = following is None and body_end is None and not text.endswith("\n")
        is_cut = reaches_end and not (item["file"] and item["body"])
        if not is_cut:
            items.append(item)
    return answer_of(*findings_of(items), is_cut=is_cut)


def _item(comment: str) -> dict[str, object]:
    heading, _, body = comment.partition("\n")
    title, place = heading.strip(), written_place("")
    for dash in _DASHES:
        before, found, behind = heading.rpartition(dash)
        if found and (place := written_place(behind)).file:
            title = before.strip()
            break
    lines = (line.strip() for line in body.split("\n"))
    return {
        "title": title,
        "body": "\n".join(lines).strip(),
        "file": place.file,
        "line_start": place.line_start,
        "line_end": place.line_end,
    }
