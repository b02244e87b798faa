"""The preview of a pipeline's run: what the run would do, stage by stage, known before anything is spent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, field

from codeloupe.model.frozen import FrozenStruct
from codeloupe.model.pipeline import GateDefinition, PipelineDefinition, StageDefinition, WorkspaceKind


class CallRange(Struct, frozen=True):
    """A number of calls: `least` if every gate passes at once, `most` if gates use up all attempts."""

    least: int = 0
    most: int = 0

    def plus(self, other: CallRange) -> CallRange:
        """Return the sum of two ranges."""
        return CallRange(self.least + other.least, self.most + other.most)


class GatePreview(Struct, frozen=True, kw_only=True):
    """A gate of a stage. `agent` is the agent that would decide: empty if none is usable, or if no agent decides.

    `reviewers` are the reviewers of a review gate, as the settings name them.
    """

    definition: GateDefinition
    agent: str = ""
    reviewers: tuple[str, ...] = ()
    model: str | None = None


class StagePreview(Struct, frozen=True, kw_only=True):
    """A stage as a run would execute it.

    `step` counts from 1; stages with the same step do not wait for each other. `agent` is the first usable one of
    `agents`, and empty if none of them is usable. `prompt` is the first prompt, with secrets masked. `builds_on` are
    the files of earlier stages that it names. `leaves` are the files that the stage must leave.
    """

    definition: StageDefinition
    step: int
    agent: str = ""
    agents: tuple[str, ...] = ()
    model: str | None = None
    prompt: str = ""
    prompt_tokens: int = 0
    builds_on: tuple[str, ...] = ()
    leaves: tuple[str, ...] = ()
    gates: tuple[GatePreview, ...] = ()
    max_attempts: int = 1
    calls: CallRange = CallRange()
    reviews: CallRange = CallRange()


class PipelinePreview(FrozenStruct, frozen=True, kw_only=True):
    """A run before it starts. `inputs` have their defaults, and no secrets; `given` names those that are no defaults.

    `problems` says what would stop the run. A run would be refused unless it `can_start`.
    """

    definition: PipelineDefinition
    stages: tuple[StagePreview, ...]
    inputs: Mapping[str, str] = field(default_factory=dict)
    given: tuple[str, ...] = ()
    repository: Path | None = None
    can_start: bool = True
    problems: tuple[str, ...] = ()

    @property
    def max_parallel(self) -> int:
        """Return how many stages work at a time; in the user's own tree that is one."""
        if self.definition.workspace is WorkspaceKind.CHECKOUT:
            return 1
        return self.definition.max_parallel

    @property
    def steps(self) -> tuple[tuple[str, ...], ...]:
        """Return the names of the stages of each step, in the order of the file."""
        count = max((stage.step for stage in self.stages), default=0)
        steps: list[list[str]] = [[] for _ in range(count)]
        for stage in self.stages:
            steps[stage.step - 1].append(stage.definition.name)
        return tuple(tuple(names) for names in steps)

    @property
    def calls(self) -> CallRange:
        """Return the agent calls of all stages and critics. Reviews and retries of failed calls are not counted."""
        total = CallRange()
        for stage in self.stages:
            total = total.plus(stage.calls)
        return total

    @property
    def reviews(self) -> CallRange:
        """Return the reviews of all review gates; each makes as many calls as its change needs."""
        total = CallRange()
        for stage in self.stages:
            total = total.plus(stage.reviews)
        return total
