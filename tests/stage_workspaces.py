"""Workspaces for tests: what lies in a directory, and the odd things that an agent may leave there."""

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

_BIND = """
import ctypes, os, sys
if os.geteuid() == 0:
    library = ctypes.CDLL(None, use_errno=True)
    set_bounding, overlook_permissions, overlook_search = 24, 1, 2
    for capability in (overlook_permissions, overlook_search):
        if library.prctl(set_bounding, capability, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "cannot give up a capability")
os.execv(sys.executable, [sys.executable, "-c", *sys.argv[1:]])
"""
# What a directory holds: a file's content with whether it is a program, or where a link leads.
Held = Mapping[bytes, tuple[bytes, bool] | bytes]


def held(directory: Path) -> dict[bytes, tuple[bytes, bool] | bytes]:
    """Every file and link below a directory by its path there, but for the top's own repository. Follows no link."""
    found: dict[bytes, tuple[bytes, bool] | bytes] = {}
    top = os.fsencode(directory)
    for parent, folders, files in os.walk(top):
        if parent == top and b".git" in folders:
            folders.remove(b".git")
        for name in (*folders, *files):
            path = parent + b"/" + name
            facts = os.lstat(path)
            place = os.path.relpath(path, top)
            if stat.S_ISLNK(facts.st_mode):
                found[place] = os.readlink(path)  # noqa: PTH115 - a Path cannot hold bytes
            elif stat.S_ISREG(facts.st_mode):
                found[place] = (Path(os.fsdecode(path)).read_bytes(), bool(facts.st_mode & stat.S_IXUSR))
    return found


def fill(directory: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write some files below a directory, with the folders above them."""
    for name, content in files.items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    return directory


def sparse(file: Path, size_bytes: int) -> Path:
    """A file that is large and takes no room."""
    file.touch()
    os.truncate(file, size_bytes)
    return file


def make_deep(directory: Path, levels: int, *, name: str = "d") -> None:
    """Folders in folders, deeper than any path can name."""
    here = os.open(directory, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=here)
        inner = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)


def make_socket(file: Path) -> None:
    """A socket in the file system; its path may be longer than the system takes for a name of one."""
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(file.parent)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(file.name)
    finally:
        os.fchdir(here)
        os.close(here)


def apply_patch(directory: Path, patch: str) -> None:
    """Apply a patch by the real `git apply`, which need not be in a repository."""
    completed = subprocess.run(
        ("git", "apply", "--whitespace=nowarn", "-"),
        cwd=directory,
        input=patch.encode("utf-8", "surrogateescape"),
        env={"PATH": os.environ["PATH"], "HOME": os.devnull, "GIT_CEILING_DIRECTORIES": str(directory.parent)},
        capture_output=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr.decode("utf-8", "replace")


def run_bound(code: str, *arguments: Path | str) -> str:
    """What a program prints that permissions bind, which they do not for root."""
    words = (sys.executable, "-I", "-S", "-c", _BIND, code, *map(str, arguments))
    completed = subprocess.run(words, capture_output=True, check=False)
    assert completed.returncode == 0, completed.stderr.decode("utf-8", "replace")
    return completed.stdout.decode()
