"""The kinds of value that only a pipeline's file has: names of stages, durations, commands, files, schemas."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from codeloupe.config.kinds import LONGEST_TEXT, TEXT, Kind, Mistake, Wrong, in_words, list_of, read_each

AGENT_NAMES = ("agent_sdk", "claude_cli", "codex", "gemini", "api")
MOST_STAGES = 100
MOST_NAMES = 100
MOST_SCHEMAS = 50
LONGEST_DURATION_SECONDS = 30 * 24 * 3600.0
_AGENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,59}")
_STAGE_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,59}")
_DURATION = re.compile(r"(?=[0-9])(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,6})s)?")
# Words that mean something to a shell and nothing to a program; whoever writes one expects a shell.
_SHELL_WORDS = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "2>&1"})


def _stage_name(value: object) -> str:
    if not isinstance(value, str) or not _STAGE_NAME.fullmatch(value):
        raise ValueError("not a name")
    return value


def _agent_name(value: object) -> str:
    if not isinstance(value, str) or not _AGENT_NAME.fullmatch(value):
        raise ValueError("not a name")
    return value


def _seconds(value: object) -> float:
    if isinstance(value, str):
        found = _DURATION.fullmatch(value)
        if found is None:
            raise ValueError("not a duration")
        hours, minutes, seconds = (int(part or 0) for part in found.groups())
        value = hours * 3600 + minutes * 60 + seconds
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= LONGEST_DURATION_SECONDS:
        raise ValueError("not a number of seconds")
    return float(value)


def _command(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        words = shlex.split(TEXT.read(value))
        if shell := next((word for word in words if word in _SHELL_WORDS), None):
            what = f"no shell reads this, so `{shell}` would be an argument: write several gates, or [sh, -c, ...]"
            raise Wrong([Mistake(what, found=False)])
    elif isinstance(value, list):
        words = list(_WORDS.read(value))
    else:
        raise ValueError("no words")
    if not words or not words[0]:
        raise ValueError("no program")
    return tuple(words)


def _default_text(value: object) -> str:
    return "" if value == "" else str(TEXT.accept(value))


def _schema_or_file(value: object) -> object:
    if isinstance(value, Mapping):
        return value
    return FILE.accept(value)


def _whole_number(least: int, most: int) -> Kind:
    def accept(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ValueError("not such a number")
        return value

    schema = {"type": "integer", "minimum": least, "maximum": most}
    return Kind(f"a whole number from {least} to {most:,}", accept, schema)


def _dollars(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= _MOST_DOLLARS:
        raise ValueError("not an amount")
    return float(value)


def one_or_more(entry: Kind, expected: str, *, least: int = 0, most: int = MOST_NAMES) -> Kind:
    """The kind of a list in which a single text may stand for a list of one."""
    listed = list_of(entry, expected, least=least, most=most)

    def accept(value: object) -> object:
        return listed.accept([value] if isinstance(value, str) else value)

    return replace(listed, accept=accept, schema={"anyOf": [dict(entry.schema), dict(listed.schema)]})


def by_name(expected: str, name: Kind, value: Kind, *, most: int) -> Kind:
    """The kind of a group whose keys are names of the user's own; what is read is a dict."""

    def accept(given: object) -> dict[str, Any]:
        if not isinstance(given, Mapping):
            raise ValueError("not a group")
        if len(given) > most:
            raise Wrong([Mistake(f"more than {most} entries", found=False)])
        mistakes = [mistake for key in given for mistake in _wrong_key(name, key)]
        try:
            read = read_each((key, value, each) for key, each in given.items())
        except Wrong as wrong:
            raise Wrong([*mistakes, *wrong.mistakes]) from None
        if mistakes:
            raise Wrong(mistakes)
        return dict(zip(given, read, strict=True))

    schema = {
        "type": "object",
        "propertyNames": dict(name.schema),
        "additionalProperties": dict(value.schema),
        "maxProperties": most,
    }
    return Kind(expected, accept, schema)


def _wrong_key(kind: Kind, key: str) -> list[Mistake]:
    try:
        kind.read(key)
    except Wrong as wrong:
        return [
            replace(mistake, what=f"as a key, {mistake.what}", place=(key,), found=False) for mistake in wrong.mistakes
        ]
    return []


def described(kind: Kind, meaning: str, default: object = None) -> Kind:
    """The same kind, with a description in its schema, and its default where there is one to tell."""
    told: dict[str, Any] = {"description": meaning}
    return replace(kind, schema={**kind.schema, **told, **({} if default is None else {"default": default})})


_MOST_DOLLARS = 1_000_000
_WORDS = list_of(TEXT, "a program and its arguments", least=1)
STAGE_NAME = Kind(
    "a name of small letters, digits, - and _, at most 60 of them, such as write-report",
    _stage_name,
    {"type": "string", "pattern": f"^{_STAGE_NAME.pattern}$"},
    is_text=True,
)
STAGE_NAMES = one_or_more(STAGE_NAME, "a list of names of stages, such as [research]")
DURATION = Kind(
    "a duration such as 90s, 30m, 1h30m or 1800 (seconds), at most 30 days",
    _seconds,
    {
        "anyOf": [
            {"type": "number", "exclusiveMinimum": 0, "maximum": LONGEST_DURATION_SECONDS},
            {"type": "string", "pattern": f"^{_DURATION.pattern}$"},
        ]
    },
)
DOLLARS = Kind(
    f"an amount of dollars above 0, at most {_MOST_DOLLARS:,}",
    _dollars,
    {"type": "number", "exclusiveMinimum": 0, "maximum": _MOST_DOLLARS},
)
COMMAND = Kind(
    "a program and its arguments, such as `pytest -q` or [pytest, -q]",
    _command,
    {"anyOf": [dict(TEXT.schema), dict(_WORDS.schema)]},
    is_text=True,
)
FILE = replace(TEXT, expected="the path of a file, seen from the pipeline's folder")
SCHEMA = Kind(
    "a JSON Schema, or the path of a file with one",
    _schema_or_file,
    {"anyOf": [{"type": "object"}, dict(FILE.schema)]},
    is_text=True,
)
DEFAULT_TEXT = Kind(f"a text of at most {LONGEST_TEXT:,} characters", _default_text, {"type": "string"}, is_text=True)
TEXTS = one_or_more(TEXT, "a list of texts")
# Whether there is one of that name, only whoever runs the pipeline knows; see `check_references`.
AGENT = Kind(
    f"the name of an agent, such as {in_words(AGENT_NAMES)}",
    _agent_name,
    {"type": "string", "pattern": f"^{_AGENT_NAME.pattern}$", "examples": list(AGENT_NAMES)},
    is_text=True,
)
ATTEMPTS = _whole_number(1, 20)
SCORE = _whole_number(0, 100)
RETRIES = _whole_number(0, 10)
TURNS = _whole_number(1, 10_000)
PARALLEL = _whole_number(1, 100)
