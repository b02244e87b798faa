"""One line a finding, as compilers and linters print them, and the verdict as the last.

Apart from the text report, since that loads a library for its layout.
"""

from __future__ import annotations

from codeloupe.model.review import Review
from codeloupe.reports.wording import (
    check_name,
    errors_beside_gaps,
    gaps_without_claims,
    outcome_of,
    place_in_words,
    short_id,
    worst_first,
)
from codeloupe.system.untrusted import in_ascii, plain_line, plain_path, without_log_commands


def render_concise(review: Review, *, ascii_only: bool = False) -> str:
    """The review in lines; never empty, as the last one is the verdict."""
    lines = []
    for finding in worst_first(one for one in review.findings if one.is_open):
        name = check_name(finding)
        identity = f" ({short_id(finding)})" if finding.fingerprint else ""
        what = f"{finding.severity.label}: {_line(finding.title) or name} [{name}]{identity}"
        lines.append(f"{plain_path(place_in_words(finding))}: {what}")
    lines += [
        f"{plain_path(gap.name) or '?'}: not reviewed: {_line(gap.reason)}".removesuffix(": ")
        for gap in gaps_without_claims(review)
    ]
    outcome = outcome_of(review)
    lines += [_line(f"codeloupe: {error.kind}: {error.message}") for error in errors_beside_gaps(review)]
    lines.append(_line(f"{outcome.word}: {outcome.why}"))
    text = without_log_commands("".join(f"{line}\n" for line in lines))
    return in_ascii(text) if ascii_only and not text.isascii() else text


def _line(text: str) -> str:
    return plain_line(text, longest=500)
