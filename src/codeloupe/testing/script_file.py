"""Scripts for the stand-in server as JSON, for people who try a program by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from codeloupe.errors import ConfigError
from codeloupe.model.agent import TokenUsage
from codeloupe.testing.replies import REPLY_KINDS, Reply, checked

_KINDS = {name.lower(): kind for name, kind in REPLY_KINDS.items()}


def read_script(path: Path) -> list[Reply]:
    """The replies in a JSON file. Raises ConfigError with the file and the place of what is wrong.

    The file holds a list. A string is a text; an object names its kind and gives the fields of that reply:
    `{"reply": "status", "code": 429, "retry_after": 3}`, `{"reply": "delay", "seconds": 2, "then": "hello"}`.
    """
    try:
        items = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as a script: {error}", hint=_HINT) from error
    if not isinstance(items, list):
        raise ConfigError(f"{path} holds no list of replies", hint=_HINT)
    return [_named(path, number, item) for number, item in enumerate(items, start=1)]


_HINT = 'A script is a JSON list such as ["hello", {"reply": "status", "code": 429, "retry_after": 3}].'


def _named(path: Path, number: int, item: Any) -> Reply:
    try:
        return _reply(item)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{path}, reply {number}: {error}", hint=_HINT) from error


def _reply(item: Any) -> Reply:
    if isinstance(item, str):
        item = {"reply": "text", "text": item}
    if not isinstance(item, dict) or str(item.get("reply")).lower() not in _KINDS:
        raise ValueError(f"{json.dumps(item)[:80]} is no reply; the kinds are: {', '.join(sorted(_KINDS))}")
    kind = _KINDS[str(item["reply"]).lower()]
    fields = {name: _PARTS.get(name, _as_it_is)(value) for name, value in item.items() if name != "reply"}
    return checked(kind(**fields))


def _usage(value: Any) -> TokenUsage:
    return TokenUsage(**value)


def _as_it_is(value: Any) -> Any:
    return value


_PARTS: dict[str, Callable[[Any], Any]] = {"then": _reply, "of": _reply, "usage": _usage}
