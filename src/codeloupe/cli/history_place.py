"""What the verbs of the history share: which repository is meant, and how text is laid out."""

from __future__ import annotations

import argparse
import sys
from functools import cache
from importlib import import_module
from typing import Any

from codeloupe.cli.options import Look
from codeloupe.engine.history import Here
from codeloupe.errors import UsageError
from codeloupe.model.history import RepositoryIdentity, ReviewRecord, SweepRecord
from codeloupe.store.history import SqliteHistory
from codeloupe.system.sanitise import terminal

_FIRST_STEP = "`codeloupe review` makes the first entry"


def here(history: SqliteHistory, arguments: argparse.Namespace) -> Here:
    """The repository of `--repo`, found out when it is asked for the first time: that takes git."""

    @cache
    def found() -> RepositoryIdentity:
        # Without an event loop: to load one takes longer than to ask git and the database.
        find = import_module("codeloupe.git.identity").find_identity_now
        identity: RepositoryIdentity = find(arguments.repo, history)
        return identity

    return found


def identity_of(history: SqliteHistory, arguments: argparse.Namespace) -> RepositoryIdentity | None:
    """The repository of `--repo`, or None for all of them."""
    return None if arguments.all_repositories else here(history, arguments)()


def at_least(number: int, least: int, option: str) -> int:
    """The number. Raises UsageError when it is less."""
    if number < least:
        raise UsageError(f"{option} is {number}, and must be at least {least}", hint="see codeloupe history --help")
    return number


def tell_problems(record: ReviewRecord | SweepRecord) -> None:
    """Say on stderr what of a record cannot be read."""
    for problem in record.problems:
        print(f"codeloupe: {terminal(problem)}", file=sys.stderr)


def nothing_yet(identity: RepositoryIdentity | None, branch: str | None = None) -> str:
    """What to say of a history without entries, and how to make the first."""
    where = "" if identity is None else f" of {terminal(identity.label) or 'this directory'}"
    on = "" if branch is None else f" on branch {terminal(branch)}"
    return f"No review{where}{on} is saved yet; {_FIRST_STEP}.\n"


def laid_out(look: Look) -> dict[str, Any]:
    """How to lay out, as the reports take it."""
    return {"width": look.width, "color": look.color, "ascii_only": look.ascii_only}
