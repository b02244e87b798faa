"""What a repository is called: the same from every clone, another for every other."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from codeloupe.errors import NotARepository, StoreError
from codeloupe.git.identity import find_identity, find_identity_now, read_checkout, same_address
from codeloupe.model.history import RepositoryIdentity
from tests.repository import GitRepository


class Memory:
    """Remembers roots, and how often it was asked and told."""

    def __init__(self) -> None:
        self.roots: dict[bytes, str] = {}
        self.told = 0

    def known_root(self, place: bytes) -> str | None:
        return self.roots.get(place)

    def remember_root(self, place: bytes, root: str) -> None:
        self.told += 1
        self.roots[place] = root


class BrokenMemory:
    def known_root(self, place: bytes) -> str | None:
        raise StoreError("no room")

    def remember_root(self, place: bytes, root: str) -> None:
        raise StoreError("no room")


def identity(path: Path, memory: Memory | BrokenMemory | None = None) -> RepositoryIdentity:
    """Found with an event loop; without one it must be the same."""
    found = asyncio.run(find_identity(path, memory or Memory()))
    assert find_identity_now(path, memory or Memory()) == found
    assert asyncio.run(read_checkout(path, memory or Memory())).identity == found
    return found


def cloned(source: GitRepository, target: Path, *options: str) -> Path:
    source.git("clone", "--quiet", "--template=", *options, source.path.as_uri(), str(target))
    return target


@pytest.fixture
def shop(repository: GitRepository) -> GitRepository:
    for number in range(3):
        repository.write("a.py", f"x = {number}\n")
        repository.commit()
    return repository


def test_a_shallow_clone_goes_by_its_origin_and_is_found_from_a_whole_one(shop: GitRepository, tmp_path: Path) -> None:
    shallow = cloned(shop, tmp_path / "shallow", "--depth=1")
    whole = cloned(shop, tmp_path / "whole")
    saved_under = identity(shallow).names[0]
    assert saved_under.startswith("origin:")
    assert saved_under in identity(whole).names
    assert saved_under not in identity(shop.path).names


def test_before_the_first_commit_the_place_has_to_do_and_is_still_known_after_it(repository: GitRepository) -> None:
    before = identity(repository.path)
    assert [name.partition(":")[0] for name in before.names] == ["path"]
    repository.write("a.py", "")
    repository.commit()
    after = identity(repository.path)
    assert after.names[0] != before.names[0]
    assert before.names[0] in after.names


def test_a_directory_that_is_no_repository_has_a_name_too(tmp_path: Path) -> None:
    assert identity(tmp_path).names == identity(tmp_path / ".").names
    assert identity(tmp_path).label == tmp_path.name
    with pytest.raises(NotARepository):
        identity(tmp_path / "nowhere")


def test_a_password_in_the_address_of_the_origin_is_in_no_name(shop: GitRepository) -> None:
    shop.git("remote", "add", "origin", "https://ada:hunter2@git.example.invalid/shop.git")
    with_password = identity(shop.path).names
    shop.git("remote", "set-url", "origin", "git@git.example.invalid:shop")
    assert identity(shop.path).names == with_password
    assert "hunter2" not in str(with_password)
    assert "example" not in str(with_password)


def test_the_branch_is_told_where_there_is_one(shop: GitRepository, tmp_path: Path) -> None:
    assert asyncio.run(read_checkout(shop.path, Memory())).branch == "main"
    shop.git("checkout", "--quiet", "--detach")
    assert asyncio.run(read_checkout(shop.path, Memory())).branch is None
    assert asyncio.run(read_checkout(tmp_path, Memory())).branch is None


def test_a_repository_goes_by_its_root_commit_wherever_it_lies(shop: GitRepository, tmp_path: Path) -> None:
    found = identity(shop.path)
    root = shop.git("rev-list", "--max-parents=0", "HEAD").decode().strip()
    assert (found.names[0], found.label) == (f"root:{root}", "repository")
    (shop.path / "deep" / "er").mkdir(parents=True)
    shop.git("worktree", "add", "--quiet", "-b", "side", str(tmp_path / "tree"))
    assert identity(shop.path / "deep" / "er").names == found.names == identity(tmp_path / "tree").names
    clone = cloned(shop, tmp_path / "clone")
    assert identity(clone).names[0] == found.names[0]
    shutil.move(clone, tmp_path / "elsewhere")
    assert identity(tmp_path / "elsewhere").names[0] == found.names[0]
    other = GitRepository(tmp_path / "other")
    other.write("b.py", "")
    other.commit("another beginning")
    assert not set(found.names) & set(identity(other.path).names)


def test_merged_histories_go_by_the_root_of_the_first_parents_which_is_walked_to_once(shop: GitRepository) -> None:
    memory = Memory()
    first = identity(shop.path, memory)
    shop.git("checkout", "--quiet", "--orphan", "side")
    shop.commit("another root")
    assert identity(shop.path, memory) == first
    assert memory.told == 1
    assert identity(shop.path).names[0] != first.names[0]
    shop.git("checkout", "--quiet", "main")
    shop.git("merge", "--quiet", "--allow-unrelated-histories", "-s", "ours", "-m", "both", "side")
    assert identity(shop.path) == identity(shop.path, BrokenMemory()) == first
    for wrong in ("f" * 40, "--help", "", "HEAD"):  # what is remembered may be of another repository
        memory.roots = dict.fromkeys(memory.roots, wrong)
        assert identity(shop.path, memory) == first


def test_ways_to_write_one_address() -> None:
    here = ("https://H/t/s", "https://H/t/s.git", "https://H/t/s.git/", "https://ada@H/t/s", "https://ada:p@w@H/t/s")
    for address in (*here, "ssh://git@H:2222/t/s.git", "git@H:t/s.git", "H:t/s", "GIT+SSH://H/t/s"):
        assert same_address(address) == "H/t/s", address
    for address in ("/srv/git/shop.git", "file:///srv/git/shop"):
        assert same_address(address) == "/srv/git/shop"
    for address in ("", "../shop", "shop", "./shop.git", "x/y:z", "https://", ".git"):
        assert same_address(address) is None, address
