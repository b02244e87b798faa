from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path

import pytest

from codeloupe.errors import WorkspaceError
from codeloupe.git import workspaces
from codeloupe.git.workspaces import GitWorkspaceStore, KeptTree
from tests.stage_workspaces import apply_patch, fill, held, make_deep, make_socket, run_bound, sparse, wait_a_tick


@pytest.fixture
def store(tmp_path: Path) -> GitWorkspaceStore:
    return GitWorkspaceStore(tmp_path / "store.git", source=None)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def remembering(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that are a moment old are remembered too."""
    monkeypatch.setattr(workspaces, "_TICK_NANOSECONDS", -(10**9))


def keep(store: GitWorkspaceStore, directory: Path) -> KeptTree:
    return asyncio.run(store.keep(directory))


def put(store: GitWorkspaceStore, tree: str, directory: Path) -> Path:
    asyncio.run(store.put(tree, directory))
    return directory


class TestBeginning:
    def test_the_repository_is_sound(self, store: GitWorkspaceStore, tmp_path: Path, work: Path) -> None:
        fill(work, {"a": "1\n", "b/c": "2\n", "b/d/e": "3\n"})
        (work / "link").symlink_to("b/c")
        tree = keep(store, work).tree
        words = ("git", "--git-dir", str(tmp_path / "store.git"), "fsck", "--strict", tree)
        checked = subprocess.run(words, capture_output=True, check=False, env={"PATH": os.environ["PATH"]})
        assert (checked.returncode, checked.stderr) == (0, b"")
        assert list((tmp_path / "store.git").rglob("tmp_*")) == []


class TestKeepAndPut:
    def test_what_was_kept_comes_back_byte_for_byte(self, store: GitWorkspaceStore, work: Path, tmp_path: Path) -> None:
        fill(work, {"report.md": "text\r\n", "empty": b"", "binary": bytes(range(256)), "deep/er/x": "y"})
        fill(work, {"run.sh": "#!/bin/sh\n"})
        (work / "run.sh").chmod(0o755)
        (work / "deep" / "link").symlink_to("../report.md")
        (work / "dangling").symlink_to("not/there")
        (work / ".hidden").write_text("seen")
        kept = keep(store, work)
        assert kept.left_out == {}
        assert held(put(store, kept.tree, tmp_path / "other")) == held(work)

    def test_whatever_else_lay_there_is_gone(self, store: GitWorkspaceStore, work: Path, tmp_path: Path) -> None:
        tree = keep(store, fill(work, {"a": "1"})).tree
        outside = fill(tmp_path / "outside", {"precious": "gold"})
        fill(work, {"b/c/d": "2", "a": "changed"})
        (work / "b" / "out").symlink_to(outside)
        (work / "closed").mkdir(mode=0o000)
        os.mkfifo(work / "pipe")
        put(store, tree, work)
        assert [entry.name for entry in work.iterdir()] == ["a"]
        assert held(work) == {b"a": (b"1", False)}
        assert held(outside) == {b"precious": (b"gold", False)}

    def test_only_what_changed_is_written_again(
        self, store: GitWorkspaceStore, work: Path, tmp_path: Path, remembering: None
    ) -> None:
        outside = fill(tmp_path / "outside", {"precious": "gold"})
        fill(work, {"a": "1", "b": "2", "sub/c": "3", "sub/deep/d": "4", "moved/e": "5", "linked": "6"})
        (work / "link").symlink_to("a")
        tree = keep(store, work).tree
        expected = held(work)
        inodes = {name: (work / name).stat().st_ino for name in ("a", "sub/c", "sub/deep/d")}
        wait_a_tick(tmp_path)
        fill(work, {"b": "changed", "new/x/y": "1", "sub/deep/new": "1"})
        (work / "moved" / "e").unlink()
        (work / "moved").rmdir()
        (work / "moved").symlink_to(outside)
        (work / "link").unlink()
        (work / "link").symlink_to("b")
        os.link(work / "linked", tmp_path / "other-name")
        make_deep(work / "sub", 50, name="bottomless")
        os.mkfifo(work / "sub" / "pipe")
        put(store, tree, work)
        assert held(work) == expected
        assert sorted(path.name for path in work.iterdir()) == ["a", "b", "link", "linked", "moved", "sub"]
        assert {name: (work / name).stat().st_ino for name in inodes} == inodes
        assert (work / "linked").stat().st_nlink == 1
        assert held(outside) == {b"precious": (b"gold", False)}
        (work / "sub" / "deep").chmod(0o500)
        (work / "a").chmod(0o600)
        put(store, tree, work)
        assert held(work) == expected
        assert (work / "sub" / "deep").stat().st_mode & 0o700 == 0o700

    def test_any_name_is_kept(
        self, store: GitWorkspaceStore, work: Path, tmp_path: Path, subtests: pytest.Subtests
    ) -> None:
        rows: list[bytes] = [
            b"not-utf-8-\xff\xfe",
            b"line\nbreak",
            b'quote"back\\slash',
            b"-dash",
            b":(glob)*",
            b"tab\there",
            b"git~1",
            b".gitattributes",
            b"trailing ",
            "r\u202etl".encode(),
            b"x" * 255,
        ]
        before = asyncio.run(store.beginning())
        for name in map(os.fsdecode, rows):
            with subtests.test(name=name):
                fill(work, {name: "* text eol=crlf filter=evil\n", f"folder/{name}": "2\n"})
                kept = keep(store, work)
                assert kept.left_out == {}
                assert held(put(store, kept.tree, tmp_path / "other")) == held(work)
                assert asyncio.run(store.changed(before, kept.tree)) == tuple(sorted((name, f"folder/{name}")))
                before = kept.tree

    def test_a_change_that_keeps_size_and_time_of_a_file_is_seen(self, store: GitWorkspaceStore, work: Path) -> None:
        file = fill(work, {"a": "one"}) / "a"
        first = keep(store, work).tree
        facts = file.stat()
        file.write_text("two")
        os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns))
        assert keep(store, work).tree != first

    def test_a_change_right_behind_the_look_is_seen(self, store: GitWorkspaceStore, work: Path) -> None:
        file = fill(work, {"a": "0"}) / "a"
        for number in range(1, 6):
            before = keep(store, work).tree
            file.write_text(str(number))
            assert keep(store, work).tree != before

    def test_what_is_remembered_may_be_damaged(self, store: GitWorkspaceStore, work: Path, tmp_path: Path) -> None:
        fill(work, {"a": "1"})
        tree = keep(store, work).tree
        for look in (tmp_path / "store.git" / "looks").iterdir():
            look.write_text('{"tree": "x", "contents": {"a": 7}}')
        assert keep(store, work).tree == tree
        for look in (tmp_path / "store.git" / "looks").iterdir():
            look.write_text(json.dumps({"tree": "7" * 40, "contents": {}}))
        assert keep(store, work).tree == tree

    def test_more_than_has_room_at_once_is_kept_in_parts(
        self, store: GitWorkspaceStore, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(workspaces, "_MOST_PENDING_BYTES", 10_000)
        fill(work, {f"{number}": os.urandom(4_000) for number in range(20)})
        kept = keep(store, work)
        assert len(list((tmp_path / "store.git" / "objects" / "pack").glob("*.pack"))) > 3
        assert held(put(store, kept.tree, tmp_path / "other")) == held(work)

    def test_files_and_folders_that_may_not_be_read_are_left_out_and_stay(
        self, store: GitWorkspaceStore, work: Path, tmp_path: Path
    ) -> None:
        fill(work, {"a": "1", "closed/b": "2", "open": "3"})
        keep(store, work)
        fill(work, {"a": "changed", "closed/c": "new"})
        (work / "a").chmod(0o000)
        (work / "closed").chmod(0o000)
        code = """
import asyncio, json, sys
from pathlib import Path
from codeloupe.git.workspaces import GitWorkspaceStore
kept = asyncio.run(GitWorkspaceStore(Path(sys.argv[1]), source=None).keep(Path(sys.argv[2])))
print(json.dumps([kept.tree, dict(kept.left_out)]))
"""
        tree, left_out = json.loads(run_bound(code, tmp_path / "store.git", work))
        assert left_out == {
            "a": "a file that cannot be read: permission denied",
            "closed": "a folder that cannot be read: permission denied",
        }
        assert held(put(store, tree, tmp_path / "other")) == {
            b"a": (b"1", False),
            b"closed/b": (b"2", False),
            b"open": (b"3", False),
        }

    def test_the_store_itself_is_never_emptied(
        self, store: GitWorkspaceStore, tmp_path: Path, subtests: pytest.Subtests
    ) -> None:
        rows: list[str] = ["store.git", ".", "store.git/objects", "store.git/../store.git"]
        tree = asyncio.run(store.beginning())
        for place in rows:
            with subtests.test(place=place):
                with pytest.raises(WorkspaceError, match="it would be emptied"):
                    put(store, tree, tmp_path / place)
                assert (tmp_path / "store.git" / "HEAD").is_file()

    def test_a_store_may_lie_behind_any_name(self, tmp_path: Path, work: Path) -> None:
        store = GitWorkspaceStore(tmp_path / os.fsdecode(b'li\nne "\xff\\') / "store.git", source=None)
        kept = keep(store, fill(work, {"a": "1"}))
        assert held(put(store, kept.tree, tmp_path / "other")) == held(work)


class TestLeftOut:
    def test_what_cannot_be_kept_is_left_out_with_a_reason(
        self, store: GitWorkspaceStore, work: Path, tmp_path: Path
    ) -> None:
        outside = fill(tmp_path / "outside", {"secret": "s"})
        fill(work, {"good": "1", "sub/good": "2"})
        (work / "absolute").symlink_to(outside / "secret")
        (work / "relative").symlink_to("../outside/secret")
        (work / "folder").symlink_to("../outside")
        (work / "sub" / "hop").symlink_to("../folder/secret")
        (work / "nowhere").symlink_to("../../nowhere")
        os.mkfifo(work / "sub" / "pipe")
        make_socket(work / "sub" / "socket")
        sparse(work / "huge", 50 * 1024**2 + 1)
        kept = keep(store, work)
        assert kept.left_out == {
            "absolute": "a link that leaves the workspace",
            "relative": "a link that leaves the workspace",
            "folder": "a link that leaves the workspace",
            "sub/hop": "a link that leaves the workspace",
            "nowhere": "a link that leaves the workspace",
            "sub/pipe": "a pipe",
            "sub/socket": "a socket",
            "huge": "a file of 52,428,801 bytes, where 52,428,800 is the most",
        }
        assert held(put(store, kept.tree, tmp_path / "other")) == {b"good": (b"1", False), b"sub/good": (b"2", False)}

    def test_nested_repositories_are_kept_without_what_is_gits(
        self, store: GitWorkspaceStore, work: Path, tmp_path: Path
    ) -> None:
        subprocess.run(("git", "init", "--quiet", str(work / "sub")), check=True, env={"PATH": os.environ["PATH"]})
        fill(work, {"sub/file": "1", "other/.GIT": "gitdir: elsewhere", ".git/config": "[core]", ".hg/x": "2"})
        fill(work, {".Git": "1"})
        kept = keep(store, work)
        assert held(put(store, kept.tree, tmp_path / "other")) == {b"sub/file": (b"1", False)}
        assert kept.left_out == {
            "sub/.git": "git's own, which is never kept",
            "other/.GIT": "git's own, which is never kept",
            ".git": "git's own, which is never kept",
            ".Git": "git's own, which is never kept",
            ".hg": "a folder of version control",
        }

    def test_an_old_file_stays_where_its_successor_cannot_be_kept(
        self, store: GitWorkspaceStore, work: Path, tmp_path: Path
    ) -> None:
        fill(work, {"a": "1", "b": "2", "folder/c": "3", "gone": "4"})
        keep(store, work)
        for name in ("a", "b", "gone"):
            (work / name).unlink()
        (work / "a").symlink_to("/")
        sparse(work / "b", 60 * 1024**2)
        (work / "folder" / "c").unlink()
        (work / "folder").rmdir()
        os.mkfifo(work / "folder")
        kept = keep(store, work)
        assert set(kept.left_out) == {"a", "b", "folder"}
        assert held(put(store, kept.tree, tmp_path / "other")) == {
            b"a": (b"1", False),
            b"b": (b"2", False),
            b"folder/c": (b"3", False),
        }

    def test_very_deep_folders_are_left_out(self, store: GitWorkspaceStore, work: Path) -> None:
        fill(work, {"good": "1"})
        make_deep(work, 210)
        kept = keep(store, work)
        assert list(kept.left_out.values()) == ["a folder that is more than 200 folders deep, or has too long a path"]
        assert asyncio.run(store.changed(asyncio.run(store.beginning()), kept.tree)) == ("good",)

    def test_a_file_whose_path_is_too_long_is_left_out(self, store: GitWorkspaceStore, work: Path) -> None:
        make_deep(work, 17, name="d" * 200)
        deepest = work.joinpath(*["d" * 200] * 17)
        (deepest / ("f" * 100)).write_text("1")
        (deepest / "f").write_text("1")
        kept = keep(store, work)
        assert list(kept.left_out.values()) == ["a file with too long a path"]

    def test_a_link_that_git_would_refuse_is_left_out(self, store: GitWorkspaceStore, work: Path) -> None:
        fill(work, {"a": "1"})
        (work / ".gitmodules").symlink_to("a")
        assert keep(store, work).left_out == {".gitmodules": "a link in the place of .gitmodules, which git refuses"}

    def test_too_many_new_files_are_refused_in_words(self, tmp_path: Path, work: Path) -> None:
        store = GitWorkspaceStore(tmp_path / "store.git", source=None, max_files=3)
        fill(work, {str(number): "" for number in range(3)})
        tree = keep(store, work).tree
        fill(work, {"3": ""})
        assert keep(store, work).tree != tree  # what was kept before does not count
        fill(work, {f"more{number}": "" for number in range(4)})
        with pytest.raises(WorkspaceError, match="more than 3 new files") as caught:
            keep(store, work)
        assert "installed packages" in caught.value.hint

    def test_too_many_new_bytes_are_refused_in_words(self, tmp_path: Path, work: Path) -> None:
        store = GitWorkspaceStore(tmp_path / "store.git", source=None, max_total_bytes=1000)
        fill(work, {"a": "x" * 600, "b": "x" * 600})
        with pytest.raises(WorkspaceError, match="more than 1,000 bytes"):
            keep(store, work)


class TestComparison:
    def test_the_files_that_differ_are_named_in_order(self, store: GitWorkspaceStore, work: Path) -> None:
        before = keep(store, fill(work, {"same": "1", "changed": "1", "removed": "1", "mode": "1"})).tree
        fill(work, {"changed": "2", "z/added": "1"})
        (work / "removed").unlink()
        (work / "mode").chmod(0o755)
        after = keep(store, work).tree
        assert asyncio.run(store.changed(before, after)) == ("changed", "mode", "removed", "z/added")
        assert asyncio.run(store.changed(after, after)) == ()
        assert asyncio.run(store.diff(after, after)) == ""

    def test_a_patch_makes_one_tree_of_the_other(self, store: GitWorkspaceStore, work: Path, tmp_path: Path) -> None:
        fill(work, {"text": "a\nb\nc\n", "latin": b"\xe9t\xe9\n", "binary": bytes(range(256)), "crlf": "a\r\nb\r\n"})
        before = keep(store, fill(work, {"moved": "x\n" * 50, "mode": "1"})).tree
        fill(work, {"text": "a\nB\nc", "latin": b"\xe8t\xe9\n", "binary": bytes(300), "crlf": "a\r\nc\r\n"})
        fill(work, {"new": b"", "to/here": "x\n" * 50, ".gitattributes": "* -diff\n"})
        (work / "moved").unlink()
        (work / "mode").chmod(0o755)
        (work / "link").symlink_to("text")
        after = keep(store, work).tree
        patch = asyncio.run(store.diff(before, after))
        assert "GIT binary patch" in patch
        assert "-b\n-c\n+B\n+c\n" in patch  # no attribute of the workspace hides it
        elsewhere = put(store, before, tmp_path / "elsewhere")
        apply_patch(elsewhere, patch)
        assert held(elsewhere) == held(work)

    def test_what_is_no_tree_is_refused_in_words(
        self, store: GitWorkspaceStore, tmp_path: Path, subtests: pytest.Subtests
    ) -> None:
        rows: list[str] = ["", "HEAD", "--all", "x" * 40, "0" * 40]
        for number, name in enumerate(rows):
            place = tmp_path / f"{number}"
            place.mkdir()
            with subtests.test(name=name):
                with pytest.raises(WorkspaceError, match="cannot be filled|is not the name of a kept workspace"):
                    put(store, name, place / "place")
                with pytest.raises(WorkspaceError):
                    asyncio.run(store.changed(name, name))


def test_several_workspaces_at_once_do_not_meet(store: GitWorkspaceStore, tmp_path: Path) -> None:
    async def work_in(number: int) -> bool:
        place = tmp_path / f"stage{number}"
        await store.put(await store.beginning(), place)
        fill(place, {f"{name}": f"{number * name}" for name in range(20)})
        kept, again = await asyncio.gather(store.keep(place), store.keep(place))
        await store.put(kept.tree, tmp_path / f"copy{number}")
        return kept == again and held(place) == held(tmp_path / f"copy{number}")

    async def all_of_them() -> list[bool]:
        return await asyncio.gather(*(work_in(number) for number in range(6)))

    assert all(asyncio.run(all_of_them()))
