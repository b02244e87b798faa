"""Pipelines put together: from a file to a run, with agents, workspaces, gates and the store of runs."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from codeloupe.calls import AgentCalls
from codeloupe.config.arguments import check_arguments
from codeloupe.config.files import read_config_file, read_repository_file, repository_root, user_file_path
from codeloupe.config.loading import database_url, load_settings
from codeloupe.config.schema import Settings
from codeloupe.errors import ConfigError, NotARepository, UsageError
from codeloupe.git.identity import same_address
from codeloupe.git.repository import Repository, open_repository, origin_url, read_head
from codeloupe.git.workspaces import GitWorkspaceStore
from codeloupe.model.agent import AGENT_NAMES
from codeloupe.model.frozen import FrozenDict, FrozenStruct
from codeloupe.model.pipeline import GateKind, PipelineDefinition, RunRecord, StageState, WorkspaceKind
from codeloupe.model.pipeline_preview import PipelinePreview
from codeloupe.model.ports import Agent
from codeloupe.pipelines.context import AskPerson, Context, RunAgents
from codeloupe.pipelines.definition import (
    KEPT_FOLDER,
    input_values,
    kept_files,
    load_kept,
    load_pipeline,
    outside_files,
)
from codeloupe.pipelines.engine import Engine
from codeloupe.pipelines.previews import preview_run
from codeloupe.pipelines.readiness import require_agents
from codeloupe.pipelines.recovery import new_stage_record, with_changes
from codeloupe.pipelines.state import RunFiles, RunState, Watch
from codeloupe.planning.experts import experts_of
from codeloupe.planning.settings import configure
from codeloupe.store import open_database
from codeloupe.store import open_run_store as stored_runs
from codeloupe.store.interface import Database, RunStore
from codeloupe.store.runs import RUNS_DIRECTORY, write_files
from codeloupe.store.sqlite import state_directory
from codeloupe.system.redaction import is_secret, redact

# How much of its beginning, and of what its stages add, a run keeps.
MOST_KEPT_BYTES = 256 * 1024**2
_KEPT_SETTINGS = f"{KEPT_FOLDER}/codeloupe.yaml"

__all__ = ["AskPerson", "Pipeline", "RunOptions", "Watch", "open_run_store", "resume_run"]


class RunOptions(FrozenStruct, frozen=True, kw_only=True):
    """How a run is made.

    `repo` is where a worktree or a checkout comes from, and whose settings count unless `settings` are given. `agents`
    are those of the caller by name, beside the built-in ones or in the place of one: a pipeline's file can name them.
    `agent` and `model` are for stages that name none; `resume_run` keeps those of the run unless it is given others.
    `ask_person` asks on a terminal, and returns None when the person wants to decide later: then the run stops. Without
    it an approval is waited for as long as its gate says, unless `wait_for_approval` is off. `state_directory` holds
    the run, and the ledger of its stages and critics, in the place of the user's. `accept_changes` resumes a run though
    the pipeline's files have changed since it began. `clone` is where `resume_run` finds a clone of the run's
    repository, in the place of the one with which it began. With `only_begin` a run is stored with all that it needs,
    for `resume_run` to work on it, here or elsewhere.
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
        """Begin a run and go on until it is completed, failed or waits for a person; its record tells which.

        `calls` is what a runtime shares with the run, as in `Runtime.run_pipeline`; without it the run has its own.
        Raises UsageError for what the caller can mend, an agent that cannot be used too, before anything is spent and
        before there is a run. A cancellation is raised when every
        agent is gone; such a run, and one whose process was killed, is picked up by `resume_run`.
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
        # A worker that takes the run over has agents of its own.
        if not options.only_begin:
            await require_agents(
                agents, definition, record, {}, refusal=f"the pipeline {definition.name} was not started"
            )
        kept, notes = dict[str, bytes](), list[str]()
        if store.is_shared:
            record = await _with_places(record, store, repository)
            kept = {**kept_files(definition), **kept_settings(options, agents.settings)}
            notes += [
                f"{name}, which is outside the pipeline's folder, is stored with the run"
                for name in outside_files(definition)
            ]
        store.create(record, kept)
        with store.lock(record.run_id):
            return await _go_on(record, definition, store, options, repository, agents, notes)

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
        shown = {name: "[redacted]" if name in record.secret_inputs else value for name, value in record.inputs.items()}
        directory = calls.state_directory / RUNS_DIRECTORY / record.run_id
        return await preview_run(self.definition, replace(record, inputs=shown), agents, directory)

    async def _prepared(
        self, inputs: Mapping[str, str], options: RunOptions, calls: AgentCalls
    ) -> tuple[Repository | None, RunAgents]:
        """Return the repository of a new run and its agents. Raise UsageError or ConfigError for what is wrong."""
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
        )


async def resume_run(
    run_id: str,
    *,
    options: RunOptions = RunOptions(),  # noqa: B008 - frozen
    calls: AgentCalls | None = None,
) -> RunRecord:
    """Go on with a run that waits, was interrupted or whose process died; nothing that is finished is done again.

    One that is at its end is returned as it is, unless a person had one of its failed stages tried again. Raises
    RunNotFound, RunBusy while another process works on it, and UsageError when the pipeline's files have changed or an
    agent that it needs cannot be used.
    """
    check_arguments(known_run_id=run_id, options=options)
    if calls is None:
        with AgentCalls(state_directory=options.state_directory) as own:
            return await resume_run(run_id, options=options, calls=own)
    store = open_run_store(calls.state_directory, database=calls.database)
    with store.lock(run_id):
        record, notes = store.load(run_id), tuple[str, ...]()
        is_elsewhere = record.home != store.home
        if record.workspace is WorkspaceKind.CHECKOUT and (is_elsewhere or options.clone is not None):
            place = f"{record.repository} on {record.host}" if record.host else str(record.repository)
            words = f"the run {run_id} works in the checkout {place} and cannot use another one"
            raise UsageError(words, hint="resume it there, or start a new run with `workspace: worktree`")
        definition = _definition_of(record, store, is_elsewhere=is_elsewhere)
        if definition.digest != record.digest:
            record, notes = with_changes(record, definition, accepted=options.accept_changes)
            if store.is_shared:
                # Before the first state that knows of the changes.
                write_files(store.directory(run_id), kept_files(definition))
        # The agent and the model given now count, else those of before; a model is meant for its agent.
        known = record.model if options.agent in (None, record.agent) else None
        options = replace(options, agent=options.agent or record.agent, model=options.model or known)
        secret = secret_inputs(definition, record.inputs)
        record = replace(record, agent=options.agent, model=options.model, secret_inputs=secret)
        repository = await _repository_of(record, store, options, is_elsewhere=is_elsewhere)
        if is_elsewhere and options.settings is None:
            options = replace(options, settings=_settings_elsewhere(store.directory(run_id), calls))
        agents = await _agents_for(definition, repository, options, calls)
        answers = {stage.name: store.left_approval(run_id, stage.name) for stage in definition.stages}
        left = {name: answer for name, answer in answers.items() if answer is not None}
        await require_agents(agents, definition, record, left, refusal=f"the run {run_id} was not continued")
        return await _go_on(record, definition, store, options, repository, agents, notes)


def open_run_store(directory: Path | None = None, *, database: Database | None = None) -> RunStore:
    """The runs of a shared database, if it is one or the user has set one; else those below a directory.

    Without a directory it is that of this machine's user, which also holds the files of shared runs.
    """
    place = state_directory(os.environ) if directory is None else Path(directory)
    url = database_url(os.environ) if directory is None else None
    return stored_runs(database or open_database(url, place), place)


def _definition_of(record: RunRecord, store: RunStore, *, is_elsewhere: bool) -> PipelineDefinition:
    """The pipeline of a run, from its own file where that is; else as the run has kept it. Raises ConfigError."""
    if not is_elsewhere and record.file.is_file():
        return load_pipeline(record.file, agents=None)
    if not store.is_shared and not (store.directory(record.run_id) / KEPT_FOLDER).is_dir():
        words = f"the run {record.run_id} cannot continue: its pipeline file {record.file} no longer exists"
        raise ConfigError(words, hint="restore the file")
    definition = load_kept(store.directory(record.run_id), file=record.file)
    if definition.digest != record.digest:
        words = f"the files of {record.file} that the run {record.run_id} stored are not those that it uses"
        raise ConfigError(words, hint=f"resume it on {record.host}, where it started")
    return definition


def secret_inputs(definition: PipelineDefinition, values: Mapping[str, str]) -> tuple[str, ...]:
    """The names of those inputs that are secret: as the pipeline says, or as their names or values tell."""
    declared = {each.name for each in definition.inputs if each.secret}
    return tuple(name for name, value in values.items() if name in declared or is_secret(name, value))


async def _with_places(record: RunRecord, store: RunStore, repository: Repository | None) -> RunRecord:
    """A new run, with what another machine has to know to go on with it."""
    record = replace(record, home=store.home, host=socket.gethostname())
    if repository is None:
        return record
    # Without the user name and the token that an address may hold.
    address, head = same_address(await origin_url(repository) or ""), await read_head(repository)
    return replace(record, origin=address or "", base_commit=head.sha or "")


def kept_settings(options: RunOptions, settings: Settings) -> dict[str, bytes]:
    """The settings of the repository where a run begins, to be kept with it; nothing where they do not count."""
    if options.settings is not None or settings.untrusted:
        return {}
    file = read_repository_file(repository_root(Path(options.repo)))
    return {} if file is None else {_KEPT_SETTINGS: file.text.encode()}


def _settings_elsewhere(directory: Path, calls: AgentCalls) -> Settings:
    """This user's settings, with those of the repository where the run began. Raises ConfigError."""
    kept, variables = directory / _KEPT_SETTINGS, calls.environment
    load = partial(load_settings, user_file=user_file_path(variables), environment=variables, flags={})
    settings = load(repository_file=None).settings
    if settings.untrusted or not kept.exists():
        return settings
    return load(repository_file=read_config_file(kept, name=kept.name, follow_symlinks=False)).settings


async def _repository_of(
    record: RunRecord, store: RunStore, options: RunOptions, *, is_elsewhere: bool
) -> Repository | None:
    """The repository of a run as it is on this machine; None where it needs none. Raises ConfigError."""
    if record.workspace is WorkspaceKind.DIRECTORY:
        return None
    cannot = f"the run {record.run_id} cannot continue"
    if is_elsewhere and not record.base_tree:
        words = f"{cannot} here: it was stopped on {record.host} before it started"
        raise ConfigError(words, hint="resume it there, or start a new run; nothing was spent on this one")
    # A path of another machine means nothing here.
    place = options.clone or (None if is_elsewhere else record.repository)
    try:
        return None if place is None else await open_repository(place)
    except NotARepository as error:
        is_kept = store.is_shared and record.base_tree and record.workspace is WorkspaceKind.WORKTREE
        if is_kept and options.clone is None:
            return None
        hint = "restore its repository" if options.clone is None else "give a clone of its repository"
        raise ConfigError(f"{cannot}: {error.message}", hint=hint) from error


async def _agents_for(
    definition: PipelineDefinition, repository: Repository | None, options: RunOptions, calls: AgentCalls
) -> RunAgents:
    """The agents of a run. Raises ConfigError for an agent or an expert that is not known."""
    place = options.repo if repository is None else repository.root
    settings = options.settings or (await configure(repo=place, environment=calls.environment)).settings
    own = {**calls.own, **options.agents}
    agents = RunAgents(calls, settings, own, options.agent, options.model or settings.model, place)
    agents.check(definition)
    for stage in definition.stages:
        for gate in stage.gates:
            if gate.kind is GateKind.REVIEW:
                try:
                    experts_of(replace(settings, experts=gate.experts or settings.experts))
                except ConfigError as error:
                    words = f"cannot use the review gate of the stage {stage.name}: {error.message}"
                    raise ConfigError(words, hint=error.hint) from error
    return agents


async def _go_on(
    record: RunRecord,
    definition: PipelineDefinition,
    store: RunStore,
    options: RunOptions,
    repository: Repository | None,
    agents: RunAgents,
    notes: Sequence[str] = (),
) -> RunRecord:
    """Run it from where its record is, in the process that holds its lock. `notes` are saved first."""
    directory = store.directory(record.run_id)
    (directory / "store.git").mkdir(mode=0o700, exist_ok=True)
    is_checkout = record.workspace is WorkspaceKind.CHECKOUT and repository is not None
    files = RunFiles(directory, checkout=repository.root if is_checkout and repository else None)
    # The patch of what a stage adds to its workspace is held in memory.
    workspaces = GitWorkspaceStore(directory / "store.git", source=repository, max_total_bytes=MOST_KEPT_BYTES)
    values = [record.inputs.get(name, "") for name in record.secret_inputs]
    # A program may print one line of a key; so short a value as three letters is in many texts by chance.
    secret = {part for value in values for part in (value, *value.splitlines()) if len(part) > 3}
    mask = partial(without_secrets, also=sorted(secret, key=len, reverse=True))
    state = RunState(store, record, watch=options.watch, mask=mask)
    if store.is_shared:
        # Also of one that has begun elsewhere: what it began with may be nowhere on this machine.
        await workspaces.beginning()
    if not record.base_tree:
        base = await workspaces.beginning()
        if files.checkout is not None:
            base = (await workspaces.keep(files.checkout)).tree
        elif store.is_shared and not await workspaces.keep_beginning(MOST_KEPT_BYTES):
            clone = f"a clone of {record.origin or 'its repository'} with the commit {record.base_commit}"
            notes = (*notes, f"its repository is too large to store with the run; another machine needs {clone}")
        record = state.move_run(record.state, base_tree=base)
    for words in notes:
        state.tell("note", words)
    if options.only_begin:
        return state.run
    context = Context(
        definition, state, files, workspaces, agents, ask=options.ask_person, waits=options.wait_for_approval
    )
    return await Engine(context).run()


def without_secrets(text: str, also: Sequence[str] = ()) -> str:
    """A text as it may be saved. `also` are values that are secret in this run, the longest first."""
    for value in also:
        text = text.replace(value, "[redacted]")
    return redact(text)
