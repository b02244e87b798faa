"""What SARIF is told of the run itself: what was not reviewed, and what else went wrong."""

from __future__ import annotations

from typing import Any

from codeloupe.model.review import Review
from codeloupe.reports.gaps import GapKind, errors_beside_gaps, gaps_of
from codeloupe.reports.sarif_places import file_locations
from codeloupe.reports.sarif_results import message
from codeloupe.system.untrusted import is_inside, plain_path, plain_text

_ERROR = "problem"
_PATHLESS = "finding-without-file"
_SKIPPED = "file-left-out"
NOTIFICATION_KINDS = {
    GapKind.CLAIM.value: "A critical or high claim could be neither placed in the code nor refuted.",
    GapKind.UNIT.value: "A piece of the change could not be reviewed.",
    GapKind.FILE.value: "A file of the change could not be reviewed.",
    GapKind.UNKNOWN.value: "Not everything could be reviewed.",
    _ERROR: "Something went wrong and did not stop the review.",
    _PATHLESS: "A finding names no file of the repository.",
    _SKIPPED: "A file was left out on purpose.",
}
_LONGEST = 4_000
_MOST_FILES = 20


def notifications(review: Review) -> list[dict[str, Any]]:
    """Gaps as errors, other problems as warnings, files that the policy leaves out as notes.

    A finding that names no file of the repository stands here too: readers refuse a result without one.
    """
    gaps = [_notification(gap.kind.value, "error", gap.in_words(), files=gap.files) for gap in gaps_of(review)]
    errors = [
        _notification(_ERROR, "warning", f"{error.kind}: {error.message}") for error in errors_beside_gaps(review)
    ]
    left_out = [
        _notification(_SKIPPED, "note", f"{skip.file}: {skip.in_words()}", files=(skip.file,))
        for skip in review.coverage.skipped
        if not skip.is_gap
    ]
    pathless = [
        _notification(_PATHLESS, "note", f"{finding.severity.label} {plain_path(finding.file)}: {message(finding)}")
        for finding in review.findings
        if not is_inside(finding.file) and not finding.is_unsettled(review.policy.fail_on)
    ]
    return [*gaps, *errors, *pathless, *left_out]


def _notification(kind: str, level: str, words: str, *, files: tuple[str, ...] = ()) -> dict[str, Any]:
    whole: dict[str, Any] = {
        "descriptor": {"id": kind},
        "level": level,
        "message": {"text": plain_text(words, longest=_LONGEST).replace("](", "] (")},
    }
    if places := file_locations(files, most=_MOST_FILES):
        whole["locations"] = places
    return whole
