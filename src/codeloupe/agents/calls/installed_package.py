"""Which version of an optional package is installed.

Told by the names of the folders that installers leave beside packages. `importlib.metadata` tells the same, and to load
it, with the packages for mail and archives that it needs, takes longer than all else that chooses an agent.
"""

from __future__ import annotations

import os
import re
import sys

_SEPARATORS = re.compile(r"[-_.]+")
_FOLDER = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)(?:-[^-]+)?\.(?:dist|egg)-info")


def installed_version(distribution: str) -> str | None:
    """Its version, or None when it is not installed."""
    wanted = _normal(distribution)
    for place in sys.path:
        try:
            names = os.listdir(place or os.curdir)  # noqa: PTH208 - an entry of the path is a text, and names are wanted
        except OSError:
            continue  # an archive, or a place that is not there
        for name in names:
            folder = _FOLDER.fullmatch(name)
            if folder and _normal(folder["name"]) == wanted:
                return folder["version"]
    return None


def _normal(name: str) -> str:
    return _SEPARATORS.sub("-", name).lower()
