"""A finding as a card of the HTML report, and the findings of a file or of a kind as a section."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

from codeloupe.model.answer import Proof
from codeloupe.model.finding import Finding
from codeloupe.model.severity import Severity
from codeloupe.reports.html_code import Excerpts
from codeloupe.reports.html_highlight import highlighted
from codeloupe.reports.html_markup import Child, Html, element, joined
from codeloupe.reports.html_prose import inline, prose
from codeloupe.reports.replacement import fenced, fix_of
from codeloupe.reports.shown_diff import ShownDiff
from codeloupe.reports.standing import Standing, check_name, origin_of, standing_of, why_not_counted, worst_first
from codeloupe.reports.wording import place_in_words

_LONGEST_TITLE = 600
_LONGEST_TAG = 200
_LONGEST_CODE = 20_000


class Cards:
    """Makes the cards of one page, each with a name of its own, and puts them together."""

    def __init__(self, diff: ShownDiff | None, *, folded: bool) -> None:
        self._folded = folded
        self._excerpts = Excerpts(diff)
        self._names: Counter[str] = Counter()

    def of_file(self, path: str, findings: Sequence[Finding]) -> Html:
        """The findings of one file, the worst first, under its name."""
        folder, slash, name = path.rpartition("/")
        heading = element(
            "h2", element("span", f"{folder}{slash}", class_="folder") if slash else None, element("bdi", name or "?")
        )
        return self._section(joined([heading, severity_counts(findings)]), worst_first(findings), kind="file")

    def of_kind(self, title: str, note: str, findings: Sequence[Finding]) -> Html | None:
        """Findings of a kind that is listed apart, with a word on why; None without any."""
        heading = joined([element("h2", title), element("span", note, class_="note")])
        return self._section(heading, findings, kind="file apart") if findings else None

    def _section(self, heading: Html, findings: Sequence[Finding], *, kind: str) -> Html:
        cards = joined(_card(finding, self._excerpts, name=self._name(finding)) for finding in findings)
        if self._folded:
            inside = element("details", element("summary", heading), cards)
        else:
            inside = joined([element("header", heading), cards])
        return element("section", inside, class_=kind, data_group=True)

    def _name(self, finding: Finding) -> str:
        """A name that stays as long as the finding does; those that would share one are numbered."""
        identity = finding.fingerprint or f"{finding.file}\0{finding.first_line}\0{finding.title}"
        name = "f-" + hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        self._names[name] += 1
        return name if self._names[name] == 1 else f"{name}-{self._names[name]}"


def severity_counts(findings: Sequence[Finding]) -> Html:
    """A dot and a number for each severity that is there."""
    counts = Counter(finding.severity for finding in findings)
    dots = [
        element("span", str(counts[step]), class_=f"dot {step.label}", title=f"{counts[step]} {step.label}")
        for step in Severity
        if counts[step]
    ]
    return element("span", joined(dots), class_="dots")


def expert_of(finding: Finding) -> str:
    """Who found it, as a reader would choose by: the expert, or else the reviewer."""
    return finding.expert or finding.reviewer or "?"


def _card(finding: Finding, excerpts: Excerpts, *, name: str) -> Html:
    counted = finding.is_open
    return element(
        "article",
        _head(finding, name),
        element(
            "p",
            element("span", place_in_words(finding), class_="path"),
            _lines(finding),
            copy_button("Copy the path"),
            class_="place",
        ),
        None if counted else element("p", inline(why_not_counted(finding)), class_="aside"),
        excerpts.table(finding),
        element("div", prose(finding.body), class_="prose") if finding.body.strip() else None,
        _fix(finding),
        _verification(finding) if counted else None,
        _tags(finding),
        class_=f"finding {finding.severity.label}{'' if counted else ' closed'}",
        id=name,
        tabindex=-1,
        data_severity=finding.severity.label,
        data_file=finding.file or "?",
        data_expert=expert_of(finding),
        data_standing=standing_of(finding).value,
    )


def _head(finding: Finding, name: str) -> Html:
    severity = finding.severity
    title = finding.title if len(finding.title) <= _LONGEST_TITLE else f"{finding.title[:_LONGEST_TITLE]}…"
    return element(
        "header",
        element("span", severity.label, element("b", f"P{severity.priority}"), class_=f"badge {severity.label}"),
        element("h3", inline(" ".join(title.split()) or check_name(finding))),
        element("a", "#", class_="permalink", href=f"#{name}", aria_label="Link to this finding"),
    )


def _lines(finding: Finding) -> Child:
    has_more = finding.anchored and finding.last_line > finding.first_line > 0
    return element("span", f" to {finding.last_line}", class_="to") if has_more else None


def _labelled(label: str, words: str, *, kind: str) -> Html | None:
    shown = prose(words)
    return element("div", element("h4", label), shown, class_=f"labelled prose {kind}") if shown else None


def _fix(finding: Finding) -> Html | None:
    """The advice, and the new code for the quoted lines with a button that copies it."""
    fix = fix_of(finding)
    words = prose(fenced(fix.words))
    rows = [
        joined((highlighted(part, path=finding.file) for part in row.split("\t")), between="\t")
        for row in fix.code[:_LONGEST_CODE].split("\n")
    ]
    code = element("pre", joined(rows, between="\n"), class_="new", tabindex=0) if fix.code.strip() else None
    if words is None and code is None:
        return None
    button = copy_button("Copy the fix") if code else None
    return element("div", element("h4", "Fix"), words, code, button, class_="labelled prose fix")


def copy_button(label: str) -> Html:
    """A button that copies what stands beside it; shown only where the script runs."""
    return element("button", "Copy", type="button", class_="copy", title=label, aria_label=label)


def _verification(finding: Finding) -> Html | None:
    words = finding.verification.strip(": \n")
    confirmed = words.startswith(Proof.CONFIRMED)
    return _labelled("Verified" if confirmed else "Verification", words, kind="proof sure" if confirmed else "proof")


def _tags(finding: Finding) -> Html:
    tags = [*origin_of(finding)]
    if standing_of(finding) is Standing.UNPLACED:
        tags.append("without a place")
    return element("ul", joined(element("li", tag[:_LONGEST_TAG]) for tag in tags), class_="tags")
