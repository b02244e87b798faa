"""A store of workspaces as a cache: its packs rebuild it on any machine."""

import asyncio
import shutil
import subprocess
from pathlib import Path

import pytest

from codeloupe.errors import WorkspaceError
from codeloupe.git.repository import open_repository
from codeloupe.git.workspaces import Beginning, GitWorkspaceStore
from tests.engine_pipelines import files_in
from tests.repository import GitRepository

pytestmark = pytest.mark.program


def fill(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


async def stored(store: GitWorkspaceStore, folder: Path, packs: dict[str, bytes]) -> str:
    """Store a folder as a tree, with its pack, as a run does."""
    tree = (await store.keep(folder)).tree
    await add(packs, tree, await store.pack(tree))
    return tree


async def add(packs: dict[str, bytes], tree: str, pack: Path | None) -> None:
    if pack is not None:
        packs[tree] = await asyncio.to_thread(pack.read_bytes)


async def restored(directory: Path, beginning: Beginning, packs: dict[str, bytes]) -> GitWorkspaceStore:
    def fetch(tree: str, file: Path) -> None:
        file.write_bytes(packs[tree])

    store = GitWorkspaceStore(directory, source=None, beginning=beginning)
    await store.restore(packs, fetch)
    return store


def count_objects(pack: bytes) -> int:
    return int.from_bytes(pack[8:12], "big")


def test_a_pack_has_only_objects_that_no_earlier_pack_has(tmp_path: Path) -> None:
    async def packed() -> list[int]:
        store = GitWorkspaceStore(tmp_path / "store.git", source=None)
        packs: dict[str, bytes] = {}
        work = fill(tmp_path / "work", {"a.md": "a", "b/c.md": "c"})
        await stored(store, work, packs)
        (work / "d.md").write_text("d")
        await stored(store, work, packs)
        # The same files again need no pack.
        await stored(store, work, packs)
        return [count_objects(pack) for pack in packs.values()]

    # Two files and two folders; then one file and the changed folder.
    assert asyncio.run(packed()) == [4, 2]


def test_packs_rebuild_a_store_whose_directory_was_deleted(tmp_path: Path) -> None:
    async def rebuilt() -> None:
        directory = tmp_path / "store.git"
        store = GitWorkspaceStore(directory, source=None)
        beginning = await store.beginning()
        packs: dict[str, bytes] = {}
        one = await stored(store, fill(tmp_path / "one", {"a.md": "a", "same.md": "s"}), packs)
        two = await stored(store, fill(tmp_path / "two", {"b.md": "b", "same.md": "s"}), packs)
        shutil.rmtree(directory)
        store = await restored(directory, beginning, packs)
        joined = await store.joined(beginning.tree, one, two)
        await add(packs, joined, await store.pack(joined))
        shutil.rmtree(directory)
        store = await restored(directory, beginning, packs)
        await store.put(joined, tmp_path / "result")

    asyncio.run(rebuilt())
    assert files_in(tmp_path / "result") == {"a.md": "a", "b.md": "b", "same.md": "s"}


def test_a_run_continues_without_its_repository(tmp_path: Path, repository: GitRepository) -> None:
    repository.commit_files({"a.py": "a = 1\n", "b/c.py": "c = 1\n"})
    repository.commit_files({"a.py": "a = 2\n"})

    async def moved() -> None:
        store = GitWorkspaceStore(tmp_path / "here.git", source=await open_repository(repository.path))
        beginning = await store.beginning()
        packs: dict[str, bytes] = {}
        await add(packs, beginning.tree, await store.pack_beginning(1024**2))
        await store.put(beginning.tree, tmp_path / "work")
        (tmp_path / "work" / "new.py").write_text("new = 1\n")
        tree = await stored(store, tmp_path / "work", packs)
        repository.path.rename(tmp_path / "gone")
        store = await restored(tmp_path / "there.git", beginning, packs)
        await store.put(tree, tmp_path / "other")

    asyncio.run(moved())
    assert files_in(tmp_path / "other") == {"a.py": "a = 2\n", "b/c.py": "c = 1\n", "new.py": "new = 1\n"}
    # The agent's own git shows the changes since the commit, without the commits before it.
    changed = subprocess.run(
        ["git", "status", "--porcelain"], cwd=tmp_path / "other", capture_output=True, text=True, check=True
    )
    assert changed.stdout == "A  new.py\n"


def test_a_beginning_that_is_too_large_is_not_packed(tmp_path: Path, repository: GitRepository) -> None:
    repository.commit_files({"a.py": "a = 1\n"})

    async def begun() -> Beginning:
        store = GitWorkspaceStore(tmp_path / "here.git", source=await open_repository(repository.path))
        assert await store.pack_beginning(3) is None
        return await store.beginning()

    beginning = asyncio.run(begun())
    store = asyncio.run(restored(tmp_path / "there.git", beginning, {}))
    with pytest.raises(WorkspaceError, match=f"did not store the files of the commit {beginning.commit}"):
        asyncio.run(store.beginning())


def test_the_beginnings_of_two_runs_are_the_same_bytes(tmp_path: Path, repository: GitRepository) -> None:
    repository.commit_files({f"{number}.py": f"x = {number}\n" * number for number in range(1, 40)})

    async def pack(name: str) -> bytes:
        store = GitWorkspaceStore(tmp_path / name, source=await open_repository(repository.path))
        packed = await store.pack_beginning(1024**2)
        assert packed is not None
        return await asyncio.to_thread(packed.read_bytes)

    assert asyncio.run(pack("one.git")) == asyncio.run(pack("two.git"))
