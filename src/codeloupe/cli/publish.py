"""`codeloupe publish`: a saved review on a pull request. Its options are in `publish_options`."""

from __future__ import annotations

import argparse
import sys

from codeloupe.cli.publish_text import publication_json, render_publication
from codeloupe.cli.running import run_to_end, set_up_logging
from codeloupe.cli.writing import write_result
from codeloupe.errors import UsageError
from codeloupe.forges.publishing import PublishRequest, publish_github
from codeloupe.model.publication import Publication, PublishOptions, StatusKind
from codeloupe.system.untrusted import log_line


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
