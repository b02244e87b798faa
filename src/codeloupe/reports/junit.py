"""JUnit XML: a suite for the review itself, then one for each file with findings.

A finding that blocks is a failure, and what could not be reviewed is an error, so that neither can pass for a test that
ran well. Open findings that do not block are tests that pass and say what they found; what counts for nothing, or has
no place, is skipped with the reason, and so are the files that were left out on purpose.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from html import escape
from typing import NamedTuple

from codeloupe.model.finding import Finding
from codeloupe.model.review import Review
from codeloupe.reports import wording
from codeloupe.reports.replacement import fix_of
from codeloupe.system.untrusted import is_inside, plain_code, plain_line, plain_path, plain_text

_LONGEST_LINE = 500
_LONGEST_TEXT = 8_000
_REVIEW = "codeloupe"
_NO_FILE = "?"


class _Case(NamedTuple):
    """One test. `result` is passed, failure, error or skipped; `why` is its headline, `text` all there is to say."""

    name: str
    result: str
    kind: str = ""
    why: str = ""
    text: str = ""


def render_junit(review: Review) -> str:
    """The review as JUnit XML: well-formed whatever the findings hold, and never without a test."""
    by_file: dict[str, list[Finding]] = defaultdict(list)
    for finding in review.findings:
        by_file[plain_path(finding.file) or _NO_FILE].append(finding)
    suites = {_REVIEW: list(_review_cases(review))}
    body, totals = "", Counter[str]()
    for name, cases in (
        *suites.items(),
        *(
            (path, [_finding_case(review, one) for one in wording.worst_first(by_file[path])])
            for path in sorted(by_file)
        ),
    ):
        counts = Counter(case.result for case in cases)
        totals += counts
        head = _attributes(name=name, **_counted(counts), skipped=str(counts["skipped"]))
        inside = "".join(_case_xml(name, case) for case in cases)
        body += f"  <testsuite{head}>\n{inside}  </testsuite>\n"
    seconds = review.usage.duration_seconds
    head = _attributes(name=_REVIEW, **_counted(totals), time=f"{seconds if math.isfinite(seconds) else 0:.3f}")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites{head}>\n{body}</testsuites>\n'


def _review_cases(review: Review) -> Iterator[_Case]:
    """The verdict, the gaps and what was left out. Findings and gaps fail for themselves; what is hidden fails here."""
    outcome = wording.outcome_of(review)
    hidden = review.exit_code == 1 and not any(wording.blocks(review, finding) for finding in review.findings)
    lines = [
        wording.reviewer_in_words(review.reviewer),
        review.scope.description,
        f"{outcome.word}: {outcome.why}",
        f"Findings: {wording.counts_in_words(review)}",
        *(f"{error.kind}: {error.message}" for error in wording.errors_beside_gaps(review)),
    ]
    text = "\n".join(plain_line(line, longest=_LONGEST_TEXT) for line in lines)
    yield _Case("verdict", "failure" if hidden else "passed", outcome.word, outcome.why, text)
    for gap in wording.gaps_of(review):
        name = plain_line(f"not reviewed: {gap.name}", longest=_LONGEST_LINE)
        why = plain_line(gap.reason, longest=_LONGEST_LINE) or "could not be reviewed"
        text = "\n".join([plain_text(gap.in_words(), longest=_LONGEST_TEXT), *map(plain_path, gap.files)])
        yield _Case(name, "error", gap.kind.value, why, text)
    for skip in review.coverage.skipped:
        if not skip.is_gap:
            why = plain_line(skip.in_words(), longest=_LONGEST_LINE)
            yield _Case(f"left out: {plain_path(skip.file)}", "skipped", why=why)


def _finding_case(review: Review, finding: Finding) -> _Case:
    title = plain_line(finding.title, longest=_LONGEST_LINE) or wording.check_name(finding)
    place = f" (line {finding.line_start})" if finding.first_line > 0 else ""
    label = finding.severity.label
    unplaced = wording.standing_of(finding) is wording.Standing.UNPLACED
    skipped = "could not be placed in the code" if unplaced else wording.why_not_counted(finding)
    fix = fix_of(finding)
    words = plain_code(fix.words.strip("\n").rstrip(), longest=_LONGEST_TEXT)
    code = plain_code(fix.code, longest=_LONGEST_TEXT)
    verification = plain_text(finding.verification, longest=_LONGEST_TEXT)
    parts = [
        f"{plain_line(wording.place_in_words(finding), longest=_LONGEST_TEXT)}: {title}",
        plain_code(finding.evidence.rstrip("\n"), longest=_LONGEST_TEXT),
        plain_text(finding.body, longest=_LONGEST_TEXT),
        f"Fix: {words}" if words else "Fix:" if code else "",
        code,
        f"Verification: {verification}" if verification else "",
        plain_line(", ".join(wording.origin_of(finding)), longest=_LONGEST_TEXT),
    ]
    return _Case(
        name=f"{label} {wording.check_name(finding)}: {title}{place}",
        result="skipped" if skipped else "failure" if wording.blocks(review, finding) else "passed",
        kind=f"{label} P{finding.severity.priority}",
        why=plain_line(skipped, longest=_LONGEST_TEXT) or title,
        text="\n\n".join(filter(None, parts)),
    )


def _case_xml(suite: str, case: _Case) -> str:
    file = {"file": suite} if is_inside(suite) and suite not in (_REVIEW, _NO_FILE) else {}
    inside = f"      <skipped{_attributes(message=case.why)}/>\n" if case.result == "skipped" else ""
    if case.result in ("failure", "error"):
        head = _attributes(type=case.kind, message=case.why)
        inside = f"      <{case.result}{head}>{escape(case.text)}</{case.result}>\n"
    elif case.text:
        inside += f"      <system-out>{escape(case.text)}</system-out>\n"
    return f"    <testcase{_attributes(classname=suite, name=case.name, **file)}>\n{inside}    </testcase>\n"


def _counted(counts: Counter[str]) -> dict[str, str]:
    named = {"tests": counts.total(), "failures": counts["failure"], "errors": counts["error"]}
    return {name: str(count) for name, count in named.items()}


def _attributes(**values: str) -> str:
    return "".join(f' {name}="{escape(value)}"' for name, value in values.items())
