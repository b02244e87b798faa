"""ast-grep with our pack of rules, on files of every language that it has rules for.

A folder of `rules/` may serve several languages that share a grammar: its rules are written for the first one and
repeated for the others, so that a rule for JavaScript is written once and holds for TypeScript too.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec.structs import replace

from codeloupe.analysers import programs
from codeloupe.analysers.interface import Analyser, AnalyserReport, AnalysisTarget, Issue, is_test_file
from codeloupe.config.files import read_regular_file as read
from codeloupe.errors import AnalyserFailed
from codeloupe.model.finding import Severity
from codeloupe.system.directories import temporary_folder
from codeloupe.system.process import Completed
from codeloupe.system.regex import regex

_ROOT = Path(__file__).parent / "rules"
_LANGUAGES = tomllib.loads((_ROOT / "languages.toml").read_text(encoding="utf-8"))
# Each folder of rules and the languages, in ast-grep's spelling, that it is for; and the suffix of each language.
FOLDERS = {folder: languages.split() for folder, languages in _LANGUAGES["folders"].items()}
EXTENSIONS = {language: suffixes.split()[0] for language, suffixes in _LANGUAGES["suffixes"].items()}
_BY_SUFFIX, _BY_NAME = (
    {word: language for language, words in _LANGUAGES[table].items() for word in words.split()}
    for table in ("suffixes", "names")
)


def language_of(path: str) -> str | None:
    """The language a file's name says it is written in, or None when the pack has no rules for it."""
    name = PurePosixPath(path).name.lower()
    return _BY_NAME.get(name) or _BY_SUFFIX.get(PurePosixPath(name).suffix)


def rule_files(folder: str) -> list[Path]:
    """The rule files of one folder, in order of name."""
    return sorted((_ROOT / folder).glob("*.yml"))


def rule_document(languages: Iterable[str]) -> str:
    """Every rule for these languages as one multi-document YAML text."""
    wanted = set(languages)
    rules: list[str] = []
    for folder, served in FOLDERS.items():
        chosen = [language for language in served if language in wanted]
        texts = [path.read_text(encoding="utf-8") for path in rule_files(folder)] if chosen else []
        written = f"\nlanguage: {served[0]}\n"
        rules += [text.replace(written, f"\nlanguage: {name}\n", 1) for name in chosen for text in texts]
    return "---\n".join(rules)


_OPENING = regex(r"<\?(?:php(?=\s|\Z)|=|(?=\s))", re.IGNORECASE)
# What may hold a `?>` that does not close, and the `?>` that does. Every part also ends at the end of the text, so
# that none is tried in vain: the search stays linear on hostile input.
_CLOSING = regex(
    r"""
    " (?: [^"\\] | \\(?:.|\Z) )* (?: " | \Z )
    | ' (?: [^'\\] | \\(?:.|\Z) )* (?: ' | \Z )
    | /\* .*? (?: \*/ | \Z )
    | (?P<comment> (?: // | \#(?!\[) ) [^\n]*? ) (?= \?> | \n | \Z )
    | <<< [ \t]* (["']?) (?P<label>\w+) \1 \r?\n .*? (?: \n [ \t]* (?P=label) \b | \Z )
    | (?P<close> \?> )
    """,
    re.VERBOSE | re.DOTALL,
)


def only_code(text: str) -> str:
    """The same file as one run of PHP code; every line of code keeps its number."""
    parts = ["<?php "]
    position = 0
    while opening := _OPENING.search(text, position):
        parts += "\n" * text.count("\n", position, opening.start()), " echo " if opening[0] == "<?=" else " "
        before: re.Match[str] | None = None
        position = code_end = len(text)
        for part in _CLOSING.finditer(text, opening.end()):
            if part["close"]:
                position = code_end = part.start()
                # Kept, a line comment before the `?>` would hide the code that follows in its line.
                if before is not None and before["comment"] and before.end() == position:
                    code_end = before.start()
                break
            before = part
        parts += text[opening.end() : code_end], ";" if position < len(text) else ""
    return "".join((*parts, "\n" * text.count("\n", position)))


# One call may take this long, about sixty times what it takes on an ordinary machine. Past it some file in the batch is
# made to be slow, and the batch is halved until that file is alone.
_CALL_SECONDS = 15.0
_IGNORE = "ast-grep-ignore"
# The comment up to the names of rules; a reason may follow.
_IGNORE_COMMENT = regex(rf"(?:(?://|/\*|#|--|<!--)[ \t]{{0,9}})?{_IGNORE}(?:: ?[\w, -]{{1,200}})?")
_SCANNED = regex(r"scannedFileCount=(\d+),skippedFileCount=(\d+)")
_FLAGS = (
    "--json=stream",
    "--include-metadata",
    "--color=never",
    "--inspect=summary",
    *(f"--no-ignore={kind}" for kind in ("hidden", "dot", "exclude", "global", "parent", "vcs")),
)


class AstGrepAnalyser(Analyser):
    """Runs the rule pack."""

    name = "ast-grep"

    def accepts(self, path: str) -> bool:
        """Whether the pack has rules for the language this file's name speaks of."""
        return language_of(path) is not None

    async def version(self) -> str:
        """The version of ast-grep, such as `0.51.0`. Raises as `analyse` does."""
        return await programs.version_of("ast-grep", self._find(), "--version", hint="run `codeloupe doctor`")

    async def analyse(self, target: AnalysisTarget) -> AnalyserReport:
        """Scan the files; what cannot be scanned is in `failed`. Raises AnalyserFailed or a ProcessError."""
        deadline = time.monotonic() + target.timeout_seconds
        issues: dict[str, set[Issue]] = defaultdict(set)
        try:
            async with temporary_folder() as directory:
                files, commented, failed = await _stage(target, directory)
                names, empty = list(files), directory / "empty"
                options = ("--config", str(directory / "sgconfig.yml"), "--rule", str(directory / "rules.yml"), "--")
                argv = (self._find(), "scan", *_FLAGS, *options)

                async def attempt(names: Sequence[str], left: float) -> str | None:
                    size = sum((directory / name).stat().st_size for name in names)
                    seconds = min(left, _CALL_SECONDS + size / 100_000)
                    paths = (str(directory / name) for name in names)
                    completed = await programs.execute(*argv, *paths, cwd=empty, home=empty, seconds=seconds)
                    return _keep(names, completed, files, issues)

                # So the argument list of one call is far below the kernel's limit; each name is ours and short.
                for start in range(0, len(names), 2000):
                    broken = await programs.in_halves("ast-grep", names[start : start + 2000], deadline, attempt)
                    failed |= {files[name]: reason for name, reason in broken.items()}
        except OSError as error:
            raise AnalyserFailed(
                f"ast-grep could not be given its files: {error}",
                analyser="ast-grep",
                hint="check that the directory for temporary files is writable and not full",
            ) from error
        every_issue = _with_silenced(issues, commented)
        ordered = sorted(every_issue, key=lambda each: (each.file, each.line_start, each.line_end, each.rule))
        return AnalyserReport(tuple(ordered), failed)

    def _find(self) -> str:
        """The program to start. Never `sg`: on Linux that is another program."""
        return self._program or programs.find("ast-grep", "ast-grep-cli")


async def _stage(target: AnalysisTarget, directory: Path) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Copy files, rules and our configuration into a directory.

    Return the paths by the names of their copies, the texts of commented files, and the reasons of failed files. In a
    trusted change, a file with a suppression comment has a second copy in which the comment has no effect; the name of
    that copy is the key of the commented text.
    """
    (directory / "empty").mkdir()
    # Without a configuration of its own, ast-grep takes the first sgconfig.yml of any parent directory.
    (directory / "sgconfig.yml").write_text("ruleDirs: []\n", encoding="utf-8")
    files: dict[str, str] = {}
    commented: dict[str, str] = {}
    failed: dict[str, str] = {}
    for path in target.files:
        language = language_of(path)
        if language is None:
            continue
        try:
            content = read(target.root / path)
        except OSError as error:
            failed[path] = f"it cannot be read: {error.strerror}"
            continue
        if content.startswith((b"\xff\xfe", b"\xfe\xff")):
            failed[path] = "it is UTF-16 text; only UTF-8 and its subsets are analysed"
        elif len(content) > 3_000_000 and content.count(b"\n") >= 200_000:  # see `file_too_large` in its sources
            failed[path] = "it is larger than 3,000,000 bytes and 200,000 lines, the limit of ast-grep"
        elif content and (language == "Php" or not content.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<?xml")):
            # Left out: a translation of Qt Linguist, say, which is called .ts as well, and what is empty.
            text = content.decode("utf-8", "replace")
            text = only_code(text) if language == "Php" else text
            uncommented = text.replace(_IGNORE, "ast-grep_ignore")
            if not target.trusted:
                text = uncommented
            name = f"{len(files)}{EXTENSIONS[language]}"
            (directory / name).write_bytes(text.encode("utf-8"))
            files[name] = path
            if text != uncommented:
                second_name = f"{len(files)}{EXTENSIONS[language]}"
                (directory / second_name).write_bytes(uncommented.encode("utf-8"))
                files[second_name] = path
                commented[second_name] = text
        await asyncio.sleep(0)  # many files must not hold up the rest of the review
    rules = rule_document(language_of(path) or "" for path in files.values())
    (directory / "rules.yml").write_text(rules, encoding="utf-8")
    return files, commented, failed


def _with_silenced(issues: Mapping[str, set[Issue]], commented: Mapping[str, str]) -> set[Issue]:
    """Return the issues of all copies. An issue that only a copy without comments has is silenced by its comment."""
    every_issue: set[Issue] = set()
    for name, found in issues.items():
        if name not in commented:
            every_issue |= found
    for name, text in commented.items():
        comments = _comments_by_line(text)
        first = next(iter(comments.values()))
        for issue in issues.get(name, set()) - every_issue:
            line = issue.line_start
            # The first comment of a file may be for the whole file.
            comment = comments.get(line) or comments.get(line - 1) or first
            every_issue.add(replace(issue, silenced_by=comment))
    return every_issue


def _comments_by_line(text: str) -> dict[int, str]:
    """Return the suppression comments of a text by the number of their line."""
    comments: dict[int, str] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        comment = _IGNORE_COMMENT.search(line)
        if comment is not None:
            comments[number] = comment[0].strip()
    return comments


def _keep(
    names: Sequence[str], completed: Completed, files: Mapping[str, str], issues: dict[str, set[Issue]]
) -> str | None:
    """Add the issues of an answer by copy. If a file is in the way, add nothing and return the reason."""
    if completed.exit_code < 0:
        return f"ast-grep died of signal {-completed.exit_code}"
    counts = _SCANNED.search(completed.stderr)
    if completed.exit_code != 0 or counts is None:
        silent = "did not say which files it scanned"
        what = f"ended with exit code {completed.exit_code}" if completed.exit_code else silent
        hint = "run `codeloupe doctor`; if ast-grep is healthy there, please report this"
        raise programs.failure("ast-grep", what, completed.stderr, hint=hint)
    if int(counts[1]) - int(counts[2]) != len(names):
        return "ast-grep skipped it without giving a reason"
    try:
        matches = [json.loads(row) for row in completed.stdout.splitlines()]
        found = [(Path(match["file"]).name, _issue(match, files)) for match in matches]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        what = f"returned unexpected output: {error!r}"
        hint = "check that ast-grep is version 0.51 or newer (`codeloupe doctor`)"
        raise programs.failure("ast-grep", what, "", hint=hint) from error
    for name, issue in found:
        if issue is not None:
            issues[name].add(issue)
    return None


def _issue(match: Any, files: Mapping[str, str]) -> Issue | None:
    """One match as an issue, or None when it is about something that a test may do."""
    start, end, about = match["range"]["start"], match["range"]["end"], match["metadata"]
    file = files[Path(match["file"]).name]
    if about.get("quiet_in_tests") and is_test_file(file):
        return None
    ends_before_line = end["column"] == 0 and end["line"] > start["line"]
    return Issue(
        file=file,
        line_start=start["line"] + 1,
        line_end=end["line"] + (0 if ends_before_line else 1),
        rule=match["ruleId"],
        severity=Severity.parse(about["severity"]),
        category=about["category"],
        title=match["message"],
        body=about["why"],
        suggestion=about["fix"],
    )
