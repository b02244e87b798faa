"""A pipeline of agent stages as its file defines it: stages, their artifacts and gates, inputs, workspace."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field

_NOTHING: Mapping[str, Any] = MappingProxyType({})
DEFAULT_ARTIFACTS = ("*.md", "*.json", "*.txt", "*.yaml", "*.yml")


class GateKind(StrEnum):
    """What decides whether the result of a stage goes on."""

    CRITIC = "critic"
    REVIEW = "review"
    COMMAND = "command"
    APPROVAL = "approval"


class WorkspaceKind(StrEnum):
    """Where the stages of a run work.

    DIRECTORY is empty at first; WORKTREE holds the repository at a commit; both are the run's own. CHECKOUT is the
    user's own working tree, in which one stage works at a time.
    """

    DIRECTORY = "directory"
    WORKTREE = "worktree"
    CHECKOUT = "checkout"


class OnFailure(StrEnum):
    """What becomes of a run when a stage failed for good: stop for a person, fail, or go on without the stage."""

    ESCALATE = "escalate"
    FAIL = "fail"
    CONTINUE = "continue"


class ArtifactRule(Struct, frozen=True, kw_only=True):
    """Which files of the workspace are a stage's artifacts.

    `patterns` are globs of names, below the workspace's top only unless `recursive`. `required` are names or globs of
    which each must be there. `schemas` are JSON Schemas by name or glob, for artifacts that hold JSON or YAML.
    """

    patterns: tuple[str, ...] = DEFAULT_ARTIFACTS
    recursive: bool = False
    required: tuple[str, ...] = ()
    schemas: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: _NOTHING)


class GateDefinition(Struct, frozen=True, kw_only=True):
    """The gate behind a stage. Which fields count depends on the kind.

    `step` is the critic's file of instructions, None for the built-in one; `agent` and `model` are the critic's.
    `command` are the words of a program, which no shell reads. `fail_on` and `experts` are those of a review.
    Scores go from 0 to 100: a result below `min_score` escalates. `digest` names all that decides what it says.
    """

    kind: GateKind
    step: Path | None = None
    agent: str | None = None
    model: str | None = None
    command: tuple[str, ...] = ()
    prompt: str = ""
    fail_on: str | None = None
    experts: tuple[str, ...] = ()
    timeout_seconds: float = 600.0
    max_attempts: int = 3
    min_score: int = 40
    digest: str = ""


class StageDefinition(Struct, frozen=True, kw_only=True):
    """One stage. `step` and `agent_definition` are files; `needs` are the stages whose work it builds on.

    `agent` None is the first usable one of the settings. `retries` is how often a failed call is tried again before
    its session is resumed; 0 is exactly one call. `inputs` are those of the pipeline that the stage is told, None for
    all. `parts` are digests of what shapes its work, by key of the file; of a file that it names, of the content.
    """

    name: str
    step: Path
    agent_definition: Path | None = None
    agent: str | None = None
    model: str | None = None
    writes: bool = True
    tools: tuple[str, ...] | None = None
    needs: tuple[str, ...] = ()
    inputs: tuple[str, ...] | None = None
    artifacts: ArtifactRule = ArtifactRule()
    output_schema: Mapping[str, Any] | None = None
    timeout_seconds: float = 1800.0
    max_budget_usd: float | None = None
    max_turns: int | None = None
    retries: int = 1
    gates: tuple[GateDefinition, ...] = ()
    on_failure: OnFailure = OnFailure.ESCALATE
    parts: Mapping[str, str] = _NOTHING


class InputDefinition(Struct, frozen=True, kw_only=True):
    """A value that a run is given. Without a default it has to be. The value of a `secret` one is never shown."""

    name: str
    description: str = ""
    default: str | None = None
    secret: bool = False

    @property
    def required(self) -> bool:
        """Whether a run cannot begin without it."""
        return self.default is None


class PipelineDefinition(Struct, frozen=True, kw_only=True):
    """A pipeline as its file says, checked: stage names are unique, needs exist and have no cycle.

    `file` is the pipeline's own, absolute; relative paths in it were read from its folder. `stages` keep the order of
    the file. `digest` names the content of the file and of every file that it names, so that a change is noticed.
    """

    name: str
    file: Path
    stages: tuple[StageDefinition, ...]
    description: str = ""
    inputs: tuple[InputDefinition, ...] = ()
    workspace: WorkspaceKind = WorkspaceKind.DIRECTORY
    max_parallel: int = 4
    max_budget_usd: float | None = None
    digest: str = ""
