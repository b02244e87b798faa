"""Phrases that every report and the progress display say in the same way."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.json import decode

from codeloupe.model.agent import AGENTS, Usage
from codeloupe.model.finding import Finding, FindingStatus, Severity, SuppressionKind
from codeloupe.model.review import (
    NOT_INCLUDED,
    FailedUnit,
    Review,
    ReviewerInfo,
    ReviewError,
    SkippedFile,
    SkipReason,
    Verdict,
    describe_claim,
)
from codeloupe.system.untrusted import plain_line

NOTHING = "Nothing to review"
SEVERITY_STYLES = dict(zip(Severity, ("bold red", "bold red", "bold yellow", "bold bright_blue"), strict=True))
_REVIEWER_NAMES = {
    "offline": "Offline review",
    **{name: f"{facts.label} review" for name, facts in AGENTS.items()},
    "cerberus": "Cerberus review",
    "command": "Review by a command",
}
_SUPPRESSED_BY = {SuppressionKind.BASELINE: "the baseline", SuppressionKind.INLINE: "a comment in the code"}
_HISTORY = {
    FindingStatus.OPEN: "still open from an earlier review",
    FindingStatus.REGRESSED: "back after it was fixed",
}


@cache
def word_table(name: str) -> dict[str, Any]:
    """A table of words beside the reports."""
    return decode(Path(__file__).with_name("assets").joinpath(f"{name}.json").read_bytes(), type=dict[str, Any])


def counted(count: int, one: str, many: str = "") -> str:
    """`1 file`, `1,200 files`; `many` is for words that have more than an s."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def duration(seconds: float) -> str:
    """`0.4 s`, `2 min 5 s`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes:,} min {rest} s"


def dollars(amount: float) -> str:
    """`$1.20`; a small amount with as many digits as it needs, so that it does not look like nothing."""
    return f"${amount:.2f}" if amount >= 0.01 or not amount else f"${amount:.4f}"


def spent_text(usage: Usage) -> str:
    """Calls, tokens and cost: `9 calls (2 more from the ledger), 41,234 tokens, $0.31`; empty when there were none."""
    if not usage.requests:
        return f"no new calls, {counted(usage.cached, 'answer')} from the ledger" if usage.cached else ""
    ledger = f" ({usage.cached:,} more from the ledger)" if usage.cached else ""
    cost = dollars(usage.cost_usd)
    if usage.unknown_costs:
        cost += f" and the unknown cost of {counted(usage.unknown_costs, 'call')}"
    if usage.unknown_costs >= usage.requests and not usage.cost_usd:
        cost = "cost unknown"
    tokens = f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out"
    return f"{counted(usage.requests, 'call')}{ledger}, {tokens}, {cost}"


def reviewer_text(reviewer: ReviewerInfo) -> str:
    """Which reviewer and why, as one sentence; the offline one never passes for an AI review."""
    names = [name for name in reviewer.type.split("+") if name]
    name = _REVIEWER_NAMES.get(reviewer.type, f"Review by {reviewer.type}")
    if len(names) > 1:
        name = f"Review by {', '.join(names[:-1])} and {names[-1]}"
    model = f" with {reviewer.model}" if reviewer.model else ""
    why = f": {reviewer.why}" if reviewer.why else ""
    if reviewer.type == "offline" and "not an AI review" not in reviewer.why:
        why += " (lint, security and hygiene; not an AI review)"
    return f"{name}{model}{why}"


def skipped_text(skipped: Iterable[SkippedFile]) -> str:
    """`2 lock files, 1 binary file`: the most common reason first."""
    nouns = word_table("skipped")
    counts = Counter(skip.reason.value for skip in skipped)
    ordered = sorted(counts, key=lambda reason: (-counts[reason], reason))
    return ", ".join(counted(counts[reason], *nouns[reason]) for reason in ordered)


def files_reviewed(review: Review) -> str:
    """`3 of 4 files reviewed`."""
    return f"{review.coverage.files_reviewed:,} of {counted(review.coverage.files_total, 'file')} reviewed"


def is_piece(failed: FailedUnit) -> bool:
    """Whether a unit is a piece of the change, named after its file, and not a reviewer such as an analyser."""
    return bool(failed.files) and failed.unit.startswith(failed.files[0])


def dedented(rows: Sequence[str]) -> list[str]:
    """Rows of code without line ends and shared indentation, tabs as spaces; of an endless row, the beginning."""
    shown = [row[:4_000].rstrip("\r").expandtabs(4) for row in rows]
    common = min((len(row) - len(row.lstrip(" ")) for row in shown if row.strip(" ")), default=0)
    return [row[common:] for row in shown]


# How a verdict is to be felt: green, yellow or red.
Tone = StrEnum("Tone", "GOOD CAUTION BAD")


class Outcome(Struct, frozen=True):
    """The word a person remembers, its tone, and the sentence that explains it."""

    word: str
    tone: Tone
    why: str


def outcome_of(review: Review) -> Outcome:
    """What to say: a review with gaps is never a pass, and what does not block is not called blocking."""
    blocking = sum(blocks(review, finding) for finding in review.findings)
    threshold = f"at or above fail_on={review.policy.fail_on.label}"
    word = "FAIL" if review.verdict is Verdict.FAIL else "NEEDS WORK"
    if blocking:
        missing = "" if review.complete else "; and not everything could be reviewed"
        return Outcome(word, Tone.BAD, f"{counted(blocking, 'finding')} {threshold}{missing}")
    if review.exit_code == 1:
        hidden = f"findings {threshold} are hidden by min_severity={review.policy.min_severity.label}"
        return Outcome(word, Tone.BAD, hidden)
    if not review.complete:
        why = "could not review everything; nothing blocking found"
        if claims := len(review.unsettled):
            neither = f"{counted(claims, 'claim')} {threshold} could be neither placed in the code nor refuted"
            why = neither if review.coverage.complete else f"{neither}; {why}"
        accepted = "; accepted, since on_incomplete is pass" if review.policy.pass_when_incomplete else ""
        return Outcome("INCOMPLETE", Tone.CAUTION, f"{why}{accepted}")
    if review.verdict is not Verdict.PASS:
        return Outcome(word, Tone.CAUTION, f"findings to look at, none {threshold}, so nothing is blocked")
    if review.nothing_to_review:
        return Outcome(NOTHING, Tone.CAUTION if review.coverage.files_total else Tone.GOOD, _why_nothing(review))
    why = "nothing found that counts against the change" if review.findings else "nothing found"
    if not review.coverage.files_reviewed:
        why = "no line of any file was changed, so there was nothing to read"
    elif review.hidden_findings and not review.findings:
        why = f"nothing found at or above min_severity={review.policy.min_severity.label}"
    return Outcome("PASS", Tone.GOOD, why)


def blocks(review: Review, finding: Finding) -> bool:
    """Whether this finding is one that makes the review fail."""
    return finding.can_block and finding.severity.at_least(review.policy.fail_on)


def _why_nothing(review: Review) -> str:
    skipped = review.coverage.skipped
    if not skipped:
        return "no changes"
    files = counted(len(skipped), "file")
    if all(skip.reason is SkipReason.EXCLUDED for skip in skipped):
        patterns = sorted({skip.detail for skip in skipped} - {NOT_INCLUDED})
        if not patterns:
            return f"no include pattern or path matches a changed file ({files} changed)"
        return f"the exclude patterns leave out every changed file ({files}, {', '.join(patterns[:3])})"
    kinds = Counter(skip.reason.value for skip in skipped).most_common()
    return f"every changed file is left out ({', '.join(f'{count:,} {kind}' for kind, count in kinds)})"


# What a finding counts for.
Standing = StrEnum(
    "Standing", {"OPEN": "open", "UNPLACED": "without a place", "REFUTED": "refuted", "SET_ASIDE": "set aside"}
)


def standing_of(finding: Finding) -> Standing:
    """Open ones count; those without a place never block; refuted, suppressed and closed ones count for nothing."""
    if finding.is_open:
        return Standing.OPEN if finding.anchored else Standing.UNPLACED
    refuted = finding.status is FindingStatus.REFUTED and finding.suppression is None
    return Standing.REFUTED if refuted else Standing.SET_ASIDE


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """By severity, then by place."""
    return sorted(findings, key=lambda f: (f.severity.priority, f.file, f.first_line, f.last_line, f.title))


def standing_so(findings: Iterable[Finding], standing: Standing) -> list[Finding]:
    """Those of one standing, the worst first, then by place."""
    return worst_first(finding for finding in findings if standing_of(finding) is standing)


def by_standing(findings: Sequence[Finding]) -> tuple[list[Finding], ...]:
    """Those that are open, without a place, refuted and set aside, each the worst first."""
    return tuple(standing_so(findings, standing) for standing in Standing)


def by_file(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    """By their files, those with the worst findings first; `?` for findings without a file."""
    files: dict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        files[finding.file or "?"].append(finding)
    return dict(sorted(files.items(), key=lambda item: (min(one.severity.priority for one in item[1]), item[0])))


def short_id(finding: Finding) -> str:
    """So much of the fingerprint that `history dismiss` and `baseline add` know the finding; empty without one."""
    return plain_line(finding.fingerprint[:8], longest=8)


def place_text(finding: Finding) -> str:
    """`a.py:12`; only the path where no line is known, and `?` where not even that is."""
    path = finding.file or "?"
    return f"{path}:{finding.line_start}" if finding.first_line > 0 else path


def why_not_counted(finding: Finding) -> str:
    """Why a finding counts for nothing; empty for one that counts."""
    if finding.is_open:
        return ""
    if standing_of(finding) is Standing.REFUTED:
        return finding.verification.strip(": \n") or "refuted"
    by = finding.suppression
    owner = f", {by.owner}" if by is not None and by.owner else ""
    until = f", until {by.expires.isoformat()}" if by is not None and by.expires else ""
    return f"{why_set_aside(finding)}{owner}{until}"


def why_set_aside(finding: Finding) -> str:
    """What closed a finding: a suppression, or its status."""
    if finding.suppression is None:
        return finding.status.value
    return f"suppressed by {_SUPPRESSED_BY[finding.suppression.kind]}: {finding.suppression.reason}".rstrip(": ")


def counts_text(review: Review) -> str:
    """`1 high, 2 low; 1 refuted; 3 hidden below min_severity=medium`: everything found, nothing left unsaid."""
    counts = Counter(standing_of(finding) for finding in review.findings)
    steps = Counter(f.severity for f in review.findings if standing_of(f) is Standing.OPEN)
    open_ones = ", ".join(f"{steps[step]:,} {step.label}" for step in Severity if steps[step])
    others = [f"{counts[s]:,} {s.value}" for s in Standing if s is not Standing.OPEN and counts[s]]
    hidden = f"{review.hidden_findings:,} hidden below min_severity={review.policy.min_severity.label}"
    return "; ".join([open_ones or "none", *others, *([hidden] if review.hidden_findings else [])])


def origin_of(finding: Finding, *, with_id: bool = True) -> list[str]:
    """Where a finding comes from and what else is known of it, each in a few words, none twice."""
    seen, sure = "", finding.confidence
    if finding.agreement > 1:
        rest = len(finding.seen_by) - 4
        more = f" and {rest:,} more" if rest > 0 else ""
        who = ", ".join(finding.seen_by[:4])
        seen = f"seen by {who}{more}" if finding.seen_by else f"seen {finding.agreement} times"
    parts = [
        finding.category,
        finding.rule or "",
        # Who saw it names the reviewer too.
        "" if seen and finding.seen_by else finding.reviewer,
        finding.expert or "",
        seen,
        "outside the change" if finding.outside_change else "",
        _HISTORY.get(finding.status, ""),
        f"confidence {sure:.0%}" if sure is not None and math.isfinite(sure) else "",
        f"commit {finding.commit_sha[:10]}" if finding.commit_sha else "",
        f"id {short_id(finding)}" if finding.fingerprint and with_id else "",
    ]
    return list(dict.fromkeys(filter(None, parts)))


def check_name(finding: Finding) -> str:
    """The name of what was checked, for formats that want one: the rule, or else the category.

    Letters, digits and `._/-` alone, since a model may have chosen it; never empty.
    """
    name = (finding.rule or finding.category)[:80]
    plain = (each if each.isascii() and (each.isalnum() or each in "._/-") else "-" for each in name)
    return "".join(plain).strip("-./") or "general"


CLAIM, UNIT, FILE, UNKNOWN = "unplaced-claim", "unit-failed", "file-not-reviewed", "incomplete"


class Gap(Struct, frozen=True):
    """One thing that should have been reviewed and was not; `files` are those it concerns, as far as is known.

    `kind` is what is missing: the place of a claim that would block, a piece of work, a file, or something unnamed.
    """

    kind: str
    name: str
    reason: str
    files: tuple[str, ...] = ()

    def describe(self) -> str:
        """`name: reason`; only one of them where they are the same or one is missing."""
        return ": ".join(dict.fromkeys(filter(None, (self.name, self.reason)))) or "not reviewed"


def gaps_of(review: Review) -> tuple[Gap, ...]:
    """Everything that makes the review incomplete, claims for a person first; an incomplete one has at least one."""
    coverage = review.coverage
    known = (
        *(Gap(CLAIM, one.file or "?", describe_claim(one), (one.file,) * bool(one.file)) for one in review.unsettled),
        *(Gap(UNIT, failed.unit, failed.reason, failed.files) for failed in coverage.units_failed),
        *(Gap(FILE, skip.file, skip.describe(), (skip.file,)) for skip in coverage.skipped if skip.is_gap),
    )
    unnamed = () if review.complete else (Gap(UNKNOWN, "the review", "not everything could be reviewed"),)
    return known or unnamed


def errors_beside_gaps(review: Review) -> tuple[ReviewError, ...]:
    """What else went wrong: errors that no gap tells already. One that does ends with the gap's reason."""
    known = tuple({reason for gap in gaps_of(review) for reason in (gap.reason, gap.describe()) if reason})
    return tuple(error for error in review.errors if not error.message.endswith(known))


def gaps_without_claims(review: Review) -> list[Gap]:
    """The gaps without the claims, for formats that tell of each claim among the findings."""
    return [gap for gap in gaps_of(review) if gap.kind != CLAIM]
