"""What may reach a workflow's log as a command of ours: one line that is one command, whatever the text holds.

The escaping is that of GitHub's own toolkit. Control, bidirectional and invisible characters are shown escaped, and
what could be read as the start of another command is broken.
"""

from __future__ import annotations

from collections.abc import Mapping

from codeloupe.system.sanitise import terminal, without_log_commands
from codeloupe.system.sanitise_plain import plain_text

_IN_MESSAGE = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_IN_PROPERTY = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A", ":": "%3A", ",": "%2C"})
_LONGEST_PROPERTY = 5_000


def command(name: str, properties: Mapping[str, str], message: str, *, longest: int) -> str:
    """`::name key=value,key=value::message`, on one line; of a long message, the beginning. `name` must be ours."""
    told = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::{name}{f' {told}' if told else ''}::{_message(message, longest)}"


def _property(value: str) -> str:
    return without_log_commands(terminal(value[:_LONGEST_PROPERTY])).translate(_IN_PROPERTY)


def _message(text: str, longest: int) -> str:
    shown = without_log_commands(plain_text(text, longest=longest))
    while "::" in shown:
        shown = shown.replace("::", ": :")
    return shown.translate(_IN_MESSAGE)
