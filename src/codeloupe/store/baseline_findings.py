"""From a review to the baseline: what it found, which of it is adopted, and which entries it shows to be unused."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from datetime import date
from pathlib import Path
from typing import Any

from msgspec import Struct, convert

from codeloupe.config.yaml import escape
from codeloupe.errors import UsageError
from codeloupe.model.baseline import UNUSED, Baseline, BaselineEntry, EntryStanding, EntryState, shown_path
from codeloupe.model.finding import Finding, FindingStatus, Severity, SuppressionKind
from codeloupe.model.review import Review, ReviewError
from codeloupe.model.sweep import CommitSweep
from codeloupe.system.redaction import redact
from codeloupe.system.regex import regex

SHORTEST_PREFIX = 6
_MOST_LISTED = 10
# What a quote contains for something that is not shown.
_LEFT_OUT = regex(r"\[redacted\]|\*{8}|\.{3,99}|…|\[cut:[0-9,]{1,20} more bytes\]")
_NAMED = regex(r"\b([0-9a-f]{6,64}) \(line \d{1,9}\)")
_HINT = "give a file that `codeloupe review --format json -o FILE` or `codeloupe commits --output json` wrote"


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
            # What a sweep calls evidence is the place; the quote has a name of its own there.
            found = tuple(_finding({**each, "evidence": each["quote"]}) for each in document["findings"])
            return ReviewedFindings(name, found, complete=all(each["reviewed"] is True for each in document["commits"]))
        errors = convert(document["errors"], tuple[ReviewError, ...])
        found = tuple(map(_finding, document["findings"]))
        return ReviewedFindings(name, found, errors, complete=document["complete"] is True)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{name} is not a JSON report of version 1 ({error})", hint=_HINT) from error


def _finding(document: Mapping[str, Any]) -> Finding:
    severity, fingerprint = Severity.parse(document["severity"]).value, document["fingerprint"].lower()
    # What else a report says of the entry, such as an empty date, is not asked for.
    by = document.get("suppression") and {key: document["suppression"][key] for key in ("kind", "reason")}
    return convert({**document, "severity": severity, "fingerprint": fingerprint, "suppression": by or None}, Finding)


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
            raise UsageError(f"no finding of {reviewed.name} is {word!r}", hint=_listed(findings))
        if len(found) > 1:
            shown = "\n".join(f"  {_in_short(finding)}" for finding in found[:_MOST_LISTED])
            raise UsageError(f"{word!r} may be any of these:\n{shown}", hint="give more of the fingerprint of one")
        picked[found[0].file, found[0].fingerprint] = found[0]
    return list(picked.values())


def all_open(reviewed: ReviewedFindings) -> list[Finding]:
    """Every finding that counts."""
    return [finding for finding in reviewed.findings if finding.fingerprint and finding.is_open]


def entry_for(finding: Finding, acceptance: Acceptance) -> BaselineEntry:
    """What is kept of a finding."""
    return BaselineEntry(
        fingerprint=finding.fingerprint,
        file=shown_path(finding.file),
        title=" ".join(finding.title.split())[:200],
        # By its rule a finding is known without words.
        body="" if finding.rule else " ".join(redact(finding.body).split())[:400],
        evidence=_telling_piece(finding.evidence),
        rule=finding.rule or "",
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
            if finding.status in (FindingStatus.NEW, FindingStatus.OPEN, FindingStatus.REGRESSED):
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
