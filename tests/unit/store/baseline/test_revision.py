from __future__ import annotations

import asyncio

import pytest

from codeloupe.errors import ConfigError
from codeloupe.model.baseline import BASELINE_NAME, Baseline
from codeloupe.model.change import Scope, ScopeKind
from codeloupe.store.baseline import read_baseline
from tests.repository import GitRepository
from tests.rows import rows


def text(reason: str) -> str:
    return f"version: 1\nentries:\n- fingerprint: {'a' * 32}\n  reason: {reason}\n"


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> tuple[GitRepository, str, str]:
    """A repository with another baseline in the base, the head, the index and the working tree. It is only read."""
    repository = GitRepository(tmp_path_factory.mktemp("history") / "repository")
    (repository.path / "below").mkdir()
    repository.write(BASELINE_NAME, text("of the base"))
    base = repository.commit()
    repository.write(BASELINE_NAME, text("of the head"))
    head = repository.commit()
    repository.write(BASELINE_NAME, text("of the index"))
    repository.git("add", BASELINE_NAME)
    repository.write(BASELINE_NAME, text("of the tree"))
    return repository, base, head


def read(repository: GitRepository, kind: ScopeKind, base: str | None, head: str | None, *, trusted: bool) -> Baseline:
    scope = Scope(kind, base, head, "a change")
    return asyncio.run(read_baseline(scope, repo=repository.path, trusted=trusted))


def test_of_a_trusted_change_it_is_the_reviewed_trees_and_what_the_working_tree_says_holds(
    history: tuple[GitRepository, str, str],
) -> None:
    repository, base, head = history
    for kind in ScopeKind:
        found = read(repository, kind, base, head, trusted=True)
        assert [entry.reason for entry in (*found.entries, *found.also)] == ["of the tree"], kind


def test_an_entry_of_the_reviewed_tree_alone_holds_and_is_not_lost(repository: GitRepository) -> None:
    repository.write(BASELINE_NAME, text("then"))
    then = repository.commit()
    repository.git("rm", "--quiet", BASELINE_NAME)
    now = repository.commit()
    repository.write(BASELINE_NAME, text("new").replace("a" * 32, "b" * 32))
    for sha, kept in ((then, ["then"]), (now, [])):
        found = read(repository, ScopeKind.COMMIT, None, sha, trusted=True)
        assert [entry.reason for entry in found.entries] == kept
        assert [entry.reason for entry in found.also] == ["new"]


@rows("kind", list(ScopeKind))
def test_of_an_untrusted_change_it_is_the_bases(history: tuple[GitRepository, str, str], kind: ScopeKind) -> None:
    repository, base, head = history
    (entry,) = read(repository, kind, base, head, trusted=False).entries
    assert entry.reason == "of the base"


def test_an_untrusted_change_without_a_base_has_none(history: tuple[GitRepository, str, str]) -> None:
    repository, _, head = history
    assert read(repository, ScopeKind.DIFF_FILE, None, None, trusted=False).entries == ()
    assert read(repository, ScopeKind.COMMIT, None, head, trusted=False).entries == ()


def test_without_a_file_it_is_empty(repository: GitRepository) -> None:
    repository.write("a.py", "")
    sha = repository.commit()
    for kind in ScopeKind:
        for trusted in (True, False):
            assert read(repository, kind, sha, sha, trusted=trusted).entries == (), (kind, trusted)


def test_from_a_folder_below_it_is_found_at_the_root(history: tuple[GitRepository, str, str]) -> None:
    repository, base, _ = history
    scope = Scope(ScopeKind.BRANCH, base, None, "")
    assert len(asyncio.run(read_baseline(scope, repo=repository.path / "below", trusted=True)).entries) == 1


def test_a_symbolic_link_in_a_commit_or_an_index_is_no_baseline(repository: GitRepository) -> None:
    repository.write("real", text("x"))
    (repository.path / BASELINE_NAME).symlink_to("real")
    sha = repository.commit()
    (repository.path / BASELINE_NAME).unlink()
    for kind in (ScopeKind.STAGED, ScopeKind.RANGE):
        assert read(repository, kind, sha, sha, trusted=True).entries == ()
        assert read(repository, kind, sha, sha, trusted=False).entries == ()


def test_a_mistake_in_a_revision_is_told_with_the_revision(repository: GitRepository) -> None:
    repository.write(BASELINE_NAME, "version: 1\nentrys: []\n")
    sha = repository.commit()
    with pytest.raises(ConfigError, match=f"{sha[:12]}:{BASELINE_NAME}:2: entrys: unknown key"):
        read(repository, ScopeKind.RANGE, sha, sha, trusted=False)
    with pytest.raises(ConfigError, match=f":{BASELINE_NAME}:2: entrys: unknown key"):
        read(repository, ScopeKind.STAGED, sha, None, trusted=True)
