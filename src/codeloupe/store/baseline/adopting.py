"""From findings to entries of the baseline: which are meant, and what is written down of each. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import date

from msgspec import Struct

from codeloupe.errors import UsageError
from codeloupe.model.baseline import BaselineEntry, shown_path
from codeloupe.model.finding import Finding
from codeloupe.store.baseline.reviewed import ReviewedFindings
from codeloupe.system.redaction import redact

SHORTEST_PREFIX = 6
_LONGEST_TITLE = 200
_LONGEST_BODY = 400
_LONGEST_EVIDENCE = 120
_SHORTEST_EVIDENCE = 4
_MOST_LISTED = 10
_PREFIX = re.compile(r"[0-9a-f]{1,64}")
# What stands in a quote for something that is not shown.
_LEFT_OUT = re.compile(r"\[redacted\]|\*{8}|\.{3,99}|…|\[cut:[0-9,]{1,20} more bytes\]")


class Terms(Struct, frozen=True, kw_only=True):
    """What a person says about the findings that are adopted."""

    reason: str
    owner: str = ""
    expires: date | None = None


def chosen(reviewed: ReviewedFindings, words: Sequence[str]) -> list[Finding]:
    """The findings that words name, each once: by the beginning of the fingerprint or the place. Raises UsageError."""
    named = [finding for finding in reviewed.findings if finding.fingerprint]
    found = (_named(reviewed.name, named, word) for word in words)
    return list({(finding.file, finding.fingerprint): finding for finding in found}.values())


def all_open(reviewed: ReviewedFindings) -> list[Finding]:
    """Every finding that counts."""
    return [finding for finding in reviewed.findings if finding.fingerprint and finding.is_open]


def entry_for(finding: Finding, terms: Terms) -> BaselineEntry:
    """What is kept of a finding."""
    return BaselineEntry(
        fingerprint=finding.fingerprint,
        file=shown_path(finding.file),
        title=" ".join(finding.title.split())[:_LONGEST_TITLE],
        # By its rule a finding is known without words.
        body="" if finding.rule else " ".join(redact(finding.body).split())[:_LONGEST_BODY],
        evidence=_telling_piece(finding.evidence),
        rule=finding.rule or "",
        severity=finding.claimed_severity,
        reason=terms.reason,
        owner=terms.owner,
        expires=terms.expires,
    )


def _named(review: str, findings: Sequence[Finding], word: str) -> Finding:
    found = _at_place(findings, word) if ":" in word else _with_prefix(findings, word)
    if not found:
        raise UsageError(f"no finding of {review} is {word!r}", hint=_where(findings))
    if len(found) > 1:
        shown = "\n".join(f"  {_in_short(finding)}" for finding in found[:_MOST_LISTED])
        raise UsageError(f"{word!r} may be any of these:\n{shown}", hint="give more of the fingerprint of one")
    return found[0]


def _with_prefix(findings: Sequence[Finding], word: str) -> list[Finding]:
    prefix = word.strip().lower()
    if not _PREFIX.fullmatch(prefix):
        what = f"{word!r} is neither a fingerprint (digits and the letters a to f) nor a place such as a.py:12"
        raise UsageError(what, hint=_where(findings))
    if len(prefix) < SHORTEST_PREFIX:
        hint = f"give at least {SHORTEST_PREFIX} characters of the fingerprint"
        raise UsageError(f"{word!r} is too short for a fingerprint", hint=hint)
    return [finding for finding in findings if finding.fingerprint.startswith(prefix)]


def _at_place(findings: Sequence[Finding], word: str) -> list[Finding]:
    path, _, number = word.rpartition(":")
    if not number.isascii() or not number.isdigit():
        return []
    return [
        finding
        for finding in findings
        if path in (finding.file, shown_path(finding.file)) and finding.first_line == int(number[:9])
    ]


def _where(findings: Iterable[Finding]) -> str:
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
    piece = max((part.strip() for part in _LEFT_OUT.split(telling)), key=len)[:_LONGEST_EVIDENCE].strip()
    return piece if len(piece) >= _SHORTEST_EVIDENCE and "\ufffd" not in piece else ""
