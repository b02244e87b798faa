"""Regular expressions that are compiled when they are first used: modules hold 300, and most runs need few of them."""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast

_METHODS = ("search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer")


def regex(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """What `re.compile` gives, at no cost before its first use."""
    return cast("re.Pattern[AnyStr]", _Late(text, flags))


class _Late:
    def __init__(self, text: str | bytes, flags: int) -> None:
        self.pattern = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        compiled = re.compile(self.pattern, self._flags)
        # From now on they are found without this method.
        vars(self).update({method: getattr(compiled, method) for method in _METHODS})
        return getattr(compiled, name)
