"""Commit messages as people, bots and attackers write them, each with its files and the category that it has."""

import tomllib
from pathlib import Path
from typing import NamedTuple

from codeloupe.model.sweep import CommitCategory

_CODE = ("src/app.py",)
_TESTS = ("tests/test_app.py", "tests/data/one.json")
_PROSE = ("README.md", "docs/use.rst")


class Message(NamedTuple):
    """A message, the files of its commit, and what it is."""

    category: CommitCategory
    text: str
    files: tuple[str, ...] = _CODE


_STRANGE = (
    Message(CommitCategory.BUG_FIX, "\x1b[31mFix\x1b[0m the colour"),
    Message(CommitCategory.BUG_FIX, "Fix\x00 the\x07 bell"),
    Message(CommitCategory.BUG_FIX, "\u202efix: right to left"),
    Message(CommitCategory.BUG_FIX, "Fix " + "x" * 1_000_000),
    Message(CommitCategory.BUG_FIX, "fix: " + "((((" * 200_000),
    Message(CommitCategory.BUG_FIX, "fixup! " * 100_000),
    Message(CommitCategory.OTHER, "\x00\x01\x02"),
    Message(CommitCategory.OTHER, "\ud83d\udc1b"),
    Message(CommitCategory.OTHER, "x" * 1_000_000),
    Message(CommitCategory.OTHER, "[" * 1_000_000),
    Message(CommitCategory.OTHER, "a: " * 300_000),
)
_BY_FILES = (
    Message(CommitCategory.TEST_CHANGE, "Wait longer", _TESTS),
    Message(CommitCategory.TEST_CHANGE, "Add a case", _TESTS),
    Message(CommitCategory.TEST_CHANGE, "asdf", ("src/app.test.ts", "src/__tests__/app.tsx")),
    Message(CommitCategory.TEST_CHANGE, "Update OrderServiceTest.java", ("src/x/OrderServiceTest.java",)),
    Message(CommitCategory.TEST_CHANGE, "", ("pkg/thing_test.go",)),
    Message(CommitCategory.TEST_CHANGE, "Update spec", ("spec/models/user_spec.rb",)),
    Message(CommitCategory.DOCUMENTATION, "Better words", _PROSE),
    Message(CommitCategory.DOCUMENTATION, "Add a chapter on exports", _PROSE),
    Message(CommitCategory.DOCUMENTATION, "", ("CHANGELOG.md",)),
    Message(CommitCategory.DOCUMENTATION, "Update index.html", ("docs/index.html",)),
    Message(CommitCategory.CHORE, "Create main.yml", (".github/workflows/main.yml",)),
    Message(CommitCategory.CHORE, "Add files via upload", ("requirements.txt",)),
    Message(CommitCategory.CHORE, "asdf", ("poetry.lock", ".gitignore")),
    Message(CommitCategory.FEATURE, "Add files via upload", ("requirements.txt", "app.py")),
    Message(CommitCategory.OTHER, "asdf", ("README.md", "app.py")),
    Message(CommitCategory.OTHER, "asdf", ("tests/test_app.py", "README.md")),
    Message(CommitCategory.OTHER, "asdf", ()),
    Message(CommitCategory.OTHER, "Better words", ("latest.py", "contest/a.py", "doctor/b.py")),
    # The message comes before the files.
    Message(CommitCategory.BUG_FIX, "fix: wrong year", _PROSE),
    Message(CommitCategory.FEATURE, "feat: more cases", _TESTS),
    Message(CommitCategory.CHORE, "Bump version to 2.0", _PROSE),
    # The body comes last.
    Message(CommitCategory.BUG_FIX, "Parser\n\nIt crashed on an empty list."),
    Message(CommitCategory.FEATURE, "Parser\n\nThis adds a second one."),
    Message(CommitCategory.DOCUMENTATION, "Words\n\nIt crashed on an empty list.", _PROSE),
    Message(CommitCategory.OTHER, "Merge pull request #12 from someone/login\n\nfix: login"),
    Message(CommitCategory.OTHER, "Parser\n\n" + "y " * 500_000 + "crash"),
)

_ORDINARY = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

MESSAGES: tuple[Message, ...] = (
    *(Message(CommitCategory(category), text) for category, texts in _ORDINARY.items() for text in texts),
    *_STRANGE,
    *_BY_FILES,
)
