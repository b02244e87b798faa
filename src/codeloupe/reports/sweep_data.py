"""A sweep as JSON, version 1: fields are added, never changed."""

from __future__ import annotations

import json
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from codeloupe import __version__
from codeloupe.model.agent import Usage
from codeloupe.model.finding import Finding
from codeloupe.model.review import Review
from codeloupe.model.sweep import CommitReview, CommitSweep
from codeloupe.reports.json_v1 import ReviewV1, UsageV1, document
from codeloupe.reports.replacement import fix_of
from codeloupe.reports.sweep import description_of, evidence_of, expert_of, findings_of, verdict_in_words
from codeloupe.system.untrusted import (
    json_document,
    plain_code,
    plain_line,
    plain_path,
    plain_text,
    without_log_commands,
)


def render_sweep_json(sweep: CommitSweep) -> str:
    """The sweep as a JSON document: two spaces of indent, keys in a fixed order, a newline at the end.

    Always valid JSON that can be encoded as UTF-8, whatever the commits and findings hold.
    """
    return json_document(json.dumps(_document(sweep), indent=2, ensure_ascii=False, allow_nan=False)) + "\n"


def _document(sweep: CommitSweep) -> dict[str, Any]:
    commits = [_commit(commit) for commit in sweep.commits]
    reviewer = sweep.reviewer
    return {
        "schema_version": 1,
        "tool": {"name": "codeloupe", "version": __version__},
        "sweep_id": sweep.sweep_id,
        "description": sweep.description,
        "reviewer": reviewer and {"type": reviewer.type, "model": reviewer.model, "why": reviewer.why},
        "summary": sweep.summary,
        "score": sweep.score,
        "exit_code": sweep.exit_code,
        "strict": sweep.strict,
        "usage": document(UsageV1, sweep.usage),
        "commits": commits,
        "findings": [finding for commit in commits for finding in commit["findings"]],
    }


def _commit(reviewed: CommitReview) -> dict[str, Any]:
    commit, review = reviewed.commit, reviewed.review
    # As `review --format json` has it, so that both have the same fields.
    whole = {} if review is None else document(ReviewV1, review, schema_version=1, tool=None)
    findings = zip(review.findings, whole["findings"], strict=True) if review is not None else ()
    return {
        "sha": commit.sha,
        "author": commit.author,
        "email": commit.email,
        "time": commit.time.isoformat(),
        "subject": commit.subject,
        "category": reviewed.category.value,
        "experts": list(reviewed.experts),
        "files": list(commit.files),
        "insertions": commit.insertions,
        "deletions": commit.deletions,
        "verdict": verdict_in_words(reviewed),
        "score": reviewed.score,
        "reviewed": reviewed.reviewed,
        "failure": reviewed.failure or None,
        "findings": [_finding(finding, data) for finding, data in findings],
        "plan": [{"phase": step.phase, "text": step.text, "code": step.code or None} for step in reviewed.plan],
        "review": _review(review, whole) if review is not None else None,
    }


def _finding(finding: Finding, whole: dict[str, Any]) -> dict[str, Any]:
    """In a sweep the evidence is a place, `file:line`; the lines themselves are the quote."""
    return {
        "commit_sha": finding.commit_sha,
        "expert": expert_of(finding),
        "severity": finding.severity.label,
        "category": finding.category,
        "description": description_of(finding),
        "evidence": evidence_of(finding),
        "quote": finding.evidence,
        **{key: value for key, value in whole.items() if key not in ("commit_sha", "expert", "evidence")},
    }


def _review(review: Review, whole: dict[str, Any]) -> dict[str, Any]:
    kept = ("review_id", "complete", "summary", "coverage", "usage", "errors", "hidden_findings")
    return {"base": review.scope.base, "head": review.scope.head, **{key: whole[key] for key in kept}}


_HEADER = '<?xml version="1.0" encoding="UTF-8"?>\n'
_LONGEST_LINE = 5_000
_LONGEST_TEXT = 50_000


def render_sweep_xml(sweep: CommitSweep) -> str:
    """The sweep as a well-formed document in UTF-8, whatever the commits and findings hold."""
    root = Element(
        "sweep",
        {
            "schema-version": "1",
            "tool": "codeloupe",
            "version": __version__,
            "id": plain_line(sweep.sweep_id, longest=_LONGEST_LINE),
            **_score(sweep.score),
            "exit-code": str(sweep.exit_code),
            "strict": _boolean(value=sweep.strict),
        },
    )
    _line(root, "description", sweep.description)
    _line(root, "summary", sweep.summary)
    if sweep.reviewer is not None:
        reviewer = _line(root, "reviewer", sweep.reviewer.why)
        reviewer.set("type", plain_line(sweep.reviewer.type, longest=_LONGEST_LINE))
        if sweep.reviewer.model:
            reviewer.set("model", plain_line(sweep.reviewer.model, longest=_LONGEST_LINE))
    SubElement(root, "usage", _usage(sweep.usage))
    commits = SubElement(root, "commits", {"count": str(len(sweep.commits))})
    for commit in sweep.commits:
        _sweep_xml_commit(commits, commit)
    indent(root)
    # It may be printed to the log of a CI system, which obeys lines of certain forms wherever they stand.
    return without_log_commands(f"{_HEADER}{tostring(root, encoding='unicode')}\n")


def _sweep_xml_commit(parent: Element, reviewed: CommitReview) -> None:
    commit = reviewed.commit
    element = SubElement(
        parent,
        "commit",
        {
            "sha": commit.sha,
            "time": commit.time.isoformat(),
            "category": reviewed.category.value,
            "verdict": verdict_in_words(reviewed),
            **_score(reviewed.score),
            "reviewed": _boolean(value=reviewed.reviewed),
            "insertions": str(commit.insertions),
            "deletions": str(commit.deletions),
        },
    )
    author = _line(element, "author", commit.author)
    author.set("email", plain_line(commit.email, longest=_LONGEST_LINE))
    _line(element, "subject", commit.subject)
    if reviewed.failure:
        _line(element, "failure", reviewed.failure)
    experts = SubElement(element, "experts")
    for expert in reviewed.experts:
        _line(experts, "expert", expert)
    files = SubElement(element, "files", {"count": str(len(commit.files))})
    for path in commit.files:
        SubElement(files, "file").text = plain_path(path)
    findings = SubElement(element, "findings", {"count": str(len(findings_of(reviewed)))})
    for finding in findings_of(reviewed):
        _sweep_xml_finding(findings, finding)
    plan = SubElement(element, "plan")
    for step in reviewed.plan:
        written = _line(plan, "step", step.text)
        written.set("phase", step.phase)
        if step.code:
            SubElement(written, "code").text = plain_code(step.code, longest=_LONGEST_TEXT)


def _sweep_xml_finding(parent: Element, finding: Finding) -> None:
    element = SubElement(
        parent,
        "finding",
        {
            "commit-sha": finding.commit_sha or "",
            "severity": finding.severity.label,
            "priority": str(finding.severity.priority),
            "category": plain_line(finding.category, longest=_LONGEST_LINE),
            "expert": plain_line(expert_of(finding), longest=_LONGEST_LINE),
            "reviewer": plain_line(finding.reviewer, longest=_LONGEST_LINE),
            "fingerprint": plain_line(finding.fingerprint, longest=_LONGEST_LINE),
            "status": finding.status.value,
            "anchored": _boolean(value=finding.anchored),
            "counts": _boolean(value=finding.can_block),
        },
    )
    SubElement(element, "description").text = plain_text(description_of(finding), longest=_LONGEST_TEXT)
    SubElement(element, "evidence").text = plain_path(evidence_of(finding))
    SubElement(element, "quote").text = plain_code(finding.evidence, longest=_LONGEST_TEXT)
    if finding.suggestion:
        SubElement(element, "suggestion").text = plain_code(finding.suggestion, longest=_LONGEST_TEXT)
    if code := fix_of(finding).code:
        SubElement(element, "replacement").text = plain_code(code, longest=_LONGEST_TEXT)
    if finding.verification:
        _line(element, "verification", finding.verification)


def _line(parent: Element, name: str, text: str) -> Element:
    element = SubElement(parent, name)
    element.text = plain_line(text, longest=_LONGEST_LINE)
    return element


def _score(score: float | None) -> dict[str, str]:
    return {} if score is None else {"score": f"{score:.2f}"}


def _boolean(*, value: bool) -> str:
    return "true" if value else "false"


def _usage(usage: Usage) -> dict[str, str]:
    return {
        "requests": str(usage.requests),
        "cached": str(usage.cached),
        "input-tokens": str(usage.input_tokens),
        "output-tokens": str(usage.output_tokens),
        "cost-usd": f"{usage.cost_usd:.6f}",
        "duration-seconds": f"{usage.duration_seconds:.3f}",
    }
