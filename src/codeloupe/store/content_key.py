"""The key of an agent call: equal exactly when everything that shapes the answer is equal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from codeloupe.model.agent import AgentRequest

# Raised when the fields below, or what they mean, change: old results are then no longer found.
_FORMAT = 2
CALL_VERSION = "1"
_NOTHING: Mapping[str, str] = MappingProxyType({})


class Asked(Struct, frozen=True, kw_only=True):
    """Who is asked, and on whose behalf.

    `model` is the one that will be asked, `service` the address that answers; None where nobody told. `trust` names
    whose files and settings are behind the question: an answer about a stranger's is none about the user's own.
    """

    agent: str
    model: str | None
    service: str | None
    trust: str


def content_key(
    request: AgentRequest,
    asked: Asked,
    *,
    version: str = CALL_VERSION,
    tree: str | None = None,
    extra: Mapping[str, str] = _NOTHING,
) -> str:
    """The SHA-256, in hex, of all that shapes the answer to a request.

    `version` is that of the prompts, `tree` names the content of the working directory, such as a tree's object name:
    two snapshots of one tree have different paths and one key. Without it the key says nothing about files, so a
    caller gives it for every agent that can read some.

    Left out are labels, the working directory's path, timeouts, attempts and the money limit: they end a call early or
    let it run, but no agent answers differently because of them, and a call that they ended has failed and is not
    stored. The turn limit is in: some agents are told of it and answer with what they have.
    """
    shaping = {
        "format": _FORMAT,
        "version": version,
        "agent": asked.agent,
        "model": asked.model,
        "service": asked.service,
        "trust": asked.trust,
        "tree": tree,
        "extra": sorted(extra.items()),
        **_shaping_fields(request),
    }
    return hashlib.sha256(_unambiguous(shaping)).hexdigest()


def is_repeatable(request: AgentRequest) -> bool:
    """Whether a stored answer may stand for the call.

    A call that changes files is made for what it does, and a resumed session depends on what was said in it.
    """
    return not request.permission_mode.may_write and request.resume_session is None


def _shaping_fields(request: AgentRequest) -> dict[str, Any]:
    return {
        "prompt": request.prompt,
        "asked_model": request.model,
        "fallback_model": request.fallback_model,
        "system_prompt": request.system_prompt,
        "append_system_prompt": request.append_system_prompt,
        "permission_mode": request.permission_mode.value,
        "tools": request.tools,
        "max_turns": request.max_turns,
        "output_schema": request.output_schema,
        "resume_session": request.resume_session,
        "context": list(request.context.items()),
    }


def _unambiguous(shaping: Mapping[str, Any]) -> bytes:
    # JSON quotes every text, so no two fields can run into each other. Names inside a schema keep their order: a
    # model writes its answer in that order. Surrogates pass one by one, so that half a character is no crash.
    text = json.dumps(shaping, ensure_ascii=False, separators=(",", ":"), default=_plain)
    return text.encode("utf-8", "surrogatepass")


def _plain(value: object) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no part of a JSON schema")
