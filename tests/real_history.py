"""Real changes for the preview's comparison with git: `python -m tests.real_history OLD NEW [MOST]`.

OLD and NEW are folders with two releases of one project. Each file that differs becomes a commit, and the preview of
every commit must tell what git tells; the exit code is 1 when one does not. No machine has such folders for certain,
so this is a command and not a test.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.integration.test_preview_equals_git import comparable, previews, told_by_git
from tests.repository import GitRepository


def main(old: Path, new: Path, most: int) -> int:
    """Make the commits, compare each, tell how many differ."""
    with tempfile.TemporaryDirectory() as folder:
        repository = GitRepository(Path(folder) / "repository")
        repository.git("fast-import", "--quiet", stdin=b"".join(_stream(_sources(old), _sources(new), most)))
        commits = repository.git("rev-list", "--reverse", "main").decode().split()[1:]
        seen = asyncio.run(previews(repository.path, commits))
        told = told_by_git(repository, commits)
        differ = [
            commit for commit, document, files in zip(commits, seen, told, strict=True) if comparable(document) != files
        ]
    sys.stdout.write(f"{len(commits)} commits, {len(differ)} differ\n")
    return 1 if differ or not commits else 0


def _sources(root: Path) -> dict[str, bytes]:
    files = (path for path in root.rglob("*.py") if path.is_file() and "site-packages" not in path.parts)
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def _stream(old: dict[str, bytes], new: dict[str, bytes], most: int) -> Iterator[bytes]:
    yield _commit(0)
    yield from (_entry(name, content) for name, content in old.items())
    changed = [name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)]
    for number, name in enumerate(changed[:most], start=1):
        yield _commit(number)
        yield _entry(name, new[name]) if name in new else f'D "{name}"\n'.encode()


def _commit(number: int) -> bytes:
    return b"commit refs/heads/main\ncommitter A <a@example.invalid> %d +0000\ndata 1\nx\n" % (1_700_000_000 + number)


def _entry(name: str, content: bytes) -> bytes:
    return b'M 644 inline "%b"\ndata %d\n%b\n' % (name.encode(), len(content), content)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 1000))
