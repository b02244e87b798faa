"""Merging the work of stages: one tree with the work of any set of finished stages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import TopologicalSorter

from codeloupe.git.workspaces import GitWorkspaceStore, JoinConflict
from codeloupe.model.pipeline import PipelineDefinition


class Joins:
    """Merges the trees of finished stages over the work that they share."""

    def __init__(self, definition: PipelineDefinition, store: GitWorkspaceStore, *, base: str, run_id: str) -> None:
        self._file = definition.file
        self._run_id = run_id
        self._store = store
        self._base = base
        self._order = [stage.name for stage in definition.stages]
        # Each stage with all stages that it builds on, directly or not.
        self.ancestors: dict[str, frozenset[str]] = {}
        needs = {stage.name: stage.needs for stage in definition.stages}
        for name in TopologicalSorter(needs).static_order():
            above = [self.ancestors[needed] for needed in needs[name]]
            self.ancestors[name] = frozenset({name}).union(*above)
        # If several stages need the same stages, the same merge is wanted again and again.
        self._known: dict[frozenset[tuple[str, str]], str] = {}

    async def together(self, stages: Iterable[str], trees: Mapping[str, str]) -> str:
        """Return one tree with the work of some finished stages and of all they build on. Raise JoinConflict."""
        names = self._last_of(frozenset(stages))
        if not names:
            return self._base
        key = frozenset((name, trees[name]) for name in names)
        if key not in self._known:
            self._known[key] = await self._merged(names, trees)
        return self._known[key]

    def _last_of(self, wanted: frozenset[str]) -> list[str]:
        """Return those of some stages that no other of them builds on: their trees have the work of the rest."""
        included: set[str] = set()
        for name in wanted:
            included.update(self.ancestors[name] - {name})
        return [name for name in self._order if name in wanted and name not in included]

    async def _merged(self, names: list[str], trees: Mapping[str, str]) -> str:
        tree = trees[names[0]]
        within = self.ancestors[names[0]]
        for position, name in enumerate(names[1:], start=1):
            shared = await self.together(within & self.ancestors[name], trees)
            try:
                tree = await self._store.joined(shared, tree, trees[name])
            except JoinConflict as error:
                raise self._conflict(error, names[:position], name) from None
            within |= self.ancestors[name]
        return tree

    def _conflict(self, error: JoinConflict, before: list[str], name: str) -> JoinConflict:
        others = " and ".join(before)
        again = f"`codeloupe pipeline resume {self._run_id} --accept-changes --retry {name}`"
        hint = f"let {name} need {others} in {self._file}, or have them write different files; then {again}"
        return JoinConflict(f"cannot merge the work of {others} and {name}: {error.message}", hint=hint)

    def lineage(self, stage: str) -> tuple[str, ...]:
        """Return the stages that a stage builds on, in the order of the file."""
        above = self.ancestors[stage] - {stage}
        return tuple(name for name in self._order if name in above)
