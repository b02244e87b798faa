import asyncio
import os
from pathlib import Path

import pytest

from codeloupe.config.schema import Settings
from codeloupe.model.change import GuidanceFile, Intent
from codeloupe.model.finding import Severity
from codeloupe.model.review import SkippedFile, SkipReason
from codeloupe.model.scope import CommitScope, DefaultScope, DiffScope, ScopeRequest, StagedScope, UncommittedScope
from codeloupe.planning.prepare import Prepared, prepare
from codeloupe.planning.settings import configure
from tests.repository import GitRepository
from tests.rows import each

pytestmark = pytest.mark.program

DEFAULTS = Settings()


def _files_below(root: Path) -> dict[str, bytes]:
    files = (Path(folder, name) for folder, _, names in os.walk(root) for name in names)
    return {str(file.relative_to(root)): file.read_bytes() for file in files}


def _take_in(request: ScopeRequest, path: Path, settings: Settings = DEFAULTS) -> tuple[Prepared, dict[str, bytes]]:
    """What was taken in, and what lay in its snapshot; the snapshot is gone afterwards."""

    async def go() -> tuple[Prepared, dict[str, bytes]]:
        async with prepare(request, path, settings) as intake:
            return intake, _files_below(intake.snapshot)

    intake, contents = asyncio.run(go())
    assert not intake.snapshot.exists()
    return intake, contents


def _selected(intake: Prepared) -> list[str]:
    return [file.path for file in intake.selection.files]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> GitRepository:
    """Staged: `a.py`; edited after that: `a.py` and `b.py`; deleted: `c.py`; untracked: `new.py` and an image.

    Each test has a copy.
    """
    repository = GitRepository(tmp_path_factory.mktemp("work") / "repository")
    repository.commit_files(dict.fromkeys(("a.py", "b.py", "c.py"), "old\n"))
    repository.write("a.py", "staged\n")
    repository.git("add", "a.py")
    repository.write("a.py", "edited\n")
    repository.write("b.py", "edited\n")
    repository.remove("c.py")
    repository.write("new.py", "new\n")
    repository.write("image.png", b"\0\1")
    return repository


@pytest.fixture
def edited(work: GitRepository, tmp_path: Path) -> GitRepository:
    return work.copied_to(tmp_path / "repository")


def test_the_snapshot_holds_the_selected_files_of_the_working_tree(edited: GitRepository) -> None:
    intake, contents = _take_in(UncommittedScope(), edited.path)
    assert _selected(intake) == ["a.py", "b.py", "c.py", "new.py"]
    assert contents == {"a.py": b"edited\n", "b.py": b"edited\n", "new.py": b"new\n"}
    assert intake.selection.skipped == (SkippedFile("image.png", SkipReason.BINARY, "neither text nor a known format"),)
    assert intake.without_content == frozenset()


def test_the_snapshot_of_an_index_or_a_commit_is_its_own_and_the_base_branch_is_that_of_the_settings(
    edited: GitRepository,
) -> None:
    intake, contents = _take_in(StagedScope(), edited.path)
    assert (_selected(intake), contents) == (["a.py"], {"a.py": b"staged\n"})
    intake, contents = _take_in(CommitScope("HEAD"), edited.path)
    assert _selected(intake) == ["a.py", "b.py", "c.py"]
    assert contents == dict.fromkeys(("a.py", "b.py", "c.py"), b"old\n")
    edited.branch("release")
    intake, _ = _take_in(DefaultScope(), edited.path, Settings(base_branch="release"))
    assert "against release" in intake.change.scope.description


def test_a_diff_is_completed_from_its_repository_and_elsewhere_what_is_unknown_is_named(
    edited: GitRepository, tmp_path: Path
) -> None:
    first = edited.git("diff", "--", "a.py")
    edited.git("add", "--all")
    data = edited.git("diff", "--cached")
    edited.git("reset", "--quiet", "--hard")
    intake, contents = _take_in(DiffScope("change.diff", data), edited.path)
    assert intake.change.scope.description == "the diff change.diff"
    assert _selected(intake) == ["a.py", "b.py", "c.py", "new.py"]
    assert contents == {"a.py": b"edited\n", "b.py": b"edited\n", "new.py": b"new\n"}
    assert intake.without_content == frozenset()
    (tmp_path / "elsewhere").mkdir()
    intake, contents = _take_in(DiffScope("-", data), tmp_path / "elsewhere")
    assert _selected(intake) == ["a.py", "b.py", "c.py", "new.py"]
    assert contents == {"new.py": b"new\n"}
    assert intake.without_content == {"a.py", "b.py"}
    # Several diffs of one file have no single new content.
    intake, contents = _take_in(DiffScope("-", first + first), edited.path)
    assert contents == {}
    assert intake.without_content == {"a.py"}


def test_a_diff_that_names_git_s_own_folder_writes_nothing_there(tmp_path: Path) -> None:
    header = "diff --git a/{0} b/{0}\nnew file mode 100644\n--- /dev/null\n+++ b/{0}\n@@ -0,0 +1 @@\n+x\n"
    names = (".git/config", "sub/.GIT/hooks/x.py", "clash.py", "clash.py/below.py", "deep/" * 300 + "x.py", "good.py")
    data = "".join(header.format(name) for name in names).encode()
    intake, contents = _take_in(DiffScope("-", data), tmp_path)
    assert contents == {"clash.py": b"x\n", "good.py": b"x\n"}
    assert intake.without_content == set(names) - {"clash.py", "good.py"}


def test_a_strangers_checkout_without_anything_under_review_is_not_believed_and_needs_no_base(
    repository: GitRepository, tmp_path: Path
) -> None:
    def configured(repo: Path) -> Settings:
        fork = {"CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "2", "CI_MERGE_REQUEST_PROJECT_ID": "1"}
        return asyncio.run(configure(None, repo=repo, environment=fork, flags={})).settings

    repository.commit_files({"codeloupe.yaml": "fail_on: low\n"})
    repository.commit_files({"codeloupe.yaml": "fail_on: critical\nuntrusted: false\n"}, branch="topic")
    assert configured(repository.path).fail_on is Severity.LOW
    # As a job checks a fork out: one commit, no branch.
    repository.git("checkout", "--quiet", "--detach")
    repository.git("branch", "--quiet", "-D", "main", "topic")
    assert configured(repository.path).fail_on is Severity.HIGH
    assert configured(tmp_path).untrusted


def _with_everything(request: ScopeRequest, path: Path, *, trusted: bool = True) -> tuple[Prepared, dict[str, bytes]]:
    """What was taken in with tree, guidance and context, and the files of the tree."""

    async def go() -> tuple[Prepared, dict[str, bytes]]:
        settings = Settings(untrusted=not trusted)
        async with prepare(request, path, settings, with_tree=True, context="ticket 7", with_guidance=True) as intake:
            files = {} if intake.tree is None else _files_below(intake.tree)
            return intake, {name: content for name, content in files.items() if not name.startswith(".git/")}

    return asyncio.run(go())


@pytest.fixture(scope="module")
def guided(work: GitRepository, tmp_path_factory: pytest.TempPathFactory) -> GitRepository:
    """As `work`, with guidance that was committed before it was edited, and an ignored file."""
    edited = work.copied_to(tmp_path_factory.mktemp("guided") / "repository")
    edited.git("stash", "--quiet", "--include-untracked")
    edited.commit_files({"AGENTS.md": "committed", ".gitignore": "ignored.py\n"}, "Guide\n\nThe reason.")
    edited.git("stash", "pop", "--quiet", "--index")
    edited.write("AGENTS.md", "edited")
    edited.write("ignored.py", "ignored\n")
    return edited


def test_the_user_s_own_working_tree_is_read_as_it_is_when_it_is_asked_for(guided: GitRepository) -> None:
    intake, _ = _take_in(UncommittedScope(), guided.path)
    assert (intake.tree, intake.intent, intake.guidance) == (None, Intent(), ())
    intake, _ = _with_everything(UncommittedScope(), guided.path)
    assert intake.tree == guided.path
    assert intake.snapshot != guided.path
    assert intake.guidance == (GuidanceFile("AGENTS.md", "edited"),)
    assert intake.intent == Intent(context="ticket 7")
    assert guided.path.exists()


def test_an_untrusted_working_tree_is_read_in_a_copy(guided: GitRepository) -> None:
    intake, tree = _with_everything(UncommittedScope(), guided.path, trusted=False)
    assert intake.tree == intake.snapshot
    assert sorted(tree) == [".gitignore", "AGENTS.md", "a.py", "b.py", "image.png", "new.py"]
    assert tree["a.py"] == b"edited\n"
    assert intake.guidance == (GuidanceFile("AGENTS.md", "committed"),)
    assert not intake.snapshot.exists()


@each("trusted", [True, False])
@each(("request_", "content"), [(StagedScope(), b"staged\n"), (CommitScope("HEAD"), b"old\n")])
def test_the_tree_of_an_index_or_a_commit_is_exported_once(
    guided: GitRepository, request_: ScopeRequest, content: bytes, trusted: bool
) -> None:
    intake, tree = _with_everything(request_, guided.path, trusted=trusted)
    assert intake.tree == intake.snapshot
    assert sorted(tree) == [".gitignore", "AGENTS.md", "a.py", "b.py", "c.py"]
    assert tree["a.py"] == content
    assert not intake.snapshot.exists()


def test_a_diff_has_no_tree_and_guidance_only_when_it_is_trusted(guided: GitRepository, tmp_path: Path) -> None:
    request = DiffScope("-", guided.git("diff"))
    intake, _ = _with_everything(request, guided.path)
    assert (intake.tree, intake.intent) == (None, Intent(context="ticket 7"))
    assert intake.guidance == (GuidanceFile("AGENTS.md", "edited"),)
    assert _with_everything(request, guided.path, trusted=False)[0].guidance == ()
    assert _with_everything(request, tmp_path)[0].guidance == ()
