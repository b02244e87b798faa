"""`codeloupe publish`: a saved review on a pull request. Its options are in `publish_options`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from codeloupe.cli.options import add_json_option, add_repo_option
from codeloupe.cli.output import set_up_logging, write_result
from codeloupe.cli.parser import Parser
from codeloupe.cli.running import run_to_end
from codeloupe.errors import UsageError
from codeloupe.forges.publishing import PublishRequest, publish_github
from codeloupe.model.finding import Finding
from codeloupe.model.publication import (
    AnswerKind,
    InlineComment,
    Opinion,
    Publication,
    PublishOptions,
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


def run(arguments: argparse.Namespace) -> int:
    """Publish, tell what was done, and return the exit code. Raises UsageError, StoreError and ForgeError."""
    set_up_logging(verbose=False)
    if arguments.max_comments < 0:
        raise UsageError("--max-comments is less than nothing", hint="give 0 or more")
    publication = run_to_end(publish_github(_request(arguments)))
    write_result(publication_json(publication) if arguments.json else render_publication(publication))
    _tell_problems(publication)
    return publication.exit_code


def _request(arguments: argparse.Namespace) -> PublishRequest:
    return PublishRequest(
        repo=arguments.repo,
        pull_request=arguments.pr,
        repository=arguments.repo_name,
        review=arguments.review,
        options=PublishOptions(
            max_comments=arguments.max_comments,
            approve=arguments.approve,
            request_changes=arguments.request_changes,
            resolve=not arguments.no_resolve,
        ),
        status=None if arguments.status is None else StatusKind(arguments.status),
        app_id=arguments.app_id,
        app_key_file=arguments.app_key,
        dry_run=arguments.dry_run,
    )


def _tell_problems(publication: Publication) -> None:
    for problem in publication.problems:
        print(f"codeloupe: {log_line(problem.message)}", file=sys.stderr)
        if problem.hint:
            print(f"  hint: {log_line(problem.hint)}", file=sys.stderr)


_EPILOG = """\
The token comes from GITHUB_TOKEN or GH_TOKEN, or from a GitHub App (--app-id, --app-key). No model is asked.
Run it again after each push: one summary, no comment twice, fixed threads are answered and resolved.
To set a finding aside on the pull request, a maintainer replies `dismiss: why`, or reacts with a thumb down.

exit codes:
  0  posted
  2  wrong usage, or rights are missing
  3  could not post, or not everything, or the pull request has newer commits
"""


def configure(parser: Parser) -> None:
    """Add the places to publish at to the parser of `publish`."""
    parser.description = "Post a saved review on a pull request."
    parser.elsewhere["gitlab"] = "`codeloupe review --format gitlab` writes a Code Quality report, which GitLab shows"
    places = parser.add_commands(dest="place")
    github = places.add_parser(
        "github",
        help="post it on a GitHub pull request",
        description="Post a saved review on a pull request of GitHub.",
        epilog=_EPILOG,
    )
    _add_what(github)
    _add_how(github)
    _add_login(github)


def _add_what(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--pr",
        metavar="N|URL",
        default="",
        help="the pull request: its number, OWNER/NAME#N, or its page (default: that of the GitHub Actions event)",
    )
    parser.add_argument(
        "--repo-name",
        metavar="OWNER/NAME",
        default="",
        help="its repository (default: that of the event, or of the clone's origin)",
    )
    parser.add_argument(
        "--review",
        metavar="ID|FILE",
        default="last",
        help="a saved review by its id, or a JSON report; - is standard input (default: the last of this repository)",
    )
    add_repo_option(parser)


def _add_how(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="read the pull request and say what would be done")
    parser.add_argument(
        "--max-comments",
        metavar="N",
        type=int,
        default=20,
        help="at most N open threads, the most severe first; the rest is in the summary (default: 20)",
    )
    parser.add_argument(
        "--approve", action="store_true", help="approve when everything was reviewed and nothing blocks"
    )
    parser.add_argument("--request-changes", action="store_true", help="request changes when something blocks")
    parser.add_argument("--no-resolve", action="store_true", help="answer in threads, and leave them as they are")
    parser.add_argument(
        "--status",
        metavar="WHAT",
        choices=["check", "commit", "none"],
        help="check: a check run (Actions and Apps); commit: a commit status; none (default: by the token)",
    )
    add_json_option(parser, "print what was done, as JSON")


def _add_login(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--app-id", metavar="ID", default="", help="log in as this GitHub App (or CODELOUPE_APP_ID)")
    parser.add_argument(
        "--app-key", metavar="FILE", type=Path, help="the App's private key (or CODELOUPE_APP_KEY_FILE)"
    )
