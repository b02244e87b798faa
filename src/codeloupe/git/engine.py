"""A repository of our own in a temporary directory, through which the reviewed one's objects are read.

It borrows the objects (as an alternate) and the list of shallow commits, and nothing else: no configuration, no
hooks, no filter, diff or merge drivers, no refs. Attributes that name drivers or hide content are overruled.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from msgspec import Struct

from codeloupe.errors import NotARepository, UsageError
from codeloupe.git.command import Place
from codeloupe.system.temporary import temporary_directory

# For reading diffs: drivers off; text and eol stay, or a CRLF checkout would differ in every line.
DIFF_ATTRIBUTES = "* !filter !diff !merge !ident\n"
# For exports: every file byte for byte as in its blob.
EXPORT_ATTRIBUTES = "* !filter !diff !merge !ident !text !eol !working-tree-encoding !export-ignore !export-subst\n"


class Sources(Struct, frozen=True):
    """The parts of the reviewed repository that an engine borrows."""

    objects: Path
    shallow: Path
    object_format: str


@contextmanager
def private_directory() -> Iterator[Path]:
    """A directory for this user alone, removed at the end, after an error too. Raises UsageError without a place."""
    with ExitStack() as stack:
        try:
            directory = stack.enter_context(temporary_directory())
        except OSError as error:
            reason = error.strerror or str(error)
            raise UsageError(
                f"no temporary directory can be made: {reason}", hint="set TMPDIR to a directory that can be written"
            ) from error
        yield directory


@contextmanager
def temporary_engine(sources: Sources, attributes: str) -> Iterator[Path]:
    """A fresh engine repository as a context; it is removed at the end, after an error too."""
    with private_directory() as directory:
        git_dir = directory / "engine"
        for folder in ("objects/info", "refs", "info"):
            (git_dir / folder).mkdir(parents=True)
        (git_dir / "HEAD").write_text("ref: refs/heads/none\n", encoding="ascii")
        (git_dir / "config").write_text(_config(sources.object_format), encoding="ascii")
        (git_dir / "info" / "attributes").write_text(attributes, encoding="ascii")
        (git_dir / "objects" / "info" / "alternates").write_bytes(os.fsencode(sources.objects) + b"\n")
        _write_empty_blob(git_dir, sources.object_format)
        borrow(sources.shallow, git_dir / "shallow")
        yield git_dir


def borrow(file: Path, target: Path) -> None:
    """Copy one file of the reviewed repository into an engine, if it is there. Raises NotARepository in words.

    The modification time is kept: git compares the index's with those of files, to notice an edit made in the
    same moment.
    """
    try:
        if file.is_file():
            shutil.copyfile(file, target)
            times = file.stat()
            os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise NotARepository(
            f"{file}, a part of the repository, cannot be read: {reason}",
            hint="run codeloupe as a user who may read the whole repository",
        ) from error


def copy_index(index: Path, git_dir: Path) -> Path:
    """Copy an index, and the shared part of a split one, into the engine. Raises NotARepository in words."""
    target = git_dir / "index"
    borrow(index, target)
    for shared in index.parent.glob("sharedindex.*"):
        borrow(shared, git_dir / shared.name)
    return target


def in_engine(git_dir: Path, *settings: str, work_tree: Path | None = None) -> Place:
    """The place for commands that read through the engine."""
    return Place(git_dir, work_tree=work_tree, index_file=git_dir / "index", settings=settings)


def object_name(kind: str, content: bytes, object_format: str) -> str:
    """The name git gives to an object."""
    return hashlib.new(object_format, _framed(kind, content), usedforsecurity=False).hexdigest()


def _framed(kind: str, content: bytes) -> bytes:
    return f"{kind} {len(content)}".encode("ascii") + b"\0" + content


def _write_empty_blob(git_dir: Path, object_format: str) -> None:
    """Untracked files stand in the engine's index as empty ones, so that object has to exist."""
    name = object_name("blob", b"", object_format)
    target = git_dir / "objects" / name[:2] / name[2:]
    target.parent.mkdir()
    target.write_bytes(zlib.compress(_framed("blob", b"")))


def _config(object_format: str) -> str:
    lines = ["[core]", "\trepositoryformatversion = 1", "\tbare = false"]
    if object_format != "sha1":
        lines += ["[extensions]", f"\tobjectFormat = {object_format}"]
    return "\n".join(lines) + "\n"
