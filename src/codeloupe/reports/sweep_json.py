"""A sweep as JSON, version 1: fields are added, never changed."""

from __future__ import annotations

import json
from typing import Any

from codeloupe import __version__
from codeloupe.model.finding import Finding
from codeloupe.model.review import Review
from codeloupe.model.sweep import CommitReview, CommitSweep
from codeloupe.reports.json_usage import usage_v1
from codeloupe.reports.json_v1 import render_json
from codeloupe.reports.sweep_words import description_of, evidence_of, expert_of, verdict_in_words
from codeloupe.system.untrusted import json_document


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
        "usage": usage_v1(sweep.usage),
        "commits": commits,
        "findings": [finding for commit in commits for finding in commit["findings"]],
    }


def _commit(reviewed: CommitReview) -> dict[str, Any]:
    commit, review = reviewed.commit, reviewed.review
    # As `review --format json` has it, so that both have the same fields.
    document: dict[str, Any] = json.loads(render_json(review)) if review is not None else {}
    findings = zip(review.findings, document["findings"], strict=True) if review is not None else ()
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
        "findings": [_finding(finding, whole) for finding, whole in findings],
        "plan": [{"phase": step.phase, "text": step.text, "code": step.code or None} for step in reviewed.plan],
        "review": _review(review, document) if review is not None else None,
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


def _review(review: Review, document: dict[str, Any]) -> dict[str, Any]:
    kept = ("review_id", "complete", "summary", "coverage", "usage", "errors", "hidden_findings")
    return {"base": review.scope.base, "head": review.scope.head, **{key: document[key] for key in kept}}
