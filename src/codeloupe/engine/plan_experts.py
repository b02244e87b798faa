"""Which experts look at which files, by the globs of their paths."""

from __future__ import annotations

from collections.abc import Sequence

from codeloupe.engine.globs import Globs, check_pattern
from codeloupe.errors import ConfigError
from codeloupe.model.expert import Expert


class ExpertChoice:
    """The experts of a plan. Of those with the same name the first one counts."""

    def __init__(self, experts: Sequence[Expert]) -> None:
        """Raises ConfigError for a pattern that makes no sense."""
        by_name: dict[str, Expert] = {}
        for expert in experts:
            by_name.setdefault(expert.name, expert)
        self.experts = tuple(by_name.values())
        self._globs = [_globs_of(expert) for expert in self.experts]

    def matching(self, path: str) -> frozenset[int]:
        """The places of the experts whose paths match."""
        return frozenset(place for place, globs in enumerate(self._globs) if globs is None or not globs.unwanted(path))

    def at(self, places: frozenset[int]) -> tuple[Expert, ...]:
        """The experts at these places, or all of them when there is none: no file goes without a checklist."""
        return tuple(expert for place, expert in enumerate(self.experts) if place in places) or self.experts


def _globs_of(expert: Expert) -> Globs | None:
    """None for an expert of every file."""
    include = tuple(pattern for pattern in expert.paths if not pattern.startswith("!"))
    exclude = tuple(pattern[1:] for pattern in expert.paths if pattern.startswith("!"))
    problem = next(filter(None, map(check_pattern, (*include, *exclude))), None)
    if problem is not None:
        raise ConfigError(
            f"expert {expert.name}: one of its paths is a pattern that makes no sense: {problem}",
            hint="correct `paths` of this expert",
        )
    return Globs(include, exclude) if expert.paths else None
