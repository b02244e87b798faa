"""detect-secrets on the added lines of every text file.

Files with short lines alone are searched in this process, within a second or two. Long lines, for which some of the
patterns take quadratic time, and what is left then go to a child process that cannot reach a network.

The repository's own baselines are not read: they are configuration of the change's author. `pragma: allowlist secret`
is honoured when the change is trusted.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.analysers.interface import (
    AnalyserReport,
    AnalysisTarget,
    Issue,
    is_prose_file,
    is_test_file,
    read_regular_file,
)
from codeloupe.analysers.offline import Report, finding, in_order, quoted_lines
from codeloupe.analysers.secret_detectors import (
    BASIC_AUTH,
    ENTROPY,
    KEYWORD,
    PRIVATE_KEY,
    WEB_TOKEN,
    load_detectors,
    looks_random,
    search_file,
)
from codeloupe.errors import AnalyserFailed, CodeloupeError, ProgramNotFound
from codeloupe.model.change import Change, FileChange, Moment
from codeloupe.model.finding import Finding, Severity
from codeloupe.system.process import Command, Completed, inherited_environment, run
from codeloupe.system.token_forms import FORMS

_NAME = "detect-secrets"
_WORKER = "codeloupe.analysers.secrets_worker"
_VERSION_SCRIPT = f"from importlib.metadata import version; print(version('{_NAME}'))"
_VERSION_TIMEOUT_SECONDS = 20.0
_MAX_OUTPUT_BYTES = 64 * 1024 * 1024
_LINE_SECONDS = 1.0
# On a line of this length the patterns take at most a few hundredths of a second, whatever the line holds.
_LONGEST_LINE_HERE = 300
_HERE_SECONDS = 2.0
# Kept for starting the child and for reading its answer, but never more than half of the time.
_RESERVED_SECONDS = 10.0

_ALLOWED_LINE = re.compile(r"pragma: ?(?:allow|white)list[ -]secret")
_ALLOWED_NEXT_LINE = re.compile(r"\s*(?:#|//|/\*|--|'|<!--)[ \t]*pragma: ?allowlist[ -]nextline[ -]secret")

_WHO = "Whoever can read it there, in a fork, a backup or a build log can use it."
_WHO_KEY = "With the private key anybody can pass for its owner and read what was meant for it."
_STAYS = "Deleting the line in a later commit does not help: the value stays in the history."
_STORE = "and read it from a secret store or the environment"
_REPLACE = "Revoke it where it was issued and make a new one, kept in a secret store or the environment."
# How far the line has got decides what is still to be saved, and what to do first.
_ADVICE: Mapping[Moment, tuple[str, str]] = {
    Moment.UNCOMMITTED: (
        "It is not committed yet, so it can still be kept out of the history.",
        f"Take it out before you commit, {_STORE}.",
    ),
    Moment.STAGED: (
        "It is staged and would be part of the next commit.",
        f"Take it out and stage the file again before you commit, {_STORE}.",
    ),
    Moment.COMMITTED: (
        f"It is in a commit that no remote branch has yet. {_STAYS}",
        f"Rewrite the commit before you push (`git commit --amend` or `git rebase -i`), {_STORE}.",
    ),
    Moment.PUSHED: (
        f"It has been pushed, so others may have it already. {_STAYS}",
        f"{_REPLACE} Cleaning the history comes after that.",
    ),
    Moment.UNKNOWN: (
        f"Once it is committed and shared, it cannot be taken back. {_STAYS}",
        f"{_REPLACE} If it was not shared yet, take it out before it is.",
    ),
}
_MOST_MOMENTS = 20

_Lines = list[tuple[int, str]]


@cache
def titles() -> Mapping[str, tuple[Severity, str]]:
    """How bad each kind of secret is, and its title."""
    table = tomllib.loads(Path(__file__).with_name("secret_kinds.toml").read_text(encoding="utf-8"))
    own = {kind: (Severity.parse(name), title) for name, kinds in table.items() for kind, title in kinds.items()}
    return {**{form.name: (form.severity, f"{form.name} in the code") for form in FORMS}, **own}


class SecretsAnalyser:
    """Secrets on added lines, whatever the language. The issues never hold a value; `sensitive` of the report does.

    `program` is the Python interpreter of the child; None is the one that runs now.
    """

    name = _NAME
    needs_only_added_lines: Literal[True] = True

    def __init__(self, program: str | None = None) -> None:
        self._program = program

    def accepts(self, path: str) -> bool:
        """Every file may hold a secret."""
        return bool(path)

    async def analyse(self, target: AnalysisTarget) -> AnalyserReport:
        """Search the added lines.

        Raises AnalyserFailed when the child fails or its answer cannot be read, or a ProcessError.
        """
        lines, failed = _added_lines(target)
        if not any(lines.values()):
            return AnalyserReport((), failed)
        waiting = {file: rows for file, rows in lines.items() if rows}
        answer: dict[str, Any] = {"hits": [], "slow": [], "unfinished": []}
        if self._program is None:
            answer["hits"] = await asyncio.to_thread(_search_here, waiting)
        if waiting:
            request = {
                "budget_seconds": max(target.timeout_seconds - _RESERVED_SECONDS, target.timeout_seconds / 2),
                "line_seconds": _LINE_SECONDS,
                "files": [{"file": file, "lines": rows} for file, rows in waiting.items()],
            }
            stdin = json.dumps(request).encode("ascii")
            completed = await run(self._command(("-m", _WORKER), target.timeout_seconds, stdin))
            told = _read(completed)
            order = list(lines)
            hits = sorted([*answer["hits"], *told["hits"]], key=lambda hit: order.index(hit["file"]))
            answer = {**told, "hits": hits}
        reply = _reply(answer)
        return _report(reply, failed, await _moments(target, reply, lines))

    async def version(self) -> str:
        """The version of detect-secrets that the child would use. Raises AnalyserFailed or a ProcessError."""
        completed = await run(self._command(("-c", _VERSION_SCRIPT), _VERSION_TIMEOUT_SECONDS))
        words = completed.stdout.decode("utf-8", "replace").split()
        if completed.exit_code != 0 or len(words) != 1:
            raise _failure("does not say its version", completed.stderr)
        return words[0]

    def _command(self, arguments: Sequence[str], timeout_seconds: float, stdin: bytes = b"") -> Command:
        program = self._program or sys.executable
        if not program:
            raise ProgramNotFound(
                "the Python interpreter that runs this program is not known",
                program="python",
                hint="start it by its path",
            )
        return Command(
            argv=(program, "-I", *arguments),
            cwd=Path(os.sep),
            environment=inherited_environment(),
            timeout_seconds=timeout_seconds,
            max_output_bytes=_MAX_OUTPUT_BYTES,
            stdin=stdin,
        )


def _added_lines(target: AnalysisTarget) -> tuple[dict[str, _Lines], dict[str, str]]:
    lines: dict[str, _Lines] = {}
    failed: dict[str, str] = {}
    for file in target.files:
        if file in target.added_text:
            known = target.added_text[file]
        elif not target.added_lines.get(file):
            continue
        else:
            try:
                known = dict(enumerate(read_regular_file(target.root / file).split(b"\n"), start=1))
            except OSError as error:
                failed[file] = f"cannot be read: {error.strerror}"
                continue
        numbers = sorted(target.added_lines.get(file, frozenset()))
        if any(number not in known for number in numbers):
            failed[file] = "has fewer lines than the change says; it was changed meanwhile"
        lines[file] = [
            (number, known[number].decode("utf-8", "replace").rstrip("\r"))
            for number in numbers
            if number in known and not (target.trusted and _is_allowed(known, number))
        ]
    return lines, failed


def _is_allowed(known: Mapping[int, bytes], number: int) -> bool:
    line = known[number].decode("utf-8", "replace")
    before = known.get(number - 1, b"").decode("utf-8", "replace")
    return _ALLOWED_LINE.search(line) is not None or _ALLOWED_NEXT_LINE.match(before) is not None


class _Hit(Struct, frozen=True):
    file: str
    line: int
    kind: str
    values: tuple[str, ...]


class _Reply(Struct, frozen=True):
    hits: tuple[_Hit, ...]
    failed: Mapping[str, str]


def _search_here(waiting: dict[str, _Lines]) -> list[dict[str, Any]]:
    """Search the files that take little time, and take them from those that wait. Raises AnalyserFailed."""
    try:
        detectors = load_detectors()
    except (ImportError, AttributeError) as error:
        raise _failure("cannot be loaded", str(error)) from error
    deadline = time.monotonic() + _HERE_SECONDS
    hits: list[dict[str, Any]] = []
    for file, rows in list(waiting.items()):
        if max(len(text) for _, text in rows) <= _LONGEST_LINE_HERE:
            found = search_file(detectors, file, rows, deadline=deadline)
            if found.is_finished:
                hits += found.hits
                del waiting[file]
    return hits


def _read(completed: Completed) -> dict[str, Any]:
    if completed.exit_code != 0:
        raise _failure(f"ended with exit code {completed.exit_code}", completed.stderr)
    try:
        answer: dict[str, Any] = json.loads(completed.stdout)
        # What is missing or of another kind shows here.
        _reply(answer)
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise _failure("wrote something that is not its JSON", completed.stderr) from error
    return answer


def _reply(answer: Mapping[str, Any]) -> _Reply:
    hits = tuple(_Hit(row["file"], int(row["line"]), row["kind"], tuple(row["values"])) for row in answer["hits"])
    failed = {file: f"line {line} took too long to search for secrets" for file, line in answer["slow"]}
    for file in answer["unfinished"]:
        failed[file] = "the time ran out before all its added lines were searched for secrets"
    if unknown := {hit.kind for hit in hits} - {"", *titles()}:
        raise _failure(f"found kinds of secrets that are not known here: {', '.join(sorted(unknown))}", "")
    return _Reply(hits, failed)


async def _moments(
    target: AnalysisTarget, reply: _Reply, lines: Mapping[str, _Lines]
) -> Mapping[tuple[str, int], Moment]:
    """How far the lines with a secret have got; of very many, only the first are asked about."""
    if target.moment_of is None:
        return {}
    places = dict.fromkeys((hit.file, hit.line) for hit in reply.hits if hit.kind)
    found: dict[tuple[str, int], Moment] = {}
    for file, number in list(places)[:_MOST_MOMENTS]:
        text = dict(lines[file]).get(number, "")
        found[file, number] = await target.moment_of(file, text.encode("utf-8", "surrogateescape"))
    return found


def _failure(what: str, stderr: str) -> AnalyserFailed:
    lines = stderr.strip().splitlines()
    detail = f": {lines[-1][:300]}" if lines else ""
    return AnalyserFailed(f"{_NAME} {what}{detail}", analyser=_NAME, hint=f"pip install {_NAME}")


def _report(reply: _Reply, failed: Mapping[str, str], moments: Mapping[tuple[str, int], Moment]) -> AnalyserReport:
    by_line: dict[tuple[str, int], list[_Hit]] = defaultdict(list)
    sensitive: dict[str, dict[int, tuple[str, ...]]] = defaultdict(dict)
    for hit in reply.hits:
        by_line[hit.file, hit.line].append(hit)
        sensitive[hit.file][hit.line] = (*sensitive[hit.file].get(hit.line, ()), *hit.values)
    issues = (_issue(hits, moments.get(place, Moment.UNKNOWN)) for place, hits in by_line.items())
    return AnalyserReport(
        issues=tuple(issue for issue in issues if issue is not None),
        failed={**reply.failed, **failed},
        sensitive=dict(sensitive),
    )


def _issue(hits: Sequence[_Hit], moment: Moment) -> Issue | None:
    """One issue for a line, for the worst secret on it; None when nothing there is worth a word."""
    judged = [(severity, hit) for hit in hits if (severity := _severity(hit)) is not None]
    if not judged:
        return None
    severity, worst = min(judged, key=lambda pair: pair[0].priority)
    state, advice = _ADVICE[moment]
    more = f" This line holds {len(judged)} secrets." if len(judged) > 1 else ""
    return Issue(
        file=worst.file,
        line_start=worst.line,
        line_end=worst.line,
        rule=worst.kind.lower().replace(" ", "-"),
        severity=severity,
        category="security",
        title=titles()[worst.kind][1],
        body=f"{_WHO_KEY if worst.kind == PRIVATE_KEY else _WHO} {state}{more}",
        suggestion=advice,
    )


def _severity(hit: _Hit) -> Severity | None:
    """How bad a hit is. In tests and prose only what looks made by a generator counts, unless its form is certain."""
    if not hit.kind:
        return None
    severity = titles()[hit.kind][0]
    random = any(looks_random(value) for value in hit.values)
    if hit.kind in (KEYWORD, BASIC_AUTH, ENTROPY, WEB_TOKEN) and (is_test_file(hit.file) or is_prose_file(hit.file)):
        return Severity.LOW if random else None
    if hit.kind == PRIVATE_KEY and is_test_file(hit.file):
        return Severity.MEDIUM
    if hit.kind in (KEYWORD, BASIC_AUTH) and not random:
        return Severity.MEDIUM
    return severity


_HistorySecretsLines = dict[int, bytes]


class HistorySearch(Struct, frozen=True):
    """What was found in the commits, and what of them could not be searched: files and reasons."""

    findings: tuple[Finding, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()


async def search_commits(
    commits: Sequence[tuple[str, Change]], shown: Iterable[FileChange], *, trusted: bool, timeout_seconds: float
) -> HistorySearch:
    """Search the lines that these commits add, the oldest commit first, but for those that `shown` adds as well."""
    seen = {(file.path, text) for file in shown for _, text in _added(file)}
    # The commit stands before the path like a folder, so that each file of each commit has a name of its own.
    texts: dict[str, _HistorySecretsLines] = {}
    for sha, change in commits:
        for file in change.files:
            lines = {number: text for number, text in _added(file) if (file.path, text) not in seen}
            seen.update((file.path, text) for text in lines.values())
            if lines:
                texts[f"{sha}/{file.path}"] = lines
    if not texts:
        return HistorySearch()
    target = AnalysisTarget(
        root=Path(os.sep),
        files=tuple(texts),
        added_lines={name: frozenset(lines) for name, lines in texts.items()},
        added_text=texts,
        trusted=trusted,
        timeout_seconds=timeout_seconds,
        moment_of=_committed,
    )
    analyser = SecretsAnalyser()
    try:
        report = await analyser.analyse(target)
    except CodeloupeError as error:
        return HistorySearch(failed=tuple((name.partition("/")[2], error.message) for name in texts))
    failed = tuple((name.partition("/")[2], f"in commit {name[:12]}: {why}") for name, why in report.failed.items())
    return HistorySearch(in_order(_findings(analyser.name, report, texts)), failed)


async def _committed(_file: str, _line: bytes) -> Moment:
    return Moment.COMMITTED


def _added(file: FileChange) -> Iterator[tuple[int, bytes]]:
    """The added lines; a text in UTF-16 is readable without its NULs."""
    for hunk in file.hunks if file.new_path and not file.is_submodule else ():
        for line in hunk.lines() if hunk.added else ():
            if line.kind == "added" and line.new_number is not None and line.text.strip():
                yield line.new_number, line.text.replace(b"\0", b"")


def _findings(name: str, report: AnalyserReport, texts: Mapping[str, _HistorySecretsLines]) -> Iterator[Finding]:
    for issue in report.issues:
        sha, _, path = issue.file.partition("/")
        lines = quoted_lines(issue, texts[issue.file])
        secrets = [value for number in lines for value in report.sensitive.get(issue.file, {}).get(number, ())]
        found = finding(Report(name, issue, is_secret=True), agreement=1, lines=lines, secrets=secrets)
        yield replace(found, file=path, commit_sha=sha, body=f"Commit {sha[:12]} of this push adds it. {found.body}")
