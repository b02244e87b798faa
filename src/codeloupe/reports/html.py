"""The HTML report: one file that needs nothing else, shows every finding in its code, and runs only our own script.

The page forbids itself everything that is not in it: a policy in its head names its style and its script by
their hashes. Without script it is whole and readable; the script filters, and listens to the keyboard.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from codeloupe import __version__
from codeloupe.model.finding import Finding, Proof, Severity
from codeloupe.model.review import Review
from codeloupe.reports import ShownDiff, asset, wording
from codeloupe.reports.html_code import Excerpts, highlighted
from codeloupe.reports.markup import Html, fill, inline, joined, prose
from codeloupe.reports.replacement import fenced, fix_of
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
    ordered = [finding for standing in wording.Standing for finding in wording.standing_so(review.findings, standing)]
    shown = replace(review, findings=tuple(ordered[:_MOST_FINDINGS]))
    if diff is not None:
        masked = {f.file for f in (*ordered, *review.hidden) if is_masked(f"{f.evidence} {f.title} {f.body}")}
        diff = ShownDiff({path: change for path, change in diff.files.items() if path not in masked}, diff.mask)
    style, script = asset("report.css"), asset("report.js")
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    )
    counting = [finding for finding in shown.findings if wording.standing_of(finding) is wording.Standing.OPEN]
    page = fill(
        "page",
        policy=policy,
        title=f"{wording.outcome_of(review).word}: {review.scope.description[:200]} | codeloupe",
        icon=_ICON,
        hidden=Html("" if shown.findings else " hidden"),
        shown=f"{len(counting)} of {len(counting)}",
        filters=_filters(shown.findings, counting),
        report=_report(shown, diff, left_out=len(ordered) - len(shown.findings)),
        style=Html(style),
        script=Html(script),
    )
    return f"<!doctype html>\n{page.text}\n"


def _digest(content: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode('utf-8')).digest()).decode('ascii')}"


def _report(review: Review, diff: ShownDiff | None, *, left_out: int) -> Html:
    found = review.findings
    cards = _Cards(diff, folded=len(found) > _MOST_UNFOLDED)
    opened, unplaced, refuted, closed = (wording.standing_so(found, standing) for standing in wording.Standing)
    files = [
        *(cards.of_file(path, findings) for path, findings in wording.by_file(opened).items()),
        cards.of_kind("Without a place", "Their quotes are not in the code, so no line is known.", unplaced),
        cards.of_kind("Refuted", "Shown to be wrong; not counted.", refuted),
        cards.of_kind("Set aside", "Suppressed, dismissed or fixed; not counted.", closed),
    ]
    return fill(
        "report",
        verdict=_verdict(review),
        numbers=_numbers(review),
        counts=wording.counts_in_words(review),
        gaps=_gaps(review),
        left_out=f"{left_out:,}" if left_out else "",
        folded=len(found) > _MOST_UNFOLDED or None,
        files=joined(files),
        remarks=_remarks(review),
        version=__version__,
        review=review.review_id,
    )


class _Cards:
    """Makes the cards of one page, each with a name of its own, and puts them together."""

    def __init__(self, diff: ShownDiff | None, *, folded: bool) -> None:
        self._folded = folded
        self._excerpts = Excerpts(diff)
        self._names: Counter[str] = Counter()

    def of_file(self, path: str, findings: Sequence[Finding]) -> Html:
        """The findings of one file, the worst first, under its name, with a dot and a number for each severity."""
        folder, slash, name = path.rpartition("/")
        counts = Counter(finding.severity for finding in findings)
        dots = [fill("dot", step=step.label, count=counts[step]) for step in Severity if counts[step]]
        heading = fill("file", folder=f"{folder}{slash}", name=name or "?", dots=joined(dots))
        return self._section(heading, wording.worst_first(findings), kind="file")

    def of_kind(self, title: str, note: str, findings: Sequence[Finding]) -> Html | None:
        """Findings of a kind that is listed apart, with a word on why; None without any."""
        return self._section(fill("kind", title=title, note=note), findings, kind="file apart") if findings else None

    def _section(self, heading: Html, findings: Sequence[Finding], *, kind: str) -> Html:
        cards = joined(_card(finding, self._excerpts, name=self._name(finding)) for finding in findings)
        shape = {"folded" if self._folded else "flat": True}
        return fill("section", kind=kind, heading=heading, cards=cards, **shape)

    def _name(self, finding: Finding) -> str:
        """A name that stays as long as the finding does; those that would share one are numbered."""
        identity = finding.fingerprint or f"{finding.file}\0{finding.first_line}\0{finding.title}"
        name = "f-" + hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        self._names[name] += 1
        return name if self._names[name] == 1 else f"{name}-{self._names[name]}"


def _expert_of(finding: Finding) -> str:
    return finding.expert or finding.reviewer or "?"


def _card(finding: Finding, excerpts: Excerpts, *, name: str) -> Html:
    counts, severity, standing = finding.is_open, finding.severity, wording.standing_of(finding)
    title = finding.title if len(finding.title) <= _LONGEST_TITLE else f"{finding.title[:_LONGEST_TITLE]}…"
    has_more = finding.anchored and finding.last_line > finding.first_line > 0
    tags = [*wording.origin_of(finding), *(["without a place"] if standing is wording.Standing.UNPLACED else [])]
    is_sure = finding.verification.startswith(Proof.CONFIRMED)
    return fill(
        "card",
        severity=severity.label,
        priority=severity.priority,
        closed="" if counts else " closed",
        name=name,
        file=finding.file or "?",
        expert=_expert_of(finding),
        standing=standing.value,
        title=inline(" ".join(title.split()) or wording.check_name(finding)),
        place=wording.place_in_words(finding),
        last=finding.last_line if has_more else None,
        copy=fill("copy", label="Copy the path"),
        aside=None if counts else inline(wording.why_not_counted(finding)),
        code=excerpts.table(finding),
        body=prose(finding.body),
        fix=_fix(finding),
        proof=prose(finding.verification.strip(": \n")) if counts else None,
        sure=" sure" if is_sure else "",
        verified="Verified" if is_sure else "Verification",
        tags=joined(fill("tag", tag=tag[:200]) for tag in tags),
    )


def _fix(finding: Finding) -> Html | None:
    fix = fix_of(finding)
    words, code = prose(fenced(fix.words)), None
    if fix.code.strip():
        rows = [
            joined((highlighted(part, path=finding.file) for part in row.split("\t")), between="\t")
            for row in fix.code[:20_000].split("\n")
        ]
        code = joined(rows, between="\n")
    if words is None and code is None:
        return None
    return fill("fix", words=words, code=code, copy=fill("copy", label="Copy the fix"))


def _filters(findings: Sequence[Finding], counting: Sequence[Finding]) -> Html:
    severities = Counter(finding.severity for finding in counting)
    experts = sorted(Counter(map(_expert_of, counting)).items(), key=lambda one: (-one[1], one[0]))
    standings = Counter(map(wording.standing_of, findings))
    paths = sorted(wording.by_file(counting).items())

    def choice(kind: str, value: str, count: int, *, dot: str = "count", label: str = "") -> Html:
        title = value if kind == "file" else ""
        return fill("choice", kind=kind, value=value, count=count, dot=dot, label=label, title=title)

    groups = {
        "Severity": [
            choice("severity", s.label, severities[s], label=f" {s.label}") for s in Severity if severities[s]
        ],
        "Expert": [choice("expert", *one) for one in experts],
        "Status": [choice("standing", s.value, standings[s]) for s in wording.Standing if standings[s]],
        "File": [
            choice("file", path, len(found), dot=f"dot {wording.worst_first(found)[0].severity.label}")
            for path, found in paths
        ],
    }
    # One status alone leaves nothing to choose.
    shown = [(title, choices) for title, choices in groups.items() if len(choices) > (title == "Status")]
    return joined(fill("group", title=title, choices=joined(choices)) for title, choices in shown)


def _verdict(review: Review) -> Html:
    outcome, scope = wording.outcome_of(review), review.scope
    shas = [sha for sha in (scope.base, scope.head) if sha]
    # Many descriptions name them already.
    known = all(sha[:7] in scope.description for sha in shas)
    return fill(
        "verdict",
        tone=outcome.tone.value,
        word=outcome.word,
        why=f"{outcome.why[:1].upper()}{outcome.why[1:]}.",
        scope=scope.description,
        ends="" if known else " → ".join(sha[:10] for sha in shas),
        reviewer=wording.reviewer_in_words(review.reviewer),
    )


def _numbers(review: Review) -> Html:
    counts = Counter(f.severity for f in review.findings if wording.standing_of(f) is wording.Standing.OPEN)
    coverage, failed = review.coverage, len(review.coverage.units_failed)
    total = max(coverage.files_total, 1)
    numbers = [
        *(
            fill("number", name=s.label, value=f"{counts[s]:,}", kind=f"{s.label}{'' if counts[s] else ' none'}")
            for s in Severity
        ),
        fill(
            "number",
            name="reviewed",
            value=f"{coverage.files_reviewed:,} of {wording.counted(coverage.files_total, 'file', 'files')}",
            done=coverage.files_reviewed if coverage.files_total else total,
            total=total,
            failed=f"{wording.counted(failed, 'unit', 'units')} failed" if failed else "",
            kind=f"wide{'' if review.complete else ' gap'}",
        ),
        fill(
            "number",
            name="took",
            value=wording.duration(review.usage.duration_seconds),
            note=wording.spent_in_words(review.usage),
            kind="wide",
        ),
    ]
    return joined(numbers)


def _gaps(review: Review) -> Html | None:
    """What an incomplete review could not look at; before everything else, since no finding says as much."""
    items = []
    for gap in wording.gaps_of(review):
        others = [file for file in gap.files if file != gap.name and not gap.name.startswith(file)]
        named = ", ".join(others[:12]) + (f" and {len(others) - 12:,} more" if len(others) > 12 else "")
        items.append(fill("item", name=gap.name or "?", why=gap.reason or "not reviewed", files=named))
    rest = _folded(f"{len(items) - 8:,} more", items[8:])
    return fill("gaps", items=joined(items[:8]), rest=rest) if items else None


def _remarks(review: Review) -> Html | None:
    skipped = [skip for skip in review.coverage.skipped if not skip.is_gap]
    problems = [fill("item", name=error.kind, why=error.message) for error in wording.errors_beside_gaps(review)]
    left_out = [fill("item", name=skip.file, why=skip.in_words()) for skip in skipped]
    parts = [
        _folded(wording.counted(len(problems), "problem", "problems"), problems, is_open=True),
        _folded(f"{wording.counted(len(left_out), 'file', 'files')} left out on purpose", left_out),
    ]
    return fill("remarks", items=joined(parts)) if problems or left_out else None


def _folded(title: str, items: Sequence[Html], *, is_open: bool = False) -> Html | None:
    if not items:
        return None
    rest = f"{len(items) - _MOST_ITEMS:,}" if len(items) > _MOST_ITEMS else ""
    return fill("folded", title=title, items=joined(items[:_MOST_ITEMS]), more=rest, open=is_open or None)
