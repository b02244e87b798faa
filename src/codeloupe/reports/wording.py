"""Phrases that every report and the progress display say in the same way."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.json import decode

from codeloupe.model.agent import AGENTS, Usage
from codeloupe.model.finding import Claim, Finding, FindingStatus, Severity, Suppression, SuppressionKind
from codeloupe.model.review import (
    FAILOVER,
    NOT_INCLUDED,
    FailedUnit,
    Level,
    Review,
    ReviewerInfo,
    ReviewError,
    SkippedFile,
    SkipReason,
    UnitRecord,
    Verdict,
    describe_pending,
    pending_reason,
)
from codeloupe.system.untrusted import plain_line

NOTHING = "Nothing to review"
NOT_FOUND = "its code was not found"
SEVERITY_STYLES = dict(zip(Severity, ("bold red", "bold red", "bold yellow", "bold bright_blue"), strict=True))
_REVIEWER_NAMES = {
    "offline": "Offline review",
    **{name: f"{facts.label} review" for name, facts in AGENTS.items()},
    "cerberus": "Cerberus review",
    "command": "Review by a command",
}
_SUPPRESSED_BY = {
    SuppressionKind.BASELINE: "suppressed by the baseline",
    SuppressionKind.INLINE: "suppressed by a comment in the code",
    SuppressionKind.DISMISSAL: "dismissed",
}
# A new finding needs no word: every finding of a first review is new.
_STATUS_WORDS = {
    FindingStatus.NEW: "",
    FindingStatus.OPEN: "still open from an earlier review",
    FindingStatus.REGRESSED: "back after it was fixed, silenced or gone",
    FindingStatus.FIXED: "fixed",
    FindingStatus.SILENCED: "silenced by a comment in the code",
    FindingStatus.GONE: "gone: its file is no longer reviewed",
    FindingStatus.REFUTED: "refuted",
    FindingStatus.UNPROVEN: "unproven",
    FindingStatus.DISMISSED: "dismissed",
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


def quota_text(resets_at: datetime | None, *, waiting: bool) -> str:
    """`waiting for quota until 17:42`, in local time, with the day if it is not today."""
    if resets_at is None:
        until = ""
    else:
        local = resets_at.astimezone()
        is_today = local.date() == datetime.now(local.tzinfo).date()
        until = f" until {local:%H:%M}" if is_today else f" until {local:%Y-%m-%d %H:%M}"
    if waiting:
        return f"waiting for quota{until}"
    return f"its quota is used up{until}"


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
    blocking = sum(map(review.policy.blocks, review.findings))
    threshold = f"at or above fail_on={review.policy.fail_on.label}"
    word = "FAIL" if review.verdict is Verdict.FAIL else "NEEDS WORK"
    if blocking:
        missing = "" if review.complete else "; and not everything could be reviewed"
        return Outcome(word, Tone.BAD, f"{counted(blocking, 'finding')} {threshold}{missing}")
    if not review.complete:
        return Outcome("INCOMPLETE", Tone.CAUTION, _why_incomplete(review))
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


def _why_incomplete(review: Review) -> str:
    reasons: list[str] = []
    if review.pending:
        reasons.append(f"{counted(len(review.pending), 'finding needs', 'findings need')} a person to decide")
    if review.omitted_blockers:
        fail_on = review.policy.fail_on.label
        reasons.append(f"{counted(len(review.omitted_blockers), 'open finding')} at or above fail_on={fail_on} omitted")
    if not reasons or not review.coverage.complete:
        reasons.append("could not review everything")
        if not review.omitted_blockers:
            reasons.append("nothing blocking found")
    if review.passed:
        reasons.append("accepted, because on_incomplete is pass")
    return "; ".join(reasons)


def _why_nothing(review: Review) -> str:
    skipped = review.coverage.skipped
    if not skipped:
        return "no changes"
    files = counted(len(skipped), "file")
    if all(skip.reason is SkipReason.EXCLUDED for skip in skipped):
        patterns = sorted({skip.detail for skip in skipped} - {NOT_INCLUDED})
        if not patterns:
            return f"no include pattern or path matches a changed file ({files} changed)"
        return f"the exclude patterns skip every changed file ({files}, {', '.join(patterns[:3])})"
    kinds = Counter(skip.reason.value for skip in skipped).most_common()
    return f"every changed file is skipped ({', '.join(f'{count:,} {kind}' for kind, count in kinds)})"


class Standing(StrEnum):
    """The group in which a report lists a finding. Only those of the first two are open."""

    PENDING = "needs a person"
    OPEN = "open"
    UNPROVEN = "unproven"
    REFUTED = "refuted"
    SET_ASIDE = "set aside"


def standing_of(finding: Finding) -> Standing:
    """Return the group of a finding; a pending one may count as well."""
    if finding.is_open:
        return Standing.PENDING if finding.is_pending else Standing.OPEN
    if finding.suppression is None and finding.status is FindingStatus.UNPROVEN:
        return Standing.UNPROVEN
    if finding.suppression is None and finding.status is FindingStatus.REFUTED:
        return Standing.REFUTED
    return Standing.SET_ASIDE


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """By severity, then by place."""
    return sorted(findings, key=lambda f: (f.severity.priority, f.file, f.first_line, f.last_line, f.title))


def standing_so(findings: Iterable[Finding], standing: Standing) -> list[Finding]:
    """Those of one standing, the worst first, then by place."""
    return worst_first(finding for finding in findings if standing_of(finding) is standing)


def by_standing(findings: Sequence[Finding]) -> dict[Standing, list[Finding]]:
    """Return the findings of each group, the worst first."""
    return {standing: standing_so(findings, standing) for standing in Standing}


def by_file(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    """By their files, those with the worst findings first; `?` for findings without a file."""
    files: dict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        files[finding.file or "?"].append(finding)
    return dict(sorted(files.items(), key=lambda item: (min(one.severity.priority for one in item[1]), item[0])))


def short_id(finding: Finding) -> str:
    """So much of the fingerprint that `history dismiss` and `baseline add` know the finding; empty without one."""
    return plain_line(finding.fingerprint[:8], longest=8)


def place_text(finding: Finding | Claim) -> str:
    """`a.py:12`; only the path where no line is known, and `?` where not even that is."""
    path = finding.file or "?"
    return f"{path}:{finding.line_start}" if finding.first_line > 0 else path


def why_pending(finding: Finding) -> str:
    """Explain why a finding needs a person; empty if it does not."""
    return pending_reason(finding) if standing_of(finding) is Standing.PENDING else ""


def why_not_counted(finding: Finding) -> str:
    """Explain why a finding does not count; empty if it counts, or needs a person."""
    if finding.is_open:
        return ""
    if finding.suppression is not None:
        return _suppression_text(finding.suppression)
    if finding.status in (FindingStatus.REFUTED, FindingStatus.UNPROVEN):
        return _clean_proof(finding.verification) or _STATUS_WORDS[finding.status]
    return status_text(finding)


def why_set_aside(finding: Finding) -> str:
    """Name what closed a finding, without the owner and the end of a suppression."""
    if finding.suppression is None:
        return status_text(finding)
    return _suppressed(finding.suppression)


def status_text(finding: Finding) -> str:
    """Return the status in words; empty for a new finding. A silenced one names the comment."""
    words = _STATUS_WORDS[finding.status]
    if finding.status is not FindingStatus.SILENCED:
        return words
    comments = dict.fromkeys(claim.silenced_by for claim in finding.claims if claim.silenced_by)
    return f"{words}: {', '.join(comments)}" if comments else words


def _suppressed(by: Suppression) -> str:
    return f"{_SUPPRESSED_BY[by.kind]}: {by.reason}".rstrip(": ")


def _suppression_text(by: Suppression) -> str:
    owner = f", {by.owner}" if by.owner else ""
    until = f", until {by.expires.isoformat()}" if by.expires else ""
    return f"{_suppressed(by)}{owner}{until}"


def _clean_proof(verification: str) -> str:
    return verification.strip(": \n")


def proof_text(finding: Finding) -> str:
    """Return the proof of the main claim in words; empty if it has none."""
    return _clean_proof(finding.main_claim.verification)


def further_claims(finding: Finding) -> list[str]:
    """Describe each claim after the main one in one line."""
    return [claim_text(claim) for claim in finding.claims[1:]]


def claim_text(claim: Claim) -> str:
    """`high by codex, confirmed: it is reached`: severity, reporter, proof, and how the claim ended."""
    parts = [f"{claim.severity.label} by {claim.reporter}"]
    proof = " ".join(_clean_proof(claim.verification).split())
    if proof:
        parts.append(proof)
    if claim.end is not None:
        ended = claim.end.value
        parts.append(f"{ended} by {claim.silenced_by}" if claim.silenced_by else ended)
    if not claim.anchored:
        parts.append(NOT_FOUND)
    return ", ".join(parts)


def counts_text(review: Review) -> str:
    """`1 high, 2 low; 1 refuted; 3 hidden below min_severity=medium`: everything found, nothing left unsaid."""
    counts = Counter(standing_of(finding) for finding in review.findings)
    steps = Counter(finding.severity for finding in review.findings if finding.can_block)
    parts = [", ".join(f"{steps[step]:,} {step.label}" for step in Severity if steps[step]) or "none"]
    if counts[Standing.PENDING]:
        parts.append(counted(counts[Standing.PENDING], "needs a person", "need a person"))
    closed = (Standing.UNPROVEN, Standing.REFUTED, Standing.SET_ASIDE)
    parts += [f"{counts[standing]:,} {standing.value}" for standing in closed if counts[standing]]
    if review.hidden_findings:
        parts.append(f"{review.hidden_findings:,} hidden below min_severity={review.policy.min_severity.label}")
    omitted = sum(finding.is_open for finding in review.omitted)
    if omitted:
        parts.append(f"{omitted:,} omitted by --since-last")
    return "; ".join(parts)


def origin_of(finding: Finding, *, with_id: bool = True) -> list[str]:
    """Where a finding comes from and what else is known of it, each in a few words, none twice."""
    who = finding.reviewer
    if finding.agreement > 1:
        # This names the reviewer too.
        rest = finding.agreement - 4
        more = f" and {rest:,} more" if rest > 0 else ""
        who = f"seen by {', '.join(finding.seen_by[:4])}{more}"
    parts = [
        finding.category,
        finding.rule or "",
        who,
        finding.expert or "",
        "outside the change" if finding.outside_change else "",
        "" if finding.anchored else NOT_FOUND,
        status_text(finding) if finding.is_open else "",
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


CLAIM = "pending-claim"
OMITTED = "omitted-finding"
UNIT = "unit-failed"
FILE = "file-not-reviewed"
UNKNOWN = "incomplete"


class Gap(Struct, frozen=True):
    """One thing that should have been reviewed and was not; `files` are those it concerns, as far as is known.

    `kind` is what is missing: the proof of a claim, an omitted finding, a piece of work, a file, or something unnamed.
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
    gaps: list[Gap] = []
    for finding in review.pending:
        files = (finding.file,) if finding.file else ()
        gaps.append(Gap(CLAIM, finding.file or "?", describe_pending(finding), files))
    for finding in review.omitted_blockers:
        why = f"--since-last omits an open finding: {' '.join(finding.title.split())}"
        gaps.append(Gap(OMITTED, finding.file or "?", why, (finding.file,) if finding.file else ()))
    gaps += [Gap(UNIT, failed.unit, failed.reason, failed.files) for failed in coverage.units_failed]
    gaps += [Gap(FILE, skip.file, skip.describe(), (skip.file,)) for skip in coverage.skipped if skip.is_gap]
    if not gaps and not review.complete:
        gaps.append(Gap(UNKNOWN, "the review", "not everything could be reviewed"))
    return tuple(gaps)


def problems_of(review: Review) -> list[str]:
    """Return the problems that neither a gap nor a failover describes, as sentences."""
    return [sentence(error.message) for error in _errors_beside_gaps(review) if error.level is Level.PROBLEM]


def notes_of(review: Review) -> list[str]:
    """Return the notes for the reader of the verdict, as sentences."""
    return [sentence(error.message) for error in _errors_beside_gaps(review) if error.level is Level.NOTE]


def sentence(words: str) -> str:
    """Return words with a capital letter at their start, unless that is a path or code, and with a full stop."""
    text = words.strip()
    first = text.split(" ", 1)[0]
    if first.isalpha():
        text = text[:1].upper() + text[1:]
    if text.endswith((".", "!", "?", "…")):
        return text
    return f"{text}."


def _errors_beside_gaps(review: Review) -> tuple[ReviewError, ...]:
    """Return the errors that neither a gap nor a failover describes; such an error ends with the gap's reason."""
    known = tuple({reason for gap in gaps_of(review) for reason in (gap.reason, gap.describe()) if reason})
    has_failovers = bool(failovers_of(review))
    return tuple(
        error
        for error in review.errors
        if not error.message.endswith(known) and not (has_failovers and error.kind == FAILOVER)
    )


class Failover(Struct, frozen=True):
    """Units that their first agent did not answer, with the same answer and for the same reasons."""

    units: tuple[str, ...]
    why: str

    @property
    def name(self) -> str:
        """The unit, or how many units they are."""
        return self.units[0] if len(self.units) == 1 else counted(len(self.units), "unit")

    @property
    def listed(self) -> str:
        """The first of several units by name; empty for a single one, which `name` gives."""
        if len(self.units) == 1:
            return ""
        more = f" and {len(self.units) - 12:,} more" if len(self.units) > 12 else ""
        return ", ".join(self.units[:12]) + more


def failovers_of(review: Review) -> list[Failover]:
    """Return who answered each unit that its first agent did not answer, and why others did not.

    A unit that was given to one agent only, without an answer, is a gap.
    """
    units: dict[str, list[str]] = defaultdict(list)
    for record in review.coverage.units:
        if record.unanswered and (record.answered_by or len(record.unanswered) > 1):
            units[failover_text(record)].append(record.unit)
    return [Failover(tuple(names), why) for why, names in units.items()]


def failover_text(record: UnitRecord) -> str:
    """`answered by codex with gpt-5; not answered by agent_sdk: timeout`."""
    who = record.answered_by or "no agent"
    model = f" with {record.model}" if record.answered_by and record.model else ""
    others = "; ".join(f"not answered by {one.agent}: {one.reason}" for one in record.unanswered)
    return f"answered by {who}{model}; {others}"


def gaps_without_claims(review: Review) -> list[Gap]:
    """The gaps without the claims, for formats that tell of each claim among the findings."""
    return [gap for gap in gaps_of(review) if gap.kind != CLAIM]
