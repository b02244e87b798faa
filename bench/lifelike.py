"""Changes as people make them, in a real repository, the same at every run: small, large, huge.

Most files are modified, in places of different sizes; some are new, deleted or renamed. The repository has guidance of
7 kB for coding agents, as most have today. Sizes are told in lines, since how many tokens a diff has depends on who
counts.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

from bench.changes import git
from bench.languages import LANGUAGES, TEXTS, Language
from bench.source_text import Function, Words, file_text, make_function, make_statement

_FOLDERS = ("billing", "catalogue", "delivery/routes", "orders", "shared", "web/src/pages", "warehouse/stock")
_MESSAGES = (
    """Reserve stock before the payment is taken

Two customers could buy the last piece. The reservation expires by itself
after a quarter of an hour, so that an abandoned basket blocks nothing.""",
    "Read prices in the currency of the customer\n\nRounds half to even, as the ledger does.",
    "Tidy up after the move of the routes",
)
_GUIDANCE = Path(__file__).with_name("shop_guidance.md")
# Which of a dozen files are new, which are deleted, and which of twenty are renamed.
_NEW, _DELETED, _RENAMED = (4, 10), (5,), 7
_FUNCTIONS_AROUND = 5
_LINES_A_FUNCTION = 14


@dataclass(frozen=True, slots=True)
class ChangeSize:
    """How large a change is: its files, and about how many lines are added and deleted in all."""

    files: int
    changed_lines: int


@dataclass(frozen=True, slots=True)
class _File:
    """One file before and after; None where there is none."""

    before: tuple[str, str] | None
    after: tuple[str, str] | None


SMALL = ChangeSize(files=6, changed_lines=75)
LARGE = ChangeSize(files=60, changed_lines=4_900)
# In the end a million lines are added or deleted: edits fall upon each other, more so in large files.
HUGE = ChangeSize(files=1_000, changed_lines=1_080_000)


def make_lifelike_change(root: Path, size: ChangeSize) -> None:
    """A repository at `root` with the change on a branch of its own, in three commits behind `main`."""
    root.mkdir(parents=True)
    git(root, "init", "--quiet", "--template=", "--initial-branch=main")
    files = list(_files(size))
    guidance = "AGENTS.md", _GUIDANCE.read_text(encoding="utf-8")
    _write(root, [guidance, *(file.before for file in files if file.before)], "The shop as it is")
    git(root, "checkout", "--quiet", "-b", "reservations")
    for number, message in enumerate(_MESSAGES):
        part = files[number :: len(_MESSAGES)]
        for file in part:
            if file.before and (file.after is None or file.after[0] != file.before[0]):
                (root / file.before[0]).unlink()
        _write(root, [file.after for file in part if file.after], message)


def branch_diff(root: Path, *flags: str) -> bytes:
    """The change as `git diff` shows it."""
    return git(root, "diff", *flags, "main...reservations")


def _write(root: Path, files: Sequence[tuple[str, str]], message: str) -> None:
    for name, text in files:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", f"--message={message}")


def _files(size: ChangeSize) -> Iterator[_File]:
    chance = random.Random(size.files)
    shares = [chance.lognormvariate(0, 0.7) for _ in range(size.files)]
    for number, share in enumerate(shares):
        is_text = number % 10 == 9
        language = TEXTS[number // 10 % 2] if is_text else LANGUAGES[number % len(LANGUAGES)]
        lines = max(4, round(size.changed_lines * share / sum(shares)))
        yield _file(number, language, lines)


def _file(number: int, language: Language, lines: int) -> _File:
    words = Words(number, language)
    folder = _FOLDERS[number % len(_FOLDERS)]
    name = f"{folder}/{words.name()}_{number}.{language.suffix}"
    if number % 12 in _NEW + _DELETED:
        alone = name, file_text(language, [make_function(words) for _ in range(max(1, lines // _LINES_A_FUNCTION))])
        return _File(None, alone) if number % 12 in _NEW else _File(alone, None)
    functions = [make_function(words) for _ in range(_FUNCTIONS_AROUND + lines // 12)]
    edited = deepcopy(functions)
    left = lines
    while left > 0:
        left -= _edit(edited, words, left)
    new_name = f"{folder}/{words.name()}_{number}.{language.suffix}" if number % 20 == _RENAMED else name
    return _File((name, file_text(language, functions)), (new_name, file_text(language, edited)))


def _edit(functions: list[Function], words: Words, left: int) -> int:
    """Change something, and tell how many lines that added and deleted."""
    chance = words.chance
    place = chance.randrange(len(functions))
    if left > _LINES_A_FUNCTION and chance.random() < 0.3:
        functions.insert(place, make_function(words))
        return len(functions[place].lines())
    if left > _LINES_A_FUNCTION and len(functions) > _FUNCTIONS_AROUND and chance.random() < 0.15:
        return len(functions.pop(place).lines())
    statements = functions[place].statements
    # Earlier edits may have left a function with nothing in it.
    start = chance.randrange(len(statements)) if statements else 0
    end = min(len(statements), start + chance.choice((0, 1, 1, 1, 2)))
    new = [make_statement(words) for _ in range(chance.choice((0, 1, 1, 2, 3)))]
    changed = sum(map(len, [*statements[start:end], *new]))
    statements[start:end] = new or [[*statement] for statement in statements[start:end][1:]]
    return max(1, changed)
