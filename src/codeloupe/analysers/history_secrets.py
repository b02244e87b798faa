"""Secrets in the commits of a push, each by itself: a later commit that removes one does not keep it from going out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.analysers.interface import AnalyserReport, AnalysisTarget
from codeloupe.analysers.narrowing import Report, finding, in_order, quoted_lines
from codeloupe.analysers.secrets import SecretsAnalyser
from codeloupe.errors import CodeloupeError
from codeloupe.model.change import Change, FileChange, Moment
from codeloupe.model.finding import Finding

_Lines = dict[int, bytes]


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
    texts: dict[str, _Lines] = {}
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


def _findings(name: str, report: AnalyserReport, texts: Mapping[str, _Lines]) -> Iterator[Finding]:
    for issue in report.issues:
        sha, _, path = issue.file.partition("/")
        lines = quoted_lines(issue, texts[issue.file])
        secrets = [value for number in lines for value in report.sensitive.get(issue.file, {}).get(number, ())]
        found = finding(Report(name, issue, is_secret=True), agreement=1, lines=lines, secrets=secrets)
        yield replace(found, file=path, commit_sha=sha, body=f"Commit {sha[:12]} of this push adds it. {found.body}")
