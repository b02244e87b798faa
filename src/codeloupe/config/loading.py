"""Puts the sources together: flag over environment over repository file over user file over default."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from pydantic import ValidationError

from codeloupe.config.files import ConfigText, read_repository_file, read_user_file, user_file_path
from codeloupe.config.kinds import BRANCH, PATTERNS
from codeloupe.config.layers import Given, Layer, environment_layer, file_layer, flag_layer
from codeloupe.config.problems import Problem, config_error, escape
from codeloupe.config.provenance import DEFAULT_ORIGIN, LoadedSettings, Origin, OriginKind
from codeloupe.config.schema import KEYS, Settings, kind_of
from codeloupe.config.suggestions import closest
from codeloupe.config.values import default_text


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
        Layer() if user_text is None else file_layer(user_text, OriginKind.USER),
        Layer() if repository_file is None else file_layer(repository_file, OriginKind.REPOSITORY),
        environment_layer(environment),
        flag_layer(flags),
    )
    problems = [problem for layer in layers for problem in _problems(layer)]
    if problems:
        raise config_error(problems)
    given: dict[str, Given] = {}
    for layer in layers:
        given.update(layer.values)
    settings = Settings.model_validate({key: entry.value for key, entry in given.items()})
    origins = {key: given[key].origin if key in given else DEFAULT_ORIGIN for key in KEYS}
    return LoadedSettings(settings, MappingProxyType(origins))


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


def _problems(layer: Layer) -> list[Problem]:
    # A list that is described as a whole has one problem, however many of its entries are wrong.
    distinct = dict.fromkeys((*layer.problems, *_value_problems(layer)))
    return sorted(distinct, key=lambda problem: problem.line)


def _value_problems(layer: Layer) -> Iterator[Problem]:
    try:
        Settings.model_validate({key: given.value for key, given in layer.values.items()})
    except ValidationError as error:
        for detail in error.errors(include_url=False, include_context=False, include_input=False):
            key, *inner = detail["loc"]
            entry = inner[0] if inner and isinstance(inner[0], int) else None
            yield _value_problem(str(key), layer.values[str(key)], entry)


def _value_problem(key: str, given: Given, entry: int | None) -> Problem:
    origin, line, value = given.origin, given.origin.line, given.value
    what = f"expected {kind_of(key).expected}, found {given.shown}"
    if entry is not None and entry < len(given.items):
        item = given.items[entry]
        line, value = item.line, item.value
        what = f"entry {entry + 1}: expected a pattern as text, found {item.shown}"
    hint = _value_hint(key, value, origin)
    if line is None:
        return Problem(escape(origin.where), what, hint)
    return Problem(f"{escape(origin.where)}:{line}", f"{key}: {what}", hint, line)


def _value_hint(key: str, value: object, origin: Origin) -> str:
    kind = kind_of(key)
    meant = closest(value, kind.choices) if isinstance(value, str) else None
    if meant:
        return f"did you mean `{meant}`?"
    if kind in (BRANCH, PATTERNS) and isinstance(value, bool | int | float):
        return "put it in quotes"
    match origin.kind:
        case OriginKind.ENVIRONMENT:
            return f"change or unset {origin.where}"
        case OriginKind.FLAG:
            return f"change or leave out {origin.where}"
        case _:
            return f"the default is {default_text(key)}"
