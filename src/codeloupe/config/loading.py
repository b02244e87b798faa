"""Puts the sources of settings together: flag over environment over situation over repository over user file.

Each value knows where it came from, and all mistakes of all sources are reported together, each with its place.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from codeloupe.config.files import ConfigText, read_repository_file, read_user_file, user_file_path
from codeloupe.config.kinds import Kind, Mistake, Wrong, in_words
from codeloupe.config.schema import KEYS, USER_KEYS, Settings, default_text, kind_of
from codeloupe.config.yaml import (
    Node,
    Problem,
    Refused,
    closest,
    closest_key,
    config_error,
    describe,
    escape,
    part,
    path_in_words,
    plain,
    plain_or_quoted,
    quote,
    read_document,
    repetitions,
)

FROM_FORK = "because this is a pull request from a fork"
_FROM_UNKNOWN = "because this is a pull request from an unknown place"
_MAX_EVENT_BYTES = 32_000_000
# Two variables that name the repository of a change and the one it goes to, where both are set.
_PAIRS = (
    ("CI_MERGE_REQUEST_SOURCE_PROJECT_ID", "CI_MERGE_REQUEST_PROJECT_ID"),
    ("CI_EXTERNAL_PULL_REQUEST_SOURCE_REPOSITORY", "CI_EXTERNAL_PULL_REQUEST_TARGET_REPOSITORY"),
)
_PREFIX = "CODELOUPE_"
# No setting, but a variable of ours: the folder of ledger, history and runs.
_HOME = "CODELOUPE_HOME"
_MISSPELT_VARIABLE_CUTOFF = 0.75
# Flags that are not called like their key.
_FLAGS = {
    "agents": "--agent",
    "agent_sdk_review_timeout": "--timeout",
    "agent_timeout_seconds": "--timeout",
    "keep_sessions": "--keep-session",
    "review_timeout_seconds": "--timeout",
    "reviewer_type": "--reviewer",
    "reviewers": "--reviewer",
    "timeout_seconds": "--timeout",
}


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
    """A value that a source gives, not yet checked, as a message shows it, and its place in a file."""

    value: object
    origin: Origin
    shown: str
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
    user_text = None if user_file is None else read_user_file(user_file)
    layers = (
        _file_layer(user_text, OriginKind.USER),
        _file_layer(repository_file, OriginKind.REPOSITORY),
        _situation_layer(environment),
        _environment_layer(environment),
        _flag_layer(flags),
    )
    problems: list[Problem] = []
    given: dict[str, Given] = {}
    for values, found in layers:
        # One flag may set several keys; what is wrong with it is reported once.
        distinct = dict.fromkeys((*found, *_value_problems(values)))
        problems += sorted(distinct, key=lambda problem: problem.line)
        given.update(values)
    if problems:
        raise config_error(problems)
    settings: Any = {key: entry.value for key, entry in given.items()}
    origins = {key: given[key].origin if key in given else Origin(OriginKind.DEFAULT) for key in KEYS}
    return LoadedSettings(Settings(**settings), MappingProxyType(origins))


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
        document = read_document(source.name, source.text)
    except Refused as refusal:
        return {}, (refusal.problem,)
    values: dict[str, Given] = {}
    problems = list(repetitions(source.name, document))
    for key, node in document.entries:
        place = f"{escape(source.name)}:{key.line}"
        if key.text not in KEYS:
            meant = closest_key(key.text, KEYS)
            hint = f"did you mean `{meant}`?" if meant else "`codeloupe config show` lists every key"
            problems.append(Problem(place, f"{plain_or_quoted(key.text)}: unknown key", hint, key.line))
        elif kind is OriginKind.REPOSITORY and key.text in USER_KEYS:
            what = f"{key.text}: a repository cannot set this, since it decides what runs here and where keys go"
            hint = f"set it in your own configuration file, or as {_PREFIX}{key.text.upper()}"
            problems.append(Problem(place, what, hint, key.line))
        elif key.text not in values:
            values[key.text] = Given(plain(node), Origin(kind, source.name, key.line), describe(node), node)
    return values, problems


def _environment_layer(environment: Mapping[str, str]) -> _Layer:
    """`CODELOUPE_<KEY>`; an empty variable counts as not set, and a misspelt one is a problem."""
    values: dict[str, Given] = {}
    problems: list[Problem] = []
    for name, text in sorted(environment.items()):
        if name == _HOME and text and not Path(text).is_absolute():
            what = f"expected an absolute path, found {quote(text)}"
            problems.append(Problem(name, what, "give the whole path, so that it is not within a work tree"))
        if not name.startswith(_PREFIX) or name == _HOME or not text.strip():
            continue
        key = name.removeprefix(_PREFIX)
        if key.isupper() and key.lower() in KEYS:
            origin = Origin(OriginKind.ENVIRONMENT, name)
            values[key.lower()] = Given(_from_text(kind_of(key.lower()), text), origin, quote(text))
        elif meant := closest(key, KEYS, cutoff=_MISSPELT_VARIABLE_CUTOFF):
            hint = f"did you mean `{_PREFIX}{meant.upper()}`?"
            problems.append(Problem(escape(name), "unknown variable", hint))
    return values, problems


def _flag_layer(flags: Mapping[str, object]) -> _Layer:
    """The flags that were given (not None), by the key they set. Raises KeyError for an unknown key."""
    values: dict[str, Given] = {}
    for key, value in flags.items():
        kind = kind_of(key)
        if value is not None:
            read = _from_text(kind, value) if isinstance(value, str) else value
            origin = Origin(OriginKind.FLAG, _FLAGS.get(key) or "--" + key.replace("_", "-"))
            shown = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            values[key] = Given(read, origin, quote(shown))
    return values, ()


def _from_text(kind: Kind, text: str) -> object:
    try:
        return text if kind.from_text is None else kind.from_text(text)
    except ValueError:
        return text  # the check of values says what was expected instead


def _value_problems(values: Mapping[str, Given]) -> Iterator[Problem]:
    """Every wrong value of a source, and every wrong part of a value in a file."""
    for key, given in values.items():
        try:
            kind_of(key).read(given.value)
        except Wrong as wrong:
            if given.node is None:
                # What a variable or a flag gives is shown whole, as it was typed.
                mistake, value = wrong.mistakes[0], given.value
                what = f"expected {kind_of(key).expected}, found {given.shown}" if mistake.found else mistake.what
                if isinstance(value, list | tuple) and mistake.place and isinstance(mistake.place[0], int):
                    value = value[mistake.place[0]]
                yield Problem(escape(given.origin.where), what, _hint(key, value, mistake, given.origin))
            else:
                for mistake in wrong.mistakes:
                    yield _problem_in_file(key, given.origin, given.node, mistake)


def _problem_in_file(key: str, origin: Origin, node: Node, mistake: Mistake) -> Problem:
    blamed, line = part(node, mistake.place)
    if not mistake.place:
        line = origin.line or line
    what = f"{mistake.what}, found {describe(blamed)}" if mistake.found else mistake.what
    value = mistake.place[-1] if not mistake.found and mistake.place else plain(blamed)
    hint = _hint(key, value, mistake, origin)
    return Problem(f"{escape(origin.where)}:{line}", f"{path_in_words(key, mistake.place)}: {what}", hint, line)


def _hint(key: str, value: object, mistake: Mistake, origin: Origin) -> str:
    if isinstance(value, str) and (meant := closest(value, mistake.choices)):
        return f"did you mean `{meant}`?"
    if mistake.wants_text and isinstance(value, bool | int | float):
        return "put it in quotes"
    if origin.kind in (OriginKind.ENVIRONMENT, OriginKind.FLAG):
        is_text = kind_of(key).from_text is not None
        return f"change or leave out {origin.where}" if is_text else "set it in a configuration file"
    if mistake.choices and not mistake.found:
        return f"the keys are {in_words(mistake.choices)}"
    is_whole = not mistake.place and mistake.found
    return f"the default is {default_text(key)}" if is_whole else "`codeloupe config schema` describes every key"


def _situation_layer(environment: Mapping[str, str]) -> _Layer:
    """What CI says before anybody sets anything: the change of a fork, or of nobody knows whom, is not trusted."""
    reason = next(_reasons_for_distrust(environment), None)
    origin = Origin(OriginKind.SITUATION, reason or "")
    return {"untrusted": Given(True, origin, "true")} if reason else {}, ()  # noqa: FBT003 - the value


def _reasons_for_distrust(environment: Mapping[str, str]) -> Iterator[str]:
    for source, target in _PAIRS:
        if environment.get(source) and environment.get(source) != environment.get(target):
            yield FROM_FORK
    if environment.get("SYSTEM_PULLREQUEST_ISFORK", "").lower() == "true" or environment.get("CIRCLE_PR_REPONAME"):
        yield FROM_FORK
    if environment.get("GITHUB_ACTIONS") != "true":
        return
    name = environment.get("GITHUB_EVENT_NAME", "")
    event = _github_event(environment.get("GITHUB_EVENT_PATH", ""))
    if event is None:
        if name.startswith(("pull_request", "workflow_run", "issue_comment")):
            yield _FROM_UNKNOWN
    elif (pull_request := _part(event, "pull_request")) is not None:
        yield from _from_elsewhere(_part(pull_request, "head", "repo"), _part(pull_request, "base", "repo"))
    elif (run := _part(event, "workflow_run")) is not None:
        yield from _from_elsewhere(_part(run, "head_repository"), _part(event, "repository"))
    elif name.startswith("pull_request") or _part(event, "issue", "pull_request") is not None:
        # A comment on a pull request does not say whose that is.
        yield _FROM_UNKNOWN


def _from_elsewhere(source: Mapping[str, Any] | None, target: Mapping[str, Any] | None) -> Iterator[str]:
    """Of the repository a change is from, and the one it goes to; a deleted fork has none."""
    names = [None if one is None else one.get("id") or one.get("full_name") for one in (source, target)]
    if names[1] is None:
        yield _FROM_UNKNOWN
    elif names[0] != names[1]:
        yield FROM_FORK


def _github_event(path: str) -> Mapping[str, Any] | None:
    try:
        with Path(path).open("rb") as file:
            event = json.loads(file.read(_MAX_EVENT_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


def _part(document: Mapping[str, Any], *keys: str) -> Mapping[str, Any] | None:
    found: Any = document
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else None
