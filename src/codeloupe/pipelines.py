"""Pipelines put together: from a file to a run, with agents, workspaces, gates and the store of runs."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct, field
from msgspec.structs import fields, replace

from codeloupe.agents.calls.budget import SpendingLimits, Spent
from codeloupe.config.arguments import check_arguments
from codeloupe.config.schema import Settings
from codeloupe.engine.calls import AgentCalls, StageKeys, trust_of
from codeloupe.engine.choose import experts_of
from codeloupe.engine.run import review
from codeloupe.engine.settings import configure
from codeloupe.errors import ConfigError, NotARepository, PipelineError
from codeloupe.gates.approval import word_of_a_person
from codeloupe.gates.command import command_gate
from codeloupe.gates.critic import CriticGate
from codeloupe.gates.program_output import secret_inputs, without_secrets
from codeloupe.gates.review import ReviewGate
from codeloupe.git.repository import Repository, open_repository
from codeloupe.git.workspace_commits import committed_change
from codeloupe.git.workspace_store import GitWorkspaceStore
from codeloupe.model.agents import AGENT_NAMES
from codeloupe.model.pipeline import Approval, PipelineEvent, RunRecord, StageRecord, StageState
from codeloupe.model.pipeline_definition import (
    GateDefinition,
    GateKind,
    PipelineDefinition,
    WorkspaceKind,
)
from codeloupe.model.ports import Agent, GateTask
from codeloupe.model.review import Review
from codeloupe.model.severity import Severity
from codeloupe.model.usage import Usage
from codeloupe.pipeline.changes import Changed, new_stage_record, with_changes
from codeloupe.pipeline.crew import Asking, Crew
from codeloupe.pipeline.definition import input_values, load_pipeline
from codeloupe.pipeline.descent import Descent
from codeloupe.pipeline.engine import Engine
from codeloupe.pipeline.logbook import Logbook, Watch
from codeloupe.pipeline.places import Places
from codeloupe.pipeline.purse import Purse
from codeloupe.pipeline.surroundings import Surroundings
from codeloupe.store.location import state_directory
from codeloupe.store.run_store import RUNS_DIRECTORY, DirectoryRunStore

__all__ = ["AskPerson", "Pipeline", "RunOptions", "Watch", "open_run_store", "resume_run"]

AskPerson = Callable[[StageRecord, str], Awaitable[Approval | None]]

_NO_AGENTS: Mapping[str, Agent] = MappingProxyType({})
_NO_INPUTS: Mapping[str, str] = MappingProxyType({})
_STORE = "store.git"
# What a stage may add to its workspace in all. The patch of it is held in memory.
_MOST_WORK_BYTES = 256 * 1024**2
# So short a value stands in many texts by chance.
_SHORT = 3


def _ignore(_run: RunRecord, _event: PipelineEvent) -> None:
    """Take an event and do nothing with it."""


class RunOptions(Struct, frozen=True, kw_only=True):
    """How a run is made.

    `repo` is where a worktree or a checkout comes from, and whose settings count unless `settings` are given. `agents`
    are those of the caller by name, beside the built-in ones or in the place of one: a pipeline's file can name them.
    `agent` and `model` are for stages that name none; `resume_run` keeps those of the run unless it is given others.
    `ask_person` asks on a terminal, and gives None when the person wants to decide later: then the run stops. Without
    it an approval is waited for as long as its gate says, unless `wait_for_approval` is off. `state_directory` holds
    the run, and the ledger of its stages and critics, in the place of the user's. `accept_changes` resumes a run though
    the pipeline's files have changed since it began.
    """

    repo: Path = Path()
    settings: Settings | None = None
    agents: Mapping[str, Agent] = field(default_factory=lambda: _NO_AGENTS)
    agent: str | None = None
    model: str | None = None
    ask_person: AskPerson | None = None
    wait_for_approval: bool = True
    watch: Watch = _ignore
    state_directory: Path | None = None
    accept_changes: bool = False

    def __post_init__(self) -> None:
        given: dict[str, object] = {each.name: getattr(self, each.name) for each in fields(self)}
        check_arguments(agents_by_name=given.pop("agents"), **given)


class Pipeline:
    """A pipeline of agent stages, checked, ready to be run as often as wished."""

    def __init__(self, definition: PipelineDefinition) -> None:
        check_arguments(definition=definition)
        self.definition = definition

    @classmethod
    def load(cls, file: Path | str, *, agents: Collection[str] | None = None) -> Pipeline:
        """The pipeline that a YAML file defines. Raises ConfigError, which tells every mistake with its line.

        `agents` names those that the file may speak of beside the built-in ones. Without it every name is taken here,
        and `run` refuses one that neither is built in nor among the agents of its options.
        """
        check_arguments(file=file)
        known = None if agents is None else (*AGENT_NAMES, *agents)
        return cls(load_pipeline(Path(file), agents=known))

    async def run(
        self,
        inputs: Mapping[str, str] = _NO_INPUTS,
        *,
        options: RunOptions = RunOptions(),  # noqa: B008 - frozen
        run_id: str | None = None,
        calls: AgentCalls | None = None,
    ) -> RunRecord:
        """Begin a run and go on until it is completed, failed or waits for a person; its record tells which.

        `calls` is what a runtime shares with the run, as in `Runtime.run_pipeline`; without it the run has its own.
        Raises UsageError for what the caller can mend, before anything is spent. A cancellation is raised when every
        agent is gone; such a run, and one whose process was killed, is picked up by `resume_run`.
        """
        check_arguments(inputs=inputs, options=options, run_id=run_id)
        if calls is None:
            with AgentCalls(state_directory=options.state_directory) as own:
                return await self.run(inputs, options=options, run_id=run_id, calls=own)
        values = input_values(self.definition, inputs)
        settings = options.settings or (await configure(repo=options.repo, environment=calls.environment)).settings
        repository = await _repository(self.definition.workspace, options.repo)
        wish = _Wish(options, settings, repository, calls)
        _check(self.definition, wish)
        now = datetime.now(UTC)
        record = RunRecord(
            run_id=run_id or f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}",
            pipeline=self.definition.name,
            file=self.definition.file,
            digest=self.definition.digest,
            state=StageState.PENDING,
            stages=tuple(new_stage_record(stage) for stage in self.definition.stages),
            inputs=values,
            given=tuple(name for name in values if name in inputs),
            secret_inputs=secret_inputs(self.definition, values),
            workspace=self.definition.workspace,
            repository=None if repository is None else repository.root,
            started_at=now,
            updated_at=now,
            agent=options.agent,
            model=options.model,
        )
        store = open_run_store(calls.state_directory)
        store.create(record)
        with store.lock(record.run_id):
            return await _Run(self.definition, store, wish).go_on(record)


async def resume_run(
    run_id: str,
    *,
    options: RunOptions = RunOptions(),  # noqa: B008 - frozen
    calls: AgentCalls | None = None,
) -> RunRecord:
    """Go on with a run that waits, was interrupted or whose process died; nothing that is finished is done again.

    One that is at its end is returned as it is, unless a person had one of its failed stages tried again. Raises
    RunNotFound, RunBusy while another process works on it, and UsageError when the pipeline's files have changed.
    """
    check_arguments(known_run_id=run_id, options=options)
    if calls is None:
        with AgentCalls(state_directory=options.state_directory) as own:
            return await resume_run(run_id, options=options, calls=own)
    store = open_run_store(calls.state_directory)
    with store.lock(run_id):
        record = store.load(run_id)
        definition = _definition_of(record)
        changed = Changed(record)
        if definition.digest != record.digest:
            changed = with_changes(record, definition, accepted=options.accept_changes)
        record, options = _remembered(changed.record, options)
        record = replace(record, secret_inputs=secret_inputs(definition, record.inputs))
        repo = record.repository or options.repo
        settings = options.settings or (await configure(repo=repo, environment=calls.environment)).settings
        wish = _Wish(options, settings, await _same_repository(record, options), calls)
        _check(definition, wish)
        return await _Run(definition, store, wish).go_on(record, changed.notes)


def open_run_store(directory: Path | None = None) -> DirectoryRunStore:
    """The runs of this machine's user, or those below another directory."""
    return DirectoryRunStore((state_directory(os.environ) if directory is None else Path(directory)) / RUNS_DIRECTORY)


def _definition_of(record: RunRecord) -> PipelineDefinition:
    if not record.file.is_file():
        raise ConfigError(
            f"the run {record.run_id} cannot continue: its pipeline file {record.file} no longer exists",
            hint="put it back where it was",
        )
    return load_pipeline(record.file, agents=None)


def _remembered(record: RunRecord, options: RunOptions) -> tuple[RunRecord, RunOptions]:
    """Both with the agent and the model that count: those wished for now, else those of before."""
    # A model is meant for its agent.
    known = record.model if options.agent in (None, record.agent) else None
    agent, model = options.agent or record.agent, options.model or known
    return replace(record, agent=agent, model=model), replace(options, agent=agent, model=model)


def _check(definition: PipelineDefinition, wish: _Wish) -> None:
    """Raises ConfigError for an agent or an expert that nobody knows, before anything is spent."""
    settings = wish.settings
    _crew(wish).check(definition)
    for stage in definition.stages:
        for gate in stage.gates:
            if gate.kind is GateKind.REVIEW:
                try:
                    experts_of(replace(settings, experts=gate.experts or settings.experts))
                except ConfigError as error:
                    words = f"the review gate of the stage {stage.name} cannot be used: {error.message}"
                    raise ConfigError(words, hint=error.hint) from error


async def _repository(kind: WorkspaceKind, repo: Path) -> Repository | None:
    return None if kind is WorkspaceKind.DIRECTORY else await open_repository(Path(repo))


async def _same_repository(record: RunRecord, options: RunOptions) -> Repository | None:
    """The repository of a run that goes on. Raises ConfigError when it is not there any more."""
    try:
        return await _repository(record.workspace, record.repository or options.repo)
    except NotARepository as error:
        raise ConfigError(
            f"the run {record.run_id} cannot continue: {error.message}", hint="put its repository back where it was"
        ) from error


def _crew(wish: _Wish) -> Crew:
    options, settings, calls = wish.options, wish.settings, wish.calls
    return Crew(
        own={**calls.own, **options.agents},
        built_in=AGENT_NAMES,
        make=lambda name: calls.agent(name, settings),
        usual=calls.names(settings) if options.agent is None else (options.agent,),
        model=options.model or settings.model,
        keeps_sessions=settings.keep_sessions,
    )


class _Reviewing:
    """Reviews what a stage changed: two commits of the run's own trees, in a repository that is made for it.

    The change is the agent's and not the user's, so it is not trusted: no word in it can keep the review from finding.
    """

    def __init__(self, settings: Settings, purse: Purse, directory: Path, calls: AgentCalls) -> None:
        self._settings = settings
        self._calls = calls
        self._purse = purse
        self._directory = directory

    async def review(self, gate: GateDefinition, task: GateTask) -> Review:
        """The review. Raises PipelineError when it takes longer than the gate allows, and as `app.review` does."""
        settings = replace(
            self._settings,
            untrusted=True,
            keep_history=False,
            on_incomplete="fail",
            experts=gate.experts or self._settings.experts,
            fail_on=Severity.parse(gate.fail_on) if gate.fail_on else self._settings.fail_on,
        )
        calls = self._calls.part(settings, SpendingLimits(max_usd=self._purse.left_usd(task.stage)))
        root, store = self._directory / "stages" / task.stage / "review", self._directory / _STORE
        async with committed_change(root, store, before=task.start_tree, after=task.tree) as change:
            try:
                async with asyncio.timeout(gate.timeout_seconds):
                    return await review(change, repo=root, settings=settings, context=task.requirements, calls=calls)
            except TimeoutError as error:
                raise PipelineError(
                    f"the review of {task.stage} did not finish within {gate.timeout_seconds:g} s",
                    stage=task.stage,
                    hint="allow the gate more time; what was reviewed is not bought again",
                ) from error


class _Wish(Struct, frozen=True):
    """How a run is to be made, the repository from which its workspaces come, and what its calls share with others."""

    options: RunOptions
    settings: Settings
    repository: Repository | None
    calls: AgentCalls


class _Run:
    """One run with all that it needs, in one process that holds its lock."""

    def __init__(self, definition: PipelineDefinition, store: DirectoryRunStore, wish: _Wish) -> None:
        self._definition = definition
        self._store = store
        self._wish = wish
        self._options, self._settings, self._repository = wish.options, wish.settings, wish.repository

    async def go_on(self, record: RunRecord, notes: Sequence[str] = ()) -> RunRecord:
        """Run it from where its record stands. `notes` are told first."""
        directory = self._store.directory(record.run_id)
        (directory / _STORE).mkdir(mode=0o700, exist_ok=True)
        places = Places(directory, checkout=self._checkout(record))
        workspaces = GitWorkspaceStore(directory / _STORE, source=self._repository, max_total_bytes=_MOST_WORK_BYTES)
        values = [record.inputs.get(name, "") for name in record.secret_inputs]
        # A program may print one line of a key.
        secret = [part for value in values for part in {value, *value.splitlines()} if len(part) > _SHORT]
        mask = partial(without_secrets, also=secret)
        book = Logbook(self._store, record, watch=self._options.watch, mask=mask)
        record = await _begun(book, workspaces, places)
        if notes:
            book.tell(*(book.event("note", words) for words in notes))
        crew = _crew(self._wish)
        purse = Purse(self._definition, book, self._settings)
        keys = StageKeys(crew.called, trust=trust_of(trusted=not self._settings.untrusted))
        calls = self._wish.calls.part(self._settings, self._limits(record))
        asking = Asking(
            self._definition, crew, purse, calls.caller(self._settings, key_of=keys.key_of, watch_files=None)
        )
        around = Surroundings(
            definition=self._definition,
            book=book,
            purse=purse,
            places=places,
            workspaces=workspaces,
            descent=Descent(self._definition, workspaces, base=record.base_tree, run_id=record.run_id),
            ask=asking.of_stage,
            can_resume=crew.can_resume,
            tell_tree=keys.tell,
            gates={
                GateKind.CRITIC: CriticGate(asking.critic, can_read=asking.critic_can_read),
                GateKind.REVIEW: ReviewGate(_Reviewing(self._settings, purse, directory, calls).review),
                GateKind.COMMAND: command_gate,
            },
            word=lambda stage, question, seconds: self._word(record.run_id, stage, question, seconds),
            left_word=lambda stage: self._store.take_approval(record.run_id, stage),
        )
        return await Engine(around).run()

    def _checkout(self, record: RunRecord) -> Path | None:
        is_checkout = record.workspace is WorkspaceKind.CHECKOUT
        return self._repository.root if is_checkout and self._repository is not None else None

    def _limits(self, record: RunRecord) -> SpendingLimits:
        """What the run may spend in its whole life, and what it has spent so far."""
        used = _used(record)
        limits = (self._definition.max_budget_usd, self._settings.max_budget_usd)
        return SpendingLimits(
            max_usd=min((most for most in limits if most is not None), default=None),
            max_tokens=self._settings.max_tokens,
            max_requests=self._settings.max_requests,
            spent=Spent(used.cost_usd, used.input_tokens + used.output_tokens, used.requests, used.unknown_costs),
        )

    async def _word(self, run_id: str, stage: StageRecord, question: str, seconds: float) -> Approval | None:
        ask_person = self._options.ask_person
        return await word_of_a_person(
            lambda: self._store.take_approval(run_id, stage.name),
            None if ask_person is None else lambda: ask_person(stage, question),
            timeout_seconds=seconds if self._options.wait_for_approval else 0.0,
        )


def _used(record: RunRecord) -> Usage:
    """What a run has used so far: its limits hold over its whole life."""
    lost = sum(stage.unanswered for stage in record.stages)
    return record.usage.plus(Usage(requests=lost, unknown_costs=lost))


async def _begun(book: Logbook, workspaces: GitWorkspaceStore, places: Places) -> RunRecord:
    """The record with the tree on which all work of the run is built."""
    if book.run.base_tree:
        return book.run
    base = await workspaces.beginning()
    if places.checkout is not None:
        base = (await workspaces.keep(places.checkout)).tree
    return book.move_run(book.run.state, base_tree=base)
