"""A text that is a string of JSON as a whole: what an answer looks like when it was written down once too often."""

from __future__ import annotations

import re

from codeloupe.engine.parse.flaws import CutText
from codeloupe.engine.parse.json_text import parsed
from codeloupe.engine.parse.loose_tokens import decoded

# JSON whose quotes are escaped, as in a string.
_ESCAPED = re.compile(r'"?(?:```(?:json)?)?(?:\s|\\[nrt]){0,50}[\[{](?:[\s\[{]|\\[nrt]){0,50}\\"')


def text_in_text(text: str) -> str | None:
    """The content of a text that is one string of JSON, or the inside of one; a CutText where its end is missing."""
    stripped = text.strip()
    is_string = stripped.startswith('"')
    if is_string and len(stripped) > 1 and stripped.endswith('"'):
        try:
            value = parsed(stripped)
        except ValueError:
            pass
        else:
            return value if isinstance(value, str) else None
    if _ESCAPED.match(stripped) is None:
        return None
    return CutText(decoded(stripped[1:])) if is_string else decoded(stripped)
