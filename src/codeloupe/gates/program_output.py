"""The last words of a program, fit to be read by a person, a log and a model: no secrets, no control characters."""

from __future__ import annotations

import re

from codeloupe.redaction import redact

# Colours and cursor movements; each part is bounded, so that it takes linear time.
_ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?]{0,40}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,400}(?:\x07|\x1b\\)|[@-Z\\-_])")
_MOST_LINES = 60
_MOST_CHARACTERS = 6_000
_MOST_LINE_CHARACTERS = 500


def last_words(data: bytes | str) -> str:
    """The last lines, without what a terminal would obey, and with secrets masked before anything is cut."""
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    plain = _ESCAPE_SEQUENCE.sub("", redact(text))
    # Of a line that a program wrote over and over the last state counts.
    lines = [_shown(line.rstrip("\r").rpartition("\r")[2]) for line in plain.split("\n")]
    told = [line for line in lines if line.strip()][-_MOST_LINES:]
    words = "\n".join(told)
    return words if len(words) <= _MOST_CHARACTERS else f"... {words[-_MOST_CHARACTERS:]}"


def without_secrets(text: str) -> str:
    """A text as it may be written down: what an error or a gate says can hold what a program printed."""
    return redact(text)


def _shown(line: str) -> str:
    line = line.replace("\t", "    ")
    if len(line) > _MOST_LINE_CHARACTERS:
        line = f"{line[:_MOST_LINE_CHARACTERS]} ..."
    return "".join(sign if sign.isprintable() else f"\\x{ord(sign):02x}" for sign in line)
