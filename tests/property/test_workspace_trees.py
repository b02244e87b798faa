"""Any directory that can be kept comes back as it was, and any patch makes one tree of another."""

import asyncio
import contextlib
import os
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from codeloupe.git.workspaces import GitWorkspaceStore
from tests.stage_workspaces import apply_patch, held

# Any bytes that a file may be called, with those that are special to git and to shells more often.
_bytes = st.binary(min_size=1, max_size=6) | st.sampled_from([b"a", b"b", b"a b", b'"', b"\\", b"\n", b"\xff", b"-x"])
names = _bytes.map(lambda name: name.replace(b"/", b"_").replace(b"\0", b"0")).filter(
    lambda name: name.strip(b".") and name.lower() not in (b".git", b".hg", b".svn", b".jj", b".bzr", b".gitmodules")
)
paths = st.lists(names, min_size=1, max_size=4).map(b"/".join)
texts = st.lists(st.sampled_from([b"one\n", b"two\n", b"three\r\n", b"\xe9\n", b"\n", b"end"]), max_size=12).map(
    b"".join
)
contents = texts | st.binary(max_size=40)
files = st.tuples(contents, st.booleans())
# None leads to itself: git would follow such a link for ever when a patch puts a folder in its place.
links = st.lists(names, min_size=1, max_size=2).map(lambda parts: b"to " + b"/".join(parts))
directories = st.dictionaries(paths, files | links, max_size=8)
Directory = dict[bytes, tuple[bytes, bool] | bytes]


def write(directory: Path, wanted: Directory, *, mode: int = 0o644) -> Path:
    """Write what can stand side by side: a file that another path needs as a folder, or that is there, is left out."""
    directory.mkdir(exist_ok=True)
    for path, thing in sorted(wanted.items()):
        file = directory / os.fsdecode(path)
        with contextlib.suppress(FileExistsError, NotADirectoryError, IsADirectoryError):
            file.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(thing, bytes):
                file.symlink_to(os.fsdecode(thing))
            else:
                descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o755 if thing[1] else mode)
                os.write(descriptor, thing[0])
                os.close(descriptor)
    return directory


# Each example starts a dozen programs, so there are fewer of them.
@given(directories)
@settings(max_examples=15)
def test_what_is_kept_comes_back_exactly(wanted: Directory) -> None:
    with tempfile.TemporaryDirectory() as room:
        place = Path(room)
        store = GitWorkspaceStore(place / "store.git", source=None)
        work = write(place / "work", wanted)
        kept = asyncio.run(store.keep(work))
        asyncio.run(store.put(kept.tree, place / "other"))
        found = held(work)
        assert kept.left_out == {}
        assert held(place / "other") == found
        assert asyncio.run(store.keep(place / "other")).tree == kept.tree


@given(directories, directories)
@settings(max_examples=15)
def test_a_patch_makes_the_second_tree_of_the_first(first: Directory, second: Directory) -> None:
    with tempfile.TemporaryDirectory() as room:
        place = Path(room)
        store = GitWorkspaceStore(place / "store.git", source=None)
        before = asyncio.run(store.keep(write(place / "before", first))).tree
        after = asyncio.run(store.keep(write(place / "after", second))).tree
        patch = asyncio.run(store.diff(before, after))
        asyncio.run(store.put(before, place / "patched"))
        asyncio.run(store.put(after, place / "wanted"))
        assert bool(patch) == bool(asyncio.run(store.changed(before, after)))
        if patch:
            apply_patch(place / "patched", patch)
        assert held(place / "patched") == held(place / "wanted")


@given(directories, directories)
@settings(max_examples=15)
def test_a_workspace_is_put_back_exactly_whatever_happened_to_it(first: Directory, second: Directory) -> None:
    with tempfile.TemporaryDirectory() as room:
        place = Path(room)
        store = GitWorkspaceStore(place / "store.git", source=None)
        work = write(place / "work", first)
        kept = asyncio.run(store.keep(work))
        expected = held(work)
        write(work, second, mode=0o600)
        for path in list(expected)[::2]:
            with contextlib.suppress(OSError):
                (work / os.fsdecode(path)).unlink()
        asyncio.run(store.put(kept.tree, work))
        assert held(work) == expected
