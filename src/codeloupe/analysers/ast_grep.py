"""ast-grep with codeloupe's own rules, on files of every language in `rules/`.

A directory of rules may be for several languages with similar grammars. Its rules are written for the first language
and repeated for the others, so that one rule for JavaScript also applies to TypeScript.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from msgspec import MsgspecError, Struct
from msgspec.json import Decoder
from msgspec.structs import replace

from codeloupe.analysers import programs
from codeloupe.analysers.interface import Analyser, AnalyserReport, AnalysisTarget, Issue, is_test_file
from codeloupe.analysers.languages import EXTENSIONS, FOLDERS, language_of
from codeloupe.analysers.php_code import only_code
from codeloupe.config.files import read_regular_file
from codeloupe.errors import AnalyserFailed
from codeloupe.model.finding import Severity
from codeloupe.system.directories import temporary_folder
from codeloupe.system.process import Completed
from codeloupe.system.regex import regex

_RULES = Path(__file__).parent / "rules"
# The time for one call, about sixty times what it takes on an ordinary machine. If a call takes longer, one of its
# files is made to be slow, and the files are halved until that file is alone.
_CALL_SECONDS = 15.0
# The most files in one call: each name is short, so that the arguments stay far below the limit of the kernel.
_MOST_FILES = 2000
# Many files must not block the rest of the review, but each pause may last until another thread pauses too.
_FILES_AT_ONCE = 100
# ast-grep silently skips a file that exceeds both.
_MOST_BYTES = 3_000_000
_MOST_LINES = 200_000
_IGNORE = "ast-grep-ignore"
# The comment up to the names of rules; a reason may follow.
_IGNORE_COMMENT = regex(rf"(?:(?://|/\*|#|--|<!--)[ \t]{{0,9}})?{_IGNORE}(?:: ?[\w, -]{{1,200}})?")
_SCANNED = regex(r"scannedFileCount=(\d+),skippedFileCount=(\d+)")
_NEEDS = regex(r"^  needs: '(.+)'$", re.MULTILINE)
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_FLAGS = (
    "--json=stream",
    "--include-metadata",
    "--color=never",
    "--inspect=summary",
    *(f"--no-ignore={kind}" for kind in ("hidden", "dot", "exclude", "global", "parent", "vcs")),
)


def rule_files(folder: str) -> list[Path]:
    """Return the rule files of one directory, in order of name."""
    return sorted((_RULES / folder).glob("*.yml"))


def rule_document(languages: Iterable[str]) -> str:
    """Return every rule for these languages as one multi-document YAML text."""
    wanted = set(languages)
    rules: list[str] = []
    for folder, served in FOLDERS.items():
        written = f"\nlanguage: {served[0]}\n"
        chosen = [language for language in served if language in wanted]
        if not chosen:
            continue
        texts = [path.read_text(encoding="utf-8") for path in rule_files(folder)]
        for language in chosen:
            rules += [text.replace(written, f"\nlanguage: {language}\n", 1) for text in texts]
    return "---\n".join(rules)


@cache
def needs_of(language: str) -> tuple[re.Pattern[str], ...] | None:
    """Return the patterns for the texts that the rules for a language need, or None if a rule needs no certain text."""
    patterns: list[re.Pattern[str]] = []
    for folder, served in FOLDERS.items():
        if language not in served:
            continue
        for path in rule_files(folder):
            needs = _NEEDS.search(path.read_text(encoding="utf-8"))
            if needs is None:
                return None
            patterns.append(re.compile(needs[1]))
    return tuple(patterns)


def _can_match(language: str, text: str) -> bool:
    """Return whether a file has the text that some rule for its language needs. If not, it need not be scanned."""
    patterns = needs_of(language)
    if patterns is None:
        return True
    # Each pattern begins with plain text, for which a search is many times as fast as for all of them together.
    return any(pattern.search(text) for pattern in patterns)


class _Place(Struct):
    """A place in a match; both numbers start at 0."""

    line: int
    column: int


class _Range(Struct):
    """The first and the last place of a match."""

    start: _Place
    end: _Place


class _Metadata(Struct):
    """The texts of a rule, as its file has them."""

    severity: str
    category: str
    why: str
    fix: str
    quiet_in_tests: bool = False
    defect: str = ""


class _Match(Struct, rename={"rule": "ruleId"}):
    """One match of a rule, as ast-grep writes it."""

    file: str
    range: _Range
    rule: str
    message: str
    metadata: _Metadata

    def issue(self, file: str) -> Issue:
        """Return the match as an issue of a file."""
        start = self.range.start
        end = self.range.end
        last_line = end.line + 1
        if end.column == 0 and end.line > start.line:
            last_line = end.line
        return Issue(
            file=file,
            line_start=start.line + 1,
            line_end=last_line,
            rule=self.rule,
            severity=Severity.parse(self.metadata.severity),
            category=self.metadata.category,
            title=self.message,
            body=self.metadata.why,
            suggestion=self.metadata.fix,
            defect=self.metadata.defect,
        )


class AstGrepAnalyser(Analyser):
    """Runs codeloupe's own rules."""

    name = "ast-grep"

    def accepts(self, path: str, start: bytes = b"") -> bool:
        """Return whether there are rules for the language of the file."""
        return language_of(path, start) is not None

    async def version(self) -> str:
        """Return the version of ast-grep, such as `0.51.0`. Raises as `analyse` does."""
        return await programs.version_of("ast-grep", self._find(), "--version", hint="run `codeloupe doctor`")

    async def analyse(self, target: AnalysisTarget) -> AnalyserReport:
        """Scan the files; files that cannot be scanned are in `failed`. Raises AnalyserFailed or a ProcessError."""
        deadline = time.monotonic() + target.timeout_seconds
        try:
            async with temporary_folder() as directory:
                copies = _Copies(directory)
                await copies.add_all(target)
                if copies.files:
                    copies.write_configuration()
                for start in range(0, len(copies.files), _MOST_FILES):
                    await self._scan(copies, list(copies.files)[start : start + _MOST_FILES], deadline)
        except OSError as error:
            raise AnalyserFailed(
                f"ast-grep could not be given its files: {error}",
                analyser="ast-grep",
                hint="check that the directory for temporary files is writable and not full",
            ) from error
        issues = sorted(copies.issues(), key=lambda issue: (issue.file, issue.line_start, issue.line_end, issue.rule))
        return AnalyserReport(tuple(issues), copies.failed)

    async def _scan(self, copies: _Copies, names: Sequence[str], deadline: float) -> None:
        """Scan some copies and store what is found in them."""
        program = self._find()

        async def attempt(names: Sequence[str], left: float) -> str | None:
            """Scan copies. If a file is in the way, store nothing and return the reason."""
            seconds = min(left, _CALL_SECONDS + copies.size(names) / 100_000)
            arguments = (*_FLAGS, *copies.options, *copies.paths(names))
            home = copies.home
            completed = await programs.execute(program, "scan", *arguments, cwd=home, home=home, seconds=seconds)
            reason = _failure_of(completed, len(names))
            if reason is None:
                copies.store(_matches_of(completed))
            return reason

        broken = await programs.in_halves("ast-grep", names, deadline, attempt)
        for name, reason in broken.items():
            copies.failed[copies.files[name]] = reason

    def _find(self) -> str:
        """Return the program to start. Never `sg`: on Linux that is another program."""
        return self._program or programs.find("ast-grep", "ast-grep-cli")


class _Copies:
    """Copies of the files in a directory, with the rules and our configuration, and what is found in them.

    In a trusted change, a file with a suppression comment has a second copy in which the comment has no effect.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.home = directory / "empty"
        # The path of each file, by the name of its copy.
        self.files: dict[str, str] = {}
        self.failed: dict[str, str] = {}
        self._languages: set[str] = set()
        # The text with comments, by the name of the copy without them.
        self._commented: dict[str, str] = {}
        self._found: dict[str, set[Issue]] = defaultdict(set)

    async def add_all(self, target: AnalysisTarget) -> None:
        """Copy the files of a target."""
        for number, path in enumerate(target.files, start=1):
            try:
                self._add(target.root, path, trusted=target.trusted)
            except OSError as error:
                self.failed[path] = f"it cannot be read: {error.strerror}"
            if number % _FILES_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _add(self, root: Path, path: str, *, trusted: bool) -> None:
        """Copy one file, unless it is empty, is of no language with rules, or cannot be scanned."""
        content = read_regular_file(root / path)
        language = language_of(path, content)
        if language is None or not content:
            return
        if content.startswith(_UTF16_MARKS):
            self.failed[path] = "it is UTF-16 text; only UTF-8 and its subsets are analysed"
            return
        if len(content) > _MOST_BYTES and content.count(b"\n") >= _MOST_LINES:
            self.failed[path] = (
                f"it is larger than {_MOST_BYTES:,} bytes and {_MOST_LINES:,} lines, the limit of ast-grep"
            )
            return
        text = content.decode("utf-8", "replace")
        if language == "Php":
            text = only_code(text)
        elif text.lstrip("\ufeff \t\r\n").startswith("<?xml"):
            # A translation file of Qt Linguist is also named `.ts`.
            return
        if not _can_match(language, text):
            return
        self._languages.add(language)
        uncommented = text.replace(_IGNORE, "ast-grep_ignore")
        if uncommented.encode("utf-8") == content:
            programs.link_or_copy(root / path, self._new_copy(path, language), content)
            return
        if trusted and uncommented != text:
            self._new_copy(path, language).write_bytes(text.encode("utf-8"))
        without_comments = self._new_copy(path, language)
        without_comments.write_bytes(uncommented.encode("utf-8"))
        if trusted and uncommented != text:
            self._commented[without_comments.name] = text

    def _new_copy(self, path: str, language: str) -> Path:
        """Return the place for another copy of a file."""
        copy = self._directory / f"{len(self.files)}{EXTENSIONS[language]}"
        self.files[copy.name] = path
        return copy

    def write_configuration(self) -> None:
        """Write the rules for the languages of the copies, and a configuration.

        Without a configuration of its own, ast-grep reads the first sgconfig.yml of any parent directory.
        """
        self.home.mkdir()
        (self._directory / "sgconfig.yml").write_text("ruleDirs: []\n", encoding="utf-8")
        (self._directory / "rules.yml").write_text(rule_document(self._languages), encoding="utf-8")

    @property
    def options(self) -> tuple[str, ...]:
        """Return the options that name the configuration and the rules."""
        directory = self._directory
        return ("--config", str(directory / "sgconfig.yml"), "--rule", str(directory / "rules.yml"), "--")

    def paths(self, names: Iterable[str]) -> list[str]:
        """Return the whole paths of copies."""
        return [str(self._directory / name) for name in names]

    def size(self, names: Iterable[str]) -> int:
        """Return the bytes of copies."""
        return sum((self._directory / name).stat().st_size for name in names)

    def store(self, matches: Iterable[_Match]) -> None:
        """Store matches as issues, except those that tests have a good reason for."""
        for match in matches:
            name = Path(match.file).name
            file = self.files[name]
            if not (match.metadata.quiet_in_tests and is_test_file(file)):
                self._found[name].add(match.issue(file))

    def issues(self) -> set[Issue]:
        """Return the issues of all files. An issue that only a copy without comments has is silenced by its comment."""
        every_issue: set[Issue] = set()
        for name, found in self._found.items():
            if name not in self._commented:
                every_issue |= found
        for name, text in self._commented.items():
            comments = _comments_by_line(text)
            for issue in self._found[name] - every_issue:
                every_issue.add(replace(issue, silenced_by=_comment_for(issue, comments)))
        return every_issue


def _comment_for(issue: Issue, comments: Mapping[int, str]) -> str:
    """Return the comment that hides an issue: on its line, on the line before, or the first one of the file."""
    line = issue.line_start
    first = next(iter(comments.values()))
    return comments.get(line) or comments.get(line - 1) or first


def _comments_by_line(text: str) -> dict[int, str]:
    """Return the suppression comments of a text by the number of their line."""
    comments: dict[int, str] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        comment = _IGNORE_COMMENT.search(line)
        if comment is not None:
            comments[number] = comment[0].strip()
    return comments


def _failure_of(completed: Completed, files: int) -> str | None:
    """Return why one of the files is in the way, or None. Raises AnalyserFailed if ast-grep itself failed."""
    if completed.exit_code < 0:
        return f"ast-grep died of signal {-completed.exit_code}"
    counts = _SCANNED.search(completed.stderr)
    if completed.exit_code != 0 or counts is None:
        what = "did not report which files it scanned"
        if completed.exit_code != 0:
            what = f"ended with exit code {completed.exit_code}"
        hint = "run `codeloupe doctor`; if ast-grep is healthy there, please report this"
        raise programs.failure("ast-grep", what, completed.stderr, hint=hint)
    scanned = int(counts[1]) - int(counts[2])
    if scanned != files:
        return "ast-grep skipped it without giving a reason"
    return None


def _matches_of(completed: Completed) -> list[_Match]:
    """Return the matches in the output of ast-grep. Raises AnalyserFailed if it cannot be read."""
    try:
        return Decoder(_Match).decode_lines(completed.stdout)
    except (MsgspecError, RecursionError) as error:
        what = f"returned unexpected output: {error}"
        hint = "check that ast-grep is version 0.51 or newer (`codeloupe doctor`)"
        raise programs.failure("ast-grep", what, "", hint=hint) from error
