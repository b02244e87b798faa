"""Findings as compilers and linters print them: `path:line:col: severity: message`."""

from __future__ import annotations

import re

from codeloupe.engine.parse.finding_item import answer_of, findings_of
from codeloupe.engine.parse.patterns import late
from codeloupe.model.finding import ReviewAnswer

# What a line without a severity gets: the word for it is warning.
_DEFAULT_SEVERITY = "warning"
_SEVERITIES = {
    "critical": "critical",
    "high": "high",
    "medium": "medium",
    "low": "low",
    "fatal error": "critical",
    "fatal": "critical",
    "error": "error",
    "warning": "warning",
    "suggestion": "suggestion",
    "info": "info",
    "note": "info",
    "hint": "info",
    "p0": "p0",
    "p1": "p1",
    "p2": "p2",
    "p3": "p3",
}
_MESSAGE = late(
    r"^(?P<path>(?:[A-Za-z]:)?[^:\s][^:\n]{0,1000}):(?P<start>\d{1,9})(?:-(?P<end>\d{1,9}))?(?::\d{1,9})?:[ \t]{1,4}"
    r"(?P<message>\S[^\n]*+)",
    re.MULTILINE,
)
_SEVERITY = late(rf"\[?({'|'.join(_SEVERITIES)})\]?(?::[ \t]{{0,4}}|[ \t]{{1,4}}-[ \t]{{1,4}})(?=\S)", re.IGNORECASE)


def read_message_lines(text: str, *, from_program: bool) -> ReviewAnswer | None:
    """The findings in lines of messages, or None when there are none.

    A model that writes such lines must write nothing else, and a severity in each, for prose may quote them. A last
    line that is none may have become one. A program may print other lines too, and leave out the severity.
    """
    items, is_cut, position = [], False, 0
    for match in _MESSAGE.finditer(text):
        item = _item(match, needs_severity=not from_program)
        if item is None:
            continue
        if not from_program and _says_more(text[position : match.start()]):
            return None
        position = match.end()
        is_cut = position == len(text) and _begins_a_severity(match["message"])
        if not is_cut:
            items.append(item)
    rest = text[position:].lstrip()
    if not from_program and _says_more(rest):
        if not items or "\n" in rest:
            return None
        is_cut = True
    return answer_of(*findings_of(items), is_cut=is_cut)


def _item(match: re.Match[str], *, needs_severity: bool) -> dict[str, object] | None:
    message = match["message"].rstrip()
    grade = _SEVERITY.match(message)
    # A name with blanks in it may be prose.
    if grade is None and (needs_severity or any(char.isspace() for char in match["path"])):
        return None
    return {
        "file": match["path"],
        "line": int(match["start"]),
        "line_end": int(match["end"]) if match["end"] else None,
        "severity": _SEVERITIES[grade[1].lower()] if grade else _DEFAULT_SEVERITY,
        "message": message[grade.end() :] if grade else message,
    }


def _says_more(between: str) -> bool:
    """Whether there is more than blank lines and fences."""
    return any(line.strip() and not line.lstrip().startswith(("```", "~~~")) for line in between.split("\n"))


def _begins_a_severity(message: str) -> bool:
    """Whether a message at the very end of a text is the beginning, or the whole, of a severity."""
    word = message.strip().rstrip(":").lower()
    return any(severity.startswith(word) for severity in _SEVERITIES)
