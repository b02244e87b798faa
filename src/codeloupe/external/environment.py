"""What an external reviewer sees of this machine: an environment by allowlist."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from codeloupe.process import inherited_environment

_PROXY_NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
_USUAL_NAMES = (
    "HOME",
    "USER",
    "LOGNAME",
    "XDG_CONFIG_HOME",
    "XDG_CACHE_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    *_PROXY_NAMES,
    *(name.lower() for name in _PROXY_NAMES),
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
)


def program_environment(names: Iterable[str] = (), settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """The search path, the home, the way to the network, and of our other variables those in `names` alone.

    No credential is among them unless it is named. `settings` has the last word.
    """
    kept = {name: os.environ[name] for name in (*_USUAL_NAMES, *names) if os.environ.get(name)}
    return {**inherited_environment(), **kept, "NO_COLOR": "1", **(settings or {})}
