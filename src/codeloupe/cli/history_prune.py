"""`codeloupe history prune`: remove old entries, and tell what went and how much room it gave."""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime, timedelta

from codeloupe.cli.history_place import at_least, identity_of
from codeloupe.cli.writing import write_result
from codeloupe.errors import UsageError
from codeloupe.model.history import PruneRule, Removed
from codeloupe.reports.history import removed_json
from codeloupe.reports.wording import counted
from codeloupe.store.history import SqliteHistory

_AGE = re.compile(r"([0-9]{1,5}) {0,3}([dwmy]?)", re.IGNORECASE)
_DAYS = {"": 1, "d": 1, "w": 7, "m": 30, "y": 365}


def run(history: SqliteHistory, arguments: argparse.Namespace) -> int:
    """Remove what the options name."""
    if arguments.older_than is None and arguments.keep is None:
        raise UsageError("nothing says what to remove", hint="give --older-than 90d, --keep 100, or both")
    older_than = None if arguments.older_than is None else _before(arguments.older_than, datetime.now(UTC))
    keep_last = None if arguments.keep is None else at_least(arguments.keep, 0, "--keep")
    identity = identity_of(history, arguments)
    rule = PruneRule(
        older_than=older_than,
        keep_last=keep_last,
        repositories=None if identity is None else identity.names,
    )
    before = history.file_bytes()
    removed = history.prune(rule, dry_run=arguments.dry_run)
    freed = max(before - history.file_bytes(), 0)
    if arguments.json:
        write_result(removed_json(removed, dry_run=arguments.dry_run, freed_bytes=freed))
    else:
        write_result(_in_words(removed, dry_run=arguments.dry_run, freed_bytes=freed))
    return 0


def _before(word: str, now: datetime) -> datetime:
    found = _AGE.fullmatch(word.strip())
    try:
        if found is not None:
            return now - timedelta(days=int(found[1]) * _DAYS[found[2].lower()])
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)
    raise UsageError(f"--older-than: {word!r} is no age", hint="give days, weeks, months or years: 90d, 12w, 6m, 1y")


def _in_words(removed: Removed, *, dry_run: bool, freed_bytes: int) -> str:
    if not removed.reviews and not removed.sweeps:
        return "Nothing to remove.\n"
    what = counted(removed.reviews, "review", "reviews")
    sweeps = f" ({counted(removed.sweeps, 'sweep', 'sweeps')} among them)" if removed.sweeps else ""
    findings = counted(removed.findings, "finding", "findings")
    if dry_run:
        return f"Would remove {what}{sweeps} with {findings}, about {_size(removed.size_bytes)}. Nothing was changed.\n"
    return f"Removed {what}{sweeps} with {findings}; the database is {_size(freed_bytes)} smaller.\n"


def _size(size_bytes: int) -> str:
    if size_bytes < 1000:
        return counted(size_bytes, "byte", "bytes")
    return f"{size_bytes / 1000:,.0f} kB" if size_bytes < 1_000_000 else f"{size_bytes / 1_000_000:,.1f} MB"
