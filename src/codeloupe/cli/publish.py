"""`codeloupe publish`: a saved review on a pull request."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from codeloupe.cli import options
from codeloupe.cli.parser import Parser, add_examples, flag, option, sentence
from codeloupe.cli.verbs import note, run_to_end, set_up_logging, write_result
from codeloupe.errors import UsageError
from codeloupe.forges.publishing import PublishRequest, publish_github
from codeloupe.model.finding import Finding
from codeloupe.model.publication import AnswerKind, Opinion, Publication, PublishOptions, StatusKind
from codeloupe.reports.json_v1 import fields_of, json_text
from codeloupe.reports.wording import counted, place_text
from codeloupe.system.redaction import redact
from codeloupe.system.untrusted import log_line

_LONGEST_TITLE = 1_000
_ANSWERS = {
    AnswerKind.GONE: ("fixed finding answered", "fixed findings answered"),
    AnswerKind.ASIDE: ("finding that does not count any more closed", "findings that do not count any more closed"),
    AnswerKind.BACK: ("finding that is back opened again", "findings that are back opened again"),
}
_OPINIONS = {Opinion.APPROVE: "approved", Opinion.REQUEST_CHANGES: "changes requested"}
_STATUSES = {StatusKind.CHECK: ", check run set", StatusKind.COMMIT: ", commit status set", StatusKind.NONE: ""}
_EPILOG = """\
The token comes from GITHUB_TOKEN or GH_TOKEN, or from a GitHub App (--app-id, --app-key). No agent is called.

Run it again after each push: it updates the summary, posts no comment twice and resolves threads of fixed findings.
To dismiss a finding on the pull request, a maintainer replies `dismiss: why`, or reacts with a thumbs down.

exit codes:
  0  posted
  2  usage or configuration error, or missing permissions
  3  incomplete: something was not posted,
     or the pull request is closed or has newer commits
"""
_EXAMPLES = {
    "": ("codeloupe publish github --pr 12 --dry-run",),
    "github": (
        "codeloupe publish github --pr 12 --dry-run",
        "codeloupe publish github --pr ada/shop#12 --review review.json",
    ),
}


def configure(parser: Parser) -> None:
    """Add the places to publish at to the parser of `publish`."""
    parser.description = "Post a stored review on a pull request."
    about = "post a stored review on a GitHub pull request"
    places = parser.add_commands(dest="place")
    github = places.add_parser("github", help=about, description=sentence(about), epilog=_EPILOG)
    about = "the pull request, or OWNER/NAME#N (default: that of the GitHub Actions event)"
    option(github, "--pr", "N|URL", about, default="")
    about = "its repository (default: that of the event, or origin)"
    option(github, "--repo-name", "OWNER/NAME", about, default="")
    about = f"a stored review: {options.AN_ID}; or a JSON report, - is standard input (default: last)"
    option(github, "--review", "ID|FILE", about, default="last")
    options.add(github, "--repo")
    flag(github, "--dry-run", "show what would be posted, and post nothing")
    about = "at most N open threads, the most severe first; the summary has the rest (default: 20)"
    option(github, "--max-comments", "N", about, type=int, default=20)
    flag(github, "--approve", "approve if the review is complete and passes")
    flag(github, "--request-changes", "request changes if a finding blocks")
    flag(github, "--no-resolve", "answer in threads, and do not resolve them")
    about = "check (a check run), commit (a commit status) or none (default: by the token)"
    option(github, "--status", "WHAT", about, choices=["check", "commit", "none"])
    flag(github, "--json", "print what was done, as JSON")
    option(github, "--app-id", "ID", "log in as this GitHub App (or CODELOUPE_APP_ID)", default="")
    option(github, "--app-key", "FILE", "the App's private key (or CODELOUPE_APP_KEY_FILE)", type=Path)
    add_examples(parser, _EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Publish, say what was done, and return the exit code. Raises UsageError, StoreError and ForgeError."""
    set_up_logging()
    if arguments.max_comments < 0:
        raise UsageError("--max-comments is negative", hint="give 0 or more")
    how = {name: getattr(arguments, name) for name in ("max_comments", "approve", "request_changes")}
    request = PublishRequest(
        pull_request=arguments.pr,
        repository=arguments.repo_name,
        options=PublishOptions(**how, resolve=not arguments.no_resolve),
        status=None if arguments.status is None else StatusKind(arguments.status),
        app_key_file=arguments.app_key,
        **{name: getattr(arguments, name) for name in ("repo", "review", "app_id", "dry_run")},
    )
    publication = run_to_end(publish_github(request))
    write_result(publication_json(publication) if arguments.json else render_publication(publication))
    for problem in publication.problems:
        note(problem.message)
        if problem.hint:
            print(f"  hint: {log_line(problem.hint)}", file=sys.stderr)
    return publication.exit_code


def _as_if_done(publication: Publication) -> Publication:
    """What was done, or in a dry run would be."""
    plan = publication.plan
    if not publication.dry_run:
        return publication
    would = {"posted": plan.comments, "answered": plan.answers, "opinion": plan.opinion, "withdrawn": plan.withdrawn}
    return replace(publication, **would)


def render_publication(publication: Publication) -> str:
    """A few lines: what was posted, what is unchanged, what went to the summary, what maintainers dismissed."""
    plan = publication.plan
    head = f"{plan.pull_request.name} at {plan.pull_request.head[:12]}: {plan.conclusion.value}"
    lines = [f"{head}{' (dry run: nothing was posted)' if publication.dry_run else ''}", *_lines(publication)]
    if publication.summary_url:
        lines.append(f"  {publication.summary_url}")
    return "".join(f"{log_line(redact(line)[:300])}\n" for line in lines)


def _lines(publication: Publication) -> Iterator[str]:
    plan, done = publication.plan, _as_if_done(publication)
    yield f"  {counted(len(done.posted), 'new comment')}, {len(plan.known):,} known before"
    yield from _listed([f"{place_text(one.finding)}  {one.finding.title[:_LONGEST_TITLE]}" for one in done.posted])
    for kind, (one, many) in _ANSWERS.items():
        if count := sum(answer.kind is kind for answer in done.answered):
            yield f"  {counted(count, one, many)}"
    if without := (*plan.without_comment, *publication.refused):
        yield f"  {counted(len(without), 'finding')} only in the summary"
        yield from _listed([f"{place_text(one.finding)}  {one.reason}" for one in without])
    if plan.dismissed:
        yield f"  {counted(len(plan.dismissed), 'finding')} dismissed by maintainers"
    if done.opinion in _OPINIONS:
        yield f"  {_OPINIONS[done.opinion]}"
    if done.withdrawn:
        yield f"  {counted(len(done.withdrawn), 'earlier opinion')} withdrawn"
    if not publication.dry_run:
        yield f"  summary {publication.summary.value}{_STATUSES[publication.status]}"
    yield from (f"  {one}" for one in plan.notes)


def _listed(lines: list[str]) -> Iterator[str]:
    yield from (f"    {line}" for line in lines[:10])
    if len(lines) > 10:
        yield f"    and {len(lines) - 10:,} more"


def publication_json(publication: Publication) -> str:
    """The same as a JSON document of version 1; fields are added, never changed."""
    plan, done = publication.plan, _as_if_done(publication)
    data: dict[str, Any] = {
        "schema_version": 1,
        "pull_request": str(plan.pull_request.name),
        "head": plan.pull_request.head,
        "review_id": plan.review.review_id,
        "dry_run": publication.dry_run,
        "conclusion": plan.conclusion.value,
        "posted": [{**_finding(one.finding), "line": one.line, "start_line": one.start_line} for one in done.posted],
        "known": [_finding(one) for one in plan.known],
        "in_summary": [
            {**_finding(one.finding), "reason": one.reason} for one in (*plan.without_comment, *publication.refused)
        ],
        "answers": [{"kind": one.kind.value, "file": one.path, "resolved": one.resolved} for one in done.answered],
        "dismissed": [{**_finding(one.finding), "who": one.who, "reason": one.reason} for one in plan.dismissed],
        "opinion": None if done.opinion is None else done.opinion.value,
        "withdrawn": len(done.withdrawn),
        "summary": {"change": publication.summary.value, "url": publication.summary_url or None},
        "status": publication.status.value,
        "notes": list(plan.notes),
        "problems": [{"message": one.message, "hint": one.hint, "minor": one.is_minor} for one in publication.problems],
        "exit_code": publication.exit_code,
    }
    return json_text(data)


def _finding(finding: Finding) -> dict[str, Any]:
    title = redact(finding.title[:_LONGEST_TITLE])
    return {**fields_of(finding, "fingerprint file line_start severity"), "title": title}
