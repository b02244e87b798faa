"""What a prompt asks for of each finding: form and words in one table. Loads nothing, since every review needs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Raised with every change of this table, of the texts in `prompts/`, of the schemas and of what is put around them.
PROMPT_VERSION = "2"
_TEXT = {"type": "string"}
# Each field of a finding, in the order in which it is asked for: its form, and what the prompt says of it, if anything.
ASKED: dict[str, tuple[Mapping[str, Any], str]] = {
    "file": (_TEXT, "file"),
    "line": ({"type": "integer"}, "line in the new file"),
    "quote": (
        _TEXT,
        (
            "quote = the one to three whole lines of new code that show it, copied exactly without the +"
            " (for a harmful deletion, the nearest line left)"
        ),
    ),
    "title": (_TEXT, "title"),
    "body": (_TEXT, "body = when it happens and what follows"),
    "category": (_TEXT, "category from the checklist"),
    "severity": ({"type": "string", "enum": ["critical", "high", "medium", "low"]}, ""),
    "confidence_": ({"type": "number"}, "confidence = 0 to 1"),
    "suggestion_": (_TEXT, "suggestion = the fix in words"),
    "replacement_": (
        _TEXT,
        'replacement = the new code for exactly the quoted lines, with their indentation, "" where no small fix exists',
    ),
}
