"""The HTML report: one file that needs nothing else, shows every finding in its code, and runs only our own script.

The page forbids itself everything that does not stand in it: a policy in its head names its style and its script by
their hashes. Without script it is whole and readable; the script filters, and listens to the keyboard.
"""

from __future__ import annotations

import base64
import hashlib
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from msgspec.structs import replace

from codeloupe import __version__
from codeloupe.model.finding import Finding
from codeloupe.model.review import Review
from codeloupe.reports.html_controls import filter_panel, help_dialog, top_bar
from codeloupe.reports.html_finding import Cards
from codeloupe.reports.html_markup import Html, element, joined, trusted_block
from codeloupe.reports.html_summary import all_counts, gaps_panel, numbers, remarks, verdict_panel
from codeloupe.reports.outcome import outcome_of
from codeloupe.reports.shown_diff import ShownDiff
from codeloupe.reports.standing import Standing, standing_so
from codeloupe.system.untrusted import is_masked

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
    page = element("html", _head(review), body, lang="en")
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


def _head(review: Review) -> Html:
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
