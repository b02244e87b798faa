from __future__ import annotations

import asyncio
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from codeloupe.git.diff import parse_diff
from codeloupe.git.repository import open_repository
from codeloupe.git.snapshot import apply_hunks, rebuild
from codeloupe.model.change import FileChange, FileStatus, Hunk
from tests.repository import GitRepository
from tests.rows import each

pytestmark = pytest.mark.program

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


@given(old=_CONTENT, new=_CONTENT, context=st.sampled_from([0, 1, 3, 20]))
def test_a_diff_of_git_applied_to_the_old_content_gives_the_new_one(old: bytes, new: bytes, context: int) -> None:
    files = _diff(old, new, f"--unified={context}")
    assert len(files) == (old != new)
    for file in files:
        assert apply_hunks(old, file) == new


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


@given(old=_CONTENT, new=_CONTENT)
def test_a_diff_does_not_apply_where_the_last_newline_that_it_shows_is_another(old: bytes, new: bytes) -> None:
    for file in _diff(old, new, "--unified=1000"):
        if old and file.hunks:
            assert apply_hunks(old[:-1] if old.endswith(b"\n") else old + b"\n", file) is None


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
    repository.write("a.py", "".join(f"{number}\n" for number in range(30)))
    repository.write("sub folder/b\t.py", "b\n")
    repository.write("mode.sh", "x\n")
    repository.write("becomes-link", "text\n")
    repository.write("image.bin", b"\0\1")
    repository.commit()
    repository.write("a.py", "".join(f"{number}\n" for number in range(30)).replace("15\n", "fifteen\n"))
    repository.write("sub folder/b\t.py", "b\nc")
    (repository.path / "mode.sh").chmod(0o755)
    repository.remove("becomes-link")
    (repository.path / "becomes-link").symlink_to("a.py")
    repository.write("image.bin", b"\0\1\2")
    repository.write("new.py", "new\n")
    repository.write("empty.py", "")
    repository.write("new.bin", b"\0\1\2")
    repository.git("add", "--all")
    return repository


def _expected(repository: GitRepository, files: tuple[FileChange, ...]) -> list[bytes]:
    return [repository.git("cat-file", "blob", f":{file.new_path}") for file in files]


@pytest.mark.parametrize("options", [(), ("--full-index",), ("-U0",), ("-U1",), ("--text", "--full-index")])
def test_files_are_rebuilt_from_a_diff_and_the_blobs_that_it_names(
    changed: GitRepository, options: tuple[str, ...]
) -> None:
    files = parse_diff(changed.git("diff", "--cached", *options))
    unknown = set() if "--text" in options else {"image.bin", "new.bin"}
    contents = [
        None if file.path in unknown else new for file, new in zip(files, _expected(changed, files), strict=True)
    ]
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
    changed.write("a.py", "other\n" + "".join(f"{number}\n" for number in range(1, 30)))
    changed.commit()
    assert _rebuild(changed.path, replace(file, old_blob="f" * 40)) == [None]


def test_blobs_that_are_not_here_leave_a_file_unknown(changed: GitRepository, tmp_path: Path) -> None:
    files = parse_diff(changed.git("diff", "--cached"))
    known = zip((file.path for file in files), _rebuild(None, *files), strict=True)
    whole = {"becomes-link": b"a.py", "empty.py": b"", "new.py": b"new\n"}
    assert {path: content for path, content in known if content is not None} == whole
    elsewhere = GitRepository(tmp_path / "elsewhere")
    without_commits = _rebuild(elsewhere.path, *files)
    elsewhere.write("a.py", "another\n")
    elsewhere.write("mode.sh/folder", "x\n")
    elsewhere.commit()
    assert _rebuild(elsewhere.path, *files) == without_commits == _rebuild(None, *files)
