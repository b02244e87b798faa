"""One line a finding, as compilers and linters print them, and the verdict as the last.

Apart from the text report, since that loads a library for its layout.
"""

from __future__ import annotations

from codeloupe.model.finding import Finding
from codeloupe.model.review import Review
from codeloupe.reports.wording import (
    Gap,
    GapKind,
    check_name,
    errors_beside_gaps,
    gaps_of,
    outcome_of,
    place_in_words,
    short_id,
    worst_first,
)
from codeloupe.system.untrusted import in_ascii, plain_line, plain_path, without_log_commands

_LONGEST = 500


def render_concise(review: Review, *, ascii_only: bool = False) -> str:
    """The review in lines; never empty, as the last one is the verdict."""
    outcome = outcome_of(review)
    lines = [
        *(_finding(finding) for finding in worst_first(one for one in review.findings if one.is_open)),
        # A claim without a place is among the findings.
        *(_gap(gap) for gap in gaps_of(review) if gap.kind is not GapKind.CLAIM),
        *(
            plain_line(f"codeloupe: {error.kind}: {error.message}", longest=_LONGEST)
            for error in errors_beside_gaps(review)
        ),
        plain_line(f"{outcome.word}: {outcome.why}", longest=_LONGEST),
    ]
    text = without_log_commands("".join(f"{line}\n" for line in lines))
    return in_ascii(text) if ascii_only and not text.isascii() else text


def _finding(finding: Finding) -> str:
    name = check_name(finding)
    title = plain_line(finding.title, longest=_LONGEST) or name
    identity = f" ({short_id(finding)})" if finding.fingerprint else ""
    return f"{plain_path(place_in_words(finding))}: {finding.severity.label}: {title} [{name}]{identity}"


def _gap(gap: Gap) -> str:
    return f"{plain_path(gap.name) or '?'}: not reviewed: {plain_line(gap.reason, longest=_LONGEST)}".removesuffix(": ")
