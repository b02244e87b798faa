"""The raw answers of a review's agents, collected to be kept with it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from codeloupe.engine.ask import Transcript

_KEPT = ("answer of ", "failure of ")
# A model that never ends must not fill the history: what is longer keeps its beginning.
_LONGEST_CHARACTERS = 1_000_000
_MOST_CHARACTERS = 20_000_000


class Answers:
    """A transcript that keeps the answers and failures, and passes everything on to another one, if there is one."""

    def __init__(self, beside: Transcript | None = None) -> None:
        self._beside = beside
        self._left = _MOST_CHARACTERS
        self._texts: dict[str, str] = {}

    def __call__(self, title: str, text: str) -> None:
        """Take a text. The second answer of a unit, after a repair, stands behind its first."""
        if self._beside is not None:
            self._beside(title, text)
        if title.startswith(_KEPT) and self._left > 0:
            kept = text[: min(_LONGEST_CHARACTERS, self._left)]
            self._left -= len(kept)
            earlier = self._texts.get(title)
            self._texts[title] = kept if earlier is None else f"{earlier}\n\n{kept}"

    @property
    def texts(self) -> Mapping[str, str]:
        """The answers by title, as they came: whoever keeps them redacts them first."""
        return MappingProxyType(self._texts)
