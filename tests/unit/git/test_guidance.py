from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from codeloupe.git.guidance import guidance_changed, read_guidance, read_intent
from codeloupe.git.repository import open_repository
from codeloupe.git.scopes import resolve_scope
from codeloupe.model.change import Change, FileChange, FileStatus, GuidanceFile, Intent, Scope, ScopeKind
from codeloupe.model.scope import (
    BaseScope,
    CommitScope,
    DefaultScope,
    RangeScope,
    ScopeRequest,
    StagedScope,
    UncommittedScope,
)
from tests.repository import GitRepository

LINK = "it is a symbolic link, and those are not followed"


def _read(
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
    repository.write("AGENTS.md", "base\n")
    repository.commit()
    repository.write("AGENTS.md", "commit\n")
    repository.commit()
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
    assert _read(guided, request_, "a.py", trusted=trusted) == (GuidanceFile("AGENTS.md", text),)


@pytest.mark.parametrize("request_", [CommitScope("HEAD"), UncommittedScope()])
def test_it_is_read_at_the_root_and_on_the_way_down_to_a_file(
    repository: GitRepository, request_: ScopeRequest
) -> None:
    for name in (
        "REVIEW.md",
        "CLAUDE.md",
        "a/AGENTS.md",
        "a/b/REVIEW.md",
        "a/c/REVIEW.md",
        "x/AGENTS.md",
        "a/README.md",
    ):
        repository.write(name, name)
    repository.commit()
    found = _read(repository, request_, "a/b/file.py", "a/file.py")
    assert [one.path for one in found] == ["REVIEW.md", "CLAUDE.md", "a/AGENTS.md", "a/b/REVIEW.md"]
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
    repository.write("REVIEW.md/inner", "x")
    repository.write("agents.md", "x")
    repository.commit()
    found = _read(repository, request_, "folder/a.py", "REVIEW.md/inner")
    assert {one.path: one.unused for one in found} == dict.fromkeys(("AGENTS.md", "CLAUDE.md"), LINK)
    assert not any(one.text for one in found)


@pytest.mark.parametrize("request_", [CommitScope("HEAD"), UncommittedScope()])
def test_of_an_enormous_file_little_or_nothing_is_read(repository: GitRepository, request_: ScopeRequest) -> None:
    repository.write("AGENTS.md", "a" * 2_000_000)
    repository.write("CLAUDE.md", "c" * 20_000)
    repository.commit()
    agents, claude = _read(repository, request_, "a.py")
    assert len(agents.text) <= 16_000
    assert claude.text == "c" * 16_000


def test_text_that_is_not_utf_8_a_mark_at_its_start_and_a_pipe_do_no_harm(repository: GitRepository) -> None:
    repository.write("AGENTS.md", b"\xef\xbb\xbfcaf\xe9")
    repository.write("CLAUDE.md", b"")
    repository.commit()
    texts = [one.text for one in _read(repository, CommitScope("HEAD"), "a.py")]
    assert texts == ["caf\ufffd", ""]
    # A root commit has no guidance to believe.
    assert _read(repository, CommitScope("HEAD"), "a.py", trusted=False) == ()
    for name in ("AGENTS.md", "CLAUDE.md"):
        repository.remove(name)
        os.mkfifo(repository.path / name)
    assert _read(repository, UncommittedScope(), "a.py") == ()


@pytest.mark.parametrize("request_", [CommitScope("HEAD"), StagedScope(), UncommittedScope()])
def test_odd_paths_do_no_harm(repository: GitRepository, request_: ScopeRequest) -> None:
    repository.write("AGENTS.md", "x")
    repository.commit()
    odd = ("../outside/a.py", "a//b.py", ".git/a.py", "*/a.py", "-x/a.py", "caf\udce9/a.py")
    assert [one.path for one in _read(repository, request_, *odd)] == ["AGENTS.md"]
    assert [one.path for one in _read(repository, request_, odd[0])] == ["AGENTS.md"]


def test_a_great_many_folders_are_read_in_a_moment(repository: GitRepository) -> None:
    names = [f"folder{number}/AGENTS.md" for number in range(300)]
    for name in names:
        repository.write(name, name)
    repository.commit()
    paths = [*(f"folder{number}/a.py" for number in range(9_000)), "deep/" * 1_000 + "a.py"]
    for request in (CommitScope("HEAD"), UncommittedScope()):
        assert len(_read(repository, request, *paths)) == 200


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
    assert guidance_changed(Change(scope, files)) == (
        "sub/CLAUDE.md",
        "REVIEW.md",
        "codeloupe.yaml",
        "codeloupe-baseline.yaml",
    )


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


def test_merges_are_told_only_when_one_is_asked_for(branched: GitRepository) -> None:
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
