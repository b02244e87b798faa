"""`--since-last`: a review that reports only code that earlier rounds have not covered."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from codeloupe.findings.claims import settled
from codeloupe.findings.earlier import Earlier
from codeloupe.findings.places import is_shown
from codeloupe.findings.verdict import conclude
from codeloupe.model.finding import Finding
from codeloupe.model.ports import Plan
from codeloupe.model.review import Policy, Review, ReviewError
from codeloupe.planning.coverage import uncovered

# The kind of the error for findings that block and are omitted.
OMITTED = "left_open"


def since_last(outcome: Review, plan: Plan, earlier: Earlier) -> tuple[Review, tuple[Finding, ...]]:
    """Return the review of the code that was not covered, and the findings that it omits.

    It is incomplete if an omitted finding blocks.
    """
    if not earlier.covered:
        return outcome, ()
    new_code = {file.path: file for file in uncovered(plan.files, earlier.covered)}
    shown: list[Finding] = []
    omitted: list[Finding] = []
    for finding in (*outcome.findings, *outcome.hidden):
        file = new_code.get(finding.file)
        lines = (finding.first_line, finding.last_line)
        if file is not None and (not finding.anchored or is_shown(file, lines)):
            shown.append(finding)
        else:
            omitted.append(finding)
    errors = omitted_errors(omitted, outcome.policy)
    is_complete = outcome.coverage.complete and not errors
    concluded = conclude(outcome, shown, outcome.policy, saw_everything=is_complete)
    summary = f"{concluded.summary}; only code that the last review has not covered"
    return replace(concluded, summary=summary, errors=(*concluded.errors, *errors)), tuple(omitted)


def omitted_errors(omitted: Sequence[Finding], policy: Policy) -> tuple[ReviewError, ...]:
    """Return the error for the omitted findings that block under a policy or are pending, if there are any."""
    blocking: list[Finding] = []
    for finding in omitted:
        judged = settled(finding, policy)
        blocks = judged.can_block and judged.severity.at_least(policy.fail_on)
        if blocks or (judged.is_open and judged.is_pending):
            blocking.append(judged)
    if not blocking:
        return ()
    count = "1 open finding" if len(blocking) == 1 else f"{len(blocking):,} open findings"
    wanted = policy.fail_on.label
    message = f"--since-last omits {count} of {wanted} or above in code that an earlier review covered"
    return (ReviewError(OMITTED, message),)
