"""Whether a caller of the library gave what a function takes; a program that no type checker saw gets a clear error."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NoReturn, get_args, get_origin, get_type_hints

from codeloupe.config.schema import Settings
from codeloupe.errors import UsageError
from codeloupe.model.scope import ScopeRequest
from codeloupe.model.sweep import CommitQuery

_SCOPE_HINT = (
    'give a scope, such as codeloupe.CommitScope("HEAD"), RangeScope("main...HEAD"), BaseScope("main"),'
    " StagedScope() or UncommittedScope()"
)


def _is(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))


def _has(*names: str) -> Callable[[Any], bool]:
    return lambda value: not isinstance(value, type) and all(hasattr(value, name) for name in names)


def _all_in(fits: Callable[[Any], bool], kind: Any) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kind) and not isinstance(value, str) and all(map(fits, value))


_is_text, _is_agent = _is(str), _has("name", "limits", "run")


def _is_text_by_name(value: object) -> bool:
    return isinstance(value, Mapping) and all(map(_is_text, [*value.keys(), *value.values()]))


# Which parameters, what they take, how a hint says it, and whether None will do.
_TABLE: tuple[tuple[str, Callable[[Any], bool], str, bool], ...] = (
    ("repo workdir file", _is(str, os.PathLike), "a path, as text or as a Path", False),
    ("state_directory log_directory context_file", _is(str, os.PathLike), "a path, as text or as a Path", True),
    ("context base_branch diff_range known_run_id", _is_text, "a text", False),
    ("session_id claude_session_id run_id agent model", _is_text, "a text", True),
    ("fresh since_last needs_agent strict wait_for_approval accept_changes", _is(bool), "True or False", False),
    ("emit watch", callable, "a function", False),
    ("transcript on_review_warning review ask_person", callable, "a function", True),
    ("settings", _is(Settings), "codeloupe.Settings(...)", True),
    ("environment", _is_text_by_name, "a dict of texts by name", True),
    ("inputs", _is_text_by_name, "a dict of texts by name", False),
    (
        "agents",
        _all_in(_is_agent, Sequence),
        "a list of agents, such as [ScriptedAgent(...)]; names go into Settings(agents=[...])",
        False,
    ),
    (
        "agents_by_name",
        lambda value: isinstance(value, Mapping) and all(map(_is_agent, value.values())),
        "a dict of agents by name",
        False,
    ),
    ("timing", _has("clock"), "a Timing", False),
    ("runtime", _has("run_agent"), "a codeloupe.Runtime", True),
    ("own_patterns", _all_in(_is_text, AbstractSet), "a set of texts", False),
    ("commit_shas", _all_in(_is_text, Sequence), "a list of commits", True),
    ("timeout", _is(int, float), "a number of seconds", False),
    ("timeout_seconds", _is(int, float), "a number of seconds", True),
    ("pipeline", _has("definition"), "codeloupe.Pipeline.load(FILE)", False),
    ("definition", _has("stages"), "a definition; Pipeline.load(FILE) reads a file", False),
    ("options", _has("accept_changes"), "codeloupe.RunOptions(...)", True),
    ("query", _is(CommitQuery), 'codeloupe.CommitQuery(revision="main..HEAD")', True),
)
_KINDS = {name: row[1:] for row in _TABLE for name in row[0].split()}


def check_arguments(**given: object) -> None:
    """Raises UsageError for an argument of a kind that its name does not call for, TypeError for an unknown one."""
    for name, value in given.items():
        if name not in _KINDS:
            raise TypeError(f"unexpected keyword argument {name!r}")
        fits, words, or_none = _KINDS[name]
        if not (or_none and value is None) and not fits(value):
            _refuse(name, value, f"give {words}{', or None' if or_none else ''}")


def check_scope(scope: object) -> None:
    """Raises UsageError for what is no scope, and says which class it should be, or for one with a wrong part."""
    if scope is None:
        return
    if not isinstance(scope, get_args(ScopeRequest)):
        hint = _SCOPE_HINT
        if isinstance(scope, str) and ".." in scope:
            hint = f"give codeloupe.RangeScope({scope!r})"
        elif isinstance(scope, str) and "://" in scope:
            hint = f"give codeloupe.PullRequestScope({scope!r})"
        elif isinstance(scope, bytes):
            hint = "give codeloupe.DiffScope(NAME, DATA) for a diff"
        _refuse("scope", scope, hint)
    check_fields(scope)


def check_fields(record: Any) -> None:
    """Raises UsageError for a part of a scope or a query that is not of the type that its class names."""
    for name, hint in get_type_hints(type(record)).items():
        value, kind = getattr(record, name), tuple if get_origin(hint) is tuple else hint
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            words = getattr(kind, "__name__", str(kind))
            _refuse(f"{name} of {type(record).__name__}", value, f"give a value of type {words}")


def _refuse(name: str, value: object, hint: str) -> NoReturn:
    raise UsageError(f"{name} is {str(value)[:80]!r} of type {type(value).__name__}", hint=hint)
