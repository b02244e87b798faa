"""The file of known findings: read from any revision, changed as little as can be, and compared with reviews.

Every mistake in it is reported with its line. Comments and the lines of entries that do not change stay as somebody
wrote them; a text in an unusual shape, such as a list within brackets, is written anew with the comments at its top.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from datetime import date
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from msgspec import Struct, convert
from msgspec.structs import replace

from codeloupe.config import yaml
from codeloupe.config.files import decode_config, read_config_file, repository_root
from codeloupe.config.yaml import ListNode, MapNode, Node, Problem, ScalarNode, closest, escape, plain_or_quoted, quote
from codeloupe.errors import ConfigError, OutputError, UsageError
from codeloupe.git.repository import Repository, open_repository, read_file_at
from codeloupe.model.baseline import (
    BASELINE_NAME,
    UNUSED,
    Baseline,
    BaselineEntry,
    EntryStanding,
    EntryState,
    shown_path,
)
from codeloupe.model.change import Scope, ScopeKind
from codeloupe.model.finding import Finding, Severity, Source, SuppressionKind
from codeloupe.model.review import Review, ReviewError
from codeloupe.model.sweep import CommitSweep
from codeloupe.store.records import replace_file
from codeloupe.store.report_findings import read_finding
from codeloupe.system.redaction import redact
from codeloupe.system.regex import regex

VERSION = "1"
MOST_ENTRIES = 50_000
MAX_FILE_BYTES = 16_000_000
LONGEST_TEXT = 4_096
_NEEDED = ("fingerprint", "reason")
_LIMITS = yaml.Limits(characters=MAX_FILE_BYTES, values=30 * MOST_ENTRIES, depth=8)
_TOO_LARGE = "fix some of the findings"


def parse_date(text: str) -> date:
    """A day as YYYY-MM-DD. Raises ValueError."""
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text.strip()):
        raise ValueError("not a date")
    return date.fromisoformat(text.strip())


def parse_reason(text: str) -> str:
    """A reason, which has at least one letter or digit. Raises ValueError."""
    if len(text) > LONGEST_TEXT or not any(character.isalnum() for character in text):
        raise ValueError("not a reason")
    return text.strip()


def _fingerprint(text: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{6,64}", text.strip().lower()):
        raise ValueError("not a fingerprint")
    return text.strip().lower()


_ANY = (str, "a string", "put it in quotes")
# Of each key how its text is read, which raises ValueError, what a message expects there, and what to do about it.
FIELDS: Mapping[str, tuple[Callable[[str], object], str, str]] = {
    "fingerprint": (_fingerprint, "the fingerprint of a finding", "`codeloupe baseline add` writes entries"),
    **dict.fromkeys(("file", "title", "body", "evidence", "statement", "rule"), _ANY),
    "severity": (Severity.parse, "critical, high, medium or low", "remove it to cover any severity"),
    "reason": (parse_reason, "why this finding does not count", "give a short reason"),
    "owner": _ANY,
    "expires": (parse_date, "a date such as 2030-12-31", "write it as YYYY-MM-DD"),
}


def parse_baseline(name: str, text: str) -> Baseline:
    """The entries of a baseline; an empty text has none. Raises ConfigError with every mistake and its line."""
    try:
        root = yaml.read_document(name, text, limits=_LIMITS)
    except yaml.Refused as refusal:
        raise yaml.config_error([refusal.problem]) from refusal
    reading = _Reading(name)
    entries = reading.entries(root)
    problems = sorted([*yaml.repetitions(name, root), *reading.problems], key=lambda problem: problem.line)
    if problems:
        raise yaml.config_error(problems, subject="the baseline", hint=f"correct each line of {BASELINE_NAME}")
    return Baseline(entries, name)


class _Reading:
    """Reads the entries of one tree; `problems` are the mistakes in it."""

    def __init__(self, name: str) -> None:
        self._name = escape(name)
        self.problems: list[Problem] = []

    def entries(self, root: MapNode) -> tuple[BaselineEntry, ...]:
        """The entries that can be read."""
        top = {key.text: value for key, value in root.entries}
        self._check_keys(root, ("version", "entries"))
        version, listed = top.get("version"), top.get("entries")
        if version is None and root.entries:
            self._problem(root.line, "`version: 1` is missing", "add it as the first line")
        elif version is not None and not (isinstance(version, ScalarNode) and version.text == VERSION):
            what = f"version: this codeloupe reads version 1, found {yaml.describe(version)}"
            self._problem(version.line, what, "update codeloupe")
        if listed is None or (isinstance(listed, ScalarNode) and listed.value is None):
            return ()
        if not isinstance(listed, ListNode):
            self._problem(listed.line, "entries: expected a list", "begin each entry with `- fingerprint: `")
            return ()
        if len(listed.items) > MOST_ENTRIES:
            self._problem(listed.items[MOST_ENTRIES].line, f"more than {MOST_ENTRIES:,} entries", _TOO_LARGE)
            return ()
        found = [entry for entry in map(self._entry, listed.items) if entry is not None]
        lines: dict[tuple[str, str], int] = {}
        for entry in found:
            line = lines.setdefault(entry.key, entry.line)
            if line != entry.line:
                self._problem(entry.line, f"the same fingerprint and file are on line {line}", "keep one of the two")
        return tuple(found)

    def _entry(self, node: Node) -> BaselineEntry | None:
        if not isinstance(node, MapNode):
            what = "expected an entry with fingerprint, file, title, reason, owner and expires"
            self._problem(node.line, what, "write `key: value`, indented with spaces")
            return None
        before, values = len(self.problems), dict[str, Any]()
        self._check_keys(node, tuple(FIELDS))
        given = {key.text: value for key, value in node.entries if key.text in FIELDS}
        for key, value in given.items():
            if not isinstance(value, ScalarNode):
                self._problem(value.line, "expected a string", "write it on one line, in quotes")
                continue
            text = "" if value.value is None else value.text
            if text.strip() or key in _NEEDED:
                read, expected, hint = FIELDS[key]
                try:
                    values[key] = read(text)
                except ValueError:
                    found = quote(text) if text.strip() else "nothing"
                    self._problem(value.line, f"{key}: expected {expected}, found {found}", hint)
        for name in _NEEDED:
            if name not in given:
                self._problem(node.line, f"this entry has no {name}", f"add `{name}: `")
        return BaselineEntry(**values, line=node.line) if len(self.problems) == before else None

    def _check_keys(self, node: MapNode, known: tuple[str, ...]) -> None:
        for key, _ in node.entries:
            if key.text not in known:
                meant = closest(key.text, known)
                hint = f"did you mean `{meant}`?" if meant else f"the keys are {', '.join(known)}"
                self._problem(key.line, f"{plain_or_quoted(key.text)}: unknown key", hint)

    def _problem(self, line: int, what: str, hint: str) -> None:
        self.problems.append(Problem(f"{self._name}:{line}", what, hint, line))


class BaselineFile(Struct, frozen=True):
    """A baseline with the text it was read from; the text of one that is not there is empty."""

    baseline: Baseline = Baseline()
    text: str = ""


def read_working_file(root: Path) -> BaselineFile:
    """The baseline in a working tree, never through a symbolic link; empty without a file. Raises ConfigError."""
    path = root / BASELINE_NAME
    if not os.path.lexists(path):
        return BaselineFile()
    text = read_config_file(
        path, name=BASELINE_NAME, follow_symlinks=False, max_bytes=MAX_FILE_BYTES, too_large=_TOO_LARGE
    ).text
    return BaselineFile(parse_baseline(BASELINE_NAME, text), text)


def decode_baseline(name: str, data: bytes) -> BaselineFile:
    """The baseline in a file's bytes; `name` is for messages. Raises ConfigError."""
    text = decode_config(name, data, max_bytes=MAX_FILE_BYTES, too_large=_TOO_LARGE).text
    return BaselineFile(parse_baseline(name, text), text)


def write_working_file(root: Path, text: str) -> None:
    """Put a text in the place of the baseline's file, with the mode it had; no link is followed. Raises OutputError."""
    target = root / BASELINE_NAME
    try:
        is_kept = target.is_file() and not target.is_symlink()
        kept = stat.S_IMODE(target.stat().st_mode) & 0o777 if is_kept else None
        replace_file(target, text.encode("utf-8"), mode=0o666, exact_mode=kept)
    except OSError as error:
        reason = (error.strerror or "unknown error").lower()
        hint = "check the directory and its permissions"
        raise OutputError(f"{escape(str(target))}: cannot be written: {reason}", hint=hint) from error


async def read_baseline(scope: Scope, *, repo: Path, trusted: bool) -> Baseline:
    """The baseline that holds for a resolved scope; an empty one without a file. Raises ConfigError and GitFailed.

    Whoever wrote an untrusted change may have written its baseline too, so the base's holds; an untrusted diff has no
    base to take one from. Of a trusted change, what the user accepts in the working tree holds at once, also for a
    commit, a range and the index, which do not have the entry yet. There a symbolic link counts as no file.
    """
    if not trusted:
        return await _of_revision(await open_repository(repo), scope.base) if scope.base else Baseline()
    if scope.kind in (ScopeKind.UNCOMMITTED, ScopeKind.BRANCH, ScopeKind.DIFF_FILE):
        return read_working_file(repository_root(repo)).baseline
    known = Baseline()
    if scope.kind is ScopeKind.STAGED or scope.head:
        known = await _of_revision(await open_repository(repo), scope.head)
    working = read_working_file(repository_root(repo)).baseline
    same = {replace(entry, line=0) for entry in known.entries}
    also = tuple(entry for entry in working.entries if replace(entry, line=0) not in same)
    changed = {entry.key for entry in also}
    return replace(known, entries=tuple(entry for entry in known.entries if entry.key not in changed), also=also)


async def _of_revision(repository: Repository, revision: str | None) -> Baseline:
    """That of a revision, or of the index."""
    content = await read_file_at(repository, revision, BASELINE_NAME)
    name = f"{(revision or '')[:12]}:{BASELINE_NAME}"
    return Baseline() if content is None else decode_baseline(name, content).baseline


_DASH = regex(r"( {0,40})- ")
_TOP = (
    "# Findings that are known and do not count: see `codeloupe baseline --help`. Each needs a reason, and one that",
    "# expires holds up to that day.",
)


def edited(
    text: str, baseline: Baseline, *, put: Sequence[BaselineEntry] = (), remove: Iterable[tuple[str, str]] = ()
) -> str:
    """The text, which holds `baseline`, with some entries put in by file and fingerprint, and without some others."""
    gone, coming = frozenset(remove), {entry.key: replace(entry, line=0) for entry in put}
    present = {entry.key for entry in baseline.entries} - gone
    highest = list(accumulate((entry.key for entry in baseline.entries), max))
    # The new ones that come before all others, and each of the others with those that come after it: a new one comes
    # before the first of the others that belongs after it.
    kept = ([coming.get(entry.key, entry)] if entry.key in present else [] for entry in baseline.entries)
    groups: list[list[BaselineEntry]] = [[], *kept]
    for key, entry in sorted(coming.items()):
        if key not in present:
            groups[bisect_right(highest, key)].append(entry)
    wanted = [entry for group in groups for entry in group]
    spliced = _spliced(text, [entry.line for entry in baseline.entries], groups)
    try:
        found = () if spliced is None else parse_baseline(BASELINE_NAME, spliced).entries
    except ConfigError:
        found = ()
    if spliced is not None and [replace(each, line=0) for each in found] == [replace(each, line=0) for each in wanted]:
        return spliced
    lines = text.removeprefix("\ufeff").splitlines()
    end = next((index for index, line in enumerate(lines) if line.strip() and not line.startswith("#")), len(lines))
    top = [line.rstrip() for line in lines[:end]] or _TOP
    body = [line for entry in wanted for line in _entry_lines(entry, 2)]
    return "\n".join([*top, f"version: {VERSION}", "entries:" if body else "entries: []", *body, ""])


def _spliced(text: str, starts: Sequence[int], groups: Sequence[Sequence[BaselineEntry]]) -> str | None:
    """The text with the lines of unchanged entries, and all comments, as they are; None for an unusual shape."""
    line_end = "\r\n" if "\r\n" in text else "\n"
    lines = text.removesuffix(line_end).split(line_end)
    if not starts or any(after <= before for before, after in pairwise(starts)) or starts[-1] > len(lines):
        return None
    dashes = {dash[1] if (dash := _DASH.match(lines[start - 1])) else None for start in starts}
    margin = dashes.pop()
    if margin is None or dashes:
        return None
    # The list ends where something is indented no further than its dashes.
    end_of_list = starts[-1]
    while end_of_list < len(lines):
        line = lines[end_of_list].lstrip(" ")
        if line.strip() and not line.startswith("#") and len(lines[end_of_list]) - len(line) <= len(margin):
            break
        end_of_list += 1
    result = lines[: starts[0] - 1]
    result += [line for entry in groups[0] for line in _entry_lines(entry, len(margin))]
    for start, end, group in zip(starts, [*(start - 1 for start in starts[1:]), end_of_list], groups[1:], strict=True):
        own = end
        while own > start and (not lines[own - 1].strip() or lines[own - 1].lstrip().startswith("#")):
            own -= 1
        for entry in group:
            result += lines[start - 1 : own] if entry.line else _entry_lines(entry, len(margin))
        result += lines[own:end]
    return "".join(f"{line}{line_end}" for line in [*result, *lines[end_of_list:]])


def _entry_lines(entry: BaselineEntry, indent: int) -> list[str]:
    """An entry as lines of YAML; keys without a value are left out."""
    lines: list[str] = []
    for key in FIELDS:
        value = getattr(entry, key)
        if key == "severity":
            text = "" if value is None else value.label
        elif key == "expires":
            text = "" if value is None else value.isoformat()
        else:
            whole = json.dumps(value.encode("utf-8", "backslashreplace").decode("utf-8"), ensure_ascii=False)
            # As YAML reads them; what cannot be seen, or not be written, is escaped.
            text = "".join(
                each if each.isprintable() else f"\\u{ord(each):04x}" if ord(each) < 0x10000 else f"\\U{ord(each):08x}"
                for each in (whole if value else "")
            )
        if text:
            lines.append(f"{' ' * indent}{'  ' if lines else '- '}{key}: {text}")
    return lines


SHORTEST_PREFIX = 6
_MOST_LISTED = 10
# What a quote contains for something that is not shown.
_LEFT_OUT = regex(r"\[redacted\]|\*{8}|\.{3,99}|…|\[cut:[0-9,]{1,20} more bytes\]")
_NAMED = regex(r"\b([0-9a-f]{6,64}) \(line \d{1,9}\)")
_HINT = "give a file that `codeloupe review --format json -o FILE` or `codeloupe commits --format json -o FILE` wrote"


class ReviewedFindings(Struct, frozen=True):
    """The findings of one review and its errors. `name` is how messages call the review."""

    name: str
    findings: tuple[Finding, ...]
    errors: tuple[ReviewError, ...] = ()
    complete: bool = True


class Acceptance(Struct, frozen=True, kw_only=True):
    """What a person says about the findings that are adopted."""

    reason: str
    owner: str = ""
    expires: date | None = None


def findings_of(review: Review, *, name: str, hidden: tuple[Finding, ...] = ()) -> ReviewedFindings:
    """Those of a review; `hidden` are the ones below its `min_severity`."""
    return ReviewedFindings(name, (*review.findings, *hidden), review.errors, review.complete)


def findings_of_sweep(sweep: CommitSweep, *, name: str) -> ReviewedFindings:
    """Those of all commits of a sweep, together."""
    reviews = [commit.review for commit in sweep.commits if commit.review is not None]
    findings = tuple(finding for review in reviews for finding in review.findings)
    return ReviewedFindings(name, findings, complete=all(commit.reviewed for commit in sweep.commits))


def read_report(path: Path) -> ReviewedFindings:
    """Those of a report in a file; `-` is standard input. Raises UsageError for what is no report of version 1."""
    name = escape(str(path))
    try:
        with path.open("rb") if path != Path("-") else nullcontext(sys.stdin.buffer) as file:
            document = json.loads(file.read(256_000_000))
    except OSError as error:
        reason = (error.strerror or "unknown error").lower()
        raise UsageError(f"cannot read the report {name}: {reason}", hint=_HINT) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is not a JSON report", hint=_HINT) from error
    if not isinstance(document, dict) or document.get("schema_version") != 1:
        raise UsageError(f"{name} is not a JSON report of version 1", hint=_HINT)
    try:
        if "sweep_id" in document:
            found = tuple(map(_finding, document["findings"]))
            return ReviewedFindings(name, found, complete=all(each["reviewed"] is True for each in document["commits"]))
        errors = convert(document["errors"], tuple[ReviewError, ...])
        found = tuple(map(_finding, document["findings"]))
        return ReviewedFindings(name, found, errors, complete=document["complete"] is True)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{name} is not a JSON report of version 1 ({error})", hint=_HINT) from error


def _finding(document: Mapping[str, Any]) -> Finding:
    finding = read_finding(document)
    return replace(finding, fingerprint=finding.fingerprint.lower())


def chosen(reviewed: ReviewedFindings, words: Sequence[str]) -> list[Finding]:
    """The findings that words name, each once: by the beginning of the fingerprint or the place. Raises UsageError."""
    findings = [finding for finding in reviewed.findings if finding.fingerprint]
    picked: dict[tuple[str, str], Finding] = {}
    for word in words:
        path, is_place, number = word.rpartition(":")
        prefix = word.strip().lower()
        if is_place:
            line = int(number[:9]) if number.isascii() and number.isdigit() else 0
            found = [
                each for each in findings if path in (each.file, shown_path(each.file)) and each.first_line == line
            ]
        elif not re.fullmatch(rf"[0-9a-f]{{{SHORTEST_PREFIX},64}}", prefix):
            what = f"{word!r} is neither a fingerprint ({SHORTEST_PREFIX} or more of 0-9 and a-f) nor a place (a.py:12)"
            raise UsageError(what, hint=_listed(findings))
        else:
            found = [each for each in findings if each.fingerprint.startswith(prefix)]
        if not found:
            raise UsageError(f"no finding {word!r} in {reviewed.name}", hint=_listed(findings))
        if len(found) > 1:
            shown = "\n".join(f"  {_in_short(finding)}" for finding in found[:_MOST_LISTED])
            raise UsageError(f"{word!r} matches several findings:\n{shown}", hint="give more digits of one fingerprint")
        picked[found[0].file, found[0].fingerprint] = found[0]
    return list(picked.values())


def all_open(reviewed: ReviewedFindings) -> list[Finding]:
    """Return every open finding."""
    return [finding for finding in reviewed.findings if finding.fingerprint and finding.is_open]


def entry_for(finding: Finding, acceptance: Acceptance) -> BaselineEntry:
    """Return what the baseline keeps of a finding; only an analyser's rule identifies a defect."""
    rules = [claim.rule for claim in finding.claims if claim.rule and claim.source is Source.ANALYSER]
    return BaselineEntry(
        fingerprint=finding.fingerprint,
        file=shown_path(finding.file),
        title=" ".join(finding.title.split())[:200],
        body=" ".join(redact(finding.body).split())[:400],
        evidence=_telling_piece(finding.evidence),
        statement=" ".join(sorted({name for claim in finding.claims for name in claim.statements})),
        rule=rules[0] if rules else "",
        severity=finding.claimed_severity,
        reason=acceptance.reason,
        owner=acceptance.owner,
        expires=acceptance.expires,
    )


def _listed(findings: Iterable[Finding]) -> str:
    listed = [_in_short(finding) for finding in findings if finding.is_open]
    if not listed:
        return "that review has no finding that counts"
    more = f"; and {len(listed) - _MOST_LISTED:,} more" if len(listed) > _MOST_LISTED else ""
    return f"its findings are {'; '.join(listed[:_MOST_LISTED])}{more}"


def _in_short(finding: Finding) -> str:
    title = " ".join(finding.title.split())[:60]
    line = "" if finding.line_start is None else f":{finding.line_start}"
    return f"{finding.fingerprint[:16]} {shown_path(finding.file)}{line} {title}"


def _telling_piece(evidence: str) -> str:
    """A piece of one line of the code by which it is known again; empty when there is none, or only secrets."""
    lines = [line for line in redact(evidence).split("\n") if line.strip()]
    if not lines:
        return ""
    telling = next((line for line in lines if sum(map(str.isalnum, line)) >= SHORTEST_PREFIX), lines[0])
    piece = max((part.strip() for part in _LEFT_OUT.split(telling)), key=len)[:120].strip()
    return piece if len(piece) >= 4 and "\ufffd" not in piece else ""


def reported_unused(errors: Iterable[ReviewError]) -> frozenset[str]:
    """The beginnings of the fingerprints that a review reported as unused in the baseline."""
    return frozenset(name for error in errors if error.kind == UNUSED for name in _NAMED.findall(error.message))


def standings(baseline: Baseline, reviewed: ReviewedFindings | None, *, today: date) -> tuple[EntryStanding, ...]:
    """Each entry in the order of the file. Without a review, only what has expired is known.

    Which entries are unused the review itself must have reported: it alone knew which files it looked at. Used is what
    set a finding aside, or would: an entry that was added after the review is used by the next.
    """
    used: set[str] = set()
    for finding in () if reviewed is None else reviewed.findings:
        if finding.suppression is None:
            if finding.is_open:
                used.add(finding.fingerprint)
        elif finding.suppression.kind is SuppressionKind.BASELINE:
            used |= {finding.fingerprint, finding.suppression.entry}
    unused = () if reviewed is None else tuple(reported_unused(reviewed.errors))

    def state(entry: BaselineEntry) -> EntryState:
        if entry.is_expired(today):
            return EntryState.EXPIRED
        if entry.fingerprint in used:
            return EntryState.USED
        return EntryState.UNUSED if entry.fingerprint.startswith(unused) else EntryState.UNSEEN

    return tuple(EntryStanding(entry, state(entry)) for entry in baseline.entries)


def to_prune(standing: tuple[EntryStanding, ...]) -> tuple[EntryStanding, ...]:
    """The entries that have no use any more."""
    return tuple(each for each in standing if each.state in (EntryState.EXPIRED, EntryState.UNUSED))
