"""PHP without the text around it: ast-grep's grammar knows PHP only, and would take a template's HTML for code."""

from __future__ import annotations

import re

_OPENING = re.compile(r"<\?(?:php(?=\s|\Z)|=|(?=\s))", re.IGNORECASE)
# What may hold a `?>` that does not close, and the `?>` that does. Every part also ends at the end of the text, so
# that none is tried in vain: the search stays linear on hostile input.
_CLOSING = re.compile(
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
    """The same file as one run of PHP code; every line of code keeps its number."""
    parts = ["<?php "]
    position = 0
    while opening := _OPENING.search(text, position):
        code_end, closing = _end_of_code(text, opening.end())
        parts.append("\n" * text.count("\n", position, opening.start()))
        parts.append(" echo " if opening[0] == "<?=" else " ")
        parts.append(text[opening.end() : code_end])
        parts.append(";" if closing < len(text) else "")
        position = closing
    parts.append("\n" * text.count("\n", position))
    return "".join(parts)


def _end_of_code(text: str, position: int) -> tuple[int, int]:
    """Where the code ends, and where the `?>` is.

    They differ when a line comment stands before the `?>`: kept, it would hide the code that follows in its line.
    """
    before: re.Match[str] | None = None
    for part in _CLOSING.finditer(text, position):
        if part["close"]:
            commented = before is not None and before["comment"] and before.end() == part.start()
            return (before.start() if before and commented else part.start()), part.start()
        before = part
    return len(text), len(text)
