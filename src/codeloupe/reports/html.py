"""The HTML report: one file that needs nothing else, shows every finding in its code, and runs only our own script.

The page forbids itself everything that is not in it: a policy in its head names its style and its script by
their hashes. Without script it is whole and readable; the script filters, and listens to the keyboard.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from codeloupe import __version__
from codeloupe.model.finding import Finding, Proof, Severity
from codeloupe.model.review import Review
from codeloupe.reports import ShownDiff, asset, wording
from codeloupe.reports.html_code import Excerpts, highlighted
from codeloupe.reports.markup import (
    Html,
    element,
    inline,
    joined,
    prose,
)
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
    parts = {
        "policy": joined([policy]),
        "title": joined([f"{wording.outcome_of(review).word}: {review.scope.description[:200]} | codeloupe"]),
        "icon": joined([_ICON]),
        "hidden": Html("" if shown.findings else " hidden"),
        "shown": joined([f"{len(counting)} of {len(counting)}"]),
        "filters": _filters(shown.findings, counting),
        "report": _report(shown, diff, left_out=len(ordered) - len(shown.findings)),
        "style": Html(style),
        "script": Html(script),
    }
    page = "".join(map(str.strip, asset("report.html").split("\n")))
    # In one pass, so that nothing in a part can name another.
    return f"<!doctype html>\n{re.sub(r'{{([a-z]+)}}', lambda place: parts[place[1]].text, page)}\n"


def _digest(content: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode('utf-8')).digest()).decode('ascii')}"


def _report(review: Review, diff: ShownDiff | None, *, left_out: int) -> Html:
    found = review.findings
    cards = _Cards(diff, folded=len(found) > _MOST_UNFOLDED)
    opened, unplaced, refuted, closed = (wording.standing_so(found, standing) for standing in wording.Standing)
    more = f"{left_out:,} more findings are left out here; the JSON report has them all."
    return joined(
        [
            _verdict_section(review),
            _numbers(review),
            element("p", f"Findings: {wording.counts_in_words(review)}.", class_="note counts"),
            _gaps_section(review),
            element("p", more, class_="gaps") if left_out else None,
            element("p", "No finding matches the filter.", id="nothing-left", hidden=True),
            element("button", "Open all files", type="button", id="unfold") if len(found) > _MOST_UNFOLDED else None,
            *(cards.of_file(path, findings) for path, findings in wording.by_file(opened).items()),
            cards.of_kind("Without a place", "Their quotes are not in the code, so no line is known.", unplaced),
            cards.of_kind("Refuted", "Shown to be wrong; not counted.", refuted),
            cards.of_kind("Set aside", "Suppressed, dismissed or fixed; not counted.", closed),
            _remarks(review),
            element("footer", f"codeloupe {__version__}", element("span", f"review {review.review_id}")),
        ]
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
        heading = element(
            "h2", element("span", f"{folder}{slash}", class_="folder") if slash else None, element("bdi", name or "?")
        )
        counts = Counter(finding.severity for finding in findings)
        dots = [
            element("span", str(counts[step]), class_=f"dot {step.label}", title=f"{counts[step]} {step.label}")
            for step in Severity
            if counts[step]
        ]
        return self._section(
            [heading, element("span", *dots, class_="dots")], wording.worst_first(findings), kind="file"
        )

    def of_kind(self, title: str, note: str, findings: Sequence[Finding]) -> Html | None:
        """Findings of a kind that is listed apart, with a word on why; None without any."""
        heading = [element("h2", title), element("span", note, class_="note")]
        return self._section(heading, findings, kind="file apart") if findings else None

    def _section(self, heading: Sequence[Html], findings: Sequence[Finding], *, kind: str) -> Html:
        cards = joined(_card(finding, self._excerpts, name=self._name(finding)) for finding in findings)
        if self._folded:
            inside = element("details", element("summary", *heading), cards)
        else:
            inside = joined([element("header", *heading), cards])
        return element("section", inside, class_=kind, data_group=True)

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
    proof = prose(finding.verification.strip(": \n")) if counts else None
    is_sure = finding.verification.startswith(Proof.CONFIRMED)
    verified = element("h4", "Verified" if is_sure else "Verification")
    return element(
        "article",
        element(
            "header",
            element("span", severity.label, element("b", f"P{severity.priority}"), class_=f"badge {severity.label}"),
            element("h3", inline(" ".join(title.split()) or wording.check_name(finding))),
            element("a", "#", class_="permalink", href=f"#{name}", aria_label="Link to this finding"),
        ),
        element(
            "p",
            element("span", wording.place_in_words(finding), class_="path"),
            element("span", f" to {finding.last_line}", class_="to") if has_more else None,
            _copy_button("Copy the path"),
            class_="place",
        ),
        None if counts else element("p", inline(wording.why_not_counted(finding)), class_="aside"),
        excerpts.table(finding),
        element("div", prose(finding.body), class_="prose") if finding.body.strip() else None,
        _fix(finding),
        element("div", verified, proof, class_=f"labelled prose proof{' sure' if is_sure else ''}") if proof else None,
        element("ul", *(element("li", tag[:200]) for tag in tags), class_="tags"),
        class_=f"finding {severity.label}{'' if counts else ' closed'}",
        id=name,
        tabindex=-1,
        data_severity=severity.label,
        data_file=finding.file or "?",
        data_expert=_expert_of(finding),
        data_standing=standing.value,
    )


def _fix(finding: Finding) -> Html | None:
    """The advice, and the new code for the quoted lines with a button that copies it."""
    fix = fix_of(finding)
    words, code, button = prose(fenced(fix.words)), None, None
    if fix.code.strip():
        rows = [
            joined((highlighted(part, path=finding.file) for part in row.split("\t")), between="\t")
            for row in fix.code[:20_000].split("\n")
        ]
        code = element("pre", joined(rows, between="\n"), class_="new", tabindex=0)
        button = _copy_button("Copy the fix")
    if words is None and code is None:
        return None
    return element("div", element("h4", "Fix"), words, code, button, class_="labelled prose fix")


def _copy_button(label: str) -> Html:
    return element("button", "Copy", type="button", class_="copy", title=label, aria_label=label)


def _filters(findings: Sequence[Finding], counting: Sequence[Finding]) -> Html:
    """Severities, experts and files, with the number of open findings of each; then what is listed apart."""
    severities = Counter(finding.severity for finding in counting)
    experts = sorted(Counter(map(_expert_of, counting)).items(), key=lambda one: (-one[1], one[0]))
    standings = Counter(map(wording.standing_of, findings))
    paths = sorted(wording.by_file(counting).items())

    def choice(kind: str, value: str, count: int, *, dot: str = "count", label: str = "") -> Html:
        return element(
            "button",
            # Isolated, so that the end of a long path can be shown without turning its slashes around.
            element("span", element("bdi", value), class_="name"),
            element("span", str(count), class_=dot),
            type="button",
            class_=f"choice {label}".strip(),
            aria_pressed="false",
            data_kind=kind,
            data_value=value,
            title=value if kind == "file" else None,
        )

    def group(title: str, choices: Sequence[Html], *, least: int = 1) -> Html | None:
        if len(choices) < least:
            return None
        return element("div", element("h2", title), element("div", *choices, class_="choices"), class_="group")

    severity = [choice("severity", s.label, severities[s], label=s.label) for s in Severity if severities[s]]
    standing = [choice("standing", s.value, standings[s]) for s in wording.Standing if standings[s]]
    file = [
        choice("file", p, len(found), dot=f"dot {wording.worst_first(found)[0].severity.label}") for p, found in paths
    ]
    return joined(
        [
            group("Severity", severity),
            group("Expert", [choice("expert", *one) for one in experts]),
            group("Status", standing, least=2),
            group("File", file),
        ]
    )


def _verdict_section(review: Review) -> Html:
    """The word, why, what was reviewed and by whom."""
    outcome = wording.outcome_of(review)
    scope = review.scope
    shas = [sha for sha in (scope.base, scope.head) if sha]
    # Many descriptions name them already.
    known = all(sha[:7] in scope.description for sha in shas)
    ends = "" if known else " → ".join(sha[:10] for sha in shas)
    return element(
        "section",
        element("h1", outcome.word, class_="word"),
        element("p", f"{outcome.why[:1].upper()}{outcome.why[1:]}.", class_="why"),
        element(
            "p",
            element("span", scope.description),
            element("code", ends) if ends else None,
            class_="scope",
        ),
        element("p", wording.reviewer_in_words(review.reviewer), class_="reviewer"),
        class_=f"verdict {outcome.tone.value}",
        aria_label="Verdict",
    )


def _numbers(review: Review) -> Html:
    """Findings by severity, coverage, cost and time."""

    def number(name: str, value: str, *more: Html | None, kind: str) -> Html:
        shown = element("dd", element("span", value, class_="value"), *more)
        return element("div", element("dt", name), shown, class_=f"number {kind}")

    counts = Counter(f.severity for f in review.findings if wording.standing_of(f) is wording.Standing.OPEN)
    coverage, spent = review.coverage, wording.spent_in_words(review.usage)
    total = max(coverage.files_total, 1)
    done = coverage.files_reviewed if coverage.files_total else total
    words = f"{coverage.files_reviewed:,} of {wording.counted(coverage.files_total, 'file', 'files')}"
    failed = f"{wording.counted(len(coverage.units_failed), 'unit', 'units')} failed" if coverage.units_failed else ""
    return element(
        "dl",
        *(number(s.label, f"{counts[s]:,}", kind=f"{s.label}{'' if counts[s] else ' none'}") for s in Severity),
        number(
            "reviewed",
            words,
            element("progress", value=done, max=total, aria_label=f"{words} reviewed"),
            element("p", failed, class_="note bad") if failed else None,
            kind=f"wide{'' if review.complete else ' gap'}",
        ),
        number(
            "took",
            wording.duration(review.usage.duration_seconds),
            element("p", spent, class_="note") if spent else None,
            kind="wide",
        ),
        class_="numbers",
    )


def _gaps_section(review: Review) -> Html | None:
    """What an incomplete review could not look at; before everything else, since no finding says as much."""
    items = []
    for gap in wording.gaps_of(review):
        others = [file for file in gap.files if file != gap.name and not gap.name.startswith(file)]
        named = ", ".join(others[:12]) + (f" and {len(others) - 12:,} more" if len(others) > 12 else "")
        items.append(
            element(
                "li",
                element("code", gap.name or "?"),
                element("span", gap.reason or "not reviewed"),
                element("span", named, class_="note") if named else None,
            )
        )
    if not items:
        return None
    return element(
        "section",
        element("h2", "Could not be reviewed"),
        element("p", "This review is incomplete: what is listed here may hold anything.", class_="note"),
        element("ul", *items[:8]),
        _folded(f"{len(items) - 8:,} more", items[8:]),
        class_="gaps",
        aria_label="Not reviewed",
    )


def _remarks(review: Review) -> Html | None:
    """What else went wrong, what was left out on purpose, and how many findings are not shown."""
    problems = [
        element("li", element("code", error.kind), element("span", error.message))
        for error in wording.errors_beside_gaps(review)
    ]
    left_out = [
        element("li", element("code", skip.file), element("span", skip.in_words()))
        for skip in review.coverage.skipped
        if not skip.is_gap
    ]
    parts = [
        _folded(wording.counted(len(problems), "problem", "problems"), problems, is_open=True),
        _folded(f"{wording.counted(len(left_out), 'file', 'files')} left out on purpose", left_out),
    ]
    return element("section", *parts, class_="remarks", aria_label="Remarks") if problems or left_out else None


def _folded(title: str, items: Sequence[Html], *, is_open: bool = False) -> Html | None:
    if not items:
        return None
    rest = len(items) - _MOST_ITEMS
    more = element("li", f"and {rest:,} more; the JSON report has them all") if rest > 0 else None
    return element("details", element("summary", title), element("ul", *items[:_MOST_ITEMS], more), open=is_open)
