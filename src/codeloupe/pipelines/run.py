"""Pipelines put together: from a file to a run, with agents, workspaces, gates and the store of runs."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.calls import AgentCalls
from codeloupe.config.arguments import check_arguments
from codeloupe.config.loading import database_url
from codeloupe.config.schema import Settings
from codeloupe.errors import ConfigError, NotARepository, UsageError
from codeloupe.git.identity import same_address
from codeloupe.git.repository import Repository, open_repository, origin_url
from codeloupe.git.workspaces import GitWorkspaceStore
from codeloupe.model.agent import AGENT_NAMES
from codeloupe.model.frozen import FrozenDict, FrozenStruct
from codeloupe.model.pipeline import Approval, GateKind, PipelineDefinition, RunRecord, StageState, WorkspaceKind
from codeloupe.model.pipeline_preview import PipelinePreview
from codeloupe.model.ports import Agent
from codeloupe.pipelines import opening
from codeloupe.pipelines.agents import RunAgents
from codeloupe.pipelines.changes import new_stage_record, with_changes
from codeloupe.pipelines.context import AskPerson, Context
from codeloupe.pipelines.definition import input_values, load_pipeline
from codeloupe.pipelines.engine import Engine
from codeloupe.pipelines.files import RunFiles
from codeloupe.pipelines.kept_definition import kept_files, outside_files
from codeloupe.pipelines.previews import preview_run
from codeloupe.pipelines.readiness import require_agents
from codeloupe.pipelines.state import RunState, Watch
from codeloupe.planning.experts import experts_of
from codeloupe.planning.settings import configure
from codeloupe.store import open_database
from codeloupe.store import open_run_store as stored_runs
from codeloupe.store.interface import Content, Database, RunStore
from codeloupe.store.sqlite import state_directory
from codeloupe.system.redaction import is_secret, redact

__all__ = ["AskPerson", "Pipeline", "RunOptions", "Watch", "open_run_store", "resume_run"]


class RunOptions(FrozenStruct, frozen=True, kw_only=True):
    """Options of a run.

    `repo` is the source of a worktree or a checkout, and its settings count unless `settings` are given. `agents` are
    the caller's agents by name, in addition to the built-in ones or instead of one; a pipeline's file can name them.
    `agent` and `model` are for stages that name none; `resume_run` uses those of the run unless it is given others.
    `ask_person` asks on a terminal, and returns None if the person wants to decide later: then the run stops. Without
    it, the run waits for an approval as long as its gate allows, unless `wait_for_approval` is off. `state_directory`
    replaces the user's, for the run and for the ledger of its stages and critics. `accept_changes` resumes a run even
    if the pipeline's files have changed since it began. `clone` is a clone of the run's repository for `resume_run`,
    instead of the one with which it began. With `only_begin`, a run is stored with everything that it needs and handed
    to workers, which continue it with `resume_run`.
    """

    repo: Path = Path()
    settings: Settings | None = None
    agents: Mapping[str, Agent] = FrozenDict()
    agent: str | None = None
    model: str | None = None
    ask_person: AskPerson | None = None
    wait_for_approval: bool = True
    watch: Watch = lambda _run, _event: None
    state_directory: Path | None = None
    accept_changes: bool = False
    clone: Path | None = None
    only_begin: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        given: dict[str, object] = {name: getattr(self, name) for name in self.__struct_fields__}
        check_arguments(agents_by_name=given.pop("agents"), **given)


class Pipeline:
    """A pipeline of agent stages, checked, ready to be run as often as wanted."""

    def __init__(self, definition: PipelineDefinition) -> None:
        check_arguments(definition=definition)
        self.definition = definition

    @classmethod
    def load(cls, file: Path | str, *, agents: Collection[str] | None = None) -> Pipeline:
        """Return the pipeline that a YAML file defines. Raise ConfigError, which lists every mistake with its line.

        `file` is the file, or a folder that holds `pipeline.yaml` or `pipeline.yml`. `agents` are names that the file
        may use beside the built-in ones. Without them every name is accepted here, and `run` refuses a name that is
        neither built in nor among the agents of its options.
        """
        check_arguments(file=file)
        return cls(load_pipeline(Path(file), agents=None if agents is None else (*AGENT_NAMES, *agents)))

    async def run(
        self,
        inputs: Mapping[str, str] | None = None,
        *,
        options: RunOptions = RunOptions(),  # noqa: B008 - frozen
        run_id: str | None = None,
        calls: AgentCalls | None = None,
    ) -> RunRecord:
        """Start a run and continue until it is completed, failed or waits for a person; its record shows which.

        `calls` is the state that a runtime shares with the run, as in `Runtime.run_pipeline`; without it the run has
        its own. Raise UsageError for mistakes of the caller and for an agent that cannot be used, before anything is
        spent and before the run exists. A cancellation is raised when every agent has ended; `resume_run` continues
        such a run, and one whose process was killed.
        """
        inputs = {} if inputs is None else inputs
        check_arguments(inputs=inputs, options=options, run_id=run_id)
        if calls is None:
            with AgentCalls(state_directory=options.state_directory) as own:
                return await self.run(inputs, options=options, run_id=run_id, calls=own)
        definition = self.definition
        repository, agents = await self._prepared(inputs, options, calls)
        store = open_run_store(calls.state_directory, database=calls.database)
        record = self._new_record(inputs, options, repository, run_id)
        # A worker that takes over the run has its own agents.
        if not options.only_begin:
            refusal = f"the pipeline {definition.name} was not started"
            await require_agents(agents, definition, record, {}, refusal=refusal)
        record = replace(record, home=store.home, host=socket.gethostname(), origin=await _origin_of(repository))
        files: dict[str, Content] = dict(kept_files(definition))
        if options.settings is None:
            files.update(opening.kept_settings(agents.settings, Path(options.repo)))
        notes = [
            f"{name}, which is outside the pipeline's folder, is stored with the run"
            for name in outside_files(definition)
        ]
        with opening.locked_checkout(record, repository):
            store.create(record, files)
            with store.lock(record.run_id):
                run = _OpenedRun(definition, store, options, repository, agents)
                return await run.go_on(record, notes)

    async def preview(
        self,
        inputs: Mapping[str, str] | None = None,
        *,
        options: RunOptions = RunOptions(),  # noqa: B008 - frozen
        calls: AgentCalls | None = None,
    ) -> PipelinePreview:
        """Return what `run` would do with these inputs. No agent is asked, no gate runs, and nothing is written.

        Everything that `run` checks before its first call is checked. Raise as `run` does, except for agents that
        cannot be used, which are among the `problems` of the preview.
        """
        inputs = {} if inputs is None else inputs
        check_arguments(inputs=inputs, options=options)
        if calls is None:
            with AgentCalls(state_directory=options.state_directory) as own:
                return await self.preview(inputs, options=options, calls=own)
        repository, agents = await self._prepared(inputs, options, calls)
        record = self._new_record(inputs, options, repository, "RUN")
        shown = dict(record.inputs)
        for name in record.secret_inputs:
            shown[name] = "[redacted]"
        return await preview_run(self.definition, replace(record, inputs=shown), agents)

    async def _prepared(
        self, inputs: Mapping[str, str], options: RunOptions, calls: AgentCalls
    ) -> tuple[Repository | None, RunAgents]:
        """Return the repository of a new run and its agents. Raise UsageError or ConfigError for mistakes."""
        input_values(self.definition, inputs)
        repository = None
        workspace = self.definition.workspace
        if workspace is not WorkspaceKind.DIRECTORY:
            try:
                repository = await open_repository(Path(options.repo))
            except NotARepository as error:
                words = f"the pipeline {self.definition.name} has `workspace: {workspace.value}`, and {error.message}"
                raise NotARepository(words, hint="start it in a repository, or name one: --repo DIR") from error
        return repository, await _agents_for(self.definition, repository, options, calls)

    def _new_record(
        self, inputs: Mapping[str, str], options: RunOptions, repository: Repository | None, run_id: str | None
    ) -> RunRecord:
        definition = self.definition
        values = input_values(definition, inputs)
        now = datetime.now(UTC)
        return RunRecord(
            run_id=run_id or f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}",
            pipeline=definition.name,
            file=definition.file,
            digest=definition.digest,
            state=StageState.PENDING,
            stages=tuple(new_stage_record(stage) for stage in definition.stages),
            inputs=values,
            given=tuple(name for name in values if name in inputs),
            secret_inputs=secret_inputs(definition, values),
            workspace=definition.workspace,
            repository=None if repository is None else repository.root,
            started_at=now,
            updated_at=now,
            agent=options.agent,
            model=options.model,
            on_workers=options.only_begin,
        )


async def resume_run(
    run_id: str,
    *,
    options: RunOptions = RunOptions(),  # noqa: B008 - frozen
    calls: AgentCalls | None = None,
) -> RunRecord:
    """Continue a run that waits, was interrupted or whose process died; finished work is not repeated.

    A run that has ended is returned as it is, unless a person had one of its stages run again. Raise RunNotFound,
    RunBusy if another process works on it, and UsageError if the pipeline's files have changed or an agent that it
    needs cannot be used.
    """
    check_arguments(known_run_id=run_id, options=options)
    if calls is None:
        with AgentCalls(state_directory=options.state_directory) as own:
            return await resume_run(run_id, options=options, calls=own)
    store = open_run_store(calls.state_directory, database=calls.database)
    with store.lock(run_id):
        return await _resume(store.load(run_id), store, options, calls)


async def _resume(record: RunRecord, store: RunStore, options: RunOptions, calls: AgentCalls) -> RunRecord:
    """Continue a run whose lock is held."""
    run_id = record.run_id
    _refuse_other_checkout(record, store, options)
    definition = opening.definition_of(record, store)
    notes: tuple[str, ...] = ()
    files: dict[str, bytes] = {}
    if definition.digest != record.digest:
        record, notes = with_changes(record, definition, accepted=options.accept_changes)
        files = kept_files(definition)
    options = _with_agent(options, record)
    secret = secret_inputs(definition, record.inputs)
    record = replace(record, agent=options.agent, model=options.model, secret_inputs=secret)
    repository = await opening.repository_of(record, store, options.clone)
    if opening.is_elsewhere(record, store) and options.settings is None:
        options = replace(options, settings=opening.settings_elsewhere(store, run_id, calls))
    agents = await _agents_for(definition, repository, options, calls)
    answers: dict[str, Approval] = {}
    for stage in definition.stages:
        answer = store.approval(run_id, stage.name)
        if answer is not None and answer.question == record.stage(stage.name).questions:
            answers[stage.name] = answer
    await require_agents(agents, definition, record, answers, refusal=f"the run {run_id} was not continued")
    with opening.locked_checkout(record, repository):
        await opening.write_out(record, store)
        run = _OpenedRun(definition, store, options, repository, agents)
        return await run.go_on(record, notes, files)


def _refuse_other_checkout(record: RunRecord, store: RunStore, options: RunOptions) -> None:
    """Raise UsageError if a run would have to continue in another checkout than its own."""
    if record.workspace is not WorkspaceKind.CHECKOUT:
        return
    if opening.is_elsewhere(record, store) or options.clone is not None:
        place = f"{record.repository} on {record.host}"
        words = f"the run {record.run_id} works in the checkout {place} and cannot use another one"
        raise UsageError(words, hint="resume it there, or start a new run with `workspace: worktree`")


def _with_agent(options: RunOptions, record: RunRecord) -> RunOptions:
    """Return options with the agent and the model of a run, unless others are given."""
    agent = options.agent or record.agent
    model = options.model
    # The model of the run belongs to the agent of the run.
    if model is None and options.agent in (None, record.agent):
        model = record.model
    return replace(options, agent=agent, model=model)


def open_run_store(directory: Path | None = None, *, database: Database | None = None) -> RunStore:
    """Return the runs of a database: the given one, or the user's if no directory is given, or that of a directory."""
    place = state_directory(os.environ) if directory is None else Path(directory)
    if database is None:
        url = database_url(os.environ) if directory is None else None
        database = open_database(url, place)
    return stored_runs(database, place)


def secret_inputs(definition: PipelineDefinition, values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of secret inputs: declared as secret, or with a name or a value that is known to be secret."""
    declared = {each.name for each in definition.inputs if each.secret}
    return tuple(name for name, value in values.items() if name in declared or is_secret(name, value))


async def _origin_of(repository: Repository | None) -> str:
    """Return the address of a repository's remote, without the user name and token that it may contain."""
    if repository is None:
        return ""
    return same_address(await origin_url(repository) or "") or ""


async def _agents_for(
    definition: PipelineDefinition, repository: Repository | None, options: RunOptions, calls: AgentCalls
) -> RunAgents:
    """Return the agents of a run. Raise ConfigError for an unknown agent or expert."""
    place = options.repo if repository is None else repository.root
    settings = options.settings or (await configure(repo=place, environment=calls.environment)).settings
    own = {**calls.own, **options.agents}
    agents = RunAgents(calls, settings, own, options.agent, options.model or settings.model, place)
    agents.check(definition)
    for stage in definition.stages:
        for gate in stage.gates:
            if gate.kind is GateKind.REVIEW:
                _check_experts(settings, gate.experts, stage.name)
    return agents


def _check_experts(settings: Settings, experts: tuple[str, ...], stage: str) -> None:
    try:
        experts_of(replace(settings, experts=experts or settings.experts))
    except ConfigError as error:
        words = f"cannot use the review gate of the stage {stage}: {error.message}"
        raise ConfigError(words, hint=error.hint) from error


class _OpenedRun(Struct, frozen=True):
    """A run that this process works on, and whose lock it holds."""

    definition: PipelineDefinition
    store: RunStore
    options: RunOptions
    repository: Repository | None
    agents: RunAgents

    async def go_on(
        self, record: RunRecord, notes: Sequence[str] = (), files_to_store: Mapping[str, Content] = FrozenDict()
    ) -> RunRecord:
        """Continue from the record. `notes` and `files_to_store` are saved first."""
        checkout = None
        if record.workspace is WorkspaceKind.CHECKOUT and self.repository is not None:
            checkout = self.repository.root
        files = RunFiles(self.store, record.run_id, self.store.directory(record.run_id), checkout=checkout)
        for name, content in files_to_store.items():
            files.attach(name, content)
        workspaces = await opening.open_workspaces(record, self.store, files, self.repository)
        state = RunState(self.store, record, files, watch=self.options.watch, mask=_mask_for(record))
        if not record.base_tree:
            notes = [*notes, *await _begin(state, files, workspaces)]
        for words in notes:
            state.report("note", words)
        if self.options.only_begin:
            return state.run
        context = Context(
            self.definition,
            state,
            files,
            workspaces,
            self.agents,
            ask=self.options.ask_person,
            waits=self.options.wait_for_approval,
        )
        return await Engine(context).run()


async def _begin(state: RunState, files: RunFiles, workspaces: GitWorkspaceStore) -> list[str]:
    """Save what a new run begins with, and return notes."""
    record = state.run
    beginning = await workspaces.beginning()
    notes: list[str] = []
    tree = beginning.tree
    if files.checkout is not None:
        tree = (await workspaces.keep(files.checkout)).tree
        pack = await workspaces.pack(tree)
    else:
        pack = await workspaces.pack_beginning(opening.MOST_KEPT_BYTES)
        if pack is None and beginning.commit:
            clone = f"a clone of {record.origin or 'its repository'} with the commit {beginning.commit}"
            notes.append(f"its repository is too large to store with the run; another machine needs {clone}")
    if pack is not None:
        files.attach(opening.pack_name(tree), pack)
    state.move_run(record.state, base_tree=tree, base_commit=beginning.commit, object_format=beginning.object_format)
    return notes


def _mask_for(record: RunRecord) -> Callable[[str], str]:
    """Return a function that redacts the secret inputs of a run in a text."""
    secret: set[str] = set()
    for name in record.secret_inputs:
        value = record.inputs.get(name, "")
        # A program may print one line of a key. A value of three letters is in many texts by chance.
        secret.update(part for part in (value, *value.splitlines()) if len(part) > 3)
    return partial(without_secrets, also=sorted(secret, key=len, reverse=True))


def without_secrets(text: str, also: Sequence[str] = ()) -> str:
    """Return a text that may be stored. `also` are values that are secret in this run, the longest first."""
    for value in also:
        text = text.replace(value, "[redacted]")
    return redact(text)
