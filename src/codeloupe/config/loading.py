"""Puts the sources of settings together: flag over environment over situation over repository over user file.

Each value knows where it came from, and all mistakes of all sources are reported together, each with its place.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from codeloupe.config import yaml
from codeloupe.config.files import ConfigText, read_repository_file, read_user_file, user_file_path
from codeloupe.config.kinds import Mistake, Wrong
from codeloupe.config.schema import ABOUT, KEYS, USER_KEYS, Settings, default_text, mistake_hint, unknown_key_hint
from codeloupe.config.yaml import Node, Problem, closest, escape, quote

FROM_FORK = "because this is a pull request from a fork"
_FROM_UNKNOWN = "because this is a pull request from an unknown source"
# Two variables that name the repository of a change and the one it goes to, where both are set.
_PAIRS = (
    ("CI_MERGE_REQUEST_SOURCE_PROJECT_ID", "CI_MERGE_REQUEST_PROJECT_ID"),
    ("CI_EXTERNAL_PULL_REQUEST_SOURCE_REPOSITORY", "CI_EXTERNAL_PULL_REQUEST_TARGET_REPOSITORY"),
)
# In an event of GitHub: what a change is called, the repository it is from, and the one it goes to.
_GITHUB_REPOSITORIES = (
    ("pull_request", "pull_request.head.repo", "pull_request.base.repo"),
    ("workflow_run", "workflow_run.head_repository", "repository"),
)
_PREFIX = "CODELOUPE_"
# No setting, but a variable of ours: the folder of ledger, history and runs.
_HOME = "CODELOUPE_HOME"
# Flags that are not called like their key.
_FLAGS = {"agents": "--agent", "keep_sessions": "--keep-session"}
_FLAGS |= dict.fromkeys(("reviewer_type", "reviewers"), "--reviewer")
_FLAGS |= dict.fromkeys(("timeout_seconds", "review_timeout_seconds", "agent_timeout_seconds"), "--timeout")
_FLAGS["agent_sdk_review_timeout"] = "--timeout"


class OriginKind(StrEnum):
    """The sources, weakest first."""

    DEFAULT = "default"
    USER = "user"
    REPOSITORY = "repository"
    SITUATION = "situation"
    ENVIRONMENT = "environment"
    FLAG = "flag"


class Origin(Struct, frozen=True):
    """One source. `where` names the file, variable or flag, or the situation; `line` is known for files only."""

    kind: OriginKind
    where: str = ""
    line: int | None = None

    def __str__(self) -> str:
        """The source as a person would write it: `default`, `file:line`, the variable, the flag or the reason."""
        if self.kind is OriginKind.DEFAULT:
            return "default"
        return self.where if self.line is None else f"{self.where}:{self.line}"


class LoadedSettings(Struct, frozen=True):
    """The settings in force, and the origin of every key. `notes` name files that only look like settings."""

    settings: Settings
    origins: Mapping[str, Origin]
    notes: tuple[str, ...] = ()


class Given(Struct, frozen=True):
    """A value that a source gives, not yet checked: what was typed in a variable or flag, or its place in a file."""

    value: object
    origin: Origin
    typed: str = ""
    node: Node | None = None


# What one source gives: its values by key, and what is wrong apart from them.
_Layer = tuple[Mapping[str, Given], Sequence[Problem]]


def load_settings(
    *,
    repository_file: ConfigText | None,
    user_file: Path | None,
    environment: Mapping[str, str],
    flags: Mapping[str, object],
) -> LoadedSettings:
    """The settings in force and where each came from.

    A `user_file` that does not exist gives nothing. `flags` maps keys to values; None means not given.
    Raises ConfigError, which lists every mistake in every source, also in values that another source overrides.
    """
    # CI says it before anybody sets anything: the change of a fork, or of nobody knows whom, is not trusted.
    reason = _reason_for_distrust(environment)
    layers: tuple[_Layer, ...] = (
        _file_layer(None if user_file is None else read_user_file(user_file), OriginKind.USER),
        _file_layer(repository_file, OriginKind.REPOSITORY),
        ({"untrusted": Given(True, Origin(OriginKind.SITUATION, reason))} if reason else {}, ()),  # noqa: FBT003
        _environment_layer(environment),
        ({key: _typed(key, value) for key, value in flags.items() if value is not None}, ()),
    )
    problems: list[Problem] = []
    given: dict[str, Given] = {}
    for values, found in layers:
        # One flag may set several keys; what is wrong with it is reported once.
        distinct = dict.fromkeys((*found, *_value_problems(values)))
        problems += sorted(distinct, key=lambda problem: problem.line)
        given.update(values)
    if problems:
        raise yaml.config_error(problems)
    settings: Any = {key: entry.value for key, entry in given.items()}
    origins = {key: given[key].origin if key in given else Origin(OriginKind.DEFAULT) for key in KEYS}
    return LoadedSettings(Settings(**settings), MappingProxyType(origins))


def database_url(environment: Mapping[str, str]) -> str | None:
    """The shared database that the user names, whatever repository this is about. Raises ConfigError."""
    user_file = user_file_path(environment)
    if not environment.get(f"{_PREFIX}DATABASE", "").strip() and (user_file is None or not user_file.exists()):
        return None
    return user_settings(environment).database


def user_settings(environment: Mapping[str, str]) -> Settings:
    """What the user has set, whatever repository this is about. Raises ConfigError."""
    user_file = user_file_path(environment)
    return load_settings(repository_file=None, user_file=user_file, environment=environment, flags={}).settings


def load_settings_from_disk(
    root: Path, *, environment: Mapping[str, str], flags: Mapping[str, object]
) -> LoadedSettings:
    """`load_settings` with the repository's file in the working tree at `root` and the user's own file."""
    return load_settings(
        repository_file=read_repository_file(root),
        user_file=user_file_path(environment),
        environment=environment,
        flags=flags,
    )


def _file_layer(source: ConfigText | None, kind: OriginKind) -> _Layer:
    if source is None:
        return {}, ()
    try:
        document = yaml.read_document(source.name, source.text)
    except yaml.Refused as refusal:
        return {}, (refusal.problem,)
    values: dict[str, Given] = {}
    problems = list(yaml.repetitions(source.name, document))
    for key, node in document.entries:
        place = f"{escape(source.name)}:{key.line}"
        if key.text not in KEYS:
            what = f"{yaml.plain_or_quoted(key.text)}: unknown key"
            problems.append(Problem(place, what, unknown_key_hint(key.text), key.line))
        elif kind is OriginKind.REPOSITORY and key.text in USER_KEYS:
            what = f"{key.text}: a repository cannot set this, because it decides what runs and where keys are sent"
            hint = f"set it in your own configuration file, or as {_PREFIX}{key.text.upper()}"
            problems.append(Problem(place, what, hint, key.line))
        elif key.text not in values:
            values[key.text] = Given(yaml.plain(node), Origin(kind, source.name, key.line), node=node)
    return values, problems


def _environment_layer(environment: Mapping[str, str]) -> _Layer:
    """`CODELOUPE_<KEY>`; an empty variable counts as not set, and a misspelt one is a problem."""
    values: dict[str, Given] = {}
    problems: list[Problem] = []
    for name, text in sorted(environment.items()):
        key = name.removeprefix(_PREFIX)
        if name == _HOME and text and not Path(text).is_absolute():
            what = f"expected an absolute path, found {quote(text)}"
            problems.append(Problem(name, what, "give an absolute path outside of any work tree"))
        if name in (key, _HOME) or not text.strip():
            continue
        if key.isupper() and key.lower() in KEYS:
            values[key.lower()] = _typed(key.lower(), text, name)
        elif meant := closest(key, KEYS, cutoff=0.75):
            hint = f"did you mean `{_PREFIX}{meant.upper()}`?"
            problems.append(Problem(escape(name), "unknown variable", hint))
    return values, problems


def _typed(key: str, value: object, variable: str = "") -> Given:
    """What a variable or a flag gives; a text that cannot be read stays one, and the check says what was expected."""
    kind = OriginKind.ENVIRONMENT if variable else OriginKind.FLAG
    where = variable or _FLAGS.get(key) or "--" + key.replace("_", "-")
    read, from_text = value, ABOUT[key].kind.from_text
    if isinstance(value, str) and from_text is not None:
        with contextlib.suppress(ValueError):
            read = from_text(value)
    typed = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return Given(read, Origin(kind, where), quote(typed))


def _value_problems(values: Mapping[str, Given]) -> Iterator[Problem]:
    """Every wrong value of a source, and every wrong part of a value in a file."""
    for key, given in values.items():
        kind, origin = ABOUT[key].kind, given.origin
        try:
            kind.read(given.value)
        except Wrong as wrong:
            first, value = wrong.mistakes[0], given.value
            if given.node is None:  # what a variable or a flag gives is shown whole
                what = f"expected {kind.expected}, found {given.typed}" if first.found else first.what
                if isinstance(value, list | tuple) and first.place and isinstance(first.place[0], int):
                    value = value[first.place[0]]
                yield Problem(escape(origin.where), what, _hint(key, value, first, origin))
                continue
            for mistake in wrong.mistakes:
                blamed, line = yaml.part(given.node, mistake.place)
                line = line if mistake.place else origin.line or line
                what = f"{mistake.what}, found {yaml.describe(blamed)}" if mistake.found else mistake.what
                value = mistake.place[-1] if mistake.place and not mistake.found else yaml.plain(blamed)
                what = f"{yaml.path_text(key, mistake.place)}: {what}"
                yield Problem(f"{escape(origin.where)}:{line}", what, _hint(key, value, mistake, origin), line)


def _hint(key: str, value: object, mistake: Mistake, origin: Origin) -> str:
    """Return the hint for a wrong value of a file, a variable or a flag."""
    hint = mistake_hint(value, mistake, default=default_text(key))
    if hint.startswith("did you mean"):
        return hint
    if mistake.wants_text and isinstance(value, bool | int | float):
        return "put it in quotes"
    if origin.kind in (OriginKind.ENVIRONMENT, OriginKind.FLAG):
        is_text = ABOUT[key].kind.from_text is not None
        return f"change or remove {origin.where}" if is_text else "set it in a configuration file"
    return hint


def _reason_for_distrust(environment: Mapping[str, str]) -> str | None:
    get = environment.get
    is_fork = get("SYSTEM_PULLREQUEST_ISFORK", "").lower() == "true" or get("CIRCLE_PR_REPONAME")
    if is_fork or any(get(source) and get(source) != get(target) for source, target in _PAIRS):
        return FROM_FORK
    if get("GITHUB_ACTIONS") != "true":
        return None
    name = get("GITHUB_EVENT_NAME", "")
    try:
        with Path(get("GITHUB_EVENT_PATH", "")).open("rb") as file:
            event = json.loads(file.read(32_000_000))
    except (OSError, ValueError, RecursionError):
        event = None
    if not isinstance(event, dict):
        return _FROM_UNKNOWN if name.startswith(("pull_request", "workflow_run", "issue_comment")) else None
    for change, *repositories in _GITHUB_REPOSITORIES:
        if _part(event, change) is not None:
            source, target = (_part(event, place) or {} for place in repositories)
            names = [one.get("id") or one.get("full_name") for one in (source, target)]
            # A deleted fork has no repository.
            return _FROM_UNKNOWN if names[1] is None else FROM_FORK if names[0] != names[1] else None
    # A comment on a pull request does not say whose that is.
    of_pull_request = name.startswith("pull_request") or _part(event, "issue.pull_request") is not None
    return _FROM_UNKNOWN if of_pull_request else None


def _part(document: Any, place: str) -> Mapping[str, Any] | None:
    for key in place.split("."):
        document = document.get(key) if isinstance(document, dict) else None
    return document if isinstance(document, dict) else None
