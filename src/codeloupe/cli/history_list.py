"""`codeloupe history list`: what is saved, the newest first."""

from __future__ import annotations

import argparse
import sys

from codeloupe.cli.history_place import at_least, identity_of, laid_out, nothing_yet
from codeloupe.cli.options import look_of
from codeloupe.cli.writing import write_result
from codeloupe.model.history import HistoryQuery, Listing
from codeloupe.reports.history import list_json, render_list
from codeloupe.store.history import SqliteHistory


def run(history: SqliteHistory, arguments: argparse.Namespace) -> int:
    """Show the list; a history without entries is no error."""
    limit = at_least(arguments.limit, 1, "--limit")
    identity = identity_of(history, arguments)
    names = None if identity is None else identity.names
    # One more than is shown tells whether there are more.
    found = history.list(HistoryQuery(repositories=names, branch=arguments.branch, limit=limit + 1))
    shown = Listing(found.entries[:limit], found.problems)
    if arguments.json:
        write_result(list_json(shown))
    elif not shown.entries and not shown.problems:
        write_result(nothing_yet(identity, arguments.branch))
    else:
        write_result(render_list(shown, **laid_out(look_of(arguments.color)), with_repository=identity is None))
        if len(found.entries) > limit:
            print(f"codeloupe: there are older ones; --limit {limit * 2} shows more", file=sys.stderr)
    return 0
