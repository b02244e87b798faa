"""Whether a caller of the library gave what a function takes; a program that no type checker saw is told in words."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, get_args, get_origin, get_type_hints

from codeloupe.config.schema import Settings
from codeloupe.errors import UsageError
from codeloupe.model.scope import ScopeRequest
from codeloupe.model.sweep import CommitQuery


class _Kind(NamedTuple):
    """What a parameter takes, and that in words."""

    fits: Callable[[Any], bool]
    words: str


def _is(*kinds: type, words: str) -> _Kind:
    return _Kind(lambda value: isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool)), words)


def _or_none(kind: _Kind) -> _Kind:
    return _Kind(lambda value: value is None or kind.fits(value), f"{kind.words}, or None")


def _is_agent(value: object) -> bool:
    return not isinstance(value, type) and all(hasattr(value, name) for name in ("name", "limits", "run"))


def _are_agents(value: object) -> bool:
    return isinstance(value, Sequence) and all(map(_is_agent, value))


def _are_texts(value: Any, kind: Any = Sequence) -> bool:
    return isinstance(value, kind) and not isinstance(value, str) and all(isinstance(each, str) for each in value)


def _is_text_by_name(value: object) -> bool:
    return isinstance(value, Mapping) and _are_texts([*value.keys(), *value.values()])


_PATH = _is(str, os.PathLike, words="a path, as text or as a Path")
_TEXT = _is(str, words="a text")
_FLAG = _is(bool, words="True or False")
_FUNCTION = _Kind(callable, "a function")
_NUMBER = _is(int, float, words="a number of seconds")
_BY_NAME = _Kind(_is_text_by_name, "a dict of texts by name")
_KINDS: Mapping[str, _Kind] = {
    **dict.fromkeys(("repo", "workdir", "file"), _PATH),
    **dict.fromkeys(("state_directory", "log_directory", "context_file"), _or_none(_PATH)),
    **dict.fromkeys(("context", "base_branch", "diff_range", "known_run_id"), _TEXT),
    **dict.fromkeys(("session_id", "claude_session_id", "run_id", "agent", "model"), _or_none(_TEXT)),
    **dict.fromkeys(("fresh", "since_last", "needs_agent", "strict", "wait_for_approval", "accept_changes"), _FLAG),
    **dict.fromkeys(("emit", "watch"), _FUNCTION),
    **dict.fromkeys(("transcript", "on_review_warning", "review", "ask_person"), _or_none(_FUNCTION)),
    "settings": _or_none(_is(Settings, words="codeloupe.Settings(...)")),
    "environment": _or_none(_BY_NAME),
    "inputs": _BY_NAME,
    "agents": _Kind(
        _are_agents, "a list of agents, such as [ScriptedAgent(...)]; names go into Settings(agents=[...])"
    ),
    "agents_by_name": _Kind(
        lambda value: isinstance(value, Mapping) and all(map(_is_agent, value.values())), "a dict of agents by name"
    ),
    "timing": _Kind(lambda value: callable(getattr(value, "clock", None)), "a Timing"),
    "runtime": _or_none(_Kind(lambda value: callable(getattr(value, "run_agent", None)), "a codeloupe.Runtime")),
    "own_patterns": _Kind(lambda value: _are_texts(value, set | frozenset), "a set of texts"),
    "commit_shas": _or_none(_Kind(_are_texts, "a list of commits")),
    "timeout": _NUMBER,
    "timeout_seconds": _or_none(_NUMBER),
    "pipeline": _Kind(lambda value: hasattr(value, "definition"), "codeloupe.Pipeline.load(FILE)"),
    "definition": _Kind(lambda value: hasattr(value, "stages"), "a definition; Pipeline.load(FILE) reads a file"),
    "options": _or_none(_Kind(lambda value: hasattr(value, "accept_changes"), "codeloupe.RunOptions(...)")),
    "query": _or_none(_is(CommitQuery, words='codeloupe.CommitQuery(revision="main..HEAD")')),
}


def check_arguments(**given: object) -> None:
    """Raises UsageError for an argument that is not of the kind that its name stands for."""
    for name, value in given.items():
        if not _KINDS[name].fits(value):
            _refuse(name, value, f"give {_KINDS[name].words}")


def check_scope(scope: object) -> None:
    """Raises UsageError for what is no scope, and says which class it should be, or for one with a wrong part."""
    if scope is None:
        return
    if not isinstance(scope, get_args(ScopeRequest)):
        _refuse("scope", scope, _scope_hint(scope))
    check_fields(scope)


def check_fields(record: Any) -> None:
    """Raises UsageError for a part of a scope or a query that is not of the type that its class names."""
    for name, hint in get_type_hints(type(record)).items():
        value, kind = getattr(record, name), tuple if get_origin(hint) is tuple else hint
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            words = getattr(kind, "__name__", str(kind))
            _refuse(f"{name} of {type(record).__name__}", value, f"give a value of type {words}")


def _scope_hint(scope: object) -> str:
    if isinstance(scope, str) and ".." in scope:
        return f"give codeloupe.RangeScope({scope!r})"
    if isinstance(scope, str) and "://" in scope:
        return f"give codeloupe.PullRequestScope({scope!r})"
    if isinstance(scope, bytes):
        return "give codeloupe.DiffScope(NAME, DATA) for a diff"
    return (
        'give a scope, such as codeloupe.CommitScope("HEAD"), RangeScope("main...HEAD"), BaseScope("main"),'
        " StagedScope() or UncommittedScope()"
    )


def _refuse(name: str, value: object, hint: str) -> NoReturn:
    raise UsageError(f"{name} is {str(value)[:80]!r} of type {type(value).__name__}", hint=hint)
