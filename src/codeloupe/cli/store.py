"""`codeloupe store`: show where data is stored, and copy it from one database to another."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path

from codeloupe.cli.parser import Parser, add_command, add_examples, flag, option
from codeloupe.cli.progress import Display, choose_mode
from codeloupe.cli.verbs import note, set_up_logging, size_of, write_result
from codeloupe.config.loading import database_url, user_settings
from codeloupe.errors import UsageError
from codeloupe.reports.wording import counted
from codeloupe.store import is_postgres, open_database
from codeloupe.store.interface import Database
from codeloupe.store.ledger import MAX_AGE_DAYS
from codeloupe.store.migration import Migrated, counts_of, migrate
from codeloupe.store.spool import spooled_answers
from codeloupe.store.sqlite import DATABASE_NAME, SqliteDatabase, state_directory
from codeloupe.system.untrusted import terminal

_PLACE = "FILE_OR_URL"
_NOT_VERIFIED = 3
_MOST_NAMED = 10
_EPILOG = """\
Entries that the target already has are not changed, unless --replace is given. After an interruption, run the same
command again to continue. A database with a table or column that this version does not know is refused. Damaged entries
are named and not copied.

A pipeline run that a process is working on is not copied; copy again when it has stopped. Jobs of workers, claims on
running calls and shared limits are not copied.
"""
_TO_SERVER = "codeloupe store migrate --to postgresql://ada@db.example/reviews --dry-run"
_EXAMPLES = {
    "": ("codeloupe store show", _TO_SERVER),
    "show": ("codeloupe store show",),
    "migrate": (_TO_SERVER,),
}
# An entry of each table, in the singular.
_NOUNS = {
    "results": "finished call",
    "reviews": "review",
    "sweeps": "sweep",
    "dismissals": "dismissal",
    "spending": "spending record",
    "blobs": "file content",
    "runs": "run",
}


def configure(parser: Parser) -> None:
    """Add the verbs below `store` to its parser."""
    parser.description = "Show where data is stored, or copy it to another database."
    verbs = parser.add_commands(dest="action")
    show = add_command(verbs, "show", "show where data is stored, and how much", _show)
    option(show, "place", _PLACE, "a database (default: the one in use)", nargs="?")
    about = "copy ledger, history, spending and pipeline runs, and compare both sides"
    copy = add_command(verbs, "migrate", about, _migrate)
    copy.epilog = _EPILOG
    option(copy, "--from", _PLACE, "the source (default: the SQLite file)", dest="source")
    option(copy, "--to", _PLACE, "the target (default: the database of the settings)", dest="target")
    flag(copy, "--replace", "replace entries of the target that differ")
    flag(copy, "--dry-run", "show what would be copied, and change nothing")
    flag(copy, "-q --quiet", "print only the result")
    add_examples(parser, _EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Run the verb and return the exit code. Raise UsageError and StoreError."""
    set_up_logging()
    return int(arguments.act(arguments))


def _show(arguments: argparse.Namespace) -> int:
    place = arguments.place or database_url(os.environ) or str(state_directory(os.environ))
    with _opened(place, must_exist=arguments.place is not None) as database:
        rows = [("place", terminal(database.name))]
        if database.is_made():
            rows.append(("schema", str(database.schema())))
            rows.append(("size", size_of(database.size_bytes())))
            rows += [(table, f"{number:,}") for table, number in counts_of(database).items()]
            rows.append(("ledger", _ledger_limits()))
        else:
            rows.append(("size", "nothing is stored yet"))
        waiting = spooled_answers(database, state_directory(os.environ))
        if waiting:
            rows.append(("spool", f"{counted(waiting, 'answer')} on this machine, not in the database yet"))
    lines = [f"{name:<13}  {value}\n" for name, value in rows]
    write_result("".join(lines))
    return 0


def _ledger_limits() -> str:
    max_gb = user_settings(os.environ).ledger_max_gb
    return f"at most {max_gb:g} GB of finished calls (ledger_max_gb), none older than {MAX_AGE_DAYS:g} days"


def _opened(place: str, *, must_exist: bool) -> Database:
    """Return the database at a path or URL. Raise UsageError if it must exist and does not."""
    if is_postgres(place):
        return _opened_server(place, must_exist=must_exist)
    if "://" in place:
        # The URL is not shown, because it may contain a password.
        hint = "give the path of a file, or postgresql://USER@HOST/NAME"
        raise UsageError("this URL is not supported: a database is a file or a Postgres server", hint=hint)
    path = Path(place)
    is_new_folder = not must_exist and not os.path.lexists(path) and path.suffix != Path(DATABASE_NAME).suffix
    if is_new_folder or os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises for a name that no file can have
        path /= DATABASE_NAME
    # SQLite would create a database in the place of a missing or empty file.
    has_content = os.path.isfile(path) and path.stat().st_size > 0  # noqa: PTH113 - as above
    if must_exist and not has_content:
        hint = f"give the path of a {DATABASE_NAME}, or postgresql://USER@HOST/NAME"
        raise UsageError(f"{terminal(str(path))}: no such database", hint=hint)
    return SqliteDatabase(path)


def _opened_server(url: str, *, must_exist: bool) -> Database:
    database = open_database(url, Path())
    if must_exist and not database.is_made():
        hint = "check the URL; `codeloupe store show` without a URL shows the configured database"
        raise UsageError(f"{terminal(database.name)}: this database contains no data of codeloupe", hint=hint)
    return database


def _migrate(arguments: argparse.Namespace) -> int:
    source_place = arguments.source or str(state_directory(os.environ))
    target_place = arguments.target or database_url(os.environ)
    if target_place is None:
        raise UsageError("no target to copy to", hint="give --to, or set `database` or CODELOUPE_DATABASE")
    with (
        _opened(source_place, must_exist=True) as source,
        _opened(target_place, must_exist=False) as target,
        _Counter(mode=choose_mode(quiet=arguments.quiet)) as display,
    ):
        _refuse_same_place(source, target)
        try:
            done = migrate(source, target, replace=arguments.replace, dry_run=arguments.dry_run, report=display.count)
        except KeyboardInterrupt:
            kept = "copied entries are kept; run the same command again to continue"
            raise KeyboardInterrupt(kept) from None
        places = f"from  {terminal(source.name)}\nto    {terminal(target.name)}\n"
    write_result(f"{places}{_as_text(done, dry_run=arguments.dry_run)}")
    waiting = spooled_answers(source, state_directory(os.environ))
    if waiting:
        note(f"{counted(waiting, 'answer')} on this machine will be moved to the source when it is used again")
    if done.is_verified:
        return 0
    _note_differences(done)
    return _NOT_VERIFIED


def _refuse_same_place(source: Database, target: Database) -> None:
    if isinstance(source, SqliteDatabase) and isinstance(target, SqliteDatabase):
        is_same = os.path.exists(target.path) and os.path.samefile(source.path, target.path)  # noqa: PTH110, PTH121 - as above
    else:
        is_same = source.name == target.name
    if is_same:
        raise UsageError(f"{terminal(source.name)} is both source and target", hint="give two different databases")


class _Counter(Display):
    """The number of entries that are done."""

    _now = ""
    _last_shown = -1

    def status(self) -> str:
        """Return the last count."""
        return self._now

    def count(self, done: int, total: int) -> None:
        """Show how many entries are done; on a plain stream at every tenth of them."""
        self._now = f"{done:,} of {counted(total, 'entry', 'entries')} done"
        tenth = 10 * done // max(total, 1)
        if tenth != self._last_shown:
            self._last_shown = tenth
            self.tell(self._now)


def _as_text(done: Migrated, *, dry_run: bool) -> str:
    copied = "Would copy" if dry_run else "Copied"
    replaced = "Would replace" if dry_run else "Replaced"
    lines = [f"{copied}: {_listed(done.copied)}."]
    if any(done.replaced.values()):
        lines.append(f"{replaced}: {_listed(done.replaced)}.")
    if any(done.equal.values()):
        lines.append(f"Already in the target: {_listed(done.equal)}.")
    if any(done.newer.values()):
        lines.append(f"Newer in the target: {_listed(done.newer)}.")
    lines += [terminal(f"Not copied: {skipped}.") for skipped in done.skipped]
    lines += [terminal(f"{remark}.") for remark in done.notes]
    if dry_run:
        lines.append("Nothing was changed.")
    else:
        lines += ["", f"{'table':<13}  {'rows':>9}"]
        lines += [f"{table:<13}  {rows:>9,}" for table, rows in done.rows.items()]
        if done.is_verified:
            lines += ["", "Verified: the target has all of this."]
    return "\n".join(lines) + "\n"


def _listed(counts: Mapping[str, int]) -> str:
    found = [counted(number, _NOUNS[table]) for table, number in counts.items() if number]
    return ", ".join(found) or "nothing"


def _note_differences(done: Migrated) -> None:
    if done.skipped:
        note(f"not verified: {counted(len(done.skipped), 'entry was', 'entries were')} not copied")
    if not done.different:
        return
    names = ", ".join(done.different[:_MOST_NAMED])
    more = ""
    if len(done.different) > _MOST_NAMED:
        more = f" and {len(done.different) - _MOST_NAMED:,} more"
    entries = counted(len(done.different), "entry is", "entries are")
    note(f"not verified: {entries} different in the target: {names}{more}")
    note("replace them with --replace")
