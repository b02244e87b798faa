"""The configuration file that `codeloupe config init` writes."""

from __future__ import annotations

import textwrap

from codeloupe.config.schema import KEYS, USER_KEYS, description_of, kind_of
from codeloupe.config.values import default_text

_WIDTH = 110
_HEADER = """\
# Settings of codeloupe for this repository.
#
# Every key that a repository may set is here with its default. To change one, remove the `#` before it
# and write your value.
# `codeloupe config validate` checks this file; `codeloupe config show` tells which value is in force and why.
"""


def initial_text() -> str:
    """A file that sets nothing, with each key of a repository, its meaning and its default in comments."""
    return "\n".join([_HEADER, *(_section(key) for key in KEYS if key not in USER_KEYS)])


def _section(key: str) -> str:
    meaning = _comment(description_of(key))
    value = _comment(f"Value: {kind_of(key).expected}.")
    return f"{meaning}\n{value}\n#{key}: {default_text(key)}\n"


def _comment(text: str) -> str:
    lines = textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)
    return "\n".join(lines)
