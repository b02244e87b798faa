"""Histories for the tests of sweeps: many small commits of every category, with odd authors, written in one go."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.repository import GitRepository

_FIRST_SECONDS = 1_700_000_000
AUTHORS = (
    b"Ada Example <ada@example.invalid>",
    b"Ann | Pipe | Example <ann|pipe@example.invalid>",
    "Zoë Ünï <zoe@example.invalid>".encode(),
    b'Bob "x" \\ O\'Neil <bob+tag@example.invalid>',
    "李雷 <li@example.invalid>".encode(),
)
MESSAGES = (
    "fix: number {0}",
    "feat: number {0} | with a bar",
    "Refactor number {0}",
    "test: number {0}\n\nA body | of two\nlines.\n",
    "docs: number {0}",
    "chore: number {0}",
    "Number {0}\n\n1\t2\tthree\n",
)


@dataclass(frozen=True, kw_only=True)
class Made:
    """One commit to be made: its message, its author as git has it, and the new content of some files."""

    message: str
    files: dict[str, str] = field(default_factory=dict)
    author: bytes = AUTHORS[0]


def make_commits(path: Path, commits: Sequence[Made], *, first_seconds: int = _FIRST_SECONDS) -> list[str]:
    """A repository at `path` with these commits on `main`, a minute apart; returns their names, newest first."""
    repository = GitRepository(path)
    repository.git("fast-import", "--quiet", stdin=b"".join(_stream(commits, first_seconds)))
    repository.git("reset", "--quiet", "--hard", "main")
    return repository.git("rev-list", "main").decode().split()


def function(number: int) -> str:
    """A few lines of code that no other number has."""
    return f"def part_{number}(value):\n    total = value + {number}\n    return total\n\n\n"


def many_commits(count: int) -> list[Made]:
    """Commits of every category in turn. Each adds a function to one of five files, and each third replaces one."""
    parts: list[list[str]] = [[] for _ in range(5)]
    made = []
    for number in range(count):
        place = number % len(parts)
        if number % 3 == 2 and parts[place]:
            parts[place][0] = function(10_000 + number)
        parts[place].append(function(number))
        files = {f"part{place}/module {place}.py": "".join(parts[place])}
        if number % 4 == 1:
            files["notes.txt"] = f"note {number}\n" * (number % 7 + 1)
        message = MESSAGES[number % len(MESSAGES)].format(number)
        made.append(Made(message=message, files=files, author=AUTHORS[number % len(AUTHORS)]))
    return made


def numbered_commits(count: int, message: str = "fix: number {0}") -> list[Made]:
    """Commits that each add one function to `a.py`."""
    return [
        Made(message=message.format(number), files={"a.py": "".join(map(function, range(number + 1)))})
        for number in range(count)
    ]


def claim(number: int, severity: str = "high", **more: Any) -> dict[str, Any]:
    """What an agent would say about the function of one commit."""
    return {
        "file": "a.py",
        "line": 1,
        "quote": f"    total = value + {number}",
        "title": f"Wrong sum {number}",
        "body": "It fails for zero.",
        "category": "correctness",
        "severity": severity,
        **more,
    }


def _stream(commits: Sequence[Made], first_seconds: int) -> Iterator[bytes]:
    for number, commit in enumerate(commits):
        when = b"%d +0000" % (first_seconds + 60 * number)
        message = commit.message.encode("utf-8", "surrogateescape")
        yield b"commit refs/heads/main\nauthor %b %b\ncommitter A <a@example.invalid> %b\n" % (
            commit.author,
            when,
            when,
        )
        yield b"data %d\n%b\n" % (len(message), message)
        for name, content in commit.files.items():
            text = content.encode("utf-8", "surrogateescape")
            yield b"M 100644 inline %b\ndata %d\n%b\n" % (name.encode("utf-8", "surrogateescape"), len(text), text)
