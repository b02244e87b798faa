"""Whose work a stage builds on, and how their trees become one: as histories are merged, over what they share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from codeloupe.errors import WorkspaceError
from codeloupe.model.pipeline_definition import PipelineDefinition
from codeloupe.model.ports import WorkspaceStore


def ancestors(definition: PipelineDefinition) -> Mapping[str, frozenset[str]]:
    """For each stage itself and every stage that it builds on, however far back."""
    needs = {stage.name: stage.needs for stage in definition.stages}
    known: dict[str, frozenset[str]] = {}
    left = list(needs)
    while left:
        name = left.pop()
        missing = [need for need in needs[name] if need not in known]
        if name in known:
            continue
        if missing:
            left.extend((name, *missing))
            continue
        known[name] = frozenset({name}).union(*(known[need] for need in needs[name]))
    return known


class Descent:
    """The trees that the finished stages of a run left, and what any set of stages left together.

    Two stages that both built on a third are compared with what that one left: what only one of them changed further
    is no conflict.
    """

    def __init__(self, definition: PipelineDefinition, store: WorkspaceStore, *, base: str, run_id: str) -> None:
        self._file = definition.file
        self._run_id = run_id
        self._order = [stage.name for stage in definition.stages]
        self._ancestors = ancestors(definition)
        self._store = store
        self._base = base
        # Where several stages need the same several others, what those share is asked for again and again.
        self._known: dict[frozenset[tuple[str, str]], str] = {}

    async def together(self, stages: Iterable[str], trees: Mapping[str, str]) -> str:
        """One tree with the work of some finished stages and of all they build on; `trees` are what each left.

        Raises WorkspaceError, which names the files and the stages, when two changed the same one differently.
        """
        names = self._latest(frozenset(stages))
        if not names:
            return self._base
        key = frozenset((name, trees[name]) for name in names)
        if key not in self._known:
            self._known[key] = await self._merged(names, trees)
        return self._known[key]

    async def _merged(self, names: Sequence[str], trees: Mapping[str, str]) -> str:
        tree, within = trees[names[0]], self._ancestors[names[0]]
        for name in names[1:]:
            shared = await self.together(within & self._ancestors[name], trees)
            try:
                tree = await self._store.merged(shared, (tree, trees[name]))
            except WorkspaceError as error:
                if error.__cause__ is not None:
                    raise
                raise await self._conflict(error, names[: names.index(name)], name, trees) from None
            within |= self._ancestors[name]
        return tree

    async def _conflict(
        self, error: WorkspaceError, before: Sequence[str], name: str, trees: Mapping[str, str]
    ) -> WorkspaceError:
        """The conflict of a stage with those before it, told of the first of them that it cannot be joined with."""
        other = before[-1]
        for candidate in before[:-1]:
            try:
                await self.together((candidate, name), trees)
            except WorkspaceError:
                other = candidate
                break
        again = f"`codeloupe pipeline resume {self._run_id} --accept-changes --retry {name}`"
        return WorkspaceError(
            f"the work of {other} and of {name} cannot be joined: {error.message}",
            hint=f"let {name} need {other} in {self._file}, or have them write different files; then {again}",
        )

    def lineage(self, stage: str) -> tuple[str, ...]:
        """The stages that a stage builds on, in the order of the file."""
        return tuple(name for name in self._order if name in self._ancestors[stage] and name != stage)

    def _latest(self, stages: frozenset[str]) -> list[str]:
        """Those of some stages that no other of them builds on: their trees hold the work of the rest."""
        held = {name for other in stages for name in self._ancestors[other] if name != other}
        return [name for name in self._order if name in stages and name not in held]
