"""`--since-last`: a review that reports only code that earlier rounds have not covered."""

from __future__ import annotations

from msgspec.structs import replace

from codeloupe.findings.earlier import Earlier
from codeloupe.findings.places import is_shown
from codeloupe.findings.verdict import conclude
from codeloupe.model.finding import Finding
from codeloupe.model.ports import Plan
from codeloupe.model.review import Review
from codeloupe.planning.coverage import uncovered


def since_last(outcome: Review, plan: Plan, earlier: Earlier) -> Review:
    """Return the review with only the findings in code that was not covered, and the others as omitted."""
    if not earlier.covered:
        return outcome
    new_code = {file.path: file for file in uncovered(plan.files, earlier.covered)}
    shown: list[Finding] = []
    omitted = list(outcome.omitted)
    for finding in (*outcome.findings, *outcome.hidden):
        file = new_code.get(finding.file)
        lines = (finding.first_line, finding.last_line)
        if file is not None and (not finding.anchored or is_shown(file, lines)):
            shown.append(finding)
        else:
            omitted.append(finding)
    apart = replace(outcome, findings=tuple(shown), hidden=(), hidden_findings=0, omitted=tuple(omitted))
    return conclude(apart)
