"""SARIF 2.1.0: one run, with rules, results, and whether the tool could do its work.

Every finding in a file is a result. One that does not count (refuted, unproven, suppressed, dismissed, fixed, silenced,
gone) is marked as suppressed. One whose code was not found has no region, and one that needs a person is a warning.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from codeloupe.model.finding import Finding, FindingStatus, Severity, SuppressionKind
from codeloupe.model.review import Review
from codeloupe.reports import wording
from codeloupe.reports.json_v1 import TOOL, fields_of, json_text
from codeloupe.reports.replacement import fix_of
from codeloupe.system.untrusted import is_inside, plain_code, plain_line, plain_text, terminal

_SOURCE_ROOT = "%SRCROOT%"
_LARGEST_LINE = 2**31 - 1
_LONGEST_TEXT = 8_000
# Level, rank, and the scale of CVSS, on which GitHub ranks what concerns security.
_RANKS = (("error", 95.0, "9.5"), ("error", 75.0, "8.0"), ("warning", 50.0, "5.5"), ("note", 25.0, "2.0"))
_STEPS = dict(zip(Severity, _RANKS, strict=True))
_OF_HISTORY = frozenset(
    (FindingStatus.OPEN, FindingStatus.REGRESSED, FindingStatus.FIXED, FindingStatus.SILENCED, FindingStatus.GONE)
)
# Any other status is that of a finding which this review has found for the first time.
_BASELINE_STATES = {
    FindingStatus.OPEN: "unchanged",
    FindingStatus.DISMISSED: "unchanged",
    FindingStatus.SILENCED: "unchanged",
    FindingStatus.FIXED: "absent",
    FindingStatus.GONE: "absent",
}
_NOTIFICATIONS = {
    wording.CLAIM: "A claim could not be settled and needs a person.",
    wording.OMITTED: "An open finding in code that an earlier review covered is omitted.",
    wording.UNIT: "A piece of the change could not be reviewed.",
    wording.FILE: "A file of the change could not be reviewed.",
    wording.UNKNOWN: "Not everything could be reviewed.",
    "problem": "Something went wrong and did not stop the review.",
    "note": "A fact that the reader of the verdict should know.",
    "finding-without-file": "A finding names no file of the repository.",
    "failover": "An agent answered in place of another one.",
    "file-left-out": "A file was skipped on purpose.",
}


def render_sarif(review: Review) -> str:
    """The review as a SARIF log. Always a valid one that can be encoded as UTF-8, whatever the findings hold."""
    placed = [finding for finding in review.findings if is_inside(finding.file)]
    groups: dict[str, list[Finding]] = {}
    for finding in placed:
        groups.setdefault(wording.check_name(finding), []).append(finding)
    names = sorted(groups)
    # Only a review that was compared with an earlier one knows the states; then those of all results are known.
    with_history = any(finding.status in _OF_HISTORY for finding in placed)
    kinds = [{"id": kind, "shortDescription": {"text": words}} for kind, words in _NOTIFICATIONS.items()]
    invocation = {
        "executionSuccessful": review.complete,
        "exitCode": review.exit_code,
        "exitCodeDescription": wording.outcome_of(review).why,
        "toolExecutionNotifications": _notifications(review),
    }
    run = {
        "tool": {"driver": {**TOOL, "rules": [_rule(name, groups[name]) for name in names], "notifications": kinds}},
        "automationDetails": {"id": f"codeloupe/{plain_line(review.review_id, longest=100)}"},
        "originalUriBaseIds": {_SOURCE_ROOT: {"description": {"text": "The root of the reviewed repository."}}},
        "columnKind": "unicodeCodePoints",
        "invocations": [invocation],
        "results": [
            _result(finding, index=names.index(wording.check_name(finding)), with_history=with_history)
            for finding in placed
        ],
        "properties": {
            **fields_of(review, "verdict passed complete"),
            "summary": plain_line(review.summary, longest=500),
            "scope": plain_line(review.scope.description, longest=500),
            "reviewer": plain_line(wording.reviewer_text(review.reviewer), longest=500),
            "filesTotal": review.coverage.files_total,
            "filesReviewed": review.coverage.files_reviewed,
            "hiddenFindings": review.hidden_findings,
        },
    }
    return json_text({"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]})


def _rule(name: str, findings: list[Finding]) -> dict[str, Any]:
    worst = min((finding.severity for finding in findings), key=lambda severity: severity.priority)
    first = findings[0]
    tags = list(dict.fromkeys(plain_line(finding.category, longest=80) for finding in findings))[:10]
    properties: dict[str, Any] = {"tags": [tag for tag in tags if tag]}
    if any(finding.category.strip().lower() == "security" for finding in findings):
        properties["security-severity"] = _STEPS[worst][2]
    return {
        "id": name,
        "shortDescription": {"text": _rule_title(first)},
        "defaultConfiguration": {"level": _STEPS[worst][0]},
        "properties": properties,
    }


def _rule_title(finding: Finding) -> str:
    """Return the analyser's own title of a finding's rule; a finding without a rule has the title of its category."""
    claim = next((claim for claim in finding.claims if claim.rule), None)
    title = finding.category
    if claim is not None:
        title = claim.rule_title or claim.title
    return plain_line(title, longest=500).replace("](", "] (") or "general"


def _notifications(review: Review) -> list[dict[str, Any]]:
    """Return gaps as errors, other problems as warnings, and notes, failovers and skipped files as notes.

    A finding that names no file of the repository is here too, because readers refuse a result without one.
    """
    nowhere = [one for one in review.findings if not is_inside(one.file) and not wording.why_pending(one)]
    found: list[tuple[str, str, str, tuple[str, ...]]] = [
        *((gap.kind, "error", gap.describe(), gap.files) for gap in wording.gaps_of(review)),
        *(("problem", "warning", problem, ()) for problem in wording.problems_of(review)),
        *(("note", "note", note, ()) for note in wording.notes_of(review)),
        *(
            ("finding-without-file", "note", f"{one.severity.label} {terminal(one.file)}: {_message(one)}", ())
            for one in nowhere
        ),
        *(
            ("failover", "note", f"{', '.join(each.units[:20])}: {each.why}", ())
            for each in wording.failovers_of(review)
        ),
        *(("file-left-out", "note", f"{skip.file}: {skip.describe()}", (skip.file,)) for skip in review.left_out),
    ]
    notifications = []
    for kind, level, words, files in found:
        text = plain_text(words, longest=4_000).replace("](", "] (")
        whole: dict[str, Any] = {"descriptor": {"id": kind}, "level": level, "message": {"text": text}}
        if inside := [path for path in dict.fromkeys(files) if is_inside(path)][:20]:
            whole["locations"] = [{"physicalLocation": {"artifactLocation": _artifact(path)}} for path in inside]
        notifications.append(whole)
    return notifications


def _result(finding: Finding, *, index: int, with_history: bool) -> dict[str, Any]:
    needs_person = bool(wording.why_pending(finding)) and not finding.counts
    place: dict[str, Any] = {"artifactLocation": _artifact(finding.file)}
    if 0 < (start := finding.first_line) <= _LARGEST_LINE:
        place["region"] = {"startLine": start, "endLine": min(max(start, finding.last_line), _LARGEST_LINE)}
        if finding.evidence.strip():
            text = plain_code(finding.evidence.rstrip("\n"), longest=_LONGEST_TEXT)
            place["region"]["snippet"] = {"text": text}
    whole: dict[str, Any] = {
        "ruleId": wording.check_name(finding),
        "ruleIndex": index,
        "level": "warning" if needs_person else _STEPS[finding.severity][0],
        "rank": _STEPS[finding.severity][1] + min(finding.agreement - 1, 4),
        "message": {"text": _message(finding)},
        "locations": [{"physicalLocation": place}],
    }
    if finding.fingerprint:
        whole["partialFingerprints"] = {"codeloupeFingerprint/v1": plain_line(finding.fingerprint, longest=200)}
    if why := wording.why_not_counted(finding):
        kind = "inSource" if _is_hidden_by_comment(finding) else "external"
        reason = plain_text(why, longest=_LONGEST_TEXT)
        whole["suppressions"] = [{"kind": kind, "status": "accepted", "justification": reason}]
    if with_history:
        whole["baselineState"] = _BASELINE_STATES.get(finding.status, "new")
    if (edit := fix_of(finding).edit) is not None:
        lines = {"startLine": edit.line_start, "endLine": edit.line_end}
        change = {
            "artifactLocation": _artifact(finding.file),
            "replacements": [{"deletedRegion": lines, "insertedContent": {"text": edit.text}}],
        }
        text = "Replace these lines as suggested."
        whole["fixes"] = [{"description": {"text": text}, "artifactChanges": [change]}]
    return {**whole, "properties": _properties(finding)}


def _is_hidden_by_comment(finding: Finding) -> bool:
    if finding.suppression is None:
        return finding.status is FindingStatus.SILENCED
    return finding.suppression.kind is SuppressionKind.INLINE


def _artifact(path: str) -> dict[str, str]:
    """The address of a file; every byte of its name that could mean something in an address is encoded."""
    try:
        name = path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        # No path of git holds such a character; a model may write anything.
        name = path.encode("utf-8", "surrogatepass")
    return {"uri": quote(name, safe="/"), "uriBaseId": _SOURCE_ROOT}


def _message(finding: Finding) -> str:
    fix = fix_of(finding)
    words = plain_code(fix.words.strip("\n").rstrip(), longest=_LONGEST_TEXT)
    code = plain_code(fix.code, longest=_LONGEST_TEXT) if fix.edit is None else ""
    advice = "\n\n".join(filter(None, (words, code)))
    parts = [
        plain_line(finding.title, longest=500) or wording.check_name(finding),
        plain_text(finding.body, longest=_LONGEST_TEXT),
        f"Fix: {advice}" if advice else "",
        "" if finding.anchored else "The code of this finding was not found.",
        f"Needs a person: {wording.why_pending(finding)}." if wording.why_pending(finding) else "",
    ]
    # Viewers make a link of `[words](address)`.
    return "\n\n".join(filter(None, parts)).replace("](", "] (")


def _properties(finding: Finding) -> dict[str, Any]:
    known = {
        **fields_of(finding, "severity priority"),
        "category": plain_line(finding.category, longest=200),
        "reviewer": plain_line(finding.reviewer, longest=200),
        "expert": plain_line(finding.expert or "", longest=200) or None,
        **fields_of(finding, "status anchored"),
        "outsideChange": finding.outside_change,
        **fields_of(finding, "counts agreement"),
        "verification": plain_text(wording.proof_text(finding), longest=_LONGEST_TEXT) or None,
        "furtherClaims": [plain_line(claim, longest=500) for claim in wording.further_claims(finding)] or None,
        "commit": plain_line(finding.commit_sha or "", longest=100) or None,
    }
    return {name: value for name, value in known.items() if value is not None}
