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
from tests.rows import each


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


def first_commit(repository: GitRepository) -> str:
    return repository.git("rev-list", "--max-parents=0", "HEAD").decode().strip()


def test_a_repository_goes_by_its_root_commit(shop: GitRepository) -> None:
    found = identity(shop.path)
    assert found.names[0] == f"root:{first_commit(shop)}"
    assert found.label == "repository"


def test_a_clone_and_a_moved_clone_have_the_same_first_name(shop: GitRepository, tmp_path: Path) -> None:
    clone = cloned(shop, tmp_path / "clone")
    names = {identity(shop.path).names[0], identity(clone).names[0]}
    shutil.move(clone, tmp_path / "elsewhere")
    names.add(identity(tmp_path / "elsewhere").names[0])
    assert len(names) == 1


def test_another_repository_shares_no_name(shop: GitRepository, tmp_path: Path) -> None:
    other = GitRepository(tmp_path / "other")
    other.write("b.py", "")
    other.commit("another beginning")
    assert not set(identity(shop.path).names) & set(identity(other.path).names)


def test_a_folder_below_and_a_linked_work_tree_are_the_same_repository(shop: GitRepository, tmp_path: Path) -> None:
    (shop.path / "deep" / "er").mkdir(parents=True)
    shop.git("worktree", "add", "--quiet", "-b", "side", str(tmp_path / "tree"))
    assert identity(shop.path / "deep" / "er").names == identity(shop.path).names == identity(tmp_path / "tree").names


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


def test_the_root_is_walked_to_once(shop: GitRepository) -> None:
    memory = Memory()
    first = identity(shop.path, memory)
    shop.checkout("orphan", new=True)
    shop.git("checkout", "--quiet", "--orphan", "pages")
    shop.commit("another root")
    assert identity(shop.path, memory) == first
    assert memory.told == 1
    assert identity(shop.path).names[0] != first.names[0]


@pytest.mark.parametrize("wrong", ["f" * 40, "--help", "", "HEAD"])
def test_what_is_remembered_of_a_place_is_not_believed_of_another_repository(shop: GitRepository, wrong: str) -> None:
    memory = Memory()
    right = identity(shop.path, memory)
    memory.roots = dict.fromkeys(memory.roots, wrong)
    assert identity(shop.path, memory) == right


def test_a_memory_that_fails_costs_nothing_but_time(shop: GitRepository) -> None:
    assert identity(shop.path, BrokenMemory()) == identity(shop.path)


def test_merged_histories_go_by_the_root_of_the_first_parents(shop: GitRepository) -> None:
    before = identity(shop.path)
    shop.git("checkout", "--quiet", "--orphan", "side")
    shop.commit("another root")
    shop.git("checkout", "--quiet", "main")
    shop.git("merge", "--quiet", "--allow-unrelated-histories", "-s", "ours", "-m", "both", "side")
    assert identity(shop.path) == before


def test_the_branch_is_told_where_there_is_one(shop: GitRepository, tmp_path: Path) -> None:
    assert asyncio.run(read_checkout(shop.path, Memory())).branch == "main"
    shop.git("checkout", "--quiet", "--detach")
    assert asyncio.run(read_checkout(shop.path, Memory())).branch is None
    assert asyncio.run(read_checkout(tmp_path, Memory())).branch is None


@each(
    "address",
    [
        "https://git.example.invalid/team/shop",
        "https://git.example.invalid/team/shop.git",
        "https://git.example.invalid/team/shop.git/",
        "https://ada@git.example.invalid/team/shop",
        "https://ada:pass@word@git.example.invalid/team/shop",
        "ssh://git@git.example.invalid:2222/team/shop.git",
        "git@git.example.invalid:team/shop.git",
        "git.example.invalid:team/shop",
        "GIT+SSH://git.example.invalid/team/shop",
    ],
)
def test_ways_to_write_one_address(address: str) -> None:
    assert same_address(address) == "git.example.invalid/team/shop"


@each("address", ["", "../shop", "shop", "./shop.git", "x/y:z", "https://", ".git"])
def test_what_means_something_only_where_it_stands_is_no_address(address: str) -> None:
    assert same_address(address) is None


@each("address", ["/srv/git/shop.git", "file:///srv/git/shop"])
def test_a_path_from_the_root_is_an_address(address: str) -> None:
    assert same_address(address) == "/srv/git/shop"
