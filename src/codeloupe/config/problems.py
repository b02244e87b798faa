"""Mistakes in a configuration, collected one by one and told together."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from codeloupe.errors import ConfigError

_MOST_SHOWN_CHARACTERS = 60
MOST_LISTED = 20
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_.-]{1,60}")
_SHARED_HINT = "correct each line, then check with `codeloupe config validate`"


class Problem(Struct, frozen=True):
    """One mistake: the place (`file:line`, a variable or a flag), what is wrong there, and what to do about it."""

    place: str
    what: str
    hint: str = ""
    line: int = 0


def config_error(
    problems: Sequence[Problem], *, subject: str = "the configuration", hint: str = _SHARED_HINT
) -> ConfigError:
    """One error for all the mistakes, one to a line; the hint of a lone mistake is the hint of the error."""
    if len(problems) == 1:
        problem = problems[0]
        return ConfigError(f"{problem.place}: {problem.what}", hint=problem.hint)
    rows = [f"{subject} has {len(problems):,} mistakes:"]
    rows += [_row(problem) for problem in problems[:MOST_LISTED]]
    if len(problems) > MOST_LISTED:
        rows.append(f"  and {len(problems) - MOST_LISTED:,} more")
    return ConfigError("\n".join(rows), hint=hint)


def _row(problem: Problem) -> str:
    hint = f" ({problem.hint})" if problem.hint else ""
    return f"  {problem.place}: {problem.what}{hint}"


def escape(text: str) -> str:
    """The text on one line, with every character that a terminal could act on written as an escape."""
    return "".join(character if character.isprintable() else _escaped(character) for character in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def plain_or_quoted(key: str) -> str:
    """A key as a message shows it: as it is when it is a plain word, else in quotes."""
    return key if _PLAIN_WORD.fullmatch(key) else quote(key)


def quote(text: str) -> str:
    """A value as a message shows it: short, in quotes, control characters escaped."""
    cut = text[:_MOST_SHOWN_CHARACTERS]
    more = "…" if len(text) > len(cut) else ""
    return f"'{escape(cut)}{more}'"


def path_in_words(key: str, place: Sequence[int | str]) -> str:
    """Where in a setting something stands: `own_experts.payments.focus: entry 2`."""
    shown = key
    sign = "."
    for step in place:
        shown += f": entry {step + 1}" if isinstance(step, int) else f"{sign}{plain_or_quoted(step)}"
        sign = ": " if isinstance(step, int) else "."
    return shown
