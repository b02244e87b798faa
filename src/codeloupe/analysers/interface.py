"""What an analyser is: a target in, issues and failures out. Knows nothing of diffs beyond line numbers."""

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
    """One hit of an analyser, before hits are narrowed to changed lines. Lines start at 1 and include both ends.

    `rule_title` is the analyser's title of the rule, if `title` varies from issue to issue. `silenced_by` is the text
    of the comment that hides the issue, such as `# noqa: S307`, or empty.
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


class AnalysisTarget(Struct, frozen=True, kw_only=True):
    """Files to analyse, each a regular file under `root`, and the numbers of the lines that the change added to them.

    In a trusted change, an issue that a comment hides is reported with that comment in `silenced_by`. In an untrusted
    change, such comments are ignored. `added_text` holds the added lines of files of
    which only the diff is known: an analyser gets such files when it says that `needs_only_added_lines` is true.
    `moment_of` says how far an added line has got, for advice that fits.
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

    `sensitive` holds, for a file and a line, the values that no report may show in full. `quiet` holds, for a file and
    a line, the rules of other analysers that have nothing to add there: this one has looked closer.
    """

    issues: tuple[Issue, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    sensitive: Mapping[str, Mapping[int, tuple[str, ...]]] = field(default_factory=dict)
    quiet: Mapping[str, Mapping[int, frozenset[str]]] = field(default_factory=dict)


class Analyser(ABC):
    """One offline analyser; `program` is what it starts instead of the program that is installed with us.

    `name` is in reports. With `needs_only_added_lines` a bare diff will do, so that it gets `added_text` too.
    """

    name: str
    needs_only_added_lines: bool = False

    def __init__(self, program: str | None = None) -> None:
        self._program = program

    @abstractmethod
    def accepts(self, path: str) -> bool:
        """Whether it has anything to say about such a file."""

    @abstractmethod
    async def analyse(self, target: AnalysisTarget) -> AnalyserReport:
        """Analyse. Raises AnalyserFailed or a ProcessError when it cannot; never returns nothing in its place."""

    @abstractmethod
    async def version(self) -> str:
        """The version of its program. Raises as `analyse` does."""


_TEST_DIRECTORIES = frozenset({"test", "tests", "testing", "testdata", "fixtures", "__tests__", "spec", "specs"})
_PROSE_DIRECTORIES = frozenset({"doc", "docs", "example", "examples", "samples", "i18n", "locale", "locales", "lang"})
_PROSE_SUFFIXES = (".md", ".rst", ".txt", ".adoc", ".example", ".sample", ".po")
_TEST_NAME = regex(r"(test_.*|conftest|.*[._-](test|spec))\.[a-z]+")


def is_test_file(path: str) -> bool:
    """Whether a file is part of a test suite, by its directories or its name."""
    *directories, name = path.lower().split("/")
    return not _TEST_DIRECTORIES.isdisjoint(directories) or _TEST_NAME.fullmatch(name) is not None


def is_prose_file(path: str) -> bool:
    """Whether a file is documentation, an example or a translation, by its directories or its suffix."""
    *directories, name = path.lower().split("/")
    return not _PROSE_DIRECTORIES.isdisjoint(directories) or name.endswith(_PROSE_SUFFIXES)
