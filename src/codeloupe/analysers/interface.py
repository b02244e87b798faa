"""The interface of an analyser: it gets files and line numbers, and returns issues and failures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, field

from codeloupe.model import Confidential
from codeloupe.model.finding import Severity
from codeloupe.model.ports import MomentOf
from codeloupe.system.regex import regex


class Issue(Struct, frozen=True, kw_only=True):
    """One issue that an analyser reports. Lines start at 1 and include both ends.

    `defect` names the defect if several rules, also of different analysers, report the same one; empty means the rule's
    own name. `rule_title` is the analyser's title of the rule, if `title` varies from issue to issue. `silenced_by` is
    the text of the comment that hides the issue, such as `# noqa: S307`, or empty. `anchor` is the first added line
    that the issue covers; the reviewer sets it.
    """

    file: str
    line_start: int
    line_end: int
    rule: str
    severity: Severity
    category: str
    title: str
    body: str
    suggestion: str | None = None
    rule_title: str = ""
    silenced_by: str = ""
    defect: str = ""
    anchor: int = 0


class AnalysisTarget(Struct, frozen=True, kw_only=True):
    """Files to analyse, each a regular file under `root`, and the numbers of the lines that the change added to them.

    In a trusted change, an issue that a comment hides is reported with that comment in `silenced_by`. In an untrusted
    change, such comments are ignored. `added_text` has the added lines of files of which only the diff is known: only
    an analyser with `needs_only_added_lines` gets such files. `moment_of` returns whether an added line is uncommitted,
    staged, committed or pushed, for advice that fits.
    """

    root: Path
    files: tuple[str, ...]
    added_lines: Mapping[str, frozenset[int]]
    trusted: bool
    timeout_seconds: float
    added_text: Mapping[str, Mapping[int, bytes]] = field(default_factory=dict)
    moment_of: MomentOf | None = None


class AnalyserReport(Confidential, frozen=True):
    """Issues, and the files that could not be analysed, each with the reason.

    `sensitive` has, for a file and a line, the values that no report may show in full. `quiet` has, for a file and a
    line, the defects, or single rules, that this analyser has examined more closely: an issue of another analyser that
    starts on the line and has such a rule or defect is not reported.
    """

    issues: tuple[Issue, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    sensitive: Mapping[str, Mapping[int, tuple[str, ...]]] = field(default_factory=dict)
    quiet: Mapping[str, Mapping[int, frozenset[str]]] = field(default_factory=dict)


class Analyser(ABC):
    """One offline analyser; `program` replaces the program that is installed with codeloupe.

    `name` is in reports. An analyser with `needs_only_added_lines` also gets `added_text`, the lines of a bare diff.
    """

    name: str
    needs_only_added_lines: bool = False

    def __init__(self, program: str | None = None) -> None:
        self._program = program

    @abstractmethod
    def accepts(self, path: str, start: bytes = b"") -> bool:
        """Return whether it analyses a file with this path that begins with `start`."""

    @abstractmethod
    async def analyse(self, target: AnalysisTarget) -> AnalyserReport:
        """Return the issues of the target. Raises AnalyserFailed or a ProcessError instead of an empty report."""

    @abstractmethod
    async def version(self) -> str:
        """Return the version of its program. Raises as `analyse` does."""


_TEST_DIRECTORIES = frozenset({"test", "tests", "testing", "testdata", "fixtures", "__tests__", "spec", "specs"})
_PROSE_DIRECTORIES = frozenset({"doc", "docs", "example", "examples", "samples", "i18n", "locale", "locales", "lang"})
_PROSE_SUFFIXES = (".md", ".rst", ".txt", ".adoc", ".example", ".sample", ".po")
_TEST_NAME = regex(r"(test_.*|conftest|.*[._-](test|spec))\.[a-z]+")


def is_test_file(path: str) -> bool:
    """Return whether a file is part of a test suite, by its directories or its name."""
    *directories, name = path.lower().split("/")
    return not _TEST_DIRECTORIES.isdisjoint(directories) or _TEST_NAME.fullmatch(name) is not None


def is_prose_file(path: str) -> bool:
    """Return whether a file is documentation, an example or a translation, by its directories or its suffix."""
    *directories, name = path.lower().split("/")
    return not _PROSE_DIRECTORIES.isdisjoint(directories) or name.endswith(_PROSE_SUFFIXES)
