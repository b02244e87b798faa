"""The settings in force for a call: files, variables and flags, and for an untrusted change the base's own file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from msgspec.structs import replace

from codeloupe.config import files
from codeloupe.config.files import ConfigText
from codeloupe.config.loading import LoadedSettings, Origin, OriginKind, load_settings
from codeloupe.errors import NotARepository, RevisionError
from codeloupe.git.repository import open_repository, read_file_at
from codeloupe.git.scopes import believed_base, resolve_scope
from codeloupe.model.scope import DefaultScope, DiffScope, FetchedScope, ScopeRequest

_PULL_REQUEST = Origin(OriginKind.SITUATION, "because this is a pull request")


async def configure(
    scope: ScopeRequest | None = None,
    *,
    repo: Path | str = ".",
    flags: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
) -> LoadedSettings:
    """The settings in force, with their origins. For an untrusted change the repository's file is the base branch's.

    Without a `scope` nothing is reviewed, and the base is the base branch, if there is one. A pull request must have
    been fetched; it is untrusted, whatever anybody set.
    """
    variables = os.environ if environment is None else environment
    given = dict(flags or {})
    user_file = files.user_file_path(variables)

    def load(repository_file: ConfigText | None) -> LoadedSettings:
        return load_settings(repository_file=repository_file, user_file=user_file, environment=variables, flags=given)

    trusting = of_user = load(None)
    if isinstance(scope, FetchedScope):
        trusting = _untrusting(trusting, _PULL_REQUEST)
    root = files.repository_root(Path(repo))
    if not trusting.settings.untrusted:
        trusting = load(files.read_repository_file(root))
    if not trusting.settings.untrusted:
        return replace(trusting, notes=files.mistaken_files(root, user_file))
    # The name of the base branch is the user's too: a reviewed file could name its own.
    of_base = load(await _believed_file(scope, Path(repo), of_user.settings.base_branch))
    # Whoever said it, the reviewed files cannot take it back.
    return _untrusting(of_base, trusting.origins["untrusted"])


def _untrusting(loaded: LoadedSettings, why: Origin) -> LoadedSettings:
    origins = MappingProxyType({**loaded.origins, "untrusted": why})
    return LoadedSettings(replace(loaded.settings, untrusted=True), origins)


async def _believed_file(scope: ScopeRequest | None, repo: Path, base_branch: str | None) -> ConfigText | None:
    """The base's file. Without anything under review there need not be a base, and then no file is believed."""
    if isinstance(scope, DiffScope):
        return None  # nothing says which revision the diff belongs to
    try:
        repository = await open_repository(repo)
        sides = await resolve_scope(repository, scope or DefaultScope(), base_branch=base_branch)
    except (NotARepository, RevisionError):
        if scope is not None:
            raise
        return None
    base = await believed_base(repository, scope, sides, base_branch=base_branch) if scope else sides.base
    for name in files.REPOSITORY_FILE_NAMES if base else ():
        if base and (content := await read_file_at(repository, base, name)) is not None:
            return files.decode_config(f"{base[:12]}:{name}", content)
    return None
