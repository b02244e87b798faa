"""What the stages of a run share: definition, state, limits, files, and how the work of several stages becomes one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from codeloupe.engine.calls import StageKeys
from codeloupe.errors import WorkspaceError
from codeloupe.git.workspaces import GitWorkspaceStore, JoinConflict
from codeloupe.model.pipeline import (
    Approval,
    Critique,
    GateDefinition,
    PipelineDefinition,
    StageDefinition,
    StageRecord,
    StageState,
    WorkspaceKind,
)
from codeloupe.pipelines.agents import RunLimits, StageCalls
from codeloupe.pipelines.gates import GateTask
from codeloupe.pipelines.state import RunFiles, RunState


class Joins:
    """What any set of finished stages left together: their trees, joined over what they share.

    Two stages that both built on a third are compared with what that one left: what only one of them changed further
    is no conflict.
    """

    def __init__(self, definition: PipelineDefinition, store: GitWorkspaceStore, *, base: str, run_id: str) -> None:
        self._file = definition.file
        self._run_id = run_id
        self._order = [stage.name for stage in definition.stages]
        self._store = store
        self._base = base
        # For each stage itself and every stage that it builds on, however far back. Needs have no cycle.
        self.ancestors: dict[str, frozenset[str]] = {}
        left = list(definition.stages)
        while left:
            ready = [stage for stage in left if self.ancestors.keys() >= set(stage.needs)]
            left = [stage for stage in left if stage not in ready]
            for stage in ready:
                above = (self.ancestors[name] for name in stage.needs)
                self.ancestors[stage.name] = frozenset({stage.name}).union(*above)
        # Where several stages need the same several others, what those share is asked for again and again.
        self._known: dict[frozenset[tuple[str, str]], str] = {}

    async def together(self, stages: Iterable[str], trees: Mapping[str, str]) -> str:
        """One tree with the work of some finished stages and of all they build on; `trees` are what each left.

        Raises WorkspaceError, which names the files and the stages, when two changed the same one differently.
        """
        wanted = frozenset(stages)
        # Those that no other of them builds on: their trees hold the work of the rest.
        held = {name for other in wanted for name in self.ancestors[other] if name != other}
        names = [name for name in self._order if name in wanted and name not in held]
        if not names:
            return self._base
        key = frozenset((name, trees[name]) for name in names)
        if key not in self._known:
            tree, within = trees[names[0]], self.ancestors[names[0]]
            for position, name in enumerate(names[1:], start=1):
                shared = await self.together(within & self.ancestors[name], trees)
                try:
                    tree = await self._store.joined(shared, tree, trees[name])
                except JoinConflict as error:
                    raise await self._conflict(error, names[:position], name, trees) from None
                within |= self.ancestors[name]
            self._known[key] = tree
        return self._known[key]

    async def _conflict(
        self, error: WorkspaceError, before: Sequence[str], name: str, trees: Mapping[str, str]
    ) -> WorkspaceError:
        """The conflict of a stage with the first of those before it that it cannot be joined with."""
        other = before[-1]
        for candidate in before[:-1]:
            try:
                await self.together((candidate, name), trees)
            except WorkspaceError:
                other = candidate
                break
        again = f"`codeloupe pipeline resume {self._run_id} --accept-changes --retry {name}`"
        return JoinConflict(
            f"the work of {other} and of {name} cannot be joined: {error.message}",
            hint=f"let {name} need {other} in {self._file}, or have them write different files; then {again}",
        )

    def lineage(self, stage: str) -> tuple[str, ...]:
        """The stages that a stage builds on, in the order of the file."""
        return tuple(name for name in self._order if name in self.ancestors[stage] and name != stage)


class Context(Struct, frozen=True, kw_only=True):
    """What the stages of a run work with.

    `keys` is told, before an agent reads a workspace, what it holds and how many calls of the attempt have failed: with
    both the same, an answer that was paid for is taken again. `judge` lets a gate of a stage decide. `ask_person` asks
    about a stage that waits, for at most so many seconds, and returns None when nobody answers; `left_answer` returns
    what was left by another process, if there is something.
    """

    definition: PipelineDefinition
    state: RunState
    limits: RunLimits
    files: RunFiles
    workspaces: GitWorkspaceStore
    joins: Joins
    calls: StageCalls
    keys: StageKeys
    judge: Callable[[StageDefinition, GateDefinition, GateTask], Awaitable[Critique]]
    ask_person: Callable[[StageRecord, str, float], Awaitable[Approval | None]]
    left_answer: Callable[[str], Approval | None]

    @property
    def is_checkout(self) -> bool:
        """Whether the stages work in the user's own tree, in which nothing is ever put back."""
        return self.files.checkout is not None

    def chosen_trees(self) -> dict[str, str]:
        """What each completed stage left."""
        done = (stage for stage in self.state.run.stages if stage.state is StageState.COMPLETED)
        return {stage.name: chosen.tree for stage in done if (chosen := stage.chosen_attempt) is not None}

    def built_on(self, stage: StageDefinition) -> dict[str, str]:
        """What a stage that begins now builds on: the trees of its needs, and under "" that of the run's beginning."""
        trees = self.chosen_trees()
        return {"": self.state.run.base_tree, **{name: trees[name] for name in stage.needs if name in trees}}

    def kept_answers(self, stages: Iterable[str]) -> dict[str, str]:
        """The answers of completed stages that were saved beside the user's own tree, by name."""
        answers: dict[str, str] = {}
        for name in stages if self.is_checkout else ():
            record = self.state.stage(name)
            chosen = record.chosen_attempt if record.state is StageState.COMPLETED else None
            # An older version saved them in the tree, as an artifact.
            if chosen is not None and chosen.saved_answer not in ("", *chosen.artifacts):
                text = self.files.read(self.files.attempt(name, chosen.number, chosen.saved_answer))
                answers[chosen.saved_answer] = text[:200_000]  # more than any stage should have to read in its prompt
        return answers

    def own_answers(self) -> tuple[str, ...]:
        """The answers that we saved into a repository's files: stages hand them on, but they are no change to it."""
        run = self.state.run
        if run.workspace is WorkspaceKind.DIRECTORY:
            return ()
        attempts = (each for stage in run.stages for each in (*stage.earlier, *stage.attempts))
        return tuple(sorted({each.saved_answer for each in attempts if each.saved_answer in each.artifacts}))
