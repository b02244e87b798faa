"""detect-secrets on the added lines of every text file.

The repository's own baselines are not read: they are configuration of the change's author. In a trusted change,
`pragma: allowlist secret` silences the secrets of a line.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.analysers import interface, programs
from codeloupe.analysers import secret_detectors as detectors
from codeloupe.analysers.claims import claim_of, in_order
from codeloupe.analysers.interface import Analyser, AnalyserReport, AnalysisTarget, Issue
from codeloupe.analysers.secret_detectors import SECRETS_TABLE, Hit
from codeloupe.config.files import read_regular_file
from codeloupe.errors import CodeloupeError
from codeloupe.model.change import Change, FileChange, Moment
from codeloupe.model.finding import Claim, Severity
from codeloupe.system.redaction import token_forms
from codeloupe.system.regex import regex

_NAME = "detect-secrets"
_Lines = list[tuple[int, str]]
# The match is the part of a comment that an issue shows. The rest of the line may hold the secret.
_ALLOWED_LINE = regex(r"(?:(?:#|//|/\*|--|'|<!--)[ \t]{0,9})?pragma: ?(?:allow|white)list[ -]secret")
_ALLOWED_NEXT_LINE = regex(r"\s*(?:#|//|/\*|--|'|<!--)[ \t]*pragma: ?allowlist[ -]nextline[ -]secret")
# How bad each kind of secret is, and its title.
TITLES: Mapping[str, tuple[Severity, str]] = {
    **{form.name: (form.severity, f"{form.name} in the code") for form in token_forms()},
    **{
        kind: (Severity.parse(name), title)
        for name, kinds in SECRETS_TABLE["titles"].items()
        for kind, title in kinds.items()
    },
}


class SecretsAnalyser(Analyser):
    """Secrets on added lines. The issues never hold a value; `sensitive` of the report does."""

    name = _NAME
    needs_only_added_lines = True

    def accepts(self, path: str, start: bytes = b"") -> bool:  # noqa: ARG002 - every file may contain a secret
        """Return True: every file may contain a secret."""
        return bool(path)

    async def version(self) -> str:
        """The version of detect-secrets. Raises AnalyserFailed."""
        from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - for `doctor` alone

        try:
            return version(_NAME)
        except PackageNotFoundError as error:
            raise programs.failure(_NAME, "is not installed", "", hint=f"pip install {_NAME}") from error

    async def analyse(self, target: AnalysisTarget) -> AnalyserReport:
        """Search the added lines. Raises AnalyserFailed when detect-secrets cannot be loaded."""
        lines, comments, failed = _added_lines(target)
        hits: list[Hit] = []
        if any(lines.values()):
            deadline, stop = time.monotonic() + 0.9 * target.timeout_seconds, threading.Event()
            try:
                hits, late = await asyncio.to_thread(
                    detectors.search, lines, lambda: stop.is_set() or time.monotonic() > deadline
                )
            except (ImportError, AttributeError) as error:
                raise programs.failure(_NAME, "cannot be loaded", str(error), hint=f"pip install {_NAME}") from error
            finally:
                stop.set()  # when this is cancelled, the thread is not to go on
            failed = {**late, **failed}
        by_line: dict[tuple[str, int], list[Hit]] = defaultdict(list)
        sensitive: dict[str, dict[int, tuple[str, ...]]] = defaultdict(dict)
        for hit in hits:
            by_line[hit.file, hit.line].append(hit)
            sensitive[hit.file][hit.line] = (*sensitive[hit.file].get(hit.line, ()), *hit.values)
        # How far a line has got is asked of the first ones only, when there are very many.
        moments: dict[tuple[str, int], Moment] = {}
        if target.moment_of is not None:
            places = [place for place, rows in by_line.items() if any(hit.kind for hit in rows)]
            for file, number in places[:20]:
                text = dict(lines[file]).get(number, "").encode("utf-8", "surrogateescape")
                moments[file, number] = await target.moment_of(file, text)
        issues: list[Issue] = []
        for place, rows in by_line.items():
            issue = _issue(rows, moments.get(place, Moment.UNKNOWN))
            if issue is not None:
                issues.append(replace(issue, silenced_by=comments.get(place, "")))
        return AnalyserReport(tuple(issues), failed, dict(sensitive))


def _added_lines(target: AnalysisTarget) -> tuple[dict[str, _Lines], dict[tuple[str, int], str], dict[str, str]]:
    """Return the added lines by file, the comments that silence some of them by file and line, and failed files."""
    lines: dict[str, _Lines] = {}
    comments: dict[tuple[str, int], str] = {}
    failed: dict[str, str] = {}
    for file in target.files:
        numbers = sorted(target.added_lines.get(file, frozenset()))
        known = target.added_text.get(file)
        if known is None and not numbers:
            continue
        if known is None:
            try:
                known = dict(enumerate(read_regular_file(target.root / file).split(b"\n"), start=1))
            except OSError as error:
                failed[file] = f"cannot be read: {error.strerror}"
                continue
        if any(number not in known for number in numbers):
            failed[file] = "it has fewer lines than the change; it was modified during the review"
        lines[file] = []
        for number in filter(known.__contains__, numbers):
            before, text = (known.get(place, b"").decode("utf-8", "replace") for place in (number - 1, number))
            lines[file].append((number, text.rstrip("\r")))
            comment = _ALLOWED_LINE.search(text) or _ALLOWED_NEXT_LINE.match(before)
            if target.trusted and comment is not None:
                comments[file, number] = comment[0].strip()
    return lines, comments, failed


def _issue(hits: Sequence[Hit], moment: Moment) -> Issue | None:
    """One issue for a line, for the worst secret on it; None when nothing there is worth a word."""
    judged = [(severity, hit) for hit in hits if hit.kind and (severity := _severity(hit)) is not None]
    if not judged:
        return None
    severity, worst = min(judged, key=lambda pair: pair[0].priority)
    advice = SECRETS_TABLE["advice"][moment.value]
    more = f" This line contains {len(judged)} secrets." if len(judged) > 1 else ""
    who = "Anyone who can read the repository, a fork, a backup or a build log can use it."
    if worst.kind == detectors.PRIVATE_KEY:
        who = "Anyone who has the private key can impersonate its owner and decrypt their messages."
    return Issue(
        file=worst.file,
        line_start=worst.line,
        line_end=worst.line,
        rule=worst.kind.lower().replace(" ", "-"),
        defect="hard-coded-secret",
        severity=severity,
        category="security",
        title=TITLES[worst.kind][1],
        body=f"{who} {advice['state']}{more}",
        suggestion=advice["fix"],
    )


def _severity(hit: Hit) -> Severity | None:
    """How bad a hit is. In tests and prose only what looks made by a generator counts, unless its form is certain."""
    random, is_test = any(map(detectors.looks_random, hit.values)), interface.is_test_file(hit.file)
    by_name = hit.kind in (detectors.KEYWORD, detectors.BASIC_AUTH)
    is_vague = by_name or hit.kind in (detectors.ENTROPY, detectors.WEB_TOKEN)
    if is_vague and (is_test or interface.is_prose_file(hit.file)):
        return Severity.LOW if random else None
    is_weak = (by_name and not random) or (hit.kind == detectors.PRIVATE_KEY and is_test)
    return Severity.MEDIUM if is_weak else TITLES[hit.kind][0]


class HistorySearch(Struct, frozen=True):
    """What was found in the commits, and what of them could not be searched: files and reasons."""

    claims: tuple[Claim, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()


async def search_commits(
    commits: Sequence[tuple[str, Change]], shown: Iterable[FileChange], *, trusted: bool, timeout_seconds: float
) -> HistorySearch:
    """Search the lines that these commits add, the oldest commit first, but for those that `shown` adds as well."""
    seen = {(file.path, text) for file in shown for _, text in _added(file)}
    # The commit is put before the path like a folder, so that each file of each commit has a name of its own.
    texts: dict[str, dict[int, bytes]] = {}
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
    claims = []
    for issue in report.issues:
        if issue.silenced_by:
            continue
        sha, _, path = issue.file.partition("/")
        found = claim_of(issue, analyser.name, texts[issue.file], [report.sensitive.get(issue.file, {})])
        body = f"Commit {sha[:12]} of this push adds the secret. {found.body}"
        claims.append(replace(found, file=path, commit_sha=sha, body=body))
    return HistorySearch(in_order(claims), failed)


async def _committed(_file: str, _line: bytes) -> Moment:
    return Moment.COMMITTED


def _added(file: FileChange) -> Iterator[tuple[int, bytes]]:
    """The added lines; a text in UTF-16 is readable without its NULs."""
    for hunk in file.hunks if file.new_path and not file.is_submodule else ():
        for line in hunk.lines() if hunk.added else ():
            if line.kind == "added" and line.new_number is not None and line.text.strip():
                yield line.new_number, line.text.replace(b"\0", b"")
