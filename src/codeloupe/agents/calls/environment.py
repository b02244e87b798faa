"""What an agent program sees of this machine: an environment by allowlist, and places that are thrown away after it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from codeloupe.system.directories import temporary_directory
from codeloupe.system.process import NETWORK_NAMES, inherited_environment

PERSON_NAMES = ("USER", "LOGNAME")
"""Who the user is: some programs look their login up by it. Only for a program that runs in the user's home."""

_QUIET = {"NO_COLOR": "1", "DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1", "DISABLE_AUTOUPDATER": "1"}


class Places(Struct, frozen=True):
    """Empty directories for one call: a home, one for temporary files, and `root` above both for files of ours."""

    root: Path
    home: Path
    temporary: Path


@contextmanager
def throw_away_places() -> Iterator[Places]:
    """Places that only this user can enter, and that are gone afterwards."""
    with temporary_directory() as root:
        places = Places(root, root / "home", root / "tmp")
        places.home.mkdir()
        places.temporary.mkdir()
        yield places


def user_home(source: Mapping[str, str]) -> Path:
    """The user's own home directory, where a program keeps its login."""
    return Path(source.get("HOME") or Path.home())


def agent_environment(
    source: Mapping[str, str], *, home: Path, temporary: Path, names: Iterable[str], settings: Mapping[str, str]
) -> dict[str, str]:
    """The whole environment of an agent program; whatever is not named here does not reach it.

    Of `source` it has the search path without relative entries, the time zone, `NETWORK_NAMES` and `names`, where
    they are set and not empty. Telemetry and updates are off. `settings` has the last word.
    """
    kept = {name: source[name] for name in ("TZ", *NETWORK_NAMES, *names) if source.get(name)}
    return {
        **inherited_environment(),
        **_search_path(source),
        **kept,
        **_QUIET,
        "HOME": str(home),
        "TMPDIR": str(temporary),
        **settings,
    }


def _search_path(source: Mapping[str, str]) -> dict[str, str]:
    # A relative entry means the current directory, which may be the reviewed tree with programs of its own.
    entries = [entry for entry in source.get("PATH", "").split(os.pathsep) if Path(entry).is_absolute()]
    return {"PATH": os.pathsep.join(entries)} if entries else {}
