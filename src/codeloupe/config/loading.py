"""Puts the sources together: flag over environment over situation over repository file over user file over default."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from codeloupe.config.files import ConfigText, read_repository_file, read_user_file, user_file_path
from codeloupe.config.layers import Given, Layer, environment_layer, file_layer, flag_layer
from codeloupe.config.mistakes import value_problems
from codeloupe.config.problems import Problem, config_error
from codeloupe.config.provenance import DEFAULT_ORIGIN, LoadedSettings, OriginKind
from codeloupe.config.schema import KEYS, Settings
from codeloupe.config.situation import situation_layer


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
        situation_layer(environment),
        environment_layer(environment),
        flag_layer(flags),
    )
    problems = [problem for layer in layers for problem in _problems(layer)]
    if problems:
        raise config_error(problems)
    given: dict[str, Given] = {}
    for layer in layers:
        given.update(layer.values)
    values: dict[str, Any] = {key: entry.value for key, entry in given.items()}
    settings = Settings(**values)
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
    # One flag may set several keys; what is wrong with it is told once.
    distinct = dict.fromkeys((*layer.problems, *value_problems(layer)))
    return sorted(distinct, key=lambda problem: problem.line)
