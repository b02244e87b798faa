"""What is wrong with text that is not YAML, in words for somebody who does not know the grammar."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from codeloupe.config.problems import Problem, escape, quote

# Patterns as text: to compile them takes milliseconds, and most runs read no file.
# What YAML allows in a file; the parsers report anything else by a byte offset that helps nobody.
_FORBIDDEN_CHARACTER = "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
# The C parser compares each tag directive with all before it: 1 MB of them took 16 s.
_TAG_DIRECTIVE = "(?:^|[\n\r\x85\u2028\u2029])\ufeff*(%TAG)"
_QUOTE_IT = "put the value in quotes"


class _Explanation(Struct, frozen=True):
    """`fragment` is what both parsers' messages hold; `at_start` points to where the open construct began."""

    fragment: str
    what: str
    hint: str
    at_start: bool = False


_EXPLANATIONS = (
    _Explanation("tab character", "a tab is used for indentation", "indent with spaces"),
    _Explanation(
        "mapping values are not allowed",
        "there is a `:` where no key can be",
        "put a value that holds `: ` in quotes; check colon and indentation of this line and the one above",
    ),
    _Explanation("',' or ']'", "this `[` is not closed", "add the missing `]` or `,`", at_start=True),
    _Explanation("',' or '}'", "this `{` is not closed", "add the missing `}` or `,`", at_start=True),
    _Explanation("unexpected end of stream", "this quote is not closed", "add the closing quote", at_start=True),
    _Explanation(
        "unknown escape character",
        "the text in double quotes holds a `\\` that begins no known escape",
        "use single quotes, or double the `\\`",
    ),
    _Explanation(
        "could not find expected ':'", "this line is no `key: value`", "write `key: value`, with a colon", at_start=True
    ),
    _Explanation(
        "alphabetic or numeric character",
        "a plain value cannot begin with `*` or `&`",
        'put it in quotes, such as "*.py"',
        at_start=True,
    ),
    _Explanation("did not find expected key", "this does not belong here", "check indentation and quotes"),
    _Explanation("<block end>", "this does not belong here", "check indentation and quotes"),
    _Explanation("'-' indicator", "a list and keys are mixed on one level", "indent the list under its key"),
    _Explanation("node content", "a value is missing here", _QUOTE_IT),
    _Explanation("incompatible YAML document", "this version of YAML is not known", "remove the %YAML line"),
)


def unreadable_text(name: str, text: str) -> Problem | None:
    """The problem with text that must not reach the parser at all, or None."""
    if found := re.search(_FORBIDDEN_CHARACTER, text):
        what = f"the character {quote(found[0])} is not allowed"
        return _at(name, *_position(text, found.start()), what, "remove it, and save the file as plain UTF-8 text")
    if found := re.search(_TAG_DIRECTIVE, text):
        return _at(name, *_position(text, found.start(1)), "tag directives are not allowed", "remove the %TAG line")
    return None


def explain(name: str, text: str, error: Any) -> Problem:
    """Put a parser's error (a YAMLError, marked with its place or not) into words."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return Problem(escape(name), "not valid YAML", "compare it with what `codeloupe config init` writes")
    message = str(error.problem)
    character = text[mark.index : mark.index + 1]
    if "cannot start any token" in message:
        what, hint = _bad_beginning(character)
        return _at(name, mark.line + 1, mark.column + 1, what, hint)
    for known in _EXPLANATIONS:
        if known.fragment in message:
            mark = (error.context_mark or mark) if known.at_start else mark
            return _at(name, mark.line + 1, mark.column + 1, known.what, known.hint)
    return _at(
        name, mark.line + 1, mark.column + 1, f"not valid YAML: {escape(message)}", "check this line and its quotes"
    )


def _bad_beginning(character: str) -> tuple[str, str]:
    if character == "\t":
        return "a tab is used for indentation", "indent with spaces"
    return f"neither key nor value can begin with {quote(character)}", _QUOTE_IT


def _at(name: str, line: int, column: int, what: str, hint: str) -> Problem:
    return Problem(f"{escape(name)}:{line}:{column}", what, hint, line)


def _position(text: str, index: int) -> tuple[int, int]:
    before = text[:index]
    return before.count("\n") + 1, index - (before.rfind("\n") + 1) + 1
