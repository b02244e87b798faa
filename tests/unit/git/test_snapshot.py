import asyncio
import os
import subprocess
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from codeloupe.git.diff import parse_diff
from codeloupe.git.repository import Repository, open_repository
from codeloupe.git.scopes import Sides, resolve_scope
from codeloupe.git.snapshot import (
    apply_hunks,
    exported,
    exported_tree,
    list_head_files,
    place_of,
    read_regular_files,
    rebuild,
    write_file,
)
from codeloupe.model.change import FileChange, FileStatus, Hunk
from codeloupe.model.scope import CommitScope, ScopeRequest, StagedScope, UncommittedScope
from codeloupe.system.directories import temporary_directory
from tests.repository import GitRepository
from tests.rows import each

_ATTRIBUTES = (
    "* text eol=crlf ident filter=evil export-subst working-tree-encoding=UTF-16\n"
    "left-out.py export-ignore\n[attr]evil filter=evil\n*.c evil\n"
)
_CONTENTS = {
    ".gitattributes": _ATTRIBUTES.encode(),
    "lf.py": b"one\ntwo\n",
    "crlf.py": b"one\r\ntwo\r\n",
    "mixed.py": b"one\r\ntwo\nthree\rfour",
    "id.py": b"$Id$ $Format:%H$ $Id: old $\n",
    "left-out.py": b"x\n",
    "nul.bin": b"\0\xff\xfe\n\r\n",
    "utf16.txt": "wide\n".encode("utf-16"),
    "empty.c": b"",
    "deep/er/and/deeper.c": b"x\n",
    "run.sh": b"#!/bin/sh\n",
    " odd \t\n name": b"odd\n",
    "-dash": b"dash\n",
    'quote".py': b"quote\n",
    "ünï.py": b"unicode\n",
    os.fsdecode(b"caf\xe9.py"): b"not utf-8\n",
    "back\\slash": b"backslash\n",
    "git~1": b"tilde\n",
    "*[x]?": b"glob\n",
}


def _commit_exactly(repository: GitRepository, contents: dict[str, bytes], links: dict[str, str]) -> str:
    """A commit whose blobs hold exactly these bytes, past every conversion."""
    records = []
    for name, content in (contents | {name: target.encode() for name, target in links.items()}).items():
        blob = repository.git("hash-object", "-w", "--stdin", "--no-filters", stdin=content).strip()
        mode = b"120000" if name in links else b"100755" if name.endswith(".sh") else b"100644"
        records.append(b"%b %b\t%b\0" % (mode, blob, os.fsencode(name)))
    repository.git("-c", "core.protectNTFS=false", "update-index", "-z", "--index-info", stdin=b"".join(records))
    return repository.commit_staged()


def _commit_names(repository: GitRepository, *names: str) -> None:
    """A commit of files with one content that are nowhere but in it."""
    blob = repository.git("hash-object", "-w", "--stdin", stdin=b"x\n").decode().strip()
    records = "".join(f"100644 {blob}\t{name}\0" for name in names)
    repository.git("update-index", "-z", "--index-info", stdin=records.encode())
    repository.commit_staged()


async def _open(path: Path, request: ScopeRequest) -> tuple[Repository, Sides]:
    repository = await open_repository(path)
    return repository, await resolve_scope(repository, request, base_branch=None)


def _export(
    path: Path, request: ScopeRequest, paths: list[str] | None, *, whole: bool = False
) -> tuple[dict[str, bytes], dict[str, str]]:
    """What lies in the snapshot, and what is missing in it."""

    async def go() -> tuple[dict[str, bytes], dict[str, str]]:
        repository, sides = await _open(path, request)
        names = await list_head_files(repository) if paths is None else paths
        part, tree = exported(repository, sides, paths=names), exported_tree(repository, sides, needed=names)
        async with tree if whole else part as snapshot:
            return dict(_files(snapshot.root)), snapshot.missing

    return asyncio.run(go())


def _files(root: Path) -> Iterator[tuple[str, bytes]]:
    for folder, folders, names in os.walk(root):
        for name in (*folders, *names):
            place = Path(folder, name)
            assert not place.is_symlink()
            if not place.is_dir():
                yield str(place.relative_to(root)), place.read_bytes()


@pytest.mark.parametrize("request_", [CommitScope("HEAD"), StagedScope()])
@pytest.mark.parametrize("by_name", [True, False])
def test_every_file_is_byte_for_byte_its_blob(
    repository: GitRepository, request_: ScopeRequest, *, by_name: bool
) -> None:
    links = {"link": "/etc/passwd", "dangling": "nowhere", "folder-link": "deep"}
    _commit_exactly(repository, _CONTENTS, links)
    repository.git("config", "core.autocrlf", "true")
    repository.git("config", "filter.evil.smudge", "false")
    repository.git("config", "filter.evil.required", "true")
    expected = _CONTENTS | {name: target.encode() for name, target in links.items()}

    seen, missing = _export(repository.path, request_, list(expected) if by_name else None)

    assert seen == expected
    assert missing == {}


def test_more_names_than_a_command_line_can_hold_are_exported(repository: GitRepository) -> None:
    names = [f"{'folder' * 20}/{number:06}-{'name' * 20}.py" for number in range(1500)]
    _commit_names(repository, *names)
    wanted = names[1:]
    for request in (CommitScope("HEAD"), StagedScope()):
        seen, missing = _export(repository.path, request, wanted)
        assert sorted(seen) == wanted
        assert missing == {}


def test_the_working_tree_is_copied_with_links_as_text(repository: GitRepository, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("host secret\n")
    contents = {name: content for name, content in _CONTENTS.items() if name != ".gitattributes"}
    repository.commit()
    for name, content in contents.items():
        repository.write(name, content)
    (repository.path / "link").symlink_to(outside / "secret")
    (repository.path / "folder").symlink_to(outside)
    os.mkfifo(repository.path / "pipe")
    names = [*contents, "link", "folder", "folder/secret", "pipe", "gone", "deep", "../outside/secret", ".git/HEAD"]

    seen, missing = _export(repository.path, UncommittedScope(), names)

    assert seen == contents | {"link": str(outside / "secret").encode(), "folder": str(outside).encode()}
    assert set(missing) == {"folder/secret", "pipe", "gone", "deep", "../outside/secret", ".git/HEAD"}
    assert missing["pipe"] == missing["deep"] == "not a regular file"
    assert missing["gone"] == "no such file or directory"
    assert missing[".git/HEAD"] == "the path leaves the tree or names git's own folder"
    seen, missing = _export(repository.path, UncommittedScope(), ["folder/secret"])
    assert (seen, list(missing)) == ({}, ["folder/secret"])


@pytest.mark.parametrize("sparse_index", ["--sparse-index", "--no-sparse-index"])
def test_what_a_sparse_checkout_leaves_out_is_as_the_index_has_it(repository: GitRepository, sparse_index: str) -> None:
    repository.commit_files({name: f"{name}\n" for name in ("in/a.py", "out/b.py", "out/c.py", "in/gone.py")})
    repository.git("sparse-checkout", "set", "--cone", sparse_index, "in")
    repository.remove("in/gone.py")
    repository.write("out/c.py", "there all the same\n")
    seen, missing = _export(repository.path, UncommittedScope(), ["in/a.py", "out/b.py", "out/c.py", "in/gone.py"])
    assert seen == {"in/a.py": b"in/a.py\n", "out/b.py": b"out/b.py\n", "out/c.py": b"there all the same\n"}
    assert missing == {"in/gone.py": "no such file or directory"}


def test_a_path_of_more_folders_than_any_library_can_take_is_named(repository: GitRepository, tmp_path: Path) -> None:
    repository.commit()
    deep, deepest = "a/" * 199 + "file", "a/" * 1100 + "file"
    _commit_names(repository, deep, deepest)
    for request in (CommitScope("HEAD"), StagedScope()):
        for paths in (None, [deep, deepest]):
            assert _export(repository.path, request, paths) == ({deep: b"x\n"}, {deepest: "more than 200 folders deep"})
    repository.write(deep, "y\n")
    seen, missing = _export(repository.path, UncommittedScope(), [deep, deepest])
    assert (seen, missing) == ({deep: b"y\n"}, {deepest: "more than 200 folders deep"})


def _tree(repository: GitRepository, *entries: tuple[str, bytes, str]) -> str:
    """A tree with any names, past every check of git."""
    raw = b"".join(mode.encode() + b" " + name + b"\0" + bytes.fromhex(sha) for mode, name, sha in entries)
    words = ("hash-object", "-t", "tree", "-w", "--literally", "--stdin")
    return repository.git(*words, stdin=raw).decode().strip()


def test_hostile_names_in_a_tree_do_not_escape_and_do_not_stop_the_others(repository: GitRepository) -> None:
    blob = repository.git("hash-object", "-w", "--stdin", stdin=b"evil\n").decode().strip()
    inner = _tree(repository, ("100644", b"escaped", blob))
    tree = _tree(
        repository,
        *(("40000", name, inner) for name in (b"..", b".", b".git", b".GIT")),
        *(("100644", name, blob) for name in (b"../escaped-by-name", b"/escaped-absolute", b"a//b")),
        ("120000", b"both", blob),
        ("40000", b"both", inner),
        ("120000", b".gitmodules", blob),
        *(("100644", name, blob) for name in (b"good.py", b"x" * 300)),
    )
    sha = repository.git("commit-tree", "-m", "evil", tree).decode().strip()
    repository.git("update-ref", "refs/heads/main", sha)

    outside = {*(f"{name}/escaped" for name in ("..", ".", ".git", ".GIT")), "../escaped-by-name"}
    outside |= {"/escaped-absolute", "a//b", "x" * 300}

    async def go() -> tuple[list[str], list[str], dict[str, str]]:
        opened, sides = await _open(repository.path, CommitScope("HEAD"))
        async with exported_tree(opened, sides, needed=outside) as snapshot:
            inside = [name for name, _ in _files(snapshot.root)]
            return inside, [entry.name for entry in snapshot.root.parent.iterdir()], snapshot.missing

    inside, beside, missing = asyncio.run(go())
    assert set(inside) - {"both", "both/escaped"} == {"good.py", ".gitmodules"}
    assert len(beside) == 1
    assert not Path("/escaped-absolute").exists()
    assert {name for name, why in missing.items() if "leaves the tree" in why} == outside - {"x" * 300}
    assert missing["x" * 300] == "a name that is too long"


@each("name", ["", "/", "/etc/x", "../x", "a/../x", "a/./x", "a//x", ".git/x", "a/.Git", "a/", "n\0ul"])
def test_no_path_leads_out_of_a_directory_of_ours(name: str) -> None:
    with temporary_directory() as root:
        with pytest.raises(ValueError, match="leaves the tree"):
            write_file(root, name, b"x")
        assert place_of(root, name) is None
        assert list(root.iterdir()) == []


def test_a_file_is_not_written_twice_nor_through_a_link() -> None:
    with temporary_directory() as root:
        write_file(root, "a/b.py", b"first")
        with pytest.raises(FileExistsError):
            write_file(root, "a/b.py", b"second")
        (root / "link").symlink_to(root / "made")
        with pytest.raises(FileExistsError):
            write_file(root, "link", b"x")
        assert place_of(root, "a/b.py") == root / "a" / "b.py"
        assert (root / "a" / "b.py").read_bytes() == b"first"
        assert not (root / "made").exists()


@pytest.fixture
def mixed(repository: GitRepository, tmp_path: Path) -> GitRepository:
    """Tracked, staged, edited, untracked and ignored files, a link out of the tree and a nested repository."""
    (tmp_path / "secret").write_text("secret")
    (repository.path / "link").symlink_to(tmp_path / "secret")
    repository.commit_files({".gitignore": "ignored/\n", "a.py": "old\n", "sub/b.py": "b\n"})
    repository.write("a.py", "staged\n")
    repository.git("add", "a.py")
    repository.write("a.py", "edited\n")
    repository.write("new.py", "new\n")
    repository.write("ignored/c.py", "c\n")
    GitRepository(repository.path / "nested").write("d.py", "d\n")
    return repository


@pytest.mark.parametrize("request_", [UncommittedScope(), StagedScope(), CommitScope("HEAD")])
@pytest.mark.parametrize("export", [partial(exported, paths=["a.py"]), partial(exported_tree, needed=["a.py"])])
def test_a_snapshot_is_gone_after_a_cancellation(mixed: GitRepository, request_: ScopeRequest, export: Any) -> None:
    roots: list[Path] = []

    async def go() -> None:
        async with export(*await _open(mixed.path, request_)) as snapshot:
            roots.append(snapshot.root)
            assert (snapshot.root / "a.py").is_file()
            await asyncio.sleep(60)

    async def cancelled() -> None:
        task = asyncio.create_task(go())
        while not roots:  # noqa: ASYNC110 - git works meanwhile
            await asyncio.sleep(0.001)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    assert not roots[0].exists()


@pytest.mark.parametrize(("request_", "content"), [(StagedScope(), b"staged\n"), (CommitScope("HEAD"), b"old\n")])
def test_an_index_or_a_commit_is_exported_whole(mixed: GitRepository, request_: ScopeRequest, content: bytes) -> None:
    files, missing = _export(mixed.path, request_, ["a.py", "new.py"], whole=True)
    assert sorted(files) == [".gitignore", "a.py", "link", "sub/b.py"]
    assert files["a.py"] == content
    assert missing == {"new.py": "not in the reviewed tree"}


def test_our_own_temporary_directories_are_not_copied(mixed: GitRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = mixed.path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    mixed.write("tmp/theirs.txt", "x")
    mixed.write("tmp/codeloupe-other/engine/HEAD", "x")
    files, _ = _export(mixed.path, UncommittedScope(), [], whole=True)
    assert sorted(files) == [".gitignore", "a.py", "link", "new.py", "sub/b.py", "tmp/theirs.txt"]


def test_regular_files_are_read_without_following_a_link(mixed: GitRepository) -> None:
    (mixed.path / "linked").symlink_to("sub")
    names = ["a.py", "link", "linked/b.py", "sub/b.py", "sub", "gone/x", "../secret", "a.py/x"]
    assert read_regular_files(mixed.path, names, max_bytes=3, max_files=9) == {"a.py": b"edi", "sub/b.py": b"b\n"}
    assert read_regular_files(mixed.path, names, max_bytes=3, max_files=1) == {"a.py": b"edi"}


_LINE = st.sampled_from(
    [b"", b"a", b"b", b" a", b"+a", b"-a", b"-- a", b"\\ No newline", b"a\r", b"\r", b"@@", b"\0", b"\f\xe2\x80\xa8"]
)
_CONTENT = st.builds(
    lambda lines, end: b"\n".join(lines) + end,
    st.lists(_LINE, max_size=12),
    st.sampled_from([b"", b"\n", b"\r\n", b"\n\n"]),
)


def _diff(old: bytes, new: bytes, *options: str) -> tuple[FileChange, ...]:
    """What git says is between two contents."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in (("old", old), ("new", new)):
            (Path(folder) / name).write_bytes(content)
        words = ("git", "diff", "--no-index", "--text", "--full-index", *options, "old", "new")
        environment = {"PATH": "/usr/bin:/bin:/usr/local/bin", "HOME": "/nonexistent", "GIT_CONFIG_GLOBAL": "/dev/null"}
        return parse_diff(subprocess.run(words, cwd=folder, env=environment, capture_output=True, check=False).stdout)


@pytest.mark.program
@given(old=_CONTENT, new=_CONTENT, context=st.sampled_from([0, 1, 3, 20]))
def test_a_diff_of_git_applied_to_the_old_content_gives_the_new_one(old: bytes, new: bytes, context: int) -> None:
    files = _diff(old, new, f"--unified={context}")
    assert len(files) == (old != new)
    for file in files:
        assert apply_hunks(old, file) == new


@pytest.mark.program
@given(old=_CONTENT, new=_CONTENT, data=st.data())
def test_a_diff_does_not_apply_where_a_line_that_it_shows_is_another(
    old: bytes, new: bytes, data: st.DataObject
) -> None:
    for file in _diff(old, new, "--unified=3"):
        shown = [line.old_number for hunk in file.hunks for line in hunk.lines() if line.old_number is not None]
        if shown:
            number = data.draw(st.sampled_from(shown)) - 1
            lines = old.split(b"\n")
            changed = b"\n".join([*lines[:number], lines[number] + b"!", *lines[number + 1 :]])
            assert apply_hunks(changed, file) is None


@each(
    "hunks",
    [
        (Hunk(5, 1, 5, 1, b"-a\n+b\n"),),
        (Hunk(2, 1, 2, 1, b"-b\n+x\n"), Hunk(1, 1, 1, 1, b"-a\n+x\n")),
        (Hunk(1, 1, 1, 1, b"-a\n+x\n"), Hunk(1, 1, 1, 1, b"-a\n+x\n")),
        (Hunk(1, 1, 1, 1, b"-a\n+x\n\\ No newline at end of file\n"),),
        (Hunk(3, 0, 4, 1, b"+x\n"),),
    ],
)
def test_hunks_that_do_not_fit_are_refused(hunks: tuple[Hunk, ...]) -> None:
    assert apply_hunks(b"a\nb\n", FileChange("f", "f", FileStatus.MODIFIED, hunks=hunks)) is None


def _rebuild(path: Path | None, *files: FileChange) -> list[bytes | None]:
    async def go() -> list[bytes | None]:
        return await rebuild(None if path is None else await open_repository(path), files)

    return asyncio.run(go())


@pytest.fixture
def changed(repository: GitRepository) -> GitRepository:
    numbers = "".join(f"{number}\n" for number in range(30))
    before = {"sub folder/b\t.py": "b\n", "mode.sh": "x\n", "becomes-link": "text\n"}
    repository.commit_files({"a.py": numbers, "image.bin": b"\0\1", **before})
    after: dict[str, str | bytes] = {"a.py": numbers.replace("15\n", "fifteen\n"), "new.py": "new\n", "empty.py": ""}
    after |= {"sub folder/b\t.py": "b\nc", "image.bin": b"\0\1\2", "new.bin": b"\0\1\2"}
    for name, content in after.items():
        repository.write(name, content)
    (repository.path / "mode.sh").chmod(0o755)
    repository.remove("becomes-link")
    (repository.path / "becomes-link").symlink_to("a.py")
    repository.git("add", "--all")
    return repository


@pytest.mark.parametrize("options", [(), ("--full-index",), ("-U0",), ("-U1",), ("--text", "--full-index")])
def test_files_are_rebuilt_from_a_diff_and_the_blobs_that_it_names(
    changed: GitRepository, options: tuple[str, ...]
) -> None:
    files = parse_diff(changed.git("diff", "--cached", *options))
    unknown = set() if "--text" in options else {"image.bin", "new.bin"}
    blobs = [changed.git("cat-file", "blob", f":{file.new_path}") for file in files]
    contents = [None if file.path in unknown else new for file, new in zip(files, blobs, strict=True)]
    assert len(files) == 8
    assert _rebuild(changed.path, *files) == contents
    # Where the diff names no blobs, HEAD has them.
    bare = [replace(file, old_blob=None, new_blob=None) for file in files]
    assert _rebuild(changed.path, *bare) == contents
    for forged in ("HEAD", "main", "a" * 4, "0" * 40, "", "-x", "a\nb"):
        assert _rebuild(changed.path, FileChange("gone", "gone", FileStatus.MODIFIED, old_blob=forged)) == [None]


def test_a_file_at_head_that_differs_in_lines_which_the_diff_does_not_show_is_not_believed(
    changed: GitRepository,
) -> None:
    (file,) = [file for file in parse_diff(changed.git("diff", "--cached", "--full-index")) if file.path == "a.py"]
    changed.git("reset", "--quiet", "--hard")
    changed.commit_files({"a.py": "other\n" + "".join(f"{number}\n" for number in range(1, 30))})
    assert _rebuild(changed.path, replace(file, old_blob="f" * 40)) == [None]


def test_blobs_that_are_not_here_leave_a_file_unknown(changed: GitRepository, tmp_path: Path) -> None:
    files = parse_diff(changed.git("diff", "--cached"))
    known = zip((file.path for file in files), _rebuild(None, *files), strict=True)
    whole = {"becomes-link": b"a.py", "empty.py": b"", "new.py": b"new\n"}
    assert {path: content for path, content in known if content is not None} == whole
    elsewhere = GitRepository(tmp_path / "elsewhere")
    without_commits = _rebuild(elsewhere.path, *files)
    elsewhere.commit_files({"a.py": "another\n", "mode.sh/folder": "x\n"})
    assert _rebuild(elsewhere.path, *files) == without_commits == _rebuild(None, *files)
