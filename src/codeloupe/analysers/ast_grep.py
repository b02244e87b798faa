"""ast-grep with our pack of rules, on files of every language that it has rules for.

A folder of `rules/` may serve several languages that share a grammar: its rules are written for the first one and
repeated for the others, so that a rule for JavaScript is written once and holds for TypeScript too.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import sysconfig
import time
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import Struct, field

from codeloupe.analysers.interface import AnalyserReport, AnalysisTarget, Issue, is_test_file, read_regular_file
from codeloupe.errors import AnalyserFailed, OutputTooLarge, ProcessTimedOut, ProgramNotFound
from codeloupe.model.finding import Severity
from codeloupe.system.directories import temporary_directory
from codeloupe.system.process import Command, Completed, find_program, inherited_environment, run

FOLDERS: dict[str, tuple[str, ...]] = {
    "bash": ("Bash",),
    "c": ("C",),
    "c-and-cpp": ("C", "Cpp"),
    "cpp": ("Cpp",),
    "go": ("Go",),
    "java": ("Java",),
    "javascript": ("JavaScript", "TypeScript", "Tsx"),
    "jsx": ("JavaScript", "Tsx"),
    "php": ("Php",),
    "python": ("Python",),
    "ruby": ("Ruby",),
    "rust": ("Rust",),
    "typescript": ("TypeScript", "Tsx"),
}
"""Each folder of rules and the languages, in ast-grep's spelling, that it is for."""

EXTENSIONS: dict[str, str] = {
    "Bash": "sh",
    "C": "c",
    "Cpp": "cpp",
    "Go": "go",
    "Java": "java",
    "JavaScript": "js",
    "Php": "php",
    "Python": "py",
    "Ruby": "rb",
    "Rust": "rs",
    "Tsx": "tsx",
    "TypeScript": "ts",
}
"""The extension by which ast-grep knows each language."""

_LANGUAGE_BY_SUFFIX = {
    **{f".{extension}": language for language, extension in EXTENSIONS.items()},
    **dict.fromkeys((".bash", ".bats", ".ksh"), "Bash"),
    **dict.fromkeys((".cc", ".cxx", ".c++", ".hh", ".hpp", ".hxx", ".h++", ".ipp", ".inl"), "Cpp"),
    **dict.fromkeys((".jsx", ".mjs", ".cjs"), "JavaScript"),
    **dict.fromkeys((".mts", ".cts"), "TypeScript"),
    **dict.fromkeys((".phtml", ".php5", ".php7", ".php8"), "Php"),
    **dict.fromkeys((".rake", ".gemspec", ".ru", ".jbuilder"), "Ruby"),
    ".pyw": "Python",
    # Read as C++: its grammar also takes what is only C, while C's would stumble over classes and templates.
    ".h": "Cpp",
}
_LANGUAGE_BY_NAME = {
    **dict.fromkeys(("rakefile", "gemfile", "vagrantfile", "podfile", "fastfile", "capfile"), "Ruby"),
    **dict.fromkeys((".bashrc", ".bash_profile", ".bash_aliases", ".profile", "pkgbuild"), "Bash"),
}
_ROOT = Path(__file__).parent / "rules"


def language_of(path: str) -> str | None:
    """The language a file's name says it is written in, or None when the pack has no rules for it."""
    name = PurePosixPath(path).name.lower()
    return _LANGUAGE_BY_NAME.get(name) or _LANGUAGE_BY_SUFFIX.get(PurePosixPath(name).suffix)


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


_OPENING = re.compile(r"<\?(?:php(?=\s|\Z)|=|(?=\s))", re.IGNORECASE)
# What may hold a `?>` that does not close, and the `?>` that does. Every part also ends at the end of the text, so
# that none is tried in vain: the search stays linear on hostile input.
_CLOSING = re.compile(
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
        code_end, closing = _end_of_code(text, opening.end())
        parts.append("\n" * text.count("\n", position, opening.start()))
        parts.append(" echo " if opening[0] == "<?=" else " ")
        parts.append(text[opening.end() : code_end])
        parts.append(";" if closing < len(text) else "")
        position = closing
    parts.append("\n" * text.count("\n", position))
    return "".join(parts)


def _end_of_code(text: str, position: int) -> tuple[int, int]:
    """Where the code ends, and where the `?>` is.

    They differ when a line comment stands before the `?>`: kept, it would hide the code that follows in its line.
    """
    before: re.Match[str] | None = None
    for part in _CLOSING.finditer(text, position):
        if part["close"]:
            commented = before is not None and before["comment"] and before.end() == part.start()
            return (before.start() if before and commented else part.start()), part.start()
        before = part
    return len(text), len(text)


_NAME = "ast-grep"
_MAX_OUTPUT_BYTES = 64 * 1024 * 1024
_VERSION_TIMEOUT_SECONDS = 20.0
# One call may take this long, about twenty times what it takes on an ordinary machine. Past it some file in the
# batch is made to be slow, and the batch is halved until that file stands alone.
_CALL_SECONDS = 5.0
_CALL_BYTES_A_SECOND = 100_000
# A machine that stands still uses up the time of a call too, so often at most before it counts.
_MOST_STALLS = 3
# Keeps the argument list of one call far below the kernel's limit; each name is ours and short.
_FILES_A_CALL = 2000
# ast-grep leaves out a file that is over both; see `file_too_large` in its sources.
_MAX_BYTES = 3_000_000
_MAX_LINES = 200_000
_SUPPRESSION, _DISARMED = "ast-grep-ignore", "ast-grep_ignore"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_SCANNED = re.compile(r"scannedFileCount=(\d+),skippedFileCount=(\d+)")
_FLAGS = (
    "--json=stream",
    "--include-metadata",
    "--color=never",
    "--inspect=summary",
    *(f"--no-ignore={kind}" for kind in ("hidden", "dot", "exclude", "global", "parent", "vcs")),
)


class AstGrepAnalyser:
    """Runs the rule pack. `program` is the ast-grep to start; by default the one installed beside codeloupe."""

    name = _NAME

    def __init__(self, program: str | None = None) -> None:
        self._program = program

    def accepts(self, path: str) -> bool:
        """Whether the pack has rules for the language this file's name speaks of."""
        return language_of(path) is not None

    async def analyse(self, target: AnalysisTarget) -> AnalyserReport:
        """Scan the files that are accepted.

        A file that cannot be read, or on which ast-grep dies, is too slow or says too much, is in `failed`, and the
        others are still scanned. Raises AnalyserFailed when ast-grep cannot work at all or its answer cannot be
        understood, and ProcessError when it is missing or does not end in time.
        """
        deadline = time.monotonic() + target.timeout_seconds
        try:
            with temporary_directory() as directory:
                return await self._analyse(target, _Workspace(directory), deadline)
        except OSError as error:
            raise AnalyserFailed(
                f"{_NAME} could not be given its files: {error}",
                analyser=_NAME,
                hint="check that the directory for temporary files is writable and not full",
            ) from error

    async def _analyse(self, target: AnalysisTarget, workspace: _Workspace, deadline: float) -> AnalyserReport:
        staged = await _stage(target, workspace)
        workspace.write_rules(language_of(path) or "" for path in staged.files.values())
        scan = _Scan(program=self._find(), workspace=workspace, deadline=deadline, staged=staged)
        names = list(staged.files)
        for start in range(0, len(names), _FILES_A_CALL):
            await scan.run(names[start : start + _FILES_A_CALL])
        issues = sorted(set(scan.issues), key=lambda each: (each.file, each.line_start, each.line_end, each.rule))
        return AnalyserReport(tuple(issues), staged.failed)

    async def version(self) -> str:
        """The version of ast-grep, such as `0.51.0`. Raises as `analyse` does."""
        with temporary_directory() as directory:
            completed = await run(
                Command(
                    argv=(self._find(), "--version"),
                    cwd=directory,
                    environment=inherited_environment(HOME=str(directory)),
                    timeout_seconds=_VERSION_TIMEOUT_SECONDS,
                    max_output_bytes=_MAX_OUTPUT_BYTES,
                )
            )
        words = completed.stdout.decode("utf-8", "replace").split()
        if completed.exit_code != 0 or len(words) != 2:
            raise _failure("did not report its version", completed)
        return words[1]

    def _find(self) -> str:
        """The program to start. Never `sg`: on Linux that is another program."""
        beside = (Path(sysconfig.get_path("scripts")), Path(sys.executable).parent)
        installed = (str(folder / _NAME) for folder in beside if (folder / _NAME).is_file())
        found = self._program or next(installed, None) or find_program(_NAME)
        if found is None:
            raise ProgramNotFound(
                f"cannot start {_NAME}: it is neither installed beside codeloupe nor on the PATH",
                program=_NAME,
                hint="pip install ast-grep-cli",
            )
        return found


class _Workspace:
    """A private directory: an empty one to run in, the staged files, the rules and a configuration of ours."""

    def __init__(self, root: Path) -> None:
        self.empty = root / "empty"
        self.files = root / "files"
        self.rules = root / "rules.yml"
        self.config = root / "sgconfig.yml"
        self.empty.mkdir()
        self.files.mkdir()
        # Without a configuration of its own, ast-grep takes the first sgconfig.yml of any parent directory.
        self.config.write_text("ruleDirs: []\n", encoding="utf-8")

    def write_rules(self, languages: Iterable[str]) -> None:
        """Put the rules for these languages into one file."""
        self.rules.write_text(rule_document(languages), encoding="utf-8")


class _Staged(Struct, frozen=True):
    """`files` maps the name of each copy to the path it stands for; `failed` the other paths to a reason."""

    files: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


async def _stage(target: AnalysisTarget, workspace: _Workspace) -> _Staged:
    staged = _Staged()
    for path in target.files:
        language = language_of(path)
        if language is None:
            continue
        name = f"{len(staged.files)}.{EXTENSIONS[language]}"
        try:
            text = _readable(read_regular_file(target.root / path), language, trusted=target.trusted)
        except OSError as error:
            staged.failed[path] = f"it cannot be read: {error.strerror}"
        except _NotStaged as reason:
            staged.failed[path] = str(reason)
        else:
            if text:  # ast-grep leaves out an empty file, and there is nothing to find in it
                (workspace.files / name).write_bytes(text)
                staged.files[name] = path
        await asyncio.sleep(0)  # many files must not hold up the rest of the review
    return staged


class _NotStaged(Exception):
    """Why a file cannot be analysed, in words."""


def _readable(content: bytes, language: str, *, trusted: bool) -> bytes:
    """The content such that ast-grep reads all of it: valid UTF-8, every line in its place.

    Suppression comments lose their meaning unless the change is trusted; their length stays.
    """
    if content.startswith(_UTF16_MARKS):
        raise _NotStaged("it is UTF-16 text; only UTF-8 and its subsets are analysed")
    if len(content) > _MAX_BYTES and content.count(b"\n") >= _MAX_LINES:
        raise _NotStaged(f"it is over {_MAX_BYTES:,} bytes and {_MAX_LINES:,} lines, more than ast-grep takes")
    text = content.decode("utf-8", "replace")
    if language == "Php":
        text = only_code(text)
    elif text.lstrip("\ufeff \t\r\n").startswith("<?xml"):
        return b""  # a translation of Qt Linguist, say, which is called .ts as well
    return (text if trusted else text.replace(_SUPPRESSION, _DISARMED)).encode("utf-8")


class _Scan(Struct, frozen=True, kw_only=True):
    """Scans staged files in batches, and narrows a failure down to the file that causes it."""

    program: str
    workspace: _Workspace
    deadline: float
    staged: _Staged
    issues: list[Issue] = field(default_factory=list)

    async def run(self, names: Sequence[str]) -> None:
        """Scan a batch. If ast-grep dies on it, is too slow or says too much, scan its halves."""
        reason = await self._attempt(names)
        if reason is None:
            return
        if len(names) == 1:
            self.staged.failed[self.staged.files[names[0]]] = reason
            return
        middle = len(names) // 2
        await self.run(names[:middle])
        await self.run(names[middle:])

    async def _attempt(self, names: Sequence[str]) -> str | None:
        """Scan a batch and keep its issues; or keep nothing, and return why one of its files stands in the way."""
        command = self._command(names)
        try:
            completed = await self._run_patiently(command)
        except OutputTooLarge:
            return f"ast-grep's answer is over {_MAX_OUTPUT_BYTES:,} bytes"
        except ProcessTimedOut:
            if time.monotonic() >= self.deadline:
                raise
            return f"ast-grep did not finish with it within {command.timeout_seconds:.0f} s"
        if completed.exit_code < 0:
            return f"ast-grep died of signal {-completed.exit_code}"
        if completed.exit_code != 0:
            raise _failure(f"ended with exit code {completed.exit_code}", completed)
        counts = _SCANNED.search(completed.stderr)
        if counts is None:
            raise _failure("did not say which files it scanned", completed)
        if int(counts[1]) - int(counts[2]) != len(names):
            return "ast-grep left it out and did not say why"
        self.issues.extend(issue for row in completed.stdout.splitlines() if (issue := self._issue(row)) is not None)
        return None

    async def _run_patiently(self, command: Command) -> Completed:
        """Run it; and again, when it was ended and has not had a processor for even half of its time."""
        for _ in range(_MOST_STALLS):
            before = _children_seconds()
            try:
                return await run(command)
            except ProcessTimedOut:
                is_slow = _children_seconds() - before > command.timeout_seconds / 2
                if is_slow or self.deadline - time.monotonic() < command.timeout_seconds:
                    raise
        return await run(command)

    def _command(self, names: Sequence[str]) -> Command:
        files = [self.workspace.files / name for name in names]
        options = ("--config", str(self.workspace.config), "--rule", str(self.workspace.rules))
        return Command(
            argv=(self.program, "scan", *_FLAGS, *options, "--", *map(str, files)),
            cwd=self.workspace.empty,
            environment=inherited_environment(HOME=str(self.workspace.empty)),
            timeout_seconds=self._seconds_for(sum(file.stat().st_size for file in files)),
            max_output_bytes=_MAX_OUTPUT_BYTES,
        )

    def _seconds_for(self, size_bytes: int) -> float:
        remaining_seconds = self.deadline - time.monotonic()
        if remaining_seconds <= 0:
            raise ProcessTimedOut(
                f"{_NAME} did not finish its scan in time",
                program=_NAME,
                hint="raise the time limit, or review a smaller change",
            )
        return min(remaining_seconds, _CALL_SECONDS + size_bytes / _CALL_BYTES_A_SECOND)

    def _issue(self, row: bytes) -> Issue | None:
        try:
            return _to_issue(json.loads(row), self.staged.files)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise AnalyserFailed(
                f"{_NAME} gave an answer that cannot be understood: {error!r}",
                analyser=_NAME,
                hint="check that ast-grep is version 0.51 or newer (`codeloupe doctor`)",
            ) from error


def _children_seconds() -> float:
    """How long the children that have ended had a processor; all of them, so it may be more than one's own."""
    times = os.times()
    return times.children_user + times.children_system


def _to_issue(match: Any, paths: dict[str, str]) -> Issue | None:
    """One match as an issue, or None when it is about something that a test may do.

    Raises one of the errors that `_Scan._issue` expects when it does not have the shape it should.
    """
    start, end, about = match["range"]["start"], match["range"]["end"], match["metadata"]
    file = paths[Path(match["file"]).name]
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


def _failure(what: str, completed: Completed) -> AnalyserFailed:
    said = completed.stderr.strip()[-500:]
    return AnalyserFailed(
        f"{_NAME} {what}" + (f": {said}" if said else ""),
        analyser=_NAME,
        hint="run `codeloupe doctor`; if ast-grep is healthy there, please report this",
    )
