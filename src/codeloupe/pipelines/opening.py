"""Opening a stored run on this machine: its definition, settings, repository, files and workspaces.

The database has everything that a run needs. The directory of the run may be deleted at any time while no process
works on it; the functions here build it again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from codeloupe.calls import AgentCalls
from codeloupe.config.files import read_config_file, read_repository_file, repository_root, user_file_path
from codeloupe.config.loading import load_settings
from codeloupe.config.schema import Settings
from codeloupe.errors import ConfigError, NotARepository, RunBusy, WorkspaceError
from codeloupe.git.repository import Repository, open_repository
from codeloupe.git.workspaces import Beginning, GitWorkspaceStore
from codeloupe.model.pipeline import PipelineDefinition, RunRecord, WorkspaceKind
from codeloupe.pipelines.definition import load_pipeline
from codeloupe.pipelines.files import RunPlaces
from codeloupe.pipelines.kept_definition import KEPT_FOLDER, load_kept
from codeloupe.store.interface import RunStore
from codeloupe.store.run_copies import make_folder
from codeloupe.store.runs import TREES_FOLDER
from codeloupe.system.directories import locked_folder

# The limit for the initial files of a run, and for the files that a stage adds.
MOST_KEPT_BYTES = 256 * 1024**2
KEPT_SETTINGS = f"{KEPT_FOLDER}/codeloupe.yaml"
_log = logging.getLogger(__name__)


def is_elsewhere(record: RunRecord, store: RunStore) -> bool:
    """Return whether a run began on another machine, or in another state directory; its paths mean nothing here."""
    return record.home != store.home


def definition_of(record: RunRecord, store: RunStore) -> PipelineDefinition:
    """Return the pipeline of a run, from its own file if that is here, or as stored. Raise ConfigError."""
    if not is_elsewhere(record, store) and record.file.is_file():
        return load_pipeline(record.file, agents=None)
    definition = load_kept(_write_definition(store, record.run_id), file=record.file)
    if definition.digest != record.digest:
        words = f"the files of {record.file} that the run {record.run_id} stored are not those that it uses"
        raise ConfigError(words, hint=f"resume it on {record.host}, where it started")
    return definition


def _write_definition(store: RunStore, run_id: str) -> Path:
    """Write the stored definition to the directory of a run, and return the directory. Raise ConfigError."""
    directory = store.directory(run_id)
    try:
        make_folder(directory / KEPT_FOLDER)
        for name in store.file_names(run_id):
            if name.startswith(f"{KEPT_FOLDER}/"):
                store.copy_file(run_id, name, directory / name)
    except OSError as error:
        words = f"cannot write the definition of the run {run_id} to {directory}: {error.strerror or error}"
        raise ConfigError(words, hint="check that path, its permissions and the free disk space") from error
    return directory


def kept_settings(settings: Settings, repo: Path) -> dict[str, bytes]:
    """Return the settings of the repository in which a run begins, to be stored with it; nothing if untrusted."""
    if settings.untrusted:
        return {}
    file = read_repository_file(repository_root(repo))
    return {} if file is None else {KEPT_SETTINGS: file.text.encode()}


def settings_elsewhere(store: RunStore, run_id: str, calls: AgentCalls) -> Settings:
    """Return this user's settings with those of the repository in which the run began. Raise ConfigError."""
    variables = calls.environment
    load = partial(load_settings, user_file=user_file_path(variables), environment=variables, flags={})
    settings = load(repository_file=None).settings
    if settings.untrusted or KEPT_SETTINGS not in store.file_names(run_id):
        return settings
    file = _write_definition(store, run_id) / KEPT_SETTINGS
    return load(repository_file=read_config_file(file, name=file.name, follow_symlinks=False)).settings


async def repository_of(record: RunRecord, store: RunStore, clone: Path | None) -> Repository | None:
    """Return the repository of a run on this machine; None if it needs none. Raise ConfigError."""
    if record.workspace is WorkspaceKind.DIRECTORY:
        return None
    cannot = f"the run {record.run_id} cannot continue"
    elsewhere = is_elsewhere(record, store)
    if elsewhere and not record.base_tree:
        words = f"{cannot} here: it was stopped on {record.host} before it started"
        raise ConfigError(words, hint="resume it there, or start a new run; nothing was spent on this one")
    place = clone
    if place is None and not elsewhere:
        place = record.repository
    if place is None:
        return None
    try:
        return await open_repository(place)
    except NotARepository as error:
        if clone is not None:
            raise ConfigError(f"{cannot}: {error.message}", hint="give a clone of its repository") from error
        # The stored trees are enough for a worktree.
        if record.base_tree and record.workspace is WorkspaceKind.WORKTREE:
            return None
        raise ConfigError(f"{cannot}: {error.message}", hint="restore its repository") from error


@contextmanager
def locked_checkout(record: RunRecord, repository: Repository | None) -> Iterator[None]:
    """Hold the right to work in the user's own working tree, if that is the workspace of a run. Raise RunBusy."""
    with ExitStack() as stack:
        if record.workspace is WorkspaceKind.CHECKOUT and repository is not None:
            is_free = True
            try:
                is_free = stack.enter_context(locked_folder(repository.root))
            except OSError as error:
                _log.warning("cannot lock the checkout %s, so another run may work in it: %s", repository.root, error)
            if not is_free:
                message = f"the checkout {repository.root} is busy: another process is working in it on a run"
                hint = "wait until it stops, or use `workspace: worktree`, in which runs do not share files"
                raise RunBusy(message, hint=hint)
        yield


async def open_workspaces(
    record: RunRecord, store: RunStore, places: RunPlaces, source: Repository | None
) -> GitWorkspaceStore:
    """Return the workspaces of a run, after adding the stored packs that its cache lacks. Raise WorkspaceError."""
    beginning = None
    if record.base_tree:
        has_repository = record.workspace is not WorkspaceKind.DIRECTORY
        beginning = Beginning(record.base_tree, record.base_commit, record.object_format, has_repository)
    workspaces = GitWorkspaceStore(
        places.git_store,
        source=source,
        beginning=beginning,
        # The patch of a stage's work is built in memory.
        max_total_bytes=MOST_KEPT_BYTES,
    )
    names = store.file_names(record.run_id)
    trees = [Path(name).stem for name in names if name.startswith(f"{TREES_FOLDER}/")]

    def fetch(tree: str, file: Path) -> None:
        store.copy_file(record.run_id, pack_name(tree), file)

    await workspaces.restore(trees, fetch)
    if beginning is not None:
        # A beginning that was too large to be stored may be missing on this machine.
        await workspaces.beginning()
    return workspaces


def pack_name(tree: str) -> str:
    """Return the name of the stored pack of a tree."""
    return f"{TREES_FOLDER}/{tree}.pack"


async def write_out(record: RunRecord, store: RunStore) -> None:
    """Write the files and the result of a run for people, unless this machine has them. Raise StoreError."""
    if store.has_copies(record.run_id):
        return
    places = RunPlaces(store.directory(record.run_id))
    if record.result_tree:
        try:
            workspaces = await open_workspaces(record, store, places, None)
            await workspaces.put(record.result_tree, places.result)
        except WorkspaceError as error:
            # The repository may be too large to be stored. The patch has the result, too.
            _log.warning("cannot write the result of the run %s: %s", record.run_id, error)
    store.write_copies(record.run_id)
