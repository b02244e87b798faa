"""What was done on a pull request, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from codeloupe.model.finding import Finding
from codeloupe.model.publication import (
    AnswerKind,
    InlineComment,
    Opinion,
    Publication,
    StatusKind,
    WithoutComment,
)
from codeloupe.reports.wording import counted, place_in_words
from codeloupe.system.redaction import redact
from codeloupe.system.untrusted import json_document, log_line

_SHOWN = 10
_LONGEST_LINE = 300
_LONGEST_TITLE = 1_000
_ANSWERS = {
    AnswerKind.GONE: ("fixed finding answered", "fixed findings answered"),
    AnswerKind.ASIDE: ("finding that does not count any more closed", "findings that do not count any more closed"),
    AnswerKind.BACK: ("finding that is back opened again", "findings that are back opened again"),
}
_OPINIONS = {
    Opinion.APPROVE: "approved",
    Opinion.REQUEST_CHANGES: "changes requested",
}


def render_publication(publication: Publication) -> str:
    """A few lines: what was posted, what stands, what went to the summary, what maintainers dismissed."""
    plan = publication.plan
    head = f"{plan.pull_request.name} at {plan.pull_request.head[:12]}: {plan.conclusion.value}"
    lines = [f"{head}{' (dry run: nothing was posted)' if publication.dry_run else ''}", *_lines(publication)]
    if publication.summary_url:
        lines.append(f"  {publication.summary_url}")
    return "".join(f"{log_line(redact(line)[:_LONGEST_LINE])}\n" for line in lines)


def _lines(publication: Publication) -> Iterator[str]:
    plan = publication.plan
    posted = plan.comments if publication.dry_run else publication.posted
    yield f"  {counted(len(posted), 'new comment', 'new comments')}, {len(plan.known):,} known before"
    yield from _listed([f"{place_in_words(one.finding)}  {one.finding.title[:_LONGEST_TITLE]}" for one in posted])
    answers = plan.answers if publication.dry_run else publication.answered
    for kind, (one, many) in _ANSWERS.items():
        if count := sum(answer.kind is kind for answer in answers):
            yield f"  {counted(count, one, many)}"
    without = (*plan.without_comment, *publication.refused)
    if without:
        yield f"  {counted(len(without), 'finding', 'findings')} only in the summary"
        yield from _listed([f"{place_in_words(one.finding)}  {one.reason}" for one in without])
    if plan.dismissed:
        yield f"  {counted(len(plan.dismissed), 'finding', 'findings')} dismissed by maintainers"
    opinion = plan.opinion if publication.dry_run else publication.opinion
    if opinion in _OPINIONS:
        yield f"  {_OPINIONS[opinion]}"
    if withdrawn := plan.withdrawn if publication.dry_run else publication.withdrawn:
        yield f"  {counted(len(withdrawn), 'earlier opinion', 'earlier opinions')} withdrawn"
    if not publication.dry_run:
        yield f"  summary {publication.summary.value}{_status(publication)}"
    yield from (f"  {note}" for note in plan.notes)


def _status(publication: Publication) -> str:
    if publication.status is StatusKind.NONE:
        return ""
    return ", check run set" if publication.status is StatusKind.CHECK else ", commit status set"


def _listed(lines: list[str]) -> Iterator[str]:
    yield from (f"    {line}" for line in lines[:_SHOWN])
    if len(lines) > _SHOWN:
        yield f"    and {len(lines) - _SHOWN:,} more"


def publication_json(publication: Publication) -> str:
    """The same as a JSON document of version 1; fields are added, never changed."""
    plan = publication.plan
    posted = plan.comments if publication.dry_run else publication.posted
    answers = plan.answers if publication.dry_run else publication.answered
    opinion = plan.opinion if publication.dry_run else publication.opinion
    data: dict[str, Any] = {
        "schema_version": 1,
        "pull_request": str(plan.pull_request.name),
        "head": plan.pull_request.head,
        "review_id": plan.review.review_id,
        "dry_run": publication.dry_run,
        "conclusion": plan.conclusion.value,
        "posted": [_comment(one) for one in posted],
        "known": [_finding(one) for one in plan.known],
        "in_summary": [_without(one) for one in (*plan.without_comment, *publication.refused)],
        "answers": [{"kind": one.kind.value, "file": one.path, "resolved": one.resolved} for one in answers],
        "dismissed": [{**_finding(one.finding), "who": one.who, "reason": one.reason} for one in plan.dismissed],
        "opinion": None if opinion is None else opinion.value,
        "withdrawn": len(plan.withdrawn if publication.dry_run else publication.withdrawn),
        "summary": {"change": publication.summary.value, "url": publication.summary_url or None},
        "status": publication.status.value,
        "notes": list(plan.notes),
        "problems": [{"message": one.message, "hint": one.hint, "minor": one.is_minor} for one in publication.problems],
        "exit_code": publication.exit_code,
    }
    return json_document(json.dumps(data, indent=2, ensure_ascii=False)) + "\n"


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "fingerprint": finding.fingerprint,
        "file": finding.file,
        "line_start": finding.line_start,
        "severity": finding.severity.label,
        "title": redact(finding.title[:_LONGEST_TITLE]),
    }


def _comment(one: InlineComment) -> dict[str, Any]:
    return {**_finding(one.finding), "line": one.line, "start_line": one.start_line}


def _without(one: WithoutComment) -> dict[str, Any]:
    return {**_finding(one.finding), "reason": one.reason}
