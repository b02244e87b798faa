"""The data-flow analysis of Python files, which worker processes read."""

from __future__ import annotations

import asyncio
import os
import platform
import sys
import time
import unicodedata
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from codeloupe.analysers import programs
from codeloupe.analysers.dataflow.harms import MEANINGS, Harm
from codeloupe.analysers.interface import Analyser, AnalyserReport, AnalysisTarget, Issue, is_test_file
from codeloupe.analysers.languages import language_of
from codeloupe.config.files import read_regular_file
from codeloupe.errors import AnalyserFailed, ProcessTimedOut
from codeloupe.model.finding import Severity
from codeloupe.system.process import Completed

# A file without any of these words, in capital or small letters, contains nothing to report or to silence.
_WORDS_WORTH_READING = (
    *(b"req", b"environ", b"handler", b"view", b"resource", b"endpoint", b"recv", b"receive_", b"route", b"websocket"),
    *(b"random", b"cookie", b"cert_none", b"hashlib", b"hmac", b"execute", b"shell", b"subprocess", b"os.", b"popen"),
    *(b"exec(", b"eval(", b"compile(", b"import_module", b"pickle", b"marshal", b"dill", b"yaml", b"joblib", b"shelve"),
    *(b".get(", b".post(", b".put(", b".patch(", b".delete(", b"select", b"insert", b"assert"),
    *(b"system(", b"update ", b"delete ", b"replace ", b"rawsql", b"spawn", b"torch", b"pandas", b"timeit", b"runpy"),
)
# Fewer bytes than this are read before a second worker has started.
_BYTES_PER_WORKER = 400_000


class _File(Struct, frozen=True):
    """One file for a worker."""

    name: str
    content: bytes
    added: tuple[int, ...]


class _Place(Struct, frozen=True):
    """A worker's finding in one file."""

    harm: Harm
    line_start: int
    line_end: int
    body: str


class _Answer(Struct, frozen=True):
    """A worker's answer for one file; `failed` is the reason if the file could not be read."""

    issues: tuple[_Place, ...]
    quiet: dict[int, frozenset[str]]
    failed: str


class DataflowAnalyser(Analyser):
    """Reports outside data that reaches a query, a command, a path, a page and the like. Tests are not read."""

    name = "dataflow"

    def accepts(self, path: str, start: bytes = b"") -> bool:
        """Return whether the file is written in Python and not a test."""
        return language_of(path, start) == "Python" and not is_test_file(path)

    async def version(self) -> str:
        """Return the version of Python whose parser is used."""
        return platform.python_version()

    async def analyse(self, target: AnalysisTarget) -> AnalyserReport:
        """Follow data through the files. Raise AnalyserFailed or a ProcessError if no worker can be used."""
        deadline = time.monotonic() + target.timeout_seconds
        failed: dict[str, str] = {}
        files: list[_File] = []
        for name in target.files:
            try:
                content = read_regular_file(target.root / name)
            except OSError as error:
                failed[name] = f"cannot be read: {error.strerror}"
                continue
            if _is_worth_reading(content):
                files.append(_File(name, content, tuple(sorted(target.added_lines.get(name, ())))))
        try:
            async with asyncio.TaskGroup() as group:
                shares = _shares(files)
                tasks = [group.create_task(self._read(share, deadline)) for share in shares]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors
        answers: dict[str, _Answer] = {}
        for share, task in zip(shares, tasks, strict=True):
            for file, answer in zip(share, task.result(), strict=True):
                answers[file.name] = answer
        return _report({file.name: answers[file.name] for file in files}, failed)

    async def _read(self, files: Sequence[_File], deadline: float) -> list[_Answer]:
        """Return the answer for each file. Restart the worker after a file on which it died."""
        answers: list[_Answer] = []
        remaining = list(files)
        while remaining:
            left = deadline - time.monotonic()
            if left <= 0:
                hint = "raise the time limit, or review a smaller change"
                raise ProcessTimedOut("dataflow did not finish with all files in time", program="dataflow", hint=hint)
            found, reason = await self._start_worker(remaining, left)
            answers += found
            remaining = remaining[len(found) :]
            if remaining:
                # The worker answers in order, so this is the file that it was reading.
                answers.append(_Answer((), {}, reason))
                remaining = remaining[1:]
        return answers

    async def _start_worker(self, files: Sequence[_File], seconds: float) -> tuple[list[_Answer], str]:
        """Return the answers of one worker, and the reason why there is no answer for the next file."""
        program = self._program or sys.executable
        words = (program, "-I", "-m", "codeloupe.analysers.dataflow.worker")
        requests: list[bytes] = []
        for file in files:
            header = {"added": file.added, "size": len(file.content)}
            requests += [msgspec.json.encode(header), b"\n", file.content]
        completed = await programs.execute(*words, seconds=seconds, stdin=b"".join(requests))
        # The worker may have died before it finished its last line.
        lines = completed.stdout.split(b"\n")[:-1]
        try:
            answers = [msgspec.json.decode(line, type=_Answer) for line in lines]
        except msgspec.DecodeError as error:
            raise _no_answer(completed) from error
        has_all = len(answers) == len(files)
        is_killed = completed.exit_code < 0
        if len(answers) > len(files) or completed.exit_code > 0 or not (has_all or is_killed):
            raise _no_answer(completed)
        return answers, f"dataflow died of signal {-completed.exit_code}"


def _no_answer(completed: Completed) -> AnalyserFailed:
    what = f"gave no answer that can be read (exit code {completed.exit_code})"
    return programs.failure("dataflow", what, completed.stderr, hint="please report this")


def _is_worth_reading(content: bytes) -> bool:
    lower = content.lower()
    if not lower.isascii():
        # Python reads names in their normal form, so that they can be written with other characters.
        text = lower.decode("utf-8", "replace")
        lower = unicodedata.normalize("NFKC", text).lower().encode()
    return any(word in lower for word in _WORDS_WORTH_READING)


def _shares(files: Sequence[_File]) -> list[list[_File]]:
    """Distribute files over as many workers as there are cores and as the size of the files is worth."""
    size = sum(len(file.content) for file in files)
    count = min(_usable_cores(), len(files), 1 + size // _BYTES_PER_WORKER)
    shares: list[list[_File]] = [[] for _ in range(count)]
    sizes = [0] * count
    for file in sorted(files, key=lambda each: len(each.content), reverse=True):
        smallest = sizes.index(min(sizes))
        shares[smallest].append(file)
        sizes[smallest] += len(file.content)
    return shares


def _usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _report(answers: Mapping[str, _Answer], failed: Mapping[str, str]) -> AnalyserReport:
    issues: list[Issue] = []
    all_failed = dict(failed)
    quiet: dict[str, Mapping[int, frozenset[str]]] = {}
    for file, answer in answers.items():
        issues += [_issue(file, place) for place in answer.issues]
        if answer.failed:
            all_failed[file] = answer.failed
        if answer.quiet:
            quiet[file] = answer.quiet
    return AnalyserReport(tuple(issues), all_failed, quiet=quiet)


def _issue(file: str, place: _Place) -> Issue:
    meaning = MEANINGS[place.harm]
    return Issue(
        file=file,
        line_start=place.line_start,
        line_end=place.line_end,
        rule=place.harm.value,
        severity=Severity.parse(meaning.severity),
        category="security",
        title=meaning.title,
        body=place.body,
        suggestion=meaning.fix,
    )
