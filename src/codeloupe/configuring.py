"""The settings in force for a call: files, variables and flags, and for an untrusted change the base's own file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from codeloupe.config.files import (
    REPOSITORY_FILE_NAMES,
    ConfigText,
    decode_config,
    read_repository_file,
    repository_root,
    user_file_path,
)
from codeloupe.config.loading import load_settings
from codeloupe.config.provenance import LoadedSettings
from codeloupe.git.blobs import read_file_at
from codeloupe.git.repository import open_repository
from codeloupe.git.scopes import resolve_scope
from codeloupe.model.scope import DefaultScope, DiffScope, ScopeRequest


async def configure(
    scope: ScopeRequest | None = None,
    *,
    repo: Path | str = ".",
    flags: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
) -> LoadedSettings:
    """The settings in force, with their origins. For an untrusted change the repository's file is the base's."""
    variables = os.environ if environment is None else environment
    given = dict(flags or {})
    user_file = user_file_path(variables)

    def load(repository_file: ConfigText | None) -> LoadedSettings:
        return load_settings(repository_file=repository_file, user_file=user_file, environment=variables, flags=given)

    trusting = load(None)
    if not trusting.settings.untrusted:
        trusting = load(read_repository_file(repository_root(Path(repo))))
    if not trusting.settings.untrusted:
        return trusting
    # Whoever said it, the reviewed files cannot take it back.
    given["untrusted"] = True
    return load(await _file_of_base(scope or DefaultScope(), Path(repo), trusting.settings.base_branch))


async def _file_of_base(request: ScopeRequest, repo: Path, base_branch: str | None) -> ConfigText | None:
    if isinstance(request, DiffScope):
        return None  # nothing tells which revision the diff belongs to
    repository = await open_repository(repo)
    sides = await resolve_scope(repository, request, base_branch=base_branch)
    for name in REPOSITORY_FILE_NAMES:
        content = await read_file_at(repository, sides.base, name)
        if content is not None:
            return decode_config(f"{sides.base[:12]}:{name}", content)
    return None
