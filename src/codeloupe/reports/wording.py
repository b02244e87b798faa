"""Phrases that every report and the progress display say in the same way."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

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
    claim_in_words,
)
from codeloupe.system.untrusted import plain_line

# Every agent call loads this module for its durations, and needs none of these.

_MINUTE_SECONDS = 60
_OFFLINE_PROMISE = "lint, security and hygiene; not an AI review"
_REVIEWER_NAMES = {
    "offline": "Offline review",
    **{name: f"{facts.label} review" for name, facts in AGENTS.items()},
    "cerberus": "Cerberus review",
    "command": "Review by a command",
}


def counted(count: int, one: str, many: str) -> str:
    """`1 file`, `1,200 files`."""
    return f"{count:,} {one if count == 1 else many}"


def duration(seconds: float) -> str:
    """`0.4 s`, `2 min 5 s`."""
    if seconds < _MINUTE_SECONDS:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), _MINUTE_SECONDS)
    return f"{minutes:,} min {rest} s"


def reviewer_in_words(reviewer: ReviewerInfo) -> str:
    """Which reviewer and why, as one sentence; the offline one never passes for an AI review."""
    model = f" with {reviewer.model}" if reviewer.model else ""
    why = f": {reviewer.why}" if reviewer.why else ""
    promise = f" ({_OFFLINE_PROMISE})" if reviewer.type == "offline" and "not an AI review" not in reviewer.why else ""
    return f"{_reviewer_name(reviewer.type)}{model}{why}{promise}"


def _reviewer_name(kind: str) -> str:
    """`agent_sdk`, or several together: `agent_sdk+codex`."""
    names = [name for name in kind.split("+") if name]
    if len(names) > 1:
        return f"Review by {', '.join(names[:-1])} and {names[-1]}"
    return _REVIEWER_NAMES.get(kind, f"Review by {kind}")


def place_in_words(finding: Finding) -> str:
    """`a.py:12`; only the path where no line is known, and `?` where not even that is."""
    path = finding.file or "?"
    return f"{path}:{finding.line_start}" if finding.first_line > 0 else path


def dollars(amount: float) -> str:
    """`$1.20`; a small amount with as many digits as it needs, so that it does not look like nothing."""
    return f"${amount:.2f}" if amount >= 0.01 or not amount else f"${amount:.4f}"


def spent_in_words(usage: Usage) -> str:
    """Calls, tokens and cost: `9 calls (2 more from the ledger), 41,234 tokens, $0.31`; empty when there were none."""
    if not usage.requests and not usage.cached:
        return ""
    calls = counted(usage.requests, "call", "calls")
    ledger = f" ({usage.cached:,} more from the ledger)" if usage.cached else ""
    if not usage.requests:
        return f"no new calls, {counted(usage.cached, 'answer', 'answers')} from the ledger"
    tokens = f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out"
    return f"{calls}{ledger}, {tokens}, {_cost(usage)}"


def _cost(usage: Usage) -> str:
    if not usage.unknown_costs:
        return dollars(usage.cost_usd)
    if usage.unknown_costs >= usage.requests and not usage.cost_usd:
        return "cost unknown"
    return f"{dollars(usage.cost_usd)} and the unknown cost of {counted(usage.unknown_costs, 'call', 'calls')}"


_NOUNS = {
    SkipReason.MEDIA: ("media file", "media files"),
    SkipReason.FONT: ("font", "fonts"),
    SkipReason.ARCHIVE: ("archive", "archives"),
    SkipReason.PROGRAM: ("compiled program", "compiled programs"),
    SkipReason.BINARY: ("unknown binary file", "unknown binary files"),
    SkipReason.LFS_POINTER: ("LFS pointer", "LFS pointers"),
    SkipReason.NOT_SHOWN: ("file that the diff does not show", "files that the diff does not show"),
    SkipReason.GENERATED: ("generated file", "generated files"),
    SkipReason.VENDORED: ("vendored file", "vendored files"),
    SkipReason.MINIFIED: ("minified file", "minified files"),
    SkipReason.LOCK_FILE: ("lock file", "lock files"),
    SkipReason.EXCLUDED: ("excluded file", "excluded files"),
    SkipReason.SUBMODULE: ("submodule", "submodules"),
    SkipReason.TOO_LARGE: ("file too large", "files too large"),
    SkipReason.UNREADABLE: ("unreadable file", "unreadable files"),
    SkipReason.NOTHING_TO_READ: ("file without changed lines", "files without changed lines"),
}


def skipped_in_words(skipped: Iterable[SkippedFile]) -> str:
    """`2 lock files, 1 binary file`: the most common reason first."""
    return ", ".join(counted(count, *_NOUNS[reason]) for reason, count in _by_reason(skipped))


def _by_reason(skipped: Iterable[SkippedFile]) -> list[tuple[SkipReason, int]]:
    counts = Counter(skip.reason for skip in skipped)
    return sorted(counts.items(), key=lambda item: (-item[1], item[0].value))


def is_piece(failed: FailedUnit) -> bool:
    """Whether a unit is a piece of the change, named after its file, and not a lane such as an analyser."""
    return bool(failed.files) and failed.unit.startswith(failed.files[0])


NOTHING = "Nothing to review"
_PATTERNS_NAMED = 3


class Tone(StrEnum):
    """How a verdict is to be felt: green, yellow or red."""

    GOOD = "good"
    CAUTION = "caution"
    BAD = "bad"


class Outcome(Struct, frozen=True):
    """The word a person remembers, its tone, and the sentence behind it."""

    word: str
    tone: Tone
    why: str


def outcome_of(review: Review) -> Outcome:
    """What to tell: a review with gaps is never a pass, and what does not block is not told as blocking."""
    blocking = sum(blocks(review, finding) for finding in review.findings)
    threshold = f"at or above fail_on={review.policy.fail_on.label}"
    if blocking:
        why = f"{counted(blocking, 'finding', 'findings')} {threshold}"
        return Outcome(
            _word(review), Tone.BAD, why if review.complete else f"{why}; and not everything could be reviewed"
        )
    if review.exit_code == 1:
        hidden = f"findings {threshold} are hidden by min_severity={review.policy.min_severity.label}"
        return Outcome(_word(review), Tone.BAD, hidden)
    if not review.complete:
        accepted = "; accepted, since on_incomplete is pass" if review.policy.pass_when_incomplete else ""
        return Outcome("INCOMPLETE", Tone.CAUTION, f"{_why_incomplete(review, threshold)}{accepted}")
    if review.verdict is not Verdict.PASS:
        why = f"findings to look at, none {threshold}, so nothing is blocked"
        return Outcome(_word(review), Tone.CAUTION, why)
    if review.nothing_to_review:
        return Outcome(NOTHING, Tone.GOOD if not review.coverage.files_total else Tone.CAUTION, _why_nothing(review))
    return Outcome("PASS", Tone.GOOD, _why_passed(review))


def _why_incomplete(review: Review, threshold: str) -> str:
    missing = "could not review everything; nothing blocking found"
    claims = len(review.unsettled)
    if not claims:
        return missing
    told = f"{counted(claims, 'claim', 'claims')} {threshold} could be neither placed in the code nor refuted"
    return told if review.coverage.complete else f"{told}; {missing}"


def blocks(review: Review, finding: Finding) -> bool:
    """Whether this finding is one that makes the review fail."""
    return finding.can_block and finding.severity.at_least(review.policy.fail_on)


def _word(review: Review) -> str:
    return "FAIL" if review.verdict is Verdict.FAIL else "NEEDS WORK"


def _why_nothing(review: Review) -> str:
    skipped = review.coverage.skipped
    if not skipped:
        return "no changes"
    files = counted(len(skipped), "file", "files")
    if all(skip.reason is SkipReason.EXCLUDED for skip in skipped):
        if all(skip.detail == NOT_INCLUDED for skip in skipped):
            return f"no include pattern or path matches a changed file ({files} changed)"
        patterns = sorted({skip.detail for skip in skipped} - {NOT_INCLUDED})
        return f"the exclude patterns leave out every changed file ({files}, {', '.join(patterns[:_PATTERNS_NAMED])})"
    counts = Counter(skip.reason.value for skip in skipped)
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in counts.most_common())
    return f"every changed file is left out ({kinds})"


def _why_passed(review: Review) -> str:
    if not review.coverage.files_reviewed:
        return "no line of any file was changed, so there was nothing to read"
    if review.findings:
        return "nothing found that counts against the change"
    if review.hidden_findings:
        return f"nothing found at or above min_severity={review.policy.min_severity.label}"
    return "nothing found"


_SUPPRESSED_BY = {SuppressionKind.BASELINE: "the baseline", SuppressionKind.INLINE: "a comment in the code"}
_LOOKS_NAMED = 4
_ID_DIGITS = 8


class Standing(StrEnum):
    """What a finding counts for."""

    OPEN = "open"
    UNPLACED = "without a place"
    REFUTED = "refuted"
    SET_ASIDE = "set aside"


def standing_of(finding: Finding) -> Standing:
    """Open ones count; those without a place never block; refuted, suppressed and closed ones count for nothing."""
    if finding.is_open:
        return Standing.OPEN if finding.anchored else Standing.UNPLACED
    refuted = finding.status is FindingStatus.REFUTED and finding.suppression is None
    return Standing.REFUTED if refuted else Standing.SET_ASIDE


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """By severity, then by place."""
    return sorted(findings, key=lambda f: (f.severity.priority, f.file, f.first_line, f.last_line, f.title))


def short_id(finding: Finding) -> str:
    """So much of the fingerprint that `history dismiss` and `baseline add` know the finding; empty without one."""
    return plain_line(finding.fingerprint[:_ID_DIGITS], longest=_ID_DIGITS)


def standing_so(findings: Iterable[Finding], standing: Standing) -> list[Finding]:
    """Those that stand so, the worst first, then by place."""
    return worst_first(finding for finding in findings if standing_of(finding) is standing)


def why_not_counted(finding: Finding) -> str:
    """Why a finding counts for nothing, in words; empty for one that counts."""
    match standing_of(finding):
        case Standing.OPEN | Standing.UNPLACED:
            return ""
        case Standing.REFUTED:
            return finding.verification.strip(": \n") or "refuted"
        case Standing.SET_ASIDE:
            return _why_set_aside(finding)


def _why_set_aside(finding: Finding) -> str:
    suppression = finding.suppression
    if suppression is None:
        return finding.status.value
    words = f"suppressed by {_SUPPRESSED_BY[suppression.kind]}: {suppression.reason}".rstrip(": ")
    owner = f", {suppression.owner}" if suppression.owner else ""
    until = f", until {suppression.expires.isoformat()}" if suppression.expires else ""
    return f"{words}{owner}{until}"


def counts_in_words(review: Review) -> str:
    """`1 high, 2 low; 1 refuted; 3 hidden below min_severity=medium`: everything found, nothing left unsaid."""
    counts = Counter(standing_of(finding) for finding in review.findings)
    steps = Counter(f.severity for f in review.findings if standing_of(f) is Standing.OPEN)
    open_ones = ", ".join(f"{steps[step]:,} {step.label}" for step in Severity if steps[step])
    others = [f"{counts[s]:,} {s.value}" for s in Standing if s is not Standing.OPEN and counts[s]]
    hidden = f"{review.hidden_findings:,} hidden below min_severity={review.policy.min_severity.label}"
    return "; ".join([open_ones or "none", *others, *([hidden] if review.hidden_findings else [])])


def origin_of(finding: Finding) -> list[str]:
    """Where a finding comes from and what else is known of it, each in a few words, none twice."""
    seen = _seen_by(finding)
    parts = [
        finding.category,
        finding.rule or "",
        # Who saw it names the reviewer too.
        "" if seen and finding.seen_by else finding.reviewer,
        finding.expert or "",
        seen,
        "outside the change" if finding.outside_change else "",
        _HISTORY.get(finding.status, ""),
        _confidence(finding.confidence),
        f"commit {finding.commit_sha[:10]}" if finding.commit_sha else "",
        f"id {short_id(finding)}" if finding.fingerprint else "",
    ]
    return list(dict.fromkeys(part for part in parts if part))


_HISTORY = {
    FindingStatus.OPEN: "still open from an earlier review",
    FindingStatus.REGRESSED: "back after it was fixed",
}


def _confidence(confidence: float | None) -> str:
    return f"confidence {confidence:.0%}" if confidence is not None and math.isfinite(confidence) else ""


def _seen_by(finding: Finding) -> str:
    if finding.agreement <= 1:
        return ""
    if not finding.seen_by:
        return f"seen {counted(finding.agreement, 'time', 'times')}"
    rest = len(finding.seen_by) - _LOOKS_NAMED
    more = f" and {rest:,} more" if rest > 0 else ""
    return f"seen by {', '.join(finding.seen_by[:_LOOKS_NAMED])}{more}"


def check_name(finding: Finding) -> str:
    """The name of what was checked, for formats that want one: the rule, or else the category.

    Letters, digits and `._/-` alone, since a model may have chosen it; never empty.
    """
    name = (finding.rule or finding.category)[:_LONGEST_NAME]
    kept = "".join(character if _is_plain(character) else "-" for character in name)
    return kept.strip("-./") or "general"


_LONGEST_NAME = 80


def _is_plain(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character in "._/-")


class GapKind(StrEnum):
    """What is missing: the place of a grave claim, a piece of work, a file, or something that nobody named."""

    CLAIM = "unplaced-claim"
    UNIT = "unit-failed"
    FILE = "file-not-reviewed"
    UNKNOWN = "incomplete"


class Gap(Struct, frozen=True):
    """One thing that should have been reviewed and was not; `files` are those it concerns, as far as is known."""

    kind: GapKind
    name: str
    reason: str
    files: tuple[str, ...] = ()

    def in_words(self) -> str:
        """`name: reason`; only one of them where they are the same or one is missing."""
        return ": ".join(dict.fromkeys(part for part in (self.name, self.reason) if part)) or "not reviewed"


_UNNAMED = Gap(GapKind.UNKNOWN, "the review", "not everything could be reviewed")


def gaps_of(review: Review) -> tuple[Gap, ...]:
    """Everything that makes the review incomplete, claims for a person first; an incomplete one has at least one."""
    coverage = review.coverage
    claims = [
        Gap(GapKind.CLAIM, claim.file or "?", claim_in_words(claim), (claim.file,) if claim.file else ())
        for claim in review.unsettled
    ]
    units = [Gap(GapKind.UNIT, failed.unit, failed.reason, failed.files) for failed in coverage.units_failed]
    files = [Gap(GapKind.FILE, skip.file, skip.in_words(), (skip.file,)) for skip in coverage.skipped if skip.is_gap]
    known = (*claims, *units, *files)
    return known if known or review.complete else (_UNNAMED,)


def errors_beside_gaps(review: Review) -> tuple[ReviewError, ...]:
    """What else went wrong: errors that no gap tells already. One that does ends with the gap's reason."""
    told = tuple({reason for gap in gaps_of(review) for reason in (gap.reason, gap.in_words()) if reason})
    return tuple(error for error in review.errors if not error.message.endswith(told))
