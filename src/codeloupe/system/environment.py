"""What a child sees of this machine: an environment by allowlist. No credential is in it unless it is named."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

_INHERITED_NAMES = ("TMPDIR", "TZ")
_PROXY_NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
_HOME_NAMES = (
    "HOME",
    "USER",
    "LOGNAME",
    "XDG_CONFIG_HOME",
    "XDG_CACHE_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
)

NETWORK_NAMES = (
    *_PROXY_NAMES,
    *(name.lower() for name in _PROXY_NAMES),
    "NODE_EXTRA_CA_CERTS",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)
"""The way to the network: proxies, and certificates of the house.

A proxy's address may hold a password, but without it nothing can be reached.
"""


def inherited_environment(**extra: str) -> dict[str, str]:
    """The few variables every child may see, plus `extra`; nothing else of ours, so no secret leaks."""
    kept = {name: os.environ[name] for name in _INHERITED_NAMES if name in os.environ}
    return {"PATH": search_path(), "LC_ALL": "C.UTF-8", **kept, **extra}


def program_environment(names: Iterable[str] = (), settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """For a program of the user's own choice: also the home, the way to the network, and of our variables `names`.

    `settings` has the last word.
    """
    passed_on = (*_HOME_NAMES, *NETWORK_NAMES, *names)
    kept = {name: os.environ[name] for name in passed_on if os.environ.get(name)}
    return {**inherited_environment(), **kept, "NO_COLOR": "1", **(settings or {})}


def search_path() -> str:
    """Where programs are looked for."""
    # A relative or empty entry means the current directory, which may be the reviewed tree with its own "git".
    entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(entry for entry in entries if Path(entry).is_absolute()) or os.defpath
