"""Workspaces: what is kept of one comes back byte for byte, and nothing that an agent left in it counts."""

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from codeloupe.errors import WorkspaceError
from codeloupe.git import workspaces
from codeloupe.git.command import Place, git
from codeloupe.git.repository import open_repository
from codeloupe.git.workspaces import GitWorkspaceStore, KeptTree
from codeloupe.system.directories import remove_tree
from codeloupe.system.process import Completed
from tests.repository import GitRepository
from tests.rows import each
from tests.stage_workspaces import fill, held, make_deep, make_socket, run_bound, sparse

pytestmark = pytest.mark.program

LEAVES = "a link that points outside the workspace"
LINES = "".join(f"line {number}\n" for number in range(30))
NAMES_OF_TEN = "00, 01, 02, 03, 04, 05, 06, 07, 08, 09"
Files = Mapping[str, str | bytes | None]


class Run:
    """A run with one workspace; with a repository, it begins with that."""

    def __init__(self, directory: Path, repository: GitRepository | None = None, **limits: Any) -> None:
        source = asyncio.run(open_repository(repository.path)) if repository else None
        self.store = GitWorkspaceStore(directory / "store.git", source=source, **limits)
        self.objects = directory / "store.git" / "objects"
        self.other = directory / "other"
        self.work = directory / "work"
        self.work.mkdir(parents=True)

    def begin(self) -> str:
        return self.put(asyncio.run(self.store.beginning()).tree, self.work)

    def put(self, tree: str, directory: Path) -> str:
        asyncio.run(self.store.put(tree, directory))
        return tree

    def keep(self, files: Mapping[str, str | bytes] | None = None) -> KeptTree:
        fill(self.work, files or {})
        return asyncio.run(self.store.keep(self.work))

    def elsewhere(self, tree: str) -> dict[bytes, tuple[bytes, bool] | bytes]:
        """What a tree makes of another directory."""
        self.put(tree, self.other)
        return held(self.other)

    def changed(self, before: str, after: str) -> tuple[str, ...]:
        return asyncio.run(self.store.changed(before, after))

    def git(self, *words: str) -> str:
        """What a plain git tells an agent in the workspace."""
        environment = {"PATH": os.environ["PATH"], "HOME": os.devnull}
        done = subprocess.run(("git", *words), cwd=self.work, env=environment, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run")


class TestKeepAndPut:
    def test_whatever_else_was_there_is_gone(self, run: Run, tmp_path: Path) -> None:
        tree = run.keep({"a": "1"}).tree
        outside = fill(tmp_path / "outside", {"precious": "gold"})
        fill(run.work, {"b/c/d": "2", "a": "changed"})
        (run.work / "b" / "out").symlink_to(outside)
        os.link(outside / "precious", run.work / "hard-link")
        (run.work / "closed").mkdir(mode=0o000)
        make_deep(run.work, 1_050, name="deep")
        os.mkfifo(run.work / "pipe")
        make_socket(run.work / "socket")
        run.put(tree, run.work)
        assert [entry.name for entry in run.work.iterdir()] == ["a"]
        assert held(run.work) == {b"a": (b"1", False)}
        file, link, pipe = (tmp_path / name for name in ("file", "link", "pipe"))
        file.touch()
        link.symlink_to(outside)
        os.mkfifo(pipe)
        for place in (file, link, pipe):
            run.put(tree, place)
            assert not place.is_symlink()
            assert held(place) == {b"a": (b"1", False)}
        assert held(outside) == {b"precious": (b"gold", False)}

    def test_more_than_has_room_at_once_is_kept_in_parts(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(workspaces, "_MOST_PENDING_BYTES", 10_000)
        kept = run.keep({f"{number}": os.urandom(4_000) for number in range(20)})
        assert len(list((run.objects / "pack").glob("*.pack"))) > 3
        assert run.elsewhere(kept.tree) == held(run.work)

    def test_the_store_itself_is_never_emptied(self, run: Run) -> None:
        tree, store = asyncio.run(run.store.beginning()).tree, run.objects.parent
        for place in (store, store.parent, run.objects, run.objects / ".." / ".." / "store.git"):
            with pytest.raises(WorkspaceError, match="that would delete"):
                run.put(tree, place)
            assert (store / "HEAD").is_file()

    def test_several_workspaces_at_once_do_not_meet(self, run: Run, tmp_path: Path) -> None:
        async def work_in(number: int) -> bool:
            place, copy = tmp_path / f"stage{number}", tmp_path / f"copy{number}"
            await run.store.put((await run.store.beginning()).tree, place)
            fill(place, {f"{name}": f"{number * name}" for name in range(20)})
            kept, again = await asyncio.gather(run.store.keep(place), run.store.keep(place))
            await run.store.put(kept.tree, copy)
            return kept == again and held(place) == held(copy)

        async def all_of_them() -> list[bool]:
            return await asyncio.gather(*(work_in(number) for number in range(6)))

        assert all(asyncio.run(all_of_them()))

    @each("moment", ["read-tree", "checkout-index"])
    def test_a_put_that_was_cancelled_leaves_a_workspace_that_the_next_one_fills(
        self, run: Run, monkeypatch: pytest.MonkeyPatch, moment: str
    ) -> None:
        async def cancelled(place: Place, *words: str) -> bytes:
            if words[0] == moment and (task := asyncio.current_task()):
                fill(run.other, {"half": "done"})
                task.cancel()
            return await git(place, *words)

        tree = run.keep({"a": "1", "b/c": "2"}).tree
        with monkeypatch.context() as patch:
            patch.setattr(workspaces, "git", cancelled)
            with pytest.raises(asyncio.CancelledError):
                run.put(tree, run.other)
        assert run.elsewhere(tree) == held(run.work)


class TestLeftOut:
    def test_what_cannot_be_kept_is_left_out_with_a_reason(self, run: Run, tmp_path: Path) -> None:
        outside = fill(tmp_path / "outside", {"secret": "s"})
        fill(run.work, {"good": "1", "sub/good": "2"})
        links = {"absolute": f"{outside}/secret", "relative": "../../outside/secret", "folder": "../../outside"}
        links |= {"sub/hop": "../folder/secret", "nowhere": "../../../nowhere", ".gitmodules": "good"}
        for name, target in links.items():
            (run.work / name).symlink_to(target)
        os.mkfifo(run.work / "sub" / "pipe")
        make_socket(run.work / "sub" / "socket")
        sparse(run.work / "huge", 50 * 1024**2 + 1)
        kept = run.keep()
        assert kept.left_out == {
            **dict.fromkeys(links, LEAVES),
            ".gitmodules": "a link named .gitmodules, which git rejects",
            "sub/pipe": "a pipe",
            "sub/socket": "a socket",
            "huge": "a file of 52,428,801 bytes, more than the limit of 52,428,800",
        }
        assert run.elsewhere(kept.tree) == {b"good": (b"1", False), b"sub/good": (b"2", False)}

    def test_files_and_folders_that_may_not_be_read_are_left_out_and_stay(self, run: Run) -> None:
        run.keep({"a": "1", "closed/b": "2", "open": "3"})
        fill(run.work, {"a": "changed", "closed/c": "new"})
        (run.work / "a").chmod(0o000)
        (run.work / "closed").chmod(0o000)
        code = """
import asyncio, json, sys
from pathlib import Path
from codeloupe.git.workspaces import GitWorkspaceStore
kept = asyncio.run(GitWorkspaceStore(Path(sys.argv[1]), source=None).keep(Path(sys.argv[2])))
print(json.dumps([kept.tree, dict(kept.left_out)]))
"""
        tree, left_out = json.loads(run_bound(code, run.objects.parent, run.work))
        reason = "that cannot be read: permission denied"
        assert left_out == {"a": f"a file {reason}", "closed": f"a folder {reason}"}
        assert run.elsewhere(tree) == {b"a": (b"1", False), b"closed/b": (b"2", False), b"open": (b"3", False)}

    def test_nested_repositories_are_kept_without_what_is_gits(self, run: Run) -> None:
        subprocess.run(("git", "init", "--quiet", str(run.work / "sub")), check=True, env={"PATH": os.environ["PATH"]})
        fill(run.work, {"sub/file": "1", "other/.GIT": "gitdir: elsewhere", ".git/config": "[core]", ".hg/x": "2"})
        kept = run.keep({".Git": "1"})
        assert run.elsewhere(kept.tree) == {b"sub/file": (b"1", False)}
        own = dict.fromkeys(("sub/.git", "other/.GIT", ".git", ".Git"), "git's own directory, which is never stored")
        assert kept.left_out == {**own, ".hg": "a folder of version control"}

    def test_an_old_file_stays_where_its_successor_cannot_be_kept(self, run: Run) -> None:
        run.keep({"a": "1", "b": "2", "folder/c": "3", "gone": "4"})
        for name in ("a", "b", "gone", "folder/c"):
            (run.work / name).unlink()
        (run.work / "a").symlink_to("/")
        sparse(run.work / "b", 60 * 1024**2)
        (run.work / "folder").rmdir()
        os.mkfifo(run.work / "folder")
        kept = run.keep()
        assert set(kept.left_out) == {"a", "b", "folder"}
        assert run.elsewhere(kept.tree) == {b"a": (b"1", False), b"b": (b"2", False), b"folder/c": (b"3", False)}

    def test_what_is_very_deep_or_has_too_long_a_path_is_left_out(self, run: Run) -> None:
        make_deep(run.work, 210)
        make_deep(run.work, 17, name="d" * 200)
        deepest = run.work.joinpath(*["d" * 200] * 17)
        fill(deepest, {"f" * 100: "1", "f": "1"})
        kept = run.keep({"good": "1"})
        assert set(kept.left_out.values()) == {"a path that is too long, or more than 200 folders deep"}
        assert len(kept.left_out) == 2
        files = (f"{deepest.relative_to(run.work)}/f", "good")
        assert run.changed(asyncio.run(run.store.beginning()).tree, kept.tree) == files

    def test_too_much_that_is_new_is_refused(self, tmp_path: Path) -> None:
        run = Run(tmp_path, max_files=3, max_total_bytes=1000)
        tree = run.keep({str(number): "" for number in range(3)}).tree
        assert run.keep({"3": ""}).tree != tree  # what was kept before does not count
        fill(run.work, {f"more{number}": "" for number in range(4)})
        with pytest.raises(WorkspaceError, match="more than 3 new files") as caught:
            run.keep()
        assert "installed packages" in caught.value.hint
        run.put(tree, run.work)
        with pytest.raises(WorkspaceError, match="more than 1,000 bytes"):
            run.keep({"a": "x" * 600, "b": "x" * 600})


class TestComparison:
    def test_what_is_no_tree_is_refused_and_what_is_remembered_may_be_damaged(self, run: Run) -> None:
        kept = run.keep({"a": "1"}).tree
        for text in ("nonsense", "7" * 40):
            for look in (run.objects.parent / "looks").iterdir():
                look.write_text(text)
            assert run.keep().tree == kept
        for name in ("", "HEAD", "--all", "x" * 40, "0" * 40):
            with pytest.raises(WorkspaceError, match="cannot fill the workspace|is not the name of a stored workspace"):
                run.put(name, run.work / "place")
            with pytest.raises(WorkspaceError):
                run.changed(name, name)


def state_of(repository: GitRepository) -> dict[str, bytes]:
    files = (file for file in repository.path.rglob("*") if file.is_file())
    return {str(file): file.read_bytes() for file in files}


class TestWithARepository:
    @pytest.fixture
    def run(self, repository: GitRepository, tmp_path: Path) -> Run:
        repository.write(".gitignore", ".gitignore\nbuild/\n*.log\n!keep.log\n/local/*\n!/local/shared\n")
        repository.write("a.txt", "one\n")
        repository.write("sub/run.sh", "#!/bin/sh\n", executable=True)
        repository.write("tracked.log", "tracked though ignored\n")
        repository.git("add", "--force", "tracked.log", ".gitignore")
        repository.commit("the beginning")
        return Run(tmp_path / "run", repository)

    def test_a_run_begins_with_the_tree_of_head_and_the_repository_is_only_read(
        self, run: Run, repository: GitRepository
    ) -> None:
        repository.write("a.txt", "not committed\n")
        repository.write("untracked", "1")
        before = state_of(repository)
        begun = run.begin()
        assert begun == repository.git("rev-parse", "HEAD^{tree}").decode().strip()
        assert held(run.work) == {
            b".gitignore": ((repository.path / ".gitignore").read_bytes(), False),
            b"a.txt": (b"one\n", False),
            b"sub/run.sh": (b"#!/bin/sh\n", True),
            b"tracked.log": (b"tracked though ignored\n", False),
        }
        assert run.keep() == KeptTree(begun, {})
        asyncio.run(run.store.diff(begun, run.keep({"a.txt": "two\n", "new": "1"}).tree))
        run.git("add", "--all")
        for place in (repository.path, repository.path / ".git", repository.path.parent):
            with pytest.raises(WorkspaceError, match="that would delete"):
                run.put(begun, place)
        assert state_of(repository) == before

    def test_ignored_files_are_left_out_silently_unless_they_are_tracked(
        self, run: Run, repository: GitRepository
    ) -> None:
        fill(Path(os.environ["XDG_CONFIG_HOME"]), {"git/ignore": "*.swp\n"})
        fill(repository.path, {".git/info/exclude": "mine\n"})
        begun = run.begin()
        fill(run.work, {"build/deep/x.o": "1", "debug.log": "1", "keep.log": "1", "tracked.log": "changed\n"})
        fill(run.work, {"local/own": "1", "local/shared": "1", "other/build/y": "1", "other/z": "1"})
        fill(run.work, {"sub/.gitignore": "secret\n!.gitignore\n", "sub/secret": "1", "sub/open": "1"})
        kept = run.keep({"x.swp": "1", "mine": "1", ":(glob)*": "1"})
        changed = (":(glob)*", "keep.log", "local/shared", "other/z", "sub/.gitignore", "sub/open", "tracked.log")
        assert run.changed(begun, kept.tree) == changed
        assert kept.left_out == {}

    def test_pipes_in_the_place_of_gits_files_hold_nobody_up(self, run: Run) -> None:
        begun = run.begin()
        fill(run.work, {"sub/x": "1", "nested/y": "1"})
        (run.work / ".gitignore").unlink()
        (run.work / "nested" / ".git").mkdir()
        for name in (".gitignore", "sub/.gitignore", ".gitattributes", "nested/.git/HEAD", ".git/info/attributes"):
            os.mkfifo(run.work / name)
        kept = run.keep()
        assert set(kept.left_out) == {".gitignore", "sub/.gitignore", ".gitattributes", "nested/.git"}
        assert run.changed(begun, kept.tree) == ("nested/y", "sub/x")

    def test_nothing_that_an_agent_configures_in_its_workspace_counts(self, run: Run, tmp_path: Path) -> None:
        begun = run.begin()
        trap = f"touch {tmp_path / 'sprung'}"
        keys = ("core.fsmonitor", "filter.evil.clean", "filter.evil.smudge", "diff.evil.textconv", "core.sshCommand")
        for key in keys:
            run.git("config", key, trap)
        run.git("config", "core.worktree", "/")
        fill(run.work, {".gitattributes": "* filter=evil diff=evil text eol=crlf ident\n", "new": "$Id$\n"})
        for hook in ("post-checkout", "post-index-change", "pre-commit"):
            fill(run.work, {f".git/hooks/{hook}": f"#!/bin/sh\n{trap}\n"})
            (run.work / ".git" / "hooks" / hook).chmod(0o755)
        kept = run.keep({".git/objects/info/alternates": "/nowhere\n", ".git/HEAD": "nonsense"})
        asyncio.run(run.store.diff(begun, kept.tree))
        assert run.elsewhere(kept.tree) == held(run.work)
        assert not (tmp_path / "sprung").exists()

    def test_git_tells_an_agent_what_it_changed(self, run: Run) -> None:
        begun = run.begin()
        assert run.git("status", "--porcelain") == ""
        assert run.git("log", "--format=%s") == "the beginning\n"
        fill(run.work, {"a.txt": "two\n", "new": "1\n"})
        assert run.git("status", "--porcelain") == " M a.txt\n?? new\n"
        kept = run.keep()
        run.put(kept.tree, run.work)
        assert run.git("diff", "--name-only") == ""
        assert run.git("diff", "--name-only", "HEAD") == "a.txt\nnew\n"
        assert kept.tree != begun

    def test_the_checkout_itself_can_be_kept_without_touching_it(self, run: Run, repository: GitRepository) -> None:
        for name, content in {"a.txt": "edited\n", "x.log": "ignored", "new": "1"}.items():
            repository.write(name, content)
        before = state_of(repository)
        kept = asyncio.run(run.store.keep(repository.path))
        assert run.changed(asyncio.run(run.store.beginning()).tree, kept.tree) == ("a.txt", "new")
        assert state_of(repository) == before
        # What the repository has is not written again: there are two new contents.
        (pack,) = (run.objects / "pack").glob("*.pack")
        assert int.from_bytes(pack.read_bytes()[8:12], "big") == 2

    def test_changes_since_a_tree_include_its_ignored_files_and_no_other_ignored_ones(
        self, run: Run, repository: GitRepository
    ) -> None:
        place = repository.path
        fill(place, {"debug.log": "1", "a.txt": "edited\n"})
        tree = asyncio.run(run.store.keep(place, artifacts=["debug.log"])).tree
        fill(place, {"other.log": "1"})
        # The cache was lost in the meantime.
        shutil.rmtree(run.objects.parent / "looks")
        (run.objects.parent / "looks").mkdir()
        assert asyncio.run(run.store.changes(place, since=tree)) == ()
        fill(place, {"debug.log": "2", "a.txt": "one\n", "new": "1"})
        assert asyncio.run(run.store.changes(place, since=tree)) == ("a.txt", "debug.log", "new")

    def test_links_that_leave_and_large_files_of_the_repository_stay_as_they_are(
        self, repository: GitRepository, tmp_path: Path
    ) -> None:
        (repository.path / "out").symlink_to("/usr/share")
        (repository.path / "up").symlink_to("../elsewhere")
        repository.commit_files({"large": b"x" * 5000, "grows": b"x" * 5000})
        run = Run(tmp_path / "run", repository, max_file_bytes=1000)
        begun = run.begin()
        os.utime(run.work / "large")
        assert run.keep() == KeptTree(begun, {})
        (run.work / "out").unlink()
        (run.work / "out").symlink_to("/etc")
        sparse(run.work / "grows", 6000)
        kept = run.keep()
        assert set(kept.left_out) == {"out", "grows"}
        assert kept.tree == begun

    def test_submodules_stay_what_they_were(self, repository: GitRepository, tmp_path: Path) -> None:
        inner = GitRepository(tmp_path / "inner")
        inner.commit_files({"x": "1"})
        repository.git("submodule", "--quiet", "add", str(inner.path), "vendored")
        repository.commit()
        run = Run(tmp_path / "run", repository)
        begun = run.begin()
        assert run.keep() == KeptTree(begun, {})
        kept = run.keep({"vendored/y": "1", "z": "1"})
        assert kept.left_out == {"vendored": "a submodule, whose files are not stored"}
        assert run.changed(begun, kept.tree) == ("z",)
        (run.work / "vendored" / "y").unlink()
        (run.work / "vendored").rmdir()
        assert run.changed(begun, run.keep().tree) == ("vendored", "z")

    def test_a_shallow_clone_and_a_repository_without_commits_are_served_too(
        self, run: Run, repository: GitRepository, tmp_path: Path
    ) -> None:
        repository.commit_files({"a.txt": "two\n"}, "second")
        clone = tmp_path / "clone"
        repository.git("clone", "--quiet", "--depth=1", f"file://{repository.path}", str(clone))
        shallow = Run(tmp_path / "shallow", GitRepository(clone))
        shallow.begin()
        assert shallow.git("log", "--format=%s") == "second\n"
        empty = Run(tmp_path / "empty", GitRepository(tmp_path / "new"))
        empty.begin()
        assert held(empty.work) == {}
        fill(empty.work, {"a": "1"})
        assert empty.git("status", "--porcelain") == "?? a\n"

    def test_objects_that_are_missing_are_an_error(self, run: Run, repository: GitRepository) -> None:
        blob = repository.git("rev-parse", "HEAD:a.txt").decode().strip()
        (repository.path / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
        with pytest.raises(WorkspaceError, match="cannot fill the workspace .*: git checkout-index failed") as caught:
            run.begin()
        assert caught.value.__cause__ is not None

    def test_a_hostile_tree_in_the_repository_writes_nothing_elsewhere(
        self, repository: GitRepository, tmp_path: Path
    ) -> None:
        def made(kind: str, content: bytes) -> bytes:
            words = ("hash-object", "-w", "-t", kind, "--literally", "--stdin")
            return bytes.fromhex(repository.git(*words, stdin=content).decode().strip())

        inner = made("tree", b"100644 owned\0" + made("blob", b"evil"))
        link = made("blob", os.fsencode(tmp_path))
        trees = (b"40000 .git\0" + inner, b"40000 ..\0" + inner, b"120000 x\0" + link + b"40000 x\0" + inner)
        for tree in trees:
            commit = repository.git("commit-tree", made("tree", tree).hex(), "-m", "evil").decode().strip()
            repository.git("update-ref", "refs/heads/main", commit)
            with pytest.raises(WorkspaceError):
                Run(tmp_path / commit, repository).begin()
            assert list(tmp_path.rglob("owned")) == []


class Stages:
    """Stages that work side by side from one base."""

    def __init__(self, directory: Path, base: Files) -> None:
        self.run = Run(directory)
        self.base = self.left(base, start=asyncio.run(self.run.store.beginning()).tree)

    def left(self, files: Files, *, start: str | None = None) -> str:
        """The tree that a stage leaves which writes some files, and removes those with None for a content."""
        self.run.put(start or self.base, self.run.work)
        for name, content in files.items():
            if content is None:
                (self.run.work / name).unlink()
                if "/" in name:
                    (self.run.work / name).parent.rmdir()
        return self.run.keep({name: content for name, content in files.items() if content is not None}).tree

    def together(self, *trees: str) -> dict[bytes, tuple[bytes, bool] | bytes]:
        """What they left, put together; the same whatever the order."""
        (merged,) = {self.joined(order) for order in permutations(trees)}
        return self.run.elsewhere(merged)

    def joined(self, trees: Sequence[str]) -> str:
        joined = self.base
        for tree in trees:
            joined = asyncio.run(self.run.store.joined(self.base, joined, tree))
        return joined

    def conflict(self, *trees: str) -> WorkspaceError:
        with pytest.raises(WorkspaceError) as caught:
            self.joined(trees)
        return caught.value


class TestJoining:
    def test_what_stages_did_to_different_files_goes_together(self, tmp_path: Path) -> None:
        stages = Stages(tmp_path, {"kept": "0", "gone": "0", "a": "0", "b": "0", "folder/x": "0"})
        one = stages.left({"a": "1", "new/one": "1", "gone": None})
        two = stages.left({"b": "2", "new/two": "2", "gone": None})
        three = stages.left({"folder/x": None, "folder": "a file now"})
        expected = {"kept": "0", "a": "1", "b": "2", "new/one": "1", "new/two": "2", "folder": "a file now"}
        assert stages.together(one, two, three) == {
            name.encode(): (content.encode(), False) for name, content in expected.items()
        }
        pairs = ((stages.base, stages.base), (one, stages.base), (stages.base, one), (one, one))
        joined = [asyncio.run(stages.run.store.joined(stages.base, *pair)) for pair in pairs]
        assert joined == [stages.base, one, one, one]

    def test_changes_in_different_places_of_one_text_and_of_its_mode_go_together(self, tmp_path: Path) -> None:
        stages = Stages(tmp_path, {"text": LINES})
        trees, expected = [], LINES
        for number, word in ((2, "second"), (15, "middle"), (28, "last")):
            trees.append(stages.left({"text": LINES.replace(f"line {number}\n", f"{word}\n")}))
            expected = expected.replace(f"line {number}\n", f"{word}\n")
        assert stages.together(*trees) == {b"text": (expected.encode(), False)}
        stages.run.put(stages.base, stages.run.work)
        (stages.run.work / "text").chmod(0o755)
        assert stages.together(*trees[:2], stages.run.keep().tree)[b"text"][1] is True

    @each(
        ("base", "one", "two", "named"),
        [
            ({"a": "0"}, {"a": "1"}, {"a": "2"}, "a"),
            ({"a": "0"}, {"a": "1"}, {"a": None}, "a"),
            ({}, {"new.md": "1"}, {"new.md": "2"}, "new.md"),
            ({"a": b"\0" + LINES.encode()}, {"a": b"\0\0"}, {"a": b"\0\1"}, "a"),
            ({}, {"a": "a file"}, {"a/b": "in a folder"}, "a"),
            ({"a/x": "0"}, {"a/x": None, "a": "a file"}, {"a/y": "1"}, "a"),
            ({}, {os.fsdecode(b"\xff\n"): "1"}, {os.fsdecode(b"\xff\n"): "2"}, "\\udcff\\n"),
            ({}, *({f"{name:02}": text for name in range(30)} for text in "12"), f"{NAMES_OF_TEN} and 20 more"),
        ],
    )
    def test_what_does_not_go_together_is_named(
        self, tmp_path: Path, base: Files, one: Files, two: Files, named: str
    ) -> None:
        stages = Stages(tmp_path, {"other": "0", **base})
        error = stages.conflict(stages.left(one), stages.left({**two, "unrelated": "1"}))
        assert error.message.endswith(f"conflicting changes in {named}")
        assert "need the other" in error.hint

    def test_a_git_that_cannot_join_says_which_one_can(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        stages = Stages(tmp_path, {"a": "0"})
        one, two = stages.left({"a": "1"}), stages.left({"b": "2"})

        async def old_git(_place: object, *_words: str, stdin: bytes = b"") -> Completed:
            return Completed(exit_code=129, stdout=b"", stderr="usage: git merge-tree", seconds=0.0)

        monkeypatch.setattr(workspaces, "try_git", old_git)
        error = stages.conflict(one, two)
        assert error.message == "this git cannot merge the work of parallel stages"
        assert "git 2.38 or newer" in error.hint


@each("missing", ["HEAD", "config", "info/attributes", "objects/info", "looks"])
def test_a_store_that_was_only_begun_is_completed(tmp_path: Path, missing: str) -> None:
    work = fill(tmp_path / "work", {"a": "1"})
    tree = asyncio.run(GitWorkspaceStore(tmp_path / "store.git", source=None).keep(work)).tree
    part = tmp_path / "store.git" / missing
    if part.is_dir():
        remove_tree(part)
    else:
        part.unlink()
    asyncio.run(GitWorkspaceStore(tmp_path / "store.git", source=None).put(tree, tmp_path / "other"))
    assert held(tmp_path / "other") == held(work)
