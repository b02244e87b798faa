"""The HTML report: one file that needs nothing else, shows every finding in its code, and runs only our own script.

The page forbids itself everything that is not in it: a policy in its head names its style and its script by
their hashes. Without script it is whole and readable; the script filters, and listens to the keyboard.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from codeloupe import __version__
from codeloupe.model.finding import Finding, Proof, Severity
from codeloupe.model.review import Review
from codeloupe.reports import ShownDiff, asset, wording
from codeloupe.reports.html_code import Excerpts, highlighted
from codeloupe.reports.markup import Markup, fill, inline, joined, prose
from codeloupe.reports.replacement import fenced, fix_of
from codeloupe.reports.wording import Standing
from codeloupe.system.untrusted import is_masked

_LONGEST_TITLE = 600
_MOST_FINDINGS = 2_000
_MOST_UNFOLDED = 50
_MOST_ITEMS = 2_000
_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 24 24' fill='none' stroke='%236366f1' "
    "stroke-width='2.5' stroke-linecap='round'%3E%3Cpath d='M10 3a7 7 0 1 0 0 14a7 7 0 1 0 0-14M15.5 15.5L21 21'/%3E"
    "%3C/svg%3E"
)


def render_html(review: Review, *, diff: ShownDiff | None = None) -> str:
    """The review as a page. With `diff`, findings are shown among the lines of the change around them.

    A file in which something was masked is shown by its quotes alone, since other lines may hold the same secret.
    """
    # As many as a browser shows at ease, those that count before the others, the worst first.
    ordered = [finding for findings in wording.by_standing(review.findings).values() for finding in findings]
    shown = replace(review, findings=tuple(ordered[:_MOST_FINDINGS]))
    if diff is not None:
        every = (*ordered, *review.hidden, *review.omitted)
        masked = {f.file for f in every if is_masked(f"{f.evidence} {f.title} {f.body}")}
        diff = ShownDiff({path: change for path, change in diff.files.items() if path not in masked}, diff.mask)
    style, script = asset("report.css"), asset("report.js")
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    )
    outcome, scope = wording.outcome_of(review), review.scope
    shas = [sha for sha in (scope.base, scope.head) if sha]
    counting = [finding for finding in ordered[:_MOST_FINDINGS] if finding.is_open]
    page = fill(
        "page",
        policy=policy,
        title=f"{outcome.word}: {scope.description[:200]} | codeloupe",
        icon=_ICON,
        hidden="" if shown.findings else " hidden",
        shown=f"{len(counting)} of {len(counting)}",
        groups=_filters(shown.findings, counting),
        tone=outcome.tone.value,
        word=outcome.word,
        why=f"{outcome.why[:1].upper()}{outcome.why[1:]}.",
        scope=scope.description,
        # Many descriptions name them already.
        ends="" if all(sha[:7] in scope.description for sha in shas) else " → ".join(sha[:10] for sha in shas),
        reviewer=wording.reviewer_text(review.reviewer),
        numbers=_numbers(shown),
        counts=wording.counts_text(shown),
        gaps=_gaps(review),
        left_out=f"{len(ordered) - _MOST_FINDINGS:,}" if len(ordered) > _MOST_FINDINGS else "",
        folded="folded" if len(shown.findings) > _MOST_UNFOLDED else "",
        sections=_sections(shown.findings, diff),
        remarks=_remarks(review),
        version=__version__,
        review=review.review_id,
        style=Markup(style),
        script=Markup(script),
    )
    return f"<!doctype html>\n{page}\n"


def _digest(content: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode('utf-8')).digest()).decode('ascii')}"


def _sections(found: Sequence[Finding], diff: ShownDiff | None) -> list[dict[str, str]]:
    """The findings of each file, the worst first, then those of each kind that is listed apart, with a word on why."""
    groups = wording.by_standing(found)
    by_file = wording.by_file(groups[Standing.OPEN])
    parts: list[tuple[Markup, Sequence[Finding]]] = []
    if groups[Standing.PENDING]:
        note = "The review cannot pass before a person has decided about these."
        parts.append((fill("kind", title="Needs a person", note=note), groups[Standing.PENDING]))
    for path, findings in by_file.items():
        folder, slash, name = path.rpartition("/")
        counts = Counter(finding.severity for finding in findings)
        dots = [{"step": step.label, "count": counts[step]} for step in Severity if counts[step]]
        heading = fill("file", folder=f"{folder}{slash}", name=name or "?", dots=dots)
        parts.append((heading, wording.worst_first(findings)))
    for title, note, standing in (
        ("Unproven", "A verification could neither confirm nor refute them; not counted.", Standing.UNPROVEN),
        ("Refuted", "Shown to be wrong; not counted.", Standing.REFUTED),
        ("Set aside", "Suppressed, dismissed, fixed, silenced or gone; not counted.", Standing.SET_ASIDE),
    ):
        if groups[standing]:
            parts.append((fill("kind", title=title, note=note), groups[standing]))
    excerpts = Excerpts(diff)
    names = Counter[str]()
    return [
        {
            "kind": "file" if wording.standing_of(findings[0]) is Standing.OPEN else "file apart",
            "heading": heading,
            "cards": joined(_card(finding, excerpts, names) for finding in findings),
            "folded" if len(found) > _MOST_UNFOLDED else "flat": "yes",
        }
        for heading, findings in parts
    ]


def _expert_of(finding: Finding) -> str:
    return finding.expert or finding.reviewer or "?"


def _card(finding: Finding, excerpts: Excerpts, names: Counter[str]) -> Markup:
    # A name that stays as long as the finding does; those that would share one are numbered.
    identity = finding.fingerprint or f"{finding.file}\0{finding.first_line}\0{finding.title}"
    name = "f-" + hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    names[name] += 1
    is_open = finding.is_open
    severity = finding.severity
    title = finding.title if len(finding.title) <= _LONGEST_TITLE else f"{finding.title[:_LONGEST_TITLE]}…"
    has_more = finding.anchored and finding.last_line > finding.first_line > 0
    is_sure = finding.main_claim.proof is Proof.CONFIRMED
    fix = fix_of(finding)
    words, new = prose(fenced(fix.words)), Markup()
    if fix.code.strip():
        rows = (row.split("\t") for row in fix.code[:20_000].split("\n"))
        new = joined((joined((highlighted(part, path=finding.file) for part in row), "\t") for row in rows), "\n")
    return fill(
        "card",
        severity=severity.label,
        priority=severity.priority,
        closed="" if is_open else " closed",
        name=name if names[name] == 1 else f"{name}-{names[name]}",
        file=finding.file or "?",
        expert=_expert_of(finding),
        standing=wording.standing_of(finding).value,
        title=inline(" ".join(title.split()) or wording.check_name(finding)),
        place=wording.place_text(finding),
        last=finding.last_line if has_more else "",
        aside=inline(wording.why_not_counted(finding)),
        person=wording.why_pending(finding),
        body=prose(finding.body),
        fix=words or new,
        words=words,
        new=new,
        proof=prose(wording.proof_text(finding)) if is_open else "",
        sure=" sure" if is_sure else "",
        verified="Verified" if is_sure else "Verification",
        claims="yes" if len(finding.claims) > 1 else "",
        further=[{"claim": claim[:_LONGEST_TITLE]} for claim in wording.further_claims(finding)],
        tags=[{"tag": tag[:200]} for tag in wording.origin_of(finding)],
        **excerpts.code_of(finding),
    )


def _filters(findings: Sequence[Finding], counting: Sequence[Finding]) -> list[dict[str, Any]]:
    severities = Counter(finding.severity for finding in counting)
    experts = sorted(Counter(map(_expert_of, counting)).items(), key=lambda one: (-one[1], one[0]))
    standings = Counter(map(wording.standing_of, findings))

    def choice(kind: str, value: str, count: int, label: str = "", *, dot: str = "count", title: str = "") -> Any:
        return {"kind": kind, "value": value, "count": count, "dot": dot, "label": label, "title": title}

    groups = {
        "Severity": [choice("severity", s.label, severities[s], f" {s.label}") for s in Severity if severities[s]],
        "Expert": [choice("expert", *one) for one in experts],
        "Status": [choice("standing", s.value, standings[s]) for s in Standing if standings[s]],
        "File": [
            choice("file", path, len(found), dot=f"dot {wording.worst_first(found)[0].severity.label}", title=path)
            for path, found in sorted(wording.by_file(counting).items())
        ],
    }
    # One status alone leaves nothing to choose.
    shown = [(title, choices) for title, choices in groups.items() if len(choices) > (title == "Status")]
    return [{"title": title, "choices": choices} for title, choices in shown]


def _numbers(review: Review) -> list[dict[str, Any]]:
    counts = Counter(finding.severity for finding in review.findings if finding.can_block)
    # The filters choose among these too.
    pending = Counter(finding.severity for finding in review.findings if finding.is_open and not finding.counts)
    coverage, failed = review.coverage, len(review.coverage.units_failed)
    total = max(coverage.files_total, 1)
    read = {
        "name": "reviewed",
        "value": f"{coverage.files_reviewed:,} of {wording.counted(coverage.files_total, 'file')}",
        "done": coverage.files_reviewed if coverage.files_total else total,
        "total": total,
        "failed": f"{wording.counted(failed, 'unit')} failed" if failed else "",
        "kind": f"wide{'' if review.complete else ' gap'}",
    }
    took, spent = wording.duration(review.usage.duration_seconds), wording.spent_text(review.usage)
    found = [
        {
            "name": step.label,
            "value": f"{counts[step]:,}",
            "note": wording.counted(pending[step], "needs a person", "need a person") if pending[step] else "",
            "kind": step.label if counts[step] or pending[step] else f"{step.label} none",
        }
        for step in Severity
    ]
    return [*found, read, {"name": "took", "value": took, "note": spent, "kind": "wide"}]


def _gaps(review: Review) -> list[dict[str, Any]]:
    """What an incomplete review could not look at; before everything else, since no finding says as much."""
    items = []
    for gap in wording.gaps_of(review):
        others = [file for file in gap.files if file != gap.name and not gap.name.startswith(file)]
        named = ", ".join(others[:12]) + (f" and {len(others) - 12:,} more" if len(others) > 12 else "")
        items.append({"name": gap.name or "?", "why": gap.reason or "not reviewed", "files": named})
    return [{"items": items[:8], "rest": _folded(f"{len(items) - 8:,} more", items[8:])}] if items else []


def _remarks(review: Review) -> Markup:
    problems = [{"why": problem} for problem in wording.problems_of(review)]
    notes = [{"why": note} for note in wording.notes_of(review)]
    left_out = [{"name": skip.file, "why": skip.describe()} for skip in review.left_out]
    failovers = [
        {"name": failover.name, "why": failover.why, "files": failover.listed}
        for failover in wording.failovers_of(review)
    ]
    parts = [
        _folded(wording.counted(len(problems), "problem"), problems, is_open=True),
        _folded(wording.counted(len(notes), "note"), notes, is_open=True),
        _folded("Failover", failovers, is_open=True),
        _folded(f"{wording.counted(len(left_out), 'file')} skipped on purpose", left_out),
    ]
    return joined(parts)


def _folded(title: str, items: Sequence[dict[str, str]], *, is_open: bool = False) -> Markup:
    rest = f"{len(items) - _MOST_ITEMS:,}" if len(items) > _MOST_ITEMS else ""
    shown = list(items[:_MOST_ITEMS])
    return fill("folded", title=title, items=shown, more=rest, open="open" if is_open else "") if items else Markup()
