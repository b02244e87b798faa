"""Load the settings in force for a call. For an untrusted change the repository's file is that of the base branch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from msgspec.structs import replace

from codeloupe.config import files
from codeloupe.config.files import ConfigText
from codeloupe.config.loading import LoadedSettings, Origin, OriginKind, load_settings
from codeloupe.config.schema import Settings
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
    """Return the settings in force, with their origins.

    For an untrusted change the repository's file is that of the base branch. Without a `scope` nothing is reviewed, and
    the base is the base branch, if there is one. A pull request must have been fetched. It is always untrusted.
    """
    variables = os.environ if environment is None else environment
    given = dict(flags or {})
    user_file = files.user_file_path(variables)

    def load(repository_file: ConfigText | None) -> LoadedSettings:
        return load_settings(repository_file=repository_file, user_file=user_file, environment=variables, flags=given)

    of_user = load(None)
    loaded = of_user
    if isinstance(scope, FetchedScope):
        loaded = _as_untrusted(loaded, _PULL_REQUEST)
    root = files.repository_root(Path(repo))
    if not loaded.settings.untrusted:
        loaded = load(files.read_repository_file(root))
    if not loaded.settings.untrusted:
        return replace(loaded, notes=files.mistaken_files(root, user_file))
    # Only the user names the base branch, because a reviewed file could name another one.
    base_file = await _believed_file(scope, Path(repo), of_user.settings.base_branch)
    of_base = load(base_file)
    # The file of the base branch cannot make the change trusted again.
    return _as_untrusted(of_base, loaded.origins["untrusted"])


def _as_untrusted(loaded: LoadedSettings, why: Origin) -> LoadedSettings:
    """Return the settings for an untrusted change, with the origin of that decision."""
    origins = MappingProxyType({**loaded.origins, "untrusted": why})
    return LoadedSettings(replace(loaded.settings, untrusted=True), origins)


async def _believed_file(scope: ScopeRequest | None, repo: Path, base_branch: str | None) -> ConfigText | None:
    """Return the settings file of the base, or None if there is none. Without a scope there may be no base."""
    if isinstance(scope, DiffScope):
        # The revision that the diff belongs to is unknown.
        return None
    try:
        repository = await open_repository(repo)
        sides = await resolve_scope(repository, scope or DefaultScope(), base_branch=base_branch)
    except (NotARepository, RevisionError):
        if scope is not None:
            raise
        return None
    base: str | None
    if scope is None:
        base = sides.base
    else:
        base = await believed_base(repository, scope, sides, base_branch=base_branch)
    if not base:
        return None
    for name in files.REPOSITORY_FILE_NAMES:
        content = await read_file_at(repository, base, name)
        if content is not None:
            return files.decode_config(f"{base[:12]}:{name}", content)
    return None


async def settings_for(
    request: ScopeRequest, repo: Path, given: Settings | None, environment: Mapping[str, str]
) -> Settings:
    """Return the given settings or those in force; a pull request is untrusted, whatever they say."""
    settings = given or (await configure(request, repo=repo, environment=environment)).settings
    if isinstance(request, FetchedScope):
        return replace(settings, untrusted=True)
    return settings
