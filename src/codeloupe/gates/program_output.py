"""The last words of a program, fit to be read by a person, a log and a model: no secrets, no control characters."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from codeloupe.model.pipeline_definition import PipelineDefinition
from codeloupe.system.redaction import is_secret, redact

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


def without_secrets(text: str, also: Sequence[str] = ()) -> str:
    """A text as it may be written down: what an error or a gate says can hold what a program printed.

    `also` are values that are secret in this run.
    """
    for value in sorted(also, key=len, reverse=True):
        text = text.replace(value, "[redacted]")
    return redact(text)


def secret_inputs(definition: PipelineDefinition, values: Mapping[str, str]) -> tuple[str, ...]:
    """The names of those inputs that are secret: as the pipeline says, or as their names or values tell."""
    declared = {each.name for each in definition.inputs if each.secret}
    return tuple(name for name, value in values.items() if name in declared or is_secret(name, value))


def _shown(line: str) -> str:
    line = line.replace("\t", "    ")
    if len(line) > _MOST_LINE_CHARACTERS:
        line = f"{line[:_MOST_LINE_CHARACTERS]} ..."
    return "".join(sign if sign.isprintable() else f"\\x{ord(sign):02x}" for sign in line)
