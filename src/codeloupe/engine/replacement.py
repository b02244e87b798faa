"""The new code that a reviewer offers for the lines it quotes: kept only where it can take their place as it is.

When in doubt there is none: a wrong edit by one click costs more than a missing one.
"""

from __future__ import annotations

import re

from codeloupe.engine.prompt_text import has_hidden
from codeloupe.engine.quote_gaps import MASK

_LONGEST = 20_000
_FENCE = re.compile(r"[ \t]{0,99}(`{3,9}|~{3,9})[^`\n]{0,80}$")
# How advice begins. No line of code begins with such a word in this spelling and goes on in words.
_ADVICE = re.compile(
    r"(?:Use|Replace|Add|Remove|Change|Consider|Instead|Make|Move|Wrap|Escape|Validate|Ensure|Rename|Avoid|Delete|"
    r"Pass|Set|Keep|Handle|Guard|Close|Do not|Don't|The|This|You|It|N/A|None needed|No change)[ ,][`'\"\w]"
)
_PROSE_SUFFIXES = (".md", ".markdown", ".txt", ".rst", ".adoc", ".tex", ".html", ".htm")


def replacement_of(offered: str | None, *, quote: str, lines: str, path: str) -> str | None:
    """The code that takes the place of `lines`, the whole lines that were found for `quote`; None for anything else.

    Fences and the marks of a diff are taken off, and indentation that was left out is put back. It is none when it
    changes nothing, is advice in words, holds what was masked or cannot be seen, or when the quote is only a part of
    the lines: then nobody knows what it stands for.
    """
    if offered is None or not lines.strip() or len(offered) > _LONGEST or MASK in lines:
        return None
    code = _without_marks(_without_fence(offered.replace("\r\n", "\n")))
    if code is None or not code.strip() or MASK in code or has_hidden(code):
        return None
    if not _same_lines(quote, lines) or (not path.lower().endswith(_PROSE_SUFFIXES) and _is_advice(code)):
        return None
    fitted = _indented(code.strip("\n").rstrip(), lines)
    return None if fitted == lines.rstrip() else fitted


def _without_fence(text: str) -> str | None:
    """What stands in a block that is the whole text; the text when it has none; None for words around a block."""
    rows = text.strip().split("\n")
    fences = [number for number, row in enumerate(rows) if _FENCE.match(row)]
    if not fences:
        return text
    return "\n".join(rows[1:-1]) if fences == [0, len(rows) - 1] else None


def _without_marks(code: str | None) -> str | None:
    """Code without the `+` of a diff, when each line has one."""
    if code is None:
        return None
    rows = code.strip("\n").split("\n")
    if not all(row.startswith("+") for row in rows if row.strip()):
        return code
    return "\n".join(row[1:] for row in rows)


def _same_lines(quote: str, lines: str) -> bool:
    """Whether a quote is these lines, whole, but for indentation, the marks of a diff and a fence."""
    bare = _without_fence(quote.replace("\r\n", "\n"))
    if bare is None:
        return False
    wanted = [row.strip() for row in lines.split("\n") if row.strip()]
    quoted = [row.strip() for row in bare.split("\n") if row.strip()]
    return wanted in (quoted, [row.removeprefix("+").strip() for row in quoted])


def _is_advice(code: str) -> bool:
    return _ADVICE.match(code.lstrip()) is not None


def _indented(code: str, lines: str) -> str:
    """The code, indented as the lines are where its first line has lost its indentation."""
    indent = _indent(lines)
    rows = code.split("\n")
    if not indent or rows[0][:1].isspace():
        return code
    others = [row for row in rows[1:] if row.strip()]
    only_first = bool(others) and all(row.startswith(indent) for row in others)
    return "\n".join(
        f"{indent}{row}" if row.strip() and (number == 0 or not only_first) else row for number, row in enumerate(rows)
    )


def _indent(text: str) -> str:
    first = next((row for row in text.split("\n") if row.strip()), "")
    return first[: len(first) - len(first.lstrip(" \t"))]
