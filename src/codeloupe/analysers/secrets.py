"""Secrets on the added lines of every text file, with the detectors of `secret_detectors`.

The repository's own baselines of detect-secrets are not read: they are configuration of the change's author. In a
trusted change, `pragma: allowlist secret` silences the secrets of a line.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from codeloupe.analysers import programs
from codeloupe.analysers import secret_detectors as detectors
from codeloupe.analysers.claims import claim_of, in_order
from codeloupe.analysers.interface import (
    Analyser,
    AnalyserReport,
    AnalysisTarget,
    Issue,
    is_prose_file,
    is_test_file,
)
from codeloupe.analysers.secret_detectors import Hit
from codeloupe.analysers.secret_values import SECRETS_TABLE, looks_random
from codeloupe.config.files import read_regular_file
from codeloupe.errors import CodeloupeError
from codeloupe.model.change import Change, FileChange, Moment
from codeloupe.model.finding import Claim, Severity
from codeloupe.system.redaction import token_forms
from codeloupe.system.regex import regex

_NAME = "detect-secrets"
# The part of the time limit for the search; the rest is for the other work.
_SHARE_OF_TIME = 0.9
# With very many secrets, only the first ones get advice for the state of their line.
_MOST_MOMENTS = 20
# The match is the part of a comment that an issue shows. The rest of the line may contain the secret.
_ALLOWED_LINE = regex(r"(?:(?:#|//|/\*|--|'|<!--)[ \t]{0,9})?pragma: ?(?:allow|white)list[ -]secret")
_ALLOWED_NEXT_LINE = regex(r"\s*(?:#|//|/\*|--|'|<!--)[ \t]*pragma: ?allowlist[ -]nextline[ -]secret")
# A file and a line.
_Place = tuple[str, int]


def _titles() -> Mapping[str, tuple[Severity, str]]:
    """Return the severity and the title of each kind of secret."""
    titles = {form.name: (form.severity, f"{form.name} in the code") for form in token_forms()}
    for severity, kinds in SECRETS_TABLE["titles"].items():
        for kind, title in kinds.items():
            titles[kind] = (Severity.parse(severity), title)
    return titles


TITLES = _titles()


class SecretsAnalyser(Analyser):
    """Secrets on added lines. The issues never contain a value; `sensitive` of the report does."""

    name = _NAME
    needs_only_added_lines = True

    def accepts(self, path: str, start: bytes = b"") -> bool:  # noqa: ARG002 - every file may contain a secret
        """Return True: every file may contain a secret."""
        return bool(path)

    async def version(self) -> str:
        """Return the version of detect-secrets. Raises AnalyserFailed."""
        from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - slow, and for `doctor` alone

        try:
            return version(_NAME)
        except PackageNotFoundError as error:
            raise programs.failure(_NAME, "is not installed", "", hint=f"pip install {_NAME}") from error

    async def analyse(self, target: AnalysisTarget) -> AnalyserReport:
        """Search the added lines. Raises AnalyserFailed if detect-secrets cannot be loaded."""
        # In a thread, so that the programs of the other analysers start meanwhile.
        added = await asyncio.to_thread(_added_lines, target)
        hits, failed = await _search(added.lines, target.timeout_seconds)
        hits_of_line: dict[_Place, list[Hit]] = defaultdict(list)
        sensitive: dict[str, dict[int, tuple[str, ...]]] = defaultdict(dict)
        for hit in hits:
            hits_of_line[hit.file, hit.line].append(hit)
            known = sensitive[hit.file].get(hit.line, ())
            sensitive[hit.file][hit.line] = (*known, *hit.values)
        places = [place for place, found in hits_of_line.items() if any(hit.kind for hit in found)]
        moments = await _moments(places[:_MOST_MOMENTS], added.lines, target)
        issues: list[Issue] = []
        for place in places:
            issue = _issue(hits_of_line[place], moments.get(place, Moment.UNKNOWN))
            if issue is not None:
                issues.append(replace(issue, silenced_by=added.comments.get(place, "")))
        return AnalyserReport(tuple(issues), {**failed, **added.failed}, dict(sensitive))


class _AddedLines(Struct, frozen=True):
    """The added lines by file, the comments that silence some of them, and the files that cannot be read."""

    lines: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    comments: dict[_Place, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def _added_lines(target: AnalysisTarget) -> _AddedLines:
    """Return the added lines of the files of a target."""
    added = _AddedLines()
    for file in target.files:
        numbers = sorted(target.added_lines.get(file, frozenset()))
        known = target.added_text.get(file)
        if known is None:
            if not numbers:
                continue
            try:
                content = read_regular_file(target.root / file)
            except OSError as error:
                added.failed[file] = f"cannot be read: {error.strerror}"
                continue
            known = dict(enumerate(content.split(b"\n"), start=1))
        if any(number not in known for number in numbers):
            added.failed[file] = "it has fewer lines than the change; it was modified during the review"
        lines = added.lines.setdefault(file, [])
        for number in numbers:
            if number not in known:
                continue
            text = known[number].decode("utf-8", "replace")
            lines.append((number, text.rstrip("\r")))
            before = known.get(number - 1, b"").decode("utf-8", "replace")
            comment = _ALLOWED_LINE.search(text) or _ALLOWED_NEXT_LINE.match(before)
            if target.trusted and comment is not None:
                added.comments[file, number] = comment[0].strip()
    return added


async def _search(lines: Mapping[str, detectors.Lines], seconds: float) -> tuple[list[Hit], dict[str, str]]:
    """Search the lines in a thread. Return the hits, and the files for which the time ran out, with the reason."""
    if not any(lines.values()):
        return [], {}
    deadline = time.monotonic() + _SHARE_OF_TIME * seconds
    stop = threading.Event()
    try:
        return await asyncio.to_thread(detectors.search, lines, lambda: stop.is_set() or time.monotonic() > deadline)
    except (ImportError, AttributeError) as error:
        raise programs.failure(_NAME, "cannot be loaded", str(error), hint=f"pip install {_NAME}") from error
    finally:
        # If this is cancelled, the thread must end.
        stop.set()


async def _moments(
    places: Iterable[_Place], lines: Mapping[str, detectors.Lines], target: AnalysisTarget
) -> dict[_Place, Moment]:
    """Return whether each line is uncommitted, staged, committed or pushed, if the target can tell."""
    moments: dict[_Place, Moment] = {}
    if target.moment_of is None:
        return moments
    for file, number in places:
        text = dict(lines[file]).get(number, "")
        moments[file, number] = await target.moment_of(file, text.encode("utf-8", "surrogateescape"))
    return moments


def _issue(hits: Sequence[Hit], moment: Moment) -> Issue | None:
    """Return one issue for a line, for the worst secret on it, or None if none of them counts."""
    judged: list[tuple[Severity, Hit]] = []
    for hit in hits:
        severity = _severity(hit) if hit.kind else None
        if severity is not None:
            judged.append((severity, hit))
    if not judged:
        return None
    severity, worst = min(judged, key=lambda pair: pair[0].priority)
    advice = SECRETS_TABLE["advice"][moment.value]
    body = "Anyone who can read the repository, a fork, a backup or a build log can use it."
    if worst.kind == detectors.PRIVATE_KEY:
        body = "Anyone who has the private key can impersonate its owner and decrypt their messages."
    body += f" {advice['state']}"
    if len(judged) > 1:
        body += f" This line contains {len(judged)} secrets."
    return Issue(
        file=worst.file,
        line_start=worst.line,
        line_end=worst.line,
        rule=worst.kind.lower().replace(" ", "-"),
        defect="hard-coded-secret",
        severity=severity,
        category="security",
        title=TITLES[worst.kind][1],
        body=body,
        suggestion=advice["fix"],
    )


def _severity(hit: Hit) -> Severity | None:
    """Return how bad a hit is, or None if it does not count.

    In tests and prose, a value that is known by its name or its randomness alone counts only if a generator made it.
    """
    is_random = any(looks_random(value) for value in hit.values)
    is_test = is_test_file(hit.file)
    is_known_by_name = hit.kind in (detectors.KEYWORD, detectors.BASIC_AUTH)
    is_vague = is_known_by_name or hit.kind in (detectors.ENTROPY, detectors.WEB_TOKEN)
    if is_vague and (is_test or is_prose_file(hit.file)):
        return Severity.LOW if is_random else None
    if is_known_by_name and not is_random:
        return Severity.MEDIUM
    if hit.kind == detectors.PRIVATE_KEY and is_test:
        return Severity.MEDIUM
    return TITLES[hit.kind][0]


class HistorySearch(Struct, frozen=True):
    """The secrets in commits, and the files that could not be searched, with the reasons."""

    claims: tuple[Claim, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()


async def search_commits(
    commits: Sequence[tuple[str, Change]], shown: Iterable[FileChange], *, trusted: bool, timeout_seconds: float
) -> HistorySearch:
    """Search the lines that these commits add, the oldest commit first, except the lines that `shown` adds as well."""
    texts = _texts_of_commits(commits, shown)
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
    claims: list[Claim] = []
    for issue in report.issues:
        if issue.silenced_by:
            continue
        sha, _, path = issue.file.partition("/")
        found = claim_of(issue, analyser.name, texts[issue.file], [report.sensitive.get(issue.file, {})])
        body = f"Commit {sha[:12]} of this push adds the secret. {found.body}"
        claims.append(replace(found, file=path, commit_sha=sha, body=body))
    return HistorySearch(in_order(claims), failed)


def _texts_of_commits(
    commits: Sequence[tuple[str, Change]], shown: Iterable[FileChange]
) -> dict[str, dict[int, bytes]]:
    """Return the lines that commits add and that neither `shown` nor an earlier commit adds.

    The commit is put before the path like a directory, so that each file of each commit has a name of its own.
    """
    seen: set[tuple[str, bytes]] = set()
    for file in shown:
        seen.update((file.path, text) for _, text in _added(file))
    texts: dict[str, dict[int, bytes]] = {}
    for sha, change in commits:
        for file in change.files:
            lines = {number: text for number, text in _added(file) if (file.path, text) not in seen}
            seen.update((file.path, text) for text in lines.values())
            if lines:
                texts[f"{sha}/{file.path}"] = lines
    return texts


async def _committed(_file: str, _line: bytes) -> Moment:
    return Moment.COMMITTED


def _added(file: FileChange) -> Iterator[tuple[int, bytes]]:
    """Yield the added lines; a text in UTF-16 is readable without its NULs."""
    if file.new_path is None or file.is_submodule:
        return
    for hunk in file.hunks:
        if not hunk.added:
            continue
        for line in hunk.lines():
            if line.kind == "added" and line.new_number is not None and line.text.strip():
                yield line.new_number, line.text.replace(b"\0", b"")
