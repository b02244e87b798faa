"""The HTML report: one file that needs nothing else, shows every finding in its code, and runs only our own script.

The page forbids itself everything that does not stand in it: a policy in its head names its style and its script by
their hashes. Without script it is whole and readable; the script filters, and listens to the keyboard.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from msgspec.structs import replace

from codeloupe import __version__
from codeloupe.model.answer import Proof
from codeloupe.model.finding import Finding
from codeloupe.model.review import Review
from codeloupe.model.severity import Severity
from codeloupe.reports import ShownDiff
from codeloupe.reports.html_code import Excerpts, highlighted
from codeloupe.reports.markup import (
    Child,
    Html,
    element,
    inline,
    joined,
    prose,
    trusted_block,
)
from codeloupe.reports.replacement import fenced, fix_of
from codeloupe.reports.wording import (
    Gap,
    Standing,
    check_name,
    counted,
    counts_in_words,
    duration,
    errors_beside_gaps,
    gaps_of,
    origin_of,
    outcome_of,
    place_in_words,
    reviewer_in_words,
    spent_in_words,
    standing_of,
    standing_so,
    why_not_counted,
    worst_first,
)
from codeloupe.system.sanitise_plain import is_masked

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


_KEYS = (
    (("j", "k"), "next and previous finding"),
    (("/",), "search"),
    (("1", "2", "3", "4"), "only critical, high, medium, low"),
    (("x",), "clear the filter"),
    (("o",), "open or fold all files"),
    (("t",), "light or dark"),
    (("?",), "these keys"),
)


def top_bar() -> Html:
    """The name, the button for filters on a narrow page, the theme, the keys."""
    return element(
        "header",
        element("a", _loupe(), element("span", "codeloupe"), class_="brand", href="#report"),
        element("span", class_="space"),
        element("button", "Filter", id="open-filters", type="button", aria_expanded="false", aria_controls="filters"),
        element("button", _half_moon(), id="theme", type="button", title="Light or dark (t)", aria_label="Theme"),
        element("button", "?", id="help", type="button", title="Keys (?)", aria_label="Keys"),
        class_="bar",
    )


def filter_panel(findings: Sequence[Finding]) -> Html:
    """Search, severities, experts and files, with the number of open findings of each; then what is listed apart."""
    counting = [finding for finding in findings if standing_of(finding) is Standing.OPEN]
    by_severity = Counter(finding.severity for finding in counting)
    by_expert = Counter(map(expert_of, counting))
    by_standing = Counter(map(standing_of, findings))
    by_file: dict[str, list[Finding]] = defaultdict(list)
    for finding in counting:
        by_file[finding.file or "?"].append(finding)
    severities = [
        _choice("severity", step.label, element("span", str(by_severity[step]), class_="count"), label=step.label)
        for step in Severity
        if by_severity[step]
    ]
    files = [_choice("file", path, _worst(by_file[path])) for path in sorted(by_file)]
    experts = [
        _choice("expert", name, element("span", str(count), class_="count"))
        for name, count in sorted(by_expert.items(), key=lambda item: (-item[1], item[0]))
    ]
    standings = [
        _choice("standing", name.value, element("span", str(by_standing[name]), class_="count"))
        for name in Standing
        if by_standing[name]
    ]
    return element(
        "aside",
        element("input", type="search", id="search", placeholder="Search findings", aria_label="Search findings"),
        element(
            "p",
            element("output", f"{len(counting)} of {len(counting)}", id="shown"),
            element("button", "Clear", type="button", id="clear", hidden=True),
            class_="tally",
        ),
        _group("Severity", severities),
        _group("Expert", experts),
        _group("Status", standings) if len(standings) > 1 else None,
        _group("File", files),
        id="filters",
        class_="filters",
        aria_label="Filters",
        hidden=not findings,
    )


def help_dialog() -> Html:
    """The keys, in a dialog."""
    rows = [
        element("div", element("dt", joined(element("kbd", key) for key in keys)), element("dd", words))
        for keys, words in _KEYS
    ]
    return element(
        "dialog",
        element("h2", "Keys"),
        element("dl", joined(rows)),
        element("button", "Close", type="button", id="close-help"),
        id="keys",
        aria_label="Keys",
    )


def _group(title: str, choices: Sequence[Html]) -> Html | None:
    if not choices:
        return None
    return element("div", element("h2", title), element("div", joined(choices), class_="choices"), class_="group")


def _choice(kind: str, value: str, count: Html, *, label: str = "") -> Html:
    """A button that is pressed or not; `label` is the class that gives it a colour."""
    return element(
        "button",
        # Isolated, so that the end of a long path can be shown without turning its slashes around.
        element("span", element("bdi", value), class_="name"),
        count,
        type="button",
        class_=f"choice {label}".strip(),
        aria_pressed="false",
        data_kind=kind,
        data_value=value,
        title=value if kind == "file" else None,
    )


def _worst(findings: Sequence[Finding]) -> Html:
    """How many, in the colour of the worst."""
    worst = min((finding.severity for finding in findings), key=lambda severity: severity.priority)
    return element("span", str(len(findings)), class_=f"dot {worst.label}")


def _loupe() -> Html:
    shape = element("path", d="M10 3a7 7 0 1 0 0 14a7 7 0 1 0 0-14M15.5 15.5L21 21")
    return element("svg", shape, viewBox="0 0 24 24", aria_hidden="true", class_="icon")


def _half_moon() -> Html:
    shape = element("path", d="M12 3a9 9 0 1 0 0 18a9 9 0 1 0 0-18M12 3v18")
    filled = element("path", d="M12 3a9 9 0 0 1 0 18z", class_="filled")
    return element("svg", shape, filled, viewBox="0 0 24 24", aria_hidden="true", class_="icon")


_GAPS_OPEN = 8
_MOST_FILES = 12
_MOST_ITEMS = 2_000
_SHORT_SHA = 10
_SHORTEST_SHA = 7


def verdict_panel(review: Review) -> Html:
    """The word, why, what was reviewed and by whom."""
    outcome = outcome_of(review)
    scope = review.scope
    shas = [sha for sha in (scope.base, scope.head) if sha]
    # Many descriptions name them already.
    known = all(sha[:_SHORTEST_SHA] in scope.description for sha in shas)
    ends = "" if known else " → ".join(sha[:_SHORT_SHA] for sha in shas)
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
        element("p", reviewer_in_words(review.reviewer), class_="reviewer"),
        class_=f"verdict {outcome.tone.value}",
        aria_label="Verdict",
    )


def numbers(review: Review) -> Html:
    """Findings by severity, coverage, cost and time."""
    counts = Counter(f.severity for f in review.findings if standing_of(f) is Standing.OPEN)
    steps = [
        element(
            "div",
            element("dt", step.label),
            element("dd", _value(f"{counts[step]:,}")),
            class_=f"number {step.label}{'' if counts[step] else ' none'}",
        )
        for step in Severity
    ]
    return element("dl", joined(steps), _coverage(review), _spent(review), class_="numbers")


def _value(words: str) -> Html:
    return element("span", words, class_="value")


def _coverage(review: Review) -> Html:
    coverage = review.coverage
    total = max(coverage.files_total, 1)
    done = coverage.files_reviewed if coverage.files_total else total
    words = f"{coverage.files_reviewed:,} of {counted(coverage.files_total, 'file', 'files')}"
    failed = f"{counted(len(coverage.units_failed), 'unit', 'units')} failed" if coverage.units_failed else ""
    return element(
        "div",
        element("dt", "reviewed"),
        element(
            "dd",
            _value(words),
            element("progress", value=done, max=total, aria_label=f"{words} reviewed"),
            element("p", failed, class_="note bad") if failed else None,
        ),
        class_=f"number wide{'' if review.complete else ' gap'}",
    )


def _spent(review: Review) -> Html:
    spent = spent_in_words(review.usage)
    took = duration(review.usage.duration_seconds)
    return element(
        "div",
        element("dt", "took"),
        element("dd", _value(took), element("p", spent, class_="note") if spent else None),
        class_="number wide",
    )


def gaps_panel(review: Review) -> Html | None:
    """What an incomplete review could not look at; before everything else, since no finding says as much."""
    gaps = gaps_of(review)
    if not gaps:
        return None
    first = element("ul", joined(map(_gap, gaps[:_GAPS_OPEN])))
    rest = gaps[_GAPS_OPEN:]
    return element(
        "section",
        element("h2", "Could not be reviewed"),
        element("p", "This review is incomplete: what is listed here may hold anything.", class_="note"),
        first,
        _folded(f"{counted(len(rest), 'more', 'more')}", [_gap(gap) for gap in rest]),
        class_="gaps",
        aria_label="Not reviewed",
    )


def _gap(gap: Gap) -> Html:
    others = [file for file in gap.files if file != gap.name and not gap.name.startswith(file)]
    more = len(others) - _MOST_FILES
    named = ", ".join(others[:_MOST_FILES]) + (f" and {more:,} more" if more > 0 else "")
    return element(
        "li",
        element("code", gap.name or "?"),
        element("span", gap.reason or "not reviewed"),
        element("span", named, class_="note") if named else None,
    )


def remarks(review: Review) -> Html | None:
    """What else went wrong, what was left out on purpose, and how many findings are not shown."""
    problems = [
        element("li", element("code", error.kind), element("span", error.message))
        for error in errors_beside_gaps(review)
    ]
    left_out = [
        element("li", element("code", skip.file), element("span", skip.in_words()))
        for skip in review.coverage.skipped
        if not skip.is_gap
    ]
    parts = [
        _folded(counted(len(problems), "problem", "problems"), problems, is_open=True),
        _folded(f"{counted(len(left_out), 'file', 'files')} left out on purpose", left_out),
    ]
    shown = [part for part in parts if part is not None]
    return element("section", joined(shown), class_="remarks", aria_label="Remarks") if shown else None


def all_counts(review: Review) -> Html:
    """Everything found, in one sentence."""
    return element("p", f"Findings: {counts_in_words(review)}.", class_="note counts")


def _folded(title: str, items: Sequence[Html], *, is_open: bool = False) -> Html | None:
    if not items:
        return None
    rest = len(items) - _MOST_ITEMS
    more = element("li", f"and {rest:,} more; the JSON report has them all") if rest > 0 else None
    listed = element("ul", joined([*items[:_MOST_ITEMS], more]))
    return element("details", element("summary", title), listed, open=is_open)


_MOST_FINDINGS = 2_000
_MOST_UNFOLDED = 50
_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 24 24' fill='none' stroke='%236366f1' "
    "stroke-width='2.5' stroke-linecap='round'%3E%3Cpath d='M10 3a7 7 0 1 0 0 14a7 7 0 1 0 0-14M15.5 15.5L21 21'/%3E"
    "%3C/svg%3E"
)


def render_html(review: Review, *, diff: ShownDiff | None = None) -> str:
    """The review as a page. With `diff`, findings are shown among the lines of the change around them.

    A file in which something was masked is shown by its quotes alone, since other lines may hold the same secret.
    """
    shown = replace(review, findings=_first(review.findings))
    safe_diff = _without_secrets((*review.findings, *review.hidden), diff)
    left_out = len(review.findings) - len(shown.findings)
    body = element(
        "body",
        top_bar(),
        element(
            "div",
            filter_panel(shown.findings),
            element("main", _report(shown, safe_diff, left_out=left_out), id="report"),
            class_="layout",
        ),
        help_dialog(),
        element("p", id="said", role="status", class_="unseen"),
        trusted_block("script", _asset("report.js")),
    )
    page = element("html", _html_head(review), body, lang="en")
    return f"<!doctype html>\n{page.text}\n"


def _report(review: Review, diff: ShownDiff | None, *, left_out: int) -> Html:
    found = review.findings
    cards = Cards(diff, folded=len(found) > _MOST_UNFOLDED)
    unplaced = "Their quotes are not in the code, so no line is known."
    closed = "Suppressed, dismissed or fixed; not counted."
    more = f"{left_out:,} more findings are left out here; the JSON report has them all."
    parts = [
        verdict_panel(review),
        numbers(review),
        all_counts(review),
        gaps_panel(review),
        element("p", more, class_="gaps") if left_out else None,
        element("p", "No finding matches the filter.", id="nothing-left", hidden=True),
        element("button", "Open all files", type="button", id="unfold") if len(found) > _MOST_UNFOLDED else None,
        *_by_file(standing_so(found, Standing.OPEN), cards),
        cards.of_kind("Without a place", unplaced, standing_so(found, Standing.UNPLACED)),
        cards.of_kind("Refuted", "Shown to be wrong; not counted.", standing_so(found, Standing.REFUTED)),
        cards.of_kind("Set aside", closed, standing_so(found, Standing.SET_ASIDE)),
        remarks(review),
        element("footer", f"codeloupe {__version__}", element("span", f"review {review.review_id}")),
    ]
    return joined(parts)


def _by_file(findings: Sequence[Finding], cards: Cards) -> list[Html]:
    """The files with the worst findings first."""
    by_file: dict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        by_file[finding.file].append(finding)
    ranked = sorted(by_file, key=lambda path: (min(f.severity.priority for f in by_file[path]), path))
    return [cards.of_file(path, by_file[path]) for path in ranked]


def _first(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """As many as a browser shows at ease, those that count before the others, the worst first."""
    ordered = [finding for standing in Standing for finding in standing_so(findings, standing)]
    return tuple(ordered[:_MOST_FINDINGS])


def _without_secrets(findings: Sequence[Finding], diff: ShownDiff | None) -> ShownDiff | None:
    if diff is None:
        return None
    masked = {finding.file for finding in findings if is_masked(f"{finding.evidence} {finding.title} {finding.body}")}
    return ShownDiff({path: change for path, change in diff.files.items() if path not in masked}, diff.mask)


def _html_head(review: Review) -> Html:
    outcome = outcome_of(review)
    style, script = _asset("report.css"), _asset("report.js")
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    )
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("meta", name="robots", content="noindex"),
        element("title", f"{outcome.word}: {review.scope.description[:200]} | codeloupe"),
        element("link", rel="icon", href=_ICON),
        trusted_block("style", style),
    )


@cache
def _asset(name: str) -> str:
    return files("codeloupe.reports").joinpath("assets", name).read_text(encoding="utf-8")


def _digest(content: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode('utf-8')).digest()).decode('ascii')}"


# Longer than any path that a system can open.

# rich wants a console to wrap with, and looks at it only to justify, which is not done here. To load what makes one
# takes longer than to lay out a report.
