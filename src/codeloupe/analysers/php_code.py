"""PHP pages as code: a page may mix HTML and code, and ast-grep parses code only."""

from __future__ import annotations

import re

from codeloupe.system.regex import regex

_OPENING = regex(r"<\?(?:php(?=\s|\Z)|=|(?=\s))", re.IGNORECASE)
# The parts of code that may contain a `?>` that does not close, and the `?>` that does. Each part also ends at the end
# of the text, so that no attempt fails after a long search: the search stays linear on hostile input.
_CLOSING = regex(
    r"""
    " (?: [^"\\] | \\(?:.|\Z) )* (?: " | \Z )
    | ' (?: [^'\\] | \\(?:.|\Z) )* (?: ' | \Z )
    | /\* .*? (?: \*/ | \Z )
    | (?P<comment> (?: // | \#(?!\[) ) [^\n]*? ) (?= \?> | \n | \Z )
    | <<< [ \t]* (["']?) (?P<label>\w+) \1 \r?\n .*? (?: \n [ \t]* (?P=label) \b | \Z )
    | (?P<close> \?> )
    """,
    re.VERBOSE | re.DOTALL,
)


def only_code(text: str) -> str:
    """Return the same file as one run of PHP code; every line of code keeps its number."""
    parts = ["<?php "]
    position = 0
    while True:
        opening = _OPENING.search(text, position)
        if opening is None:
            break
        parts.append("\n" * text.count("\n", position, opening.start()))
        parts.append(" echo " if opening[0] == "<?=" else " ")
        code_end, position = _end_of_code(text, opening.end())
        parts.append(text[opening.end() : code_end])
        if position < len(text):
            parts.append(";")
    parts.append("\n" * text.count("\n", position))
    return "".join(parts)


def _end_of_code(text: str, start: int) -> tuple[int, int]:
    """Return the end of the code that begins at `start`, and the position of the `?>` that closes it."""
    before: re.Match[str] | None = None
    for part in _CLOSING.finditer(text, start):
        if part["close"]:
            position = part.start()
            # A line comment before the `?>` would hide the code that follows on its line.
            if before is not None and before["comment"] and before.end() == position:
                return before.start(), position
            return position, position
        before = part
    return len(text), len(text)
