"""JUnit XML: a suite for the review itself, then one for each file with findings.

The report has a failure or an error if and only if the exit code of the review is not 0. The case `verdict` says so,
and so does each finding that blocks, as a failure, and each part that could not be reviewed, as an error. A part that
the policy lets pass is skipped. Open findings that do not block are tests that pass with their text. A finding that
does not count and a skipped file are skipped, with the reason. A finding that needs a person is skipped too, and is an
error in the suite of the review.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator

from codeloupe.model.finding import Finding
from codeloupe.model.review import Review
from codeloupe.reports import asset, wording
from codeloupe.reports.markup import filled
from codeloupe.reports.replacement import fix_of
from codeloupe.system.untrusted import is_inside, plain_code, plain_line, plain_text, terminal

_LONGEST_LINE = 500
_LONGEST_TEXT = 8_000
_REVIEW = "codeloupe"
_NO_FILE = "?"
# The result of the verdict's case by the exit code of the review; any other exit code is an error.
_RESULTS = {0: "passed", 1: "failure"}


def render_junit(review: Review) -> str:
    """The review as JUnit XML: well-formed whatever the findings hold, and never without a test."""
    cases: dict[str, list[dict[str, str]]] = defaultdict(list)
    for finding in wording.worst_first(review.findings):
        cases[terminal(finding.file) or _NO_FILE].append(_finding_case(review, finding))
    suites, totals = [], Counter[str]()
    for name, tests in ((_REVIEW, list(_review_cases(review))), *sorted(cases.items())):
        counts = Counter(case["result"] for case in tests)
        totals += counts
        file = name if is_inside(name) and name not in (_REVIEW, _NO_FILE) else ""
        whole = [{**case, "suite": name, "file": file} for case in tests]
        suites.append({"suite": name, "cases": whole, "skipped": counts["skipped"], **_counted(counts)})
    seconds = review.usage.duration_seconds
    time = f"{seconds if math.isfinite(seconds) else 0:.3f}"
    return filled(asset("junit.xml"), {"suites": suites, "time": time, **_counted(totals)}, str)


def _counted(counts: Counter[str]) -> dict[str, int]:
    return {"tests": counts.total(), "failures": counts["failure"], "errors": counts["error"]}


def _case(name: str, result: str, kind: str = "", why: str = "", text: str = "") -> dict[str, str]:
    """One test: passed, failure, error or skipped. `why` is its headline; `text`, all there is to say, is printed."""
    failed, skipped = result in ("failure", "error"), result == "skipped"
    shown = {"failed": "yes" if failed else "", "skip": "yes" if skipped else "", "out": "" if failed else text}
    return {"name": name, "result": result, "kind": kind, "why": why, "text": text, **shown}


def _review_cases(review: Review) -> Iterator[dict[str, str]]:
    """Yield the cases for the verdict, the gaps and the skipped files. A finding has a case of its own."""
    outcome = wording.outcome_of(review)
    lines = [
        wording.reviewer_text(review.reviewer),
        review.scope.description,
        f"{outcome.word}: {outcome.why}",
        f"Findings: {wording.counts_text(review)}",
        *(f"Problem: {problem}" for problem in wording.problems_of(review)),
        *(f"Note: {note}" for note in wording.notes_of(review)),
        *(f"{', '.join(each.units[:20])}: {each.why}" for each in wording.failovers_of(review)),
    ]
    text = "\n".join(plain_line(line, longest=_LONGEST_TEXT) for line in lines)
    yield _case("verdict", _RESULTS.get(review.exit_code, "error"), outcome.word, outcome.why, text)
    for gap in wording.gaps_of(review):
        name = plain_line(f"not reviewed: {gap.name}", longest=_LONGEST_LINE)
        why = plain_line(gap.reason, longest=_LONGEST_LINE) or "could not be reviewed"
        text = "\n".join([plain_text(gap.describe(), longest=_LONGEST_TEXT), *map(terminal, gap.files)])
        yield _case(name, "skipped" if review.passed else "error", gap.kind, why, text)
    for skip in review.left_out:
        why = plain_line(skip.describe(), longest=_LONGEST_LINE)
        yield _case(f"skipped: {terminal(skip.file)}", "skipped", why=why)


def _finding_case(review: Review, finding: Finding) -> dict[str, str]:
    title = plain_line(finding.title, longest=_LONGEST_LINE) or wording.check_name(finding)
    place = f" (line {finding.line_start})" if finding.first_line > 0 else ""
    label = finding.severity.label
    person = wording.why_pending(finding)
    if review.policy.blocks(finding):
        skipped, result = "", "failure"
    elif person:
        skipped, result = f"needs a person: {person}", "skipped"
    else:
        skipped = wording.why_not_counted(finding)
        result = "skipped" if skipped else "passed"
    fix = fix_of(finding)
    words = plain_code(fix.words.strip("\n").rstrip(), longest=_LONGEST_TEXT)
    code = plain_code(fix.code, longest=_LONGEST_TEXT)
    verification = plain_text(wording.proof_text(finding), longest=_LONGEST_TEXT)
    claims = [f"Also: {plain_line(claim, longest=_LONGEST_TEXT)}" for claim in wording.further_claims(finding)]
    parts = [
        f"{plain_line(wording.place_text(finding), longest=_LONGEST_TEXT)}: {title}",
        plain_code(finding.evidence.rstrip("\n"), longest=_LONGEST_TEXT),
        plain_text(finding.body, longest=_LONGEST_TEXT),
        f"Fix: {words}" if words else "Fix:" if code else "",
        code,
        f"Verification: {verification}" if verification else "",
        "\n".join(claims),
        plain_line(", ".join(wording.origin_of(finding)), longest=_LONGEST_TEXT),
    ]
    return _case(
        name=f"{label} {wording.check_name(finding)}: {title}{place}",
        result=result,
        kind=f"{label} P{finding.severity.priority}",
        why=plain_line(skipped, longest=_LONGEST_TEXT) or title,
        text="\n\n".join(filter(None, parts)),
    )
