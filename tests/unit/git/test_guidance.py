import asyncio
import os
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from codeloupe.errors import NotARepository, StoreError
from codeloupe.git import identity as names_of_repositories
from codeloupe.git.guidance import guidance_changed, read_guidance, read_intent
from codeloupe.git.identity import find_identity, read_checkout, same_address
from codeloupe.git.repository import open_repository
from codeloupe.git.scopes import resolve_scope
from codeloupe.model.change import Change, FileChange, FileStatus, GuidanceFile, Intent, Scope, ScopeKind
from codeloupe.model.history import RepositoryIdentity
from codeloupe.model.scope import (
    BaseScope,
    CommitScope,
    DefaultScope,
    RangeScope,
    ScopeRequest,
    StagedScope,
    UncommittedScope,
)
from tests.identity_memory import Memory
from tests.repository import GitRepository

LINK = "symbolic links are not followed"


def _read_guidance(
    repository: GitRepository, request: ScopeRequest, *paths: str, trusted: bool = True
) -> tuple[GuidanceFile, ...]:
    async def go() -> tuple[GuidanceFile, ...]:
        opened = await open_repository(repository.path)
        sides = await resolve_scope(opened, request, base_branch=None)
        return await read_guidance(opened, sides, paths, trusted=trusted)

    return asyncio.run(go())


@pytest.fixture
def guided(repository: GitRepository) -> GitRepository:
    """AGENTS.md says where it stands: at the base, in the commit, in the index, in the working tree."""
    repository.commit_files({"AGENTS.md": "base\n"})
    repository.commit_files({"AGENTS.md": "commit\n"})
    repository.write("AGENTS.md", "index\n")
    repository.git("add", "AGENTS.md")
    repository.write("AGENTS.md", "tree\n")
    return repository


@pytest.mark.parametrize(
    ("request_", "trusted", "text"),
    [
        (CommitScope("HEAD"), True, "commit\n"),
        (CommitScope("HEAD"), False, "base\n"),
        (StagedScope(), True, "index\n"),
        (StagedScope(), False, "commit\n"),
        (UncommittedScope(), True, "tree\n"),
        (UncommittedScope(), False, "commit\n"),
    ],
)
def test_guidance_comes_from_the_reviewed_tree_or_for_an_untrusted_change_from_its_base(
    guided: GitRepository, request_: ScopeRequest, trusted: bool, text: str
) -> None:
    assert _read_guidance(guided, request_, "a.py", trusted=trusted) == (GuidanceFile("AGENTS.md", text),)


@pytest.mark.parametrize("request_", [CommitScope("HEAD"), UncommittedScope()])
def test_it_is_read_at_the_root_and_on_the_way_down_to_a_file(
    repository: GitRepository, request_: ScopeRequest
) -> None:
    read, others = (
        ["REVIEW.md", "CLAUDE.md", "a/AGENTS.md", "a/b/REVIEW.md"],
        ["a/c/REVIEW.md", "x/AGENTS.md", "a/README.md"],
    )
    repository.commit_files({name: name for name in read + others})
    found = _read_guidance(repository, request_, "a/b/file.py", "a/file.py")
    assert [one.path for one in found] == read
    assert all(one.text == one.path for one in found)


@pytest.mark.parametrize("request_", [CommitScope("HEAD"), StagedScope(), UncommittedScope()])
def test_links_and_folders_and_other_spellings_are_not_guidance(
    repository: GitRepository, tmp_path: Path, request_: ScopeRequest
) -> None:
    secret = tmp_path / "outside"
    (secret / "linked").mkdir(parents=True)
    (secret / "AGENTS.md").write_text("outside")
    repository.write("real.md", "real")
    (repository.path / "AGENTS.md").symlink_to("real.md")
    (repository.path / "CLAUDE.md").symlink_to(secret / "AGENTS.md")
    (repository.path / "folder").symlink_to(secret)
    repository.commit_files({"REVIEW.md/inner": "x", "agents.md": "x"})
    found = _read_guidance(repository, request_, "folder/a.py", "REVIEW.md/inner")
    assert {one.path: one.unused for one in found} == dict.fromkeys(("AGENTS.md", "CLAUDE.md"), LINK)
    assert not any(one.text for one in found)


@pytest.mark.parametrize("request_", [CommitScope("HEAD"), UncommittedScope()])
def test_of_an_enormous_file_little_or_nothing_is_read(repository: GitRepository, request_: ScopeRequest) -> None:
    repository.commit_files({"AGENTS.md": "a" * 2_000_000, "CLAUDE.md": "c" * 20_000})
    agents, claude = _read_guidance(repository, request_, "a.py")
    assert len(agents.text) <= 16_000
    assert claude.text == "c" * 16_000


def test_text_that_is_not_utf_8_a_mark_at_its_start_and_a_pipe_do_no_harm(repository: GitRepository) -> None:
    repository.commit_files({"AGENTS.md": b"\xef\xbb\xbfcaf\xe9", "CLAUDE.md": b""})
    texts = [one.text for one in _read_guidance(repository, CommitScope("HEAD"), "a.py")]
    assert texts == ["caf\ufffd", ""]
    # A root commit has no guidance to believe.
    assert _read_guidance(repository, CommitScope("HEAD"), "a.py", trusted=False) == ()
    for name in ("AGENTS.md", "CLAUDE.md"):
        repository.remove(name)
        os.mkfifo(repository.path / name)
    assert _read_guidance(repository, UncommittedScope(), "a.py") == ()


@pytest.mark.parametrize("request_", [CommitScope("HEAD"), StagedScope(), UncommittedScope()])
def test_odd_paths_do_no_harm(repository: GitRepository, request_: ScopeRequest) -> None:
    repository.commit_files({"AGENTS.md": "x"})
    odd = ("../outside/a.py", "a//b.py", ".git/a.py", "*/a.py", "-x/a.py", "caf\udce9/a.py")
    assert [one.path for one in _read_guidance(repository, request_, *odd)] == ["AGENTS.md"]
    assert [one.path for one in _read_guidance(repository, request_, odd[0])] == ["AGENTS.md"]


def test_a_great_many_folders_are_read_in_a_moment(repository: GitRepository) -> None:
    names = [f"folder{number}/AGENTS.md" for number in range(300)]
    repository.commit_files({name: name for name in names})
    paths = [*(f"folder{number}/a.py" for number in range(9_000)), "deep/" * 1_000 + "a.py"]
    for request in (CommitScope("HEAD"), UncommittedScope()):
        assert len(_read_guidance(repository, request, *paths)) == 200


def test_a_change_to_what_steers_a_review_is_noticed_on_both_sides_of_a_rename() -> None:
    scope = Scope(ScopeKind.RANGE, "a" * 40, "b" * 40, "a..b")
    files = (
        FileChange("a.py", "a.py", FileStatus.MODIFIED),
        FileChange("sub/CLAUDE.md", "notes.md", FileStatus.RENAMED),
        FileChange(None, "REVIEW.md", FileStatus.ADDED),
        FileChange("codeloupe.yaml", None, FileStatus.DELETED),
        FileChange("codeloupe-baseline.yaml", "codeloupe-baseline.yaml", FileStatus.MODIFIED),
        FileChange("AGENTS.md.txt", "AGENTS.md.txt", FileStatus.MODIFIED),
    )
    steering = ("sub/CLAUDE.md", "REVIEW.md", "codeloupe.yaml", "codeloupe-baseline.yaml")
    assert guidance_changed(Change(scope, files)) == steering


def _read_intent(repository: GitRepository, request: ScopeRequest, context: str = "") -> Intent:
    async def go() -> Intent:
        opened = await open_repository(repository.path)
        sides = await resolve_scope(opened, request, base_branch=None)
        return await read_intent(opened, sides, context=context)

    return asyncio.run(go())


@pytest.fixture
def branched(repository: GitRepository) -> GitRepository:
    repository.commit("Begin\n\nThe base.")
    repository.checkout("feature/x", new=True)
    repository.commit("Add x\n\nSince y needs it.\n\nSigned-off-by: Ada Example <ada@example.invalid>\n")
    repository.commit("Mend x")
    return repository


def test_every_scope_has_the_messages_of_its_commits(branched: GitRepository) -> None:
    intent = Intent(title="feature/x", messages=("Mend x", "Add x\n\nSince y needs it."))
    assert _read_intent(branched, DefaultScope()) == intent
    assert _read_intent(branched, BaseScope("main")) == intent
    assert _read_intent(branched, CommitScope("HEAD~1")) == Intent(title="Add x", messages=("Since y needs it.",))
    assert _read_intent(branched, CommitScope("HEAD")) == Intent(title="Mend x")
    assert _read_intent(branched, CommitScope("main")) == Intent(title="Begin", messages=("The base.",))
    assert _read_intent(branched, RangeScope("main..HEAD")).messages == intent.messages
    assert _read_intent(branched, RangeScope("HEAD~1..HEAD")) == Intent(title="Mend x")
    assert _read_intent(branched, RangeScope("HEAD..HEAD")) == Intent()
    for request in (StagedScope(), UncommittedScope()):
        assert _read_intent(branched, request, "ticket 7") == Intent(context="ticket 7")
    # Merges are told only when one is asked for.
    branched.checkout("main")
    branched.commit("Elsewhere")
    branched.checkout("feature/x")
    branched.git("merge", "--quiet", "--no-ff", "-m", "Merge main", "main")
    assert "Merge main" not in _read_intent(branched, BaseScope("main")).messages
    assert _read_intent(branched, CommitScope("HEAD")).title == "Merge main"


def test_trailers_that_name_people_are_left_out_and_others_stay(repository: GitRepository) -> None:
    repository.commit(
        "Subject\n\nWhy: because.\nFixes: #12\nCo-Authored-By: Ada Example <ada@example.invalid>\n"
        "Reviewed-by: Ada Example\nChange-Id: I0\nCc: ada@example.invalid\n"
    )
    assert _read_intent(repository, CommitScope("HEAD")).messages == ("Why: because.\nFixes: #12",)


def identity(path: Path, memory: Any = None) -> RepositoryIdentity:
    """Found alone; with what is checked out it must be the same."""
    found = asyncio.run(find_identity(path, memory or Memory()))
    assert asyncio.run(read_checkout(path, memory or Memory())).identity == found
    return found


def cloned(source: GitRepository, target: Path, *options: str) -> Path:
    source.git("clone", "--quiet", "--template=", *options, source.path.as_uri(), str(target))
    return target


@pytest.fixture
def shop(repository: GitRepository) -> GitRepository:
    for number in range(3):
        repository.commit_files({"a.py": f"x = {number}\n"})
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
    repository.commit_files({"a.py": ""})
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
    assert (found.names[0], found.label) == (f"commit:{root}", "repository")
    (shop.path / "deep" / "er").mkdir(parents=True)
    shop.git("worktree", "add", "--quiet", "-b", "side", str(tmp_path / "tree"))
    assert identity(shop.path / "deep" / "er").names == found.names == identity(tmp_path / "tree").names
    clone = cloned(shop, tmp_path / "clone")
    assert identity(clone).names[0] == found.names[0]
    shutil.move(clone, tmp_path / "elsewhere")
    assert identity(tmp_path / "elsewhere").names[0] == found.names[0]
    other = GitRepository(tmp_path / "other")
    other.commit_files({"b.py": ""}, "another beginning")
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
    broken = Mock()
    for name in ("commit_of", "remember_commit", "known_commits"):
        broken.configure_mock(**{f"{name}.side_effect": StoreError("no room")})
    assert identity(shop.path) == identity(shop.path, broken) == first
    for wrong in ("f" * 40, "--help", "", "HEAD"):  # what is remembered may be of another repository
        memory.commits = dict.fromkeys(memory.commits, wrong)
        assert identity(shop.path, memory) == first


def test_git_walks_only_part_of_a_long_history_for_the_name(
    shop: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names_of_repositories, "_MOST_SEARCHED", 6)
    monkeypatch.setattr(names_of_repositories, "_STEPS_BACK", 2)
    for number in range(3, 10):
        shop.commit_files({"a.py": f"x = {number}\n"})
    named = shop.git("rev-parse", "HEAD~2").decode().strip()
    first = identity(shop.path)
    assert first.names[0] == f"commit:{named}"
    # A clone that is ahead, and a fork that is behind, have the commit too.
    for number in range(3):
        shop.commit_files({"b.py": f"x = {number}\n"})
    clone = cloned(shop, tmp_path / "clone")
    assert identity(clone, Memory(named)).names[0] == first.names[0]
    shop.git("reset", "--quiet", "--hard", named)
    assert identity(shop.path, Memory(named)).names[0] == first.names[0]
    # Nothing further back is looked at.
    early = shop.git("rev-parse", "HEAD~7").decode().strip()
    assert identity(shop.path, Memory(early)).names[0] != f"commit:{early}"


def test_a_project_keeps_its_name_when_its_template_becomes_known(shop: GitRepository) -> None:
    root = shop.git("rev-parse", "HEAD~2").decode().strip()
    own = shop.git("rev-parse", "HEAD~1").decode().strip()
    assert identity(shop.path, Memory(own, root)).names[0] == f"commit:{own}"
    # A project that is not known yet counts as a fork.
    assert identity(shop.path, Memory(root)).names[0] == f"commit:{root}"


def test_ways_to_write_one_address() -> None:
    here = ("https://H/t/s", "https://H/t/s.git", "https://H/t/s.git/", "https://ada@H/t/s", "https://ada:p@w@H/t/s")
    for address in (*here, "ssh://git@H:2222/t/s.git", "git@H:t/s.git", "H:t/s", "GIT+SSH://H/t/s"):
        assert same_address(address) == "H/t/s", address
    for address in ("/srv/git/shop.git", "file:///srv/git/shop"):
        assert same_address(address) == "/srv/git/shop"
    for address in ("", "../shop", "shop", "./shop.git", "x/y:z", "https://", ".git"):
        assert same_address(address) is None, address
