"""Whether a caller of the library gave what a function takes; a program that no type checker saw gets a clear error."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NoReturn, get_args, get_origin, get_type_hints

from codeloupe.config.schema import Settings
from codeloupe.errors import UsageError
from codeloupe.model.scope import ScopeRequest
from codeloupe.model.sweep import CommitQuery


def _is(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))


def _has(*names: str) -> Callable[[Any], bool]:
    return lambda value: not isinstance(value, type) and all(hasattr(value, name) for name in names)


def _all_in(fits: Callable[[Any], bool], kind: Any) -> Callable[[Any], bool]:
    """Of a mapping, its values; their names are texts anyway, or no harm."""
    return lambda value: (
        isinstance(value, kind)
        and not isinstance(value, str)
        and all(map(fits, value.values() if isinstance(value, Mapping) else value))
    )


def _is_plain_function(value: Any) -> bool:
    return callable(value) and not inspect.iscoroutinefunction(value)


_is_text, _is_agent = _is(str), _has("name", "limits", "run")
_AGENTS = "a list of agents, such as [ScriptedAgent(...)]; names go into Settings(agents=[...])"
_PATH = "a path, as a string or a Path"
# Which parameters (those with a `?` may be None), what they take, and how a hint says it.
_TABLE: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("repo workdir file state_directory? clone? log_directory? context_file?", _is(str, os.PathLike), _PATH),
    ("context base_branch diff_range known_run_id session_id? claude_session_id? run_id?", _is_text, "a string"),
    ("agent? model? work_tree", _is_text, "a string"),
    ("fresh since_last needs_agent strict wait_for_approval accept_changes only_begin", _is(bool), "True or False"),
    ("emit watch transcript? on_review_warning?", _is_plain_function, "a function that is not async"),
    ("review? ask_person?", callable, "a function"),
    ("settings?", _is(Settings), "codeloupe.Settings(...)"),
    ("environment? inputs", _all_in(_is_text, Mapping), "a dict of strings by name"),
    ("agents", _all_in(_is_agent, Sequence), _AGENTS),
    ("agents_by_name", _all_in(_is_agent, Mapping), "a dict of agents by name"),
    ("timing?", _has("clock", "sleep"), "a Timing, such as codeloupe.testing.instant_timing()"),
    (
        "priority",
        lambda value: _is(int)(value) and value in range(3),
        "0 (a person), 1 (a pull request) or 2 (a sweep)",
    ),
    ("runtime?", _has("run_agent"), "a codeloupe.Runtime"),
    ("own_patterns", _all_in(_is_text, AbstractSet), "a set of strings"),
    ("commit_shas?", _all_in(_is_text, Sequence), "a list of commits"),
    ("timeout timeout_seconds?", _is(int, float), "a number of seconds"),
    ("pipeline", _has("definition"), "codeloupe.Pipeline.load(FILE)"),
    (
        "definition",
        # A definition that was not loaded lacks the texts of its files.
        lambda value: bool(getattr(value, "texts", None)),
        "a definition with its texts; Pipeline.load(FILE) reads a file",
    ),
    ("options?", _has("accept_changes"), "codeloupe.RunOptions(...)"),
    ("scope?", _is(*get_args(ScopeRequest)), "a scope"),
    ("query?", _is(CommitQuery), 'codeloupe.CommitQuery(revision="main..HEAD")'),
)
_KINDS = {name.rstrip("?"): (*row[1:], name.endswith("?")) for row in _TABLE for name in row[0].split()}


def check_arguments(**given: object) -> None:
    """Raises UsageError for an argument of a kind that its name does not call for, TypeError for an unknown one."""
    for name, value in given.items():
        if name not in _KINDS:
            raise TypeError(f"unexpected keyword argument {name!r}")
        fits, words, or_none = _KINDS[name]
        if or_none and value is None:
            continue
        if not fits(value):
            _refuse(name, value, _meant(value) if name == "scope" else f"give {words}{', or None' if or_none else ''}")
        if name in ("scope", "query"):
            _check_fields(value)


def _meant(scope: object) -> str:
    """Which class a scope should be."""
    name = scope if isinstance(scope, str) else ""
    if ".." in name or "://" in name:
        return f"give codeloupe.{'RangeScope' if '..' in name else 'PullRequestScope'}({name!r})"
    if isinstance(scope, bytes):
        return "give codeloupe.DiffScope(NAME, DATA) for a diff"
    return 'give a scope, such as codeloupe.CommitScope("HEAD"), BaseScope("main") or StagedScope()'


def _check_fields(record: Any) -> None:
    """Raises UsageError for a part of a scope or a query that is not of the type that its class names."""
    for name, hint in get_type_hints(type(record)).items():
        value, kind = getattr(record, name), tuple if get_origin(hint) is tuple else hint
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            words = getattr(kind, "__name__", str(kind))
            _refuse(f"{name} of {type(record).__name__}", value, f"give a value of type {words}")


def _refuse(name: str, value: object, hint: str) -> NoReturn:
    raise UsageError(f"{name} is {str(value)[:80]!r} of type {type(value).__name__}", hint=hint)
