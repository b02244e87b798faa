"""A long history of lifelike commits, made from the standard library's own sources, the same at every run.

Each commit edits, moves, adds, removes or retypes a few files. It is written by `git fast-import`, in one go.
"""

import random
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from tests.repository import GitRepository

_FIRST_SECONDS = 1_700_000_000
_FOLDERS = ("core", "core/deep", "web", "web b/x", "docs", "tests")


class HistoryWriter:
    """Writes one commit after the other to a fast-import stream, and remembers the tree."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._tree: dict[str, tuple[str, bytes]] = {}
        self._sources = _sources()

    def stream(self, commits: int) -> Iterator[bytes]:
        """The stream for so many commits on refs/heads/main."""
        for number in range(commits):
            for _ in range(self._random.randint(1, 6)):
                self._step(number)
            yield b"commit refs/heads/main\ncommitter Ada Example <ada@example.invalid> %d +0000\ndata 4\nstep\n" % (
                _FIRST_SECONDS + number
            )
            yield b"deleteall\n"
            for path, (mode, content) in sorted(self._tree.items()):
                yield b"M %b inline %b\ndata %d\n" % (mode.encode(), _quoted(path), len(content))
                yield content + b"\n"

    def _step(self, number: int) -> None:
        choose = self._random.choices
        (act,) = choose(
            (self._add, self._edit, self._rename, self._remove, self._retype, self._binary),
            weights=(4, 14, 3, 2, 1, 1) if len(self._tree) > 5 else (1, 0, 0, 0, 0, 0),
        )
        act(number)

    def _add(self, number: int) -> None:
        name = f"{self._random.choice(_FOLDERS)}/file{number}_{self._random.randrange(100)}.py"
        self._tree[name] = ("100644", self._random.choice(self._sources))

    def _edit(self, _number: int) -> None:
        path = self._any()
        mode, content = self._tree[path]
        lines = content.split(b"\n")
        for _ in range(self._random.randint(1, 8)):
            place = self._random.randrange(len(lines) + 1)
            removed = self._random.choice((0, 0, 1, 1, 2, 7))
            added = [self._random.choice(lines) if lines else b"" for _ in range(self._random.choice((0, 1, 1, 3)))]
            lines[place : place + removed] = added
        self._tree[path] = (mode, b"\n".join(lines))

    def _rename(self, number: int) -> None:
        path = self._any()
        self._tree[f"{self._random.choice(_FOLDERS)}/moved{number} to b/{path.rsplit('/', 1)[1]}"] = self._tree.pop(
            path
        )

    def _remove(self, _number: int) -> None:
        del self._tree[self._any()]

    def _retype(self, _number: int) -> None:
        path = self._any()
        mode, content = self._tree[path]
        other = self._random.choice([kind for kind in ("100644", "100755", "120000") if kind != mode])
        self._tree[path] = (other, content.split(b"\n", 1)[0] or b"x" if other == "120000" else content)

    def _binary(self, number: int) -> None:
        self._tree[f"web/image{number % 5}.png"] = ("100644", self._random.randbytes(300) + b"\0")

    def _any(self) -> str:
        return self._random.choice(sorted(self._tree))


def make_long_history(path: Path, *, commits: int, seed: int) -> list[str]:
    """A repository at `path`; returns its commits, oldest first."""
    repository = GitRepository(path)
    repository.git("fast-import", "--quiet", stdin=b"".join(HistoryWriter(seed).stream(commits)))
    return repository.git("rev-list", "--reverse", "main").decode().split()


def _sources() -> list[bytes]:
    folder = Path(sysconfig.get_path("stdlib"))
    names = ("bisect", "heapq", "queue", "shlex", "textwrap", "sched", "cmd", "getpass", "keyword", "colorsys")
    return [(folder / f"{name}.py").read_bytes() for name in names]


def _quoted(path: str) -> bytes:
    return b'"' + path.encode().replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'
